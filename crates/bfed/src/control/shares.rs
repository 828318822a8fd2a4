//! The rate limit of a link, shared between the data nodes of a gateway (§3.1).
//!
//! A data node's share of a peer's limit is proportional to its sessions that go to the peer, which take turns. A
//! data node without such sessions gets nothing, so that a single session has the whole link, however many data
//! nodes there are. What a session leaves of its share goes to the other sessions of its data node, not to those of
//! other data nodes.
//!
//! Sessions are counted again when sessions or data nodes have come or gone, at most once a second; until then a
//! new session's data node gets the share that it would have if all others stayed as they are. A data node learns
//! its share with the next request about one of its sessions on the link.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use proto_core::time::{Duration, Instant};

use super::ControlNode;
use crate::coordination::Coordinator;
use crate::tree::{PendingRequest, Slot};
use crate::types::{NodeId, PeerId};
use crate::wire::subscribe::Edge;

/// Time between two counts.
const INTERVAL: Duration = Duration::from_secs(1);

/// The share of each data node in each peer's link.
#[derive(Debug)]
pub(super) struct Shares {
    /// Sessions that go to a peer with a rate limit, by data node.
    counts: BTreeMap<(PeerId, NodeId), u64>,
    sent: BTreeMap<(PeerId, NodeId), u64>,
    /// Whether anything has changed since the last count.
    changed: bool,
    next: Instant,
}

impl Shares {
    pub(super) fn new(now: Instant) -> Self {
        Shares {
            counts: BTreeMap::new(),
            sent: BTreeMap::new(),
            changed: false,
            next: now,
        }
    }

    pub(super) fn changed(&mut self) {
        self.changed = true;
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.changed.then_some(self.next)
    }

    /// Returns a data node's share of a rate: at least that of one session.
    fn of(&self, peer: PeerId, node: NodeId, rate_bps: u64) -> u64 {
        let nodes = (peer, NodeId(0))..=(peer, NodeId(u32::MAX));
        let all: u64 = self.counts.range(nodes).map(|(_, count)| count).sum();
        let own = self.counts.get(&(peer, node)).copied().unwrap_or(0);
        let (own, all) = match own {
            0 => (1, all + 1),
            own => (own, all),
        };
        let share = u128::from(rate_bps) * u128::from(own) / u128::from(all);
        u64::try_from(share).unwrap_or(rate_bps).max(1)
    }
}

impl<C: Coordinator> ControlNode<C> {
    /// Returns the edge to a peer, with the share of the session's data node.
    pub(super) fn shared_edge(&mut self, slot: Slot, id: PeerId) -> Edge {
        let edge = self.edge(id);
        let node = self.trees.get(slot).and_then(|tree| tree.node);
        let Some(node) = node else {
            return edge;
        };
        let (peer, rate_bps) = match edge {
            Edge::Peer { peer, rate_bps } if rate_bps > 0 => (peer, rate_bps),
            other => return other,
        };
        let rate_bps = self.shares.of(peer, node, rate_bps);
        self.shares.sent.insert((peer, node), rate_bps);
        self.shares.changed();
        Edge::Peer { peer, rate_bps }
    }

    /// Counts sessions again, and tells data nodes whose shares have changed.
    pub(super) fn update_shares(&mut self, now: Instant) {
        if !self.shares.changed || self.shares.next > now {
            return;
        }
        self.shares.changed = false;
        self.shares.next = now + INTERVAL;
        self.shares.counts.clear();
        // One session of each data node, with which the share can be sent.
        let mut first: BTreeMap<(PeerId, NodeId), Slot> = BTreeMap::new();
        let peers = &self.peers;
        let bound = |id: PeerId| peers.get(&id).and_then(|state| state.config.rate_bps);
        for (slot, tree) in self.trees.iter() {
            let Some(node) = tree.node else {
                continue;
            };
            let below = tree.down.iter().filter(|(_, down)| !down.flows.is_empty());
            let below = below.map(|(&id, _)| id);
            // In sessions with many sources, data goes upstream too.
            let up = tree.upstream();
            let up = up.filter(|id| tree.name.multi_source() && !tree.down.contains_key(id));
            for id in below.chain(up).filter(|&id| bound(id).is_some()) {
                *self.shares.counts.entry((id, node)).or_default() += 1;
                first.entry((id, node)).or_insert(slot);
            }
        }
        let shares = &mut self.shares;
        shares.sent.retain(|key, _| first.contains_key(key));
        let stale = first.into_iter().filter_map(|((id, node), slot)| {
            let share = shares.of(id, node, bound(id)?);
            (shares.sent.get(&(id, node)) != Some(&share)).then_some((id, slot))
        });
        let stale: Vec<_> = stale.collect();
        for (id, slot) in stale {
            self.ask_for_share(slot, id);
        }
    }

    /// Repeats the requests of a session for a peer, and with them sends the share.
    pub(super) fn ask_for_share(&mut self, slot: Slot, id: PeerId) {
        let up = self.trees.get(slot).and_then(|tree| tree.up.as_ref());
        let up = up.filter(|up| up.peer == Some(id));
        if let Some(flows) = up.map(|up| up.flows.clone()) {
            let edge = self.shared_edge(slot, id);
            let request = self.subscribe_up(slot, edge, flows);
            if let Some(up) = self.trees.get_mut(slot).and_then(|tree| tree.up.as_mut()) {
                up.request = request;
            }
        }
        let tree = self.trees.get_mut(slot);
        if let Some(down) = tree.and_then(|tree| tree.down.get_mut(&id)) {
            down.request = PendingRequest::NotSent;
        }
        self.trees.pending.insert(slot);
    }
}

#[cfg(test)]
mod tests;
