//! Random losses and contents, by nothing of the crate under test.

/// xorshift64*, for losses: nothing of the crate under test.
#[derive(Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn chance(&mut self, per_million: u64) -> bool {
        (self.next() >> 20) % 1_000_000 < per_million
    }
}

pub(crate) fn content(len: usize, seed: u64) -> Vec<u8> {
    let mut dice = Dice::new(seed ^ 0xabcd);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&dice.next().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

pub(crate) fn seed(number: u64) -> [u8; 32] {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&number.to_le_bytes());
    seed
}
