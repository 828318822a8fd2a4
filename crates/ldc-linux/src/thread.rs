//! A ring that a thread drains.

use std::ops::{Deref, DerefMut};
use std::thread::JoinHandle;

use crate::Sender;

/// The sender's end of a ring that a thread drains; dereferences to [`Sender`]. With several rings, one per class, it
/// dereferences to a vector of their senders. After it is dropped, the thread continues until all messages have left or
/// sending fails.
#[must_use = "`finish` returns whether all messages have left"]
pub struct Drained<T, S = Sender> {
    sender: S,
    thread: JoinHandle<T>,
}

impl<T: Send + 'static, S> Drained<T, S> {
    pub(crate) fn start(
        sender: S,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> std::io::Result<Drained<T, S>> {
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(work)?;
        Ok(Drained { sender, thread })
    }

    /// Closes the ring, waits until all messages have left it, and returns the result of the thread. Messages held back
    /// never leave: release them first.
    ///
    /// # Panics
    /// If the thread panicked.
    pub fn finish(self) -> T {
        // Closes the ring and wakes the thread.
        drop(self.sender);
        self.thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Returns whether the thread has ended. It ends early only on an error, which [`Drained::finish`] returns.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }
}

impl<T, S> Deref for Drained<T, S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.sender
    }
}

impl<T, S> DerefMut for Drained<T, S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.sender
    }
}
