//! How the data nodes of a gateway share the bound of a link (§3.1).
//!
//! A data node gets as much of a peer's bound as it has of the sessions that go to the peer, and shares that
//! between them by turns. A data node without such sessions gets nothing of it, so that one session has the
//! whole link, however many data nodes there are. A session that sends less than its share leaves the rest to
//! the other sessions of its data node, not to those of other data nodes.
//!
//! Shares are counted anew when sessions or data nodes have come or gone, once a second at most; until
//! then a new session's data node has what it would have if all others stayed as they were. A data node is
//! told with the next question about one of the link's sessions that it has.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use proto_core::time::{Duration, Instant};

use super::ControlNode;
use crate::coordination::Coordinator;
use crate::tree::{Ask, Slot};
use crate::types::{NodeId, PeerId};
use crate::wire::subscribe::Edge;

/// Time between two countings.
const INTERVAL: Duration = Duration::from_secs(1);

/// What each data node was told of the bound of each peer's link.
#[derive(Debug)]
pub(super) struct Shares {
    /// Sessions that go to a peer with a bound, by the data node that has them.
    counts: BTreeMap<(PeerId, NodeId), u64>,
    told: BTreeMap<(PeerId, NodeId), u64>,
    /// Something has changed since they were counted.
    changed: bool,
    next: Instant,
}

impl Shares {
    pub(super) fn new(now: Instant) -> Self {
        Shares {
            counts: BTreeMap::new(),
            told: BTreeMap::new(),
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

    /// A data node's share of a rate: at least as much as one session's.
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
    /// The edge to a peer, with the share of the link's bound that the session's data node has.
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
        self.shares.told.insert((peer, node), rate_bps);
        self.shares.changed();
        Edge::Peer { peer, rate_bps }
    }

    /// Counts sessions anew, and tells data nodes whose shares have changed.
    pub(super) fn time_of_shares(&mut self, now: Instant) {
        if !self.shares.changed || self.shares.next > now {
            return;
        }
        self.shares.changed = false;
        self.shares.next = now + INTERVAL;
        self.shares.counts.clear();
        // A session of each data node that the peer's share can be told with.
        let mut first: BTreeMap<(PeerId, NodeId), Slot> = BTreeMap::new();
        let peers = &self.peers;
        let bound = |id: PeerId| peers.get(&id).and_then(|state| state.config.rate_bps);
        for (slot, tree) in self.trees.iter() {
            let Some(node) = tree.node else {
                continue;
            };
            let below = tree.down.iter().filter(|(_, down)| !down.flows.is_empty());
            let below = below.map(|(&id, _)| id);
            // What goes up is data where anybody may send.
            let up = tree.up.as_ref().and_then(|up| up.peer);
            let up = up.filter(|id| tree.name.multi_source() && !tree.down.contains_key(id));
            for id in below.chain(up).filter(|&id| bound(id).is_some()) {
                *self.shares.counts.entry((id, node)).or_default() += 1;
                first.entry((id, node)).or_insert(slot);
            }
        }
        let shares = &mut self.shares;
        shares.told.retain(|key, _| first.contains_key(key));
        let stale = first.into_iter().filter_map(|((id, node), slot)| {
            let share = shares.of(id, node, bound(id)?);
            (shares.told.get(&(id, node)) != Some(&share)).then_some((id, slot))
        });
        let stale: Vec<_> = stale.collect();
        for (id, slot) in stale {
            self.ask_for_share(slot, id);
        }
    }

    /// Asks a session's data node again for what goes to a peer, and so tells it the share of the bound.
    pub(super) fn ask_for_share(&mut self, slot: Slot, id: PeerId) {
        let up = self.trees.get(slot).and_then(|tree| tree.up.as_ref());
        let up = up.filter(|up| up.peer == Some(id));
        if let Some(flows) = up.map(|up| up.flows.clone()) {
            let edge = self.shared_edge(slot, id);
            let ask = self.ask_up(slot, edge, flows);
            if let Some(up) = self.trees.get_mut(slot).and_then(|tree| tree.up.as_mut()) {
                up.ask = ask;
            }
        }
        let tree = self.trees.get_mut(slot);
        if let Some(down) = tree.and_then(|tree| tree.down.get_mut(&id)) {
            down.ask = Ask::Nothing;
        }
        self.trees.pending.insert(slot);
    }
}
