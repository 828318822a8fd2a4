//! A map whose entries expire.

use alloc::collections::{BTreeMap, BTreeSet};

use proto_core::time::Instant;

/// Entries by key, and by the time when they expire.
#[derive(Debug)]
pub(crate) struct Expiring<K, V> {
    map: BTreeMap<K, (Instant, V)>,
    order: BTreeSet<(Instant, K)>,
}

impl<K, V> Default for Expiring<K, V> {
    fn default() -> Self {
        Expiring {
            map: BTreeMap::new(),
            order: BTreeSet::new(),
        }
    }
}

impl<K: Ord + Clone, V> Expiring<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.map.get(key).map(|(_, value)| value)
    }

    /// Inserts an entry, or replaces it.
    pub(crate) fn insert(&mut self, key: K, value: V, expires: Instant) {
        self.remove(&key);
        self.order.insert((expires, key.clone()));
        self.map.insert(key, (expires, value));
    }

    /// Removes an entry. Returns when it would have expired, and its value.
    pub(crate) fn remove(&mut self, key: &K) -> Option<(Instant, V)> {
        let removed = self.map.remove(key)?;
        self.order.remove(&(removed.0, key.clone()));
        Some(removed)
    }

    /// Removes the entry that expires first.
    pub(crate) fn pop_first(&mut self) -> Option<(K, V)> {
        let (_, key) = self.order.pop_first()?;
        let (_, value) = self.map.remove(&key)?;
        Some((key, value))
    }

    /// Removes an entry that has expired.
    pub(crate) fn pop_expired(&mut self, now: Instant) -> Option<(K, V)> {
        self.poll_timeout().filter(|at| *at <= now)?;
        self.pop_first()
    }

    /// Returns when the first entry expires.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }
}
