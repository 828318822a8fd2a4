//! SUBSCRIBE_DOWN: send the session there (§5.3.1); SUBSCRIBE_UP: receive it from there (§5.3.2). The
//! data node answers each with an ALLOCATE_RESPONSE.
//!
//! ```text
//! +---------------------------------------------------------------+
//! |  request: the response bears the same                         |
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

use super::join::{FlowChannel, emit_flows, flows_len, parse_flows};
use super::reader::{Reader, Writer, name_len};
use super::{HEADER_LEN, Header, ParseError, Type, body, header};
use crate::name::SessionName;
use crate::types::PeerId;

/// What a session is sent to or received from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Edge {
    /// The native broadcast of this network.
    Native,
    /// A gateway of another network.
    Peer {
        /// Which.
        peer: PeerId,
        /// This data node's share of the bound on what the link carries (§3.1), in bit/s; 0 for no
        /// bound.
        rate_bps: u64,
    },
}

/// A SUBSCRIBE_DOWN or SUBSCRIBE_UP.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Repr {
    /// Whether it is a SUBSCRIBE_UP.
    pub up: bool,
    /// The response bears the same number.
    pub request: u32,
    /// The control node's epoch: a data node obeys the highest.
    pub epoch: u64,
    /// To or from where.
    pub edge: Edge,
    /// The other side's channels.
    pub flows: Vec<FlowChannel>,
    /// The session.
    pub session: SessionName,
}

impl Repr {
    /// Reads a message of either type.
    ///
    /// # Errors
    /// It is neither, or a field is out of bounds.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let up = Header::new_checked(bytes)?.type_number() == Type::SubscribeUp as u8;
        let mut reader = body(
            bytes,
            if up {
                Type::SubscribeUp
            } else {
                Type::SubscribeDown
            },
        )?;
        let (request, epoch) = (reader.u32()?, reader.u64()?);
        let edge = parse_edge(&mut reader)?;
        let flows = parse_flows(&mut reader)?;
        let session = reader.name()?;
        reader.end()?;
        let fits = match (edge, flows.len()) {
            (Edge::Native, 0) => true,
            (Edge::Native, count) => up && count == session.flow_count(),
            (Edge::Peer { .. }, count) => count == session.flow_count(),
        };
        if !fits {
            return Err(ParseError::Value);
        }
        Ok(Repr {
            up,
            request,
            epoch,
            edge,
            flows,
            session,
        })
    }

    /// Length of the message in bytes.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        HEADER_LEN + 12 + edge_len(&self.edge) + flows_len(&self.flows) + name_len(&self.session)
    }

    /// Writes the message.
    ///
    /// # Panics
    /// `buffer` is shorter than [`Repr::buffer_len`].
    pub fn emit(&self, buffer: &mut [u8]) {
        let kind = if self.up {
            Type::SubscribeUp
        } else {
            Type::SubscribeDown
        };
        let mut writer = header(buffer, kind, self.buffer_len());
        writer.u32(self.request);
        writer.u64(self.epoch);
        emit_edge(&self.edge, &mut writer);
        emit_flows(&self.flows, &mut writer);
        writer.name(&self.session);
    }
}

pub(super) fn parse_edge(reader: &mut Reader<'_>) -> Result<Edge, ParseError> {
    let kind = reader.u8()?;
    reader.reserved(3)?;
    match kind {
        0 => Ok(Edge::Native),
        1 => Ok(Edge::Peer {
            peer: PeerId(reader.u32()?),
            rate_bps: reader.u64()?,
        }),
        _ => Err(ParseError::Value),
    }
}

pub(super) const fn edge_len(edge: &Edge) -> usize {
    match edge {
        Edge::Native => 4,
        Edge::Peer { .. } => 16,
    }
}

pub(super) fn emit_edge(edge: &Edge, writer: &mut Writer<'_>) {
    match *edge {
        Edge::Native => writer.u32(0),
        Edge::Peer { peer, rate_bps } => {
            writer.u32(1 << 24);
            writer.u32(peer.0);
            writer.u64(rate_bps);
        }
    }
}
