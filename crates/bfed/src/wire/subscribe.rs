//! SUBSCRIBE_DOWN: send the session there (§5.3.1); SUBSCRIBE_UP: receive it from there (§5.3.2). The
//! data node answers each with an ALLOCATE_RESPONSE.
//!
//! ```text
//! +---------------------------------------------------------------+
//! |  request: the response has the same                           |
//! +---------------------------------------------------------------+
//! |  epoch of the control node (8)                                |
//! +---------------------------------------------------------------+
//! |  edge: kind (1), 0 (3); for kind 1 also                       |
//! |    peer (4), bound on the rate of the link in bit/s, 0: none (8) |
//! +---------------------------------------------------------------+
//! |  flows: a list of channels, as in JOIN                        |
//! +---------------------------------------------------------------+
//! |  session's name                                               |
//! +---------------------------------------------------------------+
//! ```
//!
//! | kind | SUBSCRIBE_DOWN | SUBSCRIBE_UP |
//! | --- | --- | --- |
//! | 0 native, no flows | to the clients and gateways of this network: the request came from within it | from the session's own native address: this network owns it |
//! | 0 native, flows | never | from the native addresses that another gateway of this network allocated |
//! | 1 peer, flows | to a peer, where its JOIN said | from a peer, where its TRANSLATION said |

use alloc::vec::Vec;

use super::join::FlowChannel;
use super::reader::{Field, Reader, Writer};
use super::{Body, ParseError, Type};
use crate::name::SessionName;
use crate::types::PeerId;

/// What a session is sent to or received from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Edge {
    /// The native broadcast of this network.
    Native,
    /// A gateway of another network.
    Peer {
        /// The peer.
        peer: PeerId,
        /// This data node's share of the rate limit of the link (§3.1), in bit/s; 0 for no limit.
        rate_bps: u64,
    },
}

impl Field for Edge {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let kind = reader.u8()?;
        reader.reserved(3)?;
        match kind {
            0 => Ok(Edge::Native),
            1 => Ok(Edge::Peer {
                peer: reader.get()?,
                rate_bps: reader.get()?,
            }),
            _ => Err(ParseError::Value),
        }
    }

    fn emit(&self, writer: &mut Writer<'_>) {
        match *self {
            Edge::Native => writer.u32(0),
            Edge::Peer { peer, rate_bps } => {
                writer.u32(1 << 24);
                peer.emit(writer);
                rate_bps.emit(writer);
            }
        }
    }
}

/// A SUBSCRIBE_DOWN or SUBSCRIBE_UP.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Repr {
    /// Whether it is a SUBSCRIBE_UP.
    pub up: bool,
    /// Number of the request; the response has the same.
    pub request: u32,
    /// The control node's epoch: a data node obeys the highest.
    pub epoch: u64,
    /// What the session is sent to or received from.
    pub edge: Edge,
    /// The other side's channels.
    pub flows: Vec<FlowChannel>,
    /// The session.
    pub session: SessionName,
}

impl Body for Repr {
    fn parse_body(kind: Type, reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let up = match kind {
            Type::SubscribeUp => true,
            Type::SubscribeDown => false,
            _ => return Err(ParseError::Type),
        };
        let repr = Repr {
            up,
            request: reader.get()?,
            epoch: reader.get()?,
            edge: reader.get()?,
            flows: reader.get()?,
            session: reader.get()?,
        };
        let fits = match (repr.edge, repr.flows.len()) {
            (Edge::Native, 0) => true,
            (Edge::Native, count) => up && count == repr.session.flow_count(),
            (Edge::Peer { .. }, count) => count == repr.session.flow_count(),
        };
        if fits {
            Ok(repr)
        } else {
            Err(ParseError::Value)
        }
    }

    fn emit_body(&self, writer: &mut Writer<'_>) -> Type {
        self.request.emit(writer);
        self.epoch.emit(writer);
        self.edge.emit(writer);
        self.flows.emit(writer);
        self.session.emit(writer);
        match self.up {
            true => Type::SubscribeUp,
            false => Type::SubscribeDown,
        }
    }
}

whole_messages!(Repr);
