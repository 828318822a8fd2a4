//! Limits on what may happen a second: packets of all groups together, lines in the log.

use lms_proto::Instant;
use proto_core::{RateLimit, TokenBucket};

/// A token bucket with its rate. What the rate gives in a tenth of a second may pass at once, and at least ten.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TotalLimit {
    limit: RateLimit,
    bucket: TokenBucket,
}

impl TotalLimit {
    /// Creates a full bucket.
    pub(crate) fn new(per_second: u32) -> TotalLimit {
        TotalLimit {
            limit: RateLimit::new(per_second.max(1), (per_second / 10).max(10)),
            bucket: TokenBucket::FULL,
        }
    }

    /// Changes the rate, and empties the bucket.
    pub(crate) fn set_rate(&mut self, per_second: u32, now: Instant) {
        self.limit = TotalLimit::new(per_second).limit;
        self.bucket = TokenBucket::empty(now, &self.limit);
    }

    /// The rate, for a bucket elsewhere.
    pub(crate) fn rate(&self) -> &RateLimit {
        &self.limit
    }

    /// Whether one more packet may pass now.
    #[inline]
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        self.bucket.take(now, &self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_rate_in_the_long_run() {
        let mut limit = TotalLimit::new(1000);
        let mut passed = 0;
        for at in 0..10_000_000 / 50 {
            passed += u64::from(limit.take(Instant::from_micros(at * 50)));
        }
        // 10 s at 1000 a second, and the burst of a tenth of a second.
        assert!((10_000..=10_100).contains(&passed), "{passed}");
    }

    #[test]
    fn ten_packets_pass_at_once_at_the_lowest_rate() {
        let mut limit = TotalLimit::new(1);
        assert_eq!((0..20).filter(|_| limit.take(Instant::ZERO)).count(), 10);
        limit.set_rate(5, Instant::ZERO);
        assert!(!limit.take(Instant::ZERO));
        assert!(limit.take(Instant::from_secs(1)));
    }
}
