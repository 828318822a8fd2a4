//! Queries of trees to routing.

use alloc::vec::Vec;

use super::decision::{Choice, Rank, better};
use super::{Decided, Destination, Rib};
use crate::tree::pop_after;
use crate::types::{BnNum, Cost, GatewayId, PeerId, Table};
use crate::wire::sroute::GatewayCost;

/// Returns what the owner of a session adds to routes to this gateway of it; `None` where the gateway is not to be used.
fn extra(gateway: GatewayId, sroutes: &[GatewayCost]) -> Option<Cost> {
    match sroutes.iter().find(|cost| cost.gateway == gateway) {
        Some(cost) => Some(cost.cost),
        None => sroutes.is_empty().then_some(Cost::ZERO),
    }
}

impl Rib {
    /// Returns whether there are networks whose trees are still to be marked.
    pub(crate) fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Returns the next network whose routes changed, in turn, and whether routes alone decide differently for its
    /// sessions than at the previous call.
    pub(crate) fn poll_changed(&mut self) -> Option<(Table, BnNum, bool)> {
        let (table, network) = pop_after(&mut self.changed, &mut self.last_changed)?;
        let choice = self.choose(table, network, &[], |_| true);
        let now = Decided {
            hop: choice.map(|choice| (choice.peer, choice.gateway)),
            ambiguous: self.is_ambiguous(table, network),
        };
        let before = match now == Decided::default() {
            true => self.decided.remove(&(table, network)),
            false => self.decided.insert((table, network), now),
        };
        Some((table, network, before.unwrap_or_default() != now))
    }

    /// Returns the peer that routes alone chose for a network when its trees were last marked.
    pub(crate) fn decided(&self, table: Table, network: BnNum) -> Option<PeerId> {
        let decided = self.decided.get(&(table, network))?;
        decided.hop.map(|(peer, _)| peer)
    }

    /// Returns at most `max` gateways of a network with routes to them.
    pub(crate) fn gateways(&self, table: Table, network: BnNum, max: usize) -> Vec<GatewayId> {
        self.of_network(table, network)
            .filter(|(_, entry)| entry.best.is_some())
            .map(|(gateway, _)| gateway)
            .take(max)
            .collect()
    }

    fn of_network(
        &self,
        table: Table,
        network: BnNum,
    ) -> impl Iterator<Item = (GatewayId, &Destination)> {
        let first = (table, GatewayId { network, number: 0 });
        let last = (
            table,
            GatewayId {
                network,
                number: u32::MAX,
            },
        );
        self.destinations
            .range(first..=last)
            .map(|(&(_, gateway), entry)| (gateway, entry))
    }

    /// Returns whether the best routes to a network's gateways have different next hops: only then does an SROUTE
    /// discovery make a difference (§5.2.2).
    pub(crate) fn is_ambiguous(&self, table: Table, network: BnNum) -> bool {
        let mut hops = self
            .of_network(table, network)
            .filter_map(|(_, entry)| entry.best);
        let first = hops.next();
        hops.any(|hop| Some(hop) != first)
    }

    /// Returns where to join a session of a network. `sroutes` are the owner's costs: unless empty, only gateways
    /// in them are used. `fit` tells which peers may be asked.
    pub(crate) fn choose(
        &self,
        table: Table,
        network: BnNum,
        sroutes: &[GatewayCost],
        fit: impl Fn(PeerId) -> bool,
    ) -> Option<Choice> {
        let mut best = None;
        for (gateway, entry) in self.of_network(table, network) {
            let Some(extra) = extra(gateway, sroutes) else {
                continue;
            };
            for (&id, candidate) in &entry.candidates {
                let cost = table.metric().join(candidate.route.cost, extra);
                let Some(peer) = self.peers.get(&id).filter(|_| cost.is_finite() && fit(id)) else {
                    continue;
                };
                if self.usable(id, table, gateway, candidate) {
                    let choice = Choice {
                        peer: id,
                        gateway,
                        cost,
                        internal: peer.internal,
                    };
                    better(&mut best, Rank::new(candidate, peer, gateway, cost), choice);
                }
            }
        }
        best.map(|(_, choice)| choice)
    }

    /// Returns the cost of the best route to `network` for a peer of this network, from that peer on, with SROUTE
    /// costs.
    pub(crate) fn cost_of(
        &self,
        id: PeerId,
        table: Table,
        network: BnNum,
        sroutes: &[GatewayCost],
    ) -> Cost {
        let costs = self
            .of_network(table, network)
            .filter_map(|(gateway, entry)| {
                let candidate = entry.candidates.get(&id)?;
                let extra = extra(gateway, sroutes)?;
                Some(table.metric().join(candidate.announced.cost, extra))
            });
        costs.min().unwrap_or(Cost::INFINITE)
    }

    /// Returns what [`Self::cost_of`] is of this gateway, for that peer. A route that this gateway does not announce,
    /// such as one that is worse than that of another gateway of this network, does not count.
    pub(crate) fn own_cost_for(
        &self,
        id: PeerId,
        table: Table,
        network: BnNum,
        sroutes: &[GatewayCost],
    ) -> Cost {
        let costs = self.of_network(table, network).filter_map(|(gateway, _)| {
            let route = self.export(id, table, gateway)?;
            let extra = extra(gateway, sroutes)?;
            Some(table.metric().join(route.cost, extra))
        });
        costs.min().unwrap_or(Cost::INFINITE)
    }

    /// Returns the next hop towards a gateway.
    pub(crate) fn next_hop(&self, table: Table, gateway: GatewayId) -> Option<PeerId> {
        self.best(table, gateway).map(|(id, _)| id)
    }

    /// Returns whether a route to a gateway of `network` was announced to the peer, or is about to be: only then
    /// may it join sessions from there through this gateway (§5.1: no transit against the policy). A peer with a
    /// new stream joins its previous sessions before it has received the table.
    pub(crate) fn is_announced_to(&self, id: PeerId, table: Table, network: BnNum) -> bool {
        self.peers.get(&id).is_some_and(|peer| {
            let mut pending = peer.out.pending(table, network);
            peer.out.has_announced(table, network)
                || pending.any(|destination| self.export(id, table, destination).is_some())
        })
    }
}
