//! JOIN: send me this session (§5.2.3). It carries where to send it (§5.3.2), the label of packets
//! that go up (§5.3.3), and what is known of the owner's gateways (§5.2.2).
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |  flags        |  hop limit    |  costs: a list of             |
//! |  1 SROUTE known               |    gateway (8), cost (4)      |
//! +---------------+---------------+-------------------------------+
//! |  flows: a list, in the order of the name, of                  |
//! |    label of packets that go up, 0 for none (4)                |
//! |    address to send packets to (see wire::address)             |
//! +---------------------------------------------------------------+
//! |  session's name                                               |
//! +---------------------------------------------------------------+
//! ```
//!
//! No flows: the sender sits in the same network and will listen to the native broadcast (§5.3.1).
//! SROUTE known with an empty list: the owner tells nothing (a null response), do not ask again.

use alloc::vec::Vec;

use super::reader::{Reader, Writer, name_len};
use super::sroute::{GatewayCost, emit_costs, parse_costs};
use super::{HEADER_LEN, ParseError, Type, address, body, header};
use crate::name::{MAX_FLOWS, SessionName};
use crate::types::{ChannelAddress, FlowLabel};

const SROUTE_KNOWN: u8 = 1;

/// How one flow is carried over one link of the tree.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowChannel {
    /// What the sender of this message will put before packets of the flow; none if it will send
    /// none.
    pub label: Option<FlowLabel>,
    /// Where the sender of this message is reached for this flow.
    pub address: ChannelAddress,
}

/// A JOIN.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Repr {
    /// How many more gateways may be asked to join because of this.
    pub hop_limit: u8,
    /// What is known of the owner's gateways; `None` if nothing is.
    pub sroutes: Option<Vec<GatewayCost>>,
    /// A channel for each flow, or none within a network.
    pub flows: Vec<FlowChannel>,
    /// The session.
    pub session: SessionName,
}

impl Repr {
    /// Reads a message.
    ///
    /// # Errors
    /// It is not a JOIN, or a field is out of bounds.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut reader = body(bytes, Type::Join)?;
        let flags = reader.u8()?;
        if flags & !SROUTE_KNOWN != 0 {
            return Err(ParseError::Reserved);
        }
        let hop_limit = reader.u8()?;
        let costs = parse_costs(&mut reader)?;
        let known = flags & SROUTE_KNOWN != 0;
        if !known && !costs.is_empty() {
            return Err(ParseError::Value);
        }
        let flows = parse_flows(&mut reader)?;
        let session = reader.name()?;
        reader.end()?;
        if !flows.is_empty() && flows.len() != session.flow_count() {
            return Err(ParseError::Value);
        }
        Ok(Repr {
            hop_limit,
            sroutes: known.then_some(costs),
            flows,
            session,
        })
    }

    /// Length of the message in bytes.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        let costs = self.sroutes.as_ref().map_or(0, Vec::len);
        HEADER_LEN + 4 + 12 * costs + flows_len(&self.flows) + name_len(&self.session)
    }

    /// Writes the message.
    ///
    /// # Panics
    /// `buffer` is shorter than [`Repr::buffer_len`].
    pub fn emit(&self, buffer: &mut [u8]) {
        let mut writer = header(buffer, Type::Join, self.buffer_len());
        writer.u8(if self.sroutes.is_some() {
            SROUTE_KNOWN
        } else {
            0
        });
        writer.u8(self.hop_limit);
        emit_costs(self.sroutes.as_deref().unwrap_or(&[]), &mut writer);
        emit_flows(&self.flows, &mut writer);
        writer.name(&self.session);
    }
}

/// Reads a list of channels.
pub(super) fn parse_flows(reader: &mut Reader<'_>) -> Result<Vec<FlowChannel>, ParseError> {
    reader.list(MAX_FLOWS, |reader| {
        Ok(FlowChannel {
            label: reader.label_or_none()?,
            address: address::parse(reader)?,
        })
    })
}

/// Bytes of a list of channels.
pub(super) fn flows_len(flows: &[FlowChannel]) -> usize {
    2 + flows
        .iter()
        .map(|flow| 4 + address::buffer_len(&flow.address))
        .sum::<usize>()
}

/// Writes a list of channels.
pub(super) fn emit_flows(flows: &[FlowChannel], writer: &mut Writer<'_>) {
    writer.list(flows, |writer, flow| {
        writer.label(flow.label);
        address::emit(&flow.address, writer);
    });
}
