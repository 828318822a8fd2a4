//! Losses that come in bursts: for a time everything on a link is lost, then nothing.
//!
//! Bursts end by the clock. A chain that moves on with each packet (Gilbert's) would stretch a burst
//! of ten packets over ten minutes where a transport has backed off to one packet a minute.

use netsim::{Duration, Rng, derive_seed};

const DOMAIN_BURSTS: u64 = 5;

/// How a direction of a link loses packets in bursts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Burst {
    /// Share of the time.
    pub(super) loss: f64,
    /// Mean duration of a burst.
    pub(super) length: Duration,
}

/// One direction of one link as it is now.
pub(super) struct State {
    burst: Burst,
    rng: Rng,
    bad: bool,
    until_ns: u64,
}

impl State {
    /// The state of direction `way` (0: down) of a link at time 0.
    pub(super) fn new(burst: Burst, key: &[u8; 32], link: u32, way: u64) -> Self {
        let seed = derive_seed(key, DOMAIN_BURSTS, u64::from(link) * 2 + way);
        Self {
            burst,
            rng: Rng::new(seed),
            bad: true,
            until_ns: 0,
        }
    }

    /// Whether a packet that is sent now is lost. Times of calls must not decrease.
    pub(super) fn lose(&mut self, now_ns: u64) -> bool {
        while self.until_ns <= now_ns {
            self.bad = !self.bad;
            let length_ns = self.burst.length.total_micros() as f64 * 1e3;
            let mean_ns = if self.bad {
                length_ns
            } else {
                length_ns * (1.0 - self.burst.loss) / self.burst.loss
            };
            let drawn = -(1.0 - self.rng.unit()).ln() * mean_ns;
            self.until_ns = self.until_ns.saturating_add(drawn as u64 + 1);
        }
        self.bad
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_have_their_share_and_their_length() {
        let burst = Burst {
            loss: 0.2,
            length: Duration::from_millis(50),
        };
        let mut state = State::new(burst, &[1; 32], 3, 1);
        let (mut lost, mut begun, mut before) = (0u64, 0u64, false);
        let ms = 10_000_000;
        for at in 0..ms {
            let now = state.lose(at * 1_000_000);
            lost += u64::from(now);
            begun += u64::from(now && !before);
            before = now;
        }
        let share = lost as f64 / ms as f64;
        let length = lost as f64 / begun as f64;
        assert!((share - 0.2).abs() < 0.01, "share {share}");
        assert!((length - 50.0).abs() < 2.0, "{length} ms");
    }
}
