//! What a receiver sends: questions, reports, requests, repairs.

use lms_proto::{Kind as OptionKind, LmsOption};
use proto_core::time::{Duration, Instant};
use rand_core::Rng;

use super::{Phase, Receiver, Timer};
use crate::config::Assist;
use crate::geometry::low_bits;
use crate::pacing::FRAME_OVERHEAD;
use crate::store::Store;
use crate::wire::request::{self, Kind};
use crate::{Destination, Transmit};

/// Requests this far past the source's first that bring nothing: is what they ask for real?
const DOUBT_AFTER: u8 = 2;

impl<S: Store> Receiver<'_, S> {
    /// The next packet, written into `buffer`; drain until `None`.
    ///
    /// A buffer shorter than a packet gets nothing: offer at least the sender's `max_packet_len`,
    /// and no less than 400 bytes.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        self.advance_clock(now);
        if matches!(self.phase, Phase::Ended | Phase::Idle) || buffer.len() < 400 {
            return None;
        }
        self.poll_question(buffer)
            .or_else(|| self.poll_report(buffer))
            .or_else(|| self.poll_digest_request(buffer))
            .or_else(|| self.poll_request(buffer))
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
        Transmit {
            destination,
            len,
            segment_len: None,
        }
    }

    pub(super) fn request_repr(
        &mut self,
        kind: Kind,
        number: u32,
        nonce: u64,
    ) -> Option<request::Repr> {
        let tag = self.tag();
        let session = self.session.as_ref()?;
        let trip = self.source_trip.smoothed().unwrap_or(Duration::ZERO);
        Some(request::Repr {
            kind,
            tag,
            session: session.id,
            number,
            round_trip_us: trip.total_micros().min(u64::from(u32::MAX)) as u32,
            token: self.token,
            nonce,
            ranges: heapless::Vec::new(),
        })
    }

    fn poll_digest_request(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        if !self.due(Timer::Digests) {
            return None;
        }
        self.timers.stop(Timer::Digests);
        if self.phase != Phase::Open {
            return None;
        }
        let mut ask = match self.digest_ask {
            Some(ask) => ask,
            None => self.next_digest_ask()?,
        };
        if ask.left && self.left_is_given_up(&ask) {
            return None;
        }
        ask.attempts += 1;
        let to_source = ask.attempts > u32::from(self.config.attempts_before_source)
            || self.config.assist != Assist::Lms;
        if to_source && ask.nonce == 0 {
            ask.nonce = self.rng.next_u64().max(1);
        }
        self.digest_ask = Some(ask);
        self.await_digests(ask.attempts, to_source);
        let nonce = if to_source { ask.nonce } else { 0 };
        let kind = if ask.left { Kind::Left } else { Kind::Digests };
        let mut repr = self.request_repr(kind, ask.attempts, nonce)?;
        hide_token(&mut repr, to_source);
        let range = request::Range {
            lo: ask.first as u32,
            hi: ask.last as u32,
        };
        let _ = repr.ranges.push(range);
        repr.emit(buffer);
        let destination = self.count_request(to_source)?;
        Some(self.sent(destination, buffer, repr.buffer_len()))
    }

    /// When digests are asked for again; the source was not asked before others were so often.
    fn await_digests(&mut self, attempts: u32, to_source: bool) {
        let before = u32::from(self.config.attempts_before_source);
        if attempts > before + u32::from(DOUBT_AFTER) {
            self.ask_confirmation();
        }
        let wait = if to_source {
            self.source_trip
                .timeout(attempts.saturating_sub(before).max(1))
        } else {
            self.group_trip.timeout(attempts)
        };
        let wait = wait + self.jitter(wait / 4);
        self.timers.set(Timer::Digests, self.now + wait);
    }

    fn count_request(&mut self, to_source: bool) -> Option<Destination> {
        if to_source {
            self.stats.requests_source += 1;
            self.to_source()
        } else {
            self.stats.requests_group += 1;
            self.to_group()
        }
    }

    /// Turns gaps into asks, as many as the bounds allow; the rest waits for its turn.
    pub(super) fn scan_gaps(&mut self) {
        let Some(session) = &self.session else { return };
        if self.phase != Phase::Open {
            return;
        }
        let (geometry, length) = (session.geometry, session.length);
        let base = self.window_base();
        let end = geometry.first_packet(base + self.span).min(self.highest);
        self.asked = self.asked.max(geometry.first_packet(self.frontier));
        while self.asked < end {
            if self.asks.is_full() || self.asks.outstanding() >= self.request_limit() {
                break;
            }
            let (block, index) = geometry.locate(self.asked);
            let (last, last_index) = geometry.locate(end);
            let upto = if block == last {
                last_index
            } else {
                geometry.packets_per_block()
            };
            let mask = geometry.mask(block, length) & low_bits(upto) & !low_bits(index);
            let missing = mask & !self.slots.received(block) & !self.asks.mask_of(block);
            if missing != 0 && !self.asks.add(block, missing, 0, self.now) {
                break;
            }
            self.asked = geometry.first_packet(block) + u64::from(upto);
        }
        self.schedule_request();
    }

    pub(super) fn schedule_request(&mut self) {
        match self.asks.next_deadline() {
            Some(at) => self.timers.set(Timer::Request, at),
            None => self.timers.stop(Timer::Request),
        }
    }

    fn poll_request(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        if !self.due(Timer::Request) || self.request_pacer.budget(self.now) < 1 {
            return None;
        }
        let repr = self.compose_request();
        self.schedule_request();
        let (repr, to_source) = repr?;
        self.request_pacer.spend(1);
        repr.emit(buffer);
        if self.config.assist == Assist::Dyram && !to_source {
            // It is read next door and never sent as it is: no authenticator.
            self.stats.requests_group += 1;
            return Some(Transmit {
                destination: Destination::Relay,
                len: repr.buffer_len(),
                segment_len: None,
            });
        }
        let destination = self.count_request(to_source)?;
        Some(self.sent(destination, buffer, repr.buffer_len()))
    }

    fn asks_source(&self, attempts: u8) -> bool {
        self.config.assist == Assist::None || attempts >= self.config.attempts_before_source
    }

    /// The nonce of a request for packets.
    fn data_nonce(&self, to_source: bool) -> u64 {
        let alone = self.config.assist == Assist::Lms && self.now >= self.asks_for_others_until;
        match (to_source, alone) {
            (true, _) => self.id,
            (false, true) => request::REPAIR_ALONE,
            (false, false) => 0,
        }
    }

    /// Gathers asks that are due and equally often asked into one request.
    fn compose_request(&mut self) -> Option<(request::Repr, bool)> {
        let now = self.now;
        let attempts = self
            .asks
            .iter_mut()
            .find(|ask| ask.deadline <= now)?
            .attempts;
        let to_source = self.asks_source(attempts);
        let number = u32::from(attempts) + 1;
        let nonce = self.data_nonce(to_source);
        let mut repr = self.request_repr(Kind::Data, number, nonce)?;
        hide_token(&mut repr, to_source);
        if attempts > 0 {
            self.relay_repeats();
        }
        let geometry = self.session.as_ref()?.geometry;
        // The source was not asked before it was asked `attempts_before_source` times elsewhere.
        let (trip, number) = if to_source && self.config.assist != Assist::None {
            let before = u32::from(self.config.attempts_before_source);
            (&self.source_trip, number.saturating_sub(before).max(1))
        } else if to_source {
            (&self.source_trip, number)
        } else {
            (&self.group_trip, number)
        };
        let mut wait = trip.timeout(number);
        if self.config.assist == Assist::Dyram && !to_source {
            wait = self.relay_timeout(number);
        }
        let deadline = now + wait + self.jitter(wait / 8);
        let mut asked = 0;
        for ask in self.asks.iter_mut() {
            if ask.deadline > now || ask.attempts != attempts {
                continue;
            }
            let first = geometry.first_packet(u64::from(ask.block));
            let runs = add_runs(&mut repr, &geometry, first, ask.mask);
            if runs != ask.mask {
                // No room for all of it: the whole ask goes into the next request.
                break;
            }
            asked += u64::from(ask.mask.count_ones());
            ask.attempts = ask.attempts.saturating_add(1);
            ask.tag = repr.tag;
            ask.sent = now;
            ask.deadline = deadline;
            ask.by_source = to_source;
        }
        self.stats.requested_packets += asked;
        if attempts
            >= self
                .config
                .attempts_before_source
                .saturating_add(DOUBT_AFTER)
        {
            self.ask_confirmation();
        }
        (!repr.ranges.is_empty()).then_some((repr, to_source))
    }
}

/// A token proves this address to the source: only the source gets to see it.
fn hide_token(repr: &mut request::Repr, to_source: bool) {
    if !to_source {
        repr.token = 0;
    }
}

/// Adds the runs of a block's mask as ranges; the packets that found room.
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
