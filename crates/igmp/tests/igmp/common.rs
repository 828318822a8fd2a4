//! What the tests of IGMP share.

use core::net::Ipv4Addr;

use igmp::datagram::IGMP_AT;
use igmp::wire::Message;
use igmp::{Config, Querier, Storage};
use igmp::{Iface, Instant, InterfaceConfig, LinkAddr, Meta};

pub(crate) use crate::packets::{GROUP, host, source, v3_query, v3_report, whole};

pub(crate) fn ms(ms: u64) -> Instant {
    Instant::from_micros(ms as i64 * 1_000)
}

pub(crate) fn meta(iface: u16) -> Meta {
    Meta {
        iface: Iface(iface),
        link_source: Some(LinkAddr([2, 0, 0, 0, 0, iface as u8])),
    }
}

pub(crate) fn igmp_config(iface: u16) -> Config {
    let interface = InterfaceConfig::ipv4(host(iface, 10), 24);
    Config::new(Iface(iface), interface)
}

pub(crate) fn querier(iface: u16) -> Querier<'static> {
    Querier::new(igmp_config(iface), Storage::owned(16, 64), [5; 32], ms(0))
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
