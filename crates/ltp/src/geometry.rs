//! How a byte stream is cut: blocks, packets, and their numbers.

use crate::wire::Seq;
use crate::wire::request::Range;

/// How a byte stream is cut into blocks and packets.
///
/// A block is 2^e bytes, a subtree of BLAKE3; it is cut into at most 64 packets of one payload
/// length, so that the packets of a block fit a bit mask. Packet `n` is packet `n % k` of block
/// `n / k`, where `k` is [`Geometry::packets_per_block`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Geometry {
    block_exponent: u8,
    per_block: u8,
    payload_len: u16,
    first: Seq,
}

impl Geometry {
    /// Smallest block: one BLAKE3 chunk.
    pub const MIN_EXPONENT: u8 = 10;
    /// Largest block: 4 MiB.
    pub const MAX_EXPONENT: u8 = 22;
    /// Most packets in a block.
    pub const MAX_PACKETS_PER_BLOCK: u32 = 64;
    /// Most blocks in a session.
    pub const MAX_BLOCKS: u64 = u32::MAX as u64;

    /// `None` unless 10 <= `block_exponent` <= 22 and a block is 1 to 64 packets.
    pub fn new(block_exponent: u8, payload_len: u16, first: Seq) -> Option<Self> {
        if !(Self::MIN_EXPONENT..=Self::MAX_EXPONENT).contains(&block_exponent) || payload_len == 0
        {
            return None;
        }
        let per_block = (1u32 << block_exponent).div_ceil(u32::from(payload_len));
        (per_block <= Self::MAX_PACKETS_PER_BLOCK).then_some(Geometry {
            block_exponent,
            per_block: per_block as u8,
            payload_len,
            first,
        })
    }

    /// The geometry with the fewest packets a block whose UDP payload is at most
    /// `max_packet_len`; packets are of equal size, so that batches of them are.
    pub fn for_packet_len(block_exponent: u8, max_packet_len: u16, first: Seq) -> Option<Self> {
        let header = crate::wire::data::DATA_HEADER_LEN as u16;
        let max_payload = max_packet_len.checked_sub(header).filter(|&len| len > 0)?;
        if !(Self::MIN_EXPONENT..=Self::MAX_EXPONENT).contains(&block_exponent) {
            return None;
        }
        let block = 1u32 << block_exponent;
        let per_block = block.div_ceil(u32::from(max_payload));
        Self::new(
            block_exponent,
            u16::try_from(block.div_ceil(per_block)).ok()?,
            first,
        )
    }

    /// log2 of the block length.
    pub const fn block_exponent(&self) -> u8 {
        self.block_exponent
    }

    /// Length of a block in bytes.
    #[inline]
    pub const fn block_len(&self) -> usize {
        1 << self.block_exponent
    }

    /// Packets in a full block, 1 to 64.
    #[inline]
    pub const fn packets_per_block(&self) -> u32 {
        self.per_block as u32
    }

    /// Payload length of a data packet in bytes.
    #[inline]
    pub const fn payload_len(&self) -> u16 {
        self.payload_len
    }

    /// Length of a data packet (UDP payload) in bytes.
    #[inline]
    pub const fn packet_len(&self) -> usize {
        self.payload_len as usize + crate::wire::data::DATA_HEADER_LEN
    }

    /// The sequence of packet 0.
    #[inline]
    pub const fn first(&self) -> Seq {
        self.first
    }

    /// Number of packets of a content; `None` when it would be more than
    /// [`Geometry::MAX_BLOCKS`] blocks.
    pub fn packets(&self, length: u64) -> Option<u64> {
        let full = length >> self.block_exponent;
        if self.blocks(length) > Self::MAX_BLOCKS {
            return None;
        }
        let rest = length & (self.block_len() as u64 - 1);
        Some(full * u64::from(self.per_block) + rest.div_ceil(u64::from(self.payload_len)))
    }

    /// Number of blocks of a content.
    pub const fn blocks(&self, length: u64) -> u64 {
        length.div_ceil(1 << self.block_exponent)
    }

    /// The number of packets a session can have at most.
    pub const fn max_packets(&self) -> u64 {
        Self::MAX_BLOCKS * self.per_block as u64
    }

    pub(crate) fn blocks_of_packets(&self, packets: u64) -> u64 {
        packets.div_ceil(u64::from(self.per_block))
    }

    /// Block and index in the block of packet `number`.
    #[inline]
    pub const fn locate(&self, number: u64) -> (u64, u32) {
        let per_block = self.per_block as u64;
        (number / per_block, (number % per_block) as u32)
    }

    /// Returns the packets that a range on the wire names, first and last, of those before `end`; `None` if none of
    /// these was sent. `near` is a number that those of the range are near to.
    pub(crate) fn clip(&self, range: &Range, near: u64, end: u64) -> Option<(u64, u64)> {
        let number = |sequence| Seq(sequence).number(self.first, near);
        let lo = number(range.lo).unwrap_or(0);
        let hi = number(range.hi)?.min(end.checked_sub(1)?);
        (lo <= hi).then_some((lo, hi))
    }

    /// Returns the blocks that have packets of `lo..=hi`, each with the mask of these.
    pub(crate) fn masks(&self, lo: u64, hi: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let (first, first_index) = self.locate(lo);
        let (last, last_index) = self.locate(hi);
        let all = low_bits(self.packets_per_block());
        (first..=last).map(move |block| {
            let end = if block == last {
                low_bits(last_index + 1)
            } else {
                all
            };
            let start = if block == first {
                low_bits(first_index)
            } else {
                0
            };
            (block, end & !start)
        })
    }

    /// Number of the first packet of a block.
    #[inline]
    pub const fn first_packet(&self, block: u64) -> u64 {
        block * self.per_block as u64
    }

    /// Offset of a block in the content.
    #[inline]
    pub const fn block_offset(&self, block: u64) -> u64 {
        block << self.block_exponent
    }

    /// Offset in the content of packet `index` of a block, and how many bytes of the packet are
    /// content (less than the payload length at the end of a block and of the content).
    #[inline]
    pub fn span(&self, block: u64, index: u32, length: Option<u64>) -> (u64, usize) {
        let start = self.block_offset(block);
        let offset = start + u64::from(index) * u64::from(self.payload_len);
        let mut end = start + self.block_len() as u64;
        if let Some(length) = length {
            end = end.min(length);
        }
        (
            offset,
            usize::from(self.payload_len).min(end.saturating_sub(offset) as usize),
        )
    }

    /// Bytes of a block, less than a full one at the end of the content.
    #[inline]
    pub fn len_of(&self, block: u64, length: Option<u64>) -> usize {
        let rest = length.map_or(u64::MAX, |length| {
            length - self.block_offset(block).min(length)
        });
        (self.block_len() as u64).min(rest) as usize
    }

    /// One bit for each packet of a block.
    #[inline]
    pub fn mask(&self, block: u64, length: Option<u64>) -> u64 {
        if length.is_none_or(|length| block < length >> self.block_exponent) {
            return low_bits(self.packets_per_block());
        }
        let packets = self
            .len_of(block, length)
            .div_ceil(usize::from(self.payload_len)) as u32;
        low_bits(packets)
    }
}

/// A mask of the `count` lowest bits, `count` <= 64.
#[inline]
pub(crate) const fn low_bits(count: u32) -> u64 {
    if count >= 64 {
        u64::MAX
    } else {
        (1 << count) - 1
    }
}
