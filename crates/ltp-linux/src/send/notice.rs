//! Limits events about the rate.

use ltp::{Duration, Instant};

/// Shortest time between two events about the rate.
const PAUSE: Duration = Duration::from_secs(1);

/// Limits events about the rate, which may change twenty times a second.
#[derive(Debug)]
pub(super) struct RateNotice {
    reported: Option<u64>,
    next: Instant,
}

impl RateNotice {
    /// `rate_bps` is the rate that was reported at the start.
    pub(super) fn new(now: Instant, rate_bps: Option<u64>) -> Self {
        RateNotice {
            reported: rate_bps,
            next: now,
        }
    }

    /// Whether this rate is to be reported now.
    pub(super) fn is_due(&mut self, now: Instant, rate_bps: Option<u64>) -> bool {
        let is_due = rate_bps != self.reported && now >= self.next;
        if is_due {
            self.reported = rate_bps;
            self.next = now + PAUSE;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_that_changes_all_the_time_is_reported_once_a_second() {
        let start = Instant::from_secs(1);
        let mut notice = RateNotice::new(start, Some(500));
        let told = (0..300).filter(|&step| {
            let now = start + Duration::from_millis(50 * step);
            notice.is_due(now, Some(500 + step / 2))
        });
        let times: Vec<u64> = told.collect();
        assert_eq!(times.len(), 15);
        assert_eq!(times[0], 2, "the first change at once");
        let end = start + Duration::from_secs(60);
        assert!(
            notice.is_due(end, Some(500 + 149)),
            "the rate that it stays at is reported"
        );
        assert!(!notice.is_due(end + Duration::from_secs(60), Some(500 + 149)));
    }
}
