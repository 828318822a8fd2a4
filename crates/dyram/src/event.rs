//! What a relay tells its operator.

use core::net::SocketAddr;

use crate::{RelayId, Seq, SessionKey};

/// Something that happened, for logs and status.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// A session is served now.
    Opened(SessionKey),
    /// Nobody is left below, and no source: its state is gone.
    Closed(SessionKey),
    /// The source registered here.
    SourceArrived(SessionKey, SocketAddr),
    /// Another source with this name is served: this one is refused. Told once.
    SourceRefused(SessionKey, SocketAddr),
    /// The source has been silent for three refreshes.
    SourceLost(SessionKey),
    /// A parent took this relay in.
    Attached(SessionKey, SocketAddr),
    /// The parent is silent; the next one is tried.
    ParentLost(SessionKey, SocketAddr),
    /// The parent refused; the next one is tried.
    Refused(SessionKey, SocketAddr),
    /// That relay is both above and below this one.
    Loop(SessionKey, RelayId),
    /// Two session identifiers are in use at a time: the first is served.
    Collision(SessionKey, [u32; 2]),
    /// A child was taken in.
    ChildJoined(SessionKey, SocketAddr),
    /// A child left, or was silent for too long.
    ChildGone(SessionKey, SocketAddr),
    /// A child lacked packets and did not advance beyond that acknowledgement for
    /// [`Config::stall_timeout`](crate::Config::stall_timeout): the session no longer waits for it.
    ChildStalled(SessionKey, SocketAddr, Seq),
    /// A JOIN was refused because a table is full.
    ChildRefused(SessionKey, SocketAddr, Full),
}

/// The limit that a JOIN met.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Full {
    /// [`Limits::sessions`](crate::storage::Limits::sessions).
    Sessions,
    /// [`Limits::children`](crate::storage::Limits::children) of the session.
    Children,
    /// [`Config::children_per_host`](crate::Config::children_per_host).
    Host,
    /// [`MAX_PATH`](crate::wire::MAX_PATH) relays are above the child.
    Path,
}

impl Full {
    /// The limit in snake case, as the log names it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Full::Sessions => "sessions",
            Full::Children => "children",
            Full::Host => "children_per_host",
            Full::Path => "path",
        }
    }
}
