//! Open addressing from a keyed hash to a number: linear probing, at most half full.

use core::hash::Hasher;

use managed::ManagedSlice;
use siphasher::sip::SipHasher13;

/// One slot of an index, 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    tag: u32,
    value: u32,
}

const EMPTY: u32 = u32::MAX;

impl Default for Slot {
    fn default() -> Self {
        Slot {
            tag: 0,
            value: EMPTY,
        }
    }
}

/// Hash of a key, secret to those outside: nobody can choose keys that collide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HashKey(pub(crate) u64, pub(crate) u64);

impl HashKey {
    #[inline]
    pub(crate) fn hash(&self, key: u64) -> u32 {
        let mut hasher = SipHasher13::new_with_keys(self.0, self.1);
        hasher.write_u64(key);
        (hasher.finish() >> 32) as u32
    }
}

/// The index. Slots are used up to the largest power of two.
#[derive(Debug)]
pub(crate) struct Index<'a> {
    slots: ManagedSlice<'a, Slot>,
    mask: usize,
}

impl<'a> Index<'a> {
    pub(crate) fn new(mut slots: ManagedSlice<'a, Slot>) -> Self {
        slots.fill(Slot::default());
        let usable = (slots.len() + 1).next_power_of_two() / 2;
        Index {
            mask: usable.saturating_sub(1),
            slots,
        }
    }

    /// How many values it takes.
    pub(crate) fn capacity(&self) -> usize {
        if self.slots.is_empty() {
            0
        } else {
            self.mask.div_ceil(2)
        }
    }

    /// The value with this tag for which `is` holds.
    #[inline]
    pub(crate) fn find(&self, tag: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        let at = self.position(tag, is)?;
        Some(self.slots[at].value)
    }

    #[inline]
    fn position(&self, tag: u32, is: impl Fn(u32) -> bool) -> Option<usize> {
        let mut at = tag as usize & self.mask;
        loop {
            let slot = self.slots.get(at)?;
            if slot.value == EMPTY {
                return None;
            }
            if slot.tag == tag && is(slot.value) {
                return Some(at);
            }
            at = (at + 1) & self.mask;
        }
    }

    /// Adds a value. The caller keeps to [`Index::capacity`], so that an empty slot is always
    /// there and every search ends.
    pub(crate) fn insert(&mut self, tag: u32, value: u32) {
        let mut at = tag as usize & self.mask;
        while self.slots[at].value != EMPTY {
            at = (at + 1) & self.mask;
        }
        self.slots[at] = Slot { tag, value };
    }

    /// Takes a value out and closes the gap, so that there are no tombstones.
    pub(crate) fn remove(&mut self, tag: u32, value: u32) {
        let Some(mut gap) = self.position(tag, |v| v == value) else {
            return;
        };
        let mut at = gap;
        loop {
            at = (at + 1) & self.mask;
            let slot = self.slots[at];
            if slot.value == EMPTY {
                break;
            }
            // A slot may move back to the gap unless its home lies behind the gap.
            let from_home = at.wrapping_sub(slot.tag as usize) & self.mask;
            let from_gap = at.wrapping_sub(gap) & self.mask;
            if from_home >= from_gap {
                self.slots[gap] = slot;
                gap = at;
            }
        }
        self.slots[gap] = Slot::default();
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::collections::BTreeMap;
    use std::vec;

    use super::*;

    #[test]
    fn agrees_with_a_map_under_collisions() {
        let mut slots = [Slot::default(); 64];
        let mut index = Index::new(ManagedSlice::Borrowed(&mut slots));
        assert_eq!(index.capacity(), 32);
        let mut oracle = BTreeMap::new();
        let mut x = 1u32;
        for _ in 0..20_000 {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let value = x >> 8 & 0x3f;
            // Few homes, the last slots among them, so that runs are long and wrap around.
            let tag = value % 5 + 60;
            if oracle.remove(&value).is_some() {
                index.remove(tag, value);
            } else if oracle.len() < 32 {
                oracle.insert(value, tag);
                index.insert(tag, value);
            }
            for value in 0..64 {
                let found = index.find(value % 5 + 60, |v| v == value);
                assert_eq!(found.is_some(), oracle.contains_key(&value));
            }
        }
    }

    #[test]
    fn no_slots_and_odd_sizes() {
        for (len, capacity) in [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (100, 32)] {
            let mut slots = vec![Slot::default(); len];
            let index = Index::new(ManagedSlice::Borrowed(&mut slots));
            assert_eq!(index.capacity(), capacity, "{len} slots");
            assert_eq!(index.find(7, |_| true), None);
        }
    }
}
