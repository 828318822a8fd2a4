//! The tag option, which a forger without the session's key cannot compute.
//!
//! What follows the tag in a segment, nearly always its data, is compressed by the universal hash NH (Black, Halevi,
//! Krawczyk, Krovetz and Rogaway, "UMAC: Fast and Secure Message Authentication", 1999), which is one multiplication
//! for each 16 bytes. SipHash-2-4 signs the result, its length, the header and the position. NH alone would reveal its
//! key; under a pseudorandom function it reveals nothing but that two segments are equal.

use alloc::boxed::Box;
use core::fmt;
use core::hash::Hasher;

use siphasher::sip::SipHasher24;

use super::{EXPERIMENT, HEADER_BYTES, KIND_TAG};
use crate::seq::Seq;

/// The key of a session's tags: 128 bits shared by the sender and its receivers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SegmentKey(pub [u8; 16]);

impl fmt::Debug for SegmentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SegmentKey(..)")
    }
}

/// The tag option: 64 bits over the segment and where in which stream it belongs.
///
/// ```text
/// +---------------+---------------+-------------------------------+
/// |  kind 254     |  length 12    |  experiment identifier 0x584d |
/// +---------------+---------------+-------------------------------+
/// |  tag (8 bytes)                                                |
/// +---------------------------------------------------------------+
/// ```
///
/// A forged segment is accepted with a probability of 2^-64; one that has the tag of the genuine segment for the same
/// position, with 2^-63, because its data may also have the same hash. An attacker who sends a million a second for an
/// hour succeeds with one of 2^-31, and then has inserted bytes into a stream whose records are encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Tag(pub [u8; 8]);

/// The position of a segment: hashed with it, so that it is valid nowhere else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The initial sequence number of the receiver that it goes to; `None`: to the group.
    pub receiver: Option<Seq>,
    /// Offset of its sequence number in the stream: a segment from 4 GiB before is not valid again.
    pub offset: i64,
}

impl Tag {
    /// Bytes of the whole option.
    pub const LEN: usize = 12;

    /// Parses the option's value after kind and length.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (identifier, tag) = value.split_first_chunk::<2>()?;
        let ours = u16::from_be_bytes(*identifier) == EXPERIMENT;
        tag.try_into().ok().filter(|_| ours).map(Self)
    }

    /// Writes the whole option and returns its length.
    ///
    /// # Panics
    ///
    /// When the buffer is shorter than [`Tag::LEN`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        buffer[..4].copy_from_slice(&HEAD);
        buffer[4..Self::LEN].copy_from_slice(&self.0);
        Self::LEN
    }
}

/// First bytes of the option.
const HEAD: [u8; 4] = {
    let [high, low] = EXPERIMENT.to_be_bytes();
    [KIND_TAG, Tag::LEN as u8, high, low]
};
/// Timestamps with the padding before them, and their first bytes.
const TIMESTAMPS_BYTES: usize = 12;
const TIMESTAMPS_HEAD: [u8; 4] = [1, 1, 8, 10];

/// Bytes that are compressed to 16: the data of one packet on Ethernet is one block.
const BLOCK_BYTES: usize = 1536;
/// Bytes of one multiplication.
const PAIR_BYTES: usize = 16;

/// Returns the position of the tag in a segment: before all other options except timestamps.
pub(super) fn place_of_tag(segment: &[u8]) -> Option<usize> {
    let stamped = segment.get(HEADER_BYTES..)?.starts_with(&TIMESTAMPS_HEAD);
    let at = HEADER_BYTES + if stamped { TIMESTAMPS_BYTES } else { 0 };
    let header_len = usize::from(segment[12] >> 4) * 4;
    let whole = at + Tag::LEN <= header_len.min(segment.len());
    (whole && segment[at..].starts_with(&HEAD)).then_some(at + HEAD.len())
}

impl SegmentKey {
    /// Expands the key, for many segments.
    #[must_use]
    pub fn signer(&self) -> Signer {
        // No tag is computed over as few bytes: its input has 36 at least.
        let word = |number: usize| {
            let mut hasher = SipHasher24::new_with_key(&self.0);
            hasher.write(&(number as u64).to_le_bytes());
            hasher.finish()
        };
        let pairs = (0..BLOCK_BYTES / PAIR_BYTES).map(|pair| [word(2 * pair), word(2 * pair + 1)]);
        Signer {
            key: *self,
            pairs: pairs.collect(),
        }
    }

    /// Signs one segment: [`Signer::sign`].
    pub fn sign(&self, place: Place, segment: &mut [u8]) {
        self.signer().sign(place, segment);
    }

    /// Verifies one segment: [`Signer::verify`].
    #[must_use]
    pub fn verify(&self, place: Place, segment: &[u8]) -> bool {
        self.signer().verify(place, segment)
    }
}

/// A [`SegmentKey`] with the key of the universal hash that is derived from it: 1.5 KiB on the heap.
#[derive(Clone)]
pub struct Signer {
    key: SegmentKey,
    pairs: Box<[[u64; 2]]>,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer(..)")
    }
}

impl Signer {
    /// Writes the tag into a whole segment that has space for it ([`Options::tag`](super::Options::tag)). Does
    /// nothing otherwise.
    pub fn sign(&self, place: Place, segment: &mut [u8]) {
        if let Some(at) = place_of_tag(segment) {
            let tag = self.tag(place, segment, at);
            segment[at..at + 8].copy_from_slice(&tag);
        }
    }

    /// Whether a whole segment has the right tag, at its place.
    #[must_use]
    pub fn verify(&self, place: Place, segment: &[u8]) -> bool {
        place_of_tag(segment).is_some_and(|at| {
            let tag = u64::from_ne_bytes(self.tag(place, segment, at));
            let found = segment[at..].first_chunk().copied();
            // One comparison of words: its time does not reveal where they differ.
            found.map(u64::from_ne_bytes) == Some(tag)
        })
    }

    /// The hash, with the checksum and the tag itself read as 0.
    fn tag(&self, place: Place, segment: &[u8], at: usize) -> [u8; 8] {
        let rest = &segment[at + 8..];
        let mut head = [0; 16];
        head[0] = u8::from(place.receiver.is_some());
        head[2..4].copy_from_slice(&(rest.len() as u16).to_be_bytes());
        head[4..8].copy_from_slice(&place.receiver.unwrap_or_default().0.to_be_bytes());
        head[8..].copy_from_slice(&place.offset.to_be_bytes());
        let mut start = [0; HEADER_BYTES + TIMESTAMPS_BYTES + Tag::LEN];
        let start = &mut start[..at + 8];
        start[..at].copy_from_slice(&segment[..at]);
        start[16..18].fill(0);
        let mut hasher = SipHasher24::new_with_key(&self.key.0);
        hasher.write(&head);
        for block in rest.chunks(BLOCK_BYTES) {
            hasher.write(&self.compress(block).to_le_bytes());
        }
        // Last, because its length is no multiple of the hash's words.
        hasher.write(start);
        hasher.finish().to_le_bytes()
    }

    /// NH with words of 64 bits: two blocks of one length have the same value with a probability of 2^-64.
    fn compress(&self, block: &[u8]) -> u128 {
        let (whole, rest) = block.as_chunks::<PAIR_BYTES>();
        let mut keys = self.pairs.iter();
        let mut sum = 0u128;
        for (pair, key) in whole.iter().zip(&mut keys) {
            sum = sum.wrapping_add(product(*pair, *key));
        }
        if let Some(key) = keys.next()
            && !rest.is_empty()
        {
            let mut pair = [0; PAIR_BYTES];
            pair[..rest.len()].copy_from_slice(rest);
            sum = sum.wrapping_add(product(pair, *key));
        }
        sum
    }
}

/// The product of the halves, each with its key added.
fn product(pair: [u8; PAIR_BYTES], [first, second]: [u64; 2]) -> u128 {
    let pair = u128::from_le_bytes(pair);
    let (a, b) = (pair as u64, (pair >> 64) as u64);
    u128::from(a.wrapping_add(first)) * u128::from(b.wrapping_add(second))
}
