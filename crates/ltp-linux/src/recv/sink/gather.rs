//! Blocks that are being received, each in a buffer of its own.

use ltp::store::{Store, StoreError};

/// No block starts here.
const NOWHERE: u64 = u64::MAX;

/// A block that is being received, or waits to be taken out.
struct Block {
    /// Its offset in the content; [`NOWHERE`]: the place is free.
    offset: u64,
    bytes: Box<[u8]>,
}

/// The blocks between the first incomplete one and the newest.
///
/// Memory: that of the blocks that are here at a time, at most `window` of them. Buffers are used
/// again, so that data is written to memory that is still in the cache.
pub(in crate::recv) struct Gather {
    block_len: usize,
    blocks: Vec<Block>,
    spare: Vec<Box<[u8]>>,
}

impl Gather {
    /// Room for `window` blocks, rounded down to a power of two.
    pub(in crate::recv) fn new(window: usize) -> Self {
        let free = || Block {
            offset: NOWHERE,
            bytes: Box::default(),
        };
        Gather {
            block_len: 0,
            blocks: (0..1 << window.max(1).ilog2()).map(|_| free()).collect(),
            spare: Vec::new(),
        }
    }

    /// Begins a session with blocks of this length, a power of two.
    pub(in crate::recv) fn begin(&mut self, block_len: usize) {
        for block in &mut self.blocks {
            block.offset = NOWHERE;
            block.bytes = Box::default();
        }
        self.spare.clear();
        self.block_len = block_len;
    }

    pub(super) fn block_len(&self) -> usize {
        self.block_len
    }

    /// The place of the block that holds `offset`, and where in it that lies.
    #[inline]
    pub(super) fn place(&self, offset: u64) -> Result<(usize, usize), StoreError> {
        if self.block_len == 0 {
            return Err(StoreError::Failed);
        }
        let block = offset >> self.block_len.trailing_zeros();
        Ok((
            block as usize & (self.blocks.len() - 1),
            offset as usize & (self.block_len - 1),
        ))
    }

    /// The bytes of the block that starts at `start`, if it is here.
    #[inline]
    pub(super) fn get(&self, start: u64) -> Option<&[u8]> {
        let (place, _) = self.place(start).ok()?;
        let block = &self.blocks[place];
        (block.offset == start).then_some(&*block.bytes)
    }

    /// Hands the block's buffer over, if it is here.
    pub(in crate::recv) fn take(&mut self, start: u64) -> Option<Box<[u8]>> {
        let (place, _) = self.place(start).ok()?;
        let block = &mut self.blocks[place];
        if block.offset != start {
            return None;
        }
        block.offset = NOWHERE;
        Some(std::mem::take(&mut block.bytes))
    }

    /// A buffer that is no longer needed.
    pub(in crate::recv) fn give_back(&mut self, bytes: Box<[u8]>) {
        if bytes.len() == self.block_len && self.spare.len() < self.blocks.len() {
            self.spare.push(bytes);
        }
    }
}

/// The store of a receiver that passes a stream on and is no replier: blocks stay until they are taken out, whole and
/// without a copy.
impl Store for Gather {
    fn capacity(&self) -> Option<u64> {
        None
    }

    #[inline]
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let (place, at) = self.place(offset)?;
        let start = offset - at as u64;
        let block = &mut self.blocks[place];
        if block.offset != start {
            block.offset = start;
            if block.bytes.is_empty() {
                let fresh = || vec![0; self.block_len].into();
                block.bytes = self.spare.pop().unwrap_or_else(fresh);
            }
        }
        let piece = block.bytes.get_mut(at..at + bytes.len());
        piece.ok_or(StoreError::NotStored)?.copy_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let (_, at) = self.place(offset)?;
        let bytes = self.get(offset - at as u64);
        let piece = bytes.and_then(|bytes| bytes.get(at..at + out.len()));
        out.copy_from_slice(piece.ok_or(StoreError::NotStored)?);
        Ok(())
    }

    fn block(&mut self, offset: u64, len: usize) -> Result<&[u8], StoreError> {
        let bytes = self.get(offset);
        let bytes = bytes.and_then(|bytes| bytes.get(..len));
        bytes.ok_or(StoreError::NotStored)
    }

    fn discard(&mut self, offset: u64, _len: usize) {
        if let Some(bytes) = self.take(offset) {
            self.give_back(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_leaves_without_a_copy_and_its_buffer_is_used_again() {
        let mut sink = Gather::new(4);
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
        let mut sink = Gather::new(4);
        sink.begin(1024);
        sink.write(0, &[9; 1024]).expect("block 0");
        sink.discard(0, 1024);
        assert_eq!(sink.read(0, &mut [0; 4]), Err(StoreError::NotStored));
    }
}
