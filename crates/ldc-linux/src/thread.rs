//! A ring whose other end is a thread.

use std::ops::{Deref, DerefMut};
use std::thread::JoinHandle;

use crate::Sender;

/// The sender's end of a ring that a thread drains; all of [`Sender`] is there. Dropping it lets the thread
/// go on until everything has left, or cannot.
#[must_use = "`finish` says whether everything has left"]
pub struct Drained<T> {
    sender: Sender,
    thread: JoinHandle<T>,
}

impl<T: Send + 'static> Drained<T> {
    pub(crate) fn start(
        sender: Sender,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> std::io::Result<Drained<T>> {
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(work)?;
        Ok(Drained { sender, thread })
    }

    /// Says that nothing more comes, waits until everything has left the ring, and hands back what the thread
    /// has to tell. What is held back never leaves: release it before.
    ///
    /// # Panics
    /// When the thread did.
    pub fn finish(mut self) -> T {
        self.sender.close();
        self.thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Whether the thread has ended: of itself only for an error, which [`Drained::finish`] hands on.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }
}

impl<T> Deref for Drained<T> {
    type Target = Sender;

    fn deref(&self) -> &Sender {
        &self.sender
    }
}

impl<T> DerefMut for Drained<T> {
    fn deref_mut(&mut self) -> &mut Sender {
        &mut self.sender
    }
}
