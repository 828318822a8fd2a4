//! IGMP packets.

use core::net::Ipv4Addr;

use igmp::datagram::{IGMP_AT, finish_igmp};
use igmp::wire::{
    ALL_SYSTEMS, ALL_V3_ROUTERS, Code, Message, Query, QueryV3, RecordType, ReportWriter, Sources,
};

pub(crate) const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

pub(crate) fn source(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 0, n)
}

pub(crate) fn whole(source: Ipv4Addr, destination: Ipv4Addr, message: &Message<'_>) -> Vec<u8> {
    let mut packet = vec![0; 1500];
    let len = message.emit(&mut packet[IGMP_AT..]).expect("room");
    let len = finish_igmp(&mut packet, source, destination, len).expect("room");
    packet.truncate(len);
    packet
}

pub(crate) fn v3_report(from: Ipv4Addr, kind: RecordType, sources: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 1500];
    let mut writer = ReportWriter::new(&mut packet[IGMP_AT..]).expect("room");
    assert!(writer.push(kind, GROUP, sources.iter().map(|n| source(*n)), None));
    let len = writer.finish();
    let len = finish_igmp(&mut packet, from, ALL_V3_ROUTERS, len).expect("room");
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
