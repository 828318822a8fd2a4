//! One's complement sums of IPv4 headers and UDP datagrams (RFC 1071), and their change (RFC 1624).

use crate::Family;

/// A one's complement sum of words of 16 bits in the machine's own byte order (RFC 1071 §2.B), modulo 2^64 - 1: that is a
/// multiple of 2^16 - 1, so that eight bytes are added at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum(u64);

impl Sum {
    /// The sum of these bytes as words of 16 bits, the last one filled with 0.
    #[inline]
    pub(crate) fn of(bytes: &[u8]) -> Sum {
        let (words, rest) = bytes.split_at(bytes.len() & !3);
        let sum = Sum::of_words(words);
        match *rest {
            [] => sum,
            [a] => sum.plus(Sum(u16::from_ne_bytes([a, 0]).into())),
            [a, b] => sum.plus(Sum(u16::from_ne_bytes([a, b]).into())),
            [a, b, c, ..] => sum.plus(Sum(u32::from_ne_bytes([a, b, c, 0]).into())),
        }
    }

    /// The sum of whole words of 32 bits, such as a header of IPv4.
    #[inline]
    pub(crate) fn of_words(bytes: &[u8]) -> Sum {
        let (pairs, rest) = bytes.as_chunks::<8>();
        let last = rest
            .first_chunk()
            .map_or(0, |word| u32::from_ne_bytes(*word));
        let sum = Sum(last.into());
        let pairs = pairs.iter().map(|pair| Sum(u64::from_ne_bytes(*pair)));
        pairs.fold(sum, Sum::plus)
    }

    /// A word with this value.
    #[inline]
    pub(crate) fn word(value: u16) -> Sum {
        Sum::of(&value.to_be_bytes())
    }

    #[inline]
    pub(crate) fn plus(self, other: Sum) -> Sum {
        let (sum, carry) = self.0.overflowing_add(other.0);
        Sum(sum + u64::from(carry))
    }

    #[inline]
    pub(crate) fn minus(self, other: Sum) -> Sum {
        self.plus(Sum(!other.0))
    }

    /// The sum of the same bytes at offset `at` of a header or datagram: after an odd number of bytes each of their words
    /// lies across two words there.
    #[inline]
    pub(crate) fn at(self, at: usize) -> Sum {
        if at.is_multiple_of(2) {
            self
        } else {
            Sum(self.0.rotate_left(8))
        }
    }

    /// The sum in 16 bits. Each step adds the two halves of a word: in the upper half of the sum of a word and itself
    /// rotated by half its length, the carry of the lower half is included.
    #[inline]
    fn folded(self) -> u16 {
        let sum = (self.0.wrapping_add(self.0.rotate_left(32)) >> 32) as u32;
        (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
    }

    /// Whether this is the sum of a header or datagram with a correct checksum.
    #[inline]
    pub(crate) fn is_correct(self) -> bool {
        self.folded() == 0xffff
    }

    /// The checksum of a header with this sum, as on the wire.
    #[inline]
    pub(crate) fn checksum(self) -> [u8; 2] {
        (!self.folded()).to_ne_bytes()
    }

    /// The checksum of a datagram with this sum, as on the wire: never 0, which means "none" (RFC 768).
    #[inline]
    pub(crate) fn udp_checksum(self) -> [u8; 2] {
        match self.checksum() {
            [0, 0] => [0xff, 0xff],
            sum => sum,
        }
    }

    /// The sum of the bytes that this checksum is of.
    #[inline]
    pub(crate) fn of_checksum(field: [u8; 2]) -> Sum {
        Sum((!u16::from_ne_bytes(field)).into())
    }
}

/// The pseudo header of a datagram (RFC 768, RFC 8200 §8.1).
#[inline]
pub(crate) fn pseudo_header<A: Family>(source: A, destination: A, len: usize) -> Sum {
    Sum::of(source.octets().as_ref())
        .plus(Sum::of(destination.octets().as_ref()))
        .plus(Sum::word(len as u16))
        .plus(Sum::word(17))
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// RFC 1071 §4.1, word by word.
    fn word_by_word(bytes: &[u8]) -> [u8; 2] {
        let mut sum: u32 = 0;
        for word in bytes.chunks(2) {
            sum += u32::from(u16::from_be_bytes([word[0], *word.get(1).unwrap_or(&0)]));
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        (!(sum as u16)).to_be_bytes()
    }

    proptest! {
        #[test]
        fn sums_are_those_of_words(bytes: Vec<u8>, at in 0..64_usize) {
            prop_assert_eq!(Sum::of(&bytes).checksum(), word_by_word(&bytes));
            let (first, rest) = bytes.split_at(at.min(bytes.len()));
            let parts = Sum::of(first).plus(Sum::of(rest).at(first.len()));
            prop_assert_eq!(parts.checksum(), word_by_word(&bytes));
        }

        #[test]
        fn a_checksum_follows_from_what_changes(mut bytes: Vec<u8>, new: [u8; 6], at in 0..32_usize) {
            let at = 2 * at;
            prop_assume!(at + new.len() <= bytes.len());
            let old = Sum::of_checksum(word_by_word(&bytes));
            let changed = &mut bytes[at..at + new.len()];
            let sum = old.plus(Sum::of(&new)).minus(Sum::of(changed));
            changed.copy_from_slice(&new);
            prop_assume!(bytes.iter().any(|&byte| byte != 0));
            prop_assert_eq!(sum.checksum(), word_by_word(&bytes));
        }
    }
}
