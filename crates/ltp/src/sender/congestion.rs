//! Congestion control of a sender: what moves between [`tfmcc::Sender`] and the session.

use core::net::SocketAddr;

use proto_core::time::Instant;

use super::Sender;
use crate::config::SenderConfig;
use crate::error::Error;
use crate::event::ReceiverFailure;
use crate::pacing::FRAME_OVERHEAD;
use crate::rate::{CEILING_BPS, FLOOR_BPS};
use crate::store::Store;
use crate::tfmcc::{self, Limiting};
use crate::wire::pace::Feedback;
use crate::wire::report::{ReportAck, Verdict};
use crate::wire::{Header, Type};
use crate::{Destination, Geometry, Meta, Path, Transmit};

/// Creates the congestion control that the configuration wants.
pub(super) fn begin(
    config: &SenderConfig,
    geometry: &Geometry,
    now: Instant,
) -> Option<tfmcc::Sender> {
    let frame = geometry.packet_len() + FRAME_OVERHEAD;
    let most = config.rate_bps.unwrap_or(CEILING_BPS);
    let new = || tfmcc::Sender::new(now, frame, FLOOR_BPS.min(most), most);
    config.congestion.then(new)
}

impl<S: Store> Sender<'_, S> {
    /// Returns the rate of this sender now, bit/s of Ethernet frames; `None`: as fast as the driver polls.
    pub fn rate_bps(&self) -> Option<u64> {
        let congestion = self.congestion.as_ref().map(tfmcc::Sender::rate_bps);
        congestion.or(self.config.rate_bps)
    }

    /// Returns the receiver whose rate this sender follows, by [`SenderConfig::congestion`].
    pub fn limiting(&self) -> Option<&Limiting> {
        self.congestion.as_ref()?.limiting()
    }

    /// Takes over the rate of congestion control.
    pub(super) fn follow_congestion(&mut self) {
        if self.congestion.is_some() {
            let rate = self.rate_bps();
            self.pacing.set_rate(&self.config, rate, self.now);
        }
    }

    /// Estimates the number of receivers from above.
    fn most_receivers(&self) -> u32 {
        let expected = self.config.receivers;
        expected.map_or(tfmcc::MANY, |count| count.max(self.receivers.joined()))
    }

    pub(super) fn feedback(&mut self, meta: &Meta, feedback: &Feedback) -> Result<(), Error> {
        if feedback.session != self.session {
            return Err(Error::OtherSession);
        }
        if meta.path != Path::Unicast {
            return Err(Error::Unexpected);
        }
        if self.congestion.is_none() {
            return Err(Error::FeedbackUnwanted);
        }
        let from = meta.source;
        if feedback.token != self.token(from) {
            self.give_token(from, 0, feedback.receiver);
            return Err(Error::FeedbackUnverified);
        }
        self.check_speed(meta, 0, feedback.receiver)?;
        let now = self.now;
        self.follow_feedback(|congestion| congestion.handle_feedback(now, from, feedback))
    }

    /// Takes a FEEDBACK of this rank that the relay passes on for all receivers below it, and that relays held for
    /// `held_us`. The relay has proved its address.
    pub(crate) fn relay_feedback(
        &mut self,
        now: Instant,
        relay: SocketAddr,
        rank: u64,
        held_us: u32,
        packet: &[u8],
    ) -> Result<(), Error> {
        self.advance_clock(now);
        let result = self.feedback_below(relay, rank, held_us, packet);
        match result {
            Ok(()) => self.stats.received += 1,
            Err(reason) => self.stats.drops.count(reason),
        }
        result
    }

    fn feedback_below(
        &mut self,
        relay: SocketAddr,
        rank: u64,
        held_us: u32,
        packet: &[u8],
    ) -> Result<(), Error> {
        if Header::parse(packet)?.kind != Type::Feedback {
            return Err(Error::Unexpected);
        }
        let packet = self.hashing.open(packet).ok_or(Error::Authenticator)?;
        if self.is_ended() {
            return Err(Error::Ended);
        }
        let feedback = Feedback::parse(packet)?;
        if feedback.session != self.session {
            return Err(Error::OtherSession);
        }
        let now = self.now;
        self.follow_feedback(|congestion| {
            congestion.handle_relayed_feedback(now, relay, rank, held_us, &feedback)
        })
    }

    /// Takes over the rate after a feedback whose origin is proved.
    fn follow_feedback(
        &mut self,
        take: impl FnOnce(&mut tfmcc::Sender) -> Result<(), tfmcc::FeedbackError>,
    ) -> Result<(), Error> {
        let Some(congestion) = &mut self.congestion else {
            return Err(Error::FeedbackUnwanted);
        };
        let before = congestion.rate_bps();
        take(congestion).map_err(|_| Error::FeedbackStale)?;
        let after = congestion.rate_bps();
        if before != after {
            self.follow_congestion();
        }
        self.stats.feedback += 1;
        Ok(())
    }

    /// Refuses a receiver that was given up because it is too slow, and tells it.
    pub(super) fn check_speed(
        &mut self,
        meta: &Meta,
        tag: u16,
        receiver: u64,
    ) -> Result<(), Error> {
        let congestion = self.congestion.as_ref();
        if !congestion.is_some_and(|congestion| congestion.is_refused(meta.source)) {
            return Ok(());
        }
        let ack = ReportAck {
            verdict: Verdict::TooSlow,
            tag,
            session: self.session,
            receiver,
            token: self.token(meta.source),
        };
        self.acknowledge(meta.source, ack);
        Err(Error::TooSlow)
    }

    /// A receiver has everything, or is not waited for: another one limits the rate.
    pub(super) fn no_longer_limits(&mut self, address: SocketAddr) {
        if let Some(congestion) = &mut self.congestion {
            congestion.forget(self.now, address);
        }
    }

    /// A data packet waits for the rate.
    pub(super) fn data_limited(&mut self) {
        let waits = self.data_waits() || !self.repairs.is_empty();
        if let Some(congestion) = self.congestion.as_mut().filter(|_| waits) {
            congestion.limited();
        }
    }

    pub(super) fn congestion_timeout(&mut self) {
        let Some(congestion) = &mut self.congestion else {
            return;
        };
        let before = congestion.rate_bps();
        congestion.handle_timeout(self.now);
        let after = congestion.rate_bps();
        let least = self.config.min_rate_bps;
        let slow = least.and_then(|least| congestion.refuse_too_slow(self.now, least));
        if before != after {
            self.follow_congestion();
        }
        if let Some(slow) = slow {
            let place = self.receivers.place(slow.address);
            if let super::receivers::Place::Known(at) = place {
                self.receiver_failed(at, ReceiverFailure::TooSlow);
            }
            self.check_complete();
        }
    }

    /// Returns when congestion control has something to do or to send.
    pub(super) fn congestion_wake(&self) -> Option<Instant> {
        let congestion = self.congestion.as_ref()?;
        let len = congestion.pace_len() + self.hashing.overhead();
        let ready = self.pacing.ready_at(len + FRAME_OVERHEAD);
        let pace = congestion.pace_at().map(|at| at.max(ready));
        let pace = pace.filter(|_| self.paces());
        let slow = self.config.min_rate_bps;
        let slow = slow.and_then(|least| congestion.too_slow_at(least));
        let times = [pace, congestion.poll_timeout(), slow];
        times.into_iter().flatten().min().map(|at| at.max(self.now))
    }

    /// Whether there is a rate to tell: data or repairs are sent.
    fn paces(&self) -> bool {
        matches!(self.phase, super::Phase::Sending | super::Phase::Sent)
    }

    /// Whether a PACE is due. Data waits for it: short packets would take what the rate lets go before a PACE fits.
    pub(super) fn pace_waits(&self) -> bool {
        let due = self.congestion.as_ref().and_then(tfmcc::Sender::pace_at);
        self.paces() && due.is_some_and(|due| due <= self.now)
    }

    pub(super) fn poll_pace(&mut self, budget: usize, buffer: &mut [u8]) -> Option<Transmit> {
        let len = self.congestion.as_ref()?.pace_len();
        if !self.paces() || !self.fits(budget, buffer, len) {
            return None;
        }
        let receivers = self.most_receivers();
        let mut pace = self.congestion.as_mut()?.poll_pace(self.now, receivers)?;
        pace.session = self.session;
        pace.emit(buffer);
        self.stats.paces += 1;
        self.seal(Destination::Group, buffer, pace.buffer_len())
    }
}
