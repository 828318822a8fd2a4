//! Refused sessions, remembered for a while so that further requests are answered without a JOIN.
//!
//! | refusals | answered from memory for |
//! | --- | --- |
//! | one | the refusal time |
//! | another within 16 refusal times after that | twice the previous time, at most 16 refusal times |

use alloc::collections::{BTreeMap, BTreeSet};

use proto_core::time::{Duration, Instant};

use crate::name::SessionName;
use crate::wire::no_route::Reason;

/// Longest time that a session is refused from memory, in refusal times.
const MAX_BACKOFF: u32 = 16;

#[derive(Clone, Copy, Debug)]
struct Refusal {
    reason: Reason,
    until: Instant,
    /// The previous time in memory.
    lasted: Duration,
    forget_at: Instant,
}

/// All refusals, with a bound.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    map: BTreeMap<SessionName, Refusal>,
    /// In the order of expiry.
    expiry: BTreeSet<(Instant, SessionName)>,
}

impl Refusals {
    /// Returns why the session is refused for now.
    pub(super) fn get(&self, now: Instant, session: &SessionName) -> Option<Reason> {
        let refusal = self.map.get(session)?;
        (refusal.until > now).then_some(refusal.reason)
    }

    /// Remembers a refusal. At the limit, the one that would expire first is evicted.
    pub(super) fn put(
        &mut self,
        now: Instant,
        session: SessionName,
        reason: Reason,
        time: Duration,
        max: usize,
    ) {
        let before = self.remove(&session).filter(|old| old.forget_at > now);
        let longest = time * MAX_BACKOFF;
        let lasted = before.map_or(time, |old| (old.lasted * 2).min(longest));
        let until = now + lasted;
        let forget_at = until + longest;
        while self.map.len() >= max
            && let Some((_, first)) = self.expiry.pop_first()
        {
            self.map.remove(&first);
        }
        self.expiry.insert((forget_at, session.clone()));
        let refusal = Refusal {
            reason,
            until,
            lasted,
            forget_at,
        };
        self.map.insert(session, refusal);
    }

    /// Forgets the refusal of a session that is available again.
    pub(super) fn clear(&mut self, session: &SessionName) {
        self.remove(session);
    }

    fn remove(&mut self, session: &SessionName) -> Option<Refusal> {
        let refusal = self.map.remove(session)?;
        self.expiry.remove(&(refusal.forget_at, session.clone()));
        Some(refusal)
    }
}
