//! Adverts to the links: when they are due, and the messages that carry them.

use super::config::hold_time;
use super::state::{Advert, advert_key, stream_key};
use super::{Hierarchy, Neighbour};
use crate::wire::hier::{self, Cost, HEADER_LEN, Header, Kind, Writer, entry_len, max_entries};
use crate::{Duration, Family, Iface, Instant, NextHop, Transmit};
use igmp::datagram::{self, udp_at};
use proto_core::slab::NIL;

use rand_core::Rng;

/// Times that a withdrawal is sent, so that the loss of one message is tolerated.
const WITHDRAWALS: u8 = 3;
/// A late driver may catch up on this time at once.
const CATCH_UP: Duration = Duration::from_millis(10);

/// Returns how many messages refresh a ring of adverts. They share it evenly.
fn messages<A: Family>(ring_len: u32) -> u32 {
    ring_len.div_ceil(max_entries::<A>() as u32).max(1)
}

impl<A: Family> Hierarchy<'_, A> {
    pub(super) fn find_advert(&self, e: u32, iface: Iface, kind: Kind) -> Option<u32> {
        self.adverts.find(advert_key(e, iface, kind))
    }

    /// Adds an advert that does not exist to a table that is not full.
    pub(super) fn add_advert(&mut self, entry: u32, iface: Iface, kind: Kind) -> u32 {
        let advert = Advert {
            entry,
            iface,
            kind,
            ..Advert::default()
        };
        match self.adverts.insert(advert) {
            Ok(at) => {
                self.entries[entry].advert_count += 1;
                at
            }
            Err(_) => NIL,
        }
    }

    /// Returns the current value of an advert.
    fn value(&self, advert: &Advert) -> hier::Entry<A> {
        let entry = &self.entries[advert.entry];
        let none = hier::Entry {
            key: entry.key,
            neighbour: None,
            cost: Cost::WITHDRAWN,
        };
        let Some(elected) = self.neighbours.get(entry.elected) else {
            return none;
        };
        let Neighbour {
            iface,
            address,
            cost,
            ..
        } = *elected;
        match advert.kind {
            Kind::Update if advert.iface == entry.parent => hier::Entry {
                cost: cost.through(self.config.own_cost),
                ..none
            },
            Kind::Elected if advert.iface == iface => hier::Entry {
                neighbour: Some(address),
                cost,
                ..none
            },
            _ => none,
        }
    }

    /// Returns whether the advert is repeated while nothing changes.
    fn is_lasting(&self, advert: &Advert) -> bool {
        match advert.kind {
            Kind::Update => self.value(advert).cost.is_offer(),
            Kind::Elected => advert.offer_count > 0,
        }
    }

    /// Schedules an advert whose value may have changed.
    pub(super) fn touch(&mut self, now: Instant, a: u32) {
        let advert = &self.adverts[a];
        let (is_ready, sent_at) = (advert.is_ready, advert.sent_at);
        let Some(stream) = self.streams.find(stream_key(advert.iface, advert.kind)) else {
            self.adverts[a].withdrawals = 0;
            return;
        };
        if self.is_lasting(advert) {
            self.adverts[a].withdrawals = WITHDRAWALS;
        } else if advert.withdrawals == 0 {
            return;
        }
        if is_ready {
            return;
        }
        match sent_at.map(|at| at + self.config.damping) {
            Some(until) if until > now => {
                self.adverts.schedule(a, until);
                return;
            }
            _ => self.adverts.cancel(a),
        }
        let fresh = &mut self.adverts[a];
        (fresh.is_ready, fresh.ready_next) = (true, NIL);
        let s = &mut self.streams[stream];
        match core::mem::replace(&mut s.ready_tail, a) {
            NIL => {
                s.ready_head = a;
                s.gathered_at = now + self.config.gather;
            }
            tail => self.adverts[tail].ready_next = a,
        }
        self.reschedule(stream);
    }

    /// Frees an advert whose withdrawals were sent, unless its entry needs it.
    pub(super) fn release_advert(&mut self, a: u32) {
        let advert = &self.adverts[a];
        let e = advert.entry;
        let entry = &self.entries[e];
        let is_needed = match advert.kind {
            Kind::Update => advert.iface == entry.parent && !entry.is_leaving,
            Kind::Elected => advert.offer_count > 0,
        };
        if is_needed || advert.is_ready || advert.withdrawals > 0 {
            return;
        }
        self.unring(a);
        self.adverts.remove(a);
        self.entries[e].advert_count -= 1;
        self.release_entry(e);
    }

    /// Frees a removed entry once its withdrawals have been sent.
    pub(super) fn release_entry(&mut self, e: u32) {
        let entry = &self.entries[e];
        let is_idle = entry.advert_count == 0 && entry.neighbour_count == 0 && !entry.is_changed;
        if entry.is_leaving && is_idle {
            self.entries.remove(e);
        }
    }

    /// Empties the ring and the queue of a stream before its removal.
    pub(super) fn silence(&mut self, stream: u32) {
        while self.streams[stream].ready_head != NIL {
            self.pop_ready(stream);
        }
        while self.streams[stream].ring_head != NIL {
            self.unring(self.streams[stream].ring_head);
        }
    }

    fn pop_ready(&mut self, stream: u32) -> Option<u32> {
        let s = &mut self.streams[stream];
        if s.ready_head == NIL {
            return None;
        }
        let a = s.ready_head;
        s.ready_head = self.adverts[a].ready_next;
        if s.ready_head == NIL {
            s.ready_tail = NIL;
        }
        self.adverts[a].is_ready = false;
        self.adverts[a].ready_next = NIL;
        Some(a)
    }

    fn unring(&mut self, a: u32) {
        let Advert {
            ring_back,
            ring_next,
            is_in_ring,
            iface,
            kind,
            ..
        } = self.adverts[a];
        let Some(stream) = self
            .streams
            .find(stream_key(iface, kind))
            .filter(|_| is_in_ring)
        else {
            return;
        };
        self.adverts[a].is_in_ring = false;
        let s = &mut self.streams[stream];
        s.ring_len -= 1;
        match ring_back {
            NIL => s.ring_head = ring_next,
            back => self.adverts[back].ring_next = ring_next,
        }
        match ring_next {
            NIL => s.ring_tail = ring_back,
            next => self.adverts[next].ring_back = ring_back,
        }
    }

    /// Appends an advert to its ring, which is in the order of the last transmission.
    fn ring(&mut self, stream: u32, a: u32) {
        let tail = core::mem::replace(&mut self.streams[stream].ring_tail, a);
        let advert = &mut self.adverts[a];
        (advert.ring_back, advert.ring_next, advert.is_in_ring) = (tail, NIL, true);
        match tail {
            NIL => self.streams[stream].ring_head = a,
            tail => self.adverts[tail].ring_next = a,
        }
        self.streams[stream].ring_len += 1;
    }

    /// Time between periodic messages, so that each advert of the ring is sent once in a refresh
    /// time and a little early.
    fn interval(&self, ring_len: u32) -> Duration {
        let micros = self.config.refresh.total_micros() / 20 * 19;
        Duration::from_micros(micros / u64::from(messages::<A>(ring_len)))
    }

    fn reschedule(&mut self, stream: u32) {
        let s = &self.streams[stream];
        let ready = (s.ready_head != NIL).then_some(s.gathered_at);
        let periodic = (s.ring_head != NIL).then_some(s.next_periodic);
        match [ready, periodic].into_iter().flatten().min() {
            Some(at) => {
                let at = at.max(s.next_allowed);
                self.streams.schedule(stream, at);
            }
            None => self.streams.cancel(stream),
        }
    }

    /// Writes the next message to send, a whole IPv4 packet; `buffer` should have room for 1,068 bytes,
    /// in a shorter one fewer entries share a message. `None` below 60 bytes.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit<A>> {
        if buffer.len() < udp_at::<A>() + HEADER_LEN + entry_len::<A>() {
            return None;
        }
        loop {
            let (at, stream) = self.streams.next_due()?;
            if at > now {
                return None;
            }
            if let Some(transmit) = self.message(now, stream, buffer) {
                return Some(transmit);
            }
        }
    }

    /// Writes a message of the ready adverts and, when periodic ones are due, of the next in the ring. `None` without any;
    /// then the stream's timer has been rescheduled.
    fn message(&mut self, now: Instant, stream: u32, buffer: &mut [u8]) -> Option<Transmit<A>> {
        let mut writer = Writer::new(&mut buffer[udp_at::<A>()..])?;
        let is_periodic = self.streams[stream].next_periodic <= now;
        let mut periodic_left = if is_periodic {
            let ring_len = self.streams[stream].ring_len;
            ring_len.div_ceil(messages::<A>(ring_len))
        } else {
            0
        };
        while writer.has_room() {
            let a = match self.pop_ready(stream) {
                Some(a) => a,
                None if periodic_left > 0 => {
                    periodic_left -= 1;
                    match self.streams[stream].ring_head {
                        // Sent in this message already, because it changed.
                        head if head == NIL || self.adverts[head].sent_at == Some(now) => break,
                        head => head,
                    }
                }
                None => break,
            };
            let value = self.value(&self.adverts[a]);
            writer.push(&value);
            self.sent(now, stream, a);
        }
        let count = writer.count();
        self.sequence = self.sequence.wrapping_add(u32::from(count > 0));
        let s = &self.streams[stream];
        let (iface, kind, source) = (s.iface, s.kind, s.config.link_local);
        let hold_time_ms = hold_time(self.config.refresh).total_millis() as u16;
        let header = Header {
            kind,
            boot: self.boot,
            sequence: self.sequence,
            hold_time_ms,
        };
        let len = writer.finish(&header);
        self.pace(now, stream, is_periodic, count > 0);
        if count == 0 {
            return None;
        }
        match kind {
            Kind::Update => self.stats.updates_sent += 1,
            Kind::Elected => self.stats.elected_sent += 1,
        }
        let len = datagram::finish_udp::<A>(buffer, source, A::LINK_GROUP, hier::PORT, len)?;
        Some(Transmit {
            iface,
            next_hop: NextHop::Group,
            len,
        })
    }

    /// An advert was sent: appends it to the ring, or frees it.
    fn sent(&mut self, now: Instant, stream: u32, a: u32) {
        self.unring(a);
        self.adverts[a].sent_at = Some(now);
        if self.is_lasting(&self.adverts[a]) {
            self.adverts.cancel(a);
            self.ring(stream, a);
            let soon = now + self.interval(self.streams[stream].ring_len);
            let s = &mut self.streams[stream];
            if s.ring_len == 1 || s.next_periodic > soon {
                s.next_periodic = soon;
            }
            return;
        }
        let left = self.adverts[a].withdrawals.saturating_sub(1);
        self.adverts[a].withdrawals = left;
        if left > 0 {
            self.adverts.schedule(a, now + self.config.damping);
        } else {
            self.adverts.cancel(a);
            self.release_advert(a);
        }
    }

    /// Sets the time of the next message of a stream.
    fn pace(&mut self, now: Instant, stream: u32, was_periodic: bool, was_sent: bool) {
        if was_periodic {
            // Up to a tenth earlier, so that routers that started together drift apart.
            let interval = self.interval(self.streams[stream].ring_len).total_micros();
            let early = (u64::from(self.rng.next_u32()) * (interval / 10)) >> 32;
            let s = &mut self.streams[stream];
            s.next_periodic = now + Duration::from_micros(interval - early);
        }
        if was_sent {
            let gap = Duration::from_micros(1_000_000 / u64::from(self.config.messages_per_s));
            let s = &mut self.streams[stream];
            s.next_allowed = s.next_allowed.max(now - CATCH_UP) + gap;
        }
        self.reschedule(stream);
    }
}
