//! The receiver's side (RFC 5348 §5, §6).

use proto_core::tfrc::{Arrival, LossHistory, loss_at};
use proto_core::time::{Duration, Instant};

use crate::wire::report::Repr as Report;

/// Used until the sender knows the round-trip time.
const DEFAULT_RTT: Duration = Duration::from_millis(100);
/// Shortest time between two reports of one channel, except for the first.
const LEAST_INTERVAL: Duration = Duration::from_millis(1);

/// Bytes since the last report, and the time of that report.
#[derive(Clone, Copy, Debug)]
struct Received {
    bytes: u64,
    since: Instant,
}

impl Received {
    /// Returns bytes a second, over at least a round trip: an early report says little about the rate.
    fn rate(&self, now: Instant, round_trip: Duration) -> f64 {
        let time = (now - self.since).max(round_trip).max(LEAST_INTERVAL);
        self.bytes as f64 * 1e6 / time.total_micros() as f64
    }
}

/// Loss history of one UDP channel.
#[derive(Clone, Debug)]
pub struct Receiver {
    history: LossHistory,
    /// A packet has come.
    has_begun: bool,
    rtt: Duration,
    size: f64,
    /// Timestamp of the newest packet, and when it arrived.
    echo: (u32, Instant),
    received: Received,
    /// When to report; `None` if nothing has arrived since the last report.
    due: Option<Instant>,
    last_report: Option<Instant>,
}

impl Receiver {
    /// Creates a receiver before the first packet.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Receiver {
            history: LossHistory::default(),
            has_begun: false,
            rtt: DEFAULT_RTT,
            size: 1000.0,
            echo: (0, now),
            received: Received {
                bytes: 0,
                since: now,
            },
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
        let (size, round_trip, received) = (self.size, self.rtt, self.received);
        // The first interval corresponds to the received rate (§6.3.1).
        let first = || {
            let rate = received.rate(now, round_trip).max(1.0);
            1.0 / loss_at(size, round_trip.total_micros() as f64 / 1e6, rate)
        };
        let arrival = self.history.receive(now, sequence, round_trip, first);
        if arrival == Arrival::Old {
            return false;
        }
        if arrival == Arrival::LossEvent {
            self.due = Some(now);
        }
        self.take(now, timestamp_us, rtt_us, len);
        if !core::mem::replace(&mut self.has_begun, true) {
            self.received.since = now;
            self.due = Some(now);
        }
        true
    }

    fn take(&mut self, now: Instant, timestamp_us: u32, rtt_us: u32, len: usize) {
        if rtt_us > 0 {
            self.rtt = Duration::from_micros(rtt_us.into()).min(Duration::from_secs(60));
        }
        self.size = 0.9 * self.size + 0.1 * len as f64;
        self.echo = (timestamp_us, now);
        self.received.bytes += len as u64;
        let next = self
            .last_report
            .map_or(now, |last| last + self.rtt.max(LEAST_INTERVAL));
        self.due = Some(self.due.map_or(next, |due| due.min(next)));
    }

    /// Returns the round-trip time as its sender knows it.
    #[must_use]
    pub fn rtt(&self) -> Duration {
        self.rtt
    }

    /// Returns the loss event rate p (§5.4).
    #[must_use]
    pub fn loss(&self) -> f64 {
        self.history.loss_event_rate()
    }

    /// Returns the report if it is due.
    pub fn poll_report(&mut self, now: Instant) -> Option<Report> {
        self.due.filter(|due| *due <= now)?;
        let report = Report {
            echo_us: self.echo.0,
            delay_us: (now - self.echo.1).total_micros().min(u64::from(u32::MAX)) as u32,
            received_rate: self.received.rate(now, self.rtt).min(4e9) as u32,
            loss: (self.loss() * 4_294_967_295.0) as u32,
        };
        (self.due, self.last_report) = (None, Some(now));
        self.received = Received {
            bytes: 0,
            since: now,
        };
        Some(report)
    }

    /// Returns when a report is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }
}
