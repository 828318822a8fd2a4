//! The clock that drivers run machines with.

use crate::time::Instant;

/// Monotonic time since one second before the clock was made.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: std::time::Instant,
}

impl Clock {
    /// Returns a clock that shows one second: zero stays free for "never".
    #[must_use]
    pub fn new() -> Self {
        Clock {
            origin: std::time::Instant::now(),
        }
    }

    /// Returns the time.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::from_secs(1) + self.origin.elapsed().into()
    }

    /// Returns the time from `now` until `deadline`: zero when it has passed, at most `most`, which is also the
    /// answer without a deadline.
    #[must_use]
    pub fn until(
        now: Instant,
        deadline: Option<Instant>,
        most: std::time::Duration,
    ) -> std::time::Duration {
        let Some(deadline) = deadline else {
            return most;
        };
        let micros = deadline
            .total_micros()
            .saturating_sub(now.total_micros())
            .max(0);
        std::time::Duration::from_micros(micros.unsigned_abs()).min(most)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn it_starts_at_one_second() {
        let clock = Clock::new();
        assert!(clock.now() >= Instant::from_secs(1));
        while clock.now() == Instant::from_secs(1) {}
        assert!(clock.now() < Instant::from_secs(100));
    }

    #[test]
    fn a_wait_ends_at_the_deadline_and_is_bounded() {
        let most = Duration::from_secs(10);
        let until = |deadline| Clock::until(Instant::from_secs(5), deadline, most);
        assert_eq!(until(None), most);
        assert_eq!(until(Some(Instant::from_secs(7))), Duration::from_secs(2));
        assert_eq!(until(Some(Instant::from_secs(70))), most);
        assert_eq!(until(Some(Instant::from_secs(3))), Duration::ZERO);
    }
}
