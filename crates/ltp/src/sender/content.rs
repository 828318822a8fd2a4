//! The content: its store, and how far it was sent.

use crate::Geometry;
use crate::config::SenderConfig;
use crate::store::Store;

/// The store, and the position of the next packet.
pub(super) struct Content<S> {
    pub(super) store: S,
    pub(super) geometry: Geometry,
    /// Bytes of the content that are in the store.
    pub(super) written: u64,
    pub(super) length: Option<u64>,
    /// Packets of the content, once known.
    pub(super) total: Option<u64>,
    /// The first block that is sent; not 0 after a restart.
    pub(super) first_block: u64,
    /// Next packet never sent; its block, and its index there.
    pub(super) next: u64,
    pub(super) block: u64,
    pub(super) index: u32,
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
            first_block: 0,
            next: 0,
            block: 0,
            index: 0,
        }
    }

    /// Continues at that block.
    pub(super) fn skip_to(&mut self, block: u64) {
        let total = self.total.unwrap_or(u64::MAX);
        self.next = self.geometry.first_packet(block).min(total);
        (self.block, self.first_block) = (block, block);
    }

    /// No more bytes will be written.
    pub(super) fn finish(&mut self) {
        self.length = Some(self.written);
        self.total = self.geometry.packets(self.written);
    }

    /// Returns the number of blocks whose first packet was sent.
    pub(super) fn blocks_begun(&self) -> u64 {
        self.block + u64::from(self.index > 0)
    }

    /// Returns the first block that the store still holds whole.
    pub(super) fn oldest_block(&self) -> u64 {
        let Some(capacity) = self.store.capacity() else {
            return 0;
        };
        self.geometry.blocks(self.written.saturating_sub(capacity))
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
