//! Open addressing from a keyed hash to a number: linear probing, at most four fifths full, 4 bytes
//! a slot, so that the index of 100,000 groups (512 KiB) stays in a core's cache and a lookup waits
//! for memory once, for the entry.

use managed::ManagedSlice;

/// One slot of an index, 4 bytes: 8 bits of the hash above a 24-bit number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot(u32);

impl Slot {
    const EMPTY: Slot = Slot(u32::MAX);

    #[inline]
    fn new(tag: u32, value: u32) -> Self {
        Slot((tag & !MAX_VALUE) | value)
    }

    #[inline]
    fn has_tag(self, tag: u32) -> bool {
        (self.0 ^ tag) & !MAX_VALUE == 0
    }

    #[inline]
    pub(super) fn value(self) -> u32 {
        self.0 & MAX_VALUE
    }
}

impl Default for Slot {
    fn default() -> Self {
        Slot::EMPTY
    }
}

/// Values stay below this, which an empty slot has.
pub(crate) const MAX_VALUE: u32 = 0x00ff_ffff;

/// The index. Slots are used up to the largest power of two.
#[derive(Debug)]
pub(crate) struct Index<'a> {
    slots: ManagedSlice<'a, Slot>,
    mask: usize,
}

/// Returns the smallest number of slots that `values` values fit into: the power of two that they fill to four fifths at
/// most.
pub const fn min_slots(values: usize) -> usize {
    (values * 5).div_ceil(4).next_power_of_two()
}

impl<'a> Index<'a> {
    pub(crate) fn new(mut slots: ManagedSlice<'a, Slot>) -> Self {
        slots.fill(Slot::EMPTY);
        let usable = (slots.len() + 1).next_power_of_two() / 2;
        Index {
            mask: usable.saturating_sub(1),
            slots,
        }
    }

    /// How many values it takes; a slot is always left empty.
    pub(crate) fn capacity(&self) -> usize {
        let usable = if self.slots.is_empty() {
            0
        } else {
            self.mask + 1
        };
        (usable * 4 / 5)
            .min(usable.saturating_sub(1))
            .min(MAX_VALUE as usize)
    }

    /// The tag comes from the hash's upper bits, the home from its lower ones.
    #[inline]
    fn tag_and_home(&self, hash: u64) -> (u32, usize) {
        ((hash >> 32) as u32, hash as usize & self.mask)
    }

    /// Reads the slot where the search for a hash starts.
    #[inline]
    pub(crate) fn home(&self, hash: u64) -> Option<Slot> {
        let (_, home) = self.tag_and_home(hash);
        self.slots.get(home).copied()
    }

    /// The value with this hash for which `is` holds.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        let (tag, mut at) = self.tag_and_home(hash);
        loop {
            let slot = *self.slots.get(at)?;
            // An empty slot may have the tag too; no value is as large as its number.
            if slot.has_tag(tag) && is(slot.value()) {
                return Some(slot.value());
            }
            if slot == Slot::EMPTY {
                return None;
            }
            at = (at + 1) & self.mask;
        }
    }

    /// Adds a value. The caller keeps to [`Index::capacity`], so that an empty slot is always
    /// there and every search ends.
    pub(crate) fn insert(&mut self, hash: u64, value: u32) {
        let (tag, mut at) = self.tag_and_home(hash);
        while self.slots[at] != Slot::EMPTY {
            at = (at + 1) & self.mask;
        }
        self.slots[at] = Slot::new(tag, value);
    }

    /// Takes a value out and closes the gap, so that there are no tombstones. `hash_of` gives the
    /// hash of any value that is in.
    pub(crate) fn remove(&mut self, hash: u64, value: u32, hash_of: impl Fn(u32) -> u64) {
        let (tag, mut gap) = self.tag_and_home(hash);
        if self.slots.is_empty() {
            return;
        }
        while self.slots[gap] != Slot::new(tag, value) {
            if self.slots[gap] == Slot::EMPTY {
                return;
            }
            gap = (gap + 1) & self.mask;
        }
        let mut at = gap;
        loop {
            at = (at + 1) & self.mask;
            let slot = self.slots[at];
            if slot == Slot::EMPTY {
                break;
            }
            // A slot may move back to the gap unless its home lies behind the gap.
            let (_, home) = self.tag_and_home(hash_of(slot.value()));
            let from_home = at.wrapping_sub(home) & self.mask;
            let from_gap = at.wrapping_sub(gap) & self.mask;
            if from_home >= from_gap {
                self.slots[gap] = slot;
                gap = at;
            }
        }
        self.slots[gap] = Slot::EMPTY;
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::collections::BTreeSet;
    use std::vec;

    use super::*;

    /// Few homes, the last slots among them, so that runs are long and wrap around; few tags.
    fn hash_of(value: u32) -> u64 {
        u64::from(value % 5 + 60) | u64::from(value % 3) << 62
    }

    #[test]
    fn agrees_with_a_set_under_collisions() {
        let mut slots = [Slot::default(); 64];
        let mut index = Index::new(ManagedSlice::Borrowed(&mut slots));
        assert_eq!(index.capacity(), 51);
        let mut oracle = BTreeSet::new();
        let mut x = 1u32;
        for _ in 0..10_000 {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let value = (x >> 8) & 0x3f;
            if oracle.remove(&value) {
                index.remove(hash_of(value), value, hash_of);
            } else if oracle.len() < 51 {
                oracle.insert(value);
                index.insert(hash_of(value), value);
            }
            for value in 0..64 {
                let found = index.find(hash_of(value), |v| v == value);
                assert_eq!(found.is_some(), oracle.contains(&value));
            }
        }
    }

    #[test]
    fn no_slots_and_odd_sizes() {
        for (len, capacity) in [
            (0, 0),
            (1, 0),
            (2, 1),
            (3, 1),
            (4, 3),
            (100, 51),
            (128, 102),
        ] {
            let mut slots = vec![Slot::default(); len];
            let mut index = Index::new(ManagedSlice::Borrowed(&mut slots));
            assert_eq!(index.capacity(), capacity, "{len} slots");
            assert_eq!(index.find(7, |v| v < MAX_VALUE), None);
            index.remove(7, 1, |_| 0);
        }
        for values in 1..1_000 {
            let capacity = |count| {
                let mut slots = vec![Slot::default(); count];
                Index::new(ManagedSlice::Borrowed(&mut slots)).capacity()
            };
            assert!(capacity(min_slots(values)) >= values);
            assert!(capacity(min_slots(values) / 2) < values);
        }
        assert_eq!(min_slots(100_000), 1 << 17);
    }

    #[test]
    fn both_halves_of_a_hash_count() {
        let mut slots = [Slot::default(); 64];
        let index = Index::new(ManagedSlice::Borrowed(&mut slots));
        let (tag, home) = index.tag_and_home(0x1234_5678_0000_0023);
        assert_eq!((Slot::new(tag, 7), home), (Slot(0x1200_0007), 0x23));
    }
}
