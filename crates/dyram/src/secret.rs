//! Values that an off-path attacker must not guess: tokens of addresses, time stamps of JOINs, buckets of sessions.

use core::fmt;
use core::hash::Hasher;
use core::net::IpAddr;

use siphasher::sip::SipHasher13;

use crate::SessionKey;
use crate::types::{Addr, RawKey};

#[derive(Clone, Copy)]
pub(crate) struct Secrets {
    tokens: [u64; 2],
    places: [u64; 2],
    counter: u64,
}

/// Without the secrets.
impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(..)")
    }
}

impl Secrets {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        let word = |at: usize| {
            let bytes: [u8; 8] = seed[at..at + 8].try_into().unwrap_or_default();
            u64::from_le_bytes(bytes)
        };
        Secrets {
            tokens: [word(0), word(8)],
            places: [word(16), word(24) | 1],
            counter: 0,
        }
    }

    /// Returns the token that proves that a peer receives at this address; never 0.
    pub(crate) fn token(&self, address: Addr, key: &SessionKey) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.tokens[0], self.tokens[1]);
        hasher.write(&address.bytes());
        for ip in [key.source, key.group] {
            match ip {
                IpAddr::V4(ip) => hasher.write(&ip.octets()),
                IpAddr::V6(ip) => hasher.write(&ip.octets()),
            }
        }
        hasher.finish().max(1)
    }

    /// Returns the next unpredictable number.
    pub(crate) fn stamp(&mut self) -> u32 {
        self.counter = self.counter.wrapping_add(1);
        let mut hasher = SipHasher13::new_with_keys(self.tokens[1], self.tokens[0]);
        hasher.write_u64(self.counter);
        hasher.finish() as u32
    }

    /// Returns the hash of a session's key. Sessions are created only by JOINs that carry a token, so multiplication
    /// by a secret is enough. It is not SipHash, which would add a third to the instructions of forwarding a packet in
    /// order, and a sixth to those of a NACK or a repair (benchmark `services`).
    #[inline]
    pub(crate) fn place(&self, key: &RawKey) -> u64 {
        let [high_source, source, high_group, group] = key.0;
        let high = self.mix(high_source ^ high_group.rotate_left(32));
        self.mix(source ^ group.rotate_left(32)) ^ high
    }

    #[inline]
    fn mix(&self, word: u64) -> u64 {
        let product = u128::from(word ^ self.places[0]) * u128::from(self.places[1]);
        (product >> 64) as u64 ^ product as u64
    }
}
