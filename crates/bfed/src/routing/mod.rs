//! Routing (§5.1): a path vector to gateways, a table for each metric and capability.
//!
//! Nothing about sessions is in here, so what a gateway keeps grows with the number of gateways (at
//! most [`PeerConfig::max_routes`] a peer and table). How a route is chosen stands in the table of
//! [`decision`]; what is told to whom in [`export`]:
//!
//! | the best route | a peer of another network | a peer of this network |
//! | --- | --- | --- |
//! | leads to this gateway | is told | is told |
//! | came from a peer of another network | is told, dearer by the cost of crossing this network | is told |
//! | came from a peer of this network | is told, dearer likewise | not: the peer has it from there, in full mesh |
//! | leads to another gateway of this network | not: a session joined through this gateway would end here | not, likewise |
//! | came from the peer itself, or has it in its path | not | not |
//! | the export policy rejects it, or its cost is infinite | not | not |
//!
//! Which trees are examined after a route changed:
//!
//! | the change | trees of that network that are examined |
//! | --- | --- |
//! | no candidate has another cost, preference, length or usability than before | none |
//! | routes alone lead to the same peer and gateway as before | those joined elsewhere, or with SROUTE costs, refusals or waiting clients of their own |
//! | routes alone lead elsewhere, or an SROUTE discovery makes a difference now and did not, or the reverse | all |
//!
//! Trees that are to be examined wait in a queue; each call of the control node takes 64 of them, and marks
//! the trees of at most 64 networks, by turns. `Stats::trees_examined` counts them.

pub mod damping;
pub mod decision;
pub mod export;
pub mod policy;
mod query;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use proto_core::time::Instant;

pub use damping::Damping;
pub use policy::{Action, Changes, Match, Policy, Rule};

use crate::config::{Config, PeerConfig};
use crate::types::{BnNum, Cost, GatewayId, PeerId, Table, Tables};
use crate::wire::attributes::Attributes;
use damping::{Flap, Flaps};
use decision::{Rank, better};

/// Preference of a route to which no policy gave one.
pub const DEFAULT_PREFERENCE: u32 = 100;

/// A route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// What it costs.
    pub cost: Cost,
    /// Where it goes through: the next gateway first, the destination last.
    pub path: Arc<[GatewayId]>,
    /// Marks of policies.
    pub tags: Arc<[u32]>,
}

/// A route from one peer, after the import policy.
#[derive(Clone, Debug)]
struct Candidate {
    /// As the peer announced it.
    announced: Route,
    /// With the link's cost and the policy's changes.
    route: Route,
    preference: u32,
    /// The import policy, or its cost, forbids it.
    rejected: bool,
    /// The peer is away, and has not confirmed it since.
    stale: bool,
}

impl Candidate {
    /// Returns what trees see of it: two candidates with equal values are the same to every tree.
    fn seen_by_trees(&self) -> (bool, u32, Cost, usize, Cost) {
        let Candidate {
            route, announced, ..
        } = self;
        (
            self.rejected,
            self.preference,
            route.cost,
            route.path.len(),
            announced.cost,
        )
    }
}

/// What routes alone decide for the sessions of a network.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Decided {
    /// The peer to join, and the owner's gateway behind it.
    hop: Option<(PeerId, GatewayId)>,
    /// Whether an SROUTE discovery makes a difference.
    ambiguous: bool,
}

/// A peer as routing sees it.
#[derive(Debug)]
struct Peer {
    config: PeerConfig,
    internal: bool,
    /// Tables that both have; none while it is away.
    tables: Tables,
    /// Its full table is still to come.
    awaited: Tables,
    /// How many routes it announced, by table.
    count: [usize; Table::COUNT],
    out: export::Out,
}

#[derive(Debug, Default)]
struct Destination {
    candidates: BTreeMap<PeerId, Candidate>,
    /// Whose route is the best.
    best: Option<PeerId>,
}

/// Why a route from a peer was not taken. It counts as a withdrawal of what the peer said before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Refused {
    /// Its path does not begin with the peer.
    NotFromPeer,
    /// This gateway, or from another network this network, is in its path.
    Loop,
}

/// Counters of routing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RouteStats {
    /// Routes announced by peers, new or changed.
    pub announced: u64,
    /// Routes withdrawn by peers.
    pub withdrawn: u64,
    /// Routes not taken because this gateway or network was in their path.
    pub loops: u64,
    /// Routes not taken because their path did not begin with the peer.
    pub not_from_peer: u64,
    /// Attributes that were discarded.
    pub attributes_discarded: u64,
    /// Routes withdrawn because their attributes were wrong.
    pub faulty: u64,
    /// Times a route was suppressed because it flapped.
    pub suppressed: u64,
    /// Times the best route to a gateway changed.
    pub changes: u64,
    /// Routes told to peers, withdrawals included.
    pub told: u64,
}

/// All routing tables.
#[derive(Debug)]
pub(crate) struct Rib {
    own: GatewayId,
    config: RibConfig,
    peers: BTreeMap<PeerId, Peer>,
    /// Ordered by table, then network: a network's gateways stand together.
    destinations: BTreeMap<(Table, GatewayId), Destination>,
    flaps: Option<Flaps>,
    /// Networks whose routes changed so that a tree might be joined elsewhere, and the one examined last.
    changed: BTreeSet<(Table, BnNum)>,
    last_changed: Option<(Table, BnNum)>,
    /// What routes alone decided for each network, when its trees were last marked. At most one for each
    /// network with a route.
    decided: BTreeMap<(Table, BnNum), Decided>,
    /// Routes changed, and peers may have to be told.
    pub(crate) news: bool,
    /// Nothing is told until the peers' tables are there, after a restart.
    pub(crate) deferred: bool,
    pub(crate) stats: RouteStats,
}

#[derive(Clone, Copy, Debug)]
struct RibConfig {
    tables: Tables,
    origin: crate::config::Costs,
    transit: crate::config::Costs,
}

impl Rib {
    pub(crate) fn new(config: &Config) -> Self {
        let flaps = config
            .damping
            .map(|damping| Flaps::new(damping, config.limits.max_flapping));
        let mut rib = Rib {
            own: config.gateway,
            config: RibConfig {
                tables: config.tables,
                origin: config.origin,
                transit: config.transit,
            },
            peers: BTreeMap::new(),
            destinations: BTreeMap::new(),
            flaps,
            changed: BTreeSet::new(),
            last_changed: None,
            decided: BTreeMap::new(),
            news: false,
            deferred: config.restarting,
            stats: RouteStats::default(),
        };
        rib.add_own();
        rib
    }

    fn add_own(&mut self) {
        for table in self.config.tables.iter() {
            if self.config.origin.get(table).is_finite() {
                self.destinations.entry((table, self.own)).or_default();
            }
        }
    }

    /// Takes new costs and policies; every route is decided anew.
    pub(crate) fn reconfigure(&mut self, config: &Config) {
        self.config = RibConfig {
            tables: config.tables,
            origin: config.origin,
            transit: config.transit,
        };
        let own = self.own;
        self.destinations
            .retain(|(_, destination), entry| *destination != own || !entry.candidates.is_empty());
        self.add_own();
        let max = config.limits.max_flapping;
        match (config.damping, &mut self.flaps) {
            (Some(damping), Some(flaps)) => flaps.reconfigure(damping, max),
            (damping, flaps) => *flaps = damping.map(|damping| Flaps::new(damping, max)),
        }
        self.decide_all();
        self.tell_all();
    }

    /// A peer was configured, or its configuration changed.
    pub(crate) fn set_peer(&mut self, id: PeerId, config: PeerConfig) {
        let internal = config.gateway.network == self.own.network;
        match self.peers.get_mut(&id) {
            Some(peer) => {
                peer.config = config;
                peer.internal = internal;
                self.import_again(id);
                self.tell_peer_all(id);
            }
            None => {
                let peer = Peer {
                    config,
                    internal,
                    tables: Tables::NONE,
                    awaited: Tables::NONE,
                    count: [0; Table::COUNT],
                    out: export::Out::default(),
                };
                self.peers.insert(id, peer);
            }
        }
    }

    /// A peer is no longer configured.
    pub(crate) fn remove_peer(&mut self, now: Instant, id: PeerId) {
        self.peer_down(now, id, false);
        self.peers.remove(&id);
        if let Some(flaps) = &mut self.flaps {
            flaps.forget_peer(id);
        }
    }

    /// A peer is there: it is to be told the full table, and its own is awaited.
    pub(crate) fn peer_up(&mut self, id: PeerId, tables: Tables) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.tables = tables;
            peer.awaited = tables;
            peer.out = export::Out::default();
            peer.out.end_of_table = tables;
            self.tell_peer_all(id);
        }
    }

    /// A peer is away. Its routes go, or stay as stale ones until [`Rib::sweep`].
    pub(crate) fn peer_down(&mut self, now: Instant, id: PeerId, keep: bool) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        peer.tables = Tables::NONE;
        peer.awaited = Tables::NONE;
        peer.out = export::Out::default();
        if keep {
            for destination in self.destinations.values_mut() {
                if let Some(candidate) = destination.candidates.get_mut(&id) {
                    candidate.stale = true;
                }
            }
        } else {
            self.forget(now, id, |_, _| true);
        }
    }

    /// Stale routes of a peer go: in `table`, or in all.
    pub(crate) fn sweep(&mut self, now: Instant, id: PeerId, table: Option<Table>) {
        self.forget(now, id, |of, candidate| {
            candidate.stale && table.is_none_or(|table| table == of)
        });
    }

    /// The peer has sent its full table.
    pub(crate) fn end_of_table(&mut self, now: Instant, id: PeerId, table: Table) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.awaited = peer.awaited.without(table);
        }
        self.sweep(now, id, Some(table));
    }

    /// Whether the peer still owes a full table.
    pub(crate) fn is_awaited(&self, id: PeerId) -> bool {
        self.peers
            .get(&id)
            .is_some_and(|peer| !peer.awaited.is_empty())
    }

    /// Peers are told from now on.
    pub(crate) fn end_deferral(&mut self) {
        self.deferred = false;
    }

    fn forget(&mut self, now: Instant, id: PeerId, which: impl Fn(Table, &Candidate) -> bool) {
        let gone: Vec<_> = self
            .destinations
            .iter()
            .filter(|((table, _), entry)| {
                entry
                    .candidates
                    .get(&id)
                    .is_some_and(|candidate| which(*table, candidate))
            })
            .map(|(&key, _)| key)
            .collect();
        for (table, destination) in gone {
            self.remove(now, id, table, destination, false);
        }
    }

    /// A peer announces a route.
    ///
    /// # Errors
    /// The route is not taken; what the peer said of that destination before is forgotten.
    pub(crate) fn announce(
        &mut self,
        now: Instant,
        id: PeerId,
        table: Table,
        destination: GatewayId,
        attributes: Attributes,
    ) -> Result<(), Refused> {
        let Some(peer) = self.peers.get(&id) else {
            return Ok(());
        };
        let refused = if attributes.path.first() != Some(&peer.config.gateway) {
            self.stats.not_from_peer += 1;
            Some(Refused::NotFromPeer)
        } else if self.loops(peer.internal, &attributes.path) {
            self.stats.loops += 1;
            Some(Refused::Loop)
        } else {
            None
        };
        if let Some(refused) = refused {
            self.remove(now, id, table, destination, true);
            return Err(refused);
        }
        self.stats.announced += 1;
        let announced = Route {
            cost: attributes.cost,
            path: attributes.path.into(),
            tags: attributes.tags.into(),
        };
        let internal = peer.internal;
        let candidate = import(&peer.config, table, destination, announced);
        let entry = self.destinations.entry((table, destination)).or_default();
        let before = entry.candidates.insert(id, candidate);
        let (changed, seen) = match (&before, entry.candidates.get(&id)) {
            (Some(before), Some(after)) => (
                before.announced != after.announced,
                before.seen_by_trees() != after.seen_by_trees(),
            ),
            _ => (false, true),
        };
        let key = (id, table, destination);
        let damped = self.is_suppressed(&key);
        if before.is_none()
            && let Some(peer) = self.peers.get_mut(&id)
        {
            peer.count[usize::from(table.number())] += 1;
        }
        if changed && !internal {
            self.flap(now, key, Flap::Changed);
        }
        let seen = seen || damped != self.is_suppressed(&key);
        self.decide(table, destination, seen);
        Ok(())
    }

    fn loops(&self, internal: bool, path: &[GatewayId]) -> bool {
        path.iter()
            .any(|on| *on == self.own || (!internal && on.network == self.own.network))
    }

    /// A peer withdraws a route.
    pub(crate) fn withdraw(
        &mut self,
        now: Instant,
        id: PeerId,
        table: Table,
        destination: GatewayId,
    ) {
        self.stats.withdrawn += 1;
        self.remove(now, id, table, destination, true);
    }

    fn remove(
        &mut self,
        now: Instant,
        id: PeerId,
        table: Table,
        destination: GatewayId,
        flaps: bool,
    ) {
        let Some(entry) = self.destinations.get_mut(&(table, destination)) else {
            return;
        };
        if entry.candidates.remove(&id).is_none() {
            return;
        }
        let mut internal = true;
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.count[usize::from(table.number())] -= 1;
            internal = peer.internal;
        }
        if flaps && !internal {
            self.flap(now, (id, table, destination), Flap::Withdrawn);
        }
        self.decide(table, destination, true);
    }

    fn flap(&mut self, now: Instant, key: damping::Key, flap: Flap) {
        if let Some(flaps) = &mut self.flaps {
            let before = flaps.is_suppressed(&key);
            flaps.flap(now, key, flap);
            self.stats.suppressed += u64::from(!before && flaps.is_suppressed(&key));
        }
    }

    /// Routes that were damped for long enough are used again.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while let Some((_, table, destination)) =
            self.flaps.as_mut().and_then(|flaps| flaps.released(now))
        {
            self.decide(table, destination, true);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.flaps.as_ref().and_then(Flaps::poll_timeout)
    }

    /// How many routes the peer has in `table`, and how many it may.
    pub(crate) fn count(&self, id: PeerId, table: Table) -> (usize, usize) {
        self.peers.get(&id).map_or((0, 0), |peer| {
            (
                peer.count[usize::from(table.number())],
                peer.config.max_routes,
            )
        })
    }

    /// A table in which the peer has announced more routes than it may.
    pub(crate) fn over_limit(&self, id: PeerId) -> Option<Table> {
        Table::all().find(|&table| {
            let (count, max) = self.count(id, table);
            count > max
        })
    }

    /// The import policy of a peer changed.
    fn import_again(&mut self, id: PeerId) {
        let Some(config) = self.peers.get(&id).map(|peer| peer.config.clone()) else {
            return;
        };
        let mut decide = Vec::new();
        for (&(table, destination), entry) in &mut self.destinations {
            if let Some(candidate) = entry.candidates.get_mut(&id) {
                let stale = candidate.stale;
                *candidate = import(&config, table, destination, candidate.announced.clone());
                candidate.stale = stale;
                decide.push((table, destination));
            }
        }
        for (table, destination) in decide {
            self.decide(table, destination, true);
        }
    }

    fn decide_all(&mut self) {
        let all: Vec<_> = self.destinations.keys().copied().collect();
        for (table, destination) in all {
            self.decide(table, destination, true);
        }
    }

    fn usable(&self, id: PeerId, table: Table, to: GatewayId, candidate: &Candidate) -> bool {
        !candidate.rejected && !self.is_suppressed(&(id, table, to))
    }

    fn is_suppressed(&self, key: &damping::Key) -> bool {
        let suppressed = |flaps: &Flaps| flaps.is_suppressed(key);
        self.flaps.as_ref().is_some_and(suppressed)
    }

    /// Decides which route to a gateway is the best, and tells the peers if that has changed. `seen` says
    /// whether trees can see the change of a candidate that led here.
    fn decide(&mut self, table: Table, destination: GatewayId, seen: bool) {
        let key = (table, destination);
        let Some(entry) = self.destinations.get(&key) else {
            return;
        };
        let mut best = None;
        for (&id, candidate) in &entry.candidates {
            if let Some(peer) = self.peers.get(&id)
                && self.usable(id, table, destination, candidate)
            {
                let rank = Rank::new(candidate, peer, destination, candidate.route.cost);
                better(&mut best, rank, id);
            }
        }
        let best = best.map(|(_, id)| id);
        let none = entry.candidates.is_empty() && destination != self.own;
        let mut seen = seen;
        if let Some(entry) = self.destinations.get_mut(&key) {
            seen |= entry.best != best;
            self.stats.changes += u64::from(entry.best != best);
            entry.best = best;
        }
        if none {
            self.destinations.remove(&key);
        }
        if seen {
            self.changed.insert((table, destination.network));
        }
        // Even if the best is of the same peer, its route may be another.
        self.news = true;
        self.tell(table, destination);
    }

    fn best(&self, table: Table, destination: GatewayId) -> Option<(PeerId, &Candidate)> {
        let entry = self.destinations.get(&(table, destination))?;
        let id = entry.best?;
        Some((id, entry.candidates.get(&id)?))
    }

    /// All routes, for people: the table, the destination, whose route it is, whether it is the best,
    /// and the route.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Table, GatewayId, PeerId, bool, &Route)> {
        self.destinations
            .iter()
            .flat_map(|(&(table, destination), entry)| {
                entry.candidates.iter().map(move |(&id, candidate)| {
                    (
                        table,
                        destination,
                        id,
                        entry.best == Some(id),
                        &candidate.route,
                    )
                })
            })
    }

    /// Routes whose flaps are remembered.
    pub(crate) fn flapping(&self) -> usize {
        self.flaps.as_ref().map_or(0, Flaps::len)
    }
}

/// A route as announced, through the import policy.
fn import(
    config: &PeerConfig,
    table: Table,
    destination: GatewayId,
    announced: Route,
) -> Candidate {
    let mut route = announced.clone();
    route.cost = table.metric().join(route.cost, config.link.get(table));
    let (mut preference, mut rejected) = (DEFAULT_PREFERENCE, false);
    match config.import.decide(table, destination, &route) {
        Action::Accept(changes) => {
            changes.apply(table, &mut route);
            preference = changes.preference.unwrap_or(DEFAULT_PREFERENCE);
        }
        Action::Reject => rejected = true,
    }
    let rejected = rejected || !route.cost.is_finite();
    Candidate {
        announced,
        route,
        preference,
        rejected,
        stale: false,
    }
}
