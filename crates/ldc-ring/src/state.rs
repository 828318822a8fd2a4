//! The state word of a slot: its owner and its position.
//!
//! ```text
//!  31                                4   3   2      0
//! +-----------------------------------+-----+--------+
//! |         position, mod 2^28        | ack | state  |
//! +-----------------------------------+-----+--------+
//! ```
//!
//! A position counts slots since the start and wraps at 2^32. It distinguishes the message of a slot from the previous
//! and the next message in the same slot. The indexes `user_i` and `dev_i` decide whether the slot holds a message.
//!
//! | state | owner | transitions |
//! | --- | --- | --- |
//! | 0 | none | send: `READY`, or `HELD` if the message becomes the barrier of a hold-back |
//! | `READY` | the side that swaps first | producer: `HELD`, `CANCELLED`; consumer: `CLAIMED` |
//! | `HELD` | producer | producer: `READY`, `CANCELLED` |
//! | `CANCELLED` | consumer | consumer: `DONE` |
//! | `CLAIMED` | consumer | producer: `ABANDONED`; consumer: `DONE`, if an older message is not completed |
//! | `ABANDONED` | consumer | as `CLAIMED`; the producer no longer wants the message delivered |
//! | `DONE` | consumer | |
//!
//! The consumer releases slots by moving `dev_i` past them, and the next send writes a word with the next position.
//! Only the word of a message's first slot is used; those of its other slots keep their old values.

pub(crate) const READY: u32 = 1;
pub(crate) const HELD: u32 = 2;
pub(crate) const CANCELLED: u32 = 3;
pub(crate) const CLAIMED: u32 = 4;
pub(crate) const DONE: u32 = 5;
pub(crate) const ABANDONED: u32 = 6;

const STATE: u32 = 0b111;
const ACKED: u32 = 0b1000;
const POSITION_SHIFT: u32 = 4;

/// Returns the word of a slot in `state` for `position`.
#[inline]
pub(crate) fn word(position: u32, state: u32) -> u32 {
    position << POSITION_SHIFT | state
}

/// Returns the state of a word if it belongs to `position`.
#[inline]
pub(crate) fn state(position: u32, word: u32) -> Option<u32> {
    (word >> POSITION_SHIFT == position << POSITION_SHIFT >> POSITION_SHIFT).then_some(word & STATE)
}

/// Returns the word with the acknowledgement flag set.
#[inline]
pub(crate) fn with_ack(word: u32) -> u32 {
    word | ACKED
}

/// Returns whether the word carries the acknowledgement flag.
#[inline]
pub(crate) fn is_acked(word: u32) -> bool {
    word & ACKED != 0
}
