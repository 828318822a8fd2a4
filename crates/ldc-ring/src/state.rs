//! The state word of a slot: who owns it, and in which round.
//!
//! ```text
//!  31                                4   3   2      0
//! +-----------------------------------+-----+--------+
//! |         position, mod 2^28        | ack | state  |
//! +-----------------------------------+-----+--------+
//! ```
//!
//! A position counts slots since the start and wraps at 2^32; it tells a slot's message from the one before it
//! and the one after. What decides whether there is a message at all are the indexes `user_i` and `dev_i`.
//!
//! | state | owner | leaves it by |
//! | --- | --- | --- |
//! | 0 | nobody yet | send: `READY`, or `HELD` when it becomes the barrier of a hold-back |
//! | `READY` | whoever swaps first | producer: `HELD`, `DEAD`; consumer: `CLAIMED` |
//! | `HELD` | producer | producer: `READY`, `DEAD` |
//! | `DEAD` | consumer | consumer: `DONE` |
//! | `CLAIMED` | consumer | consumer: `DONE`, when an older message is not completed yet |
//! | `DONE` | consumer | |
//!
//! The consumer gives slots back by moving `dev_i` over them, and the next send writes a word of the next
//! round. Only the first slot of a message has a say; the words of its further pieces are left as they were.

pub(crate) const READY: u32 = 1;
pub(crate) const HELD: u32 = 2;
pub(crate) const DEAD: u32 = 3;
pub(crate) const CLAIMED: u32 = 4;
pub(crate) const DONE: u32 = 5;

const STATE: u32 = 0b111;
const ACKED: u32 = 0b1000;
const POSITION_SHIFT: u32 = 4;

/// The word of a slot in `state` for `position`.
#[inline]
pub(crate) fn word(position: u32, state: u32) -> u32 {
    position << POSITION_SHIFT | state
}

/// The state of a word, if it belongs to `position`.
#[inline]
pub(crate) fn state(position: u32, word: u32) -> Option<u32> {
    (word >> POSITION_SHIFT == position << POSITION_SHIFT >> POSITION_SHIFT).then_some(word & STATE)
}

/// The word with the acknowledgement flag set.
#[inline]
pub(crate) fn with_ack(word: u32) -> u32 {
    word | ACKED
}

/// Whether the word carries the acknowledgement flag.
#[inline]
pub(crate) fn is_acked(word: u32) -> bool {
    word & ACKED != 0
}
