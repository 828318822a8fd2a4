//! The window over blocks: which packets have come, which blocks are verified.

use managed::ManagedSlice;
use proto_core::time::Instant;

use crate::Geometry;
use crate::digest::Digest;

/// The digest is the one that was announced.
pub(crate) const EXPECTED: u8 = 1;
/// The digest is that of the bytes that came; none was announced yet.
pub(crate) const COMPUTED: u8 = 2;
/// The block is final.
pub(crate) const VERIFIED: u8 = 4;
/// The bytes do not match the announced digest, which may be forged.
pub(crate) const DISPUTED: u8 = 8;
/// The source confirmed the digest: it came with this receiver's nonce, or under the key.
pub(crate) const CONFIRMED: u8 = 16;
/// The block was final, and is under audit: its bytes are in the store.
pub(crate) const STORED: u8 = 32;

/// One block of the window: an entry of the caller's storage.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub(crate) received: u64,
    /// Packets that came as repairs.
    pub(crate) repaired: u64,
    /// When the last of them came.
    pub(crate) repaired_at: Instant,
    pub(crate) digest: Digest,
    pub(crate) block: u32,
    pub(crate) flags: u8,
    /// How often its data and a confirmed digest disagreed.
    pub(crate) rejected: u8,
}

impl Default for Slot {
    fn default() -> Self {
        Slot {
            received: 0,
            repaired: 0,
            repaired_at: Instant::ZERO,
            digest: [0; 32],
            block: u32::MAX,
            flags: 0,
            rejected: 0,
        }
    }
}

impl Slot {
    pub(crate) fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// A ring of slots, a power of two.
#[derive(Debug)]
pub(crate) struct Slots<'a> {
    slots: ManagedSlice<'a, Slot>,
    mask: usize,
}

impl<'a> Slots<'a> {
    pub(crate) fn new(slots: ManagedSlice<'a, Slot>) -> Self {
        let mask = slots
            .len()
            .checked_ilog2()
            .map_or(0, |bits| (1usize << bits) - 1);
        let mut slots = Slots { slots, mask };
        slots.clear();
        slots
    }

    pub(crate) fn clear(&mut self) {
        self.slots.fill(Slot::default());
    }

    pub(crate) fn len(&self) -> u64 {
        self.mask as u64 + 1
    }

    /// Returns the block's slot, if a packet of the block came and no later block took its slot.
    #[inline]
    pub(crate) fn get(&self, block: u64) -> Option<&Slot> {
        let slot = &self.slots[block as usize & self.mask];
        (slot.block == block as u32).then_some(slot)
    }

    /// Whether the block has a slot with that flag.
    #[inline]
    pub(crate) fn is(&self, block: u64, flag: u8) -> bool {
        self.get(block).is_some_and(|slot| slot.is(flag))
    }

    /// Returns the block's slot; empties it if it was another block's.
    #[inline]
    pub(crate) fn claim(&mut self, block: u64) -> &mut Slot {
        let slot = &mut self.slots[block as usize & self.mask];
        if slot.block != block as u32 {
            *slot = Slot {
                block: block as u32,
                ..Slot::default()
            };
        }
        slot
    }

    /// Returns the packets of a block that have come.
    #[inline]
    pub(crate) fn received(&self, block: u64) -> u64 {
        self.get(block).map_or(0, |slot| slot.received)
    }
}

/// The blocks that may be received now, and the bounds of what is final.
pub(super) struct Window<'a> {
    /// Block of the latest packet, and the number of its first.
    current: (u64, u64),
    /// First block that is not final; one past the newest block of which a packet came.
    frontier: u64,
    top: u64,
    /// Blocks the window spans: slots, or fewer if the store is smaller.
    span: u64,
    /// The application has taken the blocks below ([`Delivery::Read`](crate::Delivery)); else `u64::MAX`.
    taken: u64,
    pub(super) slots: Slots<'a>,
    /// First block of interest.
    start: u64,
    /// Bytes that the application has taken ([`Delivery::Read`](crate::Delivery)).
    consumed: u64,
}

impl<'a> Window<'a> {
    pub(super) fn new(slots: ManagedSlice<'a, Slot>) -> Self {
        Window {
            current: (0, 0),
            frontier: 0,
            top: 0,
            span: 0,
            taken: u64::MAX,
            slots: Slots::new(slots),
            start: 0,
            consumed: 0,
        }
    }

    /// Begins a session at block `start`. `is_read`: the application takes the bytes.
    pub(super) fn begin(&mut self, geometry: &Geometry, start: u64, span: u64, is_read: bool) {
        self.start = start;
        self.span = span;
        self.frontier = start;
        self.top = start;
        self.current = (start, geometry.first_packet(start));
        self.consumed = geometry.block_offset(start);
        self.taken = if is_read { start } else { u64::MAX };
        self.slots.clear();
    }

    pub(super) fn start(&self) -> u64 {
        self.start
    }

    #[inline]
    pub(super) fn frontier(&self) -> u64 {
        self.frontier
    }

    pub(super) fn top(&self) -> u64 {
        self.top
    }

    /// Returns the first block that must stay in the store.
    #[inline]
    pub(super) fn base(&self) -> u64 {
        self.frontier.min(self.taken)
    }

    /// Returns one past the last block that there is room for.
    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.base() + self.span
    }

    /// Returns one past the last block that a slot is used for.
    pub(super) fn slots_end(&self) -> u64 {
        self.frontier + self.span
    }

    /// Returns block and index of a packet; most packets are of the block of the packet before.
    #[inline]
    pub(super) fn locate(&mut self, geometry: &Geometry, number: u64) -> (u64, u32) {
        let (block, first) = self.current;
        let index = number.wrapping_sub(first);
        if index < u64::from(geometry.packets_per_block()) {
            return (block, index as u32);
        }
        let (block, index) = geometry.locate(number);
        self.current = (block, number - u64::from(index));
        (block, index)
    }

    /// A packet of that block came.
    #[inline]
    pub(super) fn touch(&mut self, block: u64) {
        self.top = self.top.max(block + 1);
    }

    /// The block at the frontier is final.
    pub(super) fn pass(&mut self) {
        self.frontier += 1;
    }

    /// Every block below `end` is final.
    pub(super) fn pass_all(&mut self, end: u64) {
        (self.frontier, self.top) = (end, end);
        self.slots.clear();
    }

    /// No block is final; every block below `end` came.
    pub(super) fn rewind(&mut self, end: u64) {
        (self.frontier, self.top) = (self.start, end);
        self.slots.clear();
    }

    /// The content has no more than that many blocks.
    pub(super) fn shorten(&mut self, blocks: u64) {
        self.top = self.top.min(blocks).max(self.frontier);
    }

    pub(super) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// The application has taken the bytes before `to`. Returns whether the window moved.
    pub(super) fn consume(&mut self, geometry: &Geometry, to: u64) -> bool {
        let base = self.base();
        self.consumed = to;
        if self.taken != u64::MAX {
            self.taken = to >> geometry.block_exponent();
        }
        self.base() != base
    }
}
