//! Confirmation: contradictions are settled by a question to the source by unicast, under a nonce.

use core::num::NonZeroU16;

use proto_core::time::{Duration, Instant};

use super::recovery::Target;
use super::{Phase, Receiver, Session, Timer};
use crate::error::Error;
use crate::event::{Failure, ReceiverEvent};
use crate::store::Store;
use crate::wire::request::Kind;
use crate::wire::sync;
use crate::{Destination, Meta, Path, Transmit};

/// Attempts after which a question without an answer is dropped; the next contradiction asks again.
const QUESTION_ATTEMPTS: u32 = 8;
/// The source is asked to confirm a heartbeat no more often than this.
const CONFIRM_PAUSE: Duration = Duration::from_secs(1);

/// Whether this attempt goes to the other port: the known address has not answered two attempts, and is
/// tried in between.
fn asks_elsewhere(attempt: u32) -> bool {
    attempt >= 3 && !attempt.is_multiple_of(2)
}

/// A question to the source by unicast, under a nonce.
#[derive(Clone, Copy, Debug)]
struct Question {
    nonce: u64,
    attempts: u32,
    /// Another port of the source's host, from which heartbeats of another session come: a source that
    /// was restarted listens there. It is asked when the known address does not answer.
    other: Option<NonZeroU16>,
}

/// The question to the source, if there is one.
#[derive(Debug)]
pub(super) struct Confirmation {
    question: Option<Question>,
    /// The next question may be asked from then on.
    not_before: Instant,
}

impl Confirmation {
    pub(super) fn new(now: Instant) -> Self {
        Confirmation {
            question: None,
            not_before: now,
        }
    }

    pub(super) fn cancel(&mut self) {
        self.question = None;
    }

    /// Permits a question at once.
    pub(super) fn permit(&mut self, now: Instant) {
        self.not_before = now;
    }
}

impl<S: Store> Receiver<'_, S> {
    /// Asks the source for a heartbeat under a nonce.
    pub(super) fn request_confirmation(&mut self) {
        self.ask_about(None);
    }

    /// Asks the source; `elsewhere` is another port of its host that sends heartbeats.
    pub(super) fn ask_about(&mut self, elsewhere: Option<NonZeroU16>) {
        if let Some(question) = &mut self.confirmation.question {
            question.other = elsewhere.or(question.other);
            return;
        }
        if self.now < self.confirmation.not_before {
            return;
        }
        self.confirmation.question = Some(Question {
            nonce: self.identity.nonce(),
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
        let mut question = self.confirmation.question?;
        if question.attempts >= QUESTION_ATTEMPTS {
            self.confirmation.cancel();
            self.confirmation.not_before = self.now + CONFIRM_PAUSE;
            // The source is out of reach: what was announced first still counts. A later contradiction asks again.
            self.check_source();
            return None;
        }
        question.attempts += 1;
        self.confirmation.question = Some(question);
        let wait = self.recovery.source_trip().timeout(question.attempts);
        let wait = wait + self.identity.jitter(wait / 4);
        self.timers.set(Timer::Confirm, self.now + wait);
        self.stats.confirmations += 1;
        let repr = self.request_repr(
            Kind::Sync,
            question.attempts,
            question.nonce,
            Target::Source,
        )?;
        repr.emit(buffer);
        let destination = match question.other {
            Some(port) if asks_elsewhere(question.attempts) => {
                let mut source = self.session.as_ref()?.source();
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
        let known = self.session.as_ref().map(Session::source);
        let asked = self.confirmation.question.is_some_and(|question| {
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
            if let Some(question) = &mut self.confirmation.question {
                question.other = None;
            }
            return Err(Error::OtherSession);
        }
        self.confirmation.cancel();
        self.confirmation.not_before = self.now + CONFIRM_PAUSE;
        self.timers.stop(Timer::Confirm);
        self.liveness.source_spoke(self.now);
        self.stats.syncs += 1;
        let Some(session) = &self.session else {
            return Ok(());
        };
        if session.id() != repr.session || !is_known {
            let same = session.is_cut_like(repr) && session.is_of_content(repr);
            return self.other_session(meta, repr, same);
        }
        if !session.is_cut_like(repr) {
            // What was believed so far was forged; nothing can have verified under it.
            return self.reopen(meta, repr);
        }
        self.believe(repr);
        Ok(())
    }

    /// Whether a session from another port of the source's host may replace the current one: it is
    /// the same content, or nothing of the followed one has come.
    fn may_follow(&self, repr: &sync::Repr<'_>) -> bool {
        let empty = self.stats.data_packets + self.stats.repairs == 0;
        let same = |session: &Session| session.is_cut_like(repr) && session.is_of_content(repr);
        self.session_is(same) || empty && self.phase == Phase::Open
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
                session.follow(repr.session, meta.source);
            }
            self.identity.set_token(0);
            self.congestion = crate::tfmcc::Receiver::new();
            self.reports.restart();
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
        let geometry = session.geometry();
        let differs = session.believe(repr);
        if self.phase == Phase::Complete && differs && self.events.is_unconfirmed() {
            self.resume();
        }
        if self.phase != Phase::Open {
            return;
        }
        // Packets past this were never sent: those that seem missing were forged.
        let next = repr.next.max(geometry.first_packet(self.window.frontier()));
        if next < self.gaps.highest() {
            self.gaps.clip(&geometry, next);
        }
        self.forget_past_end();
        // Nor has it digests past these.
        self.digests.limit(repr.digested.unwrap_or(0));
        self.learn(repr);
        if self.lacks_released_packets(repr.oldest) {
            self.fail(Failure::NoLongerStored);
            return;
        }
        self.audit_confirmed();
    }
}
