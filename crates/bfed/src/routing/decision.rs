//! Which of several routes is taken.
//!
//! | step | of the routes that are left, those stay |
//! | --- | --- |
//! | 1 | with the highest preference, as the import policy set it |
//! | 2 | with the lowest cost, the link to the peer included; for a session the SROUTE cost too |
//! | 3 | through the fewest gateways |
//! | 4 | from peers of other networks, before those from this network |
//! | 5 | from the peer that is the lowest gateway |
//! | 6 | for a session: to the lowest gateway of the owner |
//!
//! Not among them from the start: routes whose path has this gateway in it (or, from another network,
//! this network), routes that a policy rejects, of infinite cost, damped ones, and such through peers
//! that have refused the session lately.
//!
//! Routes through peers that are restarting stay as they are until the peer is back or its time is
//! over (RFC 4724 §4.2).
//!
//! Where preferences are left alone, what steps 2 and 3 compare grows with every gateway, so tables
//! settle and trees do not loop (a strictly monotone algebra; Sobrinho, "An algebraic theory of
//! dynamic network routing", 2005). With preferences it is the administrators who must see to that,
//! as in BGP.

use core::cmp::{Ordering, Reverse};

use super::{Candidate, Peer};
use crate::types::{Cost, GatewayId, PeerId};

/// A route as the decision sees it: less is better.
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

/// Where a session is to be joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Choice {
    /// The peer to send the JOIN to.
    pub(crate) peer: PeerId,
    /// The owner's gateway that it leads to.
    pub(crate) gateway: GatewayId,
    /// What it costs, SROUTE included.
    pub(crate) cost: Cost,
    /// The peer is of this network.
    pub(crate) internal: bool,
}

/// The better of two, by their ranks.
pub(super) fn better<T>(best: &mut Option<(Rank, T)>, rank: Rank, value: T) {
    if best
        .as_ref()
        .is_none_or(|(other, _)| rank.cmp(other) == Ordering::Less)
    {
        *best = Some((rank, value));
    }
}
