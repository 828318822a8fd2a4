//! Requests and dmcasts by datagram: golden bytes in both directions, every truncation, cookies, and the packets that a
//! router makes of datagrams.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use lms_proto::router::{DropReason, Router, Verdict};
use lms_proto::wire::option::Body;
use lms_proto::wire::udp::{Header, PORT, ParseError};
use lms_proto::{Iface, Key, Kind, NextHop, TurningPoint};
use smoltcp::wire::UdpPacket;

use crate::common::*;

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
    // Without an entry it is forwarded as well: this router is on the path, but not in the tree.
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
