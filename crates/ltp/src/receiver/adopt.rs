//! A content that was stored before the session.

use proto_core::time::Instant;

use super::{Phase, Receiver};
use crate::digest::Digest;
use crate::store::Store;

impl<S: Store> Receiver<'_, S> {
    /// Returns the digest of the whole, once the source has announced it.
    pub fn announced(&self) -> Option<Digest> {
        self.session.as_ref()?.digest
    }

    /// Whether the source has said that it leaves.
    pub fn is_source_leaving(&self) -> bool {
        self.session_is(|session| session.closing)
    }

    /// Completes the session with a content that the store already has, whose digest the application has
    /// computed. Nothing more is requested, and losses of other receivers are repaired from it.
    ///
    /// Returns false, and changes nothing, unless the source has announced this digest and the session starts at
    /// the first byte.
    pub fn adopt(&mut self, now: Instant, digest: Digest) -> bool {
        self.advance_clock(now);
        let Some(session) = &self.session else {
            return false;
        };
        let (Some(length), Some(total)) = (session.length, session.total) else {
            return false;
        };
        if self.phase != Phase::Open || self.window.start() != 0 || session.digest != Some(digest) {
            return false;
        }
        self.window.pass_all(session.geometry.blocks(length));
        self.gaps.finish(total);
        self.verification.restart();
        self.digests.pending = None;
        self.verification.audit = None;
        self.verification.adopted = Some(digest);
        self.check_complete();
        true
    }

    /// The digest of the whole, once every block is final.
    pub(super) fn root(&self) -> Digest {
        self.verification
            .adopted
            .unwrap_or_else(|| self.verification.tree.root(&self.hashing))
    }
}
