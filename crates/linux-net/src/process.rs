//! Entropy for this process, and its limit on open file descriptors.

use std::fs::File;
use std::io::{self, Read};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Returns random bytes from the kernel's generator, such as the seed of a machine.
///
/// # Errors
/// `/dev/urandom` cannot be read.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Raises the soft limit on open file descriptors to the hard limit. Shells and service managers often set a soft
/// limit of 1024 for programs that use `select`.
pub fn raise_descriptor_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // On failure the old limit remains.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
