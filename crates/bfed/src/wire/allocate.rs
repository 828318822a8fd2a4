//! ALLOCATE: allocate channels on which a peer can reach this session (§5.3.2); ALLOCATE_RESPONSE: the
//! answer to it, and to SUBSCRIBE_DOWN and SUBSCRIBE_UP.
//!
//! ```text
//!  ALLOCATE                              ALLOCATE_RESPONSE
//! +-------------------------------+     +-------------------------------+
//! |  request                      |     |  request                      |
//! +-------------------------------+     +---------------+---------------+
//! |  epoch (8)                    |     |  outcome      |  0            |
//! +-------------------------------+     +---------------+---------------+
//! |  edge (see wire::subscribe)   |     |  flows: a list of channels,   |
//! +---------------+---------------+     |  as in JOIN                   |
//! |  transport    |  0            |     +-------------------------------+
//! +---------------+---------------+     |  session's name               |
//! |  session's name               |     +-------------------------------+
//! +-------------------------------+
//! ```
//!
//! Outcome 0: done, with a channel for each flow, except after SUBSCRIBE_UP; 1: no such session; 2: the node is
//! full; 3: the native network, or the node, cannot do it.

use alloc::vec::Vec;

use super::join::FlowChannel;
use super::subscribe::Edge;
use super::transport::Transport;
use crate::name::SessionName;

message! {
    /// An ALLOCATE.
    Request = Allocate {
        /// Number of the request; the response has the same.
        request: u32,
        /// The control node's epoch.
        epoch: u64,
        /// The sender of the packets.
        edge: Edge,
        /// How they are sent.
        transport: Transport => reserved 1,
        /// The session.
        session: SessionName,
    }
}

numbered! {
    /// Result of a request to a data node.
    Outcome {
        /// Done.
        Done = 0 "done",
        /// This network owns no such session.
        NoSession = 1 "no_session",
        /// The node, or the native network's pool of addresses, is full.
        Full = 2 "full",
        /// The native network, or the node, cannot do it.
        Refused = 3 "refused",
    }
}

message! {
    /// An ALLOCATE_RESPONSE.
    Response = AllocateResponse {
        /// Number of the request.
        request: u32,
        /// Its result.
        outcome: Outcome => reserved 1,
        /// The node's channels.
        flows: Vec<FlowChannel>,
        /// The session.
        session: SessionName,
    }
    check |message| match message.flows.len() {
        0 => true,
        count => message.outcome == Outcome::Done && count == message.session.flow_count(),
    }
}
