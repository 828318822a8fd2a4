//! Doubts: the source is asked by unicast, under a nonce, what is true, and only that answer counts.

use rand_core::Rng;
use smoltcp::time::Duration;

use super::{Phase, Question, Receiver, Timer};
use crate::error::Error;
use crate::event::{Failure, ReceiverEvent};
use crate::store::Store;
use crate::wire::request::Kind;
use crate::wire::sync;
use crate::{Meta, Path, Transmit};

/// A question the source does not answer is dropped after so many attempts; the next
/// contradiction asks again.
const QUESTION_ATTEMPTS: u32 = 8;
/// The source is asked to confirm a heartbeat no more often than this.
const CONFIRM_PAUSE: Duration = Duration::from_secs(1);

impl<S: Store> Receiver<'_, S> {
    /// Asks the source by unicast, under a nonce, what is true.
    pub(super) fn ask_confirmation(&mut self) {
        if self.question.is_some() || self.now < self.question_after {
            return;
        }
        self.question = Some(Question {
            nonce: self.rng.next_u64().max(1),
            attempts: 0,
        });
        self.timers.set(Timer::Confirm as usize, self.now);
    }

    pub(super) fn poll_question(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        if !self.due(Timer::Confirm) {
            return None;
        }
        self.timers.stop(Timer::Confirm as usize);
        let mut question = self.question?;
        if question.attempts >= QUESTION_ATTEMPTS {
            self.question = None;
            self.question_after = self.now + CONFIRM_PAUSE;
            // Nobody to ask. What is here verified against what was said first; if the source
            // comes back with another story, that is heard.
            self.check_source();
            return None;
        }
        question.attempts += 1;
        self.question = Some(question);
        let wait = self.source_trip.timeout(question.attempts);
        let wait = wait + self.jitter(wait / 4);
        self.timers.set(Timer::Confirm as usize, self.now + wait);
        self.stats.confirmations += 1;
        let repr = self.request_repr(Kind::Sync, question.attempts, question.nonce)?;
        repr.emit(buffer);
        let destination = self.to_source()?;
        Some(self.sent(destination, buffer, repr.buffer_len()))
    }

    pub(super) fn on_confirmation(
        &mut self,
        meta: &Meta,
        repr: &sync::Repr<'_>,
        nonce: u64,
    ) -> Result<(), Error> {
        let asked = self
            .question
            .is_some_and(|question| question.nonce == nonce);
        if !asked || meta.path != Path::Unicast {
            return Err(Error::Unasked);
        }
        self.question = None;
        self.question_after = self.now + CONFIRM_PAUSE;
        self.timers.stop(Timer::Confirm as usize);
        self.heard = self.now;
        self.stats.syncs += 1;
        let Some(session) = &self.session else {
            return Ok(());
        };
        let same_cut =
            session.geometry == repr.geometry && session.integrity == repr.digested.is_some();
        if session.id != repr.session {
            let same = same_cut && self.same_content(repr);
            return self.other_session(meta, repr, same);
        }
        if !same_cut {
            // What was believed so far was forged; nothing can have verified under it.
            return self.reopen(meta, repr);
        }
        self.believe(repr);
        Ok(())
    }

    fn same_content(&self, repr: &sync::Repr<'_>) -> bool {
        let Some(session) = &self.session else {
            return false;
        };
        session.digest.is_some()
            && session.digest == repr.digest
            && session.length == repr.length
            && session.geometry.first() == repr.geometry.first()
    }

    /// The source says it runs another session than the one followed here.
    fn other_session(
        &mut self,
        meta: &Meta,
        repr: &sync::Repr<'_>,
        same: bool,
    ) -> Result<(), Error> {
        if same {
            if let Some(session) = &mut self.session {
                session.id = repr.session;
                session.source = meta.source;
                session.closing = false;
            }
            self.token = 0;
            self.report = Default::default();
            self.event(ReceiverEvent::Resumed {
                session: repr.session,
            });
            self.believe(repr);
            return Ok(());
        }
        if self.phase == Phase::Open {
            if self.stats.data_packets + self.stats.repairs == 0 {
                return self.reopen(meta, repr);
            }
            self.fail(Failure::SourceLeft);
        }
        Ok(())
    }

    fn reopen(&mut self, meta: &Meta, repr: &sync::Repr<'_>) -> Result<(), Error> {
        if self.phase != Phase::Open {
            return Ok(());
        }
        self.begin(meta, repr)?;
        self.believe(repr);
        Ok(())
    }

    /// What the source itself says stands, whatever was said before.
    fn believe(&mut self, repr: &sync::Repr<'_>) {
        let Some(session) = &mut self.session else {
            return;
        };
        let geometry = session.geometry;
        let differs = session.length != repr.length || session.digest != repr.digest;
        session.confirmed = true;
        session.contradicted = false;
        session.length = repr.length;
        session.total = repr.length.and_then(|length| geometry.packets(length));
        session.digest = repr.digest;
        session.digested = repr.digested.unwrap_or(0);
        session.closing = repr.closing;
        if self.phase == Phase::Complete && differs && self.held_back.is_some() {
            self.take_up_again();
        }
        if self.phase != Phase::Open {
            return;
        }
        if repr.next < self.highest {
            // Nothing past this was ever sent: what asks for it asks for a forger's invention.
            self.highest = repr.next.max(geometry.first_packet(self.frontier));
            self.asked = self.asked.min(self.highest);
            let (block, index) = geometry.locate(self.highest);
            self.asks.clip(block, index);
        }
        self.forget_past_end();
        let published = repr.digested.unwrap_or(0);
        // Nor has it digests past these.
        self.digest_ask = self
            .digest_ask
            .filter(|ask| ask.left || ask.first < published);
        self.learn(repr);
        if self.lacks_what_is_gone(repr.oldest) {
            self.fail(Failure::NoLongerHeld);
            return;
        }
        self.end_known();
        self.audit_confirmed();
    }
}
