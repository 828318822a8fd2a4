//! Priority-progress streaming over a ring (thesis §3.2.3; Krasic, Walpole and Feng, 2003): the time-line is
//! cut into adaptation windows; within a window the dearest messages go first, and what is left of it when it
//! has passed is dropped.
//!
//! The consumer drops by itself: all messages of a window get the window's end as deadline. What did not
//! fit into the ring at once is put in as room appears, still dearest first, and not at all once
//! the window has passed.

use core::cmp::Reverse;

use proto_core::time::Instant;

use crate::index::Entry;
use crate::message::Attributes;
use crate::producer::{Producer, SendError};

/// One unit of a window (an SDU of the paper).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit<'a> {
    /// The user's sequence number.
    pub user_seq: u64,
    /// The larger, the dearer.
    pub priority: u32,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// A window of a stream: its units, dearest first, and how many of them are in the ring.
#[derive(Debug)]
pub struct Window<'u, 'a> {
    units: &'u [Unit<'a>],
    sent: usize,
    too_long: usize,
    end: Instant,
}

/// What became of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Units put into the ring.
    pub sent: usize,
    /// Units that the window's end overtook before there was room.
    pub late: usize,
    /// Units longer than the ring.
    pub too_long: usize,
}

impl<'u, 'a> Window<'u, 'a> {
    /// A window that ends at `end`. Sorts its units: dearest first, and by sequence number among equals.
    pub fn new(units: &'u mut [Unit<'a>], end: Instant) -> Self {
        units.sort_unstable_by_key(|unit| (Reverse(unit.priority), unit.user_seq));
        Self {
            units,
            sent: 0,
            too_long: 0,
            end,
        }
    }

    /// Puts in what there is room for, dearest first. `None`: more is to come, call again when the consumer
    /// has moved on or at the window's end. Otherwise the window is over. Call [`Producer::notify`]
    /// afterwards.
    pub fn progress<K, I: AsRef<[Entry]> + AsMut<[Entry]>>(
        &mut self,
        now: Instant,
        producer: &mut Producer<K, I>,
    ) -> Option<Outcome> {
        while let Some((unit, rest)) = self.units.split_first() {
            if now > self.end {
                break;
            }
            let attributes = Attributes {
                deadline: Some(self.end),
                priority: unit.priority,
            };
            match producer.send(unit.user_seq, unit.bytes, attributes) {
                Ok(()) => self.sent += 1,
                Err(SendError::TooLong) => self.too_long += 1,
                Err(SendError::Full) => return None,
            }
            self.units = rest;
        }
        Some(Outcome {
            sent: self.sent,
            late: self.units.len(),
            too_long: self.too_long,
        })
    }
}
