//! How the control thread talks to the data thread: commands through a bounded channel, and an
//! eventfd that wakes the receiver. The machine lives in the data thread, which answers between
//! two batches of packets; each command costs it a bounded time.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use linux_net::wake::Waker;
use tokio::sync::oneshot;

use crate::config::Config;
use crate::status::{Counters, Group, Interface};

/// Commands that may wait for the data thread.
const QUEUE: usize = 64;
/// Routes in one answer: a few hundred microseconds of the data thread's time.
pub(crate) const PAGE: usize = 256;

/// What the control thread wants.
#[derive(Debug)]
pub(crate) enum Command {
    /// Some figures of the overview.
    Summary(oneshot::Sender<Summary>),
    /// Up to [`PAGE`] routes from a place in the table on.
    Groups {
        from: usize,
        reply: oneshot::Sender<Page>,
    },
    /// All interfaces.
    Interfaces(oneshot::Sender<Vec<Interface>>),
    /// All counters, and the interfaces' for the metrics.
    Counters(oneshot::Sender<Snapshot>),
    /// A new configuration, already checked.
    Reload(Box<Config>, oneshot::Sender<()>),
    /// Withdraw from the hierarchy and end.
    Stop,
}

/// The data thread's part of the overview.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) policy: &'static str,
    pub(crate) groups: u64,
    pub(crate) neighbours: u64,
    pub(crate) interfaces: u64,
}

/// Some routes, and where the next page starts.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) groups: Vec<Group>,
    pub(crate) next: Option<usize>,
}

/// Everything that is counted, at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) summary: Summary,
    pub(crate) counters: Counters,
    pub(crate) interfaces: Vec<Interface>,
}

/// The control thread's end.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    commands: SyncSender<Command>,
    waker: Waker,
}

/// The data thread did not take a command: it is ending, or too many wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unavailable;

impl std::fmt::Display for Unavailable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the data path is busy or ending")
    }
}

impl Controller {
    /// Both ends.
    pub(crate) fn new(waker: Waker) -> (Controller, Receiver<Command>) {
        let (commands, receiver) = sync_channel(QUEUE);
        (Controller { commands, waker }, receiver)
    }

    /// Sends a command without waiting for room.
    pub(crate) fn send(&self, command: Command) -> Result<(), Unavailable> {
        let sent = self.commands.try_send(command);
        self.waker.wake();
        sent.map_err(|error| match error {
            TrySendError::Full(_) | TrySendError::Disconnected(_) => Unavailable,
        })
    }

    /// Sends a command and waits for its answer.
    pub(crate) async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, Unavailable> {
        let (reply, answer) = oneshot::channel();
        self.send(command(reply))?;
        answer.await.map_err(|_| Unavailable)
    }
}
