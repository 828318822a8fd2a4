//! Parity that came, and blocks restored with it.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use reed_solomon_simd::ReedSolomonDecoder;

use super::{NotRestored, Packets, Put, shard_len};
use crate::Geometry;
use crate::replier::bits;

/// One parity packet.
struct Shard {
    block: u32,
    index: u8,
    bytes: Box<[u8]>,
}

/// The parity packets that wait for more packets of their blocks.
///
/// Memory: the packets, no more than given at creation, and the code's tables, about four blocks, once something was
/// restored.
pub(crate) struct Shelf {
    code: Option<Box<ReedSolomonDecoder>>,
    shards: Vec<Shard>,
    most: usize,
    shard_len: usize,
    payload_len: usize,
}

impl fmt::Debug for Shelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shelf")
            .field("held", &self.shards.len())
            .field("most", &self.most)
            .finish_non_exhaustive()
    }
}

impl Shelf {
    /// Creates an empty one, for that many parity packets.
    pub(crate) fn new(most: usize) -> Self {
        Shelf {
            code: None,
            shards: Vec::new(),
            most,
            shard_len: 0,
            payload_len: 0,
        }
    }

    /// Whether any parity can be held.
    pub(crate) fn is_usable(&self) -> bool {
        self.most > 0
    }

    /// Begins a session, of which nothing is held.
    pub(crate) fn begin(&mut self, geometry: &Geometry) {
        self.shards.clear();
        self.payload_len = usize::from(geometry.payload_len());
        self.shard_len = shard_len(geometry.payload_len());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    /// Returns how many parity packets of a block are held.
    pub(crate) fn count(&self, block: u32) -> u32 {
        self.shards.iter().filter(|one| one.block == block).count() as u32
    }

    /// Holds a parity packet. When there is no room, parity of the newest block gives way to that of an older one: the
    /// oldest blocks are restored first.
    pub(crate) fn put(&mut self, block: u32, index: u8, shard: &[u8]) -> Put {
        let is_held = |one: &Shard| one.block == block && one.index == index;
        if self.shards.iter().any(is_held) {
            return Put::Duplicate;
        }
        let mut put = Put::Held;
        if self.shards.len() >= self.most {
            let ahead = |one: &Shard| one.block.wrapping_sub(block) as i32;
            let newest = self.shards.iter().enumerate();
            let newest = newest.max_by_key(|(_, one)| ahead(one));
            match newest.filter(|(_, one)| ahead(one) > 0) {
                Some((at, one)) => {
                    put = Put::Instead(one.block);
                    self.shards.swap_remove(at);
                }
                None => return Put::Full,
            }
        }
        self.shards.push(Shard {
            block,
            index,
            bytes: shard.into(),
        });
        put
    }

    /// Drops the parity of a block.
    pub(crate) fn remove(&mut self, block: u32) {
        self.shards.retain(|one| one.block != block);
    }

    /// Restores the packets of a block of `count` packets that are not in the mask `received`, with the parity that is
    /// held of it, which is dropped.
    pub(crate) fn restore(
        &mut self,
        block: u32,
        (count, received): (u32, u64),
        packets: &mut impl Packets,
    ) -> Result<(), NotRestored> {
        let result = self.decode(block, (count, received), packets);
        self.remove(block);
        result
    }

    fn decode(
        &mut self,
        block: u32,
        (count, received): (u32, u64),
        packets: &mut impl Packets,
    ) -> Result<(), NotRestored> {
        let lacking = count.saturating_sub(received.count_ones()) as usize;
        let (count, shard_len) = (count as usize, self.shard_len);
        let code = |_| NotRestored::Code;
        match &mut self.code {
            Some(decoder) => decoder.reset(count, count, shard_len).map_err(code)?,
            None => {
                let decoder = ReedSolomonDecoder::new(count, count, shard_len);
                self.code = Some(Box::new(decoder.map_err(code)?));
            }
        }
        let decoder = self.code.as_mut().ok_or(NotRestored::Code)?;
        let mut shard = vec![0; shard_len];
        for index in bits(received) {
            let payload = &mut shard[..self.payload_len];
            packets.read(index, payload).map_err(NotRestored::Store)?;
            decoder
                .add_original_shard(index as usize, &shard)
                .map_err(code)?;
        }
        let of_block = self.shards.iter().filter(|one| one.block == block);
        for one in of_block.take(lacking) {
            decoder
                .add_recovery_shard(usize::from(one.index), &one.bytes)
                .map_err(code)?;
        }
        let restored = decoder.decode().map_err(code)?;
        for (index, shard) in restored.restored_original_iter() {
            let payload = shard.get(..self.payload_len).ok_or(NotRestored::Code)?;
            packets
                .write(index as u32, payload)
                .map_err(NotRestored::Store)?;
        }
        Ok(())
    }
}
