//! One file: what exists of it, and how the rest is written.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use mcp_control::limits::BLOCK_LEN;
use mcp_control::path::part_name;
use mcp_control::{Digest, Timestamp};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use nix::unistd::Whence;

use super::folder::{Folder, modified, stamp};
use super::trouble::Trouble;

/// What exists of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing usable.
    Nothing,
    /// A file of the same length under the final name, perhaps with the same content, and its metadata.
    Whole(Seen),
    /// The file cannot be completed: its data is discarded.
    Failed,
}

/// Metadata that changes when a file is written to or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    inode: u64,
    changed: (i64, i64),
}

impl Seen {
    pub(super) fn of(file: &File) -> Result<Seen, Trouble> {
        let metadata = file.metadata().map_err(Trouble::of)?;
        Ok(Seen {
            inode: metadata.ino(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

/// Folder and name of a file.
pub(super) struct Place<'a> {
    pub(super) folder: &'a Folder,
    pub(super) name: &'a [u8],
    pub(super) len: u64,
    pub(super) modified: Timestamp,
}

/// The file that its blocks can be read from.
pub(super) enum Source {
    Whole(File),
    Part(File),
}

impl Source {
    fn file(&self) -> &File {
        match self {
            Source::Whole(file) | Source::Part(file) => file,
        }
    }
}

/// Looks for existing data: a file with matching metadata first, then a partial file, then a file of the same
/// length. Without `parts` partial files are ignored.
pub(super) fn find(place: &Place<'_>, parts: bool) -> Result<(Found, Option<Source>), Trouble> {
    let whole = place.folder.file(place.name)?;
    let same_len = |file: &File| file.metadata().is_ok_and(|found| found.len() == place.len);
    let whole = whole.filter(same_len);
    if let Some(file) = &whole
        && modified(file) == Some(place.modified)
    {
        return Ok((Found::Whole(Seen::of(file)?), whole.map(Source::Whole)));
    }
    if parts && let Some(part) = place.folder.part(&part_name(place.name), false)? {
        return Ok((Found::Nothing, Some(Source::Part(part))));
    }
    match whole {
        Some(file) => Ok((Found::Whole(Seen::of(&file)?), Some(Source::Whole(file)))),
        None => Ok((Found::Nothing, None)),
    }
}

/// Reads the existing blocks, except holes, into `buffer`, which holds one block. Passes their digests to
/// `tell`, and stops when that returns `false`.
pub(super) fn digests(
    source: &Source,
    len: u64,
    buffer: &mut [u8],
    mut tell: impl FnMut(u64, Digest) -> bool,
) -> io::Result<()> {
    let file = source.file();
    let there = file.metadata()?.len();
    for block in 0..len.div_ceil(BLOCK_LEN) {
        let start = block * BLOCK_LEN;
        let end = (start + BLOCK_LEN).min(len);
        if end > there {
            break;
        }
        if is_hole(file, start, end) {
            continue;
        }
        let bytes = &mut buffer[..(end - start) as usize];
        file.read_exact_at(bytes, start)?;
        if !tell(block, mcp_control::digest::block(bytes, block, len)) {
            break;
        }
    }
    Ok(())
}

/// Whether nothing was ever written there.
fn is_hole(file: &File, start: u64, end: u64) -> bool {
    let Ok(start) = i64::try_from(start) else {
        return false;
    };
    match nix::unistd::lseek(file.as_fd(), start, Whence::SeekData) {
        Ok(data) => data.unsigned_abs() >= end,
        // No data follows.
        Err(Errno::ENXIO) => true,
        Err(_) => false,
    }
}

/// A file that is being written under its hidden name.
#[derive(Debug)]
pub(super) struct Writing {
    folder: Folder,
    file: File,
    sized: bool,
}

impl Writing {
    /// Continues a partial file.
    pub(super) fn resume(folder: Folder, file: File) -> Writing {
        Writing {
            folder,
            file,
            sized: false,
        }
    }

    /// Creates the file; with `copy_of` as a copy of the existing file, provided that its metadata has not
    /// changed.
    pub(super) fn create(
        folder: Folder,
        name: &[u8],
        len: u64,
        copy_of: Option<Seen>,
    ) -> Result<Writing, Trouble> {
        let part = part_name(name);
        let file = folder.part(&part, true)?;
        let file = file.ok_or_else(|| Trouble::of(io::Error::from(io::ErrorKind::NotFound)))?;
        let mut writing = Writing {
            folder,
            file,
            sized: false,
        };
        writing.size(len)?;
        if let Some(seen) = copy_of {
            let whole = writing.folder.file(name)?;
            let mut whole = whole.ok_or_else(changed)?;
            if Seen::of(&whole)? != seen {
                return Err(changed());
            }
            io::copy(&mut whole, &mut writing.file).map_err(Trouble::of)?;
            writing.file.set_len(len).map_err(Trouble::of)?;
        }
        Ok(writing)
    }

    /// Sets its length and reserves space on the disk, once.
    pub(super) fn size(&mut self, len: u64) -> Result<(), Trouble> {
        if self.sized {
            return Ok(());
        }
        reserve(&self.file, len).map_err(Trouble::of)?;
        self.file.set_len(len).map_err(Trouble::of)?;
        self.sized = true;
        Ok(())
    }

    pub(super) fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// Returns the bytes that it occupies on the disk.
    pub(super) fn allocated(&self) -> u64 {
        let metadata = self.file.metadata();
        metadata.map_or(0, |metadata| metadata.blocks().saturating_mul(512))
    }

    /// Renames it to its final name; with `fsync` after it was written to the disk.
    pub(super) fn commit(
        self,
        name: &[u8],
        mode: u16,
        modified: Timestamp,
        fsync: bool,
    ) -> Result<(), Trouble> {
        stamp(&self.file, mode, modified).map_err(Trouble::of)?;
        if fsync {
            self.file.sync_all().map_err(Trouble::of)?;
        }
        self.folder.rename(&part_name(name), name)
    }
}

/// The error of a file that another process has changed since it was examined.
pub(super) fn changed() -> Trouble {
    Trouble::new(
        mcp_control::Reason::Mismatch,
        "another program has changed it meanwhile",
    )
}

/// Reserves space where that is useful and fast; a file system in memory would allocate every page.
fn reserve(file: &File, len: u64) -> io::Result<()> {
    let Ok(signed) = i64::try_from(len) else {
        return Err(io::ErrorKind::FileTooLarge.into());
    };
    if len <= BLOCK_LEN || fstatfs(file)?.filesystem_type() == TMPFS_MAGIC {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, signed) {
        Ok(()) | Err(Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
