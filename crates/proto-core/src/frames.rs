//! Length-prefixed frames on a byte stream.
//!
//! ```
//! use proto_core::frames::{Frames, Framing};
//!
//! /// One byte that gives the length of the body.
//! #[derive(Debug)]
//! enum Short {}
//!
//! impl Framing for Short {
//!     const HEADER_LEN: usize = 1;
//!     type Error = core::convert::Infallible;
//!
//!     fn frame_len(header: &[u8]) -> Result<usize, Self::Error> {
//!         Ok(1 + usize::from(header[0]))
//!     }
//! }
//!
//! let mut frames = Frames::<Short>::new();
//! assert_eq!(frames.next(&mut &b"\x03ab"[..]), Ok(None));
//! let mut received = &b"c\x01d"[..];
//! assert_eq!(frames.next(&mut received), Ok(Some(&b"\x03abc"[..])));
//! assert_eq!(frames.next(&mut received), Ok(Some(&b"\x01d"[..])));
//! ```

use alloc::vec::Vec;
use core::marker::PhantomData;

/// The header that says how long a frame is.
pub trait Framing {
    /// Length of the header, in bytes.
    const HEADER_LEN: usize;
    /// Why a header is refused.
    type Error;

    /// Returns the length of the whole frame that begins with this header, at least
    /// [`HEADER_LEN`](Framing::HEADER_LEN).
    ///
    /// # Errors
    ///
    /// The header is malformed, or the frame longer than this protocol allows.
    fn frame_len(header: &[u8]) -> Result<usize, Self::Error>;
}

/// Cuts a byte stream into frames.
///
/// Holds one frame at most. A header that [`Framing::frame_len`] refuses is refused before any of the body is stored.
#[derive(Clone, Debug)]
pub struct Frames<F> {
    frame: Vec<u8>,
    /// The frame was returned: the next byte begins another.
    done: bool,
    framing: PhantomData<F>,
}

impl<F> Default for Frames<F> {
    fn default() -> Self {
        Frames {
            frame: Vec::new(),
            done: false,
            framing: PhantomData,
        }
    }
}

impl<F: Framing> Frames<F> {
    /// Returns a cutter at the start of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes from the front of `input` until a frame is whole or `input` is empty. Returns the whole frame,
    /// header and body, if there is one; call again with the rest of `input`.
    ///
    /// # Errors
    ///
    /// The header was refused: nothing more can be read from this stream. [`Frames::partial`] returns it.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<&[u8]>, F::Error> {
        if core::mem::take(&mut self.done) {
            self.frame.clear();
        }
        self.fill(input, F::HEADER_LEN);
        if self.frame.len() < F::HEADER_LEN {
            return Ok(None);
        }
        let len = F::frame_len(&self.frame)?;
        self.fill(input, len);
        self.done = self.frame.len() == len;
        Ok(self.done.then_some(&self.frame[..]))
    }

    /// Returns what has arrived of a frame that is not whole.
    #[must_use]
    pub fn partial(&self) -> &[u8] {
        if self.done { &[] } else { &self.frame }
    }

    /// Appends from `input` until the frame is `len` bytes long.
    fn fill(&mut self, input: &mut &[u8], len: usize) {
        let take = len.saturating_sub(self.frame.len()).min(input.len());
        let (bytes, rest) = input.split_at(take);
        self.frame.extend_from_slice(bytes);
        *input = rest;
    }
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// The body's length twice, so that headers can be wrong.
    #[derive(Clone, Debug)]
    enum Twice {}

    impl Framing for Twice {
        const HEADER_LEN: usize = 2;
        type Error = ();

        fn frame_len(header: &[u8]) -> Result<usize, ()> {
            (header[0] == header[1])
                .then_some(2 + usize::from(header[0]))
                .ok_or(())
        }
    }

    #[test]
    fn a_refused_header_can_be_read() {
        let mut frames = Frames::<Twice>::new();
        assert_eq!(frames.next(&mut &[1, 2, 3][..]), Err(()));
        assert_eq!(frames.partial(), [1, 2]);
    }

    proptest! {
        #[test]
        fn a_stream_may_be_cut_anywhere(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..9),
            piece in 1..9_usize,
        ) {
            let whole: Vec<Vec<u8>> = bodies
                .into_iter()
                .map(|body| [vec![body.len() as u8; 2], body].concat())
                .collect();
            let mut frames = Frames::<Twice>::new();
            let mut found = Vec::new();
            for mut input in whole.concat().chunks(piece) {
                while let Some(frame) = frames.next(&mut input).unwrap() {
                    found.push(frame.to_vec());
                }
                prop_assert!(input.is_empty());
            }
            prop_assert_eq!(found, whole);
            prop_assert!(frames.partial().is_empty());
        }
    }
}
