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
