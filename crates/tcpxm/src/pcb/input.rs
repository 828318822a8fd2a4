//! SEGMENT ARRIVES (RFC 9293 §3.10.7): checks before data and acknowledgements are accepted.

use proto_core::time::{Duration, Instant};

use super::{Owed, Pcb, State, Timer};
use crate::error::{Error, Failure};
use crate::group::Flow;
use crate::seq::{SynNumber, stamp_before};
use crate::wire::{GroupOption, Segment};

/// A segment was dropped: why, and whether a reset answers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Dropped {
    pub(crate) error: Error,
    pub(crate) reset: bool,
}

impl From<Error> for Dropped {
    fn from(error: Error) -> Self {
        Self {
            error,
            reset: false,
        }
    }
}

pub(super) const fn with_reset(error: Error) -> Dropped {
    Dropped { error, reset: true }
}

/// A remembered timestamp is not held against segments after this (RFC 7323 §5.5).
const TS_LIFETIME: Duration = Duration::from_secs(24 * 24 * 3600);
/// Largest delay between the two paths of a group's data, in milliseconds of the sender. Below 34 Gbit/s
/// sequence numbers do not wrap in this time.
const PATHS_APART_MS: u32 = 1000;
/// Allowed drift between the clocks of both sides and between the delays of their packets.
const CLOCKS_APART: Duration = Duration::from_secs(10);

impl Pcb {
    /// One segment that came by unicast.
    pub(crate) fn handle(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        flow: &mut Flow,
    ) -> Result<(), Dropped> {
        match self.state {
            State::Closed => Err(with_reset(Error::NoConnection)),
            State::SynSent => self.in_syn_sent(now, segment),
            _ => self.in_later_states(now, segment, flow),
        }
    }

    /// RFC 9293 §3.10.7.4, with the checks of RFC 5961 and RFC 7323.
    fn in_later_states(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        flow: &mut Flow,
    ) -> Result<(), Dropped> {
        let flags = segment.flags;
        let start = self.receive.irs.offset_of(segment.seq, self.receive.next());
        if flags.rst {
            return self.take_reset(now, start).map_err(Dropped::from);
        }
        if flags.syn {
            return self.take_syn(now, segment, start, flow);
        }
        if !flags.ack {
            return Err(Error::NoAck.into());
        }
        let whole = segment;
        let bare;
        let segment = if self.handshake.one_way {
            bare = self.without_data(segment);
            &bare
        } else {
            segment
        };
        self.check_timestamp(now, segment)?;
        self.check_sequence(now, segment, start)?;
        if self.state == State::SynReceived {
            self.complete_handshake(now, segment)?;
        }
        self.liveness.received(now);
        self.note_timestamp(now, segment, start);
        self.take_ack(now, segment, start, flow)?;
        if segment.options.group == Some(GroupOption::Leave) {
            self.leave_group();
        }
        self.arm_keep_alive(now);
        if self.handshake.one_way {
            let data = !whole.payload.is_empty();
            self.weigh_fin(now, flags.fin && !data, start);
            return if data {
                Err(Error::GroupData.into())
            } else {
                Ok(())
            };
        }
        if !segment.payload.is_empty() || flags.fin {
            self.take_data(now, segment, start, false)?;
        }
        Ok(())
    }

    /// Returns a receiver's segment without data, which a sender to a group ignores. A FIN that was accepted
    /// before is a duplicate, and answered.
    fn without_data<'a>(&self, segment: &Segment<'a>) -> Segment<'a> {
        let mut bare = *segment;
        bare.payload = &[];
        bare.flags.fin &= self.receive.fin_taken;
        bare
    }

    /// RFC 5961 §3.2: only the very next sequence number resets.
    fn take_reset(&mut self, now: Instant, start: i64) -> Result<(), Error> {
        if self.state == State::TimeWait {
            return Err(Error::TimeWait);
        }
        let next = self.receive.next() as i64;
        if start == next {
            let refused = self.state == State::SynReceived && !self.handshake.passive;
            self.fail(if refused {
                Failure::Refused
            } else {
                Failure::Reset
            });
            return Ok(());
        }
        // At the right edge: a segment that follows a full window.
        if start > next && start <= self.receive.edge as i64 {
            self.challenge(now);
            return Err(Error::ResetChallenged);
        }
        Err(Error::ResetWindow)
    }

    /// RFC 7323 §5.3, R1. A missing timestamp is accepted: dropping would not stop a forger, who could send
    /// one, and some middleboxes remove the option.
    fn check_timestamp(&mut self, now: Instant, segment: &Segment<'_>) -> Result<(), Error> {
        if self.is_stale(now, segment) {
            self.owe_for_unacceptable(now, segment);
            return Err(Error::Paws);
        }
        Ok(())
    }

    /// Whether the timestamp is from before the last one, by more than two paths to the receiver of a
    /// group may be apart.
    pub(super) fn is_stale(&self, now: Instant, segment: &Segment<'_>) -> bool {
        let apart_ms = if self.receive.record.is_some() {
            PATHS_APART_MS
        } else {
            0
        };
        match (segment.options.timestamps, self.receive.ts_recent) {
            (Some((value, _)), Some((recent, when))) if self.handshake.agreed.timestamps => {
                stamp_before(value.wrapping_add(apart_ms), recent) && now - when < TS_LIFETIME
            }
            _ => false,
        }
    }

    /// Whether the timestamp of a group segment is one that the sender's clock, in milliseconds, cannot have
    /// reached yet. Accepted, it would make all later segments look old.
    pub(super) fn is_from_the_future(&self, now: Instant, segment: &Segment<'_>) -> bool {
        match (segment.options.timestamps, self.receive.ts_recent) {
            (Some((value, _)), Some((recent, when))) if self.handshake.agreed.timestamps => {
                let most = now - when + CLOCKS_APART;
                let most_ms = u32::try_from(most.total_millis()).unwrap_or(u32::MAX);
                !stamp_before(value, recent) && value.wrapping_sub(recent) > most_ms
            }
            _ => false,
        }
    }

    /// RFC 9293 §3.10.7.4, first step, and §3.4 for the four cases.
    fn check_sequence(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        start: i64,
    ) -> Result<(), Error> {
        let len = i64::from(segment.sequence_len());
        let next = self.receive.next() as i64;
        let edge = (self.receive.edge as i64).max(next);
        if len == 0 {
            // A pure acknowledgement overtaken by data is still new; one from before our last acknowledgement
            // is a probe. One at the right edge follows a window that is full and was partly lost.
            let oldest = (self.receive.last_ack_sent as i64).min(next);
            if (oldest..=edge).contains(&start) {
                return Ok(());
            }
        } else if start < edge && start + len > next {
            return Ok(());
        } else if start == next {
            // No window, but its acknowledgement is valid (RFC 9293 §3.10.7.4: "special allowance").
            self.owe_now();
            return Ok(());
        }
        if len > 0 && start + len <= next {
            self.take_duplicate(now, segment, start);
            return Err(Error::Duplicate);
        }
        self.owe_for_unacceptable(now, segment);
        Err(Error::Window)
    }

    /// RFC 7323 §4.3: the timestamp of the segment that our next acknowledgement is caused by.
    pub(super) fn note_timestamp(&mut self, now: Instant, segment: &Segment<'_>, start: i64) {
        if let Some((value, _)) = segment.options.timestamps
            && self.handshake.agreed.timestamps
            && start <= self.receive.last_ack_sent as i64
            && self
                .receive
                .ts_recent
                .is_none_or(|(recent, _)| !stamp_before(value, recent))
        {
            self.receive.ts_recent = Some((value, now));
        }
    }

    /// An acknowledgement at once.
    pub(super) fn owe_now(&mut self) {
        self.receive.owed = Owed::Now;
    }

    /// An acknowledgement soon.
    pub(super) fn owe_later(&mut self, now: Instant) {
        if self.receive.owed == Owed::Nothing {
            self.receive.owed = Owed::Later;
            self.timers
                .set(Timer::DelayedAck, now + self.limits.delayed_ack);
        }
    }

    /// Answers an unacceptable segment with our state; segments without data only at a limited rate, so that
    /// two sides never answer each other endlessly.
    fn owe_for_unacceptable(&mut self, now: Instant, segment: &Segment<'_>) {
        if segment.payload.is_empty() && !segment.flags.fin {
            self.challenge(now);
        } else {
            self.owe_now();
        }
    }
}
