//! Round-trip times and retransmission timeouts (RFC 6298).
//!
//! ```
//! use proto_core::time::Duration;
//! use proto_core::round_trip::{RoundTrip, TimeoutLimits};
//!
//! let mut round_trip = RoundTrip::new(TimeoutLimits {
//!     initial: Duration::from_secs(1),
//!     min: Duration::from_millis(200),
//!     max: Duration::from_secs(60),
//!     granularity: Duration::from_millis(1),
//! });
//! assert_eq!(round_trip.timeout(1), Duration::from_secs(1));
//! round_trip.sample(Duration::from_millis(100));
//! assert_eq!(round_trip.smoothed(), Some(Duration::from_millis(100)));
//! assert_eq!(round_trip.timeout(1), Duration::from_millis(300));
//! assert_eq!(round_trip.timeout(2), Duration::from_millis(600));
//! ```

use crate::time::Duration;

/// Bounds of a retransmission timeout. Times above 71 minutes (2^32 microseconds) count as that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeoutLimits {
    /// The timeout before the first sample (RFC 6298 §2.1).
    pub initial: Duration,
    /// The shortest timeout (RFC 6298 §2.4). Counts as `max` when it is longer.
    pub min: Duration,
    /// The longest timeout, after any number of attempts (RFC 6298 §2.5).
    pub max: Duration,
    /// Granularity of the clock (RFC 6298 §2.3): the least that a timeout exceeds the smoothed round-trip time by.
    pub granularity: Duration,
}

/// Estimates the round-trip time, and the timeout that follows from it. 24 bytes.
///
/// Samples must be unambiguous (Karn's rule, RFC 6298 §3): the caller passes none of a packet that was sent twice,
/// unless the answer names the packet that it answers.
#[derive(Clone, Copy, Debug)]
pub struct RoundTrip {
    /// Zero before the first sample.
    smoothed_us: u32,
    variation_us: u32,
    initial_us: u32,
    min_us: u32,
    max_us: u32,
    granularity_us: u32,
}

/// A timeout doubles this often at most.
const MAX_DOUBLINGS: u32 = 16;

fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.total_micros()).unwrap_or(u32::MAX)
}

impl RoundTrip {
    /// Creates an estimate without samples.
    #[must_use]
    pub fn new(limits: TimeoutLimits) -> RoundTrip {
        let max_us = micros(limits.max);
        RoundTrip {
            smoothed_us: 0,
            variation_us: 0,
            initial_us: micros(limits.initial),
            min_us: micros(limits.min).min(max_us),
            max_us,
            granularity_us: micros(limits.granularity),
        }
    }

    /// Sets the timeout before the first sample, for a path that other connections have measured (RFC 9040 §5).
    pub fn set_initial(&mut self, initial: Duration) {
        self.initial_us = micros(initial);
    }

    /// Adds a sample (RFC 6298 §2.2, §2.3): alpha is 1/8, beta 1/4. Zero counts as one microsecond.
    pub fn sample(&mut self, sample: Duration) {
        let sample_us = micros(sample).max(1);
        if self.smoothed_us == 0 {
            self.smoothed_us = sample_us;
            self.variation_us = sample_us / 2;
            return;
        }
        let mean = |old: u32, new: u32, parts: u64| {
            ((parts - 1) * u64::from(old) + u64::from(new)) / parts
        };
        // A mean is not above the larger of its parts.
        let error_us = self.smoothed_us.abs_diff(sample_us);
        self.variation_us = mean(self.variation_us, error_us, 4) as u32;
        self.smoothed_us = mean(self.smoothed_us, sample_us, 8).max(1) as u32;
    }

    /// Returns the smoothed round-trip time; `None` before the first sample.
    #[inline]
    #[must_use]
    pub fn smoothed(&self) -> Option<Duration> {
        (self.smoothed_us != 0).then(|| Duration::from_micros(u64::from(self.smoothed_us)))
    }

    /// Returns how long to wait for the answer to an attempt. The first attempt has number 1; each further one waits
    /// twice as long (RFC 6298 §5.5), up to the longest timeout.
    #[must_use]
    pub fn timeout(&self, attempt: u32) -> Duration {
        let base_us = match self.smoothed_us {
            0 => self.initial_us,
            smoothed_us => {
                let margin_us = self.variation_us.saturating_mul(4);
                smoothed_us.saturating_add(margin_us.max(self.granularity_us))
            }
        };
        let base_us = u64::from(base_us.clamp(self.min_us, self.max_us));
        let doublings = attempt.saturating_sub(1).min(MAX_DOUBLINGS);
        Duration::from_micros((base_us << doublings).min(u64::from(self.max_us)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: TimeoutLimits = TimeoutLimits {
        initial: Duration::from_secs(1),
        min: Duration::from_millis(200),
        max: Duration::from_secs(60),
        granularity: Duration::from_millis(1),
    };

    #[test]
    fn follows_rfc_6298() {
        let mut round_trip = RoundTrip::new(LIMITS);
        assert_eq!(round_trip.smoothed(), None);
        assert_eq!(round_trip.timeout(1), Duration::from_secs(1));
        round_trip.sample(Duration::from_millis(400));
        assert_eq!(round_trip.smoothed(), Some(Duration::from_millis(400)));
        assert_eq!(round_trip.timeout(1), Duration::from_millis(400 + 4 * 200));
        round_trip.sample(Duration::from_millis(480));
        assert_eq!(round_trip.smoothed(), Some(Duration::from_millis(410)));
        assert_eq!(round_trip.timeout(1), Duration::from_millis(410 + 4 * 170));
    }

    #[test]
    fn another_first_timeout_counts_until_the_first_sample_and_keeps_the_bounds() {
        let mut round_trip = RoundTrip::new(LIMITS);
        round_trip.set_initial(Duration::from_millis(300));
        assert_eq!(round_trip.timeout(2), Duration::from_millis(600));
        round_trip.set_initial(Duration::from_millis(3));
        assert_eq!(round_trip.timeout(1), LIMITS.min);
        round_trip.sample(Duration::from_millis(400));
        assert_eq!(round_trip.timeout(1), Duration::from_millis(400 + 4 * 200));
    }

    #[test]
    fn a_steady_path_leaves_the_granularity() {
        let mut round_trip = RoundTrip::new(LIMITS);
        for _ in 0..1000 {
            round_trip.sample(Duration::from_millis(300));
        }
        assert_eq!(round_trip.timeout(1), Duration::from_millis(301));
    }

    #[test]
    fn attempts_double_the_timeout_up_to_its_bound() {
        let mut round_trip = RoundTrip::new(LIMITS);
        round_trip.sample(Duration::ZERO);
        assert_eq!(round_trip.smoothed(), Some(Duration::from_micros(1)));
        assert_eq!(round_trip.timeout(0), Duration::from_millis(200));
        for attempt in 1..40_u32 {
            let expected = 200_u64 << (attempt - 1).min(16);
            let expected = Duration::from_millis(expected.min(60_000));
            assert_eq!(round_trip.timeout(attempt), expected);
        }
        assert_eq!(round_trip.timeout(u32::MAX), Duration::from_secs(60));
    }

    #[test]
    fn a_minimum_above_the_maximum_counts_as_the_maximum() {
        let round_trip = RoundTrip::new(TimeoutLimits {
            min: Duration::from_secs(90),
            ..LIMITS
        });
        assert_eq!(round_trip.timeout(1), Duration::from_secs(60));
    }
}
