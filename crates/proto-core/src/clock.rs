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
        let elapsed = self.origin.elapsed().as_micros();
        Instant::from_micros(1_000_000 + i64::try_from(elapsed).unwrap_or(i64::MAX - 1_000_000))
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
