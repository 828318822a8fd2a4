//! Membership packets, and documented sizes: shared by the tests of `igmp` and of `lms-proto`, which includes this file.

use core::net::{Ipv4Addr, Ipv6Addr};

use igmp::datagram::{finish_membership, membership_at};
use igmp::wire::{Code, Message, Query, QueryV3, RecordType, ReportWriter, Sources};
use igmp::{Duration, Family, InterfaceConfig, ResponseCode};
use proptest::prelude::*;

/// Neighbour `n` on a downstream interface, or our own address there for 1.
pub(crate) fn host(iface: u16, n: u8) -> Ipv4Addr {
    Addresses::host(iface, n)
}

#[allow(dead_code, reason = "of the tests of `lms-proto`")]
pub(crate) const GROUP: Ipv4Addr = Ipv4Addr::GROUP;

#[allow(dead_code, reason = "of the tests of `lms-proto`")]
pub(crate) fn source(n: u8) -> Ipv4Addr {
    Addresses::source(n)
}

/// The addresses that tests use.
#[allow(dead_code, reason = "some tests need few of them")]
pub(crate) trait Addresses: Family {
    const GROUP: Self;
    /// A group that stays on its link.
    const LOCAL_GROUP: Self;
    /// A sender that is not of the link.
    const FOREIGN: Self;
    /// How many older versions there are, those with leaves among them.
    const OLDER_VERSIONS: usize;
    /// Neighbour `n` on the link of an interface.
    fn host(iface: u16, n: u8) -> Self;
    fn source(n: u8) -> Self;
    /// Other groups.
    fn group(n: u32) -> Self;
    /// An interface whose own address on its link is that of neighbour 10.
    fn interface(iface: u16) -> InterfaceConfig<Self>;
    /// Changes the remaining time to live of a packet.
    fn set_ttl(packet: &mut [u8], ttl: u8);
    /// The last byte, which numbers neighbours and sources.
    fn number(self) -> u8 {
        self.octets().as_ref().last().copied().unwrap_or(0)
    }
}

impl Addresses for Ipv4Addr {
    const GROUP: Self = Ipv4Addr::new(239, 1, 2, 3);
    const LOCAL_GROUP: Self = Ipv4Addr::new(224, 0, 0, 251);
    const FOREIGN: Self = Ipv4Addr::new(10, 0, 2, 77);
    const OLDER_VERSIONS: usize = 2;

    fn host(iface: u16, n: u8) -> Self {
        Ipv4Addr::new(10, 0, iface as u8, n)
    }

    fn source(n: u8) -> Self {
        Ipv4Addr::new(10, 99, 0, n)
    }

    fn group(n: u32) -> Self {
        Ipv4Addr::from_bits(0xef00_0000 + n)
    }

    fn interface(iface: u16) -> InterfaceConfig {
        InterfaceConfig::ipv4(host(iface, 10), 24)
    }

    fn set_ttl(packet: &mut [u8], ttl: u8) {
        packet[8] = ttl;
        smoltcp::wire::Ipv4Packet::new_unchecked(packet).fill_checksum();
    }
}

impl Addresses for Ipv6Addr {
    const GROUP: Self = Ipv6Addr::new(0xff3e, 0, 0, 0, 0, 0, 0x8001, 0x203);
    const LOCAL_GROUP: Self = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);
    const FOREIGN: Self = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 77);
    const OLDER_VERSIONS: usize = 1;

    fn host(iface: u16, n: u8) -> Self {
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, iface, n.into())
    }

    fn source(n: u8) -> Self {
        Ipv6Addr::new(0x2001, 0xdb8, 99, 0, 0, 0, 0, n.into())
    }

    fn group(n: u32) -> Self {
        Ipv6Addr::new(0xff3e, 0, 0, 0, 0, 0, 0x9000 + (n >> 16) as u16, n as u16)
    }

    fn interface(iface: u16) -> InterfaceConfig<Self> {
        let address = Ipv6Addr::new(0x2001, 0xdb8, iface, 0, 0, 0, 0, 10);
        InterfaceConfig::ipv6(address, 64, Self::host(iface, 10))
    }

    fn set_ttl(packet: &mut [u8], ttl: u8) {
        packet[7] = ttl;
    }
}

pub(crate) fn whole<A: Family>(source: A, destination: A, message: &Message<'_, A>) -> Vec<u8> {
    let mut packet = vec![0; 1500];
    let at = membership_at::<A>();
    let len = message.emit(&mut packet[at..]).expect("room");
    let len = finish_membership(&mut packet, source, destination, len).expect("room");
    packet.truncate(len);
    packet
}

pub(crate) fn v3_report<A: Addresses>(from: A, kind: RecordType, sources: &[u8]) -> Vec<u8> {
    report_of(from, A::GROUP, kind, sources)
}

pub(crate) fn report_of<A: Addresses>(
    from: A,
    group: A,
    kind: RecordType,
    sources: &[u8],
) -> Vec<u8> {
    let mut packet = vec![0; 1500];
    let mut writer = ReportWriter::new(&mut packet[membership_at::<A>()..]).expect("room");
    assert!(writer.push(kind, group, sources.iter().map(|n| A::source(*n)), None));
    let len = writer.finish();
    let len = finish_membership(&mut packet, from, A::REPORT_DESTINATION, len).expect("room");
    packet.truncate(len);
    packet
}

pub(crate) fn v3_query<A: Addresses>(from: A, group: A, tenths: u32, sources: &[u8]) -> Vec<u8> {
    query_of(from, group, tenths, sources, 2, Code(125))
}

pub(crate) fn query_of<A: Addresses>(
    from: A,
    group: A,
    tenths: u32,
    sources: &[u8],
    robustness: u8,
    interval: Code,
) -> Vec<u8> {
    let list: Vec<A::Octets> = sources.iter().map(|n| A::source(*n).octets()).collect();
    let v3 = QueryV3 {
        suppress: false,
        robustness,
        interval,
        sources: Sources::from_octets(&list),
    };
    let query = Query {
        group,
        max_response: A::ResponseCode::from_time(Duration::from_millis(u64::from(tenths) * 100)),
        v3: Some(v3),
    };
    let to = if query.is_general() {
        A::QUERY_DESTINATION
    } else {
        group
    };
    whole(from, to, &Message::Query(query))
}

/// Membership packets that pass the checksums, with fields from small ranges so that they meet, and garbage.
pub(crate) fn packet<A: Addresses>() -> impl Strategy<Value = Vec<u8>> {
    let from = || (0u16..4, 1u8..6).prop_map(|(iface, n)| A::host(iface, n));
    let list = || prop::collection::vec(1u8..9, 0..6);
    let report = (from(), 1u8..8, list())
        .prop_map(|(from, kind, sources)| v3_report(from, RecordType::from(kind), &sources));
    let query = (from(), any::<bool>(), 1u32..200, list()).prop_map(|(from, general, t, list)| {
        if general {
            v3_query(from, A::UNSPECIFIED, t, &[])
        } else {
            v3_query(from, A::GROUP, t, &list)
        }
    });
    let kinds = 1 + A::OLDER_VERSIONS;
    let older = (from(), 0usize..kinds).prop_map(|(from, kind)| {
        let message = [
            Message::V2Report(A::GROUP),
            Message::V2Leave(A::GROUP),
            Message::V1Report(A::GROUP),
        ][kind];
        whole(from, A::GROUP, &message)
    });
    let garbage = prop::collection::vec(any::<u8>(), 0..90);
    prop_oneof![3 => report, 3 => query, 1 => older, 1 => garbage]
}

/// Compares sizes with documented ones, which are those of 64-bit machines; others need less.
pub(crate) fn documented<const N: usize>(sizes: [usize; N], documented: [usize; N]) {
    if cfg!(target_pointer_width = "64") {
        assert_eq!(sizes, documented);
    }
    let within = sizes
        .iter()
        .zip(&documented)
        .all(|(size, most)| size <= most);
    assert!(within, "{sizes:?}, documented {documented:?}");
}
