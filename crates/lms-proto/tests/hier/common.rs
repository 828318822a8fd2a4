//! What the tests of LMS-HIER share: a hierarchy with one interface up and some down, and the
//! packets that reach it.

use core::net::{Ipv4Addr, Ipv6Addr};

use igmp::datagram::{UDP_AT, finish_membership, finish_udp, membership_at, udp_at};
use igmp::wire::{RecordType, ReportWriter};
use lms_proto::hier::{Capacity, Config, Cost, Hierarchy, Storage};
use lms_proto::wire::hier::{self, Entry, Header, Kind, MAX_ENTRIES};
use lms_proto::{Duration, Family, Iface, Instant, InterfaceConfig, Key, LinkAddr, Meta};

use crate::igmp_common::Addresses;
pub(crate) use crate::igmp_common::host;

/// A family with the addresses of the links.
pub(crate) trait Net: Addresses + Family {
    /// The interface of neighbour `n` of a link.
    fn neighbour(iface: u16, n: u8) -> InterfaceConfig<Self>;
}

impl Net for Ipv4Addr {
    fn neighbour(iface: u16, n: u8) -> InterfaceConfig {
        InterfaceConfig::ipv4(host(iface, n), 24)
    }
}

impl Net for Ipv6Addr {
    fn neighbour(iface: u16, n: u8) -> InterfaceConfig<Self> {
        let address = Ipv6Addr::new(0x2001, 0xdb8, iface, 0, 0, 0, 0, n.into());
        InterfaceConfig::ipv6(address, 64, Addresses::host(iface, n))
    }
}

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
    hierarchy_of(config, capacity)
}

/// The same of either family.
pub(crate) fn hierarchy_of<A: Net>(config: Config, capacity: Capacity) -> Hierarchy<'static, A> {
    let mut h = Hierarchy::new(config, Storage::owned(capacity), [9; 32], ms(0));
    for iface in 0..4 {
        h.set_interface(ms(0), Iface(iface), A::neighbour(iface, 1))
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

pub(crate) fn hier_packet<A: Family>(source: A, header: Header, entries: &[Entry<A>]) -> Vec<u8> {
    let mut packet = vec![0; 1200];
    let message = hier::Repr { header, entries };
    let len = message
        .emit(&mut packet[udp_at::<A>()..])
        .expect("a valid message");
    let len = finish_udp(&mut packet, source, A::LINK_GROUP, hier::PORT, len).expect("room");
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

pub(crate) fn offer<A: Family>(key: Key<A>, cost: u16) -> Entry<A> {
    Entry {
        key,
        neighbour: None,
        cost: Cost(cost),
    }
}

pub(crate) fn update<A: Family>(
    source: A,
    sequence: u32,
    hold: Duration,
    entries: &[Entry<A>],
) -> Vec<u8> {
    hier_packet(source, header(Kind::Update, sequence, hold), entries)
}

pub(crate) fn report<A: Family>(
    source: A,
    records: &[(RecordType, Key<A>, Option<Cost>)],
) -> Vec<u8> {
    let mut packet = vec![0; 1500];
    let mut writer = ReportWriter::new(&mut packet[membership_at::<A>()..]).expect("room");
    for &(kind, key, cost) in records {
        let sources = (!key.is_any_source()).then_some(key.source);
        assert!(writer.push(kind, key.group, sources.into_iter(), cost));
    }
    let len = writer.finish();
    let len = finish_membership(&mut packet, source, A::REPORT_DESTINATION, len).expect("room");
    packet.truncate(len);
    packet
}

pub(crate) fn is_in<A: Family>(source: A, key: Key<A>, cost: u16) -> Vec<u8> {
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
