//! Incoming messages.

use proto_core::time::{Duration, Instant};

use super::{ControlNode, StreamOwner};
use crate::coordination::Coordinator;
use crate::error::Error;
use crate::session::{CloseReason, Effect};
use crate::types::{ConnId, PeerId};
use crate::wire::notification::{Reason, Repr as Notification};
use crate::wire::update::{self, Parsed};
use crate::wire::{self, Header, Message, Type};

impl<C: Coordinator> ControlNode<C> {
    /// Handles one whole message of a stream, as [`Frames`](crate::wire::Frames) returns it. Bytes that are no
    /// message end the stream with a NOTIFICATION.
    ///
    /// # Errors
    /// The message was refused and counted.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        conn: &ConnId,
        message: &[u8],
    ) -> Result<(), Error> {
        let conn = *conn;
        self.now = now;
        self.stats.messages_received += 1;
        let result = match self.streams.owner(conn) {
            Some(StreamOwner::Peer(id)) => self.handle_peer_message(now, id, message),
            Some(StreamOwner::Node(id)) => self.handle_node_message(now, conn, id, message),
            Some(StreamOwner::Unregistered(identity, _)) => {
                self.handle_registration(now, conn, identity, message)
            }
            None => Err(Error::UnknownStream),
        };
        if let Err(error) = result {
            self.stats.drops.count(error);
        }
        if core::mem::take(&mut self.rib.any_changed) {
            self.schedule_announcements(now);
        }
        result
    }

    fn end(&mut self, now: Instant, id: PeerId, reason: Reason, text: &str) {
        let why = Notification::new(reason, text);
        self.end_peer(now, id, CloseReason::Local(why), Duration::ZERO);
    }

    fn handle_peer_message(&mut self, now: Instant, id: PeerId, bytes: &[u8]) -> Result<(), Error> {
        let is_update = Header::new_checked(bytes)
            .is_ok_and(|header| header.type_number() == Type::Update as u8);
        let state = self.peers.get_mut(&id).ok_or(Error::UnknownStream)?;
        if is_update && state.session.is_established() {
            state.session.restart_hold_timer(now);
            return match update::Repr::parse_lenient(bytes) {
                Ok(parsed) => self.update(now, id, parsed),
                Err(error) => {
                    self.end(now, id, Reason::BadUpdate, &alloc::format!("{error}"));
                    Err(Error::Malformed)
                }
            };
        }
        let message = match Message::parse(bytes) {
            Ok(message) => message,
            Err(error) => {
                let (reason, text) = match wire::other_version(bytes) {
                    Some(version) => {
                        let text = state.session.describe_mismatch((version, version));
                        (Reason::Version, text)
                    }
                    None => (Reason::BadMessage, alloc::format!("{error}")),
                };
                self.end(now, id, reason, &text);
                return Err(error.into());
            }
        };
        match state.session.handle(now, message) {
            Effect::None => {
                self.wake(id);
                Ok(())
            }
            Effect::Established => {
                self.established(now, id);
                Ok(())
            }
            Effect::Message(message) => self.dispatch(now, id, message),
            Effect::End(why) => {
                let error = match why.reason {
                    Reason::OutOfOrder => Error::OutOfOrder,
                    Reason::Version => Error::Version,
                    _ => Error::BadOpen,
                };
                self.end_peer(now, id, CloseReason::Local(why), Duration::ZERO);
                Err(error)
            }
            Effect::EndedByPeer(why) => {
                self.end_peer(now, id, CloseReason::Remote(why), Duration::ZERO);
                Ok(())
            }
        }
    }

    /// Schedules messages of the session itself.
    pub(super) fn wake(&mut self, id: PeerId) {
        if let Some(stream) = self.peers.get(&id).and_then(|state| state.session.stream)
            && !stream.blocked
        {
            self.streams.wake(stream.conn);
        }
    }

    fn dispatch(&mut self, now: Instant, id: PeerId, message: Message) -> Result<(), Error> {
        match message {
            Message::EndOfTable(table) => {
                self.rib.end_of_table(now, id, table);
                self.table_complete(now, id);
                Ok(())
            }
            Message::Echo(echo) => self.echo(now, id, echo),
            Message::SrouteRequest(request) => self.sroute_request(now, id, request),
            Message::SrouteResponse(response) => self.sroute_response(now, id, response),
            Message::Join(join) => self.peer_joins(now, id, join),
            Message::Leave(session) => self.peer_leaves(now, id, &session),
            Message::Translation(translation) => self.translated(now, id, translation),
            Message::NoRoute(no_route) => self.refused_by(now, id, &no_route),
            _ => Err(Error::OutOfOrder),
        }
    }

    fn update(&mut self, now: Instant, id: PeerId, parsed: Parsed) -> Result<(), Error> {
        let table = parsed.update.table;
        let agreed = self.peers.get(&id).and_then(|state| state.session.agreed);
        if !agreed.is_some_and(|agreed| agreed.tables.contains(table)) {
            return Err(Error::ForeignTable);
        }
        self.rib.stats.attributes_discarded += parsed.discarded.len() as u64;
        self.rib.stats.faulty += parsed.faulty.len() as u64;
        for destination in parsed.update.withdrawn {
            self.rib.withdraw(now, id, table, destination);
        }
        for route in parsed.update.announced {
            // Routing counts what it refuses.
            let _ = self
                .rib
                .announce(now, id, table, route.destination, route.attributes);
            let (count, max) = self.rib.count(id, table);
            if count > max {
                self.too_many_routes(now, id, table);
                return Err(Error::PrefixLimit);
            }
        }
        Ok(())
    }
}
