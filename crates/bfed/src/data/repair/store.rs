//! The sender's side of an edge: packets that can be sent again.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use proto_core::time::{Duration, Instant};

use super::super::queue::Timing;
use super::Pool;
use super::parity::{Made, Protection};
use crate::wire::data::Kind;

/// Most bytes of packets of one edge that are kept.
const MAX_STORED: usize = 256 << 10;
/// Most answers to requests for one packet.
const MAX_ANSWERS: u8 = 8;
/// Shortest time between two answers for one packet: a receiver asks again after a round trip.
const LEAST_INTERVAL: Duration = Duration::from_millis(5);
/// Of the bytes that were sent, the part that may be sent again.
const SHARE: usize = 4;
/// Most bytes that may be sent again in a burst, and those that a new edge may.
const BURST: usize = 64 << 10;
/// Silence after a packet until a TAIL follows.
const TAIL_DELAY: Duration = Duration::from_millis(25);

/// A packet that was sent.
#[derive(Debug)]
struct Stored {
    sequence: u32,
    kind: Kind,
    timing: Timing,
    bytes: Arc<[u8]>,
    answers: u8,
    answered_at: Option<Instant>,
}

impl Stored {
    fn cost(&self) -> usize {
        self.bytes.len() + size_of::<Stored>()
    }
}

/// Why a packet is not sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    /// It is not there any more, or would come too late.
    Gone,
    /// It was sent again just now, or too often; or too much was.
    Rate,
}

/// The last packet, until a TAIL names it.
#[derive(Clone, Copy, Debug)]
struct Tail {
    /// When to look whether a TAIL is due. It stays while further packets are sent, so that they set no timer.
    at: Instant,
    sent_at: Instant,
    timing: Timing,
}

/// The packets that were sent on one edge.
#[derive(Debug)]
pub(in super::super) struct Store {
    /// The number of the last packet.
    sequence: u32,
    /// In the order in which they were sent.
    packets: VecDeque<Stored>,
    bytes: usize,
    /// Bytes that may be sent again.
    credit: usize,
    tail: Option<Tail>,
    protection: Protection,
}

impl Default for Store {
    fn default() -> Self {
        Store {
            sequence: 0,
            packets: VecDeque::new(),
            bytes: 0,
            credit: BURST,
            tail: None,
            protection: Protection::default(),
        }
    }
}

impl Store {
    /// Returns the number of the next packet, which is not 0.
    pub(in super::super) fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        self.sequence
    }

    /// Sets the number of the last packet, where another counts.
    pub(in super::super) fn set_sequence(&mut self, sequence: u32) {
        self.sequence = sequence;
    }

    /// Returns the number of the last packet.
    pub(super) fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Returns the bytes that are kept.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn forget_first(&mut self, pool: &mut Pool) {
        if let Some(first) = self.packets.pop_front() {
            self.bytes -= first.cost();
            pool.remove(first.cost());
        }
    }

    /// Keeps the packet that was sent last. Returns whether a timer is to be set.
    pub(super) fn keep(
        &mut self,
        now: Instant,
        (kind, bytes): (Kind, Arc<[u8]>),
        timing: Timing,
        pool: &mut Pool,
    ) -> bool {
        let is_late = |one: &Stored| one.timing.expires().is_some_and(|at| at < now);
        while self.packets.front().is_some_and(is_late) {
            self.forget_first(pool);
        }
        self.credit = (self.credit + bytes.len() / SHARE).min(BURST);
        let stored = Stored {
            sequence: self.sequence,
            kind,
            timing,
            bytes,
            answers: 0,
            answered_at: None,
        };
        let cost = stored.cost();
        while !self.packets.is_empty() && (self.bytes + cost > MAX_STORED || !pool.fits(cost)) {
            self.forget_first(pool);
        }
        if pool.fits(cost) {
            pool.add(cost);
            self.bytes += cost;
            self.packets.push_back(stored);
        }
        let at = self.tail.map(|tail| tail.at);
        self.tail = Some(Tail {
            at: at.unwrap_or(now + TAIL_DELAY),
            sent_at: now,
            timing,
        });
        at.is_none()
    }

    /// Adds the packet that was sent last to its block. Returns the parity of the block that it ends.
    pub(super) fn protect(
        &mut self,
        now: Instant,
        packet: (Kind, Arc<[u8]>),
        timing: Timing,
    ) -> Option<Made> {
        let made = self.protection.add(now, self.sequence, packet, timing);
        made.and_then(|made| self.afford(made))
    }

    /// Takes the bytes of parity from those that may be sent again.
    fn afford(&mut self, mut made: Made) -> Option<Made> {
        let credit = &mut self.credit;
        made.payloads.retain(|payload| {
            let fits = payload.len() <= *credit;
            *credit -= if fits { payload.len() } else { 0 };
            fits
        });
        (!made.payloads.is_empty()).then_some(made)
    }

    /// Ends the block. Returns its parity.
    pub(super) fn end_block(&mut self) -> Option<Made> {
        let made = self.protection.end();
        made.and_then(|made| self.afford(made))
    }

    /// The receiver lost packets that it had no time to ask for.
    pub(super) fn raise_parity(&mut self) {
        self.protection.raise();
    }

    /// Returns a packet that is to be sent again, unless it would arrive too late.
    pub(super) fn again(
        &mut self,
        now: Instant,
        sequence: u32,
        rtt: Duration,
    ) -> Result<(Kind, Arc<[u8]>, Timing), Refused> {
        let newest = self.sequence;
        let age = |one: &Stored| newest.wrapping_sub(one.sequence);
        let asked = newest.wrapping_sub(sequence);
        let at = self.packets.partition_point(|one| age(one) > asked);
        let one = self.packets.get_mut(at);
        let one = one.filter(|one| one.sequence == sequence);
        let one = one.ok_or(Refused::Gone)?;
        let arrival = now + rtt / 2;
        if one.timing.expires().is_some_and(|at| at < arrival) {
            return Err(Refused::Gone);
        }
        let interval = (rtt - rtt / 4).max(LEAST_INTERVAL);
        let is_soon = one.answered_at.is_some_and(|last| last + interval > now);
        if is_soon || one.answers >= MAX_ANSWERS || one.bytes.len() > self.credit {
            return Err(Refused::Rate);
        }
        self.credit -= one.bytes.len();
        one.answers += 1;
        one.answered_at = Some(now);
        Ok((one.kind, one.bytes.clone(), one.timing))
    }

    /// Returns the class and the time of the last packet if a TAIL is due.
    pub(super) fn poll_tail(&mut self, now: Instant) -> Option<Timing> {
        let tail = self.tail.as_mut().filter(|tail| tail.at <= now)?;
        let due = tail.sent_at + TAIL_DELAY;
        if due > now {
            tail.at = due;
            return None;
        }
        self.tail.take().map(|tail| tail.timing)
    }

    /// Returns when [`Store::poll_tail`] is due.
    pub(in super::super) fn poll_timeout(&self) -> Option<Instant> {
        self.tail.map(|tail| tail.at)
    }
}
