//! Trees (§5.2): for each session its upstream peer, and its downstream peers and clients, all of it soft state.

pub(crate) mod store;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use proto_core::time::{Duration, Instant};

pub(crate) use store::{Slot, Trees, pop_after};

use crate::authorise::{RuleId, Subject};
use crate::event::{ClientId, Scope};
use crate::name::SessionName;
use crate::types::{BnNum, GatewayId, NodeId, PeerId, Table};
use crate::wire::join::FlowChannel;
use crate::wire::no_route;
use crate::wire::sroute::GatewayCost;

/// Longest exclusion of a peer, in refusal times.
const MAX_BACKOFF: u32 = 16;
/// Most peers excluded at once.
const MAX_EXCLUDED: usize = 32;

/// A request to the session's data node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum PendingRequest {
    /// Not sent yet.
    #[default]
    NotSent,
    /// Sent, with this number.
    Sent(u32),
    /// Done; these are the node's channels.
    Done(Vec<FlowChannel>),
}

impl PendingRequest {
    pub(crate) fn done(&self) -> Option<&[FlowChannel]> {
        match self {
            PendingRequest::Done(flows) => Some(flows),
            _ => None,
        }
    }

    pub(crate) fn is(&self, request: u32) -> bool {
        *self == PendingRequest::Sent(request)
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
    pub(crate) request: PendingRequest,
    /// The authorisation rule that admitted it; `None` until the owner of the session is known.
    pub(crate) rule: Option<RuleId>,
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
    pub(crate) request: PendingRequest,
}

/// A peer that was sent a JOIN, or will be, and has not sent a TRANSLATION yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Joining {
    pub(crate) peer: PeerId,
    pub(crate) internal: bool,
    /// The session with the peer in which it is joined: the JOIN may be lost with it.
    pub(crate) session: u32,
    /// The channels for the JOIN.
    pub(crate) request: PendingRequest,
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
    /// Who it is.
    pub(crate) subject: Subject,
}

/// A peer that is excluded as upstream of a session because it failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Exclusion {
    peer: PeerId,
    until: Instant,
    fails: u8,
}

/// The clients of this network that want the session.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    /// Until when those that have it want it.
    pub(crate) until: Option<Instant>,
    /// Whether they were sent addresses.
    pub(crate) answered: bool,
    /// Those that wait for an answer.
    pub(crate) waiting: Vec<Waiting>,
    /// The authorisation rule that admitted the first of them.
    pub(crate) rule: Option<RuleId>,
}

impl Clients {
    pub(crate) fn want(&self) -> bool {
        self.until.is_some() || !self.waiting.is_empty()
    }
}

/// Upstream candidates that failed.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    excluded: Vec<Exclusion>,
    /// Why the last one refused the session.
    pub(crate) last: Option<no_route::Reason>,
}

impl Failures {
    /// Excludes a peer for the refusal time, twice as long with each failure in a row.
    pub(crate) fn exclude(&mut self, now: Instant, peer: PeerId, refusal_time: Duration) {
        let before = self.excluded.iter().find(|one| one.peer == peer);
        let fails = before.map_or(0, |before| before.fails.saturating_add(1));
        let until = now + refusal_time * (1 << u32::from(fails).min(4)).min(MAX_BACKOFF);
        self.excluded.retain(|one| one.peer != peer);
        if self.excluded.len() >= MAX_EXCLUDED {
            self.excluded.remove(0);
        }
        self.excluded.push(Exclusion { peer, until, fails });
    }

    /// Forgets the failures of a peer that has sent a TRANSLATION.
    pub(crate) fn forgive(&mut self, peer: PeerId) {
        self.excluded.retain(|one| one.peer != peer);
        self.last = None;
    }

    /// Forgets exclusions that are over. An exclusion is remembered a little longer than it is valid, so that the next
    /// failure doubles it.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.excluded.retain(|one| one.until > now);
    }

    pub(crate) fn excludes(&self, peer: PeerId, now: Instant) -> bool {
        let mut all = self.excluded.iter();
        all.any(|one| one.peer == peer && one.until > now)
    }

    /// Returns whether any peer is excluded.
    pub(crate) fn exclude_any(&self) -> bool {
        !self.excluded.is_empty()
    }
}

/// Whether the tree has, or had, an upstream.
#[derive(Debug, Default)]
pub(crate) struct Attachment {
    /// Whether it has had one.
    pub(crate) was_attached: bool,
    /// When it is given up unless an upstream candidate sends a TRANSLATION.
    pub(crate) detached_until: Option<Instant>,
    /// The same deadline as a timer, while there is no upstream candidate.
    pub(crate) orphan_until: Option<Instant>,
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
    /// The previous data node, which forwards until the new one is ready.
    pub(crate) old_node: Option<NodeId>,
    pub(crate) up: Option<Up>,
    pub(crate) joining: Option<Joining>,
    /// How many more gateways may be joined because of the JOIN that created this tree.
    pub(crate) hop_limit: u8,
    pub(crate) down: BTreeMap<PeerId, Down>,
    /// The native broadcast of this network, for clients and internal peers.
    pub(crate) native: PendingRequest,
    pub(crate) clients: Clients,
    pub(crate) discovery: Option<Discovery>,
    pub(crate) discoveries: u8,
    /// SROUTE costs claimed by a JOIN, and the peer that sent it: used while only that peer wants the session.
    pub(crate) claimed: Option<(PeerId, Vec<GatewayCost>)>,
    pub(crate) failures: Failures,
    pub(crate) attachment: Attachment,
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
            native: PendingRequest::NotSent,
            clients: Clients::default(),
            discovery: None,
            discoveries: 0,
            claimed: None,
            failures: Failures::default(),
            attachment: Attachment::default(),
            refresh_at,
            path: Vec::new(),
            due: None,
        }
    }

    /// Returns whether data arrives, or will when the owner's native network sends.
    pub(crate) fn is_attached(&self) -> bool {
        self.up
            .as_ref()
            .is_some_and(|up| up.peer.is_some() || up.request.done().is_some())
    }

    /// Returns whether a peer or client needs it.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.down.is_empty() || self.clients.want()
    }

    /// Returns whether no client and no other peer needs it.
    pub(crate) fn is_wanted_only_by(&self, peer: PeerId) -> bool {
        !self.clients.want() && self.down.keys().all(|&id| id == peer)
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
    pub(crate) fn is_upstream_or_joining(&self, peer: PeerId) -> bool {
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
            && (self.clients.until.is_some()
                || self.down.values().any(|down| down.flows.is_empty()))
    }

    /// Returns when the tree must be examined next.
    pub(crate) fn next_due(&self) -> Instant {
        // While costs are being discovered, nothing is decided: the end of the discovery examines the tree.
        let orphan_until = self.attachment.orphan_until;
        let times = [
            self.joining.as_ref().map(|joining| joining.deadline),
            self.discovery.as_ref().map(|discovery| discovery.deadline),
            self.clients.until,
            orphan_until.filter(|_| self.discovery.is_none()),
        ];
        let downs = self.down.values().map(|down| down.expires);
        let excluded = self.failures.excluded.iter();
        let excluded = excluded.map(|exclusion| exclusion.until);
        let all = times.into_iter().flatten().chain(downs).chain(excluded);
        all.min()
            .map_or(self.refresh_at, |first| first.min(self.refresh_at))
    }
}
