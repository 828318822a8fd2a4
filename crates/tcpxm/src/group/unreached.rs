//! Finds out that multicast does not reach a receiver that is sent to by multicast alone.

use smoltcp::time::{Duration, Instant};

/// Segments, all sent after a receiver last showed that multicast reaches it, that must have arrived as
/// repairs before it can fail. Losses of single segments of an application that sends little are not taken
/// for a path without multicast.
const SEGMENTS: u64 = 3;

/// Longest pause between two acknowledgements that counts. A receiver whose host or path stood still for longer
/// acknowledges late what it got by multicast, and by then all of it was sent again.
const PAUSE: Duration = Duration::from_secs(1);

/// Decides whether multicast reaches a receiver that is sent to by multicast alone.
///
/// Two things show that it does: an acknowledgement of a segment that was sent once only, and feedback
/// (TCP-XM §2.3) that rises or is 100. While only repairs arrive feedback falls, whatever came before.
/// Segments that are late rather than lost arrive after they were sent again, so that no
/// acknowledgement alone could tell.
///
/// The silent time begins with an acknowledgement that shows neither. It counts only while what was sent
/// within it arrives too: a receiver that says nothing (its host is suspended, its path is down) is not
/// judged, and one that lost a long flight is given the time to be repaired.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unreached {
    silent: Option<Silent>,
}

/// Acknowledgements in a row, none of which shows that multicast arrives.
#[derive(Clone, Copy, Debug)]
struct Silent {
    /// When the last one arrived.
    last: Instant,
    /// Milliseconds between them, without what pauses have above [`PAUSE`].
    elapsed: u32,
    /// What had been sent when the first one arrived.
    sent: u64,
}

impl Silent {
    fn elapsed(&self, now: Instant) -> u32 {
        let pause = (now - self.last).min(PAUSE).total_millis();
        self.elapsed.saturating_add(pause as u32)
    }
}

impl Unreached {
    /// An acknowledgement brought `una` forward, or brought new selective acknowledgements.
    /// `first_try`: some of what it is about was sent once only; `nxt`: behind all that was sent.
    pub(crate) fn delivered(&mut self, now: Instant, una: u64, nxt: u64, first_try: bool) {
        self.silent = match self.silent {
            _ if first_try => None,
            Some(silent) => Some(Silent {
                last: now,
                elapsed: silent.elapsed(now),
                ..silent
            }),
            None => (una > 0).then_some(Silent {
                last: now,
                elapsed: 0,
                sent: nxt,
            }),
        };
    }

    /// The receiver said how much of its last segments came by multicast; `before` is what it said last.
    pub(crate) fn feedback(&mut self, before: Option<u8>, percent: u8) {
        if percent == 100 || before.is_some_and(|before| percent > before) {
            self.silent = None;
        }
    }

    /// For how long nothing has shown that multicast arrives; `una` and the length of a segment say how much
    /// of what was sent meanwhile has arrived.
    pub(crate) fn elapsed(&self, now: Instant, una: u64, payload: u64) -> Duration {
        match self.silent {
            Some(silent) if una >= silent.sent.saturating_add(SEGMENTS * payload) => {
                Duration::from_millis(u64::from(silent.elapsed(now)))
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
        assert_eq!(unreached.elapsed(at(1000), 1299, 100), Duration::ZERO);
        assert_eq!(
            unreached.elapsed(at(1000), 1300, 100),
            Duration::from_secs(1)
        );
    }

    #[test]
    fn one_segment_by_multicast_ends_it() {
        let mut unreached = Unreached::default();
        unreached.delivered(at(0), 100, 1000, false);
        unreached.delivered(at(10), 200, 1000, true);
        assert_eq!(unreached.elapsed(at(1000), 5000, 100), Duration::ZERO);
        unreached.delivered(at(1000), 300, 2000, false);
        unreached.delivered(at(2000), 1000, 2000, false);
        assert_eq!(
            unreached.elapsed(at(3000), 2300, 100),
            Duration::from_secs(2)
        );
    }

    #[test]
    fn feedback_that_rises_or_is_full_ends_it() {
        let judged = |percent| {
            let mut unreached = Unreached::default();
            unreached.delivered(at(0), 100, 1000, false);
            unreached.feedback(Some(50), percent);
            unreached.delivered(at(900), 2000, 1000, false);
            unreached.elapsed(at(1000), 2000, 100) == Duration::from_secs(1)
        };
        assert_eq!([49, 50, 51, 100].map(judged), [true, true, false, false]);
    }

    #[test]
    fn pauses_count_for_a_second_at_most() {
        let mut unreached = Unreached::default();
        unreached.delivered(at(0), 100, 1000, false);
        unreached.delivered(at(20_000), 200, 1000, false);
        unreached.delivered(at(20_100), 1400, 1000, false);
        assert_eq!(
            unreached.elapsed(at(40_000), 1400, 100),
            Duration::from_millis(2_100)
        );
    }
}
