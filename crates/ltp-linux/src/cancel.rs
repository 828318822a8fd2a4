//! Ending a transfer from another thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use linux_net::wake::Waker;

/// A flag that ends transfers early. Clones share it, and one flag may serve several transfers.
///
/// The transfer tells its peers that it leaves, which takes up to 0.3 s, and then ends with
/// [`Error::Canceled`](crate::Error::Canceled).
#[derive(Debug, Clone)]
pub struct Cancel {
    raised: Arc<AtomicBool>,
    waker: Waker,
}

impl Cancel {
    /// Creates a flag that is not raised.
    ///
    /// # Errors
    /// The kernel's, when no descriptor is left.
    pub fn new() -> io::Result<Self> {
        Ok(Cancel {
            raised: Arc::default(),
            waker: Waker::new()?,
        })
    }

    /// Raises the flag and wakes the transfers that wait. From any thread, any number of times.
    pub fn cancel(&self) {
        self.raised.store(true, Ordering::SeqCst);
        self.waker.wake();
    }

    /// Returns whether the flag was raised.
    #[must_use]
    pub fn is_canceled(&self) -> bool {
        self.raised.load(Ordering::SeqCst)
    }
}

/// Readable once the flag was raised.
impl AsFd for Cancel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}
