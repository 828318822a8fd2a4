//! Packets below the sockets: what the ring shows, what the sender puts on a link.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crate::common::{
    DMCAST, Host, REQUEST, classic, ipv4, readable, readable_within, single, udp, wire,
    with_namespaces,
};
use linux_net::link::Editor;
use linux_net::packet::{Backend, Capture, Channels};
use linux_net::packet::{Ring, RingConfig, Sender, group_link_address};
use linux_net::udp::{Batch, Config, GroupSocket, Membership, OptionBuffer, OptionSocket};

pub(crate) const A: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
pub(crate) const B: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const C: Ipv4Addr = Ipv4Addr::new(10, 9, 1, 3);
pub(crate) const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const HIER: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 254);
pub(crate) const UDP: u8 = 17;
const IPIP: u8 = 4;
const IGMP: u8 = 2;
pub(crate) const NOT_SOON: Duration = Duration::from_millis(100);

pub(crate) fn small() -> RingConfig {
    RingConfig {
        frames: 256,
        ..RingConfig::default()
    }
}

/// A ring; channels with the filter in the kernel, and with the filter in the process alone.
pub(crate) const CAPTURES: [Open; 3] = [
    |config| Capture::open(Backend::Ring, config, 4).unwrap(),
    |config| Capture::open(Backend::Pnet, config, 4).unwrap(),
    |config| Capture::Pnet(Channels::open_without_kernel_filter(config, 4).unwrap()),
];

pub(crate) type Open = fn(&RingConfig) -> Capture;

/// A capture of packets that arrive on these interfaces.
pub(crate) fn capture(host: &Host, open: Open, config: &RingConfig, interfaces: &[u32]) -> Capture {
    host.run(|| {
        let mut capture = open(config);
        for interface in interfaces {
            capture.add_interface(*interface).unwrap();
        }
        capture
    })
}

/// A packet, its name, and whether a router must see it.
type Case = (&'static str, bool, Vec<u8>);

const ALERT: [u8; 4] = [148, 4, 0, 0];

fn nak() -> Vec<u8> {
    udp(9, 5004, b"nak")
}

fn to_group(options: &[u8]) -> Vec<u8> {
    ipv4(UDP, A, GROUP, options, &nak())
}

/// Makes a later fragment of a packet: one with an offset.
fn fragment(mut packet: Vec<u8>) -> Vec<u8> {
    packet[6..8].copy_from_slice(&[0x00, 0x10]);
    packet
}

fn requests() -> Vec<Case> {
    let request = classic(REQUEST, A, GROUP);
    vec![
        ("request", true, to_group(&request)),
        ("request, single form", true, to_group(&single(1, A, GROUP))),
        (
            "request after a NOP",
            true,
            to_group(&[vec![1], request.clone()].concat()),
        ),
        (
            "request after 24 NOPs",
            true,
            to_group(&[vec![1; 24], request.clone()].concat()),
        ),
        (
            "request after a router alert",
            true,
            to_group(&[ALERT.to_vec(), request.clone()].concat()),
        ),
        ("request after NOP, alert, NOP", true, {
            to_group(&[vec![1], ALERT.to_vec(), vec![1], request.clone()].concat())
        }),
        ("single request after an alert", true, {
            to_group(&[ALERT.to_vec(), single(1, A, GROUP)].concat())
        }),
        (
            "later fragment of a request",
            true,
            fragment(to_group(&request)),
        ),
        (
            "request behind the end of options",
            false,
            to_group(&[vec![0; 4], request.clone()].concat()),
        ),
        (
            "dmcast option in a multicast",
            false,
            to_group(&classic(DMCAST, A, GROUP)),
        ),
        (
            "single dmcast in a multicast",
            false,
            to_group(&single(2, A, GROUP)),
        ),
        ("another experiment's option 158", false, {
            to_group(&[158, 8, 0x12, 0x34, 1, 0, 0, 0])
        }),
        ("router alert alone", false, to_group(&ALERT)),
        ("option of length 0", false, to_group(&[7, 0, 138, 16])),
        ("option of length 1", false, to_group(&[7, 1, 138, 16])),
        (
            "option longer than the header",
            false,
            to_group(&[7, 39, 138, 16]),
        ),
        ("plain data", false, to_group(&[])),
        (
            "request to one host",
            false,
            ipv4(UDP, A, B, &request, &nak()),
        ),
        (
            "request that is not UDP",
            false,
            ipv4(6, A, GROUP, &request, &nak()),
        ),
    ]
}

fn tunnels() -> Vec<Case> {
    let request = classic(REQUEST, A, GROUP);
    let dmcast = classic(DMCAST, A, GROUP);
    let tunnel = |options: &[u8], inside: &[u8]| ipv4(IPIP, A, B, options, inside);
    vec![
        ("dmcast", true, tunnel(&dmcast, &to_group(&[]))),
        (
            "dmcast, single form",
            true,
            tunnel(&single(2, A, GROUP), &to_group(&[])),
        ),
        (
            "dmcast after NOPs",
            true,
            tunnel(&[vec![1, 1], dmcast.clone()].concat(), &to_group(&[])),
        ),
        ("option inside", true, tunnel(&[], &to_group(&dmcast))),
        (
            "option inside, alert outside",
            true,
            tunnel(&ALERT, &to_group(&dmcast)),
        ),
        ("plain tunnel", false, tunnel(&[], &to_group(&[]))),
        ("tunnelled request", false, tunnel(&[], &to_group(&request))),
        (
            "tunnel with an alert",
            false,
            tunnel(&ALERT, &to_group(&[])),
        ),
        (
            "tunnel to a group",
            false,
            ipv4(IPIP, A, GROUP, &dmcast, &to_group(&[])),
        ),
    ]
}

fn other_protocols() -> Vec<Case> {
    vec![
        (
            "IGMP report",
            true,
            ipv4(IGMP, A, Ipv4Addr::new(224, 0, 0, 22), &ALERT, &[0x22; 16]),
        ),
        (
            "IGMP query",
            true,
            ipv4(IGMP, A, Ipv4Addr::new(224, 0, 0, 1), &[], &[0x11; 8]),
        ),
        (
            "LMS-HIER",
            true,
            ipv4(UDP, A, HIER, &[], &udp(4138, 4138, b"update")),
        ),
        (
            "LMS-HIER behind an alert",
            true,
            ipv4(UDP, A, HIER, &ALERT, &udp(1, 4138, b"update")),
        ),
        (
            "another port of that group",
            false,
            ipv4(UDP, A, HIER, &[], &udp(4138, 4139, b"x")),
        ),
        (
            "fragment to that group",
            false,
            fragment(ipv4(UDP, A, HIER, &[], &udp(4138, 4138, b"x"))),
        ),
        (
            "LMS-HIER to one host",
            false,
            ipv4(UDP, A, B, &[], &udp(4138, 4138, b"x")),
        ),
        ("ICMP", false, ipv4(1, A, B, &[], &[8; 16])),
        ("TCP", false, ipv4(6, A, B, &[], &[0; 20])),
    ]
}

#[test]
fn a_capture_shows_exactly_what_a_router_handles() {
    with_namespaces(|| CAPTURES.into_iter().for_each(shows_what_a_router_handles));
}

fn shows_what_a_router_handles(open: Open) {
    let (a, b) = (Host::new(), Host::new());
    wire(&a, "a0", A.octets(), &b, "b0", B.octets());
    let (from, at) = (a.interface("a0"), b.interface("b0"));
    let mut ring = capture(&b, open, &small(), &[at.index]);
    let link = at.link_address.unwrap();
    let sender = a.run(|| Sender::open().unwrap());
    for (name, wanted, packet) in [requests(), tunnels(), other_protocols()].concat() {
        let to = Ipv4Addr::new(packet[16], packet[17], packet[18], packet[19]);
        let to = if to.is_multicast() {
            group_link_address(to)
        } else {
            link
        };
        assert_eq!(sender.send(from.index, to, &packet).sent, 1, "{name}");
        // A marker that always passes says that the packet was looked at.
        let marker = ipv4(IGMP, A, HIER, &[], &[0xee; 8]);
        assert_eq!(
            sender
                .send(from.index, group_link_address(HIER), &marker)
                .sent,
            1
        );
        let mut seen = Vec::new();
        while seen.last() != Some(&marker) {
            assert!(readable(ring.as_fd()), "{name}: nothing arrives");
            let mut batch = ring.batch(64);
            for frame in batch.frames() {
                // Hosts join and leave groups of their own: not ours.
                if frame.link_source != from.link_address || frame.packet[8] == 1 {
                    continue;
                }
                assert_eq!(frame.interface, at.index, "{name}");
                seen.push(frame.packet.to_vec());
            }
        }
        assert_eq!(seen.len(), 1 + usize::from(wanted), "{name}");
        assert!(!wanted || seen[0] == packet, "{name}: another packet");
    }
    // What others send to others is not shown, nor what this host sends itself.
    let request = ipv4(UDP, A, GROUP, &classic(REQUEST, A, GROUP), &udp(9, 9, b""));
    sender.send(from.index, [2, 0, 0, 0, 0, 9], &request);
    let own = b.run(|| Sender::open().unwrap());
    own.send(at.index, group_link_address(GROUP), &request);
    // Without a filter in the kernel there is something to read, and nothing in it.
    while readable_within(ring.as_fd(), NOT_SOON) {
        assert!(ring.batch(64).is_empty());
    }
    // A multicast packet in a frame to this host alone is.
    sender.send(from.index, link, &request);
    assert!(readable(ring.as_fd()));
    assert_eq!(ring.batch(64).len(), 1);
}

/// What the sender puts on a link keeps to the rate that the interface is given.
#[test]
fn the_sender_keeps_to_the_queueing_discipline_of_the_interface() {
    with_namespaces(|| {
        const BYTES_PER_S: u64 = 10_000;
        const BURST: u32 = 3_000;
        const QUEUE: u32 = 6_000;
        const PACKETS: usize = 200;
        let (a, b) = (Host::new(), Host::new());
        wire(&a, "a0", A.octets(), &b, "b0", B.octets());
        let from = a.interface("a0");
        let heard = b.run(|| UdpSocket::bind((B, 5004)).unwrap());
        heard
            .set_read_timeout(Some(Duration::from_millis(500)))
            .unwrap();
        a.run(|| {
            let mut editor = Editor::open().unwrap();
            let limited = editor.set_token_bucket(from.index, 8 * BYTES_PER_S, BURST, QUEUE);
            limited.expect("token bucket");
        });
        let link = b.interface("b0").link_address.unwrap();
        let packet = ipv4(UDP, A, B, &[], &udp(9, 5004, &[7; 972]));
        let sender = a.run(|| Sender::open().unwrap());
        let start = Instant::now();
        let mut batch = sender.batch();
        for _ in 0..PACKETS {
            batch.queue(from.index, link, &packet);
        }
        let sent = batch.flush();
        assert_eq!(sent.sent + sent.failed, PACKETS as u64);
        let mut arrived = 0;
        while heard.recv(&mut [0; 2_000]).is_ok() {
            arrived += 1;
        }
        let allowed = u64::from(BURST + QUEUE) + BYTES_PER_S * (1 + start.elapsed().as_secs());
        assert!(arrived > 0);
        assert!(
            arrived * 1_000 <= allowed,
            "{arrived} packets of 1,000 bytes passed, {allowed} bytes are allowed"
        );
        // Packets beyond the queue are counted, and not as sent.
        assert!(sent.failed >= PACKETS as u64 - allowed / 1_000, "{sent:?}");
    });
}

/// A capture shows the data of the sources that are watched, and no longer once they are not.
#[test]
fn data_of_watched_sources_is_shown() {
    with_namespaces(|| CAPTURES.into_iter().for_each(shows_watched_sources));
}

fn shows_watched_sources(open: Open) {
    let (a, b) = (Host::new(), Host::new());
    wire(&a, "a0", A.octets(), &b, "b0", B.octets());
    let (from, at) = (a.interface("a0"), b.interface("b0"));
    let mut ring = capture(&b, open, &small(), &[at.index]);
    let sender = a.run(|| Sender::open().unwrap());
    let data = |source| ipv4(UDP, source, GROUP, &[], &udp(9, 5004, b"data"));
    let request = ipv4(UDP, A, GROUP, &classic(REQUEST, A, GROUP), &udp(9, 9, b""));
    let other = Ipv4Addr::new(239, 1, 2, 4);
    let cases = [
        (vec![], false),
        (vec![(C, other), (B, GROUP)], false),
        (vec![(B, other), (C, GROUP)], true),
        (vec![], false),
    ];
    for (sources, shown) in cases {
        ring.watch_sources(&sources).unwrap();
        for packet in [&data(C), &data(A), &request] {
            sender.send(from.index, group_link_address(GROUP), packet);
        }
        let mut seen = Vec::new();
        while seen.last() != Some(&request) {
            assert!(readable(ring.as_fd()));
            for frame in ring.batch(16).frames() {
                if frame.link_source == from.link_address && frame.packet[8] != 1 {
                    seen.push(frame.packet.to_vec());
                }
            }
        }
        assert_eq!(seen.len(), 1 + usize::from(shown), "{sources:?}");
        assert!(!shown || seen[0] == data(C));
    }
    let many = vec![(A, GROUP); Ring::MAX_SOURCES + 1];
    assert!(ring.watch_sources(&many).is_err());
    ring.watch_sources(&many[1..]).unwrap();
}

/// A host sends a request with its checksum left to the hardware; a router edits and forwards
/// it in place; the host behind accepts it.
#[test]
fn a_request_is_forwarded_from_where_it_lies_with_a_whole_checksum() {
    with_namespaces(|| {
        CAPTURES
            .into_iter()
            .for_each(forwards_with_a_whole_checksum);
    });
}

fn forwards_with_a_whole_checksum(open: Open) {
    let (a, router, c) = (Host::new(), Host::new(), Host::new());
    wire(&a, "a0", A.octets(), &router, "r0", B.octets());
    wire(&router, "r1", [10, 9, 1, 1], &c, "c0", C.octets());
    let (r0, r1) = (router.index("r0"), router.index("r1"));
    let mut ring = capture(&router, open, &small(), &[r0, r1]);
    let out = router.run(|| Sender::open().unwrap());
    let membership = Membership {
        group: GROUP,
        source: None,
        interface: c.index("c0"),
    };
    let c_link = c.interface("c0").link_address.unwrap();
    let receiver = c.run(|| {
        let bind = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 5004);
        let socket = OptionSocket::open(&Config {
            bind,
            ..Config::default()
        })
        .unwrap();
        socket.join(&membership).unwrap();
        socket
    });
    let config = Config {
        interface: a.index("a0"),
        ttl: 8,
        ..Config::default()
    };
    a.run(|| {
        let socket = OptionSocket::open(&config).unwrap();
        let to = SocketAddrV4::new(GROUP, 5004);
        for i in 0..100_u8 {
            socket
                .send(to, &classic(REQUEST, A, GROUP), &[i; 12])
                .unwrap();
        }
    });
    let mut forwarded = 0;
    while forwarded < 100 && readable(ring.as_fd()) {
        let mut batch = ring.batch(64);
        let mut queue = out.batch();
        for (n, frame) in batch.frames().enumerate() {
            if frame.interface != r0 || frame.packet[9] != UDP {
                continue;
            }
            // The turning point, as LMS §6.4.3 has it: an edit in place.
            frame.packet[22..24].copy_from_slice(&[0, 7]);
            frame.packet[24..28].copy_from_slice(&B.octets());
            fix_header_checksum(frame.packet);
            // To the group's address and to the replier's own: both must be heard.
            let link = if n % 2 == 0 {
                c_link
            } else {
                group_link_address(GROUP)
            };
            queue.queue(r1, link, frame.packet);
        }
        let sent = queue.flush();
        assert_eq!(sent.failed, 0);
        forwarded += sent.sent;
    }
    assert_eq!(forwarded, 100);
    let mut buffer = OptionBuffer::new(64);
    for i in 0..100_u8 {
        assert!(
            readable(receiver.as_fd()),
            "request {i} is lost: a wrong checksum?"
        );
        let got = receiver.receive(&mut buffer).unwrap().unwrap();
        assert_eq!((*got.source.ip(), got.payload), (A, &[i; 12][..]));
        assert_eq!(got.options[2..8], [0, 7, 10, 9, 0, 2]);
    }
    let stats = ring.stats().unwrap();
    assert_eq!((stats.dropped_full, stats.dropped_truncated), (0, 0));
    assert!(stats.received >= 100);
}

fn fix_header_checksum(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let header = usize::from(packet[0] & 15) * 4;
    let mut sum: u32 = packet[..header]
        .chunks(2)
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    packet[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

#[test]
fn a_full_capture_drops_counts_and_goes_on() {
    with_namespaces(|| CAPTURES.into_iter().for_each(drops_counts_and_goes_on));
}

fn drops_counts_and_goes_on(open: Open) {
    let (a, b) = (Host::new(), Host::new());
    wire(&a, "a0", A.octets(), &b, "b0", B.octets());
    let config = RingConfig {
        frames: 64,
        max_packet_bytes: 200,
        ..RingConfig::default()
    };
    let mut ring = capture(&b, open, &config, &[b.index("b0")]);
    let a0 = a.index("a0");
    let sender = a.run(|| Sender::open().unwrap());
    let link = group_link_address(GROUP);
    let request = |len| {
        ipv4(
            UDP,
            A,
            GROUP,
            &classic(REQUEST, A, GROUP),
            &udp(9, 9, &vec![7; len]),
        )
    };
    for _ in 0..3 {
        // More than it holds; blocks of a ring round the number of frames up.
        let mut queue = sender.batch();
        let packet = request(8);
        for _ in 0..2000 {
            queue.queue(a0, link, &packet);
        }
        assert_eq!(queue.flush().sent, 2000);
        let mut seen = 0;
        while readable_within(ring.as_fd(), NOT_SOON) {
            let mut batch = ring.batch(usize::MAX);
            seen += batch.frames().filter(|f| f.packet[..] == packet).count() as u64;
        }
        let stats = ring.stats().unwrap();
        assert!(stats.dropped_full > 0 && seen >= 64, "{seen} {stats:?}");
        assert!(seen + stats.dropped_full >= 2000, "{seen} {stats:?}");
    }
    // Longer than the configuration says: dropped and counted, the next one comes through.
    sender.send(a0, link, &request(1200));
    sender.send(a0, link, &request(8));
    assert!(readable(ring.as_fd()));
    std::thread::sleep(NOT_SOON);
    let mut batch = ring.batch(64);
    assert!(batch.frames().all(|f| f.packet.len() < 300));
    drop(batch);
    assert_eq!(ring.stats().unwrap().dropped_truncated, 1);
}

#[test]
fn a_sender_counts_what_cannot_be_sent_and_sends_the_rest() {
    with_namespaces(|| {
        let (a, b) = (Host::new(), Host::new());
        wire(&a, "a0", A.octets(), &b, "b0", B.octets());
        let a0 = a.index("a0");
        let membership = Membership {
            group: GROUP,
            source: None,
            interface: b.index("b0"),
        };
        let receiver = b.run(|| {
            let bind = SocketAddrV4::new(GROUP, 5004);
            let socket = GroupSocket::open(&Config {
                bind,
                ..Config::default()
            })
            .unwrap();
            socket.join(&membership).unwrap();
            socket
        });
        let sender = a.run(|| Sender::open().unwrap());
        let link = group_link_address(GROUP);
        let good = ipv4(UDP, A, GROUP, &[], &udp(9, 5004, b"good"));
        let too_big = ipv4(UDP, A, GROUP, &[], &udp(9, 5004, &[0; 1600]));
        let mut queue = sender.batch();
        queue.queue(4_000_000, link, &good);
        queue.queue(a0, link, &good);
        queue.queue(a0, link, &too_big);
        queue.queue(a0, link, &good);
        let sent = queue.flush();
        assert_eq!((sent.sent, sent.failed), (2, 2));
        let mut batch = Batch::new(4);
        let mut heard = 0;
        while heard < 2 && readable(receiver.as_fd()) {
            receiver.receive(&mut batch).unwrap();
            heard += batch.iter().filter(|d| d.payload == b"good").count();
        }
        assert_eq!(heard, 2);
    });
}
