//! Reports to the source, and its answers.

use proto_core::time::{Duration, Instant};

use super::{Phase, Receiver, Session, Timer};
use crate::error::Error;
use crate::event::Failure;
use crate::store::Store;
use crate::wire::report::{Loss, Report, ReportAck, Status, Verdict};
use crate::{Meta, Transmit};

/// Attempts of a report that needs an answer.
const REPORT_ATTEMPTS: u32 = 10;

/// Denied reports of a digest after which a source that confirms this digest contradicts itself. A single bit
/// that changes on the way makes one denial.
const MOST_DENIALS: u8 = 3;
/// Shortest time between two reports of loss, in milliseconds.
const LOSS_PAUSE_MS: u32 = 100;

/// Longest time between two reports.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// What the source knows of this receiver.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Standing {
    #[default]
    Unknown,
    Joined,
    /// It has confirmed that this receiver is complete, or has failed.
    Confirmed,
    /// The next report says that this receiver leaves.
    Leaving,
}

/// The last reports.
#[derive(Default, Debug)]
pub(super) struct Reports {
    tag: u16,
    attempts: u32,
    standing: Standing,
    blocks: u64,
    /// When the report that waits for an answer was sent, and its status.
    sent: Option<(Instant, Status)>,
    loss_mark: LossMark,
    /// Reports of completion that the source denied.
    denials: u8,
}

/// The state at the last report of loss: the low bits of larger counters.
#[derive(Clone, Copy, Default, Debug)]
struct LossMark {
    /// One past the newest packet known to have been sent.
    highest: u32,
    /// DATA packets that had come.
    came: u32,
    /// Time of the report in milliseconds; `None`: not in this session.
    at_ms: Option<u32>,
}

impl Reports {
    /// Returns the blocks of the last report.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The source has another session: nothing was reported to it.
    pub(super) fn restart(&mut self) {
        *self = Reports {
            loss_mark: self.loss_mark,
            denials: self.denials,
            ..Reports::default()
        };
    }

    /// The next report is the first attempt.
    pub(super) fn restart_attempts(&mut self) {
        self.attempts = 0;
    }

    /// Has the next report say that this receiver leaves. Returns false if the source does not know it.
    pub(super) fn leave(&mut self) -> bool {
        if self.is_joined() {
            self.standing = Standing::Leaving;
        }
        self.is_joined()
    }

    fn is_joined(&self) -> bool {
        self.standing != Standing::Unknown
    }

    /// The session continues after it was complete.
    fn withdraw(&mut self) {
        self.sent = None;
    }
}

impl<S: Store> Receiver<'_, S> {
    pub(super) fn report_in_window(&mut self) {
        // A report that waits for its answer has its own timeout.
        if self.reports.sent.is_some() {
            return;
        }
        let window = self
            .session
            .as_ref()
            .map_or(Duration::ZERO, Session::report_window);
        let delay = self.identity.jitter(window);
        self.timers.set_earlier(Timer::Report, self.now + delay);
    }

    /// The window has moved: reports it to a source that is limited by it.
    pub(super) fn report_progress(&mut self) {
        let Some(session) = &self.session else { return };
        let step = session.report_step();
        if step.is_some_and(|step| self.window.base() >= self.reports.blocks + step) {
            self.report_in_window();
        }
    }

    /// Returns the loss since the last report of it.
    fn loss(&self) -> Loss {
        let mark = self.reports.loss_mark;
        // A forged heartbeat that the source denied may have moved the newest packet back.
        let expected = (self.gaps.highest() as u32)
            .wrapping_sub(mark.highest)
            .cast_signed();
        let expected = expected.max(0).cast_unsigned();
        let came = self.data_came().wrapping_sub(mark.came);
        let lost = expected.saturating_sub(came);
        Loss { expected, lost }
    }

    /// Returns the low bits of the number of DATA packets that came. Duplicates count: a source that was restarted
    /// sends some packets again.
    fn data_came(&self) -> u32 {
        (self.stats.data_packets + self.stats.duplicate_data) as u32
    }

    /// Restarts the count of loss.
    pub(super) fn count_loss_anew(&mut self) {
        self.reports.loss_mark.highest = self.gaps.highest() as u32;
        self.reports.loss_mark.came = self.data_came();
    }

    /// Packets are missing: reports heavy loss without waiting for progress.
    pub(super) fn report_loss(&mut self) {
        let wanted = self.session_is(Session::wants_reports);
        let elapsed = |at_ms: u32| (self.now.total_millis() as u32).wrapping_sub(at_ms);
        let is_soon = |at_ms| elapsed(at_ms) < LOSS_PAUSE_MS;
        if !wanted || !self.reports.is_joined() || self.reports.loss_mark.at_ms.is_some_and(is_soon)
        {
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
        let is_last = matches!(status, Status::Complete | Status::Failed);
        if is_last && self.reports.attempts >= REPORT_ATTEMPTS {
            self.reports.sent = None;
            // The source cannot be reached, but the content is complete.
            self.events.confirm_last();
            return None;
        }
        let whole = status == Status::Complete && self.knows_whole();
        let tag = self.identity.next_tag();
        // Bytes that the application has not taken limit the source.
        let blocks = if self.phase == Phase::Complete {
            self.window.frontier()
        } else {
            self.window.base()
        };
        let session = self.session.as_ref()?;
        let whole = whole && session.has_digests();
        let report = Report {
            status,
            tag,
            session: session.id(),
            receiver: self.identity.id(),
            blocks,
            token: self.identity.token(),
            digest: if whole {
                crate::wire::prefix(&self.whole.root(&self.hashing))
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
            self.reports.loss_mark.at_ms = Some(self.now.total_millis() as u32);
        }
        self.reports.tag = tag;
        self.reports.blocks = blocks;
        self.reports.sent = answered.then_some((self.now, status));
        self.reports.attempts = if answered {
            self.reports.attempts + 1
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
            _ if self.reports.standing == Standing::Leaving => Status::Leaving,
            Phase::Complete => Status::Complete,
            Phase::Failed => Status::Failed,
            _ if !self.reports.is_joined() => Status::Joined,
            _ => Status::Progress,
        }
    }

    /// Sets the timer for the next report.
    fn after_report(&mut self) {
        let (session_wants, leaving) = match &self.session {
            Some(session) => (session.wants_reports(), session.is_closing()),
            None => (false, false),
        };
        // A last report needs its answer even if heartbeats no longer ask for reports.
        let wanted = session_wants || self.events.is_unconfirmed();
        let done = match self.phase {
            Phase::Complete | Phase::Failed => self.reports.standing == Standing::Confirmed,
            _ => false,
        };
        if !wanted || done {
            self.timers.stop(Timer::Report);
            return;
        }
        let waiting = self.reports.sent.is_some();
        let delay = if waiting {
            // A source that is leaving answers soon or never: the timeout does not grow.
            let attempts = if leaving { 0 } else { self.reports.attempts };
            self.recovery.source_trip().timeout(attempts)
        } else {
            KEEP_ALIVE
        };
        let delay = delay + self.identity.jitter(delay / 4);
        self.timers.set(Timer::Report, self.now + delay);
    }

    pub(super) fn on_ack(&mut self, meta: &Meta, ack: &ReportAck) -> Result<(), Error> {
        self.check_from_source(meta)?;
        let Some(session) = &self.session else {
            return Err(Error::BeforeSync);
        };
        if ack.session != session.id() {
            return Err(Error::OtherSession);
        }
        if ack.verdict == Verdict::TooSlow {
            return self.given_up(ack);
        }
        let ours = ack.receiver == self.identity.id()
            || ack.verdict == Verdict::Token && self.digests.nonce() == Some(ack.receiver);
        if !ours {
            return Err(Error::Unasked);
        }
        if ack.verdict == Verdict::Token {
            self.identity.set_token(ack.token);
            self.congestion.token_came(self.now);
            self.token_came(ack);
            return Ok(());
        }
        let reported = self.reports.sent.take_if(|_| self.reports.tag == ack.tag);
        let Some((sent, status)) = reported else {
            return Err(Error::Unasked);
        };
        self.identity.set_token(ack.token);
        self.recovery.sample_source(self.now - sent);
        self.reports.attempts = 0;
        if !self.reports.is_joined() {
            self.reports.standing = Standing::Joined;
        }
        match status {
            // What the application was told stands.
            Status::Complete
                if ack.verdict == Verdict::Mismatch && self.events.is_unconfirmed() =>
            {
                self.mismatch();
            }
            Status::Complete => {
                self.reports.standing = Standing::Confirmed;
                self.events.confirm_last();
            }
            Status::Failed => self.reports.standing = Standing::Confirmed,
            _ => {}
        }
        let owes_last_report = match self.phase {
            Phase::Complete | Phase::Failed => self.reports.standing != Standing::Confirmed,
            _ => false,
        };
        if owes_last_report {
            // The answer is to an older report: the new state is reported now.
            self.report_in_window();
        } else {
            self.after_report();
        }
        Ok(())
    }

    /// A token came: what needed it is sent again at once.
    fn token_came(&mut self, ack: &ReportAck) {
        if self
            .reports
            .sent
            .take_if(|_| self.reports.tag == ack.tag)
            .is_some()
        {
            self.reports.attempts = 0;
            self.timers.set(Timer::Report, self.now);
        } else if self.digests.token_came(ack.receiver) {
            self.timers.set(Timer::Digests, self.now);
        }
    }

    /// The source's digest differs from the one that was announced, which was forged: the source confirms the
    /// right one, and an audit finds the wrong blocks.
    fn mismatch(&mut self) {
        if self.phase != Phase::Complete {
            return;
        }
        self.resume();
        let Some(session) = &mut self.session else {
            return;
        };
        self.reports.denials = self.reports.denials.saturating_add(1);
        if self.hashing.is_keyed() || session.is_confirmed() && self.reports.denials >= MOST_DENIALS
        {
            // The source contradicts itself, or a host with the key forged.
            self.fail(Failure::WholeDigest);
            return;
        }
        session.contradict();
        self.confirmation.permit(self.now);
        self.request_confirmation();
    }

    /// Continues a session that seemed complete, which the application was not told.
    pub(super) fn resume(&mut self) {
        self.phase = Phase::Open;
        self.events.withdraw_last();
        self.reports.withdraw();
        self.liveness.source_spoke(self.now);
        self.liveness.restart(self.now);
        let at = self.now + self.config.source_timeout;
        self.timers.set(Timer::Source, at);
    }
}
