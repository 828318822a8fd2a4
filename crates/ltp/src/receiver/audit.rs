//! The audit: every block verified, but the digest of the whole differs from the one that the source confirmed, so
//! that a forged digest of some block was accepted. The source's own digests find the block.
//!
//! The frontier goes back to the start and the tree of chaining values is built again. Blocks
//! count as received, but not as verified, until the source's digest for them has come by unicast
//! under a nonce, in order, a bounded range at a time; each is then read from the store once. The
//! right ones are final; the wrong ones are discarded and requested again. The slots
//! of the window are the only state of blocks.
//!
//! Without a key, only where the store still holds everything ([`Delivery::Store`]): what an
//! application has read cannot be taken back.

use super::window::{CONFIRMED, EXPECTED, STORED, Slot, VERIFIED};
use super::{DigestRequest, Phase, Receiver, Timer};
use crate::config::Delivery;
use crate::digest::Digest;
use crate::event::Failure;
use crate::store::{Store, StoreError};
use crate::wire::digests::MAX_DIGESTS;

/// Bytes of the blocks requested at a time, and so read in one call at most (or one block).
const RANGE_LEN: usize = 4 << 20;

#[derive(Clone, Copy, Debug)]
pub(super) struct Audit {
    /// The source has confirmed the digest of the whole, and the audit runs.
    begun: bool,
    /// The next block to be judged; one past the last with a slot; one past the last of all.
    next: u64,
    filled: u64,
    end: u64,
    nonce: u64,
}

impl<S: Store> Receiver<'_, S> {
    /// The digest of the whole differs from the announced one.
    pub(super) fn whole_differs(&mut self) {
        let Some(session) = &self.session else { return };
        let confirmed = session.confirmed;
        if self.hashing.is_keyed() {
            self.fail(Failure::WholeDigest);
            return;
        }
        if self.verification.audit.is_none() && self.has_all_stored() {
            // From now on the source has its time to answer.
            self.liveness.data_came(self.now);
            self.verification.audit = Some(Audit {
                begun: false,
                next: 0,
                filled: 0,
                end: 0,
                nonce: 0,
            });
        }
        match self.verification.audit {
            _ if !confirmed => self.request_confirmation(),
            Some(audit) if !audit.begun => self.begin_audit(),
            // Nothing to compare with, or even the source's own digests do not add up.
            _ => self.fail(Failure::WholeDigest),
        }
    }

    /// Whether the store can give back every block.
    fn has_all_stored(&self) -> bool {
        let length = self.session.as_ref().and_then(|session| session.length);
        let room = self.store.capacity().unwrap_or(u64::MAX);
        self.config.delivery == Delivery::Store
            && self.verification.adopted.is_none()
            && length.is_some_and(|length| length > 0 && length <= room)
    }

    fn begin_audit(&mut self) {
        let Some(session) = &self.session else { return };
        let Some(length) = session.length else { return };
        let end = session.geometry.blocks(length);
        self.verification.audit = Some(Audit {
            begun: true,
            next: self.window.start(),
            filled: self.window.start(),
            end,
            nonce: self.identity.nonce(),
        });
        self.stats.audits += 1;
        self.liveness.block_final(self.now);
        self.verification.restart();
        self.window.rewind(end);
        self.reset_tree(true);
        self.digests.pending = None;
        self.gaps.requests.clear();
        self.timers.stop(Timer::Digests);
        self.fill_audit();
        self.want_digests();
    }

    /// Blocks under audit get their slots as the window moves.
    pub(super) fn fill_audit(&mut self) {
        let Some(audit) = self.verification.audit.as_mut().filter(|audit| audit.begun) else {
            return;
        };
        let Some(session) = &self.session else { return };
        let upto = audit.end.min(self.window.slots_end());
        while audit.filled < upto {
            let slot = self.window.slots.claim(audit.filled);
            *slot = Slot {
                block: slot.block,
                received: session.geometry.mask(audit.filled, session.length),
                flags: STORED,
                ..Slot::default()
            };
            audit.filled += 1;
        }
    }

    /// Whether that block was here when the audit began.
    pub(super) fn is_audited(&self, block: u64) -> bool {
        self.verification
            .audit
            .is_some_and(|audit| audit.begun && block < audit.end)
    }

    /// Whether the audit has found some blocks, but not all, to be right.
    pub(super) fn audit_is_under_way(&self) -> bool {
        self.verification
            .audit
            .is_some_and(|audit| audit.begun && self.window.frontier() < audit.end)
    }

    /// Whether blocks wait for the source's digests, and the source has some.
    pub(super) fn audit_wants_digests(&self) -> bool {
        self.next_audit_request().is_some()
    }

    /// The next range to ask the source about.
    pub(super) fn next_audit_request(&self) -> Option<DigestRequest> {
        let audit = self.verification.audit.filter(|audit| audit.begun)?;
        let session = self.session.as_ref()?;
        let range = (RANGE_LEN >> session.geometry.block_exponent()).clamp(1, MAX_DIGESTS);
        let end = audit
            .filled
            .min(session.digested)
            .min(audit.next + range as u64);
        (audit.next < end).then(|| DigestRequest {
            first: audit.next,
            last: end - 1,
            nonce: audit.nonce,
            attempts: u32::from(self.config.attempts_before_source),
            left: false,
        })
    }

    /// The source's own digest of a block under audit.
    pub(super) fn judge(&mut self, block: u64, digest: Digest) -> Result<(), StoreError> {
        let asked = self.digests.pending.is_some_and(|ask| block <= ask.last);
        let Some(audit) = &mut self.verification.audit else {
            return Ok(());
        };
        if !asked || block != audit.next || block >= audit.filled || self.phase != Phase::Open {
            return Ok(());
        }
        audit.next += 1;
        self.liveness.data_came(self.now);
        self.stats.blocks_audited += 1;
        let right = self.chaining_value(block)? == Some(digest);
        let slot = self.window.slots.claim(block);
        slot.digest = digest;
        slot.flags |= EXPECTED | CONFIRMED;
        if right {
            slot.flags |= VERIFIED;
        } else {
            slot.flags &= !STORED;
            self.reject(block);
        }
        Ok(())
    }

    /// What the bytes in the store give; `None`: they were never written.
    fn chaining_value(&mut self, block: u64) -> Result<Option<Digest>, StoreError> {
        let Some((offset, len)) = self.place(block).filter(|&(_, len)| len > 0) else {
            return Ok(None);
        };
        match self.store.block(offset, len) {
            Ok(bytes) => Ok(Some(self.hashing.block(offset, bytes))),
            Err(StoreError::NotStored) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The source has confirmed what it announced.
    pub(super) fn audit_confirmed(&mut self) {
        let digested = self.session.as_ref().map_or(0, |session| session.digested);
        match self.verification.audit {
            // The doubt is over, else the audit had begun.
            Some(audit) if !audit.begun => self.verification.audit = None,
            // It has no digests to compare with yet: waiting is right.
            Some(audit) if audit.next < audit.end && digested <= audit.next => {
                self.liveness.data_came(self.now);
            }
            _ => {}
        }
    }
}
