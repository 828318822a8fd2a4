//! The header of a group: bytes to value and back, and hostile bytes.

use media::MAX_INIT;
use media::group::{Header, HeaderError};
use proptest::prelude::*;

#[test]
fn golden() {
    let header = Header {
        is_start: true,
        init: b"init",
        prefix: b"px",
    };
    let bytes = b"\x00\x01\x00\x00\x00\x04initpx";
    assert_eq!(header.to_vec(), bytes);
    assert_eq!(Header::parse(bytes), Ok(header));
    assert_eq!(Header::parse(b"\0\0\0\0\0\0"), Ok(Header::default()));
}

#[test]
fn every_truncation_before_the_prefix_is_refused() {
    let bytes = b"\x00\x01\x00\x00\x00\x04init";
    for len in 0..bytes.len() {
        assert_eq!(
            Header::parse(&bytes[..len]),
            Err(HeaderError::Truncated),
            "{len}"
        );
    }
    assert_eq!(Header::parse(b"\x01\0\0\0\0\0"), Err(HeaderError::Version));
    assert_eq!(
        Header::parse(&[0, 0, 0xff, 0xff, 0xff, 0xff]),
        Err(HeaderError::Truncated)
    );
    assert_eq!(
        Header::parse(&vec![0; Header::MAX + 1]),
        Err(HeaderError::TooLong)
    );
    assert_eq!(Header::parse(&vec![0; 6 + 65]), Err(HeaderError::TooLong));
    let mut long = vec![0; 6 + 2 * MAX_INIT + 1];
    long[2..6].copy_from_slice(&(2 * MAX_INIT as u32 + 1).to_be_bytes());
    assert_eq!(Header::parse(&long), Err(HeaderError::TooLong));
}

proptest! {
    #[test]
    fn what_is_parsed_is_written_the_same(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(header) = Header::parse(&bytes) {
            let again = header.to_vec();
            prop_assert_eq!(Header::parse(&again), Ok(header));
        }
    }
}
