//! The clock that machines are driven with, and the entropy that seeds them.

use std::io::{self, Read};

pub use proto_core::clock::Clock;

/// Returns a seed for a machine, from the kernel's generator.
///
/// # Errors
/// `/dev/urandom` cannot be read.
pub fn seed() -> io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut seed)?;
    Ok(seed)
}
