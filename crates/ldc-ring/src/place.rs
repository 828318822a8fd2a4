//! The payload of one message while the producer is at work in it.

use crate::block::{Block, HAS_EXTRA};
use crate::state::{self, READY};
use crate::sync::Ordering;

/// Gives a message back to the consumer when dropped.
pub(crate) struct Release<'a, K> {
    block: &'a Block<K>,
    position: u32,
}

impl<'a, K> Release<'a, K> {
    /// For a message that the producer has made `HELD`.
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

/// The payload of a message that the producer owns. Bytes go in and out by copy.
pub struct PayloadMut<'a, K> {
    block: &'a Block<K>,
    position: u32,
    len: usize,
    resizable: bool,
}

impl<'a, K> PayloadMut<'a, K> {
    /// Of a message that is being sent.
    #[inline]
    pub(crate) fn new(block: &'a Block<K>, position: u32, len: usize) -> Self {
        Self {
            block,
            position,
            len,
            resizable: false,
        }
    }

    /// Lets `change` at a message that the producer holds; what it answers, and the message's length now.
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

    /// Bytes of the message.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the message has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies `bytes` to `offset` of the message.
    ///
    /// # Panics
    ///
    /// When they would go over its end.
    #[inline]
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(
            offset <= self.len && bytes.len() <= self.len - offset,
            "past the message's end"
        );
        let shape = self.block.shape;
        // SAFETY: there is a `PayloadMut` only for slots whose state makes them the producer's.
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
    /// When they would go over its end.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        assert!(
            offset <= self.len && bytes.len() <= self.len - offset,
            "past the message's end"
        );
        let shape = self.block.shape;
        // SAFETY: as for `write`.
        unsafe { self.block.payload.read(shape, self.position, offset, bytes) };
    }

    /// Gives a message that is being modified another length, within the slots it has. `false`: it would
    /// need another number of slots, or is only being sent; nothing has changed.
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
