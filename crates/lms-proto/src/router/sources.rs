//! The sources that were seen to send into shared trees, `(*, G)`: their repairs alone may enter.

use core::net::Ipv4Addr;

use managed::ManagedSlice;
use proto_core::{RateLimit, TokenBucket};

use super::Rate;
use crate::table::HashKey;
use crate::{Duration, Family, Instant, Key};

/// Time for which a source counts as seen.
pub const SOURCE_LIFETIME: Duration = Duration::from_secs(60);

/// Rate at which the driver is asked to look for sources.
const QUESTIONS: Rate = Rate {
    per_second: 8,
    burst: 16,
};

/// One source that was seen to send into a shared tree: 16 bytes, 40 for IPv6.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeenSource<A = Ipv4Addr> {
    key: Key<A>,
    until: Instant,
}

impl<A: Family> Default for SeenSource<A> {
    fn default() -> Self {
        SeenSource {
            key: Key::any_source(A::UNSPECIFIED),
            until: Instant::ZERO,
        }
    }
}

/// A table with one slot for each hash. Of two sources that share a slot the later one has it, and the other one is
/// searched again at the next request that names it.
#[derive(Debug)]
pub(super) struct Sources<'a, A> {
    places: ManagedSlice<'a, SeenSource<A>>,
    key: HashKey,
    questions: TokenBucket,
    limit: RateLimit,
}

impl<'a, A: Family> Sources<'a, A> {
    pub(super) fn new(mut places: ManagedSlice<'a, SeenSource<A>>, key: HashKey) -> Self {
        places.fill(SeenSource::default());
        Sources {
            places,
            key,
            questions: TokenBucket::FULL,
            limit: QUESTIONS.into(),
        }
    }

    fn place(&self, key: Key<A>) -> usize {
        let hash = key.source.hash_pair(key.group, &self.key).hash();
        // Without places the answer is none of them.
        (hash as usize).checked_rem(self.places.len()).unwrap_or(0)
    }

    /// Records that a source was seen; returns `false` if the table has no slots.
    pub(super) fn note(&mut self, now: Instant, key: Key<A>) -> bool {
        let place = self.place(key);
        let until = now + SOURCE_LIFETIME;
        let seen = self.places.get_mut(place);
        seen.map(|seen| *seen = SeenSource { key, until }).is_some()
    }

    /// Returns whether a source was seen recently.
    #[inline]
    pub(super) fn contain(&self, now: Instant, key: Key<A>) -> bool {
        let seen = self.places.get(self.place(key));
        seen.is_some_and(|seen| seen.key == key && now < seen.until)
    }

    /// Returns whether the driver is to look for a source that a request names; `true` again in the second half of the
    /// lifetime of an answer.
    pub(super) fn is_wanted(&mut self, now: Instant, key: Key<A>) -> bool {
        !self.contain(now + SOURCE_LIFETIME / 2, key) && self.questions.take(now, &self.limit)
    }
}

#[cfg(all(test, feature = "alloc"))]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::vec;

    use super::*;

    const NOW: Instant = Instant::from_secs(100);

    fn key(source: u8, group: u8) -> Key {
        Key::new(
            Ipv4Addr::new(10, 0, 0, source),
            Ipv4Addr::new(239, 0, 0, group),
        )
    }

    fn sources(places: usize) -> Sources<'static, Ipv4Addr> {
        Sources::new(vec![SeenSource::default(); places].into(), HashKey(1, 2))
    }

    #[test]
    fn a_source_counts_for_its_lifetime_and_is_looked_for_again_after_half_of_it() {
        let mut sources = sources(64);
        assert!(!sources.contain(NOW, key(1, 1)));
        assert!(sources.is_wanted(NOW, key(1, 1)));
        assert!(sources.note(NOW, key(1, 1)));
        let last = NOW + SOURCE_LIFETIME - Duration::from_micros(1);
        assert!(sources.contain(last, key(1, 1)));
        assert!(!sources.contain(NOW + SOURCE_LIFETIME, key(1, 1)));
        assert!(!sources.contain(NOW, key(1, 2)));
        assert!(!sources.contain(NOW, key(2, 1)));
        let half = NOW + SOURCE_LIFETIME / 2;
        assert!(!sources.is_wanted(half - Duration::from_micros(1), key(1, 1)));
        assert!(sources.is_wanted(half, key(1, 1)));
    }

    #[test]
    fn the_driver_is_asked_at_a_rate() {
        let mut sources = sources(64);
        let asked = (0..100).filter(|&source| sources.is_wanted(NOW, key(source, 1)));
        assert_eq!(asked.count(), QUESTIONS.burst as usize);
        let later = NOW + Duration::from_secs(1);
        let asked = (0..100).filter(|&source| sources.is_wanted(later, key(source, 1)));
        assert_eq!(asked.count(), QUESTIONS.per_second as usize);
    }

    #[test]
    fn sources_and_groups_have_places_of_their_own() {
        let sources = sources(64);
        let places = |keys: [Key; 64]| BTreeSet::from(keys.map(|key| sources.place(key))).len();
        // Random ones would use 40.
        assert!(places(core::array::from_fn(|n| key(n as u8, 1))) > 24);
        assert!(places(core::array::from_fn(|n| key(1, n as u8))) > 24);
    }

    #[test]
    fn without_places_nothing_is_seen() {
        let mut sources = sources(0);
        assert!(!sources.note(NOW, key(1, 1)));
        assert!(!sources.contain(NOW, key(1, 1)));
    }
}
