//! IGMP packets, and documented sizes: shared by the tests of `igmp` and of `lms-proto`, which includes this file.

use core::net::Ipv4Addr;

use igmp::datagram::{IGMP_AT, finish_membership};
use igmp::wire::{
    ALL_SYSTEMS, ALL_V3_ROUTERS, Code, Message, Query, QueryV3, RecordType, ReportWriter, Sources,
};
use proptest::prelude::*;

/// Neighbour `n` on a downstream interface, or our own address there for 1.
pub(crate) fn host(iface: u16, n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, iface as u8, n)
}

pub(crate) const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

pub(crate) fn source(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 0, n)
}

pub(crate) fn whole(source: Ipv4Addr, destination: Ipv4Addr, message: &Message<'_>) -> Vec<u8> {
    let mut packet = vec![0; 1500];
    let len = message.emit(&mut packet[IGMP_AT..]).expect("room");
    let len = finish_membership(&mut packet, source, destination, len).expect("room");
    packet.truncate(len);
    packet
}

pub(crate) fn v3_report(from: Ipv4Addr, kind: RecordType, sources: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 1500];
    let mut writer = ReportWriter::new(&mut packet[IGMP_AT..]).expect("room");
    assert!(writer.push(kind, GROUP, sources.iter().map(|n| source(*n)), None));
    let len = writer.finish();
    let len = finish_membership(&mut packet, from, ALL_V3_ROUTERS, len).expect("room");
    packet.truncate(len);
    packet
}

pub(crate) fn v3_query(from: Ipv4Addr, group: Ipv4Addr, tenths: u32, sources: &[u8]) -> Vec<u8> {
    let list: Vec<[u8; 4]> = sources.iter().map(|n| source(*n).octets()).collect();
    let v3 = QueryV3 {
        suppress: false,
        robustness: 2,
        interval: Code::from_value(125),
        sources: Sources::from_octets(&list),
    };
    let query = Query {
        group,
        max_response: Code::from_value(tenths),
        v3: Some(v3),
    };
    let to = if query.is_general() {
        ALL_SYSTEMS
    } else {
        group
    };
    whole(from, to, &Message::Query(query))
}

/// IGMP packets that pass the checksums, with fields from small ranges so that they meet, and garbage.
pub(crate) fn packet() -> impl Strategy<Value = Vec<u8>> {
    let from = || (0u16..4, 1u8..6).prop_map(|(iface, n)| host(iface, n));
    let list = || prop::collection::vec(1u8..9, 0..6);
    let report = (from(), 1u8..8, list())
        .prop_map(|(from, kind, sources)| v3_report(from, RecordType::from(kind), &sources));
    let query = (from(), any::<bool>(), 1u32..200, list()).prop_map(|(from, general, t, list)| {
        if general {
            v3_query(from, Ipv4Addr::UNSPECIFIED, t, &[])
        } else {
            v3_query(from, GROUP, t, &list)
        }
    });
    let older = (from(), 0usize..3).prop_map(|(from, kind)| {
        let message = [
            Message::V1Report(GROUP),
            Message::V2Report(GROUP),
            Message::V2Leave(GROUP),
        ][kind];
        whole(from, GROUP, &message)
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
