//! Verification: from packets to blocks to the whole, and which blocks are requested again.

use super::window::Outcome;
use super::{Phase, Receiver, Session, Timer};
use crate::config::Start;
use crate::digest::Digest;
use crate::event::{Failure, ReceiverEvent};
use crate::geometry::low_bits;
use crate::store::Store;

impl<S: Store> Receiver<'_, S> {
    /// Whether the session has digests.
    pub(super) fn integrity(&self) -> bool {
        self.session_is(Session::has_digests)
    }

    pub(super) fn place(&self, block: u64) -> Option<(u64, usize)> {
        Some(self.session.as_ref()?.place(block))
    }

    /// All packets of a block have come; its bytes are still in the cache.
    pub(super) fn block_came(&mut self, block: u64) {
        if !self.integrity() {
            self.window.accept(block);
            self.advance_frontier();
            return;
        }
        match self.verify(block) {
            Ok(Outcome::Verified) => self.advance_frontier(),
            Ok(Outcome::Waits | Outcome::Unsettled) => self.want_digests(),
            Ok(Outcome::Rejected) => self.reject(block),
            Err(()) => self.fail(Failure::Store),
        }
    }

    fn compute(&mut self, block: u64) -> Result<Digest, ()> {
        let (offset, len) = self.place(block).ok_or(())?;
        let bytes = self.store.block(offset, len).map_err(|_| ())?;
        Ok(self.hashing.block(offset, bytes))
    }

    fn verify(&mut self, block: u64) -> Result<Outcome, ()> {
        let value = self.compute(block)?;
        Ok(self.window.compare(block, value, self.hashing.is_keyed()))
    }

    /// The block's bytes disagree with a confirmed digest: one of both was changed on the way, or forged. The
    /// bytes are requested again from the source itself; if these disagree too, then the digest; and so on in
    /// turn, until [`Receiver::check_source`] ends it.
    pub(super) fn reject(&mut self, block: u64) {
        if self.window.reject(block) {
            self.forget_digest(block);
        } else {
            self.forget_bytes(block);
        }
    }

    /// Keeps the bytes, which wait for another digest.
    fn forget_digest(&mut self, block: u64) {
        let Ok(value) = self.compute(block) else {
            self.fail(Failure::Store);
            return;
        };
        self.window.forget_digest(block, value);
        self.stats.digests_rejected += 1;
        self.want_digests();
    }

    fn forget_bytes(&mut self, block: u64) {
        let Some(session) = &self.session else { return };
        let (offset, len) = session.place(block);
        let first = session.geometry().first_packet(block);
        self.stats.blocks_rejected += 1;
        self.store.discard(offset, len);
        let was_restored = self.window.take_restored(block);
        self.forget_parity(block, was_restored);
        let missing = self.window.keep(block, 0);
        self.event(ReceiverEvent::BlockRejected { block });
        let attempts = self.config.attempts_before_source;
        if self.gaps.add(block, missing, attempts, self.now) {
            self.schedule_request();
        } else {
            self.gaps.rescan(first);
            self.look_for_gaps();
        }
    }

    /// Whether neither digests nor the length tell how much of a packet is padding.
    pub(super) fn is_end_open(&self) -> bool {
        self.session_is(Session::is_end_open)
    }

    /// Whether the block may be the last one, and end in padding.
    fn may_be_padded(&self, block: u64) -> bool {
        self.window.top() <= block + 1
            && self.session_is(|session| session.is_end_open() && !session.is_unpadded(block))
    }

    /// Moves past every block that is final.
    pub(super) fn advance_frontier(&mut self) {
        if self.wants_left() {
            // The chaining values before the start are not known yet.
            self.want_digests();
            return;
        }
        let was = self.window.frontier();
        while let Some((value, written)) = self.window.next_verified() {
            let block = self.window.frontier();
            if self.may_be_padded(block) {
                break;
            }
            let Some((offset, len)) = self.place(block) else {
                break;
            };
            if !written && self.store.commit(offset, len).is_err() {
                self.fail(Failure::Store);
                return;
            }
            if self.integrity() {
                let (hashing, store) = (&self.hashing, &mut self.store);
                let single = || {
                    store
                        .block(offset, len)
                        .map_or([0; 32], |b| hashing.whole(b))
                };
                self.whole.push(block, hashing, value, single);
            }
            self.window.pass();
        }
        if self.window.frontier() != was {
            self.liveness.block_final(self.now);
            self.fill_audit();
            self.report_progress();
            if self.gaps.is_unscanned() {
                self.look_for_gaps();
            }
            // The next block may wait for a digest that will not be repeated.
            self.want_digests();
            self.check_complete();
        }
    }

    /// Completes the session when everything has come and matches the announced digest.
    pub(super) fn check_complete(&mut self) {
        let Some(session) = &self.session else { return };
        let (Some(length), Some(blocks)) = (session.length(), session.blocks()) else {
            return;
        };
        if self.phase != Phase::Open || self.window.frontier() < blocks {
            return;
        }
        let whole = session.has_digests() && self.knows_whole();
        let mut digest = None;
        if whole {
            // The heartbeat that carries the digest is on its way.
            let Some(announced) = session.digest() else {
                return;
            };
            let root = self.whole.root(&self.hashing);
            if root != announced {
                self.whole_differs();
                return;
            }
            digest = Some(root);
        }
        // After a contradiction the source must confirm first.
        if session.is_contradicted() {
            self.request_confirmation();
            return;
        }
        let (reports, report_window) = (session.wants_reports(), session.report_window());
        self.phase = Phase::Complete;
        self.audit.cancel();
        self.digests.cancel();
        self.confirmation.cancel();
        self.timers.stop(Timer::Confirm);
        self.timers.stop(Timer::Gap);
        self.timers.stop(Timer::Source);
        self.gaps.forget_requests();
        let complete = ReceiverEvent::Complete { length, digest };
        // The application learns it when the source has agreed, or cannot be reached.
        self.events.set_last(complete, !reports);
        if reports {
            let delay = self.identity.jitter(report_window);
            self.reports.restart_attempts();
            self.timers.set(Timer::Report, self.now + delay);
        }
    }

    /// The length of the content may have become known: the last block may be whole by that.
    pub(super) fn look_for_end(&mut self) {
        let Some(session) = &self.session else { return };
        let last = session.blocks().and_then(|blocks| blocks.checked_sub(1));
        if let Some(last) = last
            && last >= self.window.frontier()
            && !self.is_audited(last)
            && self.window.complete(last, session.mask(last))
        {
            self.block_came(last);
        }
        self.advance_frontier();
        self.check_complete();
    }

    /// The source has confirmed the length: packets past it were forged, and would keep the last block from
    /// ever being whole.
    pub(super) fn forget_past_end(&mut self) {
        let Some(session) = &self.session else { return };
        let geometry = session.geometry();
        let (Some(blocks), Some(total)) = (session.blocks(), session.total()) else {
            return;
        };
        let (last, index) = geometry.locate(total);
        let window = self.window.end();
        for block in last.max(self.window.frontier())..self.window.top().min(window) {
            let real = if block == last { low_bits(index) } else { 0 };
            let forged = self.window.keep(block, real);
            if forged != 0 && real == 0 {
                self.store.discard(geometry.block_offset(block), 0);
            }
        }
        self.window.shorten(blocks);
    }

    pub(super) fn learn_digest(&mut self, block: u64, digest: Digest, confirmed: bool) {
        let trusted = confirmed || self.hashing.is_keyed();
        match self.window.announce(block, digest, trusted) {
            Outcome::Rejected => self.reject(block),
            Outcome::Unsettled => self.settle(block),
            Outcome::Verified | Outcome::Waits => {}
        }
    }

    /// The source has confirmed the digest of a disputed block.
    fn settle(&mut self, block: u64) {
        match self.verify(block) {
            Ok(Outcome::Rejected) => self.reject(block),
            Ok(_) => {}
            Err(()) => self.fail(Failure::Store),
        }
    }

    /// Returns the block at which a late start begins.
    pub(super) fn start_block(&self, oldest: u64, next: u64, per_block: u64) -> u64 {
        match self.config.start {
            Start::Beginning => 0,
            Start::Oldest => oldest.div_ceil(per_block),
            Start::Now => next.div_ceil(per_block),
        }
    }
}
