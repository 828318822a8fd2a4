//! The channel from the control thread to a data thread: bounded, with an eventfd that wakes the receiver.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use linux_net::wake::Waker;
use tokio::sync::oneshot;

/// Commands that may wait for the data thread.
const QUEUE: usize = 64;

/// The end of the control thread.
#[derive(Debug)]
pub struct Controller<C> {
    commands: SyncSender<C>,
    waker: Waker,
    closed: Arc<AtomicBool>,
}

/// The data thread did not accept a command: it is ending, or too many are queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unavailable;

impl std::fmt::Display for Unavailable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the data path is busy or ending")
    }
}

impl<C> Clone for Controller<C> {
    fn clone(&self) -> Self {
        Controller {
            commands: self.commands.clone(),
            waker: self.waker.clone(),
            closed: Arc::clone(&self.closed),
        }
    }
}

impl<C> Controller<C> {
    /// Creates both ends of a channel; `waker` wakes the data thread.
    pub fn new(waker: Waker) -> (Controller<C>, Receiver<C>) {
        let (commands, receiver) = sync_channel(QUEUE);
        let closed = Arc::default();
        let controller = Controller {
            commands,
            waker,
            closed,
        };
        (controller, receiver)
    }

    /// Sends a command without waiting for room.
    ///
    /// # Errors
    /// The queue is full, or the data thread has ended.
    pub fn send(&self, command: C) -> Result<(), Unavailable> {
        let sent = self.commands.try_send(command);
        self.waker.wake();
        sent.map_err(|error| {
            if matches!(error, TrySendError::Disconnected(_)) {
                self.closed.store(true, Ordering::Release);
            }
            Unavailable
        })
    }

    /// Returns whether a command was refused because the data thread has ended.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Sends a command and waits for its reply.
    ///
    /// # Errors
    /// The queue is full, or the data thread has ended.
    pub async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> C,
    ) -> Result<T, Unavailable> {
        let (reply, answer) = oneshot::channel();
        self.send(command(reply))?;
        answer.await.map_err(|_| Unavailable)
    }
}
