//! Sent data of a group: the latest in memory, in blocks from which packets are sent; the rest in an archive.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use bytes::Bytes;
use tcpxm::store::{Store, StoreError};

use crate::seal::OVERHEAD;

/// Reads data again that was written to a group, however long ago: for receivers that were detached and no
/// longer delay the others (`min_rate_bps` of [`GroupConfig`](crate::GroupConfig)).
///
/// The endpoint's thread calls it, and everything else waits meanwhile.
pub trait Archive: Send {
    /// Returns the offset of the stream up to which it can read. Later data stays in memory.
    fn end(&mut self) -> u64;

    /// Reads the bytes that were written at this offset of the stream.
    ///
    /// # Errors
    /// The bytes cannot be read or have changed. The receiver that needs them fails.
    fn read(&mut self, offset: u64, out: &mut [u8]) -> io::Result<()>;
}

/// Length of the blocks into which smaller writes are collected.
pub(crate) const BLOCK: usize = 64 << 10;
/// Shorter pieces are copied: a block for each would cost more than the copy.
pub(crate) const LEAST_BLOCK: usize = 16 << 10;
/// Capacity of a block from the store: an encrypted record is longer than its plaintext.
pub(crate) const ROOM: usize = BLOCK + OVERHEAD;
/// Blocks that are kept for reuse.
const SPARE: usize = 32;

/// A piece of the stream and its offset.
struct Block {
    start: u64,
    bytes: Bytes,
}

impl Block {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

/// Blocks from which packets are sent without a copy, and optionally an archive of older data.
pub(crate) struct BlockStore {
    /// Consecutive blocks. The part of the first one before `released` is no longer needed.
    blocks: VecDeque<Block>,
    /// The bytes that follow the blocks.
    tail: Vec<u8>,
    /// The offset of the end of the stream.
    end: u64,
    capacity: usize,
    archive: Option<Box<dyn Archive>>,
    /// Data before this offset is not needed, or is in the archive.
    released: u64,
    /// Data lent by the machine since it was last taken.
    lent: Vec<(Bytes, Range<usize>)>,
    spare: Vec<Vec<u8>>,
}

impl BlockStore {
    pub(crate) fn new(capacity: usize, archive: Option<Box<dyn Archive>>) -> BlockStore {
        BlockStore {
            blocks: VecDeque::new(),
            tail: Vec::new(),
            end: 0,
            capacity,
            archive,
            released: 0,
            lent: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Takes as much of a block as there is space for, without a copy; the rest stays in `block`.
    pub(crate) fn write_block(&mut self, block: &mut Bytes) {
        let taken = block.split_to(block.len().min(self.room()));
        if taken.len() < LEAST_BLOCK {
            self.write(&taken);
            return;
        }
        self.close_tail();
        let start = self.end;
        self.end += taken.len() as u64;
        self.blocks.push_back(Block {
            start,
            bytes: taken,
        });
    }

    /// Returns memory for a block, perhaps without capacity. Recently used memory is reused.
    pub(crate) fn block(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Takes the data that was lent since the last call, in order.
    pub(crate) fn take_lent(&mut self, into: &mut Vec<Bytes>) {
        let lent = self.lent.drain(..);
        into.extend(lent.map(|(bytes, range)| bytes.slice(range)));
    }

    fn close_tail(&mut self) {
        if self.tail.is_empty() {
            return;
        }
        let next = self.block();
        let mut bytes = std::mem::replace(&mut self.tail, next);
        if bytes.len() < bytes.capacity() / 2 {
            bytes.shrink_to_fit();
        }
        let start = self.end - bytes.len() as u64;
        let bytes = Bytes::from(bytes);
        self.blocks.push_back(Block { start, bytes });
    }

    /// Returns the offset of the tail.
    fn tail_start(&self) -> u64 {
        self.end - self.tail.len() as u64
    }

    /// Returns the number of the block with the byte at an offset.
    fn find(&self, offset: u64) -> usize {
        self.blocks.partition_point(|block| block.end() <= offset)
    }

    fn read_held(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let end = offset + out.len() as u64;
        if offset < self.released || end > self.end {
            return Err(StoreError::NotHeld);
        }
        let (mut at, mut rest) = (offset, out);
        let first = self.find(offset);
        let tail = (self.tail_start(), &self.tail[..]);
        let blocks = self.blocks.range(first..);
        let pieces = blocks.map(|block| (block.start, &block.bytes[..]));
        for (start, bytes) in pieces.chain([tail]) {
            let from = &bytes[(at - start) as usize..];
            let (out, behind) = rest.split_at_mut(rest.len().min(from.len()));
            out.copy_from_slice(&from[..out.len()]);
            at += out.len() as u64;
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        Ok(())
    }
}

impl Store for BlockStore {
    fn write(&mut self, bytes: &[u8]) -> usize {
        let len = bytes.len().min(self.room());
        let mut rest = &bytes[..len];
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rest.len().min(BLOCK - self.tail.len()));
            if self.tail.is_empty() {
                self.tail.reserve_exact(ROOM);
            }
            self.tail.extend_from_slice(piece);
            self.end += piece.len() as u64;
            rest = behind;
            if self.tail.len() == BLOCK {
                self.close_tail();
            }
        }
        len
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let archive = match &mut self.archive {
            Some(archive) if offset < self.released => archive,
            _ => return self.read_held(offset, out),
        };
        // The archive may end within a segment: the blocks have the rest.
        let old = (self.released - offset).min(out.len() as u64) as usize;
        let (old, rest) = out.split_at_mut(old);
        archive.read(offset, old).map_err(|_| StoreError::Failed)?;
        self.read_held(self.released, rest)
    }

    fn lend(&mut self, offset: u64, len: usize) -> bool {
        let end = offset + len as u64;
        if offset < self.released || end > self.tail_start() {
            return false;
        }
        let mut at = offset;
        let first = self.find(offset);
        for block in self.blocks.range(first..) {
            if at >= end {
                break;
            }
            let from = (at - block.start) as usize;
            let to = (end.min(block.end()) - block.start) as usize;
            at = block.start + to as u64;
            match self.lent.last_mut() {
                Some((bytes, range))
                    if bytes.as_ptr() == block.bytes.as_ptr() && range.end == from =>
                {
                    range.end = to;
                }
                _ => self.lent.push((block.bytes.clone(), from..to)),
            }
        }
        true
    }

    fn end(&self) -> u64 {
        self.end
    }

    fn room(&self) -> usize {
        self.capacity - (self.end - self.released) as usize
    }

    fn release(&mut self, before: u64) {
        let archived = self
            .archive
            .as_mut()
            .map_or(u64::MAX, |archive| archive.end());
        let before = before.min(archived).min(self.end);
        self.released = self.released.max(before);
        while let Some(first) = self.blocks.front()
            && first.end() <= self.released
        {
            let Some(Block { bytes, .. }) = self.blocks.pop_front() else {
                return;
            };
            // Reuse only blocks of this store that are not shared.
            if (BLOCK..=ROOM).contains(&bytes.len())
                && self.spare.len() < SPARE
                && let Ok(bytes) = bytes.try_into_mut()
            {
                let mut bytes = Vec::from(bytes);
                bytes.clear();
                if bytes.capacity() == ROOM {
                    self.spare.push(bytes);
                }
            }
        }
    }

    fn is_rereadable(&self) -> bool {
        self.archive.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has the data in blocks; the last block only when it is complete.
    struct Blocks(u64);

    impl Archive for Blocks {
        fn end(&mut self) -> u64 {
            self.0
        }

        fn read(&mut self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            if offset + out.len() as u64 > self.0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            for (byte, at) in out.iter_mut().zip(offset..) {
                *byte = at as u8;
            }
            Ok(())
        }
    }

    #[test]
    fn a_segment_across_the_end_of_the_archive_can_be_read() {
        let mut held = BlockStore::new(1024, Some(Box::new(Blocks(500))));
        let bytes: Vec<u8> = (0..800u64).map(|at| at as u8).collect();
        assert_eq!(held.write(&bytes), 800);
        held.release(700);
        for from in [0, 400, 450, 499, 500, 700] {
            let mut out = [0; 100];
            assert_eq!(held.read(from, &mut out), Ok(()), "{from}");
            assert!(out == bytes[from as usize..][..100], "{from}");
        }
        assert_eq!(held.read(701, &mut [0; 100]), Err(StoreError::NotHeld));
    }

    /// Pieces of all lengths, copied and as blocks, compared with one long vector.
    #[test]
    fn what_was_written_is_read_and_lent_as_it_was() {
        let mut x = 1u64;
        let mut random = move |below: usize| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(7);
            (x >> 33) as usize % below
        };
        let capacity = 1 << 20;
        let mut held = BlockStore::new(capacity, None);
        let (mut all, mut released, mut lent) = (Vec::new(), 0, 0);
        for round in 0..300usize {
            let len = [10, 3000, LEAST_BLOCK, BLOCK, 3 * BLOCK][random(5)] + random(9);
            let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + round) as u8).collect();
            let room = held.room();
            assert_eq!(room, capacity - (all.len() - released));
            let written = if random(2) == 0 {
                held.write(&bytes)
            } else {
                let mut block = Bytes::from(bytes.clone());
                held.write_block(&mut block);
                assert_eq!(block[..], bytes[len - block.len()..]);
                len - block.len()
            };
            assert_eq!(written, len.min(room));
            all.extend_from_slice(&bytes[..written]);
            assert_eq!(held.end(), all.len() as u64);
            let (mut parts, mut wanted) = (Vec::new(), Vec::new());
            let mut at = released + random(all.len() - released + 1);
            for _ in 0..random(4) {
                let len = random(2000).min(all.len() - at);
                let mut out = vec![0; len];
                assert_eq!(held.read(at as u64, &mut out), Ok(()));
                assert!(out == all[at..at + len]);
                if len > 0 && held.lend(at as u64, len) {
                    wanted.extend_from_slice(&out);
                }
                at += len;
            }
            held.take_lent(&mut parts);
            assert!(parts.concat() == wanted);
            lent += wanted.len();
            released += random(all.len() - released + 1);
            held.release(released as u64);
            assert!(!held.lend(released as u64, all.len() + 1 - released));
            if released > 0 {
                let before = held.read(released as u64 - 1, &mut [0]);
                assert_eq!(before, Err(StoreError::NotHeld));
                assert!(!held.lend(released as u64 - 1, 1));
            }
            let blocks: usize = held.blocks.iter().map(|block| block.bytes.len()).sum();
            let held_bytes = all.len() - released;
            assert!(blocks + held.tail.len() < held_bytes + 3 * BLOCK + 9);
            assert!(held.spare.len() <= SPARE);
        }
        assert!(lent > 50_000, "{lent}");
        assert!(!held.spare.is_empty());
    }
}
