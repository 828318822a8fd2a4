//! The real machines as nodes of the simulator, on a distribution tree.
//!
//! Interfaces of the machines are ports of the nodes, by number. Every link joins two nodes, so that
//! frames need no addresses, and each host is alone on its link. Unicast packets follow the tree.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::rc::Rc;

use lms_proto::router::{Config, Interface, Policy, Storage, Verdict};
use lms_proto::table::{self, Replier};
use lms_proto::wire::encap::{DmcastRepr, Placement};
use lms_proto::{Form, Iface, InterfaceConfig, Key, LmsOption, Meta, Router, TurningPoint, hier};
use netsim::ip::Datagram;
use netsim::tree::Tree;
use netsim::{Instant, Io, Port};

/// The group of the simulated sessions.
pub(crate) const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(232, 1, 1, 1), 4139);

/// Hop limit of everything the hosts send: trees are less deep.
const TTL: u8 = 255;

/// First byte of an IPv4 header without options.
const PLAIN: u8 = 0x45;

/// What all nodes of one tree know.
pub(crate) struct Plan {
    /// The tree: addresses and routes.
    pub(crate) tree: Tree,
    /// For each node the cost of its best replier, in microseconds of delay, and for routers the
    /// port that leads there.
    repliers: Vec<(u32, Port)>,
}

impl Plan {
    /// Chooses the repliers as LMS-HIER would, by the cost of the way to the nearest receiver, but at
    /// once.
    pub(crate) fn new(tree: Tree) -> Self {
        let mut repliers = vec![(0, Port(0)); tree.len() as usize];
        for node in (1..tree.len()).rev() {
            let through = |child: &u32| {
                let (cost, _) = repliers[*child as usize];
                (
                    cost + tree.link_delay(*child).total_micros() as u32,
                    tree.parent_port(*child),
                )
            };
            if let Some(best) = tree.children(node).iter().map(through).min() {
                repliers[node as usize] = best;
            }
        }
        Self { tree, repliers }
    }

    /// The source's address and port.
    pub(crate) fn source(&self) -> SocketAddrV4 {
        self.host(0)
    }

    /// A host's address and port.
    pub(crate) fn host(&self, node: u32) -> SocketAddrV4 {
        SocketAddrV4::new(self.tree.address(node), GROUP.port())
    }
}

/// A router: forwards multicast down and unicast along the tree, and helps with LMS or not.
pub(crate) struct RouterNode {
    plan: Rc<Plan>,
    node: u32,
    children: u16,
    lms: Option<Router<'static>>,
}

impl RouterNode {
    /// The router of this node of the tree.
    pub(crate) fn new(plan: &Rc<Plan>, node: u32, lms: bool, seed: [u8; 32]) -> Self {
        let children = plan.tree.children(node).len() as u16;
        let lms = lms.then(|| lms_router(plan, node, children, seed));
        Self {
            plan: Rc::clone(plan),
            node,
            children,
            lms,
        }
    }

    /// Its LMS machine, if it helps.
    pub(crate) fn lms(&self) -> Option<&Router<'static>> {
        self.lms.as_ref()
    }

    /// A packet arrived.
    pub(crate) fn handle_packet(
        &mut self,
        now: Instant,
        port: Port,
        packet: &[u8],
        io: &mut Io<'_>,
    ) {
        let Some((destination, plain)) = destination(packet) else {
            return;
        };
        if plain && destination == *GROUP.ip() {
            if port == Port(0) {
                io.forward_each((1..=self.children).map(Port));
            }
            return;
        }
        let to = self.plan.tree.node_at(destination);
        if let Some(port) = to.and_then(|to| self.plan.tree.port_towards(self.node, to)) {
            io.forward(port);
            return;
        }
        let Some(lms) = &mut self.lms else { return };
        let mut bytes = packet.to_vec();
        let meta = Meta {
            iface: Iface(port.0),
            link_source: None,
        };
        match lms.forward(now, meta, &mut bytes) {
            Verdict::Forward { output, packet, .. } => {
                io.send(Port(output.iface.0), &bytes[packet]);
            }
            Verdict::Multicast { iface, packet } => io.send(Port(iface.0), &bytes[packet]),
            Verdict::Pass | Verdict::Drop(_) => {}
        }
    }
}

fn destination(packet: &[u8]) -> Option<(Ipv4Addr, bool)> {
    let address: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
    Some((address.into(), packet[0] == PLAIN))
}

/// Room for one entry and no more: there are tens of thousands of routers, and their repliers are set.
fn storage(ifaces: usize) -> Storage<'static> {
    let hierarchy = hier::Capacity {
        entries: 1,
        neighbours: 1,
        peers: 1,
        branches: 1,
        interfaces: ifaces,
    };
    Storage {
        table: table::Storage::with_capacity(1, ifaces),
        interfaces: vec![Interface::default(); ifaces].into(),
        addresses: vec![table::Slot::default(); (2 * ifaces).next_power_of_two()].into(),
        hierarchy: hier::Storage::owned(hierarchy),
    }
}

fn lms_router(plan: &Plan, node: u32, children: u16, seed: [u8; 32]) -> Router<'static> {
    let config = Config {
        policy: Policy::Static,
        ..Config::default()
    };
    let storage = storage(usize::from(children) + 1);
    let now = Instant::ZERO;
    let mut router = Router::new(config, storage, seed, now);
    let address = plan.tree.address(node);
    for port in 0..=children {
        let interface = InterfaceConfig {
            address,
            prefix_len: 32,
        };
        router
            .set_interface(now, Iface(port), interface)
            .expect("the storage has room");
    }
    let key = Key::new(*plan.source().ip(), *GROUP.ip());
    let downstream: Vec<Iface> = (1..=children).map(Iface).collect();
    router
        .install(now, key, Iface(0), &downstream)
        .expect("the storage has room");
    let (cost_us, port) = plan.repliers[node as usize];
    let cost = u16::try_from(cost_us / 1000).unwrap_or(u16::MAX - 1);
    let replier = Replier {
        iface: Iface(port.0),
        cost,
        neighbour: None,
    };
    router
        .set_replier(now, key, Some(replier))
        .expect("the replier is downstream");
    router
}

/// A packet for a host's machine.
pub(crate) struct Incoming<'a> {
    pub(crate) meta: ltp::Meta,
    pub(crate) payload: &'a [u8],
}

/// Reads a packet that came to a host. Links here corrupt nothing, so checksums are not verified.
#[inline]
pub(crate) fn incoming(packet: &[u8]) -> Option<Incoming<'_>> {
    let (destination, plain) = destination(packet)?;
    let header_len = usize::from(packet[0] & 0xf) * 4;
    let udp = packet.get(header_len..)?;
    let source = u32::from_be_bytes(packet[12..16].try_into().ok()?);
    let port = u16::from_be_bytes(udp.get(..2)?.try_into().ok()?);
    let path = if destination.is_multicast() {
        ltp::Path::Group
    } else {
        ltp::Path::Unicast
    };
    let option = if plain {
        None
    } else {
        Some(LmsOption::parse(&packet[20..header_len]).ok()?.1)
    };
    let source = SocketAddrV4::new(source.into(), port).into();
    let meta = ltp::Meta {
        source,
        path,
        option,
        elected: true,
    };
    Some(Incoming {
        meta,
        payload: udp.get(8..)?,
    })
}

/// The packets of one transmission of a host's machine.
pub(crate) fn outgoing(
    plan: &Plan,
    node: u32,
    transmit: &ltp::Transmit,
    buffer: &[u8],
    mut send: impl FnMut(&[u8]),
) {
    let me = plan.host(node);
    let group = |options: &[u8], payload: &[u8]| {
        Datagram {
            source: me,
            destination: GROUP,
            ttl: TTL,
            options,
            payload,
        }
        .emit()
    };
    for payload in transmit.packets(buffer) {
        match transmit.destination {
            ltp::Destination::Group => send(&group(&[], payload)),
            ltp::Destination::Request(option) => {
                let mut options = [0; 20];
                let len = option
                    .emit(Form::Classic, &mut options)
                    .expect("an IPv4 option fits");
                send(&group(&options[..len], payload));
            }
            ltp::Destination::Unicast(SocketAddr::V4(destination)) => {
                send(
                    &Datagram {
                        source: me,
                        destination,
                        ttl: TTL,
                        options: &[],
                        payload,
                    }
                    .emit(),
                );
            }
            ltp::Destination::Unicast(SocketAddr::V6(_)) => {}
            ltp::Destination::Dmcast(turning_point) => {
                send(&dmcast(plan, me, turning_point, payload));
            }
        }
    }
}

/// A repair, wrapped for the turning-point router.
fn dmcast(plan: &Plan, me: SocketAddrV4, turning_point: TurningPoint, payload: &[u8]) -> Vec<u8> {
    let inner = Datagram {
        source: plan.source(),
        destination: GROUP,
        ttl: TTL,
        options: &[],
        payload,
    };
    let inner = inner.emit();
    let IpAddr::V4(router) = turning_point.router else {
        return inner;
    };
    let wrap = DmcastRepr {
        replier: *me.ip(),
        router,
        iface: turning_point.iface,
        form: Form::Classic,
        placement: Placement::Outer,
        ttl: TTL,
        identification: 0,
    };
    let mut bytes = vec![0; wrap.buffer_len(inner.len())];
    let len = wrap
        .emit(&inner, &mut bytes)
        .expect("a dmcast of a short packet is short");
    bytes.truncate(len);
    bytes
}
