//! Stores of the bytes of a stream: a ring, a file, or none (simulation).

#[cfg(feature = "alloc")]
mod heap;
mod null;
mod ring;

#[cfg(feature = "alloc")]
pub use heap::HeapRing;
pub use null::NullStore;
pub use ring::ArrayRing;

proto_core::errors! {
    /// Why a store failed.
    pub enum StoreError {
        /// The bytes are no longer, or not yet, there.
        NotStored = "bytes are not in the store",
        /// The medium failed: the transfer cannot go on.
        Failed = "the store's medium failed",
    }
}

/// The bytes of one content, addressed by their offset in it.
///
/// The machines decide what is stored: a store with a [`Store::capacity`] is a ring, where writing
/// at offset `x` replaces the byte at `x - capacity`. The machines never read bytes that they did not write
/// (a receiver, a stream's sender) or that lie past the content's end (a file's sender).
///
/// Blocks are the unit of verification: all packets of a block are written (in any order), then
/// [`Store::block`] reads it once for the digest while it is warm, then [`Store::commit`] or
/// [`Store::discard`] follows. A file store gathers a block in memory and writes it out at
/// `commit`; it may be asked to read it again later.
pub trait Store {
    /// Bytes held before old ones are overwritten, a multiple of the block length; `None`:
    /// everything stays.
    fn capacity(&self) -> Option<u64>;

    /// Writes bytes that do not cross a block's end.
    ///
    /// # Errors
    /// [`StoreError::NotStored`] when the store has no place for these bytes, [`StoreError::Failed`] when its
    /// medium failed.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StoreError>;

    /// Reads bytes that do not cross a block's end.
    ///
    /// # Errors
    /// [`StoreError::NotStored`] when the store does not have all of these bytes, [`StoreError::Failed`] when its
    /// medium failed.
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError>;

    /// The bytes of one block, or of the part of it that lies before the content's end.
    ///
    /// # Errors
    /// [`StoreError::NotStored`] when the store does not have all of these bytes, [`StoreError::Failed`] when its
    /// medium failed.
    fn block(&mut self, offset: u64, len: usize) -> Result<&[u8], StoreError>;

    /// The block has verified: it is final.
    ///
    /// # Errors
    /// [`StoreError::NotStored`] when the store does not have the block, [`StoreError::Failed`] when its medium
    /// failed.
    fn commit(&mut self, offset: u64, len: usize) -> Result<(), StoreError> {
        let _ = (offset, len);
        Ok(())
    }

    /// The block is wrong: it will be written again.
    fn discard(&mut self, offset: u64, len: usize) {
        let _ = (offset, len);
    }
}

impl<S: Store + ?Sized> Store for &mut S {
    fn capacity(&self) -> Option<u64> {
        (**self).capacity()
    }
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        (**self).write(offset, bytes)
    }
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        (**self).read(offset, out)
    }
    fn block(&mut self, offset: u64, len: usize) -> Result<&[u8], StoreError> {
        (**self).block(offset, len)
    }
    fn commit(&mut self, offset: u64, len: usize) -> Result<(), StoreError> {
        (**self).commit(offset, len)
    }
    fn discard(&mut self, offset: u64, len: usize) {
        (**self).discard(offset, len);
    }
}

/// The place of `[offset, offset + len)` in a ring of `capacity` bytes; `None` if it wraps, which
/// cannot happen within a block of a ring that is a multiple of it.
#[inline]
fn place(capacity: usize, offset: u64, len: usize) -> Result<core::ops::Range<usize>, StoreError> {
    if capacity == 0 {
        return Err(StoreError::NotStored);
    }
    let start = if capacity.is_power_of_two() {
        offset as usize & (capacity - 1)
    } else {
        (offset % capacity as u64) as usize
    };
    let end = start
        .checked_add(len)
        .filter(|&end| end <= capacity)
        .ok_or(StoreError::NotStored)?;
    Ok(start..end)
}
