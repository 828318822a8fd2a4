//! How the control thread talks to the data thread: commands through a bounded channel, and an
//! eventfd that wakes the receiver. The machine lives in the data thread, which answers between
//! two batches of packets; each command costs it a bounded time.

use tokio::sync::oneshot;

use crate::config::Config;
use crate::status::{Counters, Group, Interface};

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
pub(crate) type Controller = daemon_kit::Controller<Command>;
