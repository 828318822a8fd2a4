//! BLAKE3 of files, block by block: the digests of a file's blocks fold into the digest that `b3sum`
//! prints for the file.

use blake3::Hasher;
use blake3::hazmat::{self, HasherExt, Mode};

use crate::limits::BLOCK_LEN;

/// A digest of a file or of a whole copy, or the chaining value of a block.
pub type Digest = [u8; 32];

/// Computes the digest of one block, piece by piece.
///
/// It is the block's BLAKE3 chaining value as a subtree at its place in the file; for the only block of
/// a file, the digest of the file.
#[derive(Clone, Debug)]
pub struct BlockHasher {
    hasher: Hasher,
    only: bool,
}

impl BlockHasher {
    /// For block `index` of a file of `len` bytes.
    pub fn new(index: u64, len: u64) -> Self {
        let mut hasher = Hasher::new();
        hasher.set_input_offset(index * BLOCK_LEN);
        BlockHasher {
            hasher,
            only: len <= BLOCK_LEN,
        }
    }

    /// Adds the next bytes of the block; in total they are exactly the block.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    /// Returns the digest of the block.
    pub fn finish(&self) -> Digest {
        if self.only {
            *self.hasher.finalize().as_bytes()
        } else {
            self.hasher.finalize_non_root()
        }
    }
}

/// Returns the digest of block `index` of a file of `len` bytes.
pub fn block(bytes: &[u8], index: u64, len: u64) -> Digest {
    let mut hasher = BlockHasher::new(index, len);
    hasher.update(bytes);
    hasher.finish()
}

/// Returns the digest of a file from those of all its blocks in order; without blocks, that of an empty file.
pub fn fold(blocks: &[Digest]) -> Digest {
    match blocks {
        [] => *blake3::hash(&[]).as_bytes(),
        [only] => *only,
        _ => {
            let (left, right) = halves(blocks);
            let mode = Mode::Hash;
            *hazmat::merge_subtrees_root(&subtree(left), &subtree(right), mode).as_bytes()
        }
    }
}

fn subtree(blocks: &[Digest]) -> Digest {
    if let [only] = blocks {
        return *only;
    }
    let (left, right) = halves(blocks);
    hazmat::merge_subtrees_non_root(&subtree(left), &subtree(right), Mode::Hash)
}

/// BLAKE3 trees: the left half is the largest power of two that leaves something for the right.
fn halves(blocks: &[Digest]) -> (&[Digest], &[Digest]) {
    blocks.split_at(blocks.len().next_power_of_two() / 2)
}
