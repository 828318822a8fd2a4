//! The body of HELD and BLOCKS: the number of the first block (64 bits), then the digests of that block and those after it.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use super::{ParseError, put_u64, u64_at};
use crate::digest::Digest;
use crate::limits::{MAX_BLOCKS, MAX_HELD};

/// Length of the body without digests.
const FIXED_LEN: usize = 8;
/// Lengths of the body with 1 to [`MAX_HELD`] digests.
pub(super) const LENGTHS: RangeInclusive<usize> = body_len(1)..=body_len(MAX_HELD);

/// Returns the length of the body with that many digests.
pub(super) const fn body_len(digests: usize) -> usize {
    FIXED_LEN + 32 * digests
}

/// Parses a body whose length is one of [`LENGTHS`].
pub(super) fn parse(body: &[u8]) -> Result<(u64, Vec<Digest>), ParseError> {
    let first = u64_at(body, 0);
    let (digests, rest) = body[FIXED_LEN..].as_chunks::<32>();
    if !rest.is_empty() {
        return Err(ParseError::Length);
    }
    if first > MAX_BLOCKS - digests.len() as u64 {
        return Err(ParseError::Value);
    }
    Ok((first, digests.to_vec()))
}

pub(super) fn emit(body: &mut [u8], first: u64, digests: &[Digest]) {
    put_u64(body, 0, first);
    for (place, digest) in body[FIXED_LEN..].chunks_mut(32).zip(digests) {
        place.copy_from_slice(digest);
    }
}
