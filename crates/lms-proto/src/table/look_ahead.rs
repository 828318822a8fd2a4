//! Reads ahead the cache lines that a batch of lookups will need.

use core::hint::black_box;

use super::{EntryId, GroupTable, IFACES_PER_WORD};
use crate::{Family, Iface, Key};

/// Lookups whose lines are read together: as many as a core has misses outstanding, or more.
pub(crate) const LOOK_AHEAD: usize = 16;

/// Bytes of entries that a core's own cache holds, with what else the driver uses: up to here looking ahead takes longer
/// than it saves (measured with 1 MiB of second-level cache).
const CACHED: usize = 768 * 1024;

/// A lookup to come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead<A> {
    key: Key<A>,
    /// The interface whose bit in the downstream set will be read.
    iface: Iface,
    hash: u64,
    id: Option<EntryId>,
}

impl<A: Family> Ahead<A> {
    pub(crate) fn new(key: Key<A>, iface: Iface) -> Self {
        Ahead {
            key,
            iface,
            hash: 0,
            id: None,
        }
    }

    #[cfg(test)]
    pub(super) fn key(&self) -> Key<A> {
        self.key
    }

    /// The entry that was read.
    #[cfg(test)]
    pub(super) fn id(&self) -> Option<EntryId> {
        self.id
    }
}

impl<A: Family> GroupTable<'_, A> {
    /// Returns whether lookups wait for memory, so that [`GroupTable::look_ahead`] saves time.
    #[inline]
    pub(crate) fn is_beyond_cache(&self) -> bool {
        size_of_val(&self.entries[..self.fresh as usize]) > CACHED
    }

    /// Reads a word of each line that these lookups will read. Each loop is short and none of its loads depends on
    /// another, so that a core that executes out of order waits for all of them together.
    pub(crate) fn look_ahead(&self, batch: &mut [Ahead<A>]) {
        for ahead in &mut *batch {
            ahead.hash = self.hash(ahead.key).hash;
        }
        let homes = batch.iter().filter_map(|ahead| self.index.home(ahead.hash));
        black_box(homes.fold(0, |read, slot| read ^ slot.value()));
        for ahead in &mut *batch {
            ahead.id = self.guess(ahead.key, ahead.hash);
        }
        let words = batch
            .iter()
            .filter_map(|ahead| self.read(ahead.id?, ahead.iface));
        black_box(words.fold(0, |read, word| read ^ word));
    }

    /// Returns the entry that the index alone suggests for a key.
    #[inline]
    fn guess(&self, key: Key<A>, hash: u64) -> Option<EntryId> {
        // An empty slot may have the tag, and a value that is no entry's.
        let any = |value: u32| value < self.fresh;
        let value = match self.index.find(hash, any) {
            None if self.any_source_len > 0 => {
                let hash = self.hash(Key::any_source(key.group)).hash;
                self.index.find(hash, any)
            }
            found => found,
        };
        value.map(EntryId)
    }

    /// Reads an entry and, where it lies beside the entry, the word of an interface in its downstream set.
    #[inline]
    fn read(&self, id: EntryId, iface: Iface) -> Option<u64> {
        let entry = self.entries.get(id.index())?;
        let word = (usize::from(iface.0) / IFACES_PER_WORD).checked_sub(1);
        let at = word.filter(|&word| word < self.words);
        let rest = at.and_then(|at| self.downstream.get(id.index() * self.words + at));
        // Each line of the entry: those for IPv6 have two.
        let lines = entry.downstream.bits() ^ u64::from(entry.parent.0);
        Some(lines ^ rest.map_or(0, |word| word.bits()))
    }
}
