//! Whole messages out of a byte stream.

use alloc::vec::Vec;

use super::{HEADER_LEN, Header, ParseError};

/// Cuts a byte stream into messages. It holds one message at most
/// ([`MAX_MESSAGE_LEN`](super::MAX_MESSAGE_LEN)), and refuses one that is too long, or of another
/// version, when its header is there, before its body is kept.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    frame: Vec<u8>,
    /// The newest message was handed out: the next byte starts another.
    done: bool,
}

impl Frames {
    /// At the start of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes from the front of `input`, until a message is whole or `input` is empty; the
    /// message, if there is one. Call it again with what is left of `input`.
    ///
    /// # Errors
    /// The header is wrong: nothing more can be read from this stream. The machine is to be told
    /// with what was read so far ([`Frames::partial`]), so that it can say why to the other side.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<&[u8]>, ParseError> {
        if core::mem::take(&mut self.done) {
            self.frame.clear();
        }
        self.fill(input, HEADER_LEN);
        if self.frame.len() < HEADER_LEN {
            return Ok(None);
        }
        let len = Header::new_checked(&self.frame)?.message_len();
        self.fill(input, len);
        self.done = self.frame.len() == len;
        Ok(self.done.then_some(&self.frame[..]))
    }

    /// What was read of a message that is not whole.
    #[must_use]
    pub fn partial(&self) -> &[u8] {
        if self.done { &[] } else { &self.frame }
    }

    /// Appends from `input` until `len` bytes are there.
    fn fill(&mut self, input: &mut &[u8], len: usize) {
        let take = len.saturating_sub(self.frame.len()).min(input.len());
        let (bytes, rest) = input.split_at(take);
        self.frame.extend_from_slice(bytes);
        *input = rest;
    }
}
