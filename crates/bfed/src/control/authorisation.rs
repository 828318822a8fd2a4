//! Authorisation of peers and clients: when the rules are asked, and what a denial ends.
//!
//! A session whose owner is a DNS name that is not resolved yet is decided about once the owner is known, before
//! anything is sent for it. A peer is asked about once for each session, clients with each request.

use alloc::vec::Vec;

use proto_core::time::Instant;

use super::ControlNode;
use crate::authorise::{Request, Right, RuleId, Subject};
use crate::coordination::Coordinator;
use crate::event::Event;
use crate::name::{Owner, SessionName};
use crate::tree::Slot;
use crate::types::{BnNum, PeerId};
use crate::wire::no_route::Reason;

impl<C: Coordinator> ControlNode<C> {
    /// Returns the network that owns a session, if its name says so without DNS.
    pub(super) fn network_of(&self, session: &SessionName) -> Option<BnNum> {
        match session.owner() {
            Owner::Number(network) => Some(network),
            Owner::Name(name) => self.config.names.get(name).copied(),
        }
    }

    fn denied(&mut self, rule: RuleId, request: &Request<'_>) {
        self.events.push_back(Event::Denied {
            rule: self.authoriser.name(rule).into(),
            right: request.right,
            subject: request.subject,
            session: request.session.clone(),
        });
    }

    /// Returns whether a client may join a session; `true` while its owner is not known.
    pub(super) fn may_join(
        &mut self,
        subject: Subject,
        session: &SessionName,
        network: Option<BnNum>,
    ) -> bool {
        if network.is_none() {
            return true;
        }
        let request = Request {
            right: Right::Join,
            subject,
            session,
            network,
        };
        match self.authoriser.decide(&request) {
            Ok(_) => true,
            Err(rule) => {
                self.denied(rule, &request);
                false
            }
        }
    }

    /// Counts a session for the clients of this network, unless it is counted already. Returns whether it is within
    /// the bounds; a session whose owner is not known is counted later.
    pub(super) fn admit_clients(&mut self, now: Instant, slot: Slot, subject: Subject) -> bool {
        let Some(tree) = self.trees.get(slot) else {
            return false;
        };
        if tree.clients.rule.is_some() || tree.network.is_none() {
            return true;
        }
        let (session, network) = (tree.name.clone(), tree.network);
        let request = Request {
            right: Right::Join,
            subject,
            session: &session,
            network,
        };
        let admitted = self.authoriser.admit(now, &request);
        if let Err(rule) = admitted {
            self.denied(rule, &request);
        }
        if let Some(tree) = self.trees.get_mut(slot) {
            tree.clients.rule = admitted.ok();
        }
        admitted.is_ok()
    }

    /// Releases the rule that admitted clients once none of them wants the session.
    pub(super) fn release_clients(&mut self, slot: Slot) {
        if let Some(tree) = self.trees.get_mut(slot)
            && !tree.clients.want()
            && let Some(rule) = tree.clients.rule.take()
        {
            self.authoriser.release(rule);
        }
    }

    /// Returns the right that a peer needs for a session.
    fn right_of_peer(&self, network: BnNum) -> Right {
        match network == self.config.gateway.network {
            true => Right::Publish,
            false => Right::Carry,
        }
    }

    /// Decides about a peer that joins a session. Returns the rule that admits it; `None` while the session's owner is
    /// not known.
    pub(super) fn admit_peer(
        &mut self,
        now: Instant,
        id: PeerId,
        slot: Slot,
    ) -> Result<Option<RuleId>, Reason> {
        let (Some(state), Some(tree)) = (self.peers.get(&id), self.trees.get(slot)) else {
            return Err(Reason::Limit);
        };
        let Some(network) = tree.network else {
            return Ok(None);
        };
        let (subject, session) = (Subject::Peer(state.config.gateway), tree.name.clone());
        let request = Request {
            right: self.right_of_peer(network),
            subject,
            session: &session,
            network: Some(network),
        };
        match self.authoriser.admit(now, &request) {
            Ok(rule) => Ok(Some(rule)),
            Err(rule) => {
                self.denied(rule, &request);
                Err(Reason::Policy)
            }
        }
    }

    /// Decides about the peers and clients that asked for a session before its owner was known.
    pub(super) fn authorise_tree(&mut self, now: Instant, slot: Slot) {
        let Some(tree) = self.trees.get_mut(slot) else {
            return;
        };
        let (session, network) = (tree.name.clone(), tree.network);
        let waiting = core::mem::take(&mut tree.clients.waiting);
        let undecided = tree.down.iter().filter(|(_, down)| down.rule.is_none());
        let undecided: Vec<_> = undecided.map(|(&id, _)| id).collect();
        for id in undecided {
            match self.admit_peer(now, id, slot) {
                Ok(rule) => {
                    let tree = self.trees.get_mut(slot);
                    if let Some(down) = tree.and_then(|tree| tree.down.get_mut(&id)) {
                        down.rule = rule;
                    }
                }
                Err(reason) => self.refuse_down(slot, id, reason),
            }
        }
        for one in waiting {
            let may = self.may_join(one.subject, &session, network)
                && (one.cost_only || self.admit_clients(now, slot, one.subject));
            match self.trees.get_mut(slot).filter(|_| may) {
                Some(tree) => tree.clients.waiting.push(one),
                None => self.answer_no_route(one, &session, Reason::Policy),
            }
        }
    }

    /// Applies new rules to all sessions: those that are no longer allowed end.
    pub(super) fn authorise_all(&mut self) {
        let (rules, names) = (self.config.authorisation.clone(), self.config.names.clone());
        self.authoriser.reconfigure(rules, names);
        let slots: Vec<_> = self.trees.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.authorise_again(slot);
        }
    }

    fn authorise_again(&mut self, slot: Slot) {
        let Some(tree) = self.trees.get_mut(slot) else {
            return;
        };
        // What earlier rules counted is gone with them.
        tree.clients.rule = None;
        for down in tree.down.values_mut() {
            down.rule = None;
        }
        let (session, below, clients) = (tree.name.clone(), tree.below(), tree.clients.want());
        let Some(network) = tree.network else {
            return;
        };
        for id in below {
            let Some(peer) = self.peers.get(&id).map(|state| state.config.gateway) else {
                continue;
            };
            let request = Request {
                right: self.right_of_peer(network),
                subject: Subject::Peer(peer),
                session: &session,
                network: Some(network),
            };
            match self.authoriser.admit_again(&request) {
                Ok(rule) => {
                    let tree = self.trees.get_mut(slot);
                    if let Some(down) = tree.and_then(|tree| tree.down.get_mut(&id)) {
                        down.rule = Some(rule);
                    }
                }
                Err(rule) => {
                    self.denied(rule, &request);
                    self.refuse_down(slot, id, Reason::Policy);
                }
            }
        }
        if clients {
            let request = Request {
                right: Right::Join,
                subject: Subject::Clients,
                session: &session,
                network: Some(network),
            };
            match self.authoriser.admit_again(&request) {
                Ok(rule) => {
                    if let Some(tree) = self.trees.get_mut(slot) {
                        tree.clients.rule = Some(rule);
                    }
                }
                Err(rule) => {
                    self.denied(rule, &request);
                    self.end_clients(slot, Reason::Policy);
                    self.drop_clients(slot);
                }
            }
        }
    }
}
