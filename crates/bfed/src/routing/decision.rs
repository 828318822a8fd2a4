//! The choice between several routes.
//!
//! | step | routes that remain |
//! | --- | --- |
//! | 1 | with the highest preference, set by the import policy |
//! | 2 | with the lowest cost, including the link to the peer, and for a session the SROUTE cost |
//! | 3 | with the fewest gateways in their path |
//! | 4 | from peers of other networks, before those from this network |
//! | 5 | from the peer with the lowest gateway number |
//! | 6 | for a session: to the owner's gateway with the lowest number |
//!
//! Excluded from the start: routes with this gateway in their path (or, from another network, this network), routes
//! that a policy rejects, of infinite cost, or suppressed, and those through peers that have refused the session
//! lately.
//!
//! Routes through restarting peers stay as they are until the peer is back or its restart time is over (RFC 4724
//! §4.2).
//!
//! Without preferences, the values compared in steps 2 and 3 grow with every gateway, so tables converge and trees
//! have no loops (a strictly monotone algebra; João Luís Sobrinho, "An algebraic theory of dynamic network
//! routing", 2005). With preferences, administrators must ensure this, as in BGP.

use core::cmp::{Ordering, Reverse};

use super::{Candidate, Peer};
use crate::types::{Cost, GatewayId, PeerId};

/// Rank of a route: the lowest is the best.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Rank {
    preference: Reverse<u32>,
    cost: Cost,
    gateways: usize,
    internal: bool,
    peer: GatewayId,
    destination: GatewayId,
}

impl Rank {
    pub(super) fn new(
        candidate: &Candidate,
        peer: &Peer,
        destination: GatewayId,
        cost: Cost,
    ) -> Self {
        Rank {
            preference: Reverse(candidate.preference),
            cost,
            gateways: candidate.route.path.len(),
            internal: peer.internal,
            peer: peer.config.gateway,
            destination,
        }
    }
}

/// The choice of an upstream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Choice {
    /// The peer to send the JOIN to.
    pub(crate) peer: PeerId,
    /// The owner's gateway that the route leads to.
    pub(crate) gateway: GatewayId,
    /// The cost, including the SROUTE cost.
    pub(crate) cost: Cost,
    /// Whether the peer is in this network.
    pub(crate) internal: bool,
}

/// Keeps the better of two by their ranks.
pub(super) fn better<T>(best: &mut Option<(Rank, T)>, rank: Rank, value: T) {
    if best
        .as_ref()
        .is_none_or(|(other, _)| rank.cmp(other) == Ordering::Less)
    {
        *best = Some((rank, value));
    }
}
