//! Output of a connection: messages and bulk data in one order, real-time data in a queue of its own whose oldest frames give
//! way. What was put in first leaves first.

use std::collections::VecDeque;

use serde::Serialize;

use crate::frame::{self, HEADER_LEN, Type};

/// Most bytes of bulk data that wait for a client.
pub const MAX_BULK: usize = 256 << 10;
/// Most bytes of messages that wait for a client.
pub const MAX_CONTROL: usize = 4 << 20;
/// Bytes that are handed to the kernel at once.
const CHUNK: usize = 64 << 10;
/// What a frame in a queue takes beside its bytes, at most.
pub(crate) const OVERHEAD: usize = 64;

#[derive(Debug)]
struct Waiting {
    number: u64,
    bulk: bool,
    bytes: Vec<u8>,
}

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    next: u64,
    ordered: VecDeque<Waiting>,
    real_time: VecDeque<Waiting>,
    bulk_bytes: usize,
    control_bytes: usize,
    real_time_bytes: usize,
    /// Frames on their way to the kernel, from `sent` on.
    chunk: Vec<u8>,
    sent: usize,
}

/// Memory of a frame in a queue.
fn cost(bytes: &[u8]) -> usize {
    bytes.len() + OVERHEAD
}

fn framed(kind: Type, channel: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_LEN + body.len());
    frame::emit(&mut bytes, kind, channel, body);
    bytes
}

impl Queue {
    /// Adds a message. Returns false if [`MAX_CONTROL`] is reached: the client does not read.
    pub(crate) fn push(&mut self, kind: Type, channel: u64, body: &impl Serialize) -> bool {
        // Objects of strings and numbers: this cannot fail.
        let body = serde_json::to_vec(body).unwrap_or_default();
        self.push_bytes(kind, channel, &body)
    }

    /// Adds a message without a body, as [`push`](Self::push).
    pub(crate) fn push_empty(&mut self, kind: Type, channel: u64) -> bool {
        self.push_bytes(kind, channel, &[])
    }

    fn push_bytes(&mut self, kind: Type, channel: u64, body: &[u8]) -> bool {
        let bytes = framed(kind, channel, body);
        if self.control_bytes + cost(&bytes) > MAX_CONTROL {
            return false;
        }
        self.control_bytes += cost(&bytes);
        self.order(bytes, false);
        true
    }

    fn order(&mut self, bytes: Vec<u8>, bulk: bool) {
        let number = self.take_number();
        self.ordered.push_back(Waiting {
            number,
            bulk,
            bytes,
        });
    }

    fn take_number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Adds bulk data. Returns false if [`MAX_BULK`] is reached: nothing was added.
    pub(crate) fn push_bulk(&mut self, channel: u64, data: &[u8]) -> bool {
        if self.bulk_bytes >= MAX_BULK {
            return false;
        }
        let bytes = framed(Type::Data, channel, data);
        self.bulk_bytes += cost(&bytes);
        self.order(bytes, true);
        true
    }

    /// Adds real-time data; returns the number of older frames that `most` bytes left no room for.
    pub(crate) fn push_real_time(&mut self, channel: u64, data: &[u8], most: usize) -> u64 {
        let bytes = framed(Type::Data, channel, data);
        let mut dropped = 0;
        while self.real_time_bytes + cost(&bytes) > most
            && let Some(oldest) = self.real_time.pop_front()
        {
            self.real_time_bytes -= cost(&oldest.bytes);
            dropped += 1;
        }
        self.real_time_bytes += cost(&bytes);
        let number = self.take_number();
        self.real_time.push_back(Waiting {
            number,
            bulk: false,
            bytes,
        });
        dropped
    }

    /// Returns whether bulk data may continue that had to wait.
    pub(crate) fn takes_bulk(&self) -> bool {
        self.bulk_bytes <= MAX_BULK / 2
    }

    /// Returns whether little waits, so that announcements can be added.
    pub(crate) fn is_short(&self) -> bool {
        self.control_bytes + self.bulk_bytes < CHUNK
    }

    /// Returns the bytes to write next.
    pub(crate) fn output(&mut self) -> &[u8] {
        if self.sent == self.chunk.len() {
            self.chunk.clear();
            self.sent = 0;
            while self.chunk.len() < CHUNK
                && let Some(next) = self.take_next()
            {
                self.chunk.extend_from_slice(&next);
            }
        }
        &self.chunk[self.sent..]
    }

    fn take_next(&mut self) -> Option<Vec<u8>> {
        let number = |queue: &VecDeque<Waiting>| queue.front().map(|one| one.number);
        let real_time_first = match (number(&self.real_time), number(&self.ordered)) {
            (Some(real_time), Some(ordered)) => real_time < ordered,
            (real_time, _) => real_time.is_some(),
        };
        if real_time_first {
            let one = self.real_time.pop_front()?;
            self.real_time_bytes -= cost(&one.bytes);
            return Some(one.bytes);
        }
        let one = self.ordered.pop_front()?;
        match one.bulk {
            true => self.bulk_bytes -= cost(&one.bytes),
            false => self.control_bytes -= cost(&one.bytes),
        }
        Some(one.bytes)
    }

    /// Says that the first `len` bytes of [`output`](Self::output) were written.
    pub(crate) fn sent(&mut self, len: usize) {
        self.sent = (self.sent + len).min(self.chunk.len());
    }
}
