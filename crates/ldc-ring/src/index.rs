//! The producer's private index: from a user's sequence number to the messages in the ring.
//!
//! One [`Entry`] a slot, in memory of the producer's own, so that nothing the other side writes can
//! mislead it. Each entry serves twice: for the message that begins in its slot, and as the head of a hash
//! chain. A chain leads from the newest message to the oldest, by positions; what has become too old for
//! the ring ends it. So a message enters its chain in two stores, and nothing is ever taken out.

use crate::message::{Attributes, Sent, deadline_from_micros};
use crate::shape::Shape;

/// In `Entry::len`: the producer dropped the message. Lengths are below 2^31.
const DEAD: u32 = 1 << 31;

/// Room for what the producer remembers of one slot: 40 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    user_seq: u64,
    deadline: i64,
    position: u32,
    len: u32,
    priority: u32,
    /// The position of the next older message in this one's chain.
    older: u32,
    /// The position of the newest message in the chain of the sequence numbers that hash to this slot.
    newest: u32,
}

impl Entry {
    /// Room that is not in use.
    pub const EMPTY: Entry = Entry {
        user_seq: 0,
        deadline: 0,
        position: 0,
        len: 0,
        priority: 0,
        older: 0,
        newest: 0,
    };

    /// Bytes of the message.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len & !DEAD
    }

    /// Whether the producer dropped it.
    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        self.len & DEAD != 0
    }

    /// Remembers that the producer dropped it.
    #[inline]
    pub(crate) fn set_dead(&mut self) {
        self.len |= DEAD;
    }

    /// Remembers another length.
    pub(crate) fn set_len(&mut self, len: u32) {
        self.len = len | self.len & DEAD;
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

/// The index over `entries`, one a slot.
pub(crate) struct Index<I> {
    entries: I,
    shape: Shape,
    slots_log2: u32,
}

impl<I: AsRef<[Entry]> + AsMut<[Entry]>> Index<I> {
    /// `None` when there are fewer entries than slots.
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

    /// Forgets all. The next message will be at `start`.
    pub(crate) fn clear(&mut self, start: u32) {
        // Too old for the ring.
        let none = start.wrapping_sub(1).wrapping_sub(self.shape.slots());
        self.entries.as_mut().fill(Entry {
            position: none,
            older: none,
            newest: none,
            ..Entry::EMPTY
        });
    }

    /// The message that begins at `position`, which must be known (see [`Index::knows`]).
    #[inline]
    pub(crate) fn get(&self, position: u32) -> &Entry {
        &self.entries.as_ref()[self.shape.slot(position)]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, position: u32) -> &mut Entry {
        &mut self.entries.as_mut()[self.shape.slot(position)]
    }

    /// Whether a message that began at `position` is the last one that began in its slot.
    #[inline]
    pub(crate) fn knows(&self, position: u32) -> bool {
        self.get(position).position == position
    }

    /// The slot whose chain holds a sequence number. Numbers that follow each other have chains that follow
    /// each other, so that sending touches few lines of the index; what is above a ring full of numbers is
    /// hashed by the golden ratio, so that numbers in steps of a power of two do not meet.
    #[inline]
    fn bucket(&self, user_seq: u64) -> u32 {
        let above = (user_seq >> self.slots_log2).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
        (user_seq as u32).wrapping_add(above as u32)
    }

    /// Remembers the newest message.
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

    /// The messages with this sequence number whose slots were not used again, newest first. The next message
    /// sent will be at `user`.
    #[inline]
    pub(crate) fn find(&self, user_seq: u64, user: u32) -> Found {
        Found {
            user_seq,
            next: self.get(self.bucket(user_seq)).newest,
            newer: user,
            left: self.shape.slots(),
        }
    }

    /// The next of them, and the cursor moves on.
    #[inline]
    pub(crate) fn next(&self, found: &mut Found) -> Option<u32> {
        loop {
            // Each is older than the one before, and all are less than a ring old.
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
