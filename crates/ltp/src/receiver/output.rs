//! What a receiver sends: questions, reports, requests, repairs.

use lms_proto::{Kind as OptionKind, LmsOption};
use proto_core::time::{Duration, Instant};

use super::recovery::Target;
use super::{Phase, Receiver, Timer};
use crate::geometry::low_bits;
use crate::pacing::FRAME_OVERHEAD;
use crate::store::Store;
use crate::wire::Seq;
use crate::wire::request::{self, Kind};
use crate::{Destination, Transmit};

/// What a receiver has to send.
#[expect(
    clippy::large_enum_variant,
    reason = "a request is rare, and is consumed at once"
)]
pub(crate) enum Output {
    /// A packet in the buffer.
    Packet(Transmit),
    /// A request to the relay. Only the relay reads it, so that it has no authenticator.
    RelayRequest(request::Repr),
    /// A repair for the relay, of `len` bytes, in the buffer.
    RelayRepair {
        /// The packet that it repairs.
        sequence: Seq,
        /// Bytes used of the buffer.
        len: usize,
    },
}

impl<S: Store> Receiver<'_, S> {
    /// Writes the next packet into `buffer`. Drain it until `None`.
    ///
    /// A buffer shorter than a packet gets nothing: offer at least the sender's `max_packet_len`,
    /// and no less than 400 bytes.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let len = match self.poll_output(now, buffer)? {
            Output::Packet(transmit) => return Some(transmit),
            Output::RelayRequest(repr) => {
                repr.emit(buffer);
                repr.buffer_len()
            }
            Output::RelayRepair { len, .. } => len,
        };
        Some(Transmit::packet(Destination::Relay, len))
    }

    /// Returns what [`Receiver::poll_transmit`] does; what goes to a relay is not yet a packet.
    pub(crate) fn poll_output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Output> {
        self.advance_clock(now);
        if matches!(self.phase, Phase::Ended | Phase::Idle) || buffer.len() < 400 {
            return None;
        }
        let control = self
            .poll_question(buffer)
            .or_else(|| self.poll_report(buffer))
            .or_else(|| self.poll_digest_request(buffer));
        if let Some(transmit) = control {
            return Some(Output::Packet(transmit));
        }
        self.poll_request(buffer)
            .or_else(|| self.poll_answers(buffer))
    }

    pub(super) fn due(&self, timer: Timer) -> bool {
        self.timers.at(timer).is_some_and(|at| at <= self.now)
    }

    pub(super) fn to_source(&self) -> Option<Destination> {
        Some(Destination::Unicast(self.session.as_ref()?.source))
    }

    fn to_group(&self) -> Option<Destination> {
        let session = self.session.as_ref()?;
        Some(Destination::Request(LmsOption {
            kind: OptionKind::Request,
            turning_point: None,
            source: session.source.ip(),
            group: self.config.group.ip(),
        }))
    }

    pub(super) fn sent(
        &mut self,
        destination: Destination,
        buffer: &mut [u8],
        len: usize,
    ) -> Transmit {
        let len = self.hashing.seal(buffer, len);
        self.stats.frame_bytes += (len + FRAME_OVERHEAD) as u64;
        Transmit::packet(destination, len)
    }

    /// Returns a request without ranges.
    pub(super) fn request_repr(
        &mut self,
        kind: Kind,
        number: u32,
        nonce: u64,
        target: Target,
    ) -> Option<request::Repr> {
        let tag = self.identity.next_tag();
        let session = self.session.as_ref()?;
        let trip = self
            .recovery
            .source_trip()
            .smoothed()
            .unwrap_or(Duration::ZERO);
        // The token proves this address, so that only the source may see it.
        let token = match target {
            Target::Source => self.identity.token(),
            Target::Group | Target::Relay => 0,
        };
        Some(request::Repr {
            kind,
            tag,
            session: session.id,
            number,
            round_trip_us: trip.total_micros().min(u64::from(u32::MAX)) as u32,
            token,
            nonce,
            ranges: heapless::Vec::new(),
        })
    }

    /// Counts a request, and returns its destination.
    pub(super) fn request_destination(&mut self, target: Target) -> Option<Destination> {
        match target {
            Target::Source => self.stats.requests_source += 1,
            Target::Group | Target::Relay => self.stats.requests_group += 1,
        }
        match target {
            Target::Source => self.to_source(),
            Target::Group => self.to_group(),
            Target::Relay => Some(Destination::Relay),
        }
    }

    fn poll_request(&mut self, buffer: &mut [u8]) -> Option<Output> {
        if !self.due(Timer::Request) || self.gaps.pacer.budget(self.now) < 1 {
            return None;
        }
        let request = self.compose_request();
        self.schedule_request();
        let (repr, target) = request?;
        self.gaps.pacer.spend(1);
        let destination = self.request_destination(target)?;
        if target == Target::Relay {
            return Some(Output::RelayRequest(repr));
        }
        repr.emit(buffer);
        let transmit = self.sent(destination, buffer, repr.buffer_len());
        Some(Output::Packet(transmit))
    }

    /// Gathers requests that are due and were sent equally often into one.
    fn compose_request(&mut self) -> Option<(request::Repr, Target)> {
        let now = self.now;
        let attempts = self.gaps.requests.due(now)?.attempts;
        let target = self.recovery.target(attempts);
        let number = u32::from(attempts) + 1;
        let nonce = self.recovery.nonce(target, self.identity.id(), now);
        let mut repr = self.request_repr(Kind::Data, number, nonce, target)?;
        if attempts > 0 {
            self.recovery.repeats(now);
        }
        let geometry = self.session.as_ref()?.geometry;
        let wait = self.recovery.timeout(number, target);
        let deadline = now + wait + self.identity.jitter(wait / 8);
        let mut packets = 0;
        for request in self.gaps.requests.iter_mut() {
            if request.deadline > now || request.attempts != attempts {
                continue;
            }
            let first = geometry.first_packet(u64::from(request.block));
            let runs = add_runs(&mut repr, &geometry, first, request.mask);
            if runs != request.mask {
                // No room for all of the block: it goes into the next request.
                break;
            }
            packets += u64::from(request.mask.count_ones());
            request.attempts = request.attempts.saturating_add(1);
            request.tag = repr.tag;
            request.sent = now;
            request.deadline = deadline;
            request.by_source = target == Target::Source;
        }
        self.stats.requested_packets += packets;
        if self.recovery.is_doubtful(attempts) {
            self.request_confirmation();
        }
        (!repr.ranges.is_empty()).then_some((repr, target))
    }
}

/// Adds the runs of a block's mask as ranges. Returns the packets that had room.
fn add_runs(repr: &mut request::Repr, geometry: &crate::Geometry, first: u64, mask: u64) -> u64 {
    let mut left = mask;
    let (count, last) = (repr.ranges.len(), repr.ranges.last().copied());
    while left != 0 {
        let start = left.trailing_zeros();
        let run = (left >> start).trailing_ones();
        let lo = crate::wire::Seq::of(first + u64::from(start), geometry.first()).0;
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
                    return 0;
                }
            }
        }
        left &= !(low_bits(run) << start);
    }
    mask
}
