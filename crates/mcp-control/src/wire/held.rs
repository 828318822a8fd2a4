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
use core::ops::RangeInclusive;

use super::{Message, ParseError, Type, digests, put_u64, u64_at};
use crate::digest::Digest;

/// A HELD.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Held {
    /// The first block.
    pub first: u64,
    /// Digests of that block and those after it: 1 to [`MAX_HELD`](crate::limits::MAX_HELD).
    pub digests: Vec<Digest>,
}

impl Message for Held {
    const TYPE: Type = Type::Held;
    const LENGTHS: RangeInclusive<usize> = digests::LENGTHS;

    fn body_len(&self) -> usize {
        digests::body_len(self.digests.len())
    }

    fn parse_body(body: &[u8]) -> Result<Self, ParseError> {
        let (first, digests) = digests::parse(body)?;
        Ok(Held { first, digests })
    }

    fn emit_body(&self, body: &mut [u8]) {
        digests::emit(body, self.first, &self.digests);
    }
}

/// A SCANNED.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Scanned {
    /// Blocks named in all HELD.
    pub blocks: u64,
}

impl Message for Scanned {
    const TYPE: Type = Type::Scanned;
    const LENGTHS: RangeInclusive<usize> = 8..=8;

    fn parse_body(body: &[u8]) -> Result<Self, ParseError> {
        Ok(Scanned {
            blocks: u64_at(body, 0),
        })
    }

    fn emit_body(&self, body: &mut [u8]) {
        put_u64(body, 0, self.blocks);
    }
}
