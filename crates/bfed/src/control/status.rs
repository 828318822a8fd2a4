//! State for display.

use alloc::vec::Vec;

use super::ControlNode;
use crate::authorise::RuleStatus;
use crate::coordination::Coordinator;
use crate::delay::LinkDelay;
use crate::name::SessionName;
use crate::routing::Route;
use crate::session::State;
use crate::types::{GatewayId, NodeId, PeerId, Table};

/// State of a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerStatus {
    /// The peer.
    pub peer: PeerId,
    /// Its gateway.
    pub gateway: GatewayId,
    /// State of the peering.
    pub state: State,
    /// Whether its routes and trees are kept while it is disconnected.
    pub stale: bool,
    /// Routes that it announced, in all tables.
    pub routes: usize,
    /// Sessions that it joined here.
    pub sessions: usize,
    /// Messages that wait for it.
    pub queued: usize,
    /// Measured delay of the link; `None` where it is not to be measured.
    pub delay: Option<LinkDelay>,
}

/// A route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteStatus {
    /// Its table.
    pub table: Table,
    /// The gateway that it leads to.
    pub destination: GatewayId,
    /// The peer that announced it.
    pub peer: PeerId,
    /// Whether it is the best route.
    pub best: bool,
    /// The route.
    pub route: Route,
}

/// A session's tree at this gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeStatus {
    /// The session.
    pub session: SessionName,
    /// Whether data arrives, or will when the source sends.
    pub attached: bool,
    /// The upstream peer; `None` at the owner or without a route.
    pub upstream: Option<PeerId>,
    /// The gateways towards the owner, the next first.
    pub path: Vec<GatewayId>,
    /// Downstream peers.
    pub downstream: Vec<PeerId>,
    /// Whether clients of this network receive it.
    pub clients: bool,
    /// The data node that carries it.
    pub node: Option<NodeId>,
}

impl<C: Coordinator> ControlNode<C> {
    /// Returns the peers.
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
            delay: state
                .config
                .measure_latency
                .then(|| state.echoes.estimator.shown()),
        })
    }

    /// Returns the routes, by table and destination.
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

    /// Returns the trees, by name.
    pub fn trees(&self) -> impl Iterator<Item = TreeStatus> + '_ {
        self.trees.iter().map(|(_, tree)| TreeStatus {
            session: tree.name.clone(),
            attached: tree.is_attached(),
            upstream: tree.upstream(),
            path: tree.path.clone(),
            downstream: tree.below(),
            clients: tree.clients.until.is_some(),
            node: tree.node,
        })
    }

    /// Returns the data nodes, with the number of sessions of each and its rate in bit/s.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, usize, u64)> + '_ {
        self.nodes
            .map
            .iter()
            .map(|(&id, node)| (id, node.sessions.len(), node.rate_bps))
    }

    /// Returns the authorisation rules and their counters, the default last.
    pub fn rules(&self) -> impl Iterator<Item = RuleStatus<'_>> {
        self.authoriser.status()
    }

    /// Returns how many flapping routes are remembered.
    pub fn flapping(&self) -> usize {
        self.rib.flapping()
    }
}
