//! Errors of storing a copy.

use std::fmt;
use std::io;

use mcp_control::{Failed, Reason};

/// An error and the entry that it concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) reason: Reason,
    pub(crate) entry: Option<usize>,
    /// The error of the file system, or the kind of obstacle.
    pub(crate) text: String,
}

impl Trouble {
    pub(crate) fn new(reason: Reason, text: impl fmt::Display) -> Trouble {
        Trouble {
            reason,
            entry: None,
            text: text.to_string(),
        }
    }

    /// An error of the file system.
    pub(crate) fn of(error: impl Into<io::Error>) -> Trouble {
        let error = error.into();
        let reason = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Reason::NoSpace,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Reason::Permission
            }
            io::ErrorKind::IsADirectory
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::AlreadyExists => Reason::InTheWay,
            _ => Reason::Storage,
        };
        // A symbolic link where a folder or file is opened.
        let is_link = error.raw_os_error() == Some(nix::libc::ELOOP);
        let reason = if is_link { Reason::InTheWay } else { reason };
        Trouble::new(reason, named(&error))
    }

    pub(crate) fn at(mut self, entry: usize) -> Trouble {
        self.entry.get_or_insert(entry);
        self
    }

    pub(crate) fn failed(&self) -> Failed {
        let entry = self.entry.and_then(|entry| u32::try_from(entry).ok());
        Failed::new(self.reason, entry, &self.text)
    }
}

/// The error with its symbolic name.
fn named(error: &io::Error) -> String {
    match error.raw_os_error().map(nix::errno::Errno::from_raw) {
        Some(errno) => format!("{errno:?}: {}", errno.desc()),
        None => error.to_string(),
    }
}
