//! How one side wakes the other, and notices its death: a byte on a Unix socket (decision 0007).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send};

/// One end. Neither method ever waits, whatever the peer does: the flags are given to each call, so there
/// is no setting that the peer could change.
#[derive(Debug)]
pub(crate) struct Bell(UnixStream);

impl Bell {
    pub(crate) fn over(socket: UnixStream) -> Bell {
        Bell(socket)
    }

    /// Two ends, for two threads of one process.
    pub(crate) fn pair() -> io::Result<(Bell, Bell)> {
        let (one, other) = UnixStream::pair()?;
        Ok((Bell(one), Bell(other)))
    }

    /// Wakes the peer. A full buffer is as good as a byte more; a peer that is gone shows in
    /// [`Bell::clear`].
    pub(crate) fn ring(&self) {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let _ = send(self.0.as_raw_fd(), &[1], flags);
    }

    /// Forgets the bytes that came. `false`: the peer is gone.
    pub(crate) fn clear(&self) -> bool {
        let mut bytes = [0; 256];
        // A peer that rings without end keeps us busy no longer than this.
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

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
