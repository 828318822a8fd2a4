//! Multicast routes, whole packets and addresses.

use super::*;

/// A - r0 router r1 - C
pub(super) struct Network {
    pub(super) a: Host,
    pub(super) router: Host,
    pub(super) c: Host,
    pub(super) r0: u32,
    r1: u32,
}

impl Network {
    pub(super) fn new() -> Self {
        let (a, router, c) = (Host::new(), Host::new(), Host::new());
        wire((&a, "a0", A), (&router, "r0", B));
        wire(
            (&router, "r1", "fd00:9:1::1".parse().unwrap()),
            (&c, "c0", C),
        );
        router.run(|| {
            let path = "/proc/sys/net/ipv6/conf/all/forwarding";
            std::fs::write(path, "1").expect("forwarding");
        });
        let (r0, r1) = (router.index("r0"), router.index("r1"));
        Self {
            a,
            router,
            c,
            r0,
            r1,
        }
    }

    fn route(&self) -> Route<Ipv6Addr> {
        Route {
            source: A,
            group: GROUP,
            input: self.r0,
            outputs: vec![self.r1],
        }
    }

    fn send(&self, bytes: &[u8]) {
        let config = Config {
            interface: self.a.index("a0"),
            ttl: 8,
            ..Config::new(at(A, 0))
        };
        let socket = self.a.run(|| GroupSocket::open(&config).unwrap());
        let transmit = Transmit {
            destination: at(GROUP, PORT),
            bytes,
            segment_len: None,
        };
        socket.send_all(&transmit).unwrap();
    }
}

/// A route of every source, (*, G).
fn any_source_comes_and_goes(
    network: &Network,
    table: &mut Table<Ipv6Addr>,
    watcher: &mut Watcher<Ipv6Addr>,
) {
    let any = Route {
        source: ANY,
        ..network.route()
    };
    table.set_route(&any).unwrap();
    let event = soon(watcher, |watcher| watcher.next_event().unwrap());
    let Some(MrouteEvent::Added(added)) = event else {
        panic!("{event:?}")
    };
    assert_eq!((added.source, added.group), (ANY, GROUP));
    table.remove_route(ANY, GROUP).unwrap();
    let event = soon(watcher, |watcher| watcher.next_event().unwrap());
    assert_eq!(event, Some(MrouteEvent::Removed(added)));
}

#[test]
fn the_owner_is_asked_its_routes_carry_data_and_the_watcher_follows_them() {
    with_namespaces(|| {
        let network = Network::new();
        let mut table = network
            .router
            .run(|| Table::<Ipv6Addr>::open_for().unwrap());
        let taken = network
            .router
            .run(|| Table::<Ipv6Addr>::open_for().map(|_| ()));
        assert!(matches!(taken, Err(TableError::Owned)), "{taken:?}");
        network
            .router
            .run(|| Table::open().expect("IPv4 is another table"));
        let route = network.route();
        let unknown = table.set_route(&route);
        assert!(matches!(unknown, Err(TableError::UnknownInterface(_))));
        table.add_interface(network.r0).unwrap();
        table.add_interface(network.r1).unwrap();
        let config = WatcherConfig::default();
        let mut watcher = network
            .router
            .run(|| Watcher::<Ipv6Addr>::open_for(&config).unwrap());
        let mut ipv4 = network
            .router
            .run(|| Watcher::open(&WatcherConfig::default()).unwrap());
        let receiver = network.c.run(|| {
            let socket = GroupSocket::open(&Config::new(at(GROUP, PORT))).unwrap();
            socket.join(&member(&network.c, "c0", GROUP, None)).unwrap();
            socket
        });
        network.send(b"one");
        // Routers also hear the packets of neighbours to all kinds of groups.
        let upcall = soon(&mut table, |table| {
            let upcall = table.next_upcall().unwrap()?;
            (upcall.group == GROUP).then_some(upcall)
        });
        let upcall = upcall.expect("an upcall");
        assert_eq!(upcall.kind, UpcallKind::NoRoute);
        assert_eq!((upcall.source, upcall.interface), (A, network.r0));
        table.set_route(&route).unwrap();
        assert!(readable(receiver.as_fd()), "the packet that waited arrives");
        let event = soon(&mut watcher, |watcher| watcher.next_event().unwrap());
        assert_eq!(event, Some(MrouteEvent::Added(route.clone())));
        let counters = table.counters(A, GROUP).unwrap();
        assert!(
            counters.packets >= 1 && counters.bytes >= 48,
            "{counters:?}"
        );
        // One that starts later finds it.
        let later = network
            .router
            .run(|| Watcher::<Ipv6Addr>::open_for(&config).unwrap());
        assert_eq!(later.routes().collect::<Vec<_>>(), [&route]);
        let nowhere = Route {
            outputs: vec![],
            ..route.clone()
        };
        table.set_route(&nowhere).unwrap();
        let event = soon(&mut watcher, |watcher| watcher.next_event().unwrap());
        assert_eq!(event, Some(MrouteEvent::Changed(nowhere.clone())));
        table.remove_route(A, GROUP).unwrap();
        let event = soon(&mut watcher, |watcher| watcher.next_event().unwrap());
        assert_eq!(event, Some(MrouteEvent::Removed(nowhere)));
        let gone = table.remove_route(A, GROUP);
        assert!(matches!(gone, Err(TableError::NoRoute)), "{gone:?}");
        any_source_comes_and_goes(&network, &mut table, &mut watcher);
        assert_eq!(ipv4.next_event().unwrap(), None, "IPv4 has other routes");
        table.remove_interface(network.r1).unwrap();
        drop(table);
        network
            .router
            .run(|| Table::<Ipv6Addr>::open_for().expect("free again"));
    });
}

/// An ICMPv6 message of type 0 that reads as an upcall of the kernel for virtual interface 0.
fn forged_upcall() -> Vec<u8> {
    const NO_ROUTE: u8 = 1;
    let mut message = vec![0, NO_ROUTE, 0, 0, 0, 0, 0, 0];
    message.extend(C.octets());
    message.extend(GROUP.octets());
    // The virtual interface stands where ICMPv6 has its checksum, which filling makes 0.
    let pseudo = [
        &A.octets()[..],
        &B.octets(),
        &[0, message.len() as u8, 0, ICMP],
    ]
    .concat();
    let words = pseudo.chunks(2).chain(message.chunks(2));
    let mut sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    message[4..6].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    ipv6(ICMP, A, B, &message)
}

#[test]
fn an_upcall_from_the_network_is_none() {
    with_namespaces(|| {
        let network = Network::new();
        let mut table = network
            .router
            .run(|| Table::<Ipv6Addr>::open_for().unwrap());
        table.add_interface(network.r0).unwrap();
        let raw = network.a.run(|| Ipv6Socket::sender().unwrap());
        raw.send(network.a.index("a0"), &forged_upcall()).unwrap();
        // What the kernel asks is the first that is read.
        network.send(b"data");
        let upcall = soon(&mut table, |table| table.next_upcall().unwrap()).expect("an upcall");
        assert_eq!((upcall.source, upcall.group), (A, GROUP));
    });
}

#[test]
fn what_is_too_long_for_a_path_is_fragmented_by_its_sender() {
    with_namespaces(|| {
        let network = Network::new();
        let mut table = network
            .router
            .run(|| Table::<Ipv6Addr>::open_for().unwrap());
        for interface in [network.r0, network.r1] {
            table.add_interface(interface).unwrap();
        }
        table.set_route(&network.route()).unwrap();
        for (host, name) in [(&network.router, "r1"), (&network.c, "c0")] {
            let index = host.index(name);
            host.edit(|editor| editor.set_mtu(index, 1280).unwrap());
        }
        let receiver = network.c.run(|| {
            let socket = GroupSocket::open(&Config::new(at(GROUP, PORT))).unwrap();
            socket.join(&member(&network.c, "c0", GROUP, None)).unwrap();
            socket
        });
        let config = Config {
            interface: network.a.index("a0"),
            ttl: 8,
            ..Config::new(at(A, 0))
        };
        let socket = network.a.run(|| GroupSocket::open(&config).unwrap());
        let bytes = [7; 8 * 1400];
        let transmit = Transmit {
            destination: at(GROUP, PORT),
            bytes: &bytes,
            segment_len: Some(1400),
        };
        let mut batch = Batch::new(8);
        // The first ones are lost: the router reports that they are too long.
        let arrived = (0..50).any(|_| {
            socket.send_all(&transmit).unwrap();
            readable_within(receiver.as_fd(), NOT_SOON)
        });
        assert!(arrived, "nothing of full length arrives");
        receiver.receive(&mut batch).unwrap();
        assert!(batch.received().all(|got| got.payload == &bytes[..1400]));
    });
}

#[test]
fn whole_packets_are_routed_with_their_extension_headers() {
    with_namespaces(|| {
        let network = Network::new();
        let a0 = network.a.index("a0");
        network.a.edit(|editor: &mut Editor| {
            let prefix: Ipv6Addr = "fd00:9:1::".parse().unwrap();
            editor.set_route(prefix, 64, Some(B), Some(a0)).unwrap();
        });
        let config = RingConfig {
            frames: 64,
            ..RingConfig::default()
        };
        let mut ring = network
            .c
            .run(|| Ring::open_for::<Ipv6Addr>(&config).unwrap());
        let raw = network.a.run(|| Ipv6Socket::sender().unwrap());
        let mut request = behind_header(UDP, A, GROUP, &udp(9, PORT, b"repair"));
        complete_checksum(&mut request).unwrap();
        let dmcasts = [
            ipv6(TUNNEL, A, C, &request),
            behind_header(TUNNEL, A, C, &ipv6(UDP, A, GROUP, &udp(9, PORT, b"repair"))),
        ];
        for dmcast in dmcasts {
            // The neighbour may have to be looked up first.
            raw.send(0, &dmcast).unwrap();
            let arrived = soon(&mut ring, |ring| {
                let mut batch = ring.batch(64);
                batch.frames().find_map(|frame| {
                    (frame.packet[8..24] == A.octets()).then(|| frame.packet.to_vec())
                })
            });
            let mut expected = dmcast;
            expected[7] -= 1;
            assert_eq!(
                arrived.as_ref(),
                Some(&expected),
                "one hop, nothing else changed"
            );
        }
        let b0 = network.router.index("r0");
        let mut at_router = network
            .router
            .run(|| Ring::open_for::<Ipv6Addr>(&config).unwrap());
        let routers: Ipv6Addr = "ff02::16".parse().unwrap();
        let link_local = network.a.interface("a0").ipv6_source(routers).unwrap();
        let report = behind_header(ICMP, link_local, routers, &mld(143));
        raw.send(a0, &report).unwrap();
        let arrived = soon(&mut at_router, |ring| {
            let mut batch = ring.batch(64);
            batch
                .frames()
                .any(|f| f.interface == b0 && f.packet == report)
                .then_some(())
        });
        assert!(
            arrived.is_some(),
            "the report leaves on the interface that was given"
        );
        assert!(matches!(
            raw.send(0, &[0x60; 39]),
            Err(SendError::Malformed)
        ));
    });
}

#[test]
fn addresses_come_with_their_state_and_go() {
    with_namespaces(|| {
        let host = Host::new();
        let mut watcher = host.run(|| LinkWatcher::open().unwrap());
        host.run(|| {
            for (name, value) in [("accept_dad", "1"), ("dad_transmits", "4")] {
                let path = format!("/proc/sys/net/ipv6/conf/default/{name}");
                std::fs::write(path, value).unwrap();
            }
        });
        let mut editor = host.run(|| Editor::open().unwrap());
        editor.add_veth("left", "right", None).unwrap();
        let index = host.index("left");
        let mut until = |wanted: &dyn Fn(&linux_net::link::Interface) -> bool| {
            let event = soon(&mut watcher, |watcher| {
                match watcher.next_event().unwrap()? {
                    LinkEvent::Added(link) | LinkEvent::Changed(link) => {
                        (link.index == index && wanted(&link)).then_some(())
                    }
                    LinkEvent::Removed(_) => None,
                }
            });
            assert!(event.is_some());
        };
        editor.add_address(index, A, 64).unwrap();
        until(&|link| link.ipv6.iter().any(|own| own.address.address == A));
        for name in ["left", "right"] {
            editor.set_up(host.index(name), true).unwrap();
        }
        // The kernel notifies of it when detection has ended; until then the table alone has it.
        host::eventually("a tentative address", || {
            let link = host.interface("left");
            let mut own = link.ipv6.iter().filter(|own| own.is_link_local());
            own.any(|own| own.is_tentative && !own.is_usable())
                .then_some(())
        });
        until(&|link| {
            link.ipv6
                .iter()
                .any(|own| own.is_link_local() && own.is_usable())
        });
        let found = host.run(|| linux_net::link::find("fd00:9::1").unwrap());
        assert_eq!(found.name, "left");
        assert!(found.has(A.into()) && !found.has(B.into()));
        let own = found
            .ipv6
            .iter()
            .find(|own| own.address.address == A)
            .unwrap();
        assert!(own.is_usable() && !own.is_link_local());
        assert!(own.address.is_neighbour(B) && !own.address.is_neighbour(C));
        editor.remove_address(index, A, 64).unwrap();
        until(&|link| !link.has(A.into()) && !link.ipv6.is_empty());
    });
}
