//! Trees (§5.2): for each session its upstream peer, and its downstream peers and clients, all of it soft state.

pub(crate) mod store;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use proto_core::time::Instant;

pub(crate) use store::{Slot, Trees, pop_after};

use crate::event::{ClientId, Scope};
use crate::name::SessionName;
use crate::types::{BnNum, GatewayId, NodeId, PeerId, Table};
use crate::wire::join::FlowChannel;
use crate::wire::no_route;
use crate::wire::sroute::GatewayCost;

/// A request to the session's data node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Ask {
    /// Not sent yet.
    #[default]
    Nothing,
    /// Sent, with this number.
    Pending(u32),
    /// Done; these are the node's channels.
    Done(Vec<FlowChannel>),
}

impl Ask {
    pub(crate) fn done(&self) -> Option<&[FlowChannel]> {
        match self {
            Ask::Done(flows) => Some(flows),
            _ => None,
        }
    }

    pub(crate) fn is(&self, request: u32) -> bool {
        *self == Ask::Pending(request)
    }
}

/// A downstream peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Down {
    /// Its channels; empty for a peer of this network, which receives the native broadcast.
    pub(crate) flows: Vec<FlowChannel>,
    pub(crate) expires: Instant,
    /// Incarnation of the peer that joined.
    pub(crate) incarnation: u32,
    pub(crate) ask: Ask,
}

/// The upstream of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Up {
    /// `None` at the owner: from its own native network.
    pub(crate) peer: Option<PeerId>,
    /// This gateway's channels to which the peer sends; empty within a network.
    pub(crate) own: Vec<FlowChannel>,
    /// The peer's channels.
    pub(crate) flows: Vec<FlowChannel>,
    /// Incarnation of the peer that sent the TRANSLATION.
    pub(crate) incarnation: u32,
    /// The session with the peer in which it was last joined.
    pub(crate) session: u32,
    pub(crate) ask: Ask,
}

/// A peer that was sent a JOIN, or will be, and has not sent a TRANSLATION yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Joining {
    pub(crate) peer: PeerId,
    pub(crate) internal: bool,
    /// The channels for the JOIN.
    pub(crate) ask: Ask,
    pub(crate) deadline: Instant,
}

/// A pending SROUTE discovery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Discovery {
    pub(crate) request: u32,
    pub(crate) deadline: Instant,
}

/// A client that waits for an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waiting {
    pub(crate) client: ClientId,
    pub(crate) redirects: u8,
    pub(crate) scope: Scope,
    /// Whether it only asked for the cost.
    pub(crate) cost_only: bool,
}

/// A peer that is excluded as upstream of a session because it failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Exclusion {
    pub(crate) peer: PeerId,
    pub(crate) until: Instant,
    pub(crate) fails: u8,
}

/// The tree of a session at this gateway.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) name: SessionName,
    pub(crate) table: Table,
    /// `None` until its DNS name is resolved.
    pub(crate) network: Option<BnNum>,
    /// Whether this network owns it.
    pub(crate) root: bool,
    pub(crate) node: Option<NodeId>,
    /// The previous data node, which goes on until the new one is ready.
    pub(crate) old_node: Option<NodeId>,
    pub(crate) up: Option<Up>,
    pub(crate) joining: Option<Joining>,
    /// How many more gateways may be joined because of the JOIN that created this tree.
    pub(crate) hop_limit: u8,
    pub(crate) down: BTreeMap<PeerId, Down>,
    /// The native broadcast of this network, for clients and internal peers.
    pub(crate) native: Ask,
    /// Until when clients of this network want it.
    pub(crate) clients_until: Option<Instant>,
    /// Whether clients were sent addresses.
    pub(crate) clients_told: bool,
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) discovery: Option<Discovery>,
    pub(crate) discoveries: u8,
    /// SROUTE costs claimed by a JOIN, and the peer that sent it: used while only that peer wants the session.
    pub(crate) claimed: Option<(PeerId, Vec<GatewayCost>)>,
    pub(crate) excluded: Vec<Exclusion>,
    /// Why the last upstream candidate refused it.
    pub(crate) last_refusal: Option<no_route::Reason>,
    /// Whether it has had an upstream.
    pub(crate) was_attached: bool,
    /// When it is given up unless an upstream candidate sends a TRANSLATION.
    pub(crate) detached_until: Option<Instant>,
    /// The same deadline as a timer, while there is no upstream candidate.
    pub(crate) orphan_until: Option<Instant>,
    pub(crate) refresh_at: Instant,
    /// The gateways towards the owner, the next first.
    pub(crate) path: Vec<GatewayId>,
    /// When the store's timer for it expires.
    pub(crate) due: Option<Instant>,
}

impl Tree {
    pub(crate) fn new(name: SessionName, hop_limit: u8, refresh_at: Instant) -> Self {
        Tree {
            table: name.table(),
            name,
            network: None,
            root: false,
            node: None,
            old_node: None,
            up: None,
            joining: None,
            hop_limit,
            down: BTreeMap::new(),
            native: Ask::Nothing,
            clients_until: None,
            clients_told: false,
            waiting: Vec::new(),
            discovery: None,
            discoveries: 0,
            claimed: None,
            excluded: Vec::new(),
            last_refusal: None,
            was_attached: false,
            detached_until: None,
            orphan_until: None,
            refresh_at,
            path: Vec::new(),
            due: None,
        }
    }

    /// Returns whether data arrives, or will when the owner's native network sends.
    pub(crate) fn is_attached(&self) -> bool {
        self.up
            .as_ref()
            .is_some_and(|up| up.peer.is_some() || up.ask.done().is_some())
    }

    /// Returns whether a peer or client wants it.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.down.is_empty() || self.clients_until.is_some() || !self.waiting.is_empty()
    }

    /// Returns whether no client and no peer but this one wants it.
    pub(crate) fn is_wanted_only_by(&self, peer: PeerId) -> bool {
        self.clients_until.is_none()
            && self.waiting.is_empty()
            && self.down.keys().all(|&id| id == peer)
    }

    /// Returns the upstream peer.
    pub(crate) fn upstream(&self) -> Option<PeerId> {
        self.up.as_ref()?.peer
    }

    /// Returns the peer that is being joined.
    pub(crate) fn joining(&self) -> Option<PeerId> {
        Some(self.joining.as_ref()?.peer)
    }

    /// Returns whether the peer is its upstream, or is being joined.
    pub(crate) fn asks(&self, peer: PeerId) -> bool {
        [self.upstream(), self.joining()].contains(&Some(peer))
    }

    /// Returns whether the peer is its upstream or downstream.
    pub(crate) fn is_with(&self, peer: PeerId) -> bool {
        self.down.contains_key(&peer) || self.upstream() == Some(peer)
    }

    /// Returns the downstream peers.
    pub(crate) fn below(&self) -> Vec<PeerId> {
        self.down.keys().copied().collect()
    }

    /// Returns whether clients or peers of this network need its native broadcast.
    pub(crate) fn wants_native(&self) -> bool {
        !self.root
            && (self.clients_until.is_some()
                || self.down.values().any(|down| down.flows.is_empty()))
    }

    pub(crate) fn is_excluded(&self, peer: PeerId, now: Instant) -> bool {
        self.excluded
            .iter()
            .any(|exclusion| exclusion.peer == peer && exclusion.until > now)
    }

    /// Returns when the tree must be examined next.
    pub(crate) fn next_due(&self) -> Instant {
        let times = [
            self.joining.as_ref().map(|joining| joining.deadline),
            self.discovery.as_ref().map(|discovery| discovery.deadline),
            self.clients_until,
            self.orphan_until,
        ];
        let downs = self.down.values().map(|down| down.expires);
        let excluded = self.excluded.iter().map(|exclusion| exclusion.until);
        let all = times.into_iter().flatten().chain(downs).chain(excluded);
        all.min()
            .map_or(self.refresh_at, |first| first.min(self.refresh_at))
    }
}
