//! `bfed-gateway all|control|data`: opens everything, gives privileges up, starts the data nodes'
//! threads, and then is the main thread: control node, signals, reloads, status, metrics.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bfed::ControlNode;
use cli::clock::{self, Clock};
use control_stream::tls::Credentials;
use daemon_kit::exporter::Exporter;
use daemon_kit::reader::{ConfigError, Problem};
use daemon_kit::signals::{SignalAction, Signals};
use daemon_kit::socket::StatusSocket;
use daemon_kit::state::DaemonState;
use daemon_kit::{RunError, drop_privileges, notify};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use crate::PROGRAM;
use crate::config::{Config, Mode};
use crate::control::{self, Command, Coordinated, Driver, News, Resignation};
use crate::data::{self, Opened, Opener, Worker, not_opened};
use crate::links::{self, Towards};
use crate::native::{Network, Owner, Role};
use crate::status::Desk;
use crate::{metrics, page, status};

/// What the main thread itself knows of the program's state.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) of_daemon: DaemonState,
    pub(crate) mode: Mode,
    pub(crate) gateway: String,
    pub(crate) network: &'static str,
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) cluster: Option<SocketAddr>,
    pub(crate) data: Vec<SocketAddr>,
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) page: Option<SocketAddr>,
}

/// Everything that is opened before privileges are given up.
pub(crate) struct House {
    config: Config,
    mode: Mode,
    clock: Clock,
    credentials: Option<Arc<Credentials>>,
    /// Those of the streams between control and data nodes.
    cluster_credentials: Option<Arc<Credentials>>,
    /// The control node's: for peers, for data nodes, for clients.
    peers: Option<TcpListener>,
    cluster: Option<TcpListener>,
    mediator: Option<Box<dyn Network>>,
    data: Vec<Opened>,
    exporter: Option<Exporter>,
    page: Option<Exporter>,
    standing: Arc<Standing>,
    marker: Marker,
    ports: control::Ports,
}

/// Runs until a signal ends it.
pub(crate) fn run(mode: Mode, file: &Path) -> Result<ExitCode, RunError> {
    let config = Config::load(file)?.fit(mode);
    fits(mode, &config, file)?;
    let (path, mode_bits) = (&config.daemon.socket, config.daemon.socket_mode);
    let socket = StatusSocket::bind(path, mode_bits, PROGRAM)?;
    let network = config.network.clone();
    let house = House::open(mode, file, config, &|role, owner| network.open(role, owner))?;
    drop_privileges(&[], house.config.daemon.user.as_deref(), &socket)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| RunError::Io("starting the main thread", error))?;
    let result = runtime.block_on(house.live(file, &socket));
    drop(runtime);
    drop(socket);
    result
}

/// What one mode needs, and another does not.
fn fits(mode: Mode, config: &Config, file: &Path) -> Result<(), ConfigError> {
    let missing = match mode {
        Mode::All => None,
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

fn listen(
    address: Option<SocketAddr>,
    what: &'static str,
) -> Result<Option<TcpListener>, RunError> {
    let open = |address: SocketAddr| {
        let listener = TcpListener::bind(address)?;
        // Callers that bound the hops hear of them from the first packet on.
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

impl House {
    pub(crate) fn open(
        mode: Mode,
        file: &Path,
        config: Config,
        open: Opener<'_>,
    ) -> Result<House, RunError> {
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
        let mediator = controls
            .then(|| mediator(&config, clock, open))
            .transpose()?;
        let data = match mode.forwards() {
            true => Opened::open(&config, clock, open)?,
            false => Vec::new(),
        };
        let bind = |address| Exporter::bind(address).map_err(RunError::open("metrics.listen"));
        let exporter = config.metrics.map(bind).transpose()?;
        let bind = |address| Exporter::bind(address).map_err(RunError::open("status.page"));
        let page = config.page.map(bind).transpose()?;
        let standing = Arc::new(Standing {
            of_daemon: DaemonState::new(file),
            mode,
            gateway: config.machine.gateway.to_string(),
            network: config.network.kind(),
            listen: address(peers.as_ref()),
            cluster: address(cluster.as_ref()),
            data: data.iter().filter_map(Opened::datagram).collect(),
            metrics: exporter.as_ref().map(Exporter::local_address),
            page: page.as_ref().map(Exporter::local_address),
        });
        let ports = control::Ports::new();
        ports.configure(&config);
        Ok(House {
            ports,
            marker: Marker::new(mode, &config),
            config,
            mode,
            clock,
            credentials: credentials.map(Arc::new),
            cluster_credentials: cluster_credentials.map(Arc::new),
            peers,
            cluster,
            mediator,
            data,
            exporter,
            page,
            standing,
        })
    }

    pub(crate) async fn live(
        mut self,
        file: &Path,
        socket: &StatusSocket,
    ) -> Result<ExitCode, RunError> {
        // Before anything else runs: a signal that comes early must not end us half started.
        let signals = Signals::new().map_err(|e| RunError::Io("watching signals", e))?;
        let (to_driver, inputs) = mpsc::channel(control::INPUTS);
        let mut tasks = JoinSet::new();
        let threads = Threads::start(std::mem::take(&mut self.data))?;
        let driver = self.drive(to_driver.clone(), inputs)?;
        let desk = Desk {
            driver: driver.as_ref().map(|driver| driver.commands.clone()),
            data: threads.controllers.clone(),
            standing: Arc::clone(&self.standing),
        };
        self.take_calls(&mut tasks, &to_driver)?;
        self.keep_links(&mut tasks, &threads.controllers, to_driver);
        self.answer(&mut tasks, socket, &desk)?;
        self.marker.set();
        tracing::info!(
            configuration = %file.display(),
            gateway = self.standing.gateway,
            mode = self.mode.name(),
            "running"
        );
        notify::state("READY=1");
        let mut life = Life {
            file: file.to_owned(),
            running: self.config,
            desk,
            driver,
        };
        let (wish, code) = life.run(signals, threads, tasks).await?;
        if wish == SignalAction::End {
            self.marker.clear();
        }
        Ok(code)
    }

    /// Starts the control node, if this process has one.
    fn drive(
        &mut self,
        to_self: mpsc::Sender<control::Input>,
        inputs: mpsc::Receiver<control::Input>,
    ) -> Result<Option<RunningDriver>, RunError> {
        let Some(network) = self.mediator.take() else {
            return Ok(None);
        };
        let config = self.config.clone();
        let (coordinator, news, resignation) = coordinator(&config)?;
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
            news,
        };
        let driver = Driver::new(parts).map_err(|e| RunError::Io("the mediator", e))?;
        let (commands, receiver) = mpsc::channel(64);
        Ok(Some(RunningDriver {
            commands,
            task: tokio::spawn(driver.run(receiver)),
            resignation,
        }))
    }

    /// Peers and data nodes may call.
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

    /// Data nodes find their control node.
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
            Mode::All | Mode::Control => Towards::Driver(to_driver),
        };
        for node in nodes {
            tasks.spawn(links::keep(node.clone(), towards.clone()));
        }
    }

    /// People may ask.
    fn answer(
        &mut self,
        tasks: &mut JoinSet<()>,
        socket: &StatusSocket,
        desk: &Desk,
    ) -> Result<(), RunError> {
        let listener = socket
            .listener()
            .and_then(tokio::net::UnixListener::from_std)
            .map_err(|e| RunError::Io("status socket", e))?;
        tasks.spawn(status::serve(listener, desk.clone()));
        if let Some(exporter) = self.exporter.take() {
            tasks.spawn(metrics::serve(exporter, desk.clone()));
        }
        if let Some(listener) = self.page.take() {
            tasks.spawn(page::serve(listener, desk.clone()));
        }
        Ok(())
    }
}

/// etcd knows certificates, not secrets.
fn check_certificates(file: &Path) -> Result<(), RunError> {
    let wrong = |why: String| RunError::Open {
        what: "etcd.key-file",
        source: why.into(),
    };
    Credentials::read(file).map_err(wrong)?;
    let pem = std::fs::read(file).map_err(|e| RunError::Io("reading etcd.key-file", e))?;
    Credentials::from_pem(&pem).map(drop).map_err(wrong)
}

fn mediator(config: &Config, clock: Clock, open: Opener<'_>) -> Result<Box<dyn Network>, RunError> {
    let seed = clock::seed().map_err(|e| RunError::Io("reading /dev/urandom", e))?;
    let owner = Owner {
        gateway: config.machine.gateway,
        seed,
        now: clock.now(),
    };
    open(Role::Mediator, owner).map_err(not_opened)
}

/// Who coordinates the gateway, where its news come from, and how a lease is given back.
type Coordination = (Coordinated, mpsc::Receiver<News>, Option<Resignation>);

#[cfg(feature = "etcd")]
fn coordinator(config: &Config) -> Result<Coordination, RunError> {
    let (to_driver, news) = mpsc::channel(16);
    let Some(etcd) = &config.etcd else {
        return Ok((Coordinated::memory(), news, None));
    };
    let (speaker, store) = control::etcd::Speaker::new(etcd.clone(), to_driver);
    Ok((Coordinated::Etcd(store), news, Some(speaker.start())))
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
        clock::seed().map_err(|e| RunError::Io("reading /dev/urandom", e))?,
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

/// The data nodes' threads.
struct Threads {
    controllers: Vec<data::Controller>,
    ends: JoinSet<Result<std::io::Result<()>, oneshot::error::RecvError>>,
}

impl Threads {
    fn start(opened: Vec<Opened>) -> Result<Threads, RunError> {
        let mut threads = Threads {
            controllers: Vec::new(),
            ends: JoinSet::new(),
        };
        for node in opened {
            let (controller, commands) = data::Controller::new(node.waker());
            let (ended, end) = oneshot::channel();
            let name = format!("bfed-data-{}", node.node().0);
            std::thread::Builder::new()
                .name(name)
                .spawn(move || {
                    if let Some(cpu) = node.cpu {
                        daemon_kit::pin(cpu);
                    }
                    let _ = ended.send(Worker::new(node).and_then(|worker| worker.run(&commands)));
                })
                .map_err(|e| RunError::Io("starting a data node's thread", e))?;
            threads.controllers.push(controller);
            threads.ends.spawn(end);
        }
        Ok(threads)
    }

    /// A thread has ended by itself.
    async fn ended(&mut self) -> RunError {
        match self.ends.join_next().await {
            None => std::future::pending().await,
            Some(Ok(Ok(Err(error)))) => RunError::Data(error.to_string()),
            Some(_) => RunError::Data("it stopped with no reason given".to_owned()),
        }
    }

    async fn stop(mut self) -> Result<(), RunError> {
        for controller in &self.controllers {
            let _ = controller.send(data::Command::Stop);
        }
        while let Some(end) = self.ends.join_next().await {
            if let Ok(Ok(Err(error))) = end {
                return Err(RunError::Data(error.to_string()));
            }
        }
        Ok(())
    }
}

/// What signals ask for while the program runs.
struct Life {
    file: PathBuf,
    running: Config,
    desk: Desk,
    driver: Option<RunningDriver>,
}

/// The control node's driver.
struct RunningDriver {
    commands: mpsc::Sender<Command>,
    task: JoinHandle<()>,
    /// Of a control node that others stand by for.
    resignation: Option<Resignation>,
}

impl Life {
    /// Until a signal ends it: which, and the exit code.
    async fn run(
        &mut self,
        mut signals: Signals,
        mut threads: Threads,
        tasks: JoinSet<()>,
    ) -> Result<(SignalAction, ExitCode), RunError> {
        let wish = loop {
            let wish = tokio::select! {
                wish = signals.next() => wish,
                error = threads.ended() => return Err(error),
                () = self.driver_ended() => {
                    return Err(RunError::Data("the control node stopped".to_owned()));
                }
            };
            match wish {
                SignalAction::Reload => self.reload().await,
                SignalAction::Drain => self.drain(),
                SignalAction::Restart | SignalAction::End => break wish,
            }
        };
        notify::state("STOPPING=1");
        let code = tokio::select! {
            () = self.end(wish) => ExitCode::SUCCESS,
            () = signals.end() => ExitCode::FAILURE,
        };
        drop(tasks);
        threads.stop().await.map(|()| (wish, code))
    }

    async fn driver_ended(&mut self) {
        match &mut self.driver {
            Some(driver) => drop((&mut driver.task).await),
            None => std::future::pending().await,
        }
    }

    fn drain(&self) {
        tracing::info!("draining: sessions move to other data nodes");
        for node in &self.desk.data {
            let _ = node.send(data::Command::Drain);
        }
    }

    /// Accepts a new configuration as a whole, or rejects it as a whole.
    async fn reload(&mut self) {
        notify::reloading();
        let result = self.try_reload().await;
        self.desk.standing.of_daemon.reloaded(result);
        notify::state("READY=1");
    }

    async fn try_reload(&mut self) -> Result<Vec<&'static str>, String> {
        let next = Config::load(&self.file).map_err(|error| error.to_string())?;
        let next = next.fit(self.desk.standing.mode);
        fits(self.desk.standing.mode, &next, &self.file).map_err(|error| error.to_string())?;
        let waiting = self.running.needs_restart(&next);
        let next = self.running.reloaded(next);
        let command = Box::new(next.clone());
        if let Some(done) = self.desk.ask(|reply| Command::Reload(command, reply)).await {
            done.map_err(|error| error.to_string())?
                .map_err(|error| error.to_string())?;
        }
        self.running = next;
        Ok(waiting)
    }

    /// An orderly end: peers are told, or left to wait; a data process first gives its sessions away.
    async fn end(&mut self, wish: SignalAction) {
        match &mut self.driver {
            Some(driver) => {
                let resignation = driver.resignation.take();
                // Where another stands by, the gateway goes on.
                let command = match wish {
                    SignalAction::Restart => Command::Restart,
                    _ if resignation.is_some() => Command::Restart,
                    _ => Command::Close,
                };
                tracing::info!("ending");
                for node in &self.desk.data {
                    let _ = node.send(data::Command::Closing);
                }
                let _ = driver.commands.send(command).await;
                let _ = (&mut driver.task).await;
                if let Some(resignation) = resignation {
                    resignation.give(self.running.shutdown).await;
                }
            }
            None => {
                self.drain();
                let end = tokio::time::Instant::now() + self.running.shutdown;
                loop {
                    // Once in any case: until then the control node has been told.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    if tokio::time::Instant::now() >= end || !self.has_sessions().await {
                        break;
                    }
                }
            }
        }
    }

    async fn has_sessions(&self) -> bool {
        let snapshot = self.desk.snapshot().await;
        snapshot.is_ok_and(|all| {
            all.data
                .iter()
                .any(|node| node.sessions > 0 && node.connected)
        })
    }
}

/// A file that stands as long as a control node runs, and until it has ended for good: the next start
/// learns from it that peers and data nodes have been waiting (RFC 4724).
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

    /// Whether the last run ended without an end.
    fn was_running(&self) -> bool {
        self.0.as_deref().is_some_and(Path::exists)
    }

    fn set(&self) {
        if let Some(path) = &self.0
            && let Err(error) = std::fs::write(path, [])
        {
            tracing::warn!(path = %path.display(), %error, "a restart will not be told from a start");
        }
    }

    fn clear(&self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}
