//! A late start: the chaining values before the first block that is received.
//!
//! The digest of the whole is the root over all blocks. A receiver that starts at block `s` needs, of the
//! blocks before it, only the chaining values of their largest whole subtrees: one for each bit set in `s`,
//! at most 32. It asks the source for them by unicast under a nonce when the first packet at or past the
//! start has come. Until the source has answered, one or two round trips, no block is final. Then the root is
//! checked as in any other receiver, which detects a forged value on either side.
//!
//! When the source no longer knows them, or does not answer, each block is still verified against its announced
//! digest, but the whole is not, and [`crate::ReceiverEvent::Complete`] names no digest.

use super::{DigestRequest, Phase, Receiver};
use crate::digest::{Digest, Tree};
use crate::store::Store;
use crate::wire::digests;

/// Requests to the source for the chaining values before a late start.
const LEFT_ATTEMPTS: u32 = 6;

/// Knowledge of the chaining values before the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Left {
    /// The tree has it, or nothing lies there.
    #[default]
    Known,
    /// It is, or will be, requested from the source.
    Wanted,
    /// The source does not know it, or did not answer.
    Unknown,
}

impl<S: Store> Receiver<'_, S> {
    /// A tree with no block in it.
    pub(super) fn reset_tree(&mut self, integrity: bool) {
        self.verification.tree = Tree::default();
        self.verification.left = if integrity && self.window.start() > 0 {
            Left::Wanted
        } else {
            Left::Known
        };
    }

    /// Whether the digest of the whole can be computed once everything is here.
    pub(super) fn knows_whole(&self) -> bool {
        // A content that ends where this receiver started brings nothing to compute it from.
        self.window.start() == 0
            || self.verification.left == Left::Known && self.window.frontier() > self.window.start()
    }

    /// Whether blocks wait for the chaining values before the start.
    pub(super) fn wants_left(&self) -> bool {
        self.verification.left == Left::Wanted
            && self.window.top() > self.window.start()
            && self.phase == Phase::Open
    }

    pub(super) fn next_left_request(&mut self) -> Option<DigestRequest> {
        self.wants_left().then(|| DigestRequest {
            first: self.window.start(),
            last: self.window.start(),
            nonce: self.identity.nonce(),
            attempts: u32::from(self.config.attempts_before_source),
            left: true,
        })
    }

    /// Whether that request was repeated often enough; blocks then no longer wait for an answer.
    pub(super) fn left_is_given_up(&mut self, ask: &DigestRequest) -> bool {
        let most = u32::from(self.config.attempts_before_source) + LEFT_ATTEMPTS;
        let given_up = ask.attempts >= most;
        if given_up {
            self.left_settled(Left::Unknown);
        }
        given_up
    }

    /// The source has answered, under the right nonce.
    pub(super) fn learn_left(&mut self, packet: &digests::Repr, values: &[Digest]) {
        if u64::from(packet.first_block) != self.window.start() {
            return;
        }
        let left = match Tree::after(self.window.start(), values) {
            Some(tree) => {
                self.verification.tree = tree;
                Left::Known
            }
            None => Left::Unknown,
        };
        self.left_settled(left);
    }

    fn left_settled(&mut self, left: Left) {
        self.verification.left = left;
        self.digests.pending = None;
        self.liveness.data_came(self.now);
        self.timers.stop(super::Timer::Digests);
        self.advance_frontier();
        self.want_digests();
    }
}
