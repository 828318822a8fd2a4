use alloc::boxed::Box;
use alloc::vec;

use super::{Store, StoreError, place};

/// A ring on the heap; or, when as long as the content, a whole content in memory.
#[derive(Clone, Debug)]
pub struct HeapRing {
    bytes: Box<[u8]>,
    whole: bool,
}

impl HeapRing {
    /// A ring of that many bytes, a multiple of the block length.
    pub fn new(capacity: usize) -> Self {
        HeapRing {
            bytes: vec![0; capacity].into_boxed_slice(),
            whole: false,
        }
    }

    /// A content that is already here, for a sender.
    pub fn whole(content: impl Into<Box<[u8]>>) -> Self {
        HeapRing {
            bytes: content.into(),
            whole: true,
        }
    }

    /// The bytes as they lie.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    #[inline]
    fn place(&self, offset: u64, len: usize) -> Result<core::ops::Range<usize>, StoreError> {
        if self.whole {
            let start = usize::try_from(offset).map_err(|_| StoreError::NotStored)?;
            let end = start.checked_add(len).ok_or(StoreError::NotStored)?;
            return if end <= self.bytes.len() {
                Ok(start..end)
            } else {
                Err(StoreError::NotStored)
            };
        }
        place(self.bytes.len(), offset, len)
    }
}

impl Store for HeapRing {
    fn capacity(&self) -> Option<u64> {
        (!self.whole).then_some(self.bytes.len() as u64)
    }

    #[inline]
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let place = self.place(offset, bytes.len())?;
        self.bytes[place].copy_from_slice(bytes);
        Ok(())
    }

    #[inline]
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        out.copy_from_slice(&self.bytes[self.place(offset, out.len())?]);
        Ok(())
    }

    #[inline]
    fn block(&mut self, offset: u64, len: usize) -> Result<&[u8], StoreError> {
        let place = self.place(offset, len)?;
        Ok(&self.bytes[place])
    }
}
