//! The state word of a slot: who owns it, and in which round.
//!
//! ```text
//!  31                                4   3   2      0
//! +-----------------------------------+-----+--------+
//! |        round (position / slots)   | ack | state  |
//! +-----------------------------------+-----+--------+
//! ```
//!
//! A position counts slots since the start and wraps at 2^32; its round tells a slot's message from
//! the one before it and the one after. All-zero memory is a ring of free slots of round 0.
//!
//! | state | owner | leaves it by |
//! | --- | --- | --- |
//! | `FREE` | producer | send: `READY`, or `HELD` when it becomes the barrier of a hold-back |
//! | `READY` | whoever swaps first | producer: `HELD`, `DEAD`; consumer: `CLAIMED` |
//! | `HELD` | producer | producer: `READY`, `DEAD` |
//! | `DEAD` | consumer | consumer: `FREE` of the next round |
//! | `CLAIMED` | consumer | consumer: `DONE`, or `FREE` of the next round |
//! | `DONE` | consumer | consumer: `FREE` of the next round, once all older ones are done |
//!
//! Only the first slot of a message has a say. The slots of its further pieces stay `FREE` of their round
//! until the consumer is through with the message; then all become `FREE` of the next.

use crate::shape::Shape;

pub(crate) const FREE: u32 = 0;
pub(crate) const READY: u32 = 1;
pub(crate) const HELD: u32 = 2;
pub(crate) const DEAD: u32 = 3;
pub(crate) const CLAIMED: u32 = 4;
pub(crate) const DONE: u32 = 5;

const STATE: u32 = 0b111;
const ACKED: u32 = 0b1000;
const ROUND_SHIFT: u32 = 4;

/// The bits of a word that name the round of `position`.
#[inline]
fn round(shape: Shape, position: u32) -> u32 {
    (position >> shape.slots_log2()) << ROUND_SHIFT
}

/// The word of a slot in `state` for `position`.
#[inline]
pub(crate) fn word(shape: Shape, position: u32, state: u32) -> u32 {
    round(shape, position) | state
}

/// The state of a word, if it belongs to the round of `position`.
#[inline]
pub(crate) fn state(shape: Shape, position: u32, word: u32) -> Option<u32> {
    (word & !(STATE | ACKED) == round(shape, position)).then_some(word & STATE)
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
