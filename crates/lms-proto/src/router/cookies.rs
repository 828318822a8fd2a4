//! Cookies: proofs that this router turned a request.

use core::fmt;

use proto_core::hash::HashKey;
use rand_core::Rng;

use super::numbers::period;
use crate::{Family, Iface, Instant, Key};

/// The key of the cookies. A cookie is SipHash-2-4 of source, group, interface and period; the periods are those of the
/// interfaces' numbers. Any number of cookies reveals no other one.
pub(super) struct Cookies {
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

    /// The cookie of a turning point: never 0, which means "none".
    #[inline]
    pub(super) fn cookie<A: Family>(&self, now: Instant, key: Key<A>, iface: Iface) -> u64 {
        self.of_period(period(now), key, iface)
    }

    /// Whether this is the cookie of the current period, or of the one before.
    #[inline]
    pub(super) fn is_valid<A: Family>(
        &self,
        now: Instant,
        key: Key<A>,
        iface: Iface,
        cookie: u64,
    ) -> bool {
        let period = period(now);
        let of = |period| self.of_period(period, key, iface);
        cookie == of(period) || cookie == of(period.wrapping_sub(1))
    }

    #[inline]
    fn of_period<A: Family>(&self, period: u32, key: Key<A>, iface: Iface) -> u64 {
        let context = u64::from(period) << 16 | u64::from(iface.0);
        A::cookie(key, context, &self.secret).max(1)
    }
}
