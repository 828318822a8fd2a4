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
//! |  payload of a data packet     | block: log2   | name length   |
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

use super::{HEADER_LEN, Header, ParseError, Seq, Type, put_u32, put_u64, u32_at, u64_at};
use crate::{Geometry, SessionId};

/// Length without the name.
pub const SYNC_LEN: usize = 96;
/// Longest name of content in bytes.
pub const MAX_NAME_LEN: usize = 255;

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

/// A view over a SYNC packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Checks lengths, flags and bounds, and wraps the bytes.
    ///
    /// # Errors
    /// [`ParseError::Version`] or [`ParseError::Type`] when it is not SYNC of this version,
    /// [`ParseError::Truncated`] or [`ParseError::Length`] when its length does not fit its name,
    /// [`ParseError::Reserved`] when fields contradict the flags, and [`ParseError::Value`] when the geometry or
    /// a number is out of bounds.
    pub fn new_checked(bytes: T) -> Result<Self, ParseError> {
        let b = bytes.as_ref();
        let header = Header::parse_as(b, Type::Sync, SYNC_LEN)?;
        let name_len = usize::from(b[47]);
        if b.len() < SYNC_LEN + name_len {
            return Err(ParseError::Truncated);
        }
        if b.len() > SYNC_LEN + name_len {
            return Err(ParseError::Length);
        }
        let packet = Packet { bytes };
        packet.check(header.flags)?;
        Ok(packet)
    }

    fn check(&self, flags: u8) -> Result<(), ParseError> {
        let set = |bit| flags & bit != 0;
        if !set(flag::END) && self.length() != 0
            || !set(flag::ANSWER) && self.nonce() != 0
            || set(flag::ANSWER) && !self.name().is_empty()
            || !set(flag::DIGEST) && self.digest() != [0; 32]
            || set(flag::DIGEST) && !set(flag::END)
            || !set(flag::INTEGRITY) && self.digested() != 0
        {
            return Err(ParseError::Reserved);
        }
        let geometry = self.geometry().ok_or(ParseError::Value)?;
        let end = if set(flag::END) {
            geometry.packets(self.length()).ok_or(ParseError::Value)?
        } else {
            geometry.max_packets()
        };
        if self.oldest() > self.next() || self.next() > end {
            return Err(ParseError::Value);
        }
        if self.digested() > geometry.blocks_of_packets(end) {
            return Err(ParseError::Value);
        }
        Ok(())
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    /// The flags.
    pub fn flags(&self) -> u8 {
        self.bytes()[1]
    }

    /// The longest silence of the source while it lives, in milliseconds.
    pub fn silence_ms(&self) -> u16 {
        u16::from_be_bytes([self.bytes()[2], self.bytes()[3]])
    }

    /// The session.
    pub fn session(&self) -> SessionId {
        SessionId(u32_at(self.bytes(), 4))
    }

    /// Oldest packet the source still holds.
    pub fn oldest(&self) -> u64 {
        u64_at(self.bytes(), 8)
    }

    /// One past the newest packet sent.
    pub fn next(&self) -> u64 {
        u64_at(self.bytes(), 16)
    }

    /// Length of the content in bytes, if final.
    pub fn length(&self) -> u64 {
        u64_at(self.bytes(), 24)
    }

    /// Number of blocks whose digests were sent.
    pub fn digested(&self) -> u64 {
        u64_at(self.bytes(), 32)
    }

    /// How the content is cut, if the fields are within bounds.
    pub fn geometry(&self) -> Option<Geometry> {
        let b = self.bytes();
        Geometry::new(
            b[46],
            u16::from_be_bytes([b[44], b[45]]),
            Seq(u32_at(b, 40)),
        )
    }

    /// Blocks between two reports of progress; 0: never.
    pub fn progress_blocks(&self) -> u32 {
        u32_at(self.bytes(), 48)
    }

    /// Microseconds over which receivers spread their reports.
    pub fn report_window_us(&self) -> u32 {
        u32_at(self.bytes(), 52)
    }

    /// The nonce of the request that this answers.
    pub fn nonce(&self) -> u64 {
        u64_at(self.bytes(), 56)
    }

    /// The digest of the whole content.
    pub fn digest(&self) -> [u8; 32] {
        let mut digest = [0; 32];
        digest.copy_from_slice(&self.bytes()[64..96]);
        digest
    }

    /// The name of the content: any bytes, never to be trusted as a path.
    pub fn name(&self) -> &[u8] {
        &self.bytes()[SYNC_LEN..]
    }
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
    /// Reads the fields.
    ///
    /// # Errors
    /// [`ParseError::Value`] when the geometry is out of bounds, which [`Packet::new_checked`] excludes.
    pub fn parse<T: AsRef<[u8]> + ?Sized>(packet: &'a Packet<&'a T>) -> Result<Self, ParseError> {
        let flags = packet.flags();
        let when = |bit| flags & bit != 0;
        Ok(Repr {
            session: packet.session(),
            silence_ms: packet.silence_ms(),
            geometry: packet.geometry().ok_or(ParseError::Value)?,
            oldest: packet.oldest(),
            next: packet.next(),
            length: when(flag::END).then(|| packet.length()),
            digested: when(flag::INTEGRITY).then(|| packet.digested()),
            digest: when(flag::DIGEST).then(|| packet.digest()),
            reports: when(flag::REPORTS),
            closing: when(flag::CLOSING),
            stalled: when(flag::STALLED),
            stream: when(flag::STREAM),
            progress_blocks: packet.progress_blocks(),
            report_window_us: packet.report_window_us(),
            answer: when(flag::ANSWER).then(|| packet.nonce()),
            name: packet.name(),
        })
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
        header.emit(buffer);
        put_u64(buffer, HEADER_LEN, self.oldest);
        put_u64(buffer, 16, self.next);
        put_u64(buffer, 24, self.length.unwrap_or(0));
        put_u64(buffer, 32, self.digested.unwrap_or(0));
        put_u32(buffer, 40, self.geometry.first().0);
        buffer[44..46].copy_from_slice(&self.geometry.payload_len().to_be_bytes());
        buffer[46] = self.geometry.block_exponent();
        buffer[47] = u8::try_from(self.name.len()).expect("name of at most 255 bytes");
        put_u32(buffer, 48, self.progress_blocks);
        put_u32(buffer, 52, self.report_window_us);
        put_u64(buffer, 56, self.answer.unwrap_or(0));
        buffer[64..96].copy_from_slice(&self.digest.unwrap_or([0; 32]));
        buffer[SYNC_LEN..SYNC_LEN + self.name.len()].copy_from_slice(self.name);
    }
}
