//! The receiver's side (RFC 4654 §4).

use proto_core::bucket::{RateLimit, TokenBucket};
use proto_core::tfrc::{Arrival, LossHistory, loss_at, throughput};
use proto_core::time::{Duration, Instant};

use super::{BIAS, LEAST_INTERVAL, SUPPRESSED, clamp_round_trip, duration, round_length, seconds};
use crate::wire::pace::{Echo, Feedback, Pace};

/// Share of an old estimate in a new one.
const KEPT: f64 = 0.9;

/// Answers of a receiver that does not limit the rate: a forged PACE makes all receivers answer.
const ANSWERS: RateLimit = RateLimit::new(4, 4);

/// What the newest PACE said.
#[derive(Clone, Copy, Debug)]
struct Heard {
    round: u16,
    slow_start: bool,
    /// Its timestamp, and when it came.
    stamp_us: u32,
    at: Instant,
    rate: f64,
    max_round_trip: f64,
    receivers: u32,
    limiting: bool,
}

/// A measured round-trip time.
#[derive(Clone, Copy, Debug)]
struct RoundTrip {
    /// Seconds.
    smoothed: f64,
    /// Apparent one-way delay from the source at the last measurement, microseconds; wraps around.
    one_way_us: u32,
    /// What the one-way delay has added to it since, seconds.
    added: f64,
}

/// The rate at which packets come.
#[derive(Clone, Copy, Debug, Default)]
struct Received {
    /// Frame bytes that came, and since when.
    bytes: u64,
    since: Instant,
    /// The rate before that, bytes a second.
    before: f64,
}

impl Received {
    /// Returns bytes a second, of a round trip at least: what is missing of that is filled with the rate before.
    fn rate(&self, now: Instant, round_trip: Duration) -> f64 {
        let time = seconds(now - self.since);
        let least = seconds(round_trip.max(Duration::from_millis(1)));
        let before = self.before * (least - time).max(0.0);
        (self.bytes as f64 + before) / time.max(least)
    }

    fn restart(&mut self, now: Instant, round_trip: Duration) {
        *self = Received {
            bytes: 0,
            since: now,
            before: self.rate(now, round_trip),
        };
    }
}

/// Measures loss and round-trip time of one receiver, and tells the source which rate it can have.
#[derive(Clone, Debug)]
pub struct Receiver {
    history: LossHistory,
    /// Losses within this time belong to one event.
    event: Duration,
    /// The same for the first event, at the end of slow start.
    overshoot: Duration,
    /// Frame length, bytes; 0: none yet.
    size: f64,
    received: Received,
    heard: Option<Heard>,
    round_trip: Option<RoundTrip>,
    /// When feedback is due.
    due: Option<Instant>,
    last_feedback: Option<Instant>,
    /// Timestamps of the last feedbacks: another one that is echoed is forged.
    stamps: [Option<u32>; 2],
    /// The rate at the start of the round. One that falls meanwhile, as that of all may, is not told (§4.5).
    round_rate: f64,
    /// A packet came since the last feedback.
    has_news: bool,
    answers: TokenBucket,
}

impl Default for Receiver {
    fn default() -> Self {
        Self::new()
    }
}

fn clock(now: Instant) -> u32 {
    now.total_micros() as u32
}

impl Receiver {
    /// Creates a receiver that nothing has reached yet.
    pub fn new() -> Self {
        Receiver {
            history: LossHistory::default(),
            event: Duration::ZERO,
            overshoot: Duration::ZERO,
            size: 0.0,
            received: Received::default(),
            heard: None,
            round_trip: None,
            due: None,
            last_feedback: None,
            stamps: [None; 2],
            round_rate: 0.0,
            has_news: false,
            answers: TokenBucket::FULL,
        }
    }

    /// Whether the source has congestion control.
    #[inline]
    pub fn is_used(&self) -> bool {
        self.heard.is_some()
    }

    /// Takes a packet that the source sent to the group under this number, in a frame of `len` bytes.
    #[inline]
    pub fn receive(&mut self, now: Instant, number: u32, len: usize) {
        if self.size == 0.0 {
            (self.size, self.event) = (len as f64, duration(self.round_trip_s()));
            self.received.since = now;
        }
        let (size, round_trip, received) = (self.size, self.event, self.received);
        // The first interval corresponds to the received rate.
        let first = || {
            let rate = received.rate(now, round_trip).max(1.0);
            1.0 / loss_at(size, seconds(round_trip), rate)
        };
        let event = round_trip.max(self.overshoot);
        let arrival = self.history.receive(now, number, event, first);
        if arrival == Arrival::LossEvent {
            // The source learns of the end of slow start a round trip late, after it has doubled its rate once more,
            // and the queue has grown by a round trip: losses until then are the same event.
            let is_slow_start = self.heard.is_some_and(|heard| heard.slow_start);
            self.overshoot = round_trip * if is_slow_start { 3 } else { 0 };
        }
        if arrival == Arrival::Old {
            return;
        }
        self.received.bytes += len as u64;
        let is_first = !core::mem::replace(&mut self.has_news, true);
        if is_first && self.is_limiting() {
            self.answer_at(now);
        }
    }

    /// Takes the source's PACE. `id` is this receiver's identifier; `chance` is uniform in 0 to 1.
    pub fn handle_pace(&mut self, now: Instant, pace: &Pace, id: u64, chance: f64) {
        let one_way_us = clock(now).wrapping_sub(pace.stamp_us);
        let is_mine =
            |echo: &&Echo| echo.receiver == id && self.stamps.contains(&Some(echo.stamp_us));
        if let Some(echo) = pace.echoes.iter().find(is_mine) {
            let elapsed = clock(now).wrapping_sub(echo.stamp_us);
            self.measured(elapsed.wrapping_sub(echo.held_us), one_way_us);
        } else if let Some(round_trip) = &mut self.round_trip {
            // The way back is taken not to have changed.
            let added = one_way_us.wrapping_sub(round_trip.one_way_us).cast_signed();
            round_trip.added = f64::from(added) / 1e6;
        }
        let before = self.heard;
        let heard = Heard {
            round: pace.round,
            slow_start: pace.slow_start,
            stamp_us: pace.stamp_us,
            at: now,
            rate: pace.rate_bps as f64 / 8.0,
            max_round_trip: clamp_round_trip(f64::from(pace.max_round_trip_us) / 1e6),
            receivers: pace.receivers,
            limiting: pace.limiting == id,
        };
        self.heard = Some(heard);
        self.event = duration(self.round_trip_s());
        if heard.limiting {
            self.answer_at(now);
            return;
        }
        if now >= self.received.since + self.event.max(LEAST_INTERVAL) {
            // The rate now, not since the last feedback, which may be long ago.
            self.received.restart(now, self.event);
        }
        if before.is_none_or(|before| before.limiting || before.round != heard.round) {
            self.round_rate = self.rate(now);
            self.due = Some(now + duration(self.wait(&heard, chance)));
        }
        let lowest = pace.suppress_bps as f64 / 8.0;
        let is_suppressed = pace.suppress_bps != u64::MAX && self.round_rate >= SUPPRESSED * lowest;
        if is_suppressed {
            self.due = None;
        }
    }

    /// Returns the time until feedback in this round (§4.5), in seconds.
    fn wait(&self, heard: &Heard, chance: f64) -> f64 {
        let length = round_length(heard.max_round_trip, heard.receivers);
        let receivers = libm::log(f64::from(heard.receivers.max(1)));
        if receivers < libm::log(super::ANSWERS) {
            return 0.0;
        }
        let ratio = self.round_rate / heard.rate;
        let rate = (ratio.clamp(0.5, 0.9) - 0.5) / 0.4;
        let chosen = (1.0 + libm::log(chance.clamp(1e-9, 1.0)) / receivers).max(0.0);
        length * (BIAS * rate + (1.0 - BIAS) * chosen)
    }

    /// The source has given this receiver its token: the last feedback was dropped, and is sent again.
    pub fn token_came(&mut self, now: Instant) {
        if self.last_feedback.is_some() {
            self.has_news = true;
            self.due = Some(now);
        }
    }

    /// The limiting receiver answers once in a round trip.
    fn answer_at(&mut self, now: Instant) {
        let interval = duration(self.round_trip_s()).max(LEAST_INTERVAL);
        let at = self
            .last_feedback
            .map_or(now, |last| (last + interval).max(now));
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    fn measured(&mut self, sample_us: u32, one_way_us: u32) {
        let sample = f64::from(sample_us) / 1e6;
        // A forged or stale echo is no sample.
        if sample > *super::ROUND_TRIP_S.end() {
            return;
        }
        let sample = clamp_round_trip(sample);
        let smoothed = match self.round_trip {
            // From where one-way delays have moved it to: a queue may have filled since the last sample.
            Some(_) => KEPT * self.round_trip_s() + (1.0 - KEPT) * sample,
            None => {
                // Losses were gathered to events by an assumed time; the rate they stand for is the same.
                let factor = self.round_trip_s() / sample;
                self.history.scale(1.0 / (factor * factor));
                sample
            }
        };
        self.round_trip = Some(RoundTrip {
            smoothed,
            one_way_us,
            added: 0.0,
        });
    }

    /// Returns the round-trip time in seconds: the longest in the group until it was measured.
    fn round_trip_s(&self) -> f64 {
        match (&self.round_trip, &self.heard) {
            (Some(round_trip), _) => clamp_round_trip(round_trip.smoothed + round_trip.added),
            (None, Some(heard)) => heard.max_round_trip,
            (None, None) => 0.1,
        }
    }

    fn is_limiting(&self) -> bool {
        self.heard.is_some_and(|heard| heard.limiting)
    }

    /// Returns the rate that this receiver can have, bytes a second; in slow start the rate at which packets come.
    fn rate(&self, now: Instant) -> f64 {
        let is_slow_start = self.heard.is_some_and(|heard| heard.slow_start);
        match self.calculated_rate() {
            None if is_slow_start => self.received.rate(now, self.event),
            rate => rate.unwrap_or(f64::INFINITY),
        }
    }

    /// Returns the rate by the throughput equation, bytes a second; `None` before the first loss.
    fn calculated_rate(&self) -> Option<f64> {
        let loss = self.history.loss_event_rate();
        (loss > 0.0).then(|| throughput(self.size, self.round_trip_s(), loss))
    }

    /// Returns the loss event rate, 0 to 1.
    pub fn loss_event_rate(&self) -> f64 {
        self.history.loss_event_rate()
    }

    /// Returns the feedback that is due. The caller adds session, identifier and token.
    pub fn poll_feedback(&mut self, now: Instant) -> Option<Feedback> {
        self.due.filter(|due| *due <= now)?;
        self.due = None;
        let heard = self.heard?;
        if !self.has_news || !heard.limiting && !self.answers.take(now, &ANSWERS) {
            return None;
        }
        let calculated = self.calculated_rate();
        let loss = (self.history.loss_event_rate() * 4_294_967_295.0) as u32;
        let bits = |rate: f64| (8.0 * rate).min(1e15) as u64;
        let feedback = Feedback {
            session: crate::SessionId(0),
            round: heard.round,
            receiver: 0,
            token: 0,
            stamp_us: clock(now),
            echo_us: heard.stamp_us,
            held_us: (now - heard.at).total_micros().min(u64::from(u32::MAX)) as u32,
            round_trip_us: self
                .round_trip
                .map_or(0, |_| (self.round_trip_s() * 1e6) as u32),
            loss: if calculated.is_some() { loss.max(1) } else { 0 },
            rate_bps: calculated.map_or(u64::MAX, bits),
            received_bps: bits(self.received.rate(now, self.event)),
        };
        self.last_feedback = Some(now);
        self.has_news = false;
        self.stamps = [Some(feedback.stamp_us), self.stamps[0]];
        self.received.restart(now, self.event);
        Some(feedback)
    }

    /// Returns the order of this feedback among those of other receivers, of which relays pass on the lowest: the rate
    /// in bit/s. In slow start the rate at which packets come counts, after that of all receivers that lost packets.
    pub fn rank(&self, feedback: &Feedback) -> u64 {
        let is_slow_start = self.heard.is_some_and(|heard| heard.slow_start);
        match feedback.rate_bps {
            u64::MAX if is_slow_start => super::LOSSLESS + feedback.received_bps,
            rate => rate,
        }
    }

    /// Returns when feedback is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }
}
