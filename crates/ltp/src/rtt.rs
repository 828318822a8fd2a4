//! Round-trip time estimate and retransmission timeout (RFC 6298).

use proto_core::time::Duration;

/// Estimates from samples that are never ambiguous: a repair names the request it answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrip {
    /// Microseconds; 0: no sample yet.
    smoothed: u32,
    variation: u32,
    initial: u32,
    min: u32,
    max: u32,
}

fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.total_micros()).unwrap_or(u32::MAX)
}

impl RoundTrip {
    /// Bounds of the timeout, and its value before the first sample.
    pub(crate) fn new(initial: Duration, min: Duration, max: Duration) -> Self {
        let (min, max) = (micros(min).max(1), micros(max).max(1));
        RoundTrip {
            smoothed: 0,
            variation: 0,
            initial: micros(initial),
            min,
            max: max.max(min),
        }
    }

    /// Adds a sample (RFC 6298 §2.2, §2.3).
    pub(crate) fn sample(&mut self, sample: Duration) {
        let sample = micros(sample).clamp(1, 60_000_000);
        if self.smoothed == 0 {
            self.smoothed = sample;
            self.variation = sample / 2;
        } else {
            let error = self.smoothed.abs_diff(sample);
            self.variation = self.variation - self.variation / 4 + error / 4;
            self.smoothed = (self.smoothed - self.smoothed / 8 + sample / 8).max(1);
        }
    }

    /// The smoothed estimate, once there is one.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        (self.smoothed != 0).then(|| Duration::from_micros(u64::from(self.smoothed)))
    }

    /// Timeout of the request with that number (1 is the first): doubles with each
    /// (RFC 6298 §5.5), up to the bound.
    pub(crate) fn timeout(&self, number: u32) -> Duration {
        let base = if self.smoothed == 0 {
            self.initial
        } else {
            self.smoothed
                .saturating_add(self.variation.saturating_mul(4))
        };
        let base = u64::from(base.clamp(self.min, self.max));
        let doubled = base << number.saturating_sub(1).min(16);
        Duration::from_micros(doubled.min(u64::from(self.max)))
    }
}
