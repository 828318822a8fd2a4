//! Slows down when receivers cannot follow.
//!
//! The sender's window keeps it from running ahead of the slowest receiver that reports; it does not
//! see a link on the way that carries less than this host sends. The measure is how much of what was
//! sent in an interval one receiver asked for again, averaged over those that asked: it does not grow
//! with the number of receivers, as the number of requests does.
//!
//! | phase | without loss, each interval | loss |
//! | --- | --- | --- |
//! | doubling | x 2 | / 8: what tells of it is two or three doublings old |
//! | closing in | + 1/4 | less what was lost, and a tenth |
//! | creeping | + 1/32 | less what was lost, a fifth at least |
//!
//! A rate that the user set starts in the last phase, with steps of its own.

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
/// The most that is taken off the rate at once, in hundredths: a backlog of requests tells of more than
/// was lost.
const MOST_CUT: u64 = 50;
/// Fewer packets than these say nothing.
const LEAST_PACKETS: u64 = 64;
/// Without a set rate: what it never falls below, bit/s.
const FLOOR: u64 = 1_000_000;
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

/// How it looks for the rate that the slowest link on the way carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing was lost yet.
    Doubling,
    /// Back up from far below, until something is lost again.
    Closing,
    /// About right.
    Creeping,
}

/// Up in steps that depend on the phase, down by what was lost.
#[derive(Debug)]
pub(crate) struct RateControl {
    set: Option<u64>,
    ceiling: u64,
    floor: u64,
    rate: u64,
    /// A receiver that misses more than so many hundredths slows the sender.
    tolerated_percent: u64,
    phase: Phase,
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
            phase: if set.is_some() {
                Phase::Creeping
            } else {
                Phase::Doubling
            },
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
        let interval = if self.phase == Phase::Doubling {
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
            self.slow_down(achieved, percent);
        }
        self.rate != old
    }

    /// `percent` of what was sent was lost.
    fn slow_down(&mut self, achieved: u64, percent: u64) {
        // What was not reached need not be taken back step by step.
        let reached = self.rate.min(achieved.max(1));
        let less = |percent: u64| reached / 100 * (100 - percent);
        let rate = match (self.set, self.phase) {
            (Some(_), _) => reached / 10 * 7,
            (None, Phase::Doubling) => reached / FIRST_CUT,
            (None, Phase::Closing) => less(percent.min(MOST_CUT)) / 10 * 9,
            (None, Phase::Creeping) => less(percent.clamp(20, MOST_CUT)),
        };
        self.phase = match self.phase {
            Phase::Doubling => Phase::Closing,
            _ => Phase::Creeping,
        };
        self.rate = rate.max(self.floor);
    }

    fn speed_up(&mut self, achieved: u64) {
        if achieved < self.rate / 2 {
            // Something else holds the sender back; more would only be a burst later.
            return;
        }
        let step = match (self.set, self.phase) {
            (Some(set), _) => set / 50,
            (None, Phase::Doubling) => self.rate,
            (None, Phase::Closing) => self.rate / 4,
            (None, Phase::Creeping) => self.rate / 32,
        };
        self.rate = self.rate.saturating_add(step.max(1)).min(self.ceiling);
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
    fn without_a_set_rate_it_doubles_until_the_first_loss_then_closes_in_then_creeps() {
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
        assert_eq!(control.rate(), Some(2 * START / 8 / 4 * 5));
        // A tenth of 100 Mbit/s: less that, and a tenth.
        assert!(control.update(after(5), counts(18, 9000, 1050)));
        assert_eq!(control.rate(), Some(81_000_000));
        assert!(control.update(after(6), counts(19, 9500, 1050)));
        assert_eq!(control.rate(), Some(83_531_250));
    }

    /// A link that carries so many bits a second, with a queue of 50 ms; receivers ask for what it drops,
    /// and for a share of all packets that is lost at random, one interval later. Answers the share of
    /// the link that was used in the seconds after the first.
    fn share_of_link(capacity: u64, random_percent: f64, seconds: u64) -> f64 {
        const PACKET_BITS: f64 = 12_000.0;
        let mut control = RateControl::new(None, Instant::from_millis(1000));
        let (mut counts, mut queue, mut asked) = (Counts::default(), 0.0, 0.0);
        let (mut sent, mut asked_for, mut carried) = (0.0, 0.0, 0.0);
        for step in 1..=100 * seconds {
            let tick = capacity as f64 / 100.0;
            let bits = control.rate().unwrap_or(CEILING) as f64 / 100.0;
            queue += bits;
            let dropped = (queue - 6.0 * tick).max(0.0);
            let passed = (queue - dropped).min(tick);
            queue -= dropped + passed;
            let random = passed * random_percent / 100.0;
            if step > 100 {
                carried += passed - random;
            }
            sent += bits / PACKET_BITS;
            asked_for += asked;
            asked = (dropped + random) / PACKET_BITS;
            control.heard(SocketAddr::from(([10, 0, 0, 1], 1)));
            counts = Counts {
                sent: sent as u64,
                requested: asked_for as u64,
                frame_bytes: counts.frame_bytes + (bits / 8.0) as u64,
            };
            control.update(Instant::from_millis(1000 + 10 * step as i64), counts);
        }
        carried / (capacity * (seconds - 1)) as f64
    }

    #[test]
    fn it_finds_what_the_link_carries() {
        for capacity in [
            5_000_000,
            20_000_000,
            100_000_000,
            1_000_000_000,
            10_000_000_000,
        ] {
            for random_percent in [0.0, 1.0] {
                let share = share_of_link(capacity, random_percent, 8);
                assert!(
                    share > 0.85,
                    "{share:.2} of {capacity} bit/s, {random_percent} % lost"
                );
            }
        }
    }

    #[test]
    fn what_the_sender_does_not_reach_is_not_doubled() {
        let mut control = RateControl::new(None, after(0));
        assert!(!control.update(after(1), counts(0, 0, 0)));
        assert!(!control.update(after(2), counts(0, 100, 0)));
        assert_eq!(control.rate(), Some(START));
    }
}
