//! Sessions that nobody can have for a while, so that who asks again is answered without a JOIN.
//!
//! | the session was refused | answered from memory for |
//! | --- | --- |
//! | once | the refusal time |
//! | again, within 16 refusal times after that | twice as long as the time before, 16 refusal times at most |

use alloc::collections::{BTreeMap, BTreeSet};

use proto_core::time::{Duration, Instant};

use crate::name::SessionName;
use crate::wire::no_route::Reason;

/// A session is refused from memory for at most so many times the refusal time.
const MAX_BACKOFF: u32 = 16;

#[derive(Clone, Copy, Debug)]
struct Refusal {
    reason: Reason,
    until: Instant,
    /// How long it was answered from memory last.
    lasted: Duration,
    forget_at: Instant,
}

/// All of them; at most as many as may be remembered.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    map: BTreeMap<SessionName, Refusal>,
    /// In the order in which they are forgotten.
    expiry: BTreeSet<(Instant, SessionName)>,
}

impl Refusals {
    /// Why the session cannot be had for now.
    pub(super) fn get(&self, now: Instant, session: &SessionName) -> Option<Reason> {
        let refusal = self.map.get(session)?;
        (refusal.until > now).then_some(refusal.reason)
    }

    /// Remembers that a session was refused. Where there is no room, the one that would be forgotten first
    /// gives way.
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

    /// The session can be had: what was remembered of it is void.
    pub(super) fn clear(&mut self, session: &SessionName) {
        self.remove(session);
    }

    fn remove(&mut self, session: &SessionName) -> Option<Refusal> {
        let refusal = self.map.remove(session)?;
        self.expiry.remove(&(refusal.forget_at, session.clone()));
        Some(refusal)
    }
}
