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

    /// Returns a random number between 0 and 1.
    pub(super) fn chance(&mut self) -> f64 {
        f64::from(self.rng.next_u32()) / f64::from(u32::MAX)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_is_random_up_to_its_bound() {
        let mut identity = Identity::new([5; 32]);
        assert_eq!(identity.jitter(Duration::ZERO), Duration::ZERO);
        let max = Duration::from_micros(3);
        let mut count = [0; 4];
        for _ in 0..1_000 {
            count[identity.jitter(max).total_micros() as usize] += 1;
        }
        assert!(count.iter().all(|&count| count > 150), "{count:?}");
        let long = Duration::from_secs(60);
        let times: [Duration; 16] = core::array::from_fn(|_| identity.jitter(long));
        assert!(times.iter().any(|&time| time > long / 2), "{times:?}");
        assert!(times.iter().any(|&time| time < long / 2), "{times:?}");
        assert!(times.iter().all(|&time| time <= long), "{times:?}");
    }

    #[test]
    fn a_chance_lies_between_nothing_and_certainty() {
        let mut identity = Identity::new([5; 32]);
        let mut count = [0; 4];
        for _ in 0..1_000 {
            let chance = identity.chance();
            assert!((0.0..=1.0).contains(&chance), "{chance}");
            count[(chance * 3.999) as usize] += 1;
        }
        assert!(count.iter().all(|&count| count > 150), "{count:?}");
    }

    #[test]
    fn receivers_have_identifiers_tags_and_nonces_of_their_own() {
        let mut first = Identity::new([5; 32]);
        let mut second = Identity::new([6; 32]);
        assert_ne!(first.id(), second.id());
        assert_eq!(first.id(), Identity::new([5; 32]).id());
        assert_ne!(first.nonce(), second.nonce());
        assert_ne!(first.nonce(), first.nonce());
        let tag = first.next_tag();
        assert_ne!(tag, second.next_tag());
        assert_eq!(first.next_tag(), tag.wrapping_add(1));
        assert_eq!(first.token(), 0);
        first.set_token(8);
        assert_eq!(first.token(), 8);
    }
}
