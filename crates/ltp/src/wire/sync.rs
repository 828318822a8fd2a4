//! SYNC: the source's heartbeat.
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! | 1, type 3     |  flags        |  longest silence, ms          |
//! +---------------+---------------+-------------------------------+
//! |  session identifier                                           |
//! +---------------------------------------------------------------+
//! |  oldest packet still held (64 bits)                           |
//! +---------------------------------------------------------------+
//! |  next packet, one past the newest sent (64 bits)              |
//! +---------------------------------------------------------------+
//! |  length of the content in bytes; 0 until END (64 bits)        |
//! +---------------------------------------------------------------+
//! |  number of blocks whose digests were sent (64 bits)           |
//! +---------------------------------------------------------------+
//! |  sequence of packet 0                                         |
//! +-------------------------------+---------------+---------------+
//! |  payload of a data packet     |P| block: log2 | name length   |
//! +-------------------------------+---------------+---------------+
//! |  blocks between reports of progress; 0: never                 |
//! +---------------------------------------------------------------+
//! |  microseconds over which reports are spread                   |
//! +---------------------------------------------------------------+
//! |  nonce: of the request this answers, else 0 (64 bits)         |
//! +---------------------------------------------------------------+
//! |  digest of the whole content, 0 until DIGEST (32 bytes)       |
//! +---------------------------------------------------------------+
//! |  name of the content (0 to 255 bytes)                         |
//! +---------------------------------------------------------------+
//! ```
//!
//! | flag | name | meaning |
//! | --- | --- | --- |
//! | 0x01 | END | the length is final |
//! | 0x02 | DIGEST | the digest of the whole is known |
//! | 0x04 | INTEGRITY | digests of blocks are sent |
//! | 0x08 | REPORTS | receivers report joining and completion |
//! | 0x10 | ANSWER | answers a request by unicast, carries its nonce, has no name |
//! | 0x20 | CLOSING | the source is leaving |
//! | 0x40 | STALLED | the source waits for reports of progress |
//! | 0x80 | STREAM | the content is a live stream of a length that is not known yet |
//!
//! P, the highest bit of its byte: the source answers requests with [parity](super::parity) too; only with INTEGRITY.

use super::{Header, ParseError, Seq, Type, optional};
use crate::{Geometry, SessionId};

/// Length without the name.
pub const SYNC_LEN: usize = 96;
/// Longest name of content in bytes.
pub const MAX_NAME_LEN: usize = 255;

/// Beside the exponent of the block length: the source answers with parity too.
const PARITY: u8 = 0x80;

/// Flags of a heartbeat.
pub mod flag {
    /// The length is final.
    pub const END: u8 = 0x01;
    /// The digest of the whole is known.
    pub const DIGEST: u8 = 0x02;
    /// Digests of blocks are sent.
    pub const INTEGRITY: u8 = 0x04;
    /// Receivers report joining and completion.
    pub const REPORTS: u8 = 0x08;
    /// Answers a request by unicast and carries its nonce.
    pub const ANSWER: u8 = 0x10;
    /// The source is leaving.
    pub const CLOSING: u8 = 0x20;
    /// The source waits for reports of progress.
    pub const STALLED: u8 = 0x40;
    /// A live stream.
    pub const STREAM: u8 = 0x80;
}

/// The fields of a SYNC packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Repr<'a> {
    /// The session.
    pub session: SessionId,
    /// The longest silence of the source while it lives, in milliseconds.
    pub silence_ms: u16,
    /// How the content is cut.
    pub geometry: Geometry,
    /// Oldest packet the source still holds.
    pub oldest: u64,
    /// One past the newest packet sent.
    pub next: u64,
    /// The length of the content, once final.
    pub length: Option<u64>,
    /// Number of blocks whose digests were sent; `None`: this session has no digests.
    pub digested: Option<u64>,
    /// The digest of the whole content, once known.
    pub digest: Option<[u8; 32]>,
    /// Receivers report joining and completion.
    pub reports: bool,
    /// The source is leaving.
    pub closing: bool,
    /// The source waits for reports of progress.
    pub stalled: bool,
    /// The content is a live stream.
    pub stream: bool,
    /// The source answers requests with parity too.
    pub parity: bool,
    /// Blocks between two reports of progress; 0: never.
    pub progress_blocks: u32,
    /// Microseconds over which receivers spread their reports.
    pub report_window_us: u32,
    /// The nonce of the request that this answers.
    pub answer: Option<u64>,
    /// Name of the content, at most [`MAX_NAME_LEN`] bytes; empty in an answer.
    pub name: &'a [u8],
}

impl<'a> Repr<'a> {
    /// Reads the packet.
    ///
    /// # Errors
    /// [`ParseError::Version`] or [`ParseError::Type`] when it is not SYNC of this version,
    /// [`ParseError::Truncated`] or [`ParseError::Length`] when its length does not fit its name,
    /// [`ParseError::Reserved`] when fields contradict the flags, and [`ParseError::Value`] when the geometry or
    /// a number is out of bounds.
    pub fn parse(packet: &'a [u8]) -> Result<Self, ParseError> {
        let (header, mut fields) = Header::of_kind(packet, Type::Sync)?;
        let (oldest, next) = (fields.u64()?, fields.u64()?);
        let (length, digested) = (fields.u64()?, fields.u64()?);
        let first = Seq(fields.u32()?);
        let (payload_len, block) = (fields.u16()?, fields.u8()?);
        let (block_exponent, parity) = (block & !PARITY, block & PARITY != 0);
        let name_len = usize::from(fields.u8()?);
        let (progress_blocks, report_window_us) = (fields.u32()?, fields.u32()?);
        let (nonce, digest) = (fields.u64()?, fields.array()?);
        let name = fields.rest();
        if name.len() < name_len {
            return Err(ParseError::Truncated);
        }
        if name.len() > name_len {
            return Err(ParseError::Length);
        }
        let when = |bit| header.flags & bit != 0;
        let is_contradiction = when(flag::ANSWER) && name_len > 0
            || when(flag::DIGEST) && !when(flag::END)
            || parity && !when(flag::INTEGRITY);
        if is_contradiction {
            return Err(ParseError::Reserved);
        }
        let repr = Repr {
            session: header.session,
            silence_ms: header.specific,
            length: optional(when(flag::END), length, 0)?,
            digested: optional(when(flag::INTEGRITY), digested, 0)?,
            digest: optional(when(flag::DIGEST), digest, [0; 32])?,
            answer: optional(when(flag::ANSWER), nonce, 0)?,
            geometry: Geometry::new(block_exponent, payload_len, first).ok_or(ParseError::Value)?,
            oldest,
            next,
            reports: when(flag::REPORTS),
            closing: when(flag::CLOSING),
            stalled: when(flag::STALLED),
            stream: when(flag::STREAM),
            parity,
            progress_blocks,
            report_window_us,
            name,
        };
        repr.check()?;
        Ok(repr)
    }

    fn check(&self) -> Result<(), ParseError> {
        let end = match self.length {
            Some(length) => self.geometry.packets(length).ok_or(ParseError::Value)?,
            None => self.geometry.max_packets(),
        };
        let blocks = self.geometry.blocks_of_packets(end);
        if self.oldest > self.next || self.next > end || self.digested.unwrap_or(0) > blocks {
            return Err(ParseError::Value);
        }
        Ok(())
    }

    /// Length of the packet.
    pub const fn buffer_len(&self) -> usize {
        SYNC_LEN + self.name.len()
    }

    fn flags(&self) -> u8 {
        let pairs = [
            (self.length.is_some(), flag::END),
            (self.digest.is_some(), flag::DIGEST),
            (self.digested.is_some(), flag::INTEGRITY),
            (self.reports, flag::REPORTS),
            (self.answer.is_some(), flag::ANSWER),
            (self.closing, flag::CLOSING),
            (self.stalled, flag::STALLED),
            (self.stream, flag::STREAM),
        ];
        pairs
            .iter()
            .filter(|(set, _)| *set)
            .fold(0, |flags, (_, bit)| flags | bit)
    }

    /// Writes the packet.
    ///
    /// # Panics
    /// If the buffer is shorter than [`Repr::buffer_len`], or the name longer than
    /// [`MAX_NAME_LEN`].
    pub fn emit(&self, buffer: &mut [u8]) {
        let header = Header {
            kind: Type::Sync,
            flags: self.flags(),
            specific: self.silence_ms,
            session: self.session,
        };
        header
            .emit(buffer)
            .u64(self.oldest)
            .u64(self.next)
            .u64(self.length.unwrap_or(0))
            .u64(self.digested.unwrap_or(0))
            .u32(self.geometry.first().0)
            .u16(self.geometry.payload_len())
            .u8(self.geometry.block_exponent() | if self.parity { PARITY } else { 0 })
            .u8(u8::try_from(self.name.len()).expect("name of at most 255 bytes"))
            .u32(self.progress_blocks)
            .u32(self.report_window_us)
            .u64(self.answer.unwrap_or(0))
            .bytes(&self.digest.unwrap_or_default())
            .bytes(self.name);
    }
}
