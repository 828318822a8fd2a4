//! ALLOCATE: make channels on which a peer can reach this session (§5.3.2); ALLOCATE_RESPONSE: the
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
//! +-------------------------------+     |  as in JOIN                   |
//! |  session's name               |     +-------------------------------+
//! +-------------------------------+     |  session's name               |
//!                                       +-------------------------------+
//! ```
//!
//! Outcome 0: done; then there is a channel for each flow, but for SUBSCRIBE_UP, which has none. 1: no
//! such session; 2: the node is full; 3: the native network, or the node, cannot do it.

use alloc::vec::Vec;

use super::join::{FlowChannel, emit_flows, flows_len, parse_flows};
use super::reader::name_len;
use super::subscribe::{Edge, edge_len, emit_edge, parse_edge};
use super::{HEADER_LEN, ParseError, Type, body, header};
use crate::name::SessionName;

/// An ALLOCATE.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Request {
    /// The response bears the same number.
    pub request: u32,
    /// The control node's epoch.
    pub epoch: u64,
    /// Who will send there.
    pub edge: Edge,
    /// The session.
    pub session: SessionName,
}

impl Request {
    /// Reads a message.
    ///
    /// # Errors
    /// It is not an ALLOCATE, or a field is out of bounds.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut reader = body(bytes, Type::Allocate)?;
        let (request, epoch) = (reader.u32()?, reader.u64()?);
        let edge = parse_edge(&mut reader)?;
        let session = reader.name()?;
        reader.end()?;
        Ok(Request {
            request,
            epoch,
            edge,
            session,
        })
    }

    /// Length of the message in bytes.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        HEADER_LEN + 12 + edge_len(&self.edge) + name_len(&self.session)
    }

    /// Writes the message.
    ///
    /// # Panics
    /// `buffer` is shorter than [`Request::buffer_len`].
    pub fn emit(&self, buffer: &mut [u8]) {
        let mut writer = header(buffer, Type::Allocate, self.buffer_len());
        writer.u32(self.request);
        writer.u64(self.epoch);
        emit_edge(&self.edge, &mut writer);
        writer.name(&self.session);
    }
}

numbered! {
    /// What came of a request to a data node.
    Outcome {
        /// It is done.
        Done = 0 "done",
        /// This network owns no such session.
        NoSession = 1 "no_session",
        /// The node, or the native network's pool of addresses, is full.
        Full = 2 "full",
        /// The native network, or the node, cannot do it.
        Refused = 3 "refused",
    }
}

/// An ALLOCATE_RESPONSE.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Response {
    /// The request's number.
    pub request: u32,
    /// What came of it.
    pub outcome: Outcome,
    /// The node's channels.
    pub flows: Vec<FlowChannel>,
    /// The session.
    pub session: SessionName,
}

impl Response {
    /// Reads a message.
    ///
    /// # Errors
    /// It is not an ALLOCATE_RESPONSE, or a field is out of bounds.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut reader = body(bytes, Type::AllocateResponse)?;
        let request = reader.u32()?;
        let outcome = Outcome::from_number(reader.u8()?).ok_or(ParseError::Value)?;
        reader.reserved(1)?;
        let flows = parse_flows(&mut reader)?;
        let session = reader.name()?;
        reader.end()?;
        let count = flows.len();
        if count != 0 && (outcome != Outcome::Done || count != session.flow_count()) {
            return Err(ParseError::Value);
        }
        Ok(Response {
            request,
            outcome,
            flows,
            session,
        })
    }

    /// Length of the message in bytes.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        HEADER_LEN + 6 + flows_len(&self.flows) + name_len(&self.session)
    }

    /// Writes the message.
    ///
    /// # Panics
    /// `buffer` is shorter than [`Response::buffer_len`].
    pub fn emit(&self, buffer: &mut [u8]) {
        let mut writer = header(buffer, Type::AllocateResponse, self.buffer_len());
        writer.u32(self.request);
        writer.u8(self.outcome as u8);
        writer.u8(0);
        emit_flows(&self.flows, &mut writer);
        writer.name(&self.session);
    }
}
