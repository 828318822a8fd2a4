//! Gateways in simulated time: streams with a delay between them, and data nodes that only record.
//!
//! It does not use `netsim`, whose links carry packets between fixed ports. Here a gateway opens and closes streams,
//! two gateways may open one at the same time, and the closing of a stream is an event of its own.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use bfed::wire::client::Answer;
use bfed::wire::node::{Heartbeat, Register};
use bfed::wire::sroute::{GatewayCost, Outcome};
use bfed::wire::subscribe::Edge;
use bfed::wire::{MAX_MESSAGE_LEN, Message};
use bfed::*;

use crate::node::FakeNode;

pub(crate) fn gateway(network: u32, number: u32) -> GatewayId {
    GatewayId::new(network, number).unwrap()
}

pub(crate) fn session(text: &str) -> SessionName {
    SessionName::parse(text).unwrap()
}

pub(crate) struct Gw {
    pub(crate) id: GatewayId,
    pub(crate) control: ControlNode,
    pub(crate) nodes: BTreeMap<NodeId, FakeNode>,
    pub(crate) events: Vec<Event>,
    pub(crate) answers: Vec<(ClientId, Answer)>,
    /// The costs in the native network's answers; a null response if there are none.
    pub(crate) sroutes: Option<Sroutes>,
    /// Sessions that the network does not have.
    pub(crate) missing: BTreeSet<SessionName>,
    /// It neither receives nor sends.
    pub(crate) frozen: bool,
    next: Option<Instant>,
    /// It may have something to send.
    dirty: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum End {
    Gw(usize),
    Node(usize, NodeId),
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Connected(ConnId, usize, usize),
    CallFailed(usize, usize),
    Bytes(ConnId, End, Vec<u8>),
    Ended(ConnId, End),
}

/// A federation.
pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) gws: Vec<Gw>,
    links: BTreeMap<(usize, usize), bool>,
    conns: BTreeMap<ConnId, (End, End)>,
    queue: BinaryHeap<Reverse<(Instant, u64, Happening)>>,
    sequence: u64,
    delay: Duration,
    /// Between heartbeats of data nodes.
    pub(crate) beat: Duration,
    pub(crate) messages: u64,
    /// Every message between gateways with its sender and receiver, if a test has switched the log on.
    pub(crate) log: Option<Vec<(GatewayId, GatewayId, Message)>>,
}

impl World {
    pub(crate) fn new() -> Self {
        World {
            now: Instant::from_secs(1),
            gws: Vec::new(),
            links: BTreeMap::new(),
            conns: BTreeMap::new(),
            queue: BinaryHeap::new(),
            sequence: 0,
            delay: Duration::from_millis(10),
            beat: Duration::from_millis(250),
            messages: 0,
            log: None,
        }
    }

    /// A gateway with one data node.
    pub(crate) fn add(&mut self, config: Config) -> usize {
        let at = self.gws.len();
        let id = config.gateway;
        let seed = [at as u8 + 1; 32];
        let control = ControlNode::new(config, seed, self.now).unwrap();
        self.gws.push(Gw {
            id,
            control,
            nodes: BTreeMap::new(),
            events: Vec::new(),
            answers: Vec::new(),
            sroutes: None,
            missing: BTreeSet::new(),
            frozen: false,
            next: Some(self.now),
            dirty: true,
        });
        self.add_node(at, NodeId(1));
        at
    }

    pub(crate) fn conn(&mut self, one: usize, other: Option<NodeId>, far: usize) -> ConnId {
        self.sequence += 1;
        let conn = ConnId(self.sequence);
        let far = match other {
            Some(node) => End::Node(one, node),
            None => End::Gw(far),
        };
        self.conns.insert(conn, (End::Gw(one), far));
        conn
    }

    pub(crate) fn add_node(&mut self, at: usize, id: NodeId) {
        let conn = self.conn(at, Some(id), 0);
        let boot = self.sequence as u32;
        let node = FakeNode {
            conn,
            next_label: 1000 * (at as u32 + 1) + id.0 * 100,
            records: BTreeMap::new(),
            alive: true,
            epoch: 0,
            at: (at as u8, id.0 as u8),
            heartbeat_at: self.now,
        };
        self.gws[at].nodes.insert(id, node);
        self.gws[at]
            .control
            .node_connected(self.now, conn, NodeIdentity::default());
        let register = Register {
            node: id,
            boot,
            max_sessions: 100_000,
            epoch: 0,
        };
        self.post(conn, End::Gw(at), &Message::Register(register));
    }

    /// Peers two gateways, after `change` was applied to the configuration of each.
    pub(crate) fn peer_with(
        &mut self,
        a: usize,
        b: usize,
        change: impl Fn(usize, &mut PeerConfig),
    ) {
        for (own, other) in [(a, b), (b, a)] {
            let mut config = PeerConfig::new(self.gws[other].id);
            config.mediator = format!("mediator {other}");
            change(own, &mut config);
            let id = PeerId(other as u32);
            self.gws[own]
                .control
                .add_peer(self.now, id, config)
                .unwrap();
        }
        self.links.insert((a.min(b), a.max(b)), true);
    }

    pub(crate) fn peer(&mut self, a: usize, b: usize) {
        self.peer_with(a, b, |_, _| ());
    }

    fn schedule(&mut self, after: Duration, what: Happening) {
        self.sequence += 1;
        self.queue
            .push(Reverse((self.now + after, self.sequence, what)));
    }

    fn post(&mut self, conn: ConnId, to: End, message: &Message) {
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        self.schedule(Duration::from_millis(1), Happening::Bytes(conn, to, bytes));
    }

    /// Bytes of a test's making arrive at a gateway on its stream with a peer.
    pub(crate) fn inject(&mut self, at: usize, from: usize, bytes: &[u8]) -> Result<(), Error> {
        let conn = self.stream(at, from).expect("a stream");
        self.gws[at].control.handle_packet(self.now, &conn, bytes)
    }

    pub(crate) fn stream(&self, a: usize, b: usize) -> Option<ConnId> {
        let ends = [(End::Gw(a), End::Gw(b)), (End::Gw(b), End::Gw(a))];
        self.conns
            .iter()
            .rev()
            .find(|(_, pair)| ends.contains(pair))
            .map(|(&conn, _)| conn)
    }

    /// Takes a link down or up. A stream over it breaks.
    pub(crate) fn set_link(&mut self, a: usize, b: usize, up: bool) {
        self.links.insert((a.min(b), a.max(b)), up);
        while let Some(conn) = self.stream(a, b).filter(|_| !up) {
            self.conns.remove(&conn);
            for end in [a, b] {
                self.gws[end].control.disconnected(self.now, conn);
            }
        }
    }

    /// Kills a data node: its stream breaks.
    pub(crate) fn kill_node(&mut self, at: usize, id: NodeId) {
        let node = self.gws[at].nodes.remove(&id).unwrap();
        self.conns.remove(&node.conn);
        self.gws[at].control.disconnected(self.now, node.conn);
    }

    /// Bytes of a test's making arrive from a data node.
    pub(crate) fn says(&mut self, at: usize, id: NodeId, bytes: &[u8]) {
        let conn = self.gws[at].nodes[&id].conn;
        let _ = self.gws[at].control.handle_packet(self.now, &conn, bytes);
    }

    /// What `pick` finds in the logged messages, with their senders and receivers.
    pub(crate) fn logged<T>(
        &self,
        pick: impl Fn(&Message) -> Option<T>,
    ) -> Vec<(GatewayId, GatewayId, T)> {
        let log = self.log.iter().flatten();
        log.filter_map(|(from, to, message)| Some((*from, *to, pick(message)?)))
            .collect()
    }

    pub(crate) fn established(&self, at: usize) -> usize {
        let up = |peer: &control::PeerStatus| peer.state == session::State::Established;
        self.gws[at].control.peers().filter(up).count()
    }

    pub(crate) fn client(&mut self, at: usize, client: u64, name: &str) {
        let now = self.now;
        let client = ClientId(client);
        self.gws[at]
            .control
            .join(now, client, session(name), 0, Scope::Chosen);
    }

    pub(crate) fn answer(&self, at: usize, client: u64) -> Option<&Answer> {
        self.gws[at]
            .answers
            .iter()
            .rev()
            .find(|(id, _)| *id == ClientId(client))
            .map(|(_, a)| a)
    }

    /// The upstream gateway of a session's tree; `None` where there is no attached tree.
    pub(crate) fn tree(&self, at: usize, name: &str) -> Option<control::TreeStatus> {
        let name = session(name);
        self.gws[at]
            .control
            .trees()
            .find(|tree| tree.session == name)
    }

    pub(crate) fn path(&self, at: usize, name: &str) -> Option<Vec<GatewayId>> {
        self.tree(at, name)
            .filter(|tree| tree.attached)
            .map(|tree| tree.path)
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        self.gws.iter_mut().for_each(|gw| gw.dirty = true);
        loop {
            self.settle();
            let machines = self
                .gws
                .iter()
                .filter(|gw| !gw.frozen)
                .filter_map(|gw| gw.next)
                .min();
            let nodes = self.gws.iter().flat_map(|gw| gw.nodes.values());
            let beats = nodes
                .filter(|node| node.alive)
                .map(|node| node.heartbeat_at)
                .min();
            let wire = self.queue.peek().map(|Reverse((at, ..))| *at);
            let next = [machines, beats, wire].into_iter().flatten().min();
            match next.filter(|&next| next <= end) {
                Some(next) => self.now = self.now.max(next),
                None => {
                    self.now = end;
                    return;
                }
            }
            while self
                .queue
                .peek()
                .is_some_and(|Reverse((at, ..))| *at <= self.now)
            {
                let Reverse((_, _, what)) = self.queue.pop().unwrap();
                self.happen(what);
            }
            self.beat();
            for gw in self.gws.iter_mut().filter(|gw| !gw.frozen) {
                if gw.next.is_some_and(|next| next <= self.now) {
                    gw.control.handle_timeout(self.now);
                    gw.dirty = true;
                }
            }
        }
    }

    fn beat(&mut self) {
        for at in 0..self.gws.len() {
            let ids: Vec<_> = self.gws[at].nodes.keys().copied().collect();
            for id in ids {
                let node = self.gws[at].nodes.get_mut(&id).unwrap();
                if node.alive && node.heartbeat_at <= self.now {
                    node.heartbeat_at = self.now + self.beat;
                    let beat = Heartbeat {
                        epoch: node.epoch,
                        sequence: 1,
                        draining: false,
                        complete: false,
                    };
                    let conn = node.conn;
                    self.post(conn, End::Gw(at), &Message::Heartbeat(beat));
                }
            }
        }
    }

    /// Takes all messages and events from the machines.
    fn settle(&mut self) {
        let mut buffer = vec![0; MAX_MESSAGE_LEN];
        for at in 0..self.gws.len() {
            if self.gws[at].frozen || !core::mem::take(&mut self.gws[at].dirty) {
                continue;
            }
            loop {
                let mut idle = true;
                while let Some(event) = self.gws[at].control.poll_event() {
                    idle = false;
                    self.event(at, event);
                }
                while let Some(out) = self.gws[at].control.poll_transmit(self.now, &mut buffer) {
                    idle = false;
                    self.transmit(at, out.conn, &buffer[..out.len]);
                }
                if idle {
                    break;
                }
            }
            self.gws[at].next = self.gws[at].control.poll_timeout();
        }
    }

    fn transmit(&mut self, at: usize, conn: ConnId, bytes: &[u8]) {
        let Some(&(one, other)) = self.conns.get(&conn) else {
            return;
        };
        let to = if one == End::Gw(at) { other } else { one };
        if let End::Gw(to) = to {
            self.messages += 1;
            let ids = (self.gws[at].id, self.gws[to].id);
            if let Some(log) = &mut self.log {
                log.push((ids.0, ids.1, Message::parse(bytes).unwrap()));
            }
        }
        let delay = if matches!(to, End::Gw(_)) {
            self.delay
        } else {
            Duration::from_millis(1)
        };
        self.schedule(delay, Happening::Bytes(conn, to, bytes.to_vec()));
    }

    fn event(&mut self, at: usize, event: Event) {
        let now = self.now;
        match &event {
            Event::Dial(PeerId(other)) => {
                let other = *other as usize;
                if self.links.get(&(at.min(other), at.max(other))) == Some(&true) {
                    let conn = self.conn(at, None, other);
                    self.schedule(self.delay, Happening::Connected(conn, at, other));
                } else {
                    self.schedule(self.delay, Happening::CallFailed(at, other));
                }
            }
            Event::Close(conn) => {
                if let Some((one, other)) = self.conns.get(conn).copied() {
                    let to = if one == End::Gw(at) { other } else { one };
                    self.schedule(self.delay, Happening::Ended(*conn, to));
                }
            }
            Event::Answer { client, answer, .. } => {
                self.gws[at].answers.push((*client, answer.clone()));
            }
            Event::GetSroutes {
                request,
                session,
                gateways,
            } => {
                let gw = &mut self.gws[at];
                let mut sroutes = gw.sroutes.clone().unwrap_or(Sroutes {
                    outcome: Outcome::Null,
                    costs: Vec::new(),
                    got_all: true,
                });
                if gw.missing.contains(session) {
                    sroutes.outcome = Outcome::NoSession;
                }
                sroutes
                    .costs
                    .retain(|cost| gateways.contains(&cost.gateway));
                gw.control.sroutes(now, *request, sroutes);
            }
            _ => {}
        }
        self.gws[at].events.push(event);
    }

    fn happen(&mut self, what: Happening) {
        let now = self.now;
        let touched = match &what {
            Happening::Connected(_, from, to) => vec![*from, *to],
            Happening::CallFailed(from, _) => vec![*from],
            Happening::Bytes(_, End::Gw(at), _) | Happening::Ended(_, End::Gw(at)) => vec![*at],
            _ => vec![],
        };
        for at in touched {
            self.gws[at].dirty = true;
        }
        match what {
            Happening::Connected(conn, from, to) => {
                let up = self.links.get(&(from.min(to), from.max(to))) == Some(&true);
                if !up || self.gws[to].frozen {
                    self.conns.remove(&conn);
                    self.gws[from].control.dial_failed(now, PeerId(to as u32));
                    return;
                }
                self.gws[from]
                    .control
                    .connected(now, conn, PeerId(to as u32), true);
                self.gws[to]
                    .control
                    .connected(now, conn, PeerId(from as u32), false);
            }
            Happening::CallFailed(from, to) => {
                self.gws[from].control.dial_failed(now, PeerId(to as u32));
            }
            Happening::Bytes(conn, to, bytes) => {
                if !self.conns.contains_key(&conn) {
                    return;
                }
                match to {
                    End::Gw(to) if self.gws[to].frozen => {}
                    End::Gw(to) => {
                        let _ = self.gws[to].control.handle_packet(now, &conn, &bytes);
                    }
                    End::Node(at, id) => self.node_hears(at, id, &bytes),
                }
            }
            Happening::Ended(conn, to) => {
                self.conns.remove(&conn);
                if let End::Gw(to) = to {
                    self.gws[to].control.disconnected(now, conn);
                }
            }
        }
    }

    fn node_hears(&mut self, at: usize, id: NodeId, bytes: &[u8]) {
        let gw = &mut self.gws[at];
        let missing = gw.missing.clone();
        let Some(node) = gw.nodes.get_mut(&id).filter(|node| node.alive) else {
            return;
        };
        let conn = node.conn;
        if let Some(answer) = node.receive(Message::parse(bytes).unwrap(), &missing) {
            self.post(conn, End::Gw(at), &answer);
        }
    }

    /// The gateways that data of the session reaches, according to the records of the data nodes: labels and
    /// addresses of both ends of each edge must agree.
    pub(crate) fn reached(&self, name: &str) -> BTreeSet<GatewayId> {
        let name = session(name);
        let mut reached = BTreeSet::new();
        let has = |at: usize| {
            self.gws[at]
                .nodes
                .values()
                .find_map(|node| node.records.get(&name))
        };
        let root = |at: &usize| {
            has(*at).is_some_and(|records| records.up == Some((Edge::Native, Vec::new())))
        };
        let mut todo: Vec<usize> = (0..self.gws.len()).filter(root).collect();
        while let Some(at) = todo.pop() {
            assert!(
                reached.insert(self.gws[at].id),
                "data comes twice to {}",
                self.gws[at].id
            );
            for (edge, (_, sends)) in &has(at).unwrap().down {
                for to in 0..self.gws.len() {
                    let Some((up, from)) = has(to).and_then(|records| records.up.clone()) else {
                        continue;
                    };
                    let same_network = self.gws[to].id.network == self.gws[at].id.network;
                    let matches = match edge {
                        Edge::Native => up == Edge::Native && same_network,
                        Edge::Peer { peer, .. } => peer.0 == to as u32,
                    };
                    if to != at && matches && from == *sends {
                        todo.push(to);
                    }
                }
            }
        }
        reached
    }
}

/// Costs for gateways of a network, by number.
pub(crate) fn sroutes(network: u32, costs: &[(u32, u32)], got_all: bool) -> Sroutes {
    let cost = |&(number, cost): &(u32, u32)| GatewayCost {
        gateway: gateway(network, number),
        cost: Cost(cost),
    };
    Sroutes {
        outcome: Outcome::Costs,
        costs: costs.iter().map(cost).collect(),
        got_all,
    }
}
