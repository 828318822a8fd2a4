//! SROUTE_REQUEST and SROUTE_RESPONSE: what the owner's gateways cost for one session (§5.2.2).
//!
//! ```text
//!  SROUTE_REQUEST                        SROUTE_RESPONSE
//! +-------------------------------+     +-------------------------------+
//! |  request: the asker's number  |     |  request, 0: nobody asked     |
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
//! `internal` 1: between two gateways of the owner, who measures only itself. Outcome 0: these are the
//! costs; 1: the owner tells nothing (a null response); 2: there is no such session; 3: there is no
//! route to the owner.

use alloc::vec::Vec;

use super::reader::{Reader, Writer, name_len};
use super::{HEADER_LEN, ParseError, Type, body, header};
use crate::name::SessionName;
use crate::types::{Cost, GatewayId};

/// Most gateways of an owner that one message names.
pub const MAX_GATEWAYS: usize = 32;

/// What a gateway of the owner costs for a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GatewayCost {
    /// The gateway.
    pub gateway: GatewayId,
    /// From there to the root of the owner's native tree; infinite if it cannot be reached.
    pub cost: Cost,
}

/// What came of a discovery.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Outcome {
    /// The costs are known.
    Costs = 0,
    /// The owner's native network tells nothing: a null response (§5.2.2).
    Null = 1,
    /// The owner knows no such session.
    NoSession = 2,
    /// Somebody on the way has no route.
    NoRoute = 3,
}

impl Outcome {
    fn from_number(number: u8) -> Result<Self, ParseError> {
        match number {
            0 => Ok(Outcome::Costs),
            1 => Ok(Outcome::Null),
            2 => Ok(Outcome::NoSession),
            3 => Ok(Outcome::NoRoute),
            _ => Err(ParseError::Value),
        }
    }
}

/// An SROUTE_REQUEST.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Request {
    /// The asking peer's number for it; the response bears the same. Not 0.
    pub request: u32,
    /// The gateway of the owner that it is on the way to.
    pub towards: GatewayId,
    /// How many more gateways may pass it on.
    pub hop_limit: u8,
    /// Between gateways of the owner: measure only yourself.
    pub internal: bool,
    /// The owner's gateways whose costs are asked for.
    pub gateways: Vec<GatewayId>,
    /// The session.
    pub session: SessionName,
}

impl Request {
    /// Reads a message.
    ///
    /// # Errors
    /// It is not an SROUTE_REQUEST, or a field is out of bounds.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut reader = body(bytes, Type::SrouteRequest)?;
        let request = reader.u32()?;
        let towards = reader.gateway()?;
        let hop_limit = reader.u8()?;
        let internal = reader.bool()?;
        let gateways = reader.list(MAX_GATEWAYS, |reader| reader.gateway())?;
        let session = reader.name()?;
        reader.end()?;
        if request == 0 || gateways.is_empty() {
            return Err(ParseError::Value);
        }
        Ok(Request {
            request,
            towards,
            hop_limit,
            internal,
            gateways,
            session,
        })
    }

    /// Length of the message in bytes.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        HEADER_LEN + 16 + 8 * self.gateways.len() + name_len(&self.session)
    }

    /// Writes the message.
    ///
    /// # Panics
    /// `buffer` is shorter than [`Request::buffer_len`].
    pub fn emit(&self, buffer: &mut [u8]) {
        let mut writer = header(buffer, Type::SrouteRequest, self.buffer_len());
        writer.u32(self.request);
        writer.gateway(self.towards);
        writer.u8(self.hop_limit);
        writer.u8(self.internal.into());
        writer.list(&self.gateways, |writer, &gateway| writer.gateway(gateway));
        writer.name(&self.session);
    }
}

/// An SROUTE_RESPONSE.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Response {
    /// The number of the request; 0 for news that nobody asked for.
    pub request: u32,
    /// What came of it.
    pub outcome: Outcome,
    /// The costs; empty unless the outcome is [`Outcome::Costs`].
    pub costs: Vec<GatewayCost>,
    /// The session.
    pub session: SessionName,
}

impl Response {
    /// Reads a message.
    ///
    /// # Errors
    /// It is not an SROUTE_RESPONSE, or a field is out of bounds.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut reader = body(bytes, Type::SrouteResponse)?;
        let request = reader.u32()?;
        let outcome = Outcome::from_number(reader.u8()?)?;
        reader.reserved(1)?;
        let costs = parse_costs(&mut reader)?;
        let session = reader.name()?;
        reader.end()?;
        if outcome != Outcome::Costs && !costs.is_empty() {
            return Err(ParseError::Value);
        }
        Ok(Response {
            request,
            outcome,
            costs,
            session,
        })
    }

    /// Length of the message in bytes.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        HEADER_LEN + 8 + 12 * self.costs.len() + name_len(&self.session)
    }

    /// Writes the message.
    ///
    /// # Panics
    /// `buffer` is shorter than [`Response::buffer_len`].
    pub fn emit(&self, buffer: &mut [u8]) {
        let mut writer = header(buffer, Type::SrouteResponse, self.buffer_len());
        writer.u32(self.request);
        writer.u8(self.outcome as u8);
        writer.u8(0);
        emit_costs(&self.costs, &mut writer);
        writer.name(&self.session);
    }
}

/// Reads a list of costs, each gateway once.
pub(super) fn parse_costs(reader: &mut Reader<'_>) -> Result<Vec<GatewayCost>, ParseError> {
    let costs = reader.list(MAX_GATEWAYS, |reader| {
        Ok(GatewayCost {
            gateway: reader.gateway()?,
            cost: reader.cost()?,
        })
    })?;
    let twice = |(at, cost): (usize, &GatewayCost)| {
        costs[..at]
            .iter()
            .any(|other| other.gateway == cost.gateway)
    };
    if costs.iter().enumerate().any(twice) {
        Err(ParseError::Value)
    } else {
        Ok(costs)
    }
}

/// Writes a list of costs.
pub(super) fn emit_costs(costs: &[GatewayCost], writer: &mut Writer<'_>) {
    writer.list(costs, |writer, cost| {
        writer.gateway(cost.gateway);
        writer.u32(cost.cost.0);
    });
}
