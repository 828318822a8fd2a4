//! SEGMENT ARRIVES (RFC 9293 §3.10.7): checks before data and acknowledgements are accepted.

use proto_core::time::Instant;

use super::{Pcb, State};
use crate::error::{Error, Failure};
use crate::group::Flow;
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
        let start = self.receive.offset_of(segment.seq);
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
        let segment = if self.handshake.is_group_sender() {
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
        if self.handshake.is_group_sender() {
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
        bare.flags.fin &= self.receive.fin_is_taken();
        bare
    }

    /// RFC 5961 §3.2: only the very next sequence number resets.
    fn take_reset(&mut self, now: Instant, start: i64) -> Result<(), Error> {
        if self.state == State::TimeWait {
            return Err(Error::TimeWait);
        }
        let next = self.receive.next() as i64;
        if start == next {
            let refused = self.state == State::SynReceived && !self.handshake.is_passive();
            self.fail(if refused {
                Failure::Refused
            } else {
                Failure::Reset
            });
            return Ok(());
        }
        // At the right edge: a segment that follows a full window.
        if start > next && start <= self.receive.edge() as i64 {
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

    /// RFC 9293 §3.10.7.4, first step, and §3.4 for the four cases.
    fn check_sequence(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        start: i64,
    ) -> Result<(), Error> {
        let len = i64::from(segment.sequence_len());
        let next = self.receive.next() as i64;
        let edge = (self.receive.edge() as i64).max(next);
        if len == 0 {
            // A pure acknowledgement overtaken by data is still new; one from before our last acknowledgement
            // is a probe. One at the right edge follows a window that is full and was partly lost.
            let oldest = (self.receive.last_ack_sent() as i64).min(next);
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
