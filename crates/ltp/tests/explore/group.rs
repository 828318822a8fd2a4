//! The group, its machines, and what holds in each state and at the end.
//!
//! ```text
//! sender -- router --+-- replier
//!                    +-- link of receivers 2 and 3
//! ```
//!
//! The router turns the requests of the receivers to the replier, and those of the replier go to the sender. A directed
//! multicast comes to both receivers.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use lms_proto::{Iface, Kind, TurningPoint};
use ltp::digest::Digest;
use ltp::store::{HeapRing, Store, StoreError};
use ltp::wire::{Header, Type, data};
use ltp::{
    Assist, Delivery, Destination, Duration, Instant, LmsOption, Meta, Path, Receiver,
    ReceiverConfig, ReceiverEvent, Sender, SenderConfig, SenderEvent,
};
use netsim::explore::{Fingerprint, Nodes, Outbox, START};

pub(crate) const SENDER: usize = 0;
pub(crate) const REPLIER: usize = 1;
/// The receiver whose application takes the bytes as they come; those of the others read the store at the end.
pub(crate) const READER: usize = 2;
const COUNT: usize = 4;

/// Four packets in two blocks.
pub(crate) const PACKETS: usize = 4;
const BLOCK_EXPONENT: u8 = 10;
const PAYLOAD: usize = 512;
const HEADER: usize = 24;
/// Time between two packets of the sender.
const SPACING: Duration = Duration::from_millis(1);

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const ROUTER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 254));

pub(crate) fn group() -> SocketAddr {
    SocketAddr::from((GROUP, 5000))
}

pub(crate) fn address(node: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, node as u8 + 1), 4000))
}

pub(crate) fn node_at(address: SocketAddr) -> usize {
    match address.ip() {
        IpAddr::V4(ip) => usize::from(ip.octets()[3]) - 1,
        IpAddr::V6(ip) => panic!("no node has address {ip}"),
    }
}

fn content() -> Vec<u8> {
    let bytes = (0..PACKETS * PAYLOAD).map(|at| (at * 7 + at / 256) as u8);
    bytes.collect()
}

/// A store whose bytes enter the fingerprint as they are: their `Debug` would be most of the text.
pub(crate) struct Memory(pub(crate) HeapRing);

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memory")
    }
}

impl Store for Memory {
    fn capacity(&self) -> Option<u64> {
        self.0.capacity()
    }
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.0.write(offset, bytes)
    }
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        self.0.read(offset, out)
    }
    fn block(&mut self, offset: u64, len: usize) -> Result<&[u8], StoreError> {
        self.0.block(offset, len)
    }
}

/// What varies between the worlds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// Receivers report to the sender, which waits for them.
    pub(crate) has_reports: bool,
    /// Nodes of which one may die.
    pub(crate) deaths: &'static [usize],
    /// Packets that are lost on the way from the sender to a node the first time.
    pub(crate) lost: &'static [(usize, u32)],
}

impl Setup {
    /// Nothing happens, and receivers do not report.
    pub(crate) const NOTHING: Setup = Setup {
        has_reports: false,
        deaths: &[],
        lost: &[],
    };

    fn is_lost(&self, to: usize, packet: &[u8]) -> bool {
        let Ok(data) = data::Packet::new_checked(packet) else {
            return false;
        };
        !data.is_repair() && self.lost.contains(&(to, data.sequence().0))
    }
}

pub(crate) fn sender_config(has_reports: bool) -> SenderConfig {
    let mut config = SenderConfig::new(group());
    let frame_bits = 8 * (PAYLOAD + HEADER + 42) as u64;
    config.length = Some((PACKETS * PAYLOAD) as u64);
    config.block_exponent = BLOCK_EXPONENT;
    config.max_packet_len = (PAYLOAD + HEADER) as u16;
    config.rate_bps = Some(frame_bits * 1_000_000 / SPACING.total_micros());
    config.burst = Duration::ZERO;
    config.heartbeat_idle = Duration::from_millis(100);
    config.receivers = has_reports.then_some(3);
    config.receiver_timeout = Duration::from_secs(1);
    config.linger = Duration::from_millis(600);
    config.limits.receivers = 3;
    config.limits.digests = 2;
    config.limits.repairs = 2;
    config.limits.hold_down = 2;
    config.limits.targets = 3;
    config
}

pub(crate) fn sender(config: SenderConfig) -> Sender<'static, Memory> {
    let store = Memory(HeapRing::whole(content()));
    Sender::new(config, store, [1; 32], START).expect("the configuration is right")
}

pub(crate) fn receiver_config(node: usize) -> ReceiverConfig {
    let mut config = ReceiverConfig::new(group());
    if node == READER {
        config.delivery = Delivery::Read;
    }
    // Three requests to the replier or the relay and some to the sender fit into the time for which the sender lingers.
    config.initial_timeout = Duration::from_millis(50);
    config.source_timeout = Duration::from_secs(1);
    config.limits.window_blocks = 2;
    config.limits.requests = 2;
    config.limits.repairs = 2;
    config.limits.hold_down = 2;
    // The group's, and the turning point's or the relay's.
    config.limits.targets = 2;
    config
}

pub(crate) fn receiver(node: usize, config: ReceiverConfig) -> Receiver<'static, Memory> {
    let store = Memory(HeapRing::new(PACKETS * PAYLOAD));
    Receiver::new(config, store, [10 + node as u8; 32], START)
}

/// How a packet is addressed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Way {
    Group,
    Unicast,
    /// A request that the router has turned.
    Turned,
    /// A request that no router has turned.
    Unturned,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Packet {
    from: usize,
    way: Way,
    bytes: Vec<u8>,
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Packet { from, way, bytes } = self;
        let header = Header::parse(bytes).expect("what is sent can be read");
        write!(f, "from {from}, {way:?} {:?}", header.kind)?;
        if header.kind != Type::Data {
            return Ok(());
        }
        let data = data::Packet::new_checked(bytes).expect("data");
        write!(f, " {}", data.sequence().0)?;
        f.write_str(if data.is_repair() { " repair" } else { "" })
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Death(usize);

/// What the application of a receiver has seen.
#[derive(Clone, Default, Debug, Hash)]
pub(crate) struct Application {
    read: Vec<u8>,
    /// The last event, in words.
    last: Vec<String>,
}

impl Application {
    /// Takes the bytes that are there, up to one too many.
    pub(crate) fn read_from(&mut self, now: Instant, receiver: &mut Receiver<'_, Memory>) {
        while self.read.len() <= PACKETS * PAYLOAD
            && let Ok(bytes @ [_, ..]) = receiver.peek()
        {
            let len = bytes.len();
            self.read.extend_from_slice(bytes);
            receiver.consume(now, len);
        }
    }

    pub(crate) fn take(&mut self, event: &ReceiverEvent) {
        use ReceiverEvent::{Complete, Failed};
        if matches!(event, Complete { .. } | Failed { .. }) {
            self.last.push(format!("{event:?}"));
        }
    }

    /// It ends once, and every byte that it got is right.
    pub(crate) fn check(&self, node: usize, receiver: &Receiver<'_, Memory>) -> Result<(), String> {
        let Application { read, last } = self;
        let content = content();
        if !content.starts_with(read) {
            return Err(format!("receiver {node} read something else"));
        }
        if last.len() > 1 {
            return Err(format!("receiver {node} ended as {last:?}"));
        }
        let is_complete = last.iter().any(|last| last.starts_with("Complete"));
        if is_complete && receiver.store().0.as_bytes() != content {
            return Err(format!("receiver {node} completed with other bytes"));
        }
        if is_complete && node == READER && *read != content {
            return Err(format!("receiver {node} completed after {}", read.len()));
        }
        Ok(())
    }

    /// It has everything or, where that is allowed, the reason why not.
    pub(crate) fn check_end(
        &self,
        node: usize,
        digest: Option<Digest>,
        may_fail: bool,
    ) -> Result<(), String> {
        let length = (PACKETS * PAYLOAD) as u64;
        let complete = format!("{:?}", ReceiverEvent::Complete { length, digest });
        let last = &self.last;
        if *last != [complete] && (!may_fail || last.len() != 1) {
            return Err(format!("receiver {node} ended as {last:?}"));
        }
        Ok(())
    }
}

pub(crate) struct Group {
    setup: Setup,
    sender: Sender<'static, Memory>,
    receivers: [Receiver<'static, Memory>; 3],
    applications: [Application; 3],
    sender_last: Vec<String>,
    dead: Option<usize>,
}

impl Group {
    pub(crate) fn new(setup: Setup) -> Self {
        Group {
            setup,
            sender: sender(sender_config(setup.has_reports)),
            receivers: [1, 2, 3].map(|node| {
                let mut config = receiver_config(node);
                config.assist = Assist::Lms;
                receiver(node, config)
            }),
            applications: Default::default(),
            sender_last: Vec::new(),
            dead: None,
        }
    }

    fn drain_sender(&mut self, now: Instant, out: &mut Outbox<Packet>) {
        let mut buffer = [0; 2048];
        while let Some(transmit) = self.sender.poll_transmit(now, &mut buffer) {
            let mut send = |to, way| {
                let bytes = buffer[..transmit.len].to_vec();
                let from = SENDER;
                if !self.setup.is_lost(to, &bytes) {
                    out.send(to, Packet { from, way, bytes });
                }
            };
            match transmit.destination {
                Destination::Group => (1..COUNT).for_each(|to| send(to, Way::Group)),
                Destination::Unicast(to) => send(node_at(to), Way::Unicast),
                other => panic!("a source never sends {other:?}"),
            }
        }
        while let Some(event) = self.sender.poll_event() {
            if matches!(event, SenderEvent::Complete | SenderEvent::Finished) {
                self.sender_last.push(format!("{event:?}"));
            }
        }
    }

    fn drain_receiver(&mut self, now: Instant, node: usize, out: &mut Outbox<Packet>) {
        let receiver = &mut self.receivers[node - 1];
        let application = &mut self.applications[node - 1];
        if node == READER {
            application.read_from(now, receiver);
        }
        let mut buffer = [0; 2048];
        while let Some(transmit) = receiver.poll_transmit(now, &mut buffer) {
            let mut send = |from, to, way| {
                let bytes = buffer[..transmit.len].to_vec();
                out.send(to, Packet { from, way, bytes });
            };
            match transmit.destination {
                Destination::Unicast(to) => send(node, node_at(to), Way::Unicast),
                Destination::Request(_) if node == REPLIER => send(node, SENDER, Way::Unturned),
                Destination::Request(_) => send(node, REPLIER, Way::Turned),
                // It comes as if from the source.
                Destination::Dmcast(_) => (2..COUNT).for_each(|to| send(SENDER, to, Way::Group)),
                other => panic!("a receiver without a relay never sends {other:?}"),
            }
        }
        while let Some(event) = receiver.poll_event() {
            application.take(&event);
        }
    }

    fn option(way: Way) -> Option<LmsOption> {
        let point = TurningPoint {
            router: ROUTER,
            iface: Iface(2),
            cookie: 0,
        };
        let turning_point = match way {
            Way::Group | Way::Unicast => return None,
            Way::Turned => Some(point),
            Way::Unturned => None,
        };
        Some(LmsOption {
            kind: Kind::Request,
            turning_point,
            source: address(SENDER).ip(),
            group: group().ip(),
        })
    }

    fn is_over(&self, node: usize) -> bool {
        match node {
            _ if !self.is_alive(node) => true,
            SENDER => self.sender.is_ended(),
            node => self.receivers[node - 1].is_finished(),
        }
    }
}

impl Nodes for Group {
    type Packet = Packet;
    type Command = Death;

    fn count(&self) -> usize {
        COUNT
    }

    fn is_alive(&self, node: usize) -> bool {
        self.dead != Some(node)
    }

    fn handle_packet(
        &mut self,
        now: Instant,
        node: usize,
        packet: &Packet,
        out: &mut Outbox<Packet>,
    ) {
        let option = Self::option(packet.way);
        let meta = Meta {
            source: address(packet.from),
            path: match packet.way {
                Way::Unicast => Path::Unicast,
                _ => Path::Group,
            },
            option,
            elected: option.is_some(),
        };
        // What is refused is counted.
        if node == SENDER {
            let _ = self.sender.handle_packet(now, &meta, &packet.bytes);
            self.drain_sender(now, out);
        } else {
            let _ = self.receivers[node - 1].handle_packet(now, &meta, &packet.bytes);
            self.drain_receiver(now, node, out);
        }
    }

    fn handle_timeout(&mut self, now: Instant, node: usize, out: &mut Outbox<Packet>) {
        if node == SENDER {
            self.sender.handle_timeout(now);
            self.drain_sender(now, out);
        } else {
            self.receivers[node - 1].handle_timeout(now);
            self.drain_receiver(now, node, out);
        }
    }

    fn poll_timeout(&self, node: usize) -> Option<Instant> {
        match node {
            SENDER => self.sender.poll_timeout(),
            node => self.receivers[node - 1].poll_timeout(),
        }
    }

    fn commands(&self, commands: &mut Vec<Death>) {
        if self.dead.is_none() {
            commands.extend(self.setup.deaths.iter().map(|&node| Death(node)));
        }
    }

    fn command(&mut self, _: Instant, &Death(node): &Death, _: &mut Outbox<Packet>) {
        self.dead = Some(node);
    }

    fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        fingerprint.hash(&(self.dead, &self.sender_last));
        let skipped = ["stats", "config"];
        if self.is_alive(SENDER) {
            fingerprint.debug_without(&self.sender, &skipped);
        }
        for node in (1..COUNT).filter(|&node| self.is_alive(node)) {
            let receiver = &self.receivers[node - 1];
            fingerprint.debug_without(receiver, &skipped);
            fingerprint.hash(receiver.store().0.as_bytes());
            fingerprint.hash(&self.applications[node - 1]);
        }
    }

    fn check(&self, _now: Instant) -> Result<(), String> {
        (1..COUNT)
            .try_for_each(|node| self.applications[node - 1].check(node, &self.receivers[node - 1]))
    }

    fn has_ended(&self) -> bool {
        (0..COUNT).all(|node| self.is_over(node))
    }

    fn check_end(&mut self, _now: Instant) -> Result<(), String> {
        let digest = self.sender.digest();
        for node in (0..COUNT).filter(|&node| self.is_alive(node)) {
            if !self.is_over(node) {
                return Err(format!("node {node} has not ended"));
            }
        }
        for node in (1..COUNT).filter(|&node| self.is_alive(node)) {
            // Without a source that lives a named failure is right too.
            let may_fail = !self.is_alive(SENDER);
            self.applications[node - 1].check_end(node, digest, may_fail)?;
        }
        Ok(())
    }
}
