//! Messages that know themselves: number, length, and bytes that follow from the number.

use std::io::Read;
use std::net::{TcpListener, TcpStream};

/// A message of `len` bytes, at least 8: its number and its length, then bytes of the number.
pub(crate) fn message(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8; len];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes[4..8].copy_from_slice(&(len as u32).to_be_bytes());
    bytes
}

/// The numbers of the messages in a stream, each of which must be whole.
pub(crate) fn numbers(mut stream: impl Read) -> Vec<u32> {
    let mut seen = Vec::new();
    let mut head = [0; 8];
    loop {
        let mut have = 0;
        while have < 8 {
            match stream.read(&mut head[have..]).expect("a stream to its end") {
                0 if have == 0 => return seen,
                0 => panic!("a torn message after {} whole ones", seen.len()),
                count => have += count,
            }
        }
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        let mut body = vec![0; word(4) as usize - 8];
        stream.read_exact(&mut body).expect("the whole message");
        assert!(body.iter().all(|byte| *byte == word(0) as u8));
        seen.push(word(0));
    }
}

/// A connection over loopback: the sending end, the receiving end.
pub(crate) fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}
