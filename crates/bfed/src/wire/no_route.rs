//! NO_ROUTE: the session will not arrive, and why (§5.2.1).
//!
//! ```text
//! +---------------+-----------------------
//! |  reason       |  session's name ...
//! +---------------+-----------------------
//! ```

use crate::name::SessionName;

numbered! {
    /// Why a session does not arrive.
    Reason {
        /// No route to any gateway of the owner.
        Unreachable = 1 "unreachable",
        /// The owner knows no such session.
        NoSession = 2 "no_session",
        /// A limit on sessions is reached, or no data node is free.
        Limit = 3 "limit",
        /// The tree would have a loop.
        Loop = 4 "loop",
        /// The gateways towards the owner do not answer.
        Timeout = 5 "timeout",
        /// The owner's DNS name does not resolve to a network.
        UnknownOwner = 6 "unknown_owner",
        /// The session belongs to the client's own network; the client subscribes there (§5.2.1).
        Local = 7 "local",
        /// A policy forbids it, or the network cannot carry it.
        Policy = 8 "policy",
    }
}

message! {
    /// A NO_ROUTE.
    Repr = NoRoute {
        /// Why.
        reason: Reason,
        /// The session.
        session: SessionName,
    }
}
