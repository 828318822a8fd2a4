//! `dyram-relay run`: the relay's part of the daemon.

use std::path::Path;
use std::sync::Arc;

use daemon_kit::RunError;
use daemon_kit::daemon::{Program, Service, Start};
use daemon_kit::signals::SignalAction;
use daemon_kit::state::DaemonState;
use daemon_kit::status::Document;
use daemon_kit::threads::DataThreads;
use daemon_kit::view::View;

use crate::config::{Config, DEFAULT_SOCKET};
use crate::control::{Command, Controller};
use crate::data::{DataPath, Opened};
use crate::status::{Show, StatusHandle};
use crate::top;

/// What the control thread knows of the relay.
#[derive(Debug)]
pub(crate) struct RelayState {
    pub(crate) daemon: Arc<DaemonState>,
    pub(crate) id: String,
    pub(crate) carriage: &'static str,
    pub(crate) listen: String,
}

/// The relay before it runs.
pub(crate) struct Relay;

impl cli::verbs::Daemon for Relay {
    type Config = Config;
    type Show = Show;
    const SOCKET: &'static str = DEFAULT_SOCKET;
    const EXAMPLE: &'static str = "bins/dyram-relay/dyram-relay.toml";
    const VIEW: View = top::VIEW;
}

impl Program for Relay {
    const NAME: &'static str = Show::PROGRAM;
    type Config = Config;
    type Opened = Opened;
    type Service = Running;

    fn open(&self, config: &Config) -> Result<Opened, RunError> {
        Opened::open(config)
    }

    fn start(&self, start: Start<'_, Relay>) -> Result<Running, RunError> {
        let (config, opened) = (start.config, start.opened);
        let state = RelayState {
            daemon: start.state,
            id: config.relay.id.to_string(),
            carriage: config.carriage(),
            listen: opened.listens().unwrap_or(config.listen).to_string(),
        };
        let (controller, commands) = Controller::new(opened.waker());
        let mut threads = DataThreads::default();
        threads.spawn("dyram-data".to_owned(), config.daemon.cpu, move |end| {
            end.send(DataPath::new(opened).run(&commands));
        })?;
        Ok(Running {
            threads,
            status: StatusHandle {
                controller,
                state: Arc::new(state),
            },
        })
    }
}

/// The running relay.
pub(crate) struct Running {
    threads: DataThreads,
    status: StatusHandle,
}

impl Running {
    fn send(&self, command: Command) {
        // A data thread that does not accept commands is ending.
        let _ = self.status.controller.send(command);
    }
}

impl Service for Running {
    type Config = Config;
    type Status = StatusHandle;

    fn status(&self) -> StatusHandle {
        self.status.clone()
    }

    fn ready(&mut self, file: &Path, _: &Config) {
        let state = &self.status.state;
        tracing::info!(event = "running", configuration = %file.display(), id = state.id, listen = state.listen, "running");
    }

    async fn failed(&mut self) -> RunError {
        self.threads.failed().await
    }

    async fn reload(&mut self, next: &Config) -> Result<Vec<&'static str>, String> {
        let command = Box::new(next.clone());
        let controller = &self.status.controller;
        controller
            .ask(|reply| Command::Reload(command, reply))
            .await
            .map_err(|error| error.to_string())?
            .map_err(|error| error.to_string())?;
        Ok(Vec::new())
    }

    fn drain(&mut self) {
        tracing::info!(
            event = "draining",
            "draining: children move to their next relays"
        );
        self.send(Command::Drain(false));
    }

    async fn end(&mut self, config: &Config, _: SignalAction) -> Result<(), RunError> {
        tracing::info!(
            event = "ending",
            "ending: children move to their next relays"
        );
        self.send(Command::Drain(true));
        let drained = tokio::time::timeout(config.drain, self.threads.join());
        drained.await.unwrap_or_else(|_| {
            tracing::warn!(
                event = "drain_timeout",
                "drain timed out; remaining children will time out"
            );
            Ok(())
        })
    }

    async fn stop(mut self, _: SignalAction) -> Result<(), RunError> {
        self.send(Command::Stop);
        self.threads.join().await
    }
}
