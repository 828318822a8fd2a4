//! HELD and SCANNED: the blocks that the receiver has already.
//!
//! ```text
//!  HELD (server)
//! +---------------------------------------------------------------+
//! |  number of the first block (64 bits)                          |
//! +---------------------------------------------------------------+
//! |  digest of the first block (32 bytes)                         |
//! +---------------------------------------------------------------+
//! |  ... 1 to 1024 digests                                        |
//! +---------------------------------------------------------------+
//!
//!  SCANNED (server)
//! +---------------------------------------------------------------+
//! |  blocks named in all HELD (64 bits)                           |
//! +---------------------------------------------------------------+
//! ```
//!
//! HELD come in rising order and never name a block twice.

use alloc::vec::Vec;

use super::{HEADER_LEN, ParseError, Type, begin, body, put_u64, u64_at};
use crate::digest::Digest;
use crate::limits::{MAX_BLOCKS, MAX_HELD};

/// A HELD.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Held {
    /// The first block.
    pub first: u64,
    /// Digests of that block and those after it: 1 to [`MAX_HELD`].
    pub digests: Vec<Digest>,
}

/// Length of a HELD's body without digests.
const FIXED_LEN: usize = 8;

impl Held {
    /// Reads the frame.
    ///
    /// # Errors
    /// The frame is not a valid HELD.
    pub fn parse(frame: &[u8]) -> Result<Self, ParseError> {
        let most = FIXED_LEN + 32 * MAX_HELD;
        let body = body(frame, Type::Held, FIXED_LEN + 32, most)?;
        let first = u64_at(body, 0);
        let (digests, rest) = body[FIXED_LEN..].as_chunks::<32>();
        if !rest.is_empty() {
            return Err(ParseError::Length);
        }
        if first > MAX_BLOCKS - digests.len() as u64 {
            return Err(ParseError::Value);
        }
        Ok(Held {
            first,
            digests: digests.to_vec(),
        })
    }

    /// Length of the frame.
    pub fn buffer_len(&self) -> usize {
        HEADER_LEN + FIXED_LEN + 32 * self.digests.len()
    }

    /// Writes the frame.
    ///
    /// # Panics
    /// If the buffer is shorter than [`Held::buffer_len`].
    pub fn emit(&self, frame: &mut [u8]) {
        let body = begin(frame, Type::Held, self.buffer_len());
        put_u64(body, 0, self.first);
        for (place, digest) in body[FIXED_LEN..].chunks_mut(32).zip(&self.digests) {
            place.copy_from_slice(digest);
        }
    }
}

/// A SCANNED.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Scanned {
    /// Blocks named in all HELD.
    pub blocks: u64,
}

impl Scanned {
    /// Reads the frame.
    ///
    /// # Errors
    /// The frame is not a valid SCANNED.
    pub fn parse(frame: &[u8]) -> Result<Self, ParseError> {
        let body = body(frame, Type::Scanned, 8, 8)?;
        Ok(Scanned {
            blocks: u64_at(body, 0),
        })
    }

    /// Length of the frame.
    pub const fn buffer_len(&self) -> usize {
        HEADER_LEN + 8
    }

    /// Writes the frame.
    ///
    /// # Panics
    /// If the buffer is shorter than [`Scanned::buffer_len`].
    pub fn emit(&self, frame: &mut [u8]) {
        let body = begin(frame, Type::Scanned, self.buffer_len());
        put_u64(body, 0, self.blocks);
    }
}
