//! Gaps: packets that were sent and have not come.

use managed::ManagedSlice;
use proto_core::time::{Duration, Instant};

use super::requests::{PendingRequest, Requests};
use super::{Phase, Receiver, Timer};
use crate::config::ReceiverConfig;
use crate::geometry::low_bits;
use crate::pacing::Pacer;
use crate::store::Store;

/// Which packets were sent, which of those that have not come are requested, and the rate of requests.
pub(super) struct Gaps<'a> {
    /// One past the newest packet known to have been sent.
    highest: u64,
    /// Gaps below are in `requests`.
    scanned: u64,
    pub(super) requests: Requests<'a>,
    pub(super) pacer: Pacer,
}

impl<'a> Gaps<'a> {
    pub(super) fn new(
        config: &ReceiverConfig,
        table: ManagedSlice<'a, PendingRequest>,
        now: Instant,
    ) -> Self {
        let rate = u64::from(config.requests_per_second.max(1));
        let burst = (rate / 20).max(4) as usize;
        Gaps {
            highest: 0,
            scanned: 0,
            requests: Requests::new(table),
            pacer: Pacer::new(Some(rate * 8), burst, now),
        }
    }

    /// Begins a session: packets before `first` are of no interest.
    pub(super) fn begin(&mut self, first: u64) {
        self.finish(first);
    }

    /// Nothing is missing before `next`.
    pub(super) fn finish(&mut self, next: u64) {
        (self.highest, self.scanned) = (next, next);
        self.requests.clear();
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

    /// Packets from `next` on were never sent; the block of `next`, and its index there.
    pub(super) fn clip(&mut self, next: u64, block: u64, index: u32) {
        self.highest = next;
        self.scanned = self.scanned.min(next);
        self.requests.clip(block, index);
    }

    /// Has gaps from that packet on looked for again.
    pub(super) fn rescan(&mut self, first: u64) {
        self.scanned = self.scanned.min(first);
    }

    /// Whether packets were sent that were not looked at.
    pub(super) fn is_unscanned(&self) -> bool {
        self.scanned < self.highest
    }
}

impl<S: Store> Receiver<'_, S> {
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
        let (geometry, length) = (session.geometry, session.length);
        let end = geometry
            .first_packet(self.window.end())
            .min(self.gaps.highest);
        let frontier = geometry.first_packet(self.window.frontier());
        self.gaps.scanned = self.gaps.scanned.max(frontier);
        while self.gaps.scanned < end {
            if self.gaps.requests.is_full()
                || self.gaps.requests.outstanding() >= self.recovery.max_outstanding()
            {
                break;
            }
            let (block, index) = geometry.locate(self.gaps.scanned);
            let (last, last_index) = geometry.locate(end);
            let upto = if block == last {
                last_index
            } else {
                geometry.packets_per_block()
            };
            let mask = geometry.mask(block, length) & low_bits(upto) & !low_bits(index);
            let missing =
                mask & !self.window.slots.received(block) & !self.gaps.requests.mask_of(block);
            if missing != 0 && !self.gaps.requests.add(block, missing, 0, self.now) {
                break;
            }
            self.gaps.scanned = geometry.first_packet(block) + u64::from(upto);
        }
        self.schedule_request();
    }

    pub(super) fn schedule_request(&mut self) {
        match self.gaps.requests.next_deadline() {
            Some(at) => self.timers.set(Timer::Request, at),
            None => self.timers.stop(Timer::Request),
        }
    }
}
