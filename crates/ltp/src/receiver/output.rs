//! What a receiver sends: questions, reports, requests, repairs.

use lms_proto::{Kind as OptionKind, LmsOption};
use proto_core::time::{Duration, Instant};

use super::recovery::Target;
use super::{Phase, Receiver, Timer};
use crate::pacing::FRAME_OVERHEAD;
use crate::store::Store;
use crate::wire::Seq;
use crate::wire::request::{self, Kind};
use crate::{Destination, Transmit};

/// What a receiver has to send.
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
            .or_else(|| self.poll_feedback(buffer))
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
        Some(Destination::Unicast(self.session.as_ref()?.source()))
    }

    fn to_group(&self) -> Option<Destination> {
        let session = self.session.as_ref()?;
        Some(Destination::Request(LmsOption {
            kind: OptionKind::Request,
            turning_point: None,
            source: session.source().ip(),
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
            session: session.id(),
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
        if !self.due(Timer::Request) || !self.gaps.may_request(self.now) {
            return None;
        }
        let request = self.compose_request();
        self.schedule_request();
        let (repr, target) = request?;
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
        let attempts = self.gaps.due(now)?;
        let target = self.recovery.target(attempts);
        let number = u32::from(attempts) + 1;
        let nonce = self.recovery.nonce(target, self.identity.id(), now);
        // The packets themselves, where parity did not help.
        let is_late = attempts >= self.config.attempts_before_source;
        let kind = match self.takes_parity() && !is_late {
            true => Kind::DataOrParity,
            false => Kind::Data,
        };
        let mut repr = self.request_repr(kind, number, nonce, target)?;
        if attempts > 0 {
            self.recovery.repeats(now);
        }
        let geometry = self.session.as_ref()?.geometry();
        let wait = self.recovery.timeout(number, target);
        let times = (now, now + wait + self.identity.jitter(wait / 8));
        let by_source = target == Target::Source;
        let packets = self
            .gaps
            .compose(&mut repr, &geometry, attempts, by_source, times);
        self.stats.requested_packets += packets;
        if self.recovery.is_doubtful(attempts) {
            self.request_confirmation();
        }
        Some((repr, target))
    }
}
