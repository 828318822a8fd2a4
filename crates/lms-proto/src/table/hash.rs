//! The keyed hash of every table: SipHash-1-3 of one 64-bit key.

use rand_core::Rng;

/// Key of a hash, secret to those outside: nobody can choose keys that collide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HashKey(pub(crate) u64, pub(crate) u64);

impl HashKey {
    pub(crate) fn random(rng: &mut impl Rng) -> Self {
        HashKey(rng.next_u64(), rng.next_u64())
    }

    /// SipHash-1-3 of the 8 bytes of `key`, little-endian.
    #[inline]
    pub(crate) fn hash(&self, key: u64) -> u64 {
        let mut v = [
            self.0 ^ 0x736f_6d65_7073_6575,
            self.1 ^ 0x646f_7261_6e64_6f6d,
            self.0 ^ 0x6c79_6765_6e65_7261,
            self.1 ^ 0x7465_6462_7974_6573,
        ];
        // The last block has no bytes, only the length of all.
        for block in [key, 8 << 56] {
            v[3] ^= block;
            round(&mut v);
            v[0] ^= block;
        }
        v[2] ^= 0xff;
        for _ in 0..3 {
            round(&mut v);
        }
        v[0] ^ v[1] ^ v[2] ^ v[3]
    }
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
    use siphasher::sip::SipHasher13;

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
        }
    }
}
