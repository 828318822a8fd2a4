//! The queries that an endpoint accepts: those of IGMP and of MLD come from different senders.

use core::net::{Ipv4Addr, Ipv6Addr};

use lms_proto::Iface;
use lms_proto::endpoint::{Config, DropReason, Endpoint, Storage};
use lms_proto::wire::ipv4;

use crate::common::*;
use crate::igmp_common::{Addresses, v3_query};

const ME: u8 = 7;
const ROUTER: u8 = 1;
/// Where a packet of IPv6 has Router Alert and the padding after it.
const ALERT: core::ops::Range<usize> = 42..48;

fn endpoint<A: Net>() -> Endpoint<'static, A> {
    let config = Config::new(Iface(1), A::neighbour(1, ME));
    Endpoint::new(config, Storage::owned(8), [3; 32], ms(0))
}

fn query<A: Net>(from: A) -> Vec<u8> {
    v3_query(from, A::UNSPECIFIED, 20, &[])
}

/// Gives an endpoint a query; returns the reason for which it is refused.
fn refusal<A: Net>(packet: &[u8]) -> Option<DropReason> {
    let mut e = endpoint::<A>();
    let refused = e.handle_packet(ms(0), &meta(1), packet).err();
    let stats = e.stats();
    assert_eq!(stats.queries_received, u64::from(refused.is_none()));
    for (reason, count) in stats.drops.iter() {
        assert_eq!(count, u64::from(refused == Some(reason)), "{reason:?}");
    }
    refused
}

/// RFC 9777 §6.2: a link-local source, hop limit 1, Router Alert.
#[test]
fn queries_of_mld_are_of_the_link() {
    let good = query(Ipv6Addr::host(1, ROUTER));
    assert_eq!(refusal::<Ipv6Addr>(&good), None);
    let global = |n| Ipv6Addr::neighbour(1, n).address;
    let mut far = good.clone();
    Ipv6Addr::set_ttl(&mut far, 2);
    let mut without_alert = good.clone();
    without_alert[ALERT].copy_from_slice(&[1, 4, 0, 0, 0, 0]);
    let cases = [
        (query(Ipv6Addr::UNSPECIFIED), DropReason::WrongSubnet),
        (query(global(ROUTER)), DropReason::WrongSubnet),
        (query(Ipv6Addr::FOREIGN), DropReason::WrongSubnet),
        (query(global(ME)), DropReason::OwnAddress),
        (query(Ipv6Addr::host(1, ME)), DropReason::OwnAddress),
        (far, DropReason::Ttl),
        (without_alert, DropReason::RouterAlert),
    ];
    for (packet, reason) in cases {
        assert_eq!(refusal::<Ipv6Addr>(&packet), Some(reason));
    }
}

/// A switch that queries in a router's stead has no address (RFC 4541 §2.1.1), and older queriers write no Router Alert.
#[test]
fn queries_of_igmp_may_have_no_source_and_no_router_alert() {
    let good = query(Ipv4Addr::host(1, ROUTER));
    let mut without_alert = good.clone();
    without_alert[20..24].copy_from_slice(&[1; 4]);
    ipv4::fill_checksum(&mut without_alert[..24]);
    for packet in [good.clone(), query(Ipv4Addr::UNSPECIFIED), without_alert] {
        assert_eq!(refusal::<Ipv4Addr>(&packet), None);
    }
    let mut far = good;
    Ipv4Addr::set_ttl(&mut far, 2);
    let cases = [
        (query(Ipv4Addr::FOREIGN), DropReason::WrongSubnet),
        (query(Ipv4Addr::host(2, ROUTER)), DropReason::WrongSubnet),
        (query(Ipv4Addr::host(1, ME)), DropReason::OwnAddress),
        (far, DropReason::Ttl),
    ];
    for (packet, reason) in cases {
        assert_eq!(refusal::<Ipv4Addr>(&packet), Some(reason));
    }
}
