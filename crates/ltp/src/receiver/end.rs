//! Failure of a session.

use proto_core::time::{Duration, Instant};

use super::{Phase, Receiver, Timer};
use crate::event::{Failure, ReceiverEvent};
use crate::store::Store;
use proto_core::timer::Timers;

/// Disagreements of data and digests, without a final block in between, that end a session.
const MIN_DISAGREEMENTS: u8 = 8;

/// When the session last made progress, of each kind.
pub(super) struct Liveness {
    source_spoke: Instant,
    /// When new data last came.
    data_came: Instant,
    block_final: Instant,
}

impl Liveness {
    pub(super) fn new(now: Instant) -> Self {
        Liveness {
            source_spoke: now,
            data_came: now,
            block_final: now,
        }
    }

    /// A packet came that the source sent unrequested, or confirmed.
    #[inline]
    pub(super) fn source_spoke(&mut self, now: Instant) {
        self.source_spoke = now;
    }

    /// New data came.
    #[inline]
    pub(super) fn data_came(&mut self, now: Instant) {
        self.data_came = now;
    }

    /// A block became final.
    pub(super) fn block_final(&mut self, now: Instant) {
        self.block_final = now;
    }

    /// The session begins, or begins anew.
    pub(super) fn restart(&mut self, now: Instant) {
        self.data_came = now;
        self.block_final = now;
    }
}

impl<S: Store> Receiver<'_, S> {
    /// The source's timer fired: ends the session if it has made no progress for too long.
    pub(super) fn check_source(&mut self) {
        let now = self.now;
        let timeout = self.config.source_timeout;
        if matches!(self.phase, Phase::Complete | Phase::Failed) {
            return;
        }
        let closing = self.session_is(|session| session.closing);
        // A source may announce how long it is silent.
        let silence = self.session.as_ref().map_or(Duration::ZERO, |s| s.silence);
        let grace = if closing {
            timeout / 5
        } else {
            timeout.max(silence * 3)
        };
        if self.liveness.source_spoke + grace <= now {
            let failure = match (self.phase, closing) {
                (Phase::Idle, _) => Failure::NoSource,
                (_, true) => Failure::SourceLeft,
                (_, false) => Failure::SourceLost,
            };
            self.fail(failure);
        } else if self.liveness.block_final + timeout * 3 <= now
            && self.verification.disagreements() >= MIN_DISAGREEMENTS
        {
            self.fail(Failure::Disagreement);
        } else if self.liveness.data_came + timeout * 3 <= now && self.verification.audit.is_some()
        {
            self.fail(Failure::WholeDigest);
        } else if self.liveness.data_came + timeout * 3 <= now && self.waits_for_answers() {
            self.fail(Failure::Unanswered);
        } else {
            let next = (self.liveness.source_spoke + grace).max(now + timeout / 20);
            self.timers.set(Timer::Source, next);
        }
    }

    /// Whether data or digests that the source has sent were requested and have not come.
    fn waits_for_answers(&self) -> bool {
        let published = self.session.as_ref().map_or(0, |session| session.digested);
        let digests = self
            .digests
            .pending
            .is_some_and(|request| !request.left && request.first < published);
        digests || !self.gaps.requests.is_empty()
    }

    /// Gives up.
    pub(super) fn fail(&mut self, failure: Failure) {
        if !matches!(self.phase, Phase::Idle | Phase::Open) {
            return;
        }
        if failure == Failure::WholeDigest && !self.audit_is_under_way() {
            // It is not known which block is wrong, so that none counts as received.
            self.window.rewind(self.window.top());
        }
        let first_missing = self.missing().next().unwrap_or(0..u64::MAX);
        self.phase = Phase::Failed;
        self.timers = Timers::default();
        self.gaps.requests.clear();
        self.forget_requests();
        self.confirmation.cancel();
        self.digests.pending = None;
        self.verification.audit = None;
        let failed = ReceiverEvent::Failed {
            failure,
            first_missing,
        };
        self.events.set_last(failed, true);
        if self.session_is(|session| session.reports) {
            self.reports.restart_attempts();
            self.timers.set(Timer::Report, self.now);
        }
    }
}
