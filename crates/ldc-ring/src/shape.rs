//! How large a ring is, and where its parts lie in the block.

use core::fmt;

/// Bytes in a cache line: slots start on lines of their own.
pub(crate) const LINE: usize = 64;
/// What one side writes and the other reads stands this far apart: processors fetch lines in pairs.
pub(crate) const APART: usize = 2 * LINE;
/// Bytes of a record: what every message needs. Four share a line, so that a run of messages moves few lines
/// from one core to the other.
pub(crate) const RECORD: usize = 16;
/// Bytes of what only messages with attributes need.
pub(crate) const EXTRA: usize = 16;
/// Bytes of an entry in the queue of acknowledgements.
pub(crate) const ACK: usize = 8;
/// Bytes of the head of a block: geometry, the producer's indexes, the consumer's news, its indexes.
pub(crate) const HEAD: usize = 4 * APART;

/// The geometry of a ring: how many slots of how many bytes.
///
/// | part of the block | bytes |
/// | --- | --- |
/// | head: geometry, producer's indexes, consumer's news, consumer's indexes | 512 |
/// | records, one a slot | 16 a slot |
/// | attributes, one a slot | 16 a slot |
/// | queue of acknowledgements, one entry a slot | 8 a slot |
/// | payload | `slot_bytes` a slot |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Slots less one.
    mask: u32,
    slot_bytes: u32,
}

/// Why there is no ring of that shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeError {
    /// A ring needs a slot: ask for 1 or more.
    NoSlots,
    /// More than [`Shape::MAX_SLOTS`]: ask for fewer, larger slots.
    TooManySlots,
    /// A slot needs a byte: ask for 1 or more.
    NoBytes,
    /// Slots larger than [`Shape::MAX_SLOT_BYTES`], or a block of 2 GiB or more: ask for less.
    TooManyBytes,
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ShapeError::NoSlots => "a ring needs at least one slot",
            ShapeError::TooManySlots => "a ring has at most 2^20 slots",
            ShapeError::NoBytes => "a slot needs at least one byte",
            ShapeError::TooManyBytes => "a slot has at most 16 MiB, and a ring less than 2 GiB",
        })
    }
}

impl core::error::Error for ShapeError {}

impl Shape {
    /// The most slots of a ring.
    pub const MAX_SLOTS: u32 = 1 << 20;
    /// The most bytes of a slot.
    pub const MAX_SLOT_BYTES: u32 = 1 << 24;

    /// A ring of at least `slots` slots (rounded up to a power of two, at most [`Shape::MAX_SLOTS`]) of at
    /// least `slot_bytes` bytes (rounded up to whole cache lines of 64, so that no two slots share
    /// one; at most [`Shape::MAX_SLOT_BYTES`]).
    pub const fn new(slots: u32, slot_bytes: u32) -> Result<Shape, ShapeError> {
        if slots == 0 {
            return Err(ShapeError::NoSlots);
        }
        if slots > Self::MAX_SLOTS {
            return Err(ShapeError::TooManySlots);
        }
        if slot_bytes == 0 {
            return Err(ShapeError::NoBytes);
        }
        if slot_bytes > Self::MAX_SLOT_BYTES {
            return Err(ShapeError::TooManyBytes);
        }
        let shape = Shape {
            mask: slots.next_power_of_two() - 1,
            slot_bytes: slot_bytes.next_multiple_of(LINE as u32),
        };
        if shape.len_u64() > i32::MAX as u64 {
            return Err(ShapeError::TooManyBytes);
        }
        Ok(shape)
    }

    /// Slots: a power of two.
    #[inline]
    pub const fn slots(self) -> u32 {
        self.mask + 1
    }

    /// Payload bytes of a slot: a multiple of 64.
    #[inline]
    pub const fn slot_bytes(self) -> u32 {
        self.slot_bytes
    }

    /// The longest message, in bytes: it takes all the slots.
    #[inline]
    pub const fn max_message(self) -> usize {
        self.slots() as usize * self.slot_bytes as usize
    }

    /// Bytes of the whole block. It must be aligned to 64.
    pub const fn block_len(self) -> usize {
        self.len_u64() as usize
    }

    /// Slots that a message of `len` bytes takes: 1 or more. A message with no bytes takes one.
    #[inline]
    pub const fn pieces(self, len: usize) -> u32 {
        if len <= self.slot_bytes as usize {
            1
        } else {
            len.div_ceil(self.slot_bytes as usize) as u32
        }
    }

    /// Words of memory that a [`crate::Consumer`] needs for itself: one bit a slot.
    pub const fn completed_words(self) -> usize {
        self.slots().div_ceil(u32::BITS) as usize
    }

    /// Words that are enough for a [`crate::Consumer`] of any ring that fits into `block_len` bytes: for attaching to a
    /// ring whose geometry the other side chose.
    pub const fn completed_words_within(block_len: usize) -> usize {
        let slots = block_len / (RECORD + EXTRA + ACK + LINE);
        let most = Self::MAX_SLOTS as usize;
        (if slots < most { slots } else { most }).div_ceil(u32::BITS as usize)
    }

    pub(crate) const fn slots_log2(self) -> u32 {
        self.slots().trailing_zeros()
    }

    /// The slot of a position.
    #[inline]
    pub(crate) const fn slot(self, position: u32) -> usize {
        (position & self.mask) as usize
    }

    /// Slots that the consumer gives back before it tells a producer that waits for room. One at a time, each
    /// message would move lines that both sides write from core to core and back.
    pub(crate) const fn batch(self) -> u32 {
        match self.slots() {
            0..64 => 1,
            slots @ 64..1024 => slots / 8,
            _ => 128,
        }
    }

    pub(crate) const fn records_at(self) -> usize {
        HEAD
    }

    pub(crate) const fn extras_at(self) -> usize {
        HEAD + self.slots() as usize * RECORD
    }

    pub(crate) const fn acks_at(self) -> usize {
        self.extras_at() + self.slots() as usize * EXTRA
    }

    pub(crate) const fn payload_at(self) -> usize {
        (self.acks_at() + self.slots() as usize * ACK).next_multiple_of(LINE)
    }

    const fn len_u64(self) -> u64 {
        let slots = self.slots() as u64;
        let head =
            (HEAD as u64 + slots * (RECORD + EXTRA + ACK) as u64).next_multiple_of(LINE as u64);
        head + slots * self.slot_bytes as u64
    }
}
