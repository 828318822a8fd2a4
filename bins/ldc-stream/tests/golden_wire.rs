//! The drawings of `docs/wire.md`, byte by byte, and what a parser must refuse.

use ldc_stream::wire::{Data, Header, Hello, MAX_PAYLOAD, WireError};
use proptest::prelude::*;

const HELLO: Hello = Hello {
    layers: 8,
    generated: true,
    window_us: 1_000_000,
    max_payload: 1_400,
    layer_rate_bps: 131_072,
    start_us: 0x0006_4000_0102_0304,
};

const DATA: Data = Data {
    layer: 3,
    len: 1_366,
    window: 59,
    of: 16_384,
    offset: 0x1_0000_2000,
    due_us: 59_375_000,
};

#[test]
fn golden_hello() {
    let bytes = [
        b'L', b'D', b'C', b'S', 1, 8, 1, 0, // magic, version, layers, flags
        0x00, 0x0f, 0x42, 0x40, 0x00, 0x00, 0x05, 0x78, // window, longest payload
        0, 0, 0, 0, 0x00, 0x02, 0x00, 0x00, // rate
        0x00, 0x06, 0x40, 0x00, 0x01, 0x02, 0x03, 0x04, // start
    ];
    assert_eq!(HELLO.emit(), bytes);
    assert_eq!(Hello::parse(&bytes), Ok(HELLO));
}

#[test]
fn golden_data() {
    let bytes = [
        1, 3, 0, 0, 0x00, 0x00, 0x05, 0x56, // type, layer, length
        0, 0, 0, 59, 0x00, 0x00, 0x40, 0x00, // window, bytes of the layer in it
        0, 0, 0, 1, 0x00, 0x00, 0x20, 0x00, // offset
        0, 0, 0, 0, 0x03, 0x89, 0xfd, 0x98, // due
    ];
    assert_eq!(Header::Data(DATA).emit(), bytes);
    assert_eq!(Header::parse(&bytes, &HELLO), Ok(Header::Data(DATA)));
}

#[test]
fn golden_end() {
    let end = Header::End {
        windows: 60,
        offered: 7_864_320,
    };
    let bytes = [
        2, 0, 0, 0, 0, 0, 0, 0, // type
        0, 0, 0, 60, 0, 0, 0, 0, // windows
        0, 0, 0, 0, 0x00, 0x78, 0x00, 0x00, // bytes offered
        0, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(end.emit(), bytes);
    assert_eq!(Header::parse(&bytes, &HELLO), Ok(end));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let hello = |change: fn(&mut [u8; 32])| {
        let mut bytes = HELLO.emit();
        change(&mut bytes);
        Hello::parse(&bytes).unwrap_err()
    };
    assert_eq!(hello(|b| b[0] = b'l'), WireError::Magic);
    assert_eq!(hello(|b| b[4] = 2), WireError::Version(2));
    // Whatever another version has after the first five bytes.
    let start = |bytes: &[u8]| Hello::check_start(bytes);
    assert_eq!(start(b"LDCS\x02"), Err(WireError::Version(2)));
    assert_eq!(
        (start(b"LDCS\x01"), start(b"LDCS"), start(b"")),
        (Ok(()), Ok(()), Ok(()))
    );
    assert_eq!(start(b"LDG"), Err(WireError::Magic));
    let refused: [fn(&mut [u8; 32]); 7] = [
        |b| b[5] = 0,
        |b| b[5] = 65,
        |b| b[6] = 2,
        |b| b[7] = 1,
        |b| b[8..12].fill(0),
        |b| b[12..16].fill(0),
        |b| b[12..16].copy_from_slice(&(MAX_PAYLOAD + 1).to_be_bytes()),
    ];
    for change in refused {
        assert!(matches!(hello(change), WireError::Malformed(_)));
    }
    let refused: [fn(&mut [u8; 32]); 8] = [
        |b| b[0] = 0,
        |b| b[0] = 3,
        |b| b[1] = 8,
        |b| b[2] = 1,
        |b| b[4..8].fill(0),
        |b| b[4..8].copy_from_slice(&1_401u32.to_be_bytes()),
        |b| b[12..16].copy_from_slice(&1_365u32.to_be_bytes()),
        |b| b[16..24].fill(0xff),
    ];
    for change in refused {
        let mut bytes = Header::Data(DATA).emit();
        change(&mut bytes);
        let refused = Header::parse(&bytes, &HELLO);
        assert!(
            matches!(refused, Err(WireError::Malformed(_))),
            "{refused:?}"
        );
    }
}

proptest! {
    /// Any 32 bytes are a header or an error, and a header is written as it was read.
    #[test]
    fn what_parses_is_emitted_as_it_was(bytes in any::<[u8; 32]>(), kind in 0..4u8) {
        let mut bytes = bytes;
        bytes[0] = kind;
        bytes[1] %= 9;
        bytes[2..4].fill(0);
        bytes[4..6].fill(0);
        if let Ok(header) = Header::parse(&bytes, &HELLO) {
            prop_assert_eq!(header.emit(), bytes);
        }
        if let Ok(hello) = Hello::parse(&bytes) {
            prop_assert_eq!(hello.emit(), bytes);
        }
    }

    /// Every bit of a header says something: with another one it is refused, or means another thing.
    #[test]
    fn every_bit_counts(bit in 0..256usize) {
        let mut changed = Header::Data(DATA).emit();
        changed[bit / 8] ^= 1 << (bit % 8);
        prop_assert_ne!(Header::parse(&changed, &HELLO), Ok(Header::Data(DATA)));
        let mut changed = HELLO.emit();
        changed[bit / 8] ^= 1 << (bit % 8);
        prop_assert_ne!(Hello::parse(&changed), Ok(HELLO));
    }
}
