//! Where the bytes go.

mod file;
mod gather;
mod stream;
mod writer;

use std::io;

use ltp::store::{HeapRing, Store, StoreError};

pub(crate) use file::FileSink;
pub(crate) use stream::StreamSink;
pub(crate) use writer::StreamWriter;

/// The store of a receiver.
pub(crate) enum Sink {
    /// A file.
    File(Box<FileSink>),
    /// A stream that is passed on.
    Stream(StreamSink),
    /// A stream of which the newest part stays, to repair others' losses from.
    Ring(HeapRing),
}

impl Sink {
    /// Blocks of this length follow, the first at `start`; what was gathered is forgotten.
    pub(crate) fn begin(&mut self, block_len: usize, start: u64) {
        match self {
            Sink::File(store) => store.begin(block_len, start),
            Sink::Stream(store) => store.begin(block_len),
            Sink::Ring(_) => {}
        }
    }

    pub(crate) fn file(&mut self) -> Option<&mut FileSink> {
        match self {
            Sink::File(file) => Some(file),
            Sink::Stream(_) | Sink::Ring(_) => None,
        }
    }

    /// The verified block that starts at `start`, to be passed on: its first `len` bytes count.
    pub(crate) fn pass_on(&mut self, start: u64, len: usize) -> Option<Box<[u8]>> {
        match self {
            Sink::File(_) => None,
            Sink::Stream(store) => store.take(start),
            Sink::Ring(store) => store.block(start, len).ok().map(Box::from),
        }
    }

    /// A buffer that was passed on and is used again.
    pub(crate) fn give_back(&mut self, bytes: Box<[u8]>) {
        if let Sink::Stream(store) = self {
            store.give_back(bytes);
        }
    }

    /// Why the medium failed.
    pub(crate) fn error(&self) -> Option<&io::Error> {
        match self {
            Sink::File(file) => file.error.as_ref(),
            Sink::Stream(_) | Sink::Ring(_) => None,
        }
    }
}

impl Store for Sink {
    fn capacity(&self) -> Option<u64> {
        match self {
            Sink::File(store) => store.capacity(),
            Sink::Stream(store) => store.capacity(),
            Sink::Ring(store) => store.capacity(),
        }
    }

    #[inline]
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        match self {
            Sink::File(store) => store.write(offset, bytes),
            Sink::Stream(store) => store.write(offset, bytes),
            Sink::Ring(store) => store.write(offset, bytes),
        }
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        match self {
            Sink::File(store) => store.read(offset, out),
            Sink::Stream(store) => store.read(offset, out),
            Sink::Ring(store) => store.read(offset, out),
        }
    }

    fn block(&mut self, offset: u64, len: usize) -> Result<&[u8], StoreError> {
        match self {
            Sink::File(store) => store.block(offset, len),
            Sink::Stream(store) => store.block(offset, len),
            Sink::Ring(store) => store.block(offset, len),
        }
    }

    fn commit(&mut self, offset: u64, len: usize) -> Result<(), StoreError> {
        match self {
            Sink::File(store) => store.commit(offset, len),
            Sink::Stream(store) => store.commit(offset, len),
            Sink::Ring(store) => store.commit(offset, len),
        }
    }

    fn discard(&mut self, offset: u64, len: usize) {
        match self {
            Sink::File(store) => store.discard(offset, len),
            Sink::Stream(store) => store.discard(offset, len),
            Sink::Ring(store) => store.discard(offset, len),
        }
    }
}
