//! Digests of blocks: computed as data goes, remembered, announced and looked up.

#[cfg(test)]
mod tests;

use managed::ManagedSlice;
use proto_core::time::Duration;

use super::{Sender, Timer};
use crate::config::SenderConfig;
use crate::digest::{Digest, Hashing, MerkleFrontier, Tree};
use crate::store::{Store, StoreError};
use crate::wire::digests;
use crate::{Destination, Transmit};

/// Number of waiting digests that are sent at once.
const DIGEST_BATCH: u64 = 16;
/// Longest time that fewer wait.
const DIGEST_DELAY: Duration = Duration::from_millis(20);
/// Least number of digests that are repeated.
const DIGESTS_AGAIN: u64 = 3;

/// Digests of blocks and of the whole.
#[derive(Debug)]
pub(super) struct Digests<'a> {
    tree: Tree,
    left: MerkleFrontier,
    /// The first block that is hashed; not 0 after a restart.
    first: u64,
    /// Blocks hashed, and blocks of which digests were announced.
    hashed: u64,
    published: u64,
    /// The digest of the whole, once known.
    whole: Option<Digest>,
    /// The latest digests, a ring over blocks.
    kept: ManagedSlice<'a, Digest>,
    /// Digests have waited for long enough.
    is_late: bool,
    /// Each packet of digests repeats the last ones.
    repeats: bool,
}

impl<'a> Digests<'a> {
    pub(super) fn new(config: &SenderConfig, kept: ManagedSlice<'a, Digest>) -> Self {
        Digests {
            tree: Tree::default(),
            left: MerkleFrontier::default(),
            first: 0,
            hashed: 0,
            published: 0,
            whole: config.digest,
            kept,
            is_late: false,
            repeats: false,
        }
    }

    /// The blocks before were announced by an earlier run.
    pub(super) fn skip_to(&mut self, block: u64) {
        (self.first, self.hashed, self.published) = (block, block, block);
    }

    pub(super) fn hashed(&self) -> u64 {
        self.hashed
    }

    pub(super) fn published(&self) -> u64 {
        self.published
    }

    /// Number of digests that were not announced yet.
    fn waiting(&self) -> u64 {
        self.hashed - self.published
    }

    pub(super) fn whole(&self) -> Option<Digest> {
        self.whole
    }

    /// Digests have waited for long enough.
    pub(super) fn delay_passed(&mut self) {
        self.is_late = true;
    }

    /// Takes the digest of the next block.
    fn push(&mut self, hashing: &Hashing, value: Digest, bytes: &[u8]) {
        if self.first == 0 {
            self.tree.push(hashing, value, || hashing.whole(bytes));
            self.left.push(hashing, value);
        }
        let kept = self.kept.len() as u64;
        if kept > 0 {
            self.kept[(self.hashed % kept) as usize] = value;
        }
        self.hashed += 1;
    }

    /// Returns the digest of a block, if it is remembered.
    fn kept(&self, block: u64) -> Option<Digest> {
        let kept = self.kept.len() as u64;
        let is_kept = block >= self.first && block + kept >= self.hashed && block < self.hashed;
        is_kept.then(|| self.kept[(block % kept) as usize])
    }

    /// Every block was hashed: computes the digest of the whole. Returns false if it is not the configured one.
    pub(super) fn finish(&mut self, hashing: &Hashing) -> bool {
        // Of a restarted sender the blocks before the first one it sent were not read.
        if self.first > 0 {
            return true;
        }
        let root = self.tree.root(hashing);
        *self.whole.get_or_insert(root) == root
    }
}

impl<S: Store> Sender<'_, S> {
    /// Hashes the block that was just sent, and is still in the cache.
    pub(super) fn hash_block(&mut self) -> Result<(), StoreError> {
        let (offset, bytes) = self.content.block(self.digests.hashed)?;
        let value = self.hashing.block(offset, bytes);
        self.digests.push(&self.hashing, value, bytes);
        self.timers
            .set_earlier(Timer::Digests, self.now + DIGEST_DELAY);
        Ok(())
    }

    /// Has digests repeated with the next ones: relays repair DATA alone, and a receiver that lost a packet of
    /// digests would ask the source itself.
    pub(crate) fn repeat_digests(&mut self) {
        self.digests.repeats = true;
    }

    pub(super) fn digests_due(&self) -> bool {
        let waiting = self.digests.waiting();
        waiting > 0
            && !self.failed
            && (waiting >= self.digest_batch() || self.content.is_sent() || self.digests.is_late)
    }

    fn digest_batch(&self) -> u64 {
        let window = self.receivers.window_blocks();
        let batch = window.map_or(DIGEST_BATCH, |blocks| (blocks / 8).clamp(1, DIGEST_BATCH));
        batch.min(self.most_waiting())
    }

    /// Returns how many digests may wait to be announced. Those of a ring must be remembered until then, since its
    /// blocks may be overwritten; a single one is computed from the block, which is kept.
    fn most_waiting(&self) -> u64 {
        let kept = self.digests.kept.len() as u64;
        if self.content.is_ring() {
            kept.max(1)
        } else {
            u64::MAX
        }
    }

    /// Whether new data waits until digests are announced.
    pub(super) fn digests_hold_data(&self) -> bool {
        self.digests.waiting() >= self.most_waiting()
    }

    /// Returns the block that must be kept, since its digest is neither announced nor remembered.
    pub(super) fn unannounced(&self) -> Option<u64> {
        let next = self.digests.published;
        (self.digests.waiting() > 0 && self.digests.kept(next).is_none()).then_some(next)
    }

    pub(super) fn poll_digests(&mut self, budget: usize, buffer: &mut [u8]) -> Option<Transmit> {
        if !self.digests_due() {
            return None;
        }
        let room = self.digests_per_packet();
        let new = self.digests.waiting().min(room);
        let again = self.repeated(new, room - new);
        let (first, count) = (self.digests.published - again, again + new);
        let len = digests::DIGESTS_HEADER_LEN + 32 * count as usize;
        if !self.fits(budget, buffer, len) {
            return None;
        }
        if self.write_digests(buffer, None, first, count).is_err() {
            self.fail_store();
            return None;
        }
        self.digests.published += new;
        self.stats.digests += 1;
        if self.digests.published == self.digests.hashed {
            self.timers.stop(Timer::Digests);
            self.digests.is_late = false;
        }
        self.check_sent();
        self.seal(Destination::Group, buffer, len)
    }

    /// Returns how many of the last digests are repeated with that many new ones: those of two such packets, if
    /// they are stored and fit.
    fn repeated(&self, new: u64, room: u64) -> u64 {
        if !self.digests.repeats {
            return 0;
        }
        let most = (2 * new).max(DIGESTS_AGAIN).min(room);
        let known = |&back: &u64| {
            let block = self.digests.published.checked_sub(back);
            block.is_some_and(|block| self.digests.kept(block).is_some())
        };
        (1..=most).take_while(known).count() as u64
    }

    fn digests_per_packet_len(&self) -> usize {
        let max = usize::from(self.config.max_packet_len);
        max.saturating_sub(digests::DIGESTS_HEADER_LEN + self.hashing.overhead()) / 32
    }

    pub(super) fn digests_per_packet(&self) -> u64 {
        self.digests_per_packet_len().clamp(1, digests::MAX_DIGESTS) as u64
    }

    pub(super) fn write_digests(
        &mut self,
        buffer: &mut [u8],
        answer: Option<u64>,
        first: u64,
        count: u64,
    ) -> Result<(), StoreError> {
        let repr = digests::Repr {
            session: self.session,
            first_block: first as u32,
            answer,
            left: false,
            count: count as usize,
        };
        repr.emit(buffer);
        for index in 0..count {
            let digest = self.digest_of(first + index)?;
            digests::put_digest(buffer, index as usize, &digest);
        }
        Ok(())
    }

    /// The digest of a block that was sent: remembered, or computed again.
    fn digest_of(&mut self, block: u64) -> Result<Digest, StoreError> {
        if let Some(digest) = self.digests.kept(block) {
            return Ok(digest);
        }
        if block < self.content.oldest_block() {
            return Err(StoreError::NotStored);
        }
        let (offset, bytes) = self.content.block(block)?;
        Ok(self.hashing.block(offset, bytes))
    }

    /// How many values lie to the left of a block; `None`: more than a packet takes.
    pub(super) fn left_count(&self, block: u64) -> Option<usize> {
        let count = block.count_ones() as usize;
        (count <= self.digests_per_packet_len()).then_some(count)
    }

    /// What lies to the left of a block, or nothing if that is no longer known or does not fit a
    /// packet; the length.
    pub(super) fn write_left(&mut self, buffer: &mut [u8], nonce: u64, block: u64) -> usize {
        let mut repr = digests::Repr {
            session: self.session,
            first_block: block as u32,
            answer: Some(nonce),
            left: true,
            count: 0,
        };
        if let Some(count) = self.left_count(block) {
            let known = self.digests.left.left_of(
                &self.hashing,
                block,
                |block| self.digests.kept(block),
                |index, value| digests::put_digest(buffer, index, value),
            );
            repr.count = known.map_or(0, |_| count);
        }
        repr.emit(buffer);
        repr.buffer_len()
    }
}
