//! The upstream of a tree: joining, rerouting, giving up (§5.2.3, §5.3.4).
//!
//! | condition | action | outcome |
//! | --- | --- | --- |
//! | no peer and no client wants the session | | LEAVE upstream, the data node releases it |
//! | the owner's name is not resolved, or costs are being discovered | | wait |
//! | this network owns it | | the data node receives it from the native network |
//! | costs are known, and no route leads to a gateway that they name | | routes alone decide |
//! | no peer has a route, or all that have one refused | once attached: wait for the join timeout | NO_ROUTE to all downstream peers and clients |
//! | the best next hop is the present upstream | | none; a peer that was disconnected is joined again |
//! | the best next hop is another peer | allocate channels, JOIN | the old upstream stays until the new one has sent a TRANSLATION, then LEAVE |
//! | a JOIN is not answered in time, or with NO_ROUTE, or with a path that contains this gateway | exclude the peer, twice as long each time | join the next best |
//! | NO_ROUTE: no such session | | NO_ROUTE to all downstream peers and clients |

use alloc::vec::Vec;

use proto_core::time::Instant;

use super::ControlNode;
use crate::coordination::Coordinator;
use crate::error::Error;
use crate::event::Event;
use crate::routing::decision::Choice;
use crate::tree::{Attachment, Joining, PendingRequest, Slot, Up};
use crate::types::PeerId;
use crate::wire::Message;
use crate::wire::attributes::MAX_PATH;
use crate::wire::join::Repr as Join;
use crate::wire::no_route::{Reason, Repr as NoRoute};
use crate::wire::reclaim::ReclaimTarget;
use crate::wire::subscribe::Edge;
use crate::wire::translation::Repr as Translation;

impl<C: Coordinator> ControlNode<C> {
    /// Examines a tree and applies the table above.
    pub(super) fn advance(&mut self, now: Instant, slot: Slot) {
        self.drop_dead(slot);
        self.release_clients(slot);
        let Some(tree) = self.trees.get(slot) else {
            return;
        };
        if !tree.is_wanted() {
            self.remove_tree(slot);
            return;
        }
        if let Some(network) = tree.network {
            let (table, root) = (tree.table, tree.root);
            if root {
                self.advance_root(now, slot);
            } else if tree.discovery.is_none() {
                let known = self.costs_of(tree).is_some();
                let tried = tree.discoveries > 0;
                let ambiguous = !known && !tried && self.rib.is_ambiguous(table, network);
                if !ambiguous || !self.discover(now, slot) {
                    self.follow_route(now, slot);
                }
            }
        }
        let particular = !self.follows_routes_alone(slot);
        self.trees.set_particular(slot, particular);
        self.trees.schedule(slot);
    }

    /// Returns whether a tree is joined, or being joined, where routes alone lead, and nothing of its own (costs,
    /// refusals, waiting clients, downstream peers) could lead it elsewhere.
    fn follows_routes_alone(&self, slot: Slot) -> bool {
        let Some(tree) = self.trees.get(slot) else {
            return false;
        };
        let best = tree
            .network
            .and_then(|network| self.rib.decided(tree.table, network));
        let joined = tree.joining().or_else(|| tree.upstream());
        let own_reasons = tree.discovery.is_some()
            || !tree.clients.waiting.is_empty()
            || tree.failures.exclude_any()
            || self.costs_of(tree).is_some_and(|costs| !costs.is_empty());
        !own_reasons
            && best.is_some_and(|best| joined == Some(best) && !tree.down.contains_key(&best))
    }

    /// Removes peers whose state was discarded from the tree.
    fn drop_dead(&mut self, slot: Slot) {
        let Some(tree) = self.trees.get(slot) else {
            return;
        };
        let dead = |id: PeerId, incarnation| self.incarnation(id) != Some(incarnation);
        let gone = tree
            .down
            .iter()
            .filter(|(id, down)| dead(**id, down.incarnation));
        let gone: Vec<_> = gone.map(|(&id, _)| id).collect();
        let lost = tree
            .up
            .as_ref()
            .and_then(|up| up.peer.filter(|&id| dead(id, up.incarnation)));
        let unasked = tree
            .joining
            .as_ref()
            .is_some_and(|joining| self.session_with(joining.peer) != Some(joining.session));
        for id in gone {
            self.drop_down(slot, id);
        }
        if let Some(id) = lost {
            self.drop_up(slot, id);
        }
        if unasked && let Some(tree) = self.trees.get_mut(slot) {
            tree.joining = None;
        }
    }

    fn drop_up(&mut self, slot: Slot, id: PeerId) {
        let edge = self.edge(id);
        if let Some(tree) = self.trees.get_mut(slot) {
            tree.up = None;
        }
        self.reclaim(slot, ReclaimTarget::Source(edge));
    }

    fn advance_root(&mut self, now: Instant, slot: Slot) {
        if !self.assign(now, slot) {
            return;
        }
        if self.trees.get(slot).is_some_and(|tree| tree.up.is_none()) {
            let request = self.subscribe_up(slot, Edge::Native, Vec::new());
            if let Some(tree) = self.trees.get_mut(slot) {
                tree.up = Some(Up {
                    peer: None,
                    own: Vec::new(),
                    flows: Vec::new(),
                    incarnation: 0,
                    session: 0,
                    request,
                });
            }
        }
        self.end_clients(slot, Reason::Local);
        self.ask_receivers(slot);
    }

    fn follow_route(&mut self, now: Instant, slot: Slot) {
        let Some(tree) = self.trees.get(slot) else {
            return;
        };
        let Some(network) = tree.network else {
            return;
        };
        let costs = self.costs_of(tree).unwrap_or(&[]);
        // A downstream peer is chosen only if there is no other way.
        let fit = |id: PeerId| self.incarnation(id).is_some() && !tree.failures.excludes(id, now);
        let below = |id: PeerId| tree.down.contains_key(&id);
        // Costs without a usable route are ignored; routes alone decide then.
        let choose = |fit: &dyn Fn(PeerId) -> bool| {
            let by = |costs| self.rib.choose(tree.table, network, costs, fit);
            by(costs).or_else(|| by(&[]))
        };
        // A disconnected peer can remain the upstream, but cannot become it.
        let there = |id: PeerId| fit(id) && (tree.upstream() == Some(id) || self.is_up(id));
        let choice = choose(&|id| there(id) && !below(id)).or_else(|| choose(&fit));
        let Some(choice) = choice else {
            self.orphaned(now, slot);
            return;
        };
        self.decide_clients(now, slot, choice);
        if self.trees.get(slot).is_some_and(|tree| !tree.is_wanted()) {
            self.remove_tree(slot);
            return;
        }
        if !self.assign(now, slot) {
            return;
        }
        self.switch_upstream(now, slot, choice);
        self.ask_receivers(slot);
    }

    /// Switches to the chosen upstream.
    fn switch_upstream(&mut self, now: Instant, slot: Slot, choice: Choice) {
        let up = self.session_with(choice.peer);
        let Some(tree) = self.trees.get_mut(slot) else {
            return;
        };
        tree.attachment.orphan_until = None;
        if let Some(current) = tree.up.as_mut().filter(|up| up.peer == Some(choice.peer)) {
            let rejoin = up.is_some_and(|session| current.session != session);
            current.session = up.unwrap_or(current.session);
            tree.attachment.detached_until = None;
            let other = tree.joining.take().map(|joining| joining.peer);
            if let Some(other) = other.filter(|&other| other != choice.peer) {
                self.leave_peer(slot, other);
            }
            if rejoin {
                self.send_join(slot);
            }
            return;
        }
        let Some(session) = up.filter(|_| tree.joining() != Some(choice.peer)) else {
            return;
        };
        if tree.hop_limit == 0 {
            self.fail(now, slot, Reason::Loop);
            return;
        }
        if let Some(other) = tree.joining.take() {
            self.leave_peer(slot, other.peer);
        }
        let deadline = now + self.config.join_timeout;
        let internal = choice.internal;
        let request = if internal {
            PendingRequest::Done(Vec::new())
        } else {
            self.request_channel(slot, choice.peer)
        };
        if let Some(tree) = self.trees.get_mut(slot) {
            tree.joining = Some(Joining {
                peer: choice.peer,
                internal,
                session,
                request,
                deadline,
            });
        }
        if internal {
            self.send_join(slot);
        }
    }

    /// Sends a JOIN to the pending upstream, or refreshes the present one.
    pub(super) fn send_join(&mut self, slot: Slot) {
        let Some(tree) = self.trees.get(slot) else {
            return;
        };
        let joining = tree.joining.as_ref();
        let to = match (joining, &tree.up) {
            (Some(joining), _) => joining
                .request
                .done()
                .map(|own| (joining.peer, own.to_vec())),
            (None, Some(up)) => up.peer.map(|peer| (peer, up.own.clone())),
            (None, None) => None,
        };
        let Some((to, flows)) = to else {
            return;
        };
        let join = Join {
            hop_limit: tree.hop_limit.saturating_sub(1),
            sroutes: self.costs_of(tree).map(<[_]>::to_vec),
            flows,
            session: tree.name.clone(),
        };
        self.send(to, Message::Join(join));
    }

    pub(super) fn leave_peer(&mut self, slot: Slot, id: PeerId) {
        if let Some(session) = self.trees.get(slot).map(|tree| tree.name.clone()) {
            self.send(id, Message::Leave(session));
        }
    }

    /// Handles a tree without a usable route.
    fn orphaned(&mut self, now: Instant, slot: Slot) {
        let deadline = now + self.config.join_timeout;
        let Some(tree) = self.trees.get_mut(slot) else {
            return;
        };
        // A tree that was never attached fails at once, except during a graceful restart.
        let young = !tree.attachment.was_attached && !self.rib.deferred;
        // The deadline does not move when a peer that is joined meanwhile refuses too.
        let until = *tree.attachment.detached_until.get_or_insert(deadline);
        tree.attachment.orphan_until = Some(until);
        let reason = tree.failures.last.unwrap_or(Reason::Unreachable);
        if young || until <= now {
            self.fail(now, slot, reason);
        }
    }

    /// Handles a TRANSLATION, the answer to a JOIN.
    pub(super) fn translated(
        &mut self,
        now: Instant,
        id: PeerId,
        translation: Translation,
    ) -> Result<(), Error> {
        let Some(slot) = self.trees.find(&translation.session) else {
            self.send(id, Message::Leave(translation.session));
            return Err(Error::UnknownSession);
        };
        let state = self.peers.get(&id).ok_or(Error::UnknownStream)?;
        let gateway = state.config.gateway;
        let tree = self.trees.get(slot).ok_or(Error::UnknownSession)?;
        if !tree.is_upstream_or_joining(id) {
            self.send(id, Message::Leave(translation.session));
            return Err(Error::NotUpstream);
        }
        let path = &translation.path;
        let owner = path.last().map(|last| last.network);
        let sound = path.first() == Some(&gateway) && owner == tree.network;
        if !sound || path.contains(&self.config.gateway) || path.len() >= MAX_PATH {
            self.stats.loops += 1;
            self.leave_peer(slot, id);
            self.upstream_failed(now, slot, id, Reason::Loop);
            return Ok(());
        }
        let internal = self.is_internal(id);
        let agreed = translation
            .flows
            .iter()
            .all(|flow| internal || self.is_agreed(id, &translation.session, &flow.address));
        if !agreed || !self.may_name(id, &translation.flows) {
            self.leave_peer(slot, id);
            self.upstream_failed(now, slot, id, Reason::Policy);
            return Err(Error::ForeignAddress);
        }
        self.take_upstream(slot, id, translation);
        Ok(())
    }

    /// Makes a peer the upstream of a tree, with the flows that its TRANSLATION names.
    fn take_upstream(&mut self, slot: Slot, id: PeerId, translation: Translation) {
        let (flows, path) = (translation.flows, translation.path);
        let sessions = self.peers.get(&id).map_or(0, |state| state.sessions);
        let incarnation = self.incarnation(id).unwrap_or(0);
        let Some(tree) = self.trees.get_mut(slot) else {
            return;
        };
        let own = match tree.joining.as_mut().filter(|joining| joining.peer == id) {
            Some(joining) => match &mut joining.request {
                PendingRequest::Done(own) => core::mem::take(own),
                // No JOIN was sent yet: this answers an earlier one, for other flows.
                _ => return,
            },
            None => tree.up.as_ref().map_or_else(Vec::new, |up| up.own.clone()),
        };
        tree.joining.take_if(|joining| joining.peer == id);
        tree.failures.forgive(id);
        let before = tree.up.take();
        let same = before
            .as_ref()
            .is_some_and(|up| up.peer == Some(id) && up.flows == flows && up.own == own);
        let request = match &before {
            Some(up) if same => up.request.clone(),
            _ => {
                let edge = self.shared_edge(slot, id);
                self.subscribe_up(slot, edge, flows.clone())
            }
        };
        let up = Up {
            peer: Some(id),
            own,
            flows,
            incarnation,
            session: sessions,
            request,
        };
        let moved = self.trees.get_mut(slot).is_some_and(|tree| {
            tree.up = Some(up);
            core::mem::replace(&mut tree.path, path.clone()) != path
        });
        let old = before.and_then(|up| up.peer);
        if let Some(old) = old.filter(|&old| old != id) {
            self.stats.reroutes += 1;
            self.leave_peer(slot, old);
            // Peers of this network have one edge, the native broadcast: the data node already receives the session
            // from the new one there.
            let edge = self.edge(old);
            if edge != self.edge(id) {
                self.reclaim(slot, ReclaimTarget::Source(edge));
            }
        }
        if old.is_none() || moved || !same {
            self.attached(slot);
        }
    }

    /// Notifies all downstream peers and clients that data can arrive.
    pub(super) fn attached(&mut self, slot: Slot) {
        let Some(tree) = self.trees.get_mut(slot) else {
            return;
        };
        tree.attachment = Attachment {
            was_attached: true,
            ..Attachment::default()
        };
        let old_node = tree.old_node.take();
        let (session, path) = (tree.name.clone(), tree.path.clone());
        self.refused.clear(&session);
        if let Some(old) = old_node {
            self.send_reclaim(old, session.clone(), Some(ReclaimTarget::All));
        }
        self.events.push_back(Event::TreeUp { session, path });
        self.translate_all(slot);
        self.answer_clients(slot);
        self.trees.schedule(slot);
    }

    /// Handles a NO_ROUTE.
    pub(super) fn refused_by(
        &mut self,
        now: Instant,
        id: PeerId,
        no_route: &NoRoute,
    ) -> Result<(), Error> {
        let slot = self
            .trees
            .find(&no_route.session)
            .ok_or(Error::UnknownSession)?;
        if !self
            .trees
            .get(slot)
            .is_some_and(|tree| tree.is_upstream_or_joining(id))
        {
            return Err(Error::NotUpstream);
        }
        if no_route.reason == Reason::NoSession {
            self.fail(now, slot, Reason::NoSession);
        } else {
            self.upstream_failed(now, slot, id, no_route.reason);
        }
        Ok(())
    }

    /// Excludes a peer for a while and joins the next best.
    pub(super) fn upstream_failed(&mut self, now: Instant, slot: Slot, id: PeerId, reason: Reason) {
        let refusal = self.config.refusal_time;
        let Some(tree) = self.trees.get_mut(slot) else {
            return;
        };
        tree.failures.last = Some(reason);
        tree.joining.take_if(|joining| joining.peer == id);
        let was_up = tree.upstream() == Some(id);
        tree.failures.exclude(now, id, refusal);
        if was_up {
            self.drop_up(slot, id);
        }
        self.advance(now, slot);
    }
}
