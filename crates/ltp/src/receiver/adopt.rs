//! A content that was stored before the session.

use proto_core::time::Instant;

use super::{Phase, Receiver, Session};
use crate::digest::Digest;
use crate::store::Store;

impl<S: Store> Receiver<'_, S> {
    /// Returns the digest of the whole, once the source has announced it.
    pub fn announced(&self) -> Option<Digest> {
        self.session.as_ref()?.digest()
    }

    /// Whether the source has said that it leaves.
    pub fn is_source_leaving(&self) -> bool {
        self.session_is(Session::is_closing)
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
        let (Some(blocks), Some(total)) = (session.blocks(), session.total()) else {
            return false;
        };
        let is_announced = session.digest() == Some(digest);
        if self.phase != Phase::Open || self.window.start() != 0 || !is_announced {
            return false;
        }
        self.window.pass_all(blocks);
        self.gaps.restart(total);
        self.digests.cancel();
        self.audit.cancel();
        self.whole.adopt(digest);
        self.check_complete();
        true
    }
}
