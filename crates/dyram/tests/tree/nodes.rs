//! Machines as nodes of the simulator, and a simple transport: a receiver asks for missing packets until it has them,
//! and repairs from its store.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use dyram::storage::{Limits, Storage};
use dyram::wire::{Body, Nack, Repr, Role};
use dyram::{
    Attachment, AttachmentConfig, AttachmentEvent, Config, Duration, Event, Instant, Meta, Relay,
    RelayId, Seq, SessionKey, Verdict, packets,
};
use netsim::{Io, LinkConfig, LinkId, Node, NodeId, Port, Sim};

pub(crate) const SESSION: u32 = 77;
/// First sequence number: they wrap.
pub(crate) const FIRST: u32 = u32::MAX - 20;

pub(crate) fn address(node: NodeId) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::from_bits(0x0a00_0001 + node.0), 4143))
}

pub(crate) fn key() -> SessionKey {
    let group = IpAddr::from([239, 1, 2, 3]);
    SessionKey::new(address(NodeId(0)).ip(), group).unwrap()
}

pub(crate) fn payload(seq: Seq) -> [u8; 8] {
    u64::from(seq.0)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .to_be_bytes()
}

/// The neighbour behind each port.
#[derive(Default)]
pub(crate) struct Wires(Vec<NodeId>);

impl Wires {
    fn from(&self, port: Port) -> Meta {
        Meta::unicast(address(self.0[usize::from(port.0)]))
    }

    /// A packet to an address that is not a neighbour is lost.
    fn send(&self, io: &mut Io<'_>, to: SocketAddr, bytes: &[u8]) {
        if let Some(port) = self.0.iter().position(|&node| address(node) == to) {
            io.send(Port(port as u16), bytes);
        }
    }
}

pub(crate) struct RelayNode {
    pub(crate) relay: Relay<'static>,
    pub(crate) events: Vec<Event>,
    pub(crate) wires: Wires,
}

impl RelayNode {
    fn drain(&mut self, now: Instant, io: &mut Io<'_>) {
        let mut buffer = [0; 256];
        while let Some(transmit) = self.relay.poll_transmit(now, &mut buffer) {
            self.wires
                .send(io, transmit.destination, &buffer[..transmit.len]);
        }
        while let Some(event) = self.relay.poll_event() {
            self.events.push(event);
        }
    }
}

impl Node for RelayNode {
    fn handle_packet(&mut self, now: Instant, port: Port, packet: &[u8], io: &mut Io<'_>) {
        let mut bytes = packet.to_vec();
        if let Verdict::Send(fanout) = self.relay.forward(now, &self.wires.from(port), &mut bytes) {
            for target in self.relay.targets(&fanout) {
                self.wires.send(io, target, &bytes);
            }
        }
        self.drain(now, io);
    }

    fn handle_timeout(&mut self, now: Instant, io: &mut Io<'_>) {
        self.relay.handle_timeout(now);
        self.drain(now, io);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.relay.poll_timeout()
    }
}

/// The source: sends one packet a millisecond once a relay has accepted it.
pub(crate) struct SourceNode {
    pub(crate) attachment: Attachment,
    pub(crate) wires: Wires,
    pub(crate) packets: u32,
    pub(crate) sent: u32,
    pub(crate) next: Instant,
    /// How often each packet was asked for.
    pub(crate) asked: BTreeMap<u32, u32>,
    pub(crate) acknowledged: Option<Seq>,
}

impl SourceNode {
    fn newest(&self) -> Seq {
        Seq(FIRST).plus(self.sent)
    }

    fn drain(&mut self, now: Instant, io: &mut Io<'_>) {
        let mut buffer = [0; 256];
        while let Some(transmit) = self.attachment.poll_transmit(now, &mut buffer) {
            self.wires
                .send(io, transmit.destination, &buffer[..transmit.len]);
        }
    }
}

impl Node for SourceNode {
    fn handle_packet(&mut self, now: Instant, port: Port, packet: &[u8], io: &mut Io<'_>) {
        let meta = self.wires.from(port);
        let handled = self.attachment.handle_packet(now, &meta, packet);
        match handled
            .ok()
            .flatten()
            .map(|repr| (repr.sequence, repr.body))
        {
            Some((first, Body::Nack(Nack { mask, ack, .. }))) => {
                self.acknowledged = ack.or(self.acknowledged);
                for seq in packets(first, mask) {
                    *self.asked.entry(seq.0).or_default() += 1;
                    let mut buffer = [0; 256];
                    let held = seq.before(self.newest());
                    let answer = if held {
                        self.attachment
                            .send(SESSION, seq, Body::Repair(&payload(seq)), &mut buffer)
                    } else {
                        self.attachment
                            .send(SESSION, seq, Body::Absent(0), &mut buffer)
                    };
                    if let Some(transmit) = answer {
                        self.wires
                            .send(io, transmit.destination, &buffer[..transmit.len]);
                    }
                }
            }
            Some((ack, Body::Ack)) => self.acknowledged = Some(ack),
            _ => {}
        }
        self.drain(now, io);
    }

    fn handle_timeout(&mut self, now: Instant, io: &mut Io<'_>) {
        self.attachment.handle_timeout(now);
        self.drain(now, io);
        let mut buffer = [0; 256];
        while self.attachment.relay().is_some() && self.next <= now {
            self.next += Duration::from_millis(1);
            let seq = self.newest();
            let transmit = if self.sent < self.packets {
                self.sent += 1;
                self.attachment
                    .send(SESSION, seq, Body::Data(&payload(seq)), &mut buffer)
            } else {
                self.next += Duration::from_millis(19);
                self.attachment
                    .send(SESSION, seq, Body::Cast(&seq.0.to_be_bytes()), &mut buffer)
            };
            let transmit = transmit.unwrap();
            self.wires
                .send(io, transmit.destination, &buffer[..transmit.len]);
        }
        if self.next <= now {
            self.next = now + Duration::from_millis(10);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let attachment = self.attachment.poll_timeout()?;
        Some(attachment.min(self.next))
    }
}

/// A receiver of every packet from the first one on.
pub(crate) struct ReceiverNode {
    pub(crate) attachment: Attachment,
    pub(crate) wires: Wires,
    pub(crate) have: BTreeSet<u32>,
    missing: BTreeSet<u32>,
    /// Packets sent, as far as is known, counted from [`FIRST`].
    pub(crate) known: u32,
    /// Missing packets: when to ask next, and the number of requests.
    asked: BTreeMap<u32, (Instant, u16)>,
    pub(crate) events: Vec<AttachmentEvent>,
    /// Repairs of packets that were not missing.
    pub(crate) unneeded: u32,
    pub(crate) nacks: u32,
    /// Whether it never answers as replier.
    pub(crate) silent: bool,
    tick: Instant,
}

const TICK: Duration = Duration::from_millis(5);

impl ReceiverNode {
    pub(crate) fn is_complete(&self, packets: u32) -> bool {
        self.have.len() == packets as usize
    }

    fn note(&mut self, newest_count: u32) {
        if newest_count < 1 << 30 && newest_count > self.known {
            self.missing.extend(self.known..newest_count);
            self.known = newest_count;
        }
    }

    fn handle(&mut self, packet: &Repr<'_>, io: &mut Io<'_>) {
        let seq = packet.sequence;
        match packet.body {
            Body::Data(bytes) | Body::Repair(bytes) => {
                let repair = matches!(packet.body, Body::Repair(_));
                assert_eq!(bytes, payload(seq));
                let index = seq.0.wrapping_sub(FIRST);
                self.note(index + 1);
                let new = self.have.insert(index);
                self.missing.remove(&index);
                self.unneeded += u32::from(repair && !new);
                self.asked.remove(&index);
            }
            Body::Cast(payload) => {
                let next = u32::from_be_bytes(payload.try_into().unwrap());
                self.note(next.wrapping_sub(FIRST));
            }
            Body::Nack(Nack { mask, .. }) if !self.silent => {
                for seq in packets(seq, mask) {
                    let mut buffer = [0; 256];
                    let answer = if self.have.contains(&seq.0.wrapping_sub(FIRST)) {
                        self.attachment
                            .send(SESSION, seq, Body::Repair(&payload(seq)), &mut buffer)
                    } else {
                        self.attachment
                            .send(SESSION, seq, Body::Absent(0), &mut buffer)
                    };
                    if let Some(transmit) = answer {
                        self.wires
                            .send(io, transmit.destination, &buffer[..transmit.len]);
                    }
                }
            }
            _ => {}
        }
    }

    /// Asks for missing packets, up to 65 in one NACK.
    fn ask(&mut self, now: Instant, io: &mut Io<'_>) {
        let wait = (self.attachment.repair_within() * 2).max(Duration::from_millis(20));
        let is_due = |index: &u32| self.asked.get(index).is_none_or(|&(at, _)| at <= now);
        let due: Vec<u32> = self.missing.iter().copied().filter(is_due).collect();
        let ack = self.missing.first().copied().unwrap_or(self.known);
        let mut buffer = [0; 256];
        let mut rest = &due[..];
        while let [first, ..] = *rest {
            let end = rest
                .iter()
                .position(|&index| index > first + 64)
                .unwrap_or(rest.len());
            let mask = rest[1..end]
                .iter()
                .fold(0, |mask, &index| mask | 1 << (index - first - 1));
            let mut repeats = 0;
            for &index in &rest[..end] {
                let entry = self.asked.entry(index).or_insert((now, 0));
                entry.0 = now + wait;
                repeats = repeats.max(entry.1);
                entry.1 += 1;
                if entry.1 > 3 {
                    self.attachment.suspect(now);
                }
            }
            rest = &rest[end..];
            let nack = Nack {
                mask,
                ack: Some(Seq(FIRST).plus(ack)),
                repeats,
            };
            let seq = Seq(FIRST).plus(first);
            if let Some(transmit) =
                self.attachment
                    .send(SESSION, seq, Body::Nack(nack), &mut buffer)
            {
                self.nacks += 1;
                self.wires
                    .send(io, transmit.destination, &buffer[..transmit.len]);
            }
        }
        if due.is_empty()
            && let Some(transmit) =
                self.attachment
                    .send(SESSION, Seq(FIRST).plus(ack), Body::Ack, &mut buffer)
        {
            self.wires
                .send(io, transmit.destination, &buffer[..transmit.len]);
        }
    }
}

impl Node for ReceiverNode {
    fn handle_packet(&mut self, now: Instant, port: Port, packet: &[u8], io: &mut Io<'_>) {
        let meta = self.wires.from(port);
        if let Ok(Some(packet)) = self.attachment.handle_packet(now, &meta, packet) {
            self.handle(&packet, io);
        }
    }

    fn handle_timeout(&mut self, now: Instant, io: &mut Io<'_>) {
        self.attachment.handle_timeout(now);
        let mut buffer = [0; 256];
        while let Some(transmit) = self.attachment.poll_transmit(now, &mut buffer) {
            self.wires
                .send(io, transmit.destination, &buffer[..transmit.len]);
        }
        while let Some(event) = self.attachment.poll_event() {
            self.events.push(event);
        }
        if self.tick <= now {
            self.tick = now
                + if self.missing.is_empty() {
                    TICK * 10
                } else {
                    TICK
                };
            self.ask(now, io);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.attachment.poll_timeout()?.min(self.tick))
    }
}

/// A tree under construction. Node 0 is the source.
pub(crate) struct World {
    pub(crate) sim: Sim,
    pub(crate) relays: Vec<NodeId>,
    pub(crate) receivers: Vec<NodeId>,
    pub(crate) links: BTreeMap<(u32, u32), LinkId>,
    seed: u64,
}

fn seed_of(world: u64, node: u32) -> [u8; 32] {
    let mut seed = [0x5a; 32];
    seed[..8].copy_from_slice(&world.to_le_bytes());
    seed[8..12].copy_from_slice(&node.to_le_bytes());
    seed
}

fn parents(nodes: &[NodeId]) -> dyram::Parents {
    nodes.iter().copied().map(address).collect()
}

impl World {
    /// The source, which will register at `relay`, still to be added.
    pub(crate) fn new(seed: u64, packets: u32, relays: &[NodeId]) -> Self {
        let mut sim: Sim = Sim::new(seed_of(seed, u32::MAX));
        let now = Instant::ZERO;
        let config = AttachmentConfig {
            key: key(),
            role: Role::Source,
            relays: parents(relays),
        };
        sim.add_node(Box::new(SourceNode {
            attachment: Attachment::new(config, seed_of(seed, 0), now),
            wires: Wires::default(),
            packets,
            sent: 0,
            next: Instant::from_millis(500),
            asked: BTreeMap::new(),
            acknowledged: None,
        }));
        World {
            sim,
            relays: Vec::new(),
            receivers: Vec::new(),
            links: BTreeMap::new(),
            seed,
        }
    }

    pub(crate) fn relay(&mut self, above: &[NodeId], change: impl FnOnce(&mut Config)) -> NodeId {
        let number = self.sim.nodes().count() as u32;
        let mut config = Config::new(RelayId(number + 1));
        config.parents = parents(above);
        change(&mut config);
        let limits = Limits {
            sessions: 2,
            ..Limits::default()
        };
        let storage = Storage::owned(limits).unwrap();
        let seed = seed_of(self.seed, number);
        let relay = Relay::new(config, storage, seed, Instant::ZERO).unwrap();
        let node = self.sim.add_node(Box::new(RelayNode {
            relay,
            events: Vec::new(),
            wires: Wires::default(),
        }));
        self.relays.push(node);
        node
    }

    pub(crate) fn receiver(&mut self, relays: &[NodeId]) -> NodeId {
        let number = self.sim.nodes().count() as u32;
        let config = AttachmentConfig {
            key: key(),
            role: Role::Receiver,
            relays: parents(relays),
        };
        let node = self.sim.add_node(Box::new(ReceiverNode {
            attachment: Attachment::new(config, seed_of(self.seed, number), Instant::ZERO),
            wires: Wires::default(),
            have: BTreeSet::new(),
            missing: BTreeSet::new(),
            known: 0,
            asked: BTreeMap::new(),
            events: Vec::new(),
            unneeded: 0,
            nacks: 0,
            silent: false,
            tick: Instant::ZERO,
        }));
        self.receivers.push(node);
        node
    }

    pub(crate) fn link(&mut self, above: NodeId, below: NodeId, config: LinkConfig) {
        let link = self.sim.add_link(above, below, config);
        self.links.insert((above.0, below.0), link);
        for (node, other) in [(above, below), (below, above)] {
            self.sim.with_node(node, |any, _, _| {
                let any: &mut dyn std::any::Any = &mut **any;
                if let Some(node) = any.downcast_mut::<RelayNode>() {
                    node.wires.0.push(other);
                } else if let Some(node) = any.downcast_mut::<ReceiverNode>() {
                    node.wires.0.push(other);
                } else if let Some(node) = any.downcast_mut::<SourceNode>() {
                    node.wires.0.push(other);
                }
            });
        }
    }

    pub(crate) fn run(&mut self, seconds: i64) {
        self.sim.run_until(Instant::from_secs(seconds));
    }

    /// Runs until every receiver has every packet, and the last acknowledgements have arrived.
    pub(crate) fn run_to_end(&mut self, seconds: i64) {
        let mut second = 0;
        while second < seconds && self.complete() < self.receivers.len() {
            second += 1;
            self.run(second);
        }
        self.run(second + 1);
    }

    pub(crate) fn source(&self) -> &SourceNode {
        self.sim.get(NodeId(0))
    }

    pub(crate) fn relay_at(&self, node: NodeId) -> &RelayNode {
        self.sim.get(node)
    }

    pub(crate) fn receiver_at(&self, node: NodeId) -> &ReceiverNode {
        self.sim.get(node)
    }

    pub(crate) fn complete(&self) -> usize {
        let packets = self.source().packets;
        let done = |&&node: &&NodeId| self.receiver_at(node).is_complete(packets);
        self.receivers.iter().filter(done).count()
    }
}
