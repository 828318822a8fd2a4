//! What this receiver is to its peers, and its source of randomness.

use proto_core::time::Duration;
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};

#[derive(Debug)]
pub(super) struct Identity {
    id: u64,
    /// Proves this receiver's address to the source; 0 until the source has given one.
    token: u64,
    tag: u16,
    rng: ChaCha12Rng,
}

impl Identity {
    pub(super) fn new(seed: [u8; 32]) -> Self {
        let mut rng = ChaCha12Rng::from_seed(seed);
        Identity {
            id: rng.next_u64(),
            token: 0,
            tag: rng.next_u32() as u16,
            rng,
        }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn token(&self) -> u64 {
        self.token
    }

    pub(super) fn set_token(&mut self, token: u64) {
        self.token = token;
    }

    /// Returns the tag of the next request or report.
    pub(super) fn next_tag(&mut self) -> u16 {
        self.tag = self.tag.wrapping_add(1);
        self.tag
    }

    /// Returns a random number for a question to the source; never 0.
    pub(super) fn nonce(&mut self) -> u64 {
        self.rng.next_u64().max(1)
    }

    /// Returns a random time, `max` at most.
    pub(super) fn jitter(&mut self, max: Duration) -> Duration {
        let max = max.total_micros();
        if max == 0 {
            return Duration::ZERO;
        }
        Duration::from_micros(self.rng.next_u64() % (max + 1))
    }
}
