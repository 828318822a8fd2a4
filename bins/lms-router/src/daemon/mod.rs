//! `lms-router run`: opens everything, gives privileges up, starts the data thread, and then is
//! the control thread: signals, reloads, status, metrics.

mod notify;
mod standing;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use linux_net::privileges::{self, User};
use thiserror::Error;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

pub(crate) use standing::Standing;

use crate::config::{Config, ConfigError};
use crate::control::{Command, Controller};
use crate::data::{DataPath, Opened};
use crate::metrics;
use crate::status::{BindError, Server, StatusSocket};

/// How long the data thread may take to withdraw from the hierarchy and end.
const ENDING: Duration = Duration::from_secs(5);

/// The program does not start, or ends early.
#[derive(Debug, Error)]
pub(crate) enum RunError {
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
    pub(crate) fn open<E>(what: &'static str) -> impl Fn(E) -> RunError
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        move |source| RunError::Open {
            what,
            source: Box::new(source),
        }
    }
}

/// Runs until a signal ends it.
pub(crate) fn run(file: &Path) -> Result<ExitCode, RunError> {
    let config = Config::load(file)?;
    let socket = StatusSocket::bind(&config.daemon.socket, config.daemon.socket_mode)?;
    let opened = Opened::open(&config)?;
    let exporter = match config.metrics {
        Some(address) => {
            Some(cli::metrics::Exporter::bind(address).map_err(RunError::open("metrics.listen"))?)
        }
        None => None,
    };
    let kept = give_up_privileges(&config, &socket)?;
    let standing = Arc::new(Standing::new(
        file,
        &config,
        exporter
            .as_ref()
            .map(|exporter| exporter.local_address().to_string()),
        &kept,
    ));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| RunError::Io("starting the control thread", error))?;
    let result = runtime.block_on(control(file, config, opened, &socket, exporter, standing));
    drop(runtime);
    drop(socket);
    result
}

/// What stays: nothing with static routes, what the source of routes needs otherwise.
fn give_up_privileges(config: &Config, socket: &StatusSocket) -> Result<Vec<String>, RunError> {
    let user = match &config.daemon.user {
        Some(name) => Some(find_user(name)?),
        None => None,
    };
    if let Some(User { uid, gid }) = user {
        socket
            .give_to(uid, gid)
            .map_err(|e| RunError::Io("giving the status socket away", e))?;
    }
    let keep = DataPath::needed_later(config);
    privileges::drop_to(&keep, user)?;
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

struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }
}

async fn control(
    file: &Path,
    config: Config,
    opened: Opened,
    socket: &StatusSocket,
    exporter: Option<cli::metrics::Exporter>,
    standing: Arc<Standing>,
) -> Result<ExitCode, RunError> {
    // Before anything else runs: a signal that comes early must not end us half started.
    let mut signals = Signals::new().map_err(|e| RunError::Io("watching signals", e))?;
    let (controller, commands) = Controller::new(opened.waker());
    let (ended, mut end) = oneshot::channel();
    let data_config = config.clone();
    std::thread::Builder::new()
        .name("lms-data".to_owned())
        .spawn(move || {
            let result = DataPath::new(opened, &data_config).run(&commands);
            let _ = ended.send(result);
        })
        .map_err(|e| RunError::Io("starting the data thread", e))?;
    let listener = socket
        .listener()
        .and_then(tokio::net::UnixListener::from_std)
        .map_err(|e| RunError::Io("status socket", e))?;
    let server = Server {
        controller: controller.clone(),
        standing: Arc::clone(&standing),
    };
    tokio::spawn(server.run(listener));
    if let Some(exporter) = exporter {
        tokio::spawn(metrics::serve(
            exporter,
            controller.clone(),
            Arc::clone(&standing),
        ));
    }
    tracing::info!(
        configuration = %file.display(),
        source = config.source.kind(),
        policy = config.replier.policy.name(),
        socket = %config.daemon.socket.display(),
        "running"
    );
    notify::state("READY=1");
    let mut reloader = Reloader {
        file: file.to_owned(),
        finds_neighbours: config.names_neighbours(),
        running: config,
        standing,
        controller,
    };
    loop {
        tokio::select! {
            _ = signals.hangup.recv() => reloader.reload().await,
            _ = signals.terminate.recv() => break,
            _ = signals.interrupt.recv() => break,
            result = &mut end => return Err(RunError::Data(match result {
                Ok(Err(error)) => error.to_string(),
                _ => "it stopped with no reason given".to_owned(),
            })),
        }
    }
    notify::state("STOPPING=1");
    tracing::info!("ending: withdrawing from the hierarchy");
    let _ = reloader.controller.send(Command::Stop);
    tokio::select! {
        result = &mut end => match result {
            Ok(Ok(())) => Ok(ExitCode::SUCCESS),
            Ok(Err(error)) => Err(RunError::Data(error.to_string())),
            Err(_) => Err(RunError::Data("it stopped with no reason given".to_owned())),
        },
        _ = tokio::time::sleep(ENDING) => {
            Err(RunError::Data(format!("it did not end within {} s", ENDING.as_secs())))
        }
        _ = signals.terminate.recv() => Ok(ExitCode::FAILURE),
        _ = signals.interrupt.recv() => Ok(ExitCode::FAILURE),
    }
}

/// Reads the configuration again on SIGHUP.
struct Reloader {
    file: PathBuf,
    /// The capability to find neighbours' link addresses out was kept at the start.
    finds_neighbours: bool,
    running: Config,
    standing: Arc<Standing>,
    controller: Controller,
}

impl Reloader {
    /// Accepts a new configuration as a whole, or rejects it as a whole.
    async fn reload(&mut self) {
        notify::reloading();
        match self.try_reload().await {
            Ok(waiting) => {
                if waiting.is_empty() {
                    tracing::info!("configuration reloaded");
                } else {
                    tracing::warn!(
                        keys = waiting.join(", "),
                        "configuration reloaded; these keys keep their value until a restart"
                    );
                }
                self.standing.accepted(waiting);
            }
            Err(error) => {
                tracing::error!(%error, "configuration rejected, the old one stays");
                self.standing.rejected(error);
            }
        }
        notify::state("READY=1");
    }

    async fn try_reload(&mut self) -> Result<Vec<&'static str>, String> {
        let next = Config::load(&self.file).map_err(|error| error.to_string())?;
        let mut waiting = self.running.needs_restart(&next);
        if next.names_neighbours() && !self.finds_neighbours {
            // Requests to them are multicast on their link until then.
            waiting.push("replier.static.neighbour");
        }
        let next = self.running.reloaded(next);
        let command = next.clone();
        self.controller
            .ask(|reply| Command::Reload(Box::new(command), reply))
            .await
            .map_err(|error| error.to_string())?;
        self.running = next;
        Ok(waiting)
    }
}
