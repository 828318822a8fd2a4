//! A rate of packets.

use proto_core::time::{Duration, Instant};

/// How much may be sent at once: what the rate gives in a quarter of a second.
const BURST: Duration = Duration::from_millis(250);

/// A token bucket of as many packets a second as [`Bucket::take`] says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    /// When all of it is there again.
    full_at: Instant,
}

impl Bucket {
    pub(super) const fn new(now: Instant) -> Self {
        Bucket { full_at: now }
    }

    /// Nothing has been taken of late.
    pub(super) fn is_full(&self, now: Instant) -> bool {
        self.full_at <= now
    }

    /// Takes one packet; false if there is none left.
    pub(super) fn take(&mut self, now: Instant, per_second: u32) -> bool {
        let each = Duration::from_micros(1_000_000 / u64::from(per_second.max(1)));
        let full_at = self.full_at.max(now) + each;
        let fits = full_at <= now + BURST;
        if fits {
            self.full_at = full_at;
        }
        fits
    }
}
