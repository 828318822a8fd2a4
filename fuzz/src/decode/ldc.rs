//! The stream of `ldc-stream`: a hello, then headers. The streams of QUIC, which hold messages.

/// The format's own file: the program around it would bring all that a command line needs.
#[path = "../../../bins/ldc-stream/src/wire.rs"]
#[expect(dead_code, unreachable_pub, reason = "a part of the program")]
mod wire;

/// The format of a QUIC stream; its crate would bring QUIC.
#[path = "../../../crates/ldc-linux/src/quic/frame.rs"]
mod frame;

use frame::{FrameError, MAX_PREFIX, Reader, prefix};
use wire::{HEADER_LEN, HELLO_LEN, Header, Hello};

pub fn stream(bytes: &[u8]) {
    let Some((hello, mut rest)) = bytes.split_first_chunk::<HELLO_LEN>() else {
        return;
    };
    let Ok(parsed) = Hello::parse(hello) else {
        return;
    };
    assert_eq!(&parsed.emit(), hello);
    while let Some((header, after)) = rest.split_first_chunk::<HEADER_LEN>() {
        let Ok(value) = Header::parse(header, &parsed) else {
            return;
        };
        assert_eq!(&value.emit(), header);
        let payload = match value {
            Header::Data(data) => data.len as usize,
            Header::End { .. } => return,
        };
        rest = after.get(payload..).unwrap_or(&[]);
    }
}

/// Longest message that is accepted.
const LIMIT: usize = 1_000;

/// Cuts a stream into messages, in pieces whose length the first byte states, and writes them again.
pub fn frames(bytes: &[u8]) {
    let Some((size, stream)) = bytes.split_first() else {
        return;
    };
    let mut reader = Reader::new(LIMIT);
    let (mut again, mut taken) = (Vec::new(), 0);
    for mut part in stream.chunks(usize::from(*size).max(1)) {
        let whole = part.len();
        loop {
            match reader.next(&mut part) {
                Ok(Some(message)) => {
                    assert!(message.len() <= LIMIT);
                    let (bytes, used) = prefix(message.len() as u32);
                    again.push((bytes[..used].to_vec(), message));
                }
                Ok(None) => break,
                Err(FrameError::TooLong { len, limit }) => {
                    assert!(len > limit as u64);
                    return;
                }
                Err(FrameError::Truncated) => unreachable!("the stream has not ended"),
            }
        }
        assert!(part.is_empty() && reader.held() <= LIMIT);
        taken += whole;
    }
    assert_eq!(taken, stream.len());
    if reader.end().is_ok() {
        // A length may be written longer than necessary (RFC 9000 §16), never shorter.
        let least = again
            .iter()
            .map(|(prefix, message)| prefix.len() + message.len());
        let least: usize = least.sum();
        assert!((least..=least + again.len() * (MAX_PREFIX - 1)).contains(&stream.len()));
    }
}
