//! The producer's private index: from a user's sequence number to the messages in the ring.
//!
//! One [`Entry`] a slot, in memory of the producer's own, so that nothing the other side writes can
//! mislead it. Each entry serves twice: as the node of the message that begins in its slot, and as the head of a
//! hash chain. Messages enter at the tail of their chain and leave the ring in the order they came, so
//! what leaves is always at the head of its chain: every step takes constant time.

use crate::shape::Shape;

const NONE: u32 = u32::MAX;

/// Room for what the producer remembers of one slot: 48 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The message that begins in this slot.
    pub(crate) user_seq: u64,
    pub(crate) deadline: i64,
    pub(crate) position: u32,
    pub(crate) len: u32,
    pub(crate) priority: u32,
    /// The producer dropped it.
    pub(crate) dead: bool,
    /// The slot of the next message in this one's chain.
    next: u32,
    /// The chain of the sequence numbers that hash to this slot.
    first: u32,
    last: u32,
}

impl Entry {
    /// Room that is not in use.
    pub const EMPTY: Entry = Entry {
        user_seq: 0,
        deadline: 0,
        position: 0,
        len: 0,
        priority: 0,
        dead: false,
        next: NONE,
        first: NONE,
        last: NONE,
    };
}

/// The index over `entries`, one a slot.
pub(crate) struct Index<I> {
    entries: I,
    shape: Shape,
}

impl<I: AsRef<[Entry]> + AsMut<[Entry]>> Index<I> {
    /// `None` when there are fewer entries than slots.
    pub(crate) fn new(mut entries: I, shape: Shape) -> Option<Self> {
        let used = entries.as_mut().get_mut(..shape.slots() as usize)?;
        used.fill(Entry::EMPTY);
        Some(Self { entries, shape })
    }

    /// The message that begins at `position`. The position must be one that was put and not removed.
    #[inline]
    pub(crate) fn get(&self, position: u32) -> &Entry {
        &self.entries.as_ref()[self.shape.slot(position)]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, position: u32) -> &mut Entry {
        &mut self.entries.as_mut()[self.shape.slot(position)]
    }

    /// The slot whose chain holds a sequence number: multiplicative hashing by the golden ratio, so that
    /// numbers in steps of a power of two do not meet.
    #[inline]
    fn bucket(&self, user_seq: u64) -> usize {
        let hash = user_seq.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        ((hash << self.shape.slots_log2()) >> 32) as usize
    }

    /// Remembers the newest message.
    #[inline]
    pub(crate) fn put(
        &mut self,
        user_seq: u64,
        position: u32,
        len: u32,
        deadline: i64,
        priority: u32,
    ) {
        let slot = self.shape.slot(position) as u32;
        let bucket = self.bucket(user_seq);
        let entries = self.entries.as_mut();
        let entry = &mut entries[slot as usize];
        entry.user_seq = user_seq;
        entry.deadline = deadline;
        entry.position = position;
        entry.len = len;
        entry.priority = priority;
        entry.dead = false;
        entry.next = NONE;
        let last = entries[bucket].last;
        if last == NONE {
            entries[bucket].first = slot;
        } else {
            entries[last as usize].next = slot;
        }
        entries[bucket].last = slot;
    }

    /// Forgets the oldest message, which is at `position`.
    #[inline]
    pub(crate) fn remove_oldest(&mut self, position: u32) {
        let slot = self.shape.slot(position);
        let bucket = self.bucket(self.get(position).user_seq);
        let entries = self.entries.as_mut();
        let next = entries[slot].next;
        debug_assert_eq!(entries[bucket].first as usize, slot);
        entries[bucket].first = next;
        if next == NONE {
            entries[bucket].last = NONE;
        }
    }

    /// The positions of the messages with this sequence number, oldest first.
    pub(crate) fn find(&self, user_seq: u64) -> Found {
        Found {
            user_seq,
            slot: self.entries.as_ref()[self.bucket(user_seq)].first,
        }
    }

    /// The next of them, and the cursor moves on.
    #[inline]
    pub(crate) fn next(&self, found: &mut Found) -> Option<u32> {
        while found.slot != NONE {
            let entry = &self.entries.as_ref()[found.slot as usize];
            found.slot = entry.next;
            if entry.user_seq == found.user_seq {
                return Some(entry.position);
            }
        }
        None
    }
}

/// A cursor over the messages with one sequence number.
pub(crate) struct Found {
    user_seq: u64,
    slot: u32,
}
