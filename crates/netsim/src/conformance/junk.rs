//! Packets that mean nothing: random bytes, and beginnings of packets that were received.

use crate::rng::Rng;

/// Longest random packet in bytes.
const MAX_LEN: u64 = 1_500;

/// Writes one piece of junk: random bytes, or a true beginning of `sample`, which is a valid packet.
pub(super) fn generate(rng: &mut Rng, sample: Option<&[u8]>) -> Vec<u8> {
    match sample {
        Some(sample) if !sample.is_empty() && rng.chance(0.6) => {
            let len = rng.below(sample.len() as u64) as usize;
            sample[..len].to_vec()
        }
        _ => {
            let bound = if rng.chance(0.5) { 64 } else { MAX_LEN };
            let len = rng.between(0, bound);
            (0..len).map(|_| rng.next_u64() as u8).collect()
        }
    }
}
