//! Priority-progress streaming over a ring (LDC §3.2.3, after Krasic, Walpole and Feng, "Quality-adaptive media
//! streaming by priority drop", 2003). Time is divided into adaptation windows. Within a window the most important
//! messages are sent first; messages that have not left at its end are discarded.
//!
//! All messages of a window have its end as deadline, so the consumer skips late ones. Messages that do not fit into
//! the ring at first are sent as slots become free, in order of priority, until the window ends.

use core::cmp::Reverse;

use proto_core::time::Instant;

use crate::error::SendError;
use crate::index::Entry;
use crate::message::Attributes;
use crate::producer::Producer;

/// A unit of a window (an SDU in the paper).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit<'a> {
    /// Sequence number chosen by the user.
    pub user_seq: u64,
    /// Larger values are more important.
    pub priority: u32,
    /// Contents.
    pub bytes: &'a [u8],
}

/// A window of a stream: the units that are not in the ring yet, most important first.
#[derive(Debug)]
pub struct Window<'u, 'a> {
    units: &'u [Unit<'a>],
    sent: usize,
    too_long: usize,
    end: Instant,
}

/// The units of a window by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Units put into the ring.
    pub sent: usize,
    /// Units for which there was no room before the end of the window.
    pub late: usize,
    /// Units longer than the ring.
    pub too_long: usize,
}

impl<'u, 'a> Window<'u, 'a> {
    /// Returns a window that ends at `end`. Sorts `units` by descending priority, then by sequence number.
    pub fn new(units: &'u mut [Unit<'a>], end: Instant) -> Self {
        units.sort_unstable_by_key(|unit| (Reverse(unit.priority), unit.user_seq));
        Self {
            units,
            sent: 0,
            too_long: 0,
            end,
        }
    }

    /// Sends as many units as fit, most important first. Call [`Producer::notify`] afterwards. Returns `None` while
    /// units remain: call again when slots are free, or at the end of the window.
    pub fn progress<K, I: AsRef<[Entry]> + AsMut<[Entry]>>(
        &mut self,
        now: Instant,
        producer: &mut Producer<K, I>,
    ) -> Option<Outcome> {
        let mut batch = producer.batch();
        while let Some((unit, rest)) = self.units.split_first() {
            if now > self.end {
                break;
            }
            let attributes = Attributes {
                deadline: Some(self.end),
                priority: unit.priority,
            };
            match batch.send(unit.user_seq, unit.bytes, attributes) {
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
