//! What is written to streams.

use proto_core::Machine;
use proto_core::time::{Duration, Instant};

use super::{ControlNode, StreamOf};
use crate::coordination::Coordinator;
use crate::error::Error;
use crate::event::{Event, Transmit};
use crate::session::CloseReason;
use crate::types::{ConnId, NodeId, PeerId};
use crate::wire::notification::{Reason, Repr as Notification};
use crate::wire::{MAX_MESSAGE_LEN, Message};

impl<C: Coordinator> ControlNode<C> {
    /// Writes the next message into `buffer`; drain until `None`. Streams take turns. Nothing is written into a
    /// buffer that is shorter than [`MAX_MESSAGE_LEN`] bytes.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        self.now = now;
        if buffer.len() < MAX_MESSAGE_LEN {
            return None;
        }
        loop {
            let after = self.last_hot.and_then(|last| {
                let rest = (
                    core::ops::Bound::Excluded(last),
                    core::ops::Bound::Unbounded,
                );
                self.hot.range(rest).next().copied()
            });
            let conn = after.or_else(|| self.hot.first().copied())?;
            self.last_hot = Some(conn);
            if let Some(message) = self.next_for(conn) {
                self.stats.messages_sent += 1;
                return Some(Transmit {
                    conn,
                    len: message.emit(buffer),
                });
            }
            self.hot.remove(&conn);
        }
    }

    fn next_for(&mut self, conn: ConnId) -> Option<Message> {
        if let Some((last, _)) = self.closing.remove(&conn) {
            self.events.push_back(Event::Close(conn));
            return Some(last);
        }
        match *self.streams.get(&conn)? {
            StreamOf::Peer(id) => {
                let state = self.peers.get_mut(&id)?;
                if let Some(message) = state.session.queue.pop_front() {
                    return Some(message);
                }
                if !state.telling || !state.session.is_established() {
                    return None;
                }
                let message = self.rib.next_message(id);
                if message.is_none()
                    && let Some(state) = self.peers.get_mut(&id)
                {
                    state.telling = false;
                }
                message
            }
            StreamOf::Node(id) => self.nodes.map.get_mut(&id)?.queue.pop_front(),
            StreamOf::Unregistered(..) => None,
        }
    }

    /// Sends a message to a peer, if it is there.
    pub(super) fn send(&mut self, id: PeerId, message: Message) {
        let now = self.now;
        let Some(state) = self
            .peers
            .get_mut(&id)
            .filter(|peer| peer.session.is_established())
        else {
            return;
        };
        if state.session.queue.len() >= self.config.limits.max_queue {
            let why = Notification::new(Reason::TooSlow, "too much waits to be sent");
            self.end_peer(now, id, CloseReason::Local(why), Duration::ZERO);
            return;
        }
        state.session.queue.push_back(message);
        if let Some(stream) = state.session.stream
            && !stream.blocked
        {
            self.hot.insert(stream.conn);
        }
    }

    /// Sends a message to a data node, if it is there.
    pub(super) fn send_node(&mut self, id: NodeId, message: Message) {
        let Some(node) = self.nodes.map.get_mut(&id) else {
            return;
        };
        if node.queue.len() >= self.config.limits.max_queue {
            self.node_dead(id);
            return;
        }
        node.queue.push_back(message);
        if let Some(conn) = node.conn
            && !node.blocked
        {
            self.hot.insert(conn);
        }
    }
}

/// The metadata of a message is the stream that it arrived on.
impl<C: Coordinator> Machine for ControlNode<C> {
    type Meta = ConnId;
    type Transmit = Transmit;
    type Event = Event;
    type Error = Error;

    fn handle_packet(&mut self, now: Instant, conn: &ConnId, message: &[u8]) -> Result<(), Error> {
        ControlNode::handle_packet(self, now, *conn, message)
    }

    fn handle_timeout(&mut self, now: Instant) {
        ControlNode::handle_timeout(self, now);
    }

    fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        ControlNode::poll_transmit(self, now, buffer)
    }

    fn poll_event(&mut self) -> Option<Event> {
        ControlNode::poll_event(self)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        ControlNode::poll_timeout(self)
    }
}
