//! The ranges that were sent again and are not yet acknowledged.

use alloc::vec::Vec;

use proto_core::time::Instant;

use crate::ranges::Span;

/// Limit of ranges sent again and not yet acknowledged, 32 bytes each; others wait.
pub(crate) const MAX_AGAIN: usize = 256;

#[derive(Clone, Copy, Debug)]
pub(super) struct Again {
    pub(super) span: Span,
    pub(super) time: Instant,
    /// By multicast.
    pub(super) shared: bool,
}

/// Disjoint, in the order of the stream.
#[derive(Clone, Default, Debug)]
pub(super) struct Resent(Vec<Again>);

impl Resent {
    #[cfg(test)]
    pub(super) fn as_slice(&self) -> &[Again] {
        &self.0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= MAX_AGAIN
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn retain(&mut self, keep: impl FnMut(&Again) -> bool) {
        self.0.retain(keep);
    }

    /// Returns the index of the first range that ends after `offset`.
    fn find(&self, offset: u64) -> usize {
        self.0.partition_point(|again| again.span.end <= offset)
    }

    /// The range that holds the byte at `offset`.
    pub(super) fn holding(&self, offset: u64) -> Option<Span> {
        let span = self.0.get(self.find(offset))?.span;
        (span.start <= offset).then_some(span)
    }

    /// Returns where the first range after the byte at `offset` begins.
    pub(super) fn next_start(&self, offset: u64) -> Option<u64> {
        let at = self.0.partition_point(|again| again.span.start <= offset);
        self.0.get(at).map(|again| again.span.start)
    }

    /// The ranges of which some bytes are in `span`.
    pub(super) fn within(&self, span: Span) -> &[Again] {
        let from = self.find(span.start);
        let to = self.0.partition_point(|again| again.span.start < span.end);
        &self.0[from..to.max(from)]
    }

    /// Removes a range; the parts on either side stay. If that is one range too many, the later part is removed too:
    /// returns where it begins.
    pub(super) fn cut(&mut self, span: Span) -> Option<u64> {
        let from = self.find(span.start);
        let to = from + self.within(span).len();
        if from == to {
            return None;
        }
        let (first, last) = (self.0[from], self.0[to - 1]);
        let left = first.span.clip(0, span.start);
        let right = last.span.clip(span.end, u64::MAX);
        let parts = [(first, left), (last, right)].into_iter();
        let parts = parts.filter(|(_, span)| !span.is_empty());
        self.0
            .splice(from..to, parts.map(|(again, span)| Again { span, ..again }));
        (self.0.len() > MAX_AGAIN).then(|| {
            let at = self.find(right.start);
            self.0.remove(at).span.start
        })
    }

    /// Adds a range, in place of what was known of its bytes. Returns where bytes begin that are forgotten for it.
    pub(super) fn insert(&mut self, again: Again) -> Option<u64> {
        let cut = self.cut(again.span);
        let at = self.find(again.span.start);
        if let Some(before) = at.checked_sub(1).and_then(|at| self.0.get_mut(at))
            && before.span.end == again.span.start
            && (before.time, before.shared) == (again.time, again.shared)
        {
            before.span.end = again.span.end;
            return cut;
        }
        let forgotten = if self.is_full() {
            Some(self.0.remove(0).span.start)
        } else {
            None
        };
        let at = self.find(again.span.start);
        self.0.insert(at, again);
        cut.into_iter().chain(forgotten).min()
    }
}
