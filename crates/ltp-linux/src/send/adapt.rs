//! Slows down when receivers cannot follow, without congestion control.
//!
//! The sender's window keeps it from running ahead of the slowest receiver that reports; it does not
//! see a link on the path that carries less than this host sends. The measure is the share of the packets
//! that one receiver lost. Receivers that report name it themselves, repaired or not
//! ([`ltp::Sender::take_worst_loss`]). Where none reports it is the share of the packets in an interval that
//! one receiver requested again, averaged over those that sent requests: it does not grow with the number of
//! receivers, as the number of requests does.

use std::collections::HashSet;
use std::net::SocketAddr;

use ltp::rate::{RateSearch, Sent};
use ltp::{Duration, Instant};

use super::config::Rate;

/// Time in which packets and requests are counted before the rate changes.
const INTERVAL: Duration = Duration::from_millis(50);
/// Least number of packets that a measurement needs.
const LEAST_PACKETS: u64 = 64;
/// Below a rate that the user set only a receiver that misses more than this share, in hundredths, slows the sender.
const TOLERATED_PERCENT: u64 = 25;
/// Rates from this on count as unlimited, bit/s.
const CEILING: u64 = ltp::rate::CEILING_BPS;
/// Time between two decreases without an interval without loss in between: the backlog of repairs says nothing
/// about the new rate.
const PAUSE: Duration = Duration::from_secs(1);
/// Requesters told apart in one interval.
const MOST_REQUESTERS: usize = 4096;

/// What was counted since the start.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    /// Data packets sent.
    pub(super) sent: u64,
    /// Packets requested again.
    pub(super) requested: u64,
    /// Ethernet frame bytes sent.
    pub(super) frame_bytes: u64,
}

/// How the rate follows what receivers lose.
#[derive(Debug)]
pub(super) struct RateControl {
    policy: Policy,
    since: Counts,
    started: Instant,
    requesters: HashSet<SocketAddr>,
    /// What the last update measured.
    loss: Option<u16>,
}

#[derive(Debug)]
enum Policy {
    /// The machine sets the rate.
    Congestion,
    /// The user set a rate: only heavy loss slows the sender, and never below an eighth of it.
    Set {
        set: u64,
        rate: u64,
        paused_until: Instant,
    },
    /// The user set none.
    Unlimited {
        search: RateSearch,
        /// Receivers report what they lose: requests do not count.
        reported: bool,
    },
}

impl RateControl {
    pub(super) fn new(rate: Rate, now: Instant) -> Self {
        let policy = match rate {
            Rate::Congestion => Policy::Congestion,
            Rate::Fixed(set) => Policy::Set {
                set,
                rate: set,
                paused_until: now,
            },
            Rate::Unlimited => Policy::Unlimited {
                search: RateSearch::new(now),
                reported: false,
            },
        };
        RateControl {
            policy,
            since: Counts::default(),
            started: now,
            requesters: HashSet::new(),
            loss: None,
        }
    }

    /// The share that a receiver has lost, in thousandths, as the last update measured it, if it did.
    pub(super) fn loss(&self) -> Option<u16> {
        self.loss
    }

    /// The rate now, bit/s; `None` while this does not limit it.
    pub(super) fn rate(&self) -> Option<u64> {
        match &self.policy {
            Policy::Set { rate, .. } => (*rate < CEILING).then_some(*rate),
            Policy::Unlimited { search, .. } => search.rate_bps(),
            Policy::Congestion => None,
        }
    }

    /// A packet came from this receiver.
    pub(super) fn count_requester(&mut self, from: SocketAddr) {
        if self.requesters.len() < MOST_REQUESTERS {
            self.requesters.insert(from);
        }
    }

    /// Updates the rate from the counters. Returns whether it changed. `loss`: the worst that a receiver has
    /// reported since the last call, in thousandths.
    pub(super) fn update(&mut self, now: Instant, counts: Counts, loss: Option<u16>) -> bool {
        let asked = self.requested_again(now, counts);
        let counts_requests = !matches!(self.policy, Policy::Unlimited { reported: true, .. });
        let request_loss = asked.filter(|_| counts_requests);
        self.loss = loss.or(request_loss.map(|asked| asked.per_mille()));
        match &mut self.policy {
            Policy::Congestion => false,
            Policy::Set { .. } => {
                let Some(asked) = asked else {
                    return false;
                };
                self.keep_to_the_set_rate(now, asked)
            }
            Policy::Unlimited { search, reported } => {
                *reported |= loss.is_some();
                let asked = asked.filter(|_| !*reported);
                let asked = asked.map(|asked| asked.per_mille());
                let sent = Sent {
                    packets: counts.sent,
                    frame_bytes: counts.frame_bytes,
                };
                search.update(now, sent, loss.or(asked))
            }
        }
    }

    /// Returns what one receiver requested again in the interval that ends now, if it has ended.
    fn requested_again(&mut self, now: Instant, counts: Counts) -> Option<RequestedAgain> {
        let elapsed = now - self.started;
        if elapsed < INTERVAL {
            return None;
        }
        let sent = counts.sent - self.since.sent;
        let requested = counts.requested - self.since.requested;
        if sent + requested == 0 {
            // Idle time says nothing about the possible rate.
            self.started = now;
        }
        if sent + requested < LEAST_PACKETS {
            return None;
        }
        let bits = 8_000_000 * (counts.frame_bytes - self.since.frame_bytes);
        let requesters = (self.requesters.len() as u64).max(1);
        self.started = now;
        self.since = counts;
        self.requesters.clear();
        Some(RequestedAgain {
            percent: 100 * requested / requesters / sent.max(1),
            achieved: bits / elapsed.total_micros().max(1),
        })
    }

    /// Additive increase up to the set rate, multiplicative decrease to an eighth of it.
    fn keep_to_the_set_rate(&mut self, now: Instant, asked: RequestedAgain) -> bool {
        let Policy::Set {
            set,
            rate,
            paused_until,
        } = &mut self.policy
        else {
            return false;
        };
        let old = *rate;
        if asked.percent <= TOLERATED_PERCENT {
            *paused_until = now;
            // Where something else holds the sender back, more would only be a burst later.
            if asked.achieved >= *rate / 2 {
                *rate = (*rate + (*set / 50).max(1)).min(*set);
            }
        } else if now >= *paused_until {
            *paused_until = now + PAUSE;
            // A rate that was not reached is not reduced step by step.
            let reached = (*rate).min(asked.achieved.max(1));
            *rate = (reached / 10 * 7).max((*set / 8).max(1));
        }
        *rate != old
    }
}

/// One interval.
#[derive(Debug, Clone, Copy)]
struct RequestedAgain {
    /// Share of the packets that one receiver requested again, in hundredths.
    percent: u64,
    /// Bits a second sent.
    achieved: u64,
}

impl RequestedAgain {
    fn per_mille(self) -> u16 {
        (10 * self.percent).min(1000) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(intervals: u64) -> Instant {
        Instant::from_millis(1000 + 50 * intervals as i64)
    }

    /// Counters after that number of intervals of 100 Mbit/s.
    fn counts(intervals: u64, sent: u64, requested: u64) -> Counts {
        Counts {
            sent,
            requested,
            frame_bytes: 625_000 * intervals,
        }
    }

    #[test]
    fn a_set_rate_stands_against_ordinary_loss_of_many_receivers() {
        let mut control = RateControl::new(Rate::Fixed(100_000_000), after(0));
        for receiver in 0..100 {
            control.count_requester(SocketAddr::from(([10, 0, 0, receiver], 1)));
        }
        // Each of 100 receivers misses 1 %.
        assert!(!control.update(after(1), counts(1, 400, 400), Some(10)));
    }

    #[test]
    fn heavy_loss_slows_and_its_end_restores() {
        let mut control = RateControl::new(Rate::Fixed(100_000_000), after(0));
        control.count_requester(SocketAddr::from(([10, 0, 0, 1], 1)));
        assert!(control.update(after(1), counts(1, 400, 200), None));
        assert_eq!(control.rate(), Some(70_000_000));
        for interval in 2..200 {
            control.update(after(interval), counts(interval, 400 * interval, 200), None);
        }
        assert_eq!(control.rate(), Some(100_000_000));
    }

    #[test]
    fn a_set_rate_falls_to_an_eighth_at_most() {
        let mut control = RateControl::new(Rate::Fixed(100_000_000), after(0));
        for interval in 1..400 {
            let all = counts(interval, 100 * interval, 100 * interval);
            control.update(after(interval), all, None);
        }
        assert_eq!(control.rate(), Some(12_500_000));
    }

    /// The rate of an unlimited sender after 30 s in which one receiver requested everything again.
    fn unlimited(loss: Option<u16>) -> Option<u64> {
        let mut control = RateControl::new(Rate::Unlimited, after(0));
        for interval in 1..600 {
            control.count_requester(SocketAddr::from(([10, 0, 0, 1], 1)));
            let all = counts(interval, 100 * interval, 100 * interval);
            control.update(after(interval), all, loss);
        }
        control.rate()
    }

    #[test]
    fn without_reports_requests_slow_an_unlimited_sender_down_to_the_floor() {
        assert_eq!(unlimited(None), Some(ltp::rate::FLOOR_BPS));
    }

    #[test]
    fn where_receivers_report_requests_do_not_count() {
        assert!(unlimited(Some(5)) >= Some(ltp::rate::START_BPS));
        assert_eq!(unlimited(Some(500)), Some(ltp::rate::FLOOR_BPS));
    }
}
