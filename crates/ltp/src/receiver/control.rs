//! Heartbeats.

use core::num::NonZeroU16;

use super::{Phase, Receiver, Session, Timer};
use crate::config::Delivery;
use crate::error::Error;
use crate::event::{Failure, ReceiverEvent};
use crate::store::Store;
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
            return match self.config.skip == Some(repr.session) {
                true => Err(Error::OtherSession),
                false => self.open(meta, repr),
            };
        };
        if meta.source.ip() != session.source().ip() {
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
        let is_elsewhere = !session.is_from(&meta.source);
        if is_elsewhere || session.differs(repr) || self.ends_before_data(repr) {
            let other = session.id() != repr.session;
            if let Some(session) = &mut self.session {
                session.contradict();
            }
            let port = meta.source.port();
            self.ask_about(NonZeroU16::new(port).filter(|_| is_elsewhere));
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
        self.liveness.source_spoke(self.now);
        self.learn(repr);
        if self.lacks_released_packets(repr.oldest) {
            if self.hashing.is_keyed() {
                self.fail(Failure::NoLongerStored);
            } else {
                self.request_confirmation();
            }
        }
    }

    /// Whether data lies past the end that the heartbeat names.
    fn ends_before_data(&self, repr: &sync::Repr<'_>) -> bool {
        let end = repr.length.and_then(|length| repr.geometry.packets(length));
        end.is_some_and(|end| self.gaps.highest() > end)
    }

    pub(super) fn lacks_released_packets(&self, oldest: u64) -> bool {
        let Some(session) = &self.session else {
            return false;
        };
        let (block, index) = session.geometry().locate(oldest);
        if self.phase != Phase::Open || block < self.window.frontier() {
            return false;
        }
        // The source may have released blocks that are complete here.
        let gone = (self.window.frontier()..block)
            .any(|b| b >= self.window.slots_end() || self.window.received(b) != session.mask(b));
        let partly = crate::geometry::low_bits(index) & !self.window.received(block) != 0;
        gone || partly
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
        // Packets sent before this receiver began are not lost.
        self.count_loss_anew();
        Ok(())
    }

    /// Returns how many blocks the window may span; `None`: the store does not fit.
    fn span_for(&self, geometry: &Geometry) -> Option<u64> {
        let Some(capacity) = self.store.capacity() else {
            return Some(self.window.capacity());
        };
        let block_len = geometry.block_len() as u64;
        let blocks = capacity / block_len;
        (blocks >= 2 && capacity.is_multiple_of(block_len))
            .then_some(blocks.min(self.window.capacity()))
    }

    /// Begins a session.
    pub(super) fn begin(&mut self, meta: &Meta, repr: &sync::Repr<'_>) -> Result<(), Error> {
        let geometry = repr.geometry;
        let span = self.span_for(&geometry).ok_or(Error::Geometry)?;
        let per_block = u64::from(geometry.packets_per_block());
        let start = self.start_block(repr.oldest, repr.next, per_block);
        let is_read = self.config.delivery == Delivery::Read;
        self.window.begin(&geometry, start, span, is_read);
        self.gaps.restart(geometry.first_packet(start));
        self.congestion = crate::tfmcc::Receiver::new();
        self.forget_requests();
        self.replies.begin(&geometry);
        self.restoring.begin(&geometry);
        self.whole.restart(repr.digested.is_some() && start > 0);
        self.audit.cancel();
        self.digests.cancel();
        self.phase = Phase::Open;
        self.liveness.restart(self.now);
        self.session = Some(Session::new(meta.source, repr));
        self.event(ReceiverEvent::Opened {
            session: repr.session,
            source: meta.source,
            length: repr.length,
            start: self.window.consumed(),
        });
        Ok(())
    }

    /// Learns from a heartbeat.
    pub(super) fn learn(&mut self, repr: &sync::Repr<'_>) {
        let Some(session) = &mut self.session else {
            return;
        };
        let (reported, window) = (session.wants_reports(), session.report_window());
        session.learn(repr);
        let reports_anew = session.wants_reports() && !reported;
        let is_shorter = session.report_window() < window;
        if session.is_closing() {
            self.timers
                .set_earlier(Timer::Source, self.now + self.config.source_timeout / 5);
        }
        if reports_anew && self.phase == Phase::Open {
            self.report_in_window();
        }
        if is_shorter && self.timers.is_set(Timer::Report) {
            // A long window, caused by a damaged or forged heartbeat, must not delay reports further.
            self.report_in_window();
        }
        self.look_for_end();
        if repr.stalled {
            self.digests.forget_gap();
        }
        if repr.stalled && self.window.base() > self.reports.blocks() {
            self.report_in_window();
        }
        self.told_up_to(repr.next);
        self.want_digests();
    }
}
