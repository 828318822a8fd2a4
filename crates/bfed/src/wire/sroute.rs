//! SROUTE_REQUEST and SROUTE_RESPONSE: costs of the owner's gateways for one session (§5.2.2).
//!
//! ```text
//!  SROUTE_REQUEST                        SROUTE_RESPONSE
//! +-------------------------------+     +-------------------------------+
//! |  request: the sender's number |     |  request, 0: unsolicited      |
//! +-------------------------------+     +---------------+---------------+
//! |  towards: gateway (8)         |     |  outcome      |  0            |
//! +---------------+---------------+     +---------------+---------------+
//! |  hop limit    |  internal     |     |  costs: a list of             |
//! +---------------+---------------+     |    gateway (8), cost (4)      |
//! |  gateways: a list, 8 each     |     +-------------------------------+
//! +-------------------------------+     |  session's name               |
//! |  session's name               |     +-------------------------------+
//! +-------------------------------+
//! ```
//!
//! `internal` 1: between two gateways of the owner; the receiver measures only itself. Outcome 0: these are the
//! costs; 1: the owner publishes no costs (a null response); 2: there is no such session; 3: there is no
//! route to the owner.

use alloc::vec::Vec;

use super::reader::Listed;
use crate::name::SessionName;
use crate::types::{Cost, GatewayId};

/// Most gateways of an owner in one message.
pub const MAX_GATEWAYS: usize = 32;

fields! {
    /// Cost of a gateway of the owner for a session.
    #[derive(Copy)]
    GatewayCost {
        /// The gateway.
        gateway: GatewayId,
        /// Cost from there to the root of the owner's native tree; infinite if it cannot be reached.
        cost: Cost,
    }
}

impl Listed for GatewayCost {
    const MAX: usize = MAX_GATEWAYS;
}

numbered! {
    /// Result of a discovery.
    Outcome {
        /// The costs are known.
        Costs = 0 "costs",
        /// The owner's native network publishes no costs: a null response (§5.2.2).
        Null = 1 "null",
        /// The owner knows no such session.
        NoSession = 2 "no_session",
        /// A gateway on the path has no route.
        NoRoute = 3 "no_route",
    }
}

message! {
    /// An SROUTE_REQUEST.
    Request = SrouteRequest {
        /// The sender's number for it; the response has the same. Not 0.
        request: u32,
        /// The gateway of the owner that the request is routed to.
        towards: GatewayId,
        /// How many more gateways may forward it.
        hop_limit: u8,
        /// Between gateways of the owner: the receiver measures only itself.
        internal: bool,
        /// The owner's gateways whose costs are asked for.
        gateways: Vec<GatewayId>,
        /// The session.
        session: SessionName,
    }
    check |message| message.request != 0 && !message.gateways.is_empty()
}

message! {
    /// An SROUTE_RESPONSE.
    Response = SrouteResponse {
        /// Number of the request; 0 for an unsolicited response.
        request: u32,
        /// Result of the discovery.
        outcome: Outcome => reserved 1,
        /// The costs; empty unless the outcome is [`Outcome::Costs`].
        costs: Vec<GatewayCost>,
        /// The session.
        session: SessionName,
    }
    check |message| {
        are_distinct(&message.costs)
            && (message.outcome == Outcome::Costs || message.costs.is_empty())
    }
}

/// Returns whether each gateway occurs once.
pub(super) fn are_distinct(costs: &[GatewayCost]) -> bool {
    costs.iter().enumerate().all(|(at, cost)| {
        let mut before = costs[..at].iter();
        before.all(|other| other.gateway != cost.gateway)
    })
}
