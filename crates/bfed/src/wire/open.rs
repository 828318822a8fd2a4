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
//! | 2 graceful restart | 16 bits flags, 16 bits seconds | flag 1: I have just restarted; flag 2: my trees survived |
//! | any other | | passed over |

use super::reader::Writer;
use super::{HEADER_LEN, ParseError, Type, VERSION, body, header};
use crate::types::{GatewayId, Tables};

/// Most capabilities of one OPEN.
pub const MAX_CAPABILITIES: usize = 32;

const TABLES: u8 = 1;
const GRACEFUL: u8 = 2;

/// What a gateway says of its restarts (RFC 4724 §3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Graceful {
    /// It has just restarted and has not heard its peers' tables yet.
    pub restarting: bool,
    /// Its data nodes went on forwarding meanwhile.
    pub preserved: bool,
    /// How long it asks to be waited for when it goes away, in seconds.
    pub restart_time_s: u16,
}

/// An OPEN.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Repr {
    /// Lowest version of the protocol that it speaks.
    pub version_low: u8,
    /// Highest version.
    pub version_high: u8,
    /// How long it may be silent before it is held dead, in seconds: 0 for forever, or 3 and more.
    pub hold_time_s: u16,
    /// Who it is.
    pub gateway: GatewayId,
    /// Random, new at every start.
    pub boot: u32,
    /// The tables that it has.
    pub tables: Tables,
    /// Whether routes and trees outlive the connection.
    pub graceful: Option<Graceful>,
}

impl Repr {
    /// Reads a message.
    ///
    /// # Errors
    /// It is not an OPEN, or a field is out of bounds.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut reader = body(bytes, Type::Open)?;
        let (version_low, version_high) = (reader.u8()?, reader.u8()?);
        let hold_time_s = reader.u16()?;
        let gateway = reader.gateway()?;
        let boot = reader.u32()?;
        let (mut tables, mut graceful) = (None, None);
        reader.list(MAX_CAPABILITIES, |reader| {
            let (kind, len) = (reader.u8()?, usize::from(reader.u8()?));
            let mut value = super::reader::Reader::new(reader.bytes(len)?);
            match kind {
                TABLES if tables.is_none() => {
                    // Bits of later tables are passed over.
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
                TABLES | GRACEFUL => return Err(ParseError::Value),
                _ => return Ok(()),
            }
            value.end()
        })?;
        reader.end()?;
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
        })
    }

    /// The version that both sides speak, the highest of them.
    #[must_use]
    pub fn agreed_version(&self) -> Option<u8> {
        (self.version_low..=self.version_high)
            .contains(&VERSION)
            .then_some(VERSION)
    }

    /// Length of the message in bytes.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        HEADER_LEN + 18 + 4 + if self.graceful.is_some() { 6 } else { 0 }
    }

    /// Writes the message.
    ///
    /// # Panics
    /// `buffer` is shorter than [`Repr::buffer_len`].
    pub fn emit(&self, buffer: &mut [u8]) {
        let mut writer = header(buffer, Type::Open, self.buffer_len());
        writer.u8(self.version_low);
        writer.u8(self.version_high);
        writer.u16(self.hold_time_s);
        writer.gateway(self.gateway);
        writer.u32(self.boot);
        writer.u16(1 + u16::from(self.graceful.is_some()));
        writer.u8(TABLES);
        writer.u8(2);
        writer.u16(self.tables.bits());
        if let Some(graceful) = &self.graceful {
            emit_graceful(graceful, &mut writer);
        }
    }
}

fn emit_graceful(graceful: &Graceful, writer: &mut Writer<'_>) {
    writer.u8(GRACEFUL);
    writer.u8(4);
    writer.u16(u16::from(graceful.restarting) | u16::from(graceful.preserved) << 1);
    writer.u16(graceful.restart_time_s);
}
