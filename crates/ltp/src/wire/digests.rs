//! DIGESTS: chaining values of consecutive blocks.
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! | 1, type 4     |  flags        |  0                            |
//! +---------------+---------------+-------------------------------+
//! |  session identifier                                           |
//! +---------------------------------------------------------------+
//! |  number of the first block                                    |
//! +---------------------------------------------------------------+
//! |  nonce: of the request this answers, else 0 (64 bits)         |
//! +---------------------------------------------------------------+
//! |  digest of the first block (32 bytes)                         |
//! +---------------------------------------------------------------+
//! |  ... 1 to 64 digests                                          |
//! +---------------------------------------------------------------+
//! ```
//!
//! Flag 0x10 ANSWER: by unicast from the source, carries the nonce. A digest is the BLAKE3
//! chaining value (not the root) of the block as a subtree at its place in the content.
//!
//! Flag 0x20 LEFT (only with ANSWER): the values are those of the largest whole subtrees that lie
//! to the left of the first block (which is not 0), the first subtree first: one for each bit set in
//! the block's number; or none, when the source does not know them.

use super::{Header, ParseError, Type, optional};
use crate::SessionId;
use crate::digest::Digest;

/// Bytes before the first digest.
pub const DIGESTS_HEADER_LEN: usize = 20;
/// Most digests in one packet.
pub const MAX_DIGESTS: usize = 64;
/// Answers a request by unicast and carries its nonce.
pub const FLAG_ANSWER: u8 = 0x10;
/// The values lie to the left of the first block.
pub const FLAG_LEFT: u8 = 0x20;

const FLAG_LEFT_ANSWER: u8 = FLAG_ANSWER | FLAG_LEFT;

/// The fields of a DIGESTS packet, without the digests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Repr {
    /// The session.
    pub session: SessionId,
    /// Number of the first block.
    pub first_block: u32,
    /// The nonce of the request that this answers.
    pub answer: Option<u64>,
    /// The values lie to the left of the first block; only in an answer.
    pub left: bool,
    /// How many digests follow, 1 to [`MAX_DIGESTS`]; to the left: one for each bit set in
    /// `first_block`, or none.
    pub count: usize,
}

impl Repr {
    /// Reads the packet. Returns its fields and the digests.
    ///
    /// # Errors
    /// [`ParseError::Version`] or [`ParseError::Type`] when it is not DIGESTS of this version,
    /// [`ParseError::Truncated`] or [`ParseError::Length`] when its length is wrong, [`ParseError::Reserved`]
    /// when flags or reserved fields are invalid, and [`ParseError::Value`] when the number of digests does
    /// not fit the first block.
    pub fn parse(packet: &[u8]) -> Result<(Self, &[Digest]), ParseError> {
        let (header, mut fields) = Header::of_kind(packet, Type::Digests)?;
        let (first_block, nonce) = (fields.u32()?, fields.u64()?);
        let (digests, rest) = fields.rest().as_chunks();
        if !rest.is_empty() || digests.len() > MAX_DIGESTS {
            return Err(ParseError::Length);
        }
        let (answer, left) = match header.flags {
            0 => (false, false),
            FLAG_ANSWER => (true, false),
            FLAG_LEFT_ANSWER => (true, true),
            _ => return Err(ParseError::Reserved),
        };
        if header.specific != 0 {
            return Err(ParseError::Reserved);
        }
        let answer = optional(answer, nonce, 0)?;
        let count = digests.len() as u32;
        let fits = match count {
            _ if left => first_block != 0 && (count == 0 || count == first_block.count_ones()),
            0 => return Err(ParseError::Truncated),
            _ => first_block.checked_add(count).is_some(),
        };
        if !fits {
            return Err(ParseError::Value);
        }
        let repr = Repr {
            session: header.session,
            first_block,
            answer,
            left,
            count: digests.len(),
        };
        Ok((repr, digests))
    }

    /// Length of the packet with its digests.
    pub const fn buffer_len(&self) -> usize {
        DIGESTS_HEADER_LEN + 32 * self.count
    }

    /// Writes all but the digests; [`put_digest`] writes these.
    ///
    /// # Panics
    /// If the buffer is shorter than [`DIGESTS_HEADER_LEN`].
    pub fn emit(&self, buffer: &mut [u8]) {
        let flags = match (self.answer, self.left) {
            (None, _) => 0,
            (Some(_), false) => FLAG_ANSWER,
            (Some(_), true) => FLAG_LEFT_ANSWER,
        };
        Header {
            kind: Type::Digests,
            flags,
            specific: 0,
            session: self.session,
        }
        .emit(buffer)
        .u32(self.first_block)
        .u64(self.answer.unwrap_or(0));
    }
}

/// Writes the digest with that index into a packet started by [`Repr::emit`].
///
/// # Panics
/// If the buffer ends before it.
pub fn put_digest(buffer: &mut [u8], index: usize, digest: &Digest) {
    let at = DIGESTS_HEADER_LEN + 32 * index;
    buffer[at..at + 32].copy_from_slice(digest);
}
