//! Waking a thread that waits in [`poll::wait`](crate::poll::wait) from another thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nix::sys::eventfd::{EfdFlags, EventFd};

/// A counter in the kernel (`eventfd`): readable while woken. Clones wake the same waiter.
#[derive(Clone, Debug)]
pub struct Waker(Arc<EventFd>);

impl Waker {
    /// A new waker, not woken.
    ///
    /// # Errors
    /// The kernel's error: most often out of file descriptors.
    pub fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self(Arc::new(EventFd::from_value_and_flags(0, flags)?)))
    }

    /// Makes the descriptor readable until [`reset`](Self::reset). From any thread, and from a
    /// signal handler.
    pub fn wake(&self) {
        // The only failure is a counter at its limit: then it is readable already.
        let _ = self.0.write(1);
    }

    /// Answers whether it was woken since the last call, and forgets it.
    pub fn reset(&self) -> bool {
        self.0.read().is_ok()
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
