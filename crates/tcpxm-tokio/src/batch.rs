//! Output of the machine, joined to batches that the kernel takes in one call.

use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::Bytes;
use tcpxm::SegmentBatch;

use crate::shared::State;

/// Bytes and segments of one batch: the longest payload of UDP, and what the kernel cuts.
const MAX_BYTES: usize = 65_000;
const MAX_SEGMENTS: usize = 64;
/// Room for a batch, and for segments that were meant for it and did not fit.
const LONGEST: usize = MAX_BYTES + 65_536;
/// Latest start of a batch that follows another one in the buffer.
const LATEST_START: usize = MAX_BYTES;

/// Datagrams of equal length to one destination, the last perhaps shorter: whole in the buffer, or only their headers
/// there and the data in the blocks of the group's store.
pub(crate) struct Batch {
    buffer: Vec<u8>,
    /// Offset of its first byte in the buffer.
    start: usize,
    /// Bytes of it in the buffer.
    written: usize,
    destination: Option<SocketAddr>,
    /// Source address, where the carrier needs it: all connections of an endpoint share it.
    source: IpAddr,
    pub(crate) segment_len: usize,
    /// Bytes of each segment that are in the buffer, if the rest is in `parts`.
    header_len: Option<usize>,
    segments: usize,
    /// Bytes of all segments.
    len: usize,
    /// Bytes that the kernel has taken.
    pub(crate) sent: usize,
    /// The data that follows the headers.
    parts: Vec<Bytes>,
    /// A contiguous copy, when the kernel did not take the parts.
    flat: Vec<u8>,
    /// The start of the next batch, which follows this one in the buffer.
    next: Option<(SegmentBatch, Vec<Bytes>)>,
}

impl Batch {
    pub(crate) fn new() -> Batch {
        Batch {
            buffer: vec![0; LATEST_START + 2 * LONGEST],
            start: 0,
            written: 0,
            destination: None,
            source: Ipv4Addr::UNSPECIFIED.into(),
            segment_len: 0,
            header_len: None,
            segments: 0,
            len: 0,
            sent: 0,
            parts: Vec::new(),
            flat: Vec::new(),
            next: None,
        }
    }

    /// Starts the next batch after this one was sent.
    pub(crate) fn clear(&mut self) {
        let end = self.start + self.written;
        (self.start, self.written, self.len) = (0, 0, 0);
        (self.sent, self.segments) = (0, 0);
        self.destination = None;
        self.parts.clear();
        self.flat.clear();
        if let Some((next, parts)) = self.next.take() {
            if end <= LATEST_START {
                self.start = end;
            } else {
                self.buffer.copy_within(end..end + next.written(), 0);
            }
            self.parts = parts;
            self.add(&next);
        }
    }

    /// Returns source and destination.
    pub(crate) fn addresses(&self) -> Option<(IpAddr, SocketAddr)> {
        Some((self.source, self.destination?))
    }

    /// Bytes that the kernel has not taken yet.
    pub(crate) fn left(&self) -> usize {
        self.len - self.sent
    }

    /// Returns the bytes that the kernel has not taken, if they are contiguous.
    pub(crate) fn rest(&self) -> Option<&[u8]> {
        if !self.flat.is_empty() {
            return Some(&self.flat[self.sent..]);
        }
        let whole = self.header_len.is_none();
        whole.then(|| &self.buffer[self.start + self.sent..self.start + self.written])
    }

    /// Returns headers and data in the order in which they are sent.
    pub(crate) fn parts(&self) -> Vec<IoSlice<'_>> {
        let header_len = self.header_len.unwrap_or(self.segment_len);
        let headers = self.buffer[self.start..self.start + self.written].chunks(header_len);
        let mut slices = Vec::with_capacity(2 * self.segments + self.parts.len());
        let mut parts = self.parts.iter();
        let mut part: &[u8] = &[];
        for header in headers {
            slices.push(IoSlice::new(header));
            let mut wanted = self.segment_len - header_len;
            while wanted > 0 {
                if part.is_empty() {
                    let Some(next) = parts.next() else { break };
                    part = next;
                }
                let (piece, rest) = part.split_at(part.len().min(wanted));
                slices.push(IoSlice::new(piece));
                wanted -= piece.len();
                part = rest;
            }
        }
        slices
    }

    /// Copies the parts into one piece.
    pub(crate) fn flatten(&mut self) {
        let mut flat = std::mem::take(&mut self.flat);
        for part in self.parts() {
            flat.extend_from_slice(&part);
        }
        self.flat = flat;
    }

    fn add(&mut self, batch: &SegmentBatch) {
        if self.len == 0 {
            self.segment_len = batch.segment_size;
            self.header_len = batch.lent_by.map(|_| batch.header_len);
        }
        self.destination = Some(batch.destination);
        self.source = batch.source;
        self.written += batch.written();
        self.len += batch.len;
        self.segments += batch.segments;
    }

    /// Whether these segments can be part of this batch.
    fn accepts(&self, next: &SegmentBatch) -> bool {
        let is_one_destination = self
            .destination
            .is_none_or(|known| known == next.destination);
        let fits_size = next.segment_size == self.segment_len
            || (next.segments == 1 && next.segment_size < self.segment_len);
        let same_parts = next.lent_by.map(|_| next.header_len) == self.header_len;
        self.len == 0 || (is_one_destination && fits_size && same_parts)
    }

    /// Fills the batch from the machine, with parts if the kernel takes them; returns false when there is nothing to
    /// send.
    pub(crate) fn fill(&mut self, state: &mut State, now: tcpxm::Instant, in_parts: bool) -> bool {
        if self.sent > 0 || !self.flat.is_empty() {
            return true; // The rest of it is sent first.
        }
        while self.next.is_none() && !self.is_full() {
            let longest = state.machine.max_segment_bytes();
            let left = MAX_BYTES.saturating_sub(self.len);
            let end = self.start + self.written;
            let buffer = &mut self.buffer[end..end + longest.max(left)];
            let max_segments = MAX_SEGMENTS - self.segments;
            let polled = if in_parts {
                let segment_len = if self.len > 0 {
                    self.segment_len
                } else {
                    longest
                };
                let max_segments = max_segments.min((left / segment_len).max(1));
                state
                    .machine
                    .poll_transmit_gather(now, buffer, max_segments)
            } else {
                state.machine.poll_transmit_batch(now, buffer, max_segments)
            };
            let Some(polled) = polled else { break };
            let fits = self.accepts(&polled);
            let mut others = Vec::new();
            let parts = if fits { &mut self.parts } else { &mut others };
            if let Some(group) = polled.lent_by
                && let Ok(store) = state.machine.store_mut(group)
            {
                store.take_lent(parts);
            }
            if fits {
                self.add(&polled);
            } else {
                self.next = Some((polled, others));
            }
        }
        self.len > 0
    }

    /// Whether nothing more fits: only the last segment may be shorter than the others.
    fn is_full(&self) -> bool {
        self.segments >= MAX_SEGMENTS
            || self.len + self.segment_len > MAX_BYTES
            || self.len < self.segments * self.segment_len
    }
}
