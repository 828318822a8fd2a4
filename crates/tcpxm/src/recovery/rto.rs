//! Round-trip times and the retransmission timeout (RFC 6298).

use proto_core::round_trip::{RoundTrip, TimeoutLimits};
use proto_core::time::Duration;

/// The estimate of the round-trip time, the shortest sample, and the timeout with its back-off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rtt {
    estimate: RoundTrip,
    /// [`Duration::MAX`] before the first sample.
    min: Duration,
    backoff: u8,
}

/// Most doublings of the timeout; its upper bound is usually reached earlier.
const MAX_BACKOFF: u8 = 12;
const MILLISECOND: Duration = Duration::from_millis(1);

impl Rtt {
    pub(crate) fn new(min_rto: Duration, max_rto: Duration) -> Self {
        Self {
            estimate: RoundTrip::new(TimeoutLimits {
                initial: Duration::from_secs(1),
                min: min_rto,
                max: max_rto,
                granularity: MILLISECOND,
            }),
            min: Duration::MAX,
            backoff: 0,
        }
    }

    /// Sets the timeout before the first sample.
    pub(crate) fn set_initial(&mut self, initial: Duration) {
        self.estimate.set_initial(initial);
    }

    /// Adds a sample of a segment that was not retransmitted, or that a timestamp tells from its retransmission
    /// (Karn's rule, RFC 6298 §3).
    pub(crate) fn sample(&mut self, rtt: Duration) {
        self.min = self.min.min(rtt.max(Duration::from_micros(1)));
        self.estimate.sample(rtt);
    }

    /// Adds a sample by timestamps, whose clock ticks in milliseconds: it may be 0.
    pub(crate) fn sample_coarse(&mut self, rtt_ms: u32) {
        let rtt = MILLISECOND * rtt_ms;
        self.min = self.min.min(rtt.max(MILLISECOND));
        self.estimate.sample(rtt.max(MILLISECOND / 2));
    }

    /// Smoothed round-trip time.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.estimate.smoothed()
    }

    /// Shortest round-trip time seen.
    pub(crate) fn min(&self) -> Option<Duration> {
        self.smoothed().map(|_| self.min)
    }

    /// The timeout without back-off.
    pub(crate) fn base_rto(&self) -> Duration {
        self.estimate.timeout(1)
    }

    /// The timeout, doubled for each expiry since the last new acknowledgement (RFC 6298 §5.5).
    pub(crate) fn rto(&self) -> Duration {
        self.estimate.timeout(1 + u32::from(self.backoff))
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
        if self.smoothed().is_none() {
            self.sample(Duration::from_secs(1));
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
    fn a_clock_of_milliseconds_shows_half_of_one_at_least() {
        let mut rtt = rtt();
        rtt.sample_coarse(0);
        assert_eq!(rtt.smoothed(), Some(MILLISECOND / 2));
        assert_eq!(rtt.min(), Some(MILLISECOND));
        let mut rtt = self::rtt();
        rtt.sample_coarse(400);
        assert_eq!(rtt.smoothed(), Some(Duration::from_millis(400)));
        assert_eq!(rtt.min(), Some(Duration::from_millis(400)));
    }

    #[test]
    fn after_a_lost_syn_data_starts_with_three_seconds() {
        let mut rtt = rtt();
        rtt.back_off();
        rtt.after_syn_timeout();
        assert_eq!((rtt.rto(), rtt.backoff()), (Duration::from_secs(3), 0));
        let mut rtt = self::rtt();
        rtt.sample(Duration::from_millis(400));
        rtt.after_syn_timeout();
        assert_eq!(rtt.rto(), Duration::from_millis(1_200), "measured");
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
