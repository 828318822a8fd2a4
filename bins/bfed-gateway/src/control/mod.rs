//! The control node's driver: one task between the machine and its peers, data nodes and clients.

mod connections;
mod coordinator;
#[cfg(feature = "etcd")]
pub(crate) mod etcd;
mod lease;
mod peering;
mod resolve;
mod show;
pub(crate) mod streams;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration as StdDuration;

use bfed::native::Upcall;
use bfed::wire::MAX_MESSAGE_LEN;
use bfed::wire::client::{Answer, AnswerRepr};
use bfed::{
    BnNum, ClientId, ConfigError, ConnId, ControlNode, Coordinator, Event, Instant, NodeId, PeerId,
    SessionName,
};
use control_stream::tls::Credentials;
use proto_core::clock::Clock;
use serde_json::Value;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::config::{Config, Endpoint};
use crate::limiter::LogLimiter;
use crate::native::{AnnouncedSession, JoinLatency, Network};
use crate::status::{Counts, Show};
pub(crate) use coordinator::{Coordinated, Resignation, StoreEvent};
pub(crate) use peering::{Call, Caller, Members, Outcome, Port, Registrant, call, nodes, peers};
use streams::Conn;

/// Inputs that may wait for the driver; further senders block.
pub(crate) const INPUTS: usize = 1024;
/// Inputs in a row before anything is sent.
const ROUND: usize = 256;
/// Refused peers that are sent the reason at the same time.
const DISMISSALS: usize = 64;
/// The longest time to wait.
const LONGEST: StdDuration = StdDuration::from_secs(1);
/// Interval of checks whether all notifications are sent.
const DRAIN_INTERVAL: StdDuration = StdDuration::from_millis(20);

/// An input of the driver.
pub(crate) enum Input {
    /// A whole message, or the first bytes of something that is not one.
    Message(ConnId, Vec<u8>),
    /// A stream takes messages again.
    Writable(ConnId),
    /// A stream has ended.
    Ended(ConnId),
    /// A peer has connected.
    Caller(Box<Caller>),
    /// An incoming connection was refused.
    Stranger(SocketAddr, String),
    /// The result of a connection to a peer.
    Called(Outcome),
    /// A data node has connected.
    Node(Registrant),
}

/// A command of the main task.
#[derive(Debug)]
pub(crate) enum Command {
    /// Return a status document.
    Show(Show, oneshot::Sender<Value>),
    /// Return the sessions that hosts of the native network announce.
    Announced(oneshot::Sender<Vec<AnnouncedSession>>),
    /// Return all counters.
    Counters(oneshot::Sender<Snapshot>),
    /// Return the control node's part of the status page.
    Page(oneshot::Sender<Value>),
    /// Apply a configuration that has been checked.
    Reload(Box<Config>, oneshot::Sender<Result<(), ConfigError>>),
    /// Assign no more sessions to a data node; returns whether it exists.
    Drain(NodeId, oneshot::Sender<bool>),
    /// Notify peers, data nodes and clients, then end.
    Close,
    /// End without notification: peers wait for the successor.
    Restart,
}

/// The control node's counters and gauges at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) active: bool,
    pub(crate) peers: u64,
    pub(crate) established: u64,
    pub(crate) routes: u64,
    /// Measured cost of the link to each gateway, in microseconds.
    pub(crate) latencies: Counts,
    pub(crate) sessions: u64,
    pub(crate) nodes: u64,
    /// Rate of all data nodes in bit/s.
    pub(crate) rate_bps: u64,
    pub(crate) control: Counts,
    pub(crate) routing: Counts,
    pub(crate) drops: Counts,
    /// Requests that each authorisation rule denied, and the sessions that it admits now.
    pub(crate) denied: Counts,
    pub(crate) admitted: Counts,
    pub(crate) native: Counts,
    pub(crate) native_gauges: Counts,
    pub(crate) join_latency: JoinLatency,
}

/// The last statistics of a session from its data node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carried {
    packets: u64,
    bytes: u64,
    copies: u64,
    dropped: u64,
    rate_bps: u64,
    at: Instant,
}

/// The driver's state.
pub(crate) struct Driver {
    config: Config,
    clock: Clock,
    node: ControlNode<Coordinated>,
    network: Box<dyn Network>,
    readable: AsyncFd<OwnedFd>,
    credentials: Option<Arc<Credentials>>,
    conns: BTreeMap<ConnId, Conn>,
    next_conn: u64,
    to_self: mpsc::Sender<Input>,
    inputs: mpsc::Receiver<Input>,
    store_events: mpsc::Receiver<StoreEvent>,
    /// Why the last session of each peer ended.
    last_down: BTreeMap<PeerId, String>,
    carried: BTreeMap<SessionName, Carried>,
    strangers: u64,
    /// Limits log lines about refused connections.
    strangers_log: LogLimiter,
    /// Limits log lines about requests that a rule denied.
    denials_log: LogLimiter,
    ports: Ports,
    /// Where peers with names were reached last.
    resolved: BTreeMap<PeerId, IpAddr>,
    /// Limits refused peers that are sent the reason.
    dismissals: Arc<Semaphore>,
    buffer: Box<[u8]>,
    /// Everything is sent; the driver ends.
    leaving: bool,
}

/// The ports for peers and data nodes.
#[derive(Clone, Debug)]
pub(crate) struct Ports {
    pub(crate) peers: Arc<Port>,
    pub(crate) cluster: Arc<Port>,
}

impl Ports {
    pub(crate) fn new() -> Self {
        Ports {
            peers: Port::new(),
            cluster: Port::new(),
        }
    }

    /// Reserves places for configured peers: for those with names, at the addresses where they were reached.
    pub(crate) fn configure(&self, config: &Config, resolved: &BTreeMap<PeerId, IpAddr>) {
        let addresses = config.peers.iter().filter_map(|(id, peer)| {
            let known = peer.address.as_ref().and_then(Endpoint::address);
            known
                .map(|address| address.ip())
                .or_else(|| resolved.get(id).copied())
        });
        self.peers.name(addresses);
    }

    fn evicted(&self) -> u64 {
        self.peers.evicted() + self.cluster.evicted()
    }
}

/// The parts of a driver.
pub(crate) struct Parts {
    pub(crate) ports: Ports,
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) node: ControlNode<Coordinated>,
    pub(crate) network: Box<dyn Network>,
    pub(crate) credentials: Option<Arc<Credentials>>,
    pub(crate) to_self: mpsc::Sender<Input>,
    pub(crate) inputs: mpsc::Receiver<Input>,
    pub(crate) store_events: mpsc::Receiver<StoreEvent>,
}

enum Wake {
    Input(Input),
    Command(Command),
    StoreEvent(StoreEvent),
    Time,
}

impl Driver {
    /// Creates a driver.
    #[allow(
        deprecated,
        reason = "safe for a descriptor of our own; what replaces it is not"
    )]
    pub(crate) fn new(parts: Parts) -> std::io::Result<Driver> {
        let descriptor = parts.network.as_fd().try_clone_to_owned()?;
        Ok(Driver {
            readable: AsyncFd::new(descriptor)?,
            clock: parts.clock,
            node: parts.node,
            network: parts.network,
            credentials: parts.credentials,
            conns: BTreeMap::new(),
            next_conn: 0,
            to_self: parts.to_self,
            inputs: parts.inputs,
            store_events: parts.store_events,
            last_down: BTreeMap::new(),
            carried: BTreeMap::new(),
            strangers: 0,
            strangers_log: LogLimiter::default(),
            denials_log: LogLimiter::default(),
            ports: parts.ports,
            resolved: BTreeMap::new(),
            dismissals: Arc::new(Semaphore::new(DISMISSALS)),
            buffer: vec![0; 1 << 17].into(),
            config: parts.config,
            leaving: false,
        })
    }

    /// Runs until a command ends it.
    pub(crate) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        loop {
            let now = self.clock.now();
            self.step_down_in_time(now);
            self.node.handle_timeout(now);
            self.network.handle_timeout(now);
            self.log_suppressed();
            self.upcalls(now);
            self.work(now);
            self.step_down_in_time(now);
            self.network.flush(now);
            if self.leaving {
                return self.drain().await;
            }
            match self.wait(now, &mut commands).await {
                Wake::Input(input) => {
                    self.input(input);
                    for _ in 0..ROUND {
                        let Ok(input) = self.inputs.try_recv() else {
                            break;
                        };
                        self.input(input);
                    }
                }
                Wake::Command(Command::Restart) => return,
                Wake::Command(command) => self.command(command),
                Wake::StoreEvent(event) => {
                    let now = self.clock.now();
                    self.node.coordinator_mut().handle_event(event);
                    self.node.coordinator_changed(now);
                }
                Wake::Time => {}
            }
        }
    }

    /// Steps down without notification if the lease has expired: this task may not have run for that long.
    fn step_down_in_time(&mut self, now: Instant) {
        if self.node.coordinator_mut().step_down_in_time() {
            tracing::warn!(
                event = "lease_missed",
                "the lease expired before it could be extended; stepping down"
            );
            self.node.coordinator_changed(now);
        }
    }

    async fn wait(&mut self, now: Instant, commands: &mut mpsc::Receiver<Command>) -> Wake {
        let due = [self.node.poll_timeout(), self.network.poll_timeout()];
        let most = Clock::until(now, due.into_iter().flatten().min(), LONGEST);
        tokio::select! {
            Some(input) = self.inputs.recv() => Wake::Input(input),
            command = commands.recv() => Wake::Command(command.unwrap_or(Command::Restart)),
            Some(event) = self.store_events.recv() => Wake::StoreEvent(event),
            ready = self.readable.readable() => {
                // Everything is read at once; further input makes it readable again.
                if let Ok(mut ready) = ready {
                    ready.clear_ready();
                }
                Wake::Time
            }
            () = tokio::time::sleep(most) => Wake::Time,
        }
    }

    /// Waits until all queued messages are sent.
    async fn drain(mut self) {
        let end = tokio::time::Instant::now() + self.config.shutdown;
        let mut tasks: Vec<_> = Vec::new();
        for (_, conn) in std::mem::take(&mut self.conns) {
            tasks.push(conn.task());
            conn.close();
        }
        while tasks.iter().any(|task| !task.is_finished()) && tokio::time::Instant::now() < end {
            // Further input is discarded.
            while self.inputs.try_recv().is_ok() {}
            tokio::time::sleep(DRAIN_INTERVAL).await;
        }
    }

    /// Passes requests of the native network's clients to the machine.
    fn upcalls(&mut self, now: Instant) {
        while let Some(upcall) = self.network.poll_upcall(now, &mut self.buffer) {
            match upcall {
                Upcall::Join(request) => self.node.client_requests(now, request),
                Upcall::Leave(session) => self.node.leave(now, &session),
                Upcall::Sroutes { request, answer } => self.node.sroutes(now, request, answer),
                // Data nodes receive the data.
                Upcall::Data { .. } | Upcall::Frame { .. } | Upcall::Init { .. } => {}
            }
        }
    }

    /// Handles the machine's events and sends its messages.
    fn work(&mut self, now: Instant) {
        let mut buffer = [0; MAX_MESSAGE_LEN];
        loop {
            while let Some(event) = self.node.poll_event() {
                self.event(now, event);
            }
            let Some(transmit) = self.node.poll_transmit(now, &mut buffer) else {
                break;
            };
            if let Some(conn) = self.conns.get(&transmit.conn)
                && conn.send(buffer[..transmit.len].to_vec())
            {
                self.node.blocked(transmit.conn);
            }
        }
        // Sending the last message of a stream closes it.
        while let Some(event) = self.node.poll_event() {
            self.event(now, event);
        }
    }

    fn event(&mut self, now: Instant, event: Event) {
        match event {
            Event::Dial(peer) => self.call(now, peer),
            Event::Close(conn) => {
                if let Some(conn) = self.conns.remove(&conn) {
                    conn.close();
                }
            }
            Event::PeerUp(peer) => {
                tracing::info!(event = "peering_established", peer = %self.name(peer), "peering established");
            }
            Event::DelayChanged { peer, cost } => {
                tracing::info!(event = "link_latency_changed", peer = %self.name(peer), latency_us = cost.0, "measured latency of the link changed");
            }
            Event::PeerDown { peer, why } => {
                let (ordered, why) = (show::is_ordered(&why), show::down(&why));
                match ordered {
                    true => {
                        tracing::info!(event = "peering_ended", peer = %self.name(peer), reason = why, "peering ended");
                    }
                    false => {
                        tracing::warn!(event = "peering_lost", peer = %self.name(peer), error = why, "peering lost");
                    }
                }
                self.last_down.insert(peer, why);
            }
            Event::Answer {
                client,
                session,
                answer,
                lifetime_s,
            } => {
                let answer = AnswerRepr {
                    nonce: 1,
                    lifetime_s,
                    answer,
                    session,
                };
                self.send_answer(now, Some(client), &answer);
            }
            Event::Moved { session, addresses } => {
                self.tell_clients(now, session, Answer::Translation(addresses));
            }
            Event::Ended { session, reason } => {
                self.tell_clients(now, session, Answer::NoRoute(reason));
            }
            Event::GetSroutes {
                request,
                session,
                gateways,
            } => {
                let known = self.network.get_sroutes(now, request, &session, &gateways);
                if let Some(answer) = known {
                    self.node.sroutes(now, request, answer);
                }
            }
            denied @ Event::Denied { .. } => self.log_denial(&denied),
            // The machine knows all names of the configuration itself.
            Event::Resolve(name) => self.node.resolved(now, &name, None::<BnNum>),
            Event::TreeUp { session, .. } => tracing::debug!(%session, "joined the tree"),
            Event::TreeDown(session) => {
                self.carried.remove(&session);
                tracing::debug!(%session, "left the tree");
            }
            Event::NodeUp(NodeId(node)) => {
                tracing::info!(event = "node_registered", node, "data node registered");
            }
            Event::NodeDown {
                node: NodeId(node),
                drained,
            } => match drained {
                true => tracing::info!(event = "node_left", node, "drained data node left"),
                false => tracing::warn!(
                    event = "node_lost",
                    node,
                    "data node lost; its sessions move"
                ),
            },
        }
    }

    /// Tells all clients of a session that it has moved or ended.
    fn tell_clients(&mut self, now: Instant, session: SessionName, answer: Answer) {
        let lifetime = self.config.machine.soft_state_lifetime.secs();
        let answer = AnswerRepr {
            nonce: 0,
            lifetime_s: u16::try_from(lifetime).unwrap_or(u16::MAX),
            answer,
            session,
        };
        self.send_answer(now, None, &answer);
    }

    /// Answers one client, or all of the session, while this control node is the active one.
    fn send_answer(&mut self, now: Instant, client: Option<ClientId>, answer: &AnswerRepr) {
        self.step_down_in_time(now);
        if self.node.coordinator().is_active() {
            self.network.answer(now, client, answer);
        }
    }

    fn name(&self, peer: PeerId) -> String {
        let known = self.config.peers.get(&peer);
        known.map_or_else(|| "?".to_owned(), |peer| peer.machine.gateway.to_string())
    }

    /// Handles a command. A reply is lost if its receiver has gone.
    fn command(&mut self, command: Command) {
        let now = self.clock.now();
        match command {
            Command::Announced(reply) => {
                let _ = reply.send(self.network.announced());
            }
            Command::Show(what, reply) => {
                let _ = reply.send(self.show(what));
            }
            Command::Counters(reply) => {
                let _ = reply.send(self.snapshot());
            }
            Command::Page(reply) => {
                let _ = reply.send(self.page());
            }
            Command::Reload(config, reply) => {
                let done =
                    self.node
                        .reconfigure(now, config.machine.clone(), config.machine_peers());
                if done.is_ok() {
                    self.resolved
                        .retain(|peer, _| config.peers.contains_key(peer));
                    self.ports.configure(&config, &self.resolved);
                    self.config = *config;
                }
                let _ = reply.send(done);
            }
            Command::Drain(node, reply) => {
                let known = self.node.nodes().any(|(id, ..)| id == node);
                self.node.drain_node(now, node);
                let _ = reply.send(known);
            }
            Command::Close => {
                self.node.close(now);
                self.leaving = true;
            }
            Command::Restart => {}
        }
    }
}
