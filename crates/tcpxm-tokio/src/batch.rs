//! Output of the machine, joined to batches that the kernel takes in one call.

use tcpxm::SegmentBatch;

use crate::shared::State;

/// Bytes and segments of one batch: the longest payload of UDP, and what the kernel cuts.
const MAX_BYTES: usize = 65_000;
const MAX_SEGMENTS: usize = 64;
/// Latest start of a batch that follows another one in the buffer.
const LATEST_START: usize = MAX_BYTES;
/// Space for two batches, and for segments that were meant for the second and do not fit.
const BUFFER_LEN: usize = LATEST_START + MAX_BYTES + 65_536;

/// Datagrams of equal length to one destination, the last perhaps shorter.
pub(crate) struct Batch {
    buffer: Vec<u8>,
    /// Offset of its first byte in the buffer.
    start: usize,
    /// Its segments, if there are any.
    segments: Option<SegmentBatch>,
    /// Bytes that the kernel has taken.
    pub(crate) sent: usize,
    /// The start of the next batch, which follows this one in the buffer.
    next: Option<SegmentBatch>,
}

impl Batch {
    pub(crate) fn new() -> Batch {
        Batch {
            buffer: vec![0; BUFFER_LEN],
            start: 0,
            segments: None,
            sent: 0,
            next: None,
        }
    }

    /// Starts the next batch after this one was sent.
    pub(crate) fn clear(&mut self) {
        let end = self.start + self.segments.map_or(0, |batch| batch.len);
        (self.start, self.sent) = (0, 0);
        self.segments = self.next.take();
        if let Some(next) = &self.segments {
            if end <= LATEST_START {
                self.start = end;
            } else {
                self.buffer.copy_within(end..end + next.len, 0);
            }
        }
    }

    /// Returns the batch and the bytes of it that the kernel has not taken, if there are any.
    pub(crate) fn rest(&self) -> Option<(SegmentBatch, &[u8])> {
        let batch = self.segments.filter(|batch| self.sent < batch.len)?;
        let bytes = &self.buffer[self.start + self.sent..self.start + batch.len];
        Some((batch, bytes))
    }

    /// Fills the batch from the machine; returns false when there is nothing to send.
    pub(crate) fn fill(&mut self, state: &mut State, now: tcpxm::Instant) -> bool {
        if self.sent > 0 {
            return true; // The rest of it is sent first.
        }
        while self.next.is_none() && !self.segments.as_ref().is_some_and(is_full) {
            let (len, segments) = self.segments.map_or((0, 0), |b| (b.len, b.segments));
            let longest = state.machine.max_segment_bytes();
            let end = self.start + len;
            let buffer = &mut self.buffer[end..end + longest.max(MAX_BYTES.saturating_sub(len))];
            let max_segments = MAX_SEGMENTS - segments;
            let polled = state.machine.poll_transmit_batch(now, buffer, max_segments);
            let Some(polled) = polled else { break };
            match &mut self.segments {
                None => self.segments = Some(polled),
                Some(batch) if can_join(batch, &polled) => {
                    batch.len += polled.len;
                    batch.segments += polled.segments;
                }
                Some(_) => self.next = Some(polled),
            }
        }
        self.segments.is_some()
    }
}

/// Whether nothing more fits: only the last segment may be shorter than the others.
fn is_full(batch: &SegmentBatch) -> bool {
    batch.segments >= MAX_SEGMENTS
        || batch.len + batch.segment_size > MAX_BYTES
        || batch.len < batch.segments * batch.segment_size
}

/// Whether these segments can be part of the batch.
fn can_join(batch: &SegmentBatch, next: &SegmentBatch) -> bool {
    let fits_size = next.segment_size == batch.segment_size
        || (next.segments == 1 && next.segment_size < batch.segment_size);
    next.destination == batch.destination && fits_size
}
