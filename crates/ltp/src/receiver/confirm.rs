//! Doubts: the source is asked by unicast, under a nonce, what is true, and only that answer counts.

use core::num::NonZeroU16;

use proto_core::time::Duration;
use rand_core::Rng;

use super::{Phase, Question, Receiver, Timer};
use crate::error::Error;
use crate::event::{Failure, ReceiverEvent};
use crate::store::Store;
use crate::wire::request::Kind;
use crate::wire::sync;
use crate::{Destination, Meta, Path, Transmit};

/// A question the source does not answer is dropped after so many attempts; the next
/// contradiction asks again.
const QUESTION_ATTEMPTS: u32 = 8;
/// The source is asked to confirm a heartbeat no more often than this.
const CONFIRM_PAUSE: Duration = Duration::from_secs(1);

/// Whether this attempt goes to the other port: the known address has not answered two before, and is
/// asked again in between.
fn asks_elsewhere(attempt: u32) -> bool {
    attempt > 2 && !attempt.is_multiple_of(2)
}

impl<S: Store> Receiver<'_, S> {
    /// Asks the source by unicast, under a nonce, what is true.
    pub(super) fn ask_confirmation(&mut self) {
        self.ask_about(None);
    }

    /// Asks the source; `elsewhere` is another port of its host that speaks as the source.
    pub(super) fn ask_about(&mut self, elsewhere: Option<NonZeroU16>) {
        if let Some(question) = &mut self.question {
            question.other = elsewhere.or(question.other);
            return;
        }
        if self.now < self.question_after {
            return;
        }
        self.question = Some(Question {
            nonce: self.rng.next_u64().max(1),
            attempts: 0,
            other: elsewhere,
        });
        self.timers.set(Timer::Confirm, self.now);
    }

    pub(super) fn poll_question(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        if !self.due(Timer::Confirm) {
            return None;
        }
        self.timers.stop(Timer::Confirm);
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
        self.timers.set(Timer::Confirm, self.now + wait);
        self.stats.confirmations += 1;
        let repr = self.request_repr(Kind::Sync, question.attempts, question.nonce)?;
        repr.emit(buffer);
        let destination = match question.other {
            Some(port) if asks_elsewhere(question.attempts) => {
                let mut source = self.session.as_ref()?.source;
                source.set_port(port.get());
                Destination::Unicast(source)
            }
            _ => self.to_source()?,
        };
        Some(self.sent(destination, buffer, repr.buffer_len()))
    }

    pub(super) fn on_confirmation(
        &mut self,
        meta: &Meta,
        repr: &sync::Repr<'_>,
        nonce: u64,
    ) -> Result<(), Error> {
        let known = self.session.as_ref().map(|session| session.source);
        let asked = self.question.is_some_and(|question| {
            let other = question.other.map(NonZeroU16::get);
            let is_expected = known == Some(meta.source) || other == Some(meta.source.port());
            question.nonce == nonce && is_expected
        });
        if !asked || meta.path != Path::Unicast {
            return Err(Error::Unasked);
        }
        let is_known = known == Some(meta.source);
        if !is_known && !self.may_follow(repr) {
            // Another transfer of that host: the known source may only be out of reach for a moment.
            if let Some(question) = &mut self.question {
                question.other = None;
            }
            return Err(Error::OtherSession);
        }
        self.question = None;
        self.question_after = self.now + CONFIRM_PAUSE;
        self.timers.stop(Timer::Confirm);
        self.heard = self.now;
        self.stats.syncs += 1;
        let Some(session) = &self.session else {
            return Ok(());
        };
        let same_cut =
            session.geometry == repr.geometry && session.integrity == repr.digested.is_some();
        if session.id != repr.session || !is_known {
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

    /// Whether what another port of the source's host sends may take the place of what is followed: it is
    /// the same content, or nothing of the followed one has come.
    fn may_follow(&self, repr: &sync::Repr<'_>) -> bool {
        let empty = self.stats.data_packets + self.stats.repairs == 0;
        let same_cut = self.session.as_ref().is_some_and(|session| {
            session.geometry == repr.geometry && session.integrity == repr.digested.is_some()
        });
        same_cut && self.same_content(repr) || empty && self.phase == Phase::Open
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
                // It is told at once that this receiver takes part, and how far it is.
                session.reports = false;
            }
            self.token = 0;
            self.report = Default::default();
            if repr.reports && self.phase == Phase::Complete {
                self.report_in_window();
            }
            self.event(ReceiverEvent::Resumed {
                session: repr.session,
            });
            self.believe(repr);
            self.count_loss_anew();
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
        self.count_loss_anew();
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
