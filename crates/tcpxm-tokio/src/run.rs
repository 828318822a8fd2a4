//! What the machine has to send, gathered into runs that the kernel takes at once.

use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::Bytes;
use tcpxm::Gather;

use crate::shared::State;

/// Datagrams of one destination in a row, handed to the kernel at once: the longest payload of UDP.
const RUN_BYTES: usize = 65_000;
const RUN_SEGMENTS: usize = 64;
/// Room for a run, and for what was meant for it and did not fit.
const LONGEST: usize = RUN_BYTES + 65_536;
/// A run that begins in what follows another one begins here at the latest.
const LATEST_START: usize = RUN_BYTES;

/// Datagrams of equal length to one destination, the last perhaps shorter: whole in the buffer, or only
/// their headers there and the rest in the blocks that the group was given.
pub(crate) struct Run {
    buffer: Vec<u8>,
    /// Where it begins.
    start: usize,
    /// Bytes of it in the buffer.
    written: usize,
    destination: Option<SocketAddr>,
    /// Where it comes from, as far as the carrier needs it: the endpoint's connections share that.
    source: IpAddr,
    pub(crate) segment_len: usize,
    /// Bytes of each segment that are in the buffer, where that is not all.
    header_len: Option<usize>,
    segments: usize,
    /// Bytes of all segments.
    len: usize,
    /// Bytes of it that the kernel has taken.
    pub(crate) sent: usize,
    /// What follows the headers.
    parts: Vec<Bytes>,
    /// The run in one piece, where the kernel does not take it in parts.
    flat: Vec<u8>,
    /// What lies behind it: the begin of the next run.
    next: Option<(Gather, Vec<Bytes>)>,
}

impl Run {
    pub(crate) fn new() -> Run {
        Run {
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

    /// The run was sent: what came after it is the start of the next one.
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

    /// From where to where it goes.
    pub(crate) fn way(&self) -> Option<(IpAddr, SocketAddr)> {
        Some((self.source, self.destination?))
    }

    /// Bytes that the kernel has not taken.
    pub(crate) fn left(&self) -> usize {
        self.len - self.sent
    }

    /// What the kernel has not taken of it, where it is in one piece.
    pub(crate) fn rest(&self) -> Option<&[u8]> {
        if !self.flat.is_empty() {
            return Some(&self.flat[self.sent..]);
        }
        let whole = self.header_len.is_none();
        whole.then(|| &self.buffer[self.start + self.sent..self.start + self.written])
    }

    /// Its parts, in the order in which they are sent.
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

    /// Puts the parts together.
    pub(crate) fn flatten(&mut self) {
        let mut flat = std::mem::take(&mut self.flat);
        for part in self.parts() {
            flat.extend_from_slice(&part);
        }
        self.flat = flat;
    }

    fn add(&mut self, gather: &Gather) {
        let train = &gather.train;
        if self.len == 0 {
            self.segment_len = train.stride;
            self.header_len = gather.lender.map(|_| gather.header_len);
        }
        self.destination = Some(train.destination);
        self.source = train.source;
        self.written += gather.written();
        self.len += train.len;
        self.segments += train.packets;
    }

    /// Whether what the machine had next belongs to it.
    fn takes(&self, gather: &Gather) -> bool {
        let train = &gather.train;
        let same = self
            .destination
            .is_none_or(|known| known == train.destination);
        let stride = train.stride == self.segment_len
            || (train.packets == 1 && train.stride < self.segment_len);
        let parts = gather.lender.map(|_| gather.header_len) == self.header_len;
        self.len == 0 || (same && stride && parts)
    }

    /// Fills the run from the machine, with parts if the kernel takes them; false when there is nothing
    /// to send.
    pub(crate) fn fill(&mut self, state: &mut State, now: tcpxm::Instant, in_parts: bool) -> bool {
        if self.sent > 0 || !self.flat.is_empty() {
            return true; // What is left of it goes first.
        }
        while self.next.is_none() && !self.is_full() {
            let longest = state.machine.max_segment_bytes();
            let left = RUN_BYTES.saturating_sub(self.len);
            let end = self.start + self.written;
            let buffer = &mut self.buffer[end..end + longest.max(left)];
            let stride = if self.len > 0 {
                self.segment_len
            } else {
                longest
            };
            let most = (RUN_SEGMENTS - self.segments).min((left / stride).max(1));
            let polled = if in_parts {
                state.machine.poll_gather(now, buffer, most)
            } else {
                let train = state
                    .machine
                    .poll_train(now, buffer, RUN_SEGMENTS - self.segments);
                train.map(Gather::from)
            };
            let Some(gather) = polled else { break };
            let fits = self.takes(&gather);
            let mut others = Vec::new();
            let parts = if fits { &mut self.parts } else { &mut others };
            if let Some(group) = gather.lender
                && let Ok(store) = state.machine.store_mut(group)
            {
                store.take_lent(parts);
            }
            if fits {
                self.add(&gather);
            } else {
                self.next = Some((gather, others));
            }
        }
        self.len > 0
    }

    /// Nothing fits any more. Only the last one may be shorter.
    fn is_full(&self) -> bool {
        self.segments >= RUN_SEGMENTS
            || self.len + self.segment_len > RUN_BYTES
            || self.len < self.segments * self.segment_len
    }
}
