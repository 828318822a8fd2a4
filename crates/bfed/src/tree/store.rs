//! All trees of a gateway by name, by network and by time.

use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Bound::{Excluded, Unbounded};

use proto_core::time::Instant;

use super::Tree;
use crate::name::SessionName;
use crate::slots::Slots;
use crate::types::{BnNum, PeerId, Table};

/// Index of a tree in the store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Slot(u32);

/// Removes the first element after `last`, or else the first, so that elements that return often delay no other.
pub(crate) fn pop_after<T: Ord + Copy>(set: &mut BTreeSet<T>, last: &mut Option<T>) -> Option<T> {
    let after = last.map_or(Unbounded, Excluded);
    let mut later = set.range((after, Unbounded));
    let next = later.next().or_else(|| set.first()).copied()?;
    set.remove(&next);
    *last = Some(next);
    Some(next)
}

/// All trees.
#[derive(Debug, Default)]
pub(crate) struct Trees {
    slots: Slots<Tree>,
    by_name: BTreeMap<SessionName, Slot>,
    by_network: BTreeSet<(Table, BnNum, Slot)>,
    timers: BTreeSet<(Instant, Slot)>,
    /// Trees to examine because routes, peers or data nodes have changed.
    pub(crate) pending: BTreeSet<Slot>,
    /// The tree examined last.
    last_pending: Option<Slot>,
    /// Trees that are not where routes alone lead, or may not stay there: every change of a route to their network
    /// can concern them. The others are concerned only if routes alone decide differently.
    particular: BTreeSet<(Table, BnNum, Slot)>,
    /// Number of sessions that each peer joined.
    pub(crate) joined: BTreeMap<PeerId, usize>,
}

impl Trees {
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(crate) fn find(&self, name: &SessionName) -> Option<Slot> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn get(&self, slot: Slot) -> Option<&Tree> {
        self.slots.get(slot.0)
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut Tree> {
        self.slots.get_mut(slot.0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot, &Tree)> {
        self.by_name
            .values()
            .filter_map(|&slot| Some((slot, self.get(slot)?)))
    }

    pub(crate) fn insert(&mut self, tree: Tree) -> Slot {
        let name = tree.name.clone();
        let slot = Slot(self.slots.insert_with(|_| tree));
        self.by_name.insert(name, slot);
        slot
    }

    pub(crate) fn remove(&mut self, slot: Slot) -> Option<Tree> {
        let tree = self.slots.remove(slot.0)?;
        self.by_name.remove(&tree.name);
        if let Some(network) = tree.network {
            self.by_network.remove(&(tree.table, network, slot));
            self.particular.remove(&(tree.table, network, slot));
        }
        if let Some(due) = tree.due {
            self.timers.remove(&(due, slot));
        }
        self.pending.remove(&slot);
        for peer in tree.down.keys() {
            self.count(*peer, false);
        }
        Some(tree)
    }

    /// Counts a session that a peer joined or left.
    pub(crate) fn count(&mut self, peer: PeerId, more: bool) {
        let joined = self.joined.entry(peer).or_default();
        *joined = if more {
            *joined + 1
        } else {
            joined.saturating_sub(1)
        };
        if *joined == 0 {
            self.joined.remove(&peer);
        }
    }

    /// Sets the owner of a tree.
    pub(crate) fn set_network(&mut self, slot: Slot, network: BnNum, root: bool) {
        if let Some(tree) = self.get_mut(slot) {
            tree.network = Some(network);
            tree.root = root;
            let table = tree.table;
            // Sessions that this network owns do not depend on routes.
            if !root {
                self.by_network.insert((table, network, slot));
                self.particular.insert((table, network, slot));
            }
        }
    }

    /// Notes whether a tree depends on more than routes alone.
    pub(crate) fn set_particular(&mut self, slot: Slot, particular: bool) {
        let Some(tree) = self.get(slot).filter(|tree| !tree.root) else {
            return;
        };
        let Some(network) = tree.network else {
            return;
        };
        let key = (tree.table, network, slot);
        if particular {
            self.particular.insert(key);
        } else {
            self.particular.remove(&key);
        }
    }

    /// Marks the trees of a network whose routes have changed: all, or only the particular ones.
    pub(crate) fn mark_network(&mut self, table: Table, network: BnNum, all: bool) {
        let range = (table, network, Slot(0))..=(table, network, Slot(u32::MAX));
        let trees = if all {
            &self.by_network
        } else {
            &self.particular
        };
        self.pending
            .extend(trees.range(range).map(|(_, _, slot)| *slot));
    }

    /// Returns the next tree to examine, in turn.
    pub(crate) fn poll_pending(&mut self) -> Option<Slot> {
        pop_after(&mut self.pending, &mut self.last_pending)
    }

    /// Extends the lifetime of a downstream peer in all trees.
    pub(crate) fn refresh_down(&mut self, peer: PeerId, expires: Instant) {
        for tree in self.slots.values_mut() {
            if let Some(down) = tree.down.get_mut(&peer) {
                down.expires = down.expires.max(expires);
            }
        }
    }

    /// Marks all trees.
    pub(crate) fn mark_all(&mut self) {
        self.pending.extend(self.by_name.values().copied());
    }

    /// Sets the timer of a changed tree.
    pub(crate) fn schedule(&mut self, slot: Slot) {
        let Some(tree) = self.get_mut(slot) else {
            return;
        };
        let (before, due) = (tree.due, tree.next_due());
        tree.due = Some(due);
        if before == Some(due) {
            return;
        }
        if let Some(before) = before {
            self.timers.remove(&(before, slot));
        }
        self.timers.insert((due, slot));
    }

    /// Returns a tree whose timer has expired; it must be scheduled again.
    pub(crate) fn expired(&mut self, now: Instant) -> Option<Slot> {
        let &(at, slot) = self.timers.first().filter(|(at, _)| *at <= now)?;
        self.timers.remove(&(at, slot));
        if let Some(tree) = self.get_mut(slot) {
            tree.due = None;
        }
        Some(slot)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }
}
