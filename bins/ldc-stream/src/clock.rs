//! Time of day that never steps: the system clock is read once, the monotonic clock then advances it.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A clock of microseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    unix_us: i64,
    origin: Instant,
}

impl Clock {
    /// Returns a clock set from the system clock.
    pub(crate) fn new() -> Clock {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Clock {
            unix_us: since.map_or(0, |since| micros(since.as_micros())),
            origin: Instant::now(),
        }
    }

    /// Returns the current time.
    pub(crate) fn now_us(&self) -> i64 {
        self.unix_us
            .saturating_add(micros(self.origin.elapsed().as_micros()))
    }
}

/// Returns microseconds as `i64`, at most `i64::MAX`.
pub(crate) fn micros(us: u128) -> i64 {
    i64::try_from(us).unwrap_or(i64::MAX)
}
