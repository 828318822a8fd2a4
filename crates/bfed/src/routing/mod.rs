//! Routing (§5.1): a path vector to gateways, a table for each metric and capability.
//!
//! Routing knows nothing of sessions, so its memory grows with the number of gateways (at most
//! [`PeerConfig::max_routes`] for each peer and table). The table of [`decision`] says how a route is chosen; this
//! one says which routes [`export`] announces:
//!
//! | the best route | to a peer of another network | to a peer of this network |
//! | --- | --- | --- |
//! | leads to this gateway | announced | announced |
//! | is from a peer of another network | announced, with the cost of crossing this network added | announced |
//! | is from a peer of this network | announced, with the same cost added | not: the peer has it itself, in full mesh |
//! | leads to another gateway of this network | not: a session joined through this gateway would end here | not, for the same reason |
//! | is from the peer itself, or has it in its path | not | not |
//! | is rejected by the export policy, or has infinite cost | not | not |
//!
//! Which trees are examined after a route changed:
//!
//! | change | trees of that network that are examined |
//! | --- | --- |
//! | none of a candidate's cost, preference, length or usability | none |
//! | routes alone lead to the same peer and gateway as before | those joined elsewhere, or with SROUTE costs, refusals or waiting clients of their own |
//! | routes alone lead elsewhere, or an SROUTE discovery begins or ceases to make a difference | all |
//!
//! Trees wait in a queue to be examined; each call of the control node takes 64 of them, and marks the trees of at
//! most 64 networks, in turn. `Stats::trees_examined` counts them.

pub mod damping;
pub mod decision;
pub mod export;
mod import;
pub mod policy;
mod query;
mod stats;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use proto_core::time::Instant;

pub use damping::Damping;
pub use policy::{Action, Changes, Match, Policy, Rule};
pub use stats::RouteStats;

use crate::config::{Config, PeerConfig};
use crate::delay::UNMEASURED;
use crate::types::{BnNum, Cost, GatewayId, PeerId, Table, Tables};
use crate::wire::attributes::Attributes;
use damping::{Flap, Flaps};
use decision::{Rank, better};

/// Preference of a route without one from a policy.
pub const DEFAULT_PREFERENCE: u32 = 100;

/// A route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// Its cost.
    pub cost: Cost,
    /// The gateways of its path: the next first, the destination last.
    pub path: Arc<[GatewayId]>,
    /// Tags of policies.
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
    /// Whether the import policy, an infinite cost or the networks granted to the peer rule it out.
    rejected: bool,
    /// Whether the peer is disconnected, or has not confirmed it since it reconnected.
    stale: bool,
}

impl Candidate {
    /// Returns what trees depend on: candidates with equal values are equal for every tree.
    fn visible_to_trees(&self) -> (bool, u32, Cost, usize, Cost) {
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
    /// The peer to join, and the owner's gateway that it leads to.
    hop: Option<(PeerId, GatewayId)>,
    /// Whether an SROUTE discovery makes a difference.
    ambiguous: bool,
}

/// A peer as routing sees it.
#[derive(Debug)]
struct Peer {
    config: PeerConfig,
    internal: bool,
    /// Tables of the session; none while the peer is disconnected.
    tables: Tables,
    /// Tables that the peer has not sent completely.
    awaited: Tables,
    /// Number of routes that it announced, by table.
    count: [usize; Table::COUNT],
    out: export::Out,
    /// Cost of the link in the tables for latency where that is measured.
    measured: Cost,
}

#[derive(Debug, Default)]
struct Destination {
    candidates: BTreeMap<PeerId, Candidate>,
    /// The peer with the best route.
    best: Option<PeerId>,
}

/// Why a route from a peer was refused. It counts as a withdrawal of the peer's previous route.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Refused {
    /// Its path does not begin with the peer.
    NotFromPeer,
    /// This gateway, or from another network this network, is in its path.
    Loop,
}

/// All routing tables.
#[derive(Debug)]
pub(crate) struct Rib {
    own: GatewayId,
    config: RibConfig,
    peers: BTreeMap<PeerId, Peer>,
    /// Ordered by table, then network, so that a network's gateways are adjacent.
    destinations: BTreeMap<(Table, GatewayId), Destination>,
    flaps: Option<Flaps>,
    /// Networks whose routes changed so that a tree might be joined elsewhere, and the one examined last.
    changed: BTreeSet<(Table, BnNum)>,
    last_changed: Option<(Table, BnNum)>,
    /// What routes alone decided for each network when its trees were last marked; only networks with a route.
    decided: BTreeMap<(Table, BnNum), Decided>,
    /// Routes have changed; peers may have to be told.
    pub(crate) any_changed: bool,
    /// After a restart, nothing is announced until the peers' tables are complete.
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
            any_changed: false,
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

    /// Applies new costs and policies. Every route is decided again.
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
        self.schedule_all();
    }

    /// Adds a peer, or changes its configuration.
    pub(crate) fn set_peer(&mut self, id: PeerId, config: PeerConfig) {
        let internal = config.gateway.network == self.own.network;
        match self.peers.get_mut(&id) {
            Some(peer) => {
                peer.config = config;
                peer.internal = internal;
                self.import_again(id, Table::all());
                self.schedule_all_for(id);
            }
            None => {
                let peer = Peer {
                    config,
                    internal,
                    tables: Tables::NONE,
                    awaited: Tables::NONE,
                    count: [0; Table::COUNT],
                    out: export::Out::default(),
                    measured: UNMEASURED,
                };
                self.peers.insert(id, peer);
            }
        }
    }

    /// Removes a peer.
    pub(crate) fn remove_peer(&mut self, now: Instant, id: PeerId) {
        self.peer_down(now, id, false);
        self.peers.remove(&id);
        if let Some(flaps) = &mut self.flaps {
            flaps.forget_peer(id);
        }
    }

    /// Starts a session with a peer: schedules the full table, and awaits the peer's.
    pub(crate) fn peer_up(&mut self, id: PeerId, tables: Tables) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.tables = tables;
            peer.awaited = tables;
            peer.out = export::Out::default();
            peer.out.end_of_table = tables;
            self.schedule_all_for(id);
        }
    }

    /// Ends the session with a peer. Its routes are removed, or kept as stale ones until [`Rib::sweep`].
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

    /// Removes stale routes of a peer, in `table` or in all.
    pub(crate) fn sweep(&mut self, now: Instant, id: PeerId, table: Option<Table>) {
        self.forget(now, id, |of, candidate| {
            candidate.stale && table.is_none_or(|table| table == of)
        });
    }

    /// Handles the end of a peer's full table.
    pub(crate) fn end_of_table(&mut self, now: Instant, id: PeerId, table: Table) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.awaited = peer.awaited.without(table);
        }
        self.sweep(now, id, Some(table));
    }

    /// Returns whether the peer's full table is incomplete.
    pub(crate) fn is_awaited(&self, id: PeerId) -> bool {
        self.peers
            .get(&id)
            .is_some_and(|peer| !peer.awaited.is_empty())
    }

    /// Starts announcing routes.
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

    /// Handles a route announced by a peer.
    ///
    /// # Errors
    /// The route is refused; the peer's previous route to the destination is removed.
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
        self.stats.not_granted += u64::from(!peer.config.may_announce(destination.network));
        let announced = Route {
            cost: attributes.cost,
            path: attributes.path.into(),
            tags: attributes.tags.into(),
        };
        let internal = peer.internal;
        let candidate = import::import(peer, table, destination, announced);
        let entry = self.destinations.entry((table, destination)).or_default();
        let before = entry.candidates.insert(id, candidate);
        let (changed, seen) = match (&before, entry.candidates.get(&id)) {
            (Some(before), Some(after)) => (
                before.announced != after.announced,
                before.visible_to_trees() != after.visible_to_trees(),
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

    /// Handles a route withdrawn by a peer.
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

    /// Reuses routes whose suppression has ended.
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

    /// Returns the number of the peer's routes in `table`, and the limit.
    pub(crate) fn count(&self, id: PeerId, table: Table) -> (usize, usize) {
        self.peers.get(&id).map_or((0, 0), |peer| {
            (
                peer.count[usize::from(table.number())],
                peer.config.max_routes,
            )
        })
    }

    /// Returns a table in which the peer has announced more routes than it may.
    pub(crate) fn over_limit(&self, id: PeerId) -> Option<Table> {
        Table::all().find(|&table| {
            let (count, max) = self.count(id, table);
            count > max
        })
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

    /// Decides which route to a gateway is the best, and schedules its announcement. `seen` says whether trees
    /// depend on the change that led here.
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
        // The route may differ even if the best one is from the same peer.
        self.any_changed = true;
        self.queue_export(table, destination);
    }

    fn best(&self, table: Table, destination: GatewayId) -> Option<(PeerId, &Candidate)> {
        let entry = self.destinations.get(&(table, destination))?;
        let id = entry.best?;
        Some((id, entry.candidates.get(&id)?))
    }

    /// Returns all routes for display: table, destination, peer, whether it is the best, and the route.
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

    /// Returns the number of flapping routes remembered.
    pub(crate) fn flapping(&self) -> usize {
        self.flaps.as_ref().map_or(0, Flaps::len)
    }
}
