//! The content to send.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use ltp::store::{HeapRing, Store, StoreError};

use crate::Error;

/// A content to send.
#[derive(Debug)]
pub struct Source {
    pub(super) kind: Kind,
    name: String,
}

/// The kinds of content.
#[derive(Debug)]
pub(super) enum Kind {
    File {
        file: File,
        path: PathBuf,
        length: u64,
    },
    Stream(File),
    Buffer(Box<[u8]>),
}

impl Source {
    /// A regular file, sent under its name. Its length is that of now; it must not change meanwhile.
    ///
    /// # Errors
    /// The file cannot be opened, or it is no regular file.
    pub fn file(path: impl Into<PathBuf>) -> Result<Source, Error> {
        let path = path.into();
        let failed = |source| Error::Source {
            name: path.display().to_string(),
            source,
        };
        let file = File::open(&path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            let why = "not a regular file; a folder or device can be sent as a stream (of `tar`)";
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        Ok(Source::open_file(file, path, metadata.len()))
    }

    /// An open regular file of that length, and its path for names and messages.
    #[must_use]
    pub fn open_file(file: File, path: PathBuf, length: u64) -> Source {
        let name = path.file_name().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        let kind = Kind::File { file, path, length };
        Source { kind, name }
    }

    /// A pipe, socket or device that is read to its end, as fast as it is sent.
    #[must_use]
    pub fn stream(descriptor: impl Into<OwnedFd>) -> Source {
        Source {
            kind: Kind::Stream(descriptor.into().into()),
            name: String::new(),
        }
    }

    /// Bytes in memory.
    #[must_use]
    pub fn buffer(bytes: impl Into<Box<[u8]>>) -> Source {
        Source {
            kind: Kind::Buffer(bytes.into()),
            name: String::new(),
        }
    }

    /// Names the content, for receivers that store it.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Source {
        self.name = name.into();
        self
    }

    /// Bytes of the content; `None`: a stream.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        match &self.kind {
            Kind::File { length, .. } => Some(*length),
            Kind::Buffer(bytes) => Some(bytes.len() as u64),
            Kind::Stream(_) => None,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What messages call it.
    pub(super) fn shown(&self) -> String {
        match &self.kind {
            Kind::File { path, .. } => path.display().to_string(),
            Kind::Stream(_) => "the stream".to_owned(),
            Kind::Buffer(_) => "the buffer".to_owned(),
        }
    }

    /// Computes the digest of a content of known length, telling the bytes that were read; `None` for a
    /// stream, and when `go_on` returns false.
    pub(super) fn digest(
        &self,
        key: Option<[u8; 32]>,
        go_on: impl FnMut(u64) -> bool,
    ) -> io::Result<Option<[u8; 32]>> {
        match &self.kind {
            Kind::File { file, length, .. } => digest(file, *length, key, go_on),
            Kind::Stream(_) => Ok(None),
            Kind::Buffer(bytes) => {
                let mut hasher = hasher(key);
                hasher.update(bytes);
                Ok(Some(*hasher.finalize().as_bytes()))
            }
        }
    }
}

fn hasher(key: Option<[u8; 32]>) -> blake3::Hasher {
    key.map_or_else(blake3::Hasher::new, |key| blake3::Hasher::new_keyed(&key))
}

/// Reads a file once for its digest; `None` when `go_on` returns false.
fn digest(
    file: &File,
    length: u64,
    key: Option<[u8; 32]>,
    mut go_on: impl FnMut(u64) -> bool,
) -> io::Result<Option<[u8; 32]>> {
    let mut hasher = hasher(key);
    let mut buffer = vec![0; 1 << 18];
    let mut offset = 0;
    while offset < length {
        let want = (length - offset).min(buffer.len() as u64) as usize;
        file.read_exact_at(&mut buffer[..want], offset)?;
        hasher.update(&buffer[..want]);
        offset += want as u64;
        if !go_on(offset) {
            return Ok(None);
        }
    }
    Ok(Some(*hasher.finalize().as_bytes()))
}

/// Bytes of one block in memory.
struct Cached {
    offset: u64,
    bytes: Vec<u8>,
}

/// The file itself as the store: blocks are read when they are sent and again when they are
/// repaired. Keeps two blocks, so that repairs do not push out the one that is being sent.
pub(super) struct FileStore {
    file: File,
    length: u64,
    block_len: u64,
    recent: [Cached; 2],
    /// Why reading failed, for the user.
    pub(super) error: Option<io::Error>,
}

impl FileStore {
    pub(super) fn new(file: File, length: u64, block_len: u64) -> Self {
        let empty = || Cached {
            offset: u64::MAX,
            bytes: Vec::new(),
        };
        FileStore {
            file,
            length,
            block_len,
            recent: [empty(), empty()],
            error: None,
        }
    }

    /// The block that holds `offset`, read if need be; the one used last comes first.
    fn load(&mut self, offset: u64) -> Result<(u64, &[u8]), StoreError> {
        let start = offset - offset % self.block_len;
        if self.recent[0].offset != start {
            self.recent.swap(0, 1);
            if self.recent[0].offset != start {
                self.fill(start)?;
            }
        }
        Ok((start, &self.recent[0].bytes))
    }

    fn fill(&mut self, start: u64) -> Result<(), StoreError> {
        let len = self.length.saturating_sub(start).min(self.block_len) as usize;
        let cached = &mut self.recent[0];
        cached.offset = u64::MAX;
        cached.bytes.resize(len, 0);
        if let Err(error) = self.file.read_exact_at(&mut cached.bytes, start) {
            self.error = Some(error);
            return Err(StoreError::Failed);
        }
        cached.offset = start;
        Ok(())
    }
}

impl Store for FileStore {
    fn capacity(&self) -> Option<u64> {
        None
    }

    fn write(&mut self, _offset: u64, _bytes: &[u8]) -> Result<(), StoreError> {
        Err(StoreError::Failed)
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let (start, bytes) = self.load(offset)?;
        let from = (offset - start) as usize;
        let piece = bytes
            .get(from..from + out.len())
            .ok_or(StoreError::NotStored)?;
        out.copy_from_slice(piece);
        Ok(())
    }

    fn block(&mut self, offset: u64, len: usize) -> Result<&[u8], StoreError> {
        let (start, bytes) = self.load(offset)?;
        let from = (offset - start) as usize;
        bytes.get(from..from + len).ok_or(StoreError::NotStored)
    }
}

/// Either kind of store.
pub(super) enum Content {
    File(FileStore),
    Ring(HeapRing),
}

impl Content {
    pub(super) fn error(&self) -> Option<&io::Error> {
        match self {
            Content::File(store) => store.error.as_ref(),
            Content::Ring(_) => None,
        }
    }
}

impl Store for Content {
    fn capacity(&self) -> Option<u64> {
        match self {
            Content::File(store) => store.capacity(),
            Content::Ring(store) => store.capacity(),
        }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        match self {
            Content::File(store) => store.write(offset, bytes),
            Content::Ring(store) => store.write(offset, bytes),
        }
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        match self {
            Content::File(store) => store.read(offset, out),
            Content::Ring(store) => store.read(offset, out),
        }
    }

    fn block(&mut self, offset: u64, len: usize) -> Result<&[u8], StoreError> {
        match self {
            Content::File(store) => store.block(offset, len),
            Content::Ring(store) => store.block(offset, len),
        }
    }
}

/// A stream that is read when the sender has space for more of it.
pub(super) struct Stream {
    pub(super) file: File,
    buffer: Vec<u8>,
    held: std::ops::Range<usize>,
    pub(super) ended: bool,
}

impl Stream {
    pub(super) fn new(file: File) -> Self {
        Stream {
            file,
            buffer: vec![0; 1 << 16],
            held: 0..0,
            ended: false,
        }
    }

    /// Bytes read and not yet taken; reads when there are none. Call it when the descriptor is
    /// readable, else it waits.
    pub(super) fn fill(&mut self) -> io::Result<&[u8]> {
        if self.held.is_empty() && !self.ended {
            match self.file.read(&mut self.buffer) {
                Ok(0) => self.ended = true,
                Ok(len) => self.held = 0..len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(&self.buffer[self.held.clone()])
    }

    pub(super) fn take(&mut self, len: usize) {
        self.held.start += len;
    }

    pub(super) fn has_bytes(&self) -> bool {
        !self.held.is_empty()
    }
}
