//! Refused sessions, remembered for a while so that further requests are answered without a JOIN.
//!
//! | refusals | answered from memory for |
//! | --- | --- |
//! | one | the refusal time |
//! | another within 16 refusal times after that | twice the previous time, at most 16 refusal times |

use proto_core::time::{Duration, Instant};

use crate::expiring::Expiring;
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
}

/// All refusals, with a bound.
#[derive(Debug, Default)]
pub(super) struct Refusals(Expiring<SessionName, Refusal>);

impl Refusals {
    /// Returns why the session is refused for now.
    pub(super) fn get(&self, now: Instant, session: &SessionName) -> Option<Reason> {
        let refusal = self.0.get(session)?;
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
        let before = self
            .0
            .remove(&session)
            .filter(|(expires, _)| *expires > now);
        let longest = time * MAX_BACKOFF;
        let lasted = before.map_or(time, |(_, old)| (old.lasted * 2).min(longest));
        let until = now + lasted;
        while self.0.len() >= max && self.0.pop_first().is_some() {}
        let refusal = Refusal {
            reason,
            until,
            lasted,
        };
        self.0.insert(session, refusal, until + longest);
    }

    /// Forgets the refusal of a session that is available again.
    pub(super) fn clear(&mut self, session: &SessionName) {
        self.0.remove(session);
    }
}

#[cfg(test)]
mod tests;
