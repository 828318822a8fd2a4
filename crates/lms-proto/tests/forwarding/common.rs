//! Packets and a small router, shared by the tests of the forwarding path.

use std::net::Ipv4Addr;

use lms_proto::router::{Config, DropReason, Router, Verdict};
use lms_proto::table::Replier;
use lms_proto::wire::encap::{DmcastRepr, Placement};
use lms_proto::wire::ipv4;
use lms_proto::{Family, Form, Iface, Instant, Key, Kind, LinkAddr, LmsOption, Meta, TurningPoint};

use crate::net;

pub(crate) const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
pub(crate) const GROUP: Ipv4Addr = Ipv4Addr::new(232, 1, 2, 3);
pub(crate) const KEY: Key = Key::new(SOURCE, GROUP);
pub(crate) const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 1, 3, 77);
pub(crate) const REPLIER_HOST: Ipv4Addr = Ipv4Addr::new(10, 1, 2, 9);
pub(crate) const REPLIER_LINK: LinkAddr = LinkAddr([2, 0, 0, 0, 0, 9]);

pub(crate) const UP: Iface = Iface(1);
pub(crate) const REPLIER: Iface = Iface(2);
pub(crate) const DOWN: Iface = Iface(3);
pub(crate) const DOWN2: Iface = Iface(4);
/// An interface that is not in the entry.
pub(crate) const ELSEWHERE: Iface = Iface(5);

pub(crate) const NOW: Instant = Instant::from_millis(100_000);

/// The router's address on an interface.
pub(crate) fn address(iface: Iface) -> Ipv4Addr {
    Ipv4Addr::new(10, 1, iface.0 as u8, 1)
}

pub(crate) fn meta(iface: Iface) -> Meta {
    Meta {
        iface,
        link_source: None,
    }
}

pub(crate) fn replier() -> Replier {
    net::replier()
}

/// Five interfaces, the entry (S, G) from `UP` to three links, no replier yet.
pub(crate) fn router(config: Config) -> Router<'static> {
    net::router(config)
}

/// The same with a replier set by hand.
pub(crate) fn router_with_replier() -> Router<'static> {
    net::router_with_replier()
}

pub(crate) fn turning_point(router: Ipv4Addr, iface: Iface) -> TurningPoint {
    TurningPoint {
        router: router.into(),
        iface,
        cookie: 0,
    }
}

/// An IPv4 packet with any option bytes (whole words) and payload, checksum right.
pub(crate) fn packet(
    source: Ipv4Addr,
    to: Ipv4Addr,
    protocol: u8,
    options: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    assert_eq!(options.len() % 4, 0);
    let header_len = 20 + options.len();
    let mut packet = vec![0; header_len];
    packet[0] = 0x40 | (header_len / 4) as u8;
    packet[2..4].copy_from_slice(&((header_len + payload.len()) as u16).to_be_bytes());
    packet[4..6].copy_from_slice(&0x1234u16.to_be_bytes());
    packet[8..10].copy_from_slice(&[64, protocol]);
    packet[12..16].copy_from_slice(&source.octets());
    packet[16..20].copy_from_slice(&to.octets());
    packet[20..].copy_from_slice(options);
    ipv4::fill_checksum(&mut packet);
    packet.extend_from_slice(payload);
    packet
}

pub(crate) fn option_bytes(option: &LmsOption, form: Form) -> Vec<u8> {
    let mut bytes = vec![0; option.buffer_len(form)];
    option.emit(form, &mut bytes).unwrap();
    bytes
}

pub(crate) fn request_option(key: Key, turned: Option<TurningPoint>) -> LmsOption {
    LmsOption {
        kind: Kind::Request,
        turning_point: turned,
        source: key.source.into(),
        group: key.group.into(),
    }
}

/// A request from a receiver, with 20 bytes of UDP.
pub(crate) fn request(key: Key, turned: Option<TurningPoint>, form: Form) -> Vec<u8> {
    let option = option_bytes(&request_option(key, turned), form);
    packet(RECEIVER, key.group, 17, &option, &[0xab; 20])
}

/// A data packet from S to G.
pub(crate) fn inner(key: Key) -> Vec<u8> {
    packet(key.source, key.group, 17, &[], &[0xcd; 30])
}

pub(crate) fn dmcast_repr(iface: Iface, form: Form, placement: Placement) -> DmcastRepr {
    DmcastRepr {
        replier: REPLIER_HOST,
        router: address(REPLIER),
        iface,
        cookie: 0,
        form,
        placement,
        ttl: 64,
        identification: 7,
    }
}

pub(crate) fn compose(repr: &DmcastRepr, inner: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; repr.buffer_len(inner.len())];
    let len = repr.emit(inner, &mut packet).unwrap();
    assert_eq!(len, packet.len());
    packet
}

/// A dmcast from the replier for the link `DOWN`, with the number that it has for (S, G).
pub(crate) fn dmcast(key: Key, placement: Placement) -> Vec<u8> {
    let repr = dmcast_repr(number(DOWN), Form::Classic, placement);
    compose(&repr, &inner(key))
}

/// A receiver below `iface` asks and the router turns the request, so that repairs may come. The
/// answer is the interface's number in turning points.
#[track_caller]
pub(crate) fn asked(router: &mut Router<'_>, now: Instant, key: Key, iface: Iface) -> Iface {
    let mut bytes = request(key, None, Form::Classic);
    let verdict = router.forward(now, &meta(iface), &mut bytes);
    let Verdict::Forward { packet, .. } = verdict else {
        panic!("{verdict:?}");
    };
    let (_, option) = LmsOption::parse::<Ipv4Addr>(&bytes[packet][20..]).unwrap();
    option.turning_point.expect("turned").iface
}

/// The turning point that a request in this form gets from every router that is made here, at `NOW`: the classic form
/// has no cookie.
pub(crate) fn point(iface: Iface, form: Form) -> TurningPoint {
    let mut bytes = request(KEY, None, form);
    let verdict = router_with_replier().forward(NOW, &meta(iface), &mut bytes);
    let Verdict::Forward { packet, .. } = verdict else {
        panic!("{verdict:?}");
    };
    let (_, option) = LmsOption::parse::<Ipv4Addr>(&bytes[packet][20..]).unwrap();
    option.turning_point.expect("turned")
}

/// The number of an interface in turning points for (S, G): at `NOW` the same in every router
/// that is made here.
pub(crate) fn number(iface: Iface) -> Iface {
    asked(&mut router_with_replier(), NOW, KEY, iface)
}

/// Edits a packet and mends the checksum of the header that starts at `header`.
pub(crate) fn edit(mut packet: Vec<u8>, header: usize, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    change(&mut packet[header..]);
    let len = usize::from(packet[header] & 0x0f) * 4;
    ipv4::fill_checksum(&mut packet[header..header + len]);
    packet
}

/// Everything in a router but its counters.
pub(crate) fn state<A: Family>(router: &Router<'_, A>) -> String {
    format!("{router:?}").replace(&format!("{:?}", router.stats()), "")
}

/// Gives the router a packet that it must drop for `reason`: counted there and nowhere else,
/// bytes and state untouched.
#[track_caller]
pub(crate) fn expect_drop<A: Family>(
    router: &mut Router<'_, A>,
    iface: Iface,
    packet: &[u8],
    reason: DropReason,
) {
    let (before, counters) = (state(router), *router.stats());
    let mut bytes = packet.to_vec();
    let verdict = router.forward(NOW, &meta(iface), &mut bytes);
    assert_eq!(verdict, Verdict::Drop(reason));
    assert_eq!(bytes, packet, "the packet was edited");
    assert_eq!(state(router), before, "the state changed");
    let after = *router.stats();
    for (r, count) in after.drops.iter() {
        assert_eq!(
            count,
            counters.drops.get(r) + u64::from(r == reason),
            "{}",
            r.name()
        );
    }
    let sent = |stats: &lms_proto::router::Stats| {
        let s = stats;
        (
            s.passed,
            s.requests_to_parent,
            s.requests_turned,
            s.requests_to_replier,
            s.dmcasts,
        )
    };
    assert_eq!(sent(&after), sent(&counters));
}
