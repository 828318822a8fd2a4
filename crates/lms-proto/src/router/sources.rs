//! The sources that were seen to send into shared trees, `(*, G)`: their repairs alone may enter.

use core::net::Ipv4Addr;

use managed::ManagedSlice;
use proto_core::{RateLimit, TokenBucket};

use super::Rate;
use crate::table::HashKey;
use crate::{Duration, Instant, Key};

/// Time for which a source counts as seen.
pub const SOURCE_LIFETIME: Duration = Duration::from_secs(60);

/// Rate at which the driver is asked to look for sources.
const QUESTIONS: Rate = Rate {
    per_second: 8,
    burst: 16,
};

/// One source that was seen to send into a shared tree, 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeenSource {
    key: Key,
    until: Instant,
}

impl Default for SeenSource {
    fn default() -> Self {
        SeenSource {
            key: Key::any_source(Ipv4Addr::UNSPECIFIED),
            until: Instant::ZERO,
        }
    }
}

/// A table with one slot for each hash. Of two sources that share a slot the later one has it, and the other one is
/// searched again at the next request that names it.
#[derive(Debug)]
pub(super) struct Sources<'a> {
    places: ManagedSlice<'a, SeenSource>,
    key: HashKey,
    questions: TokenBucket,
    limit: RateLimit,
}

impl<'a> Sources<'a> {
    pub(super) fn new(mut places: ManagedSlice<'a, SeenSource>, key: HashKey) -> Self {
        places.fill(SeenSource::default());
        Sources {
            places,
            key,
            questions: TokenBucket::FULL,
            limit: QUESTIONS.into(),
        }
    }

    fn place(&self, key: Key) -> usize {
        let source = u64::from(key.source.to_bits());
        let hash = self.key.hash(source << 32 | u64::from(key.group.to_bits()));
        // Without places the answer is none of them.
        (hash as usize).checked_rem(self.places.len()).unwrap_or(0)
    }

    /// Records that a source was seen; returns `false` if the table has no slots.
    pub(super) fn note(&mut self, now: Instant, key: Key) -> bool {
        let place = self.place(key);
        let until = now + SOURCE_LIFETIME;
        let seen = self.places.get_mut(place);
        seen.map(|seen| *seen = SeenSource { key, until }).is_some()
    }

    /// Returns whether a source was seen recently.
    #[inline]
    pub(super) fn contain(&self, now: Instant, key: Key) -> bool {
        let seen = self.places.get(self.place(key));
        seen.is_some_and(|seen| seen.key == key && now < seen.until)
    }

    /// Returns whether the driver is to look for a source that a request names; `true` again in the second half of the
    /// lifetime of an answer.
    pub(super) fn is_wanted(&mut self, now: Instant, key: Key) -> bool {
        !self.contain(now + SOURCE_LIFETIME / 2, key) && self.questions.take(now, &self.limit)
    }
}
