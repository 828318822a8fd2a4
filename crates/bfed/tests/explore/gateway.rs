//! A gateway with one control node, and a data node that answers at once.

use std::collections::{BTreeMap, BTreeSet};

use bfed::control::TreeStatus;
use bfed::wire::Message;
use bfed::wire::join::FlowChannel;
use bfed::wire::node::Register;
use bfed::wire::reclaim::ReclaimTarget;
use bfed::wire::subscribe::Edge;
use bfed::*;
use netsim::explore::{Fingerprint, START};

use crate::node::{FakeNode, SessionRecord};
use crate::streams::bytes;

/// The stream of a gateway to its data node.
pub(crate) const NODE: ConnId = ConnId(1_000);

pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// Time between requests of clients that want the session.
pub(crate) const REPEAT: Duration = Duration::from_secs(2);

/// Fields of a control node that no exploration depends on: what is constant; numbers of requests; limits that are far;
/// in which order streams and networks take turns where all that is to be done is done at once.
pub(crate) const SKIPPED: [&str; 8] = [
    "stats",
    "config",
    "numbers",
    "now",
    "bucket",
    "last_ready",
    "last_changed",
    "refreshes",
];
/// Fields that are drawn at random.
pub(crate) const RANDOM: [&str; 1] = ["refresh_at"];

/// Checks the numbers of sessions that a control node counts.
pub(crate) fn check_counts<C: Coordinator>(control: &ControlNode<C>) -> Result<(), String> {
    for peer in control.peers() {
        let is_below = |tree: &TreeStatus| tree.downstream.contains(&peer.peer);
        let count = control.trees().filter(is_below).count();
        if count != peer.sessions {
            return Err(format!("counts {peer:?}, not {count}"));
        }
    }
    for (node, sessions, _) in control.nodes() {
        let is_there = |tree: &TreeStatus| tree.node == Some(node);
        let assigned = control.trees().filter(is_there).count();
        if assigned != sessions {
            return Err(format!(
                "counts {sessions} sessions of {node:?}, not {assigned}"
            ));
        }
    }
    Ok(())
}

/// The clients of a network, which want the session or not.
#[derive(Debug, Hash, Default)]
pub(crate) struct Clients {
    /// When the next request is due, while they want the session.
    pub(crate) request_at: Option<Instant>,
    /// Requests so far; each has the next number.
    pub(crate) requests: u64,
    /// Those without an answer.
    pub(crate) open: BTreeSet<ClientId>,
    /// The addresses of the session, while they have it.
    pub(crate) addresses: Option<Vec<ChannelAddress>>,
}

impl Clients {
    /// Returns whether a request is due.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.request_at.is_some_and(|at| at <= now)
    }

    pub(crate) fn want(&self) -> bool {
        self.request_at.is_some()
    }

    /// Returns the number of the next request.
    pub(crate) fn request(&mut self, now: Instant) -> ClientId {
        self.request_at = Some(now + REPEAT);
        self.requests += 1;
        let client = ClientId(self.requests);
        self.open.insert(client);
        client
    }
}

pub(crate) struct Gateway {
    pub(crate) control: ControlNode,
    node: FakeNode,
    pub(crate) clients: Clients,
    session: SessionName,
    /// How often channels of each edge were released: new ones have other labels.
    released: BTreeMap<Edge, u32>,
}

impl Gateway {
    pub(crate) fn new(config: Config, seed: u8, session: SessionName) -> Self {
        let mut control = ControlNode::new(config, [seed; 32], START).expect("a configuration");
        control.node_connected(START, NODE, NodeIdentity::default());
        let register = Message::Register(Register {
            node: NodeId(1),
            boot: 1,
            max_sessions: 10,
            epoch: 0,
        });
        let registered = control.handle_packet(START, &NODE, &bytes(&register));
        registered.expect("a data node");
        let node = FakeNode {
            conn: NODE,
            next_label: 0,
            records: BTreeMap::new(),
            alive: true,
            epoch: 0,
            at: (seed, 1),
            heartbeat_at: START,
        };
        Gateway {
            control,
            node,
            clients: Clients::default(),
            session,
            released: BTreeMap::new(),
        }
    }

    /// The clients send a request.
    pub(crate) fn request(&mut self, now: Instant) {
        let client = self.clients.request(now);
        let session = self.session.clone();
        self.control.join(now, client, session, 0, Scope::Chosen);
    }

    /// The data node receives a message and answers.
    pub(crate) fn node_answers(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        let message = Message::parse(message).expect("what is sent can be read");
        self.choose_label(&message);
        let answer = self.node.receive(message, &BTreeSet::new())?;
        Some(bytes(&answer))
    }

    /// The answer of the data node arrives.
    pub(crate) fn answered(&mut self, now: Instant, answer: &[u8]) {
        // What is too late is counted.
        let _ = self.control.handle_packet(now, &NODE, answer);
    }

    /// What was released and is requested again has another label; the order of requests makes no difference.
    fn choose_label(&mut self, message: &Message) {
        let record = self.record();
        let released: Vec<Edge> = match message {
            Message::Reclaim(reclaim) => match reclaim.what {
                Some(ReclaimTarget::Receiver(edge) | ReclaimTarget::Source(edge)) => vec![edge],
                Some(ReclaimTarget::All) => record.map_or_else(Vec::new, |record| {
                    let edges = record.down.keys().chain(record.allocated.keys());
                    edges.copied().collect()
                }),
                None => vec![],
            },
            Message::Subscribe(request) if !request.up => {
                let before = record.and_then(|record| record.down.get(&request.edge));
                let has_changed = before.is_some_and(|(flows, _)| *flows != request.flows);
                has_changed.then_some(request.edge).into_iter().collect()
            }
            _ => vec![],
        };
        for edge in released {
            *self.released.entry(edge).or_default() += 1;
        }
        let (edge, allocates) = match message {
            Message::Allocate(request) => (request.edge, true),
            Message::Subscribe(request) => (request.edge, false),
            _ => return,
        };
        let number = match edge {
            Edge::Native => 0,
            Edge::Peer { peer, .. } => peer.0 + 1,
        };
        let released = self.released.get(&edge).copied().unwrap_or(0);
        self.node.next_label = 2 * (10 * released + number) + u32::from(allocates);
    }

    pub(crate) fn tree(&self) -> Option<TreeStatus> {
        self.control.trees().next()
    }

    /// What the data node has for the session.
    pub(crate) fn record(&self) -> Option<&SessionRecord> {
        self.node.records.get(&self.session)
    }

    /// The edges on which the data node sends, with its channels.
    pub(crate) fn receivers(&self) -> impl Iterator<Item = (&Edge, &[FlowChannel])> {
        let down = self.record().into_iter().flat_map(|record| &record.down);
        down.map(|(edge, (_, own))| (edge, &own[..]))
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let times = [self.control.poll_timeout(), self.clients.request_at];
        times.into_iter().flatten().min()
    }

    pub(crate) fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        fingerprint.debug_hiding(&self.control, &SKIPPED, &RANDOM);
        fingerprint.debug_without(&self.node.records, &SKIPPED);
        fingerprint.hash(&(&self.clients, &self.released));
    }
}
