use super::{Store, StoreError};

/// Keeps no bytes: for simulations. Payloads are whatever the buffer contained, so a session over it cannot have
/// digests.
#[derive(Clone, Copy, Default, Debug)]
pub struct NullStore;

impl Store for NullStore {
    fn capacity(&self) -> Option<u64> {
        None
    }

    #[inline]
    fn write(&mut self, _offset: u64, _bytes: &[u8]) -> Result<(), StoreError> {
        Ok(())
    }

    #[inline]
    fn read(&mut self, _offset: u64, _out: &mut [u8]) -> Result<(), StoreError> {
        Ok(())
    }

    fn block(&mut self, _offset: u64, _len: usize) -> Result<&[u8], StoreError> {
        Err(StoreError::NotStored)
    }
}
