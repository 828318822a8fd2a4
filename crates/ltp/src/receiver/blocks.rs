//! From packets to blocks to the whole: verification, and what is asked for again.

use proto_core::time::Duration;

use super::window::{COMPUTED, CONFIRMED, DISPUTED, EXPECTED, HELD, Slot, VERIFIED};
use super::{DigestAsk, Phase, Receiver, Timer};
use crate::config::Start;
use crate::digest::Digest;
use crate::error::Error;
use crate::event::{Failure, ReceiverEvent};
use crate::geometry::low_bits;
use crate::store::Store;
use crate::wire::digests;
use crate::{Meta, Path};

/// What a block is after its digest was looked at.
#[derive(PartialEq, Eq)]
enum Outcome {
    Final,
    Waits,
    Rejected,
}

impl<S: Store> Receiver<'_, S> {
    fn integrity(&self) -> bool {
        self.session
            .as_ref()
            .is_some_and(|session| session.integrity)
    }

    pub(super) fn place(&self, block: u64) -> Option<(u64, usize)> {
        let session = self.session.as_ref()?;
        let geometry = &session.geometry;
        Some((
            geometry.block_offset(block),
            geometry.len_of(block, session.length),
        ))
    }

    /// All packets of a block are here; its bytes are still warm.
    pub(super) fn block_came(&mut self, block: u64) {
        if !self.integrity() {
            self.slots.claim(block).flags |= VERIFIED;
            self.advance_frontier();
            return;
        }
        match self.verify(block) {
            Ok(Outcome::Final) => self.advance_frontier(),
            Ok(Outcome::Waits) => {
                self.unverified += 1;
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
        let slot = self.slots.claim(block);
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

    /// The block's bytes and its digest disagree, and the digest counts. One of both was changed on the
    /// way, or forged: first the bytes are asked for again, from the source itself; when these disagree, too,
    /// the digest is; and so on in turn, until [`Receiver::check_source`] ends it.
    pub(super) fn reject(&mut self, block: u64) {
        let slot = self.slots.claim(block);
        slot.rejected = slot.rejected.wrapping_add(1);
        let doubts_digest = slot.rejected.is_multiple_of(2);
        self.disagreements = self.disagreements.saturating_add(1);
        if doubts_digest {
            self.forget_digest(block);
        } else {
            self.forget_bytes(block);
        }
    }

    /// The bytes stay, and wait for another digest.
    fn forget_digest(&mut self, block: u64) {
        let Ok(value) = self.compute(block) else {
            self.fail(Failure::Store);
            return;
        };
        let slot = self.slots.claim(block);
        slot.digest = value;
        slot.flags = slot.flags & !(EXPECTED | CONFIRMED | DISPUTED) | COMPUTED;
        self.stats.digests_rejected += 1;
        self.unverified += 1;
        self.want_digests();
    }

    fn forget_bytes(&mut self, block: u64) {
        let Some((offset, len)) = self.place(block) else {
            return;
        };
        self.stats.blocks_rejected += 1;
        self.store.discard(offset, len);
        let slot = self.slots.claim(block);
        let missing = slot.received;
        slot.received = 0;
        slot.repaired = 0;
        slot.flags &= !(DISPUTED | COMPUTED);
        self.event(ReceiverEvent::BlockRejected { block });
        let attempts = self.config.attempts_before_source;
        if self.asks.add(block, missing, attempts, self.now) {
            self.schedule_request();
        } else if let Some(session) = &self.session {
            self.asked = self.asked.min(session.geometry.first_packet(block));
            self.look_for_gaps();
        }
    }

    /// Moves past every block that is final.
    pub(super) fn advance_frontier(&mut self) {
        if self.wants_left() {
            // What is final is part of a tree whose left edge is not known yet.
            self.want_digests();
            return;
        }
        let was = self.frontier;
        loop {
            let block = self.frontier;
            let Some(slot) = self.slots.get(block).filter(|slot| slot.is(VERIFIED)) else {
                break;
            };
            let (value, written) = (slot.digest, slot.is(HELD));
            let Some((offset, len)) = self.place(block) else {
                break;
            };
            if !written && self.store.commit(offset, len).is_err() {
                self.fail(Failure::Store);
                return;
            }
            if self.integrity() && self.tree.count() == block {
                let (hashing, store) = (&self.hashing, &mut self.store);
                let single = || {
                    store
                        .block(offset, len)
                        .map_or([0; 32], |b| hashing.whole(b))
                };
                self.tree.push(hashing, value, single);
            }
            self.frontier += 1;
        }
        if self.frontier != was {
            self.advanced = self.now;
            self.disagreements = 0;
            self.fill_audit();
            self.report_progress();
            if self.asked < self.highest {
                self.look_for_gaps();
            }
            self.check_complete();
        }
    }

    /// Whether everything is here, and is what was announced.
    pub(super) fn check_complete(&mut self) {
        let Some(session) = &self.session else { return };
        let Some(length) = session.length else { return };
        if self.phase != Phase::Open || self.frontier < session.geometry.blocks(length) {
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
        // One who heard contradictions believes none of them before the source has spoken.
        if session.contradicted && !session.confirmed {
            self.ask_confirmation();
            return;
        }
        let reports = session.reports;
        self.phase = Phase::Complete;
        self.audit = None;
        self.digest_ask = None;
        self.question = None;
        self.timers.stop(Timer::Confirm);
        self.timers.stop(Timer::Gap);
        self.timers.stop(Timer::Source);
        self.asks.clear();
        let complete = ReceiverEvent::Complete { length, digest };
        if !reports {
            self.ending = Some(complete);
        } else {
            // Told when the source has agreed, or cannot be reached.
            self.held_back = Some(complete);
            self.report.attempts = 0;
            let window = self
                .session
                .as_ref()
                .map_or(Duration::ZERO, |s| s.report_window);
            let delay = self.jitter(window);
            self.timers.set(Timer::Report, self.now + delay);
        }
    }

    /// The content's end became known: blocks that looked incomplete may be whole.
    pub(super) fn end_known(&mut self) {
        let Some(session) = &self.session else { return };
        let (geometry, Some(length)) = (session.geometry, session.length) else {
            return;
        };
        let blocks = geometry.blocks(length);
        if let Some(last) = blocks.checked_sub(1)
            && last >= self.frontier
            && !self.is_audited(last)
            && let Some(slot) = self.slots.get(last)
        {
            let mask = geometry.mask(last, Some(length));
            let done = slot.is(VERIFIED) || slot.is(COMPUTED) || slot.is(DISPUTED);
            if slot.received & mask == mask && !done {
                self.slots.claim(last).received = mask;
                self.block_came(last);
            }
        }
        self.check_complete();
    }

    /// The source itself has said where the content ends: what came for past there is a forger's
    /// invention, and would keep the last block from ever being whole.
    pub(super) fn forget_past_end(&mut self) {
        let Some(session) = &self.session else { return };
        let geometry = session.geometry;
        let (Some(length), Some(total)) = (session.length, session.total) else {
            return;
        };
        let (last, index) = geometry.locate(total);
        let window = self.window_base() + self.span;
        for block in last.max(self.frontier)..self.top.min(window) {
            let real = if block == last { low_bits(index) } else { 0 };
            let Some(slot) = self.slots.get(block) else {
                continue;
            };
            if slot.received & !real == 0 {
                continue;
            }
            let waited = slot.is(COMPUTED | DISPUTED) && !slot.is(VERIFIED);
            self.unverified -= u32::from(waited);
            let slot = self.slots.claim(block);
            slot.received &= real;
            slot.repaired &= real;
            slot.flags &= !(COMPUTED | DISPUTED | VERIFIED);
            if real == 0 {
                self.store.discard(geometry.block_offset(block), 0);
            }
        }
        self.top = self.top.min(geometry.blocks(length)).max(self.frontier);
    }

    /// Digests that should have come are asked for after a moment.
    pub(super) fn want_digests(&mut self) {
        let waiting = self.timers.is_set(Timer::Digests);
        let wanted = self.unverified > 0 || self.wants_left() || self.audit_wants_digests();
        if waiting || !wanted || self.phase != Phase::Open {
            return;
        }
        let delay = self.digest_patience();
        let spread = self.jitter(delay);
        self.timers.set(Timer::Digests, self.now + delay + spread);
    }

    /// The first run of blocks that wait for digests, or dispute them; disputed ones go first.
    pub(super) fn next_digest_ask(&mut self) -> Option<DigestAsk> {
        if let Some(ask) = self.next_left_ask().or_else(|| self.next_audit_ask()) {
            return Some(ask);
        }
        let session = self.session.as_ref()?;
        let published = session.digested;
        let end = self.top.min(self.frontier + self.span);
        let waits = |block: u64, flag: u8, limit: u64| {
            block < limit
                && self
                    .slots
                    .get(block)
                    .is_some_and(|slot| slot.is(flag) && !slot.is(VERIFIED))
        };
        let disputed = (self.frontier..end).find(|&block| waits(block, DISPUTED, u64::MAX));
        let (flag, limit, first) = match disputed {
            Some(first) => (DISPUTED, u64::MAX, first),
            None => {
                let first = (self.frontier..end).find(|&b| waits(b, COMPUTED, published))?;
                (COMPUTED, published, first)
            }
        };
        let most = first + digests::MAX_DIGESTS as u64;
        let run = (first..end.min(most)).take_while(|&block| waits(block, flag, limit));
        let last = run.last().unwrap_or(first);
        let doubted = self.slots.get(first).is_some_and(|slot| slot.rejected > 0);
        let attempts = match (flag, self.config.assist) {
            (COMPUTED, crate::Assist::Lms) if !doubted => 0,
            _ => u32::from(self.config.attempts_before_source),
        };
        Some(DigestAsk {
            first,
            last,
            nonce: 0,
            attempts,
            left: false,
        })
    }

    pub(super) fn on_digests<T: AsRef<[u8]>>(
        &mut self,
        meta: &Meta,
        packet: &digests::Packet<T>,
    ) -> Result<(), Error> {
        let session = self.session.as_ref().ok_or(Error::BeforeSync)?;
        if packet.session() != session.id {
            return Err(Error::OtherSession);
        }
        if meta.source != session.source {
            return Err(Error::OtherSource);
        }
        if !session.integrity {
            return Err(Error::Integrity);
        }
        let confirmed = match packet.answer() {
            Some(nonce) => {
                let asked = self
                    .digest_ask
                    .is_some_and(|ask| ask.nonce == nonce && ask.left == packet.is_left());
                if !asked || meta.path != Path::Unicast {
                    return Err(Error::Unasked);
                }
                true
            }
            None if meta.path == Path::Unicast => return Err(Error::Unasked),
            None => false,
        };
        self.stats.digests += 1;
        if packet.is_left() {
            self.learn_left(packet);
            return Ok(());
        }
        let first = u64::from(packet.first_block());
        for index in 0..packet.count() {
            let block = first + index as u64;
            let within = block >= self.frontier && block < self.window_base() + self.span;
            if !within || confirmed && !self.is_asked(block) {
                continue;
            }
            if !self.is_audited(block) {
                self.learn_digest(block, packet.digest(index), confirmed);
            } else if confirmed {
                // Only the source's own word counts for what was believed once already.
                self.learn_in_audit(block, packet.digest(index))?;
            }
        }
        self.digest_ask_answered();
        self.advance_frontier();
        if !confirmed {
            self.digests_announced(first);
        }
        self.want_digests();
        Ok(())
    }

    /// Whether the digest of that block was asked for: an answer whose first block was changed on the way
    /// is no answer for others.
    fn is_asked(&self, block: u64) -> bool {
        self.digest_ask
            .is_some_and(|ask| (ask.first..=ask.last).contains(&block))
    }

    /// The source's own digest of a block under audit, or of one that was found wrong by it and asked for
    /// again.
    fn learn_in_audit(&mut self, block: u64, digest: Digest) -> Result<(), Error> {
        if self.slots.get(block).is_some_and(|slot| !slot.is(HELD)) {
            self.learn_digest(block, digest, true);
        } else if self.judge(block, digest).is_err() {
            self.fail(Failure::Store);
            return Err(Error::Store);
        }
        Ok(())
    }

    /// Goes on with the blocks of the question that are still open; an answer may hold only the
    /// first few.
    fn digest_ask_answered(&mut self) {
        let Some(ask) = self.digest_ask.as_mut().filter(|ask| !ask.left) else {
            return;
        };
        let slots = &self.slots;
        let open = |&block: &u64| {
            let waits = |slot: &Slot| slot.is(COMPUTED) || slot.is(DISPUTED) || slot.is(HELD);
            slots
                .get(block)
                .is_some_and(|slot| !slot.is(VERIFIED) && waits(slot))
        };
        match (ask.first.max(self.frontier)..=ask.last).find(open) {
            Some(block) if block == ask.first => {}
            Some(block) => {
                ask.first = block;
                ask.attempts = ask.attempts.saturating_sub(1);
                self.timers.set(Timer::Digests, self.now);
            }
            None => {
                self.digest_ask = None;
                self.timers.stop(Timer::Digests);
            }
        }
    }

    fn learn_digest(&mut self, block: u64, digest: Digest, confirmed: bool) {
        let trusted = confirmed || self.hashing.is_keyed();
        let slot = self.slots.claim(block);
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
                self.unverified -= 1;
            } else if trusted {
                self.unverified -= 1;
                self.reject(block);
            } else {
                slot.flags |= DISPUTED;
            }
            return;
        }
        if slot.is(EXPECTED) && !trusted {
            // The first word stands until the block is here and disagrees.
            return;
        }
        slot.digest = digest;
        slot.flags |= EXPECTED | confirmation;
        if slot.is(DISPUTED) {
            self.settle(block);
        }
    }

    /// The source itself has spoken about a disputed block.
    fn settle(&mut self, block: u64) {
        self.unverified -= 1;
        match self.verify(block) {
            Ok(Outcome::Rejected) => self.reject(block),
            Ok(_) => {}
            Err(()) => self.fail(Failure::Store),
        }
    }

    /// Whether a late start may begin at that block.
    pub(super) fn start_block(&self, oldest: u64, next: u64, per_block: u64) -> u64 {
        match self.config.start {
            Start::Beginning => 0,
            Start::Oldest => oldest.div_ceil(per_block),
            Start::Now => next.div_ceil(per_block),
        }
    }
}
