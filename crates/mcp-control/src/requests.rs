//! Requests for blocks on a link: the child counts the blocks it has requested, the feeder those it has to serve.

use alloc::collections::VecDeque;
use core::ops::Range;

use crate::blocks::{BlockSet, Run};
use crate::limits::{BLOCK_LEN, MAX_REQUESTED_BYTES, MAX_REQUESTS};
use crate::manifest::Manifest;
use crate::wire::link::Want;

/// Blocks that were requested and not answered yet, in order. Each end keeps one for each link.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    runs: VecDeque<Run>,
    blocks: u64,
    bytes: u64,
}

impl Requests {
    /// Adds the blocks of a WANT. Returns false when they do not exist, or when the child asks for more than its share;
    /// nothing is added then.
    #[must_use]
    pub fn take(&mut self, manifest: &Manifest, want: Want) -> bool {
        let end = want.first + u64::from(want.count);
        if end > manifest.blocks() || self.blocks + u64::from(want.count) > MAX_REQUESTS {
            return false;
        }
        let len = |block| manifest.locate(block).map_or(0, |place| place.len);
        let bytes: u64 = (want.first..end).map(len).sum();
        // A child checks the bound before it adds a block, so it may exceed it by less than one block.
        if self.bytes + bytes >= MAX_REQUESTED_BYTES + BLOCK_LEN {
            return false;
        }
        self.push(want, bytes);
        true
    }

    fn push(&mut self, want: Want, bytes: u64) {
        self.runs.push_back(Run {
            first: want.first,
            count: want.count.into(),
        });
        self.blocks += u64::from(want.count);
        self.bytes += bytes;
    }

    /// Returns the number of blocks that were requested and not answered yet.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns the block that is answered next.
    pub fn front(&self) -> Option<u64> {
        self.runs.front().map(|run| run.first)
    }

    /// Removes the block that was answered.
    pub fn answered(&mut self, manifest: &Manifest) {
        let Some(run) = self.runs.front_mut() else {
            return;
        };
        let len = manifest.locate(run.first).map_or(0, |place| place.len);
        self.bytes = self.bytes.saturating_sub(len);
        self.blocks -= 1;
        run.first += 1;
        run.count -= 1;
        if run.count == 0 {
            self.runs.pop_front();
        }
    }

    /// Returns the next WANT: the first blocks of `wanted` in this range, as one run, as far as the bounds allow. They
    /// count as requested.
    pub fn want(
        &mut self,
        manifest: &Manifest,
        wanted: &BlockSet,
        range: Range<u64>,
    ) -> Option<Want> {
        let first = wanted.first_from(range.start)?;
        let in_range = range.end.saturating_sub(first);
        let room = (MAX_REQUESTS - self.blocks).min(in_range);
        let (mut count, mut bytes) = (0, 0);
        while u64::from(count) < room && self.bytes + bytes < MAX_REQUESTED_BYTES {
            let block = first + u64::from(count);
            let Some(place) = manifest.locate(block).filter(|_| wanted.contains(block)) else {
                break;
            };
            if bytes + place.len > MAX_REQUESTED_BYTES {
                break;
            }
            bytes += place.len;
            count += 1;
        }
        if count == 0 {
            return None;
        }
        let want = Want { first, count };
        self.push(want, bytes);
        Some(want)
    }
}
