//! The receiving end of a ring for callers that cannot keep a [`Claimed`]: its messages have numbers.

use std::collections::BTreeMap;
use std::time::Duration;

use ldc_ring::{AckQueueFull, Claimed, Corrupt};

use crate::Wake;

/// The receiving end of a ring, and the messages that were claimed and not completed: at most one per slot.
pub struct Receiver {
    ring: crate::Receiver,
    claimed: BTreeMap<u64, Claimed>,
    next_id: u64,
    /// Claimed by [`Receiver::peek`].
    next: Option<Claimed>,
}

impl From<crate::Receiver> for Receiver {
    fn from(ring: crate::Receiver) -> Receiver {
        Receiver {
            ring,
            claimed: BTreeMap::new(),
            next_id: 0,
            next: None,
        }
    }
}

impl Receiver {
    /// Claims the next message, and returns it until [`Receiver::take`] or [`Receiver::claim`]. `None` if there is none now.
    ///
    /// # Errors
    /// The sender violated the protocol.
    pub fn peek(&mut self) -> Result<Option<&Claimed>, Corrupt> {
        if self.next.is_none() {
            self.next = self.ring.claim(Some(crate::now()))?;
        }
        Ok(self.next.as_ref())
    }

    /// Copies the message that [`Receiver::peek`] returned into `bytes`, as far as they reach, and completes it.
    pub fn take(&mut self, bytes: &mut [u8]) {
        if let Some(message) = self.next.take() {
            let len = bytes.len().min(message.len());
            self.ring.ring().read(&message, 0, &mut bytes[..len]);
            self.ring.complete(message);
        }
    }

    /// Claims the next message and returns it with its number, which is never used again. `None` if there is none now.
    ///
    /// # Errors
    /// The sender violated the protocol.
    pub fn claim(&mut self) -> Result<Option<(u64, &Claimed)>, Corrupt> {
        self.peek()?;
        let Some(message) = self.next.take() else {
            return Ok(None);
        };
        let id = self.next_id;
        self.next_id += 1;
        Ok(Some((id, self.claimed.entry(id).or_insert(message))))
    }

    /// Returns a claimed message; `None` if it was completed or never claimed.
    pub fn claimed(&self, id: u64) -> Option<&Claimed> {
        self.claimed.get(&id)
    }

    /// Copies from `offset` of a claimed message. Returns `false` and copies nothing if there is no such message or the range
    /// exceeds it.
    pub fn read(&mut self, id: u64, offset: usize, bytes: &mut [u8]) -> bool {
        let Some(message) = self.claimed.get(&id) else {
            return false;
        };
        let end = offset.checked_add(bytes.len());
        let fits = end.is_some_and(|end| end <= message.len());
        if fits {
            self.ring.ring().read(message, offset, bytes);
        }
        fits
    }

    /// Returns whether the sender has abandoned a claimed message; `None` if there is no such message.
    pub fn is_abandoned(&mut self, id: u64) -> Option<bool> {
        let message = self.claimed.get(&id)?;
        Some(self.ring.ring().is_abandoned(message))
    }

    /// Tells the sender that a claimed message was acknowledged; `None` if there is no such message.
    pub fn ack(&mut self, id: u64) -> Option<Result<(), AckQueueFull>> {
        let ticket = self.claimed.get(&id)?.ticket();
        Some(self.ring.ring().ack(ticket))
    }

    /// Releases the slots of a claimed message. Returns `false` if there is no such message.
    pub fn complete(&mut self, id: u64) -> bool {
        let message = self.claimed.remove(&id);
        message.map(|message| self.ring.complete(message)).is_some()
    }

    /// As [`crate::Receiver::wait`].
    pub fn wait(&mut self, timeout: Option<Duration>) -> Wake {
        if self.next.is_some() {
            return Wake::Ready;
        }
        self.ring.wait(timeout)
    }

    /// Returns the ring, for its counters and its descriptor.
    pub fn ring(&mut self) -> &mut crate::Receiver {
        &mut self.ring
    }
}
