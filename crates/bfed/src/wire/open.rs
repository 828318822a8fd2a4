//! OPEN: the first message of each side of a peering (compare RFC 4271 §4.2).
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |  lowest version, highest      |  hold time, seconds           |
//! +---------------+---------------+-------------------------------+
//! |  gateway: network                                             |
//! |           number                                              |
//! +---------------------------------------------------------------+
//! |  boot: random, new at every start of the gateway              |
//! +-------------------------------+-------------------------------+
//! |  capabilities: a list (16 bits: how many) of                  |
//! |    kind (8), length (8), value                                |
//! +---------------------------------------------------------------+
//! ```
//!
//! | capability | value | |
//! | --- | --- | --- |
//! | 1 tables | 16 bits | bit n: table n; required, not empty |
//! | 2 graceful restart | 16 bits flags, 16 bits seconds | flag 1: the sender has just restarted; flag 2: its trees survived |
//! | 3 transport | 8 bits | [`Transport`] between data nodes; without it: plain |
//! | 4 echo | none | the sender answers ECHO_REQUEST |
//! | any other | | ignored |

use super::reader::{Field, Reader, Writer};
use super::transport::Transport;
use super::{Body, ParseError, Type, VERSION};
use crate::types::{GatewayId, Tables};

/// Most capabilities of one OPEN.
pub const MAX_CAPABILITIES: usize = 32;

const TABLES: u8 = 1;
const GRACEFUL: u8 = 2;
const TRANSPORT: u8 = 3;
const ECHO: u8 = 4;

/// Graceful restart of a gateway (RFC 4724 §3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Graceful {
    /// It has just restarted and does not have its peers' tables yet.
    pub restarting: bool,
    /// Its data nodes have gone on forwarding.
    pub preserved: bool,
    /// How long peers keep its routes while it is disconnected, in seconds.
    pub restart_time_s: u16,
}

/// An OPEN.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Repr {
    /// Lowest version of the protocol that the sender speaks.
    pub version_low: u8,
    /// Highest version.
    pub version_high: u8,
    /// How long the sender may be silent before the session ends, in seconds: 0 for no limit, else at least 3.
    pub hold_time_s: u16,
    /// The sender.
    pub gateway: GatewayId,
    /// Random, new at every start.
    pub boot: u32,
    /// The sender's tables.
    pub tables: Tables,
    /// Graceful restart, if the sender supports it.
    pub graceful: Option<Graceful>,
    /// How its data nodes send to the receiver's and expect packets from there; both sides must agree.
    pub transport: Transport,
    /// Whether the sender answers ECHO_REQUEST.
    pub echo: bool,
}

impl Repr {
    /// Returns the highest version that both sides speak.
    #[must_use]
    pub fn agreed_version(&self) -> Option<u8> {
        (self.version_low..=self.version_high)
            .contains(&VERSION)
            .then_some(VERSION)
    }
}

impl Body for Repr {
    fn parse_body(kind: Type, reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        if kind != Type::Open {
            return Err(ParseError::Type);
        }
        let (version_low, version_high) = (reader.u8()?, reader.u8()?);
        let hold_time_s = reader.u16()?;
        let gateway = reader.get()?;
        let boot = reader.u32()?;
        let (mut tables, mut graceful, mut transport, mut echo) = (None, None, None, false);
        reader.list(MAX_CAPABILITIES, |reader| {
            let (kind, len) = (reader.u8()?, usize::from(reader.u8()?));
            let mut value = Reader::new(reader.bytes(len)?);
            match kind {
                TABLES if tables.is_none() => {
                    // Bits of tables of later versions are ignored.
                    tables = Tables::from_bits(value.u16()? & Tables::ALL.bits());
                }
                GRACEFUL if graceful.is_none() => {
                    let flags = value.u16()?;
                    graceful = Some(Graceful {
                        restarting: flags & 1 != 0,
                        preserved: flags & 2 != 0,
                        restart_time_s: value.u16()?,
                    });
                }
                TRANSPORT if transport.is_none() => transport = Some(value.get()?),
                ECHO if !echo => echo = true,
                TABLES | GRACEFUL | TRANSPORT | ECHO => return Err(ParseError::Value),
                _ => return Ok(()),
            }
            value.end()
        })?;
        let tables = tables
            .filter(|tables| !tables.is_empty())
            .ok_or(ParseError::Value)?;
        if version_low == 0 || version_low > version_high || (1..3).contains(&hold_time_s) {
            return Err(ParseError::Value);
        }
        Ok(Repr {
            version_low,
            version_high,
            hold_time_s,
            gateway,
            boot,
            tables,
            graceful,
            transport: transport.unwrap_or(Transport::Plain),
            echo,
        })
    }

    fn emit_body(&self, writer: &mut Writer<'_>) -> Type {
        writer.u8(self.version_low);
        writer.u8(self.version_high);
        writer.u16(self.hold_time_s);
        self.gateway.emit(writer);
        writer.u32(self.boot);
        let is_quic = self.transport == Transport::Quic;
        let optional = [self.graceful.is_some(), is_quic, self.echo];
        writer.u16(optional.into_iter().map(u16::from).sum::<u16>() + 1);
        writer.u8(TABLES);
        writer.u8(2);
        writer.u16(self.tables.bits());
        if let Some(graceful) = &self.graceful {
            writer.u8(GRACEFUL);
            writer.u8(4);
            writer.u16(u16::from(graceful.restarting) | u16::from(graceful.preserved) << 1);
            writer.u16(graceful.restart_time_s);
        }
        if is_quic {
            writer.u8(TRANSPORT);
            writer.u8(1);
            self.transport.emit(writer);
        }
        if self.echo {
            writer.u8(ECHO);
            writer.u8(0);
        }
        Type::Open
    }
}

whole_messages!(Repr);
