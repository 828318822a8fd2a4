//! The sender's side (RFC 5348 §4).

use proto_core::tfrc::throughput;
use proto_core::time::{Duration, Instant};

use crate::wire::report::Repr as Report;

/// Longest time between packets without feedback, in seconds (t_mbi).
const LONGEST_GAP_S: f64 = 64.0;
/// Longest round-trip time accepted as a sample.
const MAX_RTT_S: f64 = 60.0;

/// Send rate of one UDP channel.
#[derive(Clone, Debug)]
pub struct Sender {
    sequence: u32,
    /// Allowed rate X, bytes a second.
    rate: f64,
    /// Mean packet size s, bytes.
    size: f64,
    /// Round-trip time R, seconds, once measured.
    rtt: Option<f64>,
    loss: f64,
    /// Received rates in the last reports, with their times.
    received: [(f64, Instant); 2],
    doubled_at: Instant,
    nofeedback_at: Instant,
    /// Bytes that may be sent now; negative after a larger packet.
    credit: f64,
    credit_at: Instant,
    /// A packet had to wait since the last report: the application was not the limit.
    limited: bool,
    /// The receiver has reported that it is ready.
    is_ready: bool,
}

fn seconds(duration: Duration) -> f64 {
    duration.total_micros() as f64 / 1e6
}

fn duration(seconds: f64) -> Duration {
    Duration::from_micros((seconds * 1e6).clamp(0.0, 1e12) as u64)
}

impl Sender {
    /// Creates a sender for packets of about `size` bytes.
    #[must_use]
    pub fn new(now: Instant, size: usize) -> Self {
        let size = (size as f64).max(64.0);
        Sender {
            sequence: 0,
            rate: size,
            size,
            rtt: None,
            loss: 0.0,
            received: [(f64::INFINITY, now); 2],
            doubled_at: now,
            nofeedback_at: now + Duration::from_secs(2),
            credit: initial_window(size),
            credit_at: now,
            limited: false,
            is_ready: false,
        }
    }

    /// Handles the receiver's report that it is ready. Earlier packets may have been lost: before the first report,
    /// the initial window is restored once.
    pub fn ready(&mut self, now: Instant) {
        if !self.is_ready && self.rtt.is_none() {
            (self.credit, self.credit_at) = (initial_window(self.size), now);
            self.rate = self.size;
            self.nofeedback_at = now + Duration::from_secs(2);
        }
        self.is_ready = true;
    }

    /// Returns the allowed rate in bytes a second.
    #[must_use]
    pub fn rate(&self) -> u64 {
        self.rate as u64
    }

    /// Returns the round-trip time in microseconds; 0 while unknown.
    #[must_use]
    pub fn rtt_us(&self) -> u32 {
        self.rtt.map_or(0, |rtt| (rtt * 1e6) as u32)
    }

    /// Returns the number of the last packet; 0 before the first.
    pub(crate) fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Continues after the packets of another sender with the same label.
    pub(crate) fn set_sequence(&mut self, sequence: u32) {
        self.sequence = sequence;
    }

    /// Returns the number of the next packet.
    pub fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    fn refill(&mut self, now: Instant) {
        let burst = (self.rate * 0.01).max(2.0 * self.size);
        let earned = self.rate * seconds(now - self.credit_at);
        // The initial window is not removed before it is used.
        let most = burst.max(self.credit);
        self.credit = (self.credit + earned).min(most);
        self.credit_at = now;
    }

    /// Returns whether a packet may be sent now; if so, counts it.
    pub fn send(&mut self, now: Instant, len: usize) -> bool {
        self.handle_timeout(now);
        self.refill(now);
        if self.credit <= 0.0 {
            self.limited = true;
            return false;
        }
        self.credit -= len as f64;
        self.size = 0.9 * self.size + 0.1 * len as f64;
        true
    }

    /// Returns when the next packet may be sent: now, or at least a microsecond later.
    #[must_use]
    pub fn next_send(&self, now: Instant) -> Instant {
        if self.credit > 0.0 {
            return now;
        }
        // Rounded up: rounded down, a high rate would ask for the present again and again.
        let missing = (1.0 - self.credit) / self.rate.max(0.1);
        self.credit_at + duration(missing) + Duration::from_micros(1)
    }

    /// Handles a report (§4.3).
    pub fn report(&mut self, now: Instant, report: &Report) {
        let clock = now.total_micros() as u32;
        let sample =
            f64::from(clock.wrapping_sub(report.echo_us)) / 1e6 - f64::from(report.delay_us) / 1e6;
        // A forged or stale echo is no sample; the resolution of the clock is the minimum.
        if !(0.0..MAX_RTT_S).contains(&sample) {
            return;
        }
        let sample = sample.max(0.000_1);
        let first = self.rtt.is_none();
        let rtt = self.rtt.map_or(sample, |rtt| 0.9 * rtt + 0.1 * sample);
        self.rtt = Some(rtt);
        let loss = f64::from(report.loss) / 4_294_967_296.0;
        let limit = self.receive_limit(now, f64::from(report.received_rate), loss, rtt);
        let initial = initial_window(self.size) / rtt;
        if loss > 0.0 {
            let least = self.size / LONGEST_GAP_S;
            self.rate = throughput(self.size, rtt, loss).min(limit).max(least);
        } else if first {
            self.rate = initial;
            self.doubled_at = now;
        } else if seconds(now - self.doubled_at) >= rtt {
            self.rate = (2.0 * self.rate).min(limit).max(initial);
            self.doubled_at = now;
        }
        self.loss = loss;
        self.limited = false;
        self.arm(now);
    }

    /// Returns how far above the received rate the allowed rate may be (§4.3, step 4).
    fn receive_limit(&mut self, now: Instant, rate: f64, loss: f64, rtt: f64) -> f64 {
        let [(older, _), (newer, at)] = self.received;
        let most = |one: f64, other: f64| {
            if one.is_finite() {
                one.max(other)
            } else {
                other
            }
        };
        if self.limited {
            // The network or the pacing was the limit: use the received rate.
            let kept = if seconds(now - at) <= 2.0 * rtt {
                newer
            } else {
                f64::NEG_INFINITY
            };
            self.received = [(newer, at), (rate, now)];
            return 2.0 * most(kept, rate).max(rate);
        }
        if loss > self.loss {
            // More loss while the application was the limit: halve the earlier received rates.
            let halved = most(older / 2.0, newer / 2.0);
            let halved = if halved.is_finite() { halved } else { rate };
            let kept = halved.max(0.85 * rate);
            self.received = [(kept, now); 2];
            return kept;
        }
        let best = most(most(older, newer), rate).max(rate);
        self.received = [(best, now); 2];
        2.0 * best
    }

    fn arm(&mut self, now: Instant) {
        let rtt = self.rtt.unwrap_or(0.5);
        self.nofeedback_at = now + duration((4.0 * rtt).max(2.0 * self.size / self.rate));
    }

    /// Handles the passing of time: without a report the rate halves (§4.4).
    pub fn handle_timeout(&mut self, now: Instant) {
        if now < self.nofeedback_at {
            return;
        }
        self.rate = (self.rate / 2.0).max(self.size / LONGEST_GAP_S);
        self.arm(now);
    }

    /// Returns when to call [`Sender::handle_timeout`]; it is not needed while nothing is sent.
    #[must_use]
    pub fn poll_timeout(&self) -> Instant {
        self.nofeedback_at
    }
}

fn initial_window(size: f64) -> f64 {
    (4.0 * size).min((2.0 * size).max(4380.0))
}
