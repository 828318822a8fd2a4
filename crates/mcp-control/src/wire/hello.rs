//! HELLO and WELCOME: versions and capabilities.
//!
//! ```text
//!  HELLO (client)
//! +---------------------------------------------------------------+
//! |  identifier "PMCP"                                            |
//! +---------------+---------------+-------------------------------+
//! |  lowest and highest version   |  capabilities                 |
//! +---------------+---------------+-------------------------------+
//! |  carrier: 17  |  1: the data  |  0                            |  from here on only where the data
//! |  UDP, 6 IP    |  is sealed    |                               |  connection is prepared
//! +---------------+---------------+-------------------------------+
//! |  source port                  |  suggested destination port   |
//! +-------------------------------+-------------------------------+
//! |  key of sealed data, otherwise 0 (256 bits)                   |
//! +---------------------------------------------------------------+
//!
//!  WELCOME (server)
//! +---------------------------------------------------------------+
//! |  identifier "PMCP"                                            |
//! +---------------+---------------+-------------------------------+
//! |  version      |  0            |  capabilities                 |
//! +---------------+---------------+-------------------------------+
//! |  most entries it takes                                        |
//! +---------------------------------------------------------------+
//! |  most bytes it takes (64 bits)                                |
//! +---------------------------------------------------------------+
//! ```
//!
//! Later versions may append fields; capabilities that are not known are ignored. The server chooses the highest version
//! that both speak, or refuses with FAILED.

use alloc::format;
use alloc::string::String;
use core::ops::RangeInclusive;

use super::plan::{Carrier, DataKey};
use super::{IDENTIFIER, Message, ParseError, Type, VERSION};
use super::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};

/// Capabilities of a peer: a set of bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Capabilities(pub u16);

impl Capabilities {
    /// Data sealed with the key of the copy.
    pub const AEAD: Capabilities = Capabilities(0x0001);
    /// Data carried over UDP.
    pub const UDP: Capabilities = Capabilities(0x0002);
    /// Data carried as IP protocol 6.
    pub const IP: Capabilities = Capabilities(0x0004);
    /// Of a server: it answers the suggestion in HELLO and listens for the data at once.
    pub const PREPARES: Capabilities = Capabilities(0x0008);

    /// It takes blocks over links that the sender arranges, and reports on them.
    pub const FED: Capabilities = Capabilities(0x0010);
    /// Of a server: it feeds other hosts.
    pub const FEEDS: Capabilities = Capabilities(0x0020);
    /// Of a server: it takes LISTEN and, where it feeds others, MULTICAST.
    pub const ISLANDS: Capabilities = Capabilities(0x0040);

    /// Whether every bit of `other` is set here.
    pub const fn has(self, other: Capabilities) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the bits of both.
    pub const fn with(self, other: Capabilities) -> Capabilities {
        Capabilities(self.0 | other.0)
    }
}

/// The data connection as a client suggests it in HELLO: SUGGEST number 1, and what the server needs to listen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prepared {
    /// How data will travel.
    pub carrier: Carrier,
    /// The port that data comes from, not 0.
    pub source: u16,
    /// The port that data may go to, not 0.
    pub destination: u16,
    /// The key, when data is sealed.
    pub key: Option<DataKey>,
}

/// Bytes of HELLO with [`Prepared`], and without.
const PREPARED_LEN: usize = SHORT_LEN + 40;
const SHORT_LEN: usize = 8;

/// A HELLO.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The oldest version that the client speaks, at least 1.
    pub lowest: u8,
    /// The newest, not less.
    pub highest: u8,
    /// Capabilities of the client.
    pub capabilities: Capabilities,
    /// The data connection, if it is prepared.
    pub prepared: Option<Prepared>,
}

impl Message for Hello {
    const TYPE: Type = Type::Hello;
    const LENGTHS: RangeInclusive<usize> = SHORT_LEN..=usize::MAX;

    fn body_len(&self) -> usize {
        match self.prepared {
            Some(_) => PREPARED_LEN,
            None => SHORT_LEN,
        }
    }

    fn parse_body(body: &[u8]) -> Result<Self, ParseError> {
        if u32_at(body, 0) != IDENTIFIER {
            return Err(ParseError::Version);
        }
        if body[4] == 0 || body[5] < body[4] {
            return Err(ParseError::Value);
        }
        Ok(Hello {
            lowest: body[4],
            highest: body[5],
            capabilities: Capabilities(u16_at(body, 6)),
            prepared: match body.len() {
                PREPARED_LEN.. => Some(Prepared::parse(&body[SHORT_LEN..PREPARED_LEN])?),
                _ => None,
            },
        })
    }

    fn emit_body(&self, body: &mut [u8]) {
        put_u32(body, 0, IDENTIFIER);
        body[4] = self.lowest;
        body[5] = self.highest;
        put_u16(body, 6, self.capabilities.0);
        if let Some(prepared) = &self.prepared {
            prepared.emit(&mut body[SHORT_LEN..PREPARED_LEN]);
        }
    }
}

impl Prepared {
    fn parse(fields: &[u8]) -> Result<Self, ParseError> {
        if u16_at(fields, 2) != 0 {
            return Err(ParseError::Reserved);
        }
        let mut key = [0; 32];
        key.copy_from_slice(&fields[8..40]);
        let key = match fields[1] {
            0 if key == [0; 32] => None,
            1 => Some(DataKey(key)),
            _ => return Err(ParseError::Value),
        };
        let prepared = Prepared {
            carrier: Carrier::parse(fields[0])?,
            source: u16_at(fields, 4),
            destination: u16_at(fields, 6),
            key,
        };
        if prepared.source == 0 || prepared.destination == 0 {
            return Err(ParseError::Value);
        }
        Ok(prepared)
    }

    fn emit(&self, fields: &mut [u8]) {
        fields[0] = self.carrier as u8;
        fields[1] = self.key.is_some().into();
        put_u16(fields, 2, 0);
        put_u16(fields, 4, self.source);
        put_u16(fields, 6, self.destination);
        let key = self.key.map_or([0; 32], |key| key.0);
        fields[8..40].copy_from_slice(&key);
    }
}

impl Hello {
    /// Returns the newest version that both support, if there is one.
    pub fn version(&self) -> Option<u8> {
        (self.lowest..=self.highest)
            .contains(&VERSION)
            .then_some(VERSION)
    }

    /// Explains to people that the two sides have no version in common.
    pub(crate) fn mismatch(&self) -> String {
        let Hello {
            lowest, highest, ..
        } = self;
        let theirs = match lowest == highest {
            true => format!("version {lowest}"),
            false => format!("versions {lowest} to {highest}"),
        };
        format!(
            "mcp speaks {theirs} of the control protocol, mcpd version {VERSION}: install the same release of \
             polycast on both"
        )
    }
}

/// A WELCOME.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Welcome {
    /// The version used from now on.
    pub version: u8,
    /// Capabilities of the server.
    pub capabilities: Capabilities,
    /// Largest number of entries that it accepts.
    pub max_entries: u32,
    /// Largest number of bytes of all files that it accepts.
    pub max_bytes: u64,
}

impl Message for Welcome {
    const TYPE: Type = Type::Welcome;
    const LENGTHS: RangeInclusive<usize> = 20..=usize::MAX;

    fn parse_body(body: &[u8]) -> Result<Self, ParseError> {
        if u32_at(body, 0) != IDENTIFIER {
            return Err(ParseError::Version);
        }
        if body[4] == 0 {
            return Err(ParseError::Value);
        }
        if body[5] != 0 {
            return Err(ParseError::Reserved);
        }
        Ok(Welcome {
            version: body[4],
            capabilities: Capabilities(u16_at(body, 6)),
            max_entries: u32_at(body, 8),
            max_bytes: u64_at(body, 12),
        })
    }

    fn emit_body(&self, body: &mut [u8]) {
        put_u32(body, 0, IDENTIFIER);
        body[4] = self.version;
        body[5] = 0;
        put_u16(body, 6, self.capabilities.0);
        put_u32(body, 8, self.max_entries);
        put_u64(body, 12, self.max_bytes);
    }
}
