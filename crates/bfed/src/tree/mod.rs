//! Trees (§5.2): for each session the peer that it comes from and the peers and clients that it goes
//! to, all of it soft state.

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

/// Something that the session's data node was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Ask {
    /// Not yet.
    #[default]
    Nothing,
    /// By a request with that number.
    Pending(u32),
    /// It is done; those are the node's channels.
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

/// A peer that the session goes to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Down {
    /// How it wants it; empty for a peer of this network, which listens to the native broadcast.
    pub(crate) flows: Vec<FlowChannel>,
    pub(crate) expires: Instant,
    /// The peer's incarnation that joined.
    pub(crate) incarnation: u32,
    pub(crate) ask: Ask,
}

/// Where the session comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Up {
    /// None at the owner: from its own native network.
    pub(crate) peer: Option<PeerId>,
    /// This gateway's channels that the peer sends to; empty within a network.
    pub(crate) own: Vec<FlowChannel>,
    /// The peer's channels.
    pub(crate) flows: Vec<FlowChannel>,
    /// The peer's incarnation that translated.
    pub(crate) incarnation: u32,
    /// The session with the peer in which it was last joined.
    pub(crate) session: u32,
    pub(crate) ask: Ask,
}

/// A peer that was asked for the session, and has not translated yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Joining {
    pub(crate) peer: PeerId,
    pub(crate) internal: bool,
    /// The channels that the JOIN names.
    pub(crate) ask: Ask,
    pub(crate) deadline: Instant,
}

/// An SROUTE discovery on the way.
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
    /// It only asked for the cost.
    pub(crate) cost_only: bool,
}

/// Times in a row that a peer failed as upstream of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Exclusion {
    pub(crate) peer: PeerId,
    pub(crate) until: Instant,
    pub(crate) fails: u8,
}

/// A session's tree at this gateway.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) name: SessionName,
    pub(crate) table: Table,
    /// None until its DNS name is resolved.
    pub(crate) network: Option<BnNum>,
    /// This network owns it.
    pub(crate) root: bool,
    pub(crate) node: Option<NodeId>,
    /// The node that carried it before: keeps on until the new one does.
    pub(crate) old_node: Option<NodeId>,
    pub(crate) up: Option<Up>,
    pub(crate) joining: Option<Joining>,
    /// How many more gateways may be joined because of the JOIN that made this tree.
    pub(crate) hop_limit: u8,
    pub(crate) down: BTreeMap<PeerId, Down>,
    /// The native broadcast of this network, for clients and internal peers.
    pub(crate) native: Ask,
    /// Clients of this network want it until then.
    pub(crate) clients_until: Option<Instant>,
    /// They were told addresses.
    pub(crate) clients_told: bool,
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) discovery: Option<Discovery>,
    pub(crate) discoveries: u8,
    /// SROUTE costs that a JOIN claimed, and the peer that sent it: they hold as long as nobody else
    /// wants the session.
    pub(crate) claimed: Option<(PeerId, Vec<GatewayCost>)>,
    pub(crate) excluded: Vec<Exclusion>,
    /// Why the last peer that was asked did not give it.
    pub(crate) last_refusal: Option<no_route::Reason>,
    /// It has had an upstream.
    pub(crate) was_attached: bool,
    /// When it is given up, unless a peer that is joined translates until then.
    pub(crate) detached_until: Option<Instant>,
    /// The same, as a timer: no peer is being joined.
    pub(crate) orphan_until: Option<Instant>,
    pub(crate) refresh_at: Instant,
    /// The tree's gateways above this one, the next first.
    pub(crate) path: Vec<GatewayId>,
    /// When the store's timer for it runs out.
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

    /// Whether data comes, or will as soon as the owner's native network sends some.
    pub(crate) fn is_attached(&self) -> bool {
        self.up
            .as_ref()
            .is_some_and(|up| up.peer.is_some() || up.ask.done().is_some())
    }

    /// Whether anybody wants it.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.down.is_empty() || self.clients_until.is_some() || !self.waiting.is_empty()
    }

    /// Whether that peer is the only one that wants it: no other peer and no client does.
    pub(crate) fn is_wanted_only_by(&self, peer: PeerId) -> bool {
        self.clients_until.is_none()
            && self.waiting.is_empty()
            && self.down.keys().all(|&id| id == peer)
    }

    /// Whether it comes from that peer or goes to it.
    pub(crate) fn is_with(&self, peer: PeerId) -> bool {
        self.down.contains_key(&peer) || self.up.as_ref().is_some_and(|up| up.peer == Some(peer))
    }

    /// Whether its native broadcast is needed, by clients or by peers of this network.
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

    /// When something about it has to be done.
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
