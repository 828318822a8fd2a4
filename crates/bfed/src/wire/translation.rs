//! TRANSLATION: the answer to a JOIN, with the channels on which the session will arrive (§5.3). It names the gateways between
//! the sender and the owner: a gateway that finds itself there has found a loop.
//!
//! ```text
//! +---------------------------------------------------------------+
//! |  path: a list of gateways, 1 to 32, 8 each:                   |
//! |    the sender first, the owner's gateway last                 |
//! +---------------------------------------------------------------+
//! |  flows: a list, in the order of the name, of                  |
//! |    label of incoming packets (4), 0 within a network         |
//! |    address: where they come from, and where upstream packets  |
//! |    are sent (see wire::address)                               |
//! +---------------------------------------------------------------+
//! |  session's name                                               |
//! +---------------------------------------------------------------+
//! ```

use alloc::vec::Vec;

use super::join::FlowChannel;
use crate::name::SessionName;
use crate::types::GatewayId;

message! {
    /// A TRANSLATION.
    Repr = Translation {
        /// The tree's path: the sender first, the owner's gateway last.
        path: Vec<GatewayId>,
        /// A channel for each flow.
        flows: Vec<FlowChannel>,
        /// The session.
        session: SessionName,
    }
    check |message| {
        !message.path.is_empty() && message.flows.len() == message.session.flow_count()
    }
}
