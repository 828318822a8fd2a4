//! Slows down when receivers cannot follow.
//!
//! The sender's window keeps it from running ahead of the slowest receiver that reports; it does not
//! see a link on the way that carries less than this host sends. The measure is how much of what was sent in an interval one receiver asked for
//! again, averaged over those that asked: it does not grow with the number of receivers, as the
//! number of requests does.

use std::collections::HashSet;
use std::net::SocketAddr;

use ltp::{Duration, Instant};

/// How long packets and requests are counted before the rate changes.
const INTERVAL: Duration = Duration::from_millis(50);
/// The same before the first loss, while the rate doubles.
const PROBE_INTERVAL: Duration = Duration::from_millis(30);
/// Without a set rate: where it starts, bit/s. A slow link on the way then loses a few megabytes, not a
/// whole window, before the first requests come, and a fast host is at 4 Gbit/s after 90 ms.
const START: u64 = 500_000_000;
/// What the first loss leaves of the rate: the requests that tell of it are two or three doublings
/// old.
const FIRST_CUT: u64 = 8;
/// Fewer packets than these say nothing.
const LEAST_PACKETS: u64 = 64;
/// Without a set rate: what it never falls below, bit/s.
const FLOOR: u64 = 20_000_000;
/// As good as no limit, bit/s.
const CEILING: u64 = 100_000_000_000;
/// After slowing down, the next time only when an interval was without loss in between, or so much
/// later: the backlog of repairs tells nothing about the new rate.
const PAUSE: Duration = Duration::from_secs(1);
/// Requesters told apart in one interval.
const MOST_REQUESTERS: usize = 4096;

/// What was counted since the start of the interval.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Data packets sent.
    pub(crate) sent: u64,
    /// Packets asked for again.
    pub(crate) requested: u64,
    /// Ethernet frame bytes sent.
    pub(crate) frame_bytes: u64,
}

/// Additive increase (multiplicative until the first loss), multiplicative decrease.
#[derive(Debug)]
pub(crate) struct RateControl {
    set: Option<u64>,
    ceiling: u64,
    floor: u64,
    rate: u64,
    /// A receiver that misses more than so many hundredths slows the sender.
    tolerated_percent: u64,
    probing: bool,
    since: Counts,
    started: Instant,
    paused_until: Instant,
    requesters: HashSet<SocketAddr>,
}

impl RateControl {
    /// Below a rate the user set (`set`) only heavy loss slows the sender, and never below an eighth of
    /// it. Without one receivers' reports are the first to hold the sender back.
    pub(crate) fn new(set: Option<u64>, now: Instant) -> Self {
        let ceiling = set.unwrap_or(CEILING);
        RateControl {
            set,
            ceiling,
            floor: set.map_or(FLOOR, |rate| (rate / 8).max(1)),
            rate: set.unwrap_or(START),
            tolerated_percent: if set.is_some() { 25 } else { 4 },
            probing: true,
            since: Counts::default(),
            started: now,
            paused_until: now,
            requesters: HashSet::new(),
        }
    }

    /// The rate now, bit/s; `None` while nothing limits it.
    pub(crate) fn rate(&self) -> Option<u64> {
        (self.rate < CEILING).then_some(self.rate)
    }

    /// A packet came from this receiver.
    pub(crate) fn heard(&mut self, from: SocketAddr) {
        if self.requesters.len() < MOST_REQUESTERS {
            self.requesters.insert(from);
        }
    }

    /// Looks at the counters now and then; whether the rate changed.
    pub(crate) fn update(&mut self, now: Instant, counts: Counts) -> bool {
        let elapsed = now - self.started;
        let interval = if self.probing && self.set.is_none() {
            PROBE_INTERVAL
        } else {
            INTERVAL
        };
        if elapsed < interval {
            return false;
        }
        let sent = counts.sent - self.since.sent;
        let requested = counts.requested - self.since.requested;
        if sent + requested == 0 {
            // Time in which nothing was sent says nothing about what can be.
            self.started = now;
        }
        if sent + requested < LEAST_PACKETS {
            return false;
        }
        let bits = 8_000_000 * (counts.frame_bytes - self.since.frame_bytes);
        let achieved = bits / elapsed.total_micros().max(1);
        let requesters = (self.requesters.len() as u64).max(1);
        self.started = now;
        self.since = counts;
        self.requesters.clear();
        let percent = 100 * requested / requesters / sent.max(1);
        let old = self.rate;
        if percent <= self.tolerated_percent {
            self.paused_until = now;
            self.speed_up(achieved);
        } else if now >= self.paused_until {
            self.paused_until = now + PAUSE;
            // What was not reached need not be taken back step by step.
            let reached = self.rate.min(achieved.max(1));
            let first = std::mem::take(&mut self.probing);
            self.rate = match self.set {
                Some(_) => reached / 10 * 7,
                None if first => reached / FIRST_CUT,
                None => reached / 10 * 8,
            }
            .max(self.floor);
        }
        self.rate != old
    }

    fn speed_up(&mut self, achieved: u64) {
        if achieved < self.rate / 2 {
            // Something else holds the sender back; more would only be a burst later.
            return;
        }
        if self.probing {
            self.rate = self.rate.saturating_mul(2).min(self.ceiling);
        } else {
            let step = self.set.map_or(self.rate / 32, |set| set / 50);
            self.rate = (self.rate + step.max(1)).min(self.ceiling);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(intervals: u64) -> Instant {
        Instant::from_millis(1000 + 50 * intervals as i64)
    }

    /// Counters after so many intervals of 100 Mbit/s.
    fn counts(intervals: u64, sent: u64, requested: u64) -> Counts {
        Counts {
            sent,
            requested,
            frame_bytes: 625_000 * intervals,
        }
    }

    #[test]
    fn a_set_rate_stands_against_ordinary_loss_of_many_receivers() {
        let mut control = RateControl::new(Some(100_000_000), after(0));
        for receiver in 0..100 {
            control.heard(SocketAddr::from(([10, 0, 0, receiver], 1)));
        }
        // Each of 100 receivers misses 1 %.
        assert!(!control.update(after(1), counts(1, 400, 400)));
    }

    #[test]
    fn heavy_loss_slows_and_its_end_restores() {
        let mut control = RateControl::new(Some(100_000_000), after(0));
        control.heard(SocketAddr::from(([10, 0, 0, 1], 1)));
        assert!(control.update(after(1), counts(1, 400, 200)));
        assert_eq!(control.rate(), Some(70_000_000));
        for interval in 2..200 {
            control.update(after(interval), counts(interval, 400 * interval, 200));
        }
        assert_eq!(control.rate(), Some(100_000_000));
    }

    #[test]
    fn never_below_the_floor() {
        let mut control = RateControl::new(None, after(0));
        for interval in 1..400 {
            control.update(
                after(interval),
                counts(interval, 100 * interval, 100 * interval),
            );
        }
        assert_eq!(control.rate(), Some(FLOOR));
    }

    #[test]
    fn without_a_set_rate_it_doubles_until_the_first_loss_and_creeps_from_then_on() {
        let mut control = RateControl::new(None, after(0));
        assert_eq!(control.rate(), Some(START));
        assert!(control.update(after(1), counts(5, 2500, 0)));
        assert_eq!(control.rate(), Some(2 * START));
        // A tenth of 1 Gbit/s was asked for again.
        assert!(control.update(after(2), counts(15, 7500, 500)));
        assert_eq!(control.rate(), Some(2 * START / 8));
        // The backlog of repairs.
        assert!(!control.update(after(3), counts(16, 8000, 1000)));
        assert!(control.update(after(4), counts(17, 8500, 1000)));
        assert_eq!(control.rate(), Some(2 * START / 8 / 32 * 33));
        assert!(control.update(after(5), counts(18, 9000, 1100)));
        assert_eq!(control.rate(), Some(80_000_000));
    }

    #[test]
    fn what_the_sender_does_not_reach_is_not_doubled() {
        let mut control = RateControl::new(None, after(0));
        assert!(!control.update(after(1), counts(0, 0, 0)));
        assert!(!control.update(after(2), counts(0, 100, 0)));
        assert_eq!(control.rate(), Some(START));
    }
}
