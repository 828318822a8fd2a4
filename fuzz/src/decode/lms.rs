//! LMS: the option, IPv4 headers around it, LMS-HIER, IGMP.

use std::net::{Ipv4Addr, Ipv6Addr};

use igmp::Family;
use igmp::datagram::{self, Ip};
use igmp::wire::Message;
use lms_proto::wire::encap::{decapsulate, open_inner, open_outer};
use lms_proto::wire::found::Turn;
use lms_proto::wire::hier::{self, Entry, MAX_ENTRIES, Repr};
use lms_proto::wire::ipv4::{self, Layout};
use lms_proto::wire::{ipv6, udp};
use lms_proto::{Iface, LmsOption};

/// The option alone, as ancillary data, and as a datagram of the UDP carrier, in both families.
pub fn option(bytes: &[u8]) {
    option_of::<Ipv4Addr>(bytes);
    option_of::<Ipv6Addr>(bytes);
    if let Ok(layout) = ipv6::Layout::check(bytes) {
        let _ = ipv6::find_lms(bytes, layout);
    }
}

fn option_of<A: lms_proto::Family>(bytes: &[u8]) {
    if let Ok((form, option)) = LmsOption::parse::<A>(bytes) {
        let mut out = [0; 64];
        let len = option
            .emit(form, &mut out)
            .expect("what parses can be written");
        assert_eq!(out[..len], bytes[..len]);
    }
    let _ = A::find_option(bytes);
    if let Ok(header) = udp::Header::<A>::parse(bytes) {
        let mut out = [0; 66];
        let len = header.emit(&mut out).expect("what parses can be written");
        assert_eq!(udp::Header::parse(&out[..len]), Ok(header));
        let again = udp::Header::of(&header.option(), header.hop_limit, header.ports);
        assert_eq!(again, Ok(header), "as an option it says the same");
    }
}

/// Headers, options among others, and the edits that a router makes in place.
pub fn ipv4(bytes: &[u8]) {
    let Ok(layout) = Layout::check(bytes) else {
        return;
    };
    let header = &bytes[..layout.header_len];
    for option in ipv4::Options::new(header).flatten() {
        assert!(option.at >= ipv4::HEADER_LEN && option.at + option.len <= layout.header_len);
    }
    if let Ok(inner) = open_outer(bytes, layout) {
        let mut copy = bytes.to_vec();
        let at = decapsulate(&mut copy, &inner);
        Layout::check(&copy[at]).expect("what is inside was checked");
    }
    if let Ok(Some((_, inner))) = open_inner(bytes, layout) {
        let mut copy = bytes.to_vec();
        let at = decapsulate(&mut copy, &inner);
        let inner = &copy[at];
        let layout = Layout::check(inner).expect("what is inside was checked");
        assert!(
            ipv4::checksum_ok(&inner[..layout.header_len]),
            "kept up to date"
        );
    }
    edits(bytes, layout);
}

fn edits(bytes: &[u8], layout: Layout) {
    let mut packet = bytes[..layout.total_len].to_vec();
    ipv4::fill_checksum(&mut packet[..layout.header_len]);
    let good = |packet: &[u8]| {
        let layout = Layout::check(packet).expect("still a packet");
        assert!(ipv4::checksum_ok(&packet[..layout.header_len]));
    };
    good(&packet);
    ipv4::decrement_ttl(&mut packet);
    good(&packet);
    let Ok(Some(found)) = ipv4::find_lms(&packet[..layout.header_len]) else {
        return;
    };
    let turn = Turn {
        router: [10, 0, 0, 9].into(),
        number: Iface(7),
        cookie: 9,
    };
    ipv4::set_turning_point(&mut packet, found.turn_at, &turn);
    good(&packet);
    let again = ipv4::find_lms(&packet[..layout.header_len]);
    let again = again.expect("still well-formed").expect("still there");
    assert_eq!(
        (again.body.turning_iface, again.body.group),
        (Iface(7), found.body.group)
    );
    let start = ipv4::strip_option(&mut packet, found.option);
    good(&packet[start..]);
}

/// LMS-HIER messages: what parses is written back byte by byte.
pub fn hier(bytes: &[u8]) {
    hier_of::<Ipv4Addr>(bytes);
    hier_of::<Ipv6Addr>(bytes);
}

fn hier_of<A: lms_proto::Family>(bytes: &[u8]) {
    let mut entries = [Entry::<A>::EMPTY; MAX_ENTRIES];
    let Ok(repr) = Repr::parse(bytes, &mut entries) else {
        return;
    };
    let mut out = [0; hier::MAX_LEN];
    let len = repr.emit(&mut out).expect("what parses can be written");
    assert_eq!(&out[..len], bytes);
}

/// IGMP messages, alone and in their datagrams.
pub fn igmp(bytes: &[u8]) {
    packet::<Ipv4Addr>(bytes);
}

/// MLD messages, alone and in their datagrams.
pub fn mld(bytes: &[u8]) {
    packet::<Ipv6Addr>(bytes);
}

fn packet<A: Family>(bytes: &[u8]) {
    if let Some(ip) = datagram::parse::<A>(bytes, A::PROTOCOL) {
        message(&ip);
    }
    if let Some(ip) = datagram::parse::<A>(bytes, 17)
        && let Some(payload) = datagram::udp_payload(&ip, hier::PORT)
    {
        hier(payload);
    }
    message(&Ip {
        source: A::UNSPECIFIED,
        destination: A::REPORT_DESTINATION,
        ttl: 1,
        has_router_alert: true,
        payload: bytes,
    });
}

fn message<A: Family>(ip: &Ip<'_, A>) {
    let Ok(parsed) = Message::of(ip) else {
        return;
    };
    if let Message::V3Report(records) = &parsed {
        assert_eq!(records.iter().count(), records.len());
        for record in records.iter() {
            let _ = (record.cost(), record.sources.iter().count());
        }
        return; // written by `ReportWriter`, record by record
    }
    // Bytes behind the message are not its own, and a fuzzer's checksum may be any.
    let at = datagram::membership_at::<A>();
    let mut out = vec![0; at + parsed.buffer_len()];
    let len = parsed
        .emit(&mut out[at..])
        .expect("what parses can be written");
    datagram::finish_membership(&mut out, ip.source, ip.destination, len).expect("room");
    let again = datagram::parse::<A>(&out, A::PROTOCOL).expect("a packet");
    assert_eq!(Message::of(&again), Ok(parsed));
}
