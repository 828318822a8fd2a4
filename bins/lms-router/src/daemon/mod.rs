//! `lms-router run`: opens everything, gives privileges up, starts the data thread, and then is
//! the control thread: signals, reloads, status, metrics.

mod standing;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use daemon_kit::signals::{SignalAction, Signals};
use daemon_kit::socket::StatusSocket;
use daemon_kit::{RunError, notify};
use tokio::sync::oneshot;

pub(crate) use standing::Standing;

use crate::PROGRAM;
use crate::config::Config;
use crate::control::{Command, Controller};
use crate::data::{DataPath, Opened};
use crate::metrics;
use crate::status::Server;

/// How long the data thread may take to withdraw from the hierarchy.
const ENDING: Duration = Duration::from_secs(5);

/// Runs until a signal ends it.
pub(crate) fn run(file: &Path) -> Result<ExitCode, RunError> {
    let config = Config::load(file)?;
    let socket = StatusSocket::bind(&config.daemon.socket, config.daemon.socket_mode, PROGRAM)?;
    let opened = Opened::open(&config)?;
    let exporter = match config.metrics {
        Some(address) => Some(
            daemon_kit::exporter::Exporter::bind(address)
                .map_err(RunError::open("metrics.listen"))?,
        ),
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
    let keep = DataPath::needed_later(config);
    daemon_kit::drop_privileges(&keep, config.daemon.user.as_deref(), socket)
}

async fn control(
    file: &Path,
    config: Config,
    opened: Opened,
    socket: &StatusSocket,
    exporter: Option<daemon_kit::exporter::Exporter>,
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
            let mut path = DataPath::new(opened, &data_config);
            // Before its sockets close: for each the kernel waits until no processor can be using it, seconds on
            // a machine that has no time.
            let _ = ended.send(path.run(&commands));
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
            wish = signals.next() => match wish {
                SignalAction::Reload => reloader.reload().await,
                SignalAction::End => break,
                SignalAction::Drain | SignalAction::Restart => {}
            },
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
        () = signals.end() => Ok(ExitCode::FAILURE),
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
        let result = self.try_reload().await;
        self.standing.of_daemon.reloaded(result);
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
