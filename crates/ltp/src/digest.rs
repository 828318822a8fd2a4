//! Digests of blocks and of the whole from one pass, and the authenticator of control packets.

use core::fmt;

use blake3::Hasher;
use blake3::hazmat::{self, HasherExt, Mode};

use crate::wire::MAC_LEN;

/// A BLAKE3 digest or chaining value.
pub type Digest = [u8; 32];

/// There are fewer than 2^32 blocks, and one subtree waits for each bit.
const STACK_DEPTH: usize = 33;

/// BLAKE3, plain or keyed, as one session uses it.
#[derive(Clone)]
pub struct Hashing {
    key: Option<[u8; 32]>,
    mac_key: [u8; 32],
}

impl fmt::Debug for Hashing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hashing")
            .field("keyed", &self.key.is_some())
            .finish_non_exhaustive()
    }
}

impl Hashing {
    /// With a key, digests are keyed BLAKE3 and control packets carry an authenticator.
    pub fn new(key: Option<[u8; 32]>) -> Self {
        let mac_key = key.map_or([0; 32], |key| {
            blake3::derive_key("polycast ltp 1 authenticator of control packets", &key)
        });
        Hashing { key, mac_key }
    }

    /// Whether a key is set.
    pub fn is_keyed(&self) -> bool {
        self.key.is_some()
    }

    fn hasher(&self) -> Hasher {
        self.key
            .as_ref()
            .map_or_else(Hasher::new, Hasher::new_keyed)
    }

    fn mode(&self) -> Mode<'_> {
        self.key.as_ref().map_or(Mode::Hash, Mode::KeyedHash)
    }

    /// Chaining value of a block (not empty) that starts at `offset` of the content.
    pub fn block(&self, offset: u64, bytes: &[u8]) -> Digest {
        self.hasher()
            .set_input_offset(offset)
            .update(bytes)
            .finalize_non_root()
    }

    /// The digest of a content that fits one block.
    pub fn whole(&self, bytes: &[u8]) -> Digest {
        *self.hasher().update(bytes).finalize().as_bytes()
    }

    /// The authenticator of a packet.
    pub fn mac(&self, packet: &[u8]) -> [u8; MAC_LEN] {
        let hash = blake3::keyed_hash(&self.mac_key, packet);
        *hash
            .as_bytes()
            .first_chunk()
            .expect("a digest is longer than an authenticator")
    }

    /// Appends the authenticator to the packet in `buffer[..len]` when a key is set; the new
    /// length.
    ///
    /// # Panics
    /// If it does not fit.
    pub fn seal(&self, buffer: &mut [u8], len: usize) -> usize {
        if !self.is_keyed() {
            return len;
        }
        let mac = self.mac(&buffer[..len]);
        buffer[len..len + MAC_LEN].copy_from_slice(&mac);
        len + MAC_LEN
    }

    /// The packet without its authenticator; `None` when that is wrong.
    pub fn open<'p>(&self, packet: &'p [u8]) -> Option<&'p [u8]> {
        if !self.is_keyed() {
            return Some(packet);
        }
        let (body, mac) = packet.split_last_chunk::<MAC_LEN>()?;
        let want = self.mac(body);
        // No early exit: the time tells nothing about where a forgery fails.
        let differs = mac.iter().zip(&want).fold(0, |acc, (a, b)| acc | (a ^ b));
        (differs == 0).then_some(body)
    }

    /// Bytes that [`Hashing::seal`] adds.
    pub fn overhead(&self) -> usize {
        if self.is_keyed() { MAC_LEN } else { 0 }
    }
}

/// The chaining values of blocks in order, folded into the digest of the whole.
#[derive(Clone)]
pub struct Tree {
    stack: [Digest; STACK_DEPTH],
    depth: u8,
    count: u64,
    /// The digest if block 0 is all there is.
    single: Digest,
}

/// The part of the stack that is in use.
impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree")
            .field("stack", &&self.stack[..usize::from(self.depth)])
            .field("count", &self.count)
            .field("single", &self.single)
            .finish()
    }
}

impl Default for Tree {
    fn default() -> Self {
        Tree {
            stack: [[0; 32]; STACK_DEPTH],
            depth: 0,
            count: 0,
            single: [0; 32],
        }
    }
}

impl Tree {
    /// Creates a tree that continues after `count` blocks. `left` gives the chaining values of the largest
    /// whole subtrees of these, the first one first: one for each bit set in `count`.
    ///
    /// `None` if `left` gives more or fewer, or `count` is 0 or 2^32 and above.
    pub fn after(count: u64, left: &[Digest]) -> Option<Self> {
        let fits = left.len() == count.count_ones() as usize;
        if !fits || count == 0 || count > u64::from(u32::MAX) {
            return None;
        }
        let mut tree = Tree {
            depth: left.len() as u8,
            count,
            ..Tree::default()
        };
        tree.stack[..left.len()].copy_from_slice(left);
        Some(tree)
    }

    /// Number of blocks added, or passed over at the start.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Adds the next block. `single` is asked for the digest of block 0 as a whole content.
    pub fn push(&mut self, hashing: &Hashing, value: Digest, single: impl FnOnce() -> Digest) {
        if self.count == 0 {
            self.single = single();
        }
        while u32::from(self.depth) > self.count.count_ones() {
            self.depth -= 1;
            let right = self.stack[usize::from(self.depth)];
            let left = &mut self.stack[usize::from(self.depth) - 1];
            *left = hazmat::merge_subtrees_non_root(left, &right, hashing.mode());
        }
        self.stack[usize::from(self.depth)] = value;
        self.depth += 1;
        self.count += 1;
    }

    /// The digest of all blocks so far as the whole content. Means nothing when a tree that
    /// started late ([`Tree::after`]) has got no block yet.
    pub fn root(&self, hashing: &Hashing) -> Digest {
        let stack = &self.stack[..usize::from(self.depth)];
        match stack {
            [] => hashing.whole(&[]),
            [_] if self.count == 1 => self.single,
            [first, middle @ .., last] => {
                let mut right = *last;
                for left in middle.iter().rev() {
                    right = hazmat::merge_subtrees_non_root(left, &right, hashing.mode());
                }
                *hazmat::merge_subtrees_root(first, &right, hashing.mode()).as_bytes()
            }
            // A power of two of blocks is merged only when the next one comes, so one value
            // alone is one block alone.
            [only] => *only,
        }
    }
}

/// Remembers enough of a tree of chaining values to give those to the left of a recent block: of
/// each size the two latest subtrees that are left children.
///
/// 2,112 bytes and a counter; each block costs one merge in the mean.
#[derive(Clone)]
pub struct MerkleFrontier {
    nodes: [[Digest; 2]; STACK_DEPTH],
    count: u64,
}

/// The levels that are in use.
impl fmt::Debug for MerkleFrontier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let levels = (u64::BITS - self.count.leading_zeros()) as usize;
        f.debug_struct("MerkleFrontier")
            .field("nodes", &&self.nodes[..levels.min(STACK_DEPTH)])
            .field("count", &self.count)
            .finish()
    }
}

impl Default for MerkleFrontier {
    fn default() -> Self {
        MerkleFrontier {
            nodes: [[[0; 32]; 2]; STACK_DEPTH],
            count: 0,
        }
    }
}

/// Most merges to find the values to the left of one block.
const MOST_MERGES: u32 = 4096;

impl MerkleFrontier {
    /// Adds the next block; there are less than 2^32.
    pub fn push(&mut self, hashing: &Hashing, value: Digest) {
        let (mut index, mut value) = (self.count, value);
        for pair in &mut self.nodes {
            let place = &mut pair[(index >> 1 & 1) as usize];
            if index & 1 == 0 {
                *place = value;
                break;
            }
            value = hazmat::merge_subtrees_non_root(place, &value, hashing.mode());
            index >>= 1;
        }
        self.count += 1;
    }

    /// The values to the left of `block`, the first subtree first, handed to `each` with their
    /// number. `digest` names the chaining values of blocks that are still known.
    ///
    /// `None` if something is no longer known, or would take more than 4,096 merges; `each` may have
    /// been called by then.
    pub fn left_of(
        &self,
        hashing: &Hashing,
        block: u64,
        digest: impl Fn(u64) -> Option<Digest>,
        mut each: impl FnMut(usize, &Digest),
    ) -> Option<usize> {
        if block > self.count {
            return None;
        }
        let mut budget = MOST_MERGES;
        let mut number = 0;
        for level in (0..STACK_DEPTH as u32).rev() {
            let end = block >> level;
            if end & 1 == 1 {
                let value = self.node(hashing, level, end - 1, &digest, &mut budget)?;
                each(number, &value);
                number += 1;
            }
        }
        Some(number)
    }

    fn node(
        &self,
        hashing: &Hashing,
        level: u32,
        index: u64,
        digest: &impl Fn(u64) -> Option<Digest>,
        budget: &mut u32,
    ) -> Option<Digest> {
        let newest = (self.count >> level).checked_sub(1)? & !1;
        if index & 1 == 0 && (index == newest || index + 2 == newest) {
            return Some(self.nodes[level as usize][(index >> 1 & 1) as usize]);
        }
        if level == 0 {
            return digest(index);
        }
        *budget = budget.checked_sub(1)?;
        let left = self.node(hashing, level - 1, 2 * index, digest, budget)?;
        let right = self.node(hashing, level - 1, 2 * index + 1, digest, budget)?;
        Some(hazmat::merge_subtrees_non_root(
            &left,
            &right,
            hashing.mode(),
        ))
    }
}
