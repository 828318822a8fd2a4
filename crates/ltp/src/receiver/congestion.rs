//! Congestion control of a receiver: what moves between [`tfmcc::Receiver`](crate::tfmcc::Receiver) and the session.

use proto_core::time::Instant;

use super::{Phase, Receiver};
use crate::error::Error;
use crate::event::Failure;
use crate::store::Store;
use crate::wire::pace::Pace;
use crate::wire::report::ReportAck;
use crate::{Meta, Path, Transmit};

impl<S: Store> Receiver<'_, S> {
    /// Returns the loss event rate of RFC 5348, 0 to 1, where the source has congestion control.
    pub fn loss_event_rate(&self) -> f64 {
        self.congestion.loss_event_rate()
    }

    pub(super) fn on_pace(&mut self, meta: &Meta, pace: &Pace) -> Result<(), Error> {
        let session = self.session.as_ref().ok_or(Error::BeforeSync)?;
        if pace.session != session.id() {
            return Err(Error::OtherSession);
        }
        if !session.is_from(&meta.source) {
            return Err(Error::OtherSource);
        }
        if meta.path == Path::Unicast {
            return Err(Error::Unexpected);
        }
        let chance = self.identity.chance();
        self.congestion
            .handle_pace(self.now, pace, self.identity.id(), chance);
        Ok(())
    }

    /// Whether the rate of this receiver still matters.
    pub(super) fn may_answer(&self) -> bool {
        self.phase == Phase::Open
    }

    pub(super) fn poll_feedback(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let token = self.identity.token();
        self.write_feedback(token, buffer).map(|(_, sent)| sent)
    }

    /// Writes the feedback that is due, for the relay: without the token, which proves this address. Returns its rank
    /// and length.
    pub(crate) fn poll_relay_feedback(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
    ) -> Option<(u64, usize)> {
        self.advance_clock(now);
        let (rank, sent) = self.write_feedback(0, buffer)?;
        Some((rank, sent.len))
    }

    fn write_feedback(&mut self, token: u64, buffer: &mut [u8]) -> Option<(u64, Transmit)> {
        if !self.may_answer() {
            return None;
        }
        let mut feedback = self.congestion.poll_feedback(self.now)?;
        feedback.session = self.session.as_ref()?.id();
        feedback.receiver = self.identity.id();
        feedback.token = token;
        feedback.emit(buffer);
        self.stats.feedback += 1;
        let destination = self.to_source()?;
        let rank = self.congestion.rank(&feedback);
        Some((rank, self.sent(destination, buffer, feedback.buffer_len())))
    }

    /// The source has given up this receiver because it is too slow.
    pub(super) fn given_up(&mut self, ack: &ReportAck) -> Result<(), Error> {
        // Only the source knows the token.
        if ack.token != self.identity.token() || ack.token == 0 {
            return Err(Error::Unasked);
        }
        if self.phase == Phase::Open {
            self.fail(Failure::TooSlow);
        }
        Ok(())
    }
}
