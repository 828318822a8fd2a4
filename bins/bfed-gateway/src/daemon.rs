//! `bfed-gateway run|control|data`: the gateway's part of the daemon. The main thread drives the control
//! node; each data node has its own thread.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bfed::ControlNode;
use control_stream::links::LinkCredentials;
use control_stream::tls::Credentials;
use daemon_kit::RunError;
use daemon_kit::daemon::{Configuration, Prepared, Program, Service, Start};
use daemon_kit::exporter::Exporter;
use daemon_kit::reader::{ConfigError, Problem};
use daemon_kit::signals::SignalAction;
use daemon_kit::state::DaemonState;
use daemon_kit::status::Document;
use daemon_kit::threads::DataThreads;
use daemon_kit::view::View;
use proto_core::clock::Clock;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

use crate::config::{Config, DEFAULT_SOCKET, Mode};
use crate::control::{self, Command, Coordinated, Driver, Resignation, StoreEvent};
use crate::data::{self, Opened, Opener, Worker, not_opened};
use crate::links::{self, Towards};
use crate::native::{Access, Network, Owner, Role};
use crate::page;
use crate::status::{Show, StatusHandle};
use crate::top;

/// The main thread's view of the gateway.
#[derive(Debug)]
pub(crate) struct GatewayState {
    pub(crate) daemon: Arc<DaemonState>,
    pub(crate) mode: Mode,
    pub(crate) gateway: String,
    pub(crate) network: &'static str,
    pub(crate) network_number: u32,
    /// Where clients of the native network ask for sessions.
    pub(crate) mediator: Option<String>,
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) cluster: Option<SocketAddr>,
    pub(crate) data: Vec<SocketAddr>,
    pub(crate) page: Option<SocketAddr>,
    pub(crate) access: Arc<Access>,
}

/// Everything that is opened before privileges are dropped.
pub(crate) struct Parts {
    config: Config,
    access: Arc<Access>,
    mode: Mode,
    clock: Clock,
    credentials: Option<Arc<Credentials>>,
    /// Credentials of the streams between control and data nodes.
    cluster_credentials: Option<Arc<Credentials>>,
    /// The control node's listeners for peers and data nodes, and its mediator.
    peers: Option<TcpListener>,
    cluster: Option<TcpListener>,
    mediator: Option<Box<dyn Network>>,
    data: Vec<Opened>,
    page: Option<Exporter>,
    marker: Marker,
    ports: control::Ports,
}

/// Opens a gateway whose native network the caller opens, and returns its run, in a tokio runtime of one thread with
/// I/O and time. Privileges are kept.
///
/// # Errors
/// The configuration is wrong, or something could not be opened.
pub fn open_with(
    mode: Mode,
    file: &Path,
    open: Opener<'_>,
) -> Result<impl Future<Output = Result<ExitCode, RunError>>, RunError> {
    let open = Some(open);
    Ok(Prepared::open(Gateway { mode, open }, file)?.serve())
}

/// The gateway before it runs.
pub(crate) struct Gateway<'a> {
    pub(crate) mode: Mode,
    /// Opens the native network; `None` opens the one of the configuration.
    pub(crate) open: Option<Opener<'a>>,
}

impl cli::verbs::Daemon for Gateway<'_> {
    type Config = Config;
    type Show = Show;
    const SOCKET: &'static str = DEFAULT_SOCKET;
    const EXAMPLE: &'static str = "bins/bfed-gateway/examples/gateway.toml";
    const VIEW: View = top::VIEW;
}

impl Program for Gateway<'_> {
    const NAME: &'static str = Show::PROGRAM;
    type Config = Config;
    type Opened = Parts;
    type Service = Running;

    fn load(&self, file: &Path) -> Result<Config, ConfigError> {
        let config = Config::load(file)?.fit(self.mode);
        fits(self.mode, &config, file)?;
        Ok(config)
    }

    fn open(&self, config: &Config) -> Result<Parts, RunError> {
        let configured = |role, owner| config.network.open(role, owner);
        Parts::open(self.mode, config.clone(), self.open.unwrap_or(&configured))
    }

    fn start(&self, start: Start<'_, Self>) -> Result<Running, RunError> {
        let mut parts = start.opened;
        let state = Arc::new(parts.state(start.state));
        let (to_driver, inputs) = mpsc::channel(control::INPUTS);
        let mut tasks = JoinSet::new();
        let (threads, data) = start_data_nodes(std::mem::take(&mut parts.data))?;
        let driver = parts.drive(to_driver.clone(), inputs)?;
        let status = StatusHandle {
            driver: driver.as_ref().map(|driver| driver.commands.clone()),
            data,
            state,
        };
        parts.take_calls(&mut tasks, &to_driver)?;
        parts.keep_links(&mut tasks, &status.data, to_driver);
        if let Some(listener) = parts.page.take() {
            let players = page::Players::new(&parts.config.network, status.data.len());
            tasks.spawn(page::serve(listener, status.clone(), players));
        }
        Ok(Running {
            marker: parts.marker,
            status,
            driver,
            threads,
            tasks,
        })
    }
}

/// Checks what only one mode needs.
fn fits(mode: Mode, config: &Config, file: &Path) -> Result<(), ConfigError> {
    let missing = match mode {
        Mode::Whole => None,
        Mode::Control if config.cluster.listen.is_none() => Some((
            "cluster.listen",
            "an address and a port where data nodes call",
        )),
        Mode::Data if config.cluster.control.is_empty() => {
            Some(("cluster.control", "where the control nodes listen"))
        }
        Mode::Control | Mode::Data => None,
    };
    let Some((key, instead)) = missing else {
        return Ok(());
    };
    let problem = Problem {
        line: 1,
        column: 1,
        key: key.to_owned(),
        wrong: format!("is missing, and `{}` needs it", mode.name()),
        instead: format!("write {instead}"),
        variable: None,
    };
    Err(ConfigError::Wrong(file.to_owned(), vec![problem]))
}

/// Name of the protocol of QUIC links (ALPN).
const LINK_PROTOCOL: &[u8] = b"polycast-bfed/1";

/// Connections that may wait to be accepted; `net.core.somaxconn` may grant less.
const BACKLOG: i32 = 1024;

fn listen(
    address: Option<SocketAddr>,
    what: &'static str,
) -> Result<Option<TcpListener>, RunError> {
    let open = |address: SocketAddr| {
        let listener = TcpListener::bind(address)?;
        // The standard library asks for 128. A client retries after a second or more if the queue is full.
        socket2::SockRef::from(&listener).listen(BACKLOG)?;
        // Peers that bound the hops see the TTL from the first packet on.
        linux_net::inet::tell_hops(&listener, address.ip())?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    let open = |address| open(address).map_err(RunError::open::<std::io::Error>(what));
    address.map(open).transpose()
}

fn address(listener: Option<&TcpListener>) -> Option<SocketAddr> {
    listener.and_then(|listener| listener.local_addr().ok())
}

impl Parts {
    fn open(mode: Mode, config: Config, open: Opener<'_>) -> Result<Parts, RunError> {
        let clock = Clock::new();
        let credentials = config
            .key_file
            .as_deref()
            .map(Credentials::read)
            .transpose()
            .map_err(|why| RunError::Open {
                what: "gateway.key-file",
                source: why.into(),
            })?;
        let cluster_credentials =
            config
                .cluster_credentials()
                .map_err(|(what, why)| RunError::Open {
                    what,
                    source: why.into(),
                })?;
        if let Some(tls) = config.etcd.as_ref().and_then(|etcd| etcd.tls.as_ref()) {
            check_certificates(&tls.key_file)?;
        }
        let controls = mode.controls();
        let peers = listen(config.listen.filter(|_| controls), "gateway.listen")?;
        let cluster = listen(config.cluster.listen.filter(|_| controls), "cluster.listen")?;
        let access = access(&config)?;
        let mediator = controls
            .then(|| mediator(&config, clock, &access, open))
            .transpose()?;
        let data = match mode.forwards() {
            true => {
                let key_file = config.links_key_file.as_deref();
                let links = key_file.map(Credentials::read).transpose();
                let links = links.map_err(|why| RunError::Open {
                    what: "links.key-file",
                    source: why.into(),
                })?;
                let links = links.map(|own| LinkCredentials::new(&own, LINK_PROTOCOL));
                Opened::open(&config, clock, &access, open, links.as_ref())?
            }
            false => Vec::new(),
        };
        let bind = |address| Exporter::bind(address).map_err(RunError::open("status.page"));
        let page = config.page.map(bind).transpose()?;
        let ports = control::Ports::new();
        ports.configure(&config, &Default::default());
        Ok(Parts {
            ports,
            marker: Marker::new(mode, &config),
            access,
            config,
            mode,
            clock,
            credentials: credentials.map(Arc::new),
            cluster_credentials: cluster_credentials.map(Arc::new),
            peers,
            cluster,
            mediator,
            data,
            page,
        })
    }

    fn state(&self, daemon: Arc<DaemonState>) -> GatewayState {
        GatewayState {
            daemon,
            mode: self.mode,
            gateway: self.config.machine.gateway.to_string(),
            network: self.config.network.kind(),
            network_number: self.config.machine.gateway.network.get(),
            mediator: self.config.network.mediator(),
            listen: address(self.peers.as_ref()),
            cluster: address(self.cluster.as_ref()),
            data: self.data.iter().filter_map(Opened::datagram).collect(),
            page: self.page.as_ref().map(Exporter::local_address),
            access: Arc::clone(&self.access),
        }
    }

    /// Starts the control node's driver, if this process has one.
    fn drive(
        &mut self,
        to_self: mpsc::Sender<control::Input>,
        inputs: mpsc::Receiver<control::Input>,
    ) -> Result<Option<RunningDriver>, RunError> {
        let Some(network) = self.mediator.take() else {
            return Ok(None);
        };
        let config = self.config.clone();
        let (coordinator, store_events, resignation) = coordinator(&config)?;
        let mut machine = config.machine.clone();
        machine.restarting = self.marker.was_running();
        let node = control_node(&config, machine, coordinator, self.clock)?;
        let parts = control::Parts {
            ports: self.ports.clone(),
            config,
            clock: self.clock,
            node,
            network,
            credentials: self.credentials.clone(),
            to_self,
            inputs,
            store_events,
        };
        let driver = Driver::new(parts).map_err(|e| RunError::Io("the mediator", e))?;
        let (commands, receiver) = mpsc::channel(64);
        Ok(Some(RunningDriver {
            commands,
            task: tokio::spawn(driver.run(receiver)),
            resignation,
        }))
    }

    /// Starts to accept connections of peers and data nodes.
    fn take_calls(
        &mut self,
        tasks: &mut JoinSet<()>,
        to_driver: &mpsc::Sender<control::Input>,
    ) -> Result<(), RunError> {
        let tokio_listener = |listener: Option<TcpListener>| {
            let listener = listener.map(tokio::net::TcpListener::from_std).transpose();
            listener.map_err(|e| RunError::Io("listening", e))
        };
        if let Some(listener) = tokio_listener(self.peers.take())? {
            let credentials = self.credentials.clone();
            let port = Arc::clone(&self.ports.peers);
            tasks.spawn(control::peers(
                listener,
                port,
                credentials,
                to_driver.clone(),
            ));
        }
        if let Some(listener) = tokio_listener(self.cluster.take())? {
            let members = control::Members {
                credentials: self.cluster_credentials.clone(),
                names: self.config.cluster.nodes.clone(),
            };
            let port = Arc::clone(&self.ports.cluster);
            tasks.spawn(control::nodes(listener, port, members, to_driver.clone()));
        }
        Ok(())
    }

    /// Starts the links of the data nodes to their control node.
    fn keep_links(
        &self,
        tasks: &mut JoinSet<()>,
        nodes: &[data::Controller],
        to_driver: mpsc::Sender<control::Input>,
    ) {
        let towards = match self.mode {
            Mode::Data => {
                let credentials = self.cluster_credentials.clone();
                Towards::Cluster(self.config.cluster.clone(), credentials)
            }
            Mode::Whole | Mode::Control => Towards::Driver(to_driver),
        };
        for node in nodes {
            tasks.spawn(links::keep(node.clone(), towards.clone()));
        }
    }
}

/// Checks that etcd's key file has certificates: etcd has no shared secrets.
fn check_certificates(file: &Path) -> Result<(), RunError> {
    let wrong = |why: String| RunError::Open {
        what: "etcd.key-file",
        source: why.into(),
    };
    Credentials::read(file).map_err(wrong)?;
    let pem = std::fs::read(file).map_err(|e| RunError::Io("reading etcd.key-file", e))?;
    Credentials::from_pem(&pem).map(drop).map_err(wrong)
}

fn access(config: &Config) -> Result<Arc<Access>, RunError> {
    let seed = linux_net::process::random().map_err(|e| RunError::Io("reading /dev/urandom", e))?;
    let made = Access::new(config.machine.gateway.network, config.access(), seed);
    made.map_err(|why| RunError::Open {
        what: "tokens.token-file",
        source: why.into(),
    })
}

fn mediator(
    config: &Config,
    clock: Clock,
    access: &Arc<Access>,
    open: Opener<'_>,
) -> Result<Box<dyn Network>, RunError> {
    let seed = linux_net::process::random().map_err(|e| RunError::Io("reading /dev/urandom", e))?;
    let owner = Owner {
        gateway: config.machine.gateway,
        seed,
        now: clock.now(),
        access: Arc::clone(access),
    };
    open(Role::Mediator, owner).map_err(not_opened)
}

/// The coordinator, its events, and the handle that returns the lease.
type Coordination = (Coordinated, mpsc::Receiver<StoreEvent>, Option<Resignation>);

#[cfg(feature = "etcd")]
fn coordinator(config: &Config) -> Result<Coordination, RunError> {
    let (to_driver, events) = mpsc::channel(16);
    let Some(etcd) = &config.etcd else {
        return Ok((Coordinated::memory(), events, None));
    };
    let (client, store) = control::etcd::StoreClient::new(etcd.clone(), to_driver);
    Ok((Coordinated::Etcd(store), events, Some(client.start())))
}

#[cfg(not(feature = "etcd"))]
fn coordinator(_: &Config) -> Result<Coordination, RunError> {
    Ok((Coordinated::memory(), mpsc::channel(1).1, None))
}

fn control_node(
    config: &Config,
    machine: bfed::Config,
    coordinator: Coordinated,
    clock: Clock,
) -> Result<ControlNode<Coordinated>, RunError> {
    let (seed, now) = (
        linux_net::process::random().map_err(|e| RunError::Io("reading /dev/urandom", e))?,
        clock.now(),
    );
    let made = ControlNode::with_coordinator(machine, coordinator, seed, now);
    let mut node = made.map_err(RunError::open("gateway"))?;
    for (id, peer) in config.machine_peers() {
        node.add_peer(now, id, peer)
            .map_err(RunError::open("peer"))?;
    }
    Ok(node)
}

/// Starts a thread for each data node, and returns the controllers for commands.
fn start_data_nodes(opened: Vec<Opened>) -> Result<(DataThreads, Vec<data::Controller>), RunError> {
    let mut threads = DataThreads::default();
    let mut controllers = Vec::new();
    for node in opened {
        let (controller, commands) = data::Controller::new(node.waker());
        let name = format!("bfed-data-{}", node.node().0);
        threads.spawn(name, node.cpu, move |end| {
            end.send(Worker::new(node).and_then(|worker| worker.run(&commands)));
        })?;
        controllers.push(controller);
    }
    Ok((threads, controllers))
}

/// The control node's driver.
struct RunningDriver {
    commands: mpsc::Sender<Command>,
    task: JoinHandle<()>,
    /// Returns the lease of a control node with standbys.
    resignation: Option<Resignation>,
}

/// The running gateway.
pub(crate) struct Running {
    marker: Marker,
    status: StatusHandle,
    driver: Option<RunningDriver>,
    threads: DataThreads,
    tasks: JoinSet<()>,
}

impl Service for Running {
    type Config = Config;
    type Status = StatusHandle;
    const RESTARTS: bool = true;

    fn status(&self) -> StatusHandle {
        self.status.clone()
    }

    fn ready(&mut self, file: &Path, _: &Config) {
        self.marker.set();
        let state = &self.status.state;
        tracing::info!(
            event = "running",
            configuration = %file.display(),
            gateway = state.gateway,
            mode = state.mode.name(),
            "running"
        );
    }

    async fn failed(&mut self) -> RunError {
        let driver = &mut self.driver;
        let driver_ended = async {
            match driver {
                Some(driver) => drop((&mut driver.task).await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            error = self.threads.failed() => error,
            () = driver_ended => RunError::Data("the control node stopped".to_owned()),
        }
    }

    async fn reload(&mut self, next: &Config) -> Result<Vec<&'static str>, String> {
        let access = &self.status.state.access;
        let configured = access.configure(next.access());
        configured.map_err(|why| format!("tokens.token-file: {why}"))?;
        let command = Box::new(next.clone());
        let reload = |reply| Command::Reload(command, reply);
        if let Some(done) = self.status.ask(reload).await {
            done.map_err(|error| error.to_string())?
                .map_err(|error| error.to_string())?;
        }
        Ok(Vec::new())
    }

    fn drain(&mut self) {
        tracing::info!(
            event = "draining",
            "draining; sessions move to other data nodes"
        );
        for node in &self.status.data {
            let _ = node.send(data::Command::Drain);
        }
    }

    /// Notifies peers, or lets them wait for a restart. A process of data nodes drains them first.
    async fn end(&mut self, config: &Config, action: SignalAction) -> Result<(), RunError> {
        match &mut self.driver {
            Some(driver) => {
                let resignation = driver.resignation.take();
                // With a standby the gateway stays up.
                let command = match action {
                    SignalAction::Restart => Command::Restart,
                    _ if resignation.is_some() => Command::Restart,
                    _ => Command::Close,
                };
                tracing::info!(event = "stopping", "stopping");
                for node in &self.status.data {
                    let _ = node.send(data::Command::Closing);
                }
                let _ = driver.commands.send(command).await;
                let _ = (&mut driver.task).await;
                if let Some(resignation) = resignation {
                    resignation.give(config.shutdown).await;
                }
            }
            None => {
                self.drain();
                let end = tokio::time::Instant::now() + config.shutdown;
                loop {
                    // At least once: then the control node has been notified.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    if tokio::time::Instant::now() >= end || !self.has_sessions().await {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    async fn stop(mut self, action: SignalAction) -> Result<(), RunError> {
        drop(self.tasks);
        for controller in &self.status.data {
            let _ = controller.send(data::Command::Stop);
        }
        self.threads.join().await?;
        if action == SignalAction::End {
            self.marker.clear();
        }
        Ok(())
    }
}

impl Running {
    async fn has_sessions(&self) -> bool {
        let snapshot = self.status.counters().await;
        snapshot.is_ok_and(|all| {
            all.data
                .iter()
                .any(|node| node.sessions > 0 && node.connected)
        })
    }
}

/// A file that exists while a control node runs, and until it has ended for good. The next start learns from it that
/// peers and data nodes are waiting (RFC 4724).
struct Marker(Option<PathBuf>);

impl Marker {
    fn new(mode: Mode, config: &Config) -> Self {
        // Only data nodes of other processes outlive a control node.
        let outlived = mode == Mode::Control && config.machine.restart_time_s > 0;
        Marker(outlived.then(|| {
            let mut path = config.daemon.socket.as_os_str().to_owned();
            path.push(".running");
            path.into()
        }))
    }

    /// Returns whether the last run did not end for good.
    fn was_running(&self) -> bool {
        self.0.as_deref().is_some_and(Path::exists)
    }

    fn set(&self) {
        if let Some(path) = &self.0
            && let Err(error) = std::fs::write(path, [])
        {
            tracing::warn!(event = "marker_not_written", path = %path.display(), %error, "cannot write the marker of a running control node; a restart will count as a first start");
        }
    }

    fn clear(&self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}
