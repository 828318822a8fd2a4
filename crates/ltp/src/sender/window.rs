//! The window over blocks within which new data waits for receivers.

#[cfg(test)]
mod tests;

use managed::ManagedSlice;

/// How many receivers stand at each block of the window: the slowest is known at once, without
/// walking the receivers.
#[derive(Debug)]
pub(super) struct Window<'a> {
    /// Entry `b % len` counts receivers whose first missing block is `b`, base <= b < base + len.
    counts: ManagedSlice<'a, u32>,
    base: u64,
    counted: u32,
}

impl<'a> Window<'a> {
    pub(super) fn new(counts: ManagedSlice<'a, u32>) -> Self {
        let mut window = Window {
            counts,
            base: 0,
            counted: 0,
        };
        window.counts.fill(0);
        window
    }

    pub(super) fn is_used(&self) -> bool {
        self.counts.len() > 1
    }

    /// Blocks it spans.
    pub(super) fn blocks(&self) -> u64 {
        self.counts.len().saturating_sub(1) as u64
    }

    /// Returns the first block that a counted receiver may lack; `None` without any.
    pub(super) fn slowest(&self) -> Option<u64> {
        (self.counted > 0).then_some(self.base)
    }

    /// New data must stay below this block.
    pub(super) fn limit(&self) -> u64 {
        self.slowest().map_or(u64::MAX, |base| base + self.blocks())
    }

    fn index(&self, block: u64) -> usize {
        (block % self.counts.len() as u64) as usize
    }

    /// A receiver moved on, or is new (`old` is `None`); whether it is counted now. `sent` is the
    /// number of blocks begun.
    pub(super) fn moved(&mut self, old: Option<u64>, new: u64, sent: u64) -> bool {
        if !self.is_used() {
            return false;
        }
        if self.counted == 0 {
            // No receiver is counted: the window starts at this one, unless that is too far back.
            self.base = new.max(sent.saturating_sub(self.blocks()));
        }
        if let Some(old) = old {
            self.leave(old);
        }
        if new < self.base || new > self.base + self.blocks() {
            self.advance();
            return false;
        }
        let index = self.index(new);
        self.counts[index] += 1;
        self.counted += 1;
        self.advance();
        true
    }

    /// Forgets all receivers, and begins at this block.
    pub(super) fn restart(&mut self, base: u64) {
        self.counts.fill(0);
        self.counted = 0;
        self.base = base;
    }

    /// Counts a receiver that stands at this block, if that lies within the window; whether it is counted.
    pub(super) fn enter(&mut self, block: u64) -> bool {
        let inside = block >= self.base && block <= self.base + self.blocks();
        if !self.is_used() || !inside {
            return false;
        }
        let index = self.index(block);
        self.counts[index] += 1;
        self.counted += 1;
        true
    }

    /// A counted receiver that stood at `old` is no longer waited for.
    pub(super) fn left(&mut self, old: u64) {
        if self.is_used() {
            self.leave(old);
            self.advance();
        }
    }

    fn leave(&mut self, old: u64) {
        let index = self.index(old);
        self.counts[index] -= 1;
        self.counted -= 1;
    }

    fn advance(&mut self) {
        // Some entry is not zero while a receiver is counted, so that this ends.
        while self.counted > 0 && self.counts[self.index(self.base)] == 0 {
            self.base += 1;
        }
    }
}
