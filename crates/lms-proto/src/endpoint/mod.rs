//! The endpoint's side of LMS on one interface: the option that a request or dmcast carries
//! (LMS-API, LMS §6.3), and the host's half of LMS-HIER (LMS §6.7.1).
//!
//! A receiver joins `(S, G)` with the cost at which it would be a replier. The endpoint reports it to
//! the link's router in IGMPv3 reports: at once on joining and on a change, again every refresh time,
//! and in answer to IGMP queries: immediately where this host is elected, else after a random
//! delay. Where many groups share the link ([`Config::immediate_groups`]) the elected take a
//! random delay too, in the first quarter of the time allowed, and the others wait for the rest.
//! Routers announce the elected replier; the endpoint keeps it as soft state.
//!
//! # Answering requests
//!
//! [`Endpoint::should_answer`] decides, O(1):
//!
//! | this host is | turning point | answer |
//! | --- | --- | --- |
//! | the source | any | [`Answer::AsSource`] |
//! | elected for (S, G), else (*, G) | set | [`Answer::AsReplier`], a dmcast to the turning point |
//! | elected | unset | no: it is on its way to the source, and there is nowhere to dmcast to |
//! | there is no LMS router, and [`Config::answer_unelected`] | set | [`Answer::AsReplier`] |
//! | not elected, or there is no LMS router | any | no |
//!
//! # How to drive it
//!
//! Join the multicast group itself with a socket: membership stays the kernel's. Give
//! `handle_packet` every IGMP query and LMS-HIER message of the interface (whole IPv4 packets,
//! UDP port 4138 to 224.0.0.254), send what `poll_transmit` writes through a raw socket, call
//! `handle_timeout` at `poll_timeout`. On the way out [`Endpoint::request_option`] and
//! [`Endpoint::dmcast`] build what goes with a request and a repair, on the way in
//! [`Family::find_option`] reads what `recvmsg` gave.
//!
//! ```
//! use core::net::Ipv4Addr;
//! use lms_proto::endpoint::{Answer, Config, Endpoint, Refusal, StaticStorage};
//! use lms_proto::hier::Cost;
//! use lms_proto::{Family as _, Iface, Instant, InterfaceConfig, Key};
//!
//! let interface = InterfaceConfig::ipv4(Ipv4Addr::new(10, 0, 1, 7), 24);
//! let mut memory = StaticStorage::<2, 4>::default();
//! let config = Config::new(Iface(3), interface);
//! let mut endpoint = Endpoint::new(config, memory.lend(), [1; 32], Instant::ZERO);
//! let key = Key::new(Ipv4Addr::new(10, 0, 9, 1), Ipv4Addr::new(232, 1, 1, 1));
//! endpoint.join(Instant::ZERO, key, Cost(5)).unwrap();
//!
//! // The offer goes out at once.
//! let mut packet = [0; 1500];
//! assert!(endpoint.poll_transmit(Instant::ZERO, &mut packet).is_some());
//!
//! // A request's option, as ancillary data. No replier is elected yet, so this host does not answer it.
//! let mut option = [0; 28];
//! let len = endpoint.request_option(key, &mut option).unwrap();
//! let read = Ipv4Addr::find_option(&option[..len]).unwrap();
//! assert_eq!(endpoint.should_answer(&read), Answer::No(Refusal::NoRouter));
//! ```
//!
//! # Memory
//!
//! Bytes a slot (tested in `tests/hier/memory.rs`): session 40, announcement 56. A session needs one of the first and, with
//! (S, G) and (*, G), up to two of the second.

mod compose;
mod config;
mod receive;
mod report;
mod stats;

use core::fmt;
use core::net::Ipv4Addr;

use proto_core::TokenBucket;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

pub use self::compose::DmcastError;
pub use self::config::{Config, Offers, StaticStorage, Storage};
pub use self::stats::{DropReason, Drops, Stats};

use crate::hier::Cost;
use crate::hier::replay::ReplayGuard;
use crate::{Duration, Family, Instant, Key, Kind, LmsOption};
use proto_core::slab::{Keyed, NIL, Slab};

/// Routers of one link that ELECTED messages are taken from.
const ROUTERS: usize = 8;
/// Sessions or announcements that one call of `handle_timeout` deals with.
const STEPS: usize = 64;

/// The offer of this host for one key.
#[derive(Clone, Debug)]
pub struct Session<A = Ipv4Addr> {
    key: Key<A>,
    cost: Cost,
    /// Withdrawals left to send; at 0 the offer is reported, if there is one.
    withdrawals: u8,
    /// Left: removed when its withdrawals are sent.
    is_leaving: bool,
    /// Whether the link's router may have an offer of this host.
    was_told: bool,
}

impl<A: Family> Default for Session<A> {
    fn default() -> Self {
        let key = Key::any_source(A::UNSPECIFIED);
        Session {
            key,
            cost: Cost::WITHDRAWN,
            withdrawals: 0,
            is_leaving: false,
            was_told: false,
        }
    }
}

impl<A: Family> Keyed for Session<A> {
    type Key = Key<A>;

    fn key(&self) -> Key<A> {
        self.key
    }
}

/// The announcement of a router about one key.
#[derive(Clone, Debug)]
pub struct Announcement<A = Ipv4Addr> {
    key: Key<A>,
    /// Sessions that use it.
    session_count: u32,
    /// The router that announced it; valid until the slot's timer says otherwise.
    router: Option<A>,
    elected: Option<A>,
    /// List of those that changed.
    next_changed: u32,
    is_changed: bool,
}

impl<A: Family> Default for Announcement<A> {
    fn default() -> Self {
        Announcement {
            key: Key::any_source(A::UNSPECIFIED),
            session_count: 0,
            router: None,
            elected: None,
            next_changed: NIL,
            is_changed: false,
        }
    }
}

impl<A: Family> Keyed for Announcement<A> {
    type Key = Key<A>;

    fn key(&self) -> Key<A> {
        self.key
    }
}

/// A router of this link.
#[derive(Clone, Copy, Debug)]
struct Router<A> {
    address: A,
    replay_guard: ReplayGuard,
    bucket: TokenBucket,
    received_at: Instant,
}

/// A general query: the sessions from slot `from` on are not scheduled yet.
#[derive(Clone, Copy, Debug)]
struct Sweep<A> {
    from: u32,
    /// Only sessions of this group, where one is given.
    group: Option<A>,
    max_delay: Duration,
    since: Instant,
}

/// The elected replier on this link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Election<A = Ipv4Addr> {
    /// No LMS router announces this key here.
    NoRouter,
    /// There is an LMS router; the replier, if any, is not on this link.
    Elsewhere,
    /// This host.
    Me,
    /// Another host or router of this link.
    Other(A),
}

/// Whether to answer a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    /// Yes: the request is for data of this host.
    AsSource,
    /// Yes: as the elected replier, by a dmcast to the request's turning point.
    AsReplier,
    /// No.
    No(Refusal),
}

/// Why not to answer a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// The option is a dmcast's, or not of this family.
    NotARequest,
    /// No router has turned it: it is for the source.
    NotTurned,
    /// No LMS router announces this key here, so none is elected.
    NoRouter,
    /// Another host is elected, or none on this link.
    NotElected,
    /// This host has not joined that key.
    NotJoined,
}

/// Events for the application.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event<A = Ipv4Addr> {
    /// What is announced about this key changed; with `(*, G)` it also counts for the sessions
    /// `(S, G)` about which nothing is announced themselves.
    ElectionChanged {
        /// The key of the announcement.
        key: Key<A>,
        /// The elected replier.
        election: Election<A>,
    },
}

/// No room for another session; nothing changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no room for another session")
    }
}

impl core::error::Error for Full {}

/// The machine. See the [module's documentation](self).
#[derive(Debug)]
pub struct Endpoint<'a, A = Ipv4Addr> {
    config: Config<A>,
    sessions: Slab<'a, Session<A>>,
    announcements: Slab<'a, Announcement<A>>,
    routers: [Option<Router<A>>; ROUTERS],
    changed_head: u32,
    /// Interval of reports, by the hold time that routers announce.
    refresh: Duration,
    /// Entries announced on this link in the last whole refresh time, and so far in this one.
    groups_before: u32,
    groups_so_far: u32,
    groups_since: Instant,
    /// The general query in progress.
    query: Option<Sweep<A>>,
    /// Earliest time of the next report.
    next_allowed: Instant,
    /// What tells this host's UPDATEs from older ones.
    boot: u32,
    sequence: u32,
    rng: ChaCha8Rng,
    stats: Stats,
}

impl<'a, A: Family> Endpoint<'a, A> {
    /// An endpoint with no session.
    pub fn new(config: Config<A>, storage: Storage<'a, A>, seed: [u8; 32], now: Instant) -> Self {
        let mut rng = ChaCha8Rng::from_seed(seed);
        let config = config.clamped();
        Endpoint {
            sessions: Slab::new(storage.sessions, &mut rng),
            announcements: Slab::new(storage.announcements, &mut rng),
            routers: [None; ROUTERS],
            changed_head: NIL,
            refresh: config.refresh,
            groups_before: 0,
            groups_so_far: 0,
            groups_since: now,
            query: None,
            next_allowed: now,
            boot: rng.next_u32(),
            sequence: 0,
            rng,
            stats: Stats::default(),
            config,
        }
    }

    /// The configuration, with every value inside its bounds.
    pub fn config(&self) -> &Config<A> {
        &self.config
    }

    /// Offers to be a replier, or changes the cost of the offer; the router is notified at once.
    /// [`Cost::WITHDRAWN`] offers nothing, or takes an offer back, and listens only. `(*, G)` is
    /// for a receiver that does not know its source yet.
    ///
    /// # Errors
    /// [`Full`] when there is no room for a new session.
    pub fn join(&mut self, now: Instant, key: Key<A>, cost: Cost) -> Result<(), Full> {
        let s = match self.sessions.find(key) {
            Some(s) => s,
            None => self.add_session(key)?,
        };
        let session = &mut self.sessions[s];
        let is_same = session.cost == cost && !session.is_leaving && session.was_told;
        session.is_leaving = false;
        session.cost = cost;
        if cost.is_offer() {
            session.withdrawals = 0;
            if !is_same {
                self.sessions.schedule(s, now);
            }
        } else if session.was_told {
            session.was_told = false;
            session.withdrawals = self.config.withdrawals;
            self.sessions.schedule(s, now);
        }
        Ok(())
    }

    fn add_session(&mut self, key: Key<A>) -> Result<u32, Full> {
        let s = self
            .sessions
            .insert(Session {
                key,
                ..Session::default()
            })
            .map_err(|_| Full)?;
        if !self.add_announcement(key) {
            self.sessions.remove(s);
            return Err(Full);
        }
        if !self.add_announcement(Key::any_source(key.group)) {
            self.drop_announcement(key);
            self.sessions.remove(s);
            return Err(Full);
        }
        Ok(s)
    }

    fn add_announcement(&mut self, key: Key<A>) -> bool {
        let found = match self.announcements.find(key) {
            Some(a) => Ok(a),
            None => self.announcements.insert(Announcement {
                key,
                ..Announcement::default()
            }),
        };
        if let Ok(a) = found {
            self.announcements[a].session_count += 1;
        }
        found.is_ok()
    }

    fn drop_announcement(&mut self, key: Key<A>) {
        let Some(a) = self.announcements.find(key) else {
            return;
        };
        let announcement = &mut self.announcements[a];
        announcement.session_count = announcement.session_count.saturating_sub(1);
        self.release_announcement(a);
    }

    fn release_announcement(&mut self, a: u32) {
        let announcement = &self.announcements[a];
        if announcement.session_count == 0 && !announcement.is_changed {
            self.announcements.remove(a);
        }
    }

    /// Withdraws the offer and removes the session: a record reports to the router that the host has left
    /// (S, G). Leave the group's socket afterwards.
    pub fn leave(&mut self, now: Instant, key: Key<A>) {
        let Some(s) = self.sessions.find(key) else {
            return;
        };
        let session = &mut self.sessions[s];
        session.cost = Cost::WITHDRAWN;
        session.is_leaving = true;
        let owes = core::mem::take(&mut session.was_told);
        if owes {
            session.withdrawals = self.config.withdrawals;
        }
        if session.withdrawals > 0 {
            self.sessions.schedule(s, now);
        } else {
            self.forget(s);
        }
    }

    fn forget(&mut self, s: u32) {
        let key = self.sessions.remove(s).key;
        self.drop_announcement(key);
        self.drop_announcement(Key::any_source(key.group));
    }

    /// Returns the number of sessions, with those that still withdraw.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    fn announced(&self, key: Key<A>) -> Option<&Announcement<A>> {
        let a = self.announcements.find(key)?;
        Some(&self.announcements[a]).filter(|announcement| announcement.router.is_some())
    }

    fn election_of(&self, announcement: &Announcement<A>) -> Election<A> {
        match (announcement.router, announcement.elected) {
            (None, _) => Election::NoRouter,
            (_, None) => Election::Elsewhere,
            (_, Some(host)) if self.config.interface.is_own(host) => Election::Me,
            (_, Some(host)) => Election::Other(host),
        }
    }

    /// Returns the elected replier of a key: what is announced about `(S, G)`, else about `(*, G)`; O(1).
    pub fn election(&self, key: Key<A>) -> Election<A> {
        let announced = self
            .announced(key)
            .or_else(|| self.announced(Key::any_source(key.group)));
        announced.map_or(Election::NoRouter, |announcement| {
            self.election_of(announcement)
        })
    }

    /// Whether this host answers a request that came with this option; O(1).
    pub fn should_answer(&self, option: &LmsOption) -> Answer {
        let addresses = (A::from_ip(option.source), A::from_ip(option.group));
        let (Some(source), Some(group)) = addresses else {
            return Answer::No(Refusal::NotARequest);
        };
        if option.kind != Kind::Request {
            return Answer::No(Refusal::NotARequest);
        }
        if source == self.config.interface.address {
            return Answer::AsSource;
        }
        let key = Key::new(source, group);
        let has_joined = |key| {
            self.sessions
                .find(key)
                .is_some_and(|s| !self.sessions[s].is_leaving)
        };
        if !has_joined(key) && !has_joined(Key::any_source(group)) {
            return Answer::No(Refusal::NotJoined);
        }
        match self.election(key) {
            Election::NoRouter if !self.config.answer_unelected => Answer::No(Refusal::NoRouter),
            Election::Elsewhere | Election::Other(_) => Answer::No(Refusal::NotElected),
            Election::NoRouter | Election::Me if option.turning_point.is_none() => {
                Answer::No(Refusal::NotTurned)
            }
            Election::NoRouter | Election::Me => Answer::AsReplier,
        }
    }

    /// Returns the next event; drain until `None`.
    pub fn poll_event(&mut self) -> Option<Event<A>> {
        while self.changed_head != NIL {
            let a = self.changed_head;
            let announcement = &mut self.announcements[a];
            self.changed_head = core::mem::replace(&mut announcement.next_changed, NIL);
            announcement.is_changed = false;
            if announcement.session_count == 0 {
                self.release_announcement(a);
                continue;
            }
            let announcement = &self.announcements[a];
            let (key, election) = (announcement.key, self.election_of(announcement));
            return Some(Event::ElectionChanged { key, election });
        }
        None
    }

    fn note_changed(&mut self, a: u32) {
        let announcement = &mut self.announcements[a];
        if !announcement.is_changed {
            announcement.is_changed = true;
            announcement.next_changed = core::mem::replace(&mut self.changed_head, a);
        }
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Expires announcements and schedules sessions after a general query; up to 64 of each per call.
    pub fn handle_timeout(&mut self, now: Instant) {
        for _ in 0..STEPS {
            match self.announcements.next_due() {
                Some((at, a)) if at <= now => {
                    self.announcements.cancel(a);
                    let announcement = &mut self.announcements[a];
                    (announcement.router, announcement.elected) = (None, None);
                    self.note_changed(a);
                }
                _ => break,
            }
        }
        self.spread_query(now);
    }

    /// When to call `handle_timeout` and `poll_transmit`.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let report = self
            .sessions
            .next_due()
            .map(|(at, _)| at.max(self.next_allowed));
        let expiry = self.announcements.next_due().map(|(at, _)| at);
        let query = self.query.map(|sweep| sweep.since);
        [report, expiry, query].into_iter().flatten().min()
    }
}

proto_core::impl_machine! {
    impl['a, A: Family] Endpoint<'a, A> {
        Meta = crate::Meta; Transmit = crate::Transmit<A>; Event = Event<A>; Error = DropReason;
    }
}
