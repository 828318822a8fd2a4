//! Heartbeats, confirmations, reports and their answers.

use rand_core::Rng;
use smoltcp::time::Duration;

use super::{CONFIRM_PAUSE, KEEP_ALIVE, Phase, Question, Receiver, Session, Timer};
use crate::config::Name;
use crate::error::Error;
use crate::event::{Failure, ReceiverEvent};
use crate::store::Store;
use crate::wire::report::{ReportAck, Status, Verdict};
use crate::wire::sync;
use crate::{Geometry, Meta, Path};

impl<S: Store> Receiver<'_, S> {
    pub(super) fn on_sync(&mut self, meta: &Meta, repr: &sync::Repr<'_>) -> Result<(), Error> {
        if self
            .config
            .source
            .is_some_and(|source| source != meta.source.ip())
        {
            return Err(Error::OtherSource);
        }
        if self
            .config
            .session
            .is_some_and(|session| session != repr.session)
        {
            return Err(Error::OtherSession);
        }
        let Some(session) = &self.session else {
            return self.open(meta, repr);
        };
        if meta.source.ip() != session.source.ip() {
            return Err(Error::OtherSource);
        }
        if let Some(nonce) = repr.answer {
            return self.on_confirmation(meta, repr, nonce);
        }
        if meta.path == Path::Unicast {
            return Err(Error::Unasked);
        }
        if matches!(self.phase, Phase::Failed | Phase::Ended) {
            return Err(Error::Ended);
        }
        if self.contradicts(repr) {
            let other = self
                .session
                .as_ref()
                .is_some_and(|session| session.id != repr.session);
            if let Some(session) = &mut self.session {
                session.contradicted = true;
                session.confirmed = false;
            }
            self.ask_confirmation();
            return Err(if other {
                Error::OtherSession
            } else {
                Error::Contradiction
            });
        }
        self.heartbeat(repr);
        Ok(())
    }

    /// A heartbeat that contradicts nothing.
    fn heartbeat(&mut self, repr: &sync::Repr<'_>) {
        self.stats.syncs += 1;
        self.heard = self.now;
        self.learn(repr);
        if self.lacks_what_is_gone(repr.oldest) {
            if self.hashing.is_keyed() {
                self.fail(Failure::NoLongerHeld);
            } else {
                self.ask_confirmation();
            }
        }
    }

    /// Whether a heartbeat says something that cannot be true together with what was said before.
    fn contradicts(&self, repr: &sync::Repr<'_>) -> bool {
        let Some(session) = &self.session else {
            return false;
        };
        let differs = |known: Option<u64>, told: Option<u64>| {
            known.zip(told).is_some_and(|(known, told)| known != told)
        };
        session.id != repr.session
            || session.geometry != repr.geometry
            || session.integrity != repr.digested.is_some()
            || differs(session.length, repr.length)
            || session
                .digest
                .zip(repr.digest)
                .is_some_and(|(known, told)| known != told)
            || session.total.is_some_and(|total| repr.next > total)
            || self.ends_before_data(repr)
    }

    /// Whether data lies past the end that the heartbeat names.
    fn ends_before_data(&self, repr: &sync::Repr<'_>) -> bool {
        let end = repr.length.and_then(|length| repr.geometry.packets(length));
        end.is_some_and(|end| self.highest > end)
    }

    fn lacks_what_is_gone(&self, oldest: u64) -> bool {
        let Some(session) = &self.session else {
            return false;
        };
        let (block, index) = session.geometry.locate(oldest);
        if self.phase != Phase::Open || block < self.frontier {
            return false;
        }
        // Blocks that are all here may be gone at the source.
        let gone = (self.frontier..block).any(|b| {
            b >= self.frontier + self.span
                || self.slots.received(b) != session.geometry.mask(b, session.length)
        });
        let partly = crate::geometry::low_bits(index) & !self.slots.received(block) != 0;
        gone || index > 0 && partly
    }

    fn open(&mut self, meta: &Meta, repr: &sync::Repr<'_>) -> Result<(), Error> {
        if repr.answer.is_some() || meta.path == Path::Unicast {
            return Err(Error::Unasked);
        }
        if repr.closing || self.phase != Phase::Idle {
            return Err(Error::Ended);
        }
        if self.config.require_integrity && repr.digested.is_none() {
            return Err(Error::Integrity);
        }
        self.begin(meta, repr)?;
        self.heartbeat(repr);
        Ok(())
    }

    /// Blocks that the window may span; `None`: the store does not fit.
    fn span_for(&self, geometry: &Geometry) -> Option<u64> {
        let Some(capacity) = self.store.capacity() else {
            return Some(self.slots.len());
        };
        let block_len = geometry.block_len() as u64;
        let blocks = capacity / block_len;
        (blocks >= 2 && capacity.is_multiple_of(block_len)).then_some(blocks.min(self.slots.len()))
    }

    /// Takes a session up from nothing.
    fn begin(&mut self, meta: &Meta, repr: &sync::Repr<'_>) -> Result<(), Error> {
        let geometry = repr.geometry;
        self.span = self.span_for(&geometry).ok_or(Error::Geometry)?;
        let per_block = u64::from(geometry.packets_per_block());
        self.start = self.start_block(repr.oldest, repr.next, per_block);
        self.frontier = self.start;
        self.top = self.start;
        self.consumed = geometry.block_offset(self.start);
        self.highest = geometry.first_packet(self.start);
        self.asked = self.highest;
        self.current = (self.start, self.highest);
        self.slots.clear();
        self.asks.clear();
        self.forget_requests();
        self.repairs
            .set_packets_per_block(geometry.packets_per_block());
        self.reset_tree(repr.digested.is_some());
        self.adopted = None;
        self.unverified = 0;
        self.digest_ask = None;
        self.audit = None;
        self.phase = Phase::Open;
        self.fed = self.now;
        self.name = Name::from_slice(repr.name).unwrap_or_default();
        self.session = Some(Session {
            id: repr.session,
            source: meta.source,
            geometry,
            integrity: repr.digested.is_some(),
            reports: false,
            progress_blocks: 0,
            report_window: Duration::ZERO,
            silence: Duration::ZERO,
            digested: 0,
            length: None,
            total: None,
            digest: None,
            closing: false,
            confirmed: false,
            contradicted: false,
        });
        self.taken = self.blocks_taken();
        self.event(ReceiverEvent::Opened {
            session: repr.session,
            source: meta.source,
            length: repr.length,
            start: self.consumed,
        });
        self.timers.set(
            Timer::Source as usize,
            self.now + self.config.source_timeout,
        );
        Ok(())
    }

    /// Takes in what a heartbeat says.
    fn learn(&mut self, repr: &sync::Repr<'_>) {
        let Some(session) = &mut self.session else {
            return;
        };
        session.silence = Duration::from_millis(u64::from(repr.silence_ms));
        session.digested = session.digested.max(repr.digested.unwrap_or(0));
        session.progress_blocks = repr.progress_blocks;
        session.report_window = Duration::from_micros(u64::from(repr.report_window_us));
        let new_reports = repr.reports && !session.reports;
        session.reports = repr.reports;
        let left = repr.closing && !session.closing;
        session.closing = repr.closing;
        let ended = repr.length.is_some() && session.length.is_none();
        if ended {
            session.length = repr.length;
            session.total = repr
                .length
                .and_then(|length| session.geometry.packets(length));
        }
        let named = repr.digest.is_some() && session.digest.is_none();
        session.digest = session.digest.or(repr.digest);
        if ended || named {
            // What the source confirmed before was not this.
            session.confirmed = false;
        }
        if left {
            self.timers.set_earlier(
                Timer::Source as usize,
                self.now + self.config.source_timeout / 5,
            );
        }
        if new_reports && self.phase == Phase::Open {
            self.report_in_window();
        }
        if repr.stalled && self.window_base() > self.report.blocks {
            self.report_in_window();
        }
        self.sent_up_to(repr.next);
        if ended {
            self.end_known();
        }
        self.want_digests();
        self.check_complete();
    }

    fn report_in_window(&mut self) {
        // One that waits for its answer is repeated in its own time.
        if self.report.sent.is_some() {
            return;
        }
        let window = self
            .session
            .as_ref()
            .map_or(Duration::ZERO, |s| s.report_window);
        let delay = self.jitter(window);
        self.timers
            .set_earlier(Timer::Report as usize, self.now + delay);
    }

    /// The window has moved: the source may want to know, since it keeps within it.
    pub(super) fn report_progress(&mut self) {
        let Some(session) = &self.session else { return };
        let step = u64::from(session.progress_blocks);
        if session.reports && step > 0 && self.window_base() >= self.report.blocks + step {
            self.report_in_window();
        }
    }

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

    fn on_confirmation(
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

    pub(super) fn on_ack(&mut self, meta: &Meta, ack: &ReportAck) -> Result<(), Error> {
        self.check_from_source(meta)?;
        let Some(session) = &self.session else {
            return Err(Error::BeforeSync);
        };
        if ack.session != session.id {
            return Err(Error::OtherSession);
        }
        let digest_nonce = self.digest_ask.map_or(0, |ask| ask.nonce);
        let ours = ack.receiver == self.id
            || ack.verdict == Verdict::Token && digest_nonce != 0 && ack.receiver == digest_nonce;
        if !ours {
            return Err(Error::Unasked);
        }
        if ack.verdict == Verdict::Token {
            self.token = ack.token;
            self.token_came(ack);
            return Ok(());
        }
        let reported = self.report.sent.take_if(|_| self.report.tag == ack.tag);
        let Some((sent, status)) = reported else {
            return Err(Error::Unasked);
        };
        self.token = ack.token;
        self.source_trip.sample(self.now - sent);
        self.report.attempts = 0;
        self.report.joined = true;
        match status {
            Status::Complete if ack.verdict == Verdict::Mismatch => self.mismatch(),
            Status::Complete => {
                self.report.complete = true;
                self.ending = self.held_back.take().or(self.ending.take());
            }
            Status::Failed => self.report.failed = true,
            _ => {}
        }
        self.after_report();
        Ok(())
    }

    /// A token makes the next packet worth more: it goes at once.
    fn token_came(&mut self, ack: &ReportAck) {
        if self
            .report
            .sent
            .take_if(|_| self.report.tag == ack.tag)
            .is_some()
        {
            self.report.attempts = 0;
            self.timers.set(Timer::Report as usize, self.now);
        } else if let Some(ask) = &mut self.digest_ask
            && ask.nonce == ack.receiver
        {
            ask.attempts = ask.attempts.saturating_sub(1);
            self.timers.set(Timer::Digests as usize, self.now);
        }
    }

    /// The source holds something else than what is here, so the digest that was announced was
    /// forged: the source says which one is true, and an audit finds the blocks that are not.
    fn mismatch(&mut self) {
        if self.phase != Phase::Complete {
            return;
        }
        self.take_up_again();
        let Some(session) = &mut self.session else {
            return;
        };
        if session.confirmed || self.hashing.is_keyed() {
            // It contradicts itself, or one who has the key forged.
            self.fail(Failure::WholeDigest);
            return;
        }
        session.contradicted = true;
        self.question_after = self.now;
        self.ask_confirmation();
    }

    /// What was complete is not, and the application has not been told that it was.
    fn take_up_again(&mut self) {
        self.phase = Phase::Open;
        self.ending = None;
        self.held_back = None;
        self.report.complete = false;
        self.report.sent = None;
        self.heard = self.now;
        self.fed = self.now;
        let at = self.now + self.config.source_timeout;
        self.timers.set(Timer::Source as usize, at);
    }

    /// Sets the timer of the next report.
    pub(super) fn after_report(&mut self) {
        let (session_wants, leaving) = match &self.session {
            Some(session) => (session.reports, session.closing),
            None => (false, false),
        };
        let done = match self.phase {
            Phase::Complete => self.report.complete,
            Phase::Failed => self.report.failed,
            _ => false,
        };
        if !session_wants || done {
            self.timers.stop(Timer::Report as usize);
            return;
        }
        let waiting = self.report.sent.is_some();
        let delay = if waiting {
            // A source that is leaving answers soon or never: no use in waiting longer each time.
            let attempts = if leaving { 0 } else { self.report.attempts };
            self.source_trip.timeout(attempts)
        } else {
            KEEP_ALIVE
        };
        let delay = delay + self.jitter(delay / 4);
        self.timers.set(Timer::Report as usize, self.now + delay);
    }
}
