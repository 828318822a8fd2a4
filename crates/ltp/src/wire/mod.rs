//! Packet formats: a view over bytes and a `Repr` for each message, as in smoltcp.
//!
//! Every packet is a UDP payload that starts with the same 8 bytes:
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |  version 1,   |  flags        |  type-specific                |
//! |  type (4+4)   |               |                               |
//! +---------------+---------------+-------------------------------+
//! |  session identifier                                           |
//! +---------------------------------------------------------------+
//! ```
//!
//! All integers are big-endian. With a group key, every packet but DATA and REPAIR ends with a
//! [`MAC_LEN`]-byte authenticator ([`crate::digest::Hashing`]); the parsers here see the packet
//! without it.

use core::fmt;

pub use proto_core::Seq;

use crate::SessionId;

pub mod data;
pub mod digests;
pub mod report;
pub mod request;
pub mod sync;

/// Length of the header every packet starts with.
pub const HEADER_LEN: usize = 8;
/// The version this crate speaks.
pub const VERSION: u8 = 1;
/// Length of the authenticator at the end of control packets when a key is set.
pub const MAC_LEN: usize = 16;

/// What a packet is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Type {
    /// New data, from the source to the group.
    Data = 1,
    /// Data sent again on request.
    Repair = 2,
    /// Heartbeat: which packets the source stores and has sent, and the content.
    Sync = 3,
    /// Digests of blocks.
    Digests = 4,
    /// A receiver lacks data, digests or a heartbeat.
    Request = 5,
    /// One receiver tells the source how far it is.
    Report = 6,
    /// The source's answer to a report.
    ReportAck = 7,
}

impl Type {
    /// The type with that number.
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Type::Data,
            2 => Type::Repair,
            3 => Type::Sync,
            4 => Type::Digests,
            5 => Type::Request,
            6 => Type::Report,
            7 => Type::ReportAck,
            _ => return None,
        })
    }
}

/// Why bytes are not a packet of ours.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ParseError {
    /// The packet is shorter than its type demands.
    Truncated,
    /// Another version of the protocol.
    Version,
    /// An unknown packet type.
    Type,
    /// Longer than its type allows, or a list that does not fill whole entries.
    Length,
    /// Reserved bits or bytes are set, or flags contradict each other.
    Reserved,
    /// A field's value is outside its bounds.
    Value,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ParseError::Truncated => "packet is cut short",
            ParseError::Version => "packet of another protocol version",
            ParseError::Type => "unknown packet type",
            ParseError::Length => "packet length does not fit its type",
            ParseError::Reserved => "reserved bits are set",
            ParseError::Value => "a field is out of bounds",
        })
    }
}

impl core::error::Error for ParseError {}

/// The first 8 bytes of every packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// What the packet is.
    pub kind: Type,
    /// Flags, by type.
    pub flags: u8,
    /// Bytes 2 and 3, by type.
    pub specific: u16,
    /// The session it belongs to.
    pub session: SessionId,
}

impl Header {
    /// Reads the header; the rest of the packet is not looked at.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] when there are fewer than [`HEADER_LEN`] bytes, [`ParseError::Version`] when the
    /// version is not [`VERSION`], [`ParseError::Type`] when the type is unknown.
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<Self, ParseError> {
        let bytes: &[u8; HEADER_LEN] = packet.first_chunk().ok_or(ParseError::Truncated)?;
        if bytes[0] >> 4 != VERSION {
            return Err(ParseError::Version);
        }
        Ok(Header {
            kind: Type::from_number(bytes[0] & 0xf).ok_or(ParseError::Type)?,
            flags: bytes[1],
            specific: u16::from_be_bytes([bytes[2], bytes[3]]),
            session: SessionId(u32_at(packet, 4)),
        })
    }

    /// Writes the header into the first 8 bytes.
    ///
    /// # Panics
    /// If the buffer is shorter than [`HEADER_LEN`].
    #[inline]
    pub fn emit(&self, packet: &mut [u8]) {
        packet[0] = VERSION << 4 | self.kind as u8;
        packet[1] = self.flags;
        packet[2..4].copy_from_slice(&self.specific.to_be_bytes());
        packet[4..8].copy_from_slice(&self.session.0.to_be_bytes());
    }

    fn parse_as(packet: &[u8], kind: Type, min_len: usize) -> Result<Self, ParseError> {
        let header = Header::parse(packet)?;
        if header.kind != kind {
            return Err(ParseError::Type);
        }
        if packet.len() < min_len {
            return Err(ParseError::Truncated);
        }
        Ok(header)
    }
}

#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}

pub(crate) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

pub(crate) fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
}
