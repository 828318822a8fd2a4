//! The byte streams of a control node: their owners, those that are closing, and those with messages to write.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Bound::{Excluded, Unbounded};

use proto_core::time::{Duration, Instant};

use crate::types::{ConnId, NodeId, NodeIdentity, PeerId};
use crate::wire::Message;
use crate::wire::notification::Repr as Notification;

/// How long a closing stream may take to write its last message.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The other end of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StreamOwner {
    Peer(PeerId),
    /// A data node that has registered.
    Node(NodeId),
    /// A data node that must register before that time.
    Unregistered(NodeIdentity, Instant),
}

/// All streams.
#[derive(Debug, Default)]
pub(super) struct Streams {
    owners: BTreeMap<ConnId, StreamOwner>,
    /// Last messages of closing streams, and when the streams are closed at the latest.
    closing: BTreeMap<ConnId, (Message, Instant)>,
    /// Streams for which messages may wait.
    ready: BTreeSet<ConnId>,
    last_ready: Option<ConnId>,
}

impl Streams {
    pub(super) fn insert(&mut self, conn: ConnId, owner: StreamOwner) {
        self.owners.insert(conn, owner);
    }

    pub(super) fn owner(&self, conn: ConnId) -> Option<StreamOwner> {
        self.owners.get(&conn).copied()
    }

    /// Forgets a stream.
    pub(super) fn remove(&mut self, conn: ConnId) -> Option<StreamOwner> {
        self.closing.remove(&conn);
        self.ready.remove(&conn);
        self.owners.remove(&conn)
    }

    /// Closes a stream without an owner after a last message.
    pub(super) fn close(&mut self, now: Instant, conn: ConnId, reason: Notification) {
        let last = Message::Notification(reason);
        self.closing.insert(conn, (last, now + CLOSE_TIMEOUT));
        self.ready.insert(conn);
    }

    /// Notes that messages may wait for a stream.
    pub(super) fn wake(&mut self, conn: ConnId) {
        if self.owners.contains_key(&conn) || self.closing.contains_key(&conn) {
            self.ready.insert(conn);
        }
    }

    /// Notes that nothing can be written to a stream for now.
    pub(super) fn sleep(&mut self, conn: ConnId) {
        self.ready.remove(&conn);
    }

    pub(super) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns the next stream to write to, in turn.
    pub(super) fn next_ready(&mut self) -> Option<ConnId> {
        let after = self.last_ready.map_or(Unbounded, Excluded);
        let next = self.ready.range((after, Unbounded)).next();
        let next = next.or_else(|| self.ready.first()).copied();
        self.last_ready = next.or(self.last_ready);
        next
    }

    /// Returns the last message of a closing stream, which is then forgotten.
    pub(super) fn take_last(&mut self, conn: ConnId) -> Option<Message> {
        let (last, _) = self.closing.remove(&conn)?;
        Some(last)
    }

    /// Returns a stream that must be closed now: it has not written its last message, or not registered, in time.
    pub(super) fn poll_expired(&mut self, now: Instant) -> Option<ConnId> {
        let late = |owner: &StreamOwner| matches!(owner, StreamOwner::Unregistered(_, until) if *until <= now);
        let closing = self.closing.iter().find(|(_, (_, until))| *until <= now);
        let expired = closing.map(|(&conn, _)| conn).or_else(|| {
            let unregistered = self.owners.iter().find(|(_, owner)| late(owner));
            unregistered.map(|(&conn, _)| conn)
        })?;
        self.remove(expired);
        Some(expired)
    }

    /// Forgets all streams and returns them.
    pub(super) fn drain(&mut self) -> Vec<(ConnId, Option<StreamOwner>)> {
        self.ready.clear();
        let closing = core::mem::take(&mut self.closing).into_keys();
        let owners = core::mem::take(&mut self.owners).into_iter();
        let owners = owners.map(|(conn, owner)| (conn, Some(owner)));
        closing.map(|conn| (conn, None)).chain(owners).collect()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let unregistered = self.owners.values().filter_map(|owner| match owner {
            StreamOwner::Unregistered(_, until) => Some(*until),
            _ => None,
        });
        let closing = self.closing.values().map(|(_, until)| *until);
        unregistered.chain(closing).min()
    }
}

#[cfg(test)]
mod tests;
