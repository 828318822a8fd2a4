//! What the tests of both families share.

use igmp::datagram;
use igmp::wire::Message;
use igmp::{Family, Iface, Instant, LinkAddr, Meta, Storage};

use super::Addr;
use crate::packets::Addresses;

pub(crate) use crate::packets::{query_of, report_of, v3_query, v3_report, whole};

pub(crate) type Querier<'a> = igmp::Querier<'a, Addr>;
pub(crate) type Member<'a> = igmp::Member<'a, Addr>;
pub(crate) type Proxy<'a> = igmp::Proxy<'a, Addr>;

pub(crate) const GROUP: Addr = Addr::GROUP;
pub(crate) const ANY: Addr = <Addr as igmp::Address>::UNSPECIFIED;
pub(crate) const ALL_SYSTEMS: Addr = Addr::QUERY_DESTINATION;

pub(crate) fn host(iface: u16, n: u8) -> Addr {
    Addr::host(iface, n)
}

pub(crate) fn source(n: u8) -> Addr {
    Addr::source(n)
}

/// Another group than [`GROUP`].
pub(crate) fn other() -> Addr {
    Addr::group(0x0007_0707)
}

pub(crate) fn ms(ms: u64) -> Instant {
    Instant::from_micros(ms as i64 * 1_000)
}

pub(crate) fn meta(iface: u16) -> Meta {
    Meta {
        iface: Iface(iface),
        link_source: Some(LinkAddr([2, 0, 0, 0, 0, iface as u8])),
    }
}

pub(crate) fn config_of(iface: u16) -> igmp::Config<Addr> {
    igmp::Config::new(Iface(iface), Addr::interface(iface))
}

pub(crate) fn querier(iface: u16) -> Querier<'static> {
    Querier::new(config_of(iface), Storage::owned(16, 64), [5; 32], ms(0))
}

/// A query that was sent: group, sources, suppress flag, destination.
pub(crate) type Asked = (Addr, Vec<Addr>, bool, Addr);

/// The message of a packet, its destination.
pub(crate) fn read(packet: &[u8]) -> (Message<'_, Addr>, Addr) {
    let ip = datagram::parse::<Addr>(packet, Addr::PROTOCOL).expect("a packet");
    assert!(ip.has_router_alert && ip.ttl == 1);
    (Message::of(&ip).expect("a message"), ip.destination)
}

pub(crate) fn read_query(packet: &[u8]) -> Asked {
    let (Message::Query(query), to) = read(packet) else {
        panic!("not a query");
    };
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
