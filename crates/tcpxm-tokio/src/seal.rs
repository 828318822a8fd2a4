//! Records: a stream cut into pieces, each encrypted once with AES-256-GCM.
//!
//! ```text
//! +---------------------------------------------------------------+
//! |  length of the plaintext: 1 to 65536                          |
//! +---------------------------------------------------------------+
//! |  ciphertext, as long; then a tag of 16 bytes                  |
//! +---------------------------------------------------------------+
//! ```
//!
//! The nonce is the record's number; the length is authenticated too. A record is encrypted when it is written
//! and kept for retransmissions, or encrypted again from the same plaintext ([`Records`]). As long as a key is
//! used for one stream only, no nonce is used for two plaintexts. All receivers of a group have the same key,
//! so one receiver could forge to another: the digests on the control connection decide. The end of a stream is
//! not authenticated: its length must be known.

use std::io::{self, Read, Write};

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf;
use tcpxm::wire::SegmentKey;

/// The longest plaintext of a record.
pub const MAX_RECORD: usize = 1 << 16;
/// Bytes that a record adds: its length and its tag.
pub const OVERHEAD: usize = HEADER + TAG;
/// Bytes of the length and of the tag.
const HEADER: usize = 4;
const TAG: usize = 16;

/// Label from which the key of segment tags is derived.
const TAGS: &[u8] = b"polycast tcpxm 1 key of segment tags";

/// The number of bytes to derive.
struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// Derives the key that signs the segments of a stream from the key that encrypts its records (RFC 5869).
/// Records reject forged data after TCP has delivered it, segment tags reject it before.
pub fn segment_key(key: &[u8; 32]) -> SegmentKey {
    let mut derived = [0; 16];
    let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(key);
    let filled = secret
        .expand(&[TAGS], Length(derived.len()))
        .and_then(|okm| okm.fill(&mut derived));
    filled.expect("16 bytes are fewer than the hash gives");
    SegmentKey(derived)
}

fn cipher(key: &[u8; 32]) -> LessSafeKey {
    // The cipher has keys of 32 bytes.
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).expect("32 bytes"))
}

fn nonce(record: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&record.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// Encrypts single records of a stream.
///
/// A record may be encrypted again, with the same result, for a receiver that was detached
/// ([`Archive`](crate::Archive)). A number must never be used for another plaintext, and a plaintext never be
/// cut differently: two plaintexts under one nonce reveal both and the authentication key. The caller that
/// reads the plaintext again verifies that it is unchanged.
pub struct Records(LessSafeKey);

impl Records {
    /// Creates records with the key of one stream.
    pub fn new(key: &[u8; 32]) -> Self {
        Records(cipher(key))
    }

    /// Appends record `number`, counted from 0, of 1 to [`MAX_RECORD`] bytes.
    ///
    /// # Errors
    /// It is too long.
    pub fn seal(&self, number: u64, plain: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let refused = || io::Error::other("a record cannot be sealed");
        if plain.is_empty() || plain.len() > MAX_RECORD {
            return Err(refused());
        }
        let len = (plain.len() as u32).to_be_bytes();
        out.extend_from_slice(&len);
        let body = out.len();
        out.extend_from_slice(plain);
        let (key, body) = (&self.0, &mut out[body..]);
        let sealed = key.seal_in_place_separate_tag(nonce(number), Aad::from(len), body);
        let tag = sealed.map_err(|_| refused())?;
        out.extend_from_slice(tag.as_ref());
        Ok(())
    }
}

/// Encrypts a stream, record by record.
pub struct Sealer {
    records: Records,
    next: u64,
}

impl Sealer {
    /// Encrypts with a key that is used for nothing else.
    pub fn new(key: &[u8; 32]) -> Self {
        let records = Records::new(key);
        Sealer { records, next: 0 }
    }

    /// Appends the next record, of 1 to [`MAX_RECORD`] bytes.
    ///
    /// # Errors
    /// It is too long.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        self.records.seal(self.next, plain, out)?;
        self.next += 1;
        Ok(())
    }
}

/// Writes a stream that is sealed, or not.
pub struct Output {
    /// With memory for a record.
    sealer: Option<(Box<Sealer>, Vec<u8>)>,
}

impl Output {
    /// Seals with a key that is used for nothing else; without one nothing is sealed.
    pub fn new(key: Option<&[u8; 32]>) -> Self {
        let sealer = key.map(|key| (Box::new(Sealer::new(key)), Vec::new()));
        Output { sealer }
    }

    /// Writes bytes, in records of at most [`MAX_RECORD`] bytes where the stream is sealed.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_all(&mut self, to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
        let Some((sealer, record)) = &mut self.sealer else {
            return to.write_all(bytes);
        };
        for piece in bytes.chunks(MAX_RECORD) {
            record.clear();
            sealer.seal(piece, record)?;
            to.write_all(record)?;
        }
        Ok(())
    }
}

/// Reads and decrypts records.
pub struct Opener<R> {
    inner: R,
    key: LessSafeKey,
    next: u64,
    /// The record without its length, followed by the length of the next one.
    record: Vec<u8>,
    /// The length of the next record, as far as it was read.
    header: [u8; HEADER],
    header_len: usize,
    /// Decrypted bytes that were not read yet.
    open: std::ops::Range<usize>,
}

impl<R: Read> Opener<R> {
    /// Decrypts with the key that was used to encrypt.
    pub fn new(inner: R, key: &[u8; 32]) -> Self {
        Opener {
            inner,
            key: cipher(key),
            next: 0,
            record: Vec::new(),
            header: [0; HEADER],
            header_len: 0,
            open: 0..0,
        }
    }

    /// Returns the reader of the encrypted stream.
    pub fn get_ref(&self) -> &R {
        &self.inner
    }

    /// Returns the reader of the encrypted stream.
    pub fn get_mut(&mut self) -> &mut R {
        &mut self.inner
    }

    /// Reads the next record; returns false at the end of the stream.
    fn next(&mut self) -> io::Result<bool> {
        if self.header_len == 0 {
            self.header_len = self.inner.read(&mut self.header)?;
            if self.header_len == 0 {
                return Ok(false);
            }
        }
        self.inner.read_exact(&mut self.header[self.header_len..])?;
        let header = self.header;
        let len = u32::from_be_bytes(header) as usize;
        if len == 0 || len > MAX_RECORD {
            return Err(forged());
        }
        self.fill(len + TAG)?;
        let (nonce, header) = (nonce(self.next), Aad::from(header));
        self.next += 1;
        let record = &mut self.record[..len + TAG];
        let opened = self.key.open_in_place(nonce, header, record);
        opened.map_err(|_| forged())?;
        self.open = 0..len;
        Ok(true)
    }

    /// Reads the record, and the length of the next one if it arrives with it: data that lands in the reader's
    /// buffer is copied once less than data that has to wait.
    fn fill(&mut self, len: usize) -> io::Result<()> {
        self.record.resize(len + HEADER, 0);
        let mut filled = 0;
        while filled < len {
            match self.inner.read(&mut self.record[filled..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.header_len = filled - len;
        self.header[..self.header_len].copy_from_slice(&self.record[len..filled]);
        Ok(())
    }
}

fn forged() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "a sealed record was tampered with",
    )
}

impl<R: Read> Opener<R> {
    /// Returns the next bytes in place: at most `most`, and no more than the record has; none at the end of the
    /// stream.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] for a record that was tampered with; errors of the inner reader.
    pub fn piece(&mut self, most: usize) -> io::Result<&mut [u8]> {
        if self.open.is_empty() && !self.next()? {
            return Ok(&mut []);
        }
        let start = self.open.start;
        self.open.start += self.open.len().min(most);
        Ok(&mut self.record[start..self.open.start])
    }
}

impl<R: Read> Read for Opener<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let piece = self.piece(out.len())?;
        out[..piece.len()].copy_from_slice(piece);
        Ok(piece.len())
    }
}
