//! Keyed hashes: SipHash-1-3 for tables, SipHash-2-4 for tags that are sent to other hosts.

use core::fmt;

use rand_core::Rng;

/// Key of a hash. Secret, so that no host can choose keys that collide.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct HashKey(pub u64, pub u64);

impl HashKey {
    /// Draws a key.
    pub fn random(rng: &mut impl Rng) -> Self {
        HashKey(rng.next_u64(), rng.next_u64())
    }

    /// Returns SipHash-1-3 of the 8 bytes of `key`, little-endian.
    #[inline]
    #[must_use]
    pub fn hash(&self, key: u64) -> u64 {
        self.prefix(key).hash()
    }

    /// Starts a hash with the 8 bytes of `key`, little-endian.
    #[inline]
    #[must_use]
    pub fn prefix(&self, key: u64) -> Prefix {
        let mut v = self.start();
        compress(&mut v, key);
        Prefix { v, words: 1 }
    }

    /// Returns SipHash-2-4 of these words, each as 8 bytes, little-endian: an authentication tag that cannot be computed
    /// without the key, even from the tags of other messages.
    #[inline]
    #[must_use]
    pub fn tag<const WORDS: usize>(&self, message: [u64; WORDS]) -> u64 {
        let mut v = self.start();
        for block in message {
            compress_twice(&mut v, block);
        }
        compress_twice(&mut v, ((8 * WORDS) as u64) << 56);
        v[2] ^= 0xff;
        for _ in 0..4 {
            round(&mut v);
        }
        v[0] ^ v[1] ^ v[2] ^ v[3]
    }

    #[inline]
    fn start(&self) -> [u64; 4] {
        [
            self.0 ^ 0x736f_6d65_7073_6575,
            self.1 ^ 0x646f_7261_6e64_6f6d,
            self.0 ^ 0x6c79_6765_6e65_7261,
            self.1 ^ 0x7465_6462_7974_6573,
        ]
    }
}

/// Without the secret.
impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(..)")
    }
}

/// The state of a hash after its first words of 8 bytes: computed once, finished in several ways.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Prefix {
    v: [u64; 4],
    words: u64,
}

/// Without the state, which tells the key.
impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Prefix(..)")
    }
}

impl Prefix {
    /// Absorbs 8 more bytes, little-endian.
    #[inline]
    #[must_use]
    pub fn then(mut self, word: u64) -> Prefix {
        compress(&mut self.v, word);
        self.words = self.words.wrapping_add(1);
        self
    }

    /// Returns the hash of the bytes absorbed so far.
    #[inline]
    #[must_use]
    pub fn hash(self) -> u64 {
        self.finish(0, 0)
    }

    /// Returns the hash of the bytes absorbed so far and the 4 bytes of `more`, little-endian.
    #[inline]
    #[must_use]
    pub fn hash_with(self, more: u32) -> u64 {
        self.finish(4, more.into())
    }

    /// The last block: what is left of the message, and its length in the highest byte.
    #[inline]
    fn finish(self, len: u64, rest: u64) -> u64 {
        let Prefix { mut v, words } = self;
        let total = (8 * words + len) & 0xff;
        compress(&mut v, total << 56 | rest);
        v[2] ^= 0xff;
        for _ in 0..3 {
            round(&mut v);
        }
        v[0] ^ v[1] ^ v[2] ^ v[3]
    }
}

#[inline]
fn compress(v: &mut [u64; 4], block: u64) {
    v[3] ^= block;
    round(v);
    v[0] ^= block;
}

#[inline]
fn compress_twice(v: &mut [u64; 4], block: u64) {
    v[3] ^= block;
    round(v);
    round(v);
    v[0] ^= block;
}

#[inline]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    extern crate std;

    use siphasher::sip::{SipHasher13, SipHasher24};

    use super::*;

    #[test]
    fn agrees_with_another_siphash() {
        let mut x = 0x0123_4567_89ab_cdef_u64;
        let mut next = || {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            x
        };
        for _ in 0..1_000 {
            let (k0, k1, key) = (next(), next(), next());
            let other = SipHasher13::new_with_keys(k0, k1).hash(&key.to_le_bytes());
            assert_eq!(HashKey(k0, k1).hash(key), other);
            let more = next() as u32;
            let bytes = [&key.to_le_bytes()[..], &more.to_le_bytes()].concat();
            let other = SipHasher13::new_with_keys(k0, k1).hash(&bytes);
            assert_eq!(HashKey(k0, k1).prefix(key).hash_with(more), other);
            let words = [key, next(), next(), next()];
            let bytes = words.map(u64::to_le_bytes).concat();
            let hash_key = HashKey(k0, k1);
            let all = words[1..]
                .iter()
                .fold(hash_key.prefix(key), |hash, &word| hash.then(word));
            let other = SipHasher13::new_with_keys(k0, k1);
            assert_eq!(all.hash(), other.hash(&bytes));
            let longer = [&bytes[..], &more.to_le_bytes()].concat();
            assert_eq!(all.hash_with(more), other.hash(&longer));
            let other = SipHasher24::new_with_keys(k0, k1);
            assert_eq!(hash_key.tag(words), other.hash(&bytes));
            assert_eq!(hash_key.tag([key]), other.hash(&bytes[..8]));
        }
    }

    #[test]
    fn debug_keeps_the_secret() {
        let shown = std::format!("{:?}", HashKey(1, 2));
        assert_eq!(shown, "HashKey(..)");
    }
}
