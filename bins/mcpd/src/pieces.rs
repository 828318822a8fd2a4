//! Splits a stream into whole pieces, in place: hashes and file systems work in pages and are slow with parts
//! of them.

use std::io::{self, Read};

/// Length of a piece: it stays in the processor's cache until it is hashed and written.
pub(crate) const PIECE: usize = 64 << 10;
/// Bytes after a piece are read with it, and moved to the front once every few pieces.
const ROOM: usize = 4 * PIECE;

/// A reader that reads ahead as far as its buffer allows.
pub(crate) struct Pieces<R> {
    inner: R,
    buffer: Vec<u8>,
    /// The bytes that were read but not returned yet.
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

    /// Returns the next bytes: `most`, or one piece if that is less; fewer only at the end of the stream.
    ///
    /// # Errors
    /// Errors of the stream.
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

    /// Returns a fixed number of bytes per read.
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
            // Blocks of files end anywhere.
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
