//! The packet filter.

use std::io::Read as _;
use std::net::UdpSocket;

use super::routes::Network;
use super::*;
use linux_net::nft::{Guard, hides};

/// The port of requests by datagram.
const LMS: u16 = 4144;
const REQUEST: u8 = 1;
const DMCAST: u8 = 2;

/// A hop-by-hop header with LMS's option behind `prefix`.
fn option(next: u8, prefix: &[u8], kind: u8) -> Vec<u8> {
    let mut header = vec![next, 7];
    header.extend(prefix);
    header.extend([0x3e, 54 - prefix.len() as u8, 0x4c, 0x4d, kind]);
    header.resize(58, 0);
    header.extend([1, 4, 0, 0, 0, 0]);
    header
}

#[test]
fn the_guard_hides_requests_from_the_kernel_and_nothing_else() {
    with_namespaces(|| {
        let network = Network::new();
        let (mut table, mut guard, mut ring) = network.router.run(|| {
            let config = RingConfig {
                frames: 256,
                ..RingConfig::default()
            };
            let mut table = Table::<Ipv6Addr>::open_for().unwrap();
            table.add_interface(network.r0).unwrap();
            let ring = Ring::open_for::<Ipv6Addr>(&config).unwrap();
            (table, Guard::open(Some(LMS)).unwrap(), ring)
        });
        let a0 = network.a.index("a0");
        let link = network.a.run(|| Sender::open().unwrap());
        let mut group = 0;
        let mut send = |header: &[u8], hidden: bool| {
            // A group of its own each, since the kernel asks once a group.
            group += 1;
            let group = Ipv6Addr::from_bits(GROUP.to_bits() + group);
            let mut packet = if header.is_empty() {
                ipv6(UDP, A, group, &udp(9, PORT, b"nak"))
            } else {
                let body = [header, &udp(9, PORT, b"nak")].concat();
                ipv6(HOP_BY_HOP, A, group, &body)
            };
            complete_checksum(&mut packet).unwrap();
            assert_eq!(hides(&packet, Some(LMS)), hidden, "{header:?}");
            let sent = link.send(a0, group_link_address(group), &packet).sent;
            assert_eq!(sent, 1);
        };
        let prefixes: [&[u8]; 4] = [&[], &[5, 2, 0, 0], &[1, 0], &[1, 2, 0, 0]];
        for prefix in prefixes {
            send(&option(UDP, prefix, REQUEST), true);
        }
        // The table's socket hears neighbour discovery too.
        std::thread::sleep(NOT_SOON);
        let upcall = table.next_upcall().unwrap();
        assert!(upcall.is_none(), "the kernel saw a request: {upcall:?}");
        assert_eq!(guard.counters().unwrap().requests.packets, 4);
        let mut seen = 0;
        while seen < prefixes.len() {
            assert!(readable(ring.as_fd()), "the ring sees them all");
            let mut batch = ring.batch(64);
            seen += batch.frames().filter(|f| f.packet[40] == UDP).count();
        }
        // Data, options of others, and requests whose option stands elsewhere.
        let elsewhere = option(UDP, &[1, 4, 0, 0, 0, 0], REQUEST);
        for header in [&[][..], &header_of(UDP), &elsewhere] {
            send(header, false);
            soon(&mut table, |table| table.next_upcall().unwrap()).expect("an upcall");
        }
        assert_eq!(guard.counters().unwrap().requests.packets, 4);
    });
}

#[test]
fn dmcasts_to_this_host_are_hidden_from_it() {
    with_namespaces(|| {
        let network = Network::new();
        let mut guard = network.router.run(|| Guard::open(None).unwrap());
        let raw = network.a.run(|| Ipv6Socket::sender().unwrap());
        let icmp = network.a.run(|| {
            let (domain, kind) = (socket2::Domain::IPV6, socket2::Type::RAW);
            socket2::Socket::new(domain, kind, Some(socket2::Protocol::ICMPV6)).unwrap()
        });
        let errors = || {
            let mut errors = 0;
            while readable_within(icmp.as_fd(), NOT_SOON) {
                let mut buffer = [0; 1500];
                let len = (&icmp).read(&mut buffer).unwrap();
                // Larger numbers are those of neighbour discovery.
                errors += u32::from(len > 0 && buffer[0] < 128);
            }
            errors
        };
        let data = ipv6(UDP, A, GROUP, &udp(9, PORT, b"repair"));
        let packet = |header: &[u8]| {
            let body = [header, &data].concat();
            ipv6(HOP_BY_HOP, A, B, &body)
        };
        raw.send(0, &packet(&option(TUNNEL, &[], DMCAST))).unwrap();
        assert_eq!(errors(), 0, "the kernel answered a dmcast");
        assert_eq!(guard.counters().unwrap().dmcasts.packets, 1);
        raw.send(0, &packet(&header_of(TUNNEL))).unwrap();
        assert_eq!(errors(), 1, "a plain tunnel is not ours to hide");
        assert_eq!(guard.counters().unwrap().dmcasts.packets, 1);
    });
}

#[test]
fn requests_by_datagram_are_not_forwarded_and_dmcasts_not_delivered() {
    with_namespaces(|| {
        let network = Network::new();
        let mut guard = network.router.run(|| Guard::open(Some(LMS)).unwrap());
        let a0 = network.a.index("a0");
        network.a.edit(|editor: &mut Editor| {
            let prefix: Ipv6Addr = "fd00:9:1::".parse().unwrap();
            editor.set_route(prefix, 64, Some(B), Some(a0)).unwrap();
        });
        let from = network.a.run(|| UdpSocket::bind((A, 0)).unwrap());
        let at_router = network.router.run(|| UdpSocket::bind((B, LMS)).unwrap());
        let behind = network.c.run(|| UdpSocket::bind((C, LMS)).unwrap());
        let of_others = network.c.run(|| UdpSocket::bind((C, PORT)).unwrap());
        let arrives = |to: Ipv6Addr, port: u16, payload: &[u8], socket: &UdpSocket| {
            from.send_to(payload, (to, port)).unwrap();
            // The first packet to a neighbour waits until its link address is known.
            let arrived = readable_within(socket.as_fd(), 5 * NOT_SOON);
            arrived && socket.recv(&mut [0; 64]).is_ok()
        };
        let (request, dmcast) = (b"LM\x01".as_slice(), b"LM\x02".as_slice());
        assert!(
            arrives(C, PORT, request, &of_others),
            "the port of another program"
        );
        assert!(arrives(C, LMS, b"LN\x01", &behind), "another protocol");
        assert!(
            arrives(C, LMS, dmcast, &behind),
            "a dmcast to another router"
        );
        assert!(
            arrives(B, LMS, request, &at_router),
            "a request to this host"
        );
        let counters = guard.counters().unwrap();
        assert_eq!(
            (counters.requests.packets, counters.dmcasts.packets),
            (0, 0)
        );
        assert!(
            !arrives(C, LMS, request, &behind),
            "a request that passes by"
        );
        assert!(
            !arrives(B, LMS, dmcast, &at_router),
            "a dmcast to this host"
        );
        let counters = guard.counters().unwrap();
        assert_eq!(
            (counters.requests.packets, counters.dmcasts.packets),
            (1, 1)
        );
    });
}
