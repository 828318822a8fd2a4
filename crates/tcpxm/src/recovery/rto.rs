//! Round-trip times and the retransmission timeout (RFC 6298).

use proto_core::time::Duration;

/// Smoothed round-trip time, its variation, the least one seen, and the timeout they give.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rtt {
    /// `None` before the first sample.
    smoothed_us: Option<u64>,
    variation_us: u64,
    min_us: u64,
    backoff: u8,
    bounds: (Duration, Duration),
}

/// Before the first sample (RFC 6298 §2.1).
const INITIAL_RTO: Duration = Duration::from_secs(1);
/// After this many doublings the timeout stays what it is; the upper bound comes sooner.
const MAX_BACKOFF: u8 = 12;

impl Rtt {
    pub(crate) fn new(min_rto: Duration, max_rto: Duration) -> Self {
        Self {
            smoothed_us: None,
            variation_us: 0,
            min_us: u64::MAX,
            backoff: 0,
            bounds: (min_rto.min(max_rto), max_rto),
        }
    }

    /// A round-trip time of a segment that was not retransmitted, or that a timestamp tells from its
    /// retransmission (Karn's rule, RFC 6298 §3).
    pub(crate) fn sample(&mut self, rtt: Duration) {
        let rtt = rtt.total_micros().max(1);
        self.min_us = self.min_us.min(rtt);
        self.smooth(rtt);
    }

    /// The same by a timestamp, whose clock ticks in milliseconds: it may say 0.
    pub(crate) fn sample_coarse(&mut self, rtt_ms: u32) {
        let rtt = (u64::from(rtt_ms) * 1000).max(500);
        self.min_us = self.min_us.min(rtt.max(1000));
        self.smooth(rtt);
    }

    fn smooth(&mut self, rtt: u64) {
        // RFC 6298 §2.2, §2.3: alpha 1/8, beta 1/4.
        match self.smoothed_us {
            None => {
                self.variation_us = rtt / 2;
                self.smoothed_us = Some(rtt);
            }
            Some(smoothed) => {
                self.variation_us = (3 * self.variation_us + smoothed.abs_diff(rtt)) / 4;
                self.smoothed_us = Some((7 * smoothed + rtt) / 8);
            }
        }
    }

    /// Smoothed round-trip time.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed_us.map(Duration::from_micros)
    }

    /// Least round-trip time seen.
    pub(crate) fn min(&self) -> Option<Duration> {
        self.smoothed_us.map(|_| Duration::from_micros(self.min_us))
    }

    /// The timeout without back-off.
    pub(crate) fn base_rto(&self) -> Duration {
        let (low, high) = self.bounds;
        let rto = self.smoothed_us.map_or(INITIAL_RTO, |smoothed| {
            Duration::from_micros(smoothed + (4 * self.variation_us).max(1000))
        });
        rto.clamp(low, high)
    }

    /// The timeout, doubled for each expiry since the last new acknowledgement (RFC 6298 §5.5).
    pub(crate) fn rto(&self) -> Duration {
        let (_, high) = self.bounds;
        let us = self.base_rto().total_micros() << self.backoff;
        Duration::from_micros(us).min(high)
    }

    pub(crate) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(MAX_BACKOFF);
    }

    /// Data was acknowledged: the path works again.
    pub(crate) fn reset_back_off(&mut self) {
        self.backoff = 0;
    }

    pub(crate) fn backoff(&self) -> u8 {
        self.backoff
    }

    /// RFC 6298 §5.7: a connection whose SYN timed out starts its data with 3 s.
    pub(crate) fn after_syn_timeout(&mut self) {
        if self.smoothed_us.is_none() {
            self.smoothed_us = Some(1_000_000);
            self.variation_us = 500_000;
            self.min_us = 1_000_000;
        }
        self.backoff = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rtt() -> Rtt {
        Rtt::new(Duration::from_millis(200), Duration::from_secs(60))
    }

    #[test]
    fn follows_rfc_6298() {
        let mut rtt = rtt();
        assert_eq!(rtt.rto(), Duration::from_secs(1));
        rtt.sample(Duration::from_millis(400));
        assert_eq!(rtt.smoothed(), Some(Duration::from_millis(400)));
        assert_eq!(rtt.rto(), Duration::from_millis(400 + 4 * 200));
        rtt.sample(Duration::from_millis(480));
        assert_eq!(rtt.smoothed(), Some(Duration::from_millis(410)));
        assert_eq!(rtt.rto(), Duration::from_millis(410 + 4 * 170));
        assert_eq!(rtt.min(), Some(Duration::from_millis(400)));
    }

    #[test]
    fn backs_off_to_its_bound_and_recovers() {
        let mut rtt = rtt();
        rtt.sample(Duration::from_millis(1));
        assert_eq!(rtt.rto(), Duration::from_millis(200));
        for doublings in 1..40u32 {
            rtt.back_off();
            let expected = 200u64.saturating_mul(1 << doublings.min(12));
            assert_eq!(rtt.rto(), Duration::from_millis(expected.min(60_000)));
        }
        rtt.reset_back_off();
        assert_eq!(rtt.rto(), Duration::from_millis(200));
    }
}
