//! Failure of a session.

use proto_core::time::Instant;

use super::{Phase, Receiver, Session, Timer};
use crate::event::{Failure, ReceiverEvent};
use crate::store::Store;
use proto_core::timer::Timers;

/// Disagreements of data and digests, without a final block in between, that end a session.
const MIN_DISAGREEMENTS: u8 = 8;

/// When the session last made progress, of each kind.
#[derive(Debug)]
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
        let closing = self.session_is(Session::is_closing);
        let session = self.session.as_ref();
        let grace = session.map_or(timeout, |session| session.grace(timeout));
        if self.liveness.source_spoke + grace <= now {
            let failure = match (self.phase, closing) {
                (Phase::Idle, _) => Failure::NoSource,
                (_, true) => Failure::SourceLeft,
                (_, false) => Failure::SourceLost,
            };
            self.fail(failure);
        } else if self.liveness.block_final + timeout * 3 <= now
            && self.window.disagreements() >= MIN_DISAGREEMENTS
        {
            self.fail(Failure::Disagreement);
        } else if self.liveness.data_came + timeout * 3 <= now && self.audit.is_pending() {
            self.fail(Failure::WholeDigest);
        } else if self.liveness.data_came + timeout * 3 <= now && self.waits_for_answers() {
            self.fail(Failure::Unanswered);
        } else {
            self.timers
                .set(Timer::Source, self.liveness.source_spoke + grace);
        }
    }

    /// Whether data or digests that the source has sent were requested and have not come.
    fn waits_for_answers(&self) -> bool {
        self.digests.are_outstanding() || self.gaps.has_requests()
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
        self.gaps.forget_requests();
        self.forget_requests();
        self.confirmation.cancel();
        self.digests.cancel();
        self.audit.cancel();
        let failed = ReceiverEvent::Failed {
            failure,
            first_missing,
        };
        self.events.set_last(failed, true);
        if self.session_is(Session::wants_reports) {
            self.reports.restart_attempts();
            self.timers.set(Timer::Report, self.now);
        }
    }
}
