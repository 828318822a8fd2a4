//! The router's side of IGMPv3 or MLDv2 on one interface (RFC 3376 §6, RFC 9777 §7): which router is the querier, which
//! groups and sources have receivers. Hosts of older versions are understood (§7.3, §8.3).
//!
//! Sections without a document are those of RFC 3376. RFC 9777 has the same tables in §7.4 and the same times in §9.
//!
//! # State of a group
//!
//! In filter mode INCLUDE (A) every source of A has a running timer. In EXCLUDE (X, Y) the group
//! timer runs, sources of X have running timers (a host asked for them), those of Y have none
//! and are not forwarded. A report moves it so (§6.4; `GMI` is the group membership interval, `Q`
//! a query that is sent and lowers timers to the last member query time):
//!
//! | state | record | new state | actions |
//! | --- | --- | --- | --- |
//! | INCLUDE (A) | IS_IN (B), ALLOW (B) | INCLUDE (A+B) | (B)=GMI |
//! | INCLUDE (A) | IS_EX (B) | EXCLUDE (A*B, B-A) | (B-A)=0, group timer=GMI |
//! | INCLUDE (A) | TO_IN (B) | INCLUDE (A+B) | (B)=GMI, Q(G, A-B) |
//! | INCLUDE (A) | TO_EX (B) | EXCLUDE (A*B, B-A) | (B-A)=0, Q(G, A*B), group timer=GMI |
//! | INCLUDE (A) | BLOCK (B) | INCLUDE (A) | Q(G, A*B) |
//! | EXCLUDE (X,Y) | IS_IN (A), ALLOW (A) | EXCLUDE (X+A, Y-A) | (A)=GMI |
//! | EXCLUDE (X,Y) | IS_EX (A) | EXCLUDE (A-Y, Y*A) | (A-X-Y)=GMI, group timer=GMI |
//! | EXCLUDE (X,Y) | TO_IN (A) | EXCLUDE (X+A, Y-A) | (A)=GMI, Q(G, X-A), Q(G) |
//! | EXCLUDE (X,Y) | TO_EX (A) | EXCLUDE (A-Y, Y*A) | (A-X-Y)=group timer, Q(G, A-Y), group timer=GMI |
//! | EXCLUDE (X,Y) | BLOCK (A) | EXCLUDE (X+(A-Y), Y) | (A-X-Y)=group timer, Q(G, A-Y) |
//!
//! # Bounds
//!
//! Groups and sources are as many as the storage holds, sources of one group as many as
//! [`Config::sources_per_group`] says. What does not fit is refused and counted: a new
//! group, or a source that is asked for, is not forwarded then; a source that a group is to
//! exclude is forwarded all the same. Bytes a slot, tested: group 120, source 72; with IPv6 group 128, source 80.

mod queries;
mod records;

use core::net::Ipv4Addr;

pub use super::config::Config;
use super::config::QuerierStorage;
use super::datagram;
use super::stats::{DropReason, Stats};
use crate::wire::{Message, RecordType, Sources};
use crate::{Duration, Family, Instant, InterfaceConfig, Meta, Numbered};
use proto_core::slab::{Keyed, NIL, Slab};

use proto_core::{RateLimit, TokenBucket};
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

/// How many expiries of groups and of sources one call of `handle_timeout` deals with.
const STEPS: usize = 256;

/// Whether a list of sources names those that are wanted, or those that are not.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FilterMode {
    /// Only the sources of the list.
    Include,
    /// All but the sources of the list.
    Exclude,
}

/// What a querier knows of one group.
#[derive(Clone, Debug)]
pub struct Group<A = Ipv4Addr> {
    address: A,
    mode: FilterMode,
    /// Group timer; counts in EXCLUDE only.
    expires: Instant,
    /// Hosts of version 1 and of version 2 are present until then.
    v1_until: Option<Instant>,
    v2_until: Option<Instant>,
    /// List of its sources.
    first_source: u32,
    source_count: u32,
    /// Group-specific queries left to send, the next at `query_at`.
    queries_left: u8,
    query_at: Instant,
    /// Some of its sources have queries left to send, next at `source_query_at`.
    asks_sources: bool,
    source_query_at: Instant,
    /// What is to be sent now: bits of `queries::SEND_*`. Not 0: it is in the list to send.
    to_send: u8,
    next_to_send: u32,
    is_changed: bool,
    next_changed: u32,
}

impl<A: Family> Default for Group<A> {
    fn default() -> Self {
        Group {
            address: A::UNSPECIFIED,
            mode: FilterMode::Include,
            expires: Instant::ZERO,
            v1_until: None,
            v2_until: None,
            first_source: NIL,
            source_count: 0,
            queries_left: 0,
            query_at: Instant::ZERO,
            asks_sources: false,
            source_query_at: Instant::ZERO,
            to_send: 0,
            next_to_send: NIL,
            is_changed: false,
            next_changed: NIL,
        }
    }
}

impl<A: Family> Keyed for Group<A> {
    type Key = Numbered<A>;

    fn key(&self) -> Numbered<A> {
        Numbered::new(0, self.address)
    }
}

/// What a querier knows of one source of a group.
#[derive(Clone, Debug)]
pub struct Source<A = Ipv4Addr> {
    group: u32,
    address: A,
    /// Source timer: running, or `None` (only in EXCLUDE: not to be forwarded).
    expires: Option<Instant>,
    /// Group-and-source queries left that name it.
    queries_left: u8,
    /// Named by the record that is being looked at.
    is_marked: bool,
    next: u32,
    back: u32,
}

impl<A: Family> Default for Source<A> {
    fn default() -> Self {
        Source {
            group: NIL,
            address: A::UNSPECIFIED,
            expires: None,
            queries_left: 0,
            is_marked: false,
            next: NIL,
            back: NIL,
        }
    }
}

impl<A: Family> Keyed for Source<A> {
    type Key = Numbered<A>;

    fn key(&self) -> Numbered<A> {
        Numbered::new(self.group, self.address)
    }
}

/// Which router sends queries on this link (RFC 3376 §6.6.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role<A = Ipv4Addr> {
    /// This router.
    Querier,
    /// A router with a lower address, until it falls silent.
    NonQuerier {
        /// Its address.
        querier: A,
        /// When this router takes over, unless the other sends another query.
        until: Instant,
    },
}

/// What the router must act on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<A = Ipv4Addr> {
    /// What is to be forwarded of this group changed.
    Changed {
        /// The group.
        group: A,
    },
    /// The role changed: only the querier forwards to the link (RFC 4605 §4.2).
    Role(Role<A>),
}

/// The machine; see the [module's documentation](self).
#[derive(Debug)]
pub struct Querier<'a, A = Ipv4Addr> {
    config: Config<A>,
    groups: Slab<'a, Group<A>>,
    sources: Slab<'a, Source<A>>,
    role: Role<A>,
    role_changed: bool,
    changed_head: u32,
    send_head: u32,
    send_tail: u32,
    /// General queries of the start left, sent at a quarter of the interval.
    startup_left: u8,
    next_general: Instant,
    /// The querier's variables, which a router that is not it follows (§4.1.6, §4.1.7).
    robustness: u8,
    query_interval: Duration,
    bucket: TokenBucket,
    last_now: Instant,
    stats: Stats,
}

impl<'a, A: Family> Querier<'a, A> {
    /// A querier that believes to be the only one; it starts by asking.
    pub fn new(
        config: Config<A>,
        storage: QuerierStorage<'a, A>,
        seed: [u8; 32],
        now: Instant,
    ) -> Self {
        let config = config.clamped();
        let mut rng = ChaCha8Rng::from_seed(seed);
        Querier {
            groups: Slab::new(storage.groups, &mut rng),
            sources: Slab::new(storage.sources, &mut rng),
            role: Role::Querier,
            role_changed: false,
            changed_head: NIL,
            send_head: NIL,
            send_tail: NIL,
            startup_left: config.robustness,
            next_general: now,
            robustness: config.robustness,
            query_interval: config.query_interval,
            bucket: TokenBucket::FULL,
            last_now: now,
            stats: Stats::default(),
            config,
        }
    }

    /// The configuration, with every value inside its bounds.
    pub fn config(&self) -> &Config<A> {
        &self.config
    }

    /// Changes this router's addresses and keeps the groups. Where the source of its queries is another, it asks at once
    /// unless the link's querier has a lower address.
    pub fn set_interface(&mut self, now: Instant, interface: InterfaceConfig<A>) {
        self.last_now = now;
        let before = core::mem::replace(&mut self.config.interface, interface);
        if before.link_local == interface.link_local {
            return;
        }
        match self.role {
            Role::NonQuerier { querier, .. } if querier < interface.link_local => {}
            Role::NonQuerier { .. } => self.become_querier(now),
            Role::Querier => self.next_general = now,
        }
    }

    /// Returns which router sends queries on this link.
    pub fn role(&self) -> Role<A> {
        self.role
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Group membership interval (§8.4): how long a report counts.
    fn membership_interval(&self) -> Duration {
        let robustness = u32::from(self.robustness);
        self.query_interval * robustness + self.config.query_response
    }

    /// Last member query time (§8.10): what a leave leaves of a timer.
    fn last_member_time(&self) -> Duration {
        self.config.last_member * u32::from(self.robustness)
    }

    /// Returns the number of groups, with those without receivers whose change has not been polled.
    pub fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// Returns the groups with their filter modes.
    pub fn groups(&self) -> impl Iterator<Item = (A, FilterMode)> {
        let alive = self.groups.iter().filter(|(_, g)| !is_idle(g));
        alive.map(|(_, group)| (group.address, group.mode))
    }

    /// Returns the filter mode of a group; INCLUDE with no source where there is no receiver.
    pub fn mode(&self, group: A) -> FilterMode {
        let found = self.groups.find(Numbered::new(0, group));
        found.map_or(FilterMode::Include, |g| self.groups[g].mode)
    }

    /// The sources of a group: those with a running timer (wanted: A or X), or those without (not
    /// wanted: Y).
    pub fn sources(&self, group: A, wanted: bool) -> impl Iterator<Item = A> + Clone {
        let found = self.groups.find(Numbered::new(0, group));
        let mut at = found.map_or(NIL, |g| self.groups[g].first_source);
        core::iter::from_fn(move || {
            let source = self.sources.get(at)?;
            at = source.next;
            Some(source)
        })
        .filter(move |source| source.expires.is_some() == wanted)
        .map(|source| source.address)
    }

    /// Whether this link has receivers for packets from a source to a group (§6.3); O(1).
    pub fn wants(&self, source: A, group: A) -> bool {
        let Some(g) = self.groups.find(Numbered::new(0, group)) else {
            return false;
        };
        match (
            self.groups[g].mode,
            self.sources.find(Numbered::new(g, source)),
        ) {
            (FilterMode::Include, found) => found.is_some(),
            (FilterMode::Exclude, found) => found.is_none_or(|s| self.sources[s].expires.is_some()),
        }
    }

    /// Handles a membership packet, a whole IP packet. Records of an accepted report are refused one by one, and only counted.
    ///
    /// # Errors
    ///
    /// The whole packet was refused and counted.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        meta: &Meta,
        packet: &[u8],
    ) -> Result<(), DropReason> {
        self.last_now = now;
        self.take(now, meta, packet)
            .map_err(|reason| self.stats.drop(reason))
    }

    fn take(&mut self, now: Instant, meta: &Meta, packet: &[u8]) -> Result<(), DropReason> {
        if meta.iface != self.config.iface {
            return Err(DropReason::WrongInterface);
        }
        let ip = datagram::parse::<A>(packet, A::PROTOCOL).ok_or(DropReason::Malformed)?;
        let message = Message::of(&ip).map_err(|_| DropReason::Malformed)?;
        if ip.ttl != 1 {
            return Err(DropReason::Ttl);
        }
        if A::REQUIRES_ROUTER_ALERT && !ip.has_router_alert {
            return Err(DropReason::RouterAlert);
        }
        if self.config.interface.is_own(ip.source) {
            return Err(DropReason::OwnAddress);
        }
        // An IPv4 host that has no address yet reports all the same (§4.2.13); a switch that asks in a querier's stead
        // has none and is no rival (RFC 4541 §2.1.1).
        let is_anonymous = A::ADMITS_UNSPECIFIED && ip.source == A::UNSPECIFIED;
        if !is_anonymous && !ip.source.is_sender(&self.config.interface) {
            return Err(DropReason::WrongSubnet);
        }
        let rate = self.config.packets_per_s;
        let limit = RateLimit::new(rate, rate.saturating_mul(2));
        if !self.bucket.take(now, &limit) {
            return Err(DropReason::Rate);
        }
        match message {
            Message::Query(_) if is_anonymous => return Ok(()),
            Message::Query(query) => return self.query(now, ip.source, &query),
            Message::V3Report(records) => {
                for record in records.iter() {
                    self.record(now, record.kind, record.group, record.sources);
                }
            }
            Message::V1Report(group) => self.older_report(now, group, 1),
            Message::V2Report(group) => self.older_report(now, group, 2),
            Message::V2Leave(group) => {
                self.record(now, RecordType::ChangeToInclude, group, Sources::NONE);
            }
        }
        self.stats.reports_received += 1;
        Ok(())
    }

    /// Lets timers of groups and sources run out, up to 256 of each a call, and takes over from a
    /// querier that fell silent.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.last_now = now;
        if let Role::NonQuerier { until, .. } = self.role
            && until <= now
        {
            self.become_querier(now);
        }
        for _ in 0..STEPS {
            match self.sources.next_due() {
                Some((at, s)) if at <= now => self.source_expired(s),
                _ => break,
            }
        }
        for _ in 0..STEPS {
            match self.groups.next_due() {
                Some((at, g)) if at <= now => self.group_due(now, g),
                _ => break,
            }
        }
    }

    /// Returns the next event; drain until `None`.
    pub fn poll_event(&mut self) -> Option<Event<A>> {
        if core::mem::take(&mut self.role_changed) {
            return Some(Event::Role(self.role));
        }
        if self.changed_head == NIL {
            return None;
        }
        let g = self.changed_head;
        let changed = &mut self.groups[g];
        self.changed_head = core::mem::replace(&mut changed.next_changed, NIL);
        changed.is_changed = false;
        let group = changed.address;
        self.release(g);
        Some(Event::Changed { group })
    }

    /// When to call `handle_timeout` and `poll_transmit`.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let to_send = (self.send_head != NIL).then_some(self.last_now);
        let role = match self.role {
            Role::Querier => self.next_general,
            Role::NonQuerier { until, .. } => until,
        };
        let due = |next: Option<(Instant, u32)>| next.map(|(at, _)| at);
        let groups = due(self.groups.next_due());
        let sources = due(self.sources.next_due());
        [to_send, Some(role), groups, sources]
            .into_iter()
            .flatten()
            .min()
    }
}

proto_core::impl_machine! {
    impl['a, A: Family] Querier<'a, A> {
        Meta = Meta; Transmit = crate::Transmit<A>; Event = Event<A>; Error = DropReason;
    }
}

/// Whether a group has the state of an unknown group.
fn is_idle<A>(group: &Group<A>) -> bool {
    group.mode == FilterMode::Include && group.source_count == 0
}
