//! The kernel's multicast routing and its packet filter: ownership and visibility.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use crate::common::{
    DMCAST, Host, REQUEST, classic, ipv4, readable, readable_within, single, soon, udp, wire,
    with_namespaces,
};
use linux_net::link::Editor;
use linux_net::mroute::{
    MrouteEvent, Route, Table, TableError, UpcallKind, Watcher, WatcherConfig,
};
use linux_net::nft::{Guard, GuardError, hides};
use linux_net::packet::{RequestTap, Ring, RingConfig, Sender, group_link_address};
use linux_net::raw::Ipv4Socket;
use linux_net::udp::{Config, GroupSocket, Membership, OptionBuffer, Transmit};

const A: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const R: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const C: Ipv4Addr = Ipv4Addr::new(10, 9, 1, 3);
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const ANY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
const NOT_SOON: Duration = Duration::from_millis(100);

/// A - r0 router r1 - C
struct Network {
    a: Host,
    router: Host,
    c: Host,
    r0: u32,
    r1: u32,
}

impl Network {
    fn new() -> Self {
        let (a, router, c) = (Host::new(), Host::new(), Host::new());
        wire(&a, "a0", A.octets(), &router, "r0", R.octets());
        wire(&router, "r1", [10, 9, 1, 1], &c, "c0", C.octets());
        let (r0, r1) = (router.index("r0"), router.index("r1"));
        Self {
            a,
            router,
            c,
            r0,
            r1,
        }
    }

    fn send_to_router(&self, packet: &[u8]) {
        let link = self.router.interface("r0").link_address.unwrap();
        let to = Ipv4Addr::new(packet[16], packet[17], packet[18], packet[19]);
        let link = if to.is_multicast() {
            group_link_address(to)
        } else {
            link
        };
        let a0 = self.a.index("a0");
        let sender = self.a.run(|| Sender::open().unwrap());
        assert_eq!(sender.send(a0, link, packet).sent, 1);
    }
}

fn owner(network: &Network) -> Table {
    let mut table = network.router.run(|| Table::open().unwrap());
    table.add_interface(network.r0).unwrap();
    table.add_interface(network.r1).unwrap();
    table
}

#[test]
fn the_owner_is_asked_and_its_routes_carry_data() {
    with_namespaces(|| {
        let network = Network::new();
        let mut table = owner(&network);
        let member = Membership {
            group: GROUP,
            source: None,
            interface: network.c.index("c0"),
        };
        let receiver = network.c.run(|| {
            let bind = SocketAddrV4::new(GROUP, 5004);
            let socket = GroupSocket::open(&Config {
                bind,
                ..Config::default()
            })
            .unwrap();
            socket.join(&member).unwrap();
            socket
        });
        network.send_to_router(&ipv4(17, A, GROUP, &[], &udp(9, 5004, b"one")));
        let upcall = soon(&mut table, |table| table.next_upcall().unwrap()).expect("an upcall");
        assert_eq!(upcall.kind, UpcallKind::NoRoute);
        assert_eq!(
            (upcall.source, upcall.group, upcall.interface),
            (A, GROUP, network.r0)
        );
        let route = Route {
            source: A,
            group: GROUP,
            input: network.r0,
            outputs: vec![network.r1],
        };
        table.set_route(&route).unwrap();
        assert!(
            readable(receiver.as_fd()),
            "the packet that waited comes through"
        );
        network.send_to_router(&ipv4(17, A, GROUP, &[], &udp(9, 5004, b"two")));
        // The same source on the wrong side: a forger, or a loop. Some systems check the
        // source against the routes before that; not here.
        network.router.run(|| {
            for name in ["all", "r1"] {
                let path = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
                let _ = std::fs::write(path, "0");
            }
        });
        let forged = ipv4(17, A, GROUP, &[], &udp(9, 5004, b"loop"));
        let c0 = network.c.index("c0");
        let forger = network.c.run(|| Sender::open().unwrap());
        forger.send(c0, group_link_address(GROUP), &forged);
        let upcall = soon(&mut table, |table| table.next_upcall().unwrap()).expect("an upcall");
        assert_eq!(
            (upcall.kind, upcall.interface),
            (UpcallKind::WrongInterface, network.r1)
        );
        let counters = table.counters(A, GROUP).unwrap();
        assert_eq!(counters.wrong_interface, 1);
        assert!(counters.packets >= 1, "{counters:?}");
        assert!(matches!(table.counters(C, GROUP), Err(TableError::NoRoute)));
        table.remove_route(A, GROUP).unwrap();
        assert!(matches!(
            table.remove_route(A, GROUP),
            Err(TableError::NoRoute)
        ));
        assert!(matches!(
            table.add_interface(4_000_000),
            Err(TableError::UnknownInterface(_))
        ));
        let unknown = Route {
            input: 4_000_000,
            ..route
        };
        assert!(matches!(
            table.set_route(&unknown),
            Err(TableError::UnknownInterface(_))
        ));
    });
}

#[test]
fn a_second_owner_is_refused_with_a_clear_error() {
    with_namespaces(|| {
        let host = Host::new();
        let first = host.run(|| Table::open().unwrap());
        let error = host.run(|| Table::open().unwrap_err());
        assert!(matches!(error, TableError::Owned));
        assert!(error.to_string().contains("pimd"), "{error}");
        // A watcher is no owner.
        host.run(|| Watcher::open(&WatcherConfig::default()).unwrap());
        drop(first);
        host.run(|| Table::open().expect("free again"));
    });
}

/// Sends data without a route, until the kernel has an unresolved one.
fn make_unresolved(network: &Network, table: &mut Table) {
    network.send_to_router(&ipv4(17, C, GROUP, &[], &udp(9, 5004, b"x")));
    soon(table, |table| table.next_upcall().unwrap()).expect("an upcall");
}

/// Opens a watcher that keeps at most three routes.
fn watch_three(network: &Network) -> Watcher {
    let config = WatcherConfig {
        max_routes: 3,
        ..WatcherConfig::default()
    };
    network.router.run(|| Watcher::open(&config).unwrap())
}

fn next_event(watcher: &mut Watcher, what: &str) -> MrouteEvent {
    soon(watcher, |w| w.next_event().unwrap()).unwrap_or_else(|| panic!("{what}"))
}

/// Sets five routes that differ from this one in the group.
fn set_five_like(table: &mut Table, route: &Route) {
    for last in 1..=5 {
        let group = Ipv4Addr::new(232, 9, 9, last);
        table
            .set_route(&Route {
                group,
                ..route.clone()
            })
            .unwrap();
    }
}

#[test]
fn the_watcher_sees_routes_come_change_and_go() {
    with_namespaces(|| {
        let network = Network::new();
        let mut table = owner(&network);
        let (r0, r1) = (network.r0, network.r1);
        let old = Route {
            source: A,
            group: GROUP,
            input: r0,
            outputs: vec![r1],
        };
        table.set_route(&old).unwrap();
        let mut watcher = watch_three(&network);
        let mut next = |what: &str| next_event(&mut watcher, what);
        assert_eq!(next("routes that exist"), MrouteEvent::Added(old.clone()));
        // Not reported.
        make_unresolved(&network, &mut table);

        let other = Ipv4Addr::new(232, 7, 7, 7);
        let new = Route {
            source: C,
            group: other,
            input: r1,
            outputs: vec![r0],
        };
        table.set_route(&new).unwrap();
        assert_eq!(next("a new route"), MrouteEvent::Added(new.clone()));
        let changed = Route {
            outputs: vec![],
            ..new.clone()
        };
        table.set_route(&changed).unwrap();
        assert_eq!(next("a change"), MrouteEvent::Changed(changed.clone()));
        let any = Route {
            source: ANY,
            group: other,
            input: r0,
            outputs: vec![r0, r1],
        };
        table
            .set_route(&Route {
                outputs: vec![r1],
                ..any.clone()
            })
            .unwrap();
        assert_eq!(next("a (*, G) route"), MrouteEvent::Added(any.clone()));
        table.remove_route(C, other).unwrap();
        assert_eq!(next("a removal"), MrouteEvent::Removed(changed));
        table.remove_route(ANY, other).unwrap();
        assert_eq!(next("removal of (*, G)"), MrouteEvent::Removed(any));

        // The bound on routes holds.
        set_five_like(&mut table, &old);
        assert!(matches!(next("one more"), MrouteEvent::Added(_)));
        assert!(matches!(next("one more"), MrouteEvent::Added(_)));
        assert!(watcher.next_event().unwrap().is_none());
        assert_eq!((watcher.routes().count(), watcher.ignored()), (3, 3));
    });
}

#[test]
fn the_watcher_sees_the_end_of_an_interface_and_of_the_owner() {
    with_namespaces(|| {
        let network = Network::new();
        let mut table = owner(&network);
        let (r0, r1) = (network.r0, network.r1);
        let mut watcher = watch_three(&network);
        make_unresolved(&network, &mut table);
        let route = Route {
            source: A,
            group: GROUP,
            input: r0,
            outputs: vec![r1],
        };
        set_five_like(&mut table, &route);
        for _ in 0..3 {
            let event = next_event(&mut watcher, "a new route");
            assert!(matches!(event, MrouteEvent::Added(_)), "{event:?}");
        }
        assert!(watcher.next_event().unwrap().is_none());
        assert_eq!((watcher.routes().count(), watcher.ignored()), (3, 2));

        // The kernel removes an interface's routes without a message: resync finds out.
        let mut editor = network.router.run(|| Editor::open().unwrap());
        editor.remove(r0).unwrap();
        watcher.resync().unwrap();
        while let Some(event) = watcher.next_event().unwrap() {
            assert!(matches!(event, MrouteEvent::Removed(_)), "{event:?}");
        }
        assert_eq!(watcher.routes().count(), 0);

        // The owner's end is the end of its routes.
        let route = Route {
            input: r1,
            outputs: vec![],
            ..route
        };
        table.set_route(&route).unwrap();
        let mut next = || next_event(&mut watcher, "an event");
        assert!(matches!(
            next(),
            MrouteEvent::Added(_) | MrouteEvent::Changed(_)
        ));
        drop(table);
        assert!(matches!(next(), MrouteEvent::Removed(_)));
    });
}

#[test]
fn the_guard_hides_lms_from_the_kernel_and_nothing_else() {
    with_namespaces(|| {
        let network = Network::new();
        let mut table = owner(&network);
        let (mut guard, mut ring) = network.router.run(|| {
            let ring = RingConfig {
                frames: 256,
                ..RingConfig::default()
            };
            (Guard::open(None).unwrap(), Ring::open(&ring).unwrap())
        });
        let body = udp(9, 5004, b"nak");
        let mut group = 0;
        let mut packet = |options: &[u8]| {
            // A group of its own each, since the kernel asks once a group.
            group += 1;
            ipv4(17, A, Ipv4Addr::new(239, 9, 0, group), options, &body)
        };
        let alert = vec![148, 4, 0, 0];
        let hidden = [
            classic(REQUEST, A, GROUP),
            single(1, A, GROUP),
            [vec![1], classic(REQUEST, A, GROUP)].concat(),
            [vec![1; 4], single(1, A, GROUP)].concat(),
            [alert.clone(), classic(REQUEST, A, GROUP)].concat(),
        ];
        for options in &hidden {
            let packet = packet(options);
            assert!(hides(&packet, None), "{options:?}");
            network.send_to_router(&packet);
        }
        assert!(
            !readable_within(table.as_fd(), NOT_SOON),
            "the kernel saw a request"
        );
        assert_eq!(
            guard.counters().unwrap().requests.packets,
            hidden.len() as u64
        );
        let mut seen = 0;
        while seen < hidden.len() {
            assert!(readable(ring.as_fd()), "the ring sees them all");
            seen += ring
                .batch(64)
                .frames()
                .filter(|f| f.packet[9] == 17)
                .count();
        }
        // Data, and options of others, pass; so do requests whose option stands elsewhere.
        for options in [
            &[][..],
            &alert,
            &[158, 8, 0x12, 0x34, 1, 0, 0, 0],
            &[&[1; 5], &classic(REQUEST, A, GROUP)[..]].concat(),
            &[&alert[..], &[1], &single(1, A, GROUP)].concat(),
            &[&[7, 7, 4, 0, 0, 0, 0], &classic(REQUEST, A, GROUP)[..]].concat(),
        ] {
            let packet = packet(options);
            assert!(!hides(&packet, None), "{options:?}");
            network.send_to_router(&packet);
            soon(&mut table, |table| table.next_upcall().unwrap()).expect("an upcall");
        }
        assert_eq!(
            guard.counters().unwrap().requests.packets,
            hidden.len() as u64
        );

        // The guard goes with its owner.
        let error = network.router.run(|| Guard::open(None).unwrap_err());
        assert!(matches!(error, GuardError::Exists), "{error}");
        drop(guard);
        network.send_to_router(&packet(&classic(REQUEST, A, GROUP)));
        soon(&mut table, |table| table.next_upcall().unwrap()).expect("no guard, an upcall");
        network
            .router
            .run(|| Guard::open(None).expect("free again"));
    });
}

#[test]
fn a_tap_on_the_router_itself_hears_what_the_guard_hides_from_its_sockets() {
    with_namespaces(|| {
        let network = Network::new();
        let _guard = network.router.run(|| Guard::open(None).unwrap());
        let (mut tap, socket) = network.router.run(|| {
            let member = UdpSocket::bind((GROUP, 5004)).unwrap();
            member.join_multicast_v4(&GROUP, &R).unwrap();
            (RequestTap::open(network.r0, GROUP, 5004).unwrap(), member)
        });
        let body = udp(9, 5004, b"nak");
        network.send_to_router(&ipv4(17, A, GROUP, &classic(REQUEST, A, GROUP), &body));
        assert!(readable(tap.as_fd()));
        let mut buffer = OptionBuffer::new(1500);
        let heard = tap.receive(&mut buffer).unwrap().expect("a request");
        assert_eq!(heard.payload, b"nak");
        assert!(!readable_within(socket.as_fd(), NOT_SOON));
        network.send_to_router(&ipv4(17, A, GROUP, &[], &body));
        assert!(readable(socket.as_fd()), "data is for the socket");
    });
}

#[test]
fn dmcasts_are_hidden_from_this_host_and_routed_to_others() {
    with_namespaces(|| {
        let network = Network::new();
        let mut guard = network.router.run(|| Guard::open(None).unwrap());
        let inner = ipv4(17, A, GROUP, &[], &udp(9, 5004, b"repair"));
        let inner_option = ipv4(
            17,
            A,
            GROUP,
            &classic(DMCAST, A, GROUP),
            &udp(9, 5004, b"x"),
        );
        // The kernel answers a tunnel without an endpoint with an ICMP error.
        let icmp = network.a.run(|| {
            socket2::Socket::new(
                socket2::Domain::IPV4,
                socket2::Type::RAW,
                Some(socket2::Protocol::ICMPV4),
            )
            .unwrap()
        });
        for (options, inner) in [
            (classic(DMCAST, A, GROUP), &inner),
            (single(2, A, GROUP), &inner),
            (Vec::new(), &inner_option),
        ] {
            let packet = ipv4(4, A, R, &options, inner);
            assert!(hides(&packet, None));
            network.send_to_router(&packet);
        }
        assert!(
            !readable_within(icmp.as_fd(), NOT_SOON),
            "the kernel answered a dmcast"
        );
        assert_eq!(guard.counters().unwrap().dmcasts.packets, 3);
        network.send_to_router(&ipv4(4, A, R, &[], &inner));
        assert!(readable(icmp.as_fd()), "a plain tunnel is not ours to hide");
        assert_eq!(guard.counters().unwrap().dmcasts.packets, 3);
    });
}

#[test]
fn requests_by_datagram_are_not_forwarded_and_dmcasts_not_delivered() {
    const LMS: u16 = 4144;
    with_namespaces(|| {
        let network = Network::new();
        let mut guard = network.router.run(|| Guard::open(Some(LMS)).unwrap());
        network.router.run(|| {
            let path = "/proc/sys/net/ipv4/ip_forward";
            std::fs::write(path, "1").expect("forwarding");
        });
        let a0 = network.a.index("a0");
        network.a.edit(|editor: &mut Editor| {
            let prefix = Ipv4Addr::new(10, 9, 1, 0);
            editor.set_route(prefix, 24, Some(R), Some(a0)).unwrap();
        });
        let from = network.a.run(|| UdpSocket::bind((A, 0)).unwrap());
        let at_router = network.router.run(|| UdpSocket::bind((R, LMS)).unwrap());
        let behind = network.c.run(|| UdpSocket::bind((C, LMS)).unwrap());
        let arrives = |to: Ipv4Addr, payload: &[u8], socket: &UdpSocket| {
            from.send_to(payload, (to, LMS)).unwrap();
            readable_within(socket.as_fd(), 5 * NOT_SOON) && socket.recv(&mut [0; 64]).is_ok()
        };
        let (request, dmcast) = (b"LM\x01".as_slice(), b"LM\x02".as_slice());
        assert!(arrives(C, b"LN\x01", &behind), "another protocol");
        assert!(arrives(C, dmcast, &behind), "a dmcast to another router");
        assert!(arrives(R, request, &at_router), "a request to this host");
        assert!(!arrives(C, request, &behind), "a request that passes by");
        assert!(!arrives(R, dmcast, &at_router), "a dmcast to this host");
        let counters = guard.counters().unwrap();
        let packets = (counters.requests.packets, counters.dmcasts.packets);
        assert_eq!(packets, (1, 1));
    });
}

#[test]
fn raw_packets_leave_as_they_are_and_queries_arrive() {
    with_namespaces(|| {
        let network = Network::new();
        let raw = network.a.run(|| Ipv4Socket::sender().unwrap());
        let a0 = network.a.index("a0");
        let mut ring = network.router.run(|| {
            Ring::open(&RingConfig {
                frames: 256,
                ..RingConfig::default()
            })
            .unwrap()
        });
        let inner = ipv4(17, A, GROUP, &[], &udp(9, 5004, b"repair"));
        let dmcast = ipv4(4, A, R, &classic(DMCAST, A, GROUP), &inner);
        raw.send(0, &dmcast).unwrap();
        let report = ipv4(
            2,
            A,
            Ipv4Addr::new(224, 0, 0, 22),
            &[148, 4, 0, 0],
            &[0x99; 8],
        );
        raw.send(a0, &report).unwrap();
        let mut seen = Vec::new();
        while seen.len() < 2 {
            assert!(readable(ring.as_fd()));
            let mut batch = ring.batch(16);
            // The kernels' own IGMP reports have a TTL of 1.
            let ours = batch.frames().filter(|f| f.packet[8] == 16);
            seen.extend(ours.map(|f| f.packet.to_vec()));
        }
        assert_eq!(seen, [dmcast, report]);
        assert!(raw.send(0, &[0x45; 19]).is_err());

        let mut igmp = network.a.run(|| Ipv4Socket::igmp().unwrap());
        let router = network.router.run(|| Ipv4Socket::sender().unwrap());
        let query = ipv4(
            2,
            R,
            Ipv4Addr::new(224, 0, 0, 1),
            &[148, 4, 0, 0],
            &[0x11; 8],
        );
        router.send(network.r0, &query).unwrap();
        let mut buffer = [0; 256];
        soon(&mut igmp, |igmp| {
            let got = igmp.receive(&mut buffer).unwrap()?;
            (got.packet == query).then(|| assert_eq!(got.interface, a0))
        })
        .expect("the query");
    });
}

/// The upcalls of an owner do not depend on other sockets: data sent by a socket of A.
#[test]
fn a_socket_s_data_reaches_the_router_s_kernel() {
    with_namespaces(|| {
        let network = Network::new();
        let mut table = owner(&network);
        let config = Config {
            interface: network.a.index("a0"),
            ttl: 4,
            ..Config::default()
        };
        network.a.run(|| {
            let socket = GroupSocket::open(&config).unwrap();
            let destination = SocketAddrV4::new(GROUP, 5004);
            let transmit = Transmit {
                destination,
                bytes: b"data",
                segment_len: None,
            };
            socket.send_all(&transmit).unwrap();
        });
        let upcall = soon(&mut table, |table| table.next_upcall().unwrap()).expect("an upcall");
        assert_eq!((upcall.source, upcall.group), (A, GROUP));
    });
}
