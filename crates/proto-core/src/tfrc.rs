//! What TFRC (RFC 5348) and TFMCC (RFC 4654) share: the throughput equation of TCP, and the loss history of a
//! receiver. Without heap; `f64` and the functions of `libm`, so that all machines compute the same.
//!
//! ```
//! use proto_core::tfrc::{Arrival, LossHistory, throughput};
//! use proto_core::time::{Duration, Instant};
//!
//! let round_trip = Duration::from_millis(100);
//! let mut history = LossHistory::default();
//! for sequence in (0..300).filter(|sequence| sequence % 100 != 99) {
//!     let now = Instant::from_millis(10 * i64::from(sequence));
//!     let arrival = history.receive(now, sequence, round_trip, || 100.0);
//!     assert_ne!(arrival, Arrival::Old);
//! }
//! assert!((history.loss_event_rate() - 0.01).abs() < 1e-9);
//! // A TCP with these segments, this round-trip time and this loss sends 164 kB a second.
//! assert_eq!(throughput(1460.0, 0.1, history.loss_event_rate()) as u64 / 1000, 164);
//! ```

use crate::time::{Duration, Instant};

/// Weights of loss intervals, the newest first (RFC 5348 §5.4).
const WEIGHTS: [f64; 8] = [1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2];
/// Later packets after which one is lost (`NDUPACK`, RFC 5348 §5.1).
const LATER: u32 = 3;
/// Packets that one search for losses looks at. Those before them belong to the same gap.
const WINDOW: u32 = u64::BITS;

/// Returns the rate of a TCP in bytes a second (RFC 5348 §3.1, RFC 4654 §2.1): segments of `size` bytes, a round-trip
/// time of `round_trip_s` seconds, loss event rate `loss` (0 to 1; 0 gives infinity). The timeout is four round trips,
/// and every segment is acknowledged.
#[must_use]
pub fn throughput(size: f64, round_trip_s: f64, loss: f64) -> f64 {
    let timeout = 12.0 * libm::sqrt(loss * 3.0 / 8.0) * loss * (1.0 + 32.0 * loss * loss);
    size / (round_trip_s * (libm::sqrt(loss * 2.0 / 3.0) + timeout))
}

/// Returns the loss event rate at which [`throughput`] is `rate` bytes a second, 10^-16 to 1.
#[must_use]
pub fn loss_at(size: f64, round_trip_s: f64, rate: f64) -> f64 {
    let (mut low, mut high) = (1e-16, 1.0);
    // Each step halves the ratio's logarithm: to one part in 10^10.
    for _ in 0..40 {
        let middle = libm::sqrt(low * high);
        if throughput(size, round_trip_s, middle) > rate {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// What a packet was to a [`LossHistory`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// It had come before, or is too old to tell.
    Old,
    /// It is new.
    New,
    /// It is new, and shows that others are lost: a loss event begins.
    LossEvent,
}

/// Which packets of a sender have come, and the lengths of the last loss intervals. 120 bytes.
#[derive(Clone, Debug, Default)]
pub struct LossHistory {
    /// Highest sequence number, and which of it and the 63 before have arrived (bit 0: the highest).
    highest: Option<u32>,
    seen: u64,
    /// All packets before this one are decided: received or lost.
    undecided: u32,
    /// First packet and start of the current loss interval.
    event: Option<(u32, Instant)>,
    /// Lengths of closed intervals in packets, the newest first.
    intervals: [f64; 8],
    count: u8,
}

impl LossHistory {
    /// Takes a packet; sequence numbers wrap around. Losses within a `round_trip` belong to one event (RFC 5348 §5.3).
    /// The interval before the first loss is what `first` returns, in packets (RFC 5348 §6.3.1).
    pub fn receive(
        &mut self,
        now: Instant,
        sequence: u32,
        round_trip: Duration,
        first: impl FnOnce() -> f64,
    ) -> Arrival {
        let Some(highest) = self.highest else {
            (self.highest, self.seen, self.undecided) = (Some(sequence), 1, sequence);
            return Arrival::New;
        };
        let ahead = sequence.wrapping_sub(highest);
        if ahead == 0 || ahead > u32::MAX / 2 {
            let bit = 1_u64.checked_shl(highest.wrapping_sub(sequence));
            let Some(bit) = bit.filter(|bit| self.seen & bit == 0) else {
                return Arrival::Old;
            };
            self.seen |= bit;
            return Arrival::New;
        }
        self.highest = Some(sequence);
        self.seen = self.seen.checked_shl(ahead).unwrap_or(0) | 1;
        if self.decide(now, sequence, round_trip, first) {
            Arrival::LossEvent
        } else {
            Arrival::New
        }
    }

    /// Decides which packets are lost: those that have not come although three later ones would have been sent.
    fn decide(
        &mut self,
        now: Instant,
        sequence: u32,
        round_trip: Duration,
        first: impl FnOnce() -> f64,
    ) -> bool {
        let end = sequence.wrapping_sub(LATER - 1);
        let open = end.wrapping_sub(self.undecided);
        if open > u32::MAX / 2 {
            return false;
        }
        let looked_at = open.min(WINDOW - LATER);
        // The oldest that is lost starts the event, the later ones are within a round trip of it.
        let oldest = if open > looked_at {
            Some(self.undecided)
        } else {
            let back = (0..looked_at).rev().map(|step| LATER + step);
            let lost = back.into_iter().find(|back| self.seen & 1 << back == 0);
            lost.map(|back| sequence.wrapping_sub(back))
        };
        self.undecided = end;
        oldest.is_some_and(|oldest| self.lost(now, oldest, round_trip, first))
    }

    /// Counts a lost packet. Returns whether a loss event begins with it.
    fn lost(
        &mut self,
        now: Instant,
        sequence: u32,
        round_trip: Duration,
        first: impl FnOnce() -> f64,
    ) -> bool {
        let length = match self.event {
            Some((_, at)) if now < at + round_trip => return false,
            Some((start, _)) => f64::from(sequence.wrapping_sub(start)),
            None => first(),
        };
        self.intervals.rotate_right(1);
        self.intervals[0] = length.max(1.0);
        self.count = (self.count + 1).min(WEIGHTS.len() as u8);
        self.event = Some((sequence, now));
        true
    }

    /// Returns the loss event rate (RFC 5348 §5.4), 0 before the first loss.
    #[must_use]
    pub fn loss_event_rate(&self) -> f64 {
        let (Some((start, _)), Some(highest)) = (self.event, self.highest) else {
            return 0.0;
        };
        let mean = |intervals: &mut dyn Iterator<Item = f64>| {
            let (mut total, mut weight) = (0.0, 0.0);
            for (interval, of) in intervals.zip(WEIGHTS) {
                total += interval * of;
                weight += of;
            }
            total / weight
        };
        let closed = || self.intervals[..usize::from(self.count)].iter().copied();
        let open = f64::from(highest.wrapping_sub(start));
        let with_open = mean(&mut core::iter::once(open).chain(closed()));
        1.0 / mean(&mut closed()).max(with_open)
    }

    /// Multiplies the lengths of all closed intervals: a round-trip time that was assumed has been measured, and with
    /// it the first interval is another (RFC 4654 §4.4).
    pub fn scale(&mut self, factor: f64) {
        for interval in &mut self.intervals {
            *interval = (*interval * factor).max(1.0);
        }
    }
}
