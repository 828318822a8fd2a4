//! The end of trees: refusal, expiry of soft state, and the release of their resources.

use alloc::vec::Vec;

use proto_core::time::Instant;

use super::ControlNode;
use crate::coordination::Coordinator;
use crate::event::Event;
use crate::tree::Slot;
use crate::wire::no_route::Reason;
use crate::wire::reclaim::ReclaimTarget;

impl<C: Coordinator> ControlNode<C> {
    /// Refuses a session to all downstream peers and clients, and for a while to all that ask for it.
    pub(super) fn fail(&mut self, now: Instant, slot: Slot, reason: Reason) {
        let Some(tree) = self.trees.get(slot) else {
            return;
        };
        let session = tree.name.clone();
        let refused = tree.failures.last == Some(reason);
        let below = tree.below();
        self.end_clients(slot, reason);
        for id in below {
            self.send_no_route(id, session.clone(), reason);
        }
        self.remove_tree(slot);
        // Only results about the session itself, or from all upstream candidates, are remembered; not that this
        // gateway is full.
        if refused || matches!(reason, Reason::NoSession | Reason::UnknownOwner) {
            let (time, limit) = (self.config.refusal_time, self.config.limits.max_refused);
            self.refused.put(now, session, reason, time, limit);
        }
    }

    /// Removes a tree and releases its resources.
    pub(super) fn remove_tree(&mut self, slot: Slot) {
        let Some(tree) = self.trees.get(slot) else {
            return;
        };
        let peers = [tree.upstream(), tree.joining()];
        let (attached, had_node) = (tree.is_attached(), tree.node.is_some());
        for id in peers.into_iter().flatten() {
            self.leave_peer(slot, id);
        }
        self.reclaim(slot, ReclaimTarget::All);
        self.unassign(slot);
        self.shares.changed();
        if let Some(tree) = self.trees.remove(slot) {
            let admitted = tree.down.values().map(|down| down.rule);
            for rule in admitted.chain([tree.clients.rule]).flatten() {
                self.authoriser.release(rule);
            }
            // Until all sessions are known, another peer may come for what a data node still carries.
            if had_node || self.startup.complete_from.is_none() {
                self.coordinator.release(&tree.name);
            }
            if attached {
                self.events.push_back(Event::TreeDown(tree.name));
            }
        }
    }

    pub(super) fn expire_tree(&mut self, now: Instant, slot: Slot) {
        self.expire(now, slot);
        let Some(tree) = self.trees.get_mut(slot) else {
            return;
        };
        tree.discovery
            .take_if(|discovery| discovery.deadline <= now);
        let overdue = tree
            .joining
            .as_ref()
            .filter(|joining| joining.deadline <= now);
        if let Some(id) = overdue.map(|joining| joining.peer) {
            self.leave_peer(slot, id);
            self.upstream_failed(now, slot, id, Reason::Timeout);
        }
        let interval = self.config.refresh_interval;
        let mut refresh = false;
        if let Some(tree) = self.trees.get_mut(slot) {
            tree.failures.expire(now);
            if tree.refresh_at <= now {
                tree.refresh_at = now + interval;
                if tree.discovery.is_none() {
                    tree.discoveries = 0;
                }
                refresh = true;
            }
        }
        if refresh {
            self.send_join(slot);
            self.refresh_or_reclaim(slot, None);
        }
        self.advance(now, slot);
    }

    /// Removes soft state that was not refreshed.
    fn expire(&mut self, now: Instant, slot: Slot) {
        let Some(tree) = self.trees.get(slot) else {
            return;
        };
        let late = tree.down.iter().filter(|(_, down)| down.expires <= now);
        let (kept, late): (Vec<_>, Vec<_>) =
            late.map(|(&id, _)| id).partition(|&id| self.is_kept(id));
        let clients = tree.clients.until.is_some_and(|until| until <= now);
        for id in late {
            self.stats.expired += 1;
            self.drop_down(slot, id);
        }
        let expires = now + self.config.soft_state_lifetime;
        for id in kept {
            if let Some(down) = self
                .trees
                .get_mut(slot)
                .and_then(|tree| tree.down.get_mut(&id))
            {
                down.expires = expires;
            }
        }
        if clients {
            self.drop_clients(slot);
        }
    }
}
