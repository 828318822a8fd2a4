//! Counters of routing.

/// Counters of routing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RouteStats {
    /// Routes announced by peers, new or changed.
    pub announced: u64,
    /// Routes withdrawn by peers.
    pub withdrawn: u64,
    /// Routes refused because this gateway or network was in their path.
    pub loops: u64,
    /// Routes refused because their path did not begin with the peer.
    pub not_from_peer: u64,
    /// Routes rejected because they lead to networks that are not granted to the peer.
    pub not_granted: u64,
    /// Attributes that were discarded.
    pub attributes_discarded: u64,
    /// Routes withdrawn because their attributes were wrong.
    pub faulty: u64,
    /// Times a route was suppressed because it flapped.
    pub suppressed: u64,
    /// Times the best route to a gateway changed.
    pub changes: u64,
    /// Routes announced to peers, with withdrawals.
    pub told: u64,
}
