//! The stores of a receiver.

mod file;
mod gather;
mod writer;

use std::io;

use ltp::store::{HeapRing, Store, StoreError};

pub(in crate::recv) use file::FileSink;
pub(in crate::recv) use gather::Gather;
pub(in crate::recv) use writer::StreamWriter;

/// The store of a receiver.
pub(in crate::recv) enum Content {
    /// A file.
    File(Box<FileSink>),
    /// A stream that is passed on.
    Stream(Gather),
    /// A stream of which the newest part stays, to repair others' losses from.
    Ring(HeapRing),
}

impl Content {
    /// Begins a session with blocks of this length, the first at `start`.
    pub(in crate::recv) fn begin(&mut self, block_len: usize, start: u64) {
        match self {
            Content::File(store) => store.begin(block_len, start),
            Content::Stream(store) => store.begin(block_len),
            Content::Ring(_) => {}
        }
    }

    pub(in crate::recv) fn file(&mut self) -> Option<&mut FileSink> {
        match self {
            Content::File(file) => Some(file),
            Content::Stream(_) | Content::Ring(_) => None,
        }
    }

    /// Takes the verified block that starts at `start`; its first `len` bytes count.
    pub(in crate::recv) fn pass_on(&mut self, start: u64, len: usize) -> Option<Box<[u8]>> {
        match self {
            Content::File(_) => None,
            Content::Stream(store) => store.take(start),
            Content::Ring(store) => store.block(start, len).ok().map(Box::from),
        }
    }

    /// Takes back a buffer that was written.
    pub(in crate::recv) fn give_back(&mut self, bytes: Box<[u8]>) {
        if let Content::Stream(store) = self {
            store.give_back(bytes);
        }
    }

    /// Why the medium failed.
    pub(in crate::recv) fn error(&self) -> Option<&io::Error> {
        match self {
            Content::File(file) => file.error.as_ref(),
            Content::Stream(_) | Content::Ring(_) => None,
        }
    }
}

impl Store for Content {
    fn capacity(&self) -> Option<u64> {
        match self {
            Content::File(store) => store.capacity(),
            Content::Stream(store) => store.capacity(),
            Content::Ring(store) => store.capacity(),
        }
    }

    #[inline]
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        match self {
            Content::File(store) => store.write(offset, bytes),
            Content::Stream(store) => store.write(offset, bytes),
            Content::Ring(store) => store.write(offset, bytes),
        }
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        match self {
            Content::File(store) => store.read(offset, out),
            Content::Stream(store) => store.read(offset, out),
            Content::Ring(store) => store.read(offset, out),
        }
    }

    fn block(&mut self, offset: u64, len: usize) -> Result<&[u8], StoreError> {
        match self {
            Content::File(store) => store.block(offset, len),
            Content::Stream(store) => store.block(offset, len),
            Content::Ring(store) => store.block(offset, len),
        }
    }

    fn commit(&mut self, offset: u64, len: usize) -> Result<(), StoreError> {
        match self {
            Content::File(store) => store.commit(offset, len),
            Content::Stream(store) => store.commit(offset, len),
            Content::Ring(store) => store.commit(offset, len),
        }
    }

    fn discard(&mut self, offset: u64, len: usize) {
        match self {
            Content::File(store) => store.discard(offset, len),
            Content::Stream(store) => store.discard(offset, len),
            Content::Ring(store) => store.discard(offset, len),
        }
    }
}
