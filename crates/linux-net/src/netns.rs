//! Network namespaces: small networks inside one machine, for tests and for the lab.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{getgid, getuid};
use thiserror::Error;

use crate::link::Editor;
use crate::sys;

/// A namespace was not created or entered.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NamespaceError {
    /// Not permitted.
    #[error(
        "creating network namespaces needs CAP_SYS_ADMIN: run as root, or inside `unshare -Urnm` where user namespaces are permitted (sysctl kernel.unprivileged_userns_clone, apparmor)"
    )]
    NotPermitted,
    /// User namespaces are for processes with one thread.
    #[error("a process must enter a user namespace before it starts threads")]
    Threads,
    /// Anything else.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

fn classify(what: &'static str) -> impl Fn(io::Error) -> NamespaceError + Copy {
    move |source| match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES | libc::ENOSPC) => NamespaceError::NotPermitted,
        _ => NamespaceError::Io { what, source },
    }
}

/// A network namespace; it lives as long as this value, or a socket or an interface in it.
#[derive(Debug)]
pub struct Namespace(OwnedFd);

impl Namespace {
    /// A new, empty network with its loopback interface up. The caller's thread stays where it
    /// is.
    ///
    /// # Errors
    /// [`NamespaceError`]: CAP_SYS_ADMIN is missing, or the kernel refuses another namespace.
    pub fn new() -> Result<Self, NamespaceError> {
        let made = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)
                .map_err(|e| classify("creating a network namespace")(e.into()))?;
            if let Ok(mut editor) = Editor::open() {
                // The first interface of a namespace is the loopback.
                let _ = editor.set_up(1, true);
            }
            let own = File::open("/proc/thread-self/ns/net");
            Ok(Self(
                own.map_err(classify("opening a network namespace"))?.into(),
            ))
        });
        made.join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Runs `f` in a thread inside the namespace and returns its result; a panic propagates. Sockets
    /// opened inside stay inside.
    ///
    /// # Errors
    /// [`NamespaceError`]: no thread can be started, or it cannot enter the namespace.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                self.enter()?;
                Ok(f())
            });
            inside
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Moves the calling thread into the namespace permanently.
    ///
    /// # Errors
    /// [`NamespaceError`]: CAP_SYS_ADMIN is missing, or the file is no network namespace.
    pub fn enter(&self) -> Result<(), NamespaceError> {
        setns(&self.0, CloneFlags::CLONE_NEWNET)
            .map_err(|e| classify("entering a network namespace")(e.into()))
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Makes an ordinary user's process root of its own user, network and mount namespaces, so that
/// everything of this crate works in it. For the start of `main`: threads must not run yet.
///
/// # Errors
/// [`NamespaceError`]: this host does not allow user namespaces, or other threads run.
pub fn become_root() -> Result<(), NamespaceError> {
    if sys::count_threads().map_err(classify("counting threads"))? != 1 {
        return Err(NamespaceError::Threads);
    }
    let (uid, gid) = (getuid(), getgid());
    let flags = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS;
    unshare(flags).map_err(|e| match e {
        nix::Error::EINVAL => NamespaceError::Threads,
        e => classify("creating namespaces")(e.into()),
    })?;
    let write = |path: &str, text: String| {
        fs::write(path, text).map_err(classify("mapping users into the namespace"))
    };
    write("/proc/self/setgroups", "deny".into())?;
    write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    write("/proc/self/gid_map", format!("0 {gid} 1"))?;
    if let Ok(mut editor) = Editor::open() {
        let _ = editor.set_up(1, true);
    }
    Ok(())
}
