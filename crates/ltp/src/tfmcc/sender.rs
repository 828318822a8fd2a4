//! The source's side (RFC 4654 §3).

use core::net::SocketAddr;

use proto_core::time::{Duration, Instant};

use super::{
    LEAST_INTERVAL, LOSSLESS, ROUND_TRIP_S, clamp_round_trip, duration, round_length, seconds,
};
use crate::pacing::FRAME_OVERHEAD;
use crate::wire::MAC_LEN;
use crate::wire::pace::{ECHO_LEN, Echo, Feedback, MAX_ECHOES, PACE_LEN, Pace};

/// The longest round-trip time before any was measured, in seconds.
const INITIAL_ROUND_TRIP: f64 = 0.1;
/// Packets in that time before the first feedback (RFC 6928).
const INITIAL_PACKETS: f64 = 10.0;
/// What is left of the longest round-trip time after a round in which no receiver had it (§3.2).
const DECAY: f64 = 0.9;
/// Share of an old estimate in a new one.
const KEPT: f64 = 0.9;
/// A limiting receiver that has sent nothing for this number of its feedback intervals is forgotten (§3.3).
const MISSED: u32 = 10;
/// Receivers that were given up and are remembered.
const MAX_REFUSED: usize = 8;
/// The rate grows by one part in this number in the longest round-trip time.
const GROWTH: f64 = 8.0;
/// Share of the rate that PACE may take: one part in this number.
const SHARE: f64 = 100.0;
/// Shortest time without feedback after which the rate is halved.
const LEAST_SILENCE: Duration = Duration::from_millis(500);

proto_core::errors! {
    /// Why a feedback was dropped.
    pub enum FeedbackError {
        /// It answers no PACE of the last twenty seconds, or took more than ten on the way.
        Stale = "feedback answers no recent PACE",
    }
}

/// The limiting receiver.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limiting {
    /// Its random identifier.
    pub receiver: u64,
    /// Its address.
    pub address: SocketAddr,
    /// The rate that it can have, bit/s; `u64::MAX` before its first loss.
    pub rate_bps: u64,
    /// The rate at which packets came to it, bit/s.
    pub received_bps: u64,
    /// Its loss event rate, 0 to 1.
    pub loss: f64,
    /// Its round-trip time as this source measures it.
    pub round_trip: Duration,
    /// When its last feedback came.
    pub heard: Instant,
}

/// A timestamp to return.
#[derive(Clone, Copy, Debug)]
struct Held {
    receiver: u64,
    stamp_us: u32,
    at: Instant,
}

/// The feedback round.
#[derive(Clone, Copy, Debug)]
struct Round {
    number: u16,
    /// It ends here if another receiver than the limiting one has answered, and at twice its length otherwise.
    began: Instant,
    length: Duration,
    is_answered: bool,
    /// A packet was sent in it: without any it does not end.
    has_sent: bool,
    /// The lowest rate told, bytes a second.
    lowest: f64,
    /// The longest round-trip time measured, seconds.
    round_trip: f64,
}

/// The rate of a source. Rates within are bytes a second of Ethernet frames.
#[derive(Clone, Debug)]
pub struct Sender {
    /// Packets sent; wraps around.
    number: u32,
    rate: f64,
    /// Bounds of the rate.
    least: f64,
    most: f64,
    /// Bytes of a frame.
    size: f64,
    slow_start: bool,
    /// When the rate was last raised.
    raised: Instant,
    limiting: Option<Limiting>,
    /// Longest round-trip time in the group, seconds.
    max_round_trip: f64,
    round: Round,
    held: heapless::Deque<Held, MAX_ECHOES>,
    /// Echoes with which a PACE is no longer than a data packet; at least one.
    most_echoes: usize,
    /// When a PACE is due, and when the last one was sent.
    due: Option<Instant>,
    last_pace: Option<Instant>,
    /// Without feedback until then the rate is halved, if packets were sent.
    silent_at: Instant,
    has_sent: bool,
    /// Since when the limiting receiver has held the rate too low.
    slow_since: Option<Instant>,
    /// Addresses of the last receivers that were given up for that.
    refused: heapless::Deque<SocketAddr, MAX_REFUSED>,
    /// The rate kept a packet from being sent since the last feedback of the limiting receiver.
    was_limit: bool,
}

fn most_echoes(frame_len: usize) -> usize {
    let room = frame_len.saturating_sub(FRAME_OVERHEAD + PACE_LEN + MAC_LEN);
    (room / ECHO_LEN).clamp(1, MAX_ECHOES)
}

fn clock(now: Instant) -> u32 {
    now.total_micros() as u32
}

/// Returns the feedback without the part of a rate above its rank.
fn at_most(rank: u64, feedback: &Feedback) -> Feedback {
    let mut feedback = *feedback;
    if let Some(received_bps) = rank.checked_sub(LOSSLESS) {
        feedback.received_bps = feedback.received_bps.min(received_bps);
    } else {
        feedback.rate_bps = feedback.rate_bps.min(rank);
    }
    feedback
}

fn bits(rate: f64) -> u64 {
    (8.0 * rate).min(1e18) as u64
}

impl Sender {
    /// Creates a source in slow start, for frames of `frame_len` bytes. The rate stays within `least_bps` and
    /// `most_bps`, bit/s.
    pub fn new(now: Instant, frame_len: usize, least_bps: u64, most_bps: u64) -> Self {
        let size = frame_len as f64;
        let least = (least_bps as f64 / 8.0).max(1.0);
        let most = (most_bps as f64 / 8.0).max(least);
        let mut sender = Sender {
            number: 0,
            rate: (INITIAL_PACKETS * size / INITIAL_ROUND_TRIP).clamp(least, most),
            least,
            most,
            size,
            slow_start: true,
            raised: now,
            limiting: None,
            max_round_trip: INITIAL_ROUND_TRIP,
            round: Round {
                number: 0,
                began: now,
                length: Duration::ZERO,
                is_answered: false,
                has_sent: false,
                lowest: f64::INFINITY,
                round_trip: 0.0,
            },
            held: heapless::Deque::new(),
            most_echoes: most_echoes(frame_len),
            due: Some(now),
            last_pace: None,
            silent_at: now,
            has_sent: false,
            slow_since: None,
            refused: heapless::Deque::new(),
            was_limit: false,
        };
        sender.wait_for_feedback(now);
        sender
    }

    /// Returns the rate in bit/s of Ethernet frames.
    pub fn rate_bps(&self) -> u64 {
        bits(self.rate)
    }

    /// Whether no receiver has told loss yet.
    pub fn is_slow_start(&self) -> bool {
        self.slow_start
    }

    /// Sets the highest rate, bit/s; `None`: none.
    pub fn set_highest(&mut self, most_bps: Option<u64>) {
        let most = most_bps.map_or(f64::MAX, |most| most as f64 / 8.0);
        self.most = most.max(1.0);
        self.least = self.least.min(self.most);
        self.rate = self.rate.min(self.most);
    }

    /// Returns the limiting receiver if it holds the rate below `least_bps`, and since when.
    fn too_slow(&self, least_bps: u64) -> Option<(Limiting, Instant)> {
        let limiting = self
            .limiting
            .filter(|limiting| limiting.rate_bps < least_bps)?;
        Some((limiting, self.slow_since?))
    }

    /// Returns when the limiting receiver is to be given up.
    pub fn too_slow_at(&self, least_bps: u64) -> Option<Instant> {
        self.too_slow(least_bps)
            .map(|(_, since)| since + super::TOO_SLOW)
    }

    /// Gives up the limiting receiver if it has held the rate below `least_bps` for too long, and returns it. Its
    /// feedback is refused from now on.
    pub fn refuse_too_slow(&mut self, now: Instant, least_bps: u64) -> Option<Limiting> {
        let Some(limiting) = self
            .limiting
            .filter(|limiting| limiting.rate_bps < least_bps)
        else {
            self.slow_since = None;
            return None;
        };
        let since = *self.slow_since.get_or_insert(now);
        if now < since + super::TOO_SLOW {
            return None;
        }
        if self.refused.is_full() {
            self.refused.pop_front();
        }
        let _ = self.refused.push_back(limiting.address);
        self.forget(now, limiting.address);
        Some(limiting)
    }

    /// Whether the receiver at this address was given up because it is too slow.
    pub fn is_refused(&self, address: SocketAddr) -> bool {
        self.refused.iter().any(|&refused| refused == address)
    }

    /// Returns the receiver whose rate the source follows.
    pub fn limiting(&self) -> Option<&Limiting> {
        self.limiting.as_ref()
    }

    /// A packet is sent to the group. Returns its number.
    #[inline]
    pub fn sent(&mut self) -> u32 {
        self.has_sent = true;
        self.round.has_sent = true;
        self.number = self.number.wrapping_add(1);
        self.number
    }

    /// A packet had to wait for the rate: the application is not the limit.
    #[inline]
    pub fn limited(&mut self) {
        self.was_limit = true;
    }

    /// Takes a feedback from an address that has proved itself.
    ///
    /// # Errors
    /// [`FeedbackError::Stale`]; nothing changed.
    pub fn handle_feedback(
        &mut self,
        now: Instant,
        from: SocketAddr,
        feedback: &Feedback,
    ) -> Result<(), FeedbackError> {
        self.take(now, from, None, feedback)
    }

    /// Takes a feedback of this rank that a relay passes on for the receivers below it, which relays held for `held_us`.
    /// To this source they are one receiver, whose identifier may change: the relay decides which of them limits.
    ///
    /// No rate counts above the rank, by which relays have suppressed those of other receivers.
    ///
    /// # Errors
    /// As [`Sender::handle_feedback`].
    pub fn handle_relayed_feedback(
        &mut self,
        now: Instant,
        relay: SocketAddr,
        rank: u64,
        held_us: u32,
        feedback: &Feedback,
    ) -> Result<(), FeedbackError> {
        let feedback = at_most(rank, feedback);
        self.take(now, relay, Some(held_us), &feedback)
    }

    /// `held_us` is `None` without relays.
    fn take(
        &mut self,
        now: Instant,
        from: SocketAddr,
        held_us: Option<u32>,
        feedback: &Feedback,
    ) -> Result<(), FeedbackError> {
        let elapsed = clock(now).wrapping_sub(feedback.echo_us);
        let is_relayed = held_us.is_some();
        let held_us = held_us.unwrap_or(0);
        let held = feedback.held_us.saturating_add(held_us);
        let is_old = f64::from(elapsed) / 1e6 > 2.0 * ROUND_TRIP_S.end();
        let sample = elapsed.checked_sub(held).filter(|_| !is_old);
        let sample = f64::from(sample.ok_or(FeedbackError::Stale)?) / 1e6;
        if sample > *ROUND_TRIP_S.end() {
            return Err(FeedbackError::Stale);
        }
        let sample = clamp_round_trip(sample);
        // Not by its identifier, which PACE tells to all.
        let is_limiting = |limiting: &Limiting| limiting.address == from;
        let known = self.limiting.filter(is_limiting);
        let same = known.filter(|limiting| limiting.receiver == feedback.receiver);
        let round_trip = same.map_or(sample, |limiting| {
            KEPT * seconds(limiting.round_trip) + (1.0 - KEPT) * sample
        });
        self.max_round_trip = self.max_round_trip.max(sample);
        self.round.round_trip = self.round.round_trip.max(sample);
        let sent = now - Duration::from_micros(u64::from(held_us));
        self.hold(now, sent, feedback, known.is_some());
        let mut rate = match feedback.rate_bps {
            u64::MAX => f64::INFINITY,
            rate => rate as f64 / 8.0,
        };
        if feedback.round_trip_us == 0 && !is_relayed {
            // It computed with the longest round-trip time of the group.
            rate *= self.max_round_trip / round_trip;
        }
        let teller = Limiting {
            receiver: feedback.receiver,
            address: from,
            rate_bps: if rate.is_finite() {
                bits(rate)
            } else {
                u64::MAX
            },
            received_bps: feedback.received_bps,
            loss: f64::from(feedback.loss) / 4_294_967_296.0,
            round_trip: duration(round_trip),
            heard: now,
        };
        let received = feedback.received_bps as f64 / 8.0;
        if self.slow_start && rate.is_infinite() {
            self.speed_up(now, teller, received, known.is_some());
            rate = received;
        } else {
            self.follow(now, teller, rate, known.is_some());
        }
        if same.is_none() {
            self.round.is_answered = true;
            self.end_round(now);
        }
        if feedback.round == self.round.number {
            self.round.lowest = self.round.lowest.min(rate);
        }
        self.wait_for_feedback(now);
        Ok(())
    }

    fn limits(&mut self, teller: Limiting) {
        if self
            .limiting
            .is_none_or(|limiting| limiting.address != teller.address)
        {
            self.slow_since = None;
        }
        self.limiting = Some(teller);
    }

    /// Slow start (§3.6): twice the lowest rate at which packets come.
    fn speed_up(&mut self, now: Instant, teller: Limiting, received: f64, is_limiting: bool) {
        let is_lower = |limiting: Limiting| teller.received_bps < limiting.received_bps;
        if !is_limiting && !self.limiting.is_none_or(is_lower) {
            return;
        }
        self.limits(teller);
        let was_limit = core::mem::take(&mut self.was_limit);
        // Once in the longest round-trip time, not in that of this receiver: a slower one answers within the round.
        if was_limit && now >= self.raised + duration(self.max_round_trip) {
            let most = (2.0 * received).min(self.most);
            self.rate = (2.0 * self.rate).min(most).max(self.rate);
            self.raised = now;
        }
    }

    /// Follows the limiting receiver, or a lower one that becomes it (§3.3).
    fn follow(&mut self, now: Instant, teller: Limiting, rate: f64, is_limiting: bool) {
        let is_lower = rate < self.rate || self.limiting.is_none();
        if !is_limiting && !is_lower {
            return;
        }
        self.slow_start = false;
        self.limits(teller);
        if rate <= self.rate {
            self.rate = rate.max(self.least);
            self.raised = now;
            self.was_limit = false;
            return;
        }
        if !core::mem::take(&mut self.was_limit) {
            self.raised = now;
            return;
        }
        // In the longest round-trip time at most an eighth, or a packet in each such time.
        let elapsed = seconds(now - self.raised) / self.max_round_trip;
        let step = (self.rate / GROWTH).max(self.size / self.max_round_trip);
        self.rate = (self.rate + step * elapsed.min(1.0))
            .min(rate)
            .min(self.most);
        self.raised = now;
    }

    /// Forgets a receiver that has left or has everything.
    pub fn forget(&mut self, now: Instant, address: SocketAddr) {
        if self
            .limiting
            .is_some_and(|limiting| limiting.address == address)
        {
            self.limiting = None;
            self.slow_since = None;
            self.begin_round(now);
        }
    }

    /// Keeps a timestamp to return, of a feedback that was `sent` here then. A PACE will tell all what comes of it.
    fn hold(&mut self, now: Instant, sent: Instant, feedback: &Feedback, is_limiting: bool) {
        let held = Held {
            receiver: feedback.receiver,
            stamp_us: feedback.stamp_us,
            at: sent,
        };
        self.pace_soon(now);
        let same = self
            .held
            .iter_mut()
            .find(|old| old.receiver == held.receiver);
        if let Some(old) = same {
            *old = held;
        } else if is_limiting {
            if self.held.is_full() {
                self.held.pop_back();
            }
            let _ = self.held.push_front(held);
        } else {
            // Without room it measures its round-trip time in a later round.
            let _ = self.held.push_back(held);
        }
    }

    fn begin_round(&mut self, now: Instant) {
        if self.round.round_trip > 0.0 {
            let decayed = DECAY * self.max_round_trip;
            self.max_round_trip = clamp_round_trip(decayed.max(self.round.round_trip));
        }
        self.round = Round {
            number: self.round.number.wrapping_add(1),
            began: now,
            length: Duration::ZERO,
            is_answered: false,
            has_sent: false,
            lowest: f64::INFINITY,
            round_trip: 0.0,
        };
        self.pace_soon(now);
    }

    /// Returns when the round ends; `None` before its first PACE and its first packet.
    fn round_end(&self) -> Option<Instant> {
        let round = &self.round;
        let is_open = round.has_sent && round.length > Duration::ZERO;
        let length = round.length * if round.is_answered { 1 } else { 2 };
        is_open.then(|| round.began + length)
    }

    fn end_round(&mut self, now: Instant) {
        if self.round_end().is_some_and(|end| end <= now) {
            self.begin_round(now);
        }
    }

    fn pace_soon(&mut self, now: Instant) {
        let share = duration(SHARE * (PACE_LEN + 100) as f64 / self.rate);
        let interval = share.max(LEAST_INTERVAL);
        let at = self
            .last_pace
            .map_or(now, |last| (last + interval).max(now));
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    fn wait_for_feedback(&mut self, now: Instant) {
        self.has_sent = false;
        let rounds = 4.0 * round_length(self.max_round_trip, super::MANY);
        let packets = 4.0 * self.size / self.rate;
        let silence = duration(rounds.max(packets)).max(LEAST_SILENCE);
        self.silent_at = now + silence;
    }

    /// Handles the passing of time.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(limiting) = self.limiting {
            let interval = limiting.round_trip.max(LEAST_INTERVAL);
            let silence = (interval * MISSED).max(LEAST_SILENCE);
            if self.has_sent && now >= limiting.heard + silence {
                self.limiting = None;
                self.begin_round(now);
            }
        }
        if self.has_sent && now >= self.silent_at {
            self.rate = (self.rate / 2.0).max(self.least);
            self.slow_start = false;
            self.wait_for_feedback(now);
        }
        self.end_round(now);
    }

    /// Returns when to call [`Sender::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        let silent_at = self.has_sent.then_some(self.silent_at);
        let round_end = self.round_end();
        silent_at.into_iter().chain(round_end).min()
    }

    /// Returns the length of the next PACE.
    pub fn pace_len(&self) -> usize {
        PACE_LEN + ECHO_LEN * self.held.len().min(self.most_echoes)
    }

    /// Returns when a PACE is due.
    pub fn pace_at(&self) -> Option<Instant> {
        self.due
    }

    /// Returns the PACE that is due, for at most so many `receivers`. The caller adds the session.
    pub fn poll_pace(&mut self, now: Instant, receivers: u32) -> Option<Pace> {
        self.due.filter(|due| *due <= now)?;
        self.due = None;
        self.last_pace = Some(now);
        if self.round.length == Duration::ZERO {
            let length = round_length(self.max_round_trip, receivers);
            self.round.began = now;
            self.round.length = duration(length + 2.0 * self.size / self.rate);
        }
        let mut echoes = heapless::Vec::new();
        for held in core::iter::from_fn(|| self.held.pop_front()).take(self.most_echoes) {
            let held_us = (now - held.at).total_micros();
            let _ = echoes.push(Echo {
                receiver: held.receiver,
                stamp_us: held.stamp_us,
                held_us: held_us.min(u64::from(u32::MAX)) as u32,
            });
        }
        if !self.held.is_empty() {
            self.pace_soon(now);
        }
        Some(Pace {
            session: crate::SessionId(0),
            round: self.round.number,
            slow_start: self.slow_start,
            stamp_us: clock(now),
            max_round_trip_us: (self.max_round_trip * 1e6) as u32,
            rate_bps: self.rate_bps().max(1),
            suppress_bps: if self.round.lowest.is_finite() {
                bits(self.round.lowest)
            } else {
                u64::MAX
            },
            limiting: self.limiting.map_or(0, |limiting| limiting.receiver),
            receivers,
            echoes,
        })
    }
}
