//! Capabilities of the calling thread (`capget`, `capset`, `prctl`).

use std::io;

use super::check;

#[repr(C)]
struct Header {
    version: u32,
    pid: libc::c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// `_LINUX_CAPABILITY_VERSION_3`: two words of each set.
const VERSION: u32 = 0x2008_0522;

fn get() -> io::Result<[Data; 2]> {
    let mut header = Header {
        version: VERSION,
        pid: 0,
    };
    let mut data = [Data::default(); 2];
    // SAFETY: version 3 writes two `Data`, which live through the call, and may write the header.
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(data)
    }
}

pub(crate) fn permitted() -> io::Result<u64> {
    let [low, high] = get()?;
    Ok(u64::from(low.permitted) | u64::from(high.permitted) << 32)
}

pub(crate) fn effective() -> io::Result<u64> {
    let [low, high] = get()?;
    Ok(u64::from(low.effective) | u64::from(high.effective) << 32)
}

/// Sets the effective and permitted sets, clears the inheritable and ambient ones.
pub(crate) fn set(mask: u64) -> io::Result<()> {
    prctl(
        libc::PR_CAP_AMBIENT,
        libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong,
    )?;
    let mut header = Header {
        version: VERSION,
        pid: 0,
    };
    let word = |mask: u64| Data {
        effective: mask as u32,
        permitted: mask as u32,
        inheritable: 0,
    };
    let data = [word(mask), word(mask >> 32)];
    // SAFETY: version 3 reads two `Data`, which live through the call.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// No exec gains privileges any more.
pub(crate) fn forbid_new() -> io::Result<()> {
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1)
}

/// The permitted set survives the change of user that follows.
pub(crate) fn keep_over_user_change() -> io::Result<()> {
    prctl(libc::PR_SET_KEEPCAPS, 1)
}

/// Drops everything outside `mask` from the bounding set, as far as we may (it takes
/// CAP_SETPCAP; without it the set bounds nothing that no_new_privs does not).
pub(crate) fn shrink_bounds(mask: u64) -> io::Result<()> {
    for capability in 0..64 {
        if mask & 1 << capability != 0 {
            continue;
        }
        match prctl(libc::PR_CAPBSET_DROP, capability) {
            Ok(()) => {}
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EPERM)) => break,
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn prctl(option: libc::c_int, value: libc::c_ulong) -> io::Result<()> {
    let zero: libc::c_ulong = 0;
    // SAFETY: none of the options used here takes a pointer; all five arguments are given.
    check(unsafe { libc::prctl(option, value, zero, zero, zero) })?;
    Ok(())
}
