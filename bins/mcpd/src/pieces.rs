//! A stream in whole pieces, where they lie: hashes and file systems work in pages, and are slow at
//! halves of them.

use std::io::{self, Read};

/// Data is taken in pieces that the processor's cache holds until they are hashed and written.
pub(crate) const PIECE: usize = 64 << 10;
/// What follows a piece comes with it, and is moved to the front once in a few of them.
const ROOM: usize = 4 * PIECE;

/// Reads ahead as far as there is room.
pub(crate) struct Pieces<R> {
    inner: R,
    buffer: Vec<u8>,
    /// What was read and not taken.
    start: usize,
    end: usize,
}

impl<R: Read> Pieces<R> {
    pub(crate) fn new(inner: R) -> Self {
        Pieces {
            inner,
            buffer: vec![0; ROOM],
            start: 0,
            end: 0,
        }
    }

    /// The next `most` bytes, or a piece where that is less; less than that only before the end of the
    /// stream.
    ///
    /// # Errors
    /// Those of the stream.
    pub(crate) fn next(&mut self, most: usize) -> io::Result<&[u8]> {
        let wanted = most.min(PIECE);
        if self.start + 2 * PIECE > ROOM {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        while self.end - self.start < wanted {
            match self.inner.read(&mut self.buffer[self.end..]) {
                Ok(0) => break,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let start = self.start;
        self.start += wanted.min(self.end - start);
        Ok(&self.buffer[start..self.start])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives so many bytes at a time.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let len = self.1.min(out.len());
            self.0.read(&mut out[..len])
        }
    }

    #[test]
    fn pieces_are_whole_and_in_order() {
        let bytes: Vec<u8> = (0..10 * PIECE + 77).map(|at| (at * 31 / 7) as u8).collect();
        for step in [77, 4096, 65_000, PIECE, 3 * PIECE, usize::MAX] {
            let mut pieces = Pieces::new(Slow(&bytes, step));
            let mut rest = &bytes[..];
            // As the blocks of files end anywhere.
            for most in [5, usize::MAX, 2 * PIECE, 1000].into_iter().cycle() {
                let wanted = most.min(PIECE).min(rest.len());
                let (expected, behind) = rest.split_at(wanted);
                assert!(pieces.next(most).expect("read") == expected, "{step}");
                rest = behind;
                if wanted == 0 {
                    break;
                }
            }
        }
    }
}
