//! The receiver's side (RFC 5348 §5, §6).

use proto_core::time::{Duration, Instant};

use super::tcp_rate;
use crate::wire::report::Repr as Report;

/// Weights of loss intervals, the newest first (§5.4).
const WEIGHTS: [f64; 8] = [1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2];
/// Later packets after which one is lost (NDUPACK).
const LATER: u32 = 3;
/// Used until the sender knows the round-trip time.
const DEFAULT_RTT: Duration = Duration::from_millis(100);
/// Shortest time between two reports of one channel, except for the first.
const LEAST_INTERVAL: Duration = Duration::from_millis(1);

/// Loss history of one UDP channel.
#[derive(Clone, Debug)]
pub struct Receiver {
    /// Highest sequence number, and which of it and the 63 before have arrived (bit 0: the highest).
    highest: Option<u32>,
    seen: u64,
    /// All packets before this one are decided: received or lost.
    undecided: u32,
    /// First packet and start of the current loss interval.
    event: Option<(u32, Instant)>,
    /// Lengths of closed intervals in packets, the newest first.
    intervals: [f64; 8],
    count: usize,
    rtt: Duration,
    size: f64,
    /// Timestamp of the newest packet, and when it arrived.
    echo: (u32, Instant),
    /// Bytes since the last report, and the time of that report.
    bytes: u64,
    since: Instant,
    /// When to report; `None` if nothing has arrived since the last report.
    due: Option<Instant>,
    last_report: Option<Instant>,
}

impl Receiver {
    /// Creates a receiver before the first packet.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Receiver {
            highest: None,
            seen: 0,
            undecided: 0,
            event: None,
            intervals: [0.0; 8],
            count: 0,
            rtt: DEFAULT_RTT,
            size: 1000.0,
            echo: (0, now),
            bytes: 0,
            since: now,
            due: None,
            last_report: None,
        }
    }

    /// Handles a packet. Returns `false` if it is a duplicate, or too old to tell.
    pub fn receive(
        &mut self,
        now: Instant,
        sequence: u32,
        timestamp_us: u32,
        rtt_us: u32,
        len: usize,
    ) -> bool {
        let Some(highest) = self.highest else {
            self.highest = Some(sequence);
            self.seen = 1;
            self.undecided = sequence;
            self.take(now, timestamp_us, rtt_us, len);
            self.since = now;
            self.due = Some(now);
            return true;
        };
        let ahead = sequence.wrapping_sub(highest);
        if ahead > u32::MAX / 2 || ahead == 0 {
            let behind = highest.wrapping_sub(sequence);
            let bit = 1_u64.checked_shl(behind).unwrap_or(0);
            if bit == 0 || self.seen & bit != 0 {
                return false;
            }
            self.seen |= bit;
            self.take(now, timestamp_us, rtt_us, len);
            return true;
        }
        self.decide(now, sequence, ahead);
        self.seen = self.seen.checked_shl(ahead).unwrap_or(0) | 1;
        self.highest = Some(sequence);
        self.take(now, timestamp_us, rtt_us, len);
        true
    }

    fn take(&mut self, now: Instant, timestamp_us: u32, rtt_us: u32, len: usize) {
        if rtt_us > 0 {
            self.rtt = Duration::from_micros(rtt_us.into()).min(Duration::from_secs(60));
        }
        self.size = 0.9 * self.size + 0.1 * len as f64;
        self.echo = (timestamp_us, now);
        self.bytes += len as u64;
        let next = self
            .last_report
            .map_or(now, |last| last + self.rtt.max(LEAST_INTERVAL));
        self.due = Some(self.due.map_or(next, |due| due.min(next)));
    }

    /// Moves to a new highest `sequence`, `ahead` of the former one: packets at least three before it that have not
    /// arrived are lost. At most 64 are examined; older ones belong to the same gap.
    fn decide(&mut self, now: Instant, sequence: u32, ahead: u32) {
        let until = sequence.wrapping_sub(LATER);
        let many = until.wrapping_sub(self.undecided);
        if many > u32::MAX / 2 {
            return;
        }
        let first = if many > 64 {
            until.wrapping_sub(63)
        } else {
            self.undecided
        };
        if many > 64 {
            self.lost(now, self.undecided);
        }
        let mut one = first;
        while one != until.wrapping_add(1) {
            let behind = sequence.wrapping_sub(one);
            // The bits are still relative to the former highest.
            let bit = behind
                .checked_sub(ahead)
                .and_then(|back| 1_u64.checked_shl(back));
            if bit.is_none_or(|bit| self.seen & bit == 0) {
                self.lost(now, one);
            }
            one = one.wrapping_add(1);
        }
        self.undecided = until.wrapping_add(1);
    }

    /// Counts a lost packet: within a round trip of the start of a loss event it belongs to that event (§5.3).
    fn lost(&mut self, now: Instant, sequence: u32) {
        match self.event {
            Some((_, at)) if now < at + self.rtt => return,
            Some((start, _)) => self.close(f64::from(sequence.wrapping_sub(start)).max(1.0)),
            None => {
                let first = self.first_interval(now);
                self.close(first);
            }
        }
        self.event = Some((sequence, now));
        self.due = Some(now);
    }

    fn close(&mut self, length: f64) {
        self.intervals.rotate_right(1);
        self.intervals[0] = length;
        self.count = (self.count + 1).min(8);
    }

    /// The first interval corresponds to the received rate (§6.3.1).
    fn first_interval(&self, now: Instant) -> f64 {
        let rate = self.received_rate(now).max(1.0);
        let rtt = self.rtt.total_micros() as f64 / 1e6;
        let (mut low, mut high) = (1e-8, 1.0);
        for _ in 0..40 {
            let middle = libm::sqrt(low * high);
            if tcp_rate(self.size, rtt, middle) > rate {
                low = middle;
            } else {
                high = middle;
            }
        }
        1.0 / high
    }

    fn received_rate(&self, now: Instant) -> f64 {
        // Over at least a round trip: an early report says little about the rate.
        let time = (now - self.since).max(self.rtt.max(LEAST_INTERVAL));
        self.bytes as f64 * 1e6 / time.total_micros() as f64
    }

    /// Returns the loss event rate p (§5.4).
    #[must_use]
    pub fn loss(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let mean = |intervals: &mut dyn Iterator<Item = f64>| {
            let (mut total, mut weight) = (0.0, 0.0);
            for (interval, of) in intervals.zip(WEIGHTS) {
                total += interval * of;
                weight += of;
            }
            total / weight
        };
        let closed = || self.intervals[..self.count].iter().copied();
        let open = match (self.event, self.highest) {
            (Some((start, _)), Some(highest)) => f64::from(highest.wrapping_sub(start)),
            _ => 0.0,
        };
        let with_open = mean(&mut core::iter::once(open).chain(closed()).take(8));
        1.0 / mean(&mut closed()).max(with_open).max(1.0)
    }

    /// Returns the report if it is due.
    pub fn poll_report(&mut self, now: Instant) -> Option<Report> {
        self.due.filter(|due| *due <= now)?;
        let report = Report {
            echo_us: self.echo.0,
            delay_us: (now - self.echo.1).total_micros().min(u64::from(u32::MAX)) as u32,
            received_rate: self.received_rate(now).min(4e9) as u32,
            loss: (self.loss() * 4_294_967_295.0) as u32,
        };
        (self.due, self.last_report) = (None, Some(now));
        (self.bytes, self.since) = (0, now);
        Some(report)
    }

    /// Returns when a report is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }
}
