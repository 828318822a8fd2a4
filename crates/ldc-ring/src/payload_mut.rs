//! The payload of one message while the producer owns it.

use crate::block::{Block, HAS_EXTRA};
use crate::state::{self, READY};
use crate::sync::Ordering;

/// Releases a message to the consumer when dropped.
pub(crate) struct Release<'a, K> {
    block: &'a Block<K>,
    position: u32,
}

impl<'a, K> Release<'a, K> {
    /// Guards a message that the producer has set to `HELD`.
    pub(crate) fn new(block: &'a Block<K>, position: u32) -> Self {
        Self { block, position }
    }
}

impl<K> Drop for Release<'_, K> {
    fn drop(&mut self) {
        let word = state::word(self.position, READY);
        self.block
            .record(self.position)
            .state
            .store(word, Ordering::Release);
    }
}

/// The payload of a message that the producer owns. Bytes are copied in and out.
pub struct PayloadMut<'a, K> {
    block: &'a Block<K>,
    position: u32,
    len: usize,
    resizable: bool,
}

impl<'a, K> PayloadMut<'a, K> {
    /// Returns the payload of a message that is being sent.
    #[inline]
    pub(crate) fn new(block: &'a Block<K>, position: u32, len: usize) -> Self {
        Self {
            block,
            position,
            len,
            resizable: false,
        }
    }

    /// Runs `change` on a message that the producer holds. Returns its result and the new length of the message.
    pub(crate) fn run<R>(
        block: &'a Block<K>,
        position: u32,
        len: u32,
        change: impl FnOnce(&mut PayloadMut<'a, K>) -> R,
    ) -> (R, u32) {
        let mut payload = PayloadMut {
            block,
            position,
            len: len as usize,
            resizable: true,
        };
        let result = change(&mut payload);
        (result, payload.len as u32)
    }

    /// Returns the length of the message in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the message has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies `bytes` to `offset` of the message.
    ///
    /// # Panics
    ///
    /// If the range exceeds the message.
    #[inline]
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(
            offset <= self.len && bytes.len() <= self.len - offset,
            "past the message's end"
        );
        let shape = self.block.shape;
        // SAFETY: a `PayloadMut` exists only for slots that the producer owns.
        unsafe {
            self.block
                .payload
                .write(shape, self.position, offset, bytes);
        };
    }

    /// Copies from `offset` of the message into `bytes`.
    ///
    /// # Panics
    ///
    /// If the range exceeds the message.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        assert!(
            offset <= self.len && bytes.len() <= self.len - offset,
            "past the message's end"
        );
        let shape = self.block.shape;
        // SAFETY: as for `write`.
        unsafe { self.block.payload.read(shape, self.position, offset, bytes) };
    }

    /// Changes the length of a message that is being modified, within its slots. Returns `false` and changes nothing if
    /// it would need a different number of slots, or if the message is being sent.
    pub fn resize(&mut self, len: usize) -> bool {
        let shape = self.block.shape;
        if !self.resizable
            || len > shape.max_message()
            || shape.pieces(len) != shape.pieces(self.len)
        {
            return false;
        }
        let word = &self.block.record(self.position).len;
        let extra = word.load(Ordering::Relaxed) & HAS_EXTRA;
        word.store(len as u32 | extra, Ordering::Relaxed);
        self.len = len;
        true
    }
}
