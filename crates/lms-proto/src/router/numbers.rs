//! The numbers that stand for interfaces in turning points.
//!
//! A number is the interface's own number, enciphered: a Feistel network over 16 bits with eight rounds. A round
//! function is a table of 256 random bytes that only this router knows, indexed with half of the value and one byte
//! of the round key. The eight round keys are SipHash-1-3 of source, group and time. A host that has read the numbers
//! of some interfaces learns neither that of another interface nor those in another group, and a restarted
//! router has other numbers.
//!
//! The hash begins with the same 8 bytes as that of the lookup of the entry, and is computed with it. A number is
//! deciphered with the current keys first, and with those before only if no downstream interface comes out.

use core::fmt;

use rand_core::Rng;

use crate::table::Prefix;
use crate::{Duration, Iface, Instant};

/// How long one set of numbers is written into requests. The set before it stays valid until the
/// next one takes its place, so a number is valid for one to two of these times.
pub const NUMBER_ROTATION: Duration = Duration::from_secs(60);

const ROUNDS: usize = 8;
/// Each table serves two rounds, with different keys.
const TABLES: usize = 4;

/// The secret tables of the cipher.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Numbers {
    tables: [[u8; 256]; TABLES],
}

/// Without the secret.
impl fmt::Debug for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Numbers(..)")
    }
}

impl Numbers {
    pub(super) fn new(rng: &mut impl Rng) -> Self {
        let mut tables = [[0; 256]; TABLES];
        rng.fill_bytes(tables.as_flattened_mut());
        Numbers { tables }
    }

    /// Returns the number of an interface in the turning points of the source and group of `entry`, in a [`period`].
    #[inline]
    pub(crate) fn number(&self, period: u32, entry: Prefix, iface: Iface) -> Iface {
        let keys = round_keys(period, entry);
        // 0xffff means "unset". The value that comes out there goes through once more, and the numbers below it remain a
        // permutation. It does not come out twice: then 0xffff would stand for itself.
        let mut value = self.encipher(keys, iface.0);
        if value == Iface::UNSET.0 {
            value = self.encipher(keys, value);
        }
        Iface(value)
    }

    /// Returns the interfaces that a number may stand for: by the current numbers, then by those of the
    /// period before.
    #[inline]
    pub(crate) fn interfaces(
        &self,
        period: u32,
        entry: Prefix,
        number: Iface,
    ) -> impl Iterator<Item = Iface> + '_ {
        [period, period.wrapping_sub(1)]
            .into_iter()
            .map(move |period| self.interface(period, entry, number))
    }

    /// Returns the interface that a number stands for in one period.
    #[inline]
    pub(crate) fn interface(&self, period: u32, entry: Prefix, number: Iface) -> Iface {
        let keys = round_keys(period, entry);
        let mut value = self.decipher(keys, number.0);
        if value == Iface::UNSET.0 {
            value = self.decipher(keys, value);
        }
        Iface(value)
    }

    #[inline]
    fn encipher(&self, keys: [u8; ROUNDS], value: u16) -> u16 {
        let [mut left, mut right] = value.to_be_bytes();
        for (round, key) in keys.into_iter().enumerate() {
            (left, right) = (right, left ^ self.round(round, key, right));
        }
        u16::from_be_bytes([left, right])
    }

    #[inline]
    fn decipher(&self, keys: [u8; ROUNDS], value: u16) -> u16 {
        let [mut left, mut right] = value.to_be_bytes();
        for (round, key) in keys.into_iter().enumerate().rev() {
            (left, right) = (right ^ self.round(round, key, left), left);
        }
        u16::from_be_bytes([left, right])
    }

    #[inline]
    fn round(&self, round: usize, key: u8, half: u8) -> u8 {
        self.tables[round % TABLES][usize::from(half ^ key)]
    }
}

#[inline]
fn round_keys(period: u32, entry: Prefix) -> [u8; ROUNDS] {
    entry.hash_with(period).to_le_bytes()
}

/// Periods of [`NUMBER_ROTATION`] since the start of the clock, modulo 2^32.
#[inline]
pub(crate) fn period(now: Instant) -> u32 {
    let length = NUMBER_ROTATION.total_micros() as i64;
    now.total_micros().div_euclid(length) as u32
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec;

    use rand_chacha::ChaCha8Rng;
    use rand_core::SeedableRng;

    use super::*;
    use crate::table::HashKey;

    fn numbers() -> Numbers {
        Numbers::new(&mut ChaCha8Rng::from_seed([5; 32]))
    }

    #[test]
    fn numbers_are_a_permutation_without_the_unset_one() {
        let numbers = numbers();
        let entry = HashKey(1, 2).prefix(3);
        let now = 16;
        let mut taken = vec![false; usize::from(u16::MAX)];
        for iface in (0..u16::MAX).map(Iface) {
            let number = numbers.number(now, entry, iface);
            assert!(number.is_set());
            assert!(!core::mem::replace(&mut taken[usize::from(number.0)], true));
            assert_eq!(numbers.interfaces(now, entry, number).next(), Some(iface));
            assert_eq!(
                numbers.interfaces(now + 1, entry, number).nth(1),
                Some(iface)
            );
        }
    }

    /// In 65,536 groups and in as many periods: neither the number of an interface nor what two interfaces differ by
    /// comes more often than chance would have it.
    #[test]
    fn numbers_of_groups_and_periods_are_unrelated() {
        let numbers = numbers();
        let hash_key = HashKey(6, 7);
        let fixed = hash_key.prefix(1);
        for of_group in [true, false] {
            let mut seen = vec![[0_u8; 3]; 1 << 16];
            for n in 0..1_u32 << 16 {
                let (entry, period) = match of_group {
                    true => (hash_key.prefix(u64::from(n)), 0),
                    false => (fixed, n),
                };
                let [a, b] = [0, 1].map(|iface| numbers.number(period, entry, Iface(iface)).0);
                for (at, value) in [a, a ^ b, a.wrapping_sub(b)].into_iter().enumerate() {
                    seen[usize::from(value)][at] += 1;
                }
            }
            // One on average; twelve would come for any value with a probability of 1 in 3,000.
            assert!(seen.as_flattened().iter().all(|&times| times < 12));
        }
    }
}
