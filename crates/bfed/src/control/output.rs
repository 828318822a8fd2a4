//! Outgoing messages.

use proto_core::time::{Duration, Instant};

use super::{ControlNode, StreamOwner};
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
            let conn = self.streams.next_ready()?;
            if let Some(message) = self.next_for(conn) {
                self.stats.messages_sent += 1;
                return Some(Transmit {
                    conn,
                    len: message.emit(buffer),
                });
            }
            self.streams.sleep(conn);
        }
    }

    fn next_for(&mut self, conn: ConnId) -> Option<Message> {
        if let Some(last) = self.streams.take_last(conn) {
            self.events.push_back(Event::Close(conn));
            return Some(last);
        }
        match self.streams.owner(conn)? {
            StreamOwner::Peer(id) => {
                let state = self.peers.get_mut(&id)?;
                if let Some(reply) = state.echoes.poll_reply() {
                    return Some(reply);
                }
                if let Some(message) = state.session.queue.pop_front() {
                    return Some(message);
                }
                let rng = &mut self.numbers.rng;
                if let Some(request) = state.echoes.poll_request(self.now, rng) {
                    return Some(request);
                }
                if !state.announcing {
                    return None;
                }
                let message = self.rib.next_message(id);
                if message.is_none()
                    && let Some(state) = self.peers.get_mut(&id)
                {
                    state.announcing = false;
                }
                message
            }
            StreamOwner::Node(id) => self.nodes.map.get_mut(&id)?.queue.pop_front(),
            StreamOwner::Unregistered(..) => None,
        }
    }

    /// Sends a message to a peer if it is connected.
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
            self.streams.wake(stream.conn);
        }
    }

    /// Sends a message to a data node if it is connected.
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
            self.streams.wake(conn);
        }
    }
}

proto_core::impl_machine! {
    impl[C: Coordinator] ControlNode<C> {
        Meta = ConnId; Transmit = Transmit; Event = Event; Error = Error;
    }
}
