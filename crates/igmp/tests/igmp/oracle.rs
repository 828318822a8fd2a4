//! Other implementations read what we write, and we read what they write: `pnet_packet` for IP, UDP and ICMPv6 headers and
//! checksums, smoltcp for MLD and older IGMP messages. `pnet_packet` knows neither IGMP nor MLD.

use core::net::{Ipv4Addr, Ipv6Addr};

use igmp::Family;
use igmp::datagram::{self, finish_membership, finish_udp, membership_at, udp_at};
use igmp::wire::{Code, Message, MldCode, Query, QueryV3, RecordType, Sources};
use pnet_packet::icmpv6::{self, Icmpv6Packet};
use pnet_packet::ip::IpNextHeaderProtocols;
use pnet_packet::ipv4::{self, Ipv4Packet, MutableIpv4Packet};
use pnet_packet::ipv6::{HopByHopPacket, Ipv6Packet, MutableIpv6Packet};
use pnet_packet::udp::{self, MutableUdpPacket, UdpPacket};
use pnet_packet::{Packet, util};
use proptest::prelude::*;
use smoltcp::wire::{
    IgmpPacket, IgmpRepr, IgmpVersion, MldAddressRecord, MldAddressRecordRepr, MldRecordType,
    MldRepr,
};

use crate::packets::{Addresses, whole};

const V4: (Ipv4Addr, Ipv4Addr) = (Ipv4Addr::new(10, 0, 1, 7), Ipv4Addr::new(224, 0, 0, 22));

fn v6() -> (Ipv6Addr, Ipv6Addr) {
    (Ipv6Addr::host(1, 7), Ipv6Addr::REPORT_DESTINATION)
}

#[test]
fn igmp_headers_are_those_that_pnet_reads() {
    let packet = whole(V4.0, V4.1, &Message::V2Report(Ipv4Addr::GROUP));
    let ip = Ipv4Packet::new(&packet).unwrap();
    assert_eq!((ip.get_source(), ip.get_destination()), V4);
    assert_eq!((ip.get_version(), ip.get_header_length()), (4, 6));
    assert_eq!(usize::from(ip.get_total_length()), packet.len());
    assert_eq!((ip.get_ttl(), ip.get_dscp(), ip.get_ecn()), (1, 48, 0));
    assert_eq!((ip.get_flags(), ip.get_fragment_offset()), (2, 0));
    assert_eq!(ip.get_next_level_protocol(), IpNextHeaderProtocols::Igmp);
    assert_eq!(ip.get_checksum(), ipv4::checksum(&ip));
    assert_eq!(ip.get_options_raw(), [0x94, 4, 0, 0]);
    let message = ip.payload();
    let checksum = u16::from_be_bytes([message[2], message[3]]);
    assert_eq!(checksum, util::checksum(message, 1));
}

#[test]
fn mld_headers_are_those_that_pnet_reads() {
    let packet = whole(v6().0, v6().1, &Message::V2Report(Ipv6Addr::GROUP));
    let ip = Ipv6Packet::new(&packet).unwrap();
    assert_eq!((ip.get_source(), ip.get_destination()), v6());
    assert_eq!((ip.get_version(), ip.get_traffic_class()), (6, 0xc0));
    assert_eq!((ip.get_flow_label(), ip.get_hop_limit()), (0, 1));
    assert_eq!(usize::from(ip.get_payload_length()) + 40, packet.len());
    assert_eq!(ip.get_next_header(), IpNextHeaderProtocols::Hopopt);
    let options = HopByHopPacket::new(ip.payload()).unwrap();
    assert_eq!(options.get_next_header(), IpNextHeaderProtocols::Icmpv6);
    assert_eq!(options.get_hdr_ext_len(), 0);
    assert_eq!(options.payload(), [5, 2, 0, 0, 1, 0]);
    let message = Icmpv6Packet::new(&packet[48..]).unwrap();
    assert_eq!(
        (message.get_icmpv6_type().0, message.get_icmpv6_code().0),
        (131, 0)
    );
    let checksum = icmpv6::checksum(&message, &v6().0, &v6().1);
    assert_eq!(message.get_checksum(), checksum);
}

#[test]
fn messages_in_packets_of_pnet_are_read() {
    let mut packet = whole(V4.0, V4.1, &Message::V2Leave(Ipv4Addr::GROUP));
    packet.drain(..24);
    packet.splice(..0, [0; 20]);
    let len = packet.len();
    let mut ip = MutableIpv4Packet::new(&mut packet).unwrap();
    ip.set_version(4);
    ip.set_header_length(5);
    ip.set_total_length(len as u16);
    ip.set_ttl(1);
    ip.set_next_level_protocol(IpNextHeaderProtocols::Igmp);
    ip.set_source(V4.0);
    ip.set_destination(V4.1);
    ip.set_checksum(ipv4::checksum(&ip.to_immutable()));
    let ip = datagram::parse::<Ipv4Addr>(&packet, 2).unwrap();
    assert_eq!((ip.source, ip.destination, ip.ttl), (V4.0, V4.1, 1));
    assert!(!ip.has_router_alert);
    assert_eq!(Message::of(&ip), Ok(Message::V2Leave(Ipv4Addr::GROUP)));

    let mut packet = whole(v6().0, v6().1, &Message::V2Leave(Ipv6Addr::GROUP));
    packet.drain(40..48);
    packet[..40].fill(0);
    let len = packet.len();
    let mut ip = MutableIpv6Packet::new(&mut packet).unwrap();
    ip.set_version(6);
    ip.set_payload_length((len - 40) as u16);
    ip.set_next_header(IpNextHeaderProtocols::Icmpv6);
    ip.set_hop_limit(1);
    ip.set_source(v6().0);
    ip.set_destination(v6().1);
    let ip = datagram::parse::<Ipv6Addr>(&packet, 58).unwrap();
    assert_eq!((ip.source, ip.destination, ip.ttl), (v6().0, v6().1, 1));
    assert!(!ip.has_router_alert);
    assert_eq!(Message::of(&ip), Ok(Message::V2Leave(Ipv6Addr::GROUP)));
}

/// What smoltcp reads of a query that we write.
fn smoltcp_query(packet: &[u8]) -> MldRepr<'_> {
    let message = smoltcp::wire::Icmpv6Packet::new_checked(&packet[48..]).unwrap();
    assert!(message.verify_checksum(&v6().0, &v6().1));
    MldRepr::parse(&message).unwrap()
}

#[test]
fn mld_messages_are_those_that_smoltcp_reads() {
    let sources = [Ipv6Addr::source(1).octets(), Ipv6Addr::source(2).octets()];
    let query = Message::Query(Query {
        group: Ipv6Addr::GROUP,
        max_response: MldCode(0x9abc),
        v3: Some(QueryV3 {
            suppress: true,
            robustness: 3,
            interval: Code(200),
            sources: Sources::from_octets(&sources),
        }),
    });
    let packet = whole(v6().0, v6().1, &query);
    let expected = MldRepr::Query {
        max_resp_code: 0x9abc,
        mcast_addr: Ipv6Addr::GROUP,
        s_flag: true,
        qrv: 3,
        qqic: 200,
        num_srcs: 2,
        data: sources.as_flattened(),
    };
    assert_eq!(smoltcp_query(&packet), expected);

    let packet = crate::packets::v3_report(v6().0, RecordType::ChangeToExclude, &[1, 2]);
    let MldRepr::Report {
        nr_mcast_addr_rcrds: 1,
        data,
    } = smoltcp_query(&packet)
    else {
        panic!("a report of one record");
    };
    let record =
        MldAddressRecordRepr::parse(&MldAddressRecord::new_checked(data).unwrap()).unwrap();
    let expected = MldAddressRecordRepr {
        record_type: MldRecordType::ChangeToExclude,
        aux_data_len: 0,
        num_srcs: 2,
        mcast_addr: Ipv6Addr::GROUP,
        payload: sources.as_flattened(),
    };
    assert_eq!(record, expected);
}

#[test]
fn mld_reports_of_smoltcp_are_read() {
    let records = [Ipv6Addr::GROUP, Ipv6Addr::group(5)]
        .map(|group| MldAddressRecordRepr::new(MldRecordType::ModeIsExclude, group));
    let repr = MldRepr::ReportRecordReprs(&records);
    let len = repr.buffer_len()
        + records
            .iter()
            .map(MldAddressRecordRepr::buffer_len)
            .sum::<usize>();
    let at = membership_at::<Ipv6Addr>();
    let mut packet = vec![0; at + len];
    repr.emit(&mut smoltcp::wire::Icmpv6Packet::new_unchecked(
        &mut packet[at..],
    ));
    finish_membership(&mut packet, v6().0, v6().1, len).unwrap();
    let ip = datagram::parse(&packet, 58).unwrap();
    let Ok(Message::V3Report(read)) = Message::<Ipv6Addr>::of(&ip) else {
        panic!("a report");
    };
    let read: Vec<_> = read
        .iter()
        .map(|record| (record.kind, record.group))
        .collect();
    let kind = RecordType::ModeIsExclude;
    assert_eq!(read, [(kind, Ipv6Addr::GROUP), (kind, Ipv6Addr::group(5))]);
}

#[test]
fn older_igmp_messages_are_those_that_smoltcp_reads() {
    let group_addr = Ipv4Addr::GROUP;
    let report = |version| IgmpRepr::MembershipReport {
        group_addr,
        version,
    };
    let cases = [
        (Message::V1Report(group_addr), report(IgmpVersion::Version1)),
        (Message::V2Report(group_addr), report(IgmpVersion::Version2)),
        (
            Message::V2Leave(group_addr),
            IgmpRepr::LeaveGroup { group_addr },
        ),
    ];
    for (message, repr) in cases {
        let mut bytes = [0; 8];
        message.emit(&mut bytes).unwrap();
        let packet = IgmpPacket::new_checked(&bytes[..]).unwrap();
        assert_eq!(IgmpRepr::parse(&packet).as_ref(), Ok(&repr));
        let mut theirs = [0; 8];
        repr.emit(&mut IgmpPacket::new_unchecked(&mut theirs[..]));
        assert_eq!(Message::parse(&theirs), Ok(message));
    }
}

const PORT: u16 = 4_143;

fn written<A: Addresses>(source: A, destination: A, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; udp_at::<A>()];
    packet.extend_from_slice(payload);
    let len = finish_udp(&mut packet, source, destination, PORT, payload.len());
    assert_eq!(len, Some(packet.len()));
    packet
}

/// A datagram that `pnet_packet` writes, without the checksum.
fn theirs(payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 8 + payload.len()];
    let len = bytes.len();
    let mut datagram = MutableUdpPacket::new(&mut bytes).unwrap();
    datagram.set_source(PORT);
    datagram.set_destination(PORT);
    datagram.set_length(len as u16);
    datagram.set_payload(payload);
    bytes
}

proptest! {
    #[test]
    fn udp_over_ipv4(payload in prop::collection::vec(any::<u8>(), 0..300), n in any::<u8>()) {
        let (from, to) = (Ipv4Addr::host(n.into(), n), Ipv4Addr::LOCAL_GROUP);
        let packet = written(from, to, &payload);
        let ip = Ipv4Packet::new(&packet).unwrap();
        prop_assert_eq!((ip.get_checksum(), ip.get_ttl()), (ipv4::checksum(&ip), 1));
        let datagram = UdpPacket::new(ip.payload()).unwrap();
        let ports = (datagram.get_source(), datagram.get_destination());
        prop_assert_eq!((ports, datagram.payload()), ((PORT, PORT), &payload[..]));
        let sum = match udp::ipv4_checksum(&datagram, &from, &to) {
            0 => 0xffff,
            sum => sum,
        };
        prop_assert_eq!(datagram.get_checksum(), sum);

        let mut other = theirs(&payload);
        for sum in [sum, 0] {
            other[6..8].copy_from_slice(&sum.to_be_bytes());
            let packet = [&packet[..20], &other].concat();
            let ip = datagram::parse::<Ipv4Addr>(&packet, 17).unwrap();
            prop_assert_eq!(datagram::udp_payload(&ip, PORT), Some(&payload[..]));
        }
    }

    #[test]
    fn udp_over_ipv6(payload in prop::collection::vec(any::<u8>(), 0..300), n in any::<u8>()) {
        let (from, to) = (Ipv6Addr::host(n.into(), n), Ipv6Addr::LOCAL_GROUP);
        let packet = written(from, to, &payload);
        let ip = Ipv6Packet::new(&packet).unwrap();
        prop_assert_eq!((ip.get_next_header(), ip.get_hop_limit()), (IpNextHeaderProtocols::Udp, 1));
        let datagram = UdpPacket::new(ip.payload()).unwrap();
        let ports = (datagram.get_source(), datagram.get_destination());
        prop_assert_eq!((ports, datagram.payload()), ((PORT, PORT), &payload[..]));
        let sum = match udp::ipv6_checksum(&datagram, &from, &to) {
            0 => 0xffff,
            sum => sum,
        };
        prop_assert_eq!(datagram.get_checksum(), sum);

        let mut other = theirs(&payload);
        // Over IPv6 there is no datagram without a checksum (RFC 8200 §8.1).
        for (sum, expected) in [(sum, Some(&payload[..])), (0, None)] {
            other[6..8].copy_from_slice(&sum.to_be_bytes());
            let packet = [&packet[..40], &other].concat();
            let ip = datagram::parse::<Ipv6Addr>(&packet, 17).unwrap();
            prop_assert_eq!(datagram::udp_payload(&ip, PORT), expected);
        }
    }
}
