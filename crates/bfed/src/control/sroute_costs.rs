//! The owner's costs that the trees of this gateway follow.

use alloc::vec::Vec;

use proto_core::time::Instant;

use super::ControlNode;
use crate::coordination::Coordinator;
use crate::name::{Owner, SessionName};
use crate::tree::{Slot, Tree};
use crate::types::{BnNum, PeerId};
use crate::wire::sroute::GatewayCost;

impl<C: Coordinator> ControlNode<C> {
    /// Keeps costs for a session, except those of gateways outside the owner's network. Returns whether they have
    /// changed.
    pub(super) fn keep_sroutes(
        &mut self,
        now: Instant,
        session: &SessionName,
        mut costs: Vec<GatewayCost>,
    ) -> bool {
        let until = now + self.config.soft_state_lifetime;
        if let Some(owner) = self.owner_of(session) {
            costs.retain(|cost| cost.gateway.network == owner);
        }
        if let Some(slot) = self.trees.find(session) {
            self.trees.set_particular(slot, true);
        }
        self.sroutes.put(now, session, costs, until)
    }

    /// Returns the owner of a session, if its number is known here.
    pub(super) fn owner_of(&self, session: &SessionName) -> Option<BnNum> {
        let resolved = || {
            let slot = self.trees.find(session)?;
            self.trees.get(slot)?.network
        };
        match session.owner() {
            Owner::Number(network) => Some(network),
            Owner::Name(name) => self.config.names.get(name).copied().or_else(resolved),
        }
    }

    /// Stores the costs that a peer's JOIN claims. They are not verified: they are used for that peer's own tree
    /// alone, never for one that another peer or a client has too, and never sent to others.
    pub(super) fn claim_sroutes(
        &mut self,
        slot: Slot,
        from: PeerId,
        costs: Option<Vec<GatewayCost>>,
    ) {
        if let Some(tree) = self.trees.get_mut(slot)
            && tree.is_wanted_only_by(from)
        {
            tree.claimed = costs.map(|costs| (from, costs));
        }
    }

    /// Returns the owner's costs for a tree: discovered ones, else those claimed by the only peer that needs the
    /// session.
    pub(super) fn costs_of<'a>(&'a self, tree: &'a Tree) -> Option<&'a [GatewayCost]> {
        let claimed = || {
            let (from, costs) = tree.claimed.as_ref()?;
            tree.is_wanted_only_by(*from).then_some(&costs[..])
        };
        self.sroutes.get(&tree.name).or_else(claimed)
    }

    /// Returns these costs, or none where no route leads to a gateway that they name: then routes alone decide.
    pub(super) fn usable_costs<'a>(&'a self, tree: &'a Tree) -> &'a [GatewayCost] {
        let Some((network, costs)) = tree.network.zip(self.costs_of(tree)) else {
            return &[];
        };
        let choice = self.rib.choose(tree.table, network, costs, |_| true);
        choice.map_or(&[], |_| costs)
    }
}
