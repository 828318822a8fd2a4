//! What the control thread asks of the data thread, which answers between two batches of packets.

use std::collections::BTreeMap;

use dyram::{ChildInfo, ConfigError, SessionInfo, SessionKey};
use tokio::sync::oneshot;

use crate::config::Config;

/// Rows in one answer: a few hundred microseconds of the data thread's time.
pub(crate) const PAGE: usize = 256;

/// The control thread's end.
pub(crate) type Controller = daemon_kit::Controller<Command>;

/// What the control thread wants.
#[derive(Debug)]
pub(crate) enum Command {
    /// Everything that is counted.
    Counters(oneshot::Sender<Snapshot>),
    /// Up to [`PAGE`] sessions from a place on.
    Sessions(usize, oneshot::Sender<Vec<SessionInfo>>),
    /// Up to [`PAGE`] children of the session at a place, from a child on; none after the last
    /// session.
    Children(usize, usize, oneshot::Sender<Option<Children>>),
    /// A new configuration, already checked.
    Reload(Box<Config>, oneshot::Sender<Result<(), ConfigError>>),
    /// Send children away; end when they are gone where `true`.
    Drain(bool),
    /// End at once.
    Stop,
}

/// Some children of a session.
#[derive(Clone, Debug)]
pub(crate) struct Children {
    pub(crate) key: SessionKey,
    pub(crate) children: Vec<ChildInfo>,
}

/// Everything that is counted, at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) sessions: u64,
    pub(crate) children: u64,
    pub(crate) draining: bool,
    pub(crate) recovery: Counts,
    pub(crate) members: Counts,
    pub(crate) drops: Counts,
    pub(crate) sockets: Counts,
}

/// Counts by name.
pub(crate) type Counts = BTreeMap<String, u64>;
