//! PARITY: what restores lost packets of a block without asking for them, where an answer would come too late.
//!
//! ```text
//!  payload of a PARITY                   a shard that it protects
//! +-------+-------+-------+-------+     +---------------+-------+-------+
//! | count | total | index | 0     |     |  length       | class | kind  |
//! +-------+-------+-------+-------+     +---------------+-------+-------+
//! |  shard                        |     |  payload                      |
//! +-------------------------------+     +-------------------------------+
//! ```
//!
//! The payload of a packet of type 11, in datagrams only. A block is `count` packets (1 to [`MAX_COUNT`]) of one flow with
//! consecutive sequences, of which the header has the first; `total` PARITY packets (1 to [`MAX_TOTAL`]) belong to it. The
//! shards of the block's packets, with zeros up to the longest one and an even length, and those in the PARITY packets are a
//! Reed-Solomon code over GF(2^16), as the crate `reed-solomon-simd` lays it out: any `count` of them restore all.
//!
//! Class and age in the header of a PARITY are those of the first packet; restored packets have that age.

use super::ParseError;
use super::class::Class;
use super::data::Kind;

/// Length of the front of a PARITY.
pub const LEN: usize = 4;
/// Length of the front of a shard that is protected.
pub const SHARD_LEN: usize = 4;
/// Most packets of a block.
pub const MAX_COUNT: usize = 32;
/// Most PARITY packets of a block.
pub const MAX_TOTAL: usize = 8;

/// The front of a PARITY; its shard follows after [`LEN`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Repr {
    /// Packets of the block.
    pub count: u8,
    /// PARITY packets of the block.
    pub total: u8,
    /// Which of them this is.
    pub index: u8,
}

impl Repr {
    /// Parses a PARITY and returns its shard with it.
    ///
    /// # Errors
    /// It is truncated, a reserved field is not 0, a number is out of bounds, or the shard is too short or of odd length.
    pub fn parse(payload: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (&[count, total, index, zero], shard) = payload
            .split_first_chunk::<LEN>()
            .ok_or(ParseError::Truncated)?;
        let counts = (1..=MAX_COUNT).contains(&count.into());
        if !counts || !(1..=MAX_TOTAL).contains(&total.into()) || index >= total {
            return Err(ParseError::Value);
        }
        if zero != 0 {
            return Err(ParseError::Reserved);
        }
        match shard.len() >= SHARD_LEN && shard.len().is_multiple_of(2) {
            true => Ok((
                Repr {
                    count,
                    total,
                    index,
                },
                shard,
            )),
            false => Err(ParseError::Length),
        }
    }

    /// Writes the front.
    ///
    /// # Panics
    /// `payload` is shorter than [`LEN`].
    pub fn emit(&self, payload: &mut [u8]) {
        payload[..LEN].copy_from_slice(&[self.count, self.total, self.index, 0]);
    }
}

/// A packet as its shard has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard<'a> {
    /// DATA or FRAGMENT.
    pub kind: Kind,
    /// Its class.
    pub class: Class,
    /// Its payload.
    pub payload: &'a [u8],
}

impl<'a> Shard<'a> {
    /// Parses a restored shard.
    ///
    /// # Errors
    /// It is no packet of a flow: the block was not what its sender said.
    pub fn parse(shard: &'a [u8]) -> Result<Self, ParseError> {
        let (front, rest) = shard
            .split_first_chunk::<SHARD_LEN>()
            .ok_or(ParseError::Truncated)?;
        let [a, b, class, kind] = *front;
        let len = usize::from(u16::from_be_bytes([a, b]));
        let class = Class::from_bits(class).filter(|class| class.is_some());
        let kind = match kind {
            1 => Kind::Data,
            6 => Kind::Fragment,
            _ => return Err(ParseError::Type),
        };
        Ok(Shard {
            kind,
            class: class.ok_or(ParseError::Value)?,
            payload: rest.get(..len).ok_or(ParseError::Length)?,
        })
    }

    /// Returns the length of the shortest shard that has room for it.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        (SHARD_LEN + self.payload.len()).next_multiple_of(2)
    }

    /// Writes it, and zeros after it.
    ///
    /// # Panics
    /// `shard` is shorter than [`Shard::buffer_len`].
    pub fn emit(&self, shard: &mut [u8]) {
        let end = SHARD_LEN + self.payload.len();
        shard[..2].copy_from_slice(&(self.payload.len() as u16).to_be_bytes());
        shard[2] = self.class.bits();
        shard[3] = self.kind as u8;
        shard[SHARD_LEN..end].copy_from_slice(self.payload);
        shard[end..].fill(0);
    }
}
