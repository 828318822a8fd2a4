//! The producer's private index: maps a sequence number to the messages in the ring.
//!
//! One [`Entry`] per slot, in private memory, so that the peer cannot corrupt it. Each entry describes the message that
//! begins in its slot and is also the head of a hash chain. A chain links positions from the newest message to the
//! oldest; a position that is too old for the ring ends it. A message enters its chain with two stores, and entries
//! are never removed.

use crate::message::{Attributes, Sent, deadline_from_micros};
use crate::shape::Shape;

/// Bit of `Entry::len`: the producer cancelled the message. Lengths are below 2^31.
const CANCELLED: u32 = 1 << 31;

/// The producer's private record of one slot: 40 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    user_seq: u64,
    deadline: i64,
    position: u32,
    len: u32,
    priority: u32,
    /// Position of the next older message in the chain.
    older: u32,
    /// Position of the newest message in the chain of the sequence numbers that hash to this slot.
    newest: u32,
}

impl Entry {
    /// An unused entry.
    pub const EMPTY: Entry = Entry {
        user_seq: 0,
        deadline: 0,
        position: 0,
        len: 0,
        priority: 0,
        older: 0,
        newest: 0,
    };

    /// Returns the length of the message in bytes.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len & !CANCELLED
    }

    /// Returns whether the producer cancelled the message.
    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.len & CANCELLED != 0
    }

    /// Records that the producer cancelled the message.
    #[inline]
    pub(crate) fn set_cancelled(&mut self) {
        self.len |= CANCELLED;
    }

    /// Records a new length.
    pub(crate) fn set_len(&mut self, len: u32) {
        self.len = len | self.len & CANCELLED;
    }

    pub(crate) fn sent(&self, held: bool) -> Sent {
        Sent {
            user_seq: self.user_seq,
            len: self.len() as usize,
            attributes: Attributes {
                deadline: deadline_from_micros(self.deadline),
                priority: self.priority,
            },
            held,
        }
    }
}

/// The index over `entries`, one per slot.
pub(crate) struct Index<I> {
    entries: I,
    shape: Shape,
    slots_log2: u32,
}

impl<I: AsRef<[Entry]> + AsMut<[Entry]>> Index<I> {
    /// Returns an index, or `None` if there are fewer entries than slots.
    pub(crate) fn new(mut entries: I, shape: Shape) -> Option<Self> {
        entries.as_mut().get(..shape.slots() as usize)?;
        let mut index = Self {
            entries,
            shape,
            slots_log2: shape.slots_log2(),
        };
        index.clear(0);
        Some(index)
    }

    /// Removes all messages. The next one will begin at `start`.
    pub(crate) fn clear(&mut self, start: u32) {
        // Too old for the ring.
        let none = start.wrapping_sub(1).wrapping_sub(self.shape.slots());
        self.entries.as_mut().fill(Entry {
            position: none,
            newest: none,
            ..Entry::EMPTY
        });
    }

    /// Returns the entry of the message at `position`, which must be known (see [`Index::knows`]).
    #[inline]
    pub(crate) fn get(&self, position: u32) -> &Entry {
        &self.entries.as_ref()[self.shape.slot(position)]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, position: u32) -> &mut Entry {
        &mut self.entries.as_mut()[self.shape.slot(position)]
    }

    /// Returns whether the last message that began in the slot of `position` began at `position`.
    #[inline]
    pub(crate) fn knows(&self, position: u32) -> bool {
        self.get(position).position == position
    }

    /// Returns the slot whose chain holds a sequence number. Consecutive numbers have consecutive chains, so that
    /// sending touches few cache lines. The bits above the number of slots are hashed by the golden ratio, so that
    /// numbers in steps of a power of two do not collide.
    #[inline]
    fn bucket(&self, user_seq: u64) -> u32 {
        let above = (user_seq >> self.slots_log2).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let top = above.unbounded_shr(u64::BITS - self.slots_log2);
        (user_seq as u32).wrapping_add(top as u32)
    }

    /// Adds the newest message.
    #[inline]
    pub(crate) fn put(&mut self, user_seq: u64, position: u32, len: u32, attributes: Attributes) {
        let bucket = self.bucket(user_seq);
        let head = self.get_mut(bucket);
        let older = core::mem::replace(&mut head.newest, position);
        let entry = self.get_mut(position);
        entry.user_seq = user_seq;
        entry.deadline = attributes.deadline_micros();
        entry.position = position;
        entry.len = len;
        entry.priority = attributes.priority;
        entry.older = older;
    }

    /// Returns a cursor over the messages with this sequence number whose slots were not reused, newest first. The next
    /// message will begin at `user`.
    #[inline]
    pub(crate) fn find(&self, user_seq: u64, user: u32) -> Found {
        Found {
            user_seq,
            next: self.get(self.bucket(user_seq)).newest,
            newer: user,
            left: self.shape.slots(),
        }
    }

    /// Advances the cursor and returns the position of the next message.
    #[inline]
    pub(crate) fn next(&self, found: &mut Found) -> Option<u32> {
        loop {
            // Each message is older than the previous one, and all lie within one ring length.
            let position = found.next;
            let step = found.newer.wrapping_sub(position);
            if step == 0 || step > found.left {
                return None;
            }
            found.left -= step;
            found.newer = position;
            let entry = self.get(position);
            found.next = entry.older;
            if entry.user_seq == found.user_seq {
                return Some(position);
            }
        }
    }
}

/// A cursor over the messages with one sequence number.
pub(crate) struct Found {
    user_seq: u64,
    next: u32,
    newer: u32,
    left: u32,
}

#[cfg(all(test, feature = "alloc", not(loom)))]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    fn index(slots: u32) -> Index<Vec<Entry>> {
        let shape = Shape::new(slots, 64).expect("a small ring");
        Index::new(vec![Entry::EMPTY; slots as usize], shape).expect("an entry for each slot")
    }

    #[test]
    fn what_is_in_the_storage_at_first_is_not_known() {
        let mut used = index(8);
        for position in 0..8 {
            used.put(7, position, 1, Attributes::default());
        }
        let shape = used.shape;
        let mut index = Index::new(used.entries, shape).expect("an entry for each slot");
        for start in [0, 5] {
            index.clear(start);
            for user in start..start + 8 {
                assert!(!index.knows(user));
                let mut found = index.find(7, user);
                assert_eq!(index.next(&mut found), None);
                let mut found = index.find(0, user);
                assert_eq!(index.next(&mut found), None);
            }
        }
    }

    #[test]
    fn consecutive_numbers_have_consecutive_chains() {
        let index = index(64);
        for start in [0, 64, 1 << 40] {
            let chains: Vec<u32> = (start..start + 64).map(|seq| index.bucket(seq)).collect();
            assert!(
                chains.is_sorted_by(|a, b| a.wrapping_add(1) == *b),
                "{chains:?}"
            );
        }
    }

    #[test]
    fn numbers_in_steps_of_powers_of_two_do_not_collide() {
        let index = index(64);
        for step in 6..=58 {
            let chains = (0..64).map(|at| index.bucket(at << step) % 64);
            let chains: BTreeSet<u32> = chains.collect();
            // Random ones would use 40 of 64, these use 20 or more.
            assert!(chains.len() > 16, "steps of 2^{step}: {}", chains.len());
        }
    }
}
