//! System calls behind safe functions.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use ldc_ring::Claimed;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

use crate::memory::Consumer;

/// Receives bytes and the first descriptor that arrives with them; closes all others. `flags` are those of `recvmsg`.
pub(crate) fn receive_with_fd(
    socket: &UnixStream,
    bytes: IoSliceMut<'_>,
    flags: MsgFlags,
) -> Result<(usize, Option<OwnedFd>), Errno> {
    // Room for surplus descriptors, so that they can be closed.
    let mut control = nix::cmsg_space!([std::os::fd::RawFd; 8]);
    let mut slices = [bytes];
    let flags = flags | MsgFlags::MSG_CMSG_CLOEXEC;
    let fd = socket.as_raw_fd();
    let message = recvmsg::<()>(fd, &mut slices, Some(&mut control), flags)?;
    let mut first = None;
    for part in message.cmsgs().into_iter().flatten() {
        if let ControlMessageOwned::ScmRights(fds) = part {
            for fd in fds {
                // SAFETY: the kernel has just created it for this process; it has no other owner.
                let owned = unsafe { OwnedFd::from_raw_fd(fd) };
                first.get_or_insert(owned);
            }
        }
    }
    Ok((message.bytes, first))
}

/// Duplicates a descriptor that a program in another language has as a number.
///
/// # Errors
/// The kernel's: the number is no descriptor, or no more can be opened.
///
/// # Safety
/// I/O safety (see [`std::os::fd`]): if the number is a descriptor, the program owns it or has borrowed it. It is not one that a Rust
/// value owns and lends to no other code.
pub unsafe fn duplicate(number: RawFd) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: not -1; the caller's promise, and the borrow ends with this call.
    unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned()
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// `setsockopt` with an integer.
pub(crate) fn set_int(
    fd: &impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: pointer and length describe `value`, which the kernel only reads during the call.
    check(unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(&value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    })
}

/// The state of a TCP connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TcpInfo {
    /// The connection has ended.
    pub(crate) closed: bool,
    /// Maximum segment size, bytes.
    pub(crate) mss: u32,
    /// Congestion window, segments.
    pub(crate) cwnd: u32,
    /// Smoothed round-trip time, microseconds.
    pub(crate) rtt_us: u32,
    /// Bytes that were not sent yet.
    pub(crate) notsent: u32,
}

/// `getsockopt(TCP_INFO)`. Linux 4.6 and newer.
pub(crate) fn tcp_info(fd: &impl AsFd) -> io::Result<TcpInfo> {
    // `struct tcp_info` of linux/tcp.h up to `tcpi_notsent_bytes`, as 32-bit words: it has no padding, begins with
    // eight single bytes, and grows only at its end.
    let mut words = [0u32; 37];
    let mut len = size_of_val(&words) as libc::socklen_t;
    // SAFETY: pointer and length describe `words`, which outlives the call; the kernel writes at most `len` bytes.
    check(unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            words.as_mut_ptr().cast(),
            &raw mut len,
        )
    })?;
    if (len as usize) < size_of_val(&words) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(TcpInfo {
        // `tcpi_state` is the first byte; TCP_CLOSE.
        closed: words[0].to_ne_bytes()[0] == 7,
        mss: words[4],
        cwnd: words[20],
        rtt_us: words[17],
        notsent: words[36],
    })
}

/// `SIOCOUTQ`: bytes that the peer has not acknowledged, including unsent ones.
pub(crate) fn unacknowledged(fd: &impl AsFd) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one integer during the call.
    check(unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// Maximum number of messages in one call of [`send`].
pub(crate) const BATCH: usize = 64;

/// `sendmsg` of at most [`BATCH`] claimed messages, each with the ring it lies in, the first from `offset` on. Never blocks and raises no signal.
/// Returns the number of bytes sent.
pub(crate) fn send<'a>(
    fd: &impl AsFd,
    messages: impl Iterator<Item = (&'a Consumer, &'a Claimed)>,
    mut offset: usize,
) -> io::Result<usize> {
    let mut parts = [const { empty() }; 2 * BATCH];
    let mut count = 0;
    for (ring, message) in messages.take(BATCH) {
        for (at, len) in ring.chunks(message, offset) {
            if len > 0 {
                parts[count].iov_base = at.as_ptr().cast();
                parts[count].iov_len = len;
                count += 1;
            }
        }
        offset = 0;
    }
    // SAFETY: all zeros are a valid message header without an address.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = parts.as_mut_ptr();
    header.msg_iovlen = count as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    loop {
        // SAFETY: the header points at `parts`, with their actual lengths, which outlive the call. They lie in the
        // rings' mappings, which the borrowed consumers keep alive, and the kernel only reads them. Another process may write there
        // meanwhile, which only changes the bytes sent; no Rust reference covers them.
        let sent = unsafe { libc::sendmsg(fd.as_fd().as_raw_fd(), &raw const header, flags) };
        match usize::try_from(sent) {
            Ok(sent) => return Ok(sent),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
}

const fn empty() -> libc::iovec {
    libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    }
}
