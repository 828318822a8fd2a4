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
    /// What lies before has left the ring.
    released: u64,
}

impl Held {
    pub(crate) fn new(capacity: usize, archive: Option<Box<dyn Archive>>) -> Held {
        Held {
            ring: Ring::new(capacity),
            archive,
            released: 0,
        }
    }
}

impl Store for Held {
    fn write(&mut self, bytes: &[u8]) -> usize {
        self.ring.write(bytes)
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let archive = match &mut self.archive {
            Some(archive) if offset < self.released => archive,
            _ => return self.ring.read(offset, out),
        };
        // What is archived may end in the midst of a segment: the ring has the rest of it.
        let old = (self.released - offset).min(out.len() as u64) as usize;
        let (old, rest) = out.split_at_mut(old);
        archive.read(offset, old).map_err(|_| StoreError::Failed)?;
        self.ring.read(self.released, rest)
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
        let before = before.min(archived).min(self.ring.end());
        self.released = self.released.max(before);
        self.ring.release(before);
    }

    fn is_rereadable(&self) -> bool {
        self.archive.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has what was written, block by block: the last one only once it is complete.
    struct Blocks(u64);

    impl Archive for Blocks {
        fn end(&mut self) -> u64 {
            self.0
        }

        fn read(&mut self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            if offset + out.len() as u64 > self.0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            for (byte, at) in out.iter_mut().zip(offset..) {
                *byte = at as u8;
            }
            Ok(())
        }
    }

    #[test]
    fn a_segment_across_the_end_of_the_archive_can_be_read() {
        let mut held = Held::new(1024, Some(Box::new(Blocks(500))));
        let bytes: Vec<u8> = (0..800u64).map(|at| at as u8).collect();
        assert_eq!(held.write(&bytes), 800);
        held.release(700);
        for from in [0, 400, 450, 499, 500, 700] {
            let mut out = [0; 100];
            assert_eq!(held.read(from, &mut out), Ok(()), "{from}");
            assert!(out == bytes[from as usize..][..100], "{from}");
        }
        assert_eq!(held.read(701, &mut [0; 100]), Err(StoreError::NotHeld));
    }
}
