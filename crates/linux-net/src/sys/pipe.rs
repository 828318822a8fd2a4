//! Pipes, and what moves bytes through them without a copy.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;

use super::{check, check_len};

/// A pipe: its ends to read and to write, close-on-exec and non-blocking.
pub(crate) fn open() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends: [libc::c_int; 2] = [-1; 2];
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: the kernel writes two descriptors to `ends`; they are new, and no other value owns them.
    unsafe {
        check(libc::pipe2(ends.as_mut_ptr(), flags))?;
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// Sets the size of a pipe in bytes.
pub(crate) fn resize(fd: &impl AsFd, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).map_err(io::Error::other)?;
    // SAFETY: takes integers only.
    check(unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_SETPIPE_SZ, bytes) })?;
    Ok(())
}

/// `splice` without waiting: moves up to `len` bytes; one of the descriptors is a pipe.
pub(crate) fn splice(from: &impl AsFd, to: &impl AsFd, len: usize) -> io::Result<usize> {
    let flags = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK;
    let (from, to) = (from.as_fd().as_raw_fd(), to.as_fd().as_raw_fd());
    loop {
        // SAFETY: takes integers, and null pointers where offsets could be.
        let moved = unsafe { libc::splice(from, null_mut(), to, null_mut(), len, flags) };
        match check_len(moved) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// `tee` without waiting: what is in one pipe is in both.
pub(crate) fn tee(from: &impl AsFd, to: &impl AsFd, len: usize) -> io::Result<usize> {
    let (from, to) = (from.as_fd().as_raw_fd(), to.as_fd().as_raw_fd());
    loop {
        // SAFETY: takes integers only.
        match check_len(unsafe { libc::tee(from, to, len, libc::SPLICE_F_NONBLOCK) }) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
