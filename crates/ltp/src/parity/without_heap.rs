//! Parity in a build without a heap: there is none.

use super::{NotRestored, Owned, Packets, Put};
use crate::Geometry;

/// No encoder can be made.
#[derive(Debug)]
pub(crate) enum Encoder {}

impl Encoder {
    pub(crate) fn new(_geometry: &Geometry, _seed: u64) -> Option<Owned<Self>> {
        None
    }

    pub(crate) fn holds(&self, _block: u32) -> bool {
        match *self {}
    }

    pub(crate) fn load(&mut self, _block: u32, _packets: u32, _bytes: &[u8]) -> bool {
        match *self {}
    }

    pub(crate) fn is_first_request(&mut self, _block: u32) -> bool {
        match *self {}
    }

    pub(crate) fn next(&mut self, _block: u32, _shard: &mut [u8]) -> Option<u8> {
        match *self {}
    }
}

/// Holds nothing.
#[derive(Debug)]
pub(crate) struct Shelf;

impl Shelf {
    pub(crate) fn new(_most: usize) -> Self {
        Shelf
    }

    pub(crate) fn is_usable(&self) -> bool {
        false
    }

    pub(crate) fn begin(&mut self, _geometry: &Geometry) {}

    pub(crate) fn is_empty(&self) -> bool {
        true
    }

    pub(crate) fn count(&self, _block: u32) -> u32 {
        0
    }

    pub(crate) fn put(&mut self, _block: u32, _index: u8, _shard: &[u8]) -> Put {
        Put::Full
    }

    pub(crate) fn remove(&mut self, _block: u32) {}

    pub(crate) fn restore(
        &mut self,
        _block: u32,
        _packets: (u32, u64),
        _content: &mut impl Packets,
    ) -> Result<(), NotRestored> {
        Err(NotRestored::Code)
    }
}
