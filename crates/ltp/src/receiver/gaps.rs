//! Gaps: packets that were sent and have not come, and the requests for them: one entry for each block.

#[cfg(test)]
mod tests;

use core::cmp::Ordering;

use managed::ManagedSlice;
use proto_core::time::{Duration, Instant};

use super::{Phase, Receiver, Timer};
use crate::Geometry;
use crate::config::ReceiverConfig;
use crate::geometry::low_bits;
use crate::pacing::Pacer;
use crate::store::Store;
use crate::wire::{Seq, request};

/// The missing packets of one block: an entry of the caller's storage.
#[derive(Clone, Copy, Default, Debug)]
pub struct PendingRequest {
    /// 0: free.
    mask: u64,
    sent: Instant,
    deadline: Instant,
    block: u32,
    tag: u16,
    /// Requests sent; the next one has this number plus 1.
    attempts: u8,
    /// The last request went to the source alone.
    by_source: bool,
}

/// A packet that was requested and has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) sent: Instant,
    pub(super) by_source: bool,
    /// It answers the latest request.
    pub(super) answers: bool,
    /// Requests for it.
    pub(super) attempts: u8,
}

/// Which packets were sent, which of those that have not come are requested, and the rate of requests.
#[derive(Debug)]
pub(super) struct Gaps<'a> {
    /// One past the newest packet known to have been sent.
    highest: u64,
    /// Gaps below are requested.
    scanned: u64,
    /// Packets before it were sent, and the source has paused there.
    told: u64,
    /// What the last heartbeat named as the next packet.
    named: u64,
    /// Where gaps may be requested when the time to wait has passed.
    settled: u64,
    /// Gaps of the newest block wait until it was sent whole.
    is_waiting: bool,
    table: ManagedSlice<'a, PendingRequest>,
    used: usize,
    /// Requested packets that have not come.
    outstanding: u32,
    pacer: Pacer,
}

impl<'a> Gaps<'a> {
    pub(super) fn new(
        config: &ReceiverConfig,
        table: ManagedSlice<'a, PendingRequest>,
        now: Instant,
    ) -> Self {
        let rate = u64::from(config.requests_per_second.max(1));
        let burst = (rate / 20).max(4) as usize;
        let mut gaps = Gaps {
            highest: 0,
            scanned: 0,
            told: 0,
            named: 0,
            settled: 0,
            is_waiting: false,
            table,
            used: 0,
            outstanding: 0,
            pacer: Pacer::new(Some(rate * 8), burst, now),
        };
        gaps.forget_requests();
        gaps
    }

    /// Nothing is missing before `next`, or what is missing is of no interest.
    pub(super) fn restart(&mut self, next: u64) {
        (self.highest, self.scanned) = (next, next);
        (self.told, self.named, self.settled) = (0, 0, 0);
        self.is_waiting = false;
        self.forget_requests();
    }

    /// Requests nothing of what was found missing.
    pub(super) fn forget_requests(&mut self) {
        self.table.fill(PendingRequest::default());
        (self.used, self.outstanding) = (0, 0);
    }

    /// Returns one past the newest packet known to have been sent.
    #[inline]
    pub(super) fn highest(&self) -> u64 {
        self.highest
    }

    /// The packet `number` came. Returns false if it is not the next one.
    #[inline]
    pub(super) fn is_next(&mut self, number: u64) -> bool {
        let is_next = number == self.highest;
        self.highest += u64::from(is_next);
        is_next
    }

    /// Packets before `next` were sent. Returns how many of them were not known.
    fn extend(&mut self, next: u64) -> u64 {
        let lost = next.saturating_sub(self.highest);
        self.highest = self.highest.max(next);
        lost
    }

    /// Whether packets were sent that were not looked at.
    pub(super) fn is_unscanned(&self) -> bool {
        self.scanned < self.highest
    }

    /// Whether gaps of the newest block wait until it was sent whole.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Whether packets are requested.
    pub(super) fn has_requests(&self) -> bool {
        self.used > 0
    }

    fn requests(&self) -> impl Iterator<Item = &PendingRequest> {
        self.table.iter().filter(|request| request.mask != 0)
    }

    /// Returns the packets of that block that are requested.
    pub(super) fn requested(&self, block: u64) -> u64 {
        let of_block = self.table.iter().filter(|one| one.block == block as u32);
        of_block.fold(0, |mask, request| mask | request.mask)
    }

    /// Adds a request. Returns false without room.
    pub(super) fn add(&mut self, block: u64, mask: u64, attempts: u8, deadline: Instant) -> bool {
        let Some(free) = self.table.iter_mut().find(|request| request.mask == 0) else {
            return false;
        };
        *free = PendingRequest {
            mask,
            sent: deadline,
            deadline,
            block: block as u32,
            attempts,
            ..PendingRequest::default()
        };
        self.outstanding += mask.count_ones();
        self.used += 1;
        true
    }

    /// Has gaps from that packet on looked for again.
    pub(super) fn rescan(&mut self, first: u64) {
        self.scanned = self.scanned.min(first);
    }

    /// Removes a packet that has come. Returns its request, if it was requested.
    pub(super) fn arrived(&mut self, block: u64, bit: u64, tag: Option<u16>) -> Option<Arrival> {
        let request = self
            .table
            .iter_mut()
            .find(|request| request.mask & bit != 0 && request.block == block as u32)?;
        request.mask &= !bit;
        let answers = request.attempts > 0 && tag == Some(request.tag);
        let arrival = Arrival {
            sent: request.sent,
            by_source: request.by_source,
            answers,
            attempts: request.attempts,
        };
        if request.mask == 0 {
            self.used -= 1;
        }
        self.outstanding -= 1;
        Some(arrival)
    }

    /// No more than `count` packets of a block are requested. Returns the request that became shorter, and whether a
    /// packet with that tag answers it.
    pub(super) fn limit(&mut self, block: u64, count: u32, tag: Option<u16>) -> Option<Arrival> {
        let mut over = self.requested(block).count_ones().saturating_sub(count);
        let mut arrival = None;
        let of_block = |one: &&mut PendingRequest| one.mask != 0 && one.block == block as u32;
        for request in self.table.iter_mut().filter(of_block) {
            if over == 0 {
                break;
            }
            let dropped = over.min(request.mask.count_ones());
            for _ in 0..dropped {
                request.mask &= !(1 << request.mask.ilog2());
            }
            over -= dropped;
            self.outstanding -= dropped;
            self.used -= usize::from(request.mask == 0);
            arrival = arrival.or(Some(Arrival {
                sent: request.sent,
                by_source: request.by_source,
                answers: request.attempts > 0 && tag == Some(request.tag),
                attempts: request.attempts,
            }));
        }
        arrival
    }

    /// Packets from `next` on were never sent.
    pub(super) fn clip(&mut self, geometry: &Geometry, next: u64) {
        self.highest = next;
        self.scanned = self.scanned.min(next);
        self.told = self.told.min(next);
        let (block, index) = geometry.locate(next);
        for request in self.table.iter_mut().filter(|request| request.mask != 0) {
            let keep = match u64::from(request.block).cmp(&block) {
                Ordering::Less => u64::MAX,
                Ordering::Equal => low_bits(index),
                Ordering::Greater => 0,
            };
            self.outstanding -= (request.mask & !keep).count_ones();
            request.mask &= keep;
            self.used -= usize::from(request.mask == 0);
        }
    }

    /// Returns when the rate allows the next request.
    pub(super) fn ready_at(&self) -> Instant {
        self.pacer.ready_at(1)
    }

    /// Whether the rate allows a request now.
    pub(super) fn may_request(&mut self, now: Instant) -> bool {
        self.pacer.budget(now) >= 1
    }

    /// Returns how often the first request that is due was sent.
    pub(super) fn due(&self, now: Instant) -> Option<u8> {
        let due = self.requests().find(|request| request.deadline <= now)?;
        Some(due.attempts)
    }

    /// Gathers requests that are due and were sent `attempts` times in `repr`, as many as there is room for. They
    /// are due again at `deadline`. Returns how many packets they are for.
    pub(super) fn compose(
        &mut self,
        repr: &mut request::Repr,
        geometry: &Geometry,
        attempts: u8,
        by_source: bool,
        (now, deadline): (Instant, Instant),
    ) -> u64 {
        self.pacer.spend(1);
        let mut packets = 0;
        for request in self.table.iter_mut().filter(|request| request.mask != 0) {
            if request.deadline > now || request.attempts != attempts {
                continue;
            }
            let first = geometry.first_packet(u64::from(request.block));
            if !add_runs(repr, geometry, first, request.mask) {
                // The block goes into the next request.
                break;
            }
            packets += u64::from(request.mask.count_ones());
            *request = PendingRequest {
                attempts: attempts.saturating_add(1),
                tag: repr.tag,
                sent: now,
                deadline,
                by_source,
                ..*request
            };
        }
        packets
    }
}

/// Returns the `count` lowest bits of a mask that are set.
fn lowest(mut mask: u64, count: u32) -> u64 {
    while mask.count_ones() > count {
        mask &= !(1 << mask.ilog2());
    }
    mask
}

/// Adds the runs of a block's mask as ranges. Returns false, and adds none, without room for all.
fn add_runs(repr: &mut request::Repr, geometry: &Geometry, first: u64, mask: u64) -> bool {
    let mut left = mask;
    let (count, last) = (repr.ranges.len(), repr.ranges.last().copied());
    while left != 0 {
        let start = left.trailing_zeros();
        let run = (left >> start).trailing_ones();
        let lo = Seq::of(first + u64::from(start), geometry.first()).0;
        let hi = lo.wrapping_add(run - 1);
        match repr.ranges.last_mut() {
            Some(last) if last.hi.wrapping_add(1) == lo => last.hi = hi,
            _ => {
                // A mask has no more runs than a request has room for, so the first one fits.
                if repr.ranges.push(request::Range { lo, hi }).is_err() {
                    repr.ranges.truncate(count);
                    if let (Some(place), Some(last)) = (repr.ranges.last_mut(), last) {
                        *place = last;
                    }
                    return false;
                }
            }
        }
        left &= !(low_bits(run) << start);
    }
    true
}

impl<S: Store> Receiver<'_, S> {
    /// Learns from a heartbeat that the packets before `next` were sent. They are the last ones for now if the
    /// heartbeat before named the same, or the content ends there.
    pub(super) fn told_up_to(&mut self, next: u64) {
        let is_end = self.session_is(|session| session.total() == Some(next));
        if next == self.gaps.named || is_end {
            self.gaps.told = self.gaps.told.max(next);
        }
        self.gaps.named = next;
        self.sent_up_to(next);
        if self.gaps.is_waiting {
            self.look_for_gaps();
        }
    }

    /// Learns that the packets before `next` were sent.
    pub(super) fn sent_up_to(&mut self, next: u64) {
        let lost = self.gaps.extend(next);
        if lost > 0 {
            self.stats.lost_packets += lost;
            self.look_for_gaps();
            self.report_loss();
        }
    }

    /// The packet `number` came before others that were sent earlier.
    pub(super) fn skipped_to(&mut self, number: u64) {
        self.stats.lost_packets += self.gaps.extend(number + 1) - 1;
        self.look_for_gaps();
        self.report_loss();
    }

    /// Has gaps requested after a short time, in which reordered packets may come.
    pub(super) fn look_for_gaps(&mut self) {
        if self.timers.is_set(Timer::Gap) || self.phase != Phase::Open {
            return;
        }
        self.gaps.settled = self.sent_whole();
        let delay = self.config.gap_delay;
        let spread = if self.recovery.is_source() {
            self.identity.jitter(delay)
        } else {
            Duration::ZERO
        };
        if delay.total_micros() == 0 {
            self.scan_gaps();
        } else {
            self.timers.set(Timer::Gap, self.now + delay + spread);
        }
    }

    /// Turns gaps into requests, as many as the bounds allow.
    pub(super) fn scan_gaps(&mut self) {
        let Some(session) = &self.session else { return };
        if self.phase != Phase::Open {
            return;
        }
        let geometry = session.geometry();
        let window = geometry.first_packet(self.window.end());
        let end = match self.waits_for_block() {
            true => self.gaps.settled,
            false => self.gaps.highest,
        };
        let end = end.min(self.gaps.highest).min(window);
        let frontier = geometry.first_packet(self.window.frontier());
        self.gaps.scanned = self.gaps.scanned.max(frontier);
        while self.gaps.scanned < end {
            let is_full = self.gaps.used == self.gaps.table.len();
            if is_full || self.gaps.outstanding >= self.recovery.max_outstanding() {
                break;
            }
            let (block, index) = geometry.locate(self.gaps.scanned);
            let (last, last_index) = geometry.locate(end);
            let upto = if block == last {
                last_index
            } else {
                geometry.packets_per_block()
            };
            let mask = session.mask(block) & low_bits(upto) & !low_bits(index);
            let mut missing = mask & !self.window.received(block) & !self.gaps.requested(block);
            if !self.restoring.is_empty() {
                missing = lowest(missing, self.unrequested(block));
            }
            // The bytes of a rejected block come from the source.
            let attempts = match self.window.was_rejected(block) {
                true => self.config.attempts_before_source,
                false => 0,
            };
            if missing != 0 && !self.gaps.add(block, missing, attempts, self.now) {
                break;
            }
            self.gaps.scanned = geometry.first_packet(block) + u64::from(upto);
        }
        let is_scanned = self.gaps.scanned >= end;
        self.gaps.is_waiting = is_scanned && end < self.gaps.highest.min(window);
        self.schedule_request();
        if self.gaps.is_waiting && end < self.sent_whole().min(window) {
            // Blocks that were sent whole since then have as much time.
            self.look_for_gaps();
        }
    }

    /// Returns the end of the packets of which gaps may be requested: where parity can repair them, those of the newest
    /// block wait until it was sent whole, or the source pauses.
    fn sent_whole(&self) -> u64 {
        let highest = self.gaps.highest;
        let Some(session) = self.session.as_ref().filter(|_| self.waits_for_block()) else {
            return highest;
        };
        let geometry = session.geometry();
        let (newest, _) = geometry.locate(highest);
        let told = self.gaps.told.min(highest);
        geometry.first_packet(newest).max(told)
    }

    pub(super) fn schedule_request(&mut self) {
        match self.gaps.requests().map(|request| request.deadline).min() {
            Some(at) => self.timers.set(Timer::Request, at),
            None => self.timers.stop(Timer::Request),
        }
    }
}
