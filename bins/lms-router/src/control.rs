//! Commands of the control thread to the data thread, which answers between two batches of packets, each in bounded
//! time.

use tokio::sync::oneshot;

use crate::config::Config;
use crate::status::{Counters, Group, Interface};

/// Routes in one answer: they take a few hundred microseconds of the data thread's time.
pub(crate) const PAGE: usize = 256;

/// A command to the data thread.
#[derive(Debug)]
pub(crate) enum Command {
    /// Returns the data thread's part of the overview.
    Summary(oneshot::Sender<Summary>),
    /// Returns up to [`PAGE`] routes from an index of the table on.
    Groups {
        from: usize,
        reply: oneshot::Sender<Page>,
    },
    /// Returns all interfaces.
    Interfaces(oneshot::Sender<Vec<Interface>>),
    /// Returns everything that the metrics show.
    Counters(oneshot::Sender<Readings>),
    /// Applies a validated configuration.
    Reload(Box<Config>, oneshot::Sender<()>),
    /// Withdraws from the hierarchy and ends.
    Stop,
}

/// The data thread's part of the overview.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) policy: &'static str,
    pub(crate) groups: u64,
    pub(crate) neighbours: u64,
    pub(crate) interfaces: u64,
    /// Groups that the fast path forwards, where there is one.
    pub(crate) fast_groups: Option<u64>,
}

/// Some routes, and the index where the next page starts.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) groups: Vec<Group>,
    pub(crate) next: Option<usize>,
}

/// Everything that the metrics show, at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readings {
    pub(crate) summary: Summary,
    pub(crate) counters: Counters,
    pub(crate) interfaces: Vec<Interface>,
}

/// Sends commands to the data thread.
pub(crate) type Controller = daemon_kit::Controller<Command>;
