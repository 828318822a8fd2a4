//! The carriers beside the IPv4 option: golden bytes in both directions, every truncation, chains of hop-by-hop options,
//! and the packets that a router makes of datagrams.

mod common;
mod datagrams;
mod hop_by_hop;

use std::net::{Ipv4Addr, Ipv6Addr};

use lms_proto::Family;
use lms_proto::router::Verdict;
use lms_proto::wire::{hier, ipv4};

use self::common::*;

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
fn headers_that_both_families_have() {
    assert_eq!(<Ipv4Addr as Family>::LINK_GROUP, hier::GROUP);
    assert_eq!(<Ipv6Addr as Family>::LINK_GROUP, hier::GROUP6);
    let mut packet = request::<Ipv4Addr>();
    ipv4::set_destination(&mut packet, Ipv4Addr::LOCALHOST);
    assert!(ipv4::checksum_ok(&packet[..20]));
}
