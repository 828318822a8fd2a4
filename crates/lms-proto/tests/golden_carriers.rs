//! The carriers beside the IPv4 option: golden bytes in both directions, every truncation, chains of hop-by-hop options,
//! and the packets that a router makes of datagrams.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use lms_proto::router::{Config, DropReason, Policy, Router, Storage, Verdict};
use lms_proto::table::{Neighbour, Replier};
use lms_proto::wire::found::OptionError;
use lms_proto::wire::option::Body;
use lms_proto::wire::udp::{Header, PORT, ParseError, Ports};
use lms_proto::wire::{hier, ipv4, ipv6};
use lms_proto::{
    Family, Iface, Instant, InterfaceConfig, Key, Kind, LmsOption, Meta, NextHop, TurningPoint,
};
use smoltcp::wire::UdpPacket;

const NOW: Instant = Instant::from_secs(100);
const UP: Iface = Iface(1);
const REPLIER: Iface = Iface(2);
const DOWN: Iface = Iface(3);
const COOKIE: u64 = 0xc001_0203_0405_0607;

/// A dmcast of IPv4 to interface 258 of router 192.0.2.7, up to its payload.
const DATAGRAM: [u8; 30] = [
    0x4c, 0x4d, 2, 16, 1, 2, 192, 0, 2, 7, 10, 1, 0, 2, 232, 1, 2, 3, //
    0xc0, 1, 2, 3, 4, 5, 6, 7, 0x0f, 0xa0, 0x13, 0x88,
];
/// A request of IPv6 that no router has turned.
const DATAGRAM6: [u8; 66] = [
    0x4c, 0x4d, 1, 0, 0xff, 0xff, //
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, //
    0x20, 1, 0x0d, 0xb8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, //
    0xff, 0x3e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, //
    0, 0, 0, 0, 0, 0, 0, 0, 0x0f, 0xa0, 0x13, 0x88,
];
const PORTS: Ports = Ports {
    source: 4000,
    group: 5000,
};

/// A family with the addresses of a small network.
trait Net: Family {
    const SOURCE: Self;
    const GROUP: Self;
    /// The receiver below `DOWN`, the replier below `REPLIER`, and another receiver on the replier's link.
    const HOSTS: [Self; 3];

    fn interface(iface: Iface) -> InterfaceConfig<Self>;
    fn value(value: IpAddr) -> Self {
        Self::from_ip(value).expect("of this family")
    }
}

impl Net for Ipv4Addr {
    const SOURCE: Self = Ipv4Addr::new(10, 1, 0, 2);
    const GROUP: Self = Ipv4Addr::new(232, 1, 2, 3);
    const HOSTS: [Self; 3] = [
        Ipv4Addr::new(10, 1, 3, 77),
        Ipv4Addr::new(10, 1, 2, 9),
        Ipv4Addr::new(10, 1, 2, 8),
    ];

    fn interface(iface: Iface) -> InterfaceConfig {
        InterfaceConfig::ipv4(Ipv4Addr::new(10, 1, iface.0 as u8, 1), 24)
    }
}

const fn global(link: u16, host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, link, 0, 0, 0, host)
}

impl Net for Ipv6Addr {
    const SOURCE: Self = global(1, 2);
    const GROUP: Self = Ipv6Addr::new(0xff3e, 0, 0, 0, 0, 0, 0, 0x1234);
    const HOSTS: [Self; 3] = [global(3, 77), global(2, 9), global(2, 8)];

    fn interface(iface: Iface) -> InterfaceConfig<Self> {
        let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, iface.0);
        InterfaceConfig::ipv6(global(iface.0, 1), 64, link_local)
    }
}

fn router<A: Net>() -> Router<'static, A> {
    router_of_seed(1)
}

fn router_of_seed<A: Net>(seed: u8) -> Router<'static, A> {
    let config = Config {
        policy: Policy::Static,
        ..Config::default()
    };
    let mut router = Router::<A>::new(config, Storage::with_capacity(8, 8), [seed; 32], NOW);
    for iface in [UP, REPLIER, DOWN] {
        router
            .set_interface(NOW, iface, A::interface(iface))
            .unwrap();
    }
    let key = Key::new(A::SOURCE, A::GROUP);
    router.install(NOW, key, UP, &[REPLIER, DOWN]).unwrap();
    let replier = Replier {
        iface: REPLIER,
        cost: 1,
        neighbour: Some(Neighbour {
            addr: A::HOSTS[1],
            link: None,
        }),
    };
    router.set_replier(NOW, key, Some(replier)).unwrap();
    router
}

fn meta(iface: Iface) -> Meta {
    Meta {
        iface,
        link_source: None,
    }
}

/// A whole UDP packet, its checksum right.
fn packet<A: Net>(from: A, to: A, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let udp_len = 8 + payload.len();
    let mut packet = vec![0; A::IP_HEADER_LEN + udp_len];
    A::write_ip(&mut packet, udp_len, 17, 64, from, to).unwrap();
    let udp = &mut packet[A::IP_HEADER_LEN..];
    udp[..2].copy_from_slice(&ports.0.to_be_bytes());
    udp[2..4].copy_from_slice(&ports.1.to_be_bytes());
    udp[4..6].copy_from_slice(&(udp_len as u16).to_be_bytes());
    udp[8..].copy_from_slice(payload);
    let (from, to): (IpAddr, IpAddr) = (from.into(), to.into());
    UdpPacket::new_unchecked(udp).fill_checksum(&from.into(), &to.into());
    packet
}

/// Whether a packet's UDP checksum holds, by another implementation.
fn holds<A: Net>(packet: &[u8]) -> bool {
    let (from, to): (IpAddr, IpAddr) = (A::source(packet).into(), A::destination(packet).into());
    let udp = UdpPacket::new_checked(&packet[A::IP_HEADER_LEN..]).unwrap();
    udp.verify_checksum(&from.into(), &to.into())
}

fn header<A: Net>(kind: Kind, turning_point: Option<TurningPoint>) -> Vec<u8> {
    let option = LmsOption {
        kind,
        turning_point,
        source: A::SOURCE.into(),
        group: A::GROUP.into(),
    };
    let mut bytes = vec![0; Header::<A>::LEN];
    let header = Header::<A>::of(&option, 16, PORTS).unwrap();
    header.emit(&mut bytes).unwrap();
    bytes
}

fn request<A: Net>() -> Vec<u8> {
    request_from(A::HOSTS[0])
}

fn request_from<A: Net>(host: A) -> Vec<u8> {
    let payload = [&header::<A>(Kind::Request, None)[..], b"what is asked"].concat();
    packet(host, A::SOURCE, (9_000, PORT), &payload)
}

fn dmcast<A: Net>(point: TurningPoint) -> Vec<u8> {
    let payload = [&header::<A>(Kind::Dmcast, Some(point))[..], b"repair, odd"].concat();
    packet(A::HOSTS[1], A::value(point.router), (PORT, PORT), &payload)
}

/// A request below `DOWN` is turned. Returns the packet to the replier.
fn turned<A: Net>(router: &mut Router<'_, A>) -> Vec<u8> {
    let mut bytes = request::<A>();
    let verdict = router.forward(NOW, &meta(DOWN), &mut bytes);
    let Verdict::Forward { output, packet, .. } = verdict else {
        panic!("{verdict:?}");
    };
    assert_eq!(output.iface, REPLIER);
    assert!(matches!(output.next_hop, NextHop::Neighbour { addr, .. } if addr == A::HOSTS[1]));
    bytes[packet].to_vec()
}

fn point<A: Net>(packet: &[u8]) -> TurningPoint {
    let header = Header::<A>::parse(&packet[A::IP_HEADER_LEN + 8..]).unwrap();
    header.option().turning_point.expect("turned")
}

#[test]
fn datagrams() {
    let header = Header::<Ipv4Addr>::parse(&DATAGRAM).unwrap();
    let expected = Header {
        kind: Kind::Dmcast,
        hop_limit: 16,
        body: Body {
            turning_iface: Iface(258),
            turning_router: Ipv4Addr::new(192, 0, 2, 7),
            source: Ipv4Addr::SOURCE,
            group: Ipv4Addr::GROUP,
        },
        cookie: COOKIE,
        ports: PORTS,
    };
    assert_eq!(header, expected);
    let mut bytes = [0; 30];
    assert_eq!(expected.emit(&mut bytes), Ok(30));
    assert_eq!(bytes, DATAGRAM);
    let header = Header::<Ipv6Addr>::parse(&DATAGRAM6).unwrap();
    assert_eq!((header.kind, header.cookie), (Kind::Request, 0));
    assert_eq!(header.option().group, IpAddr::from(Ipv6Addr::GROUP));
    let mut bytes = [0; 66];
    assert_eq!(header.emit(&mut bytes), Ok(66));
    assert_eq!(bytes, DATAGRAM6);
    for len in 2..30 {
        let truncated = Header::<Ipv4Addr>::parse(&DATAGRAM[..len]);
        assert_eq!(truncated, Err(ParseError::Truncated));
    }
    for len in 2..66 {
        let truncated = Header::<Ipv6Addr>::parse(&DATAGRAM6[..len]);
        assert_eq!(truncated, Err(ParseError::Truncated));
    }
    let changed = |at: usize, to: u8| {
        let mut bytes = DATAGRAM;
        bytes[at] = to;
        Header::<Ipv4Addr>::parse(&bytes).unwrap_err()
    };
    assert_eq!(changed(0, 0), ParseError::Identifier);
    assert_eq!(changed(2, 3), ParseError::Kind);
    let mut half = DATAGRAM;
    half[6..10].fill(0);
    let half = Header::<Ipv4Addr>::parse(&half);
    assert_eq!(half, Err(ParseError::TurningPoint));
}

/// The request as a replier gets it, and its answer as the receivers do.
fn there_and_back<A: Net>() {
    let mut router = router::<A>();
    let to_replier = turned(&mut router);
    assert_eq!(A::destination(&to_replier), A::LINK_GROUP);
    assert_eq!(A::source(&to_replier), A::HOSTS[0]);
    assert!(holds::<A>(&to_replier), "the checksum followed the turn");
    let mut bytes = dmcast::<A>(point::<A>(&to_replier));
    bytes.extend([0; 5]);
    let verdict = router.forward(NOW, &meta(REPLIER), &mut bytes);
    let Verdict::Multicast { iface, packet } = verdict else {
        panic!("{verdict:?}");
    };
    assert_eq!(iface, DOWN);
    let repair = &bytes[packet];
    assert_eq!(
        (A::source(repair), A::destination(repair)),
        (A::SOURCE, A::GROUP)
    );
    let ip = A::read_ip(repair).unwrap();
    assert_eq!((ip.hop_limit, ip.protocol), (15, 17));
    let udp = UdpPacket::new_checked(&repair[A::IP_HEADER_LEN..]).unwrap();
    assert_eq!((udp.src_port(), udp.dst_port()), (4000, 5000));
    assert_eq!(udp.payload(), b"repair, odd");
    assert!(holds::<A>(repair));
    assert_eq!(router.stats().dmcasts, 1);
}

#[test]
fn a_request_by_datagram_there_and_back() {
    there_and_back::<Ipv4Addr>();
    there_and_back::<Ipv6Addr>();
}

fn damage_is_seen_by_receivers<A: Net>() {
    let payload_at = A::IP_HEADER_LEN + 8 + Header::<A>::LEN;
    for bit in 0..8 * b"repair, odd".len() {
        let mut router = router::<A>();
        let to_replier = turned(&mut router);
        let mut bytes = dmcast::<A>(point::<A>(&to_replier));
        bytes[payload_at + bit / 8] ^= 1 << (bit % 8);
        let verdict = router.forward(NOW, &meta(REPLIER), &mut bytes);
        let Verdict::Multicast { packet, .. } = verdict else {
            panic!("{verdict:?}");
        };
        assert!(!holds::<A>(&bytes[packet]), "bit {bit}");
    }
}

#[test]
fn damage_on_the_way_to_the_router_is_not_covered_up() {
    damage_is_seen_by_receivers::<Ipv4Addr>();
    damage_is_seen_by_receivers::<Ipv6Addr>();
}

#[test]
fn datagrams_without_a_checksum() {
    let clear = |bytes: &mut Vec<u8>, at: usize| bytes[at + 6..at + 8].fill(0);
    let mut router = router::<Ipv4Addr>();
    let to_replier = turned(&mut router);
    let mut bytes = dmcast::<Ipv4Addr>(point::<Ipv4Addr>(&to_replier));
    clear(&mut bytes, 20);
    let verdict = router.forward(NOW, &meta(REPLIER), &mut bytes);
    let Verdict::Multicast { packet, .. } = verdict else {
        panic!("{verdict:?}");
    };
    assert_eq!(bytes[packet][26..28], [0, 0], "none before, none after");
    let mut router = self::router::<Ipv6Addr>();
    let to_replier = turned(&mut router);
    let mut bytes = dmcast::<Ipv6Addr>(point::<Ipv6Addr>(&to_replier));
    clear(&mut bytes, 40);
    let verdict = router.forward(NOW, &meta(REPLIER), &mut bytes);
    assert_eq!(verdict, Verdict::Drop(DropReason::HeaderChecksum));
}

fn every_truncation<A: Net>() {
    let mut asked = router::<A>();
    let point = point::<A>(&turned(&mut asked));
    for whole in [request::<A>(), dmcast::<A>(point)] {
        for len in 0..whole.len() {
            let mut bytes = whole[..len].to_vec();
            let verdict = asked.forward(NOW, &meta(REPLIER), &mut bytes);
            assert!(matches!(verdict, Verdict::Drop(_)), "{len}: {verdict:?}");
            assert_eq!(bytes, whole[..len]);
        }
    }
}

fn short_datagrams<A: Net>() {
    let mut router = router::<A>();
    for payload in [&b""[..], b"L", b"x", b"no", b"LN\x01"] {
        let mut bytes = packet(A::HOSTS[0], A::SOURCE, (9_000, PORT), payload);
        let before = bytes.clone();
        let verdict = router.forward(NOW, &meta(DOWN), &mut bytes);
        assert_eq!((verdict, bytes), (Verdict::Pass, before), "{payload:?}");
    }
    let mut bytes = packet(A::HOSTS[0], A::SOURCE, (9_000, PORT), b"LM\x01");
    let verdict = router.forward(NOW, &meta(DOWN), &mut bytes);
    assert_eq!(verdict, Verdict::Drop(DropReason::Datagram));
}

#[test]
fn datagrams_of_other_protocols_to_the_port_pass_however_short() {
    short_datagrams::<Ipv4Addr>();
    short_datagrams::<Ipv6Addr>();
}

#[test]
fn every_truncation_of_a_datagram_is_dropped() {
    every_truncation::<Ipv4Addr>();
    every_truncation::<Ipv6Addr>();
}

fn cookies<A: Net>() {
    let mut router = router::<A>();
    let good = point::<A>(&turned(&mut router));
    let try_with = |router: &mut Router<'_, A>, now, point| {
        let mut bytes = dmcast::<A>(point);
        router.forward(now, &meta(REPLIER), &mut bytes)
    };
    let with = |cookie| TurningPoint { cookie, ..good };
    let wrong = Verdict::Drop(DropReason::Cookie);
    // Guessed ones, in any number, neither pass nor keep the true one out.
    for n in 0..10_000 {
        let cookie = if n == 0 { 0 } else { good.cookie ^ n };
        assert_eq!(try_with(&mut router, NOW, with(cookie)), wrong);
    }
    assert!(matches!(
        try_with(&mut router, NOW, good),
        Verdict::Multicast { .. }
    ));
    // That of another interface, which a host on that link has read, and an unknown number.
    let mut bytes = request_from(A::HOSTS[2]);
    let verdict = router.forward(NOW, &meta(REPLIER), &mut bytes);
    let Verdict::Forward { packet, .. } = verdict else {
        panic!("{verdict:?}");
    };
    let beside = point::<A>(&bytes[packet]);
    let exchanged = [(good.iface, beside.cookie), (beside.iface, good.cookie)];
    for (iface, cookie) in exchanged
        .into_iter()
        .chain([(Iface(good.iface.0 ^ 1), good.cookie)])
    {
        let mixed = TurningPoint {
            iface,
            cookie,
            ..good
        };
        assert_eq!(try_with(&mut router, NOW, mixed), wrong);
    }
    assert!(matches!(
        try_with(&mut router, NOW, beside),
        Verdict::Multicast { iface: REPLIER, .. }
    ));
    // One that is two rotations old, though somebody asks again.
    let later = NOW + lms_proto::router::NUMBER_ROTATION * 2;
    let mut bytes = request::<A>();
    let asked = router.forward(later, &meta(DOWN), &mut bytes);
    assert!(matches!(asked, Verdict::Forward { .. }));
    assert_eq!(try_with(&mut router, later, good), wrong);
    // And after a restart.
    let mut restarted = router_of_seed::<A>(2);
    turned(&mut restarted);
    assert_eq!(try_with(&mut restarted, NOW, good), wrong);
}

#[test]
fn a_cookie_is_of_one_interface_one_time_and_one_router() {
    cookies::<Ipv4Addr>();
    cookies::<Ipv6Addr>();
}

fn addressed<A: Net>() {
    let mut router = router::<A>();
    let mut elsewhere = packet(
        A::HOSTS[0],
        A::GROUP,
        (9_000, PORT),
        &header::<A>(Kind::Request, None),
    );
    let verdict = router.forward(NOW, &meta(DOWN), &mut elsewhere);
    assert_eq!(verdict, Verdict::Drop(DropReason::GroupMismatch));
    // From the replier's side it goes on to the source, wherever the kernel sends it.
    let mut up = packet(
        A::HOSTS[1],
        A::SOURCE,
        (9_000, PORT),
        &header::<A>(Kind::Request, None),
    );
    let verdict = router.forward(NOW, &meta(REPLIER), &mut up);
    let Verdict::Forward { output, .. } = verdict else {
        panic!("{verdict:?}");
    };
    assert_eq!((output.iface, output.next_hop), (UP, NextHop::Routed));
    assert_eq!(A::destination(&up), A::SOURCE);
    // Where there is no entry it goes on too: this router is on its way and not in its tree.
    router.remove(NOW, Key::new(A::SOURCE, A::GROUP));
    let mut bytes = request::<A>();
    let verdict = router.forward(NOW, &meta(DOWN), &mut bytes);
    let Verdict::Forward { output, .. } = verdict else {
        panic!("{verdict:?}");
    };
    assert_eq!(
        (output.iface, output.next_hop),
        (Iface::UNSET, NextHop::Routed)
    );
    assert_eq!(router.stats().requests_routed, 1);
    assert!(holds::<A>(&bytes));
}

#[test]
fn requests_by_datagram_go_to_the_source() {
    addressed::<Ipv4Addr>();
    addressed::<Ipv6Addr>();
}

/// A request of IPv6 with these options before and after LMS's.
fn chain(before: &[u8], after: &[u8]) -> Vec<u8> {
    let option = LmsOption {
        kind: Kind::Request,
        turning_point: None,
        source: Ipv6Addr::SOURCE.into(),
        group: Ipv6Addr::GROUP.into(),
    };
    let mut lms = [0; 64];
    option.emit(lms_proto::Form::Own, &mut lms).unwrap();
    let mut options = [before, &lms, after].concat();
    while (options.len() + 2) % 8 != 0 {
        options.push(0);
    }
    let words = (options.len() + 2) / 8 - 1;
    let mut payload = vec![17, words as u8];
    payload.extend(options);
    payload.extend([0xab; 20]);
    let mut packet = vec![0; 40];
    let (from, to) = (Ipv6Addr::HOSTS[0], Ipv6Addr::GROUP);
    ipv6::emit_header(&mut packet, payload.len(), ipv6::HOP_BY_HOP, 64, from, to).unwrap();
    packet.extend(payload);
    packet
}

#[test]
fn chains_of_hop_by_hop_options() {
    let pieces: [&[u8]; 6] = [
        &[],
        &[0],                      // Pad1
        &[1, 0],                   // PadN without bytes
        &[1, 3, 0, 0, 0],          // PadN
        &[5, 2, 0, 0],             // router alert
        &[0x1e, 4, 0x11, 2, 3, 4], // unknown, to be skipped
    ];
    for before in pieces {
        for between in pieces {
            for after in pieces {
                let before = [before, between].concat();
                let mut bytes = chain(&before, after);
                let mut router = router::<Ipv6Addr>();
                let verdict = router.forward(NOW, &meta(DOWN), &mut bytes);
                let Verdict::Forward { output, .. } = verdict else {
                    panic!("{before:?} {after:?}: {verdict:?}");
                };
                assert_eq!(output.iface, REPLIER);
                let layout = ipv6::Layout::check(&bytes).unwrap();
                let found = ipv6::find_lms(&bytes, layout).unwrap().unwrap();
                assert_eq!(found.option.at, 42 + before.len());
                assert!(found.body.turning_iface.is_set() && found.cookie > Some(0));
            }
        }
    }
}

#[test]
fn chains_that_no_router_forwards() {
    let drop = |before: &[u8], after: &[u8]| {
        let mut bytes = chain(before, after);
        router::<Ipv6Addr>().forward(NOW, &meta(DOWN), &mut bytes)
    };
    for action in 1..4u8 {
        let unknown = [action << 6 | 0x1e, 0];
        let verdict = drop(&unknown, &[]);
        assert_eq!(verdict, Verdict::Drop(DropReason::ForbiddingOption));
        assert_eq!(drop(&[], &unknown), verdict);
    }
    let mut twice = [0; 64];
    twice.copy_from_slice(&chain(&[], &[])[42..106]);
    let verdict = drop(&twice, &[]);
    assert_eq!(verdict, Verdict::Drop(DropReason::DuplicateOption));
    // An option whose length leads past the header.
    let verdict = drop(&[], &[0x1e, 200]);
    assert_eq!(verdict, Verdict::Drop(DropReason::OptionTruncated));
    let bytes = chain(&[], &[0x1e]);
    let layout = ipv6::Layout::check(&bytes).unwrap();
    // Pad1 completes it: a type without its length byte is the last byte of a header.
    let mut cut = bytes.clone();
    let last = layout.header_len - 1;
    cut[last] = 0x1e;
    cut[106..last].fill(0);
    let found = ipv6::find_lms(&cut, layout);
    assert_eq!(found, Err(OptionError::Truncated));
}

#[test]
fn a_header_that_is_longer_than_the_packet() {
    let mut bytes = chain(&[], &[]);
    bytes[41] = 255;
    let verdict = router::<Ipv6Addr>().forward(NOW, &meta(DOWN), &mut bytes);
    assert_eq!(verdict, Verdict::Drop(DropReason::TotalLength));
}

/// The option and the datagram turn the same requests: what one carrier asked, the other may answer.
#[test]
fn a_tree_mixes_carriers() {
    // Asked by datagram, answered by IPv4 in IPv4.
    let mut router = router::<Ipv4Addr>();
    let point = point::<Ipv4Addr>(&turned(&mut router));
    let inner = packet(Ipv4Addr::SOURCE, Ipv4Addr::GROUP, (4000, 5000), b"repair");
    let repr = lms_proto::wire::encap::DmcastRepr {
        replier: Ipv4Addr::HOSTS[1],
        router: Ipv4Addr::value(point.router),
        iface: point.iface,
        cookie: point.cookie,
        form: lms_proto::Form::Own,
        placement: lms_proto::wire::encap::Placement::Outer,
        ttl: 64,
        identification: 0,
    };
    let mut bytes = vec![0; repr.buffer_len(inner.len())];
    repr.emit(&inner, &mut bytes).unwrap();
    let verdict = router.forward(NOW, &meta(REPLIER), &mut bytes);
    assert!(matches!(verdict, Verdict::Multicast { iface: DOWN, .. }));
    // Asked by a hop-by-hop option, answered by datagram.
    let mut router = self::router::<Ipv6Addr>();
    let mut bytes = chain(&[], &[]);
    let verdict = router.forward(NOW, &meta(DOWN), &mut bytes);
    assert!(matches!(verdict, Verdict::Forward { .. }));
    let option = <Ipv6Addr as Family>::find_option(&bytes[40..112]).unwrap();
    let mut bytes = dmcast::<Ipv6Addr>(option.turning_point.unwrap());
    let verdict = router.forward(NOW, &meta(REPLIER), &mut bytes);
    assert!(matches!(verdict, Verdict::Multicast { iface: DOWN, .. }));
}

#[test]
fn a_dmcast_of_ipv6_in_ipv6() {
    let mut router = router::<Ipv6Addr>();
    let mut bytes = chain(&[], &[]);
    let _ = router.forward(NOW, &meta(DOWN), &mut bytes);
    let turned = <Ipv6Addr as Family>::find_option(&bytes[40..112]).unwrap();
    let point = turned.turning_point.unwrap();
    let inner = packet(Ipv6Addr::SOURCE, Ipv6Addr::GROUP, (4000, 5000), b"repair");
    let option = LmsOption {
        kind: Kind::Dmcast,
        ..turned
    };
    let outer_len = <Ipv6Addr as Family>::outer_len(lms_proto::Form::Own);
    assert_eq!(outer_len, 112);
    let mut bytes = vec![0; outer_len];
    let ends = (Ipv6Addr::HOSTS[1], Ipv6Addr::value(point.router));
    <Ipv6Addr as Family>::emit_outer(
        &mut bytes,
        inner.len(),
        64,
        ends,
        &option,
        lms_proto::Form::Own,
    )
    .unwrap();
    bytes.extend(&inner);
    for len in 0..bytes.len() {
        let verdict = router.forward(NOW, &meta(REPLIER), &mut bytes[..len].to_vec());
        assert!(matches!(verdict, Verdict::Drop(_)), "{len}: {verdict:?}");
    }
    let verdict = router.forward(NOW, &meta(REPLIER), &mut bytes);
    let Verdict::Multicast { iface, packet } = verdict else {
        panic!("{verdict:?}");
    };
    let mut expected = inner;
    expected[7] -= 1;
    assert_eq!((iface, &bytes[packet]), (DOWN, &expected[..]));
}

#[test]
fn headers_that_both_families_have() {
    assert_eq!(<Ipv4Addr as Family>::LINK_GROUP, hier::GROUP);
    assert_eq!(<Ipv6Addr as Family>::LINK_GROUP, hier::GROUP6);
    let mut packet = request::<Ipv4Addr>();
    ipv4::set_destination(&mut packet, Ipv4Addr::LOCALHOST);
    assert!(ipv4::checksum_ok(&packet[..20]));
}
