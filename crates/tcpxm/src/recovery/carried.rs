//! The amount of data that a path has recently carried.

use proto_core::time::{Duration, Instant};

/// The largest number of bytes in flight to one receiver during a sampling period, in the spirit of pipeACK
/// (RFC 7661 §4.2).
///
/// The amount in flight when a loss is detected says little: a receiver that acknowledges a flight except for
/// one segment has one segment in flight then, and in a group nothing follows while another receiver holds it
/// back. A window says little either if a group does not use it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carried {
    /// When the present half of the period began.
    since: Instant,
    /// Most in the present half of the period, and in the one before.
    most: [u64; 2],
}

impl Carried {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            since: now,
            most: [0; 2],
        }
    }

    /// Records that this much was in flight until now. `period`: how long it counts at most.
    pub(crate) fn record(&mut self, now: Instant, in_flight: u64, period: Duration) {
        let half = period / 2;
        if now - self.since >= half {
            let before = if now - self.since < period {
                self.most[0]
            } else {
                0
            };
            self.most = [0, before];
            self.since = now;
        }
        self.most[0] = self.most[0].max(in_flight);
    }

    /// Returns the largest amount in flight.
    pub(crate) fn most(&self) -> u64 {
        self.most[0].max(self.most[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_for_a_period_and_is_forgotten_then() {
        let at = Instant::from_millis;
        let period = Duration::from_secs(1);
        let mut carried = Carried::new(at(0));
        carried.record(at(100), 9, period);
        carried.record(at(400), 5, period);
        assert_eq!(carried.most(), 9);
        carried.record(at(600), 4, period);
        assert_eq!(carried.most(), 9);
        carried.record(at(1200), 3, period);
        assert_eq!(carried.most(), 4);
        carried.record(at(5000), 2, period);
        assert_eq!(carried.most(), 2);
        carried.record(at(6000), 1, period);
        assert_eq!(carried.most(), 1, "a whole period later");
    }
}
