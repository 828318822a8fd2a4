//! A source, relays and receivers around one switch, in the simulator. Unicast between them goes straight through
//! the switch; packets to the group go to every relay and receiver.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::rc::Rc;

use dyram::storage::{Limits, Storage};
use dyram::wire::{Body, Packet, Role, Service};
use dyram::{Relay, RelayId, Verdict};
use ltp::relayed::{self, AttachmentEvent, OVERHEAD};
use ltp::store::HeapRing;
use ltp::{Assist, Duration, Instant, Receiver, ReceiverConfig, Sender, SenderConfig, SenderEvent};
use netsim::ip::Datagram;
use netsim::{Disposition, Io, LinkConfig, LinkId, Loss, Node, NodeId, Port, Sim};

use crate::common::FRAME_OVERHEAD;
use crate::common::network::{
    GROUP, Host, SOURCE, SWITCH, attach, datagram, machine, network, rng, set_machine,
};
use crate::common::{group, seed};
use crate::liar::{LIAR, Liar, Lie};

pub(crate) type Source = relayed::Sender<'static, HeapRing>;
pub(crate) type Leaf = relayed::Receiver<'static, HeapRing>;

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
    relayed::Sender::new(
        sender,
        SOURCE.into(),
        group().ip(),
        first,
        seed(number + 1),
        now,
    )
    .unwrap()
}

pub(crate) fn new_leaf(
    bytes: &[u8],
    relays: &[usize],
    key: Option<[u8; 32]>,
    number: u64,
    now: Instant,
) -> Leaf {
    new_leaf_with(bytes, relays, key, number, now, |_| {})
}

pub(crate) fn new_leaf_with(
    bytes: &[u8],
    relays: &[usize],
    key: Option<[u8; 32]>,
    number: u64,
    now: Instant,
    change: impl Fn(&mut ReceiverConfig),
) -> Leaf {
    let mut config = ReceiverConfig::new(GROUP.into());
    config.assist = Assist::Dyram;
    config.source = Some((*SOURCE.ip()).into());
    config.key = key;
    change(&mut config);
    let store = HeapRing::new(bytes.len().next_multiple_of(1 << 16));
    let receiver = Receiver::new(config, store, seed(number), now);
    let relays = relays.iter().copied().map(relay).collect();
    let source = (*SOURCE.ip()).into();
    relayed::Receiver::new(receiver, source, group().ip(), relays, seed(number), now).unwrap()
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

/// A relay at its address; without one the host is down.
struct RelayHost {
    address: SocketAddrV4,
    relay: Option<Relay<'static>>,
}

impl RelayHost {
    fn drain(&mut self, now: Instant, io: &mut Io<'_>) {
        let Some(relay) = &mut self.relay else { return };
        let mut buffer = [0; 1000];
        while let Some(transmit) = relay.poll_transmit(now, &mut buffer) {
            let payload = &buffer[..transmit.len];
            let packet = datagram(self.address, transmit.destination, &[], payload);
            io.send(Port(0), &packet);
        }
        while relay.poll_event().is_some() {}
    }
}

impl Node for RelayHost {
    fn handle_packet(&mut self, now: Instant, _: Port, packet: &[u8], io: &mut Io<'_>) {
        let packet = Datagram::parse(packet).unwrap();
        let meta = dyram::Meta {
            source: packet.source.into(),
            group: packet.destination == GROUP,
        };
        let mut bytes = packet.payload.to_vec();
        if let Some(relay) = &mut self.relay
            && let Verdict::Send(fanout) = relay.forward(now, &meta, &mut bytes)
        {
            assert!(!meta.group, "it forwards nothing that the group carries");
            for target in relay.targets(&fanout) {
                io.send(Port(0), &datagram(self.address, target, &[], &bytes));
            }
        }
        self.drain(now, io);
    }

    fn handle_timeout(&mut self, now: Instant, io: &mut Io<'_>) {
        if let Some(relay) = &mut self.relay {
            relay.handle_timeout(now);
        }
        self.drain(now, io);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.relay.as_ref()?.poll_timeout()
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
            key: dyram::SessionKey::new((*SOURCE.ip()).into(), group().ip()).unwrap(),
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
            let payload = &buffer[..transmit.len];
            let packet = datagram(STUCK, transmit.destination, &[], payload);
            io.send(Port(0), &packet);
        }
        if let Some((run, ack)) = self.ack
            && self.next <= now
            && let Some(transmit) = self.attachment.send(run, ack, Body::Ack, &mut buffer)
        {
            let payload = &buffer[..transmit.len];
            let packet = datagram(STUCK, transmit.destination, &[], payload);
            io.send(Port(0), &packet);
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

pub(crate) struct World {
    sim: Sim,
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
    feedback: Rc<Cell<Feedback>>,
    /// A receiver whose link from the switch loses unicast, too.
    lossy: Rc<Cell<Option<SocketAddrV4>>>,
}

/// Feedback that came to the source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Feedback {
    /// From its relay.
    pub(crate) relayed: u32,
    /// From receivers by unicast.
    pub(crate) plain: u32,
}

impl Feedback {
    fn and(self, payload: &[u8]) -> Feedback {
        let is_plain = payload[0] == 0x19;
        let packet = Packet::new_checked(payload);
        let is_relayed = packet.is_ok_and(|packet| packet.service() == Service::Feedback);
        Feedback {
            relayed: self.relayed + u32::from(is_relayed),
            plain: self.plain + u32::from(is_plain),
        }
    }
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
        let now = Instant::ZERO;
        let mut config = SenderConfig::new(GROUP.into());
        change(&mut config);
        let mut world = World {
            sim: network(number),
            source: NodeId(0),
            relays: Vec::new(),
            leaves: Vec::new(),
            links: Vec::new(),
            delay: Duration::from_micros(2000),
            loss: per_million as f64 / 1e6,
            ack_loss: Rc::default(),
            plain_requests: Rc::default(),
            feedback: Rc::default(),
            lossy: Rc::default(),
        };
        let source = Host::new(SOURCE, new_source(bytes, number, now, &change));
        world.source = world.attach(SOURCE, source, false);
        for (index, &parent) in parents.iter().enumerate() {
            let relay = new_relay(relay_config(index, parent), number + 2 + index as u64, now);
            let address = relay_address(index);
            let relay = Some(relay);
            let node = world.attach(address, RelayHost { address, relay }, true);
            world.relays.push(node);
        }
        for (index, relays) in leaves.iter().enumerate() {
            let leaf = new_leaf(bytes, relays, config.key, number + 1000 + index as u64, now);
            let address = leaf_address(index);
            let node = world.attach(address, Host::new(address, leaf), true);
            world.leaves.push(node);
        }
        world.script(number);
        world
    }

    fn attach(&mut self, address: SocketAddrV4, host: impl Node, is_member: bool) -> NodeId {
        let link = self.link();
        let (node, link) = attach(&mut self.sim, address, host, is_member, link);
        self.links.push(link);
        node
    }

    /// Up to the switch, and down from it.
    fn link(&self) -> [LinkConfig; 2] {
        let loss = Loss::Bernoulli(self.loss);
        let jitter = Duration::from_micros(100);
        let up = LinkConfig::new().delay(self.delay).jitter(jitter);
        [up.loss(loss), LinkConfig::new().loss(loss)]
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
        let [up, down] = self.link();
        for &link in &self.links {
            self.sim.set_link(link, up, down);
        }
    }

    /// Gives the link to a receiver a rate, so much delay each way, and a queue of a round trip.
    pub(crate) fn set_leaf_link(&mut self, index: usize, rate_bps: u64, delay: Duration) {
        let link = self.links[1 + self.relays.len() + index];
        // Three hops of the others, each way.
        let round_trip = (delay + self.delay * 3) * 2;
        let on_the_way = rate_bps / 8 * round_trip.total_micros() / 1_000_000;
        let up = LinkConfig::new().delay(self.delay + delay);
        let down = LinkConfig::new().delay(delay).rate_bps(rate_bps);
        let down = down.overhead_bytes(FRAME_OVERHEAD);
        let down = down.queue_bytes(on_the_way.max(20 * 600));
        self.sim.set_link(link, up, down);
    }

    /// So much of what goes to a receiver is lost.
    pub(crate) fn set_leaf_loss(&mut self, index: usize, loss: f64) {
        let link = self.links[1 + self.relays.len() + index];
        let [up, down] = self.link();
        self.sim
            .set_link(link, up, down.loss(Loss::Bernoulli(loss)));
        self.lossy.set(Some(leaf_address(index)));
    }

    /// Has IP multicast carry the data, from the start.
    pub(crate) fn over_multicast(
        &mut self,
        bytes: &[u8],
        parents: &[Option<usize>],
        number: u64,
        change: impl Fn(&mut SenderConfig),
    ) {
        for (index, &parent) in parents.iter().enumerate() {
            let mut config = relay_config(index, parent);
            config.carriage = dyram::Carriage::Multicast;
            let relay = new_relay(config, 500 + number + index as u64, self.now());
            self.set_relay(index, Some(relay));
        }
        let source = new_source(bytes, number, self.now(), change);
        self.set_source(source.over_multicast());
    }

    /// Ends a receiver, which says nothing.
    pub(crate) fn end_leaf(&mut self, index: usize) {
        set_machine::<Leaf>(&mut self.sim, self.leaves[index], None);
    }

    /// Feedback that came to the source since the last call.
    pub(crate) fn feedback(&self) -> Feedback {
        self.feedback.take()
    }

    /// Unicast is lost at most once, except on a link that is lossy, and acknowledgements as often as `ack_loss` says.
    fn script(&mut self, number: u64) {
        let ack_loss = self.ack_loss.clone();
        let plain_requests = self.plain_requests.clone();
        let feedback = self.feedback.clone();
        let lossy = self.lossy.clone();
        let mut rng = rng(number + 1);
        self.sim.script(move |record| {
            let packet = Datagram::parse(record.bytes).unwrap();
            let (to, payload) = (packet.destination, packet.payload);
            assert!(payload.len() <= 500 + OVERHEAD);
            if NodeId(record.from) == SWITCH {
                let is_plain = to == SOURCE && payload[0] == 0x15;
                plain_requests.set(plain_requests.get() + u32::from(is_plain));
                if to == SOURCE {
                    feedback.set(feedback.get().and(payload));
                }
                return match to == GROUP || lossy.get() == Some(to) {
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

    /// Starts another source at the address of the last one.
    pub(crate) fn set_source(&mut self, source: Source) {
        set_machine(&mut self.sim, self.source, Some(source));
    }

    /// Starts a relay again, or ends it.
    pub(crate) fn set_relay(&mut self, index: usize, relay: Option<Relay<'static>>) {
        self.sim
            .with(self.relays[index], |host: &mut RelayHost, _, _| {
                host.relay = relay;
            });
    }

    /// Starts another receiver at the address of the last one.
    pub(crate) fn set_leaf(&mut self, index: usize, leaf: Leaf) {
        set_machine(&mut self.sim, self.leaves[index], Some(leaf));
    }

    /// Adds a child of that relay whose acknowledgement never advances.
    pub(crate) fn add_stuck(&mut self, relay: usize) {
        self.attach(STUCK, Stuck::new(relay), false);
    }

    /// Adds a child of that relay that sends this feedback.
    pub(crate) fn add_liar(&mut self, relay: usize, lie: Lie) {
        self.attach(LIAR, Liar::new(relay, lie), false);
    }

    pub(crate) fn source(&self) -> &Source {
        machine(&self.sim, self.source)
    }

    /// The source leaves its relay.
    pub(crate) fn leave(&mut self) {
        self.sim
            .with(self.source, |host: &mut Host<Source>, _, io| {
                let mut buffer = [0; 1000];
                let source = host.machine.as_mut().unwrap();
                let transmit = source.leave(&mut buffer).unwrap();
                let to = transmit.destination.unicast().unwrap();
                io.send(Port(0), &datagram(SOURCE, to, &[], &buffer[..transmit.len]));
            });
    }

    pub(crate) fn relay(&self, index: usize) -> &Relay<'static> {
        let host: &RelayHost = self.sim.get(self.relays[index]);
        host.relay.as_ref().unwrap()
    }

    pub(crate) fn reconfigure(&mut self, index: usize, config: dyram::Config) {
        self.sim
            .with(self.relays[index], |host: &mut RelayHost, now, _| {
                let relay = host.relay.as_mut().unwrap();
                relay.reconfigure(now, config).unwrap();
            });
    }

    pub(crate) fn leaves(&self) -> impl Iterator<Item = &Leaf> {
        self.leaves.iter().map(|&node| machine(&self.sim, node))
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
        let events = self.sim.get::<Host<Source>>(self.source).events.iter();
        let of_sender = |event: &_| match event {
            relayed::SenderEvent::Sender(event) => Some(event.clone()),
            _ => None,
        };
        events.filter_map(of_sender).collect()
    }

    pub(crate) fn stalled(&self) -> Vec<relayed::Stalled> {
        let events = self.sim.get::<Host<Source>>(self.source).events.iter();
        let stalled = |event: &_| match event {
            relayed::SenderEvent::Stalled(stalled) => Some(*stalled),
            _ => None,
        };
        events.filter_map(stalled).collect()
    }

    /// Events of all attachments.
    pub(crate) fn relay_events(&self) -> Vec<AttachmentEvent> {
        let source = self.sim.get::<Host<Source>>(self.source).events.iter();
        let of_source = source.filter_map(|event| match event {
            relayed::SenderEvent::Relay(event) => Some(*event),
            _ => None,
        });
        let leaves = self
            .leaves
            .iter()
            .flat_map(|&node| &self.sim.get::<Host<Leaf>>(node).events);
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
