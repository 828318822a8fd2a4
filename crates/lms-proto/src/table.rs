//! The group table.

/// Handle of a forwarding entry, stable until the entry is removed; then it is used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EntryId(pub(crate) u32);

impl EntryId {
    /// The handle as an index: dense, below the table's capacity.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The handle of entry `index`.
    pub const fn from_index(index: u32) -> Self {
        EntryId(index)
    }
}
