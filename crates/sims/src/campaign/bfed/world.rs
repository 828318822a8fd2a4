//! Gateways in virtual time: control nodes with streams between them, data nodes in a network of datagrams, native
//! networks without loss.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use anyhow::{Result, anyhow};
use bfed::data::EdgeId;
use bfed::native::ChannelId;
use bfed::wire::client::Answer;
use bfed::{
    BnNum, ClientId, ControlNode, DataConfig, Duration, Instant, NodeId, PeerId, SessionName,
};
use netsim::streams::{StreamId, Streams};
use netsim::{LinkId, NodeId as HostId, Rng, Sim};

use super::clients::{Client, Mediator};
use super::host::{Host, Native};
use super::plan::Plan;

/// More rounds than this without time passing are a storm.
const MOST_ROUNDS: u32 = 10_000;

/// An end of streams: a control node by its gateway, a data node by its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    Control(usize),
    Node(usize),
}

/// What is to happen.
#[derive(Debug)]
pub(super) enum Happening {
    /// A fault begins.
    Fails(usize),
    /// A fault ends.
    Returns(usize),
    /// A client begins or ceases to want its session; or ceases without a word.
    Wants(usize, bool, bool),
    /// A client looks at its timers.
    Tick(usize),
    /// A request reaches a gateway.
    Ask(usize, usize, ClientId, u8),
    /// A client's LEAVE reaches a gateway.
    Leave(usize, usize),
    /// An answer reaches a client.
    Answered(usize, usize, Answer, Duration),
    /// A native frame reaches a data node.
    Frame(usize, u64, ChannelId, Vec<u8>),
    /// A native frame reaches a client.
    Heard(usize, Vec<u8>, Vec<u8>),
    /// The source of a session publishes.
    Publish(usize),
    /// A data node dials its control node.
    Dial(usize, u64),
    /// The native network answers a gateway's question.
    Sroutes(usize, u64, u32, SessionName),
}

/// A gateway's control node, or its place.
pub(super) struct Gateway {
    pub(super) control: Option<Box<ControlNode>>,
    pub(super) is_frozen: bool,
    /// When the control node wants to run.
    pub(super) next: Option<Instant>,
    /// One more with each start.
    pub(super) boot: u64,
    pub(super) hosts: Vec<usize>,
    pub(super) mediator: Mediator,
}

/// What belongs to a data node's host besides the node.
#[derive(Default)]
pub(super) struct HostState {
    pub(super) gateway: usize,
    number: usize,
    pub(super) boot: u64,
    /// The stream to its control node, once it is open.
    pub(super) control: Option<StreamId>,
    pub(super) dialling: BTreeMap<StreamId, (EdgeId, SocketAddr)>,
    /// Edges whose streams took no more.
    pub(super) blocked: BTreeSet<(StreamId, EdgeId)>,
}

/// A federation.
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) now: Instant,
    pub(super) sim: Sim<Host>,
    pub(super) streams: Streams<End>,
    agenda: BTreeMap<(Instant, u64), Happening>,
    sequence: u64,
    pub(super) gateways: Vec<Gateway>,
    pub(super) hosts: Vec<HostState>,
    pub(super) clients: Vec<Client>,
    /// Of each peering: whether its link is up, and the links of its data nodes.
    pub(super) links: Vec<(bool, Vec<LinkId>)>,
    pub(super) rng: Rng,
    pub(super) faults: Vec<String>,
    /// Frames that are published while everything must arrive: session, source, flow, number.
    pub(super) published: Vec<(usize, u32, usize, u64)>,
    pub(super) is_window: bool,
    pub(super) is_publishing: bool,
    pub(super) next_frame: u64,
    rounds: (Instant, u32),
    /// For one message of a control node.
    pub(super) buffer: Vec<u8>,
}

impl World {
    /// Builds the federation of a plan.
    ///
    /// # Errors
    /// A configuration is wrong.
    pub(super) fn new(plan: Plan) -> Result<Self> {
        let mut sim = Sim::new(plan.key);
        let mut hosts = Vec::new();
        let mut gateways = Vec::new();
        for (at, gateway) in plan.gateways.iter().enumerate() {
            let mut own = Vec::new();
            for number in 0..gateway.nodes {
                let address = Ipv4Addr::new(10, at as u8, number as u8, 1);
                sim.add_node(Host::new(SocketAddrV4::new(address, 4000)));
                own.push(hosts.len());
                hosts.push(HostState {
                    gateway: at,
                    number,
                    ..HostState::default()
                });
            }
            gateways.push(Gateway {
                control: None,
                is_frozen: false,
                next: None,
                boot: 0,
                hosts: own,
                mediator: Mediator::default(),
            });
        }
        let rng = plan.rng(9, 0);
        let clients = plan.clients.iter().map(|client| Client::new(client.home));
        let mut world = Self {
            clients: clients.collect(),
            links: Vec::new(),
            now: Instant::ZERO,
            streams: Streams::new(),
            agenda: BTreeMap::new(),
            sequence: 0,
            faults: Vec::new(),
            published: Vec::new(),
            is_window: false,
            is_publishing: true,
            next_frame: 0,
            buffer: Vec::new(),
            rounds: (Instant::ZERO, 0),
            plan,
            sim,
            gateways,
            hosts,
            rng,
        };
        world.connect();
        for at in 0..world.gateways.len() {
            world.start_control(at)?;
        }
        for host in 0..world.hosts.len() {
            world.start_node(host);
        }
        world.fill_agenda();
        Ok(world)
    }

    /// Links between the data nodes of peers.
    fn connect(&mut self) {
        let mut ports = vec![0u16; self.hosts.len()];
        for peering in &self.plan.peerings {
            let [(a, _), (b, _)] = &peering.ends;
            let mut links = Vec::new();
            for &one in &self.gateways[*a].hosts {
                for &other in &self.gateways[*b].hosts {
                    let [there, back] = peering.link;
                    let ids = [one, other].map(|host| HostId(host as u32));
                    links.push(self.sim.add_asymmetric_link(ids[0], ids[1], there, back));
                    for (own, far) in [(one, other), (other, one)] {
                        let to = self.sim.node(HostId(far as u32)).map(|host| host.address);
                        let port = netsim::Port(ports[own]);
                        ports[own] += 1;
                        self.sim.with_node(HostId(own as u32), |host, _, _| {
                            host.ports.extend(to.map(|to| (*to.ip(), port)));
                        });
                    }
                }
            }
            self.links.push((true, links));
        }
    }

    fn fill_agenda(&mut self) {
        for at in 0..self.plan.faults.len() {
            let fault = self.plan.faults[at];
            self.at(fault.at, Happening::Fails(at));
            if let Some(until) = fault.until {
                self.at(until, Happening::Returns(at));
            }
        }
        for client in 0..self.plan.clients.len() {
            for (from, until, silent) in self.plan.clients[client].stays.clone() {
                self.at(from, Happening::Wants(client, true, false));
                if let Some(until) = until {
                    self.at(until, Happening::Wants(client, false, silent));
                }
            }
            self.at(Instant::ZERO, Happening::Tick(client));
        }
        for session in 0..self.plan.sessions.len() {
            self.at(Instant::from_secs(1), Happening::Publish(session));
        }
    }

    fn at(&mut self, at: Instant, what: Happening) {
        self.sequence += 1;
        self.agenda.insert((at, self.sequence), what);
    }

    pub(super) fn after(&mut self, after: Duration, what: Happening) {
        self.at(self.now + after, what);
    }

    pub(super) fn random(&mut self, most: Duration) -> Duration {
        Duration::from_micros(self.rng.below(most.total_micros() + 1))
    }

    pub(super) fn network(&self, gateway: usize) -> BnNum {
        self.plan.gateways[gateway].id.network
    }

    pub(super) fn fault(&mut self, words: impl Into<String>) {
        if self.faults.len() < 20 {
            let words = words.into();
            self.faults.push(format!("at {}: {words}", self.now));
        }
    }

    /// Starts a control node without memory.
    pub(super) fn start_control(&mut self, at: usize) -> Result<()> {
        let gateway = &mut self.gateways[at];
        gateway.boot += 1;
        let mut config = self.plan.gateways[at].config.clone();
        config.restarting = gateway.boot > 1 && config.restart_time_s > 0;
        let seed = self.plan.seed(10, at as u64 * 1000 + gateway.boot);
        let wrong = |error: bfed::ConfigError| anyhow!("gateway {at}: {error}");
        let mut control = ControlNode::new(config, seed, self.now).map_err(wrong)?;
        for peering in &self.plan.peerings {
            let [(a, of_a), (b, of_b)] = &peering.ends;
            let (peer, config) = match at {
                at if at == *a => (*b, of_a),
                at if at == *b => (*a, of_b),
                _ => continue,
            };
            let peer = PeerId(peer as u32);
            let added = control.add_peer(self.now, peer, config.clone());
            added.map_err(wrong)?;
        }
        self.gateways[at].control = Some(Box::new(control));
        self.gateways[at].mediator = Mediator::default();
        self.settle(at);
        Ok(())
    }

    /// Starts a data node without memory.
    pub(super) fn start_node(&mut self, host: usize) {
        let state = &mut self.hosts[host];
        state.boot += 1;
        let (gateway, number, boot) = (state.gateway, state.number, state.boot);
        let id = self.plan.gateways[gateway].id;
        let missing = self.plan.sessions.iter().filter(|session| !session.exists);
        let missing = missing.map(|session| session.name.clone()).collect();
        let native = Native::new(format!("{id} {number} {boot}"), missing);
        let mut config = DataConfig::new(NodeId(number as u32 + 1));
        config.heartbeat_interval = self.plan.gateways[gateway].config.heartbeat_interval;
        config.soft_state_lifetime = self.plan.lifetime;
        let seed = self.plan.seed(11, host as u64 * 1000 + boot);
        self.sim
            .with_node(HostId(host as u32), move |host, now, _| {
                host.start(config, native, seed, now);
            });
        let wait = self.random(Duration::from_millis(500));
        self.after(wait, Happening::Dial(host, boot));
    }

    /// A control node dies.
    pub(super) fn kill_control(&mut self, at: usize, is_silent: bool) {
        let gateway = &mut self.gateways[at];
        (gateway.control, gateway.is_frozen, gateway.next) = (None, false, None);
        gateway.mediator = Mediator::default();
        self.remove_end(End::Control(at), is_silent);
    }

    /// A data node dies.
    pub(super) fn kill_node(&mut self, host: usize, is_silent: bool) {
        self.sim.with_node(HostId(host as u32), |host, _, _| {
            (host.node, host.is_frozen) = (None, false);
            host.take_output();
        });
        let state = &mut self.hosts[host];
        state.control = None;
        state.dialling.clear();
        state.blocked.clear();
        self.remove_end(End::Node(host), is_silent);
    }

    /// The kernel of a process that died resets its streams; that of a host that died does not.
    fn remove_end(&mut self, end: End, is_silent: bool) {
        let most = if is_silent { 20_000_000 } else { 100_000 };
        let rng = &mut self.rng;
        let after = || Duration::from_micros(rng.below(most));
        self.streams.remove_end(self.now, end, after);
    }

    /// Freezes an end, or lets it go on.
    pub(super) fn freeze(&mut self, end: End, is_frozen: bool) {
        match end {
            End::Control(at) => self.gateways[at].is_frozen = is_frozen,
            End::Node(host) => {
                self.sim.with_node(HostId(host as u32), |host, _, _| {
                    host.is_frozen = is_frozen;
                });
            }
        }
        self.streams.freeze(self.now, end, is_frozen);
        if let End::Control(at) = end {
            self.settle(at);
        }
    }

    /// Whether an end runs.
    pub(super) fn runs(&self, end: End) -> bool {
        match end {
            End::Control(at) => self.gateways[at].control.is_some() && !self.gateways[at].is_frozen,
            End::Node(host) => {
                let host = self.sim.node(HostId(host as u32));
                host.is_some_and(Host::runs)
            }
        }
    }

    pub(super) fn gateway_of(&self, end: End) -> usize {
        match end {
            End::Control(at) => at,
            End::Node(host) => self.hosts[host].gateway,
        }
    }

    /// The peering between two gateways.
    pub(super) fn peering(&self, a: usize, b: usize) -> Option<usize> {
        let pair = (a.min(b), a.max(b));
        let mut all = self.plan.peerings.iter();
        all.position(|peering| (peering.ends[0].0, peering.ends[1].0) == pair)
    }

    /// The streams over a peering's link.
    pub(super) fn streams_over(&self, peering: usize) -> Vec<StreamId> {
        let [(a, _), (b, _)] = &self.plan.peerings[peering].ends;
        let over = |ends: [End; 2]| {
            let at = ends.map(|end| self.gateway_of(end));
            at == [*a, *b] || at == [*b, *a]
        };
        let all = self.streams.iter().filter(|(_, ends)| over(*ends));
        all.map(|(stream, _)| stream).collect()
    }

    /// Runs until `end`.
    pub(super) fn run_until(&mut self, end: Instant) {
        while self.now < end && self.faults.len() < 20 {
            let timers = self.gateways.iter().filter_map(|gateway| gateway.next);
            let first = self.agenda.first_key_value().map(|((at, _), _)| *at);
            let next = [timers.min(), first, self.streams.poll_timeout()];
            let next = next.into_iter().flatten().min().unwrap_or(end).min(end);
            self.sim.run_until(next.max(self.now));
            self.now = self.sim.now();
            self.check_rounds();
            self.collect();
            while let Some(event) = self.streams.poll_event(self.now) {
                self.stream_event(event);
            }
            while let Some(entry) = self.agenda.first_entry() {
                if entry.key().0 > self.now {
                    break;
                }
                let what = entry.remove();
                self.happen(what);
            }
            for at in 0..self.gateways.len() {
                self.tick(at);
            }
        }
    }

    /// Time must pass.
    fn check_rounds(&mut self) {
        if self.rounds.0 != self.now {
            self.rounds = (self.now, 0);
        }
        self.rounds.1 += 1;
        if self.rounds.1 > MOST_ROUNDS {
            self.faults
                .push(format!("at {}: time stands still", self.now));
            self.faults.resize(20, String::new());
        }
    }

    fn tick(&mut self, at: usize) {
        let now = self.now;
        let gateway = &mut self.gateways[at];
        if gateway.next.is_some_and(|next| next <= now)
            && let Some(control) = &mut gateway.control
        {
            control.handle_timeout(now);
            self.settle(at);
        }
    }

    /// Takes what the data nodes left for the world.
    fn collect(&mut self) {
        for host in 0..self.hosts.len() {
            let id = HostId(host as u32);
            if self.sim.node(id).is_some_and(Host::has_output) {
                let output = self.sim.with_node(id, |host, _, _| host.take_output());
                self.emit(host, output.unwrap_or_default());
            }
        }
    }
}
