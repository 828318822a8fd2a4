//! The file of the status socket: it has one owner at a time; that of a dead owner is replaced.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::sys::stat::{Mode, umask};
use thiserror::Error;

/// The status socket was not opened.
#[derive(Debug, Error)]
pub enum BindError {
    /// Another process has it.
    #[error(
        "{0}: another {1} is running with this status socket; stop it, or give this one another path (daemon.socket)"
    )]
    Taken(PathBuf, &'static str),
    /// Another program listens there.
    #[error("{0}: another program listens here; choose another path (daemon.socket)")]
    InUse(PathBuf),
    /// The path is not a socket.
    #[error("{0}: exists and is not a socket; remove it, or choose another path (daemon.socket)")]
    NotASocket(PathBuf),
    /// Anything else.
    #[error(
        "{path}: {what}: {source}; another path can be named as daemon.socket, or POLYCAST_DAEMON__SOCKET"
    )]
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// A listening Unix socket; dropping it removes its file.
///
/// A lock on `PATH.lock` marks the owner. The kernel releases it with the process, so a socket file without a lock and
/// without a listener is stale.
#[derive(Debug)]
pub struct StatusSocket {
    listener: UnixListener,
    path: PathBuf,
    lock: PathBuf,
    // Held until the end.
    _locked: File,
}

impl StatusSocket {
    /// Opens the socket of `program` at `path` with the permissions `mode`. Makes its folder (one
    /// level) when it is missing. Call it before threads are started: the process's umask changes for a moment.
    ///
    /// # Errors
    /// [`BindError::Taken`] when another process holds the lock, [`BindError::InUse`] when another program
    /// listens at `path`, [`BindError::NotASocket`] when another kind of file is there, and
    /// [`BindError::Io`] when a system call fails.
    pub fn bind(path: &Path, mode: u32, program: &'static str) -> Result<StatusSocket, BindError> {
        let io = |what| {
            move |source| BindError::Io {
                path: path.to_owned(),
                what,
                source,
            }
        };
        if let Some(folder) = path.parent()
            && !folder.exists()
        {
            std::fs::create_dir(folder).map_err(io("making its folder"))?;
        }
        let mut lock = path.as_os_str().to_owned();
        lock.push(".lock");
        let lock = PathBuf::from(lock);
        let locked = take_lock(&lock).map_err(io("locking"))?;
        let Some(locked) = locked else {
            return Err(BindError::Taken(path.to_owned(), program));
        };
        match std::fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => {
                if UnixStream::connect(path).is_ok() {
                    return Err(BindError::InUse(path.to_owned()));
                }
                std::fs::remove_file(path).map_err(io("removing a stale socket"))?;
            }
            Ok(_) => return Err(BindError::NotASocket(path.to_owned())),
            Err(_) => {}
        }
        // No other user may connect before the permissions are set.
        let before = umask(Mode::from_bits_truncate(0o777));
        let listener = UnixListener::bind(path);
        umask(before);
        let listener = listener.map_err(io("opening the status socket"))?;
        std::fs::set_permissions(path, Permissions::from_mode(mode))
            .map_err(io("setting permissions"))?;
        listener
            .set_nonblocking(true)
            .map_err(io("opening the status socket"))?;
        Ok(StatusSocket {
            listener,
            path: path.to_owned(),
            lock,
            _locked: locked,
        })
    }

    /// Returns the listening socket.
    ///
    /// # Errors
    /// The kernel's error when the descriptor cannot be duplicated.
    pub fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }

    /// Changes the owner of the files to the user of the process, so that it can remove them.
    ///
    /// # Errors
    /// The kernel's error when the owner of the socket or of its lock file cannot be changed.
    pub fn give_to(&self, uid: u32, gid: u32) -> io::Result<()> {
        for path in [&self.path, &self.lock] {
            std::os::unix::fs::lchown(path, Some(uid), Some(gid))?;
        }
        Ok(())
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        // Without write permission in the folder the files stay; the next owner replaces them.
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_file(&self.lock);
    }
}

/// Returns the locked file; `None` when another process holds the lock.
fn take_lock(path: &Path) -> io::Result<Option<File>> {
    loop {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // The owner before us may have removed the file between our opening and locking it.
        match std::fs::metadata(path) {
            Ok(now) if now.ino() == file.metadata()?.ino() => return Ok(Some(file)),
            _ => continue,
        }
    }
}
