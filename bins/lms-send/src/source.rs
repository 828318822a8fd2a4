//! Where the bytes come from.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use ltp::store::{HeapRing, Store, StoreError};

/// What is sent.
pub(crate) enum Source {
    /// A file of known length.
    File {
        file: File,
        path: PathBuf,
        length: u64,
    },
    /// Standard input, a pipe or a device.
    Stream { file: File },
}

impl Source {
    pub(crate) fn open(path: &Path) -> anyhow::Result<Source> {
        if path.as_os_str() == "-" {
            use std::os::fd::AsFd;
            let fd = io::stdin()
                .as_fd()
                .try_clone_to_owned()
                .context("standard input")?;
            return Ok(Source::Stream { file: fd.into() });
        }
        let shown = path.display();
        let file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
        let metadata = file
            .metadata()
            .with_context(|| format!("cannot read {shown}"))?;
        if metadata.is_dir() {
            bail!("{shown} is a folder: send it with `tar c {shown} | lms-send ... -`");
        }
        if metadata.is_file() {
            let length = metadata.len();
            return Ok(Source::File {
                file,
                path: path.to_owned(),
                length,
            });
        }
        Ok(Source::Stream { file })
    }

    pub(crate) fn length(&self) -> Option<u64> {
        match self {
            Source::File { length, .. } => Some(*length),
            Source::Stream { .. } => None,
        }
    }
}

/// Reads a file once for its digest; `None` when `stop` says so.
pub(crate) fn digest(
    file: &File,
    length: u64,
    key: Option<[u8; 32]>,
    mut progress: impl FnMut(u64) -> bool,
) -> io::Result<Option<[u8; 32]>> {
    let mut hasher = key.map_or_else(blake3::Hasher::new, |key| blake3::Hasher::new_keyed(&key));
    let mut buffer = vec![0; 1 << 18];
    let mut offset = 0;
    while offset < length {
        let want = (length - offset).min(buffer.len() as u64) as usize;
        file.read_exact_at(&mut buffer[..want], offset)?;
        hasher.update(&buffer[..want]);
        offset += want as u64;
        if !progress(offset) {
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
pub(crate) struct FileStore {
    file: File,
    length: u64,
    block_len: u64,
    recent: [Cached; 2],
    /// Why reading failed, for the user.
    pub(crate) error: Option<io::Error>,
}

impl FileStore {
    pub(crate) fn new(file: File, length: u64, block_len: u64) -> Self {
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
            .ok_or(StoreError::NotHeld)?;
        out.copy_from_slice(piece);
        Ok(())
    }

    fn block(&mut self, offset: u64, len: usize) -> Result<&[u8], StoreError> {
        let (start, bytes) = self.load(offset)?;
        let from = (offset - start) as usize;
        bytes.get(from..from + len).ok_or(StoreError::NotHeld)
    }
}

/// Either kind of store.
pub(crate) enum Content {
    File(FileStore),
    Ring(HeapRing),
}

impl Content {
    pub(crate) fn error(&self) -> Option<&io::Error> {
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

/// A stream that is read when the sender has room for more of it.
pub(crate) struct Stream {
    pub(crate) file: File,
    buffer: Vec<u8>,
    held: std::ops::Range<usize>,
    pub(crate) ended: bool,
}

impl Stream {
    pub(crate) fn new(file: File) -> Self {
        Stream {
            file,
            buffer: vec![0; 1 << 16],
            held: 0..0,
            ended: false,
        }
    }

    /// Bytes read and not yet taken; reads when there are none. Call it when the descriptor is
    /// readable, else it waits.
    pub(crate) fn fill(&mut self) -> io::Result<&[u8]> {
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

    pub(crate) fn take(&mut self, len: usize) {
        self.held.start += len;
    }

    pub(crate) fn has_bytes(&self) -> bool {
        !self.held.is_empty()
    }
}
