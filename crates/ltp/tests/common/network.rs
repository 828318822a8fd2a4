//! Hosts around one switch, in the simulator: each drives a machine of LTP and exchanges IPv4 packets with the others.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use lms_proto::{Form, Iface, Kind, LmsOption, TurningPoint};
use ltp::{Destination, Instant, Machine, Meta, Path, Transmit};
use netsim::ip::Datagram;
use netsim::{Io, LinkConfig, LinkId, Node, NodeId, Port, Rng, Sim, derive_seed};

pub const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 1, 2, 3), 5000);
pub const SOURCE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 4000);
/// The switch as a turning point.
pub const ROUTER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 254));

/// Length of the headers of a packet without options.
const HEADERS_LEN: usize = 28;

pub const SWITCH: NodeId = NodeId(0);
/// The switch's port to the host that was attached first, the source.
const TO_SOURCE: Port = Port(0);

pub fn seed(number: u64) -> [u8; 32] {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&number.to_le_bytes());
    seed
}

pub fn rng(number: u64) -> Rng {
    Rng::new(derive_seed(&seed(number), 0, 0))
}

pub fn content(len: usize, number: u64) -> Vec<u8> {
    let mut rng = rng(number ^ 0xabcd);
    let words = std::iter::repeat_with(|| rng.next_u64().to_le_bytes());
    words.flatten().take(len).collect()
}

/// A simulation with a switch alone.
pub fn network(number: u64) -> Sim {
    let mut sim: Sim = Sim::new(seed(number));
    sim.add_node(Box::new(Switch::default()));
    sim
}

/// Adds a host with a link to and from the switch. Members get what is sent to the group.
pub fn attach(
    sim: &mut Sim,
    address: SocketAddrV4,
    host: impl Node,
    is_member: bool,
    [up, down]: [LinkConfig; 2],
) -> (NodeId, LinkId) {
    sim.with(SWITCH, |switch: &mut Switch, _, io| {
        let port = Port(io.ports());
        switch.ports.insert(address, port);
        switch.members.extend(is_member.then_some(port));
    });
    let node = sim.add_node(Box::new(host));
    (node, sim.add_asymmetric_link(node, SWITCH, up, down))
}

/// Returns a UDP datagram without checksum, so that one of which a bit has changed still reaches its machine.
pub fn datagram(
    source: SocketAddrV4,
    destination: impl Into<SocketAddr>,
    options: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let SocketAddr::V4(destination) = destination.into() else {
        panic!("IPv4 only");
    };
    let datagram = Datagram {
        source,
        destination,
        ttl: 16,
        options,
        payload,
    };
    datagram.emit_without_checksum()
}

fn emit(option: &LmsOption) -> [u8; 16] {
    let mut bytes = [0; 16];
    option
        .emit(Form::Classic, &mut bytes)
        .expect("an IPv4 option");
    bytes
}

/// Returns a packet of a machine at that address. A dmcast goes without its outer header: the only router is the next
/// node.
fn packet(from: SocketAddrV4, to: Destination, payload: &[u8]) -> Vec<u8> {
    match to {
        Destination::Group => datagram(from, GROUP, &[], payload),
        Destination::Unicast(to) => datagram(from, to, &[], payload),
        Destination::Request(option) => datagram(from, GROUP, &emit(&option), payload),
        Destination::Dmcast(turning_point) => {
            let option = LmsOption {
                kind: Kind::Dmcast,
                turning_point: Some(turning_point),
                source: (*SOURCE.ip()).into(),
                group: (*GROUP.ip()).into(),
            };
            datagram(SOURCE, GROUP, &emit(&option), payload)
        }
        Destination::Relay => panic!("only ltp::relayed sends to a relay"),
    }
}

/// A machine of LTP, with or without its attachment to a relay.
pub trait Peer: Machine<Meta = Meta, Transmit = Transmit> + 'static {}

impl<M: Machine<Meta = Meta, Transmit = Transmit> + 'static> Peer for M {}

/// A machine at its address, and its events; without a machine the host is down.
pub struct Host<M: Peer> {
    address: SocketAddrV4,
    pub machine: Option<M>,
    pub events: Vec<M::Event>,
    /// Whether the machine is no longer driven.
    pub is_done: fn(&M) -> bool,
    buffer: Vec<u8>,
}

impl<M: Peer> Host<M> {
    pub fn new(address: SocketAddrV4, machine: M) -> Self {
        Host {
            address,
            machine: Some(machine),
            events: Vec::new(),
            is_done: |_| false,
            buffer: vec![0; 1 << 16],
        }
    }

    /// Lets the machine act, then sends what it has to send, and takes its events. `None`: it is not driven.
    fn drive<T>(
        &mut self,
        now: Instant,
        io: &mut Io<'_>,
        act: impl FnOnce(&mut M) -> T,
    ) -> Option<T> {
        let machine = self.machine.as_mut()?;
        let result = (!(self.is_done)(machine)).then(|| act(machine));
        while !(self.is_done)(machine)
            && let Some(transmit) = machine.poll_transmit(now, &mut self.buffer)
        {
            for payload in transmit.packets(&self.buffer) {
                let packet = packet(self.address, transmit.destination, payload);
                io.send(Port(0), &packet);
            }
        }
        let events = std::iter::from_fn(|| machine.poll_event());
        self.events.extend(events);
        result
    }
}

impl<M: Peer> Node for Host<M> {
    fn handle_packet(&mut self, now: Instant, _: Port, packet: &[u8], io: &mut Io<'_>) {
        let Some(packet) = Datagram::parse(packet) else {
            return;
        };
        let path = match packet.destination {
            GROUP => Path::Group,
            to if to == self.address => Path::Unicast,
            _ => return,
        };
        let option = LmsOption::parse::<Ipv4Addr>(packet.options).ok();
        let meta = Meta {
            source: packet.source.into(),
            path,
            option: option.map(|(_, option)| option),
            elected: option.is_some(),
        };
        self.drive(now, io, |machine| {
            let _ = machine.handle_packet(now, &meta, packet.payload);
        });
    }

    fn handle_timeout(&mut self, now: Instant, io: &mut Io<'_>) {
        self.drive(now, io, |machine| machine.handle_timeout(now));
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let machine = self.machine.as_ref()?;
        (!(self.is_done)(machine)).then(|| machine.poll_timeout())?
    }
}

/// Returns the machine of a host that is up.
pub fn machine<M: Peer>(sim: &Sim, node: NodeId) -> &M {
    let machine = sim.get::<Host<M>>(node).machine.as_ref();
    machine.expect("the host is up")
}

/// Calls commands of a machine, and sends what it then has to send.
pub fn with_machine<M: Peer, T>(
    sim: &mut Sim,
    node: NodeId,
    act: impl FnOnce(&mut M, Instant) -> T,
) -> T {
    sim.with(node, |host: &mut Host<M>, now, io| {
        let done = host.drive(now, io, |machine| act(machine, now));
        done.expect("the machine is driven")
    })
}

/// Starts another machine in place of the last one, or takes the host down.
pub fn set_machine<M: Peer>(sim: &mut Sim, node: NodeId, machine: Option<M>) {
    sim.with(node, |host: &mut Host<M>, _, _| {
        host.machine = machine;
        host.events.clear();
    });
}

/// Changes the payload of a packet to the host behind that port.
pub type Change = Box<dyn FnMut(Port, &mut [u8])>;

/// Forwards a datagram to the port of its destination, or of every member of the group. With a replier it is a turning
/// point of LMS.
#[derive(Default)]
pub struct Switch {
    ports: BTreeMap<SocketAddrV4, Port>,
    members: Vec<Port>,
    pub replier: Option<Port>,
    pub change: Option<Change>,
    /// Payloads of packets to addresses without a host.
    pub strays: Vec<(SocketAddr, Vec<u8>)>,
}

impl Switch {
    /// Forwards a request to the replier or to the source, a dmcast to the port that the request came from.
    fn turn(&self, from: Port, packet: &Datagram<'_>, io: &mut Io<'_>) {
        let (_, mut option) = LmsOption::parse::<Ipv4Addr>(packet.options).expect("an LMS option");
        assert_eq!(option.group, IpAddr::V4(*GROUP.ip()));
        let (to, options) = match (option.kind, option.turning_point, self.replier) {
            (Kind::Dmcast, Some(point), _) => {
                assert_eq!(point.router, ROUTER);
                (Port(point.iface.0), Vec::new())
            }
            (Kind::Request, _, Some(replier)) if replier != from => {
                option.turning_point = Some(TurningPoint {
                    router: ROUTER,
                    iface: Iface(from.0),
                    cookie: 0,
                });
                (replier, emit(&option).to_vec())
            }
            _ => (TO_SOURCE, packet.options.to_vec()),
        };
        let (source, destination) = (packet.source, packet.destination);
        io.send(to, &datagram(source, destination, &options, packet.payload));
    }
}

impl Node for Switch {
    fn handle_packet(&mut self, _: Instant, from: Port, bytes: &[u8], io: &mut Io<'_>) {
        let Some(packet) = Datagram::parse(bytes) else {
            return;
        };
        if !packet.options.is_empty() {
            return self.turn(from, &packet, io);
        }
        let to = match packet.destination {
            GROUP => &self.members[..],
            host => match self.ports.get(&host) {
                Some(port) => std::slice::from_ref(port),
                None => return self.strays.push((host.into(), packet.payload.to_vec())),
            },
        };
        let Some(change) = &mut self.change else {
            return io.forward_each(to.iter().copied());
        };
        for &port in to {
            let mut bytes = bytes.to_vec();
            change(port, &mut bytes[HEADERS_LEN..]);
            io.send(port, &bytes);
        }
    }
}
