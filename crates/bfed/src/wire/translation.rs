//! TRANSLATION: the answer to a JOIN, how the session will come (§5.3). It names the gateways between
//! the sender and the owner: a gateway that finds itself there has found a loop.
//!
//! ```text
//! +---------------------------------------------------------------+
//! |  path: a list of gateways, 1 to 32, 8 each:                   |
//! |    the sender first, the owner's gateway last                 |
//! +---------------------------------------------------------------+
//! |  flows: a list, in the order of the name, of                  |
//! |    label of packets that come (4), 0 within a network         |
//! |    address: where they come from, and where packets that go   |
//! |    up are sent (see wire::address)                            |
//! +---------------------------------------------------------------+
//! |  session's name                                               |
//! +---------------------------------------------------------------+
//! ```

use alloc::vec::Vec;

use super::attributes::MAX_PATH;
use super::join::{FlowChannel, emit_flows, flows_len, parse_flows};
use super::reader::name_len;
use super::{HEADER_LEN, ParseError, Type, body, header};
use crate::name::SessionName;
use crate::types::GatewayId;

/// A TRANSLATION.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Repr {
    /// The tree's path: the sender first, the owner's gateway last.
    pub path: Vec<GatewayId>,
    /// A channel for each flow.
    pub flows: Vec<FlowChannel>,
    /// The session.
    pub session: SessionName,
}

impl Repr {
    /// Reads a message.
    ///
    /// # Errors
    /// It is not a TRANSLATION, or a field is out of bounds.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut reader = body(bytes, Type::Translation)?;
        let path = reader.list(MAX_PATH, |reader| reader.gateway())?;
        let flows = parse_flows(&mut reader)?;
        let session = reader.name()?;
        reader.end()?;
        if path.is_empty() || flows.len() != session.flow_count() {
            return Err(ParseError::Value);
        }
        Ok(Repr {
            path,
            flows,
            session,
        })
    }

    /// Length of the message in bytes.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        HEADER_LEN + 2 + 8 * self.path.len() + flows_len(&self.flows) + name_len(&self.session)
    }

    /// Writes the message.
    ///
    /// # Panics
    /// `buffer` is shorter than [`Repr::buffer_len`].
    pub fn emit(&self, buffer: &mut [u8]) {
        let mut writer = header(buffer, Type::Translation, self.buffer_len());
        writer.list(&self.path, |writer, &gateway| writer.gateway(gateway));
        emit_flows(&self.flows, &mut writer);
        writer.name(&self.session);
    }
}
