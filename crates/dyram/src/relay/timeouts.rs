//! Timers of a relay.

use proto_core::time::{Duration, Instant};

use super::stalled::STEPS;
use super::table::{Owner, Phase, Set, bits, has_bit};
use super::{FAR_SHIFT, Relay};
use crate::event::Event;
use crate::wheel::time_since;

/// A child or a source that misses this many refreshes is removed.
const REFRESHES: u8 = 3;

impl Relay<'_> {
    /// Handles the passing of time. Harmless when called early or twice.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = self.now.max(now);
        while let Some(entry) = self.tables.wheel.expired(now) {
            match self.tables.owner(entry) {
                Owner::State(state) => self.state_expired(now, state),
                Owner::Timer(session) => self.session_expired(now, session),
                // Output entries are in the ready list only.
                Owner::Output(_) => {}
            }
        }
    }

    /// Returns when to call [`Relay::handle_timeout`]; while a packet waits, the `now` of the last call.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let waits = self.tables.wheel.ready().is_some()
            || !self.replies.is_empty()
            || !self.leaves.is_empty()
            || !self.notices.is_empty();
        if waits {
            return Some(self.now);
        }
        self.tables.wheel.next()
    }

    fn state_expired(&mut self, now: Instant, state: u16) {
        let number = self.tables.session_of(state);
        match self.tables.state(state).phase {
            Phase::Deciding => self.decide(state),
            Phase::Asked => {
                let entry = *self.tables.state(state);
                if entry.tries == 0 {
                    let session = self.tables.session_mut(number);
                    session.answer.missed(entry.asked, now);
                }
                self.move_on(state);
            }
            Phase::Upstream => {
                let tries = self.tables.state(state).tries;
                if tries >= self.config.parent_tries {
                    self.stats.given_up = self.stats.given_up.wrapping_add(1);
                    self.tables.free_state(state);
                    return;
                }
                if tries > 1
                    && let Some(parent) = &mut self.tables.session_mut(number).parent
                {
                    parent.suspect(now);
                    self.set_timer(number);
                }
                self.tables.state_mut(state).phase = Phase::AskParent;
                self.tables.wheel.make_ready(state);
            }
            Phase::Repaired => self.tables.free_state(state),
            Phase::Free | Phase::AskReplier | Phase::AskParent | Phase::SayAbsent => {}
        }
    }

    /// Returns how long to wait for the answer to a NACK; doubles with each try.
    pub(super) fn answer_within(&self, state: u16, upward: bool) -> Duration {
        let number = self.tables.session_of(state);
        let session = self.tables.session(number);
        let base = match &session.parent {
            _ if !upward => self.hold(number),
            Some(parent) => parent.answer_after().max(self.config.hold_min),
            None => {
                let round_trip = Duration::from_micros(u64::from(session.source_us));
                (round_trip * 2).max(self.config.hold_min)
            }
        };
        let doubled = base * (1 << self.tables.state(state).tries.min(6));
        doubled.min(Duration::from_secs(10))
    }

    fn session_expired(&mut self, now: Instant, number: u16) {
        let Some(key) = self.tables.session(number).name() else {
            return;
        };
        if self.tables.session(number).sweep_due <= now {
            self.sweep(now, number);
            let session = self.tables.session(number);
            if session.children == 0 && !session.has_source {
                self.leave_for_good(number);
                self.tables.close(&self.secrets, number);
                self.notify(Event::Closed(key));
                return;
            }
        }
        self.seek_parent(number, now);
        self.refresh_above(number);
        let session = self.tables.session(number);
        let parent_due = session
            .parent
            .as_ref()
            .is_some_and(|parent| parent.due() <= now);
        let ack_due = session.acks.due <= now;
        let is_due = parent_due || ack_due || session.feedbacks.due() <= now;
        if ack_due {
            self.fold(number);
        }
        if is_due {
            let output = self.tables.entry(Owner::Output(number));
            self.tables.wheel.make_ready(output);
        } else {
            self.set_timer(number);
        }
    }

    fn leave_for_good(&mut self, number: u16) {
        let now = self.now;
        self.tables.session_mut(number).has_source = false;
        self.seek_parent(number, now);
    }

    /// Removes silent children, and counts the others.
    fn sweep(&mut self, now: Instant, number: u16) {
        let Some(key) = self.tables.session(number).name() else {
            return;
        };
        let heard_now = self.refresh_clock(now);
        let (mut far_us, mut receivers) = (0, 0u32);
        for child in 0..self.tables.limits.children as u16 {
            if !self.tables.is_member(number, child) {
                continue;
            }
            let entry = *self.tables.child(number, child);
            if heard_now.wrapping_sub(entry.heard) > REFRESHES * STEPS {
                self.stats.silent = self.stats.silent.wrapping_add(1);
                self.child_gone(number, key, child);
                continue;
            }
            self.check_progress(now, number, key, child);
            far_us = far_us.max(u32::from(entry.far) << FAR_SHIFT);
            receivers += u32::from(entry.receivers);
        }
        self.name_stalled(now, number);
        let session = self.tables.session_mut(number);
        session.below.far_us = far_us;
        session.below.near_us = [0, session.below.near_us[0]];
        session.below.receivers = receivers;
        session.sweep_due = now + self.config.refresh;
        // An acknowledgement may have been lost: it is sent again.
        session.ack_sent = false;
        if session.acks.folded.is_some() {
            session.acks.due = session.acks.due.min(now);
        }
        let silence = self.config.refresh * u32::from(REFRESHES);
        if session.has_source && time_since(now, session.heard.source) >= silence {
            session.has_source = false;
            self.notify(Event::SourceLost(key));
        }
    }

    /// Folds the acknowledgements into that of the slowest child. Children that have not acknowledged anything do not
    /// count, nor do stalled ones. If all have stalled, the session waits for none.
    fn fold(&mut self, number: u16) {
        let acked = self.tables.set(number, Set::Acked);
        let stalled = self.tables.set(number, Set::Stalled);
        let mut slowest = None;
        let mut all_stalled = false;
        for child in bits(self.tables.members(number)) {
            if !has_bit(acked, child) {
                continue;
            }
            if has_bit(stalled, child) {
                all_stalled = true;
                continue;
            }
            let ack = self.tables.child(number, child).ack;
            slowest = match slowest {
                Some(slowest) if !ack.before(slowest) => Some(slowest),
                _ => Some(ack),
            };
        }
        let session = self.tables.session_mut(number);
        if slowest.is_none() && all_stalled {
            slowest = session.track.newest().map(|newest| newest.plus(1));
            // No acknowledgement of a child will trigger the next fold.
            session.fold_again = slowest != session.acks.folded;
        }
        session.ack_sent &= session.acks.folded == slowest;
        session.acks.folded = slowest;
    }
}
