//! Wake-ups between the two sides, and detection of a dead peer: a byte on a Unix socket (decision 0007).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use linux_net::poll::{self, Watch};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send};

use crate::sync::step;

/// One end of the socket. Only [`WakeSocket::wait`] blocks: each other call passes MSG_DONTWAIT, because the peer could change the mode of a
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
        step();
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let _ = send(self.0.as_raw_fd(), &[1], flags);
    }

    /// Waits until the peer wakes this side or is gone, at most `timeout` (`None`: without limit). Returns `false` if
    /// neither has happened: the timeout expired, or a signal arrived.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> bool {
        let mut set = [Watch::readable(self.as_fd())];
        matches!(poll::wait(&mut set, timeout), Ok(1..))
    }

    /// Returns whether the peer's end is open. Pending wake-ups stay.
    pub(crate) fn is_open(&self) -> bool {
        let mut set = [Watch::failed(self.as_fd())];
        // A failure to wait shows nothing about the peer.
        let _ = poll::wait(&mut set, Some(Duration::ZERO));
        !set[0].has_failed()
    }

    /// Discards pending wake-ups. Returns `false` if there were none and the peer is gone.
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
