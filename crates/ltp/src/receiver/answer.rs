//! The replier: answers requests of other receivers with dmcasts to their turning points (LMS §6.3.2).
//!
//! | request | verdict |
//! | --- | --- |
//! | by unicast | dropped: only the source is requested from by unicast |
//! | without option, or option without turning point | dropped: no router has turned it; the router of this link forwards it upward, and the repair comes down from there |
//! | option of another source or group | dropped |
//! | turned, but this host is not the elected replier of its link | dropped |
//! | turned, for packets that this host lacks | dropped: its own request is on its way |
//! | turned, for packets that this host has just received as repairs to the group | dropped: the same repair reaches the requester |
//! | turned, for packets that it stores | repaired to the turning point, within its rate |
//! | turned, for packets or parity of a block that it has whole | as many parity packets, less those that have just come to the group on request; parity in advance does not count |

use lms_proto::{Kind as OptionKind, TurningPoint};
use managed::ManagedSlice;
use proto_core::time::Instant;

use super::{Output, Phase, Receiver};
use crate::config::ReplierConfig;
use crate::error::Error;
use crate::geometry::low_bits;
use crate::pacing::{FRAME_OVERHEAD, Pacer};
use crate::parity::{Encoder, Owned, shard_len};
use crate::replier::{
    HoldDown, Pending, Repair, Repairs, Target, TargetEntry, TargetLimits, Wanted, With,
};
use crate::store::Store;
use crate::wire::parity::{self, PARITY_HEADER_LEN};
use crate::wire::request::{self, Kind};
use crate::wire::{MAC_LEN, Seq, data, digests};
use crate::{Destination, Geometry, Meta, Path, Transmit};

/// Blocks answered for one request; the receiver requests the others again.
const BLOCKS_PER_REQUEST: u32 = 32;
/// Length of the longest packet of digests.
const LONGEST_DIGESTS: usize = digests::DIGESTS_HEADER_LEN + 32 * digests::MAX_DIGESTS + MAC_LEN;

/// Answers to requests of other receivers, and their rate.
#[derive(Debug)]
pub(super) struct Replies<'a> {
    repairs: Repairs<'a>,
    pacer: Pacer,
    /// Target, first block (32 bits on the wire) and number of blocks.
    digests: heapless::Deque<(u16, u32, u8), 4>,
    /// Makes parity, once it was requested.
    encoder: Option<Owned<Encoder>>,
    /// Whether any wait; checked on the path of each data packet.
    is_waiting: bool,
}

impl<'a> Replies<'a> {
    pub(super) fn new(
        config: &ReplierConfig,
        pending: ManagedSlice<'a, Pending>,
        hold_down: ManagedSlice<'a, HoldDown>,
        targets: ManagedSlice<'a, TargetEntry>,
        now: Instant,
    ) -> Self {
        let depth = |rate: u64| {
            let bytes = u128::from(rate) * u128::from(config.burst.total_micros()) / 8_000_000;
            bytes.min(1 << 32) as usize
        };
        let per_point = config.turning_point_rate_bps;
        let limits = TargetLimits {
            rate_bps: Some(per_point),
            depth_len: depth(per_point),
        };
        Replies {
            repairs: Repairs::new(pending, hold_down, targets, limits, config.hold_down),
            pacer: Pacer::new(Some(config.rate_bps), depth(config.rate_bps), now),
            digests: heapless::Deque::new(),
            encoder: None,
            is_waiting: false,
        }
    }

    /// Begins a session, of which nothing is queued yet.
    pub(super) fn begin(&mut self, geometry: &Geometry) {
        let packets = geometry.packets_per_block();
        self.repairs.set_packets_per_block(packets);
        self.encoder = None;
        // A bucket that is shorter than a packet would never let it through.
        let longest = geometry.packet_len().max(LONGEST_DIGESTS);
        let depth = 2 * (longest + FRAME_OVERHEAD);
        self.repairs.deepen(depth);
        self.pacer.deepen(depth);
    }

    /// Forgets the parity that was made: bytes of the content were wrong.
    pub(super) fn forget_parity(&mut self) {
        self.encoder = None;
    }

    /// Queues the repair of a packet for the relay.
    pub(super) fn queue_for_relay(
        &mut self,
        now: Instant,
        block: u64,
        index: u32,
    ) -> Result<(), Error> {
        let target = self.target(now, Target::Relay)?;
        let wanted = Wanted::packet(block, index);
        self.repairs.queue(now, target, &wanted)
    }

    /// Returns the index of a target, for which something is to be queued.
    fn target(&mut self, now: Instant, target: Target) -> Result<u16, Error> {
        let target = self.repairs.target(now, target);
        self.is_waiting |= target.is_some();
        target.ok_or(Error::TargetsFull)
    }

    /// Returns when the next answer may be sent. `frame_len`: length of a repair; `overhead`: of an authenticator.
    #[inline]
    pub(super) fn poll_timeout(
        &self,
        frame_len: impl FnOnce() -> usize,
        overhead: usize,
    ) -> Option<Instant> {
        if !self.is_waiting {
            return None;
        }
        let frame = frame_len();
        let repairs = self.repairs.poll_timeout(frame);
        let repairs = repairs.map(|at| at.max(self.pacer.ready_at(frame)));
        let digests = self.digests.front().map(|&(target, _, count)| {
            let len = digests::DIGESTS_HEADER_LEN + 32 * usize::from(count);
            let frame = len + overhead + FRAME_OVERHEAD;
            let allowed = self.repairs.allowed_at(target, frame);
            allowed.max(self.pacer.ready_at(frame))
        });
        repairs.into_iter().chain(digests).min()
    }
}

impl<S: Store> Receiver<'_, S> {
    pub(super) fn on_request(&mut self, meta: &Meta, request: &request::Repr) -> Result<(), Error> {
        let session = self.session.as_ref().ok_or(Error::BeforeSync)?;
        if request.session != session.id() {
            return Err(Error::OtherSession);
        }
        if matches!(self.phase, Phase::Failed | Phase::Ended) || !self.config.replier.enabled {
            return Err(Error::Ended);
        }
        let point = self.turning_point(meta)?;
        if matches!(request.kind, Kind::Sync | Kind::Left) {
            return Err(Error::Unexpected);
        }
        if matches!(request.kind, Kind::Data | Kind::DataOrParity) {
            self.recovery.requested_from_below(self.now);
        }
        let target = self.replies.target(self.now, Target::TurningPoint(point))?;
        match request.kind {
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
            && option.source == session.source().ip();
        if !fits {
            return Err(Error::OptionMismatch);
        }
        let point = option.turning_point.ok_or(Error::NotTurned)?;
        if !meta.elected {
            return Err(Error::NotElected);
        }
        Ok(point)
    }

    fn queue_repairs(&mut self, target: u16, request: &request::Repr) -> Result<(), Error> {
        let mut outcome = Err(Error::RequestNotStored);
        let mut budget = BLOCKS_PER_REQUEST;
        for range in &request.ranges {
            let asked = (request.kind, request.tag);
            outcome = outcome.or(self.queue_range(target, range, asked, &mut budget));
        }
        outcome
    }

    fn queue_range(
        &mut self,
        target: u16,
        range: &request::Range,
        asked: (Kind, u16),
        budget: &mut u32,
    ) -> Result<(), Error> {
        let session = self.session.as_ref().ok_or(Error::BeforeSync)?;
        let geometry = session.geometry();
        // Near the verified blocks, not near the newest number, which may be forged.
        let near = geometry.first_packet(self.window.frontier());
        let (lo, hi) = geometry
            .clip(range, near, self.gaps.highest())
            .ok_or(Error::RequestUnsent)?;
        let oldest = geometry.first_packet(self.oldest_stored());
        if hi < oldest {
            return Err(Error::RequestNotStored);
        }
        let mut outcome = Err(Error::RequestNotStored);
        for (block, mask) in geometry.masks(lo.max(oldest), hi) {
            if *budget == 0 {
                break;
            }
            *budget -= 1;
            let Some(wanted) = self.repaired_with(asked, block, mask) else {
                continue;
            };
            let queued = match wanted.mask {
                0 => Err(Error::RequestHeldDown),
                _ => self.replies.repairs.queue(self.now, target, &wanted),
            };
            if queued == Err(Error::RepairsFull) {
                return queued;
            }
            outcome = outcome.or(queued);
        }
        outcome
    }

    /// Returns what repairs the requested packets of a block, less what has just come to this host and the requester
    /// alike: parity, if the requester takes it and this host has the whole block. `None`: it has none of the packets.
    fn repaired_with(&mut self, (kind, tag): (Kind, u16), block: u64, mask: u64) -> Option<Wanted> {
        let stored = mask & self.stored_packets(block);
        let just_repaired = self.just_repaired(block);
        let wanted = Wanted {
            block: block as u32,
            mask: stored & !just_repaired,
            with: With::Packets,
            tag,
        };
        let is_whole = self.holds_whole(block);
        if kind == Kind::DataOrParity && is_whole && self.make_encoder() {
            let just_came = low_bits(just_repaired.count_ones());
            return Some(Wanted {
                mask: low_bits(mask.count_ones()) & !just_came,
                with: With::Parity,
                ..wanted
            });
        }
        (stored != 0).then_some(wanted)
    }

    /// Whether this host can repair any packet of a block.
    fn holds_whole(&self, block: u64) -> bool {
        self.session_is(|session| self.stored_packets(block) == session.mask(block))
    }

    /// Returns whether this host makes parity, of a source that does.
    fn make_encoder(&mut self) -> bool {
        let session = self.session.as_ref().filter(|session| session.has_parity());
        if let (Some(session), None) = (session, &self.replies.encoder) {
            self.replies.encoder = Encoder::new(&session.geometry(), self.identity.id());
        }
        session.is_some() && self.replies.encoder.is_some()
    }

    /// Returns the oldest block that may still be in the store.
    pub(super) fn oldest_stored(&self) -> u64 {
        let Some(session) = &self.session else {
            return 0;
        };
        let ring = self
            .store
            .capacity()
            .map(|c| c >> session.geometry().block_exponent());
        ring.map_or(self.window.start(), |blocks| {
            self.window
                .start()
                .max(self.window.top().saturating_sub(blocks))
        })
    }

    /// Returns the packets of a block that came as repairs to the group within the hold-down time. A receiver
    /// that requests them here is below the turning point of this host's own request, so that the same repair
    /// reaches it.
    fn just_repaired(&self, block: u64) -> u64 {
        let trip = self.recovery.group_trip().unwrap_or_default();
        let hold = self.config.replier.hold_down.max(trip);
        self.window.repaired(block, self.now, hold)
    }

    /// Returns the packets of a block that this host can repair.
    pub(super) fn stored_packets(&self, block: u64) -> u64 {
        let Some(session) = &self.session else {
            return 0;
        };
        if block < self.window.frontier() {
            session.mask(block)
        } else {
            self.window.repairable(block)
        }
    }

    /// Returns how many digests fit a packet no longer than the source's, so that the dmcast around it is not
    /// fragmented.
    fn digests_per_answer(&self) -> u64 {
        let session = self.session.as_ref();
        let longest = session.map_or(0, |session| session.geometry().packet_len());
        let room = longest.saturating_sub(digests::DIGESTS_HEADER_LEN + self.hashing.overhead());
        (room / 32).clamp(1, digests::MAX_DIGESTS) as u64
    }

    fn queue_digests(&mut self, target: u16, request: &request::Repr) -> Result<(), Error> {
        let range = request.ranges.first().ok_or(Error::Value)?;
        let (lo, hi) = (u64::from(range.lo), u64::from(range.hi));
        let known = |block: u64| self.window.verified_digest(block).is_some();
        let most = hi.min(lo + self.digests_per_answer() - 1);
        let count = (lo..=most).take_while(|&block| known(block)).count() as u64;
        if count == 0 || !self.integrity() {
            return Err(Error::RequestNotStored);
        }
        if self.replies.digests.is_full() {
            return Err(Error::AnswersFull);
        }
        if !self
            .replies
            .repairs
            .hold_once(self.now, target, 1 << 63 | lo)
        {
            return Err(Error::RequestHeldDown);
        }
        // No packet has room for more digests than a byte counts.
        let answer = (target, lo as u32, count as u8);
        if self.replies.digests.push_back(answer).is_ok() {
            self.replies.repairs.keep(target);
        }
        Ok(())
    }

    /// Drops queued answers, which are of an older session.
    pub(super) fn forget_requests(&mut self) {
        self.replies.repairs.clear();
        self.replies.digests.clear();
        self.recovery.forget_requests_from_below();
    }

    pub(super) fn poll_answers(&mut self, buffer: &mut [u8]) -> Option<Output> {
        if !self.replies.is_waiting {
            return None;
        }
        let digests = self.poll_digest_answer(buffer).map(Output::Packet);
        let output = digests.or_else(|| self.poll_repair(buffer));
        self.replies.is_waiting =
            !self.replies.repairs.is_empty() || !self.replies.digests.is_empty();
        output
    }

    fn poll_digest_answer(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let &(target, first, count) = self.replies.digests.front()?;
        let (first, count) = (u64::from(first), u64::from(count));
        let session = self.session.as_ref()?;
        let repr = digests::Repr {
            session: session.id(),
            first_block: first as u32,
            answer: None,
            left: false,
            count: count as usize,
        };
        let len = repr.buffer_len() + self.hashing.overhead();
        let frame = len + FRAME_OVERHEAD;
        let destination = self.replies.repairs.destination(target);
        let known = |block: u64| self.window.verified_digest(block).is_some();
        let gone = !(first..first + count).all(known) || len > buffer.len();
        let Some(Target::TurningPoint(point)) = destination.filter(|_| !gone) else {
            self.replies.digests.pop_front();
            self.replies.repairs.release(target);
            return None;
        };
        if self.replies.pacer.budget(self.now) < frame
            || !self.replies.repairs.allows(self.now, target, frame)
        {
            return None;
        }
        self.replies.digests.pop_front();
        self.replies.repairs.release(target);
        repr.emit(buffer);
        for index in 0..count {
            let digest = self.window.verified_digest(first + index)?;
            digests::put_digest(buffer, index as usize, digest);
        }
        self.replies.repairs.spend(target, frame);
        self.replies.pacer.spend(frame);
        self.stats.digests_sent += 1;
        self.stats.frame_bytes += frame as u64;
        let len = self.hashing.seal(buffer, repr.buffer_len());
        Some(Transmit::packet(Destination::Dmcast(point), len))
    }

    fn poll_repair(&mut self, buffer: &mut [u8]) -> Option<Output> {
        if self.replies.repairs.is_empty() {
            return None;
        }
        let session = self.session.as_ref()?;
        let (geometry, id, length) = (session.geometry(), session.id(), session.length());
        let len = geometry.packet_len();
        let frame = len + FRAME_OVERHEAD;
        if self.replies.pacer.budget(self.now) < frame || buffer.len() < len {
            return None;
        }
        loop {
            let (at, repair) = self.replies.repairs.peek(self.now, frame)?;
            if repair.with != With::Packets {
                match self.write_parity(&repair, &geometry, buffer) {
                    Some(transmit) => {
                        let frame = transmit.len + FRAME_OVERHEAD;
                        self.replies.repairs.done(self.now, at, Some(frame));
                        self.replies.pacer.spend(frame);
                        self.stats.parity_sent += 1;
                        self.stats.frame_bytes += frame as u64;
                        return Some(Output::Packet(transmit));
                    }
                    None => {
                        self.replies.repairs.done(self.now, at, None);
                        continue;
                    }
                }
            }
            let block = u64::from(repair.block);
            let held = block >= self.oldest_stored()
                && self.stored_packets(block) & 1 << repair.index != 0;
            let (offset, content) = geometry.span(block, repair.index, length);
            let payload = &mut buffer[data::DATA_HEADER_LEN..len];
            let destination = match repair.target {
                Target::TurningPoint(point) => Some(Destination::Dmcast(point)),
                Target::Relay => None,
                Target::Group | Target::Unicast(_) => {
                    self.replies.repairs.done(self.now, at, None);
                    continue;
                }
            };
            if !held || self.store.read(offset, &mut payload[..content]).is_err() {
                self.replies.repairs.done(self.now, at, None);
                continue;
            }
            payload[content..].fill(0);
            let number = geometry.first_packet(block) + u64::from(repair.index);
            let sequence = Seq::of(number, geometry.first());
            data::Repr {
                repair: Some(repair.tag),
                session: id,
                sequence,
                number: None,
            }
            .emit(buffer);
            self.replies.repairs.done(self.now, at, Some(frame));
            self.replies.pacer.spend(frame);
            self.stats.repairs_sent += 1;
            self.stats.frame_bytes += frame as u64;
            return Some(match destination {
                Some(destination) => Output::Packet(Transmit::packet(destination, len)),
                None => Output::RelayRepair { sequence, len },
            });
        }
    }

    /// Writes the next parity packet of a block. `None`: it cannot be made.
    fn write_parity(
        &mut self,
        repair: &Repair,
        geometry: &Geometry,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        let Target::TurningPoint(point) = repair.target else {
            return None;
        };
        let block = u64::from(repair.block);
        let session = self.session.as_ref()?;
        let packets = session.mask(block).count_ones();
        let is_held = block >= self.oldest_stored() && self.holds_whole(block);
        let encoder = self.replies.encoder.as_mut().filter(|_| is_held)?;
        if !encoder.holds(repair.block) {
            let (offset, len) = session.place(block);
            let bytes = self.store.block(offset, len).ok()?;
            encoder.load(repair.block, packets, bytes);
        }
        let len = PARITY_HEADER_LEN + shard_len(geometry.payload_len());
        let (header, shard) = buffer.get_mut(..len)?.split_at_mut(PARITY_HEADER_LEN);
        let index = encoder.next(repair.block, shard)?;
        parity::Repr {
            tag: repair.tag,
            session: session.id(),
            block: repair.block,
            number: None,
            index,
            packets: packets as u8,
        }
        .emit(header);
        Some(Transmit::packet(Destination::Dmcast(point), len))
    }
}
