//! A sender and its receivers around one switch, in virtual time.
//!
//! With `lms` the switch is a turning point: receiver 0 is the elected replier.
#![allow(unreachable_pub, missing_docs)]

mod dice;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use lms_proto::{Iface, TurningPoint};
use ltp::store::{HeapRing, Store};
use ltp::{
    Destination, Duration, Instant, Meta, Path, Receiver, ReceiverConfig, ReceiverEvent, Sender,
    SenderConfig, SenderEvent,
};

pub(crate) use dice::{Dice, content, seed};

pub fn group() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(239, 1, 2, 3), 5000))
}

pub fn source() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 4000))
}

pub fn host(index: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::from(0x0a00_0100 + index as u32), 4000))
}

pub const ROUTER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 254));

#[derive(Clone, Copy)]
pub struct Faults {
    /// Per million, in each direction, for each receiver separately.
    pub loss: u64,
    pub duplicate: u64,
    pub reorder: u64,
    /// Packets of which one bit changes under a valid checksum.
    pub flip: u64,
    pub delay_us: u64,
}

impl Default for Faults {
    fn default() -> Self {
        Faults {
            loss: 0,
            duplicate: 0,
            reorder: 0,
            flip: 0,
            delay_us: 500,
        }
    }
}

/// A link with a rate and a queue that drops packets when it is full.
#[derive(Clone, Copy)]
pub struct Link {
    pub bits_per_second: u64,
    pub queue_len: usize,
    pub carried: u64,
    pub dropped: u64,
    idle_at: Instant,
}

#[allow(dead_code, reason = "not every test has a slow link")]
impl Link {
    pub fn new(bits_per_second: u64, queue_len: usize) -> Self {
        Link {
            bits_per_second,
            queue_len,
            carried: 0,
            dropped: 0,
            idle_at: Instant::ZERO,
        }
    }

    /// How long the packet waits and is sent; `None`: dropped.
    fn carry(&mut self, now: Instant, len: usize) -> Option<Duration> {
        let time = |bytes: u64| Duration::from_micros(bytes * 8_000_000 / self.bits_per_second);
        let start = self.idle_at.max(now);
        if start - now > time(self.queue_len as u64) {
            self.dropped += 1;
            return None;
        }
        self.carried += 1;
        self.idle_at = start + time(len as u64 + 42);
        Some(self.idle_at - now)
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Node {
    Source,
    Receiver(usize),
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Group,
    Request(Option<u16>),
    Unicast,
}

/// Changes a packet on its way to the receiver with that number.
pub type Change = Box<dyn FnMut(usize, &mut [u8])>;

type InFlight = Reverse<(i64, u64, Node, Node, Way, Vec<u8>)>;

pub struct Group<'a, S: Store, R: Store> {
    pub now: Instant,
    pub sender: Sender<'a, S>,
    pub receivers: Vec<Receiver<'a, R>>,
    pub events: Vec<Vec<ReceiverEvent>>,
    pub sender_events: Vec<SenderEvent>,
    pub faults: Faults,
    pub lms: bool,
    pub dice: Dice,
    /// Frame bytes that left the source, and when.
    pub wire: Vec<(Instant, usize)>,
    pub source_dead: bool,
    /// Where the source sends from and listens.
    pub source: SocketAddr,
    pub deaf: Vec<bool>,
    /// The link from the source to each receiver: bit/s, bytes that may wait, and when it is idle again.
    pub links: Vec<Option<Link>>,
    /// Packets that are lost.
    pub lost: fn(&[u8]) -> bool,
    /// Changes packets on their way to that receiver.
    pub change: Change,
    in_flight: BinaryHeap<InFlight>,
    count: u64,
}

impl<'a, S: Store, R: Store> Group<'a, S, R> {
    pub fn new(sender: Sender<'a, S>, receivers: Vec<Receiver<'a, R>>, seed: u64) -> Self {
        let count = receivers.len();
        Group {
            now: Instant::ZERO,
            sender,
            events: vec![Vec::new(); count],
            deaf: vec![false; count],
            links: vec![None; count],
            receivers,
            sender_events: Vec::new(),
            faults: Faults::default(),
            lms: false,
            dice: Dice::new(seed),
            wire: Vec::new(),
            source_dead: false,
            source: source(),
            lost: |_| false,
            change: Box::new(|_, _| {}),
            in_flight: BinaryHeap::new(),
            count: 0,
        }
    }

    fn put(&mut self, from: Node, to: Node, way: Way, packet: &[u8]) {
        if self.dice.chance(self.faults.loss) || (self.lost)(packet) {
            return;
        }
        let mut packet = packet.to_vec();
        if let Node::Receiver(index) = to {
            (self.change)(index, &mut packet);
        }
        if self.faults.flip > 0 && self.dice.chance(self.faults.flip) {
            let bit = self.dice.next() as usize % (8 * packet.len());
            packet[bit / 8] ^= 1 << (bit % 8);
        }
        let link = match (&from, &to) {
            (Node::Source, Node::Receiver(index)) => {
                self.links.get_mut(*index).and_then(Option::as_mut)
            }
            _ => None,
        };
        let queued = match link.map(|link| link.carry(self.now, packet.len())) {
            Some(None) => return,
            Some(Some(delay)) => delay,
            None => Duration::ZERO,
        };
        let copies = 1 + usize::from(self.dice.chance(self.faults.duplicate));
        for _ in 0..copies {
            let late = if self.dice.chance(self.faults.reorder) {
                self.dice.next() % 3000
            } else {
                0
            };
            let delay = self.faults.delay_us + late + queued.total_micros();
            let at = self.now.total_micros() + delay as i64;
            self.count += 1;
            let entry = (
                at,
                self.count,
                from.clone(),
                to.clone(),
                way.clone(),
                packet.clone(),
            );
            self.in_flight.push(Reverse(entry));
        }
    }

    fn index_of(address: SocketAddr) -> Option<usize> {
        match address.ip() {
            IpAddr::V4(ip) => u32::from(ip)
                .checked_sub(0x0a00_0100)
                .map(|index| index as usize),
            IpAddr::V6(_) => None,
        }
    }

    fn drain_sender(&mut self, buffer: &mut [u8]) {
        if self.source_dead {
            return;
        }
        while let Some(transmit) = self.sender.poll_transmit(self.now, buffer) {
            let packets: Vec<Vec<u8>> = transmit.packets(buffer).map(<[u8]>::to_vec).collect();
            for packet in packets {
                self.wire.push((self.now, packet.len() + 42));
                match transmit.destination {
                    Destination::Group => {
                        for index in 0..self.receivers.len() {
                            self.put(Node::Source, Node::Receiver(index), Way::Group, &packet);
                        }
                    }
                    Destination::Unicast(to) => {
                        if let Some(index) = Self::index_of(to) {
                            self.put(Node::Source, Node::Receiver(index), Way::Unicast, &packet);
                        }
                    }
                    other => panic!("a source never sends {other:?}"),
                }
            }
        }
        while let Some(event) = self.sender.poll_event() {
            self.sender_events.push(event);
        }
    }

    fn drain_receiver(&mut self, index: usize, buffer: &mut [u8]) {
        let me = Node::Receiver(index);
        while let Some(transmit) = self.receivers[index].poll_transmit(self.now, buffer) {
            let packet = buffer[..transmit.len].to_vec();
            match transmit.destination {
                Destination::Unicast(to) => {
                    assert_eq!(to.ip(), source().ip());
                    if to == self.source {
                        self.put(me.clone(), Node::Source, Way::Unicast, &packet);
                    }
                }
                Destination::Request(option) => {
                    assert_eq!(option.group, group().ip());
                    if self.lms && index != 0 {
                        let turned = Way::Request(Some(index as u16));
                        self.put(me.clone(), Node::Receiver(0), turned, &packet);
                    } else {
                        self.put(me.clone(), Node::Source, Way::Request(None), &packet);
                    }
                }
                Destination::Dmcast(point) => {
                    assert_eq!(point.router, ROUTER);
                    let below = Node::Receiver(usize::from(point.iface.0));
                    self.put(Node::Source, below, Way::Group, &packet);
                }
                Destination::Group | Destination::Relay => {
                    panic!("a receiver without a relay never sends so")
                }
            }
        }
        while let Some(event) = self.receivers[index].poll_event() {
            self.events[index].push(event);
        }
    }

    fn deliver(&mut self, from: Node, to: Node, way: Way, packet: &[u8]) {
        let address = match from {
            Node::Source => self.source,
            Node::Receiver(index) => host(index),
        };
        let mut meta = match way {
            Way::Unicast => Meta::unicast(address),
            _ => Meta::group(address),
        };
        if let Way::Request(turned) = way {
            meta.path = Path::Group;
            meta.elected = true;
            meta.option = Some(ltp::LmsOption {
                kind: lms_proto::Kind::Request,
                turning_point: turned.map(|iface| TurningPoint {
                    router: ROUTER,
                    iface: Iface(iface),
                }),
                source: source().ip(),
                group: group().ip(),
            });
        }
        match to {
            Node::Source if !self.source_dead => {
                let _ = self.sender.handle_packet(self.now, &meta, packet);
            }
            Node::Receiver(index) if self.deaf.get(index) == Some(&false) => {
                let _ = self.receivers[index].handle_packet(self.now, &meta, packet);
            }
            _ => {}
        }
    }

    /// One step of time; `false` when nothing will ever happen again.
    pub fn step(&mut self) -> bool {
        let mut buffer = vec![0; 65_536];
        self.drain_sender(&mut buffer);
        for index in 0..self.receivers.len() {
            self.drain_receiver(index, &mut buffer);
        }
        let flight = self.in_flight.peek().map(|Reverse(entry)| entry.0);
        let timers = self
            .receivers
            .iter()
            .filter_map(|receiver| receiver.poll_timeout());
        let source = if self.source_dead {
            None
        } else {
            self.sender.poll_timeout()
        };
        let timers = timers.chain(source).map(|at| at.total_micros());
        let Some(next) = timers.chain(flight).min() else {
            return false;
        };
        self.now = self.now.max(Instant::from_micros(next));
        while let Some(Reverse(entry)) = self.in_flight.peek() {
            if entry.0 > self.now.total_micros() {
                break;
            }
            let Some(Reverse((_, _, from, to, way, packet))) = self.in_flight.pop() else {
                break;
            };
            self.deliver(from, to, way, &packet);
        }
        if !self.source_dead {
            self.sender.handle_timeout(self.now);
        }
        for receiver in &mut self.receivers {
            receiver.handle_timeout(self.now);
        }
        true
    }

    /// Runs until the condition holds; panics after `limit` of virtual time.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) {
        let end = self.now + limit;
        let mut still = 0;
        while !done(self) {
            let was = self.now;
            if !self.step() {
                assert!(
                    done(self),
                    "nothing left to happen at {}: {}",
                    self.now,
                    self.state()
                );
                return;
            }
            still = if self.now == was { still + 1 } else { 0 };
            assert!(
                still < 100_000,
                "time stands still at {}: {}",
                self.now,
                self.state()
            );
            assert!(self.now < end, "not done at {}: {}", self.now, self.state());
        }
    }

    pub fn state(&self) -> String {
        let receivers = self
            .receivers
            .iter()
            .zip(&self.events)
            .map(|(receiver, events)| {
                format!(
                    "{:?} {:?} {:?}\n",
                    receiver.progress(),
                    events,
                    receiver.stats()
                )
            });
        format!(
            "sender {:?} {:?} {:?}\n{}",
            self.sender.poll_timeout(),
            self.sender.progress(),
            self.sender.stats(),
            receivers.collect::<String>()
        )
    }

    pub fn all_complete(&self) -> bool {
        let complete = |events: &Vec<ReceiverEvent>| {
            events
                .iter()
                .any(|event| matches!(event, ReceiverEvent::Complete { .. }))
        };
        self.events.iter().all(complete)
    }
}

pub fn sender_config(length: usize) -> SenderConfig {
    let mut config = SenderConfig::new(group());
    config.length = Some(length as u64);
    config.rate_bps = Some(100_000_000);
    config
}

pub fn receiver_config() -> ReceiverConfig {
    let mut config = ReceiverConfig::new(group());
    config.limits.window_blocks = 256;
    config
}

pub type Files = Group<'static, HeapRing, HeapRing>;

/// A content in memory to `count` receivers that gather it in memory.
pub fn files(
    bytes: &[u8],
    count: usize,
    number: u64,
    sender: SenderConfig,
    receiver: &ReceiverConfig,
) -> Files {
    let block = 1usize << sender.block_exponent;
    let capacity = bytes.len().next_multiple_of(block).max(2 * block);
    let store = HeapRing::whole(bytes.to_vec());
    let sender = Sender::new(sender, store, seed(number), Instant::ZERO).expect("configuration");
    let receivers = (0..count)
        .map(|index| {
            let mut config = receiver.clone();
            config.limits.window_blocks = (capacity / block).next_power_of_two();
            let store = HeapRing::new(capacity);
            Receiver::new(
                config,
                store,
                seed(number * 1000 + index as u64 + 1),
                Instant::ZERO,
            )
        })
        .collect();
    Group::new(sender, receivers, number)
}

impl Files {
    pub fn check_content(&self, bytes: &[u8]) {
        for receiver in &self.receivers {
            assert!(
                receiver.store().as_bytes()[..bytes.len()] == *bytes,
                "bytes differ"
            );
        }
    }
}
