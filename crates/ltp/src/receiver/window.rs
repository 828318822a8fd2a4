//! The window over blocks: what has come, what has verified.

use managed::ManagedSlice;
use proto_core::time::Instant;

use crate::digest::Digest;

/// The digest that is known is what the source announced.
pub(crate) const EXPECTED: u8 = 1;
/// The digest that is known is what came; nobody has announced one yet.
pub(crate) const COMPUTED: u8 = 2;
/// The block is final.
pub(crate) const VERIFIED: u8 = 4;
/// What came is not what was announced, and the announcement may be forged.
pub(crate) const DISPUTED: u8 = 8;
/// The announcement came with our nonce, or under the key.
pub(crate) const CONFIRMED: u8 = 16;
/// The block was final, and is under audit: its bytes are in the store.
pub(crate) const HELD: u8 = 32;

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
    /// How often its data and a digest that counts disagreed.
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

    /// The block's slot, if the block was touched and not overtaken.
    #[inline]
    pub(crate) fn get(&self, block: u64) -> Option<&Slot> {
        let slot = &self.slots[block as usize & self.mask];
        (slot.block == block as u32).then_some(slot)
    }

    /// The block's slot, made empty if it was another block's.
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

    /// What has come of a block.
    #[inline]
    pub(crate) fn received(&self, block: u64) -> u64 {
        self.get(block).map_or(0, |slot| slot.received)
    }
}
