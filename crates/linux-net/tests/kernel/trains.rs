//! Datagrams that the kernel takes in one piece (`UDP_SEGMENT`), and what becomes of them behind a
//! router: the wires are virtual, with the offloads that the system gives them.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::AsFd;

use crate::common::{Host, readable, wire, with_namespaces};
use linux_net::SendError;
use linux_net::inet::{self, UdpSocket};
use linux_net::link::Editor;
use linux_net::mroute::{Route, Table};
use linux_net::udp::{Batch, Config, GroupSocket, Membership, Transmit};

const A: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const R: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const C: Ipv4Addr = Ipv4Addr::new(10, 9, 1, 3);
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const PORT: u16 = 5004;
const SEGMENT: usize = 1400;
const COUNT: u8 = 40;

/// A - router - C, with a kernel multicast route for A's data.
struct Routed {
    a: Host,
    router: Host,
    c: Host,
    _table: Table,
}

impl Routed {
    fn new() -> Self {
        let (a, router, c) = (Host::new(), Host::new(), Host::new());
        wire(&a, "a0", A.octets(), &router, "r0", R.octets());
        wire(&router, "r1", [10, 9, 1, 1], &c, "c0", C.octets());
        let (r0, r1) = (router.index("r0"), router.index("r1"));
        let mut table = router.run(|| Table::open().unwrap());
        table.add_interface(r0).unwrap();
        table.add_interface(r1).unwrap();
        let route = Route {
            source: A,
            group: GROUP,
            input: r0,
            outputs: vec![r1],
        };
        table.set_route(&route).unwrap();
        Self {
            a,
            router,
            c,
            _table: table,
        }
    }

    /// A member of the group at C.
    fn member(&self) -> GroupSocket {
        let member = Membership {
            group: GROUP,
            source: None,
            interface: self.c.index("c0"),
        };
        self.c.run(|| {
            let bind = SocketAddrV4::new(GROUP, PORT);
            let config = Config {
                bind,
                ..Config::default()
            };
            let socket = GroupSocket::open(&config).unwrap();
            socket.join(&member).unwrap();
            socket
        })
    }

    fn group_socket(&self) -> GroupSocket {
        let config = Config {
            interface: self.a.index("a0"),
            ttl: 4,
            ..Config::default()
        };
        self.a.run(|| GroupSocket::open(&config).unwrap())
    }

    fn udp_socket(&self) -> UdpSocket {
        let config = inet::Config {
            interface: self.a.index("a0"),
            ttl: 4,
            ..inet::Config::new(SocketAddr::new(A.into(), 0))
        };
        self.a.run(|| UdpSocket::open(&config).unwrap())
    }
}

/// A train of datagrams, each marked with its number.
fn train() -> Vec<u8> {
    (0..COUNT).flat_map(|number| [number; SEGMENT]).collect()
}

/// The numbers of the datagrams that arrive.
fn arrived(member: &GroupSocket) -> BTreeSet<u8> {
    let mut numbers = BTreeSet::new();
    let mut batch = Batch::new(8);
    while numbers.len() < usize::from(COUNT) && readable(member.as_fd()) {
        member.receive(&mut batch).unwrap();
        for datagram in batch.iter() {
            assert_eq!(datagram.payload.len(), SEGMENT);
            numbers.insert(datagram.payload[0]);
        }
    }
    numbers
}

fn all() -> BTreeSet<u8> {
    (0..COUNT).collect()
}

#[test]
fn a_train_to_a_group_crosses_a_kernel_multicast_router() {
    with_namespaces(|| {
        let network = Routed::new();
        let member = network.member();
        let socket = network.group_socket();
        assert!(socket.max_segments() > 1, "a kernel that segments");
        let transmit = Transmit {
            destination: SocketAddrV4::new(GROUP, PORT),
            bytes: &train(),
            segment_len: Some(SEGMENT),
        };
        socket.send_all(&transmit).unwrap();
        assert_eq!(arrived(&member), all());
    });
}

#[test]
fn a_train_crosses_it_between_unicast_datagrams() {
    with_namespaces(|| {
        let network = Routed::new();
        let member = network.member();
        let socket = network.udp_socket();
        let bytes = train();
        let group = SocketAddr::new(GROUP.into(), PORT);
        let to = |destination, bytes| inet::Transmit {
            source: None,
            destination,
            bytes,
            segment_len: Some(SEGMENT),
        };
        let host = SocketAddr::new(IpAddr::V4(R), 9);
        socket.send(&to(host, &bytes[..SEGMENT])).unwrap();
        assert_eq!(socket.send(&to(group, &bytes)).unwrap(), bytes.len());
        assert_eq!(arrived(&member), all());
    });
}

/// Routers do not report packets above the MTU of a group's path to the sender (RFC 1112 section 7.2,
/// RFC 1122 section 3.2.2): they cut it, or it is lost.
#[test]
fn what_a_narrower_link_behind_the_router_does_not_take_arrives_in_fragments() {
    with_namespaces(|| {
        let network = Routed::new();
        let r1 = network.router.index("r1");
        network.router.run(|| {
            let mut editor = Editor::open().unwrap();
            editor.set_mtu(r1, 1000).unwrap();
        });
        let member = network.member();
        let socket = network.udp_socket();
        let transmit = inet::Transmit {
            source: None,
            destination: SocketAddr::new(GROUP.into(), PORT),
            bytes: &train(),
            segment_len: Some(SEGMENT),
        };
        socket.send(&transmit).unwrap();
        assert_eq!(arrived(&member), all(), "by a socket that finds path MTUs");
        let transmit = Transmit {
            destination: SocketAddrV4::new(GROUP, PORT),
            bytes: &train(),
            segment_len: Some(SEGMENT),
        };
        network.group_socket().send_all(&transmit).unwrap();
        assert_eq!(arrived(&member), all(), "by a group's socket");
    });
}

#[test]
fn what_the_own_interface_does_not_take_is_refused_as_before() {
    with_namespaces(|| {
        let network = Routed::new();
        let bytes = [0; 1473];
        for destination in [SocketAddrV4::new(GROUP, PORT), SocketAddrV4::new(R, PORT)] {
            let transmit = Transmit {
                destination,
                bytes: &bytes,
                segment_len: None,
            };
            let refused = network.group_socket().send(&transmit);
            assert!(matches!(refused, Err(SendError::TooBig)), "{refused:?}");
            let transmit = inet::Transmit {
                source: None,
                destination: destination.into(),
                bytes: &bytes,
                segment_len: None,
            };
            let refused = network.udp_socket().send(&transmit);
            assert!(matches!(refused, Err(SendError::TooBig)), "{refused:?}");
        }
    });
}
