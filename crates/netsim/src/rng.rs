//! Generators: fast ones for links and topologies, all derived from one seed.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng as _, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A seed for the part (`domain`, `index`) of a simulation: independent of every other part's, and
/// unchanged when parts are added.
///
/// Domains below 2^32 are free for callers; the simulator uses those above.
#[must_use]
pub fn derive_seed(seed: &[u8; 32], domain: u64, index: u64) -> [u8; 32] {
    let mut chacha = ChaCha8Rng::from_seed(*seed);
    chacha.set_stream(domain);
    chacha.set_word_pos(u128::from(index) * 16); // one block of 16 words for each part
    let mut out = [0; 32];
    chacha.fill_bytes(&mut out);
    out
}

/// Domain of the link directions' generators; index: link * 2 + direction.
pub(crate) const DOMAIN_LINK: u64 = 1 << 32;

/// A small fast generator (xoshiro256++). Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng(Xoshiro256PlusPlus);

impl Rng {
    /// A generator that yields the same numbers for the same seed, on every machine.
    #[must_use]
    pub fn new(seed: [u8; 32]) -> Self {
        Self(Xoshiro256PlusPlus::from_seed(seed))
    }

    /// Uniform over all 64-bit values.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        const SCALE: f64 = 1.0 / (1u64 << 53) as f64;
        (self.next_u64() >> 11) as f64 * SCALE
    }

    /// Uniform in [0, `bound`); 0 for a bound of 0. The bias is below 2^-32 for bounds below 2^32.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform in [`low`, `high`], both included; `low` when `high` is not above it.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low.saturating_add(self.below(high.saturating_sub(low).saturating_add(1)))
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// How many trials fail before the first success: `u64::MAX` when the probability is 0.
    pub fn failures_before_success(&mut self, probability: f64) -> u64 {
        if probability <= 0.0 {
            return u64::MAX;
        }
        if probability >= 1.0 {
            return 0;
        }
        // 1 - unit() lies in (0, 1], so that the logarithm is finite.
        let failures = libm::log(1.0 - self.unit()) / libm::log1p(-probability);
        failures as u64 // saturates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_seeds_differ_and_repeat() {
        let seed = [3; 32];
        assert_eq!(derive_seed(&seed, 1, 2), derive_seed(&seed, 1, 2));
        assert_ne!(derive_seed(&seed, 1, 2), derive_seed(&seed, 1, 3));
        assert_ne!(derive_seed(&seed, 1, 2), derive_seed(&seed, 2, 2));
        assert_ne!(derive_seed(&seed, 1, 2), derive_seed(&[4; 32], 1, 2));
    }

    #[test]
    fn bounds_hold() {
        let mut rng = Rng::new([1; 32]);
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.between(5, 5), 5);
        assert_eq!(rng.failures_before_success(0.0), u64::MAX);
        assert_eq!(rng.failures_before_success(1.0), 0);
        let mut seen = [false; 3];
        for _ in 0..1000 {
            assert!((0.0..1.0).contains(&rng.unit()));
            seen[(rng.between(7, 9) - 7) as usize] = true;
        }
        assert_eq!(seen, [true; 3]);
    }

    #[test]
    fn gaps_between_losses_have_the_mean_of_their_rate() {
        let mut rng = Rng::new([2; 32]);
        let draws = 200_000;
        let sum: u64 = (0..draws).map(|_| rng.failures_before_success(0.01)).sum();
        let mean = sum as f64 / f64::from(draws);
        assert!((mean - 99.0).abs() < 1.0, "mean gap {mean}");
    }
}
