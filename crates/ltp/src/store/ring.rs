use super::{Store, StoreError, place};

/// A ring of `N` bytes inside the value: no heap. `N` must be a multiple of the block length.
#[derive(Clone, Debug)]
pub struct ArrayRing<const N: usize> {
    bytes: [u8; N],
}

impl<const N: usize> ArrayRing<N> {
    /// An empty ring.
    pub const fn new() -> Self {
        ArrayRing { bytes: [0; N] }
    }
}

impl<const N: usize> Default for ArrayRing<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Store for ArrayRing<N> {
    fn capacity(&self) -> Option<u64> {
        Some(N as u64)
    }

    #[inline]
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.bytes[place(N, offset, bytes.len())?].copy_from_slice(bytes);
        Ok(())
    }

    #[inline]
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        out.copy_from_slice(&self.bytes[place(N, offset, out.len())?]);
        Ok(())
    }

    #[inline]
    fn block(&mut self, offset: u64, len: usize) -> Result<&[u8], StoreError> {
        Ok(&self.bytes[place(N, offset, len)?])
    }
}
