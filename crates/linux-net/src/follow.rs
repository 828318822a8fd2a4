//! What the followers of the kernel's tables share: a mirror of the table, made of a dump and of
//! the notifications after it.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};

use crate::error::ReceiveError;
use crate::netlink::{Notified, Socket};

/// A change in a table of the kernel's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<T> {
    /// It appeared.
    Added(T),
    /// It changed; this is how it is now.
    Changed(T),
    /// It is gone; this is how it was.
    Removed(T),
}

/// A copy of a table, and the changes not yet returned.
#[derive(Debug)]
pub(crate) struct Mirror<K, V> {
    table: BTreeMap<K, V>,
    /// At most what one datagram of notifications makes, and the differences that readings of the
    /// whole table found since the queue was last empty.
    events: VecDeque<Event<V>>,
}

impl<K: Ord + Copy, V: Clone + PartialEq> Mirror<K, V> {
    pub(crate) fn new() -> Self {
        Self {
            table: BTreeMap::new(),
            events: VecDeque::new(),
        }
    }

    pub(crate) fn table(&self) -> &BTreeMap<K, V> {
        &self.table
    }

    pub(crate) fn set(&mut self, key: K, value: V) {
        match self.table.insert(key, value.clone()) {
            None => self.events.push_back(Event::Added(value)),
            Some(before) if before != value => self.events.push_back(Event::Changed(value)),
            Some(_) => {}
        }
    }

    pub(crate) fn remove(&mut self, key: K) {
        self.events
            .extend(self.table.remove(&key).map(Event::Removed));
    }

    /// The whole table, read again: queues what differs. What is gone comes first, so that a name
    /// is free before its next owner appears.
    pub(crate) fn replace(&mut self, fresh: BTreeMap<K, V>) {
        let gone: Vec<K> = self.table.keys().copied().collect();
        for key in gone.into_iter().filter(|key| !fresh.contains_key(key)) {
            self.remove(key);
        }
        for (key, value) in fresh {
            self.set(key, value);
        }
    }
}

/// A [`Mirror`] and the two sockets that feed it: one receives notifications, the other queries.
#[derive(Debug)]
pub(crate) struct Follower<K, V> {
    notifications: Socket,
    pub(crate) requests: Socket,
    pub(crate) mirror: Mirror<K, V>,
    /// The table must be read again: notifications were lost, and no reading succeeded since.
    stale: bool,
}

impl<K: Ord + Copy, V: Clone + PartialEq> Follower<K, V> {
    /// `notifications` must be subscribed already, so that nothing falls between it and the first
    /// reading of the table.
    pub(crate) fn new(notifications: Socket, requests: Socket) -> Self {
        Self {
            notifications,
            requests,
            mirror: Mirror::new(),
            stale: true,
        }
    }

    /// Returns the next change: a queued one, else one from the kernel's notifications (`apply` takes a
    /// message), else what `read` finds in the whole table after notifications were lost. A
    /// reading that fails is tried again by the next call.
    pub(crate) fn next(
        &mut self,
        mut apply: impl FnMut(&mut Mirror<K, V>, u16, &[u8]),
        mut read: impl FnMut(&mut Socket) -> Result<BTreeMap<K, V>, ReceiveError>,
    ) -> Result<Option<Event<V>>, ReceiveError> {
        loop {
            if let Some(event) = self.mirror.events.pop_front() {
                return Ok(Some(event));
            }
            if self.stale {
                self.read(&mut read)?;
                continue;
            }
            let mirror = &mut self.mirror;
            let notified = self
                .notifications
                .notifications(|kind, payload| apply(mirror, kind, payload));
            match notified {
                Ok(Notified::Idle) => return Ok(None),
                Ok(Notified::Some) => {}
                Ok(Notified::Overflow) => self.stale = true,
                Err(error) => {
                    self.stale = true;
                    return Err(ReceiveError::Io(error));
                }
            }
        }
    }

    /// Reads the whole table and queues the differences.
    pub(crate) fn read(
        &mut self,
        read: impl FnOnce(&mut Socket) -> Result<BTreeMap<K, V>, ReceiveError>,
    ) -> Result<(), ReceiveError> {
        self.stale = true;
        self.notifications.discard();
        self.mirror.replace(read(&mut self.requests)?);
        self.stale = false;
        Ok(())
    }
}

impl<K, V> AsFd for Follower<K, V> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.notifications.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(mirror: &mut Mirror<u8, &'static str>) -> Vec<Event<&'static str>> {
        mirror.events.drain(..).collect()
    }

    #[test]
    fn events_lead_from_what_was_told_to_what_is() {
        let mut mirror = Mirror::new();
        mirror.set(1, "a");
        mirror.set(1, "a");
        mirror.set(2, "b");
        mirror.set(1, "c");
        mirror.remove(2);
        mirror.remove(3);
        let all = [
            Event::Added("a"),
            Event::Added("b"),
            Event::Changed("c"),
            Event::Removed("b"),
        ];
        assert_eq!(drain(&mut mirror), all);
        mirror.set(4, "d");
        // Queued events stay; the reading appends further changes, removals first.
        mirror.replace([(4, "e"), (0, "f")].into());
        let all = [
            Event::Added("d"),
            Event::Removed("c"),
            Event::Added("f"),
            Event::Changed("e"),
        ];
        assert_eq!(drain(&mut mirror), all);
        mirror.replace([(4, "e"), (0, "f")].into());
        assert_eq!(drain(&mut mirror), []);
    }
}
