//! The skeleton of a daemon: everything between its command line and its exit code.
//!
//! [`run`] does this, in this order; a program provides the steps in bold.
//!
//! | step | detail |
//! | --- | --- |
//! | **load** | the configuration file and the environment ([`Program::load`]) |
//! | status socket | bound first: its lock prevents a second instance |
//! | **open** | everything that needs privileges ([`Program::open`]), then the address of the metrics |
//! | privileges | all capabilities except [`Program::capabilities`] are dropped, `daemon.user` is taken |
//! | signals | handled before anything else runs |
//! | **start** | threads and tasks ([`Program::start`]) |
//! | status, metrics | served from the answers of the [`StatusSource`] |
//! | **ready** | [`Service::ready`], then `READY=1` to the service manager |
//! | signals | SIGHUP: **reload**; SIGUSR1: **drain**; SIGUSR2, SIGTERM and SIGINT: the end |
//! | **end** | `STOPPING=1`, then [`Service::end`]; a second signal cuts it short, with exit code 1 |
//! | **stop** | status and metrics are no longer served, then [`Service::stop`] |
//! | status socket | its file is removed |

use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use linux_net::Capability;
use prometheus_client::registry::Registry;
use serde::de::DeserializeOwned;
use tokio::net::UnixListener;
use tokio::task::JoinSet;

use crate::environment::Document;
use crate::exporter::Exporter;
use crate::host::HostCheck;
use crate::metric::{Metric, Page};
use crate::reader::{self, ConfigError, Problem, Section};
use crate::server::{self, Failure, Out};
use crate::settings;
use crate::signals::{SignalAction, Signals};
use crate::socket::StatusSocket;
use crate::state::DaemonState;
use crate::{RunError, drop_privileges, notify};

/// The configuration of a program.
pub trait Configuration: Sized {
    /// Reads the configuration. Problems are noted in `root`.
    fn read(root: &Section<'_, '_>) -> Self;

    /// Reads the configuration from its text.
    ///
    /// # Errors
    /// Every problem, in the order of the text.
    fn parse<'t>(text: impl Into<Document<'t>>) -> Result<Self, Vec<Problem>> {
        reader::parse(text, Self::read)
    }

    /// Reads a configuration file of at most 1 MiB, and the environment variables that override it.
    ///
    /// # Errors
    /// The file cannot be read, or the configuration is wrong.
    fn load(file: &Path) -> Result<Self, ConfigError> {
        reader::load(file, |document| Self::parse(document))
    }

    /// Reports what does not fit this host, except `[daemon]` and `[metrics]`.
    fn check_host(&self, _host: &mut HostCheck) {}

    /// Returns `[daemon]` and `[metrics]`.
    fn daemon(&self) -> &settings::Daemon;

    /// Returns the keys that differ between `self`, which is in force, and `next`, and that only a restart changes.
    fn needs_restart(&self, next: &Self) -> Vec<&'static str>;

    /// Returns the configuration that is in force after a reload of `next`: everything that only a restart changes
    /// is kept from `self`.
    #[must_use]
    fn reloaded(&self, next: Self) -> Self;
}

/// A program before it runs.
pub trait Program {
    /// The name of the program, as in its messages.
    const NAME: &'static str;
    /// Its configuration.
    type Config: Configuration;
    /// What is opened while it still has privileges.
    type Opened;
    /// The program while it runs.
    type Service: Service<Config = Self::Config>;

    /// Reads the configuration, at the start and at each reload.
    ///
    /// # Errors
    /// The file cannot be read, or the configuration is wrong.
    fn load(&self, file: &Path) -> Result<Self::Config, ConfigError> {
        Self::Config::load(file)
    }

    /// Opens everything that needs privileges.
    ///
    /// # Errors
    /// What could not be opened; the daemon does not start.
    fn open(&self, config: &Self::Config) -> Result<Self::Opened, RunError>;

    /// Returns the capabilities that the running program needs.
    fn capabilities(&self, _config: &Self::Config) -> Vec<Capability> {
        Vec::new()
    }

    /// Starts threads and tasks, in a tokio runtime of one thread.
    ///
    /// # Errors
    /// What could not be started; the daemon does not start.
    fn start(&self, start: Start<'_, Self>) -> Result<Self::Service, RunError>
    where
        Self: Sized;
}

/// What [`Program::start`] is given.
pub struct Start<'a, P: Program> {
    /// The configuration.
    pub config: &'a P::Config,
    /// What was opened.
    pub opened: P::Opened,
    /// The state that every daemon has.
    pub state: Arc<DaemonState>,
}

/// A running program.
pub trait Service {
    /// Its configuration.
    type Config;
    /// What answers questions about it.
    type Status: StatusSource;
    /// Whether SIGUSR2 ends the program for a restart; it is ignored otherwise.
    const RESTARTS: bool = false;

    /// Returns what answers questions.
    fn status(&self) -> Self::Status;

    /// Is called once, when everything runs: the place for a log line.
    fn ready(&mut self, file: &Path, config: &Self::Config);

    /// Waits until a part of the program has ended that should not have. May be dropped and called again.
    fn failed(&mut self) -> impl Future<Output = RunError>;

    /// Puts `next` in force as a whole, or not at all. Returns further keys that wait for a restart.
    ///
    /// # Errors
    /// Why it was rejected.
    fn reload(
        &mut self,
        next: &Self::Config,
    ) -> impl Future<Output = Result<Vec<&'static str>, String>>;

    /// SIGUSR1: moves the work to others, and keeps running.
    fn drain(&mut self) {}

    /// Ends gracefully: notifies peers and hands work over, in bounded time.
    ///
    /// # Errors
    /// A part of the program has failed.
    fn end(
        &mut self,
        config: &Self::Config,
        action: SignalAction,
    ) -> impl Future<Output = Result<(), RunError>>;

    /// Stops everything that still runs, also after an [`end`](Service::end) that was cut short.
    ///
    /// # Errors
    /// A part of the program has failed.
    fn stop(self, action: SignalAction) -> impl Future<Output = Result<(), RunError>>;
}

/// Answers questions about a running daemon: on its status socket, and for its metrics.
pub trait StatusSource: Clone + Send + Sync + 'static {
    /// The line that asks, as JSON.
    type Question: DeserializeOwned + Send;
    /// The answer to a line that is no question: how to ask.
    const USAGE: &'static str;
    /// What the names of metrics begin with, without the underscore.
    const PREFIX: &'static str;
    /// What the metrics are made from.
    type Snapshot: fmt::Debug + Send + Sync;
    /// The metrics, in the order of the page.
    const METRICS: &'static [Metric<Self::Snapshot>];

    /// Answers a question.
    ///
    /// # Errors
    /// The data thread does not reply, which is reported to the client, or the connection failed.
    fn answer(
        &self,
        question: Self::Question,
        out: &mut Out,
    ) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Returns what the metrics are made from; `None` when it is not available.
    fn snapshot(&self) -> impl Future<Output = Option<Self::Snapshot>> + Send;
}

/// Runs `program` with the configuration `file` until a signal ends it.
///
/// # Errors
/// It did not start, or a part of it failed.
pub fn run<P: Program>(program: P, file: &Path) -> Result<ExitCode, RunError> {
    let mut prepared = Prepared::open(program, file)?;
    prepared.drop_privileges()?;
    prepared.run()
}

/// A program with everything open and no thread started: the parts of [`run`], for tests and for embedding.
pub struct Prepared<P: Program> {
    program: P,
    file: PathBuf,
    config: P::Config,
    opened: P::Opened,
    socket: Arc<StatusSocket>,
    exporter: Option<Exporter>,
    capabilities: Vec<String>,
}

impl<P: Program> Prepared<P> {
    /// Loads the configuration and opens everything.
    ///
    /// # Errors
    /// The configuration is wrong, another instance runs, or something could not be opened.
    pub fn open(program: P, file: &Path) -> Result<Prepared<P>, RunError> {
        let config = program.load(file)?;
        let daemon = config.daemon();
        let socket = StatusSocket::bind(&daemon.socket, daemon.socket_mode, P::NAME)?;
        let opened = program.open(&config)?;
        let bind = |address| Exporter::bind(address).map_err(RunError::open("metrics.listen"));
        let exporter = daemon.metrics.map(bind).transpose()?;
        Ok(Prepared {
            program,
            file: file.to_owned(),
            config,
            opened,
            socket: Arc::new(socket),
            exporter,
            capabilities: Vec::new(),
        })
    }

    /// Drops privileges, for the whole process. Call it before threads are started.
    ///
    /// # Errors
    /// As [`drop_privileges`]: the process must not continue.
    pub fn drop_privileges(&mut self) -> Result<(), RunError> {
        let keep = self.program.capabilities(&self.config);
        let user = self.config.daemon().user.as_deref();
        self.capabilities = drop_privileges(&keep, user, &self.socket)?;
        Ok(())
    }

    /// Runs until a signal ends it, in a tokio runtime of its own.
    ///
    /// # Errors
    /// As [`serve`](Self::serve).
    pub fn run(self) -> Result<ExitCode, RunError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| RunError::Io("starting the main thread", error))?;
        // It holds the lock of this instance: released last, after every socket of the runtime.
        let socket = Arc::clone(&self.socket);
        let result = runtime.block_on(self.serve());
        // Closes the sockets and waits for no thread: a look-up in DNS may take minutes to give up.
        runtime.shutdown_background();
        drop(socket);
        result
    }

    /// Runs until a signal ends it, in a tokio runtime of one thread with I/O and time.
    ///
    /// # Errors
    /// Something could not be started, or a part of the program failed.
    pub async fn serve(self) -> Result<ExitCode, RunError> {
        // Before anything else runs: an early signal must not end a process that is half started.
        let mut signals = Signals::new().map_err(|e| RunError::Io("watching signals", e))?;
        let metrics = self.exporter.as_ref().map(Exporter::local_address);
        let state = Arc::new(DaemonState::new(&self.file, metrics, self.capabilities));
        let start = Start {
            config: &self.config,
            opened: self.opened,
            state: Arc::clone(&state),
        };
        let mut service = self.program.start(start)?;
        let mut tasks = JoinSet::new();
        let listener = self.socket.listener().and_then(UnixListener::from_std);
        let listener = listener.map_err(|e| RunError::Io("status socket", e))?;
        tasks.spawn(serve_status(listener, service.status()));
        if let Some(exporter) = self.exporter {
            tasks.spawn(serve_metrics(
                exporter,
                service.status(),
                Arc::clone(&state),
            ));
        }
        service.ready(&self.file, &self.config);
        notify::state("READY=1");
        let mut running = Running {
            program: self.program,
            file: self.file,
            config: self.config,
            state,
            service,
        };
        let action = running.until_end(&mut signals).await?;
        notify::state("STOPPING=1");
        let Running {
            mut service,
            config,
            ..
        } = running;
        let code = tokio::select! {
            ended = service.end(&config, action) => ended.map(|()| ExitCode::SUCCESS)?,
            () = signals.end() => ExitCode::FAILURE,
        };
        drop(tasks);
        service.stop(action).await.map(|()| code)
    }
}

/// A program between its start and its end.
struct Running<P: Program> {
    program: P,
    file: PathBuf,
    config: P::Config,
    state: Arc<DaemonState>,
    service: P::Service,
}

impl<P: Program> Running<P> {
    /// Handles signals until one asks for the end, and returns that action.
    async fn until_end(&mut self, signals: &mut Signals) -> Result<SignalAction, RunError> {
        loop {
            let action = tokio::select! {
                action = signals.next() => action,
                error = self.service.failed() => return Err(error),
            };
            match action {
                SignalAction::Reload => {
                    notify::reloading();
                    let result = self.reload().await;
                    self.state.reloaded(result);
                    notify::state("READY=1");
                }
                SignalAction::Drain => self.service.drain(),
                SignalAction::Restart if !P::Service::RESTARTS => {}
                SignalAction::Restart | SignalAction::End => return Ok(action),
            }
        }
    }

    /// Accepts a new configuration as a whole, or rejects it as a whole.
    async fn reload(&mut self) -> Result<Vec<&'static str>, String> {
        let next = self.program.load(&self.file).map_err(|e| e.to_string())?;
        let mut waiting = self.config.needs_restart(&next);
        let next = self.config.reloaded(next);
        waiting.extend(self.service.reload(&next).await?);
        self.config = next;
        Ok(waiting)
    }
}

async fn serve_status<S: StatusSource>(listener: UnixListener, source: S) {
    server::serve(listener, move |line, mut out| {
        let source = source.clone();
        async move {
            let Ok(question) = serde_json::from_slice::<S::Question>(&line) else {
                return Ok(out.refuse(S::USAGE).await?);
            };
            match source.answer(question, &mut out).await {
                Err(Failure::Unavailable(unavailable)) => Ok(out.refuse(unavailable).await?),
                done => done,
            }
        }
    })
    .await;
}

async fn serve_metrics<S: StatusSource>(exporter: Exporter, source: S, daemon: Arc<DaemonState>) {
    let gather = move || {
        let (source, daemon) = (source.clone(), Arc::clone(&daemon));
        async move {
            let now = source.snapshot().await?;
            let metrics = S::METRICS;
            let mut registry = Registry::with_prefix(S::PREFIX);
            registry.register_collector(Box::new(Page {
                daemon,
                now,
                metrics,
            }));
            Some(registry)
        }
    };
    if let Err(error) = exporter.serve(gather).await {
        tracing::error!(event = "metrics_failed", %error, "metrics cannot be served");
    }
}
