//! Three gateways of three networks, their clients, and the links between them.
//!
//! ```text
//!           owner (network 1)
//!            /             \
//!   middle (network 2) -- far (network 3)
//! ```

use std::collections::BTreeSet;

use bfed::control::TreeStatus;
use bfed::wire::MAX_MESSAGE_LEN;
use bfed::wire::client::Answer;
use bfed::wire::join::FlowChannel;
use bfed::wire::no_route::Reason;
use bfed::wire::subscribe::Edge;
use bfed::*;
use netsim::explore::{Fingerprint, Nodes, Outbox, START};

use crate::gateway::{Gateway, NODE, SECOND, check_counts};
use crate::streams::{Packet, Streams, What};

/// The gateways, by number.
pub(crate) const OWNER: usize = 0;
pub(crate) const MIDDLE: usize = 1;
pub(crate) const FAR: usize = 2;
/// Gateways. The data node of gateway n is node `COUNT` + n.
const COUNT: usize = 3;

/// Two gateways, the lower number first.
pub(crate) type Link = (usize, usize);

/// What is explored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// Cost of the link between the owner and the far gateway. The other links cost 1.
    pub(crate) cost: u32,
    /// Whether both ends of a link dial, and not the lower one alone.
    pub(crate) both_dial: bool,
    /// How long peers keep the routes and trees of a gateway that they have lost, in seconds.
    pub(crate) restart_time_s: u16,
    /// Gateways whose clients join and leave, and how often they join.
    pub(crate) clients: &'static [(usize, u32)],
    /// The link that fails and returns, and how often it fails.
    pub(crate) failing: (Link, u32),
    /// Whether messages to and from data nodes take time, and the data nodes do not answer at once.
    pub(crate) slow_nodes: bool,
    /// Why clients may be refused the session, or lose it.
    pub(crate) refusals: &'static [Reason],
}

/// What happens to clients and to the failing link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    Join(usize),
    Leave(usize),
    Fail,
    Return,
}

pub(crate) struct Federation {
    setup: Setup,
    gateways: Vec<Gateway>,
    streams: Streams,
    is_down: bool,
    /// Gateways that dial while the link is down: the peer answers once it has returned.
    dialling: BTreeSet<usize>,
    /// How often the clients of each gateway joined, and how often the link failed.
    joined: [u32; COUNT],
    failed: u32,
    /// What went wrong in a call.
    violation: Option<String>,
    buffer: Vec<u8>,
}

fn id(gateway: usize) -> GatewayId {
    GatewayId::new(gateway as u32 + 1, 1).expect("not 0")
}

fn session() -> SessionName {
    SessionName::parse("bfed://1/a").expect("a name")
}

fn link(one: usize, other: usize) -> Link {
    (one.min(other), one.max(other))
}

fn config(setup: &Setup, at: usize) -> Config {
    let mut config = Config::new(id(at));
    config.tables = Tables::NONE.with(session().table());
    if at != OWNER {
        // No session is from there.
        config.origin = Costs::uniform(Cost::INFINITE);
    }
    config.damping = None;
    config.hold_time_s = 0;
    config.restart_time_s = setup.restart_time_s;
    config.advertisement_interval = Duration::ZERO;
    // Such a short delay has no random part.
    config.retry_delay = Duration::from_micros(1);
    config.refresh_interval = SECOND * 2;
    // That a peer left while it was disconnected is known by its missing refreshes; nothing else has to wait for them.
    let lifetime = if setup.restart_time_s == 0 { 60 } else { 5 };
    config.soft_state_lifetime = SECOND * lifetime;
    config.join_timeout = SECOND;
    config.refusal_time = SECOND;
    // Data nodes neither fail nor send heartbeats.
    config.heartbeat_interval = SECOND * 3600;
    config
}

fn gateway(setup: &Setup, at: usize) -> Gateway {
    let mut gateway = Gateway::new(config(setup, at), at as u8 + 1, session());
    for other in (0..COUNT).filter(|&other| other != at) {
        let is_dear = link(at, other) == (OWNER, FAR);
        let mut peer = PeerConfig::new(id(other));
        peer.link = Costs::uniform(Cost(if is_dear { setup.cost } else { 1 }));
        peer.dial = setup.both_dial || at < other;
        let added = gateway.control.add_peer(START, PeerId(other as u32), peer);
        added.expect("a peer");
    }
    gateway
}

impl Federation {
    pub(crate) fn new(setup: Setup) -> Self {
        Federation {
            setup,
            gateways: (0..COUNT).map(|at| gateway(&setup, at)).collect(),
            streams: Streams::default(),
            is_down: false,
            dialling: BTreeSet::new(),
            joined: [0; COUNT],
            failed: 0,
            violation: None,
            buffer: vec![0; MAX_MESSAGE_LEN],
        }
    }

    /// Does what the machine asks for.
    fn drain(&mut self, now: Instant, at: usize, out: &mut Outbox<Packet>) {
        let mut buffer = core::mem::take(&mut self.buffer);
        loop {
            while let Some(event) = self.gateways[at].control.poll_event() {
                self.event(now, at, event, out);
            }
            let control = &mut self.gateways[at].control;
            let Some(transmit) = control.poll_transmit(now, &mut buffer) else {
                break;
            };
            let message = &buffer[..transmit.len];
            if transmit.conn == NODE {
                self.send_to_node(now, at, message, out);
            } else if self.streams.has(transmit.conn, at) {
                let (to, _) = self.streams.other_end(transmit.conn, at);
                let what = What::Message(message.to_vec());
                self.streams.post(transmit.conn, to, what, out);
            }
        }
        // The last message of a stream closes it.
        while let Some(event) = self.gateways[at].control.poll_event() {
            self.event(now, at, event, out);
        }
        self.buffer = buffer;
    }

    fn send_to_node(&mut self, now: Instant, at: usize, message: &[u8], out: &mut Outbox<Packet>) {
        if self.setup.slow_nodes {
            send_on_node_stream(COUNT + at, message.to_vec(), out);
        } else if let Some(answer) = self.gateways[at].node_answers(message) {
            self.gateways[at].answered(now, &answer);
        }
    }

    fn event(&mut self, now: Instant, at: usize, event: Event, out: &mut Outbox<Packet>) {
        let gateway = &mut self.gateways[at];
        match event {
            Event::Dial(peer) => self.dial(at, peer.0 as usize, out),
            Event::Close(conn) => self.streams.close(conn, at, out),
            Event::Answer { client, answer, .. } => self.answer(now, at, client, answer),
            Event::Moved { addresses, .. } => gateway.clients.addresses = Some(addresses),
            Event::Ended { reason, .. } => {
                gateway.clients.addresses = None;
                self.refused(at, reason);
            }
            _ => {}
        }
    }

    fn dial(&mut self, at: usize, to: usize, out: &mut Outbox<Packet>) {
        if self.is_down && link(at, to) == self.setup.failing.0 {
            self.dialling.insert(at);
        } else {
            self.streams.open(at, to, out);
        }
    }

    fn answer(&mut self, now: Instant, at: usize, client: ClientId, answer: Answer) {
        let Gateway {
            control, clients, ..
        } = &mut self.gateways[at];
        if !clients.open.remove(&client) {
            self.violation = Some(format!("gateway {at} answered {client:?} twice"));
        }
        match answer {
            Answer::Translation(addresses) if clients.want() => clients.addresses = Some(addresses),
            // They left before the answer.
            Answer::Translation(_) => control.leave(now, &session()),
            Answer::NoRoute(reason) => {
                clients.addresses = None;
                self.refused(at, reason);
            }
            other => self.violation = Some(format!("gateway {at} answered {other:?}")),
        }
    }

    /// The clients of a gateway do not get the session, or lose it.
    fn refused(&mut self, at: usize, reason: Reason) {
        // What a gateway waits for may be lost with the link.
        let is_lost = self.is_down && reason == Reason::Timeout;
        if !is_lost && !self.setup.refusals.contains(&reason) {
            self.violation = Some(format!("gateway {at} refused the session: {reason:?}"));
        }
    }

    /// The gateway at the other end of an edge, if that edge is its source.
    fn next(&self, from: usize, edge: &Edge, channels: &[FlowChannel]) -> Option<usize> {
        let Edge::Peer { peer, .. } = edge else {
            return None;
        };
        let to = peer.0 as usize;
        let (source, flows) = self.gateways[to].record()?.up.as_ref()?;
        let is_source = matches!(source, Edge::Peer { peer, .. } if peer.0 as usize == from);
        (is_source && flows == channels).then_some(to)
    }

    /// The gateways to which a gateway's data node sends.
    fn next_all(&self, from: usize) -> impl Iterator<Item = usize> {
        let receivers = self.gateways[from].receivers();
        receivers.filter_map(move |(edge, channels)| self.next(from, edge, channels))
    }

    /// The gateways that data reaches, each once and none in a circle.
    fn reached(&self) -> Result<BTreeSet<usize>, String> {
        let is_root = |at: &usize| {
            let source = self.gateways[*at]
                .record()
                .and_then(|record| record.up.as_ref());
            source.is_some_and(|(edge, _)| *edge == Edge::Native)
        };
        let reached = self.visited((0..COUNT).filter(is_root).collect())?;
        for start in 0..COUNT {
            if self
                .visited(self.next_all(start).collect())?
                .contains(&start)
            {
                return Err(format!("data comes back to gateway {start}"));
            }
        }
        Ok(reached)
    }

    fn visited(&self, mut todo: Vec<usize>) -> Result<BTreeSet<usize>, String> {
        let mut visited = BTreeSet::new();
        while let Some(at) = todo.pop() {
            if !visited.insert(at) {
                return Err(format!("data comes twice to gateway {at}"));
            }
            todo.extend(self.next_all(at));
        }
        Ok(visited)
    }

    /// The tree of a gateway is there for its clients and for the gateways below it, and for nothing else.
    fn check_tree(&self, at: usize) -> Result<(), String> {
        let gateway = &self.gateways[at];
        let is_below = |other: &usize| {
            let tree = self.gateways[*other].tree();
            tree.is_some_and(|tree| tree.upstream == Some(PeerId(at as u32)))
        };
        let below = (0..COUNT)
            .filter(is_below)
            .map(|other| PeerId(other as u32));
        let below: BTreeSet<PeerId> = below.collect();
        let wants = gateway.clients.want();
        let tree = gateway.tree();
        let has = |tree: &TreeStatus| {
            let downstream: BTreeSet<_> = tree.downstream.iter().copied().collect();
            tree.attached && downstream == below && tree.clients == wants
        };
        let is_right = match &tree {
            Some(tree) => has(tree) && (wants || !below.is_empty()),
            None => !wants && below.is_empty() && gateway.record().is_none(),
        };
        let edges = below.len() + usize::from(wants);
        if !is_right || gateway.receivers().count() != edges {
            let record = gateway.record();
            return Err(format!(
                "gateway {at} has {tree:?} and {record:?}; {below:?} are below"
            ));
        }
        let is_reached = self.reached()?.contains(&at);
        match tree.is_none() || is_reached {
            true => Ok(()),
            false => Err(format!("no data reaches gateway {at}")),
        }
    }

    fn check_clients(&self, at: usize) -> Result<(), String> {
        let clients = &self.gateways[at].clients;
        if !clients.open.is_empty() {
            return Err(format!("clients of {at} have no answer: {clients:?}"));
        }
        if clients.want() != clients.addresses.is_some() {
            return Err(format!("clients of {at}: {clients:?}"));
        }
        Ok(())
    }
}

/// Sends on the stream between a control node and its data node.
fn send_on_node_stream(to: usize, message: Vec<u8>, out: &mut Outbox<Packet>) {
    let what = What::Message(message);
    out.send_in_stream(to, to as u32, Packet { conn: NODE, what });
}

impl Nodes for Federation {
    type Packet = Packet;
    type Command = Change;

    fn count(&self) -> usize {
        2 * COUNT
    }

    fn handle_packet(
        &mut self,
        now: Instant,
        at: usize,
        packet: &Packet,
        out: &mut Outbox<Packet>,
    ) {
        let conn = packet.conn;
        if let (NODE, What::Message(message)) = (conn, &packet.what) {
            if at < COUNT {
                self.gateways[at].answered(now, message);
            } else if let Some(answer) = self.gateways[at - COUNT].node_answers(message) {
                send_on_node_stream(at - COUNT, answer, out);
                return;
            }
        } else if self.streams.has(conn, at) {
            let (peer, has_dialled) = self.streams.other_end(conn, at);
            let control = &mut self.gateways[at].control;
            match &packet.what {
                What::Opened => control.connected(now, conn, PeerId(peer as u32), has_dialled),
                // What is refused is counted.
                What::Message(bytes) => drop(control.handle_packet(now, &conn, bytes)),
                What::Closed | What::Broken => {
                    control.disconnected(now, conn);
                    self.streams.ended(conn, at, out);
                }
            }
        }
        if at < COUNT {
            self.drain(now, at, out);
        }
    }

    fn handle_timeout(&mut self, now: Instant, at: usize, out: &mut Outbox<Packet>) {
        let Some(gateway) = self.gateways.get_mut(at) else {
            return;
        };
        if gateway.clients.is_due(now) {
            gateway.request(now);
        }
        gateway.control.handle_timeout(now);
        self.drain(now, at, out);
    }

    fn poll_timeout(&self, at: usize) -> Option<Instant> {
        self.gateways.get(at)?.poll_timeout()
    }

    fn commands(&self, commands: &mut Vec<Change>) {
        for &(at, times) in self.setup.clients {
            if self.gateways[at].clients.want() {
                commands.push(Change::Leave(at));
            } else if self.joined[at] < times {
                commands.push(Change::Join(at));
            }
        }
        if self.is_down {
            commands.push(Change::Return);
        } else if self.failed < self.setup.failing.1 {
            commands.push(Change::Fail);
        }
    }

    fn command(&mut self, now: Instant, change: &Change, out: &mut Outbox<Packet>) {
        match *change {
            Change::Join(at) => {
                self.joined[at] += 1;
                self.gateways[at].request(now);
                self.drain(now, at, out);
            }
            Change::Leave(at) => {
                let Gateway {
                    control, clients, ..
                } = &mut self.gateways[at];
                clients.request_at = None;
                if clients.addresses.take().is_some() {
                    control.leave(now, &session());
                }
                self.drain(now, at, out);
            }
            Change::Fail => {
                self.failed += 1;
                self.is_down = true;
                let (one, other) = self.setup.failing.0;
                self.streams
                    .break_all(|ends| ends.contains(&one) && ends.contains(&other), out);
            }
            Change::Return => {
                self.is_down = false;
                let (one, other) = self.setup.failing.0;
                for at in core::mem::take(&mut self.dialling) {
                    self.streams.open(at, one + other - at, out);
                }
            }
        }
    }

    fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        for gateway in &self.gateways {
            gateway.fingerprint(fingerprint);
        }
        fingerprint.hash(&(&self.streams, &self.dialling));
        fingerprint.hash(&(self.is_down, self.joined, self.failed));
    }

    fn check(&self, _: Instant) -> Result<(), String> {
        if let Some(violation) = &self.violation {
            return Err(violation.clone());
        }
        self.reached()?;
        let gateways = self.gateways.iter();
        (0..).zip(gateways).try_for_each(|(at, gateway)| {
            let counts = check_counts(&gateway.control);
            counts.map_err(|wrong| format!("gateway {at} {wrong}"))
        })
    }

    fn check_end(&mut self, _: Instant) -> Result<(), String> {
        for at in 0..COUNT {
            self.check_tree(at)?;
            self.check_clients(at)?;
        }
        Ok(())
    }
}
