//! Downstream peers: joining and leaving sessions (§5.2.3).

use alloc::vec::Vec;

use proto_core::time::Instant;

use super::ControlNode;
use crate::authorise::RuleId;
use crate::coordination::Coordinator;
use crate::error::Error;
use crate::event::Event;
use crate::name::{Owner, SessionName};
use crate::tree::{Down, PendingRequest, Slot, Tree};
use crate::types::{BnNum, ChannelAddress, Content, PeerId};
use crate::wire::join::{FlowChannel, Repr as Join};
use crate::wire::no_route::{Reason, Repr as NoRoute};
use crate::wire::reclaim::ReclaimTarget;
use crate::wire::subscribe::Edge;
use crate::wire::translation::Repr as Translation;
use crate::wire::transport::Transport;
use crate::wire::{Message, attributes::MAX_PATH};

impl<C: Coordinator> ControlNode<C> {
    pub(super) fn is_internal(&self, id: PeerId) -> bool {
        let network = self
            .peers
            .get(&id)
            .map(|state| state.config.gateway.network);
        network == Some(self.config.gateway.network)
    }

    pub(super) fn send_no_route(&mut self, id: PeerId, session: SessionName, reason: Reason) {
        self.send(id, Message::NoRoute(NoRoute { reason, session }));
    }

    /// Returns whether messages can be sent to a peer.
    pub(super) fn is_up(&self, id: PeerId) -> bool {
        self.session_with(id).is_some()
    }

    /// Returns the number of the session with a peer, while messages can be sent to it.
    pub(super) fn session_with(&self, id: PeerId) -> Option<u32> {
        let state = self.peers.get(&id)?;
        let is_up = state.session.is_established();
        is_up.then_some(state.sessions)
    }

    /// Returns whether a peer's state is kept while it is disconnected.
    pub(super) fn is_kept(&self, id: PeerId) -> bool {
        self.peers
            .get(&id)
            .is_some_and(|state| state.stale_until.is_some())
    }

    pub(super) fn incarnation(&self, id: PeerId) -> Option<u32> {
        self.peers
            .get(&id)
            .filter(|state| state.is_alive())
            .map(|state| state.incarnation)
    }

    pub(super) fn peer_joins(&mut self, now: Instant, id: PeerId, join: Join) -> Result<(), Error> {
        let session = join.session.clone();
        if !self.may_name(id, &join.flows) {
            self.refuse(id, session, Reason::Policy);
            return Err(Error::ForeignAddress);
        }
        match self.try_join(now, id, join) {
            Ok(slot) => {
                self.trees.schedule(slot);
                Ok(())
            }
            Err(reason) => {
                self.refuse(id, session, reason);
                Err(Error::JoinRefused)
            }
        }
    }

    /// Returns whether the channels of a JOIN suit the session.
    fn channels_fit(&self, id: PeerId, session: &SessionName, flows: &[FlowChannel]) -> bool {
        let internal = self.is_internal(id);
        let fits = |flow: &FlowChannel| {
            self.is_agreed(id, session, &flow.address)
                && flow.label.is_some() == session.multi_source()
        };
        flows.is_empty() == internal && flows.iter().all(fits)
    }

    /// Returns whether an address is of the transport that was agreed with a peer.
    pub(super) fn is_agreed(
        &self,
        id: PeerId,
        session: &SessionName,
        address: &ChannelAddress,
    ) -> bool {
        match (self.transport(id), session.content()) {
            (Transport::Quic, _) => matches!(address, ChannelAddress::Quic(..)),
            (Transport::Plain, Content::RealTime) => {
                matches!(address, ChannelAddress::Datagram(_))
            }
            (Transport::Plain, Content::Bulk) => matches!(address, ChannelAddress::Stream(_)),
        }
    }

    /// Returns the transport between this gateway's data nodes and a peer's.
    pub(super) fn transport(&self, id: PeerId) -> Transport {
        let state = self.peers.get(&id);
        state.map_or(Transport::Plain, |state| state.config.transport)
    }

    fn try_join(&mut self, now: Instant, id: PeerId, join: Join) -> Result<Slot, Reason> {
        let Join {
            hop_limit,
            sroutes,
            flows,
            session,
        } = join;
        let internal = self.is_internal(id);
        if !self.channels_fit(id, &session, &flows) {
            return Err(Reason::Policy);
        }
        let found = self.trees.find(&session);
        let known = found
            .and_then(|slot| self.trees.get(slot))
            .is_some_and(|tree| tree.down.contains_key(&id));
        let joined = self.trees.joined.get(&id).copied().unwrap_or(0);
        if !known && joined >= self.config.limits.max_sessions_per_peer {
            return Err(Reason::Limit);
        }
        let slot = match found {
            Some(slot) => slot,
            None => self.new_tree(now, session, hop_limit, Some(id))?,
        };
        let Some(tree) = self.trees.get_mut(slot) else {
            return Err(Reason::Limit);
        };
        // Two gateways that waited for each other would never attach.
        let waits = tree.joining() == Some(id) && tree.up.is_none();
        let pulls = tree.upstream() == Some(id) && tree.joining.is_none();
        if waits || pulls {
            self.stats.loops += 1;
            return Err(Reason::Loop);
        }
        if let Some(network) = tree.network
            && !internal
            && !self.rib.deferred
            && !self.rib.is_announced_to(id, tree.table, network)
        {
            if found.is_none() {
                self.remove_tree(slot);
            }
            return Err(Reason::Policy);
        }
        let rule = match known {
            true => None,
            false => match self.admit_peer(now, id, slot) {
                Ok(rule) => rule,
                Err(reason) => {
                    if found.is_none() {
                        self.remove_tree(slot);
                    }
                    return Err(reason);
                }
            },
        };
        self.put_down(now, slot, id, flows, rule);
        let Some(tree) = self.trees.get(slot) else {
            return Err(Reason::Limit);
        };
        if tree.root {
            let name = tree.name.clone();
            self.update_sroutes(now, id, &name);
        } else {
            self.claim_sroutes(slot, id, sroutes);
        }
        self.translate_to(slot, id);
        self.advance(now, slot);
        Ok(slot)
    }

    /// Adds or refreshes a downstream peer.
    fn put_down(
        &mut self,
        now: Instant,
        slot: Slot,
        id: PeerId,
        flows: Vec<FlowChannel>,
        rule: Option<RuleId>,
    ) {
        let expires = now + self.config.soft_state_lifetime;
        let incarnation = self.incarnation(id).unwrap_or(0);
        let Some(tree) = self.trees.get_mut(slot) else {
            return;
        };
        let fresh = Down {
            flows,
            expires,
            incarnation,
            request: PendingRequest::NotSent,
            rule,
        };
        match tree.down.get_mut(&id) {
            Some(down) if down.flows == fresh.flows && down.incarnation == incarnation => {
                down.expires = expires;
            }
            Some(down) => {
                let rule = down.rule;
                *down = Down { rule, ..fresh };
            }
            None => {
                tree.down.insert(id, fresh);
                self.trees.count(id, true);
            }
        }
    }

    /// Creates a tree for a new session.
    pub(super) fn new_tree(
        &mut self,
        now: Instant,
        session: SessionName,
        hop_limit: u8,
        asker: Option<PeerId>,
    ) -> Result<Slot, Reason> {
        if let Some(reason) = self.refused.get(now, &session) {
            return Err(reason);
        }
        let limit = self.new_session_limit();
        let bucket = match asker.and_then(|id| self.peers.get_mut(&id)) {
            Some(state) => &mut state.bucket,
            None => &mut self.bucket,
        };
        let full = self.trees.len() >= self.config.limits.max_sessions;
        if full || !bucket.take(now, &limit) || !self.config.tables.contains(session.table()) {
            return Err(if full { Reason::Limit } else { Reason::Policy });
        }
        let jitter = u64::from(self.numbers.jitter());
        let interval = self.config.refresh_interval.total_micros();
        // Refreshes of many sessions spread over a quarter of the interval.
        let early = (jitter * (interval / 4)) >> 32;
        let refresh = now + proto_core::time::Duration::from_micros(interval - early);
        let slot = self
            .trees
            .insert(Tree::new(session.clone(), hop_limit, refresh));
        match session.owner() {
            Owner::Number(network) => self.owner_known(slot, network),
            Owner::Name(name) => match self.config.names.get(name) {
                Some(&network) => self.owner_known(slot, network),
                None => {
                    let waiting = self.resolving.entry(name.into()).or_default();
                    if waiting.is_empty() {
                        self.events.push_back(Event::Resolve(name.into()));
                    }
                    waiting.insert(slot);
                }
            },
        }
        Ok(slot)
    }

    fn owner_known(&mut self, slot: Slot, network: BnNum) {
        let root = network == self.config.gateway.network;
        self.trees.set_network(slot, network, root);
    }

    /// Answers [`Event::Resolve`] with the network that the DNS name stands for, if any.
    pub fn resolved(&mut self, now: Instant, name: &str, network: Option<BnNum>) {
        self.now = now;
        for slot in self.resolving.remove(name).unwrap_or_default() {
            // The tree may be gone, and the slot another's.
            let waits =
                |tree: &Tree| tree.network.is_none() && tree.name.owner() == Owner::Name(name);
            if !self.trees.get(slot).is_some_and(waits) {
                continue;
            }
            match network {
                Some(network) => {
                    self.owner_known(slot, network);
                    self.authorise_tree(now, slot);
                    self.check_announced(slot, network);
                    self.advance(now, slot);
                }
                None => self.fail(now, slot, Reason::UnknownOwner),
            }
        }
    }

    /// Refuses peers that joined before the owner was known and have no route to it from here.
    pub(super) fn check_announced(&mut self, slot: Slot, network: BnNum) {
        let Some(tree) = self.trees.get(slot) else {
            return;
        };
        let table = tree.table;
        for id in tree.below() {
            if !self.is_internal(id) && !self.rib.is_announced_to(id, table, network) {
                self.refuse_down(slot, id, Reason::Policy);
            }
        }
    }

    pub(super) fn peer_leaves(
        &mut self,
        now: Instant,
        id: PeerId,
        session: &SessionName,
    ) -> Result<(), Error> {
        let slot = self.trees.find(session).ok_or(Error::UnknownSession)?;
        if !self.drop_down(slot, id) {
            return Err(Error::UnknownSession);
        }
        self.advance(now, slot);
        Ok(())
    }

    /// Removes a downstream peer. Returns whether there was one.
    pub(super) fn drop_down(&mut self, slot: Slot, id: PeerId) -> bool {
        let edge = self.edge(id);
        let Some(tree) = self.trees.get_mut(slot) else {
            return false;
        };
        let Some(down) = tree.down.remove(&id) else {
            return false;
        };
        if let Some(rule) = down.rule {
            self.authoriser.release(rule);
        }
        let native_over = tree.native != PendingRequest::NotSent && !tree.wants_native();
        if native_over {
            tree.native = PendingRequest::NotSent;
        }
        self.trees.count(id, false);
        self.shares.changed();
        if !down.flows.is_empty() {
            self.reclaim(slot, ReclaimTarget::Receiver(edge));
        } else if native_over {
            self.reclaim(slot, ReclaimTarget::Receiver(Edge::Native));
        }
        true
    }

    /// Removes a downstream peer with NO_ROUTE.
    pub(super) fn refuse_down(&mut self, slot: Slot, id: PeerId, reason: Reason) {
        if let Some(session) = self.trees.get(slot).map(|tree| tree.name.clone()) {
            self.refuse(id, session, reason);
        }
    }

    /// Sends a NO_ROUTE. A peer that has it no longer expects the session, also if it has joined before.
    fn refuse(&mut self, id: PeerId, session: SessionName, reason: Reason) {
        if let Some(slot) = self.trees.find(&session)
            && self.drop_down(slot, id)
        {
            self.trees.pending.insert(slot);
            self.trees.schedule(slot);
        }
        self.send_no_route(id, session, reason);
    }

    /// Sends a TRANSLATION to a downstream peer if the tree is attached.
    pub(super) fn translate_to(&mut self, slot: Slot, id: PeerId) {
        let Some(tree) = self.trees.get(slot).filter(|tree| tree.is_attached()) else {
            return;
        };
        let own = core::iter::once(self.config.gateway);
        let path: Vec<_> = own
            .chain(tree.path.iter().copied())
            .take(MAX_PATH)
            .collect();
        let session = tree.name.clone();
        if let Some(flows) = self.channels_for(slot, id) {
            let translation = Translation {
                path,
                flows,
                session,
            };
            self.send(id, Message::Translation(translation));
        }
    }

    /// Sends a TRANSLATION to all downstream peers.
    pub(super) fn translate_all(&mut self, slot: Slot) {
        for id in self.trees.get(slot).map_or_else(Vec::new, Tree::below) {
            self.translate_to(slot, id);
        }
    }
}
