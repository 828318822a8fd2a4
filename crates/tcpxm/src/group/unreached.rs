//! Finds out that multicast does not reach a receiver that is sent to by multicast alone.

use proto_core::time::{Duration, Instant};

use super::mode::FALL_FORWARD_SEGMENTS;

/// Segments, all sent after a receiver last showed that multicast reaches it, that must have arrived as
/// repairs before it can fail: as many as show that multicast does reach it. On a path that loses 30 % this
/// happens by chance once in 2 x 10^8 times.
const SEGMENTS: u64 = FALL_FORWARD_SEGMENTS;

/// Longest pause between two acknowledgements that counts. A receiver whose host or path stopped for longer
/// acknowledges multicast data late, after all of it was sent again.
const PAUSE: Duration = Duration::from_secs(1);

/// For how long a receiver has acknowledged repairs and nothing else.
///
/// The time starts with an acknowledgement of repairs alone, and ends with one of a segment that was sent only
/// once. It counts only while data that was sent within it arrives: a receiver that is silent (its host is
/// suspended, its path is down) is not judged, and one that lost a long flight gets the time to be repaired.
///
/// Segments that are late rather than lost arrive after they were sent again. Therefore the receiver's
/// feedback (TCP-XM §2.3) must be 0 as well: none of the last 128 segments came by multicast.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unreached {
    repaired: Option<Repaired>,
}

/// Acknowledgements of repairs and nothing else, in a row.
#[derive(Clone, Copy, Debug)]
struct Repaired {
    /// When the last one arrived.
    last: Instant,
    /// Time between them, without the part of pauses above [`PAUSE`].
    elapsed: Duration,
    /// End of the sent data when the first one arrived.
    sent: u64,
}

impl Repaired {
    fn elapsed(&self, now: Instant) -> Duration {
        self.elapsed + (now - self.last).min(PAUSE)
    }
}

impl Unreached {
    /// Records an acknowledgement that advanced `una` or brought new selective acknowledgements. `first_try`:
    /// some of the data was sent only once; `nxt`: the end of all sent data.
    pub(crate) fn delivered(&mut self, now: Instant, una: u64, nxt: u64, first_try: bool) {
        self.repaired = match self.repaired {
            _ if first_try => None,
            Some(repaired) => Some(Repaired {
                last: now,
                elapsed: repaired.elapsed(now),
                ..repaired
            }),
            None => (una > 0).then_some(Repaired {
                last: now,
                elapsed: Duration::ZERO,
                sent: nxt,
            }),
        };
    }

    /// Returns how long this has lasted at `now`. `una` and the length of a segment tell how much of the data
    /// sent meanwhile has arrived; `percent` is the last feedback.
    pub(crate) fn elapsed(
        &self,
        now: Instant,
        una: u64,
        payload: u64,
        percent: Option<u8>,
    ) -> Duration {
        match self.repaired {
            Some(repaired)
                if percent == Some(0)
                    && una >= repaired.sent.saturating_add(SEGMENTS * payload) =>
            {
                repaired.elapsed(now)
            }
            _ => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn repairs_of_what_was_sent_meanwhile_count() {
        let mut unreached = Unreached::default();
        unreached.delivered(at(0), 100, 1000, false);
        unreached.delivered(at(900), 500, 1000, false);
        assert_eq!(
            unreached.elapsed(at(1000), 2599, 100, Some(0)),
            Duration::ZERO
        );
        assert_eq!(
            unreached.elapsed(at(1000), 2600, 100, Some(0)),
            Duration::from_secs(1)
        );
    }

    #[test]
    fn one_segment_by_multicast_ends_it() {
        let mut unreached = Unreached::default();
        unreached.delivered(at(0), 100, 1000, false);
        unreached.delivered(at(10), 200, 1000, true);
        assert_eq!(
            unreached.elapsed(at(1000), 5000, 100, Some(0)),
            Duration::ZERO
        );
        unreached.delivered(at(1000), 300, 2000, false);
        unreached.delivered(at(2000), 1000, 2000, false);
        assert_eq!(
            unreached.elapsed(at(3000), 3600, 100, Some(0)),
            Duration::from_secs(2)
        );
    }

    #[test]
    fn a_receiver_that_says_that_some_came_by_multicast_is_not_judged() {
        let mut unreached = Unreached::default();
        unreached.delivered(at(0), 100, 1000, false);
        unreached.delivered(at(900), 2600, 1000, false);
        let elapsed = |percent| {
            unreached
                .elapsed(at(1000), 2600, 100, percent)
                .total_millis()
        };
        assert_eq!([None, Some(1), Some(0)].map(elapsed), [0, 0, 1000]);
    }

    #[test]
    fn pauses_count_for_a_second_at_most() {
        let mut unreached = Unreached::default();
        unreached.delivered(at(0), 100, 1000, false);
        unreached.delivered(at(20_000), 200, 1000, false);
        unreached.delivered(at(20_100), 2600, 1000, false);
        assert_eq!(
            unreached.elapsed(at(40_000), 2600, 100, Some(0)),
            Duration::from_millis(2_100)
        );
    }

    #[test]
    fn the_time_begins_when_the_receiver_has_something() {
        let mut unreached = Unreached::default();
        unreached.delivered(at(0), 0, 1000, false);
        unreached.delivered(at(500), 2600, 1000, false);
        assert_eq!(
            unreached.elapsed(at(900), 2600, 100, Some(0)),
            Duration::from_millis(400)
        );
    }
}
