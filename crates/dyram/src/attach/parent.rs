//! What a child knows of its parent.

use proto_core::time::{Duration, Instant};

use crate::config::Parents;
use crate::secret::Secrets;
use crate::wire::{Joined, NO_CHILD, Path, Status};
use crate::{RelayId, SocketAddr};

/// A parent is given up after this many JOINs without an answer. The first answer, which is a token, allows as
/// many again.
const TRIES: u8 = 3;
/// Wait for the first answer; doubles up to [`MAX_WAIT`] each time that all parents were given up in a row.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const MAX_WAIT: Duration = Duration::from_secs(4);

/// The meaning of a JOINED.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The parent accepted this child.
    Attached,
    /// The parent confirmed a refresh.
    Refreshed,
    /// The parent sent a token: JOIN again at once with it.
    Challenged,
    /// The parent refused; the next one is tried.
    Refused,
    /// The parent is below this relay; the next one is tried.
    Loop(RelayId),
}

/// What a child knows of its parent.
#[derive(Clone, Debug)]
pub(crate) struct Parent {
    /// When to send the next JOIN.
    due: Instant,
    /// When the last JOIN was sent.
    sent: Instant,
    /// Time between the last JOIN and the one before, and between that and its predecessor.
    gaps_ms: [u16; TRIES as usize - 1],
    token: u64,
    /// Time stamp of the first unanswered JOIN. Its repetitions carry the next numbers, so that a late answer is
    /// matched with its JOIN.
    stamp: u32,
    /// Smoothed; 0 before the first sample.
    round_trip_us: u32,
    repair_us: u32,
    child: u16,
    refresh_ms: u16,
    index: u8,
    tries: u8,
    /// Parents given up in a row.
    failures: u8,
    joined: bool,
    /// The parent has sent a token since this child came to it.
    answered: bool,
    /// Unanswered JOINs.
    asked: u8,
    pub(crate) attached: bool,
    pub(crate) path: Path,
}

impl Parent {
    /// Creates the state of a child whose first JOIN is due now.
    pub(crate) fn new(now: Instant) -> Self {
        Parent {
            due: now,
            sent: now,
            gaps_ms: [0; TRIES as usize - 1],
            token: 0,
            stamp: 0,
            round_trip_us: 0,
            repair_us: 0,
            child: NO_CHILD,
            refresh_ms: 0,
            index: 0,
            tries: 0,
            failures: 0,
            joined: false,
            answered: false,
            asked: 0,
            attached: false,
            path: Path::new(),
        }
    }

    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    pub(crate) fn is_joined(&self) -> bool {
        self.joined
    }

    /// Returns the number that the parent assigned to this child.
    pub(crate) fn child(&self) -> u16 {
        self.child
    }

    /// Returns the token for JOIN and LEAVE; 0 if there is none yet.
    pub(crate) fn token(&self) -> u64 {
        self.token
    }

    /// Returns the current parent, accepted or not.
    pub(crate) fn address(&self, parents: &Parents) -> Option<SocketAddr> {
        parents.get(usize::from(self.index)).copied()
    }

    /// Returns the smoothed round-trip time to the parent, in microseconds; 0 before the first sample.
    pub(crate) fn round_trip_us(&self) -> u32 {
        self.round_trip_us
    }

    /// Returns how long the answer to a NACK may take: the round-trip time, and what the parent needs.
    pub(crate) fn answer_after(&self) -> Duration {
        let us = u64::from(self.round_trip_us) * 5 / 4 + u64::from(self.repair_us);
        Duration::from_micros(us)
    }

    /// The parent did not answer a request: checks soon whether it is alive.
    pub(crate) fn suspect(&mut self, now: Instant) {
        if self.joined && self.asked == 0 {
            self.due = self.due.min((self.sent + FIRST_WAIT).max(now));
        }
    }

    /// Whether the next JOIN goes to another parent.
    pub(crate) fn gives_up(&self) -> bool {
        self.tries >= TRIES
    }

    /// Whether every parent has now been given up once since one accepted this child.
    pub(crate) fn has_tried_all(&self, parents: &Parents) -> bool {
        usize::from(self.failures) == parents.len()
    }

    /// Returns the time stamp for the JOIN that is due. `None` when this call gave the parent up; the next call tries
    /// its successor.
    pub(crate) fn next_try(
        &mut self,
        now: Instant,
        parents: &Parents,
        secrets: &mut Secrets,
    ) -> Option<u32> {
        if self.gives_up() {
            self.try_next(now, parents);
            return None;
        }
        self.tries += 1;
        if self.asked == 0 {
            self.stamp = secrets.stamp();
        } else {
            let gap = (now - self.sent).total_millis().min(u64::from(u16::MAX));
            self.gaps_ms = [gap as u16, self.gaps_ms[0]];
        }
        self.sent = now;
        let stamp = self.stamp.wrapping_add(u32::from(self.asked));
        self.asked += 1;
        let round_trip = Duration::from_micros(u64::from(self.round_trip_us));
        let doubled = FIRST_WAIT.max(round_trip * 2) * self.patience(parents);
        self.due = now + doubled.min(MAX_WAIT);
        Some(stamp)
    }

    /// Factor for waits: 1 to 16. A parent that has answered is alive.
    fn patience(&self, parents: &Parents) -> u32 {
        let rounds = usize::from(self.failures) / parents.len().max(1);
        if self.answered { 1 } else { 1 << rounds.min(4) }
    }

    /// Switches to the next parent.
    pub(crate) fn try_next(&mut self, now: Instant, parents: &Parents) {
        let index = usize::from(self.index) + 1;
        let (failures, alone) = (self.failures.saturating_add(1), parents.len() <= 1);
        *self = Parent {
            index: if index < parents.len() {
                index as u8
            } else {
                0
            },
            failures: if self.joined { 0 } else { failures },
            round_trip_us: if alone { self.round_trip_us } else { 0 },
            token: if alone { self.token } else { 0 },
            ..Parent::new(now)
        };
    }

    /// Switches to the next parent after a refusal, with a pause.
    fn wait_after_refusal(&mut self, now: Instant, parents: &Parents) {
        self.joined = false;
        self.try_next(now, parents);
        self.due = now + (FIRST_WAIT * self.patience(parents)).min(MAX_WAIT);
    }

    /// Handles JOINED from [`Parent::address`]. `None` when it answers no JOIN of this child.
    pub(crate) fn handle_joined(
        &mut self,
        now: Instant,
        parents: &Parents,
        own: RelayId,
        child: u16,
        joined: &Joined,
    ) -> Option<Outcome> {
        let which = joined.stamp.wrapping_sub(self.stamp);
        if which >= u32::from(self.asked) {
            return None;
        }
        let later = u32::from(core::mem::take(&mut self.asked)) - 1 - which;
        match joined.status {
            Status::Joined => {}
            Status::Challenge => {
                // Once for each token: a parent cannot cause an endless exchange.
                if self.token != joined.token {
                    self.token = joined.token;
                    self.due = now;
                }
                if !core::mem::replace(&mut self.answered, true) {
                    self.tries = 0;
                }
                return Some(Outcome::Challenged);
            }
            Status::Loop => {
                let nearest = joined.path.last().copied().unwrap_or_default();
                self.wait_after_refusal(now, parents);
                return Some(Outcome::Loop(nearest));
            }
            Status::Full | Status::Draining => {
                self.wait_after_refusal(now, parents);
                return Some(Outcome::Refused);
            }
        }
        if own.0 != 0 && joined.path.contains(&own) {
            let nearest = joined.path.last().copied().unwrap_or_default();
            self.wait_after_refusal(now, parents);
            return Some(Outcome::Loop(nearest));
        }
        let gaps = self.gaps_ms.iter().take(later as usize);
        let before: u64 = gaps.map(|&gap| u64::from(gap) * 1000).sum();
        let sample = (now - self.sent).total_micros() + before;
        let sample = sample.clamp(1, 4_000_000) as u32;
        self.round_trip_us = match self.round_trip_us {
            0 => sample,
            smoothed => (smoothed - smoothed / 8 + sample / 8).max(1),
        };
        self.token = joined.token;
        self.child = child;
        self.repair_us = joined.repair_us.min(4_000_000);
        self.refresh_ms = joined.refresh_ms.max(20);
        self.attached = joined.attached;
        self.path = joined.path.clone();
        self.tries = 0;
        self.failures = 0;
        self.due = now + Duration::from_millis(u64::from(self.refresh_ms));
        let first = !core::mem::replace(&mut self.joined, true);
        Some(if first {
            Outcome::Attached
        } else {
            Outcome::Refreshed
        })
    }
}
