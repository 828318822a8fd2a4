//! Files and folders below one folder. Paths cannot leave it: each component is opened relative to the one
//! before, and symbolic links are not followed.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use mcp_control::{RelPath, Timestamp};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat, renameat};
use nix::sys::stat::{Mode, UtimensatFlags, mkdirat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};

use super::trouble::Trouble;

/// An open folder; clones share the descriptor.
#[derive(Clone, Debug)]
pub(crate) struct Folder(Arc<OwnedFd>);

fn path_of(bytes: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}

/// Opens a path below `at`, component by component: links are not followed, `..` is refused. `openat2` could do
/// it in one call, but systemd does not allow it for services with dynamic users.
fn open_below(at: &impl AsFd, path: &[u8], flags: OFlag, mode: u32) -> nix::Result<OwnedFd> {
    let open = |at: BorrowedFd<'_>, name: &[u8], flags| {
        if matches!(name, b"" | b"." | b"..") {
            return Err(Errno::EXDEV);
        }
        let flags = flags | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        openat(at, path_of(name), flags, Mode::from_bits_truncate(mode))
    };
    let mut names = path.split(|&byte| byte == b'/');
    let last = names.next_back().unwrap_or_default();
    let mut folder: Option<OwnedFd> = None;
    for name in names {
        let at = folder.as_ref().map_or(at.as_fd(), AsFd::as_fd);
        folder = Some(open(at, name, OFlag::O_PATH | OFlag::O_DIRECTORY)?);
    }
    open(folder.as_ref().map_or(at.as_fd(), AsFd::as_fd), last, flags)
}

impl Folder {
    /// Opens the folder that everything is stored in.
    pub(crate) fn open(path: &Path) -> io::Result<Folder> {
        let file = File::open(path)?;
        if !file.metadata()?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Folder(Arc::new(file.into())))
    }

    /// Opens a folder below this one; `None` if it does not exist.
    pub(crate) fn find(&self, path: &[u8]) -> Result<Option<Folder>, Trouble> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        match open_below(&*self.0, path, flags, 0) {
            Ok(fd) => Ok(Some(Folder(Arc::new(fd)))),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(Trouble::of(error)),
        }
    }

    /// Opens the folder that contains `path`; `None` if it does not exist.
    pub(crate) fn parent(&self, path: &RelPath) -> Result<Option<Folder>, Trouble> {
        match path.parent() {
            Some(parent) => self.find(parent),
            None => Ok(Some(self.clone())),
        }
    }

    /// Opens the folder that contains `path`, and creates it and its parents if necessary.
    pub(crate) fn make_parents(&self, path: &RelPath) -> Result<Folder, Trouble> {
        let mut folder = self.clone();
        let names: Vec<&[u8]> = path.components().collect();
        for name in &names[..names.len() - 1] {
            folder = folder.make(name, 0o777)?;
        }
        Ok(folder)
    }

    /// Opens the folder `name` in this one, created with `mode` (less the umask) if necessary.
    pub(crate) fn make(&self, name: &[u8], mode: u32) -> Result<Folder, Trouble> {
        match mkdirat(&*self.0, path_of(name), Mode::from_bits_truncate(mode)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(Trouble::of(error)),
        }
        self.find(name)?
            .ok_or_else(|| Trouble::of(io::Error::from(io::ErrorKind::NotFound)))
    }

    /// Opens an existing file for reading; `None` if there is none, or something else.
    pub(crate) fn file(&self, name: &[u8]) -> Result<Option<File>, Trouble> {
        // Opening a pipe must not block.
        self.regular(name, OFlag::O_RDONLY | OFlag::O_NONBLOCK, 0)
    }

    /// Opens a file for reading and writing, created if necessary, and locks it against other copies.
    pub(crate) fn part(&self, name: &[u8], make: bool) -> Result<Option<File>, Trouble> {
        let create = if make { OFlag::O_CREAT } else { OFlag::empty() };
        let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | create;
        let Some(file) = self.regular(name, flags, 0o600)? else {
            if make {
                return Err(Trouble::new(
                    mcp_control::Reason::InTheWay,
                    "what has the name of an unfinished file is none",
                ));
            }
            return Ok(None);
        };
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(std::fs::TryLockError::WouldBlock) => {
                Err(Trouble::new(mcp_control::Reason::Locked, ""))
            }
            Err(std::fs::TryLockError::Error(error)) => Err(Trouble::of(error)),
        }
    }

    fn regular(&self, name: &[u8], flags: OFlag, mode: u32) -> Result<Option<File>, Trouble> {
        let file = match open_below(&*self.0, name, flags, mode) {
            Ok(fd) => File::from(fd),
            Err(Errno::ENOENT) => return Ok(None),
            // A link, a folder or a socket: not a file that can be read or written.
            Err(Errno::ELOOP | Errno::EISDIR | Errno::ENXIO) => return Ok(None),
            // A file that cannot be read is sent again.
            Err(Errno::EACCES) if !flags.contains(OFlag::O_RDWR) => return Ok(None),
            Err(error) => return Err(Trouble::of(error)),
        };
        let metadata = file.metadata().map_err(Trouble::of)?;
        // Another hard link of the same file would change with it.
        let writable = flags.contains(OFlag::O_RDWR);
        if !metadata.is_file() || (writable && metadata.nlink() != 1) {
            return Ok(None);
        }
        Ok(Some(file))
    }

    /// Renames an unfinished file to its final name, replacing a file of that name.
    pub(crate) fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), Trouble> {
        renameat(&*self.0, path_of(from), &*self.0, path_of(to)).map_err(Trouble::of)
    }

    pub(crate) fn remove(&self, name: &[u8]) {
        // A leftover is found and used by the next copy, or removed as the manual says.
        let _ = unlinkat(&*self.0, path_of(name), UnlinkatFlags::NoRemoveDir);
    }

    /// Creates the symbolic link `name`, replacing another link or a file, and sets its time.
    pub(crate) fn link(
        &self,
        name: &[u8],
        target: &[u8],
        modified: Timestamp,
    ) -> Result<(), Trouble> {
        let same =
            readlinkat(&*self.0, path_of(name)).is_ok_and(|found| found.as_bytes() == target);
        if !same {
            let part = mcp_control::path::part_name(name);
            self.remove(&part);
            symlinkat(path_of(target), &*self.0, path_of(&part)).map_err(Trouble::of)?;
            self.rename(&part, name)
                .inspect_err(|_| self.remove(&part))?;
        }
        let time = time_spec(modified);
        utimensat(
            &*self.0,
            path_of(name),
            &time,
            &time,
            UtimensatFlags::NoFollowSymlink,
        )
        .map_err(Trouble::of)
    }

    /// Makes the folder writable for this process, whatever its final mode.
    pub(crate) fn open_up(&self) {
        let file = self.0.try_clone().map(File::from);
        if let Ok(file) = file
            && let Ok(metadata) = file.metadata()
            && metadata.mode() & 0o700 != 0o700
        {
            // Without permission, writing the first file reports the error.
            let _ = file.set_permissions(Permissions::from_mode(metadata.mode() & 0o7777 | 0o700));
        }
    }

    /// Writes the names in it to the disk.
    pub(crate) fn sync(&self) -> Result<(), Trouble> {
        nix::unistd::fsync(&*self.0).map_err(Trouble::of)
    }

    /// Sets permissions and modification time.
    pub(crate) fn finish(&self, mode: u16, modified: Timestamp) -> Result<(), Trouble> {
        let file = File::from(self.0.try_clone().map_err(Trouble::of)?);
        stamp(&file, mode, modified).map_err(Trouble::of)
    }

    /// Returns the free bytes of the file system for this user; `None` if it does not report them.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        let system = nix::sys::statvfs::fstatvfs(&*self.0).ok()?;
        let blocks = system.blocks();
        (blocks > 0).then(|| system.blocks_available() * system.fragment_size())
    }

    /// Whether `name` exists and is neither a file nor a link.
    pub(crate) fn is_blocked(&self, name: &[u8]) -> bool {
        let found = nix::sys::stat::fstatat(&*self.0, path_of(name), AtFlags::AT_SYMLINK_NOFOLLOW);
        found.is_ok_and(|stat| {
            let kind = nix::sys::stat::SFlag::from_bits_truncate(stat.st_mode)
                & nix::sys::stat::SFlag::S_IFMT;
            kind != nix::sys::stat::SFlag::S_IFREG && kind != nix::sys::stat::SFlag::S_IFLNK
        })
    }
}

fn time_spec(time: Timestamp) -> TimeSpec {
    TimeSpec::new(time.seconds, i64::from(time.nanos))
}

/// Sets permissions and modification time of an open file or folder.
pub(crate) fn stamp(file: &File, mode: u16, modified: Timestamp) -> io::Result<()> {
    let now = file.metadata()?;
    // Set only if different: another hard link of the file would appear changed.
    if now.mode() & 0o7777 != u32::from(mode) {
        file.set_permissions(Permissions::from_mode(u32::from(mode)))?;
    }
    if (now.mtime(), now.mtime_nsec()) == (modified.seconds, i64::from(modified.nanos)) {
        return Ok(());
    }
    let since = Duration::from_secs(modified.seconds.unsigned_abs());
    let time = if modified.seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(since)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(since)
    };
    let time = time.and_then(|time| time.checked_add(Duration::from_nanos(modified.nanos.into())));
    // A time that this system cannot represent: the current time stays.
    match time {
        Some(time) => file.set_modified(time),
        None => Ok(()),
    }
}

/// Returns the modification time of the file.
pub(crate) fn modified(file: &File) -> Option<Timestamp> {
    let metadata = file.metadata().ok()?;
    let kind = metadata.file_type();
    (kind.is_file() && !kind.is_fifo()).then(|| Timestamp {
        seconds: metadata.mtime(),
        nanos: u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
    })
}
