//! Gateways in virtual time: the crate's control nodes, streams with delay between them, and a data
//! node each that accepts everything.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::SocketAddr;

use anyhow::{Context as _, Result, anyhow};
use bfed::wire::allocate::{Outcome, Response};
use bfed::wire::join::FlowChannel;
use bfed::wire::node::{Heartbeat, Register};
use bfed::wire::subscribe::Edge;
use bfed::wire::{Header, MAX_MESSAGE_LEN, Message, Type};
use bfed::{
    ChannelAddress, ClientId, Config, ConnId, ControlNode, Duration, Event, FlowLabel, GatewayId,
    Instant, NodeId, NodeIdentity, PeerConfig, PeerId, Scope, SessionName, Table, Tables,
};
use netsim::Rng;

/// One-way delay of a link.
pub(super) const DELAY: Duration = Duration::from_millis(10);
/// Between a control node and its data node.
const INSIDE: Duration = Duration::from_millis(1);
/// Interval of refreshes and heartbeats: so long that none falls between two changes.
const SELDOM: Duration = Duration::from_secs(3600);
/// The longest that anything is waited for.
const TIMEOUT: Duration = Duration::from_secs(600);

/// A link, by the places of its gateways, the lower first.
pub(super) type Link = (usize, usize);

/// What went over links between gateways.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Messages {
    /// Of routes.
    pub(super) updates: u64,
    /// Of trees: JOIN, LEAVE, TRANSLATION, NO_ROUTE.
    pub(super) trees: u64,
}

impl std::ops::Sub for Messages {
    type Output = Messages;

    fn sub(self, before: Messages) -> Messages {
        Messages {
            updates: self.updates - before.updates,
            trees: self.trees - before.trees,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Control(usize),
    Node(usize),
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Wake(usize),
    Beat(usize),
    Connected(ConnId, usize, usize),
    CallFailed(usize, usize),
    Bytes(ConnId, End, Vec<u8>),
    Ended(ConnId, usize),
}

struct Gateway {
    control: ControlNode,
    /// Its stream with its data node.
    node: ConnId,
    next_label: u32,
    wakes_at: Option<Instant>,
    changes: u64,
}

/// A federation of networks of one gateway each, numbered from 1 on.
pub(super) struct World {
    pub(super) now: Instant,
    gateways: Vec<Gateway>,
    links: BTreeMap<Link, bool>,
    streams: BTreeMap<ConnId, (End, End)>,
    queue: BinaryHeap<Reverse<(Instant, u64, Happening)>>,
    sequence: u64,
    pub(super) messages: Messages,
    /// When a route or a tree changed last.
    pub(super) changed_at: Instant,
    /// A tree has changed since this was asked last.
    trees_changed: bool,
}

fn gateway_id(at: usize) -> Result<GatewayId> {
    let network = u32::try_from(at + 1)?;
    GatewayId::new(network, 1).context("a network's number is not 0")
}

fn table() -> Result<Table> {
    Table::from_number(0).context("the first table")
}

fn link(a: usize, b: usize) -> Link {
    (a.min(b), a.max(b))
}

impl World {
    /// A random tree of `count` gateways, and as many links more.
    pub(super) fn new(count: usize, rng: &mut Rng) -> Result<World> {
        let mut world = World {
            now: Instant::from_secs(1),
            gateways: Vec::new(),
            links: BTreeMap::new(),
            streams: BTreeMap::new(),
            queue: BinaryHeap::new(),
            sequence: 0,
            messages: Messages::default(),
            changed_at: Instant::ZERO,
            trees_changed: false,
        };
        for at in 0..count {
            world.add(at, rng)?;
        }
        let below = |rng: &mut Rng, bound: usize| rng.below(bound as u64) as usize;
        for at in 1..count {
            world.links.insert(link(at, below(rng, at)), true);
        }
        while world.links.len() < (2 * count - 1).min(count * (count - 1) / 2) {
            let (a, b) = (below(rng, count), below(rng, count));
            if a != b {
                world.links.insert(link(a, b), true);
            }
        }
        let now = world.now;
        for (a, b) in world.links() {
            for (own, other) in [(a, b), (b, a)] {
                let peer = PeerId(u32::try_from(other)?);
                let config = PeerConfig::new(gateway_id(other)?);
                let control = &mut world.gateways[own].control;
                control
                    .add_peer(now, peer, config)
                    .map_err(|error| anyhow!("{error}"))?;
            }
        }
        for at in 0..count {
            world.settle(at)?;
        }
        Ok(world)
    }

    fn add(&mut self, at: usize, rng: &mut Rng) -> Result<()> {
        let mut config = Config::new(gateway_id(at)?);
        config.tables = Tables::NONE.with(table()?);
        config.damping = None;
        // A broken link is reported at once: neither end waits for a restart or for a hold timer.
        config.restart_time_s = 0;
        config.hold_time_s = 0;
        config.refresh_interval = SELDOM;
        config.soft_state_lifetime = SELDOM * 3;
        config.heartbeat_interval = SELDOM;
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&rng.next_u64().to_le_bytes());
        let control =
            ControlNode::new(config, seed, self.now).map_err(|error| anyhow!("{error}"))?;
        let node = self.stream(End::Control(at), End::Node(at));
        self.gateways.push(Gateway {
            control,
            node,
            next_label: 0,
            wakes_at: None,
            changes: 0,
        });
        self.gateways[at]
            .control
            .node_connected(self.now, node, NodeIdentity::default());
        let register = Message::Register(Register {
            node: NodeId(1),
            boot: 1,
            max_sessions: 100_000,
            epoch: 0,
        });
        self.node_says(at, &register);
        self.schedule(SELDOM, Happening::Beat(at));
        Ok(())
    }

    pub(super) fn count(&self) -> usize {
        self.gateways.len()
    }

    /// All links.
    pub(super) fn links(&self) -> Vec<Link> {
        self.links.keys().copied().collect()
    }

    fn is_up(&self, a: usize, b: usize) -> bool {
        self.links.get(&link(a, b)) == Some(&true)
    }

    fn stream(&mut self, one: End, other: End) -> ConnId {
        self.sequence += 1;
        let conn = ConnId(self.sequence);
        self.streams.insert(conn, (one, other));
        conn
    }

    fn schedule(&mut self, after: Duration, what: Happening) {
        self.sequence += 1;
        let at = self.now + after;
        self.queue.push(Reverse((at, self.sequence, what)));
    }

    /// A link breaks, with all that is on it, or is mended. Both ends of its stream learn at once.
    pub(super) fn set_link(&mut self, (a, b): Link, up: bool) -> Result<()> {
        self.links.insert((a, b), up);
        let ends = [
            (End::Control(a), End::Control(b)),
            (End::Control(b), End::Control(a)),
        ];
        let over = |pair: &(End, End)| ends.contains(pair);
        let broken = self.streams.iter().filter(|(_, pair)| !up && over(pair));
        let broken: Vec<ConnId> = broken.map(|(conn, _)| *conn).collect();
        for conn in broken {
            self.streams.remove(&conn);
            for at in [a, b] {
                self.gateways[at].control.disconnected(self.now, conn);
                self.settle(at)?;
            }
        }
        Ok(())
    }

    /// A viewer in the network of gateway `at` asks for a session.
    pub(super) fn view(&mut self, at: usize, session: &SessionName) -> Result<()> {
        let (now, client) = (self.now, ClientId(self.sequence));
        let control = &mut self.gateways[at].control;
        control.join(now, client, session.clone(), 0, Scope::Chosen);
        self.settle(at)
    }

    /// The links over which a session reaches gateway `at`, if it does: every gateway on the way is
    /// attached, sends to the next, and the link is up.
    pub(super) fn way(&self, at: usize, session: &SessionName) -> Option<Vec<Link>> {
        let mut way = Vec::new();
        let mut from: Option<usize> = None;
        let mut at = at;
        while way.len() <= self.gateways.len() {
            let mut trees = self.gateways[at].control.trees();
            let tree = trees.find(|tree| tree.session == *session && tree.attached)?;
            if from.is_some_and(|from| !tree.downstream.contains(&PeerId(from as u32))) {
                return None;
            }
            let Some(PeerId(up)) = tree.upstream else {
                return Some(way);
            };
            if !self.is_up(at, up as usize) {
                return None;
            }
            way.push(link(at, up as usize));
            (from, at) = (Some(at), up as usize);
        }
        None
    }

    /// Whether a tree has changed since this was asked last.
    pub(super) fn trees_changed(&mut self) -> bool {
        std::mem::take(&mut self.trees_changed)
    }

    /// Runs until no route and no tree has changed for `calm`; calls `look` after every step.
    pub(super) fn run(
        &mut self,
        calm: Duration,
        mut look: impl FnMut(&mut World) -> Result<()>,
    ) -> Result<()> {
        let begun = self.now;
        self.changed_at = begun;
        while let Some(Reverse((at, ..))) = self.queue.peek() {
            if *at > self.changed_at + calm {
                break;
            }
            anyhow::ensure!(*at < begun + TIMEOUT, "routes do not settle");
            self.now = *at;
            if let Some(Reverse((_, _, what))) = self.queue.pop() {
                self.happen(what)?;
                look(self)?;
            }
        }
        self.now = self.changed_at + calm;
        Ok(())
    }

    fn happen(&mut self, what: Happening) -> Result<()> {
        let now = self.now;
        match what {
            Happening::Wake(at) => {
                if self.gateways[at].wakes_at != Some(now) {
                    return Ok(());
                }
                self.gateways[at].wakes_at = None;
                self.gateways[at].control.handle_timeout(now);
                self.settle(at)
            }
            Happening::Beat(at) => {
                let beat = Heartbeat {
                    epoch: 0,
                    sequence: 0,
                    draining: false,
                    complete: false,
                };
                self.node_says(at, &Message::Heartbeat(beat));
                self.schedule(SELDOM, Happening::Beat(at));
                Ok(())
            }
            Happening::Connected(conn, from, to) => {
                if !self.streams.contains_key(&conn) {
                    return Ok(());
                }
                let peers = [(from, to, true), (to, from, false)];
                for (own, other, dialled) in peers {
                    let peer = PeerId(other as u32);
                    self.gateways[own]
                        .control
                        .connected(now, conn, peer, dialled);
                }
                self.settle(from)?;
                self.settle(to)
            }
            Happening::CallFailed(from, to) => {
                let peer = PeerId(to as u32);
                self.gateways[from].control.dial_failed(now, peer);
                self.settle(from)
            }
            Happening::Bytes(conn, ..) if !self.streams.contains_key(&conn) => Ok(()),
            Happening::Bytes(conn, End::Control(at), bytes) => {
                // What is refused is the gateway's business.
                let _ = self.gateways[at].control.handle_packet(now, &conn, &bytes);
                self.settle(at)
            }
            Happening::Bytes(_, End::Node(at), bytes) => {
                if let Some(answer) = self.node_hears(at, &bytes)? {
                    self.node_says(at, &answer);
                }
                Ok(())
            }
            Happening::Ended(conn, at) => {
                self.streams.remove(&conn);
                self.gateways[at].control.disconnected(now, conn);
                self.settle(at)
            }
        }
    }

    /// Drains a gateway's output, and notes its next timeout.
    fn settle(&mut self, at: usize) -> Result<()> {
        let mut buffer = vec![0; MAX_MESSAGE_LEN];
        loop {
            let mut idle = true;
            while let Some(event) = self.gateways[at].control.poll_event() {
                idle = false;
                self.event(at, &event);
            }
            while let Some(out) = self.gateways[at]
                .control
                .poll_transmit(self.now, &mut buffer)
            {
                idle = false;
                self.transmit(at, out.conn, &buffer[..out.len]);
            }
            if idle {
                break;
            }
        }
        let gateway = &mut self.gateways[at];
        let changes = gateway.control.stats().routes.changes;
        if changes != gateway.changes {
            gateway.changes = changes;
            self.changed_at = self.now;
        }
        let wakes_at = gateway
            .control
            .poll_timeout()
            .map(|next| next.max(self.now));
        if let Some(next) = wakes_at.filter(|_| wakes_at != gateway.wakes_at) {
            gateway.wakes_at = wakes_at;
            self.schedule(next - self.now, Happening::Wake(at));
        }
        Ok(())
    }

    fn event(&mut self, at: usize, event: &Event) {
        match event {
            Event::Dial(PeerId(other)) => {
                let other = *other as usize;
                if self.is_up(at, other) {
                    let conn = self.stream(End::Control(at), End::Control(other));
                    self.schedule(DELAY, Happening::Connected(conn, at, other));
                } else {
                    self.schedule(DELAY, Happening::CallFailed(at, other));
                }
            }
            Event::Close(conn) => {
                if let Some(&(one, other)) = self.streams.get(conn)
                    && let End::Control(to) = if one == End::Control(at) { other } else { one }
                {
                    self.schedule(DELAY, Happening::Ended(*conn, to));
                }
            }
            Event::TreeUp { .. } | Event::TreeDown(_) | Event::Ended { .. } => {
                self.trees_changed = true;
                self.changed_at = self.now;
            }
            _ => {}
        }
    }

    fn transmit(&mut self, at: usize, conn: ConnId, bytes: &[u8]) {
        let Some(&(one, other)) = self.streams.get(&conn) else {
            return;
        };
        let to = if one == End::Control(at) { other } else { one };
        let delay = match to {
            End::Control(_) => {
                self.count_message(bytes);
                DELAY
            }
            End::Node(_) => INSIDE,
        };
        self.schedule(delay, Happening::Bytes(conn, to, bytes.to_vec()));
    }

    fn count_message(&mut self, bytes: &[u8]) {
        let Ok(header) = Header::new_checked(bytes) else {
            return;
        };
        let trees = [Type::Join, Type::Leave, Type::Translation, Type::NoRoute];
        let kind = header.type_number();
        self.messages.updates += u64::from(kind == Type::Update as u8);
        self.messages.trees += u64::from(trees.iter().any(|&tree| tree as u8 == kind));
    }

    fn node_says(&mut self, at: usize, message: &Message) {
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        let conn = self.gateways[at].node;
        self.schedule(INSIDE, Happening::Bytes(conn, End::Control(at), bytes));
    }

    fn node_hears(&mut self, at: usize, bytes: &[u8]) -> Result<Option<Message>> {
        let message = Message::parse(bytes).map_err(|error| anyhow!("{error}"))?;
        let (request, session, flows) = match message {
            Message::Allocate(ask) => {
                let flows = self.channels(at, &ask.session, None);
                (ask.request, ask.session, flows)
            }
            Message::Subscribe(ask) if ask.up => (ask.request, ask.session, Vec::new()),
            Message::Subscribe(ask) => {
                let flows = self.channels(at, &ask.session, Some(ask.edge));
                (ask.request, ask.session, flows)
            }
            _ => return Ok(None),
        };
        Ok(Some(Message::AllocateResponse(Response {
            request,
            outcome: Outcome::Done,
            flows,
            session,
        })))
    }

    /// Channels that a data node gives: to be sent to without labels, to send with labels.
    fn channels(&mut self, at: usize, session: &SessionName, to: Option<Edge>) -> Vec<FlowChannel> {
        let gateway = &mut self.gateways[at];
        let channel = |_| {
            gateway.next_label += 1;
            let [_, high, middle, low] = (at as u32).to_be_bytes();
            let socket = SocketAddr::from(([10, high, middle, low], 4000));
            let native = to == Some(Edge::Native);
            FlowChannel {
                label: FlowLabel::new(gateway.next_label).filter(|_| to.is_some() && !native),
                address: if native {
                    ChannelAddress::Native(socket.to_string().into_bytes())
                } else {
                    ChannelAddress::Stream(socket)
                },
            }
        };
        (0..session.flow_count()).map(channel).collect()
    }

    /// Whether every gateway knows a shortest path over links that are up to every other gateway that
    /// can be reached, and none to the others.
    pub(super) fn routes_are_shortest(&self) -> Result<bool> {
        let table = table()?;
        for at in 0..self.count() {
            let mut far = self.distances(at);
            far.remove(&at);
            for route in self.gateways[at].control.routes() {
                if !route.best || route.table != table {
                    continue;
                }
                let path = route
                    .route
                    .path
                    .iter()
                    .map(|on| on.network.get() as usize - 1);
                let stops: Vec<usize> = std::iter::once(at).chain(path).collect();
                let stands = stops.windows(2).all(|pair| self.is_up(pair[0], pair[1]));
                let to = route.destination.network.get() as usize - 1;
                if !stands || far.remove(&to) != Some(stops.len() - 1) {
                    return Ok(false);
                }
            }
            if !far.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Links between a gateway and all that it can reach.
    pub(super) fn distances(&self, from: usize) -> BTreeMap<usize, usize> {
        let mut near: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (&(a, b), _) in self.links.iter().filter(|(_, up)| **up) {
            near.entry(a).or_default().insert(b);
            near.entry(b).or_default().insert(a);
        }
        let mut far = BTreeMap::from([(from, 0)]);
        let mut edge = vec![from];
        for distance in 1.. {
            let next = edge.iter().filter_map(|at| near.get(at)).flatten();
            let next: BTreeSet<usize> = next.filter(|at| !far.contains_key(at)).copied().collect();
            if next.is_empty() {
                break;
            }
            far.extend(next.iter().map(|&at| (at, distance)));
            edge = next.into_iter().collect();
        }
        far
    }
}
