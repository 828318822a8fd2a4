//! Options of kernel TCP that the standard library does not have.

use std::io;
use std::net::TcpStream;

use crate::sys;

/// Has reads of a stream return, and wake its thread, only once this many bytes have arrived, or the stream has ended
/// (`SO_RCVLOWAT`). 1 is the default.
///
/// # Errors
/// Those of `setsockopt`.
pub fn set_receive_low_water(stream: &TcpStream, bytes: u32) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    sys::set_int(stream, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_read_waits_for_as_many_bytes_and_for_no_more_after_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut sender = TcpStream::connect(address).expect("connected");
        let (mut stream, _) = listener.accept().expect("a stream");
        set_receive_low_water(&stream, 1000).expect("set");
        let moment = Some(Duration::from_millis(100));
        stream.set_read_timeout(moment).expect("set");
        sender.write_all(&[1; 999]).expect("sent");
        let mut bytes = [0; 2000];
        // A timeout returns what is there.
        let began = std::time::Instant::now();
        assert_eq!(stream.read(&mut bytes).expect("read"), 999);
        assert!(began.elapsed() >= Duration::from_millis(90));
        stream.set_read_timeout(None).expect("set");
        sender.write_all(&[1; 1000]).expect("sent");
        assert_eq!(stream.read(&mut bytes).expect("read"), 1000);
        sender.write_all(&[1; 7]).expect("sent");
        drop(sender);
        assert_eq!(stream.read(&mut bytes).expect("read"), 7);
    }
}
