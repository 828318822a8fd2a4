//! LTP through a tree of DyRAM relays, one in each router; they carry the data.

use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::rc::Rc;

use dyram::storage::{Limits, Storage};
use dyram::wire::{Packet, Service};
use dyram::{Parents, Relay, RelayId, Verdict};
use ltp::relayed;
use ltp::store::NullStore;
use ltp::{Assist, Sender};
use netsim::ip::Datagram;
use netsim::tree::Role;
use netsim::{Duration, Instant, Io, Node, NodeId, Port, Record};

use super::transport::{Feed, receiver, sender_config};
use super::watch::{Outcome, Watch, processor_time};
use super::world::{BEGIN, GAP, TIMEOUT, World};
use crate::simulated::{Application as _, GROUP, Plan, Watcher as _};

/// When relays request missing packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detection {
    /// As soon as they see a gap.
    Early,
    /// When a child asks.
    Late,
}

impl Detection {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Early => "DyRAM",
            Self::Late => "DyRAM, no early detection",
        }
    }
}

/// Time for which heartbeats are sent before the first data packet, as with the other protocols.
const OPENING: Duration = Duration::from_secs(1);
const TTL: u8 = 255;
/// IPv4 and UDP headers without options.
const HEADERS: usize = 28;

/// A node's place in the network.
struct Place {
    plan: Rc<Plan>,
    node: u32,
}

impl Place {
    fn send(&self, to: SocketAddr, payload: &[u8], io: &mut Io<'_>) {
        let SocketAddr::V4(destination) = to else {
            return;
        };
        let tree = &self.plan.tree;
        let to = tree.node_at(*destination.ip());
        let Some(port) = to.and_then(|to| tree.port_towards(self.node, to)) else {
            return;
        };
        let datagram = Datagram {
            source: self.plan.host(self.node),
            destination,
            ttl: TTL,
            options: &[],
            payload,
        };
        io.send(port, &datagram.emit());
    }

    /// The relay above.
    fn parent(&self) -> Parents {
        let above = self.plan.tree.parent(self.node);
        [self.plan.host(above).into()].into_iter().collect()
    }
}

/// A datagram: source, destination and content.
fn parse(packet: &[u8]) -> Option<(SocketAddr, SocketAddrV4, &[u8])> {
    let datagram = Datagram::parse(packet)?;
    Some((
        datagram.source.into(),
        datagram.destination,
        datagram.payload,
    ))
}

struct SourceNode {
    place: Place,
    root: relayed::Sender<'static, NullStore>,
    feed: Feed,
}

impl SourceNode {
    fn drain(&mut self, now: Instant, io: &mut Io<'_>) {
        let mut buffer = [0; 1500];
        while let Some(transmit) = self.root.poll_transmit(now, &mut buffer) {
            let to = transmit.destination.unicast().expect("a unicast packet");
            self.place.send(to, &buffer[..transmit.len], io);
        }
        while self.root.poll_event().is_some() {}
    }
}

struct RelayNode {
    place: Place,
    relay: Relay<'static>,
    due: Option<Instant>,
}

impl RelayNode {
    fn drain(&mut self, now: Instant, io: &mut Io<'_>) {
        let mut buffer = [0; dyram::MAX_CONTROL_LEN];
        while let Some(transmit) = self.relay.poll_transmit(now, &mut buffer) {
            self.place
                .send(transmit.destination, &buffer[..transmit.len], io);
        }
        while self.relay.poll_event().is_some() {}
        self.due = self.relay.poll_timeout();
    }

    fn handle_packet(&mut self, now: Instant, packet: &[u8], io: &mut Io<'_>) {
        let Some((source, destination, payload)) = parse(packet) else {
            return;
        };
        let tree = &self.place.plan.tree;
        if *destination.ip() != tree.address(self.place.node) {
            let to = tree.node_at(*destination.ip());
            if let Some(port) = to.and_then(|to| tree.port_towards(self.place.node, to)) {
                io.forward(port);
            }
            return;
        }
        let mut bytes = payload.to_vec();
        let meta = dyram::Meta::unicast(source);
        if let Verdict::Send(fanout) = self.relay.forward(now, &meta, &mut bytes) {
            for target in self.relay.targets(&fanout) {
                self.place.send(target, &bytes, io);
            }
        }
        self.drain(now, io);
    }
}

struct LeafNode {
    place: Place,
    leaf: relayed::Receiver<'static, NullStore>,
    watch: Watch,
    due: Option<Instant>,
}

impl LeafNode {
    fn handle_packet(&mut self, now: Instant, packet: &[u8], io: &mut Io<'_>) {
        let Some((source, _, payload)) = parse(packet) else {
            return;
        };
        if let Ok(packet) = Packet::new_checked(payload) {
            let inner = packet.payload();
            match packet.service() {
                Service::Data | Service::Repair => self.watch.packet(now, inner),
                // The source's port follows.
                Service::Cast => {
                    let len = inner.len().saturating_sub(2);
                    self.watch.packet(now, &inner[..len]);
                }
                _ => {}
            }
        } else {
            self.watch.packet(now, payload);
        }
        let _ = self
            .leaf
            .handle_packet(now, &ltp::Meta::unicast(source), payload); // counted there
        self.drain(now, io);
    }

    fn drain(&mut self, now: Instant, io: &mut Io<'_>) {
        let mut buffer = [0; 1500];
        while let Some(transmit) = self.leaf.poll_transmit(now, &mut buffer) {
            let to = transmit.destination.unicast().expect("a unicast packet");
            self.place.send(to, &buffer[..transmit.len], io);
        }
        while self.leaf.poll_event().is_some() {}
        self.due = self.leaf.poll_timeout();
    }
}

enum Peer {
    Source(Box<SourceNode>),
    Relay(Box<RelayNode>),
    Leaf(Box<LeafNode>),
}

impl Node for Peer {
    fn handle_packet(&mut self, now: Instant, _port: Port, packet: &[u8], io: &mut Io<'_>) {
        match self {
            Self::Source(node) => {
                let Some((source, _, payload)) = parse(packet) else {
                    return;
                };
                node.feed.packet(payload);
                node.feed.requests += u64::from(is_nack(payload));
                let _ = node
                    .root
                    .handle_packet(now, &ltp::Meta::unicast(source), payload); // counted there
                node.drain(now, io);
            }
            Self::Relay(node) => node.handle_packet(now, packet, io),
            Self::Leaf(node) => node.handle_packet(now, packet, io),
        }
    }

    fn handle_timeout(&mut self, now: Instant, io: &mut Io<'_>) {
        match self {
            Self::Source(node) => {
                node.feed.feed(now, node.root.sender_mut());
                node.root.handle_timeout(now);
                node.drain(now, io);
            }
            Self::Relay(node) => {
                node.relay.handle_timeout(now);
                node.drain(now, io);
            }
            Self::Leaf(node) => {
                node.leaf.handle_timeout(now);
                node.drain(now, io);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Source(node) => {
                let feed = node.feed.poll_timeout();
                feed.into_iter().chain(node.root.poll_timeout()).min()
            }
            Self::Relay(node) => node.due,
            Self::Leaf(node) => node.due,
        }
    }
}

fn is_nack(payload: &[u8]) -> bool {
    Packet::new_checked(payload).is_ok_and(|packet| packet.service() == Service::Nack)
}

/// The sequence of a DATA packet; repairs and all else are lost by chance.
fn data_sequence(record: &Record<'_>) -> Option<u32> {
    let payload = record.bytes.get(HEADERS..)?;
    let packet = Packet::new_checked(payload).ok()?;
    (packet.service() == Service::Data).then(|| packet.sequence().0)
}

fn peer(world: &World, plan: &Rc<Plan>, detection: Detection, node: u32) -> Peer {
    let place = Place {
        plan: Rc::clone(plan),
        node,
    };
    let (seed, start) = (world.node_seed(node), Instant::ZERO);
    let group: IpAddr = (*GROUP.ip()).into();
    match world.tree.role(node) {
        Role::Source => {
            let open = BEGIN - OPENING;
            let sender = Sender::new(sender_config(), NullStore, seed, open);
            let sender = sender.expect("the configuration is sound");
            let relays = [plan.host(1).into()].into_iter().collect();
            let socket = plan.source().into();
            let root = relayed::Sender::new(sender, socket, group, relays, seed, open);
            Peer::Source(Box::new(SourceNode {
                place,
                root: root.expect("all is IPv4"),
                feed: Feed::new(world.plan.packets),
            }))
        }
        Role::Router => {
            let mut config = dyram::Config::new(RelayId(node));
            config.early_detection = detection == Detection::Early;
            if node != 1 {
                config.parents = place.parent();
            }
            let limits = Limits {
                sessions: 1,
                children: plan.tree.children(node).len(),
                ..Limits::default()
            };
            let storage = Storage::owned(limits).expect("the sizes fit");
            let relay = Relay::new(config, storage, seed, start).expect("the configuration fits");
            Peer::Relay(Box::new(RelayNode {
                place,
                relay,
                due: None,
            }))
        }
        Role::Receiver => {
            let receiver = receiver(Assist::Dyram, seed);
            let source = plan.source().ip().to_owned().into();
            let relays = place.parent();
            let leaf = relayed::Receiver::new(receiver, source, group, relays, seed, start);
            let leaf = leaf.expect("all is IPv4");
            Peer::Leaf(Box::new(LeafNode {
                place,
                due: leaf.poll_timeout(),
                leaf,
                watch: Watch::default(),
            }))
        }
    }
}

/// Runs it over the world's plan.
pub(super) fn run(world: &World, detection: Detection) -> Outcome {
    let since = processor_time();
    let packets = world.plan.packets;
    let plan = Rc::new(Plan::new(world.tree.clone()));
    let mut sim = world.simulate(data_sequence, |node| peer(world, &plan, detection, node));
    let last = BEGIN + GAP * packets;
    sim.run_until(last);
    let is_done = |sim: &netsim::Sim<Peer>| {
        sim.nodes().all(|(_, node)| match node {
            Peer::Leaf(leaf) => leaf.watch.has_all(packets),
            Peer::Source(_) | Peer::Relay(_) => true,
        })
    };
    while !is_done(&sim) && sim.now() < last + TIMEOUT {
        let at = sim.now() + Duration::from_millis(250);
        sim.run_until(at);
    }
    let leaves = || {
        sim.nodes().filter_map(|(id, node)| match node {
            Peer::Leaf(leaf) => Some((id.0, leaf)),
            Peer::Source(_) | Peer::Relay(_) => None,
        })
    };
    let watches = leaves().map(|(id, leaf)| (id, &leaf.watch));
    let outcome = Outcome::gather(detection.name(), world, watches);
    let sent = leaves().map(|(_, leaf)| leaf.leaf.receiver().stats().repairs_sent);
    let (requests, repairs) = match sim.node(NodeId(0)) {
        Some(Peer::Source(source)) => {
            let stats = source.root.sender().stats();
            let repairs = stats.repairs_group + stats.repairs_unicast;
            (source.feed.requests, repairs)
        }
        _ => (0, 0),
    };
    outcome
        .loads(repairs, sent)
        .source_requests(requests)
        .costs(&sim, world, since)
}
