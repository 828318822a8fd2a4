//! A late start: what lies to the left of the first block that is received.
//!
//! The digest of the whole is the root over all blocks. One who starts at block `s` lacks the blocks
//! before it, but needs no more of them than the chaining values of the largest whole subtrees
//! they make up: one for each bit set in `s`, at most 32. The source is asked for them by unicast
//! under a nonce when the first packet at or past the start has come. Until it has answered nothing
//! counts as final, one or two round trips; then the root is checked like anybody's, and whoever
//! forged a value, to the left or right, is found out by it.
//!
//! A source that does not know them any more says so; then, and when it does not answer, each block
//! is still verified against its announced digest, but the whole is not, and
//! [`crate::ReceiverEvent::Complete`] names no digest.

use rand_core::Rng;

use super::{DigestAsk, Phase, Receiver};
use crate::digest::Tree;
use crate::store::Store;
use crate::wire::digests;

/// The source is asked so often for what lies to the left of a late start.
const LEFT_ATTEMPTS: u32 = 6;

/// What is known of what lies to the left of the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Left {
    /// The tree holds it, or nothing lies there.
    Known,
    /// The source is, or will be, asked.
    Wanted,
    /// The source did not say.
    Unknown,
}

impl<S: Store> Receiver<'_, S> {
    /// A tree with no block in it.
    pub(super) fn reset_tree(&mut self, integrity: bool) {
        self.tree = Tree::default();
        self.left = if integrity && self.start > 0 {
            Left::Wanted
        } else {
            Left::Known
        };
    }

    /// Whether the digest of the whole can be computed once everything is here.
    pub(super) fn knows_whole(&self) -> bool {
        // A content that ends where this receiver started brings nothing to compute it from.
        self.start == 0 || self.left == Left::Known && self.frontier > self.start
    }

    /// Whether blocks wait for what lies to the left.
    pub(super) fn wants_left(&self) -> bool {
        self.left == Left::Wanted && self.top > self.start && self.phase == Phase::Open
    }

    pub(super) fn next_left_ask(&mut self) -> Option<DigestAsk> {
        self.wants_left().then(|| DigestAsk {
            first: self.start,
            last: self.start,
            nonce: self.rng.next_u64().max(1),
            attempts: u32::from(self.config.attempts_before_source),
            left: true,
        })
    }

    /// Whether that question was asked often enough; blocks then no longer wait for an answer.
    pub(super) fn left_is_given_up(&mut self, ask: &DigestAsk) -> bool {
        let most = u32::from(self.config.attempts_before_source) + LEFT_ATTEMPTS;
        let given_up = ask.attempts >= most;
        if given_up {
            self.left_settled(Left::Unknown);
        }
        given_up
    }

    /// The source has answered: its nonce was checked.
    pub(super) fn learn_left<T: AsRef<[u8]>>(&mut self, packet: &digests::Packet<T>) {
        if u64::from(packet.first_block()) != self.start {
            return;
        }
        let values = (0..packet.count()).map(|index| packet.digest(index));
        let left = match Tree::after(self.start, values) {
            Some(tree) => {
                self.tree = tree;
                Left::Known
            }
            None => Left::Unknown,
        };
        self.left_settled(left);
    }

    fn left_settled(&mut self, left: Left) {
        self.left = left;
        self.digest_ask = None;
        self.fed = self.now;
        self.timers.stop(super::Timer::Digests);
        self.advance_frontier();
        self.want_digests();
    }
}
