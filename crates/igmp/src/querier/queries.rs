//! Queries: election of the querier, times, contents (RFC 3376 §4.1, §6.6).

use super::{DropReason, FilterMode, Querier, Role};
use crate::datagram::{self, membership_at};
use crate::family::short_len;
use crate::wire::{Code, Message, Query, QueryV3, Sources};
use crate::{Duration, Family, Instant, NextHop, Numbered, ResponseCode, Transmit};
use proto_core::slab::NIL;

/// Queries to send for a group: its own, that of the sources that other hosts have requested in
/// between (suppress flag), that of the others.
const SEND_GROUP: u8 = 1;
const SEND_SUPPRESSED: u8 = 2;
const SEND_SOURCES: u8 = 4;
/// The most sources of a query: as many as a group may have.
const MAX_SOURCES: usize = 256;

impl<A: Family> Querier<'_, A> {
    /// Another router asks.
    pub(super) fn query(
        &mut self,
        now: Instant,
        from: A,
        query: &Query<'_, A>,
    ) -> Result<(), DropReason> {
        let Some(v3) = query.v3 else {
            return Err(DropReason::OlderQuery);
        };
        self.stats.queries_received += 1;
        let is_querier = match self.role {
            Role::Querier => from < self.config.interface.link_local,
            Role::NonQuerier { querier, .. } => from <= querier,
        };
        if is_querier {
            self.yield_to(now, from, &v3);
        }
        if v3.suppress || query.is_general() {
            return Ok(());
        }
        let Some(g) = self.groups.find(Numbered::new(0, query.group)) else {
            return Ok(());
        };
        let time = self.last_member_time();
        if v3.sources.is_empty() {
            self.lower_group(now, g, time);
        }
        for source in v3.sources.iter() {
            if let Some(s) = self.sources.find(Numbered::new(g, source)) {
                self.lower_source(s, now + time);
            }
        }
        Ok(())
    }

    fn yield_to(&mut self, now: Instant, querier: A, v3: &QueryV3<'_, A>) {
        // §4.1.6, §4.1.7: its variables become ours; 0 is "as configured".
        self.robustness = match v3.robustness {
            0 => self.config.robustness,
            robustness => robustness,
        };
        self.query_interval = match v3.interval.value() {
            0 => self.config.query_interval,
            _ => v3.interval.seconds(),
        };
        let patience = self.query_interval * u32::from(self.robustness)
            + Duration::from_micros(self.config.query_response.total_micros() / 2);
        let before = self.role;
        self.role = Role::NonQuerier {
            querier,
            until: now + patience,
        };
        self.role_changed |= !matches!(before, Role::NonQuerier { querier: q, .. } if q == querier);
    }

    pub(super) fn become_querier(&mut self, now: Instant) {
        self.role = Role::Querier;
        self.role_changed = true;
        self.robustness = self.config.robustness;
        self.query_interval = self.config.query_interval;
        self.startup_left = 0;
        self.next_general = now;
    }

    /// Appends a group whose queries are due to the send list.
    pub(super) fn queue_queries(&mut self, now: Instant, g: u32) {
        let interval = self.config.last_member;
        let group = &mut self.groups[g];
        let mut to_send = 0;
        if group.queries_left > 0 && group.query_at <= now {
            group.queries_left -= 1;
            group.query_at = now + interval;
            to_send |= SEND_GROUP;
        }
        if group.asks_sources && group.source_query_at <= now {
            group.source_query_at = now + interval;
            to_send |= SEND_SUPPRESSED | SEND_SOURCES;
        }
        if to_send == 0 || self.role != Role::Querier {
            self.groups[g].asks_sources &= self.role == Role::Querier;
            return;
        }
        let waiting = self.groups[g].to_send;
        self.groups[g].to_send |= to_send;
        if waiting != 0 {
            return;
        }
        self.groups[g].next_to_send = NIL;
        match core::mem::replace(&mut self.send_tail, g) {
            NIL => self.send_head = g,
            tail => self.groups[tail].next_to_send = g,
        }
    }

    /// Writes the next query to send, a whole IP packet; `buffer` needs room for 36 bytes and 4 for each of the sources
    /// that a group may have, with IPv6 for 76 and 16.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit<A>> {
        if buffer.len()
            < membership_at::<A>()
                + short_len::<A>()
                + 4
                + A::LEN * self.config.sources_per_group as usize
        {
            return None;
        }
        if self.role == Role::Querier && self.next_general <= now {
            return self.general(now, buffer);
        }
        while self.send_head != NIL {
            let g = self.send_head;
            let bits = self.groups[g].to_send;
            let bit = bits & bits.wrapping_neg();
            self.groups[g].to_send = bits & !bit;
            let transmit = match bit {
                // Another router has become the querier since.
                _ if self.role != Role::Querier => None,
                SEND_GROUP => self.ask(now, g, &[], buffer),
                _ => self.ask_sources(now, g, bit == SEND_SUPPRESSED, buffer),
            };
            if self.groups[g].to_send == 0 {
                self.send_head = self.groups[g].next_to_send;
                if self.send_head == NIL {
                    self.send_tail = NIL;
                }
                self.retime(g);
                self.release(g);
            }
            if transmit.is_some() {
                return transmit;
            }
        }
        None
    }

    fn general(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit<A>> {
        let is_startup = self.startup_left > 1;
        self.startup_left = self.startup_left.saturating_sub(1);
        let interval = self.query_interval.total_micros() / if is_startup { 4 } else { 1 };
        self.next_general = now + Duration::from_micros(interval);
        let response = self.config.query_response;
        self.emit(A::UNSPECIFIED, response, false, &[], buffer)
    }

    /// The query of a group's sources whose timers are still long (others want them: suppress),
    /// or that of the others (§6.6.3.2).
    fn ask_sources(
        &mut self,
        now: Instant,
        g: u32,
        is_suppressed: bool,
        buffer: &mut [u8],
    ) -> Option<Transmit<A>> {
        let until = now + self.last_member_time();
        let mut list = [A::Octets::default(); MAX_SOURCES];
        let (mut count, mut left) = (0, 0);
        let mut at = self.groups[g].first_source;
        while at != NIL {
            let source = &mut self.sources[at];
            let is_long = source.expires.is_some_and(|expires| expires > until);
            if source.queries_left > 0 && is_long == is_suppressed && count < list.len() {
                list[count] = source.address.octets();
                count += 1;
                source.queries_left -= 1;
            }
            left += u32::from(source.queries_left > 0);
            at = source.next;
        }
        if !is_suppressed {
            self.groups[g].asks_sources = left > 0;
        }
        if count == 0 {
            return None;
        }
        let (group, response) = (self.groups[g].address, self.config.last_member);
        self.emit(group, response, is_suppressed, &list[..count], buffer)
    }

    fn ask(
        &mut self,
        now: Instant,
        g: u32,
        list: &[A::Octets],
        buffer: &mut [u8],
    ) -> Option<Transmit<A>> {
        let group = &self.groups[g];
        let address = group.address;
        let is_suppressed = group.expires > now + self.last_member_time();
        if group.mode == FilterMode::Include {
            return None;
        }
        self.emit(
            address,
            self.config.last_member,
            is_suppressed,
            list,
            buffer,
        )
    }

    fn emit(
        &mut self,
        group: A,
        response: Duration,
        suppress: bool,
        sources: &[A::Octets],
        buffer: &mut [u8],
    ) -> Option<Transmit<A>> {
        let v3 = QueryV3 {
            suppress,
            robustness: self.robustness,
            interval: Code::from_value(self.query_interval.secs() as u32),
            sources: Sources::from_octets(sources),
        };
        let max_response = A::ResponseCode::from_time(response);
        let query = Query {
            group,
            max_response,
            v3: Some(v3),
        };
        let len = Message::Query(query)
            .emit(buffer.get_mut(membership_at::<A>()..)?)
            .ok()?;
        let destination = if query.is_general() {
            A::QUERY_DESTINATION
        } else {
            group
        };
        let source = self.config.interface.link_local;
        let len = datagram::finish_membership(buffer, source, destination, len)?;
        self.stats.queries_sent += 1;
        Some(Transmit {
            iface: self.config.iface,
            next_hop: NextHop::Group,
            len,
        })
    }
}
