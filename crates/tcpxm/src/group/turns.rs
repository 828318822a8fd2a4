//! One rate for all flows of a session, and whose turn it is.
//!
//! A flow that the rate stops goes to the end of a queue. When the rate allows, the first flow sends a burst
//! and queues again: all proceed at the same pace, whatever their number and that of their receivers. Neither
//! this nor a flow's own pace involves other flows.

use alloc::collections::{BTreeSet, VecDeque};

use proto_core::time::{Duration, Instant};

/// The flows of a session that wait for time to pass.
#[derive(Default, Debug)]
pub(crate) struct Turns {
    /// Holds all copies of all flows to the rate that the user allows.
    pub(crate) cap: Pace,
    /// Flows that wait for it.
    pub(crate) waiting: VecDeque<u32>,
    /// The flow whose turn it is: it is about to send a burst.
    pub(crate) given: Option<u32>,
    /// Flows that wait for their own pace, and until when.
    pub(crate) spreading: BTreeSet<(Instant, u32)>,
}

/// A rate that new data is held to.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Pace {
    /// Bits a second; 0: no bound.
    pub(crate) rate_bps: u64,
    /// When the next burst may start.
    next: Option<Instant>,
}

/// Sending may fall behind its schedule by this much and catch up.
const PACE_SLACK: Duration = Duration::from_millis(2);

impl Pace {
    /// Bits a second; 0: no bound.
    pub(crate) const fn at(rate_bps: u64) -> Self {
        Self {
            rate_bps,
            next: None,
        }
    }

    /// Changes the rate, also for bytes that were sent already.
    pub(crate) fn change(&mut self, now: Instant, rate_bps: u64) {
        let old = core::mem::replace(&mut self.rate_bps, rate_bps);
        self.next = self.next.filter(|&next| next > now && rate_bps > 0);
        if let Some(next) = &mut self.next {
            let us = u128::from((*next - now).total_micros()) * u128::from(old);
            let us = u64::try_from(us / u128::from(rate_bps)).unwrap_or(u64::MAX);
            *next = now + Duration::from_micros(us.min(1 << 50));
        }
    }

    pub(crate) fn allows(&self, now: Instant) -> bool {
        self.rate_bps == 0 || self.next.is_none_or(|next| next <= now)
    }

    pub(crate) fn spend(&mut self, now: Instant, bytes: u64) {
        if self.rate_bps == 0 {
            self.next = None;
            return;
        }
        let us = bytes.saturating_mul(8_000_000) / self.rate_bps;
        let from = self.next.map_or(now, |next| next.max(now - PACE_SLACK));
        self.next = Some(from + Duration::from_micros(us));
    }

    /// When what was sent has had its time, if that is later than `ahead` from now.
    pub(crate) fn ahead_until(&self, now: Instant, ahead: Duration) -> Option<Instant> {
        self.next
            .filter(|&next| self.rate_bps > 0 && next > now + ahead)
    }

    /// When sending may go on, if not now.
    pub(crate) fn next(&self, now: Instant) -> Option<Instant> {
        self.next.filter(|_| !self.allows(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: i64) -> Instant {
        Instant::from_micros(micros)
    }

    /// A byte each microsecond.
    const RATE_BPS: u64 = 8_000_000;

    #[test]
    fn each_burst_waits_until_the_last_one_had_its_time() {
        let mut pace = Pace::at(RATE_BPS);
        assert!(pace.allows(at(0)));
        assert_eq!(pace.next(at(0)), None);
        pace.spend(at(0), 1_000);
        assert!(!pace.allows(at(999)));
        assert_eq!(pace.next(at(999)), Some(at(1_000)));
        assert!(pace.allows(at(1_000)));
        assert_eq!(pace.next(at(1_000)), None);
        pace.spend(at(1_500), 1_000);
        assert_eq!(
            pace.next(at(1_500)),
            Some(at(2_000)),
            "half a millisecond is made up"
        );
    }

    #[test]
    fn two_milliseconds_are_made_up_and_no_more() {
        let mut pace = Pace::at(RATE_BPS);
        pace.spend(at(0), 1_000);
        pace.spend(at(10_000), 5_000);
        assert_eq!(pace.next(at(10_000)), Some(at(13_000)));
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let mut pace = Pace::at(0);
        pace.spend(at(0), 1 << 60);
        assert!(pace.allows(at(0)));
        assert_eq!(pace.next(at(0)), None);
        pace.change(at(0), RATE_BPS);
        assert!(pace.allows(at(0)), "what was sent before was not bounded");
    }

    #[test]
    fn another_rate_counts_for_what_was_sent_already() {
        let mut pace = Pace::at(RATE_BPS);
        pace.spend(at(0), 10_000);
        pace.change(at(4_000), RATE_BPS / 2);
        assert_eq!(pace.next(at(4_000)), Some(at(16_000)));
        pace.change(at(10_000), RATE_BPS);
        assert_eq!(pace.next(at(10_000)), Some(at(13_000)));
        pace.change(at(11_000), 0);
        assert!(pace.allows(at(11_000)));
        pace.change(at(11_000), RATE_BPS);
        assert!(pace.allows(at(11_000)), "the bound was lifted");
        // The time of what was sent is over.
        pace.spend(at(11_000), 1_000);
        pace.change(at(12_000), RATE_BPS / 1_000);
        assert!(pace.allows(at(12_000)));
        pace.spend(at(12_500), 1);
        assert_eq!(
            pace.next(at(12_500)),
            Some(at(13_500)),
            "nothing to make up"
        );
    }

    #[test]
    fn the_time_that_the_least_rate_takes_does_not_overflow() {
        let now = at(1 << 60);
        let mut pace = Pace::at(RATE_BPS);
        pace.spend(now, 1 << 40);
        pace.change(now, 1);
        assert!(!pace.allows(now + Duration::from_secs(3_600)));
    }
}
