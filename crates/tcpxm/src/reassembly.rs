//! Received data: in order for the application, out of order until the holes are filled.

use crate::ranges::{Ranges, Span};
use crate::store::{Ring, Store};

/// Limit of out-of-order ranges; a segment that would add one more is dropped.
pub(crate) const MAX_RANGES: usize = 128;

/// A receive buffer of bounded length. Data beyond it was never offered a window and is clipped.
pub(crate) struct Reassembly {
    ring: Ring,
    /// First byte that the application has not read.
    read: u64,
    /// First byte that has not arrived; everything in `[read, next)` can be read.
    next: u64,
    /// Data received above `next`; begins above it.
    early: Ranges<MAX_RANGES>,
}

/// The destination buffer of a reader for the next bytes.
#[derive(Debug, Default)]
pub(crate) struct Landing<'a> {
    pub(crate) room: &'a mut [u8],
    /// Bytes of it that are filled.
    pub(crate) len: usize,
}

impl Landing<'_> {
    /// Takes as many bytes as there is space for; returns the rest.
    fn take<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let room = &mut self.room[self.len..];
        let (taken, rest) = bytes.split_at(bytes.len().min(room.len()));
        room[..taken.len()].copy_from_slice(taken);
        self.len += taken.len();
        rest
    }
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

    /// Inserts the data of one segment, clipped to what is new and fits. Data in order goes to `out` as far as
    /// that has space, and counts as read: it never enters the buffer.
    pub(crate) fn insert(&mut self, offset: u64, bytes: &[u8], out: &mut Landing<'_>) -> Insert {
        let whole = Span::new(offset, offset + bytes.len() as u64);
        let span = whole.clip(self.next, self.limit());
        if span.is_empty() || self.early.covers(span) {
            return Insert::Old;
        }
        if span.start > self.next && self.early.insert(span).is_none() {
            return Insert::Full;
        }
        let mut data = &bytes[(span.start - offset) as usize..(span.end - offset) as usize];
        if span.start == self.next && self.read == self.next {
            data = out.take(data);
            self.read = span.end - data.len() as u64;
            self.ring.release(self.read);
        }
        if !data.is_empty() {
            self.ring.put(span.end - data.len() as u64, data);
        }
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

    /// Throws all data away, and the memory with it.
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
            let (mut read, mut next, mut direct) = (0u64, 0u64, 0);
            for _ in 0..400 {
                let offset = (next + random(700)).saturating_sub(100);
                let len = random(90);
                let bytes: Vec<u8> = (offset..offset + len).map(|at| (at * 31) as u8).collect();
                // A reader may wait for the next bytes, with more or less space.
                let mut room = alloc::vec![0; random(3) as usize * random(50) as usize];
                let room = &mut room[..];
                let mut out = Landing { room, len: 0 };
                let verdict = machine.insert(offset, &bytes, &mut out);
                if verdict == Insert::Full {
                    assert_eq!(out.len, 0);
                    continue;
                }
                for at in offset.max(next)..(offset + len).min(read + 512) {
                    oracle.insert(at, (at * 31) as u8);
                }
                while oracle.contains_key(&next) {
                    next += 1;
                }
                let landed: Vec<u8> = (read..).take(out.len).map(|at| oracle[&at]).collect();
                assert_eq!(out.room[..out.len], landed[..], "seed {seed}");
                direct += out.len;
                read += out.len as u64;
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
            assert!(direct > 0, "seed {seed}");
            assert!(machine.allocated() <= 512);
        }
    }
}
