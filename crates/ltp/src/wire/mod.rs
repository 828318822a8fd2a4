//! Packet formats: a `Repr` for each message, as in smoltcp, and a view over the bytes of DATA and REPAIR.
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
//! All integers are big-endian. With a group key, every packet but DATA, REPAIR and PARITY ends with a
//! [`MAC_LEN`]-byte authenticator ([`crate::digest::Hashing`]); the parsers here see the packet
//! without it.

use proto_core::wire::{Reader, Truncated, Writer};

pub use proto_core::Seq;

use crate::SessionId;

pub mod data;
pub mod digests;
pub mod pace;
pub mod parity;
pub mod report;
pub mod request;
pub mod sync;

/// Length of the header every packet starts with.
pub const HEADER_LEN: usize = 8;
/// The version this crate speaks. One more in a build of the next version (`docs/wire.md`).
pub const VERSION: u8 = 1 + cfg!(polycast_next_version) as u8;
/// Length of the authenticator at the end of control packets when a key is set.
pub const MAC_LEN: usize = 16;

proto_core::numbered! {
    /// What a packet is.
    pub enum Type: u8 {
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
        /// The source's rate, and echoes for receivers that measure their round-trip time.
        Pace = 8,
        /// A receiver tells the source which rate it can have.
        Feedback = 9,
        /// Parity of a block, on request or in advance.
        Parity = 10,
    }
}

proto_core::errors! {
    /// Why bytes are not an LTP packet.
    pub enum ParseError {
        /// The packet is shorter than its type demands.
        Truncated = "packet is cut short",
        /// Another version of the protocol.
        Version = "packet of another protocol version",
        /// An unknown packet type.
        Type = "unknown packet type",
        /// Longer than its type allows, or a list that does not fill whole entries.
        Length = "packet length does not fit its type",
        /// Reserved bits or bytes are set, or flags contradict each other.
        Reserved = "reserved bits are set",
        /// A field's value is outside its bounds.
        Value = "a field is out of bounds",
    }
}

impl From<Truncated> for ParseError {
    fn from(Truncated: Truncated) -> Self {
        ParseError::Truncated
    }
}

/// Returns the version of an LTP packet, `None` for no bytes. It has the same place in all versions.
pub fn version(packet: &[u8]) -> Option<u8> {
    packet.first().map(|first| first >> 4)
}

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
    /// [`ParseError::Version`] when the version is not [`VERSION`], [`ParseError::Truncated`] when there are fewer than
    /// [`HEADER_LEN`] bytes, [`ParseError::Type`] when the type is unknown.
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<Self, ParseError> {
        if version(packet).is_some_and(|version| version != VERSION) {
            return Err(ParseError::Version);
        }
        let bytes: &[u8; HEADER_LEN] = packet.first_chunk().ok_or(ParseError::Truncated)?;
        Ok(Header {
            kind: Type::from_number(bytes[0] & 0xf).ok_or(ParseError::Type)?,
            flags: bytes[1],
            specific: u16::from_be_bytes([bytes[2], bytes[3]]),
            session: SessionId(u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]])),
        })
    }

    /// Writes the header into the first 8 bytes. Returns the writer of the fields after them.
    ///
    /// # Panics
    /// If the buffer is shorter than [`HEADER_LEN`].
    #[inline]
    pub fn emit<'b>(&self, packet: &'b mut [u8]) -> Writer<'b> {
        Writer::new(packet)
            .u8(VERSION << 4 | self.kind as u8)
            .u8(self.flags)
            .u16(self.specific)
            .u32(self.session.0)
    }

    /// Reads the header of a packet of that type. Returns the reader of the fields after it.
    fn of_kind(packet: &[u8], kind: Type) -> Result<(Self, Reader<'_>), ParseError> {
        let header = Header::parse(packet)?;
        if header.kind != kind {
            return Err(ParseError::Type);
        }
        Ok((header, Reader::new(&packet[HEADER_LEN..])))
    }
}

/// Returns a field that is present if `is_set`, and otherwise must be zero.
fn optional<T: PartialEq>(is_set: bool, field: T, zero: T) -> Result<Option<T>, ParseError> {
    match is_set {
        true => Ok(Some(field)),
        false if field == zero => Ok(None),
        false => Err(ParseError::Reserved),
    }
}

/// Checks that all fields of a packet were read.
fn expect_end(fields: &Reader<'_>) -> Result<(), ParseError> {
    if fields.rest().is_empty() {
        Ok(())
    } else {
        Err(ParseError::Length)
    }
}

/// Returns the first 8 bytes of a digest, as reports carry them.
pub(crate) fn prefix(digest: &crate::digest::Digest) -> u64 {
    digest
        .first_chunk()
        .map_or(0, |bytes| u64::from_be_bytes(*bytes))
}
