//! Messages of the link's routers: IGMP or MLD queries and ELECTED messages.

use proto_core::{RateLimit, TokenBucket};
use rand_core::Rng;

use super::{Announcement, DropReason, Election, Endpoint, ROUTERS, Router, STEPS, Sweep};
use crate::hier::replay::ReplayGuard;
use crate::hier::{hold_time, refresh_time};
use crate::wire::hier::{self, Header, Kind};
use crate::{Duration, Family, Instant, Key, Meta};
use igmp::datagram::{self, Ip};
use igmp::wire::{Message, Query};

const PROTOCOL_UDP: u8 = 17;

impl<A: Family> Endpoint<'_, A> {
    /// Handles an IGMP or MLD packet or LMS-HIER message, a whole IP packet. Messages that are not for hosts are accepted and
    /// ignored.
    ///
    /// # Errors
    /// The packet was dropped and counted: it is malformed, from another interface, a replay or above the rate
    /// limit, its TTL or sender is not allowed, an MLD query has no Router Alert, or there is no room for another
    /// router.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        meta: &Meta,
        packet: &[u8],
    ) -> Result<(), DropReason> {
        let result = if meta.iface != self.config.iface {
            Err(DropReason::WrongInterface)
        } else if let Some(ip) = datagram::parse::<A>(packet, PROTOCOL_UDP) {
            self.handle_hier(now, &ip)
        } else if let Some(ip) = datagram::parse::<A>(packet, <A as igmp::Family>::PROTOCOL) {
            self.handle_membership(now, &ip)
        } else {
            Err(DropReason::Malformed)
        };
        result.map_err(|reason| self.stats.drop(reason))
    }

    /// Handles the payload of a datagram that a socket received on this interface, from `source`, to the group and port
    /// of LMS-HIER: the group does not leave the link, so that there is no hop limit to check.
    ///
    /// # Errors
    /// As [`Endpoint::handle_packet`].
    pub fn handle_message(
        &mut self,
        now: Instant,
        source: A,
        message: &[u8],
    ) -> Result<(), DropReason> {
        let result = self.message(now, source, message);
        result.map_err(|reason| self.stats.drop(reason))
    }

    fn handle_hier(&mut self, now: Instant, ip: &Ip<'_, A>) -> Result<(), DropReason> {
        if ip.destination != A::LINK_GROUP {
            return Err(DropReason::Malformed);
        }
        let payload = datagram::udp_payload(ip, hier::PORT).ok_or(DropReason::Malformed)?;
        if ip.ttl != 1 {
            return Err(DropReason::Ttl);
        }
        self.message(now, ip.source, payload)
    }

    fn message(&mut self, now: Instant, source: A, payload: &[u8]) -> Result<(), DropReason> {
        let view = match hier::View::<A>::new_checked(payload) {
            Ok(view) => view,
            Err(hier::ParseError::Version) => {
                self.check_source(source)?;
                return Err(DropReason::Version);
            }
            Err(_) => return Err(DropReason::Malformed),
        };
        let header = view.header();
        if header.kind != Kind::Elected {
            self.stats.ignored += 1;
            return Ok(());
        }
        self.check_source(source)?;
        let r = self.admit(now, source, Some(&header))?;
        if let Some(router) = &mut self.routers[r] {
            router.replay_guard.note(now, &header);
        }
        self.stats.elected_received += 1;
        let refresh = refresh_time(header.hold_time());
        let is_shorter = refresh < self.refresh;
        self.refresh = refresh;
        if is_shorter {
            // Scheduled reports may be too late.
            self.sweep(now, None, refresh);
        }
        self.count_groups(now, view.entry_count() as u32);
        let expires = now + header.hold_time();
        for entry in view.entries() {
            self.announce(source, &entry, expires);
        }
        Ok(())
    }

    /// Applies the announcement of a router about one key. Of several routers on a link, one that elects a neighbour there
    /// takes precedence over one that elects none.
    fn announce(&mut self, router: A, entry: &hier::Entry<A>, expires: Instant) {
        let Some(a) = self.announcements.find(entry.key) else {
            return;
        };
        let before = &self.announcements[a];
        let is_others = before.router.is_some_and(|other| other != router);
        if is_others && before.elected.is_some() && entry.neighbour.is_none() {
            return;
        }
        let election = self.election_of(before);
        let announcement = Announcement {
            router: Some(router),
            elected: entry.neighbour,
            ..before.clone()
        };
        let is_changed = self.election_of(&announcement) != election;
        self.announcements[a] = announcement;
        self.announcements.schedule(a, expires);
        if is_changed {
            self.note_changed(a);
        }
    }

    /// Estimates how many groups share the link: the entries announced in a refresh time.
    fn count_groups(&mut self, now: Instant, entries: u32) {
        if now >= self.groups_since + self.refresh {
            let is_recent = now < self.groups_since + hold_time(self.refresh);
            let finished = core::mem::take(&mut self.groups_so_far);
            self.groups_before = if is_recent { finished } else { 0 };
            self.groups_since = now;
        }
        self.groups_so_far = self.groups_so_far.saturating_add(entries);
    }

    /// Groups announced on this link, as far as is known.
    pub fn groups_on_link(&self) -> u32 {
        self.groups_before.max(self.groups_so_far)
    }

    fn handle_membership(&mut self, now: Instant, ip: &Ip<'_, A>) -> Result<(), DropReason> {
        let message = Message::of(ip).map_err(|_| DropReason::Malformed)?;
        let Message::Query(query) = message else {
            self.stats.ignored += 1;
            return Ok(());
        };
        if ip.ttl != 1 {
            return Err(DropReason::Ttl);
        }
        if A::REQUIRES_ROUTER_ALERT && !ip.has_router_alert {
            return Err(DropReason::RouterAlert);
        }
        let interface = self.config.interface;
        if interface.is_own(ip.source) {
            return Err(DropReason::OwnAddress);
        }
        // A switch that asks in a querier's stead has no address (RFC 4541 §2.1.1).
        let is_anonymous = A::ADMITS_UNSPECIFIED && ip.source.is_unspecified();
        let is_sender = ip.source.is_unicast() && ip.source.is_sender(&interface);
        if !is_anonymous && !is_sender {
            return Err(DropReason::WrongSubnet);
        }
        self.admit(now, ip.source, None)?;
        self.stats.queries_received += 1;
        self.answer(now, &query);
        Ok(())
    }

    fn answer(&mut self, now: Instant, query: &Query<'_, A>) {
        let max_delay = query.max_response_time();
        if query.is_general() {
            self.sweep(now, None, max_delay);
            return;
        }
        let sources = query.v3.map(|v3| v3.sources).unwrap_or_default();
        self.answer_for(now, Key::any_source(query.group), max_delay);
        for source in sources.iter() {
            self.answer_for(now, Key::new(source, query.group), max_delay);
        }
        if sources.is_empty() {
            // Sessions of one group lie anywhere in the table.
            self.sweep(now, Some(query.group), max_delay);
        }
    }

    /// Schedules the reports of a group's sessions, or of all, within `max_delay`. A sweep in progress starts again, for all.
    fn sweep(&mut self, now: Instant, group: Option<A>, max_delay: Duration) {
        let sweep = match self.query {
            None => Sweep {
                from: 0,
                group,
                max_delay,
                since: now,
            },
            Some(old) => {
                let max_delay = max_delay.min(old.max_delay);
                let group = group.filter(|_| old.group == group);
                Sweep {
                    from: 0,
                    group,
                    max_delay,
                    since: now,
                }
            }
        };
        self.query = Some(sweep);
        self.spread_query(now);
    }

    fn answer_for(&mut self, now: Instant, key: Key<A>, max_delay: Duration) {
        if let Some(s) = self.sessions.find(key) {
            self.schedule_report(now, s, max_delay);
        }
    }

    /// Schedules some of the sessions after a general query.
    pub(super) fn spread_query(&mut self, now: Instant) {
        let Some(mut sweep) = self.query.take() else {
            return;
        };
        for _ in 0..STEPS {
            let Some(s) = self.sessions.next_used(sweep.from) else {
                return;
            };
            if sweep
                .group
                .is_none_or(|group| self.sessions[s].key.group == group)
            {
                self.schedule_report(now, s, sweep.max_delay);
            }
            sweep.from = s + 1;
        }
        self.query = Some(sweep);
    }

    /// Schedules the report of an offer within the delay of a query, unless it is due earlier.
    fn schedule_report(&mut self, now: Instant, s: u32, max_delay: Duration) {
        let session = &self.sessions[s];
        if !session.cost.is_offer() {
            return;
        }
        let is_elected = self.election(session.key) == Election::Me;
        let is_crowded = self.groups_on_link() > self.config.immediate_groups;
        let max = max_delay.total_micros();
        let (from, until) = match (is_elected, is_crowded) {
            (true, false) => (0, 0),
            (true, true) => (0, max / 4),
            (false, false) => (0, max),
            (false, true) => (max / 4, max),
        };
        let spread = (u128::from(self.rng.next_u64()) * u128::from(until - from)) >> 64;
        let due = now + Duration::from_micros(from + spread as u64);
        if self.sessions.due_of(s).is_none_or(|at| at > due) {
            self.sessions.schedule(s, due);
        }
    }

    fn check_source(&self, source: A) -> Result<(), DropReason> {
        let interface = self.config.interface;
        if interface.is_own(source) {
            return Err(DropReason::OwnAddress);
        }
        if !source.is_unicast() || !interface.on_link(source) {
            return Err(DropReason::WrongSubnet);
        }
        Ok(())
    }

    /// Returns the router that sent a packet, if its rate allows one more and, for an ELECTED message, if
    /// that is newer. A full table evicts the router that was silent for longest.
    fn admit(
        &mut self,
        now: Instant,
        address: A,
        header: Option<&Header>,
    ) -> Result<usize, DropReason> {
        let known = self
            .routers
            .iter()
            .position(|r| r.is_some_and(|r| r.address == address));
        let free = || self.routers.iter().position(Option::is_none);
        let r = known.or_else(free).or_else(|| self.silent_router(now));
        let r = r.ok_or(DropReason::RoutersFull)?;
        let fresh = Router {
            address,
            replay_guard: ReplayGuard::default(),
            bucket: TokenBucket::FULL,
            received_at: now,
        };
        let mut router = self.routers[r].filter(|_| known.is_some()).unwrap_or(fresh);
        let restart_interval = self.config.restart_interval;
        if header.is_some_and(|h| !router.replay_guard.is_newer(now, h, restart_interval)) {
            return Err(DropReason::Replay);
        }
        let rate = self.config.router_packets_per_s;
        let limit = RateLimit::new(rate, rate.saturating_mul(2));
        let has_token = router.bucket.take(now, &limit);
        router.received_at = now;
        self.routers[r] = Some(router);
        if has_token {
            Ok(r)
        } else {
            Err(DropReason::Rate)
        }
    }

    fn silent_router(&self, now: Instant) -> Option<usize> {
        let silence = hold_time(self.refresh);
        let routers: &[Option<Router<A>>; ROUTERS] = &self.routers;
        let received_at = |r: &usize| routers[*r].map(|router| router.received_at);
        (0..ROUTERS)
            .min_by_key(received_at)
            .filter(|r| received_at(r).is_none_or(|at| at + silence < now))
    }
}
