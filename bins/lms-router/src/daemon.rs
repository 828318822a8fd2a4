//! `lms-router run`: what the router adds to the skeleton of a daemon.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use daemon_kit::RunError;
use daemon_kit::daemon::{Program, Service, Start};
use daemon_kit::signals::SignalAction;
use daemon_kit::state::DaemonState;
use daemon_kit::status::Document;
use daemon_kit::threads::DataThreads;
use daemon_kit::view::View;
use linux_net::Capability;
use serde_json::{Value, json};

use crate::config::{Config, DEFAULT_SOCKET};
use crate::control::{Command, Controller, Summary};
use crate::data::{DataPath, Opened};
use crate::status::{Show, StatusHandle};
use crate::top;

/// The time allowed for the data thread to withdraw from the hierarchy.
const WITHDRAW_TIMEOUT: Duration = Duration::from_secs(5);

/// The router before it runs.
pub(crate) struct Router;

impl cli::verbs::Daemon for Router {
    type Config = Config;
    type Show = Show;
    const SOCKET: &'static str = DEFAULT_SOCKET;
    const EXAMPLE: &'static str = "bins/lms-router/lms-router.toml";
    const VIEW: View = top::VIEW;
}

impl Program for Router {
    const NAME: &'static str = Show::PROGRAM;
    type Config = Config;
    type Opened = Opened;
    type Service = Running;

    fn open(&self, config: &Config) -> Result<Opened, RunError> {
        Opened::open(config)
    }

    /// Nothing with static routes, what the source of routes needs otherwise.
    fn capabilities(&self, config: &Config) -> Vec<Capability> {
        DataPath::needed_later(config)
    }

    fn start(&self, start: Start<'_, Router>) -> Result<Running, RunError> {
        let config = start.config;
        let (controller, commands) = Controller::new(start.opened.waker());
        let mut threads = DataThreads::default();
        let (opened, data_config) = (start.opened, config.clone());
        threads.spawn("lms-data".to_owned(), config.daemon.cpu, move |end| {
            let mut path = DataPath::new(opened, &data_config);
            let result = path.run(&commands);
            // Before the sockets close, which takes seconds on a loaded machine.
            end.send(result);
        })?;
        let state = RouterState {
            daemon: start.state,
            source: config.source.kind(),
            guard: config.capture.guard,
        };
        Ok(Running {
            threads,
            status: StatusHandle {
                controller,
                state: Arc::new(state),
            },
            finds_neighbours: config.names_neighbours(),
        })
    }
}

/// The running router.
pub(crate) struct Running {
    threads: DataThreads,
    status: StatusHandle,
    /// The capability to resolve the link addresses of neighbours was kept at the start.
    finds_neighbours: bool,
}

impl Service for Running {
    type Config = Config;
    type Status = StatusHandle;

    fn status(&self) -> StatusHandle {
        self.status.clone()
    }

    fn ready(&mut self, file: &Path, config: &Config) {
        tracing::info!(
            event = "running",
            configuration = %file.display(),
            source = config.source.kind(),
            policy = config.replier.policy.name(),
            socket = %config.daemon.socket.display(),
            "running"
        );
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
            .map_err(|error| error.to_string())?;
        // Without the capability, requests to neighbours are multicast on their link.
        let waits = next.names_neighbours() && !self.finds_neighbours;
        Ok(waits
            .then_some("replier.static.neighbour")
            .into_iter()
            .collect())
    }

    async fn end(&mut self, _: &Config, _: SignalAction) -> Result<(), RunError> {
        tracing::info!(event = "ending", "ending: withdrawing from the hierarchy");
        let _ = self.status.controller.send(Command::Stop);
        let ended = tokio::time::timeout(WITHDRAW_TIMEOUT, self.threads.join());
        ended.await.unwrap_or_else(|_| {
            let limit = WITHDRAW_TIMEOUT.as_secs();
            Err(RunError::Data(format!("it did not end within {limit} s")))
        })
    }

    /// A data thread that has not ended by now ends with the process.
    async fn stop(self, _: SignalAction) -> Result<(), RunError> {
        Ok(())
    }
}

/// Everything in the overview that the data thread does not know.
#[derive(Debug)]
pub(crate) struct RouterState {
    daemon: Arc<DaemonState>,
    pub(crate) source: &'static str,
    guard: bool,
}

impl RouterState {
    pub(crate) fn overview(&self, summary: &Summary) -> Value {
        let more = json!({
            "source": self.source,
            "policy": summary.policy,
            "groups": summary.groups,
            "neighbours": summary.neighbours,
            "interfaces": summary.interfaces,
            "guard": self.guard,
            "xdp_groups": summary.fast_groups,
            "capabilities": self.daemon.capabilities(),
        });
        self.daemon.overview(env!("CARGO_PKG_VERSION"), more)
    }
}
