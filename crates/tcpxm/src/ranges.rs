//! A bounded, sorted list of disjoint ranges of stream offsets.

use alloc::vec::Vec;

/// Bytes `[start, end)` of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Span {
    pub(crate) const fn new(start: u64, end: u64) -> Self {
        Self { start, end }
    }

    pub(crate) const fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.start >= self.end
    }

    pub(crate) fn clip(self, start: u64, end: u64) -> Self {
        Self::new(self.start.max(start), self.end.min(end))
    }
}

/// At most `N` ranges, sorted, disjoint and not touching each other; 16 bytes each.
#[derive(Clone, Default, Debug)]
pub(crate) struct Ranges<const N: usize> {
    list: Vec<Span>,
    /// Sum of the lengths.
    bytes: u64,
}

impl<const N: usize> Ranges<N> {
    pub(crate) const fn new() -> Self {
        Self {
            list: Vec::new(),
            bytes: 0,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn as_slice(&self) -> &[Span] {
        &self.list
    }

    pub(crate) fn first(&self) -> Option<Span> {
        self.list.first().copied()
    }

    pub(crate) fn last(&self) -> Option<Span> {
        self.list.last().copied()
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.bytes = 0;
    }

    /// Returns the index of the first range that ends after `offset`, or at it with `touch`.
    fn find(&self, offset: u64, touch: bool) -> usize {
        self.list
            .partition_point(|span| span.end < offset || (span.end == offset && !touch))
    }

    /// The range that holds the byte at `offset`.
    pub(crate) fn holding(&self, offset: u64) -> Option<Span> {
        let span = *self.list.get(self.find(offset, false))?;
        (span.start <= offset).then_some(span)
    }

    /// Whether all bytes of the range are in the list.
    pub(crate) fn covers(&self, span: Span) -> bool {
        self.holding(span.start)
            .is_some_and(|held| held.end >= span.end)
    }

    /// Adds a range; returns how many bytes were new, or `None` if it would be one range too many and nothing
    /// was added.
    pub(crate) fn insert(&mut self, span: Span) -> Option<u64> {
        if span.is_empty() {
            return Some(0);
        }
        let from = self.find(span.start, true);
        let to = self.list[from..]
            .iter()
            .position(|held| held.start > span.end)
            .map_or(self.list.len(), |more| from + more);
        if from == to {
            if self.list.len() >= N {
                return None;
            }
            self.list.insert(from, span);
            self.bytes += span.len();
            return Some(span.len());
        }
        let old: u64 = self.list[from..to].iter().map(|held| held.len()).sum();
        let merged = Span::new(
            span.start.min(self.list[from].start),
            span.end.max(self.list[to - 1].end),
        );
        self.list[from] = merged;
        self.list.drain(from + 1..to);
        self.bytes += merged.len() - old;
        Some(merged.len() - old)
    }

    /// Removes a range; returns how many bytes were there. If that would cut one range into one too many, the
    /// shorter part is removed too.
    pub(crate) fn remove(&mut self, span: Span) -> u64 {
        let mut at = self.find(span.start, false);
        let before = self.bytes;
        while let Some(held) = self.list.get(at).copied() {
            if held.start >= span.end {
                break;
            }
            self.list.remove(at);
            self.bytes -= held.len();
            let left = held.clip(0, span.start);
            let mut right = held.clip(span.end, u64::MAX);
            let mut left = if left.is_empty() { None } else { Some(left) };
            if let Some(part) = left
                && !right.is_empty()
                && self.list.len() + 2 > N
            {
                if part.len() < right.len() {
                    left = None;
                } else {
                    right = Span::new(0, 0);
                }
            }
            for part in left.into_iter().chain((!right.is_empty()).then_some(right)) {
                self.list.insert(at, part);
                self.bytes += part.len();
                at += 1;
            }
        }
        before - self.bytes
    }

    /// Removes everything before `offset`; returns how many bytes were there.
    pub(crate) fn remove_below(&mut self, offset: u64) -> u64 {
        match self.list.first() {
            Some(first) if first.start < offset => self.remove(Span::new(0, offset)),
            _ => 0,
        }
    }

    /// The parts of `[start, end)` that are not in the list, in order.
    pub(crate) fn gaps(&self, start: u64, end: u64) -> impl Iterator<Item = Span> + '_ {
        let mut at = start;
        let mut index = self.find(start, false);
        core::iter::from_fn(move || {
            while at < end {
                let next = self.list.get(index).copied();
                let gap_end = next.map_or(end, |held| held.start.min(end));
                let gap = Span::new(at, gap_end);
                at = next.map_or(end, |held| held.end);
                index += 1;
                if !gap.is_empty() {
                    return Some(gap);
                }
            }
            None
        })
    }
}
