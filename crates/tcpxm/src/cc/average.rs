//! The average of a congestion window over many losses.

use proto_core::time::{Duration, Instant};

/// The average is over this many round trips. At a loss of 1 % a window is cut nine times in them.
const ROUND_TRIPS: u32 = 64;
const LEAST: Duration = Duration::from_millis(100);
/// A window this many times below the average is no chance: the path has changed.
const COLLAPSE: u64 = 3;
/// Fractions of a byte.
const SHIFT: u32 = 8;

/// An exponentially weighted average by time.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Average {
    /// In parts of a byte; 0 before the first window.
    value: u64,
    since: Instant,
    in_slow_start: bool,
}

impl Average {
    /// Returns the average in bytes.
    pub(super) fn get(&self) -> u64 {
        self.value >> SHIFT
    }

    /// Records the window at this time. In slow start, and after it, the average is the window: what was reached there
    /// is not what the path carries.
    pub(super) fn observe(
        &mut self,
        now: Instant,
        window: u64,
        in_slow_start: bool,
        rtt: Duration,
    ) {
        let elapsed = now - self.since;
        self.since = now;
        let window = window << SHIFT;
        let begins = self.value == 0 || in_slow_start || self.in_slow_start;
        self.in_slow_start = in_slow_start;
        if begins {
            self.value = window;
            return;
        }
        let period = (rtt * ROUND_TRIPS).max(LEAST).total_micros();
        let weight = u128::from(elapsed.total_micros().min(period));
        let share = u128::from(window.abs_diff(self.value)) * weight / u128::from(period);
        let share = u64::try_from(share).unwrap_or(u64::MAX);
        if window > self.value {
            self.value += share;
        } else {
            self.value -= share;
        }
        self.value = self.value.min(window.saturating_mul(COLLAPSE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(10);

    #[test]
    fn a_sawtooth_has_its_mean() {
        let mut average = Average::default();
        for ms in 0..20_000 {
            let window = 7_000 + 3_000 * (ms % 80) / 80;
            average.observe(Instant::from_millis(ms), window as u64, false, RTT);
        }
        assert!(
            (8_300..=8_700).contains(&average.get()),
            "{}",
            average.get()
        );
    }

    #[test]
    fn slow_start_leaves_nothing() {
        let mut average = Average::default();
        average.observe(Instant::from_millis(0), 500_000, true, RTT);
        assert_eq!(average.get(), 500_000);
        average.observe(Instant::from_millis(10), 20_000, false, RTT);
        assert_eq!(average.get(), 20_000);
    }

    #[test]
    fn a_collapse_is_followed_at_once() {
        let mut average = Average::default();
        average.observe(Instant::from_millis(0), 100_000, false, RTT);
        average.observe(Instant::from_millis(10), 50_000, false, RTT);
        assert!(average.get() > 98_000);
        average.observe(Instant::from_millis(20), 10_000, false, RTT);
        assert_eq!(average.get(), 30_000);
    }
}
