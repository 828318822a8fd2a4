//! What has not arrived, by name.

use core::ops::Range;

use super::Receiver;
use crate::store::Store;

/// The byte ranges of the content that have not arrived and verified, in order. The last one ends
/// at `u64::MAX` when the length is unknown.
pub struct Missing<'r, 'a, S: Store> {
    receiver: &'r Receiver<'a, S>,
    /// Where the search continues.
    block: u64,
    index: u32,
}

impl<'r, 'a, S: Store> Missing<'r, 'a, S> {
    pub(super) fn new(receiver: &'r Receiver<'a, S>) -> Self {
        Missing {
            receiver,
            block: receiver.window.frontier(),
            index: 0,
        }
    }

    /// Whether a packet is missing; a block that is all here but not verified is missing whole.
    fn lacks(&self, block: u64, index: u32) -> bool {
        let receiver = self.receiver;
        let Some(session) = &receiver.session else {
            return true;
        };
        receiver.window.lacks(block, index, session.mask(block))
    }
}

impl<S: Store> Iterator for Missing<'_, '_, S> {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        let Some(session) = &self.receiver.session else {
            // Nothing is known, so everything is missing, once.
            let first = self.block == 0;
            self.block = 1;
            return first.then_some(0..u64::MAX);
        };
        let (geometry, length) = (session.geometry(), session.length());
        let end = length.unwrap_or(u64::MAX);
        let mut start = None;
        while self.block < self.receiver.window.top() {
            let (offset, len) = geometry.span(self.block, self.index, length);
            if len == 0 {
                self.block += 1;
                self.index = 0;
                continue;
            }
            match (self.lacks(self.block, self.index), start) {
                (true, None) => start = Some(offset),
                (false, Some(start)) => return Some(start..offset),
                _ => {}
            }
            self.index += 1;
        }
        // Past everything that came: one range to the end.
        let tail = geometry.block_offset(self.receiver.window.top().max(self.block));
        let start = start.unwrap_or(tail);
        let fresh = self.block != u64::MAX;
        self.block = u64::MAX;
        (fresh && start < end).then_some(start..end)
    }
}
