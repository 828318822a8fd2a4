//! How a session ends that does not end well.

use proto_core::time::Duration;

use super::{Phase, Receiver, Timer};
use crate::event::{Failure, ReceiverEvent};
use crate::store::Store;
use proto_core::timer::Timers;

/// Fewer disagreements of data and digests than these, without a final block in between, end nothing.
const LEAST_DISAGREEMENTS: u8 = 8;

impl<S: Store> Receiver<'_, S> {
    /// The source's timer ran out: did it die, or did it talk meanwhile?
    pub(super) fn check_source(&mut self) {
        let now = self.now;
        let patience = self.config.source_timeout;
        if matches!(self.phase, Phase::Complete | Phase::Failed) {
            return;
        }
        let closing = self.session.as_ref().is_some_and(|session| session.closing);
        // A source that has said how long it may be silent is not given up before.
        let silence = self.session.as_ref().map_or(Duration::ZERO, |s| s.silence);
        let grace = if closing {
            patience / 5
        } else {
            patience.max(silence * 3)
        };
        if self.heard + grace <= now {
            let failure = match (self.phase, closing) {
                (Phase::Idle, _) => Failure::NoSource,
                (_, true) => Failure::SourceLeft,
                (_, false) => Failure::SourceLost,
            };
            self.fail(failure);
        } else if self.advanced + patience * 3 <= now && self.disagreements >= LEAST_DISAGREEMENTS {
            self.fail(Failure::Disagreement);
        } else if self.fed + patience * 3 <= now && self.audit.is_some() {
            self.fail(Failure::WholeDigest);
        } else if self.fed + patience * 3 <= now && self.waits_for_answers() {
            self.fail(Failure::Unanswered);
        } else {
            let next = (self.heard + grace).max(now + patience / 20);
            self.timers.set(Timer::Source, next);
        }
    }

    /// Whether data or digests that the source has sent were asked for and have not come.
    fn waits_for_answers(&self) -> bool {
        let published = self.session.as_ref().map_or(0, |session| session.digested);
        let digests = self
            .digest_ask
            .is_some_and(|ask| !ask.left && ask.first < published);
        digests || !self.asks.is_empty()
    }

    /// Gives up.
    pub(super) fn fail(&mut self, failure: Failure) {
        if !matches!(self.phase, Phase::Idle | Phase::Open) {
            return;
        }
        if failure == Failure::WholeDigest && !self.audit_is_under_way() {
            // Nobody knows which block is wrong, so none counts as here.
            self.frontier = self.start;
            self.slots.clear();
        }
        let first_missing = self.missing().next().unwrap_or(0..u64::MAX);
        self.phase = Phase::Failed;
        self.timers = Timers::default();
        self.asks.clear();
        self.forget_requests();
        self.question = None;
        self.digest_ask = None;
        self.audit = None;
        self.ending = Some(ReceiverEvent::Failed {
            failure,
            first_missing,
        });
        if self.session.as_ref().is_some_and(|session| session.reports) {
            self.report.attempts = 0;
            self.timers.set(Timer::Report, self.now);
        }
    }
}
