//! Where the bytes go.

mod file;
mod stream;

use std::io;

use ltp::store::{HeapRing, Store, StoreError};

pub(crate) use file::FileSink;
pub(crate) use stream::StreamWriter;

/// The store of a receiver: a file, or a ring that a stream is written from.
pub(crate) enum Sink {
    File(Box<FileSink>),
    Ring(HeapRing),
}

impl Sink {
    pub(crate) fn file(&mut self) -> Option<&mut FileSink> {
        match self {
            Sink::File(file) => Some(file),
            Sink::Ring(_) => None,
        }
    }

    /// Why the medium failed.
    pub(crate) fn error(&self) -> Option<&io::Error> {
        match self {
            Sink::File(file) => file.error.as_ref(),
            Sink::Ring(_) => None,
        }
    }
}

impl Store for Sink {
    fn capacity(&self) -> Option<u64> {
        match self {
            Sink::File(store) => store.capacity(),
            Sink::Ring(store) => store.capacity(),
        }
    }

    #[inline]
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        match self {
            Sink::File(store) => store.write(offset, bytes),
            Sink::Ring(store) => store.write(offset, bytes),
        }
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        match self {
            Sink::File(store) => store.read(offset, out),
            Sink::Ring(store) => store.read(offset, out),
        }
    }

    fn block(&mut self, offset: u64, len: usize) -> Result<&[u8], StoreError> {
        match self {
            Sink::File(store) => store.block(offset, len),
            Sink::Ring(store) => store.block(offset, len),
        }
    }

    fn commit(&mut self, offset: u64, len: usize) -> Result<(), StoreError> {
        match self {
            Sink::File(store) => store.commit(offset, len),
            Sink::Ring(store) => store.commit(offset, len),
        }
    }

    fn discard(&mut self, offset: u64, len: usize) {
        match self {
            Sink::File(store) => store.discard(offset, len),
            Sink::Ring(store) => store.discard(offset, len),
        }
    }
}
