//! Sets of blocks.

use alloc::vec;
use alloc::vec::Vec;

use crate::limits::MAX_RUNS;

/// Blocks one after another, `count` of them from `first` on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Run {
    /// The first block, counted through all files of the copy.
    pub first: u64,
    /// How many; at least 1.
    pub count: u64,
}

impl Run {
    /// One past the last block.
    pub fn end(&self) -> u64 {
        self.first + self.count
    }
}

/// A set of the blocks of one copy: one bit each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BlockSet {
    words: Vec<u64>,
    /// Blocks there are.
    total: u64,
    /// Blocks in the set.
    len: u64,
}

impl BlockSet {
    /// None of `total` blocks.
    pub fn new(total: u64) -> Self {
        BlockSet {
            words: vec![0; total.div_ceil(64) as usize],
            total,
            len: 0,
        }
    }

    /// Blocks there are, in the set or not.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Blocks in the set.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// No block is in the set.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Every block is in the set.
    pub fn is_full(&self) -> bool {
        self.len == self.total
    }

    /// Whether the block is in the set. A block that does not exist is not.
    pub fn contains(&self, block: u64) -> bool {
        let word = self.words.get((block / 64) as usize);
        word.is_some_and(|word| word >> (block % 64) & 1 == 1)
    }

    /// Returns the first block of the set that is `block` or one after it.
    pub fn first_from(&self, block: u64) -> Option<u64> {
        let mut at = (block / 64) as usize;
        let mut word = self.words.get(at)? & (u64::MAX << (block % 64));
        while word == 0 {
            at += 1;
            word = *self.words.get(at)?;
        }
        Some(at as u64 * 64 + u64::from(word.trailing_zeros()))
    }

    /// Removes a block; false when it was not there.
    pub fn remove(&mut self, block: u64) -> bool {
        if !self.contains(block) {
            return false;
        }
        self.words[(block / 64) as usize] &= !(1 << (block % 64));
        self.len -= 1;
        true
    }

    /// Adds a block; false when it was there or does not exist.
    pub fn insert(&mut self, block: u64) -> bool {
        if block >= self.total || self.contains(block) {
            return false;
        }
        self.words[(block / 64) as usize] |= 1 << (block % 64);
        self.len += 1;
        true
    }

    /// Adds the blocks that `held`, a set of the same copy, lacks: the blocks to send to several hosts.
    pub fn insert_missing(&mut self, held: &BlockSet) {
        let tail = self.total % 64;
        let last = self.words.len().saturating_sub(1);
        let mut len = 0;
        for (at, word) in self.words.iter_mut().enumerate() {
            let exists = if at == last && tail > 0 {
                (1 << tail) - 1
            } else {
                u64::MAX
            };
            *word |= !held.words.get(at).copied().unwrap_or(0) & exists;
            len += u64::from(word.count_ones());
        }
        self.len = len;
    }

    /// Returns the set as at most `most` runs, in order; if there are more, the shortest gaps are filled.
    pub fn runs(&self, most: usize) -> Vec<Run> {
        let mut gap = 0;
        loop {
            let runs = self.runs_across(gap);
            if runs.len() <= most.max(1) {
                return runs;
            }
            gap = gap * 2 + 1;
        }
    }

    /// Returns the set as runs; gaps of up to `gap` blocks are filled.
    fn runs_across(&self, gap: u64) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let mut add = |first: u64, count: u64| match runs.last_mut() {
            Some(run) if first - run.end() <= gap => run.count = first + count - run.first,
            _ => runs.push(Run { first, count }),
        };
        for (at, &word) in self.words.iter().enumerate() {
            let mut left = word;
            let mut first = at as u64 * 64;
            while left != 0 {
                first += u64::from(left.trailing_zeros());
                left >>= left.trailing_zeros();
                let count = left.trailing_ones();
                add(first, u64::from(count));
                first += u64::from(count);
                left = left.checked_shr(count).unwrap_or(0);
            }
        }
        runs
    }

    /// Returns the set as runs that fit one plan ([`MAX_RUNS`]).
    pub fn plan(&self) -> Vec<Run> {
        self.runs(MAX_RUNS as usize)
    }
}
