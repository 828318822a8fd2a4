//! The geometry of a ring and the offsets of its parts.

use core::fmt;

/// Bytes in a cache line. Each slot starts on a new line.
pub(crate) const LINE: usize = 64;
/// Distance between fields that different sides write; processors fetch lines in pairs.
pub(crate) const APART: usize = 2 * LINE;
/// Bytes of a record. Four share a cache line, so that a run of messages moves few lines between cores.
pub(crate) const RECORD: usize = 16;
/// Bytes of the attributes of a message.
pub(crate) const EXTRA: usize = 16;
/// Bytes of an entry in the queue of acknowledgements.
pub(crate) const ACK: usize = 8;
/// Bytes of the head of a block: geometry, the producer's indexes, signals, the consumer's indexes.
pub(crate) const HEAD: usize = 4 * APART;

/// The geometry of a ring: number and size of its slots.
///
/// | part of the block | bytes |
/// | --- | --- |
/// | head: geometry, producer's indexes, signals, consumer's indexes | 512 |
/// | records | 16 per slot |
/// | attributes | 16 per slot |
/// | queue of acknowledgements | 8 per slot |
/// | payload | `slot_bytes` per slot |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of slots minus one.
    mask: u32,
    slot_bytes: u32,
}

/// Why a shape is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeError {
    /// No slots: use 1 or more.
    NoSlots,
    /// More than [`Shape::MAX_SLOTS`]: use fewer, larger slots.
    TooManySlots,
    /// Slots of no bytes: use 1 or more.
    NoBytes,
    /// Slots larger than [`Shape::MAX_SLOT_BYTES`], or a block of 2 GiB or more: use smaller ones.
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
    /// Maximum number of slots.
    pub const MAX_SLOTS: u32 = 1 << 20;
    /// Maximum size of a slot, in bytes.
    pub const MAX_SLOT_BYTES: u32 = 1 << 24;

    /// Returns the shape of a ring with at least `slots` slots (rounded up to a power of two, at most
    /// [`Shape::MAX_SLOTS`]) of at least `slot_bytes` bytes (rounded up to a multiple of 64, at most
    /// [`Shape::MAX_SLOT_BYTES`]).
    ///
    /// # Errors
    ///
    /// A number is zero or too large.
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

    /// Returns the number of slots, a power of two.
    #[inline]
    pub const fn slots(self) -> u32 {
        self.mask + 1
    }

    /// Returns the payload bytes of a slot, a multiple of 64.
    #[inline]
    pub const fn slot_bytes(self) -> u32 {
        self.slot_bytes
    }

    /// Returns the length of the longest message, which takes all slots, in bytes.
    #[inline]
    pub const fn max_message(self) -> usize {
        self.slots() as usize * self.slot_bytes as usize
    }

    /// Returns the length of the whole block, in bytes.
    pub const fn block_len(self) -> usize {
        self.len_u64() as usize
    }

    /// Returns the number of slots that a message of `len` bytes takes; a message of no bytes takes one.
    #[inline]
    pub const fn pieces(self, len: usize) -> u32 {
        if len <= self.slot_bytes as usize {
            1
        } else {
            len.div_ceil(self.slot_bytes as usize) as u32
        }
    }

    /// Returns the words of private memory that a [`crate::Consumer`] needs: one bit per slot.
    pub const fn completed_words(self) -> usize {
        self.slots().div_ceil(u32::BITS) as usize
    }

    /// Returns the words that suffice for a [`crate::Consumer`] of any ring within `block_len` bytes: for attaching to
    /// a ring whose geometry the producer chose.
    pub const fn completed_words_within(block_len: usize) -> usize {
        let slots = block_len / (RECORD + EXTRA + ACK + LINE);
        let max = Self::MAX_SLOTS as usize;
        (if slots < max { slots } else { max }).div_ceil(u32::BITS as usize)
    }

    pub(crate) const fn slots_log2(self) -> u32 {
        self.slots().trailing_zeros()
    }

    /// Returns the slot of a position.
    #[inline]
    pub(crate) const fn slot(self, position: u32) -> usize {
        (position & self.mask) as usize
    }

    /// Returns the number of free slots that the consumer reports at once. A report for each message would move a
    /// shared cache line between the cores each time.
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
