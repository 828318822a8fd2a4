//! How long repliers take: the wait for an answer follows what was measured.
//!
//! The distance to the farthest receiver is what an idle network takes; a busy host or a queue takes
//! longer, and a replier passed over too early costs a repair that nobody needs, or one of the source's.

use proto_core::time::{Duration, Instant};

use crate::wheel::tick_of;

/// Samples are taken in units of four ticks, 1,024 us.
const UNIT_US: u32 = 4 << 8;
/// No estimate grows beyond this: with what wraps no sample is longer than 262 ms.
const MOST_US: u32 = 1_000_000;

/// The time, as NACK states keep it: it wraps after 262 ms, an answer that takes longer counts as a
/// quick one.
pub(super) fn units(now: Instant) -> u8 {
    (tick_of(now) >> 2) as u8
}

/// A smoothed time and its deviation, as in RFC 6298 section 2; both 0 before the first sample.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct AnswerTime {
    smoothed_us: u32,
    deviation_us: u32,
}

impl AnswerTime {
    /// A replier has answered.
    pub(super) fn sample(&mut self, asked: u8, now: Instant) {
        // Half a unit: that is what rounding down takes away in the mean.
        let us = u32::from(units(now).wrapping_sub(asked)) * UNIT_US + UNIT_US / 2;
        if self.smoothed_us == 0 {
            (self.smoothed_us, self.deviation_us) = (us, us / 2);
            return;
        }
        let away = us.abs_diff(self.smoothed_us);
        self.deviation_us = self.deviation_us - self.deviation_us / 4 + away / 4;
        self.smoothed_us = self.smoothed_us - self.smoothed_us / 8 + us / 8;
    }

    /// The first replier did not answer in time: a packet was lost, or the time was too short. Answers
    /// that come too late are not seen here, so the wait grows by itself: a quarter beyond what was waited,
    /// however many packets were waited for together.
    pub(super) fn missed(&mut self, asked: u8, now: Instant) {
        let waited_us = u32::from(units(now).wrapping_sub(asked)) * UNIT_US;
        let least = (waited_us * 5 / 4).saturating_sub(self.smoothed_us) / 4;
        self.deviation_us = self.deviation_us.max(least);
    }

    /// How long to wait.
    pub(super) fn within(&self) -> Duration {
        let us = self
            .smoothed_us
            .saturating_add(self.deviation_us.saturating_mul(4));
        Duration::from_micros(u64::from(us.min(MOST_US)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
