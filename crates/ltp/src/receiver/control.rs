//! Heartbeats.

use core::num::NonZeroU16;

use proto_core::time::Duration;

use super::{Phase, Receiver, Session, Timer};
use crate::config::Name;
use crate::error::Error;
use crate::event::{Failure, ReceiverEvent};
use crate::store::Store;
use crate::wire::sync;
use crate::{Geometry, Meta, Path};

/// Reports are spread over so long at most; no source asks for more.
const LONGEST_WINDOW: Duration = Duration::from_secs(60);

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
        let is_elsewhere = meta.source != session.source;
        if is_elsewhere || self.contradicts(repr) {
            let other = self
                .session
                .as_ref()
                .is_some_and(|session| session.id != repr.session);
            if let Some(session) = &mut self.session {
                session.contradicted = true;
                session.confirmed = false;
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

    pub(super) fn lacks_what_is_gone(&self, oldest: u64) -> bool {
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
        // What was sent before this receiver came is not lost.
        self.count_loss_anew();
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
    pub(super) fn begin(&mut self, meta: &Meta, repr: &sync::Repr<'_>) -> Result<(), Error> {
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
        self.advanced = self.now;
        self.disagreements = 0;
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
        self.timers
            .set(Timer::Source, self.now + self.config.source_timeout);
        Ok(())
    }

    /// Takes in what a heartbeat says.
    pub(super) fn learn(&mut self, repr: &sync::Repr<'_>) {
        let Some(session) = &mut self.session else {
            return;
        };
        session.silence = Duration::from_millis(u64::from(repr.silence_ms));
        session.digested = session.digested.max(repr.digested.unwrap_or(0));
        session.progress_blocks = repr.progress_blocks;
        let window = Duration::from_micros(u64::from(repr.report_window_us)).min(LONGEST_WINDOW);
        let is_shorter = window < session.report_window;
        session.report_window = window;
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
            self.timers
                .set_earlier(Timer::Source, self.now + self.config.source_timeout / 5);
        }
        if new_reports && self.phase == Phase::Open {
            self.report_in_window();
        }
        if is_shorter && self.timers.is_set(Timer::Report) {
            // A window that a bit on the way, or a forger, made long puts no report off for long.
            self.report_in_window();
        }
        if repr.stalled {
            self.announced.gap = Duration::ZERO;
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
}
