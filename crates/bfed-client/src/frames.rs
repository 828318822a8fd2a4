//! Numbered frames: they mark where the data of a source begins, what is missing and where it ends, in
//! networks that lose, cut and join what they carry. A session whose name has the parameter
//! `framing=numbered` consists of them; gateways carry them like any other data.
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |  identifier 0x6246 "bF"       |  version 1    |  kind         |
//! +-------------------------------+---------------+---------------+
//! |  length of the payload        |  0                            |
//! +-------------------------------+-------------------------------+
//! |  number: + 1 for each frame, from 0 (64 bits)                 |
//! +---------------------------------------------------------------+
//! |  check: the first 4 bytes of the BLAKE3 digest of the frame,  |
//! |  these 4 being 0                                              |
//! +---------------------------------------------------------------+
//! |  payload                                                      |
//! +---------------------------------------------------------------+
//! ```
//!
//! Kind 0: data. Kind 1, END: the payload is the number of bytes of all data (64 bits) and their BLAKE3
//! digest (32 bytes); it is sent several times under one number, the number of data frames.
//!
//! A reader skips anything else up to the next identifier: it synchronizes after a gap, and when it joins in
//! the middle.

/// Length of a frame's header in bytes.
pub const HEADER_LEN: usize = 20;
/// Longest payload in bytes.
pub const MAX_PAYLOAD: usize = 65_000 - HEADER_LEN;
/// Length of the payload of END.
const END_LEN: usize = 40;
const MAGIC: [u8; 3] = [0x62, 0x46, 1];

/// What was found in the stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// A data frame: its payload.
    Data {
        /// Its number, from 0.
        number: u64,
        /// Its payload.
        payload: Vec<u8>,
    },
    /// The end.
    End {
        /// How many data frames there were.
        frames: u64,
        /// How many bytes they carried.
        bytes: u64,
        /// Their digest.
        digest: [u8; 32],
    },
}

fn check(frame: &[u8]) -> [u8; 4] {
    let mut hasher = blake3::Hasher::new();
    hasher
        .update(&frame[..16])
        .update(&[0; 4])
        .update(&frame[HEADER_LEN..]);
    let mut check = [0; 4];
    check.copy_from_slice(&hasher.finalize().as_bytes()[..4]);
    check
}

fn emit(kind: u8, number: u64, payload: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&MAGIC);
    out.push(kind);
    out.extend_from_slice(&(payload.len() as u16).to_be_bytes());
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&number.to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(payload);
    let check = check(out);
    out[16..HEADER_LEN].copy_from_slice(&check);
}

/// Writes a data frame over `out`; the payload is at most [`MAX_PAYLOAD`] bytes.
pub fn emit_data(number: u64, payload: &[u8], out: &mut Vec<u8>) {
    emit(0, number, payload, out);
}

/// Writes the end over `out`.
pub fn emit_end(frames: u64, bytes: u64, digest: &[u8; 32], out: &mut Vec<u8>) {
    let mut payload = bytes.to_be_bytes().to_vec();
    payload.extend_from_slice(digest);
    emit(1, frames, &payload, out);
}

/// Finds frames in a stream of bytes, however it is cut. Stores one frame at most.
#[derive(Debug, Default)]
pub struct Deframer {
    stored: Vec<u8>,
    /// Index in `stored` of the first byte that was not examined yet.
    at: usize,
    /// Bytes that belonged to no frame.
    pub skipped: u64,
}

impl Deframer {
    /// Appends bytes; then [`Deframer::next`] until `None`.
    pub fn push(&mut self, bytes: &[u8]) {
        self.stored.drain(..self.at);
        self.at = 0;
        self.stored.extend_from_slice(bytes);
    }

    fn skip(&mut self) {
        self.skipped += 1;
        self.at += 1;
    }

    /// Returns the next frame.
    #[expect(clippy::should_implement_trait, reason = "more may come after None")]
    pub fn next(&mut self) -> Option<Found> {
        loop {
            let rest = &self.stored[self.at..];
            let known = rest.len().min(3);
            if rest[..known] != MAGIC[..known] {
                self.skip();
                continue;
            }
            if rest.len() < HEADER_LEN {
                return None;
            }
            let len = usize::from(u16::from_be_bytes([rest[4], rest[5]]));
            let sound = match rest[3] {
                0 => len <= MAX_PAYLOAD,
                1 => len == END_LEN,
                _ => false,
            };
            if !sound || rest[6..8] != [0; 2] {
                self.skip();
                continue;
            }
            let frame = rest.get(..HEADER_LEN + len)?;
            if check(frame) != frame[16..HEADER_LEN] {
                self.skip();
                continue;
            }
            let found = read(frame);
            self.at += HEADER_LEN + len;
            return Some(found);
        }
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .take(8)
        .fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// A frame whose check is right.
fn read(frame: &[u8]) -> Found {
    let (number, payload) = (word(&frame[8..]), &frame[HEADER_LEN..]);
    if frame[3] == 0 {
        let payload = payload.to_vec();
        return Found::Data { number, payload };
    }
    let mut digest = [0; 32];
    digest.copy_from_slice(&payload[8..END_LEN]);
    let (frames, bytes) = (number, word(payload));
    Found::End {
        frames,
        bytes,
        digest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(count: u64) -> (Vec<u8>, Vec<u8>) {
        let (mut all, mut data, mut frame) = (vec![], vec![], vec![]);
        for number in 0..count {
            let payload: Vec<u8> = (0..number * 37 % 1400)
                .map(|n| (n * number) as u8)
                .collect();
            emit_data(number, &payload, &mut frame);
            all.extend_from_slice(&frame);
            data.extend_from_slice(&payload);
        }
        emit_end(
            count,
            data.len() as u64,
            blake3::hash(&data).as_bytes(),
            &mut frame,
        );
        all.extend_from_slice(&frame);
        (all, data)
    }

    fn read(pieces: impl Iterator<Item = Vec<u8>>) -> (Vec<Found>, Deframer) {
        let (mut deframer, mut found) = (Deframer::default(), vec![]);
        for piece in pieces {
            deframer.push(&piece);
            found.extend(std::iter::from_fn(|| deframer.next()));
        }
        (found, deframer)
    }

    #[test]
    fn a_data_frame_is_these_bytes() {
        let mut frame = vec![];
        emit_data(0x0102, b"hi", &mut frame);
        let head = [0x62, 0x46, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2];
        let digest = blake3::hash(&[&head[..], &[0; 4], b"hi"].concat());
        assert_eq!(frame, [&head[..], &digest.as_bytes()[..4], b"hi"].concat());
    }

    #[test]
    fn however_the_stream_is_cut_the_frames_are_the_same() {
        let (bytes, data) = stream(100);
        for size in [1, 19, 20, 21, 1000, 1_000_000] {
            let (found, deframer) = read(bytes.chunks(size).map(<[u8]>::to_vec));
            assert_eq!((found.len(), deframer.skipped), (101, 0));
            let mut joined = vec![];
            for (expected, one) in (0..).zip(&found[..100]) {
                let Found::Data { number, payload } = one else {
                    panic!()
                };
                assert_eq!(*number, expected);
                joined.extend_from_slice(payload);
            }
            assert_eq!(joined, data);
            let digest = *blake3::hash(&data).as_bytes();
            let end = Found::End {
                frames: 100,
                bytes: data.len() as u64,
                digest,
            };
            assert_eq!(found[100], end);
        }
    }

    #[test]
    fn after_a_gap_the_next_frames_are_found() {
        let (bytes, _) = stream(100);
        for (from, to) in [(0, 1), (3, 700), (5000, 5001), (20_000, 30_000)] {
            let left = [&bytes[..from], &bytes[to..]].concat();
            let (found, _) = read(left.chunks(1000).map(<[u8]>::to_vec));
            // Every frame that the gap does not touch.
            let (mut start, mut whole) = (0, vec![]);
            for number in 0..100 {
                let end = start + HEADER_LEN + (number * 37 % 1400) as usize;
                if end <= from || start >= to {
                    whole.push(number);
                }
                start = end;
            }
            let numbers = found.iter().filter_map(|one| match one {
                Found::Data { number, .. } => Some(*number),
                Found::End { .. } => None,
            });
            assert_eq!(numbers.collect::<Vec<u64>>(), whole);
            assert!(matches!(found.last(), Some(Found::End { frames: 100, .. })));
        }
    }

    #[test]
    fn a_flipped_bit_costs_its_frame_and_no_other() {
        let mut frames = vec![];
        let mut frame = vec![];
        for number in 0..3 {
            emit_data(number, b"some payload", &mut frame);
            frames.push(frame.clone());
        }
        for bit in 0..frame.len() * 8 {
            let mut damaged = frames.clone();
            damaged[1][bit / 8] ^= 1 << (bit % 8);
            // Later bytes end what a longer length waits for.
            let after = vec![0; MAX_PAYLOAD + 1000];
            let (found, _) = read(damaged.into_iter().chain([after]));
            let numbers: Vec<u64> = found
                .iter()
                .map(|one| match one {
                    Found::Data { number, .. } => *number,
                    end => panic!("{end:?}"),
                })
                .collect();
            assert_eq!(numbers, [0, 2], "bit {bit}");
        }
    }

    #[test]
    fn hostile_bytes_are_skipped_and_not_kept() {
        let mut deframer = Deframer::default();
        let mut noise = vec![];
        for n in 0..2_000_000u32 {
            noise.push((n.wrapping_mul(2_654_435_761) >> 13) as u8);
            if n % 100 == 0 {
                noise.extend_from_slice(&[0x62, 0x46, 1, 0, 0xfd, 0xd4, 0, 0]);
            }
        }
        for piece in noise.chunks(1400) {
            deframer.push(piece);
            while deframer.next().is_some() {}
            assert!(deframer.stored.len() < MAX_PAYLOAD + HEADER_LEN + 1400);
        }
    }
}
