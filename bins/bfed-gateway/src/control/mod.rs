//! The control node's driver: peers, data nodes and clients come to the machine through here, in one
//! task.

mod coordinator;
mod doors;
#[cfg(feature = "etcd")]
pub(crate) mod etcd;
mod lease;
mod show;
pub(crate) mod streams;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration as StdDuration;

use bfed::native::Upcall;
use bfed::wire::client::{Answer, AnswerRepr};
use bfed::wire::notification::Reason;
use bfed::wire::{Header, MAX_MESSAGE_LEN, Type, statistics};
use bfed::{
    BnNum, ClientId, ConfigError, ConnId, ControlNode, Coordinator, Event, Instant, NodeId, PeerId,
    SessionName,
};
use control_stream::tls::Credentials;
use proto_core::clock::Clock;
use serde_json::Value;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::config::Config;
use crate::limiter::LogLimiter;
use crate::native::{JoinLatency, Network};
use crate::status::{Counts, Show};
pub(crate) use coordinator::{Coordinated, News, Resignation};
pub(crate) use doors::{Call, Caller, Members, Outcome, Port, Registrant, call, nodes, peers};
use lease::Guarded;
use streams::{Conn, Cutter, Stream};

/// Inputs that may wait for the driver; who has more waits.
pub(crate) const INPUTS: usize = 1024;
/// Inputs in a row before anything is sent.
const ROUND: usize = 256;
/// Callers that are told at once why they are not taken.
const DISMISSALS: usize = 64;
/// The longest time to wait.
const LONGEST: StdDuration = StdDuration::from_secs(1);
/// How often the driver looks whether all farewells have left.
const LEAVING: StdDuration = StdDuration::from_millis(20);

/// What comes in from outside.
pub(crate) enum Input {
    /// A whole message, or how the bytes begin that are none.
    Message(ConnId, Vec<u8>),
    /// A stream takes messages again.
    Writable(ConnId),
    /// A stream is over.
    Ended(ConnId),
    /// A peer calls.
    Caller(Box<Caller>),
    /// Somebody called who is nobody.
    Stranger(SocketAddr, String),
    /// What a call to a peer brought.
    Called(Outcome),
    /// A data node is there.
    Node(Registrant),
}

/// What the main task wants.
#[derive(Debug)]
pub(crate) enum Command {
    /// A document.
    Show(Show, oneshot::Sender<Value>),
    /// Everything that is counted.
    Counters(oneshot::Sender<Snapshot>),
    /// What the status page shows of the control node.
    Page(oneshot::Sender<Value>),
    /// A new configuration, already checked.
    Reload(Box<Config>, oneshot::Sender<Result<(), ConfigError>>),
    /// No more sessions for a data node; whether there is such a one.
    Drain(NodeId, oneshot::Sender<bool>),
    /// Tell everybody, and end.
    Close,
    /// End without a word: peers wait for the successor.
    Restart,
}

/// Everything that the control node counts, at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) active: bool,
    pub(crate) peers: u64,
    pub(crate) established: u64,
    pub(crate) routes: u64,
    pub(crate) sessions: u64,
    pub(crate) nodes: u64,
    /// What all data nodes forward, in bit/s.
    pub(crate) rate_bps: u64,
    pub(crate) control: Counts,
    pub(crate) routing: Counts,
    pub(crate) drops: Counts,
    pub(crate) native: Counts,
    pub(crate) native_gauges: Counts,
    pub(crate) join_latency: JoinLatency,
}

/// What went through a session lately, as its data node says.
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
    news: mpsc::Receiver<News>,
    /// Why each peer's last session ended.
    last_down: BTreeMap<PeerId, String>,
    carried: BTreeMap<SessionName, Carried>,
    strangers: u64,
    /// Of calls that were not taken.
    strangers_log: LogLimiter,
    ports: Ports,
    /// Callers that are being told why they are not taken.
    dismissals: Arc<Semaphore>,
    buffer: Box<[u8]>,
    /// All is said.
    leaving: bool,
}

/// Where peers and data nodes call.
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

    /// Gives configured peers places of their own.
    pub(crate) fn configure(&self, config: &Config) {
        let addresses = config.peers.values().filter_map(|peer| peer.address);
        self.peers.name(addresses.map(|address| address.ip()));
    }

    fn evicted(&self) -> u64 {
        self.peers.evicted() + self.cluster.evicted()
    }
}

/// What the driver is made of.
pub(crate) struct Parts {
    pub(crate) ports: Ports,
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) node: ControlNode<Coordinated>,
    pub(crate) network: Box<dyn Network>,
    pub(crate) credentials: Option<Arc<Credentials>>,
    pub(crate) to_self: mpsc::Sender<Input>,
    pub(crate) inputs: mpsc::Receiver<Input>,
    pub(crate) news: mpsc::Receiver<News>,
}

enum Wake {
    Input(Input),
    Command(Command),
    News(News),
    Time,
}

impl Driver {
    /// With its peers.
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
            news: parts.news,
            last_down: BTreeMap::new(),
            carried: BTreeMap::new(),
            strangers: 0,
            strangers_log: LogLimiter::default(),
            ports: parts.ports,
            dismissals: Arc::new(Semaphore::new(DISMISSALS)),
            buffer: vec![0; 1 << 17].into(),
            config: parts.config,
            leaving: false,
        })
    }

    /// Runs until it is told to end.
    pub(crate) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        loop {
            let now = self.clock.now();
            self.step_down_in_time(now);
            self.node.handle_timeout(now);
            self.network.handle_timeout(now);
            self.sum_up_strangers();
            self.upcalls(now);
            self.work(now);
            self.step_down_in_time(now);
            self.network.flush(now);
            if self.leaving {
                return self.farewell().await;
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
                Wake::News(news) => {
                    let now = self.clock.now();
                    self.node.coordinator_mut().hear(news);
                    self.node.coordinator_changed(now);
                }
                Wake::Time => {}
            }
        }
    }

    /// Steps down, without a word, if the lease is over: this task may not have run for longer than that.
    fn step_down_in_time(&mut self, now: Instant) {
        if self.node.coordinator_mut().step_down_in_time() {
            tracing::warn!("the lease was over before it could be kept: stepping down");
            self.node.coordinator_changed(now);
        }
    }

    async fn wait(&mut self, now: Instant, commands: &mut mpsc::Receiver<Command>) -> Wake {
        let due = [self.node.poll_timeout(), self.network.poll_timeout()];
        let most = Clock::until(now, due.into_iter().flatten().min(), LONGEST);
        tokio::select! {
            Some(input) = self.inputs.recv() => Wake::Input(input),
            command = commands.recv() => Wake::Command(command.unwrap_or(Command::Restart)),
            Some(news) = self.news.recv() => Wake::News(news),
            ready = self.readable.readable() => {
                // Everything is read at once: the next news makes it readable again.
                if let Ok(mut ready) = ready {
                    ready.clear_ready();
                }
                Wake::Time
            }
            () = tokio::time::sleep(most) => Wake::Time,
        }
    }

    /// Waits until what was said has left.
    async fn farewell(mut self) {
        let end = tokio::time::Instant::now() + self.config.shutdown;
        let mut tasks: Vec<_> = Vec::new();
        for (_, conn) in std::mem::take(&mut self.conns) {
            tasks.push(conn.task());
            conn.close();
        }
        while tasks.iter().any(|task| !task.is_finished()) && tokio::time::Instant::now() < end {
            // Nobody hears what comes in any more.
            while self.inputs.try_recv().is_ok() {}
            tokio::time::sleep(LEAVING).await;
        }
    }

    /// What clients of the native network want.
    fn upcalls(&mut self, now: Instant) {
        while let Some(upcall) = self.network.poll_upcall(now, &mut self.buffer) {
            match upcall {
                Upcall::Join {
                    client,
                    session,
                    cost_only: true,
                    ..
                } => self.node.ask_cost(now, client, session),
                Upcall::Join {
                    client,
                    session,
                    redirects,
                    scope,
                    ..
                } => self.node.join(now, client, session, redirects, scope),
                Upcall::Leave(session) => self.node.leave(now, &session),
                Upcall::Sroutes { request, answer } => self.node.sroutes(now, request, answer),
                // Data comes to data nodes.
                Upcall::Data { .. } => {}
            }
        }
    }

    /// Does what the machine wants, and sends what it says.
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
                tracing::info!(peer = %self.name(peer), "peering established");
            }
            Event::PeerDown { peer, why } => {
                let (ordered, why) = (show::is_ordered(&why), show::down(&why));
                match ordered {
                    true => tracing::info!(peer = %self.name(peer), why, "peering ended"),
                    false => tracing::warn!(peer = %self.name(peer), why, "peering lost"),
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
                self.tell(now, Some(client), &answer);
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
            // The machine knows all names of the configuration itself.
            Event::Resolve(name) => self.node.resolved(now, &name, None::<BnNum>),
            Event::TreeUp { session, .. } => tracing::debug!(%session, "part of the tree"),
            Event::TreeDown(session) => {
                self.carried.remove(&session);
                tracing::debug!(%session, "not part of the tree any more");
            }
            Event::NodeUp(NodeId(node)) => tracing::info!(node, "data node registered"),
            Event::NodeDown {
                node: NodeId(node),
                drained,
            } => match drained {
                true => tracing::info!(node, "drained data node left"),
                false => tracing::warn!(node, "data node lost, its sessions move"),
            },
        }
    }

    /// All clients that have a session hear something new of it.
    fn tell_clients(&mut self, now: Instant, session: SessionName, answer: Answer) {
        let lifetime = self.config.machine.soft_state_lifetime.secs();
        let answer = AnswerRepr {
            nonce: 0,
            lifetime_s: u16::try_from(lifetime).unwrap_or(u16::MAX),
            answer,
            session,
        };
        self.tell(now, None, &answer);
    }

    /// Answers one client, or all that have the session, while this control node is the active one.
    fn tell(&mut self, now: Instant, client: Option<ClientId>, answer: &AnswerRepr) {
        self.step_down_in_time(now);
        if self.node.coordinator().is_active() {
            self.network.answer(now, client, answer);
        }
    }

    fn name(&self, peer: PeerId) -> String {
        let known = self.config.peers.get(&peer);
        known.map_or_else(|| "?".to_owned(), |peer| peer.machine.gateway.to_string())
    }

    fn call(&mut self, now: Instant, peer: PeerId) {
        let known = self.config.peers.get(&peer);
        let Some((known, to)) = known.and_then(|known| Some((known, known.address?))) else {
            self.node.dial_failed(now, peer);
            return;
        };
        let wanted = Call {
            to,
            tls_name: known.tls_name.clone(),
            max_hops: known.machine.max_hops,
        };
        let (credentials, inputs) = (self.credentials.clone(), self.to_self.clone());
        tokio::spawn(async move {
            let result = call(wanted, credentials).await;
            let _ = inputs.send(Input::Called(Outcome { peer, result })).await;
        });
    }

    /// Begins to carry a stream.
    fn take(&mut self, stream: Stream, cutter: Cutter, is_node: bool) -> ConnId {
        self.next_conn += 1;
        let id = ConnId(self.next_conn);
        let lease = self.node.coordinator().lease().cloned();
        let stream = Guarded::new(stream, lease);
        let conn = Conn::start(id, stream, cutter, self.to_self.clone(), is_node);
        self.conns.insert(id, conn);
        id
    }

    fn input(&mut self, input: Input) {
        let now = self.clock.now();
        match input {
            Input::Message(conn, message) => {
                if self.conns.get(&conn).is_some_and(|conn| conn.is_node) {
                    self.overhear(now, &message);
                }
                if let Err(error) = self.node.handle_packet(now, conn, &message) {
                    tracing::debug!(%error, conn = conn.0, "message");
                }
            }
            Input::Writable(conn) => self.node.writable(now, conn),
            Input::Ended(conn) => {
                self.node.disconnected(now, conn);
                if let Some(conn) = self.conns.remove(&conn) {
                    conn.close();
                }
            }
            Input::Caller(caller) => self.caller(now, *caller),
            Input::Stranger(from, why) => {
                if self.is_stranger_logged() {
                    tracing::warn!(%from, why, "a call was not taken");
                }
            }
            Input::Called(Outcome { peer, result }) => match result {
                Ok(stream) => {
                    let conn = self.take(stream, Cutter::new(), false);
                    self.node.connected(now, conn, peer, true);
                }
                Err(why) => {
                    tracing::info!(peer = %self.name(peer), why, "calling a peer failed");
                    self.last_down.insert(peer, why);
                    self.node.dial_failed(now, peer);
                }
            },
            Input::Node(registrant) => {
                let conn = self.take(registrant.stream, registrant.cutter, true);
                self.node.node_connected(now, conn, registrant.identity);
                if let Some(first) = registrant.first {
                    // What it does is counted.
                    let _ = self.node.handle_packet(now, conn, &first);
                }
            }
        }
    }

    /// Counts a call that is not taken; returns whether it is logged.
    fn is_stranger_logged(&mut self) -> bool {
        self.strangers += 1;
        self.sum_up_strangers();
        self.strangers_log.admit(std::time::Instant::now())
    }

    fn sum_up_strangers(&mut self) {
        if let Some(count) = self.strangers_log.summary(std::time::Instant::now()) {
            tracing::warn!(count, "more calls were not taken");
        }
    }

    /// A caller says who it is: it must be a peer, and have proved it.
    fn caller(&mut self, now: Instant, caller: Caller) {
        let known = self
            .config
            .peers
            .iter()
            .find(|(_, peer)| peer.machine.gateway == caller.gateway);
        let checked = match known {
            None => Err("no such peer is configured here".to_owned()),
            Some((&id, peer)) => {
                let host = peer.tls_name.clone();
                let host = host.or_else(|| peer.address.map(|address| address.ip().to_string()));
                let host = host.unwrap_or_else(|| caller.from.ip().to_canonical().to_string());
                let proved = caller
                    .proof
                    .as_ref()
                    .map_or(Ok(()), |proof| proof.is_for(&host));
                let bound = peer.machine.max_hops.map_or(Ok(()), |hops| {
                    doors::bound_hops(&caller.socket, caller.from, hops)
                });
                proved.and(bound).map(|()| id)
            }
        };
        match checked {
            Ok(id) => {
                let conn = self.take(caller.stream, caller.cutter, false);
                self.node.set_peer_address(id, caller.from.ip());
                self.node.connected(now, conn, id, false);
                // What it does is counted.
                let _ = self.node.handle_packet(now, conn, &caller.first);
            }
            Err(why) => {
                if self.is_stranger_logged() {
                    tracing::warn!(from = %caller.from, gateway = %caller.gateway, why, "a call was not taken");
                }
                // One that takes no answer holds its place for three seconds; further ones get none.
                if let Ok(place) = Arc::clone(&self.dismissals).try_acquire_owned() {
                    tokio::spawn(async move {
                        doors::dismiss(caller.stream, Reason::BadPeer, &why).await;
                        drop(place);
                    });
                }
            }
        }
    }

    /// A data node's statistics, for people.
    fn overhear(&mut self, now: Instant, message: &[u8]) {
        let header = Header::new_checked(message);
        if !header.is_ok_and(|header| header.type_number() == Type::Statistics as u8) {
            return;
        }
        let Ok(statistics) = statistics::Repr::parse(message) else {
            return;
        };
        for entry in statistics.entries {
            let full = self.carried.len() >= self.config.machine.limits.max_sessions;
            let before = self.carried.get(&entry.session).copied();
            if full && before.is_none() {
                continue;
            }
            let rate_bps = before.map_or(0, |before| {
                let millis = now.total_millis().saturating_sub(before.at.total_millis());
                let millis = u64::try_from(millis).unwrap_or(0).max(1);
                entry
                    .bytes
                    .saturating_sub(before.bytes)
                    .saturating_mul(8000)
                    / millis
            });
            let carried = Carried {
                packets: entry.packets,
                bytes: entry.bytes,
                copies: entry.copies,
                dropped: entry.dropped,
                rate_bps,
                at: now,
            };
            self.carried.insert(entry.session, carried);
        }
    }

    /// Who asked may be gone: then nobody misses the answer.
    fn command(&mut self, command: Command) {
        let now = self.clock.now();
        match command {
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
                    self.ports.configure(&config);
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
