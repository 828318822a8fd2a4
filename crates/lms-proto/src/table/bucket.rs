//! Token buckets of 8 bytes: a bucket is the time at which it will be full again.

use crate::Instant;
use crate::router::Rate;

/// A rate and a burst, made ready for [`Bucket::take`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limit {
    /// Time between packets at the full rate, nanoseconds.
    interval_ns: i64,
    /// How far ahead of now the bucket's time may lie: the burst less one packet.
    tolerance_ns: u64,
}

impl Limit {
    pub(crate) fn new(rate: Rate) -> Self {
        // Rounded up, so that the rate is never exceeded.
        let interval_ns = match rate.per_second {
            0 => i64::MAX,
            per_second => i64::from(1_000_000_000_u32.div_ceil(per_second)),
        };
        let extra = u64::from(rate.burst.max(1)) - 1;
        let tolerance_ns = interval_ns.unsigned_abs().saturating_mul(extra);
        Limit {
            interval_ns,
            tolerance_ns,
        }
    }
}

/// One token bucket (GCRA). In any time `t` it lets at most `burst + rate * t` packets through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bucket {
    full_at_ns: i64,
}

impl Bucket {
    pub(crate) const FULL: Bucket = Bucket {
        full_at_ns: i64::MIN,
    };

    /// Takes one token if there is one.
    #[inline]
    pub(crate) fn take(&mut self, now: Instant, limit: &Limit) -> bool {
        let Some(full_at_ns) = self.after(now, limit) else {
            return false;
        };
        self.full_at_ns = full_at_ns;
        true
    }

    /// Whether there is a token.
    #[inline]
    pub(crate) fn has_token(&self, now: Instant, limit: &Limit) -> bool {
        self.after(now, limit).is_some()
    }

    /// When the bucket will be full once a token was taken, if there is one.
    #[inline]
    fn after(&self, now: Instant, limit: &Limit) -> Option<i64> {
        let now_ns = now.total_micros().saturating_mul(1_000);
        let full_at_ns = self.full_at_ns.max(now_ns);
        if limit.interval_ns == i64::MAX || full_at_ns.abs_diff(now_ns) > limit.tolerance_ns {
            return None;
        }
        Some(full_at_ns.saturating_add(limit.interval_ns))
    }
}
