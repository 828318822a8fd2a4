//! The digest of the whole, and what a late start needs for it: the chaining values before the first block that
//! is received.
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
use crate::digest::{Digest, Hashing, Tree};
use crate::store::Store;
use crate::wire::digests;

/// Requests to the source for the chaining values before a late start.
const LEFT_ATTEMPTS: u32 = 6;

/// Knowledge of the chaining values before the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Left {
    /// The tree has it, or nothing lies there.
    #[default]
    Known,
    /// It is, or will be, requested from the source.
    Wanted,
    /// The source does not know it, or did not answer.
    Unknown,
}

/// The digest of the whole.
#[derive(Default, Debug)]
pub(super) struct Whole {
    /// The blocks that are final.
    tree: Tree,
    left: Left,
    /// The digest of a content that was in the store before the session.
    adopted: Option<Digest>,
}

impl Whole {
    /// No block is final. `is_left_wanted`: there are chaining values before the start.
    pub(super) fn restart(&mut self, is_left_wanted: bool) {
        *self = Whole::default();
        if is_left_wanted {
            self.left = Left::Wanted;
        }
    }

    /// The next block is final. `single` is asked for the digest of block 0 as a whole content.
    pub(super) fn push(
        &mut self,
        block: u64,
        hashing: &Hashing,
        value: Digest,
        single: impl FnOnce() -> Digest,
    ) {
        // The tree of a late start lacks what lies before it where the source no longer knows that.
        if self.tree.count() == block {
            self.tree.push(hashing, value, single);
        }
    }

    /// The content was in the store before the session, and has this digest.
    pub(super) fn adopt(&mut self, digest: Digest) {
        self.adopted = Some(digest);
    }

    pub(super) fn is_adopted(&self) -> bool {
        self.adopted.is_some()
    }

    /// The digest of the whole, once every block is final.
    pub(super) fn root(&self, hashing: &Hashing) -> Digest {
        self.adopted.unwrap_or_else(|| self.tree.root(hashing))
    }
}

impl<S: Store> Receiver<'_, S> {
    /// Whether the digest of the whole can be computed once everything is here.
    pub(super) fn knows_whole(&self) -> bool {
        // A content that ends where this receiver started brings nothing to compute it from.
        self.window.start() == 0
            || self.whole.left == Left::Known && self.window.frontier() > self.window.start()
    }

    /// Whether blocks wait for the chaining values before the start.
    pub(super) fn wants_left(&self) -> bool {
        self.whole.left == Left::Wanted
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
    pub(super) fn left_is_given_up(&mut self, attempts: u32) -> bool {
        let most = u32::from(self.config.attempts_before_source) + LEFT_ATTEMPTS;
        let given_up = attempts >= most;
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
                self.whole.tree = tree;
                Left::Known
            }
            None => Left::Unknown,
        };
        self.left_settled(left);
    }

    fn left_settled(&mut self, left: Left) {
        self.whole.left = left;
        self.digests.cancel();
        self.liveness.data_came(self.now);
        self.timers.stop(super::Timer::Digests);
        self.advance_frontier();
        self.want_digests();
    }
}
