//! Wake-ups between the two sides, and detection of a dead peer: a byte on a Unix socket (decision 0007).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send};

/// One end of the socket. No method blocks: each call passes MSG_DONTWAIT, because the peer could change the mode of a
/// shared socket.
#[derive(Debug)]
pub(crate) struct WakeSocket(UnixStream);

impl WakeSocket {
    pub(crate) fn over(socket: UnixStream) -> WakeSocket {
        WakeSocket(socket)
    }

    /// Returns two connected ends, for two threads of one process.
    pub(crate) fn pair() -> io::Result<(WakeSocket, WakeSocket)> {
        let (one, other) = UnixStream::pair()?;
        Ok((WakeSocket(one), WakeSocket(other)))
    }

    /// Wakes the peer. A full buffer needs no further byte; [`WakeSocket::clear`] detects a dead peer.
    pub(crate) fn wake(&self) {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let _ = send(self.0.as_raw_fd(), &[1], flags);
    }

    /// Discards pending wake-ups. Returns `false` if the peer is gone.
    pub(crate) fn clear(&self) -> bool {
        let mut bytes = [0; 256];
        // Bounds the work for a peer that sends without end.
        for _ in 0..4 {
            match recv(self.0.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => return false,
                Ok(count) if count < bytes.len() => return true,
                Ok(_) | Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return true,
                Err(_) => return false,
            }
        }
        true
    }
}

impl AsFd for WakeSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
