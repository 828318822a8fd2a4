//! Limits that the system sets for this process.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the limit on open file descriptors to the most that the system permits. The one that shells and
/// service managers set (often 1024) is meant for programs that use `select`.
pub fn raise_descriptors() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // Where it cannot be raised the old one holds.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}
