//! Limits on what may happen a second: packets of all groups together, lines in the log.

use lms_proto::Instant;

/// A token bucket in nanoseconds: a packet costs `1,000,000,000 / rate` of them, a quiet time earns
/// them back, a tenth of a second (or ten packets) at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TotalLimit {
    /// Nanoseconds a packet costs, at least one.
    cost: u64,
    /// Nanoseconds that may be saved.
    most: u64,
    saved: u64,
    last: Instant,
}

impl TotalLimit {
    pub(crate) fn new(per_second: u32, now: Instant) -> TotalLimit {
        // Rounded up: never more than the rate.
        let cost = 1_000_000_000_u64.div_ceil(u64::from(per_second.max(1)));
        let most = (10 * cost).max(100_000_000);
        TotalLimit {
            cost,
            most,
            saved: most,
            last: now,
        }
    }

    /// Another rate from now on.
    pub(crate) fn set_rate(&mut self, per_second: u32, now: Instant) {
        *self = TotalLimit {
            saved: 0,
            ..TotalLimit::new(per_second, now)
        };
    }

    /// Whether one more packet may pass now.
    #[inline]
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        if now > self.last {
            let earned = (now - self.last).total_micros().saturating_mul(1000);
            self.saved = self.saved.saturating_add(earned).min(self.most);
            self.last = now;
        }
        match self.saved.checked_sub(self.cost) {
            Some(rest) => {
                self.saved = rest;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_rate_in_the_long_run() {
        let mut limit = TotalLimit::new(1000, Instant::ZERO);
        let mut passed = 0;
        for at in 0..10_000_000 / 50 {
            passed += u64::from(limit.take(Instant::from_micros(at * 50)));
        }
        // 10 s at 1000 a second, and the burst of a tenth of a second.
        assert!((10_000..=10_100).contains(&passed), "{passed}");
    }

    #[test]
    fn ten_packets_pass_at_once_at_the_lowest_rate() {
        let mut limit = TotalLimit::new(1, Instant::ZERO);
        assert_eq!((0..20).filter(|_| limit.take(Instant::ZERO)).count(), 10);
        limit.set_rate(5, Instant::ZERO);
        assert!(!limit.take(Instant::ZERO));
        assert!(limit.take(Instant::from_secs(1)));
    }
}
