//! Giving up what a program no longer needs, for good.
//!
//! Open the sockets first, drop next, start threads last. What each socket requires afterwards is
//! in the table of the [crate's documentation](crate).

use std::io;

use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use thiserror::Error;

use crate::error::Capability;
use crate::sys;

/// Privileges were not dropped. The process must not go on: it may have dropped some of them.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DropError {
    /// Capabilities belong to threads: others would keep theirs.
    #[error("privileges must be dropped before other threads start; {threads} are running")]
    Threads {
        /// Threads of the process.
        threads: usize,
    },
    /// A capability to be kept is not there.
    #[error(
        "{0} is to be kept but the process does not have it: run as root or grant it with setcap"
    )]
    Missing(Capability),
    /// The user or group could not be changed.
    #[error("changing to user {uid} and group {gid}: {source}")]
    User {
        /// Target user.
        uid: u32,
        /// Target group.
        gid: u32,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Anything else.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel accepted everything, and yet capabilities are left.
    #[error("capabilities are left after dropping them (mask {effective:#x})")]
    NotDropped {
        /// What the process can still do.
        effective: u64,
    },
}

/// A user to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// User number.
    pub uid: u32,
    /// Group number; supplementary groups are given up.
    pub gid: u32,
}

/// Keeps only the capabilities in `keep`, optionally becomes another user, and forbids the
/// process ever to gain any (no_new_privs). Checks afterwards that it holds.
///
/// Capabilities that the process does not have fail the call when they are to be kept. Call it
/// before starting threads.
///
/// # Errors
/// [`DropError`]: other threads run, a capability in `keep` is missing, the user cannot be changed, or a capability was
/// not dropped. The process must not continue.
pub fn drop_to(keep: &[Capability], user: Option<User>) -> Result<(), DropError> {
    let io = |what| move |source| DropError::Io { what, source };
    let threads = sys::count_threads().map_err(io("counting threads"))?;
    if threads != 1 {
        return Err(DropError::Threads { threads });
    }
    let mask = keep.iter().fold(0, |mask, c| mask | 1_u64 << c.number());
    let have = sys::capability::permitted().map_err(io("reading capabilities"))?;
    if let Some(missing) = keep.iter().find(|c| have & 1 << c.number() == 0) {
        return Err(DropError::Missing(*missing));
    }
    sys::capability::forbid_new().map_err(io("forbidding new privileges"))?;
    sys::capability::shrink_bounds(mask).map_err(io("shrinking the capability bounds"))?;
    if let Some(User { uid, gid }) = user {
        sys::capability::keep_over_user_change().map_err(io("keeping capabilities"))?;
        let (user, group) = (Uid::from_raw(uid), Gid::from_raw(gid));
        setgroups(&[group])
            .and_then(|()| setresgid(group, group, group))
            .and_then(|()| setresuid(user, user, user))
            .map_err(|e| DropError::User {
                uid,
                gid,
                source: e.into(),
            })?;
    }
    sys::capability::set(mask).map_err(io("dropping capabilities"))?;
    let effective = sys::capability::effective().map_err(io("reading capabilities"))?;
    if effective & !mask != 0 {
        return Err(DropError::NotDropped { effective });
    }
    Ok(())
}

/// The capability is in effect for the calling thread: for a clear message before trying.
pub fn has(capability: Capability) -> bool {
    sys::capability::effective().is_ok_and(|mask| mask & 1 << capability.number() != 0)
}
