//! Content of the test sessions: numbered frames, so that a receiver can predict every byte.

use bfed::FlowLabel;
use bfed::wire::data::{HEADER_LEN, Kind, Repr};

/// A frame's number, in front of its payload.
pub(super) const NUMBER_LEN: usize = 8;

/// The payload byte at an offset of any frame.
const fn byte(at: usize) -> u8 {
    (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8)
}

/// The payload of frames of that length, without the number.
pub(super) fn payload(frame: usize) -> Vec<u8> {
    (NUMBER_LEN..frame).map(byte).collect()
}

/// The header of a packet on a TCP channel.
pub(super) fn header(label: FlowLabel, frame: usize) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    Repr {
        payload_len: frame,
        ..Repr::new(Kind::Data, label)
    }
    .emit(&mut header);
    header
}

/// Compares the received bytes with the sent ones, up to a limit.
#[derive(Clone, Debug)]
pub(super) struct Checker {
    /// Header, number and payload: the next frame that is expected.
    frame: Vec<u8>,
    /// Where the number is.
    number: usize,
    at: u64,
    /// Bytes that are looked at.
    until: u64,
}

impl Checker {
    /// Expects frames of this length after this header, which may be empty.
    pub(super) fn new(header: &[u8], frame: usize, until: u64) -> Checker {
        Checker {
            frame: [header, &[0; NUMBER_LEN], &payload(frame)].concat(),
            number: header.len(),
            at: 0,
            until,
        }
    }

    /// It compares the received bytes.
    pub(super) fn looks(&self) -> bool {
        self.at < self.until
    }

    /// It compares no more bytes.
    pub(super) fn close(&mut self) {
        self.until = 0;
    }

    /// Returns whether these are the next bytes.
    pub(super) fn fits(&mut self, mut bytes: &[u8]) -> bool {
        let whole = self.frame.len() as u64;
        while !bytes.is_empty() {
            let (number, at) = (self.at / whole, (self.at % whole) as usize);
            self.frame[self.number..][..NUMBER_LEN].copy_from_slice(&number.to_be_bytes());
            let expected = &self.frame[at..];
            let (piece, rest) = bytes.split_at(bytes.len().min(expected.len()));
            if piece != &expected[..piece.len()] {
                return false;
            }
            self.at += piece.len() as u64;
            bytes = rest;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_fits_however_it_is_cut_and_one_byte_more_or_less_does_not() {
        let label = FlowLabel::new(7).unwrap();
        let (header, payload) = (header(label, 300), payload(300));
        let frame = |number: u64| [&header[..], &number.to_be_bytes(), &payload].concat();
        let stream: Vec<u8> = (0..5).flat_map(frame).collect();
        for size in [1, 7, 320, 1000] {
            let mut checker = Checker::new(&header, 300, 1 << 20);
            assert!(stream.chunks(size).all(|piece| checker.fits(piece)));
        }
        for wrong in [0, 25, 320, 1598] {
            let mut missing = stream.clone();
            missing.remove(wrong);
            let mut checker = Checker::new(&header, 300, 1 << 20);
            assert!(!checker.fits(&missing), "{wrong}");
        }
    }
}
