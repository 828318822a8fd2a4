//! Making parity.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use reed_solomon_simd::ReedSolomonEncoder;

use super::{Owned, shard_len};
use crate::Geometry;

/// Bytes of parity kept, or one block's if that is more.
const KEPT: usize = 1 << 20;
/// Blocks of which it is known how much parity was sent, a power of two: those of a receiver's window by default.
const TRACKED: usize = 1024;

/// All parity of one block.
struct Parity {
    block: u32,
    packets: u32,
    shards: Box<[u8]>,
    /// The count of uses when it was last used.
    used: u64,
}

/// How much parity of one block was sent.
#[derive(Clone, Copy, Default)]
struct Sent {
    block: u32,
    /// The next index, plus 1; 0: none was sent.
    next: u8,
    is_requested: bool,
}

/// Makes parity of whole blocks, and remembers which of it was sent: what is sent next was not sent before, until all
/// was.
///
/// Memory: 1 MiB of parity, or that of one block; the code's tables (about two blocks); 8 KiB.
pub(crate) struct Encoder {
    code: Option<ReedSolomonEncoder>,
    geometry: Geometry,
    kept: Vec<Parity>,
    most: usize,
    uses: u64,
    sent: Box<[Sent]>,
    seed: u64,
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder")
            .field("geometry", &self.geometry)
            .field("kept", &self.kept.len())
            .finish_non_exhaustive()
    }
}

impl Encoder {
    /// Creates an encoder. With a seed of 0 it begins with the first parity of each block, else somewhere in it: hosts
    /// with different seeds rarely send the same. `None` without a heap.
    pub(crate) fn new(geometry: &Geometry, seed: u64) -> Option<Owned<Self>> {
        let block_len = shard_len(geometry.payload_len()) * geometry.packets_per_block() as usize;
        let most = (KEPT / block_len).max(1);
        Some(Box::new(Encoder {
            code: None,
            geometry: *geometry,
            kept: Vec::new(),
            most,
            uses: 0,
            sent: vec![Sent::default(); TRACKED].into(),
            seed,
        }))
    }

    /// Whether the parity of a block is made.
    pub(crate) fn holds(&self, block: u32) -> bool {
        self.kept.iter().any(|parity| parity.block == block)
    }

    /// Makes the parity of a block of that many packets from all its bytes. Returns false if these do not fit the
    /// geometry.
    pub(crate) fn load(&mut self, block: u32, packets: u32, bytes: &[u8]) -> bool {
        let payload_len = usize::from(self.geometry.payload_len());
        let shard_len = shard_len(self.geometry.payload_len());
        let count = packets as usize;
        if count == 0 || bytes.len().div_ceil(payload_len) != count {
            return false;
        }
        let Some(shards) = self.encode(bytes, count, payload_len, shard_len) else {
            return false;
        };
        if self.kept.len() >= self.most {
            let oldest = self.kept.iter().enumerate().min_by_key(|(_, one)| one.used);
            if let Some((at, _)) = oldest {
                self.kept.swap_remove(at);
            }
        }
        self.uses += 1;
        self.kept.push(Parity {
            block,
            packets,
            shards,
            used: self.uses,
        });
        true
    }

    fn encode(
        &mut self,
        bytes: &[u8],
        count: usize,
        payload_len: usize,
        shard_len: usize,
    ) -> Option<Box<[u8]>> {
        match &mut self.code {
            Some(code) => code.reset(count, count, shard_len).ok()?,
            None => {
                let code = ReedSolomonEncoder::new(count, count, shard_len).ok()?;
                self.code = Some(code);
            }
        }
        let code = self.code.as_mut()?;
        let mut padded = vec![0; shard_len];
        for payload in bytes.chunks(payload_len) {
            if payload.len() == shard_len {
                code.add_original_shard(payload).ok()?;
            } else {
                let (content, zeros) = padded.split_at_mut(payload.len());
                content.copy_from_slice(payload);
                zeros.fill(0);
                code.add_original_shard(&padded).ok()?;
            }
        }
        let made = code.encode().ok()?;
        let mut shards = Vec::with_capacity(count * shard_len);
        for shard in made.recovery_iter() {
            shards.extend_from_slice(shard);
        }
        Some(shards.into())
    }

    /// Writes the next parity packet of a block whose parity is made. Returns its index; `None` if it is not made, or
    /// the shard is of another length.
    pub(crate) fn next(&mut self, block: u32, shard: &mut [u8]) -> Option<u8> {
        let first = self.first(block);
        self.uses += 1;
        let parity = self.kept.iter_mut().find(|parity| parity.block == block)?;
        parity.used = self.uses;
        let sent = sent_of(&mut self.sent, block);
        if sent.next == 0 {
            sent.next = 1 + (first % parity.packets) as u8;
        }
        let index = sent.next - 1;
        sent.next = 1 + ((u32::from(index) + 1) % parity.packets) as u8;
        let start = usize::from(index) * shard.len();
        shard.copy_from_slice(parity.shards.get(start..start + shard.len())?);
        Some(index)
    }

    /// Something of a block was requested. Returns whether for the first time, as far as is known.
    pub(crate) fn is_first_request(&mut self, block: u32) -> bool {
        let sent = sent_of(&mut self.sent, block);
        !core::mem::replace(&mut sent.is_requested, true)
    }

    /// Returns where the parity of a block begins.
    fn first(&self, block: u32) -> u32 {
        let mixed = u64::from(block)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(1);
        (self.seed.wrapping_mul(mixed) >> 40) as u32
    }
}

/// Returns the entry of a block, which replaces that of another one in its place.
fn sent_of(table: &mut [Sent], block: u32) -> &mut Sent {
    let sent = &mut table[block as usize & (TRACKED - 1)];
    if sent.block != block {
        *sent = Sent {
            block,
            ..Sent::default()
        };
    }
    sent
}
