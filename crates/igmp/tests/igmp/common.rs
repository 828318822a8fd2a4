//! What the tests of IGMP share.

use core::net::Ipv4Addr;

use igmp::datagram::{IGMP_AT, finish_igmp};
use igmp::wire::{
    ALL_SYSTEMS, ALL_V3_ROUTERS, Code, Message, Query, QueryV3, RecordType, ReportWriter, Sources,
};
use igmp::{Config, Querier, Storage};
use igmp::{Iface, Instant, InterfaceConfig, LinkAddr, Meta};

pub(crate) fn ms(ms: u64) -> Instant {
    Instant::from_micros(ms as i64 * 1_000)
}

/// Neighbour `n` on a downstream interface, or our own address there for 1.
pub(crate) fn host(iface: u16, n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, iface as u8, n)
}

pub(crate) fn meta(iface: u16) -> Meta {
    Meta {
        iface: Iface(iface),
        link_source: Some(LinkAddr([2, 0, 0, 0, 0, iface as u8])),
    }
}

pub(crate) const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

pub(crate) fn source(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 0, n)
}

pub(crate) fn igmp_config(iface: u16) -> Config {
    let interface = InterfaceConfig {
        address: host(iface, 10),
        prefix_len: 24,
    };
    Config::new(Iface(iface), interface)
}

pub(crate) fn querier(iface: u16) -> Querier<'static> {
    Querier::new(igmp_config(iface), Storage::owned(16, 64), [5; 32], ms(0))
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

/// A query that was sent: group, sources, suppress flag, destination.
pub(crate) type Asked = (Ipv4Addr, Vec<Ipv4Addr>, bool, Ipv4Addr);

pub(crate) fn read_query(packet: &[u8]) -> Asked {
    let Ok(Message::Query(query)) = Message::parse(&packet[IGMP_AT..]) else {
        panic!("not a query");
    };
    let to = Ipv4Addr::new(packet[16], packet[17], packet[18], packet[19]);
    let v3 = query.v3.expect("version 3");
    let mut sources: Vec<_> = v3.sources.iter().collect();
    sources.sort();
    (query.group, sources, v3.suppress, to)
}

pub(crate) fn ask(q: &mut Querier<'_>, now: Instant) -> Vec<Asked> {
    let mut buffer = [0; 1500];
    let mut asked = Vec::new();
    while let Some(transmit) = q.poll_transmit(now, &mut buffer) {
        asked.push(read_query(&buffer[..transmit.len]));
    }
    asked
}

pub(crate) fn run_querier(q: &mut Querier<'_>, end: Instant) -> Vec<(Instant, Asked)> {
    let mut all = Vec::new();
    while let Some(at) = q.poll_timeout().filter(|at| *at <= end) {
        q.handle_timeout(at);
        all.extend(ask(q, at).into_iter().map(|asked| (at, asked)));
    }
    all
}
