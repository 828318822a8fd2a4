//! `dyram-relay run`: opens everything, gives privileges up, starts the data thread, and then is the
//! control thread: signals, reloads, status, metrics.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use daemon_kit::exporter::Exporter;
use daemon_kit::signals::{SignalAction, Signals};
use daemon_kit::socket::StatusSocket;
use daemon_kit::state::DaemonState;
use daemon_kit::{RunError, drop_privileges, notify};
use tokio::sync::oneshot;

use crate::PROGRAM;
use crate::config::Config;
use crate::control::{Command, Controller};
use crate::data::{DataPath, Opened};
use crate::{metrics, status};

/// What the control thread itself knows of the program's state.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) of_daemon: DaemonState,
    pub(crate) id: String,
    pub(crate) carriage: &'static str,
    pub(crate) listen: String,
    pub(crate) metrics: Option<String>,
}

/// Runs until a signal ends it.
pub(crate) fn run(file: &Path) -> Result<ExitCode, RunError> {
    let config = Config::load(file)?;
    let (path, mode) = (&config.daemon.socket, config.daemon.socket_mode);
    let socket = StatusSocket::bind(path, mode, PROGRAM)?;
    let opened = Opened::open(&config)?;
    let listens = opened.listens();
    let bind = |address| Exporter::bind(address).map_err(RunError::open("metrics.listen"));
    let exporter = config.metrics.map(bind).transpose()?;
    drop_privileges(&[], config.daemon.user.as_deref(), &socket)?;
    let standing = Arc::new(Standing {
        of_daemon: DaemonState::new(file),
        id: config.relay.id.to_string(),
        carriage: config.carriage(),
        listen: listens.unwrap_or(config.listen).to_string(),
        metrics: exporter.as_ref().map(|e| e.local_address().to_string()),
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| RunError::Io("starting the control thread", error))?;
    let result = runtime.block_on(control(file, config, opened, &socket, exporter, standing));
    drop(runtime);
    drop(socket);
    result
}

async fn control(
    file: &Path,
    config: Config,
    opened: Opened,
    socket: &StatusSocket,
    exporter: Option<Exporter>,
    standing: Arc<Standing>,
) -> Result<ExitCode, RunError> {
    // Before anything else runs: a signal that comes early must not end us half started.
    let mut signals = Signals::new().map_err(|e| RunError::Io("watching signals", e))?;
    let (controller, commands) = Controller::new(opened.waker());
    let (ended, mut end) = oneshot::channel();
    let cpu = config.daemon.cpu;
    std::thread::Builder::new()
        .name("dyram-data".to_owned())
        .spawn(move || {
            if let Some(cpu) = cpu {
                daemon_kit::pin(cpu);
            }
            let _ = ended.send(DataPath::new(opened).run(&commands));
        })
        .map_err(|e| RunError::Io("starting the data thread", e))?;
    let listener = socket
        .listener()
        .and_then(tokio::net::UnixListener::from_std)
        .map_err(|e| RunError::Io("status socket", e))?;
    tokio::spawn(status::serve(
        listener,
        controller.clone(),
        Arc::clone(&standing),
    ));
    if let Some(exporter) = exporter {
        tokio::spawn(metrics::serve(
            exporter,
            controller.clone(),
            Arc::clone(&standing),
        ));
    }
    tracing::info!(configuration = %file.display(), id = standing.id, listen = standing.listen, "running");
    notify::state("READY=1");
    let mut reloader = Reloader {
        file: file.to_owned(),
        running: config,
        standing,
        controller,
    };
    loop {
        tokio::select! {
            wish = signals.next() => match wish {
                SignalAction::Reload => reloader.reload().await,
                SignalAction::Drain => {
                    tracing::info!("draining: children move to their next relays");
                    let _ = reloader.controller.send(Command::Drain(false));
                }
                SignalAction::End => break,
                SignalAction::Restart => {}
            },
            result = &mut end => return ended_early(result),
        }
    }
    notify::state("STOPPING=1");
    tracing::info!("ending: children move to their next relays");
    let _ = reloader.controller.send(Command::Drain(true));
    let code = tokio::select! {
        result = &mut end => return finish(result, ExitCode::SUCCESS),
        () = tokio::time::sleep(reloader.running.drain) => {
            tracing::warn!("children are left: they will find out by our silence");
            ExitCode::SUCCESS
        }
        () = signals.end() => ExitCode::FAILURE,
    };
    let _ = reloader.controller.send(Command::Stop);
    finish(end.await, code)
}

type Ended = Result<std::io::Result<()>, oneshot::error::RecvError>;

fn finish(ended: Ended, code: ExitCode) -> Result<ExitCode, RunError> {
    match ended {
        Ok(Ok(())) => Ok(code),
        other => ended_early(other),
    }
}

fn ended_early(ended: Ended) -> Result<ExitCode, RunError> {
    Err(RunError::Data(match ended {
        Ok(Err(error)) => error.to_string(),
        _ => "it stopped with no reason given".to_owned(),
    }))
}

/// Reads the configuration again on SIGHUP.
struct Reloader {
    file: PathBuf,
    running: Config,
    standing: Arc<Standing>,
    controller: Controller,
}

impl Reloader {
    /// Accepts a new configuration as a whole, or rejects it as a whole.
    async fn reload(&mut self) {
        notify::reloading();
        let result = self.try_reload().await;
        self.standing.of_daemon.reloaded(result);
        notify::state("READY=1");
    }

    async fn try_reload(&mut self) -> Result<Vec<&'static str>, String> {
        let next = Config::load(&self.file).map_err(|error| error.to_string())?;
        let waiting = self.running.needs_restart(&next);
        let next = self.running.reloaded(next);
        let command = Box::new(next.clone());
        self.controller
            .ask(|reply| Command::Reload(command, reply))
            .await
            .map_err(|error| error.to_string())?
            .map_err(|error| error.to_string())?;
        self.running = next;
        Ok(waiting)
    }
}
