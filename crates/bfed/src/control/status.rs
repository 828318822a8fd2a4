//! What people want to know.

use alloc::vec::Vec;

use super::ControlNode;
use crate::coordination::Coordinator;
use crate::name::SessionName;
use crate::routing::Route;
use crate::session::State;
use crate::types::{GatewayId, NodeId, PeerId, Table};

/// A peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerStatus {
    /// Which.
    pub peer: PeerId,
    /// The gateway that it is.
    pub gateway: GatewayId,
    /// Where the peering stands.
    pub state: State,
    /// Its routes and trees are kept though it is away.
    pub stale: bool,
    /// Routes that it announced, over all tables.
    pub routes: usize,
    /// Sessions that it joined here.
    pub sessions: usize,
    /// Messages that wait for it.
    pub queued: usize,
}

/// A route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteStatus {
    /// In which table.
    pub table: Table,
    /// Where it leads.
    pub destination: GatewayId,
    /// Who announced it.
    pub peer: PeerId,
    /// It is the one that is used.
    pub best: bool,
    /// The route.
    pub route: Route,
}

/// A session's tree at this gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeStatus {
    /// The session.
    pub session: SessionName,
    /// Data comes, or will as soon as there is some.
    pub attached: bool,
    /// Where it comes from; none at the owner, or without a way.
    pub upstream: Option<PeerId>,
    /// The gateways above this one, the next first.
    pub path: Vec<GatewayId>,
    /// Where it goes to.
    pub downstream: Vec<PeerId>,
    /// Clients of this network have it.
    pub clients: bool,
    /// The data node that carries it.
    pub node: Option<NodeId>,
}

impl<C: Coordinator> ControlNode<C> {
    /// The peers.
    pub fn peers(&self) -> impl Iterator<Item = PeerStatus> + '_ {
        self.peers.iter().map(|(&peer, state)| PeerStatus {
            peer,
            gateway: state.config.gateway,
            state: state.session.state,
            stale: state.stale_until.is_some(),
            routes: Table::all()
                .map(|table| self.rib.count(peer, table).0)
                .sum(),
            sessions: self.trees.joined.get(&peer).copied().unwrap_or(0),
            queued: state.session.queue.len(),
        })
    }

    /// The routes, by table and destination.
    pub fn routes(&self) -> impl Iterator<Item = RouteStatus> + '_ {
        self.rib
            .iter()
            .map(|(table, destination, peer, best, route)| RouteStatus {
                table,
                destination,
                peer,
                best,
                route: route.clone(),
            })
    }

    /// The trees, by name.
    pub fn trees(&self) -> impl Iterator<Item = TreeStatus> + '_ {
        self.trees.iter().map(|(_, tree)| TreeStatus {
            session: tree.name.clone(),
            attached: tree.is_attached(),
            upstream: tree.up.as_ref().and_then(|up| up.peer),
            path: tree.path.clone(),
            downstream: tree.down.keys().copied().collect(),
            clients: tree.clients_until.is_some(),
            node: tree.node,
        })
    }

    /// The data nodes, how many sessions each carries, and what it forwards in bit/s.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, usize, u64)> + '_ {
        self.nodes
            .map
            .iter()
            .map(|(&id, node)| (id, node.sessions.len(), node.rate_bps))
    }

    /// How many routes are remembered because they flapped.
    pub fn flapping(&self) -> usize {
        self.rib.flapping()
    }
}
