//! An older file of the same name, which may have the announced digest.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Bytes read at a time: the loop has packets to take in between.
const STEP: usize = 1 << 20;

/// A file that is being compared with an announced digest, a step at a time.
pub(super) struct Existing {
    file: File,
    length: u64,
    read: u64,
    hasher: Option<blake3::Hasher>,
    buffer: Vec<u8>,
}

impl Existing {
    /// Opens the file at `path`, if there is one and the transfer starts at the first byte.
    pub(super) fn find(path: &Path, start: u64) -> Option<Self> {
        let file = File::open(path).ok().filter(|_| start == 0)?;
        let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        Some(Existing {
            file,
            length: metadata.len(),
            read: 0,
            hasher: None,
            buffer: Vec::new(),
        })
    }

    /// Reads a step further. Returns the answer once there is one.
    pub(super) fn compare(
        &mut self,
        length: u64,
        digest: [u8; 32],
        key: Option<[u8; 32]>,
    ) -> Option<bool> {
        if length != self.length {
            return Some(false);
        }
        let hasher = self.hasher.get_or_insert_with(|| {
            key.map_or_else(blake3::Hasher::new, |key| blake3::Hasher::new_keyed(&key))
        });
        self.buffer.resize(STEP, 0);
        match self.file.read(&mut self.buffer) {
            Ok(0) => Some(self.read == length && *hasher.finalize().as_bytes() == digest),
            Ok(len) => {
                hasher.update(&self.buffer[..len]);
                self.read += len as u64;
                None
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => None,
            Err(_) => Some(false),
        }
    }

    /// Returns the file, to repair losses of other receivers from.
    pub(super) fn into_file(self) -> File {
        self.file
    }
}
