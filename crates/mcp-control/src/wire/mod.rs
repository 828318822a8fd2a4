//! Message formats: one [`Message`] each with `parse`, `buffer_len` and `emit`, as in smoltcp.
//!
//! A message is the body of a frame on a byte stream (kernel TCP, inside TLS with a key):
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |  version 1    |  type         |  0                            |
//! +---------------+---------------+-------------------------------+
//! |  length of the body in bytes                                  |
//! +---------------------------------------------------------------+
//! ```
//!
//! All integers are big-endian. HELLO, WELCOME and FAILED have version 1 in their header in all versions of the protocol:
//! with them both sides agree on a version, or learn that they have none in common.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use core::ops::RangeInclusive;

mod digests;
pub mod held;
pub mod hello;
pub mod island;
pub mod link;
pub mod offer;
pub mod plan;
pub mod port;
pub mod progress;
pub mod relay;
pub mod verdict;

use proto_core::frames::Framing;

use crate::limits::MAX_FRAME_LEN;

/// Length of the header of a frame.
pub const HEADER_LEN: usize = 8;
/// Longest body of a frame.
pub const MAX_BODY_LEN: usize = MAX_FRAME_LEN - HEADER_LEN;
/// The version that this crate implements. One more in a build of the next version (`docs/wire.md`).
pub const VERSION: u8 = 1 + cfg!(polycast_next_version) as u8;
/// The version in the header of HELLO, WELCOME and FAILED, which never changes.
const GREETING_VERSION: u8 = 1;
/// Says in HELLO and WELCOME that this is the protocol of `mcp`: "PMCP".
pub const IDENTIFIER: u32 = 0x504d_4350;

/// The type of a message. The sender of the copy is the client, the receiver the server.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Type {
    /// Client: versions and capabilities.
    Hello = 1,
    /// Server: the version, capabilities and limits.
    Welcome = 2,
    /// Client: how much will be copied.
    Offer = 3,
    /// Client: entries of the manifest.
    Entries = 4,
    /// Server: digests of blocks that it has.
    Held = 5,
    /// Server: no more HELD.
    Scanned = 6,
    /// Client: suggests a port (TCP-XM §3.4).
    Suggest = 7,
    /// Server: confirms the port, or suggests another.
    Port = 8,
    /// Client: group, carrier, key and length of the data stream.
    Plan = 9,
    /// Client: the blocks on the data stream.
    Runs = 10,
    /// Server: listens for the data.
    Ready = 11,
    /// Server: how far it is.
    Progress = 12,
    /// Client: the digest of a file.
    Digest = 13,
    /// Server: everything is in place.
    Done = 14,
    /// Client: so it is.
    Verified = 15,
    /// Either: the copy failed, and why.
    Failed = 16,
    /// Either: still there.
    KeepAlive = 17,
    /// Client: digests of blocks.
    Blocks = 18,
    /// Client: feed another host.
    Feed = 19,
    /// Client: be fed over a link.
    Fed = 20,
    /// Server: the state of a link.
    Link = 21,
    /// Client: multicast blocks to hosts of an island.
    Multicast = 22,
    /// Client: receive what a host of the island multicasts.
    Listen = 23,
}

impl Type {
    /// All types, by number.
    const ALL: [Type; 23] = {
        use Type::*;
        [
            Hello, Welcome, Offer, Entries, Held, Scanned, Suggest, Port, Plan, Runs, Ready,
            Progress, Digest, Done, Verified, Failed, KeepAlive, Blocks, Feed, Fed, Link,
            Multicast, Listen,
        ]
    };

    /// Returns the type with that number.
    pub fn from_number(number: u8) -> Option<Self> {
        let at = usize::from(number).checked_sub(1)?;
        Type::ALL.get(at).copied()
    }

    /// Returns the version in the header of this type.
    const fn version(self) -> u8 {
        match self {
            Type::Hello | Type::Welcome | Type::Failed => GREETING_VERSION,
            _ => VERSION,
        }
    }

    /// Returns the longest body that this type may have. A longer one is refused when its header is read.
    pub const fn max_body_len(self) -> usize {
        match self {
            Type::Entries | Type::Held | Type::Runs | Type::Blocks => MAX_BODY_LEN,
            Type::Failed => verdict::MAX_FAILED_LEN,
            Type::Multicast => island::MAX_MULTICAST_LEN,
            // Room for fields that later versions append to these two.
            Type::Hello | Type::Welcome => 256,
            _ => 128,
        }
    }
}

/// Why bytes are not a message of ours.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ParseError {
    /// Shorter than its type demands.
    Truncated,
    /// Another protocol, or another version of this one.
    Version,
    /// An unknown message type, or not the one that was to be read.
    Type,
    /// Longer than its type allows, or a list that does not fill whole entries.
    Length,
    /// Reserved bits or bytes are set.
    Reserved,
    /// A field is out of its bounds.
    Value,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ParseError::Truncated => "message is cut short",
            ParseError::Version => "another protocol, or another version of it",
            ParseError::Type => "unexpected message type",
            ParseError::Length => "message length does not fit its type",
            ParseError::Reserved => "reserved bits are set",
            ParseError::Value => "a field is out of bounds",
        })
    }
}

impl core::error::Error for ParseError {}

/// The first 8 bytes of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// Type of the message.
    pub kind: Type,
    /// Length of the body.
    pub body_len: usize,
}

impl Header {
    /// Parses the header; the body is not examined.
    ///
    /// # Errors
    /// The first rule that it breaks; nothing more of this stream can be read then.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let bytes: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(ParseError::Truncated)?;
        let kind = Type::from_number(bytes[1]);
        if bytes[0] != kind.map_or(VERSION, Type::version) {
            return Err(ParseError::Version);
        }
        let kind = kind.ok_or(ParseError::Type)?;
        if bytes[2..4] != [0; 2] {
            return Err(ParseError::Reserved);
        }
        let body_len = u32_at(bytes, 4) as usize;
        if body_len > kind.max_body_len() {
            return Err(ParseError::Length);
        }
        Ok(Header { kind, body_len })
    }

    /// Writes the header into the first 8 bytes.
    ///
    /// # Panics
    /// If the buffer is shorter than [`HEADER_LEN`].
    pub fn emit(&self, frame: &mut [u8]) {
        frame[..4].copy_from_slice(&[self.kind.version(), self.kind as u8, 0, 0]);
        put_u32(frame, 4, self.body_len as u32);
    }
}

/// The header of [`Frames`].
#[derive(Clone, Debug)]
pub enum McpFraming {}

impl Framing for McpFraming {
    const HEADER_LEN: usize = HEADER_LEN;
    type Error = ParseError;

    fn frame_len(header: &[u8]) -> Result<usize, ParseError> {
        Ok(HEADER_LEN + Header::parse(header)?.body_len)
    }
}

/// Cuts a byte stream into frames of at most [`MAX_FRAME_LEN`] bytes.
pub type Frames = proto_core::frames::Frames<McpFraming>;

/// Returns the type and body of one whole frame.
///
/// # Errors
/// Those of [`Header::parse`]; [`ParseError::Truncated`] or [`ParseError::Length`] when the frame is
/// not as long as it says.
pub fn split(frame: &[u8]) -> Result<(Type, &[u8]), ParseError> {
    let header = Header::parse(frame)?;
    let body = &frame[HEADER_LEN..];
    match body.len() {
        len if len < header.body_len => Err(ParseError::Truncated),
        len if len > header.body_len => Err(ParseError::Length),
        _ => Ok((header.kind, body)),
    }
}

/// A message: the body of a frame of one type.
pub trait Message: Sized {
    /// The type that the header names.
    const TYPE: Type;
    /// Bytes that its body may have.
    const LENGTHS: RangeInclusive<usize>;

    /// Returns the length of the body that [`Message::emit_body`] writes.
    fn body_len(&self) -> usize {
        *Self::LENGTHS.start()
    }

    /// Parses a body of a permitted length.
    ///
    /// # Errors
    /// The body is not valid.
    fn parse_body(body: &[u8]) -> Result<Self, ParseError>;

    /// Writes the body into a buffer of exactly its length.
    fn emit_body(&self, body: &mut [u8]);

    /// Parses a whole frame.
    ///
    /// # Errors
    /// The frame has another type, or is not valid.
    fn parse(frame: &[u8]) -> Result<Self, ParseError> {
        Self::parse_body(body(frame, Self::TYPE, Self::LENGTHS)?)
    }

    /// Returns the length of the frame.
    fn buffer_len(&self) -> usize {
        HEADER_LEN + self.body_len()
    }

    /// Writes the frame.
    ///
    /// # Panics
    /// If the buffer is shorter than [`Message::buffer_len`].
    fn emit(&self, frame: &mut [u8]) {
        self.emit_body(begin(frame, Self::TYPE, self.buffer_len()));
    }
}

/// Returns the body of a frame of that type and of a permitted length.
fn body(frame: &[u8], kind: Type, lengths: RangeInclusive<usize>) -> Result<&[u8], ParseError> {
    let (found, body) = split(frame)?;
    match body.len() {
        _ if found != kind => Err(ParseError::Type),
        len if len < *lengths.start() => Err(ParseError::Truncated),
        len if len > *lengths.end() => Err(ParseError::Length),
        _ => Ok(body),
    }
}

/// Writes the header for a frame of `frame_len` bytes; the body's part of the buffer.
///
/// # Panics
/// If the buffer is shorter.
fn begin(frame: &mut [u8], kind: Type, frame_len: usize) -> &mut [u8] {
    let body_len = frame_len - HEADER_LEN;
    Header { kind, body_len }.emit(frame);
    &mut frame[HEADER_LEN..frame_len]
}

macro_rules! bare_messages {
    ($($(#[doc = $doc:literal])+ $name:ident)+) => {$(
        $(#[doc = $doc])+
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub struct $name;

        impl Message for $name {
            const TYPE: Type = Type::$name;
            const LENGTHS: RangeInclusive<usize> = 0..=0;

            fn parse_body(_: &[u8]) -> Result<Self, ParseError> {
                Ok($name)
            }

            fn emit_body(&self, _: &mut [u8]) {}
        }
    )+};
}

bare_messages! {
    /// A READY, which has no fields.
    Ready
    /// A VERIFIED, which has no fields.
    Verified
    /// A KEEPALIVE, which has no fields.
    KeepAlive
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
}

/// Reads an address: IPv6, or IPv4 as ::ffff:a.b.c.d.
fn address_at(bytes: &[u8], at: usize) -> IpAddr {
    Ipv6Addr::from(array_at::<16>(bytes, at)).to_canonical()
}

fn put_address(bytes: &mut [u8], at: usize, address: IpAddr) {
    let address = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    bytes[at..at + 16].copy_from_slice(&address.octets());
}
