//! A file that gets its name only when it is complete.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use tempfile::NamedTempFile;

/// A file under a temporary name, beside the place where it will stand.
///
/// The temporary is called `.NAME.XXXXXX.part`. Dropping the value removes it; [`commit`] renames it over
/// whatever has the final name, in one step.
///
/// [`commit`]: AtomicFile::commit
#[derive(Debug)]
pub struct AtomicFile {
    temporary: NamedTempFile,
    target: PathBuf,
}

impl AtomicFile {
    /// Creates the temporary in `folder` for a file to be called `name`.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn create(folder: &Path, name: &str) -> io::Result<Self> {
        let mut end = name.len().min(100);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        let temporary = tempfile::Builder::new()
            .prefix(&format!(".{}.", &name[..end]))
            .suffix(".part")
            .rand_bytes(6)
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder)?;
        Ok(AtomicFile {
            temporary,
            target: folder.join(name),
        })
    }

    /// Reserves `len` bytes, so that a full disk is known before the transfer.
    ///
    /// A file system in memory (tmpfs) would hand out every page now, a second or so for a few
    /// gigabytes: there, and where nothing can be reserved, the free space is looked at instead.
    ///
    /// # Errors
    /// The disk is full ([`io::ErrorKind::StorageFull`]), a quota or size limit is reached, or the
    /// disk fails.
    pub fn reserve(&self, len: u64) -> io::Result<()> {
        let Ok(signed) = i64::try_from(len) else {
            return Err(io::ErrorKind::FileTooLarge.into());
        };
        if len == 0 {
            return Ok(());
        }
        let system = fstatfs(self.file())?;
        if system.filesystem_type() != TMPFS_MAGIC {
            let flags = FallocateFlags::FALLOC_FL_KEEP_SIZE;
            match fallocate(self.file(), flags, 0, signed) {
                Err(Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL) => {}
                result => return result.map_err(io::Error::from),
            }
        }
        let free = system.blocks_available() * system.block_size().unsigned_abs();
        // Systems without a size (a tmpfs with size=0, some network file systems) say 0 of 0.
        if system.blocks() > 0 && free < len {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    /// The open file.
    pub fn file(&self) -> &File {
        self.temporary.as_file()
    }

    /// Where the file will stand.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Where it stands meanwhile.
    pub fn temporary(&self) -> &Path {
        self.temporary.path()
    }

    /// Writes at a position.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file().write_all_at(bytes, offset)
    }

    /// Gives the file its name, over an older file of that name; with `sync` the data and the name are
    /// on the disk when this returns. Returns the open file.
    ///
    /// # Errors
    /// Those of the file system; the temporary is removed then.
    pub fn commit(self, sync: bool) -> io::Result<File> {
        if sync {
            self.file().sync_all()?;
        }
        let file = self
            .temporary
            .persist(&self.target)
            .map_err(|error| error.error)?;
        if sync && let Some(folder) = self.target.parent() {
            File::open(folder)?.sync_all()?;
        }
        Ok(file)
    }
}

/// Checks that a file can be created in `folder`, before a transfer.
///
/// # Errors
/// A sentence for the user.
pub fn check_writable(folder: &Path) -> Result<(), String> {
    let probe = AtomicFile::create(folder, "check");
    probe.map(drop).map_err(|error| explain(&error, folder))
}

/// An error of the file system as a sentence for the user: a full disk says how to go on.
pub fn explain(error: &io::Error, path: &Path) -> String {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::StorageFull => {
            format!("no space left on the device that holds {path}: free some and run again")
        }
        io::ErrorKind::QuotaExceeded => format!("disk quota exceeded at {path}"),
        io::ErrorKind::PermissionDenied => format!("no permission to write {path}"),
        io::ErrorKind::ReadOnlyFilesystem => format!("{path} is on a read-only file system"),
        io::ErrorKind::NotFound => format!("{path} does not exist"),
        _ => format!("{path}: {error}"),
    }
}
