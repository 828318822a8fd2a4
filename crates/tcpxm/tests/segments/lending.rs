//! A store that lends, and scatter-gather output as a driver handles it. The fuzz target of the endpoint uses them too.

use tcpxm::SegmentBatch;
use tcpxm::store::{Ring, Store, StoreError};

/// Lends two thirds of what it holds.
pub(crate) struct Lending {
    ring: Ring,
    lent: Vec<u8>,
}

impl Lending {
    pub(crate) fn new(capacity: usize) -> Self {
        let (ring, lent) = (Ring::new(capacity), Vec::new());
        Self { ring, lent }
    }

    /// What was lent since the last time.
    pub(crate) fn take_lent(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.lent)
    }
}

impl Store for Lending {
    fn write(&mut self, bytes: &[u8]) -> usize {
        self.ring.write(bytes)
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        self.ring.read(offset, out)
    }

    fn lend(&mut self, offset: u64, len: usize) -> bool {
        let mut bytes = vec![0; len];
        let lends =
            !(offset / 5000).is_multiple_of(3) && self.ring.read(offset, &mut bytes).is_ok();
        if lends {
            self.lent.extend(bytes);
        }
        lends
    }

    fn end(&self) -> u64 {
        self.ring.end()
    }

    fn room(&self) -> usize {
        self.ring.room()
    }

    fn release(&mut self, before: u64) {
        self.ring.release(before);
    }
}

/// Puts segments together whose data was lent.
pub(crate) fn gather(batch: &SegmentBatch, buffer: &[u8], lent: &[u8]) -> Vec<u8> {
    let header_len = batch.header_len;
    let headers = buffer[..batch.written()].chunks(header_len);
    let data = lent.chunks(batch.segment_size - header_len);
    assert_eq!(
        (headers.len(), data.len()),
        (batch.segments, batch.segments)
    );
    headers
        .zip(data)
        .flat_map(|(h, d)| [h, d].concat())
        .collect()
}
