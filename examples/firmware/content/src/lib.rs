//! The file that is transferred: any part of it can be made again, so it need not be stored.
#![no_std]
#![forbid(unsafe_code)]

/// Its length in bytes: four times the memory of the machine, and an odd end.
pub const LENGTH: u64 = 256 * 1024 + 321;

/// Writes the bytes from `offset` on, until `out` is full.
pub fn fill(offset: u64, out: &mut [u8]) {
    for (byte, at) in out.iter_mut().zip(offset..) {
        *byte = word(at / 8).to_le_bytes()[(at % 8) as usize];
    }
}

/// SplitMix64: the word at this place of the sequence.
fn word(index: u64) -> u64 {
    let x = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
