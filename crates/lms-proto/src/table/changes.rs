//! Which entries have changed, for drivers that keep a copy of them.

use heapless::Vec;

use super::EntryId;

/// Changed entries that are named; beyond these, all count as changed.
const NAMED: usize = 64;

/// The entries that changed.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Those that are named; one may be named twice.
    pub entries: Vec<EntryId, NAMED>,
    /// Any other may have changed too.
    pub all: bool,
}

impl Changes {
    pub(super) fn note(&mut self, id: EntryId) {
        if self.all || self.entries.last() == Some(&id) {
            return;
        }
        if self.entries.push(id).is_err() {
            self.entries.clear();
            self.all = true;
        }
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        !self.all && self.entries.is_empty()
    }
}
