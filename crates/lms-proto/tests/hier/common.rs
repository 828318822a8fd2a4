//! What the tests of LMS-HIER share: a hierarchy with one interface up and some down, and the
//! packets that reach it.

use core::net::Ipv4Addr;

use igmp::datagram::{IGMP_AT, UDP_AT, finish_membership, finish_udp};
use igmp::wire::{ALL_V3_ROUTERS, RecordType, ReportWriter};
use lms_proto::hier::{Capacity, Config, Cost, Hierarchy, Storage};
use lms_proto::wire::hier::{self, Entry, Header, Kind, MAX_ENTRIES};
use lms_proto::{Duration, Iface, Instant, InterfaceConfig, Key, LinkAddr, Meta};

pub(crate) use crate::igmp_common::host;

pub(crate) const UP: Iface = Iface(0);
pub(crate) const BOOT: u32 = 0xb007_0001;

pub(crate) fn ms(ms: u64) -> Instant {
    Instant::from_micros(ms as i64 * 1_000)
}

pub(crate) fn group(n: u16) -> Key {
    let [a, b] = n.to_be_bytes();
    Key::new(Ipv4Addr::new(10, 99, 0, 1), Ipv4Addr::new(232, 1, a, b))
}

pub(crate) fn meta(iface: u16) -> Meta {
    Meta {
        iface: Iface(iface),
        link_source: Some(LinkAddr([2, 0, 0, 0, 0, iface as u8])),
    }
}

pub(crate) const CAPACITY: Capacity = Capacity {
    entries: 64,
    neighbours: 256,
    peers: 64,
    branches: 128,
    interfaces: 4,
};

/// Interface 0 up; 1, 2 and 3 down.
pub(crate) fn hierarchy(config: Config, capacity: Capacity) -> Hierarchy<'static> {
    let mut h = Hierarchy::new(config, Storage::owned(capacity), [9; 32], ms(0));
    for iface in 0..4 {
        let config = InterfaceConfig::ipv4(host(iface, 1), 24);
        h.set_interface(ms(0), Iface(iface), config)
            .expect("room for the interfaces");
    }
    h
}

pub(crate) fn header(kind: Kind, sequence: u32, hold: Duration) -> Header {
    Header {
        kind,
        boot: BOOT,
        sequence,
        hold_time_ms: hold.total_millis() as u16,
    }
}

pub(crate) fn hier_packet(source: Ipv4Addr, header: Header, entries: &[Entry]) -> Vec<u8> {
    let mut packet = vec![0; 1200];
    let message = hier::Repr { header, entries };
    let len = message
        .emit(&mut packet[UDP_AT..])
        .expect("a valid message");
    let len = finish_udp(&mut packet, source, hier::GROUP, hier::PORT, len).expect("room");
    packet.truncate(len);
    packet
}

/// The packet with another version of LMS-HIER, and without a UDP checksum.
pub(crate) fn other_version(packet: &[u8], version: u8) -> Vec<u8> {
    let mut packet = packet.to_vec();
    packet[26..28].fill(0);
    packet[UDP_AT] = version;
    packet
}

pub(crate) fn offer(key: Key, cost: u16) -> Entry {
    Entry {
        key,
        neighbour: None,
        cost: Cost(cost),
    }
}

pub(crate) fn update(
    source: Ipv4Addr,
    sequence: u32,
    hold: Duration,
    entries: &[Entry],
) -> Vec<u8> {
    hier_packet(source, header(Kind::Update, sequence, hold), entries)
}

pub(crate) fn report(source: Ipv4Addr, records: &[(RecordType, Key, Option<Cost>)]) -> Vec<u8> {
    let mut packet = vec![0; 1500];
    let mut writer = ReportWriter::new(&mut packet[IGMP_AT..]).expect("room");
    for &(kind, key, cost) in records {
        let sources = (!key.is_any_source()).then_some(key.source);
        assert!(writer.push(kind, key.group, sources.into_iter(), cost));
    }
    let len = writer.finish();
    let len = finish_membership(&mut packet, source, ALL_V3_ROUTERS, len).expect("room");
    packet.truncate(len);
    packet
}

pub(crate) fn is_in(source: Ipv4Addr, key: Key, cost: u16) -> Vec<u8> {
    report(
        source,
        &[(RecordType::ModeIsInclude, key, Some(Cost(cost)))],
    )
}

/// Returns everything that a hierarchy sends now.
pub(crate) fn drain(h: &mut Hierarchy<'_>, now: Instant) -> Vec<(Iface, Header, Vec<Entry>)> {
    let mut buffer = [0; 1500];
    let mut sent = Vec::new();
    while let Some(transmit) = h.poll_transmit(now, &mut buffer) {
        let mut entries = [Entry::EMPTY; MAX_ENTRIES];
        let message = hier::Repr::parse(&buffer[UDP_AT..transmit.len], &mut entries)
            .expect("what is sent can be read");
        sent.push((transmit.iface, message.header, message.entries.to_vec()));
    }
    sent
}

/// Runs a hierarchy until `end`; returns its messages with their times.
pub(crate) fn run(
    h: &mut Hierarchy<'_>,
    end: Instant,
) -> Vec<(Instant, Iface, Header, Vec<Entry>)> {
    let mut sent = Vec::new();
    while let Some(at) = h.poll_timeout().filter(|at| *at <= end) {
        h.handle_timeout(at);
        sent.extend(
            drain(h, at)
                .into_iter()
                .map(|(iface, header, e)| (at, iface, header, e)),
        );
    }
    sent
}

pub(crate) fn elected(h: &Hierarchy<'_>, key: Key) -> Option<(Ipv4Addr, u16)> {
    let elected = h.elected(h.find(key)?)?;
    match h.next_hop(elected.peer) {
        lms_proto::NextHop::Neighbour { addr, .. } => Some((addr, elected.cost.0)),
        lms_proto::NextHop::Group | lms_proto::NextHop::Routed => None,
    }
}
