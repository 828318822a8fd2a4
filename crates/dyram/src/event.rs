//! What a relay tells its operator.

use core::net::SocketAddr;

use crate::{RelayId, Seq, SessionKey};

/// Something that happened, for logs and status.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// The relay begins to serve a session.
    Opened(SessionKey),
    /// The session has neither children nor a source; its state was removed.
    Closed(SessionKey),
    /// The source registered at this relay.
    SourceArrived(SessionKey, SocketAddr),
    /// A source was refused because another one with this name is served. Reported once.
    SourceRefused(SessionKey, SocketAddr),
    /// The source has been silent for three refreshes.
    SourceLost(SessionKey),
    /// A parent accepted this relay.
    Attached(SessionKey, SocketAddr),
    /// The parent is silent or drains; the next one is tried.
    ParentLost(SessionKey, SocketAddr),
    /// No parent has accepted this relay, and this one, the last of them, does not answer. They are tried again; reported
    /// once until one accepts.
    Unanswered(SessionKey, SocketAddr),
    /// The parent refused; the next one is tried.
    Refused(SessionKey, SocketAddr),
    /// This relay is both above and below the named one.
    Loop(SessionKey, RelayId),
    /// Two session identifiers are in use; the first is served.
    Collision(SessionKey, [u32; 2]),
    /// A child joined.
    ChildJoined(SessionKey, SocketAddr),
    /// A child left, or was removed because it was silent.
    ChildGone(SessionKey, SocketAddr),
    /// A child lacks packets and has not advanced beyond this acknowledgement for
    /// [`Config::stall_timeout`](crate::Config::stall_timeout). The session no longer waits for it.
    ChildStalled(SessionKey, SocketAddr, Seq),
    /// A JOIN was refused because a table is full.
    ChildRefused(SessionKey, SocketAddr, Full),
}

/// The limit that a JOIN exceeds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Full {
    /// [`Limits::sessions`](crate::storage::Limits::sessions).
    Sessions,
    /// [`Limits::children`](crate::storage::Limits::children) of the session.
    Children,
    /// [`Config::children_per_host`](crate::Config::children_per_host).
    Host,
    /// [`MAX_PATH`](crate::wire::MAX_PATH) relays above the child.
    Path,
}

impl Full {
    /// Returns the limit's name in logs: lower case, with underscores.
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
