//! A stream as the store: verified blocks leave it.

use ltp::store::{Store, StoreError};

use super::gather::Gather;

/// The store of a receiver that passes a stream on and is no replier: blocks stay until they
/// are taken out, whole and without a copy.
pub(in crate::recv) struct StreamSink {
    gather: Gather,
}

impl StreamSink {
    /// A store that holds `window` blocks at most.
    pub(in crate::recv) fn new(window: usize) -> Self {
        StreamSink {
            gather: Gather::new(window),
        }
    }

    /// Begins a session with blocks of this length.
    pub(in crate::recv) fn begin(&mut self, block_len: usize) {
        self.gather.begin(block_len);
    }

    /// Hands over the buffer of the block that starts at `start`.
    pub(in crate::recv) fn take(&mut self, start: u64) -> Option<Box<[u8]>> {
        self.gather.take(start)
    }

    /// A buffer that was taken and is used again.
    pub(in crate::recv) fn give_back(&mut self, bytes: Box<[u8]>) {
        self.gather.give_back(bytes);
    }
}

impl Store for StreamSink {
    fn capacity(&self) -> Option<u64> {
        None
    }

    #[inline]
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.gather.write(offset, bytes)
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let (_, at) = self.gather.place(offset)?;
        let bytes = self.gather.get(offset - at as u64);
        let piece = bytes.and_then(|bytes| bytes.get(at..at + out.len()));
        out.copy_from_slice(piece.ok_or(StoreError::NotStored)?);
        Ok(())
    }

    fn block(&mut self, offset: u64, len: usize) -> Result<&[u8], StoreError> {
        let bytes = self.gather.get(offset);
        let bytes = bytes.and_then(|bytes| bytes.get(..len));
        bytes.ok_or(StoreError::NotStored)
    }

    fn discard(&mut self, offset: u64, _len: usize) {
        self.gather.release(offset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_leaves_without_a_copy_and_its_buffer_is_used_again() {
        let mut sink = StreamSink::new(4);
        sink.begin(1024);
        sink.write(1024, &[1; 512]).expect("block 1");
        sink.write(1536, &[2; 100]).expect("block 1");
        assert_eq!(sink.block(1024, 512), Ok(&[1; 512][..]));
        let buffer = sink.take(1024).expect("it is here");
        assert_eq!(&buffer[512..612], [2; 100]);
        assert_eq!(sink.block(1024, 1), Err(StoreError::NotStored));
        assert!(sink.take(1024).is_none());
        let place = buffer.as_ptr();
        sink.give_back(buffer);
        sink.write(2048, &[3; 10]).expect("block 2");
        assert_eq!(sink.block(2048, 10).map(<[u8]>::as_ptr), Ok(place));
    }

    #[test]
    fn a_discarded_block_is_gone() {
        let mut sink = StreamSink::new(4);
        sink.begin(1024);
        sink.write(0, &[9; 1024]).expect("block 0");
        sink.discard(0, 1024);
        assert_eq!(sink.read(0, &mut [0; 4]), Err(StoreError::NotStored));
    }
}
