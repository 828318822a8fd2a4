//! The replier: answers others' requests with dmcasts to their turning points (LMS §6.3.2).
//!
//! | request | verdict |
//! | --- | --- |
//! | by unicast | dropped: only the source is asked by unicast |
//! | without option, or option with no turning point | dropped: no router has turned it; the router of this link passes it up, and the repair comes down from there |
//! | option of another source or group | dropped |
//! | turned, but this host is not the elected replier of its link | dropped |
//! | turned, for what this host lacks | dropped: its own request is on its way |
//! | turned, for what this host had lost too and got as a repair to the group a moment ago | dropped: that repair goes to the requester as well |
//! | turned, for what it holds | repaired to the turning point, within its rate |

use lms_proto::{Kind as OptionKind, TurningPoint};
use proto_core::time::{Duration, Instant};

use super::window::{HELD, VERIFIED};
use super::{Phase, Receiver};
use crate::error::Error;
use crate::geometry::low_bits;
use crate::pacing::FRAME_OVERHEAD;
use crate::replier::Target;
use crate::store::Store;
use crate::wire::request::{self, Kind};
use crate::wire::{Seq, data, digests};
use crate::{Destination, Meta, Path, Transmit};

/// Blocks taken from one request; the rest is asked for again.
const BLOCKS_PER_REQUEST: u32 = 32;
/// After a request of a receiver below, a replier asks for the receivers below for this long.
const ASKS_FOR_OTHERS: Duration = Duration::from_secs(10);

impl<S: Store> Receiver<'_, S> {
    pub(super) fn on_request<T: AsRef<[u8]>>(
        &mut self,
        meta: &Meta,
        request: &request::Packet<T>,
    ) -> Result<(), Error> {
        let session = self.session.as_ref().ok_or(Error::BeforeSync)?;
        if request.session() != session.id {
            return Err(Error::OtherSession);
        }
        if matches!(self.phase, Phase::Failed | Phase::Ended) || !self.config.replier.enabled {
            return Err(Error::Ended);
        }
        let point = self.turning_point(meta)?;
        if matches!(request.kind(), Kind::Sync | Kind::Left) {
            return Err(Error::Unexpected);
        }
        if request.kind() == Kind::Data {
            self.asks_for_others_until = self.now + ASKS_FOR_OTHERS;
        }
        let target = Target::TurningPoint(point);
        let target = self
            .repairs
            .target(self.now, target)
            .ok_or(Error::TargetsFull)?;
        self.answers_wait = true;
        match request.kind() {
            Kind::Digests => self.queue_digests(target, request)?,
            _ => self.queue_repairs(target, request)?,
        }
        self.stats.requests_taken += 1;
        Ok(())
    }

    fn turning_point(&self, meta: &Meta) -> Result<TurningPoint, Error> {
        if meta.path == Path::Unicast {
            return Err(Error::RequestUnicast);
        }
        let session = self.session.as_ref().ok_or(Error::BeforeSync)?;
        let option = meta.option.ok_or(Error::NotTurned)?;
        let fits = option.kind == OptionKind::Request
            && option.group == self.config.group.ip()
            && option.source == session.source.ip();
        if !fits {
            return Err(Error::OptionMismatch);
        }
        let point = option.turning_point.ok_or(Error::NotTurned)?;
        if !meta.elected {
            return Err(Error::NotElected);
        }
        Ok(point)
    }

    fn queue_repairs<T: AsRef<[u8]>>(
        &mut self,
        target: u16,
        request: &request::Packet<T>,
    ) -> Result<(), Error> {
        let mut outcome = Err(Error::RequestNotHeld);
        let mut budget = BLOCKS_PER_REQUEST;
        for range in request.ranges() {
            match self.queue_range(target, range, request.tag(), &mut budget) {
                Ok(()) => outcome = Ok(()),
                Err(reason) if outcome.is_err() => outcome = Err(reason),
                Err(_) => {}
            }
        }
        outcome
    }

    fn queue_range(
        &mut self,
        target: u16,
        range: request::Range,
        tag: u16,
        budget: &mut u32,
    ) -> Result<(), Error> {
        let session = self.session.as_ref().ok_or(Error::BeforeSync)?;
        let geometry = session.geometry;
        // Near what has verified, not near the newest number that somebody named.
        let near = geometry.first_packet(self.frontier);
        let number = |sequence| Seq(sequence).number(geometry.first(), near);
        let newest = self.highest.checked_sub(1).ok_or(Error::RequestUnsent)?;
        let lo = number(range.lo).unwrap_or(0);
        let hi = number(range.hi).ok_or(Error::RequestUnsent)?.min(newest);
        if lo > hi {
            return Err(Error::RequestUnsent);
        }
        let (first, first_index) = geometry.locate(lo);
        let (last, last_index) = geometry.locate(hi);
        let oldest = self.oldest_held();
        if last < oldest {
            return Err(Error::RequestNotHeld);
        }
        let mut outcome = Err(Error::RequestNotHeld);
        for block in first.max(oldest)..=last {
            if *budget == 0 {
                break;
            }
            *budget -= 1;
            let mut mask = self.held_packets(block);
            if block == last {
                mask &= low_bits(last_index + 1);
            }
            if block == first {
                mask &= !low_bits(first_index);
            }
            if mask == 0 {
                continue;
            }
            mask &= !self.just_repaired(block);
            if mask == 0 {
                outcome = outcome.or(Err(Error::RequestHeldDown));
                continue;
            }
            match self.repairs.ask(self.now, target, block as u32, mask, tag) {
                Ok(_) => outcome = Ok(()),
                Err(Error::RepairsFull) => return Err(Error::RepairsFull),
                Err(reason) if outcome.is_err() => outcome = Err(reason),
                Err(_) => {}
            }
        }
        outcome
    }

    /// The oldest block that may still be in the store.
    pub(super) fn oldest_held(&self) -> u64 {
        let Some(session) = &self.session else {
            return 0;
        };
        let ring = self
            .store
            .capacity()
            .map(|c| c >> session.geometry.block_exponent());
        ring.map_or(self.start, |blocks| {
            self.start.max(self.top.saturating_sub(blocks))
        })
    }

    /// The packets of a block that this host had lost too and got as repairs to the group a moment ago. Who
    /// asks it for them sits below the turning point of its own request, so that the same repair
    /// is on its way there.
    fn just_repaired(&self, block: u64) -> u64 {
        let Some(slot) = self.slots.get(block) else {
            return 0;
        };
        let trip = self.group_trip.smoothed().unwrap_or_default();
        let hold = self.config.replier.hold_down.max(trip);
        if slot.repaired != 0 && self.now < slot.repaired_at + hold {
            slot.repaired
        } else {
            0
        }
    }

    /// The packets of a block that this host can give.
    pub(super) fn held_packets(&self, block: u64) -> u64 {
        let Some(session) = &self.session else {
            return 0;
        };
        if block < self.frontier {
            session.geometry.mask(block, session.length)
        } else {
            let held = |slot: &&super::Slot| !slot.is(HELD) || slot.is(VERIFIED);
            let slot = self.slots.get(block).filter(held);
            slot.map_or(0, |slot| slot.received)
        }
    }

    /// Digests that fit a packet no longer than the source's own, so that the dmcast around it is
    /// not fragmented either.
    fn digests_per_answer(&self) -> u64 {
        let session = self.session.as_ref();
        let longest = session.map_or(0, |session| session.geometry.packet_len());
        let room = longest.saturating_sub(digests::DIGESTS_HEADER_LEN + self.hashing.overhead());
        (room / 32).clamp(1, digests::MAX_DIGESTS) as u64
    }

    fn queue_digests<T: AsRef<[u8]>>(
        &mut self,
        target: u16,
        request: &request::Packet<T>,
    ) -> Result<(), Error> {
        let range = request.ranges().next().ok_or(Error::Value)?;
        let (lo, hi) = (u64::from(range.lo), u64::from(range.hi));
        let known = |block: u64| self.slots.get(block).is_some_and(|slot| slot.is(VERIFIED));
        let most = hi.min(lo + self.digests_per_answer() - 1);
        let count = (lo..=most).take_while(|&block| known(block)).count() as u64;
        let integrity = self
            .session
            .as_ref()
            .is_some_and(|session| session.integrity);
        if count == 0 || !integrity {
            return Err(Error::RequestNotHeld);
        }
        if self.digest_answers.is_full() {
            return Err(Error::AnswersFull);
        }
        if !self.repairs.hold_once(self.now, target, 1 << 63 | lo) {
            return Err(Error::RequestHeldDown);
        }
        // No packet has room for more digests than a byte counts.
        let answer = (target, lo as u32, count as u8);
        if self.digest_answers.push_back(answer).is_ok() {
            self.repairs.keep(target);
        }
        Ok(())
    }

    /// Others' requests were for what is no longer served.
    pub(super) fn forget_requests(&mut self) {
        self.repairs.clear();
        self.digest_answers.clear();
        self.asks_for_others_until = Instant::ZERO;
    }

    pub(super) fn poll_answers(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        if !self.answers_wait {
            return None;
        }
        let transmit = self
            .poll_digest_answer(buffer)
            .or_else(|| self.poll_repair(buffer));
        self.answers_wait = !self.repairs.is_empty() || !self.digest_answers.is_empty();
        transmit
    }

    fn poll_digest_answer(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let &(target, first, count) = self.digest_answers.front()?;
        let (first, count) = (u64::from(first), u64::from(count));
        let session = self.session.as_ref()?;
        let repr = digests::Repr {
            session: session.id,
            first_block: first as u32,
            answer: None,
            left: false,
            count: count as usize,
        };
        let len = repr.buffer_len() + self.hashing.overhead();
        let frame = len + FRAME_OVERHEAD;
        let destination = self.repairs.destination(target);
        let known = |block: u64| self.slots.get(block).is_some_and(|slot| slot.is(VERIFIED));
        let gone = !(first..first + count).all(known) || len > buffer.len();
        let Some(Target::TurningPoint(point)) = destination.filter(|_| !gone) else {
            self.digest_answers.pop_front();
            self.repairs.release(target);
            return None;
        };
        if self.repair_pacer.budget(self.now) < frame
            || !self.repairs.allows(self.now, target, frame)
        {
            return None;
        }
        self.digest_answers.pop_front();
        self.repairs.release(target);
        repr.emit(buffer);
        for index in 0..count {
            let digest = self.slots.get(first + index)?.digest;
            digests::put_digest(buffer, index as usize, &digest);
        }
        self.repairs.spend(target, frame);
        self.repair_pacer.spend(frame);
        self.stats.digests_sent += 1;
        self.stats.frame_bytes += frame as u64;
        let len = self.hashing.seal(buffer, repr.buffer_len());
        Some(Transmit {
            destination: Destination::Dmcast(point),
            len,
            segment_len: None,
        })
    }

    fn poll_repair(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        if self.repairs.is_empty() {
            return None;
        }
        let session = self.session.as_ref()?;
        let (geometry, id, length) = (session.geometry, session.id, session.length);
        let len = geometry.packet_len();
        let frame = len + FRAME_OVERHEAD;
        if self.repair_pacer.budget(self.now) < frame || buffer.len() < len {
            return None;
        }
        loop {
            let (at, repair) = self.repairs.peek(self.now, frame)?;
            let block = u64::from(repair.block);
            let held =
                block >= self.oldest_held() && self.held_packets(block) & 1 << repair.index != 0;
            let (offset, content) = geometry.span(block, repair.index, length);
            let payload = &mut buffer[data::DATA_HEADER_LEN..len];
            let destination = match repair.target {
                Target::TurningPoint(point) => Destination::Dmcast(point),
                Target::Relay => Destination::Relay,
                Target::Group | Target::Unicast(_) => {
                    self.repairs.done(self.now, at, None);
                    continue;
                }
            };
            if !held || self.store.read(offset, &mut payload[..content]).is_err() {
                self.repairs.done(self.now, at, None);
                continue;
            }
            payload[content..].fill(0);
            let number = geometry.first_packet(block) + u64::from(repair.index);
            let sequence = Seq::of(number, geometry.first());
            data::Repr {
                repair: Some(repair.tag),
                session: id,
                sequence,
            }
            .emit(buffer);
            self.repairs.done(self.now, at, Some(frame));
            self.repair_pacer.spend(frame);
            self.stats.repairs_sent += 1;
            self.stats.frame_bytes += frame as u64;
            return Some(Transmit {
                destination,
                len,
                segment_len: None,
            });
        }
    }
}
