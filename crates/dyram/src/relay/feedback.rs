//! Feedback of receivers to the source: of all children the relay passes on that with the lowest rank.
//!
//! A relay passes on what the child sends whose feedback it passed on last, a lower rank of another child, and any
//! feedback once the last is older than [`STALE`] or its child has left or stalled. The source gets the feedback of the
//! lowest receiver as often as that one sends it. The rest is dropped and counted: the transport tells its receivers when
//! to send again.
//!
//! At most one feedback of a session goes upward in each [`INTERVAL`]. One may wait for that; a lower one takes its
//! place. The relay adds the time for which it held the feedback, since the transport measures round-trip times.
//!
//! A session takes 200 bytes for this.

use proto_core::time::{Duration, Instant};

use super::table::{NEVER, Owner, Set, has_bit};
use super::{Origin, Relay};
use crate::stats::DropReason;
use crate::types::Addr;
use crate::wire::{Body, Feedback, MAX_MESSAGE, NO_CHILD, Packet, emit};
use crate::{Seq, Transmit};

/// Shortest time between two feedbacks of a session upward.
const INTERVAL: Duration = Duration::from_millis(5);
/// After this time without feedback from the child that sent the last, that of any child is passed on.
const STALE: Duration = Duration::from_secs(1);

/// The feedback of a session.
#[derive(Clone, Default, Debug)]
pub(crate) struct Feedbacks {
    /// The one passed on last: the lowest below.
    last: Option<Last>,
    waiting: Option<Waiting>,
    /// The next one may go from then on.
    next: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    child: u16,
    rank: u64,
    at: Instant,
}

#[derive(Clone, Debug)]
struct Waiting {
    child: u16,
    rank: u64,
    /// How long relays below held it, microseconds, and since when this one does.
    held_us: u32,
    since: Instant,
    message: heapless::Vec<u8, MAX_MESSAGE, u8>,
}

impl Feedbacks {
    /// Whether a child's feedback is passed on.
    fn takes(&self, now: Instant, child: u16, rank: u64) -> bool {
        let waits = |waiting: &Waiting| {
            rank < waiting.rank || rank == waiting.rank && child == waiting.child
        };
        self.waiting.as_ref().is_none_or(waits)
            && self.last.is_none_or(|last| {
                child == last.child || rank < last.rank || now >= last.at + STALE
            })
    }

    /// Forgets a child that has left or is given up.
    pub(crate) fn forget(&mut self, child: u16) {
        self.last = self.last.filter(|last| last.child != child);
        self.waiting = self.waiting.take().filter(|waits| waits.child != child);
    }

    /// Returns when the feedback that waits is to be sent; [`NEVER`] without one.
    pub(crate) fn due(&self) -> Instant {
        self.waiting.as_ref().map_or(NEVER, |_| self.next)
    }
}

impl Relay<'_> {
    pub(super) fn feedback(
        &mut self,
        now: Instant,
        number: u16,
        from: Addr,
        packet: &Packet<&[u8]>,
    ) -> Result<(), DropReason> {
        let Origin::Child(child) = self.origin(number, from, packet.child())? else {
            return Err(DropReason::WrongWay);
        };
        self.same_session(number, packet.session())?;
        let feedback = Feedback::read(packet.payload());
        let is_stalled = has_bit(self.tables.set(number, Set::Stalled), child);
        let feedbacks = &mut self.tables.session_mut(number).feedbacks;
        let is_taken = !is_stalled && feedbacks.takes(now, child, feedback.rank);
        if !is_taken || feedbacks.waiting.is_some() {
            // This one, or the one whose place it takes.
            self.stats.feedback_suppressed = self.stats.feedback_suppressed.wrapping_add(1);
        }
        let message = heapless::Vec::from_slice(feedback.message);
        let (true, Ok(message)) = (is_taken, message) else {
            return Ok(());
        };
        feedbacks.waiting = Some(Waiting {
            child,
            rank: feedback.rank,
            held_us: feedback.held_us,
            since: now,
            message,
        });
        if feedbacks.next <= now {
            let output = self.tables.entry(Owner::Output(number));
            self.tables.wheel.make_ready(output);
        } else {
            self.set_timer(number);
        }
        Ok(())
    }

    /// Writes the feedback that waits. Without a way to the source it is dropped.
    pub(super) fn send_feedback(
        &mut self,
        now: Instant,
        number: u16,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        let above = self.above(number);
        let session = self.tables.session_mut(number);
        let waiting = session.feedbacks.waiting.take()?;
        let (key, id, above) = (session.name()?, session.id?, above?);
        let Waiting {
            child, rank, since, ..
        } = waiting;
        let held_us = (now - since).total_micros().min(u64::from(u32::MAX)) as u32;
        session.feedbacks.last = Some(Last {
            child,
            rank,
            at: now,
        });
        session.feedbacks.next = now + INTERVAL;
        let parent = session.parent.as_ref();
        let own_number = parent.map_or(NO_CHILD, |parent| parent.child());
        self.stats.feedback = self.stats.feedback.wrapping_add(1);
        let body = Body::Feedback(Feedback {
            rank,
            held_us: waiting.held_us.saturating_add(held_us),
            message: &waiting.message,
        });
        Some(emit(above, key, id, own_number, Seq(0), body, buffer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_takes_what_is_documented() {
        assert!(size_of::<Feedbacks>() <= 200, "{}", size_of::<Feedbacks>());
    }
}
