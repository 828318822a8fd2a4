//! Sent data of a group: the latest in memory, the rest in an archive.

use std::io;

use tcpxm::store::{Ring, Store, StoreError};

/// Reads data again that was written to a group, however long ago: for receivers that were detached and no
/// longer delay the others (`min_rate_bps` of [`GroupConfig`](crate::GroupConfig)).
///
/// The endpoint's thread calls it, and everything else waits meanwhile.
pub trait Archive: Send {
    /// Returns the offset of the stream up to which it can read. Later data stays in memory.
    fn end(&mut self) -> u64;

    /// Reads the bytes that were written at this offset of the stream.
    ///
    /// # Errors
    /// The bytes cannot be read or have changed. The receiver that needs them fails.
    fn read(&mut self, offset: u64, out: &mut [u8]) -> io::Result<()>;
}

/// A ring with the latest data, and optionally an archive of older data.
pub(crate) struct SendStore {
    ring: Ring,
    archive: Option<Box<dyn Archive>>,
    /// Data before this offset is not needed, or is in the archive.
    released: u64,
}

impl SendStore {
    pub(crate) fn new(capacity: usize, archive: Option<Box<dyn Archive>>) -> SendStore {
        SendStore {
            ring: Ring::new(capacity),
            archive,
            released: 0,
        }
    }
}

impl Store for SendStore {
    fn write(&mut self, bytes: &[u8]) -> usize {
        self.ring.write(bytes)
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let archive = match &mut self.archive {
            Some(archive) if offset < self.released => archive,
            _ => return self.ring.read(offset, out),
        };
        // The archive may end within a segment: the ring has the rest.
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
        let before = before.min(archived).min(self.end());
        self.released = self.released.max(before);
        self.ring.release(self.released);
    }

    fn is_rereadable(&self) -> bool {
        self.archive.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has the data in blocks; the last block only when it is complete.
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
        let mut held = SendStore::new(1024, Some(Box::new(Blocks(500))));
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

    /// Pieces of all lengths, compared with one long vector.
    #[test]
    fn what_was_written_is_read_as_it_was() {
        let mut x = 1u64;
        let mut random = move |below: usize| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(7);
            (x >> 33) as usize % below
        };
        let capacity = 1 << 20;
        let mut held = SendStore::new(capacity, None);
        let (mut all, mut released) = (Vec::new(), 0);
        for round in 0..300usize {
            let len = [10, 3000, 16 << 10, 64 << 10, 192 << 10][random(5)] + random(9);
            let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + round) as u8).collect();
            let room = held.room();
            assert_eq!(room, capacity - (all.len() - released));
            let written = held.write(&bytes);
            assert_eq!(written, len.min(room));
            all.extend_from_slice(&bytes[..written]);
            assert_eq!(held.end(), all.len() as u64);
            let mut at = released + random(all.len() - released + 1);
            for _ in 0..random(4) {
                let len = random(2000).min(all.len() - at);
                let mut out = vec![0; len];
                assert_eq!(held.read(at as u64, &mut out), Ok(()));
                assert!(out == all[at..at + len]);
                at += len;
            }
            released += random(all.len() - released + 1);
            held.release(released as u64);
            if released > 0 {
                let before = held.read(released as u64 - 1, &mut [0]);
                assert_eq!(before, Err(StoreError::NotHeld));
            }
        }
    }
}
