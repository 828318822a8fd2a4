//! Encrypted records: exactly what was written is read.

use std::io::Read;

use tcpxm_tokio::SegmentKey;
use tcpxm_tokio::seal::{MAX_RECORD, OVERHEAD, Opener, Records, Sealer, segment_key};

fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut sealer = Sealer::new(&[7; 32]);
    for piece in bytes.chunks(MAX_RECORD) {
        sealer.seal(piece, &mut out).expect("sealed");
    }
    out
}

/// Returns its data in pieces of these lengths, repeatedly, as a socket might.
struct Piecemeal<'a>(&'a [u8], std::iter::Cycle<std::slice::Iter<'a, usize>>);

impl Read for Piecemeal<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let len = *self.1.next().expect("they come again");
        let len = len.min(out.len());
        self.0.read(&mut out[..len])
    }
}

#[test]
fn pieces_may_come_in_any_lengths() {
    let bytes: Vec<u8> = (0..MAX_RECORD + 700).map(|at| (at * 31) as u8).collect();
    let (mut stream, mut sealer) = (Vec::new(), Sealer::new(&[7; 32]));
    for piece in bytes.chunks(350) {
        sealer.seal(piece, &mut stream).expect("sealed");
    }
    let lens: [&[usize]; 6] = [&[1], &[2], &[3, 367], &[369, 1, 2], &[371], &[100_000]];
    for lens in lens {
        let from = Piecemeal(&stream, lens.iter().cycle());
        let mut read = Vec::new();
        let mut opener = Opener::new(from, &[7; 32]);
        opener.read_to_end(&mut read).expect("opened");
        assert!(read == bytes, "{lens:?}");
        // Cut anywhere but between records.
        for cut in [1, 3, 4, 369] {
            let from = Piecemeal(&stream[..740 + cut], lens.iter().cycle());
            let mut read = Vec::new();
            let error = Opener::new(from, &[7; 32]).read_to_end(&mut read);
            let error = error.expect_err("cut").kind();
            assert_eq!(error, std::io::ErrorKind::UnexpectedEof, "{lens:?} {cut}");
            assert!(read == bytes[..700], "{lens:?} {cut}");
        }
    }
}

#[test]
fn what_is_written_is_read() {
    let bytes: Vec<u8> = (0..MAX_RECORD * 2 + 99).map(|at| (at * 31) as u8).collect();
    let stream = sealed(&bytes);
    assert_eq!(stream.len(), bytes.len() + 3 * OVERHEAD);
    let mut read = Vec::new();
    let mut opener = Opener::new(&stream[..], &[7; 32]);
    opener.read_to_end(&mut read).expect("opened");
    assert_eq!(read, bytes);
}

#[test]
fn another_key_opens_nothing() {
    let stream = sealed(b"secret");
    let mut opener = Opener::new(&stream[..], &[8; 32]);
    let error = opener.read(&mut [0; 9]).expect_err("opened");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
}

#[test]
fn every_bit_is_authenticated() {
    let stream = sealed(b"to whom it may concern");
    for bit in 0..stream.len() * 8 {
        let mut forged = stream.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        let mut read = Vec::new();
        let result = Opener::new(&forged[..], &[7; 32]).read_to_end(&mut read);
        assert!(result.is_err() && read.is_empty(), "bit {bit}");
    }
}

#[test]
fn records_out_of_order_are_refused() {
    let mut out = Vec::new();
    let mut sealer = Sealer::new(&[7; 32]);
    sealer.seal(b"one", &mut out).expect("sealed");
    sealer.seal(b"two", &mut out).expect("sealed");
    let half = out.len() / 2;
    let swapped = [&out[half..], &out[..half]].concat();
    assert!(
        Opener::new(&swapped[..], &[7; 32])
            .read(&mut [0; 9])
            .is_err()
    );
}

#[test]
fn tags_have_a_key_of_their_own() {
    // HKDF-SHA-256 by another implementation.
    let expected = [
        0x0e, 0x4e, 0xb4, 0xb5, 0xe0, 0x68, 0x06, 0xd0, 0x1a, 0x1b, 0x77, 0x99, 0x92, 0x11, 0xe4,
        0x8d,
    ];
    assert_eq!(segment_key(&[0x5a; 32]), SegmentKey(expected));
}

#[test]
fn a_record_sealed_again_is_the_same() {
    let bytes: Vec<u8> = (0..MAX_RECORD * 2 + 99).map(|at| (at * 31) as u8).collect();
    let records = Records::new(&[7; 32]);
    let mut again = Vec::new();
    for (number, piece) in bytes.chunks(MAX_RECORD).enumerate() {
        records
            .seal(number as u64, piece, &mut again)
            .expect("sealed");
    }
    assert!(again == sealed(&bytes));
    for piece in [&[][..], &vec![0; MAX_RECORD + 1]] {
        let before = again.len();
        assert!(records.seal(9, piece, &mut again).is_err());
        assert_eq!(again.len(), before);
    }
}
