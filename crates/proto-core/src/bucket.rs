//! Token buckets of 8 bytes.
//!
//! A bucket is the time at which it will be full again (the generic cell rate algorithm, ITU-T I.371). A table
//! with a bucket in each entry spends 8 bytes on it, and stores the [`RateLimit`] once for all entries. A token
//! is a packet, a message, or whatever else the caller counts.
//!
//! All arithmetic is on integers, in nanoseconds, and rounds against the sender: in any time `t`, a bucket
//! lets at most `burst + per_second * t` tokens through.
//!
//! ```
//! use proto_core::time::{Duration, Instant};
//! use proto_core::{RateLimit, TokenBucket};
//!
//! let limit = RateLimit::new(10, 2);
//! let mut bucket = TokenBucket::FULL;
//! let now = Instant::from_secs(1);
//! assert!(bucket.take(now, &limit));
//! assert!(bucket.take(now, &limit));
//! assert!(!bucket.take(now, &limit));
//! assert!(bucket.take(now + Duration::from_millis(100), &limit));
//! ```

use crate::time::Instant;

/// A rate and a burst, prepared for [`TokenBucket`]. Two words of 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct RateLimit {
    /// Time between tokens at the full rate. `i64::MAX`: never.
    interval_ns: i64,
    /// How far ahead of now the bucket's time may lie: the burst less one token.
    tolerance_ns: u64,
}

impl RateLimit {
    /// Creates a limit of `per_second` tokens a second in the long run, and `burst` tokens at once after a quiet
    /// time. A rate of 0 lets nothing through, one above 1,000,000,000 counts as that. A burst of 0 counts as 1.
    #[must_use]
    pub const fn new(per_second: u32, burst: u32) -> RateLimit {
        // Rounded up, so that the rate is never exceeded.
        let interval_ns = match per_second {
            0 => i64::MAX,
            _ => 1_000_000_000_u32.div_ceil(per_second) as i64,
        };
        let extra = burst.saturating_sub(1) as u64;
        RateLimit {
            interval_ns,
            tolerance_ns: interval_ns.unsigned_abs().saturating_mul(extra),
        }
    }
}

/// A token bucket. Each call takes the [`RateLimit`], which may change between calls.
///
/// A clock that goes back earns nothing until it has caught up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenBucket {
    full_at_ns: i64,
}

impl TokenBucket {
    /// A full bucket.
    pub const FULL: TokenBucket = TokenBucket {
        full_at_ns: i64::MIN,
    };

    /// Creates an empty bucket, which begins to fill at `now`.
    #[must_use]
    pub fn empty(now: Instant, limit: &RateLimit) -> TokenBucket {
        let depth_ns = limit
            .tolerance_ns
            .saturating_add(limit.interval_ns.unsigned_abs());
        TokenBucket {
            full_at_ns: nanos(now).saturating_add_unsigned(depth_ns),
        }
    }

    /// Whether no token is missing.
    #[inline]
    #[must_use]
    pub fn is_full(&self, now: Instant) -> bool {
        self.full_at_ns <= nanos(now)
    }

    /// Whether there is a token.
    #[inline]
    #[must_use]
    pub fn has_token(&self, now: Instant, limit: &RateLimit) -> bool {
        self.after(nanos(now), limit).is_some()
    }

    /// Takes one token. Returns false if there is none.
    #[inline]
    pub fn take(&mut self, now: Instant, limit: &RateLimit) -> bool {
        match self.taken_ns(nanos(now), limit) {
            Some(taken) => *self = taken,
            None => return false,
        }
        true
    }

    /// Returns the bucket with one token less, `None` if there is none, at a time in nanoseconds of the same clock: for
    /// buckets that are shared, and replaced by compare-and-swap.
    #[inline]
    #[must_use]
    pub fn taken_ns(self, now_ns: i64, limit: &RateLimit) -> Option<TokenBucket> {
        let full_at_ns = self.after(now_ns, limit)?;
        Some(TokenBucket { full_at_ns })
    }

    /// Returns the bucket as a word.
    #[inline]
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.full_at_ns.cast_unsigned()
    }

    /// Returns the bucket of a word.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u64) -> TokenBucket {
        TokenBucket {
            full_at_ns: bits.cast_signed(),
        }
    }

    /// Returns when the bucket will be full once a token was taken, if there is one.
    #[inline]
    fn after(&self, now_ns: i64, limit: &RateLimit) -> Option<i64> {
        let full_at_ns = self.full_at_ns.max(now_ns);
        if limit.interval_ns == i64::MAX || full_at_ns.abs_diff(now_ns) > limit.tolerance_ns {
            return None;
        }
        // Nothing passes at the end of time, which is 292 years after the start.
        full_at_ns.checked_add(limit.interval_ns)
    }
}

#[inline]
fn nanos(time: Instant) -> i64 {
    time.total_micros().saturating_mul(1_000)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::time::Duration;

    const START: Instant = Instant::from_secs(100);

    /// How many of `tries` get a token at once.
    fn taken(bucket: &mut TokenBucket, tries: u32, now: Instant, limit: &RateLimit) -> u32 {
        (0..tries).map(|_| u32::from(bucket.take(now, limit))).sum()
    }

    #[test]
    fn a_full_bucket_holds_the_burst() {
        for (rate, burst) in [(1, 1), (3, 10), (999_999_999, 7), (u32::MAX, 99), (10, 0)] {
            let limit = RateLimit::new(rate, burst);
            let mut bucket = TokenBucket::FULL;
            assert!(bucket.is_full(START));
            assert!(bucket.has_token(START, &limit));
            assert_eq!(taken(&mut bucket, 200, START, &limit), burst.max(1));
            assert!(!bucket.has_token(START, &limit));
            assert!(!bucket.is_full(START));
        }
    }

    #[test]
    fn an_empty_bucket_fills() {
        let limit = RateLimit::new(4, 2);
        let mut bucket = TokenBucket::empty(START, &limit);
        assert!(!bucket.take(START, &limit));
        let quarter = START + Duration::from_millis(250);
        assert!(!bucket.take(quarter - Duration::from_micros(1), &limit));
        assert!(bucket.take(quarter, &limit));
        assert!(!bucket.is_full(quarter + Duration::from_millis(499)));
        assert!(bucket.is_full(quarter + Duration::from_millis(500)));
    }

    #[test]
    fn a_rate_of_zero_lets_nothing_through() {
        let limit = RateLimit::new(0, 10);
        assert!(!TokenBucket::FULL.has_token(START, &limit));
        assert!(!TokenBucket::empty(START, &limit).has_token(START, &limit));
    }

    #[test]
    fn the_clock_may_jump() {
        let limit = RateLimit::new(10, 3);
        let mut bucket = TokenBucket::empty(START, &limit);
        assert!(!bucket.take(Instant::ZERO, &limit));
        assert!(!bucket.take(Instant::from_micros(i64::MIN), &limit));
        let centuries = Instant::from_secs(9_000_000_000);
        assert_eq!(taken(&mut bucket, 9, centuries, &limit), 3);
        assert_eq!(taken(&mut bucket, 9, START, &limit), 0);
    }

    #[test]
    fn extremes_overflow_nowhere() {
        for rate in [0, 1, u32::MAX] {
            for burst in [0, 1, u32::MAX] {
                let limit = RateLimit::new(rate, burst);
                for now in [i64::MIN, 0, i64::MAX].map(Instant::from_micros) {
                    let mut bucket = TokenBucket::empty(now, &limit);
                    taken(&mut bucket, 3, now, &limit);
                    bucket = TokenBucket::FULL;
                    taken(&mut bucket, 3, now, &limit);
                }
            }
        }
        let limit = RateLimit::new(1, u32::MAX);
        let end = Instant::from_micros(i64::MAX);
        assert!(!TokenBucket::FULL.has_token(end, &limit));
    }

    proptest! {
        #[test]
        fn never_more_than_the_burst_and_the_rate(
            rate in prop_oneof![1..100_u32, 1..1_000_000_u32, 1..u32::MAX],
            burst in 1..200_u32,
            steps in prop::collection::vec((0..100_000_u64, 0..300_u32), 1..50),
        ) {
            let limit = RateLimit::new(rate, burst);
            let mut bucket = TokenBucket::FULL;
            let mut now = START;
            let mut passed = 0_u64;
            for (pause_us, tries) in steps {
                now += Duration::from_micros(pause_us);
                passed += u64::from(taken(&mut bucket, tries, now, &limit));
                let earned = u64::from(rate) * (now - START).total_micros() / 1_000_000;
                prop_assert!(passed <= u64::from(burst) + earned);
            }
        }

        /// However many are refused, the next token comes when the rate says so.
        #[test]
        fn never_starves(
            rate in 1..200_000_u32,
            burst in 1..20_u32,
            refused in 0..50_u32,
        ) {
            let limit = RateLimit::new(rate, burst);
            let mut bucket = TokenBucket::FULL;
            taken(&mut bucket, burst + refused, START, &limit);
            let interval = Duration::from_micros(u64::from(1_000_000_u32.div_ceil(rate)) + 1);
            let mut now = START;
            for _ in 0..100 {
                now += interval;
                prop_assert!(bucket.take(now, &limit));
            }
            let fill = Duration::from_micros(u64::from(burst) * 1_000_000 / u64::from(rate) + 2);
            prop_assert!(bucket.is_full(now + fill));
        }
    }
}
