//! Addresses that the client has lent.

use std::collections::{BTreeSet, VecDeque};

use crate::message::is_address;

/// Most addresses of a data node: those that are free, and those in use.
pub const MAX_LENT: usize = 4096;

/// The addresses of a data node.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    free: VecDeque<String>,
    /// All of them, those in use too.
    known: BTreeSet<String>,
}

impl Lent {
    /// Adds an address. Returns false if it is none, is there already, or is one too many.
    pub(crate) fn add(&mut self, address: String) -> bool {
        if !is_address(&address) || self.known.len() >= MAX_LENT {
            return false;
        }
        let is_new = self.known.insert(address.clone());
        if is_new {
            self.free.push_back(address);
        }
        is_new
    }

    /// Takes an address into use.
    pub(crate) fn take(&mut self) -> Option<String> {
        self.free.pop_front()
    }

    /// Forgets an address that was in use: it is the client's again.
    pub(crate) fn give_back(&mut self, address: &str) {
        self.known.remove(address);
    }

    /// Forgets the addresses that are not in use, because the client that lent them is gone.
    pub(crate) fn forget_free(&mut self) {
        for address in self.free.drain(..) {
            self.known.remove(&address);
        }
    }

    /// Returns the number of free addresses.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }
}
