//! The entries of a copy: folders, files and links, in an order that both sides know.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::digest::Digest;
use crate::limits::{BLOCK_LEN, MAX_BLOCKS, MAX_ENTRIES, MAX_FILE_LEN};
use crate::path::{PathError, RelPath, check_target};
use crate::wire::offer;

/// The kind of an entry.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// A folder.
    Folder,
    /// A file of this length.
    File {
        /// Its length in bytes, at most [`MAX_FILE_LEN`].
        len: u64,
    },
    /// A symbolic link that stays within the copy ([`check_target`]).
    Link {
        /// The target, as the link has it.
        target: Box<[u8]>,
    },
}

/// Seconds and nanoseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp {
    /// Seconds; before 1970 negative.
    pub seconds: i64,
    /// Nanoseconds, less than 10^9.
    pub nanos: u32,
}

/// One folder, file or link.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Entry {
    /// Where it goes, below the receiver's folder.
    pub path: RelPath,
    /// What it is.
    pub kind: Kind,
    /// Permissions: the low nine bits of the mode. Of a link: 0o777.
    pub mode: u16,
    /// When it was last written.
    pub modified: Timestamp,
}

impl Entry {
    /// Returns the length in bytes; 0 for entries that are not files.
    pub fn len(&self) -> u64 {
        match self.kind {
            Kind::File { len } => len,
            _ => 0,
        }
    }

    /// No bytes to copy.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Why a list of entries is refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ManifestError {
    /// No entry at all.
    Empty,
    /// More entries, bytes or blocks than are taken.
    TooLarge,
    /// Entries are not in order, or one comes twice.
    Order,
    /// An entry is in a folder that is no entry before it.
    Orphan,
    /// Fields that are invalid for a file, folder or link: mode, time or length out of bounds.
    Value,
    /// A path or the target of a link.
    Path(PathError),
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ManifestError::Empty => f.write_str("nothing to copy"),
            ManifestError::TooLarge => f.write_str("more entries or bytes than one copy may have"),
            ManifestError::Order => f.write_str("entries are out of order, or one comes twice"),
            ManifestError::Orphan => f.write_str("an entry's folder is missing"),
            ManifestError::Value => f.write_str("an entry's field is out of bounds"),
            ManifestError::Path(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ManifestError {}

impl From<PathError> for ManifestError {
    fn from(error: PathError) -> Self {
        ManifestError::Path(error)
    }
}

/// The checked entries of one copy, with their blocks counted.
///
/// The first entry is the top: a file, or the folder that all others are below. Entries are in the
/// order of [`RelPath`], so each comes once and after its folder. Blocks are counted through all
/// files in that order, [`BLOCK_LEN`] bytes each, the last one of a file shorter; an empty file
/// has none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Manifest {
    entries: Vec<Entry>,
    /// The number of the first block of each entry, followed by the number of all blocks.
    first_block: Vec<u64>,
    /// Bytes of all files before each entry, and one more: of all files.
    first_byte: Vec<u64>,
    /// The newest entry's folder and the folders above it, by entry, or the newest entry itself.
    folders: Vec<usize>,
}

impl Manifest {
    /// Checks entries that are all there.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn new(entries: Vec<Entry>) -> Result<Self, ManifestError> {
        let mut manifest = Manifest::default();
        for entry in entries {
            manifest.push(entry)?;
        }
        if manifest.is_empty() {
            return Err(ManifestError::Empty);
        }
        Ok(manifest)
    }

    /// Adds the next entry.
    ///
    /// # Errors
    /// The first rule that it breaks; nothing is added then.
    pub fn push(&mut self, entry: Entry) -> Result<(), ManifestError> {
        let depth = self.check(&entry)?;
        if self.entries.is_empty() {
            self.first_block = vec![0];
            self.first_byte = vec![0];
        }
        let blocks = self.blocks() + entry.len().div_ceil(BLOCK_LEN);
        let bytes = self.bytes().checked_add(entry.len());
        let bytes = bytes.ok_or(ManifestError::TooLarge)?;
        if blocks > MAX_BLOCKS || self.entries.len() >= MAX_ENTRIES as usize {
            return Err(ManifestError::TooLarge);
        }
        self.folders.truncate(depth);
        if entry.kind == Kind::Folder {
            self.folders.push(self.entries.len());
        }
        self.first_byte.push(bytes);
        self.first_block.push(blocks);
        self.entries.push(entry);
        Ok(())
    }

    /// Checks one more entry; how many of `folders` it is in.
    fn check(&self, entry: &Entry) -> Result<usize, ManifestError> {
        if entry.mode > 0o777 || entry.modified.nanos >= 1_000_000_000 {
            return Err(ManifestError::Value);
        }
        if entry.len() > MAX_FILE_LEN {
            return Err(ManifestError::Value);
        }
        let mut depth = 0;
        if let Some(last) = self.entries.last() {
            if last.path >= entry.path {
                return Err(ManifestError::Order);
            }
            let holds = |&folder: &usize| entry.path.is_below(&self.entries[folder].path);
            depth = self
                .folders
                .iter()
                .take_while(|&folder| holds(folder))
                .count();
            let nearest = depth.checked_sub(1).map(|at| self.folders[at]);
            let folder = nearest.map(|nearest| self.entries[nearest].path.as_bytes());
            if folder.is_none() || folder != entry.path.parent() {
                return Err(ManifestError::Orphan);
            }
        }
        if let Kind::Link { target } = &entry.kind {
            check_target(target, depth.saturating_sub(1))?;
        }
        Ok(depth)
    }

    /// Returns the entries.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// No entry yet.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.first_byte.last().copied().unwrap_or(0)
    }

    /// Bytes of the files before entry `index`.
    pub fn bytes_before(&self, index: usize) -> u64 {
        self.first_byte.get(index).copied().unwrap_or(self.bytes())
    }

    /// Blocks of all files.
    pub fn blocks(&self) -> u64 {
        self.first_block.last().copied().unwrap_or(0)
    }

    /// Returns the blocks of entry `index`: none for entries that are not files, for an empty file, and past
    /// the end.
    pub fn blocks_of(&self, index: usize) -> core::ops::Range<u64> {
        match self.first_block.get(index..index + 2) {
            Some(&[first, end]) => first..end,
            _ => 0..0,
        }
    }

    /// Where block `block` is; `None` when there is no such block.
    pub fn locate(&self, block: u64) -> Option<BlockPlace> {
        if block >= self.blocks() {
            return None;
        }
        let entry = self.first_block.partition_point(|&first| first <= block) - 1;
        let index = block - self.first_block[entry];
        let offset = index * BLOCK_LEN;
        let file_len = self.entries[entry].len();
        Some(BlockPlace {
            entry,
            index,
            offset,
            len: (file_len - offset).min(BLOCK_LEN),
            file_len,
        })
    }

    /// Returns the digest of the whole copy: over each entry as in ENTRIES and, after each file, its digest.
    /// `digests` has one for each entry; those of entries that are not files are ignored.
    pub fn digest(&self, digests: &[Digest]) -> Digest {
        let mut hasher = blake3::Hasher::new_derive_key("polycast mcp 1 digest of a whole copy");
        let mut buffer = vec![0; offer::MAX_ENTRY_LEN];
        for (entry, digest) in self.entries.iter().zip(digests) {
            let len = offer::emit_entry(entry, &mut buffer);
            hasher.update(&buffer[..len]);
            if matches!(entry.kind, Kind::File { .. }) {
                hasher.update(digest);
            }
        }
        *hasher.finalize().as_bytes()
    }
}

/// Where a block is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BlockPlace {
    /// The file, by its entry's number.
    pub entry: usize,
    /// The block's number in its file.
    pub index: u64,
    /// Where it starts in the file, in bytes.
    pub offset: u64,
    /// Its length in bytes: [`BLOCK_LEN`], or what is left of the file.
    pub len: u64,
    /// The file's length in bytes.
    pub file_len: u64,
}
