//! The gateway's data nodes: registration, heartbeats, failure (§5.3.4), and the takeover between control nodes.

use alloc::vec::Vec;

use proto_core::time::{Duration, Instant};

use super::{ControlNode, StreamOwner};
use crate::coordination::{COMING, Coordinator, Node};
use crate::error::Error;
use crate::event::Event;
use crate::name::SessionName;
use crate::session::{CloseReason, OPEN_TIMEOUT};
use crate::tree::{PendingRequest, Slot};
use crate::types::{ConnId, NodeId, NodeIdentity};
use crate::wire::liveness::State as Liveness;
use crate::wire::no_route::Reason;
use crate::wire::node::Register;
use crate::wire::notification::{Reason as Why, Repr as Notification};
use crate::wire::statistics::Repr as Statistics;
use crate::wire::{Message, ParseError};

impl<C: Coordinator> ControlNode<C> {
    /// Accepts a stream of a data node, which has proved to the driver that it is `identity`, and has ten seconds
    /// to register. The number of a data node with another identity is refused.
    pub fn node_connected(&mut self, now: Instant, conn: ConnId, identity: NodeIdentity) {
        self.now = now;
        if self.active {
            let until = now + OPEN_TIMEOUT;
            self.streams
                .insert(conn, StreamOwner::Unregistered(identity, until));
        } else {
            self.events.push_back(Event::Close(conn));
        }
    }

    /// Assigns no new sessions to the data node, and moves its sessions to others. Each goes on through it until
    /// the new node carries it.
    pub fn drain_node(&mut self, now: Instant, id: NodeId) {
        self.now = now;
        let Some(node) = self.nodes.map.get_mut(&id) else {
            return;
        };
        node.draining = true;
        let slots: Vec<_> = node.sessions.iter().copied().collect();
        self.trees.pending.extend(slots);
    }

    /// Handles a change of the coordinator: this control node may have become the active one, or a standby. A
    /// standby closes all streams without a NOTIFICATION, so that peers wait for its successor, and forgets its
    /// trees; data nodes go on forwarding. A control node that becomes active [again](crate::Config::restarting),
    /// or [after another](Coordinator::succeeds), announces routes once it has its peers' tables, or after the
    /// restart time: otherwise peers would discard the state that they kept.
    pub fn coordinator_changed(&mut self, now: Instant) {
        self.now = now;
        let active = self.coordinator.is_active();
        if active == self.active {
            return;
        }
        self.active = active;
        if active {
            self.startup.nodes_until = Some(now + self.config.heartbeat_interval * COMING);
            let keep = self.config.restart_time_s > 0;
            self.config.restarting |= keep && self.coordinator.succeeds();
            self.startup.complete_from = Some(now + self.config.soft_state_lifetime);
            self.rib.deferred = self.config.restarting;
            let patience = Duration::from_secs(self.config.restart_time_s.into());
            self.startup.deferral_until = self.config.restarting.then_some(now + patience);
            return;
        }
        self.config.restarting = self.config.restart_time_s > 0;
        self.rib.deferred = self.config.restarting;
        for (conn, owner) in self.streams.drain() {
            if let Some(StreamOwner::Peer(id)) = owner {
                self.end_peer(now, id, CloseReason::Lost, Duration::ZERO);
            }
            self.events.push_back(Event::Close(conn));
        }
        for &node in self.nodes.map.keys() {
            let drained = false;
            self.events.push_back(Event::NodeDown { node, drained });
        }
        self.nodes.map.clear();
        let slots: Vec<_> = self.trees.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            // The coordinator keeps the assignments for the successor.
            self.trees.remove(slot);
        }
        self.authoriser.release_all();
    }

    fn end_node(
        &mut self,
        now: Instant,
        conn: ConnId,
        why: Why,
        error: Error,
    ) -> Result<(), Error> {
        self.streams.remove(conn);
        let reason = Notification::new(why, error.name());
        self.streams.close(now, conn, reason);
        Err(error)
    }

    pub(super) fn handle_registration(
        &mut self,
        now: Instant,
        conn: ConnId,
        identity: NodeIdentity,
        bytes: &[u8],
    ) -> Result<(), Error> {
        match Message::parse(bytes) {
            Ok(Message::Register(register)) => self.register(now, conn, identity, &register),
            Err(ParseError::Version) => self.end_node(now, conn, Why::Version, Error::Version),
            _ => self.end_node(now, conn, Why::OutOfOrder, Error::BadNode),
        }
    }

    pub(super) fn handle_node_message(
        &mut self,
        now: Instant,
        conn: ConnId,
        id: NodeId,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let message = Message::parse(bytes);
        let Some(node) = self.nodes.map.get_mut(&id) else {
            return Err(Error::BadNode);
        };
        node.received_at = now;
        match message {
            Ok(Message::Heartbeat(heartbeat)) => {
                if heartbeat.draining && !node.draining {
                    self.drain_node(now, id);
                }
                self.check_epoch(now, conn, heartbeat.epoch)
            }
            Ok(Message::AllocateResponse(response)) => self.answered(now, id, response),
            Ok(Message::Statistics(statistics)) => {
                node.rate_bps = statistics.rate_bps;
                node.unmeasured = 0;
                self.node_sessions(id, statistics);
                self.check_silent_peers(now, id);
                Ok(())
            }
            Ok(Message::Liveness(report)) => {
                let (peer, state) = (report.peer, report.state);
                if self.peers.contains_key(&peer) {
                    node.peer_states.insert(peer, state);
                    self.peer_state_changed(now, peer);
                }
                Ok(())
            }
            Ok(Message::Notification(_)) => {
                self.streams.remove(conn);
                self.events.push_back(Event::Close(conn));
                self.node_dead(id);
                Ok(())
            }
            Ok(_) => {
                self.node_dead(id);
                self.end_node(now, conn, Why::BadMessage, Error::OutOfOrder)
            }
            Err(error) => {
                self.node_dead(id);
                self.end_node(now, conn, Why::BadMessage, error.into())
            }
        }
    }

    /// Ends the stream of a data node that obeys a newer control node: this one is fenced.
    fn check_epoch(&mut self, now: Instant, conn: ConnId, epoch: u64) -> Result<(), Error> {
        if epoch <= self.coordinator.epoch() {
            return Ok(());
        }
        self.end_node(now, conn, Why::Fenced, Error::Fenced)
    }

    fn register(
        &mut self,
        now: Instant,
        conn: ConnId,
        identity: NodeIdentity,
        register: &Register,
    ) -> Result<(), Error> {
        let id = register.node;
        self.check_epoch(now, conn, register.epoch)?;
        let known = self.nodes.map.get(&id);
        if known.is_some_and(|node| node.identity != identity) {
            return self.end_node(now, conn, Why::Collision, Error::BadNode);
        }
        let known = known.map(|node| (node.conn, node.boot));
        match known {
            // The stream of a known node broke, or the node restarted, and it reconnected first.
            Some((Some(old), boot)) => {
                if boot != register.boot {
                    self.node_dead(id);
                }
                self.streams.remove(old);
                self.events.push_back(Event::Close(old));
            }
            Some((None, boot)) if boot != register.boot => self.node_dead(id),
            Some(_) => {}
            None if self.nodes.map.len() >= self.config.limits.max_nodes => {
                return self.end_node(now, conn, Why::Shutdown, Error::BadNode);
            }
            None => {}
        }
        self.streams.insert(conn, StreamOwner::Node(id));
        let epoch = self.coordinator.epoch();
        match self.nodes.map.get_mut(&id) {
            Some(node) => {
                // The same process as before: its sessions are valid, and unanswered requests are repeated.
                node.conn = Some(conn);
                node.blocked = false;
                // A heartbeat for the old stream may say that all sessions have been refreshed.
                node.queue.clear();
                node.received_at = now;
                node.complete = false;
                let slots: Vec<_> = node.sessions.iter().copied().collect();
                for slot in slots {
                    self.repeat_requests(slot);
                }
                self.refresh_node(id);
            }
            None => {
                if self.nodes.map.is_empty() {
                    self.nodes.heartbeat_at = now + self.config.heartbeat_interval;
                }
                self.nodes
                    .map
                    .insert(id, Node::new(now, conn, identity, register));
                self.trees.mark_all();
                self.shares.changed();
                self.events.push_back(Event::NodeUp(id));
            }
        }
        if let Some(node) = self.nodes.map.get_mut(&id) {
            node.heartbeat(epoch);
        }
        self.streams.wake(conn);
        Ok(())
    }

    /// Refreshes the sessions of a data node that has reconnected: a RECLAIM may have been lost with the old
    /// stream.
    fn refresh_node(&mut self, id: NodeId) {
        let has = |node: Option<NodeId>| node == Some(id);
        let trees = self.trees.iter();
        let own = trees.filter(|(_, tree)| has(tree.node) || has(tree.old_node));
        let names: Vec<_> = own.map(|(_, tree)| tree.name.clone()).collect();
        // More messages would overflow the queue of the new stream; the sessions then live by their periodic
        // refreshes.
        let fits = names.len() <= self.config.limits.max_queue / 2;
        if let Some(node) = self.nodes.map.get_mut(&id) {
            node.refreshed = fits;
        }
        if !fits {
            return;
        }
        for session in names {
            self.send_reclaim(id, session, None);
        }
    }

    /// Returns whether every session that is to survive is known. After a restart or takeover it is not, until
    /// peers and data nodes have reported theirs.
    fn knows_all(&self, now: Instant) -> bool {
        let examined = self.trees.pending.is_empty() && !self.rib.has_changed();
        self.startup.complete_from.is_none_or(|from| from <= now) && examined
    }

    /// Repeats requests whose answers may have been lost with a stream.
    fn repeat_requests(&mut self, slot: Slot) {
        let Some(tree) = self.trees.get_mut(slot) else {
            return;
        };
        let forget = |request: &mut PendingRequest| {
            if matches!(request, PendingRequest::Sent(_)) {
                *request = PendingRequest::NotSent;
            }
        };
        forget(&mut tree.native);
        tree.down
            .values_mut()
            .for_each(|down| forget(&mut down.request));
        if tree
            .up
            .as_ref()
            .is_some_and(|up| matches!(up.request, PendingRequest::Sent(_)))
        {
            tree.up = None;
        }
        tree.joining
            .take_if(|joining| matches!(joining.request, PendingRequest::Sent(_)));
        self.trees.pending.insert(slot);
    }

    /// Handles the sessions that a node reports. It may release those that are not assigned to it.
    fn node_sessions(&mut self, id: NodeId, statistics: Statistics) {
        for entry in statistics.entries {
            // After a takeover the trees come back with the peers' refreshes. Later a session without a tree has ended.
            let is_awaited = self.startup.complete_from.is_some();
            let comes = is_awaited && self.trees.find(&entry.session).is_none();
            if comes && self.coordinator.assigned(&entry.session) != Some(id) {
                self.coordinator.assign(&entry.session, id);
            }
        }
    }

    /// Applies what a data node reported of peers before it carried any of their sessions.
    fn check_silent_peers(&mut self, now: Instant, id: NodeId) {
        let Some(node) = self.nodes.map.get(&id) else {
            return;
        };
        let silent = node
            .peer_states
            .iter()
            .filter(|(_, state)| **state == Liveness::Silent);
        let silent: Vec<_> = silent.map(|(&peer, _)| peer).collect();
        for peer in silent {
            self.peer_state_changed(now, peer);
        }
    }

    /// Handles the end of a data node's stream. A drained node without sessions has left; any other may reconnect
    /// within one heartbeat interval.
    pub(super) fn node_lost(&mut self, now: Instant, id: NodeId) {
        if let Some(node) = self.nodes.map.get_mut(&id) {
            node.conn = None;
            node.queue.clear();
            node.received_at = now;
            if node.has_left() {
                self.node_dead(id);
            }
        }
    }

    /// Removes a data node that failed or left. Its sessions move.
    pub(super) fn node_dead(&mut self, id: NodeId) {
        let Some(node) = self.nodes.map.remove(&id) else {
            return;
        };
        let drained = node.has_left();
        self.stats.nodes_lost += u64::from(!drained);
        if let Some(conn) = node.conn {
            self.streams.remove(conn);
            self.events.push_back(Event::Close(conn));
        }
        self.events.push_back(Event::NodeDown { node: id, drained });
        self.trees.pending.extend(node.sessions);
        self.shares.changed();
    }

    pub(super) fn expire_nodes(&mut self, now: Instant) {
        let interval = self.config.heartbeat_interval;
        if self
            .startup
            .nodes_until
            .take_if(|until| *until <= now)
            .is_some()
        {
            self.trees.mark_all();
        }
        while let Some(id) = self.nodes.dead(now, interval) {
            self.node_dead(id);
        }
        if self.nodes.map.is_empty() || self.nodes.heartbeat_at > now {
            return;
        }
        self.nodes.heartbeat_at = now + interval;
        let epoch = self.coordinator.epoch();
        let knows_all = self.knows_all(now);
        if knows_all && self.startup.complete_from.take().is_some() {
            let trees = &self.trees;
            let is_known = |session: &SessionName| trees.find(session).is_some();
            self.coordinator.retain(&is_known);
        }
        for node in self.nodes.map.values_mut() {
            node.complete |= knows_all && node.refreshed;
            // A node that reads nothing gets no further heartbeats.
            if node.queue.is_empty() {
                node.heartbeat(epoch);
            }
            if let Some(conn) = node.conn.filter(|_| !node.blocked) {
                self.streams.wake(conn);
            }
        }
    }

    /// Assigns the session to a data node. Returns whether one carries it.
    pub(super) fn assign(&mut self, now: Instant, slot: Slot) -> bool {
        let Some(tree) = self.trees.get(slot) else {
            return false;
        };
        let (name, last) = (tree.name.clone(), tree.node);
        // A data node that has registered anew under its number may have nothing of the session.
        let carries = |id: &NodeId| {
            let node = self.nodes.map.get(id);
            node.is_some_and(|node| node.sessions.contains(&slot))
        };
        let current = last.filter(carries);
        let alive = |id: NodeId| self.nodes.map.get(&id).is_some_and(|node| !node.draining);
        if current.is_some_and(alive) {
            return true;
        }
        let had = last.is_some();
        let assigned = last.or_else(|| self.coordinator.assigned(&name));
        // After a takeover peers may reconnect before data nodes.
        let absent = |id| !self.nodes.map.contains_key(&id);
        let comes = !had && self.startup.nodes_until.is_some() && assigned.is_some_and(absent);
        if comes || self.nodes.map.is_empty() {
            self.wait_for_node(now, slot);
            return false;
        }
        let before = assigned.filter(|&id| alive(id));
        let Some(id) = before.or_else(|| self.nodes.pick(self.config.assignment)) else {
            // A draining node is better than none.
            if current.is_some() {
                return true;
            }
            if had {
                self.wait_for_node(now, slot);
            } else {
                self.fail(now, slot, Reason::Limit);
            }
            return false;
        };
        if had {
            self.stats.moved += 1;
            self.unassign(slot);
        } else {
            self.stats.trees += 1;
        }
        self.coordinator.assign(&name, id);
        if let Some(node) = self.nodes.map.get_mut(&id) {
            node.sessions.insert(slot);
            node.unmeasured += 1;
        }
        if let Some(tree) = self.trees.get_mut(slot) {
            tree.old_node = current;
            tree.node = Some(id);
            tree.native = PendingRequest::NotSent;
            tree.down
                .values_mut()
                .for_each(|down| down.request = PendingRequest::NotSent);
            tree.up = None;
            tree.joining = None;
            tree.attachment.orphan_until = None;
        }
        true
    }

    /// Lets a tree wait for a data node like one that waits for an upstream.
    fn wait_for_node(&mut self, now: Instant, slot: Slot) {
        let deadline = now + self.config.join_timeout;
        let expired = self.trees.get_mut(slot).is_some_and(|tree| {
            tree.up = None;
            tree.joining = None;
            *tree.attachment.orphan_until.get_or_insert(deadline) <= now
        });
        if expired {
            self.fail(now, slot, Reason::Limit);
        }
    }

    pub(super) fn unassign(&mut self, slot: Slot) {
        let node = self.trees.get(slot).and_then(|tree| tree.node);
        if let Some(node) = node.and_then(|id| self.nodes.map.get_mut(&id))
            && node.sessions.remove(&slot)
        {
            node.unmeasured = node.unmeasured.saturating_sub(1);
        }
    }
}
