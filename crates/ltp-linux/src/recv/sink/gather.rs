//! Blocks that are coming in, each in a buffer of its own.

use ltp::store::StoreError;

/// No block starts here.
const NOWHERE: u64 = u64::MAX;

/// A block that is coming in, or waits to be passed on.
struct Block {
    /// Its offset in the content; [`NOWHERE`]: the place is free.
    offset: u64,
    bytes: Box<[u8]>,
}

/// The blocks between the first incomplete one and the newest.
///
/// Memory: that of the blocks that are here at a time, at most `window` of them. Buffers are used
/// again, so that what comes in is written to memory that is still in the cache.
pub(super) struct Gather {
    block_len: usize,
    blocks: Vec<Block>,
    spare: Vec<Box<[u8]>>,
}

impl Gather {
    /// Room for `window` blocks, rounded down to a power of two.
    pub(super) fn new(window: usize) -> Self {
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
    pub(super) fn begin(&mut self, block_len: usize) {
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

    #[inline]
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
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

    /// The bytes of the block that starts at `start`, if it is here.
    #[inline]
    pub(super) fn get(&self, start: u64) -> Option<&[u8]> {
        let (place, _) = self.place(start).ok()?;
        let block = &self.blocks[place];
        (block.offset == start).then_some(&*block.bytes)
    }

    /// Hands the block's buffer over, if it is here.
    pub(super) fn take(&mut self, start: u64) -> Option<Box<[u8]>> {
        let (place, _) = self.place(start).ok()?;
        let block = &mut self.blocks[place];
        if block.offset != start {
            return None;
        }
        block.offset = NOWHERE;
        Some(std::mem::take(&mut block.bytes))
    }

    /// A buffer that is no longer needed.
    pub(super) fn give_back(&mut self, bytes: Box<[u8]>) {
        if bytes.len() == self.block_len && self.spare.len() < self.blocks.len() {
            self.spare.push(bytes);
        }
    }

    /// Forgets the block that starts at `start`.
    pub(super) fn release(&mut self, start: u64) {
        if let Some(bytes) = self.take(start) {
            self.give_back(bytes);
        }
    }
}
