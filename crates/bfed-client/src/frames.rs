//! Numbered frames: they mark where the data of a source begins, what is missing and where it ends, in
//! networks that lose, split and merge frames. A session whose name has the parameter
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
//! digest (32 bytes); it is sent several times under one number, the number of data frames. An END of
//! [`ABORTED`] bytes says that the source gave up and that the rest will not come.
//!
//! A source may send several contents, one after the other: each begins with number 0.
//!
//! A reader skips anything else up to the next identifier: it synchronizes after a gap, and when it joins in
//! the middle. The header, and with it the check, is the same in all versions.

/// Length of a frame's header in bytes.
pub const HEADER_LEN: usize = 20;
/// Longest payload in bytes.
pub const MAX_PAYLOAD: usize = 65_000 - HEADER_LEN;
/// Number of bytes in the END of a source that gave up; its digest is zeros.
pub const ABORTED: u64 = u64::MAX;
/// Length of the payload of END.
const END_LEN: usize = 40;
/// The version that this crate speaks. One more in a build of the next version (`docs/wire.md`).
pub const VERSION: u8 = 1 + cfg!(polycast_next_version) as u8;
const MAGIC: [u8; 3] = [0x62, 0x46, VERSION];

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
        /// How many bytes they carried; [`ABORTED`] if the source gave up.
        bytes: u64,
        /// Their digest.
        digest: [u8; 32],
    },
    /// A whole frame of another version.
    OtherVersion(u8),
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

/// Writes the end of a source that gives up after that many frames over `out`.
pub fn emit_aborted(frames: u64, out: &mut Vec<u8>) {
    emit_end(frames, ABORTED, &[0; 32], out);
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
            if let Some((len, version)) = other_version(rest) {
                self.at += len;
                self.skipped += len as u64;
                return Some(Found::OtherVersion(version));
            }
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

/// Returns the length and the version of a frame of another version that begins here. It must be there as a whole: bytes
/// that only look like its header are not waited for.
fn other_version(bytes: &[u8]) -> Option<(usize, u8)> {
    let header = bytes.first_chunk::<HEADER_LEN>()?;
    if header[..2] != MAGIC[..2] || header[2] == VERSION {
        return None;
    }
    let len = HEADER_LEN + usize::from(u16::from_be_bytes([header[4], header[5]]));
    let frame = bytes.get(..len)?;
    (check(frame) == header[16..]).then_some((len, header[2]))
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
