//! `pnet_packet` reads what we write, and we read what it writes: IPv4 headers with LMS options, IPIP, and packets that a
//! router has changed.

#[path = "forwarding/common.rs"]
#[allow(dead_code, reason = "shared with the other tests")]
mod common;
#[path = "forwarding/net.rs"]
#[allow(dead_code, reason = "shared with the other tests")]
mod net;

use std::net::Ipv4Addr;

use lms_proto::router::Verdict;
use lms_proto::wire::encap::{Placement, decapsulate, open_outer};
use lms_proto::wire::ipv4::{self, Layout, find_lms};
use lms_proto::{Form, Kind};
use pnet_packet::Packet;
use pnet_packet::ip::IpNextHeaderProtocols;
use pnet_packet::ipv4::{Ipv4OptionPacket, Ipv4Packet, MutableIpv4Packet, checksum};
use proptest::prelude::*;

use crate::common::*;

/// Checks a header, and returns its options: number and length of each.
fn options(ip: &Ipv4Packet<'_>) -> Vec<(u8, usize)> {
    assert_eq!((ip.get_version(), ip.get_checksum()), (4, checksum(ip)));
    assert_eq!(usize::from(ip.get_total_length()), ip.packet().len());
    ip.get_options_iter()
        .map(|option: Ipv4OptionPacket<'_>| {
            let copied = option.get_copied() << 7 | option.get_class() << 5;
            (copied | option.get_number().0, option.packet().len())
        })
        .collect()
}

#[test]
fn the_router_s_changes_keep_headers_right() {
    for (form, number, len) in [(Form::Classic, 138, 16), (Form::Own, 158, 28)] {
        for iface in [DOWN, DOWN2, REPLIER] {
            let mut router = router_with_replier();
            let before = request(KEY, None, form);
            let mut bytes = before.clone();
            let verdict = router.forward(NOW, &meta(iface), &mut bytes);
            let Verdict::Forward { packet, .. } = verdict else {
                panic!("{verdict:?}");
            };
            let ip = Ipv4Packet::new(&bytes[packet]).expect("a packet");
            assert_eq!(options(&ip), [(number, len)]);
            assert_eq!((ip.get_source(), ip.get_destination()), (RECEIVER, GROUP));
            let before = Ipv4Packet::new(&before).expect("a packet");
            assert_eq!(ip.get_ttl() + 1, before.get_ttl());
            assert_eq!(ip.payload(), before.payload());
        }
    }
}

#[test]
fn a_repair_leaves_the_router_as_a_packet_of_its_source() {
    for placement in [Placement::Outer, Placement::Inner] {
        let mut router = router_with_replier();
        let iface = asked(&mut router, NOW, KEY, DOWN);
        let mut bytes = compose(&dmcast_repr(iface, Form::Classic, placement), &inner(KEY));
        let verdict = router.forward(NOW, &meta(REPLIER), &mut bytes);
        let Verdict::Multicast { packet, .. } = verdict else {
            panic!("{verdict:?}");
        };
        let ip = Ipv4Packet::new(&bytes[packet]).expect("a packet");
        assert_eq!(options(&ip), []);
        assert_eq!((ip.get_source(), ip.get_destination()), (SOURCE, GROUP));
        assert_eq!(ip.payload(), [0xcd; 30]);
    }
}

fn address() -> impl Strategy<Value = Ipv4Addr> {
    (1u32..0xdfff_ffff).prop_map(Ipv4Addr::from_bits)
}

proptest! {
    #[test]
    fn dmcasts_are_packets_in_packets(
        payload in prop::collection::vec(any::<u8>(), 0..300), from in address(), is_inner: bool,
        single: bool,
    ) {
        let placement = if is_inner { Placement::Inner } else { Placement::Outer };
        let (form, option) = match single {
            true => (Form::Own, (158, 28)),
            false => (Form::Classic, (139, 16)),
        };
        let original = packet(from, GROUP, 17, &[], &payload);
        let bytes = compose(&dmcast_repr(DOWN, form, placement), &original);
        let outer = Ipv4Packet::new(&bytes).expect("a packet");
        let inner = Ipv4Packet::new(outer.payload()).expect("a packet in it");
        prop_assert_eq!(outer.get_next_level_protocol(), IpNextHeaderProtocols::Ipv4);
        prop_assert_eq!(outer.get_source(), REPLIER_HOST);
        prop_assert_eq!((outer.get_ttl(), outer.get_identification()), (64, 7));
        let expected = match placement {
            Placement::Outer => (vec![option], vec![]),
            Placement::Inner => (vec![], vec![option]),
        };
        prop_assert_eq!((options(&outer), options(&inner)), expected);
        prop_assert_eq!((inner.get_source(), inner.get_destination()), (from, GROUP));
        prop_assert_eq!(inner.payload(), &payload[..]);
    }

    #[test]
    fn dmcasts_that_pnet_writes_are_opened(
        payload in prop::collection::vec(any::<u8>(), 0..300), from in address(), ttl in 2u8..,
    ) {
        let original = packet(from, GROUP, 17, &[], &payload);
        let ours = compose(&dmcast_repr(DOWN, Form::Classic, Placement::Outer), &original);
        let mut bytes = vec![0; ours.len()];
        let len = bytes.len() as u16;
        let mut ip = MutableIpv4Packet::new(&mut bytes).expect("room");
        ip.set_version(4);
        ip.set_header_length(9);
        ip.set_total_length(len);
        ip.set_ttl(ttl);
        ip.set_next_level_protocol(IpNextHeaderProtocols::Ipv4);
        ip.set_source(from);
        ip.set_destination(common::address(REPLIER));
        ip.get_options_raw_mut().copy_from_slice(&ours[20..36]);
        ip.set_payload(&original);
        ip.set_checksum(checksum(&ip.to_immutable()));
        let layout = Layout::check(&bytes).expect("a header");
        prop_assert!(ipv4::checksum_ok(&bytes[..layout.header_len]));
        prop_assert_eq!((ipv4::source(&bytes), ipv4::ttl(&bytes)), (from, ttl));
        let found = find_lms(&bytes[..layout.header_len]).expect("options").expect("ours");
        prop_assert_eq!((found.kind, found.body.group), (Kind::Dmcast, GROUP));
        let opened = open_outer(&bytes, layout).expect("a packet in it");
        let range = decapsulate(&mut bytes, &opened);
        prop_assert_eq!(&bytes[range], &original[..]);
    }
}
