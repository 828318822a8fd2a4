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

use super::{HEADER_LEN, Header, ParseError, Type, put_u32, put_u64, u32_at, u64_at};
use crate::SessionId;

/// Bytes before the first digest.
pub const DIGESTS_HEADER_LEN: usize = 20;
/// Most digests in one packet.
pub const MAX_DIGESTS: usize = 64;
/// Answers a request by unicast and carries its nonce.
pub const FLAG_ANSWER: u8 = 0x10;
/// The values lie to the left of the first block.
pub const FLAG_LEFT: u8 = 0x20;

const FLAG_LEFT_ANSWER: u8 = FLAG_ANSWER | FLAG_LEFT;

/// A view over a DIGESTS packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T> {
    bytes: T,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Checks lengths and flags, and wraps the bytes.
    ///
    /// # Errors
    /// [`ParseError::Version`] or [`ParseError::Type`] when it is not DIGESTS of this version,
    /// [`ParseError::Truncated`] or [`ParseError::Length`] when its length is wrong, [`ParseError::Reserved`]
    /// when flags or reserved fields are invalid, and [`ParseError::Value`] when the number of digests does
    /// not fit the first block.
    pub fn new_checked(bytes: T) -> Result<Self, ParseError> {
        let b = bytes.as_ref();
        let header = Header::parse_as(b, Type::Digests, DIGESTS_HEADER_LEN)?;
        let list_len = b.len() - DIGESTS_HEADER_LEN;
        if !list_len.is_multiple_of(32) || list_len / 32 > MAX_DIGESTS {
            return Err(ParseError::Length);
        }
        let (answer, left) = match header.flags {
            0 => (false, false),
            FLAG_ANSWER => (true, false),
            FLAG_LEFT_ANSWER => (true, true),
            _ => return Err(ParseError::Reserved),
        };
        if header.specific != 0 || !answer && u64_at(b, 12) != 0 {
            return Err(ParseError::Reserved);
        }
        let (first, count) = (u32_at(b, HEADER_LEN), (list_len / 32) as u32);
        if left {
            let whole = count == 0 || count == first.count_ones();
            return if first != 0 && whole {
                Ok(Packet { bytes })
            } else {
                Err(ParseError::Value)
            };
        }
        if count == 0 {
            return Err(ParseError::Truncated);
        }
        if first.checked_add(count).is_none() {
            return Err(ParseError::Value);
        }
        Ok(Packet { bytes })
    }

    /// The session.
    pub fn session(&self) -> SessionId {
        SessionId(u32_at(self.bytes.as_ref(), 4))
    }

    /// Number of the first block.
    pub fn first_block(&self) -> u32 {
        u32_at(self.bytes.as_ref(), HEADER_LEN)
    }

    /// The nonce of the request that this answers.
    pub fn answer(&self) -> Option<u64> {
        let b = self.bytes.as_ref();
        (b[1] & FLAG_ANSWER != 0).then(|| u64_at(b, 12))
    }

    /// Whether the values lie to the left of the first block.
    pub fn is_left(&self) -> bool {
        self.bytes.as_ref()[1] & FLAG_LEFT != 0
    }

    /// Number of digests.
    pub fn count(&self) -> usize {
        (self.bytes.as_ref().len() - DIGESTS_HEADER_LEN) / 32
    }

    /// The digest of block `first_block + index`.
    ///
    /// # Panics
    /// If `index` is not below [`Packet::count`].
    pub fn digest(&self, index: usize) -> [u8; 32] {
        let at = DIGESTS_HEADER_LEN + 32 * index;
        let mut digest = [0; 32];
        digest.copy_from_slice(&self.bytes.as_ref()[at..at + 32]);
        digest
    }
}

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
    /// Reads the fields.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Self {
        Repr {
            session: packet.session(),
            first_block: packet.first_block(),
            answer: packet.answer(),
            left: packet.is_left(),
            count: packet.count(),
        }
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
        .emit(buffer);
        put_u32(buffer, HEADER_LEN, self.first_block);
        put_u64(buffer, 12, self.answer.unwrap_or(0));
    }
}

/// Writes the digest with that index into a packet started by [`Repr::emit`].
///
/// # Panics
/// If the buffer ends before it.
pub fn put_digest(buffer: &mut [u8], index: usize, digest: &[u8; 32]) {
    let at = DIGESTS_HEADER_LEN + 32 * index;
    buffer[at..at + 32].copy_from_slice(digest);
}
