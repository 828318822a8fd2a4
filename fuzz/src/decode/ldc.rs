//! The stream of `ldc-stream`: a hello, then headers.

/// The format's own file: the program around it would bring all that a command line needs.
#[path = "../../../bins/ldc-stream/src/wire.rs"]
#[expect(dead_code, unreachable_pub, reason = "a part of the program")]
mod wire;

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
