//! Routes as they are imported: with the cost of the link, after the import policy.

use alloc::vec::Vec;

use super::export::of_table;
use super::policy::Action;
use super::{Candidate, DEFAULT_PREFERENCE, Peer, Rib, Route};
use crate::types::{Cost, GatewayId, Metric, PeerId, Table};

impl Peer {
    /// Returns the cost of the link.
    fn link_cost(&self, table: Table) -> Cost {
        match table.metric() {
            Metric::Latency if self.config.measure_latency => self.measured,
            _ => self.config.link.get(table),
        }
    }
}

impl Rib {
    /// Changes the measured cost of the link to a peer.
    pub(crate) fn set_link_cost(&mut self, id: PeerId, cost: Cost) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.measured = cost;
        }
        self.import_again(
            id,
            Table::all().filter(|table| table.metric() == Metric::Latency),
        );
    }

    /// Applies the import policy of a peer, and the cost of the link, again.
    pub(super) fn import_again(&mut self, id: PeerId, tables: impl Iterator<Item = Table>) {
        let Some(peer) = self.peers.get(&id) else {
            return;
        };
        let mut decide = Vec::new();
        for table in tables {
            let of_table = self.destinations.range_mut(of_table(table));
            for (&(_, destination), entry) in of_table {
                if let Some(candidate) = entry.candidates.get_mut(&id) {
                    let stale = candidate.stale;
                    let before = candidate.visible_to_trees();
                    *candidate = import(peer, table, destination, candidate.announced.clone());
                    candidate.stale = stale;
                    let seen = before != candidate.visible_to_trees();
                    decide.push((table, destination, seen));
                }
            }
        }
        for (table, destination, seen) in decide {
            self.decide(table, destination, seen);
        }
    }
}

/// Applies the import policy to an announced route.
pub(super) fn import(
    peer: &Peer,
    table: Table,
    destination: GatewayId,
    announced: Route,
) -> Candidate {
    let config = &peer.config;
    let mut route = announced.clone();
    route.cost = table.metric().join(route.cost, peer.link_cost(table));
    let (mut preference, mut rejected) = (DEFAULT_PREFERENCE, false);
    match config.import.decide(table, destination, &route) {
        Action::Accept(changes) => {
            changes.apply(table, &mut route);
            preference = changes.preference.unwrap_or(DEFAULT_PREFERENCE);
        }
        Action::Reject => rejected = true,
    }
    let rejected = rejected || !route.cost.is_finite() || !config.may_announce(destination.network);
    Candidate {
        announced,
        route,
        preference,
        rejected,
        stale: false,
    }
}
