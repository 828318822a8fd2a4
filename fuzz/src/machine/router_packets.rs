//! The packets that the LMS router is given: requests and dmcasts of every carrier, reports and messages of LMS-HIER, and
//! what [`super::router`] reads in them.

use std::net::{Ipv4Addr, Ipv6Addr};

use igmp::datagram::{finish_membership, finish_udp, membership_at, udp_at};
use igmp::wire::{RecordType, ReportWriter};
use lms_proto::carrier::{Carrier, Class, Udp};
use lms_proto::hier::Cost;
use lms_proto::router::{Router, Verdict};
use lms_proto::wire::encap::{DmcastRepr, Placement};
use lms_proto::wire::hier::{self, Entry, Header as HierHeader, Kind as HierKind, Writer};
use lms_proto::wire::option::Body;
use lms_proto::wire::udp::{self, Ports};
use lms_proto::wire::{ipv4, ipv6};
use lms_proto::{Family, Form, Iface, Key, Kind, LmsOption, TurningPoint};

use super::igmp::Addresses;
use super::ip_packet;
use crate::script::Script;

pub(super) const IFACES: u16 = 5;
const UDP: u8 = 17;

/// A family with the packets in which only its headers differ.
pub(super) trait Net: Addresses + Family {
    /// A packet that carries a request's option.
    fn with_option(from: Self, to: Self, hops: u8, option: &LmsOption, form: Form) -> Vec<u8>;

    /// A dmcast by the option of this family, around `inner`.
    fn encapsulate(
        script: &mut Script<'_>,
        ends: (Self, Self),
        point: TurningPoint,
        inner: &[u8],
    ) -> Vec<u8>;

    /// Changes the hop limit of a packet.
    fn set_hops(packet: &mut [u8], hops: u8);

    /// A router of IPv4.
    fn ipv4<'r>(_: &'r mut Router<'static, Self>) -> Option<&'r mut Router<'static>> {
        None
    }

    /// Its verdict; of IPv6 nobody asks for it.
    fn ipv4_verdict(_: &Verdict<Self>) -> Verdict {
        Verdict::Pass
    }
}

impl Net for Ipv4Addr {
    fn with_option(from: Self, to: Self, hops: u8, option: &LmsOption, form: Form) -> Vec<u8> {
        let mut bytes = [0; 28];
        let len = option.emit(form, &mut bytes).unwrap_or(0);
        let (from, to) = (from.octets(), to.octets());
        ip_packet(from, to, UDP, hops, &bytes[..len], &[0xab; 20])
    }

    fn encapsulate(
        script: &mut Script<'_>,
        (replier, router): (Self, Self),
        point: TurningPoint,
        inner: &[u8],
    ) -> Vec<u8> {
        let repr = DmcastRepr {
            replier,
            router,
            iface: point.iface,
            cookie: point.cookie,
            form: form(script),
            placement: script.of(&[Placement::Outer, Placement::Inner]),
            ttl: 64,
            identification: 1,
        };
        let mut packet = vec![0; repr.buffer_len(inner.len())];
        match repr.emit(inner, &mut packet) {
            Ok(len) => packet.truncate(len),
            Err(_) => packet.clear(),
        }
        packet
    }

    fn set_hops(packet: &mut [u8], hops: u8) {
        packet[8] = hops;
        ipv4::fill_checksum(&mut packet[..ipv4::HEADER_LEN]);
    }

    fn ipv4<'r>(router: &'r mut Router<'static>) -> Option<&'r mut Router<'static>> {
        Some(router)
    }

    fn ipv4_verdict(verdict: &Verdict) -> Verdict {
        verdict.clone()
    }
}

impl Net for Ipv6Addr {
    fn with_option(from: Self, to: Self, hops: u8, option: &LmsOption, _: Form) -> Vec<u8> {
        let mut packet = vec![0xab; ipv6::HEADER_LEN + ipv6::OPTIONS_LEN + 20];
        let payload_len = packet.len() - ipv6::HEADER_LEN;
        ipv6::emit_header(&mut packet, payload_len, ipv6::HOP_BY_HOP, hops, from, to);
        if ipv6::emit_options(option, UDP, &mut packet[ipv6::HEADER_LEN..]).is_err() {
            packet.clear();
        }
        packet
    }

    fn encapsulate(
        _: &mut Script<'_>,
        ends: (Self, Self),
        point: TurningPoint,
        inner: &[u8],
    ) -> Vec<u8> {
        let option = LmsOption {
            kind: Kind::Dmcast,
            turning_point: Some(point),
            source: <Self as Family>::source(inner).into(),
            group: Self::destination(inner).into(),
        };
        let outer_len = Self::outer_len(Form::Own);
        let mut packet = vec![0; outer_len + inner.len()];
        packet[outer_len..].copy_from_slice(inner);
        match Self::emit_outer(&mut packet, inner.len(), 64, ends, &option, Form::Own) {
            Ok(()) => packet,
            Err(_) => Vec::new(),
        }
    }

    fn set_hops(packet: &mut [u8], hops: u8) {
        packet[7] = hops;
    }
}

pub(super) fn key<A: Net>(script: &mut Script<'_>) -> Key<A> {
    let group = A::group(script.u8() % 4);
    match script.u8() % 4 {
        0 => Key::any_source(group),
        n => Key::new(A::address(1, n), group),
    }
}

pub(super) fn iface(script: &mut Script<'_>) -> Iface {
    Iface(u16::from(script.u8()) % (IFACES + 2))
}

/// An address of a host or router on one of the links.
fn any_address<A: Net>(script: &mut Script<'_>) -> A {
    A::address(u16::from(script.u8() % 6), script.u8())
}

fn form(script: &mut Script<'_>) -> Form {
    script.of(&[Form::Classic, Form::Own])
}

fn turning_point<A: Net>(script: &mut Script<'_>) -> TurningPoint {
    TurningPoint {
        router: A::interface(u16::from(script.u8() % 6)).address.into(),
        iface: iface(script),
        cookie: 0,
    }
}

/// A datagram of the UDP carrier, from its port and to it; empty where the option cannot be written.
fn datagram<A: Net>(
    (from, to): (A, A),
    hops: (u8, u8),
    option: &LmsOption,
    payload: &[u8],
) -> Vec<u8> {
    let ports = Ports {
        source: 4000,
        group: 5000,
    };
    let mut packet = vec![0; udp_at::<A>()];
    let Ok(header) = udp::Header::<A>::of(option, hops.1, ports) else {
        return Vec::new();
    };
    packet.resize(udp_at::<A>() + udp::Header::<A>::LEN, 0);
    if header.emit(&mut packet[udp_at::<A>()..]).is_err() {
        return Vec::new();
    }
    packet.extend_from_slice(payload);
    let len = packet.len() - udp_at::<A>();
    if finish_udp(&mut packet, from, to, udp::PORT, len).is_none() {
        return Vec::new();
    }
    A::set_hops(&mut packet, hops.0);
    packet
}

pub(super) fn request<A: Net>(script: &mut Script<'_>) -> Vec<u8> {
    let key = key::<A>(script);
    let turned = script.flag();
    let option = LmsOption {
        kind: Kind::Request,
        turning_point: turned.then(|| turning_point::<A>(script)),
        source: key.source.into(),
        group: key.group.into(),
    };
    let hops = script.of(&[64, 1, 2, 0, 255]);
    let from = any_address(script);
    if script.flag() {
        let to = if turned { A::LINK_GROUP } else { key.source };
        datagram((from, to), (hops, 0), &option, &[0xab; 20])
    } else {
        A::with_option(from, key.group, hops, &option, form(script))
    }
}

/// A repair for this turning point.
pub(super) fn answer<A: Net>(
    script: &mut Script<'_>,
    key: Key<A>,
    point: TurningPoint,
    from: A,
) -> Vec<u8> {
    let to = A::from_ip(point.router).unwrap_or(A::UNSPECIFIED);
    let hops = script.of(&[64, 1, 2]);
    if script.flag() {
        let option = LmsOption {
            kind: Kind::Dmcast,
            turning_point: Some(point),
            source: key.source.into(),
            group: key.group.into(),
        };
        return datagram((from, to), (64, hops), &option, script.bytes());
    }
    let payload = script.bytes();
    let mut inner = vec![0; A::IP_HEADER_LEN + payload.len()];
    inner[A::IP_HEADER_LEN..].copy_from_slice(payload);
    A::write_ip(&mut inner, payload.len(), UDP, hops, key.source, key.group);
    A::encapsulate(script, (from, to), point, &inner)
}

/// A dmcast that nothing is known to have asked for.
pub(super) fn dmcast<A: Net>(script: &mut Script<'_>) -> Vec<u8> {
    let key = key::<A>(script);
    let point = TurningPoint {
        cookie: script.u8().into(),
        ..turning_point::<A>(script)
    };
    answer(script, key, point, A::address(2, 9))
}

pub(super) fn hier_message<A: Net>(script: &mut Script<'_>) -> Vec<u8> {
    let from = A::host(u16::from(script.u8() % 6), script.u8());
    let header = HierHeader {
        kind: script.of(&[HierKind::Update, HierKind::Elected]),
        boot: script.u8().into(),
        sequence: script.u32(),
        hold_time_ms: script.u16(),
    };
    let mut packet = vec![0; 1500];
    let Some(mut writer) = Writer::<A>::new(&mut packet[udp_at::<A>()..]) else {
        return packet;
    };
    for _ in 0..script.pick(6) {
        let neighbour = script.flag().then(|| A::host(2, script.u8()));
        let cost = if header.kind == HierKind::Elected && neighbour.is_none() {
            Cost::WITHDRAWN
        } else {
            Cost(script.u16())
        };
        let neighbour = neighbour.filter(|_| header.kind == HierKind::Elected);
        let key = key(script);
        writer.push(&Entry {
            key,
            neighbour,
            cost,
        });
    }
    let len = writer.finish(&header);
    let len = finish_udp(&mut packet, from, A::LINK_GROUP, hier::PORT, len);
    packet.truncate(len.unwrap_or(0));
    packet
}

/// A report with costs, as hosts send it.
pub(super) fn report<A: Addresses>(script: &mut Script<'_>, from: A) -> Vec<u8> {
    let mut packet = vec![0; 1500];
    let Some(mut writer) = ReportWriter::new(&mut packet[membership_at::<A>()..]) else {
        return packet;
    };
    for _ in 0..script.pick(6) {
        let kind = RecordType::from(script.u8() % 8);
        let group = A::group(script.u8() % 4);
        let sources = (0..script.u8() % 5).map(A::source);
        let cost = script.flag().then(|| Cost(script.u16()));
        writer.push(kind, group, sources, cost);
    }
    let len = writer.finish();
    let len = finish_membership(&mut packet, from, A::REPORT_DESTINATION, len);
    packet.truncate(len.unwrap_or(0));
    packet
}

/// A request as a packet says it.
pub(super) struct Seen<A> {
    pub key: Key<A>,
    pub is_datagram: bool,
    pub is_turned: bool,
    pub destination: A,
    pub body: Body<A>,
    /// `None` in the classic form.
    pub cookie: Option<u64>,
}

/// The request in a packet, if it is one for a router with this port.
pub(super) fn seen<A: Net>(packet: &[u8], udp_port: Option<u16>) -> Option<Seen<A>> {
    match udp_port.filter(|&port| Udp::<A>::is_to(packet, port)) {
        Some(_) => seen_by::<Udp<A>>(packet, true),
        None => seen_by::<A::Option>(packet, false),
    }
}

fn seen_by<C: Carrier>(packet: &[u8], is_datagram: bool) -> Option<Seen<C::Address>> {
    let Ok(Class::Request(request)) = C::classify(packet) else {
        return None;
    };
    let request = request.read::<C::Address>(packet)?;
    let cookie = |at: usize| packet[at..].first_chunk().map(|b| u64::from_be_bytes(*b));
    Some(Seen {
        key: request.key,
        is_datagram,
        is_turned: request.turned,
        destination: request.destination,
        body: Body::read(&packet[request.turn_at.body_at..])?,
        cookie: request.turn_at.cookie_at.and_then(cookie),
    })
}

/// The cookie of a dmcast; `Some(None)` in the classic form.
pub(super) fn cookie_of<A: Net>(packet: &[u8], udp_port: Option<u16>) -> Option<Option<u64>> {
    match udp_port.filter(|&port| Udp::<A>::is_to(packet, port)) {
        Some(_) => cookie_by::<Udp<A>>(packet),
        None => cookie_by::<A::Option>(packet),
    }
}

fn cookie_by<C: Carrier>(packet: &[u8]) -> Option<Option<u64>> {
    let Ok(Class::Encapsulated(outer)) = C::classify(packet) else {
        return None;
    };
    Some(C::open(packet, outer).ok()??.cookie)
}

/// Whether the UDP checksum of a whole datagram holds; `None` where it has none.
pub(super) fn checksum_holds<A: Net>(packet: &[u8]) -> Option<bool> {
    let ip = A::read_ip(packet).ok()?;
    let datagram = packet.get(ip.payload)?;
    if datagram.get(6..8)? == [0, 0] {
        return None;
    }
    let words = |bytes: &[u8]| -> u64 {
        let word = |pair: &[u8]| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |&b| b.into());
        bytes.chunks(2).map(word).sum()
    };
    let addresses = words(ip.source.octets().as_ref()) + words(ip.destination.octets().as_ref());
    let sum = words(datagram) + addresses + u64::from(UDP) + datagram.len() as u64;
    Some(sum.is_multiple_of(0xffff))
}
