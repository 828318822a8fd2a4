//! Events of an endpoint, and types for its driver.

use core::net::{IpAddr, SocketAddr};

use crate::error::Failure;
use crate::group::Mode;

/// A connection, to one peer. Never used for another one later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// A sender's group of connections. Never used for another one later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Where data is sent to: one peer, or all of a group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Target {
    /// One peer. A member of a group has no data of its own: commands that send or close are refused for it
    /// with [`CommandError::Unknown`](crate::CommandError::Unknown), and must name the [`Target::Group`].
    Connection(ConnId),
    /// All receivers of a group.
    Group(GroupId),
}

impl From<ConnId> for Target {
    fn from(connection: ConnId) -> Self {
        Target::Connection(connection)
    }
}

impl From<GroupId> for Target {
    fn from(group: GroupId) -> Self {
        Target::Group(group)
    }
}

/// Whether something has happened that the application is told of once.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Report {
    /// It has not happened.
    #[default]
    Nothing,
    /// Its event waits to be polled.
    Due,
    /// Its event was polled.
    Taken,
}

impl Report {
    /// It has happened.
    pub(crate) fn make_due(&mut self) {
        if *self == Report::Nothing {
            *self = Report::Due;
        }
    }

    /// Returns whether the event is to be reported, which is done then.
    pub(crate) fn take(&mut self) -> bool {
        let due = *self == Report::Due;
        if due {
            *self = Report::Taken;
        }
        due
    }

    pub(crate) fn is_taken(self) -> bool {
        self == Report::Taken
    }
}

/// An event for the application. At most one of each kind and connection waits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// [`Endpoint::accept`](crate::Endpoint::accept) on this port has a connection.
    Incoming {
        /// The listener's port.
        port: u16,
    },
    /// The handshake that this side began is complete.
    Connected {
        /// The connection.
        connection: ConnId,
    },
    /// All receivers of a group have answered, or were left out: data flows.
    GroupReady {
        /// The group.
        group: GroupId,
    },
    /// There is something to read that was not there before.
    Readable {
        /// The connection.
        connection: ConnId,
    },
    /// There is space to write again after a write that did not fit.
    Writable {
        /// A connection of its own, or a group.
        target: Target,
    },
    /// The peer has closed its direction: nothing follows the data that can be read now.
    Finished {
        /// The connection.
        connection: ConnId,
    },
    /// All that was sent, the end of the stream included, is acknowledged.
    Delivered {
        /// The connection.
        connection: ConnId,
    },
    /// Join this group, only from this source where the system can, and hand its segments in.
    Join {
        /// The connection whose data comes there.
        connection: ConnId,
        /// The group.
        group: IpAddr,
        /// The sender.
        source: IpAddr,
    },
    /// This connection no longer needs this group from this source.
    Leave {
        /// The connection whose data came there.
        connection: ConnId,
        /// The group.
        group: IpAddr,
        /// The sender.
        source: IpAddr,
    },
    /// A receiver's transmission mode has changed.
    ModeChanged {
        /// The receiver.
        connection: ConnId,
        /// The mode from now on.
        mode: Mode,
    },
    /// A receiver held its group below the configured rate and is served separately.
    Detached {
        /// The receiver.
        connection: ConnId,
    },
    /// The connection has ended; unread data can be read until its end.
    Closed {
        /// The connection.
        connection: ConnId,
        /// The other side.
        remote: SocketAddr,
        /// Why, when not in good order.
        failure: Option<Failure>,
    },
    /// All connections of a group have ended.
    GroupClosed {
        /// The group.
        group: GroupId,
    },
}

/// Where a packet came from and went to.
///
/// With [`Carrier::Udp`](crate::Carrier::Udp) `source` is that of the datagram; with
/// [`Carrier::Ip`](crate::Carrier::Ip) its port is ignored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Meta {
    /// Source address and UDP port.
    pub source: SocketAddr,
    /// Destination address: ours, or a multicast group.
    pub destination: IpAddr,
}

/// A packet to send: the first `len` bytes of the buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Transmit {
    /// Bytes written.
    pub len: usize,
    /// Our address, unspecified when the command that opened the connection left it so.
    pub source: IpAddr,
    /// Destination address and UDP port (with [`Carrier::Ip`](crate::Carrier::Ip): TCP port).
    pub destination: SocketAddr,
}

/// Segments to send to one destination, all of the same length but the last, which may be shorter.
///
/// They lie in the buffer one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SegmentBatch {
    /// Bytes of all segments.
    pub len: usize,
    /// Bytes of each segment.
    pub segment_size: usize,
    /// Number of segments.
    pub segments: usize,
    /// As in [`Transmit`].
    pub source: IpAddr,
    /// As in [`Transmit`].
    pub destination: SocketAddr,
}

impl From<Transmit> for SegmentBatch {
    fn from(transmit: Transmit) -> Self {
        Self {
            len: transmit.len,
            segment_size: transmit.len,
            segments: 1,
            source: transmit.source,
            destination: transmit.destination,
        }
    }
}

impl Transmit {
    /// Whether it goes to a group.
    #[must_use]
    pub fn is_multicast(&self) -> bool {
        self.destination.ip().is_multicast()
    }
}
