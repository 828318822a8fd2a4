//! A data node's side of the stream to its control node: registration, heartbeats, fencing, outgoing messages.

use alloc::collections::VecDeque;

use proto_core::time::{Duration, Instant};

use super::{DataConfig, DataError};
use crate::wire::Message;
use crate::wire::node::{Heartbeat, Register};

/// Heartbeats of the control node that may be missing before its stream counts as lost.
const MAX_MISSED: u32 = 4;

/// The stream to the control node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stream {
    Down,
    Up,
    /// The driver cannot write for now.
    Blocked,
}

/// State of the link to the control node.
#[derive(Debug)]
pub(super) struct ControlLink {
    boot: u32,
    stream: Stream,
    /// The highest epoch of a control node that was obeyed.
    epoch: u64,
    draining: bool,
    received_at: Instant,
    heartbeat_at: Instant,
    sequence: u32,
    queue: VecDeque<Message>,
}

impl ControlLink {
    pub(super) fn new(boot: u32, now: Instant) -> Self {
        ControlLink {
            boot,
            stream: Stream::Down,
            epoch: 0,
            draining: false,
            received_at: now,
            heartbeat_at: now,
            sequence: 0,
            queue: VecDeque::new(),
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.stream != Stream::Down
    }

    /// Registers on a new stream.
    pub(super) fn connected(&mut self, now: Instant, config: &DataConfig) {
        self.stream = Stream::Up;
        (self.received_at, self.heartbeat_at) = (now, now);
        self.queue.clear();
        self.queue.push_back(Message::Register(Register {
            node: config.node,
            boot: self.boot,
            max_sessions: config.max_sessions,
            epoch: self.epoch,
        }));
    }

    pub(super) fn disconnected(&mut self) {
        self.stream = Stream::Down;
        self.queue.clear();
    }

    pub(super) fn set_blocked(&mut self, blocked: bool) {
        if self.is_up() {
            self.stream = if blocked { Stream::Blocked } else { Stream::Up };
        }
    }

    /// Announces at once that this node wants no new sessions.
    pub(super) fn drain(&mut self, now: Instant) {
        self.draining = true;
        self.heartbeat_at = now;
    }

    /// Checks the epoch of a message that arrived.
    pub(super) fn received(&mut self, now: Instant, epoch: u64) -> Result<(), DataError> {
        if epoch < self.epoch {
            return Err(DataError::Fenced);
        }
        self.epoch = epoch;
        self.received_at = now;
        Ok(())
    }

    /// Queues a message. Returns whether the stream was given up because too many messages wait.
    #[must_use]
    pub(super) fn send(&mut self, message: Message, max_queue: usize) -> bool {
        let is_full = self.queue.len() >= max_queue;
        if is_full {
            self.disconnected();
        }
        if self.is_up() {
            self.queue.push_back(message);
        }
        is_full
    }

    fn lost_at(&self, interval: Duration) -> Instant {
        self.received_at + interval * MAX_MISSED
    }

    /// Returns whether the control node has been silent for too long.
    pub(super) fn is_lost(&self, now: Instant, interval: Duration) -> bool {
        self.lost_at(interval) <= now
    }

    /// Returns the heartbeat that is due.
    pub(super) fn poll_heartbeat(&mut self, now: Instant, interval: Duration) -> Option<Message> {
        if self.heartbeat_at > now {
            return None;
        }
        self.heartbeat_at = now + interval;
        self.sequence = self.sequence.wrapping_add(1);
        Some(Message::Heartbeat(Heartbeat {
            epoch: self.epoch,
            sequence: self.sequence,
            draining: self.draining,
            complete: false,
        }))
    }

    /// Writes the next message if `buffer` has room for it.
    pub(super) fn poll_transmit(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let first = self.queue.front()?;
        if buffer.len() < first.buffer_len() {
            return None;
        }
        let len = first.emit(buffer);
        self.queue.pop_front();
        Some(len)
    }

    /// Returns whether a message can be written.
    pub(super) fn is_ready(&self) -> bool {
        self.stream == Stream::Up && !self.queue.is_empty()
    }

    pub(super) fn poll_timeout(&self, interval: Duration) -> Instant {
        self.heartbeat_at.min(self.lost_at(interval))
    }
}

#[cfg(test)]
mod tests;
