//! What a sender sends: answers, heartbeats, digests, repairs, new data, in this order, within the
//! rate.

use proto_core::time::Instant;

use super::{Phase, Sender};
use crate::pacing::FRAME_OVERHEAD;
use crate::replier::{Target, With};
use crate::store::{Store, StoreError};
use crate::wire::{Seq, data};
use crate::{Destination, Transmit};

/// What goes into one data-sized segment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    New,
    /// A repair, and its position in the queue.
    Repair(usize, crate::replier::Repair),
}

impl<S: Store> Sender<'_, S> {
    /// Writes the next packet, or several of one size for one destination, into `buffer`. Drain it until `None`.
    ///
    /// A buffer shorter than a packet gets nothing: offer at least the `max_packet_len` of the
    /// configuration, and no less than 400 bytes.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        self.poll_output(now, buffer).map(|(transmit, _)| transmit)
    }

    /// Returns what [`Sender::poll_transmit`] does, and the sequence of the first data packet or repair in it.
    pub(crate) fn poll_output(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
    ) -> Option<(Transmit, Option<Seq>)> {
        self.advance_clock(now);
        if self.phase == Phase::Ended {
            return None;
        }
        let budget = self.pacing.budget(self.now);
        let control = self
            .poll_answer(budget, buffer)
            .or_else(|| self.poll_sync(budget, buffer))
            .or_else(|| self.poll_pace(budget, buffer))
            .or_else(|| self.poll_digests(budget, buffer));
        let (transmit, sequence) = match control {
            Some(transmit) => (transmit, None),
            None if self.failed || self.pace_waits() => return None,
            None => self.poll_data(budget, buffer)?,
        };
        let frames = transmit
            .segment_len
            .map_or(1, |segment| transmit.len.div_ceil(segment));
        let frame_bytes = transmit.len + frames * FRAME_OVERHEAD;
        self.pacing.spend(frame_bytes);
        self.stats.frame_bytes += frame_bytes as u64;
        Some((transmit, sequence))
    }

    pub(super) fn seal(
        &self,
        destination: Destination,
        buffer: &mut [u8],
        len: usize,
    ) -> Option<Transmit> {
        let len = self.hashing.seal(buffer, len);
        Some(Transmit::packet(destination, len))
    }

    pub(super) fn fits(&self, budget: usize, buffer: &[u8], len: usize) -> bool {
        let len = len + self.hashing.overhead();
        len <= buffer.len() && len + FRAME_OVERHEAD <= budget
    }

    /// Fills the buffer with data packets of one destination.
    fn poll_data(&mut self, budget: usize, buffer: &mut [u8]) -> Option<(Transmit, Option<Seq>)> {
        let geometry = self.content.geometry();
        let segment = geometry.packet_len();
        let frame = segment + FRAME_OVERHEAD;
        let room = buffer.len().min(segment.max(65_000));
        let most = self.config.max_segments.max(1);
        let fits = |count| count <= most && count * segment <= room && count * frame <= budget;
        if frame > budget {
            self.data_limited();
        }
        let before = self.content.next();
        let mut first = None;
        let mut destination = None;
        let mut filled = 0;
        while fits(filled + 1) {
            let Some(next) = self.next_segment(frame) else {
                break;
            };
            if let Next::Repair(at, repair) = next
                && repair.with != With::Packets
            {
                if filled > 0 {
                    break;
                }
                match self.poll_parity((at, repair), buffer) {
                    Ok(Some(transmit)) => {
                        self.after_data(false);
                        return Some((transmit, None));
                    }
                    Ok(None) => continue,
                    Err(_) => {
                        self.fail_store();
                        return None;
                    }
                }
            }
            let (to, number) = match next {
                Next::New => (Target::Group, self.content.next()),
                Next::Repair(_, repair) => {
                    let block = u64::from(repair.block);
                    let number = geometry.first_packet(block) + u64::from(repair.index);
                    (repair.target, number)
                }
            };
            if destination.is_some_and(|destination| destination != to) {
                break;
            }
            let out = &mut buffer[filled * segment..][..segment];
            match self.write_segment(next, out) {
                Ok(true) => {
                    destination = Some(to);
                    first.get_or_insert(number);
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
        self.after_data(self.content.next() != before);
        let len = filled * segment;
        let transmit = Transmit {
            destination,
            len,
            segment_len: (filled > 1).then_some(segment),
        };
        let first = first.map(|number| self.content.sequence(number));
        Some((transmit, first))
    }

    /// Repairs go first, until they have had their share while new data waits.
    fn next_segment(&mut self, frame: usize) -> Option<Next> {
        let waits = self.data_waits() && !self.digests_hold_data();
        if waits && (!self.pacing.has_credit() || self.repairs.is_empty()) {
            return Some(Next::New);
        }
        let repair = self.repairs.peek(self.now, frame);
        match repair {
            Some((at, repair)) => Some(Next::Repair(at, repair)),
            None => waits.then_some(Next::New),
        }
    }

    /// Returns whether a packet was written; a repair of a released packet is not.
    fn write_segment(&mut self, next: Next, out: &mut [u8]) -> Result<bool, StoreError> {
        let frame = out.len() + FRAME_OVERHEAD;
        match next {
            Next::New => {
                let (block, index) = self.content.position();
                let number = self.number();
                self.write_packet(block, index, None, number, out)?;
                self.stats.data_packets += 1;
                self.pacing.earn_credit();
                self.step()?;
                Ok(true)
            }
            Next::Repair(at, repair) => {
                let block = u64::from(repair.block);
                if block < self.content.oldest_block() {
                    self.repairs.done(self.now, at, None);
                    return Ok(false);
                }
                let number = match repair.target {
                    // Not to the whole group: it would count as lost where it is not needed.
                    Target::Unicast(_) | Target::Relay => None,
                    _ => self.number(),
                };
                self.write_packet(block, repair.index, Some(repair.tag), number, out)?;
                self.repairs.done(self.now, at, Some(frame));
                self.pacing.spend_credit(frame);
                match repair.target {
                    Target::Unicast(_) => self.stats.repairs_unicast += 1,
                    _ => self.stats.repairs_group += 1,
                }
                Ok(true)
            }
        }
    }

    /// Numbers a transmission to the group, for congestion control.
    pub(super) fn number(&mut self) -> Option<u32> {
        Some(self.congestion.as_mut()?.sent())
    }

    fn write_packet(
        &mut self,
        block: u64,
        index: u32,
        repair: Option<u16>,
        transmission: Option<u32>,
        out: &mut [u8],
    ) -> Result<(), StoreError> {
        let number = self.content.geometry().first_packet(block) + u64::from(index);
        data::Repr {
            repair,
            session: self.session,
            sequence: self.content.sequence(number),
            number: transmission,
        }
        .emit(out);
        let payload = &mut out[data::DATA_HEADER_LEN..];
        self.content.read(block, index, payload)
    }

    /// The packet at `next` was sent.
    fn step(&mut self) -> Result<(), StoreError> {
        if self.content.advance() {
            if self.config.integrity {
                self.hash_block()?;
            }
            let (block, _) = self.content.position();
            self.content.begin_block();
            self.protect(block);
        }
        Ok(())
    }

    fn after_data(&mut self, new: bool) {
        let has = self.phase == Phase::Sending && self.content.has_data();
        let stalled = has && !self.data_waits();
        if stalled && !self.stalled {
            self.stats.stalls += 1;
        }
        if self.stalled != stalled {
            self.stalled = stalled;
            if stalled {
                self.heartbeats.request();
            }
        }
        if new {
            self.schedule_heartbeat(has && !stalled);
        }
        if self.repairs.is_empty() {
            // Without repairs their debt is forgiven.
            self.pacing.forgive_debt();
        }
        self.check_sent();
    }
}
