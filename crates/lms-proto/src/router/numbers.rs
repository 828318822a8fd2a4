//! The numbers that stand for interfaces in turning points.
//!
//! A number is the interface's own number, enciphered: a Feistel network over 16 bits whose four
//! rounds are SipHash-1-3 under a key that depends on the router's seed, the time and the entry.
//! A host that has read the number of one interface learns neither that of another interface nor
//! that of the same interface in another group, and a restarted router has other numbers.

use rand_core::Rng;

use crate::table::HashKey;
use crate::{Duration, Iface, Instant, Key};

/// How long one set of numbers is written into requests. The set before it stays valid until the
/// next one takes its place, so a number is valid for one to two of these times.
pub const NUMBER_ROTATION: Duration = Duration::from_secs(60);

const ROUNDS: [u64; 4] = [0, 1, 2, 3];

/// The secret behind the numbers.
#[derive(Debug)]
pub(super) struct Numbers {
    key: HashKey,
}

impl Numbers {
    pub(super) fn new(rng: &mut impl Rng) -> Self {
        Numbers {
            key: HashKey::random(rng),
        }
    }

    /// Returns the number of an interface in the turning points of this source and group.
    #[inline]
    pub(super) fn number(&self, now: Instant, key: Key, iface: Iface) -> Iface {
        let cipher = self.cipher(period(now), key);
        // 0xffff means "unset": a value that comes out there goes through once more, and the
        // numbers below it remain a permutation.
        let mut value = cipher.encipher(iface.0);
        while value == Iface::UNSET.0 {
            value = cipher.encipher(value);
        }
        Iface(value)
    }

    /// Returns the interfaces that a number may stand for: by the numbers in use now, and by the
    /// ones in use before.
    #[inline]
    pub(super) fn interfaces(&self, now: Instant, key: Key, number: Iface) -> [Iface; 2] {
        let period = period(now);
        [period, period.wrapping_sub(1)].map(|period| {
            let cipher = self.cipher(period, key);
            let mut value = cipher.decipher(number.0);
            while value == Iface::UNSET.0 {
                value = cipher.decipher(value);
            }
            Iface(value)
        })
    }

    /// The low half of the first block is a multicast address, which a period never reaches: no
    /// two blocks under this key are equal.
    #[inline]
    fn cipher(&self, period: u32, key: Key) -> Cipher {
        let source = u64::from(key.source.to_bits());
        let entry = source << 32 | u64::from(key.group.to_bits());
        Cipher {
            key: HashKey(self.key.hash(entry), self.key.hash(u64::from(period))),
        }
    }
}

fn period(now: Instant) -> u32 {
    let length = NUMBER_ROTATION.total_micros() as i64;
    // 2^27 periods are 255 years.
    (now.total_micros().div_euclid(length) as u32) & 0x07ff_ffff
}

struct Cipher {
    key: HashKey,
}

impl Cipher {
    #[inline]
    fn encipher(&self, value: u16) -> u16 {
        let [mut left, mut right] = value.to_be_bytes();
        for round in ROUNDS {
            (left, right) = (right, left ^ self.round(round, right));
        }
        u16::from_be_bytes([left, right])
    }

    #[inline]
    fn decipher(&self, value: u16) -> u16 {
        let [mut left, mut right] = value.to_be_bytes();
        for round in ROUNDS.into_iter().rev() {
            (left, right) = (right ^ self.round(round, left), left);
        }
        u16::from_be_bytes([left, right])
    }

    #[inline]
    fn round(&self, round: u64, half: u8) -> u8 {
        self.key.hash(round << 8 | u64::from(half)) as u8
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec;

    use rand_chacha::ChaCha8Rng;
    use rand_core::SeedableRng;

    use super::*;

    #[test]
    fn numbers_are_a_permutation_without_the_unset_one() {
        let numbers = Numbers::new(&mut ChaCha8Rng::from_seed([5; 32]));
        let key = Key::new([10, 0, 0, 1].into(), [232, 1, 1, 1].into());
        let now = Instant::from_secs(1_000);
        let mut taken = vec![false; usize::from(u16::MAX)];
        for iface in (0..u16::MAX).map(Iface) {
            let number = numbers.number(now, key, iface);
            assert!(number.is_set());
            assert!(!core::mem::replace(&mut taken[usize::from(number.0)], true));
            assert_eq!(numbers.interfaces(now, key, number)[0], iface);
            let later = now + NUMBER_ROTATION;
            assert_eq!(numbers.interfaces(later, key, number)[1], iface);
        }
    }
}
