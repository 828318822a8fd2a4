//! Bounded tables over borrowed or owned storage: a slab with a keyed hash index and a timer heap.
//!
//! Index and heap lie in the slots too, so one slice is all the memory that a table needs.

use core::fmt;

use managed::ManagedSlice;
use rand_core::Rng;

use crate::hash::HashKey;
use crate::time::Instant;

/// No slot.
pub const NIL: u32 = u32::MAX;

/// A key that values of a [`Slab`] are looked up by.
pub trait TableKey: Copy + Eq {
    /// Returns the keyed hash.
    fn hash(&self, key: &HashKey) -> u64;
}

impl TableKey for u64 {
    #[inline]
    fn hash(&self, key: &HashKey) -> u64 {
        key.hash(*self)
    }
}

/// A value of a [`Slab`], with the key to look it up by.
pub trait Keyed {
    /// The key.
    type Key: TableKey;

    /// Returns the key: unique in its table, and constant while the value is in it.
    fn key(&self) -> Self::Key;
}

/// One slot of a [`Slab`]. A table holds as many values as it has slots.
#[derive(Clone, Debug)]
pub struct Slot<T> {
    value: T,
    /// Whether `value` is in the table.
    used: bool,
    /// Head of the chain of the bucket that has this slot's number; any slot may be in it.
    bucket: u32,
    /// Next in this slot's own chain, or next free slot.
    next: u32,
    /// When `heap_item` is due: this slot's number is a place in the timer heap here.
    heap_at: Instant,
    heap_item: u32,
    /// This slot's own place in the timer heap.
    heap_place: u32,
}

impl<T: Default> Default for Slot<T> {
    fn default() -> Self {
        Slot {
            value: T::default(),
            used: false,
            bucket: NIL,
            next: NIL,
            heap_at: Instant::ZERO,
            heap_item: NIL,
            heap_place: NIL,
        }
    }
}

/// A slab: stable indices, slots reused, each value with a key and at most one timer.
///
/// Lookup, insertion and removal are O(1), timers O(log n). Iteration is in the order of slots, so it does not depend on
/// the hash key.
pub struct Slab<'a, T> {
    slots: ManagedSlice<'a, Slot<T>>,
    hash_key: HashKey,
    free: u32,
    len: u32,
    heap_len: u32,
}

impl<'a, T: Keyed + Default> Slab<'a, T> {
    /// Creates an empty table and clears the slots. At most 2^32 - 2 slots are used.
    pub fn new(mut slots: ManagedSlice<'a, Slot<T>>, rng: &mut impl Rng) -> Self {
        let count = slots.len().min(NIL as usize - 1) as u32;
        for (at, slot) in (0u32..).zip(slots.iter_mut()) {
            *slot = Slot::default();
            slot.next = if at + 1 < count { at + 1 } else { NIL };
        }
        let free = if count == 0 { NIL } else { 0 };
        Slab {
            slots,
            hash_key: HashKey::random(rng),
            free,
            len: 0,
            heap_len: 0,
        }
    }

    /// Returns how many values are in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the table is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether there is no room for another value.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.free == NIL
    }

    fn bucket_of(&self, key: T::Key) -> usize {
        let hash = key.hash(&self.hash_key) as u32;
        ((u64::from(hash) * self.slots.len() as u64) >> 32) as usize
    }

    /// Returns the slot of the value with this key.
    #[must_use]
    pub fn find(&self, key: T::Key) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        let mut at = self.slots[self.bucket_of(key)].bucket;
        while at != NIL {
            let slot = &self.slots[at as usize];
            if slot.value.key() == key {
                return Some(at);
            }
            at = slot.next;
        }
        None
    }

    /// Inserts a value whose key is not in the table, and returns its slot.
    ///
    /// # Errors
    ///
    /// The table is full: returns the value.
    pub fn insert(&mut self, value: T) -> Result<u32, T> {
        let at = self.free;
        if at == NIL {
            return Err(value);
        }
        let bucket = self.bucket_of(value.key());
        let chain = core::mem::replace(&mut self.slots[bucket].bucket, at);
        let slot = &mut self.slots[at as usize];
        self.free = core::mem::replace(&mut slot.next, chain);
        slot.value = value;
        slot.used = true;
        self.len += 1;
        Ok(at)
    }

    /// Removes a value and its timer.
    ///
    /// # Panics
    ///
    /// There is no such slot.
    pub fn remove(&mut self, at: u32) -> T {
        self.cancel(at);
        let bucket = self.bucket_of(self[at].key());
        let next = self.slots[at as usize].next;
        if self.slots[bucket].bucket == at {
            self.slots[bucket].bucket = next;
        } else {
            let mut before = self.slots[bucket].bucket;
            while self.slots[before as usize].next != at {
                before = self.slots[before as usize].next;
            }
            self.slots[before as usize].next = next;
        }
        let slot = &mut self.slots[at as usize];
        slot.next = core::mem::replace(&mut self.free, at);
        slot.used = false;
        self.len -= 1;
        core::mem::take(&mut slot.value)
    }

    /// Returns the values with their slots, in the order of slots.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0u32..)
            .zip(self.slots.iter())
            .filter(|(_, slot)| slot.used)
            .map(|(at, s)| (at, &s.value))
    }

    /// Returns the first slot in use from `from` on.
    #[must_use]
    pub fn next_used(&self, from: u32) -> Option<u32> {
        let rest = self.slots.get(from as usize..)?;
        rest.iter()
            .position(|slot| slot.used)
            .map(|ahead| from + ahead as u32)
    }

    /// Returns the value in a slot.
    #[must_use]
    pub fn get(&self, at: u32) -> Option<&T> {
        self.slots
            .get(at as usize)
            .filter(|slot| slot.used)
            .map(|slot| &slot.value)
    }

    /// Sets the timer of a slot, or moves it.
    ///
    /// # Panics
    ///
    /// There is no such slot.
    pub fn schedule(&mut self, item: u32, at: Instant) {
        let mut place = self.slots[item as usize].heap_place;
        if place == NIL {
            place = self.heap_len;
            self.heap_len += 1;
        }
        self.put(place, at, item);
        self.sift(place);
    }

    /// Clears the timer of a slot, if it is set.
    ///
    /// # Panics
    ///
    /// There is no such slot.
    pub fn cancel(&mut self, item: u32) {
        let place = self.slots[item as usize].heap_place;
        if place == NIL {
            return;
        }
        self.slots[item as usize].heap_place = NIL;
        self.heap_len -= 1;
        if place != self.heap_len {
            let last = &self.slots[self.heap_len as usize];
            let (at, moved) = (last.heap_at, last.heap_item);
            self.put(place, at, moved);
            self.sift(place);
        }
    }

    /// Returns when the timer of a slot expires.
    ///
    /// # Panics
    ///
    /// There is no such slot.
    #[must_use]
    pub fn due_of(&self, item: u32) -> Option<Instant> {
        let place = self.slots[item as usize].heap_place;
        (place != NIL).then(|| self.slots[place as usize].heap_at)
    }

    /// Returns the timer that expires first, and its slot.
    #[must_use]
    pub fn next_due(&self) -> Option<(Instant, u32)> {
        let top = self.slots.first()?;
        (self.heap_len > 0).then_some((top.heap_at, top.heap_item))
    }

    fn put(&mut self, place: u32, at: Instant, item: u32) {
        let slot = &mut self.slots[place as usize];
        slot.heap_at = at;
        slot.heap_item = item;
        self.slots[item as usize].heap_place = place;
    }

    fn swap(&mut self, a: u32, b: u32) {
        let (x, y) = (&self.slots[a as usize], &self.slots[b as usize]);
        let (x, y) = ((x.heap_at, x.heap_item), (y.heap_at, y.heap_item));
        self.put(a, y.0, y.1);
        self.put(b, x.0, x.1);
    }

    /// Restores the heap's order around a place that has changed. Ties go by slot number.
    fn sift(&mut self, mut place: u32) {
        let due = |slab: &Self, p: u32| {
            let slot = &slab.slots[p as usize];
            (slot.heap_at, slot.heap_item)
        };
        while place > 0 {
            let parent = (place - 1) / 2;
            if due(self, parent) <= due(self, place) {
                break;
            }
            self.swap(place, parent);
            place = parent;
        }
        loop {
            let mut least = place;
            for child in [2 * place + 1, 2 * place + 2] {
                if child < self.heap_len && due(self, child) < due(self, least) {
                    least = child;
                }
            }
            if least == place {
                return;
            }
            self.swap(place, least);
            place = least;
        }
    }
}

/// The values by slot, each with its timer; then the free slots, the next one to be used first.
impl<T: fmt::Debug> fmt::Debug for Slab<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for (at, slot) in self.slots.iter().enumerate().filter(|(_, slot)| slot.used) {
            let due = self.slots.get(slot.heap_place as usize);
            map.entry(&at, &(&slot.value, due.map(|due| due.heap_at)));
        }
        let mut at = self.free;
        while let Some(slot) = self.slots.get(at as usize) {
            map.entry(&at, &format_args!("free"));
            at = slot.next;
        }
        map.finish()
    }
}

impl<T> core::ops::Index<u32> for Slab<'_, T> {
    type Output = T;

    fn index(&self, at: u32) -> &T {
        &self.slots[at as usize].value
    }
}

impl<T> core::ops::IndexMut<u32> for Slab<'_, T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        &mut self.slots[at as usize].value
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    use proptest::prelude::{prop, prop_assert_eq, proptest};
    use rand_chacha::ChaCha8Rng;
    use rand_core::SeedableRng;

    use super::*;

    #[derive(Default, Clone, Copy, PartialEq, Debug)]
    struct Number(u64);

    impl Keyed for Number {
        type Key = u64;

        fn key(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn debug_shows_values_timers_and_free_slots() {
        let mut storage: Vec<Slot<Number>> = (0..4).map(|_| Slot::default()).collect();
        let mut rng = ChaCha8Rng::from_seed([1; 32]);
        let mut slab = Slab::new(ManagedSlice::Borrowed(&mut storage[..]), &mut rng);
        let slots = [7, 8, 9].map(|n| slab.insert(Number(n)).expect("room"));
        slab.schedule(slots[1], Instant::ZERO);
        slab.remove(slots[0]);
        let shown = std::format!("{slab:?}");
        let expected =
            "{1: (Number(8), Some(Instant { micros: 0 })), 2: (Number(9), None), 0: free, 3: free}";
        assert_eq!(shown, expected);
    }

    #[test]
    fn keys_spread_over_the_buckets() {
        let mut storage: Vec<Slot<Number>> = (0..64).map(|_| Slot::default()).collect();
        let mut rng = ChaCha8Rng::from_seed([1; 32]);
        let mut slab = Slab::new(ManagedSlice::Borrowed(&mut storage[..]), &mut rng);
        for key in 0..64 {
            slab.insert(Number(key)).expect("room");
        }
        let heads = slab.slots.iter().filter(|slot| slot.bucket != NIL);
        // A random choice leaves one of e empty: 40 of 64 are used.
        assert!(heads.count() > 32);
    }

    proptest! {
        #[test]
        fn agrees_with_a_map(
            capacity in 0usize..17,
            operations in prop::collection::vec((0u8..8, 0u64..24, 0i64..50), 0..400),
        ) {
            let mut storage: Vec<Slot<Number>> = (0..capacity).map(|_| Slot::default()).collect();
            let mut rng = ChaCha8Rng::from_seed([1; 32]);
            let mut slab = Slab::new(ManagedSlice::Borrowed(&mut storage[..]), &mut rng);
            let mut oracle: BTreeMap<u64, Option<Instant>> = BTreeMap::new();
            for (operation, key, at) in operations {
                let found = slab.find(key);
                prop_assert_eq!(found.is_some(), oracle.contains_key(&key));
                match (operation, found) {
                    (0..4, None) => {
                        let inserted = slab.insert(Number(key)).is_ok();
                        prop_assert_eq!(inserted, oracle.len() < capacity);
                        if inserted {
                            oracle.insert(key, None);
                        }
                    }
                    (0, Some(slot)) => {
                        prop_assert_eq!(slab.remove(slot), Number(key));
                        oracle.remove(&key);
                    }
                    (2..8, Some(slot)) => {
                        slab.schedule(slot, Instant::from_micros(at));
                        oracle.insert(key, Some(Instant::from_micros(at)));
                    }
                    (1, Some(slot)) => {
                        slab.cancel(slot);
                        oracle.insert(key, None);
                    }
                    _ => {}
                }
                prop_assert_eq!(slab.len(), oracle.len());
                prop_assert_eq!(slab.is_full(), oracle.len() == capacity);
                prop_assert_eq!(slab.is_empty(), oracle.is_empty());
                prop_assert_eq!(slab.iter().count(), oracle.len());
                let mut used = Vec::new();
                while let Some(slot) = slab.next_used(used.last().map_or(0, |last| last + 1)) {
                    used.push(slot);
                }
                let slots: Vec<u32> = slab.iter().map(|(slot, _)| slot).collect();
                prop_assert_eq!(&used, &slots);
                for slot in 0..=capacity as u32 {
                    let number = slab.get(slot);
                    prop_assert_eq!(number.is_some(), slots.contains(&slot));
                    let due = number.map(|_| slab.due_of(slot));
                    prop_assert_eq!(due, number.map(|number| oracle[&number.0]));
                }
                let due = slab.iter().filter_map(|(slot, _)| Some((slab.due_of(slot)?, slot)));
                prop_assert_eq!(slab.next_due(), due.min());
            }
            let mut due: Vec<Instant> = oracle.values().flatten().copied().collect();
            due.sort();
            for at in due {
                let (first, slot) = slab.next_due().expect("a timer for each");
                prop_assert_eq!(first, at);
                slab.cancel(slot);
            }
            prop_assert_eq!(slab.next_due(), None);
        }
    }
}
