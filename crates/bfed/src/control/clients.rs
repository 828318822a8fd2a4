//! Clients of this network (§5.2.1): requests that their mediator passes on, and the answers.
//!
//! | session | scope of the request | answer |
//! | --- | --- | --- |
//! | belongs to this network | any | NO_ROUTE, local: the client subscribes natively |
//! | of a table that another gateway of this network has, and this one has not | all gateways | none: the other answers |
//! | not available | any | NO_ROUTE with the reason |
//! | best next hop in another network | this gateway | TRANSLATION, once data can arrive |
//! | | all gateways, and none of them is nearer | TRANSLATION |
//! | | all gateways, and another is nearer, or as near and has a lower number | none: the other answers |
//! | | all gateways, and SROUTE costs change which of them is the nearest | as above, and the costs are passed on to both |
//! | best next hop in this network | this gateway | REDIRECT there, and the SROUTE costs are passed on; after two redirects TRANSLATION |
//! | | all gateways | none |

use alloc::vec::Vec;

use proto_core::time::Instant;

use super::{ControlNode, PeerState};
use crate::coordination::Coordinator;
use crate::event::{ClientId, ClientRequest, Event, Scope};
use crate::name::SessionName;
use crate::routing::decision::Choice;
use crate::tree::{PendingRequest, Slot, Waiting};
use crate::types::{BnNum, ChannelAddress, PeerId, Table};
use crate::wire::Message;
use crate::wire::attributes::MAX_PATH;
use crate::wire::client::Answer;
use crate::wire::no_route::Reason;
use crate::wire::reclaim::ReclaimTarget;
use crate::wire::sroute::{GatewayCost, Outcome, Response};
use crate::wire::subscribe::Edge;

/// Most redirects of a client for one JOIN.
pub(super) const MAX_REDIRECTS: u8 = 2;

impl<C: Coordinator> ControlNode<C> {
    /// Joins a session for a client of this network without a known address. The answer is an [`Event::Answer`], unless another gateway answers. A client repeats its request within the lifetime that the
    /// answer names.
    pub fn join(
        &mut self,
        now: Instant,
        client: ClientId,
        session: SessionName,
        redirects: u8,
        scope: Scope,
    ) {
        self.client_requests(
            now,
            ClientRequest {
                redirects,
                scope,
                ..ClientRequest::new(client, session)
            },
        );
    }

    /// Asks for the cost of a session through this gateway (§7, access selection). The answer is an
    /// [`Event::Answer`].
    pub fn ask_cost(&mut self, now: Instant, client: ClientId, session: SessionName) {
        let cost_only = true;
        self.client_requests(
            now,
            ClientRequest {
                cost_only,
                ..ClientRequest::new(client, session)
            },
        );
    }

    /// Leaves a session: no client of this network needs it any more (`recvd_leave_request`, §5.4).
    pub fn leave(&mut self, now: Instant, session: &SessionName) {
        self.now = now;
        if let Some(slot) = self.trees.find(session) {
            self.drop_clients(slot);
            self.advance(now, slot);
        }
    }

    /// Handles a request of a client of this network (`recvd_join_request`, §5.4). The answer is an
    /// [`Event::Answer`], unless another gateway answers. A client repeats its request within the lifetime that the
    /// answer names.
    pub fn client_requests(&mut self, now: Instant, request: ClientRequest) {
        self.now = now;
        self.stats.clients += 1;
        let session = request.session;
        let waiting = Waiting {
            client: request.client,
            redirects: request.redirects,
            scope: request.scope,
            cost_only: request.cost_only,
            subject: request.subject,
        };
        let network = self.network_of(&session);
        let local = network == Some(self.config.gateway.network);
        let slot = match self.trees.find(&session) {
            _ if !self.active => return,
            _ if !self.may_join(waiting.subject, &session, network) => Err(Reason::Policy),
            _ if local => Err(Reason::Local),
            Some(slot) => Ok(slot),
            None if waiting.scope == Scope::Heard && self.leaves_to_others(session.table()) => {
                return;
            }
            None => self.new_tree(now, session.clone(), MAX_PATH as u8, None),
        };
        match slot.and_then(|slot| self.add_waiting(now, slot, waiting)) {
            Ok(slot) => {
                self.advance(now, slot);
                self.answer_clients(slot);
            }
            Err(reason) => self.answer_no_route(waiting, &session, reason),
        }
    }

    /// Adds a client that waits for an answer.
    fn add_waiting(&mut self, now: Instant, slot: Slot, waiting: Waiting) -> Result<Slot, Reason> {
        let limit = self.config.limits.max_waiting;
        let until = now + self.config.soft_state_lifetime;
        let Some(tree) = self.trees.get(slot) else {
            return Err(Reason::Limit);
        };
        if tree.clients.waiting.len() >= limit {
            return Err(Reason::Limit);
        }
        if !waiting.cost_only && !self.admit_clients(now, slot, waiting.subject) {
            self.advance(now, slot);
            return Err(Reason::Policy);
        }
        let Some(tree) = self.trees.get_mut(slot) else {
            return Err(Reason::Limit);
        };
        tree.clients.waiting.push(waiting);
        // A client that already receives the session only refreshes. A request that all gateways receive refreshes
        // clients here only if this gateway answers it.
        let is_ours = waiting.scope == Scope::Chosen && !waiting.cost_only;
        if tree.clients.until.is_some() && is_ours {
            tree.clients.until = Some(until);
        }
        Ok(slot)
    }

    /// Returns whether this gateway does not have a table that another gateway of its network has.
    fn leaves_to_others(&self, table: Table) -> bool {
        let network = self.config.gateway.network;
        let has = |state: &PeerState| {
            let agreed = state.session.agreed;
            state.config.gateway.network == network
                && state.session.is_established()
                && agreed.is_some_and(|agreed| agreed.offered.contains(table))
        };
        !self.config.tables.contains(table) && self.peers.values().any(has)
    }

    fn answer(&mut self, waiting: Waiting, session: &SessionName, answer: Answer) {
        let lifetime = self.config.soft_state_lifetime.secs();
        self.events.push_back(Event::Answer {
            client: waiting.client,
            session: session.clone(),
            answer,
            lifetime_s: u16::try_from(lifetime).unwrap_or(u16::MAX),
        });
    }

    pub(super) fn answer_no_route(
        &mut self,
        waiting: Waiting,
        session: &SessionName,
        reason: Reason,
    ) {
        self.stats.refused += 1;
        self.answer(waiting, session, Answer::NoRoute(reason));
    }

    /// Returns the native addresses that clients subscribe to, once data can arrive: this gateway's own channels,
    /// or those of the upstream gateway of this network.
    fn addresses(&self, slot: Slot) -> Option<Vec<ChannelAddress>> {
        let tree = self.trees.get(slot).filter(|tree| tree.is_attached())?;
        let flows = tree.native.done()?;
        Some(flows.iter().map(|flow| flow.address.clone()).collect())
    }

    /// Answers the clients that can be answered.
    pub(super) fn answer_clients(&mut self, slot: Slot) {
        let Some(addresses) = self.addresses(slot) else {
            return;
        };
        let Some(tree) = self.trees.get_mut(slot) else {
            return;
        };
        let session = tree.name.clone();
        let (wait, answered): (Vec<_>, Vec<_>) = tree
            .clients
            .waiting
            .drain(..)
            .partition(|waiting| waiting.cost_only);
        tree.clients.waiting = wait;
        tree.clients.answered |= !answered.is_empty();
        for waiting in answered {
            self.answer(waiting, &session, Answer::Translation(addresses.clone()));
        }
    }

    /// Answers clients once the best route to a session is known: with its cost, with a redirect, or by serving
    /// them here.
    pub(super) fn decide_clients(&mut self, now: Instant, slot: Slot, choice: Choice) {
        let until = now + self.config.soft_state_lifetime;
        let is_left = self.is_left_to_another(slot, choice);
        let Some(tree) = self.trees.get_mut(slot) else {
            return;
        };
        let waiting = core::mem::take(&mut tree.clients.waiting);
        let session = tree.name.clone();
        // A gateway that already has a native channel for the session serves more clients itself.
        let serves = tree.is_attached() && tree.native != PendingRequest::NotSent;
        let (mut stay, mut passed) = (Vec::new(), false);
        for one in waiting {
            let elsewhere = match one.scope {
                _ if one.cost_only => {
                    self.answer(one, &session, Answer::Cost(choice.cost));
                    continue;
                }
                Scope::Heard => is_left,
                Scope::Chosen => choice.internal && one.redirects < MAX_REDIRECTS && !serves,
            };
            if !elsewhere {
                stay.push(one);
            } else if one.scope == Scope::Chosen {
                passed = true;
                self.redirect(one, &session, choice.peer);
            }
        }
        if passed {
            self.pass_sroutes(&session, choice.peer);
        }
        if let Some(tree) = self.trees.get_mut(slot) {
            if !stay.is_empty() {
                tree.clients.until = Some(until);
            }
            tree.clients.waiting = stay;
        }
    }

    fn redirect(&mut self, waiting: Waiting, session: &SessionName, to: PeerId) {
        let Some(state) = self.peers.get(&to) else {
            return;
        };
        let mediator = state.config.mediator.clone();
        let gateway = state.config.gateway;
        self.stats.redirected += 1;
        self.answer(waiting, session, Answer::Redirect { gateway, mediator });
    }

    /// Passes SROUTE costs to the gateway that clients are redirected to, so that it need not discover them
    /// (§5.2.2).
    fn pass_sroutes(&mut self, session: &SessionName, to: PeerId) {
        if let Some(costs) = self.sroutes.get(session) {
            let outcome = if costs.is_empty() {
                Outcome::Null
            } else {
                Outcome::Costs
            };
            let (costs, session) = (costs.to_vec(), session.clone());
            self.send(
                to,
                Message::SrouteResponse(Response {
                    request: 0,
                    outcome,
                    costs,
                    session,
                }),
            );
        }
    }

    /// Returns whether another gateway answers the waiting clients that all gateways of this network hear. The SROUTE
    /// costs are passed to it where it is the next hop. Where it answers because of them, they are passed to it, and
    /// to the gateway that would answer without them, so that all decide alike.
    fn is_left_to_another(&mut self, slot: Slot, choice: Choice) -> bool {
        let Some(tree) = self.trees.get(slot) else {
            return false;
        };
        let is_heard = |one: &Waiting| one.scope == Scope::Heard && !one.cost_only;
        let heard = tree.clients.waiting.iter().any(is_heard);
        let Some(network) = tree.network.filter(|_| heard) else {
            return false;
        };
        let (table, session) = (tree.table, tree.name.clone());
        let by_costs = self.nearer(table, network, self.usable_costs(tree), choice);
        let by_routes = self.rib.choose(table, network, &[], |id| self.is_up(id));
        let by_routes = by_routes.and_then(|choice| self.nearer(table, network, &[], choice));
        let is_decisive = by_costs != by_routes;
        let to = [
            by_costs.filter(|_| is_decisive || choice.internal),
            by_routes.filter(|_| is_decisive),
        ];
        for other in to.into_iter().flatten() {
            self.pass_sroutes(&session, other);
        }
        by_costs.is_some()
    }

    /// Returns the gateway of this network that is nearer to a network than this one, or as near and has a lower
    /// number (§5.4: "the BG with the shortest (SROUTE-augmented) path to the owner network wins"). This gateway
    /// counts as the other sees it, so that they agree.
    fn nearer(
        &self,
        table: Table,
        network: BnNum,
        costs: &[GatewayCost],
        choice: Choice,
    ) -> Option<PeerId> {
        if choice.internal {
            return Some(choice.peer);
        }
        let own = self.config.gateway;
        let others = self.peers.iter().filter(|(_, state)| {
            state.config.gateway.network == own.network && state.session.is_established()
        });
        let rank = |(&id, state): (&PeerId, &PeerState)| {
            let cost = self.rib.cost_of(id, table, network, costs);
            (cost, state.config.gateway, id)
        };
        let nearest = others.map(rank).min();
        let (cost, gateway, id) = nearest.filter(|(cost, ..)| cost.is_finite())?;
        let own_cost = self.rib.own_cost_for(id, table, network, costs);
        ((cost, gateway) < (own_cost, own)).then_some(id)
    }

    /// Refuses waiting clients, and notifies those that receive the session of its end.
    pub(super) fn end_clients(&mut self, slot: Slot, reason: Reason) {
        let Some(tree) = self.trees.get_mut(slot) else {
            return;
        };
        let session = tree.name.clone();
        let clients = core::mem::take(&mut tree.clients);
        if let Some(rule) = clients.rule {
            self.authoriser.release(rule);
        }
        for one in clients.waiting {
            self.answer_no_route(one, &session, reason);
        }
        if clients.answered {
            self.events.push_back(Event::Ended { session, reason });
        }
    }

    /// Releases the native channel when no client wants the session any more.
    pub(super) fn drop_clients(&mut self, slot: Slot) {
        let Some(tree) = self.trees.get_mut(slot) else {
            return;
        };
        tree.clients.until = None;
        tree.clients.answered = false;
        if tree.native != PendingRequest::NotSent && !tree.wants_native() {
            tree.native = PendingRequest::NotSent;
            self.reclaim(slot, ReclaimTarget::Receiver(Edge::Native));
        }
    }
}
