//! What a sender sends: answers, heartbeats, digests, repairs, new data, in this order, within the
//! rate.

use proto_core::time::Instant;

use super::{Phase, Sender};
use crate::pacing::FRAME_OVERHEAD;
use crate::replier::Target;
use crate::store::{Store, StoreError};
use crate::wire::{Seq, data};
use crate::{Destination, Transmit};

/// What goes into one data-sized segment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    New,
    /// Position in the queue of repairs, and what stands there.
    Repair(usize, crate::replier::Repair),
}

impl<S: Store> Sender<'_, S> {
    /// The next packet, or several of one size for one destination, written into `buffer`; drain
    /// until `None`.
    ///
    /// A buffer shorter than a packet gets nothing: offer at least the `max_packet_len` of the
    /// configuration, and no less than 400 bytes.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        self.advance_clock(now);
        if self.phase == Phase::Ended {
            return None;
        }
        let budget = self.pacer.budget(self.now);
        let transmit = self
            .poll_answer(budget, buffer)
            .or_else(|| self.poll_sync(budget, buffer))
            .or_else(|| self.poll_digests(budget, buffer))
            .or_else(|| self.poll_data(budget, buffer))?;
        let frames = transmit
            .len
            .div_ceil(transmit.segment_len.unwrap_or(transmit.len).max(1));
        let frame_bytes = transmit.len + frames * FRAME_OVERHEAD;
        self.pacer.spend(frame_bytes);
        self.stats.frame_bytes += frame_bytes as u64;
        Some(transmit)
    }

    pub(super) fn seal(
        &self,
        destination: Destination,
        buffer: &mut [u8],
        len: usize,
    ) -> Option<Transmit> {
        let len = self.hashing.seal(buffer, len);
        Some(Transmit {
            destination,
            len,
            segment_len: None,
        })
    }

    pub(super) fn fits(&self, budget: usize, buffer: &[u8], len: usize) -> bool {
        let len = len + self.hashing.overhead();
        len <= buffer.len() && len + FRAME_OVERHEAD <= budget
    }

    /// Fills the buffer with data packets of one destination.
    fn poll_data(&mut self, budget: usize, buffer: &mut [u8]) -> Option<Transmit> {
        let segment = self.geometry.packet_len();
        let frame = segment + FRAME_OVERHEAD;
        let room = (buffer.len() / segment).min(budget / frame);
        let most = room
            .min(self.config.max_segments.max(1))
            .min(65_000 / segment.min(65_000));
        let before = self.next;
        let mut destination = None;
        let mut filled = 0;
        while filled < most {
            let Some(next) = self.next_segment(frame) else {
                break;
            };
            let to = match next {
                Next::New => Target::Group,
                Next::Repair(_, repair) => repair.target,
            };
            if destination.is_some_and(|destination| destination != to) {
                break;
            }
            let out = &mut buffer[filled * segment..][..segment];
            match self.write_segment(next, out) {
                Ok(true) => {
                    destination = Some(to);
                    filled += 1;
                }
                Ok(false) => {}
                Err(_) => {
                    self.fail_store();
                    return None;
                }
            }
        }
        let destination = match destination? {
            Target::Unicast(address) => Destination::Unicast(address),
            Target::Relay => Destination::Relay,
            Target::Group | Target::TurningPoint(_) => Destination::Group,
        };
        self.after_data(self.next != before);
        let len = filled * segment;
        Some(Transmit {
            destination,
            len,
            segment_len: (filled > 1).then_some(segment),
        })
    }

    /// Repairs go first, until they have had their share while new data waits.
    fn next_segment(&mut self, frame: usize) -> Option<Next> {
        let waits = self.data_waits();
        if waits && (self.repair_credit <= 0 || self.repairs.is_empty()) {
            return Some(Next::New);
        }
        let repair = self.repairs.peek(self.now, frame);
        match repair {
            Some((at, repair)) => Some(Next::Repair(at, repair)),
            None => waits.then_some(Next::New),
        }
    }

    /// Whether a packet was written (a repair of what is gone is not).
    fn write_segment(&mut self, next: Next, out: &mut [u8]) -> Result<bool, StoreError> {
        let frame = out.len() + FRAME_OVERHEAD;
        match next {
            Next::New => {
                self.write_packet(self.block, self.index, None, out)?;
                self.stats.data_packets += 1;
                self.earn_credit(frame);
                self.step()?;
                Ok(true)
            }
            Next::Repair(at, repair) => {
                let block = u64::from(repair.block);
                if block < self.oldest_block() {
                    self.repairs.done(self.now, at, None);
                    return Ok(false);
                }
                self.write_packet(block, repair.index, Some(repair.tag), out)?;
                self.repairs.done(self.now, at, Some(frame));
                self.repair_credit -= frame as i64;
                match repair.target {
                    Target::Unicast(_) => self.stats.repairs_unicast += 1,
                    _ => self.stats.repairs_group += 1,
                }
                Ok(true)
            }
        }
    }

    /// Each new packet earns repairs their share beside it.
    fn earn_credit(&mut self, frame: usize) {
        let share = i64::from(self.config.repair.share_percent.clamp(1, 99));
        let most = 64 * frame as i64;
        let earned = frame as i64 * share / (100 - share);
        self.repair_credit = (self.repair_credit + earned).min(most);
    }

    fn write_packet(
        &mut self,
        block: u64,
        index: u32,
        repair: Option<u16>,
        out: &mut [u8],
    ) -> Result<(), StoreError> {
        let number = self.geometry.first_packet(block) + u64::from(index);
        let sequence = Seq::of(number, self.geometry.first());
        data::Repr {
            repair,
            session: self.session,
            sequence,
        }
        .emit(out);
        let (offset, len) = self.geometry.span(block, index, self.length);
        let (content, padding) = out[data::DATA_HEADER_LEN..].split_at_mut(len);
        padding.fill(0);
        self.store.read(offset, content)
    }

    /// The packet at `next` was sent.
    fn step(&mut self) -> Result<(), StoreError> {
        self.next += 1;
        self.index += 1;
        let ended = self.total.is_some_and(|total| self.next >= total);
        if self.index < self.geometry.packets_per_block() && !ended {
            return Ok(());
        }
        if self.config.integrity {
            self.hash_block()?;
        }
        self.block += 1;
        self.index = 0;
        Ok(())
    }

    fn after_data(&mut self, new: bool) {
        let has = self.phase == Phase::Sending && self.has_data();
        let stalled = has && !self.data_waits();
        if stalled && !self.stalled {
            self.stats.stalls += 1;
        }
        if self.stalled != stalled {
            self.stalled = stalled;
            self.sync_wanted |= stalled;
        }
        if new {
            self.schedule_heartbeat(has && !stalled);
        }
        if self.repairs.is_empty() {
            // Unused credit of a quiet time does not pile up beyond one burst.
            self.repair_credit = self.repair_credit.max(0);
        }
        self.check_sent();
    }
}
