//! Time and seeds of the machines.

use std::time::Duration as StdDuration;

use ltp::{Duration, Instant};

use crate::Error;

/// Returns the time of the machines, which starts at one second, so that no time is zero.
pub(crate) fn now() -> Instant {
    Instant::now() + Duration::from_secs(1)
}

/// Returns the time from `now` until `deadline`, at most `most`; zero when it has passed.
pub(crate) fn until(now: Instant, deadline: Option<Instant>, most: StdDuration) -> StdDuration {
    deadline.map_or(most, |deadline| {
        let micros = deadline.total_micros().saturating_sub(now.total_micros());
        StdDuration::from_micros(micros.max(0).unsigned_abs()).min(most)
    })
}

/// Returns a span of time as the machines count it, at most 2^40 ms.
pub(crate) fn span(time: StdDuration) -> Duration {
    Duration::from(time.min(StdDuration::from_millis(1 << 40)))
}

/// Returns the seed of a machine.
pub(crate) fn seed() -> Result<[u8; 32], Error> {
    linux_net::process::random().map_err(Error::io("reading /dev/urandom"))
}
