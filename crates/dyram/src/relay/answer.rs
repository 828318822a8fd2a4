//! Response times of repliers: the wait for an answer follows measurements.
//!
//! The round-trip time to the farthest receiver holds in an idle network; a busy host or a queue takes longer. Asking
//! the next replier too early costs a needless repair.

use proto_core::time::{Duration, Instant};

use crate::wheel::tick_of;

/// Unit of samples: four ticks, 1,024 µs.
const UNIT_US: u32 = 4 << 8;
/// Upper bound of the wait. Samples wrap, so none is longer than 262 ms.
const MOST_US: u32 = 1_000_000;

/// Returns the time as NACK states store it. It wraps after 262 ms: a slower answer counts as a quick one.
pub(super) fn units(now: Instant) -> u8 {
    (tick_of(now) >> 2) as u8
}

/// A smoothed response time and its variation, as in RFC 6298 §2; both 0 before the first sample.
///
/// It is not a [`RoundTrip`](proto_core::round_trip::RoundTrip): that is three times as large, and a missed answer raises
/// the variation of this one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct AnswerTime {
    smoothed_us: u32,
    variation_us: u32,
}

impl AnswerTime {
    /// Adds the response time of a replier.
    pub(super) fn sample(&mut self, asked: u8, now: Instant) {
        // Half a unit makes up for rounding down.
        let us = u32::from(units(now).wrapping_sub(asked)) * UNIT_US + UNIT_US / 2;
        if self.smoothed_us == 0 {
            (self.smoothed_us, self.variation_us) = (us, us / 2);
            return;
        }
        let away = us.abs_diff(self.smoothed_us);
        self.variation_us = self.variation_us - self.variation_us / 4 + away / 4;
        self.smoothed_us = self.smoothed_us - self.smoothed_us / 8 + us / 8;
    }

    /// The first replier did not answer in time: a packet was lost, or the wait was too short. Late answers give no
    /// sample, so the wait grows to five quarters of the last one, regardless of the number of packets.
    pub(super) fn missed(&mut self, asked: u8, now: Instant) {
        let waited_us = u32::from(units(now).wrapping_sub(asked)) * UNIT_US;
        let least = (waited_us * 5 / 4).saturating_sub(self.smoothed_us) / 4;
        self.variation_us = self.variation_us.max(least);
    }

    /// Returns how long to wait.
    pub(super) fn within(&self) -> Duration {
        let us = self
            .smoothed_us
            .saturating_add(self.variation_us.saturating_mul(4));
        Duration::from_micros(u64::from(us.min(MOST_US)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks at a time and gets the answer `units` of 1,024 us later.
    fn answered(answer: &mut AnswerTime, asked: i64, later: i64) {
        let at = |ms: i64| Instant::from_micros(ms * 1024);
        answer.sample(units(at(asked)), at(asked + later));
    }

    fn within(answer: &AnswerTime) -> u64 {
        answer.within().total_micros()
    }

    /// The formulas of RFC 6298 §2, with a gain of an eighth and a quarter.
    #[test]
    fn it_is_smoothed_as_the_rfc_says() {
        let mut answer = AnswerTime::default();
        let (mut smoothed, mut variation) = (0.0, 0.0);
        // The time wraps after 256 units.
        for (asked, later) in [
            (250, 20),
            (300, 20),
            (510, 90),
            (700, 10),
            (900, 40),
            (1023, 3),
        ] {
            answered(&mut answer, asked, later);
            let sample = later as f64 * 1024.0 + 512.0;
            if smoothed == 0.0 {
                (smoothed, variation) = (sample, sample / 2.0);
            } else {
                let away = f64::abs(smoothed - sample);
                variation = 0.75 * variation + 0.25 * away;
                smoothed = 0.875 * smoothed + 0.125 * sample;
            }
            let expected = smoothed + 4.0 * variation;
            let off = (within(&answer) as f64 - expected).abs();
            assert!(off < 30.0, "{} for {expected}", within(&answer));
        }
    }

    #[test]
    fn after_a_missed_answer_the_wait_is_five_quarters_of_the_last_one() {
        let mut answer = AnswerTime::default();
        answered(&mut answer, 0, 20);
        let before = within(&answer);
        let at = |ms: i64| Instant::from_micros(ms * 1024);
        // A wait that was shorter anyway teaches nothing.
        answer.missed(units(at(1_000)), at(1_010));
        assert_eq!(within(&answer), before);
        answer.missed(units(at(1_000)), at(1_100));
        let waited = 100 * 1024;
        assert!(within(&answer).abs_diff(waited * 5 / 4) < 8);
        // Regardless of the number of packets.
        answer.missed(units(at(1_000)), at(1_100));
        assert!(within(&answer).abs_diff(waited * 5 / 4) < 8);
        // Without a sample too, and never longer than a second.
        let mut answer = AnswerTime::default();
        answer.missed(units(at(0)), at(100));
        assert!(within(&answer).abs_diff(waited * 5 / 4) < 8);
        let slow = AnswerTime {
            smoothed_us: 200_000,
            variation_us: u32::MAX / 2,
        };
        assert_eq!(slow.within(), Duration::from_secs(1));
    }

    #[test]
    fn it_follows_what_is_measured_and_grows_while_nothing_is() {
        let at = |ms: i64| Instant::from_micros(ms * 1024);
        let mut answer = AnswerTime::default();
        assert_eq!(answer.within(), Duration::ZERO);
        for start in 0..100 {
            answer.sample(units(at(start * 7)), at(start * 7 + 20));
        }
        let within = answer.within().total_millis();
        assert!((20..26).contains(&within), "{within}");
        // A whole window that was waited for together counts once.
        let waited = |answer: &mut AnswerTime| {
            let wait = answer.within().total_micros() as i64 / 1024 + 1;
            for _ in 0..64 {
                answer.missed(units(at(0)), at(wait));
            }
        };
        waited(&mut answer);
        let grown = answer.within().total_millis();
        assert!((24..34).contains(&grown), "{grown}");
        for _ in 0..100 {
            waited(&mut answer);
        }
        assert!(answer.within() < Duration::from_millis(340), "{answer:?}");
        for start in 0..100 {
            answer.sample(units(at(start * 7)), at(start * 7 + 20));
        }
        let within = answer.within().total_millis();
        assert!((20..26).contains(&within), "{within}");
    }
}
