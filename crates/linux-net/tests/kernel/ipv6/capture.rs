//! The packet ring.

use super::*;

/// Its name, whether a router must see it, and the packet.
type Case = (&'static str, bool, Vec<u8>);

/// Requests and dmcasts, and what looks like them.
fn repairs() -> Vec<Case> {
    let nak = || udp(9, PORT, b"nak");
    let data = || ipv6(UDP, A, GROUP, &nak());
    let request = || behind_header(UDP, A, GROUP, &nak());
    let longer = [vec![UDP, 4], vec![1, 36], vec![0; 36], nak()].concat();
    vec![
        ("request", true, request()),
        (
            "request behind a long header",
            true,
            ipv6(HOP_BY_HOP, A, GROUP, &longer),
        ),
        (
            "request to one host",
            false,
            behind_header(UDP, A, B, &nak()),
        ),
        ("plain data", false, data()),
        ("plain data to one host", false, ipv6(UDP, A, B, &nak())),
        (
            "dmcast with the header outside",
            true,
            behind_header(TUNNEL, A, B, &data()),
        ),
        (
            "dmcast with the header inside",
            true,
            ipv6(TUNNEL, A, B, &request()),
        ),
        (
            "a tunnel of another kind",
            false,
            ipv6(TUNNEL, A, B, &data()),
        ),
        (
            "a tunnel to a group",
            false,
            ipv6(TUNNEL, A, GROUP, &request()),
        ),
        ("a tunnel of IPv4", false, ipv6(4, A, B, &request())),
    ]
}

/// Messages about membership and elections, what the configuration asks for, and what looks like them.
fn messages() -> Vec<Case> {
    let nak = || udp(9, PORT, b"nak");
    let routers: Ipv6Addr = "ff02::16".parse().unwrap();
    let elections: Ipv6Addr = "ff02::fe".parse().unwrap();
    vec![
        ("MLD query", true, behind_header(ICMP, A, GROUP, &mld(130))),
        (
            "MLDv1 report",
            true,
            behind_header(ICMP, A, GROUP, &mld(131)),
        ),
        (
            "MLDv1 done",
            true,
            behind_header(ICMP, A, routers, &mld(132)),
        ),
        (
            "MLDv2 report",
            true,
            behind_header(ICMP, A, routers, &mld(143)),
        ),
        (
            "MLD without a router alert",
            false,
            ipv6(ICMP, A, routers, &mld(143)),
        ),
        (
            "neighbour discovery",
            false,
            ipv6(ICMP, A, GROUP, &mld(135)),
        ),
        (
            "echo behind the header",
            false,
            behind_header(ICMP, A, GROUP, &mld(128)),
        ),
        (
            "TCP behind the header",
            false,
            behind_header(6, A, GROUP, &nak()),
        ),
        (
            "election",
            true,
            ipv6(UDP, A, elections, &udp(9, 4138, b"x")),
        ),
        (
            "election's port, another group",
            false,
            ipv6(UDP, A, GROUP, &udp(9, 4138, b"x")),
        ),
        (
            "a port that is looked for",
            true,
            ipv6(UDP, A, B, &udp(9, 4139, b"x")),
        ),
        (
            "a source that is looked for",
            true,
            ipv6(UDP, C, SSM, &nak()),
        ),
        (
            "its packets to another group",
            false,
            ipv6(UDP, C, GROUP, &nak()),
        ),
    ]
}

#[test]
fn the_ring_shows_what_a_router_handles() {
    with_namespaces(|| {
        let (a, b) = pair();
        let config = RingConfig {
            frames: 256,
            udp_ports: vec![4139],
            ..RingConfig::default()
        };
        let mut ring = b.run(|| Ring::open_for::<Ipv6Addr>(&config).unwrap());
        ring.watch_sources(&[(C, SSM)]).unwrap();
        let (a0, b0) = (a.index("a0"), b.index("b0"));
        let link = b.interface("b0").link_address.unwrap();
        let sender = a.run(|| Sender::open().unwrap());
        // A packet after each that is always shown: what came before it was refused.
        let marker = behind_header(UDP, A, GROUP, &udp(9, PORT, b"marker"));
        for (name, wanted, packet) in repairs().into_iter().chain(messages()) {
            sender.send(a0, link, &packet);
            sender.send(a0, group_link_address(GROUP), &marker);
            let mut shown = Vec::new();
            while shown.last() != Some(&marker) {
                assert!(readable(ring.as_fd()), "{name}");
                let mut batch = ring.batch(64);
                for frame in batch.frames() {
                    assert_eq!(frame.interface, b0);
                    // The kernel of the neighbour has its own reports and queries.
                    if frame.packet[8..24] == A.octets() || frame.packet[8..24] == C.octets() {
                        shown.push(frame.packet.to_vec());
                    }
                }
            }
            shown.pop();
            assert_eq!(shown == [packet], wanted, "{name}: {shown:x?}");
        }
        let many = vec![(C, SSM); Ring::MAX_SOURCES + 1];
        assert!(ring.watch_sources(&many).is_err());
        let many = RingConfig {
            udp_ports: vec![1; Ring::MAX_PORTS + 1],
            ..config
        };
        assert!(b.run(|| Ring::open_for::<Ipv6Addr>(&many).is_err()));
    });
}

#[test]
fn udp_ports_are_captured_by_ipv4_too() {
    with_namespaces(|| {
        let (a, b) = (Host::new(), Host::new());
        let [from, to] = [[10, 9, 0, 1], [10, 9, 0, 2]];
        crate::common::wire(&a, "a0", from, &b, "b0", to);
        let config = RingConfig {
            frames: 64,
            udp_ports: vec![4139, 4140],
            ..RingConfig::default()
        };
        let mut ring = b.run(|| Ring::open(&config).unwrap());
        let socket =
            a.run(|| std::net::UdpSocket::bind((std::net::Ipv4Addr::from(from), 0)).unwrap());
        for port in [4137_u16, 4139, 4141, 4140] {
            let to = (std::net::Ipv4Addr::from(to), port);
            // An answer that nothing listens there is no error of this packet.
            while socket.send_to(&port.to_be_bytes(), to).is_err() {}
        }
        let mut ports = Vec::new();
        while ports.len() < 2 && readable(ring.as_fd()) {
            let mut batch = ring.batch(64);
            ports.extend(
                batch
                    .frames()
                    .map(|f| u16::from_be_bytes([f.packet[22], f.packet[23]])),
            );
        }
        assert_eq!(ports, [4139, 4140]);
    });
}
