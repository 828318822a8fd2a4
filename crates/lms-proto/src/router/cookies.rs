//! Cookies: proofs that this router turned a request.

use core::fmt;

use proto_core::hash::HashKey;
use rand_core::Rng;

use crate::Iface;

/// The key of the cookies. A cookie is SipHash-2-4 of source, group, interface and period; the periods are those of the
/// interfaces' numbers. Any number of cookies reveals no other one.
///
/// Source and group are in it by the hash of the table's lookup, which no packet shows and whose key no host has. Two
/// groups thus share their cookies with a probability of 2^-64, that of a guessed cookie; no host can choose groups that do.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Cookies {
    secret: HashKey,
}

/// Without the secret.
impl fmt::Debug for Cookies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cookies(..)")
    }
}

impl Cookies {
    pub(super) fn new(rng: &mut impl Rng) -> Self {
        Cookies {
            secret: HashKey::random(rng),
        }
    }

    /// Whether this is the cookie of the period, or of the one before.
    #[inline]
    pub(crate) fn is_valid(&self, period: u32, key_hash: u64, iface: Iface, cookie: u64) -> bool {
        let of = |period| self.cookie(period, key_hash, iface);
        cookie == of(period) || cookie == of(period.wrapping_sub(1))
    }

    /// The cookie of a turning point in a [`period`](super::numbers::period), of source and group by their hash: never 0,
    /// which means "none".
    #[inline]
    pub(crate) fn cookie(&self, period: u32, key_hash: u64, iface: Iface) -> u64 {
        let context = u64::from(period) << 16 | u64::from(iface.0);
        self.secret.tag([context, key_hash]).max(1)
    }
}
