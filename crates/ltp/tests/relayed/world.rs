//! A source, relays and receivers around one switch, in the simulator. Unicast between them goes straight through
//! the switch; packets to the group go to every relay and receiver.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::rc::Rc;

use dyram::storage::{Limits, Storage};
use dyram::wire::{Body, Packet, Role, Service};
use dyram::{Relay, RelayId, Verdict};
use ltp::relayed::{self, AttachmentEvent, OVERHEAD};
use ltp::store::HeapRing;
use ltp::{
    Assist, Duration, Instant, Machine, Receiver, ReceiverConfig, Sender, SenderConfig, SenderEvent,
};
use netsim::ip::Datagram;
use netsim::{Disposition, Io, LinkConfig, LinkId, Loss, Node, NodeId, Port, Rng, Sim};

use crate::dice::seed;

pub(crate) type Source = relayed::Sender<'static, HeapRing>;
pub(crate) type Leaf = relayed::Receiver<'static, HeapRing>;

const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 1, 2, 3), 5000);
const SOURCE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 4000);
pub(crate) const STUCK: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 3, 0, 1), 4000);

fn relay_address(index: usize) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from(0x0a01_0000 + index as u32), 4143)
}

fn leaf_address(index: usize) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from(0x0a02_0000 + index as u32), 4000)
}

pub(crate) fn relay(index: usize) -> SocketAddr {
    relay_address(index).into()
}

fn group() -> IpAddr {
    (*GROUP.ip()).into()
}

pub(crate) fn new_source(
    bytes: &[u8],
    number: u64,
    now: Instant,
    change: impl Fn(&mut SenderConfig),
) -> Source {
    let mut config = SenderConfig::new(GROUP.into());
    config.length = Some(bytes.len() as u64);
    config.max_packet_len = 500;
    config.rate_bps = Some(20_000_000);
    config.block_exponent = 13;
    change(&mut config);
    let store = HeapRing::whole(bytes.to_vec());
    let sender = Sender::new(config, store, seed(number), now).unwrap();
    let first = [relay(0)].into_iter().collect();
    relayed::Sender::new(sender, SOURCE.into(), group(), first, seed(number + 1), now).unwrap()
}

pub(crate) fn new_leaf(
    bytes: &[u8],
    relays: &[usize],
    key: Option<[u8; 32]>,
    number: u64,
    now: Instant,
) -> Leaf {
    let mut config = ReceiverConfig::new(GROUP.into());
    config.assist = Assist::Dyram;
    config.source = Some((*SOURCE.ip()).into());
    config.key = key;
    let store = HeapRing::new(bytes.len().next_multiple_of(1 << 16));
    let receiver = Receiver::new(config, store, seed(number), now);
    let relays = relays.iter().copied().map(relay).collect();
    let source = (*SOURCE.ip()).into();
    relayed::Receiver::new(receiver, source, group(), relays, seed(number), now).unwrap()
}

pub(crate) fn relay_config(index: usize, parent: Option<usize>) -> dyram::Config {
    let mut config = dyram::Config::new(RelayId(index as u32 + 1));
    config.parents = parent.map(relay).into_iter().collect();
    config
}

pub(crate) fn new_relay(config: dyram::Config, number: u64, now: Instant) -> Relay<'static> {
    let storage = Storage::owned(Limits::default()).unwrap();
    Relay::new(config, storage, seed(number), now).unwrap()
}

/// A machine that the simulator drives.
pub(crate) trait Peer: Machine + 'static {
    /// Handles a packet. Returns the addresses to forward it to.
    fn take(
        &mut self,
        now: Instant,
        from: SocketAddr,
        to_group: bool,
        bytes: &mut [u8],
    ) -> Vec<SocketAddr>;
    /// Returns destination and length of a packet.
    fn sent(transmit: &Self::Transmit) -> (SocketAddr, usize);
}

fn ltp_meta(from: SocketAddr, to_group: bool) -> ltp::Meta {
    match to_group {
        true => ltp::Meta::group(from),
        false => ltp::Meta::unicast(from),
    }
}

fn ltp_sent(transmit: &ltp::Transmit) -> (SocketAddr, usize) {
    assert!(transmit.len <= 500 + OVERHEAD);
    let to = transmit.destination.unicast();
    (to.unwrap_or_else(|| GROUP.into()), transmit.len)
}

macro_rules! ltp_peer {
    ($name:ident) => {
        impl Peer for $name {
            fn take(
                &mut self,
                now: Instant,
                from: SocketAddr,
                to_group: bool,
                bytes: &mut [u8],
            ) -> Vec<SocketAddr> {
                let _ = self.handle_packet(now, &ltp_meta(from, to_group), bytes);
                Vec::new()
            }
            fn sent(transmit: &ltp::Transmit) -> (SocketAddr, usize) {
                ltp_sent(transmit)
            }
        }
    };
}

ltp_peer!(Source);
ltp_peer!(Leaf);

impl Peer for Relay<'static> {
    fn take(
        &mut self,
        now: Instant,
        source: SocketAddr,
        group: bool,
        bytes: &mut [u8],
    ) -> Vec<SocketAddr> {
        match self.forward(now, &dyram::Meta { source, group }, bytes) {
            Verdict::Send(fanout) => {
                assert!(!group, "it forwards nothing that the group carries");
                self.targets(&fanout).collect()
            }
            Verdict::Done | Verdict::Drop(_) => Vec::new(),
        }
    }
    fn sent(transmit: &dyram::Transmit) -> (SocketAddr, usize) {
        (transmit.destination, transmit.len)
    }
}

/// Returns the destination of a datagram without IP options.
fn destination(packet: &[u8]) -> SocketAddrV4 {
    let [a, b, c, d] = [16, 17, 18, 19].map(|at| packet[at]);
    let port = u16::from_be_bytes([packet[22], packet[23]]);
    SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), port)
}

fn send(io: &mut Io<'_>, source: SocketAddrV4, to: SocketAddr, payload: &[u8]) {
    let SocketAddr::V4(destination) = to else {
        panic!("IPv4 only");
    };
    let datagram = Datagram {
        source,
        destination,
        ttl: 16,
        options: &[],
        payload,
    };
    io.send(Port(0), &datagram.emit());
}

/// A machine at its address, and its events; without a machine the host is down.
struct Host<P: Peer> {
    address: SocketAddrV4,
    machine: Option<P>,
    events: Vec<P::Event>,
}

impl<P: Peer> Host<P> {
    fn new(address: SocketAddrV4, machine: P) -> Box<Self> {
        Box::new(Host {
            address,
            machine: Some(machine),
            events: Vec::new(),
        })
    }

    fn drain(&mut self, now: Instant, io: &mut Io<'_>) {
        let Some(machine) = &mut self.machine else {
            return;
        };
        let mut buffer = [0; 1000];
        while let Some(transmit) = machine.poll_transmit(now, &mut buffer) {
            let (to, len) = P::sent(&transmit);
            send(io, self.address, to, &buffer[..len]);
        }
        self.events
            .extend(std::iter::from_fn(|| machine.poll_event()));
    }
}

impl<P: Peer> Node for Host<P> {
    fn handle_packet(&mut self, now: Instant, _: Port, packet: &[u8], io: &mut Io<'_>) {
        let datagram = Datagram::parse(packet).unwrap();
        let (from, to_group) = (datagram.source.into(), datagram.destination == GROUP);
        let mut bytes = datagram.payload.to_vec();
        if let Some(machine) = &mut self.machine {
            for target in machine.take(now, from, to_group, &mut bytes) {
                send(io, self.address, target, &bytes);
            }
        }
        self.drain(now, io);
    }

    fn handle_timeout(&mut self, now: Instant, io: &mut Io<'_>) {
        if let Some(machine) = &mut self.machine {
            machine.handle_timeout(now);
        }
        self.drain(now, io);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.machine.as_ref()?.poll_timeout()
    }
}

/// A child of a relay that refreshes its JOIN and acknowledges the first packet repeatedly.
struct Stuck {
    attachment: dyram::Attachment,
    /// The run and the packet that it acknowledges.
    ack: Option<(u32, dyram::Seq)>,
    next: Instant,
}

impl Stuck {
    fn new(index: usize) -> Stuck {
        let config = dyram::AttachmentConfig {
            key: dyram::SessionKey::new((*SOURCE.ip()).into(), group()).unwrap(),
            role: Role::Receiver,
            relays: [relay(index)].into_iter().collect(),
        };
        Stuck {
            attachment: dyram::Attachment::new(config, seed(4711), Instant::ZERO),
            ack: None,
            next: Instant::ZERO,
        }
    }
}

impl Node for Stuck {
    fn handle_packet(&mut self, now: Instant, _: Port, packet: &[u8], _: &mut Io<'_>) {
        let datagram = Datagram::parse(packet).unwrap();
        let meta = dyram::Meta::unicast(datagram.source.into());
        let packet = self.attachment.handle_packet(now, &meta, datagram.payload);
        if let Ok(Some(packet)) = packet
            && matches!(packet.body, Body::Data(_))
        {
            let known = self.ack.filter(|(run, _)| *run == packet.session);
            self.ack = known.or(Some((packet.session, packet.sequence)));
        }
    }

    fn handle_timeout(&mut self, now: Instant, io: &mut Io<'_>) {
        let mut buffer = [0; 1000];
        while let Some(transmit) = self.attachment.poll_transmit(now, &mut buffer) {
            send(io, STUCK, transmit.destination, &buffer[..transmit.len]);
        }
        if let Some((run, ack)) = self.ack
            && self.next <= now
            && let Some(transmit) = self.attachment.send(run, ack, Body::Ack, &mut buffer)
        {
            send(io, STUCK, transmit.destination, &buffer[..transmit.len]);
        }
        if self.next <= now {
            self.next = now + Duration::from_millis(100);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.attachment
            .poll_timeout()
            .into_iter()
            .chain([self.next])
            .min()
    }
}

/// Forwards a datagram to the port of its destination; one for the group to all members.
#[derive(Default)]
struct Switch {
    ports: BTreeMap<SocketAddrV4, Port>,
    members: Vec<Port>,
}

impl Node for Switch {
    fn handle_packet(&mut self, _: Instant, _: Port, packet: &[u8], io: &mut Io<'_>) {
        let to = destination(packet);
        if to == GROUP {
            io.forward_each(self.members.iter().copied());
        } else if let Some(&port) = self.ports.get(&to) {
            io.forward(port);
        }
    }
}

pub(crate) struct World {
    sim: Sim,
    switch: NodeId,
    source: NodeId,
    relays: Vec<NodeId>,
    leaves: Vec<NodeId>,
    links: Vec<LinkId>,
    delay: Duration,
    /// Probability of loss: of a packet on its way to the switch, and of one to the group once more on its way to
    /// each member.
    loss: f64,
    /// Probability of loss of acknowledgements alone.
    pub(crate) ack_loss: Rc<Cell<f64>>,
    plain_requests: Rc<Cell<u32>>,
}

impl World {
    /// `parents[i]` is the relay above relay `i` (none: the source registers there), `leaves[i]` lists the relays of
    /// receiver `i`, `per_million` is the loss.
    pub(crate) fn new(
        bytes: &[u8],
        parents: &[Option<usize>],
        leaves: &[&[usize]],
        per_million: u64,
        number: u64,
        change: impl Fn(&mut SenderConfig),
    ) -> World {
        let mut sim: Sim = Sim::new(seed(number));
        let now = Instant::ZERO;
        let switch = sim.add_node(Box::new(Switch::default()));
        let source = new_source(bytes, number, now, &change);
        let mut config = SenderConfig::new(GROUP.into());
        change(&mut config);
        let mut world = World {
            source: sim.add_node(Host::new(SOURCE, source)),
            sim,
            switch,
            relays: Vec::new(),
            leaves: Vec::new(),
            links: Vec::new(),
            delay: Duration::from_micros(2000),
            loss: per_million as f64 / 1e6,
            ack_loss: Rc::default(),
            plain_requests: Rc::default(),
        };
        world.attach(world.source, SOURCE, false);
        for (index, &parent) in parents.iter().enumerate() {
            let machine = new_relay(relay_config(index, parent), number + 2 + index as u64, now);
            let address = relay_address(index);
            let node = world.sim.add_node(Host::new(address, machine));
            world.attach(node, address, true);
            world.relays.push(node);
        }
        for (index, relays) in leaves.iter().enumerate() {
            let machine = new_leaf(bytes, relays, config.key, number + 1000 + index as u64, now);
            let address = leaf_address(index);
            let node = world.sim.add_node(Host::new(address, machine));
            world.attach(node, address, true);
            world.leaves.push(node);
        }
        world.script(number);
        world
    }

    fn attach(&mut self, node: NodeId, address: SocketAddrV4, is_member: bool) {
        let port = Port(self.links.len() as u16);
        self.sim.with(self.switch, |switch: &mut Switch, _, _| {
            switch.ports.insert(address, port);
            if is_member {
                switch.members.push(port);
            }
        });
        let (up, down) = self.link();
        let link = self.sim.add_asymmetric_link(node, self.switch, up, down);
        self.links.push(link);
    }

    fn link(&self) -> (LinkConfig, LinkConfig) {
        let loss = Loss::Bernoulli(self.loss);
        let jitter = Duration::from_micros(100);
        let up = LinkConfig::new().delay(self.delay).jitter(jitter);
        (up.loss(loss), LinkConfig::new().loss(loss))
    }

    pub(crate) fn set_loss(&mut self, loss: f64) {
        self.loss = loss;
        self.set_links();
    }

    pub(crate) fn set_delay(&mut self, delay: Duration) {
        self.delay = delay;
        self.set_links();
    }

    fn set_links(&mut self) {
        let (up, down) = self.link();
        for &link in &self.links {
            self.sim.set_link(link, up, down);
        }
    }

    /// Unicast is lost at most once, and acknowledgements as often as `ack_loss` says.
    fn script(&mut self, number: u64) {
        let (switch, ack_loss) = (self.switch.0, self.ack_loss.clone());
        let plain_requests = self.plain_requests.clone();
        let mut rng = Rng::new(seed(number + 1));
        self.sim.script(move |record| {
            let (to, payload) = (destination(record.bytes), &record.bytes[28..]);
            if record.from == switch {
                let is_plain = to == SOURCE && payload[0] == 0x15;
                plain_requests.set(plain_requests.get() + u32::from(is_plain));
                return match to == GROUP {
                    true => Disposition::Chance,
                    false => Disposition::Pass,
                };
            }
            let packet = Packet::new_checked(payload);
            let is_ack = packet.is_ok_and(|packet| packet.service() == Service::Ack);
            match is_ack && rng.chance(ack_loss.get()) {
                true => Disposition::Lose,
                false => Disposition::Chance,
            }
        });
    }

    pub(crate) fn now(&self) -> Instant {
        self.sim.now()
    }

    /// Runs until that time.
    pub(crate) fn run(&mut self, milliseconds: i64) {
        self.sim.run_until(Instant::from_millis(milliseconds));
    }

    /// Runs for that time.
    pub(crate) fn run_for(&mut self, milliseconds: i64) {
        self.run(self.now().total_millis() + milliseconds);
    }

    fn set<P: Peer>(&mut self, node: NodeId, machine: Option<P>) {
        self.sim.with(node, |host: &mut Host<P>, _, _| {
            host.machine = machine;
            host.events.clear();
        });
    }

    /// Starts another source at the address of the last one.
    pub(crate) fn set_source(&mut self, source: Source) {
        self.set(self.source, Some(source));
    }

    /// Starts a relay again, or ends it.
    pub(crate) fn set_relay(&mut self, index: usize, relay: Option<Relay<'static>>) {
        self.set(self.relays[index], relay);
    }

    /// Starts another receiver at the address of the last one.
    pub(crate) fn set_leaf(&mut self, index: usize, leaf: Leaf) {
        self.set(self.leaves[index], Some(leaf));
    }

    /// Adds a child of that relay whose acknowledgement never advances.
    pub(crate) fn add_stuck(&mut self, relay: usize) {
        let node = self.sim.add_node(Box::new(Stuck::new(relay)));
        self.attach(node, STUCK, false);
    }

    fn host<P: Peer>(&self, node: NodeId) -> &Host<P> {
        self.sim.get(node)
    }

    pub(crate) fn source(&self) -> &Source {
        self.host(self.source).machine.as_ref().unwrap()
    }

    /// The source leaves its relay.
    pub(crate) fn leave(&mut self) {
        self.sim
            .with(self.source, |host: &mut Host<Source>, _, io| {
                let mut buffer = [0; 1000];
                let source = host.machine.as_mut().unwrap();
                let (to, len) = ltp_sent(&source.leave(&mut buffer).unwrap());
                send(io, SOURCE, to, &buffer[..len]);
            });
    }

    pub(crate) fn relay(&self, index: usize) -> &Relay<'static> {
        self.host(self.relays[index]).machine.as_ref().unwrap()
    }

    pub(crate) fn reconfigure(&mut self, index: usize, config: dyram::Config) {
        let node = self.relays[index];
        self.sim
            .with(node, |host: &mut Host<Relay<'static>>, now, _| {
                let relay = host.machine.as_mut().unwrap();
                relay.reconfigure(now, config).unwrap();
            });
    }

    pub(crate) fn leaves(&self) -> impl Iterator<Item = &Leaf> {
        let leaf = |&node: &NodeId| self.host(node).machine.as_ref().unwrap();
        self.leaves.iter().map(leaf)
    }

    /// LTP requests that reached the source by unicast.
    pub(crate) fn plain_requests(&self) -> u32 {
        self.plain_requests.get()
    }

    pub(crate) fn repairs_from_leaves(&self) -> u64 {
        let repairs = |leaf: &Leaf| leaf.receiver().stats().repairs_sent;
        self.leaves().map(repairs).sum()
    }

    pub(crate) fn sender_events(&self) -> Vec<SenderEvent> {
        let events = self.host::<Source>(self.source).events.iter();
        let of_sender = |event: &_| match event {
            relayed::SenderEvent::Sender(event) => Some(event.clone()),
            _ => None,
        };
        events.filter_map(of_sender).collect()
    }

    pub(crate) fn stalled(&self) -> Vec<relayed::Stalled> {
        let events = self.host::<Source>(self.source).events.iter();
        let stalled = |event: &_| match event {
            relayed::SenderEvent::Stalled(stalled) => Some(*stalled),
            _ => None,
        };
        events.filter_map(stalled).collect()
    }

    /// Events of all attachments.
    pub(crate) fn relay_events(&self) -> Vec<AttachmentEvent> {
        let source = self.host::<Source>(self.source).events.iter();
        let of_source = source.filter_map(|event| match event {
            relayed::SenderEvent::Relay(event) => Some(*event),
            _ => None,
        });
        let leaves = self
            .leaves
            .iter()
            .flat_map(|&node| &self.host::<Leaf>(node).events);
        let of_leaves = leaves.filter_map(|event| match event {
            relayed::ReceiverEvent::Relay(event) => Some(*event),
            relayed::ReceiverEvent::Receiver(_) => None,
        });
        of_source.chain(of_leaves).collect()
    }

    /// Returns how many receivers have these bytes.
    pub(crate) fn complete(&self, bytes: &[u8]) -> usize {
        let same = |leaf: &&Leaf| {
            leaf.receiver().is_complete()
                && &leaf.receiver().store().as_bytes()[..bytes.len()] == bytes
        };
        self.leaves().filter(same).count()
    }
}
