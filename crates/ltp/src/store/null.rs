use super::{Store, StoreError};

/// Keeps no bytes, only the protocol's books: for simulations. Payloads are whatever the buffer
/// held, so a session over it cannot have digests.
#[derive(Clone, Copy, Default, Debug)]
pub struct Lengths {
    capacity: Option<u64>,
}

impl Lengths {
    /// Holds everything.
    pub const fn new() -> Self {
        Lengths { capacity: None }
    }

    /// Pretends to be a ring of that many bytes.
    pub const fn with_capacity(capacity: u64) -> Self {
        Lengths {
            capacity: Some(capacity),
        }
    }
}

impl Store for Lengths {
    fn capacity(&self) -> Option<u64> {
        self.capacity
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
