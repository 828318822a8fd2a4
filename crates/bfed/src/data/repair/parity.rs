//! Parity: restores lost packets where an answer to a request would come too late.
//!
//! A receiver that has no time to ask still says which packets are missing, when it gives them up. For each such request the
//! sender makes one parity packet more for each block, four at most, and 1/256 less after each block: links that lose nothing
//! soon have none again. A block is [`BLOCK`] packets, or those of [`BLOCK_TIME`] if
//! these are four, or those of a quarter of a lifetime.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use proto_core::time::{Duration, Instant};
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

use super::super::queue::Timing;
use super::Pool;
use crate::wire::data::Kind;
use crate::wire::parity::{self, Repr, Shard};

/// Packets of a block.
const BLOCK: usize = 16;
/// Packets of a block for each parity packet, at least.
const PER_PARITY: usize = 4;
/// Time after which a block ends with fewer.
pub(super) const BLOCK_TIME: Duration = Duration::from_millis(40);
/// Parity in units of a packet for each block: what a request adds, and the most there can be.
const UNIT: u32 = 256;
const MOST: u32 = UNIT * (BLOCK / PER_PARITY) as u32;
/// Most packets, and bytes of packets, that a receiver keeps to restore others.
const MAX_RECENT: usize = 96;
const MAX_BYTES: usize = 192 << 10;
/// Most blocks whose parity a receiver keeps.
const MAX_BLOCKS: usize = 8;
/// A sender that has sent no parity for this long sends none any more.
const SILENCE: Duration = Duration::from_secs(2);

/// A packet of a block.
#[derive(Debug)]
struct Member {
    kind: Kind,
    timing: Timing,
    bytes: Arc<[u8]>,
}

impl Member {
    fn shard(&self) -> Shard<'_> {
        Shard {
            kind: self.kind,
            class: self.timing.class,
            payload: &self.bytes,
        }
    }
}

/// The parity packets of a block.
#[derive(Debug)]
pub(super) struct Made {
    /// The number of the first packet.
    pub(super) first: u32,
    /// Class and time of the first packet.
    pub(super) timing: Timing,
    pub(super) payloads: Vec<Arc<[u8]>>,
}

/// The sender's side of an edge.
#[derive(Debug, Default)]
pub(super) struct Protection {
    /// Parity for each block, in [`UNIT`]s.
    amount: u32,
    first: u32,
    began: Instant,
    block: Vec<Member>,
}

impl Protection {
    /// The receiver lost packets that it had no time to ask for.
    pub(super) fn raise(&mut self) {
        self.amount = (self.amount + UNIT).min(MOST);
    }

    /// Adds the packet that was sent last. Returns the parity of the block that it ends.
    pub(super) fn add(
        &mut self,
        now: Instant,
        sequence: u32,
        (kind, bytes): (Kind, Arc<[u8]>),
        timing: Timing,
    ) -> Option<Made> {
        if self.amount == 0 {
            return None;
        }
        let next = self.first.wrapping_add(self.block.len() as u32);
        if self.block.is_empty() || next != sequence {
            self.block.clear();
            (self.first, self.began) = (sequence, now);
        }
        self.block.push(Member {
            kind,
            timing,
            bytes,
        });
        let age = now - self.began;
        let quarter = timing.class.lifetime().map_or(BLOCK_TIME, |all| all / 4);
        let is_over = match self.block.len() {
            BLOCK.. => true,
            PER_PARITY.. => age >= BLOCK_TIME.min(quarter),
            _ => age >= quarter,
        };
        is_over.then(|| self.end()).flatten()
    }

    /// Ends the block. Returns its parity.
    pub(super) fn end(&mut self) -> Option<Made> {
        let block = core::mem::take(&mut self.block);
        let timing = block.first()?.timing;
        let most = (block.len() / PER_PARITY).max(1);
        let total = (self.amount.div_ceil(UNIT) as usize).min(most);
        self.amount = self.amount.saturating_sub(1);
        let payloads = encode(&block, total)?;
        Some(Made {
            first: self.first,
            timing,
            payloads,
        })
    }
}

/// Returns the payloads of the parity packets of a block.
fn encode(block: &[Member], total: usize) -> Option<Vec<Arc<[u8]>>> {
    let lens = block.iter().map(|member| member.shard().buffer_len());
    let len = lens.max()?;
    let mut code = ReedSolomonEncoder::new(block.len(), total, len).ok()?;
    let mut shard = vec![0; len];
    for member in block {
        member.shard().emit(&mut shard);
        code.add_original_shard(&shard).ok()?;
    }
    let made = code.encode().ok()?;
    let payload = |(index, shard): (usize, &[u8])| {
        let mut payload = vec![0; parity::LEN + len];
        Repr {
            count: block.len() as u8,
            total: total as u8,
            index: index as u8,
        }
        .emit(&mut payload);
        payload[parity::LEN..].copy_from_slice(shard);
        payload.into()
    };
    Some(made.recovery_iter().enumerate().map(payload).collect())
}

/// A packet that was restored.
#[derive(Debug)]
pub(super) struct Restored {
    pub(super) sequence: u32,
    pub(super) kind: Kind,
    pub(super) timing: Timing,
    pub(super) bytes: Arc<[u8]>,
}

/// A packet that may restore others.
#[derive(Debug)]
struct Recent {
    sequence: u32,
    member: Member,
}

/// The parity of a block.
#[derive(Debug)]
struct Block {
    first: u32,
    front: Repr,
    len: usize,
    timing: Timing,
    shards: Vec<(u8, Arc<[u8]>)>,
}

impl Block {
    fn place(&self, sequence: u32) -> Option<usize> {
        let place = sequence.wrapping_sub(self.first);
        (place < u32::from(self.front.count)).then_some(place as usize)
    }
}

/// The receiver's side of an edge whose sender sends parity.
#[derive(Debug)]
pub(super) struct Blocks {
    /// By number.
    recent: VecDeque<Recent>,
    blocks: VecDeque<Block>,
    bytes: usize,
    heard_at: Instant,
}

impl Blocks {
    pub(super) fn new(now: Instant) -> Self {
        Blocks {
            recent: VecDeque::new(),
            blocks: VecDeque::new(),
            bytes: 0,
            heard_at: now,
        }
    }

    /// Returns whether the sender still sends parity.
    pub(super) fn is_active(&self, now: Instant) -> bool {
        now <= self.heard_at + SILENCE
    }

    /// Returns the bytes that are kept.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn take_room(&mut self, len: usize, pool: &mut Pool) -> bool {
        while !self.recent.is_empty()
            && (self.recent.len() >= MAX_RECENT || self.bytes + len > MAX_BYTES || !pool.fits(len))
        {
            let oldest = self.recent.pop_front();
            self.give_back(oldest.map_or(0, |one| one.member.bytes.len()), pool);
        }
        let fits = self.bytes + len <= MAX_BYTES && pool.fits(len);
        if fits {
            self.bytes += len;
            pool.add(len);
        }
        fits
    }

    fn give_back(&mut self, len: usize, pool: &mut Pool) {
        self.bytes -= len;
        pool.remove(len);
    }

    /// Keeps a packet that has arrived.
    pub(super) fn arrived(
        &mut self,
        sequence: u32,
        (kind, bytes): (Kind, Arc<[u8]>),
        timing: Timing,
        pool: &mut Pool,
    ) {
        if self.take_room(bytes.len(), pool) {
            let member = Member {
                kind,
                timing,
                bytes,
            };
            self.recent.push_back(Recent { sequence, member });
        }
    }

    /// Keeps a parity packet.
    pub(super) fn heard(
        &mut self,
        now: Instant,
        first: u32,
        (front, shard): (Repr, &[u8]),
        timing: Timing,
        pool: &mut Pool,
    ) {
        self.heard_at = now;
        let known = self.blocks.iter().position(|block| block.first == first);
        let at = known.unwrap_or_else(|| {
            if self.blocks.len() >= MAX_BLOCKS {
                self.forget(0, pool);
            }
            self.blocks.push_back(Block {
                first,
                front,
                len: shard.len(),
                timing,
                shards: Vec::new(),
            });
            self.blocks.len() - 1
        });
        let block = &self.blocks[at];
        let fits = (block.front.count, block.front.total, block.len)
            == (front.count, front.total, shard.len());
        let is_known = block.shards.iter().any(|(index, _)| *index == front.index);
        if fits && !is_known && self.take_room(shard.len(), pool) {
            self.blocks[at].shards.push((front.index, shard.into()));
        }
    }

    fn forget(&mut self, at: usize, pool: &mut Pool) {
        if let Some(block) = self.blocks.remove(at) {
            let bytes = block.shards.iter().map(|(_, shard)| shard.len()).sum();
            self.give_back(bytes, pool);
        }
    }

    /// Restores the lost packets of the blocks of which enough has arrived.
    pub(super) fn restore(&mut self, pool: &mut Pool) -> Vec<Restored> {
        let mut all = Vec::new();
        let mut at = 0;
        while let Some(block) = self.blocks.get(at) {
            let mut have = vec![None; block.front.count.into()];
            for one in &self.recent {
                if let Some(place) = block.place(one.sequence) {
                    have[place] = Some(&one.member);
                }
            }
            let missing = have.iter().filter(|one| one.is_none()).count();
            if missing > block.shards.len() {
                at += 1;
                continue;
            }
            if missing > 0 {
                all.extend(decode(block, &have).unwrap_or_default());
            }
            self.forget(at, pool);
        }
        all
    }
}

fn decode(block: &Block, have: &[Option<&Member>]) -> Option<Vec<Restored>> {
    let (count, total) = (have.len(), usize::from(block.front.total));
    let mut code = ReedSolomonDecoder::new(count, total, block.len).ok()?;
    let mut shard = vec![0; block.len];
    for (place, member) in have.iter().enumerate() {
        if let Some(member) = member {
            let packet = member.shard();
            // Longer than the block's longest packet: the sender lies.
            if packet.buffer_len() > block.len {
                return None;
            }
            packet.emit(&mut shard);
            code.add_original_shard(place, &shard).ok()?;
        }
    }
    for (index, shard) in &block.shards {
        code.add_recovery_shard((*index).into(), shard).ok()?;
    }
    let restored = code.decode().ok()?;
    let packet = |(place, shard): (usize, &[u8])| {
        let shard = Shard::parse(shard).ok()?;
        Some(Restored {
            sequence: block.first.wrapping_add(place as u32),
            kind: shard.kind,
            timing: Timing {
                class: shard.class,
                ..block.timing
            },
            bytes: shard.payload.into(),
        })
    };
    Some(
        restored
            .restored_original_iter()
            .filter_map(packet)
            .collect(),
    )
}
