//! Commands of the control thread to the data thread, which answers between two batches of packets.

use std::collections::BTreeMap;

use dyram::{ChildInfo, ConfigError, SessionInfo, SessionKey};
use tokio::sync::oneshot;

use crate::config::Config;

/// Rows in one answer: they take a few hundred microseconds of the data thread's time.
pub(crate) const PAGE: usize = 256;

/// Sends commands to the data thread.
pub(crate) type Controller = daemon_kit::Controller<Command>;

/// A command to the data thread.
#[derive(Debug)]
pub(crate) enum Command {
    /// Returns all counters.
    Counters(oneshot::Sender<Counters>),
    /// Returns up to [`PAGE`] sessions from an index on.
    Sessions(usize, oneshot::Sender<Vec<SessionInfo>>),
    /// Returns up to [`PAGE`] children of the session at an index, from a child on; `None` after the last session.
    Children(usize, usize, oneshot::Sender<Option<Children>>),
    /// Applies a validated configuration.
    Reload(Box<Config>, oneshot::Sender<Result<(), ConfigError>>),
    /// Drains the relay; if `true`, ends when the children have left.
    Drain(bool),
    /// Ends at once.
    Stop,
}

/// Some children of a session.
#[derive(Clone, Debug)]
pub(crate) struct Children {
    pub(crate) key: SessionKey,
    pub(crate) children: Vec<ChildInfo>,
}

/// All counters at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) sessions: u64,
    pub(crate) children: u64,
    pub(crate) draining: bool,
    pub(crate) recovery: Counts,
    pub(crate) feedback: Counts,
    pub(crate) members: Counts,
    pub(crate) drops: Counts,
    pub(crate) sockets: Counts,
}

/// Counts by name.
pub(crate) type Counts = BTreeMap<String, u64>;
