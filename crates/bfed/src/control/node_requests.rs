//! Requests to a session's data node, and its responses (§5.3.1, §5.3.2).

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use proto_core::time::Instant;

use super::ControlNode;
use crate::coordination::Coordinator;
use crate::error::Error;
use crate::event::Event;
use crate::name::SessionName;
use crate::tree::{PendingRequest, Slot};
use crate::types::{NodeId, PeerId};
use crate::wire::allocate::{Outcome, Request as Allocate, Response};
use crate::wire::join::FlowChannel;
use crate::wire::no_route::Reason;
use crate::wire::reclaim::{ReclaimTarget, Repr as Reclaim};
use crate::wire::subscribe::{Edge, Repr as Subscribe};
use crate::wire::{Message, join};

impl<C: Coordinator> ControlNode<C> {
    /// Returns the edge to a peer, with the rate limit of the whole link.
    pub(super) fn edge(&self, id: PeerId) -> Edge {
        if self.is_internal(id) {
            return Edge::Native;
        }
        let rate = self.peers.get(&id).and_then(|state| state.config.rate_bps);
        Edge::Peer {
            peer: id,
            rate_bps: rate.unwrap_or(0),
        }
    }

    /// Tells data nodes the new rate limit of the link to a peer. Edges to one peer share it at a data node, so
    /// each data node is told with its first edge.
    pub(super) fn rate_changed(&mut self, id: PeerId) {
        let mut notified = BTreeSet::new();
        let mut again = Vec::new();
        for (slot, tree) in self.trees.iter() {
            let down = tree
                .down
                .get(&id)
                .is_some_and(|down| !down.flows.is_empty());
            let known = down || tree.upstream() == Some(id);
            if let Some(node) = tree.node.filter(|_| known)
                && notified.insert(node)
            {
                again.push(slot);
            }
        }
        for slot in again {
            self.ask_for_share(slot, id);
        }
        self.shares.changed();
    }

    /// Requests channels that a peer can send to.
    pub(super) fn request_channel(&mut self, slot: Slot, id: PeerId) -> PendingRequest {
        let request = self.numbers.next_request();
        let (epoch, edge) = (self.coordinator.epoch(), self.edge(id));
        let transport = self.transport(id);
        self.send_to_node(slot, |session| {
            Message::Allocate(Allocate {
                request,
                epoch,
                edge,
                transport,
                session,
            })
        });
        PendingRequest::Sent(request)
    }

    /// Requests that the session is sent to an edge.
    fn subscribe_down(
        &mut self,
        slot: Slot,
        edge: Edge,
        flows: Vec<FlowChannel>,
    ) -> PendingRequest {
        self.subscribe(slot, false, edge, flows)
    }

    /// Requests that the session is received from an edge.
    pub(super) fn subscribe_up(
        &mut self,
        slot: Slot,
        edge: Edge,
        flows: Vec<FlowChannel>,
    ) -> PendingRequest {
        self.subscribe(slot, true, edge, flows)
    }

    fn subscribe(
        &mut self,
        slot: Slot,
        up: bool,
        edge: Edge,
        flows: Vec<FlowChannel>,
    ) -> PendingRequest {
        let (request, epoch) = (self.numbers.next_request(), self.coordinator.epoch());
        self.send_to_node(slot, |session| {
            Message::Subscribe(Subscribe {
                up,
                request,
                epoch,
                edge,
                flows,
                session,
            })
        });
        PendingRequest::Sent(request)
    }

    /// Tells the session's data node to release a part of the session.
    pub(super) fn reclaim(&mut self, slot: Slot, what: ReclaimTarget) {
        self.refresh_or_reclaim(slot, Some(what));
    }

    /// Tells the session's data node that the session is still wanted, or what to release of it.
    pub(super) fn refresh_or_reclaim(&mut self, slot: Slot, what: Option<ReclaimTarget>) {
        let tree = self.trees.get(slot);
        let on = tree.and_then(|tree| Some((tree.node?, tree.name.clone())));
        if let Some((node, session)) = on {
            self.send_reclaim(node, session, what);
        }
    }

    pub(super) fn send_reclaim(
        &mut self,
        node: NodeId,
        session: SessionName,
        what: Option<ReclaimTarget>,
    ) {
        let epoch = self.coordinator.epoch();
        let reclaim = Reclaim {
            epoch,
            what,
            session,
        };
        self.send_node(node, Message::Reclaim(reclaim));
    }

    fn send_to_node(&mut self, slot: Slot, message: impl FnOnce(SessionName) -> Message) {
        if let Some(tree) = self.trees.get(slot)
            && let Some(node) = tree.node
        {
            let message = message(tree.name.clone());
            self.send_node(node, message);
        }
    }

    /// Sends the requests that the data node has not received yet.
    pub(super) fn ask_receivers(&mut self, slot: Slot) {
        let Some(tree) = self.trees.get(slot) else {
            return;
        };
        if tree.node.is_none() {
            return;
        }
        if tree.wants_native() && tree.native == PendingRequest::NotSent {
            let request = self.subscribe_down(slot, Edge::Native, Vec::new());
            if let Some(tree) = self.trees.get_mut(slot) {
                tree.native = request;
            }
        }
        let Some(tree) = self.trees.get(slot) else {
            return;
        };
        let unasked = tree
            .down
            .iter()
            .filter(|(_, down)| down.request == PendingRequest::NotSent && !down.flows.is_empty());
        let unasked: Vec<_> = unasked
            .map(|(&id, down)| (id, down.flows.clone()))
            .collect();
        for (id, flows) in unasked {
            let edge = self.shared_edge(slot, id);
            let request = self.subscribe_down(slot, edge, flows);
            if let Some(tree) = self.trees.get_mut(slot)
                && let Some(down) = tree.down.get_mut(&id)
            {
                down.request = request;
            }
        }
    }

    /// Handles a response of a data node.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        node: NodeId,
        response: Response,
    ) -> Result<(), Error> {
        let Response {
            request,
            outcome,
            flows,
            session,
        } = response;
        let slot = self.trees.find(&session).ok_or(Error::StaleAnswer)?;
        let Some(tree) = self
            .trees
            .get_mut(slot)
            .filter(|tree| tree.node == Some(node))
        else {
            return Err(Error::StaleAnswer);
        };
        if tree.native.is(request) {
            return self.native_answered(now, slot, outcome, flows);
        }
        if let Some(joining) = tree
            .joining
            .as_mut()
            .filter(|joining| joining.request.is(request))
        {
            if outcome != Outcome::Done {
                self.fail(now, slot, Reason::Limit);
                return Ok(());
            }
            joining.request = PendingRequest::Done(flows);
            self.send_join(slot);
            return Ok(());
        }
        if let Some(up) = tree.up.as_mut().filter(|up| up.request.is(request)) {
            if outcome == Outcome::Done {
                up.request = PendingRequest::Done(flows);
                if up.peer.is_none() {
                    self.attached(slot);
                }
            } else if let Some(peer) = up.peer {
                self.upstream_failed(now, slot, peer, Reason::Limit);
            } else {
                let reason = match outcome {
                    Outcome::NoSession => Reason::NoSession,
                    _ => Reason::Limit,
                };
                self.fail(now, slot, reason);
            }
            return Ok(());
        }
        let down = tree
            .down
            .iter_mut()
            .find(|(_, down)| down.request.is(request));
        let Some((&id, down)) = down else {
            return Err(Error::StaleAnswer);
        };
        if outcome == Outcome::Done {
            down.request = PendingRequest::Done(flows);
            self.translate_to(slot, id);
        } else {
            self.refuse_down(slot, id, Reason::Limit);
        }
        Ok(())
    }

    fn native_answered(
        &mut self,
        now: Instant,
        slot: Slot,
        outcome: Outcome,
        flows: Vec<FlowChannel>,
    ) -> Result<(), Error> {
        if outcome != Outcome::Done {
            self.native_refused(now, slot);
            return Ok(());
        }
        let Some(tree) = self.trees.get_mut(slot) else {
            return Err(Error::StaleAnswer);
        };
        let addresses: Vec<_> = flows.iter().map(|flow| flow.address.clone()).collect();
        tree.native = PendingRequest::Done(flows);
        if tree.clients.answered {
            let session = tree.name.clone();
            self.events.push_back(Event::Moved { session, addresses });
        }
        self.translate_all(slot);
        self.answer_clients(slot);
        Ok(())
    }

    /// Handles a native network that has no channel for the session. Peers of other networks keep it.
    fn native_refused(&mut self, now: Instant, slot: Slot) {
        let Some(tree) = self.trees.get_mut(slot) else {
            return;
        };
        tree.native = PendingRequest::NotSent;
        let internal = tree.down.iter().filter(|(_, down)| down.flows.is_empty());
        let internal: Vec<_> = internal.map(|(&id, _)| id).collect();
        self.end_clients(slot, Reason::Limit);
        for id in internal {
            self.refuse_down(slot, id, Reason::Limit);
        }
        self.advance(now, slot);
    }

    /// Returns the channels for a peer's TRANSLATION.
    pub(super) fn channels_for(&self, slot: Slot, id: PeerId) -> Option<Vec<join::FlowChannel>> {
        let tree = self.trees.get(slot)?;
        let down = tree.down.get(&id)?;
        let request = if down.flows.is_empty() {
            &tree.native
        } else {
            &down.request
        };
        request.done().map(<[_]>::to_vec)
    }
}
