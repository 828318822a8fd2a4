//! PROGRESS, DIGEST and DONE: while the data flows, and after.
//!
//! ```text
//!  PROGRESS (server)
//! +---------------------------------------------------------------+
//! |  bytes of the data stream that have arrived (64 bits)         |
//! +---------------------------------------------------------------+
//! |  bytes of all files that are in place or held (64 bits)       |
//! +---------------------------------------------------------------+
//!
//!  DIGEST (client)
//! +---------------------------------------------------------------+
//! |  entry                                                        |
//! +---------------+-----------------------------------------------+
//! |  status       |  0                                            |
//! +---------------+-----------------------------------------------+
//! |  BLAKE3 of the file; 0 unless status 0 (32 bytes)             |
//! +---------------------------------------------------------------+
//!
//!  DONE (server)
//! +---------------------------------------------------------------+
//! |  bytes of the data stream that arrived (64 bits)              |
//! +---------------------------------------------------------------+
//! |  bytes of all files that are in place (64 bits)               |
//! +---------------------------------------------------------------+
//! |  digest of the whole copy (32 bytes)                          |
//! +---------------------------------------------------------------+
//! ```
//!
//! Status: 0 the digest follows, 1 the file changed while it was read, 2 it could not be read. The
//! digest of the whole is BLAKE3 in derive-key mode ("polycast mcp 1 digest of a whole copy") over
//! each entry as in ENTRIES and, after each file, its BLAKE3.

use core::ops::RangeInclusive;

use super::{Message, ParseError, Type, array_at};
use super::{put_u32, put_u64, u32_at, u64_at};
use crate::digest::Digest;

/// A PROGRESS.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Progress {
    /// Bytes of the data stream that have arrived.
    pub received: u64,
    /// Bytes of all files that are in place or held.
    pub held: u64,
}

impl Message for Progress {
    const TYPE: Type = Type::Progress;
    const LENGTHS: RangeInclusive<usize> = 16..=16;

    fn parse_body(body: &[u8]) -> Result<Self, ParseError> {
        Ok(Progress {
            received: u64_at(body, 0),
            held: u64_at(body, 8),
        })
    }

    fn emit_body(&self, body: &mut [u8]) {
        put_u64(body, 0, self.received);
        put_u64(body, 8, self.held);
    }
}

/// The sender's verdict on a file after reading it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FileVerdict {
    /// Its BLAKE3.
    Digest(Digest),
    /// It changed while it was read: the data that was sent is not valid.
    Changed,
    /// It could not be read to its end.
    Unreadable,
}

/// A DIGEST.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileDigest {
    /// The file, by its entry's number.
    pub entry: u32,
    /// The verdict.
    pub verdict: FileVerdict,
}

impl Message for FileDigest {
    const TYPE: Type = Type::Digest;
    const LENGTHS: RangeInclusive<usize> = 40..=40;

    fn parse_body(body: &[u8]) -> Result<Self, ParseError> {
        let digest: Digest = array_at(body, 8);
        if body[5..8] != [0; 3] || (body[4] != 0 && digest != [0; 32]) {
            return Err(ParseError::Reserved);
        }
        let verdict = match body[4] {
            0 => FileVerdict::Digest(digest),
            1 => FileVerdict::Changed,
            2 => FileVerdict::Unreadable,
            _ => return Err(ParseError::Value),
        };
        Ok(FileDigest {
            entry: u32_at(body, 0),
            verdict,
        })
    }

    fn emit_body(&self, body: &mut [u8]) {
        let (status, digest) = match self.verdict {
            FileVerdict::Digest(digest) => (0, digest),
            FileVerdict::Changed => (1, [0; 32]),
            FileVerdict::Unreadable => (2, [0; 32]),
        };
        put_u32(body, 0, self.entry);
        body[4..8].copy_from_slice(&[status, 0, 0, 0]);
        body[8..].copy_from_slice(&digest);
    }
}

/// A DONE.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Done {
    /// Bytes of the data stream that arrived.
    pub received: u64,
    /// Bytes of all files that are in place.
    pub bytes: u64,
    /// The digest of the whole copy ([`crate::Manifest::digest`]).
    pub whole: Digest,
}

impl Message for Done {
    const TYPE: Type = Type::Done;
    const LENGTHS: RangeInclusive<usize> = 48..=48;

    fn parse_body(body: &[u8]) -> Result<Self, ParseError> {
        Ok(Done {
            received: u64_at(body, 0),
            bytes: u64_at(body, 8),
            whole: array_at(body, 16),
        })
    }

    fn emit_body(&self, body: &mut [u8]) {
        put_u64(body, 0, self.received);
        put_u64(body, 8, self.bytes);
        body[16..].copy_from_slice(&self.whole);
    }
}
