//! What the daemons share: `lms-router`, `dyram-relay` and `bfed-gateway`.
//!
//! | module | what |
//! | --- | --- |
//! | [`reader`], [`value`] | the configuration: every problem with its line, column, key, and what to write instead |
//! | [`environment`] | variables that win over the configuration's file |
//! | [`here`] | what of a configuration does not fit this host |
//! | [`settings`] | `[daemon]`: the status socket, the user, the core |
//! | [`signals`], [`verbs`] | what signals ask for; what `check` and `status` print |
//! | [`socket`], [`server`], [`client`] | the status socket: its file, answering, asking |
//! | [`standing`] | how long the program has been running, what became of reloads |
//! | [`notify`] | telling a service manager |
//! | [`metric`] | tables of metrics |
//! | [`table`] | aligned columns |
//! | `top` (feature `top`) | a view of a running daemon that follows it |

pub mod client;
mod control;
pub mod environment;
pub mod here;
pub mod metric;
pub mod notify;
pub mod reader;
pub mod server;
pub mod settings;
pub mod signals;
pub mod socket;
pub mod standing;
pub mod table;
#[cfg(feature = "top")]
pub mod top;
pub mod value;
pub mod verbs;

use linux_net::Capability;
use linux_net::privileges::{self, User};
use thiserror::Error;

pub use control::{Controller, Unavailable};
use reader::ConfigError;
use socket::{BindError, StatusSocket};

/// The program does not start, or ends early.
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
        /// What was being opened.
        what: &'static str,
        /// Why it did not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// `daemon.user` is nobody.
    #[error("daemon.user: there is no user {0:?} on this host")]
    NoUser(String),
    /// Privileges could not be given up; nothing was started.
    #[error("giving up privileges: {0}")]
    Privileges(#[from] privileges::DropError),
    /// The system refused something small.
    #[error("{0}: {1}")]
    Io(&'static str, std::io::Error),
    /// The data thread ended by itself.
    #[error("the data path ended: {0}")]
    Data(String),
}

impl RunError {
    /// Names what was being opened, for `map_err`.
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

/// Gives up every capability but those to `keep`, and becomes `user` where one is named. Answers the
/// names of what was kept. Call it before threads are started.
///
/// # Errors
/// There is no such user, or the kernel refuses: the process must not go on.
pub fn give_up_privileges(
    keep: &[Capability],
    user: Option<&str>,
    socket: &StatusSocket,
) -> Result<Vec<String>, RunError> {
    let user = user.map(find_user).transpose()?;
    if let Some(User { uid, gid }) = user {
        socket
            .give_to(uid, gid)
            .map_err(|e| RunError::Io("giving the status socket away", e))?;
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

/// Keeps this thread on one core; where that is refused, says so and goes on.
pub fn pin(cpu: usize) {
    use nix::sched::{CpuSet, sched_setaffinity};
    let mut set = CpuSet::new();
    let pinned = set
        .set(cpu)
        .and_then(|()| sched_setaffinity(nix::unistd::Pid::from_raw(0), &set));
    if let Err(error) = pinned {
        tracing::warn!(cpu, %error, "daemon.cpu: the data path stays unpinned");
    }
}
