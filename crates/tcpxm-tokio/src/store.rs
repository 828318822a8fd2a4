//! What a group has sent: the last of it in memory, the rest where it came from.

use std::io;

use tcpxm::store::{Ring, Store, StoreError};

/// Reads again what was written to a group, however long ago: for receivers that were detached, and
/// so no longer hold the others up (`min_rate_bps` of [`GroupConfig`](crate::GroupConfig)).
///
/// It is asked by the endpoint's thread, and everything else waits for it.
pub trait Archive: Send {
    /// Up to which offset of the stream it can read. What lies behind stays in memory.
    fn end(&mut self) -> u64;

    /// Reads the bytes that were written at this offset of the stream.
    ///
    /// # Errors
    /// They cannot be read, or are not what they were. The receiver that needs them fails.
    fn read(&mut self, offset: u64, out: &mut [u8]) -> io::Result<()>;
}

/// A ring, and perhaps an archive behind it.
pub(crate) struct Held {
    ring: Ring,
    archive: Option<Box<dyn Archive>>,
}

impl Held {
    pub(crate) fn new(capacity: usize, archive: Option<Box<dyn Archive>>) -> Held {
        Held {
            ring: Ring::new(capacity),
            archive,
        }
    }
}

impl Store for Held {
    fn write(&mut self, bytes: &[u8]) -> usize {
        self.ring.write(bytes)
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        match (self.ring.read(offset, out), &mut self.archive) {
            (Err(StoreError::NotHeld), Some(archive))
                if offset + out.len() as u64 <= self.ring.end() =>
            {
                archive.read(offset, out).map_err(|_| StoreError::Failed)
            }
            (read, _) => read,
        }
    }

    fn end(&self) -> u64 {
        self.ring.end()
    }

    fn room(&self) -> usize {
        self.ring.room()
    }

    fn release(&mut self, before: u64) {
        let archived = self
            .archive
            .as_mut()
            .map_or(u64::MAX, |archive| archive.end());
        self.ring.release(before.min(archived));
    }

    fn is_rereadable(&self) -> bool {
        self.archive.is_some()
    }
}
