//! `mcpd run --config`: the parts of the daemon that are special to this program.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cli::events::Events;
use daemon_kit::RunError;
use daemon_kit::daemon::{Program, Service, Start};
use daemon_kit::signals::SignalAction;
use daemon_kit::status::Document;
use daemon_kit::view::View;
use linux_net::{Capability, privileges};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::{Carrier, Config, DEFAULT_SOCKET};
use crate::listen::{self, MAX_COPIES, Shared};
use crate::status::{Show, StatusHandle};
use crate::top;

/// Time that running copies have at the end to inform their senders.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The program before it runs.
pub(crate) struct Mcpd {
    /// Whether events are printed on standard output.
    pub(crate) json: bool,
}

impl cli::verbs::Daemon for Mcpd {
    type Config = Config;
    type Show = Show;
    const SOCKET: &'static str = DEFAULT_SOCKET;
    const EXAMPLE: &'static str = "bins/mcpd/mcpd.toml";
    const VIEW: View = top::VIEW;
}

impl Program for Mcpd {
    const NAME: &'static str = Show::PROGRAM;
    type Config = Config;
    type Opened = TcpListener;
    type Service = Running;

    fn open(&self, config: &Config) -> Result<TcpListener, RunError> {
        listen::bind(config.receive.address()).map_err(RunError::open("receive.listen"))
    }

    fn capabilities(&self, config: &Config) -> Vec<Capability> {
        let is_wanted = config.receive.carrier != Some(Carrier::Udp);
        let is_held = privileges::has(Capability::NetRaw);
        (is_wanted && is_held)
            .then_some(Capability::NetRaw)
            .into_iter()
            .collect()
    }

    fn start(&self, start: Start<'_, Mcpd>) -> Result<Running, RunError> {
        let other = |what: &'static str| {
            move |message| RunError::open(what)(std::io::Error::other(message))
        };
        start
            .config
            .receive
            .check_folder()
            .map_err(other("receive.dir"))?;
        let settings = start.config.receive.settings();
        let settings = settings.map_err(other("security.key-file"))?;
        let failed = RunError::open("receive.listen");
        let listener = tokio::net::TcpListener::from_std(start.opened).map_err(&failed)?;
        let address = listener.local_addr().map_err(&failed)?;
        let shared = Arc::new(Shared::new(
            settings,
            Events::new(self.json, false),
            MAX_COPIES,
        ));
        shared.listening(address);
        let (stop, stopped) = watch::channel(false);
        let serving = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            listen::serve(serving, listener, false, stopped).await;
        });
        Ok(Running {
            task,
            stop,
            status: StatusHandle {
                shared,
                daemon: start.state,
                address,
            },
        })
    }
}

/// The running program.
pub(crate) struct Running {
    task: JoinHandle<()>,
    stop: watch::Sender<bool>,
    status: StatusHandle,
}

impl Service for Running {
    type Config = Config;
    type Status = StatusHandle;

    fn status(&self) -> StatusHandle {
        self.status.clone()
    }

    fn ready(&mut self, file: &Path, _: &Config) {
        let listen: SocketAddr = self.status.address;
        tracing::info!(event = "running", configuration = %file.display(), %listen, "running");
    }

    async fn failed(&mut self) -> RunError {
        let ended = (&mut self.task).await;
        let why = ended.map_or_else(
            |error| error.to_string(),
            |()| "no longer accepts".to_owned(),
        );
        RunError::Data(why)
    }

    async fn reload(&mut self, next: &Config) -> Result<Vec<&'static str>, String> {
        next.receive.check_folder()?;
        self.status.shared.replace(next.receive.settings()?);
        Ok(Vec::new())
    }

    async fn end(&mut self, _: &Config, _: SignalAction) -> Result<(), RunError> {
        self.stop.send_replace(true);
        let ended = tokio::time::timeout(END_TIMEOUT, &mut self.task).await;
        if ended.is_err() {
            tracing::warn!(event = "end_timeout", "copies still running at the end");
        }
        Ok(())
    }

    async fn stop(self, _: SignalAction) -> Result<(), RunError> {
        self.task.abort();
        Ok(())
    }
}
