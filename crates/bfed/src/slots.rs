//! A table with stable indices: free slots are reused.
//!
//! It grows as values come; the slab of `proto_core` takes the memory of its bound at once, and the limits of a gateway
//! (65,536 sessions, as many edges) are far above what most gateways carry.

use alloc::vec::Vec;

/// Values by index.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Slots {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slots<T> {
    /// Returns the number of values.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns the index after the highest one that was used.
    pub(crate) fn end(&self) -> u32 {
        self.slots.len() as u32
    }

    #[inline]
    pub(crate) fn get(&self, at: u32) -> Option<&T> {
        self.slots.get(at as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.slots.get_mut(at as usize)?.as_mut()
    }

    /// Inserts the value that `make` returns for its index.
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(u32) -> T) -> u32 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[at as usize] = Some(make(at));
        at
    }

    pub(crate) fn remove(&mut self, at: u32) -> Option<T> {
        let value = self.slots.get_mut(at as usize)?.take()?;
        self.free.push(at);
        Some(value)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().flatten()
    }
}
