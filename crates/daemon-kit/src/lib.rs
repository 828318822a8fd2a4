//! What the daemons `lms-router`, `dyram-relay`, `bfed-gateway` and `mcpd` share.
//!
//! | module | contents |
//! | --- | --- |
//! | [`daemon`] | the skeleton: everything between the command line and the exit code |
//! | [`reader`], [`value`] | the configuration: every problem with its line, column, key, and what to write instead |
//! | [`environment`] | environment variables that override the configuration file |
//! | [`host`] | whether a configuration fits this host |
//! | [`settings`] | `[daemon]` and `[metrics]`: status socket, user, core, address of the metrics |
//! | [`signals`] | the action that each signal asks for |
//! | [`socket`], [`server`], [`client`] | the status socket: its file, answering, asking |
//! | [`state`] | uptime, and the outcome of reloads |
//! | [`status`] | the documents of the status socket, as JSON and as text |
//! | [`threads`] | the data threads: named, pinned to a core, and watched |
//! | [`notify`] | state notifications to a service manager |
//! | [`metric`], [`exporter`] | tables of metrics; the HTTP server that exports them |
//! | [`table`] | aligned columns |
//! | [`view`], `top` (feature `top`) | tables and rates of a running daemon, refreshed every second |

#![forbid(unsafe_code)]

pub mod client;
mod control;
pub mod daemon;
pub mod environment;
pub mod exporter;
pub mod host;
pub mod metric;
pub mod notify;
pub mod reader;
pub mod server;
pub mod settings;
pub mod signals;
pub mod socket;
pub mod state;
pub mod status;
pub mod table;
pub mod threads;
#[cfg(feature = "top")]
pub mod top;
pub mod value;
pub mod view;

use linux_net::Capability;
use linux_net::privileges::{self, User};
use thiserror::Error;

pub use control::{Controller, Unavailable};
use reader::ConfigError;
use socket::{BindError, StatusSocket};

/// Why a daemon did not start, or ended early.
#[derive(Debug, Error)]
pub enum RunError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The status socket is taken, or cannot be made.
    #[error(transparent)]
    Socket(#[from] BindError),
    /// Sockets of the data path.
    #[error("{what}: {source}")]
    Open {
        /// Key of the configuration.
        what: &'static str,
        /// The error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// `daemon.user` names no user of this host.
    #[error("daemon.user: there is no user {0:?} on this host")]
    NoUser(String),
    /// Privileges could not be dropped; nothing was started.
    #[error("cannot drop privileges: {0}")]
    Privileges(#[from] privileges::DropError),
    /// A system call failed: its purpose, and the error.
    #[error("{0}: {1}")]
    Io(&'static str, std::io::Error),
    /// A data thread ended unexpectedly.
    #[error("the data path ended: {0}")]
    Data(String),
}

impl RunError {
    /// Adds the key of the configuration that was being opened, for `map_err`.
    pub fn open<E>(what: &'static str) -> impl Fn(E) -> RunError
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        move |source| RunError::Open {
            what,
            source: Box::new(source),
        }
    }
}

/// Drops every capability except `keep`, and changes to `user` when given. Returns the names of the capabilities
/// that were kept. Call it before threads are started.
///
/// # Errors
/// The user does not exist, or the kernel refuses: the process must not continue.
pub fn drop_privileges(
    keep: &[Capability],
    user: Option<&str>,
    socket: &StatusSocket,
) -> Result<Vec<String>, RunError> {
    let user = user.map(find_user).transpose()?;
    if let Some(User { uid, gid }) = user {
        socket
            .give_to(uid, gid)
            .map_err(|e| RunError::Io("giving the status socket to daemon.user", e))?;
    }
    privileges::drop_to(keep, user)?;
    Ok(keep.iter().map(ToString::to_string).collect())
}

fn find_user(name: &str) -> Result<User, RunError> {
    match nix::unistd::User::from_name(name) {
        Ok(Some(user)) => Ok(User {
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
        }),
        Ok(None) => Err(RunError::NoUser(name.to_owned())),
        Err(error) => Err(RunError::Io("looking daemon.user up", error.into())),
    }
}

/// Pins the current thread to one core. An error is logged, and the thread stays unpinned.
pub fn pin(cpu: usize) {
    use nix::sched::{CpuSet, sched_setaffinity};
    let mut set = CpuSet::new();
    let pinned = set
        .set(cpu)
        .and_then(|()| sched_setaffinity(nix::unistd::Pid::from_raw(0), &set));
    if let Err(error) = pinned {
        tracing::warn!(event = "cpu_not_pinned", cpu, %error, "daemon.cpu: the data path stays unpinned");
    }
}
