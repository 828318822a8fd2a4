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

use super::{DigestRequest, Phase, Receiver, Session, Timer};
use crate::config::Delivery;
use crate::digest::Digest;
use crate::event::Failure;
use crate::store::{Store, StoreError};
use crate::wire::digests::MAX_DIGESTS;

/// Bytes of the blocks requested at a time, and so read in one call at most (or one block).
const RANGE_LEN: usize = 4 << 20;

/// Returns how many blocks are requested at a time.
fn range_blocks(block_exponent: u8) -> u64 {
    (RANGE_LEN >> block_exponent).clamp(1, MAX_DIGESTS) as u64
}

/// Whether there is an audit.
#[derive(Default, Debug)]
pub(super) enum Audit {
    #[default]
    None,
    /// The digest of the whole differs, which the source has not confirmed yet.
    Suspended,
    Running(Progress),
}

/// How far an audit is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// The next block to be judged; one past the last with a slot; one past the last of all.
    next: u64,
    filled: u64,
    end: u64,
    nonce: u64,
}

impl Audit {
    pub(super) fn cancel(&mut self) {
        *self = Audit::None;
    }

    pub(super) fn is_pending(&self) -> bool {
        !matches!(self, Audit::None)
    }

    fn running(&self) -> Option<&Progress> {
        match self {
            Audit::Running(progress) => Some(progress),
            Audit::None | Audit::Suspended => None,
        }
    }
}

impl<S: Store> Receiver<'_, S> {
    /// The digest of the whole differs from the announced one.
    pub(super) fn whole_differs(&mut self) {
        let Some(session) = &self.session else { return };
        let confirmed = session.is_confirmed();
        if self.hashing.is_keyed() {
            self.fail(Failure::WholeDigest);
            return;
        }
        if !self.audit.is_pending() && self.has_all_stored() {
            // From now on the source has its time to answer.
            self.liveness.data_came(self.now);
            self.audit = Audit::Suspended;
        }
        match self.audit {
            _ if !confirmed => self.request_confirmation(),
            Audit::Suspended => self.begin_audit(),
            // Nothing to compare with, or even the source's own digests do not add up.
            _ => self.fail(Failure::WholeDigest),
        }
    }

    /// Whether the store can give back every block.
    fn has_all_stored(&self) -> bool {
        let length = self.session.as_ref().and_then(Session::length);
        let room = self.store.capacity().unwrap_or(u64::MAX);
        self.config.delivery == Delivery::Store
            && !self.whole.is_adopted()
            && length.is_some_and(|length| length > 0 && length <= room)
    }

    fn begin_audit(&mut self) {
        let Some(session) = &self.session else { return };
        let Some(end) = session.blocks() else { return };
        let is_late = self.window.start() > 0;
        self.audit = Audit::Running(Progress {
            next: self.window.start(),
            filled: self.window.start(),
            end,
            nonce: self.identity.nonce(),
        });
        self.stats.audits += 1;
        self.liveness.block_final(self.now);
        self.window.rewind(end);
        self.whole.restart(is_late);
        self.digests.cancel();
        self.gaps.forget_requests();
        self.timers.stop(Timer::Digests);
        self.fill_audit();
        self.want_digests();
    }

    /// Blocks under audit get their slots as the window moves.
    pub(super) fn fill_audit(&mut self) {
        let (Audit::Running(audit), Some(session)) = (&mut self.audit, &self.session) else {
            return;
        };
        let upto = audit.end.min(self.window.slots_end());
        while audit.filled < upto {
            let mask = session.mask(audit.filled);
            self.window.audit(audit.filled, mask);
            audit.filled += 1;
        }
    }

    /// Whether that block was here when the audit began.
    pub(super) fn is_audited(&self, block: u64) -> bool {
        self.audit.running().is_some_and(|audit| block < audit.end)
    }

    /// Whether the audit has found some blocks, but not all, to be right.
    pub(super) fn audit_is_under_way(&self) -> bool {
        self.is_audited(self.window.frontier())
    }

    /// Whether blocks wait for the source's digests, and the source has some.
    pub(super) fn audit_wants_digests(&self) -> bool {
        self.next_audit_request().is_some()
    }

    /// The next range to ask the source about.
    pub(super) fn next_audit_request(&self) -> Option<DigestRequest> {
        let audit = self.audit.running()?;
        let session = self.session.as_ref()?;
        let range = range_blocks(session.geometry().block_exponent());
        let end = audit.filled.min(session.digested()).min(audit.next + range);
        (audit.next < end).then(|| DigestRequest {
            first: audit.next,
            last: end - 1,
            nonce: audit.nonce,
            attempts: u32::from(self.config.attempts_before_source),
            left: false,
        })
    }

    /// The source's own digest of a block under audit, which was requested.
    pub(super) fn judge(&mut self, block: u64, digest: Digest) -> Result<(), StoreError> {
        let Audit::Running(audit) = &mut self.audit else {
            return Ok(());
        };
        if block != audit.next || block >= audit.filled || self.phase != Phase::Open {
            return Ok(());
        }
        audit.next += 1;
        self.liveness.data_came(self.now);
        self.stats.blocks_audited += 1;
        let right = self.chaining_value(block)? == Some(digest);
        self.window.judge(block, digest, right);
        if !right {
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
        let digested = self.session.as_ref().map_or(0, Session::digested);
        match self.audit {
            // The doubt is over, else the audit had begun.
            Audit::Suspended => self.audit.cancel(),
            // It has no digests to compare with yet: waiting is right.
            Audit::Running(audit) if audit.next < audit.end && digested <= audit.next => {
                self.liveness.data_came(self.now);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::range_blocks;

    #[test]
    fn four_mebibytes_are_requested_at_a_time_or_one_block() {
        let blocks = [10, 16, 17, 20, 21, 22].map(range_blocks);
        assert_eq!(blocks, [64, 64, 32, 4, 2, 1]);
    }
}
