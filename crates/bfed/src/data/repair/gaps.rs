//! The receiver's side of an edge: which packets are missing, and those that wait for them.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;

use proto_core::time::{Duration, Instant};

use super::super::queue::Timing;
use super::Pool;
use super::parity::{BLOCK_TIME, Blocks};
use crate::wire::data::Kind;
use crate::wire::repair::Request;

/// Most packets that one edge misses at a time. The oldest ones are given up for newer ones.
const MAX_MISSING: usize = 256;
/// A number that is further than this from the next one begins a new count. Otherwise one forged number would make all that
/// follow old.
const FAR: u32 = 1024;
/// Most bytes of packets of one edge that wait for missing ones.
const MAX_HELD: usize = 256 << 10;
/// Time after which a packet is asked for: one that was only overtaken by others comes sooner.
const REORDERING: Duration = Duration::from_millis(2);
/// Most requests for one packet.
const MAX_REQUESTS: u8 = 5;

/// Time for which parity is waited for where there is no time to ask.
const PARITY_WAIT: Duration = Duration::from_micros(BLOCK_TIME.total_micros() * 5 / 2);

/// Returns the time after which a request is repeated.
fn request_interval(rtt: Duration) -> Duration {
    rtt + rtt / 4 + Duration::from_millis(5)
}

/// A packet that has not arrived.
#[derive(Debug)]
struct Missing {
    sequence: u32,
    /// When it is asked for next.
    ask_at: Instant,
    requests: u8,
    /// It is not asked for: parity may restore it.
    waits_for_parity: bool,
    /// When others no longer wait for it.
    until: Instant,
}

impl Missing {
    /// Returns whether the answer to the next request can come in time.
    fn is_worth_asking(&self, now: Instant, rtt: Duration) -> bool {
        let asks = !self.waits_for_parity && self.requests < MAX_REQUESTS;
        asks && self.ask_at.max(now) + rtt <= self.until
    }

    /// Returns whether it is given up. Where another request is not worth it, the answer to the last one may come until that
    /// request would be due.
    fn is_over(&self, now: Instant, rtt: Duration) -> bool {
        !self.is_worth_asking(now, rtt) && self.ask_at.min(self.until) <= now
    }
}

/// A packet that arrived before one that was sent before it.
#[derive(Debug)]
pub(in super::super) struct Held {
    pub(in super::super) sequence: u32,
    pub(in super::super) kind: Kind,
    pub(in super::super) timing: Timing,
    pub(in super::super) bytes: Arc<[u8]>,
}

impl Held {
    /// Returns the bytes that it counts for: empty packets take memory as well.
    fn cost(&self) -> usize {
        self.bytes.len() + size_of::<Held>()
    }
}

/// What has become of lost packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Outcome {
    /// They came when they were sent again.
    pub(super) repaired: u64,
    /// Parity restored them.
    pub(super) restored: u64,
    /// They were given up.
    pub(super) late: u64,
}

/// How a packet has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum How {
    /// As it was sent at first.
    Sent,
    /// As the answer to a request.
    Again,
    /// From parity.
    Restored,
}

/// The packets of one edge that are missing, and those that wait for them.
#[derive(Debug)]
pub(in super::super) struct Gaps {
    /// The number after that of the newest packet.
    next: u32,
    /// By number.
    missing: VecDeque<Missing>,
    held: VecDeque<Held>,
    held_bytes: usize,
    outcome: Outcome,
    /// Packets that were given up without having been asked for: the sender is told.
    unasked: Option<Request>,
    /// Once there was parity.
    pub(super) blocks: Option<Box<Blocks>>,
}

/// Returns how far `sequence` is after `reference`; negative if before.
fn after(sequence: u32, reference: u32) -> i32 {
    sequence.wrapping_sub(reference) as i32
}

impl Gaps {
    /// Creates the state of an edge whose first packet has this number.
    pub(super) fn new(sequence: u32) -> Self {
        Gaps {
            next: sequence,
            missing: VecDeque::new(),
            held: VecDeque::new(),
            held_bytes: 0,
            outcome: Outcome::default(),
            unasked: None,
            blocks: None,
        }
    }

    /// Returns what has become of packets since the last call.
    pub(super) fn take_outcome(&mut self) -> Outcome {
        core::mem::take(&mut self.outcome)
    }

    /// Returns the bytes that wait, and those that may restore others.
    pub(super) fn bytes(&self) -> usize {
        self.held_bytes + self.blocks.as_ref().map_or(0, |blocks| blocks.bytes())
    }

    /// Notes the packet with this number if it is the next one and nothing before it is missing. Returns whether it is.
    #[inline]
    pub(super) fn is_next(&mut self, sequence: u32) -> bool {
        let is_next = sequence == self.next && self.missing.is_empty();
        self.next = self.next.wrapping_add(u32::from(is_next));
        is_next
    }

    /// Notes a packet that is not the next one. Those before it that have not arrived are waited for, until then at the
    /// longest. Returns `false` if it has come before, or was given up; otherwise it is to be held, and popped when its turn
    /// comes.
    pub(super) fn arrive(&mut self, now: Instant, sequence: u32, how: How, until: Instant) -> bool {
        let place = after(sequence, self.next);
        if place.unsigned_abs() > FAR && how == How::Sent {
            self.outcome.late += self.missing.len() as u64;
            self.missing.clear();
            self.next = sequence.wrapping_add(1);
            return true;
        }
        if (0..=FAR as i32).contains(&place) {
            self.miss(now, sequence, until);
            self.next = sequence.wrapping_add(1);
            return true;
        }
        let reference = self.next;
        let at = self
            .missing
            .binary_search_by_key(&place, |one| after(one.sequence, reference));
        let Ok(at) = at else {
            return false;
        };
        self.missing.remove(at);
        match how {
            // It was only overtaken.
            How::Sent => {}
            How::Again => self.outcome.repaired += 1,
            How::Restored => self.outcome.restored += 1,
        }
        true
    }

    /// Notes that the packet with this number, and all before it, were sent; not if it is far from the next one.
    pub(super) fn sent_up_to(&mut self, now: Instant, sequence: u32, until: Instant) {
        if (0..=FAR as i32).contains(&after(sequence, self.next)) {
            let end = sequence.wrapping_add(1);
            self.miss(now, end, until);
            self.next = end;
        }
    }

    /// Notes that the packets from the next one to this one, which is not included, are missing.
    fn miss(&mut self, now: Instant, end: u32, until: Instant) {
        let count = end.wrapping_sub(self.next) as usize;
        // More than can be missing at a time.
        let skipped = count.saturating_sub(MAX_MISSING);
        let first = self.next.wrapping_add(skipped as u32);
        let new = count - skipped;
        let excess = (self.missing.len() + new).saturating_sub(MAX_MISSING);
        for _ in 0..excess {
            self.give_up_first();
        }
        let missing = (0..new as u32).map(|at| Missing {
            sequence: first.wrapping_add(at),
            ask_at: now + REORDERING,
            requests: 0,
            waits_for_parity: false,
            until,
        });
        self.missing.extend(missing);
    }

    fn give_up_first(&mut self) {
        self.outcome.late += u64::from(self.missing.pop_front().is_some());
    }

    /// Keeps a packet until those before it have arrived or are given up.
    pub(super) fn hold(&mut self, held: Held, pool: &mut Pool) {
        let cost = held.cost();
        while !self.missing.is_empty() && (self.held_bytes + cost > MAX_HELD || !pool.fits(cost)) {
            // Those that wait are next now, and leave with this one.
            self.give_up_first();
        }
        self.held_bytes += cost;
        pool.add(cost);
        let reference = self.next;
        let place = after(held.sequence, reference);
        let at = self
            .held
            .partition_point(|one| after(one.sequence, reference) < place);
        self.held.insert(at, held);
    }

    /// Removes the next packet, if nothing before it is missing.
    pub(super) fn pop(&mut self, pool: &mut Pool) -> Option<Held> {
        let first = self.held.front()?.sequence;
        let is_next = |one: &Missing| after(first, one.sequence) < 0;
        if !self.missing.front().is_none_or(is_next) {
            return None;
        }
        let held = self.held.pop_front()?;
        self.held_bytes -= held.cost();
        pool.remove(held.cost());
        Some(held)
    }

    /// Gives up packets that nothing waits for any more.
    pub(super) fn handle_timeout(&mut self, now: Instant, rtt: Duration) {
        let has_parity = self
            .blocks
            .as_ref()
            .is_some_and(|blocks| blocks.is_active(now));
        let (outcome, unasked) = (&mut self.outcome, &mut self.unasked);
        self.missing.retain_mut(|one| {
            if !one.is_over(now, rtt) {
                return true;
            }
            if has_parity && one.requests == 0 && !one.waits_for_parity && now < one.until {
                one.waits_for_parity = true;
                one.ask_at = now + PARITY_WAIT;
                return true;
            }
            outcome.late += 1;
            if one.requests == 0 {
                let request = unasked.get_or_insert(Request::new(one.sequence));
                request.add(one.sequence);
            }
            false
        });
    }

    /// Returns a request for packets that are due, as many as it can name; or one that names packets that were given up
    /// without having been asked for.
    pub(super) fn poll_request(&mut self, now: Instant, rtt: Duration) -> Option<Request> {
        let mut request: Option<Request> = None;
        for one in &mut self.missing {
            if one.ask_at > now || !one.is_worth_asking(now, rtt) {
                continue;
            }
            match &mut request {
                None => request = Some(Request::new(one.sequence)),
                Some(request) => {
                    if !request.add(one.sequence) {
                        break;
                    }
                }
            }
            one.requests += 1;
            one.ask_at = now + request_interval(rtt);
        }
        request.or_else(|| self.unasked.take())
    }

    /// Returns when [`Gaps::handle_timeout`] or [`Gaps::poll_request`] is due.
    pub(in super::super) fn poll_timeout(&self) -> Option<Instant> {
        let due = |one: &Missing| one.ask_at.min(one.until);
        self.missing.iter().map(due).min()
    }
}
