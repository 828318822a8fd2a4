//! JOIN: asks for a session (§5.2.3). It contains the addresses to send it to (§5.3.2), the label of upstream
//! packets (§5.3.3), and the known costs of the owner's gateways (§5.2.2).
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |  flags        |  hop limit    |  costs: a list of             |
//! |  1 SROUTE known               |    gateway (8), cost (4)      |
//! +---------------+---------------+-------------------------------+
//! |  flows: a list, in the order of the name, of                  |
//! |    label of upstream packets, 0 for none (4)                  |
//! |    address to send packets to (see wire::address)             |
//! +---------------------------------------------------------------+
//! |  session's name                                               |
//! +---------------------------------------------------------------+
//! ```
//!
//! Without flows, the sender is in the same network and will receive the native broadcast (§5.3.1).
//! SROUTE known with an empty list: the owner publishes no costs (a null response); no further discovery is
//! needed.

use alloc::vec::Vec;

use super::reader::{Field, Listed, Reader, Writer};
use super::sroute::{GatewayCost, are_distinct};
use super::{Body, ParseError, Type};
use crate::name::{MAX_FLOWS, SessionName};
use crate::types::{ChannelAddress, FlowLabel};

const SROUTE_KNOWN: u8 = 1;

fields! {
    /// How one flow is carried over one link of the tree.
    #[derive(PartialOrd, Ord)]
    FlowChannel {
        /// Label of the packets of the flow that the sender of this message will send; `None` if it sends none.
        label: Option<FlowLabel>,
        /// Where the sender of this message is reached for this flow.
        address: ChannelAddress,
    }
}

impl Listed for FlowChannel {
    const MAX: usize = MAX_FLOWS;
}

/// A JOIN.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Repr {
    /// How many more gateways may be asked to join because of this message.
    pub hop_limit: u8,
    /// Known costs of the owner's gateways; `None` if no discovery has succeeded.
    pub sroutes: Option<Vec<GatewayCost>>,
    /// A channel for each flow, or none within a network.
    pub flows: Vec<FlowChannel>,
    /// The session.
    pub session: SessionName,
}

impl Body for Repr {
    fn parse_body(kind: Type, reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        if kind != Type::Join {
            return Err(ParseError::Type);
        }
        let flags = reader.u8()?;
        if flags & !SROUTE_KNOWN != 0 {
            return Err(ParseError::Reserved);
        }
        let hop_limit = reader.u8()?;
        let costs: Vec<GatewayCost> = reader.get()?;
        let known = flags & SROUTE_KNOWN != 0;
        if !are_distinct(&costs) || !known && !costs.is_empty() {
            return Err(ParseError::Value);
        }
        let flows: Vec<FlowChannel> = reader.get()?;
        let session: SessionName = reader.get()?;
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

    fn emit_body(&self, writer: &mut Writer<'_>) -> Type {
        writer.u8(if self.sroutes.is_some() {
            SROUTE_KNOWN
        } else {
            0
        });
        writer.u8(self.hop_limit);
        writer.list(self.sroutes.as_deref().unwrap_or(&[]));
        self.flows.emit(writer);
        self.session.emit(writer);
        Type::Join
    }
}

whole_messages!(Repr);
