//! A slab: stable indices, slots reused.

use alloc::vec::Vec;

#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Returns all indices that were ever used.
    pub(crate) fn numbers(&self) -> core::ops::Range<u32> {
        0..self.places.len() as u32
    }

    /// Returns the index of the next value.
    pub(crate) fn next_index(&self) -> u32 {
        self.free
            .last()
            .copied()
            .unwrap_or(self.places.len() as u32)
    }

    /// Reserves space for `more` entries; exactly that much when they are the majority, as for a large group.
    pub(crate) fn reserve(&mut self, more: usize) {
        let new = more.saturating_sub(self.free.len());
        if new > self.places.len() {
            self.places.reserve_exact(new);
        } else {
            self.places.reserve(new);
        }
    }

    pub(crate) fn insert(&mut self, thing: T) -> u32 {
        if let Some(index) = self.free.pop() {
            self.places[index as usize] = Some(thing);
            return index;
        }
        self.places.push(Some(thing));
        self.places.len() as u32 - 1
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let thing = self.places.get_mut(index as usize)?.take();
        if thing.is_some() {
            self.free.push(index);
        }
        thing
    }

    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.places.get(index as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.places.get_mut(index as usize)?.as_mut()
    }
}
