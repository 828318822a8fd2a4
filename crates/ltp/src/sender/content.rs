//! The content: its store, and how far it was sent.

#[cfg(test)]
mod tests;

use crate::Geometry;
use crate::config::SenderConfig;
use crate::error::Error;
use crate::store::{Store, StoreError};
use crate::wire::{Seq, request};

/// The store, and the position of the next packet.
#[derive(Debug)]
pub(super) struct Content<S> {
    store: S,
    geometry: Geometry,
    /// Bytes of the content that are in the store.
    written: u64,
    /// Bytes and packets of the content, once known.
    length: Option<u64>,
    total: Option<u64>,
    /// Next packet never sent; its block, and its index there.
    next: u64,
    block: u64,
    index: u32,
}

impl<S: Store> Content<S> {
    pub(super) fn new(config: &SenderConfig, store: S, geometry: Geometry) -> Self {
        let total = config.length.and_then(|length| geometry.packets(length));
        Content {
            store,
            geometry,
            written: config.length.unwrap_or(0),
            length: config.length,
            total,
            next: 0,
            block: 0,
            index: 0,
        }
    }

    pub(super) fn store(&self) -> &S {
        &self.store
    }

    /// Whether what was sent is overwritten in time.
    pub(super) fn is_ring(&self) -> bool {
        self.store.capacity().is_some()
    }

    pub(super) fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(super) fn length(&self) -> Option<u64> {
        self.length
    }

    /// Returns the number of blocks, once known.
    pub(super) fn blocks(&self) -> Option<u64> {
        self.length.map(|length| self.geometry.blocks(length))
    }

    /// Returns how many bytes of a stream may be added if blocks from `lacked` on may not be overwritten.
    pub(super) fn room(&self, lacked: Option<u64>) -> u64 {
        if self.length.is_some() {
            return 0;
        }
        let limit = Geometry::MAX_BLOCKS << self.geometry.block_exponent();
        let Some(capacity) = self.store.capacity() else {
            return limit - self.written;
        };
        let keep = lacked.map_or(self.block, |lacked| lacked.min(self.block));
        (self.geometry.block_offset(keep) + capacity)
            .min(limit)
            .saturating_sub(self.written)
    }

    /// Adds bytes to a stream, no more than there is room for.
    pub(super) fn append(&mut self, mut bytes: &[u8]) -> Result<(), StoreError> {
        let block_len = self.geometry.block_len();
        while !bytes.is_empty() {
            let in_block = self.written as usize & (block_len - 1);
            let (head, rest) = bytes.split_at(bytes.len().min(block_len - in_block));
            self.store.write(self.written, head)?;
            self.written += head.len() as u64;
            bytes = rest;
        }
        Ok(())
    }

    /// Continues at that block.
    pub(super) fn skip_to(&mut self, block: u64) {
        let total = self.total.unwrap_or(u64::MAX);
        self.next = self.geometry.first_packet(block).min(total);
        self.block = block;
    }

    /// No more bytes will be written.
    pub(super) fn finish(&mut self) {
        self.length = Some(self.written);
        self.total = self.geometry.packets(self.written);
    }

    /// Returns the length of what is in the store, which is the content once that is finished.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Returns block and index of the next packet that was never sent.
    pub(super) fn position(&self) -> (u64, u32) {
        (self.block, self.index)
    }

    /// Returns the number of blocks whose first packet was sent.
    pub(super) fn blocks_begun(&self) -> u64 {
        self.block + u64::from(self.index > 0)
    }

    /// Returns the number of blocks that were sent whole, or skipped.
    pub(super) fn blocks_sent(&self) -> u64 {
        self.block
    }

    /// Returns the first block that the store still holds whole.
    pub(super) fn oldest_block(&self) -> u64 {
        let Some(capacity) = self.store.capacity() else {
            return 0;
        };
        self.geometry.blocks(self.written.saturating_sub(capacity))
    }

    /// Returns the oldest packet that is stored, or the next one if none was sent.
    pub(super) fn oldest(&self) -> u64 {
        let oldest = self.geometry.first_packet(self.oldest_block());
        oldest.min(self.next)
    }

    /// Returns how many packets a block has.
    pub(super) fn packets_of(&self, block: u64) -> u32 {
        self.geometry.mask(block, self.length).count_ones()
    }

    /// Returns the sequence of a packet.
    pub(super) fn sequence(&self, number: u64) -> Seq {
        Seq::of(number, self.geometry.first())
    }

    /// Returns the number of a packet that is near the next one.
    pub(super) fn number(&self, sequence: u32) -> Option<u64> {
        Seq(sequence).number(self.geometry.first(), self.next)
    }

    /// Returns the packets of a range that were sent and are stored: for each block a mask.
    pub(super) fn requested(
        &self,
        range: &request::Range,
    ) -> Result<impl Iterator<Item = (u64, u64)> + use<S>, Error> {
        let clipped = self.geometry.clip(range, self.next, self.next);
        let (lo, hi) = clipped.ok_or(Error::RequestUnsent)?;
        let oldest = self.geometry.first_packet(self.oldest_block());
        if hi < oldest {
            return Err(Error::RequestNotStored);
        }
        Ok(self.geometry.masks(lo.max(oldest), hi))
    }

    /// Reads the payload of a packet, padded with zeros at the end of a block.
    pub(super) fn read(
        &mut self,
        block: u64,
        index: u32,
        payload: &mut [u8],
    ) -> Result<(), StoreError> {
        let (offset, len) = self.geometry.span(block, index, self.length);
        let (content, padding) = payload.split_at_mut(len);
        padding.fill(0);
        self.store.read(offset, content)
    }

    /// Returns the offset and the bytes of a block.
    pub(super) fn block(&mut self, block: u64) -> Result<(u64, &[u8]), StoreError> {
        let offset = self.geometry.block_offset(block);
        let len = self.geometry.len_of(block, self.length);
        Ok((offset, self.store.block(offset, len)?))
    }

    /// Whether every packet was sent once.
    pub(super) fn is_sent(&self) -> bool {
        self.total.is_some_and(|total| self.next >= total)
    }

    /// Whether the next packet is in the store.
    pub(super) fn has_data(&self) -> bool {
        match self.total {
            Some(total) => self.next < total,
            None => {
                let (offset, len) = self.geometry.span(self.block, self.index, None);
                offset + len as u64 <= self.written
            }
        }
    }

    /// The next packet was sent. Returns whether it was the last of its block.
    pub(super) fn advance(&mut self) -> bool {
        self.next += 1;
        self.index += 1;
        self.index >= self.geometry.packets_per_block() || self.is_sent()
    }

    /// Continues with the next block.
    pub(super) fn begin_block(&mut self) {
        self.block += 1;
        self.index = 0;
    }

    /// Returns the bytes sent at least once.
    pub(super) fn sent_len(&self) -> u64 {
        let (block, index) = self.geometry.locate(self.next);
        let sent = self.geometry.span(block, index, self.length).0;
        sent.min(self.written)
    }
}
