//! Received data: in order for the application, out of order until the holes are filled.

use crate::ranges::{Ranges, Span};
use crate::store::{Ring, Store};

/// Limit of out-of-order ranges; a segment that would add one more is dropped.
pub(crate) const MAX_RANGES: usize = 512;

/// A receive buffer of bounded length. Data beyond it was never offered a window and is clipped.
#[derive(Debug)]
pub(crate) struct Reassembly {
    ring: Ring,
    /// First byte that the application has not read.
    read: u64,
    /// First byte that has not arrived; everything in `[read, next)` can be read.
    next: u64,
    /// Data received above `next`; begins above it.
    early: Ranges<MAX_RANGES>,
}

/// The result of inserting a segment's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Insert {
    /// `next` has advanced.
    Advanced,
    /// New, but after a hole.
    Early,
    /// Nothing of it was new.
    Old,
    /// It would have made one range too many.
    Full,
}

impl Reassembly {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            ring: Ring::new(capacity),
            read: 0,
            next: 0,
            early: Ranges::new(),
        }
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Bytes the application could read now.
    pub(crate) fn readable(&self) -> usize {
        (self.next - self.read) as usize
    }

    /// Returns the offset after the last byte that there is space for.
    pub(crate) fn limit(&self) -> u64 {
        self.read + self.ring.capacity() as u64
    }

    pub(crate) fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    pub(crate) fn early(&self) -> &[Span] {
        self.early.as_slice()
    }

    pub(crate) fn allocated(&self) -> usize {
        self.ring.allocated()
    }

    /// Whether the byte is there or was there.
    pub(crate) fn has(&self, offset: u64) -> bool {
        offset < self.next || self.early.holding(offset).is_some()
    }

    /// Inserts the new bytes of one segment that fit.
    pub(crate) fn insert(&mut self, offset: u64, bytes: &[u8]) -> Insert {
        let whole = Span::new(offset, offset + bytes.len() as u64);
        let span = whole.clip(self.next, self.limit());
        if span.is_empty() || self.early.covers(span) {
            return Insert::Old;
        }
        if span.start > self.next && self.early.insert(span).is_none() {
            return Insert::Full;
        }
        let data = &bytes[(span.start - offset) as usize..(span.end - offset) as usize];
        self.ring.put(span.start, data);
        if span.start > self.next {
            return Insert::Early;
        }
        self.next = span.end;
        if let Some(held) = self.early.first()
            && held.start <= self.next
        {
            self.next = self.next.max(held.end);
            if let Some(held) = self.early.holding(self.next) {
                self.next = held.end;
            }
            self.early.remove_below(self.next);
        }
        Insert::Advanced
    }

    /// The bytes that can be read, in two pieces.
    pub(crate) fn slices(&self) -> (&[u8], &[u8]) {
        self.ring.slices(self.read, self.next)
    }

    /// The application has read this many bytes.
    pub(crate) fn consume(&mut self, len: usize) {
        self.read += len.min(self.readable()) as u64;
        self.ring.release(self.read);
    }

    /// Discards all data, and frees its memory.
    pub(crate) fn discard(&mut self) {
        let capacity = self.ring.capacity();
        self.read = self.next;
        self.early.clear();
        self.ring = Ring::new(capacity);
        self.ring.release(self.read);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;

    /// Random segments against a map from offset to byte.
    #[test]
    fn agrees_with_a_map_of_bytes() {
        for seed in 0..300u64 {
            let mut x = seed * 2 + 1;
            let mut random = move |below: u64| {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(7);
                (x >> 33) % below
            };
            let mut machine = Reassembly::new(1 << 9);
            let mut oracle = BTreeMap::new();
            let (mut read, mut next) = (0u64, 0u64);
            for _ in 0..400 {
                let offset = (next + random(700)).saturating_sub(100);
                let len = random(90);
                let bytes: Vec<u8> = (offset..offset + len).map(|at| (at * 31) as u8).collect();
                if machine.insert(offset, &bytes) == Insert::Full {
                    continue;
                }
                for at in offset.max(next)..(offset + len).min(read + 512) {
                    oracle.insert(at, (at * 31) as u8);
                }
                while oracle.contains_key(&next) {
                    next += 1;
                }
                assert_eq!(machine.next(), next, "seed {seed}");
                assert_eq!(
                    machine.has(offset),
                    offset < next || oracle.contains_key(&offset)
                );
                let early: u64 = machine.early().iter().map(|span| span.len()).sum();
                assert_eq!(early, oracle.range(next..).count() as u64, "seed {seed}");
                let take = random(60) as usize;
                let (a, b) = machine.slices();
                let all: Vec<u8> = a.iter().chain(b).copied().collect();
                let take = take.min(all.len());
                let expected: Vec<u8> = oracle.range(read..next).map(|(_, byte)| *byte).collect();
                assert_eq!(all, expected, "seed {seed}");
                machine.consume(take);
                read += take as u64;
            }
            assert!(machine.allocated() <= 512);
        }
    }
}
