//! Verification: from packets to blocks to the whole, and which blocks are requested again.

use super::audit::Audit;
use super::left::Left;
use super::window::{COMPUTED, CONFIRMED, DISPUTED, EXPECTED, STORED, VERIFIED};
use super::{Phase, Receiver, Timer};
use crate::config::Start;
use crate::digest::{Digest, Tree};
use crate::event::{Failure, ReceiverEvent};
use crate::geometry::low_bits;
use crate::store::Store;

/// Verification of blocks and of the whole.
#[derive(Default)]
pub(super) struct Verification {
    /// Blocks that are complete and wait for a digest, or dispute it.
    unverified: u32,
    /// How often data and digests disagreed since a block became final.
    disagreements: u8,
    pub(super) tree: Tree,
    pub(super) left: Left,
    /// The audit that finds wrong blocks when the digest of the whole is wrong.
    pub(super) audit: Option<Audit>,
    /// The digest of a content that was in the store before the session.
    pub(super) adopted: Option<Digest>,
}

impl Verification {
    /// Begins a session, or its audit: no block has come.
    pub(super) fn restart(&mut self) {
        self.unverified = 0;
        self.disagreements = 0;
    }

    pub(super) fn has_unverified(&self) -> bool {
        self.unverified > 0
    }

    pub(super) fn disagreements(&self) -> u8 {
        self.disagreements
    }
}

/// What a block is after its digest was compared.
#[derive(PartialEq, Eq)]
enum Outcome {
    Final,
    Waits,
    Rejected,
}

impl<S: Store> Receiver<'_, S> {
    /// Whether the session has digests.
    pub(super) fn integrity(&self) -> bool {
        self.session_is(|session| session.integrity)
    }

    pub(super) fn place(&self, block: u64) -> Option<(u64, usize)> {
        let session = self.session.as_ref()?;
        let geometry = &session.geometry;
        Some((
            geometry.block_offset(block),
            geometry.len_of(block, session.length),
        ))
    }

    /// All packets of a block have come; its bytes are still in the cache.
    pub(super) fn block_came(&mut self, block: u64) {
        if !self.integrity() {
            self.window.slots.claim(block).flags |= VERIFIED;
            self.advance_frontier();
            return;
        }
        match self.verify(block) {
            Ok(Outcome::Final) => self.advance_frontier(),
            Ok(Outcome::Waits) => {
                self.verification.unverified += 1;
                self.want_digests();
            }
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
        let trusted = self.hashing.is_keyed();
        let slot = self.window.slots.claim(block);
        if !slot.is(EXPECTED) {
            slot.digest = value;
            slot.flags |= COMPUTED;
            return Ok(Outcome::Waits);
        }
        if slot.digest == value {
            slot.flags = slot.flags & !DISPUTED | VERIFIED;
            return Ok(Outcome::Final);
        }
        if slot.is(CONFIRMED) || trusted {
            return Ok(Outcome::Rejected);
        }
        slot.flags |= DISPUTED;
        Ok(Outcome::Waits)
    }

    /// The block's bytes disagree with a confirmed digest: one of both was changed on the way, or forged. The
    /// bytes are requested again from the source itself; if these disagree too, then the digest; and so on in
    /// turn, until [`Receiver::check_source`] ends it.
    pub(super) fn reject(&mut self, block: u64) {
        let slot = self.window.slots.claim(block);
        slot.rejected = slot.rejected.wrapping_add(1);
        let doubts_digest = slot.rejected.is_multiple_of(2);
        self.verification.disagreements = self.verification.disagreements.saturating_add(1);
        if doubts_digest {
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
        let slot = self.window.slots.claim(block);
        slot.digest = value;
        slot.flags = slot.flags & !(EXPECTED | CONFIRMED | DISPUTED) | COMPUTED;
        self.stats.digests_rejected += 1;
        self.verification.unverified += 1;
        self.want_digests();
    }

    fn forget_bytes(&mut self, block: u64) {
        let Some((offset, len)) = self.place(block) else {
            return;
        };
        self.stats.blocks_rejected += 1;
        self.store.discard(offset, len);
        let slot = self.window.slots.claim(block);
        let missing = slot.received;
        slot.received = 0;
        slot.repaired = 0;
        slot.flags &= !(DISPUTED | COMPUTED);
        self.event(ReceiverEvent::BlockRejected { block });
        let attempts = self.config.attempts_before_source;
        if self.gaps.requests.add(block, missing, attempts, self.now) {
            self.schedule_request();
        } else if let Some(session) = &self.session {
            self.gaps.rescan(session.geometry.first_packet(block));
            self.look_for_gaps();
        }
    }

    /// Moves past every block that is final.
    pub(super) fn advance_frontier(&mut self) {
        if self.wants_left() {
            // The chaining values before the start are not known yet.
            self.want_digests();
            return;
        }
        let was = self.window.frontier();
        loop {
            let block = self.window.frontier();
            let Some(slot) = self
                .window
                .slots
                .get(block)
                .filter(|slot| slot.is(VERIFIED))
            else {
                break;
            };
            let (value, written) = (slot.digest, slot.is(STORED));
            let Some((offset, len)) = self.place(block) else {
                break;
            };
            if !written && self.store.commit(offset, len).is_err() {
                self.fail(Failure::Store);
                return;
            }
            if self.integrity() && self.verification.tree.count() == block {
                let (hashing, store) = (&self.hashing, &mut self.store);
                let single = || {
                    store
                        .block(offset, len)
                        .map_or([0; 32], |b| hashing.whole(b))
                };
                self.verification.tree.push(hashing, value, single);
            }
            self.window.pass();
        }
        if self.window.frontier() != was {
            self.liveness.block_final(self.now);
            self.verification.disagreements = 0;
            self.fill_audit();
            self.report_progress();
            if self.gaps.is_unscanned() {
                self.look_for_gaps();
            }
            self.check_complete();
        }
    }

    /// Completes the session when everything has come and matches the announced digest.
    pub(super) fn check_complete(&mut self) {
        let Some(session) = &self.session else { return };
        let Some(length) = session.length else { return };
        if self.phase != Phase::Open || self.window.frontier() < session.geometry.blocks(length) {
            return;
        }
        let whole = session.integrity && self.knows_whole();
        let mut digest = None;
        if whole {
            // The heartbeat that carries the digest is on its way.
            let Some(announced) = session.digest else {
                return;
            };
            let root = self.root();
            if root != announced {
                self.whole_differs();
                return;
            }
            digest = Some(root);
        }
        // After a contradiction the source must confirm first.
        if session.contradicted && !session.confirmed {
            self.request_confirmation();
            return;
        }
        let (reports, report_window) = (session.reports, session.report_window);
        self.phase = Phase::Complete;
        self.verification.audit = None;
        self.digests.pending = None;
        self.confirmation.cancel();
        self.timers.stop(Timer::Confirm);
        self.timers.stop(Timer::Gap);
        self.timers.stop(Timer::Source);
        self.gaps.requests.clear();
        let complete = ReceiverEvent::Complete { length, digest };
        // The application learns it when the source has agreed, or cannot be reached.
        self.events.set_last(complete, !reports);
        if reports {
            let delay = self.identity.jitter(report_window);
            self.reports.restart_attempts();
            self.timers.set(Timer::Report, self.now + delay);
        }
    }

    /// The length of the content became known: the last block may be whole.
    pub(super) fn end_known(&mut self) {
        let Some(session) = &self.session else { return };
        let (geometry, Some(length)) = (session.geometry, session.length) else {
            return;
        };
        let blocks = geometry.blocks(length);
        if let Some(last) = blocks.checked_sub(1)
            && last >= self.window.frontier()
            && !self.is_audited(last)
            && let Some(slot) = self.window.slots.get(last)
        {
            let mask = geometry.mask(last, Some(length));
            let done = slot.is(VERIFIED) || slot.is(COMPUTED) || slot.is(DISPUTED);
            if slot.received & mask == mask && !done {
                self.window.slots.claim(last).received = mask;
                self.block_came(last);
            }
        }
        self.check_complete();
    }

    /// The source has confirmed the length: packets past it were forged, and would keep the last block from
    /// ever being whole.
    pub(super) fn forget_past_end(&mut self) {
        let Some(session) = &self.session else { return };
        let geometry = session.geometry;
        let (Some(length), Some(total)) = (session.length, session.total) else {
            return;
        };
        let (last, index) = geometry.locate(total);
        let window = self.window.end();
        for block in last.max(self.window.frontier())..self.window.top().min(window) {
            let real = if block == last { low_bits(index) } else { 0 };
            let Some(slot) = self.window.slots.get(block) else {
                continue;
            };
            if slot.received & !real == 0 {
                continue;
            }
            let waited = slot.is(COMPUTED | DISPUTED) && !slot.is(VERIFIED);
            self.verification.unverified -= u32::from(waited);
            let slot = self.window.slots.claim(block);
            slot.received &= real;
            slot.repaired &= real;
            slot.flags &= !(COMPUTED | DISPUTED | VERIFIED);
            if real == 0 {
                self.store.discard(geometry.block_offset(block), 0);
            }
        }
        self.window.shorten(geometry.blocks(length));
    }

    pub(super) fn learn_digest(&mut self, block: u64, digest: Digest, confirmed: bool) {
        let trusted = confirmed || self.hashing.is_keyed();
        let slot = self.window.slots.claim(block);
        if slot.is(VERIFIED) || slot.is(CONFIRMED) {
            return;
        }
        let confirmation = if trusted { CONFIRMED } else { 0 };
        if slot.is(COMPUTED) {
            let same = slot.digest == digest;
            slot.digest = digest;
            slot.flags = slot.flags & !COMPUTED | EXPECTED | confirmation;
            if same {
                slot.flags |= VERIFIED;
                self.verification.unverified -= 1;
            } else if trusted {
                self.verification.unverified -= 1;
                self.reject(block);
            } else {
                slot.flags |= DISPUTED;
            }
            return;
        }
        if slot.is(EXPECTED) && !trusted {
            // The first digest counts until the block has come and disagrees.
            return;
        }
        slot.digest = digest;
        slot.flags |= EXPECTED | confirmation;
        if slot.is(DISPUTED) {
            self.settle(block);
        }
    }

    /// The source has confirmed the digest of a disputed block.
    fn settle(&mut self, block: u64) {
        self.verification.unverified -= 1;
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
