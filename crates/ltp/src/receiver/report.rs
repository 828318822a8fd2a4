//! Reports to the source, and what it answers.

use proto_core::time::Duration;

use super::{MAX_SAMPLE, Phase, Receiver, Timer};
use crate::error::Error;
use crate::event::Failure;
use crate::store::Store;
use crate::wire::report::{Loss, Report, ReportAck, Status, Verdict};
use crate::{Meta, Transmit};

/// Reports that need an answer are sent so often at most.
const REPORT_ATTEMPTS: u32 = 10;

/// A source that confirms its digest and denies so many reports of it contradicts itself. A single bit that
/// changes on the way makes one denial.
const MOST_DENIALS: u8 = 3;
/// Loss is reported no sooner than this after the last report of it, in milliseconds.
const LOSS_PAUSE_MS: u32 = 100;

/// A receiver that reports lets the source hear from it at least so often.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

impl<S: Store> Receiver<'_, S> {
    pub(super) fn report_in_window(&mut self) {
        // One that waits for its answer is repeated in its own time.
        if self.report.sent.is_some() {
            return;
        }
        let window = self
            .session
            .as_ref()
            .map_or(Duration::ZERO, |s| s.report_window);
        let delay = self.jitter(window);
        self.timers.set_earlier(Timer::Report, self.now + delay);
    }

    /// The window has moved: the source may want to know, since it keeps within it.
    pub(super) fn report_progress(&mut self) {
        let Some(session) = &self.session else { return };
        let step = u64::from(session.progress_blocks);
        if session.reports && step > 0 && self.window_base() >= self.report.blocks + step {
            self.report_in_window();
        }
    }

    /// What was lost since it was last reported.
    fn loss(&self) -> Loss {
        let mark = self.reported_loss;
        // A forged heartbeat that the source denied may have moved the newest packet back.
        let expected = (self.highest as u32)
            .wrapping_sub(mark.highest)
            .cast_signed();
        let expected = expected.max(0).cast_unsigned();
        let came = self.data_came().wrapping_sub(mark.came);
        let lost = expected.saturating_sub(came);
        Loss { expected, lost }
    }

    /// The low bits of the number of DATA packets that came. What comes a second time came: a source that
    /// was restarted sends some again.
    fn data_came(&self) -> u32 {
        (self.stats.data_packets + self.stats.duplicate_data) as u32
    }

    /// Loss is counted from here on.
    pub(super) fn count_loss_anew(&mut self) {
        self.reported_loss.highest = self.highest as u32;
        self.reported_loss.came = self.data_came();
    }

    /// Packets are missing: if they are many, the source is told without waiting for progress.
    pub(super) fn report_loss(&mut self) {
        let wanted = self.session.as_ref().is_some_and(|session| session.reports);
        let elapsed = |at_ms: u32| (self.now.total_millis() as u32).wrapping_sub(at_ms);
        let is_soon = |at_ms| elapsed(at_ms) < LOSS_PAUSE_MS;
        if !wanted || !self.report.joined || self.reported_loss.at_ms.is_some_and(is_soon) {
            return;
        }
        let loss = self.loss().per_mille();
        if loss.is_some_and(|loss| loss > crate::rate::TOLERATED_PER_MILLE) {
            self.report_in_window();
        }
    }

    pub(super) fn poll_report(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        if !self.due(Timer::Report) {
            return None;
        }
        self.timers.stop(Timer::Report);
        let status = self.report_status();
        let answered = !matches!(status, Status::Progress | Status::Leaving);
        let last_word = matches!(status, Status::Complete | Status::Failed);
        if last_word && self.report.attempts >= REPORT_ATTEMPTS {
            self.report.sent = None;
            // The source cannot be reached; what is here is whole all the same.
            self.ending = self.held_back.take().or(self.ending.take());
            return None;
        }
        let whole = status == Status::Complete && self.knows_whole();
        let tag = self.tag();
        // What the application has not taken yet keeps the source from running ahead.
        let blocks = if self.phase == Phase::Complete {
            self.frontier
        } else {
            self.window_base()
        };
        let session = self.session.as_ref()?;
        let whole = whole && session.integrity;
        let report = Report {
            status,
            tag,
            session: session.id,
            receiver: self.id,
            blocks,
            token: self.token,
            digest: if whole {
                crate::wire::u64_at(&self.root(), 0)
            } else {
                0
            },
            loss: match status {
                Status::Progress => self.loss(),
                _ => Loss::default(),
            },
        };
        report.emit(buffer);
        if report.loss.expected >= Loss::LEAST {
            self.count_loss_anew();
            self.reported_loss.at_ms = Some(self.now.total_millis() as u32);
        }
        self.report.tag = tag;
        self.report.blocks = blocks;
        self.report.sent = answered.then_some((self.now, status));
        self.report.attempts = if answered {
            self.report.attempts + 1
        } else {
            0
        };
        self.stats.reports += 1;
        self.after_report();
        let destination = self.to_source()?;
        let transmit = self.sent(destination, buffer, report.buffer_len());
        if status == Status::Leaving {
            self.phase = Phase::Ended;
        }
        Some(transmit)
    }

    fn report_status(&self) -> Status {
        match self.phase {
            _ if self.report.leaving => Status::Leaving,
            Phase::Complete => Status::Complete,
            Phase::Failed => Status::Failed,
            _ if !self.report.joined => Status::Joined,
            _ => Status::Progress,
        }
    }

    /// Sets the timer of the next report.
    fn after_report(&mut self) {
        let (session_wants, leaving) = match &self.session {
            Some(session) => (session.reports, session.closing),
            None => (false, false),
        };
        // Who waits for the source's word waits for that, whatever heartbeats say meanwhile.
        let wanted = session_wants || self.held_back.is_some();
        let done = match self.phase {
            Phase::Complete => self.report.complete,
            Phase::Failed => self.report.failed,
            _ => false,
        };
        if !wanted || done {
            self.timers.stop(Timer::Report);
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
        self.timers.set(Timer::Report, self.now + delay);
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
        self.source_trip.sample((self.now - sent).min(MAX_SAMPLE));
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
        let owes_last_word = match self.phase {
            Phase::Complete => !self.report.complete,
            Phase::Failed => !self.report.failed,
            _ => false,
        };
        if owes_last_word {
            // What was answered is older: the news is not put off until the next sign of life.
            self.report_in_window();
        } else {
            self.after_report();
        }
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
            self.timers.set(Timer::Report, self.now);
        } else if let Some(ask) = &mut self.digest_ask
            && ask.nonce == ack.receiver
        {
            ask.attempts = ask.attempts.saturating_sub(1);
            self.timers.set(Timer::Digests, self.now);
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
        self.denials = self.denials.saturating_add(1);
        if self.hashing.is_keyed() || session.confirmed && self.denials >= MOST_DENIALS {
            // It contradicts itself, or one who has the key forged.
            self.fail(Failure::WholeDigest);
            return;
        }
        session.contradicted = true;
        session.confirmed = false;
        self.question_after = self.now;
        self.ask_confirmation();
    }

    /// What was complete is not, and the application has not been told that it was.
    pub(super) fn take_up_again(&mut self) {
        self.phase = Phase::Open;
        self.ending = None;
        self.held_back = None;
        self.report.complete = false;
        self.report.sent = None;
        self.heard = self.now;
        self.fed = self.now;
        self.advanced = self.now;
        let at = self.now + self.config.source_timeout;
        self.timers.set(Timer::Source, at);
    }
}
