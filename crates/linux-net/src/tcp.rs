//! Options of kernel TCP that the standard library does not have.

use std::io;
use std::net::TcpStream;

use crate::sys;

/// Has [`poll::wait`](crate::poll::wait) report a stream as readable only once this many bytes have arrived, or the stream has
/// ended (`SO_RCVLOWAT`). 1 is the default.
///
/// Read after such a wait, never instead of it: a read that has to wait takes what is there, and then waits for as many bytes
/// again, which may not come.
///
/// # Errors
/// Those of `setsockopt`.
pub fn set_receive_low_water(stream: &TcpStream, bytes: u32) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    sys::set_int(stream, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;
    use crate::poll::{self, Watch};

    #[test]
    fn a_stream_is_readable_with_as_many_bytes_or_at_its_end() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut sender = TcpStream::connect(address).expect("connected");
        let (stream, _) = listener.accept().expect("a stream");
        let is_readable = |timeout| {
            let mut watched = [Watch::readable(stream.as_fd())];
            let timeout = Some(Duration::from_millis(timeout));
            poll::wait(&mut watched, timeout).expect("waited") == 1
        };
        set_receive_low_water(&stream, 1000).expect("set");
        sender.write_all(&[1; 999]).expect("sent");
        assert!(!is_readable(100));
        sender.write_all(&[1]).expect("sent");
        assert!(is_readable(10_000));
        set_receive_low_water(&stream, 2000).expect("set");
        assert!(!is_readable(100));
        drop(sender);
        assert!(is_readable(10_000));
    }
}
