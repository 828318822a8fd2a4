//! Leaving slow start before the queue overflows (RFC 9406, HyStart++).

use proto_core::time::Duration;

use super::Ack;

/// Samples in a round before its minimum counts.
const SAMPLES: u32 = 8;
/// Rounds of conservative slow start before congestion avoidance.
const CONSERVATIVE_ROUNDS: u32 = 5;
/// Growth in conservative slow start is divided by this.
const DIVISOR: u64 = 4;
const MIN_THRESHOLD: Duration = Duration::from_millis(4);
const MAX_THRESHOLD: Duration = Duration::from_millis(16);

/// State of one connection's slow start.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct HyStart {
    /// The round ends when this offset is acknowledged.
    round_end: u64,
    last_min: Option<Duration>,
    this_min: Option<Duration>,
    samples: u32,
    /// Conservative slow start: rounds so far, and the minimum at its start.
    conservative: Option<(u32, Duration)>,
}

pub(super) struct Growth {
    pub(super) divisor: u64,
    pub(super) ends_slow_start: bool,
}

impl HyStart {
    pub(super) fn on_ack(&mut self, ack: &Ack) -> Growth {
        let mut ends = false;
        if ack.una >= self.round_end {
            self.round_end = ack.nxt;
            self.last_min = self.this_min.take();
            self.samples = 0;
            if let Some((rounds, _)) = &mut self.conservative {
                *rounds += 1;
                ends = *rounds >= CONSERVATIVE_ROUNDS;
            }
        }
        if let Some(rtt) = ack.rtt {
            self.this_min = Some(self.this_min.map_or(rtt, |least| least.min(rtt)));
            self.samples += 1;
        }
        if let (Some(last), Some(this)) = (self.last_min, self.this_min)
            && self.samples >= SAMPLES
        {
            self.compare(last, this);
        }
        Growth {
            divisor: if self.conservative.is_some() {
                DIVISOR
            } else {
                1
            },
            ends_slow_start: ends,
        }
    }

    fn compare(&mut self, last: Duration, this: Duration) {
        match self.conservative {
            None => {
                let threshold = (last / 8).clamp(MIN_THRESHOLD, MAX_THRESHOLD);
                if this >= last + threshold {
                    self.conservative = Some((0, this));
                }
            }
            // The growth was a fluctuation: back to slow start.
            Some((_, baseline)) if this < baseline => self.conservative = None,
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proto_core::time::Instant;

    use super::*;

    const ROUND: u64 = 10;

    /// Rounds of ten acknowledgements each.
    #[derive(Default)]
    struct Flow {
        hystart: HyStart,
        una: u64,
    }

    impl Flow {
        fn ack(&mut self, rtt_ms: u64) -> Growth {
            self.una += 1;
            self.hystart.on_ack(&Ack {
                now: Instant::ZERO,
                bytes: 1,
                limited: true,
                smoothed_rtt: None,
                rtt: Some(Duration::from_millis(rtt_ms)),
                una: self.una,
                nxt: self.una + ROUND,
            })
        }

        fn round(&mut self, rtt_ms: u64) -> Growth {
            for _ in 1..ROUND {
                self.ack(rtt_ms);
            }
            self.ack(rtt_ms)
        }
    }

    /// Whether slow start slows down when the least round trip of a round grows so.
    fn slows(before_ms: u64, after_ms: u64) -> bool {
        let mut flow = Flow::default();
        flow.round(before_ms);
        flow.round(after_ms).divisor == DIVISOR
    }

    #[test]
    fn an_eighth_more_within_bounds_slows_down() {
        assert!(!slows(80, 89));
        assert!(slows(80, 90));
        // At least 4 ms, at most 16.
        assert!(!slows(8, 11));
        assert!(slows(8, 12));
        assert!(!slows(400, 415));
        assert!(slows(400, 416));
    }

    #[test]
    fn eight_samples_of_a_round_decide() {
        let mut flow = Flow::default();
        flow.round(80);
        for _ in 0..7 {
            assert_eq!(flow.ack(100).divisor, 1);
        }
        assert_eq!(flow.ack(100).divisor, DIVISOR);
        // The least of them counts.
        let mut flow = Flow::default();
        flow.round(80);
        flow.ack(81);
        assert_eq!(flow.round(200).divisor, 1);
    }

    #[test]
    fn a_round_is_compared_with_the_one_before() {
        let mut flow = Flow::default();
        for rtt_ms in [80, 84, 88, 92, 96, 100] {
            assert_eq!(flow.round(rtt_ms).divisor, 1, "{rtt_ms}");
        }
    }

    #[test]
    fn a_fluctuation_is_no_queue() {
        let mut flow = Flow::default();
        flow.round(80);
        assert_eq!(flow.round(100).divisor, DIVISOR);
        assert_eq!(flow.round(100).divisor, DIVISOR, "as long");
        assert_eq!(flow.round(99).divisor, 1);
    }

    #[test]
    fn five_conservative_rounds_end_slow_start() {
        let mut flow = Flow::default();
        flow.round(80);
        flow.round(100);
        for _ in 0..4 {
            for _ in 0..ROUND {
                assert!(!flow.ack(100).ends_slow_start);
            }
        }
        assert!(flow.ack(100).ends_slow_start);
    }
}
