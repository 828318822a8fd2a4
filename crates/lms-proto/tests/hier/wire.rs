//! Goldens of LMS-HIER and IGMP messages, both ways; truncations, bit flips, round trips.

use core::net::Ipv4Addr;

use lms_proto::Key;
use lms_proto::hier::Cost;
use lms_proto::igmp::datagram::{HIER_AT, IGMP_AT, finish_hier, finish_igmp};
use lms_proto::wire::hier::{
    self, EmitError, Entry, Header, Kind, MAX_ENTRIES, ParseError, Repr, View,
};
use lms_proto::wire::igmp::{
    self, ALL_V3_ROUTERS, Code, Message, Query, QueryV3, RecordType, ReportWriter, Sources,
};
use proptest::prelude::*;

const UPDATE: &[u8] = &[
    1, 1, 0x4c, 0x4d, // version, UPDATE, identifier
    0xde, 0xad, 0xbe, 0xef, // boot
    0, 0, 0, 42, // sequence
    0x88, 0xb8, 0, 2, // hold 35,000 ms, 2 entries
    10, 0, 9, 1, 232, 1, 1, 1, 0, 0, 0, 0, 0, 4, 0, 0, // cost 4
    0, 0, 0, 0, 239, 1, 2, 3, 0, 0, 0, 0, 0xff, 0xff, 0, 0, // withdrawn
];

const ELECTED: &[u8] = &[
    1, 2, 0x4c, 0x4d, 0, 0, 0, 7, 0xff, 0xff, 0xff, 0xff, 1, 0x5e, 0, 2, // hold 350 ms
    10, 0, 9, 1, 232, 1, 1, 1, 10, 0, 1, 7, 0, 3, 0, 0, // 10.0.1.7 at cost 3
    10, 0, 9, 1, 232, 1, 1, 2, 0, 0, 0, 0, 0xff, 0xff, 0, 0, // nobody here
];

fn key(source: [u8; 4], group: [u8; 4]) -> Key {
    Key::new(source.into(), group.into())
}

fn update() -> (Header, [Entry; 2]) {
    let header = Header {
        kind: Kind::Update,
        boot: 0xdead_beef,
        sequence: 42,
        hold_time_ms: 35_000,
    };
    let first = Entry {
        key: key([10, 0, 9, 1], [232, 1, 1, 1]),
        neighbour: None,
        cost: Cost(4),
    };
    let shared = Key::any_source(Ipv4Addr::new(239, 1, 2, 3));
    (
        header,
        [
            first,
            Entry {
                key: shared,
                neighbour: None,
                cost: Cost::WITHDRAWN,
            },
        ],
    )
}

fn elected() -> (Header, [Entry; 2]) {
    let header = Header {
        kind: Kind::Elected,
        boot: 7,
        sequence: u32::MAX,
        hold_time_ms: 350,
    };
    let who = Some(Ipv4Addr::new(10, 0, 1, 7));
    let first = Entry {
        key: key([10, 0, 9, 1], [232, 1, 1, 1]),
        neighbour: who,
        cost: Cost(3),
    };
    let second = Entry {
        key: key([10, 0, 9, 1], [232, 1, 1, 2]),
        neighbour: None,
        cost: Cost::WITHDRAWN,
    };
    (header, [first, second])
}

#[test]
fn golden_hier_messages() {
    for (golden, (header, entries)) in [(UPDATE, update()), (ELECTED, elected())] {
        let repr = Repr {
            header,
            entries: &entries,
        };
        let mut bytes = [0xa5; hier::MAX_LEN];
        assert_eq!(repr.emit(&mut bytes), Ok(golden.len()));
        assert_eq!(&bytes[..golden.len()], golden);
        assert_eq!(repr.buffer_len(), golden.len());
        let mut room = [Entry::EMPTY; MAX_ENTRIES];
        assert_eq!(Repr::parse(golden, &mut room), Ok(repr));
        assert_eq!(
            repr.emit(&mut bytes[..golden.len() - 1]),
            Err(EmitError::Space)
        );
    }
}

#[test]
fn hier_truncations_and_flips() {
    for golden in [UPDATE, ELECTED] {
        for len in 0..golden.len() {
            assert_eq!(
                View::new_checked(&golden[..len]).unwrap_err(),
                ParseError::Truncated
            );
        }
        let mut longer = golden.to_vec();
        longer.push(0);
        assert_eq!(
            View::new_checked(&longer).unwrap_err(),
            ParseError::Trailing
        );
        for bit in 0..golden.len() * 8 {
            let mut bytes = golden.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            // What is accepted is what it says: written again it is the same bytes.
            let mut room = [Entry::EMPTY; MAX_ENTRIES];
            if let Ok(repr) = Repr::parse(&bytes, &mut room) {
                let mut again = [0; hier::MAX_LEN];
                let len = repr.emit(&mut again).unwrap();
                assert_eq!(&again[..len], bytes, "bit {bit}");
            }
        }
    }
}

#[test]
fn each_hier_error() {
    let cases: &[(usize, u8, ParseError)] = &[
        (0, 2, ParseError::Version),
        (1, 0, ParseError::Type),
        (1, 3, ParseError::Type),
        (2, 0, ParseError::Identifier),
        (15, 0, ParseError::Count),
        (15, 65, ParseError::Count),
        (14, 1, ParseError::Count),
        (15, 3, ParseError::Truncated),
        (15, 1, ParseError::Trailing),
        (16, 224, ParseError::Address),
        (20, 10, ParseError::Address),
        (24, 10, ParseError::Neighbour),
        (31, 1, ParseError::Reserved),
    ];
    for (at, value, error) in cases {
        let mut bytes = UPDATE.to_vec();
        bytes[*at] = *value;
        assert_eq!(
            View::new_checked(&bytes).unwrap_err(),
            *error,
            "byte {at} = {value}"
        );
    }
    let mut bytes = UPDATE.to_vec();
    bytes[12..14].fill(0);
    assert_eq!(View::new_checked(&bytes).unwrap_err(), ParseError::HoldTime);
    let mut bytes = ELECTED.to_vec();
    bytes[28..30].fill(0xff);
    assert_eq!(
        View::new_checked(&bytes).unwrap_err(),
        ParseError::Neighbour
    );
}

#[test]
fn golden_hier_packet() {
    let mut packet = vec![0xa5; HIER_AT];
    packet.extend_from_slice(UPDATE);
    let len = finish_hier(
        &mut packet,
        Ipv4Addr::new(10, 0, 1, 2),
        hier::GROUP,
        hier::PORT,
        48,
    );
    assert_eq!(len, Some(76));
    let golden = [
        0x45, 0xc0, 0, 76, 0, 0, 0x40, 0, 1, 17, 0x8c, 0xe1, 10, 0, 1, 2, 224, 0, 0,
        254, // IPv4
        0x10, 0x2a, 0x10, 0x2a, 0, 56, // UDP 4138 to 4138
    ];
    assert_eq!(packet[..golden.len()], golden);
    let ip = smoltcp::wire::Ipv4Packet::new_checked(&packet[..]).unwrap();
    let udp = smoltcp::wire::UdpPacket::new_checked(ip.payload()).unwrap();
    assert!(ip.verify_checksum());
    assert!(udp.verify_checksum(&ip.src_addr().into(), &ip.dst_addr().into()));
}

/// IS_IN (232.1.1.1, {10.0.9.1}) at replier cost 5, as an endpoint sends it.
const COST_REPORT: &[u8] = &[
    0x22, 0, 0x94, 0xa6, 0, 0, 0, 1, // report, checksum, one record
    1, 1, 0, 1, 232, 1, 1, 1, // MODE_IS_INCLUDE, 1 word of auxiliary data, 1 source
    10, 0, 9, 1, // the source
    0x4c, 0x4d, 0, 5, // identifier, cost
];

const V3_QUERY: &[u8] = &[
    0x11, 10, 0xcd, 0x6e, 239, 1, 2, 3, // query, 1 s, checksum, group
    0x0a, 125, 0, 2, // S, QRV 2, QQIC 125, 2 sources
    10, 0, 9, 1, 10, 0, 9, 2,
];

#[test]
fn golden_igmp_report_with_cost() {
    let group = Ipv4Addr::new(232, 1, 1, 1);
    let source = Ipv4Addr::new(10, 0, 9, 1);
    let mut bytes = [0xa5; 64];
    let mut writer = ReportWriter::new(&mut bytes).unwrap();
    let sources = core::iter::once(source);
    assert!(writer.push(RecordType::ModeIsInclude, group, sources, Some(Cost(5))));
    let len = writer.finish();
    assert_eq!(&bytes[..len], COST_REPORT);
    let Ok(Message::V3Report(records)) = Message::parse(COST_REPORT) else {
        panic!("a report");
    };
    let all: Vec<_> = records.iter().collect();
    assert_eq!(
        (all.len(), all[0].kind, all[0].group),
        (1, RecordType::ModeIsInclude, group)
    );
    assert_eq!(
        (all[0].sources.iter().next(), all[0].cost()),
        (Some(source), Some(Cost(5)))
    );
    let mut again = [0; 64];
    let len = Message::V3Report(records).emit(&mut again).unwrap();
    assert_eq!(&again[..len], COST_REPORT);

    let mut packet = vec![0; IGMP_AT];
    packet.extend_from_slice(COST_REPORT);
    let len = finish_igmp(&mut packet, Ipv4Addr::new(10, 0, 1, 7), ALL_V3_ROUTERS, 24);
    assert_eq!(len, Some(48));
    let golden = [
        0x46, 0xc0, 0, 48, 0, 0, 0x40, 0, 1, 2, 0xf8, 0xea, 10, 0, 1, 7, 224, 0, 0,
        22, // IPv4
        0x94, 4, 0, 0, // Router Alert
    ];
    assert_eq!(packet[..24], golden);
}

#[test]
fn golden_igmp_queries_and_older_messages() {
    let sources = [[10, 0, 9, 1], [10, 0, 9, 2]];
    let v3 = QueryV3 {
        suppress: true,
        robustness: 2,
        interval: Code(125),
        sources: Sources::from_octets(&sources),
    };
    let group = Ipv4Addr::new(239, 1, 2, 3);
    let query = |max_response, v3| {
        Message::Query(Query {
            group,
            max_response,
            v3,
        })
    };
    let goldens: &[(&[u8], Message<'_>)] = &[
        (V3_QUERY, query(Code(10), Some(v3))),
        (
            &[0x11, 100, 0xfd, 0x96, 239, 1, 2, 3],
            query(Code(100), None),
        ),
        (&[0x11, 0, 0xfd, 0xfa, 239, 1, 2, 3], query(Code(0), None)),
        (
            &[0x12, 0, 0xfc, 0xfa, 239, 1, 2, 3],
            Message::V1Report(group),
        ),
        (
            &[0x16, 0, 0xf8, 0xfa, 239, 1, 2, 3],
            Message::V2Report(group),
        ),
        (
            &[0x17, 0, 0xf7, 0xfa, 239, 1, 2, 3],
            Message::V2Leave(group),
        ),
    ];
    for (golden, message) in goldens {
        let mut bytes = [0xa5; 64];
        let len = message.emit(&mut bytes).unwrap();
        assert_eq!(&bytes[..len], *golden, "{message:?}");
        assert_eq!(
            (message.buffer_len(), Message::parse(golden)),
            (len, Ok(*message))
        );
        assert!(message.emit(&mut bytes[..len - 1]).is_err());
    }
    let versions: Vec<u8> = goldens[..3]
        .iter()
        .map(|(_, m)| {
            if let Message::Query(q) = m {
                q.version()
            } else {
                0
            }
        })
        .collect();
    assert_eq!(versions, [3, 2, 1]);
}

/// The wrong length of an 8-byte message is another message or none; every flip is caught by the
/// checksum.
#[test]
fn igmp_truncations_and_flips() {
    for golden in [COST_REPORT, V3_QUERY, &[0x16, 0, 0xf8, 0xfa, 239, 1, 2, 3]] {
        for len in 0..golden.len() {
            assert!(Message::parse(&golden[..len]).is_err(), "{len} bytes");
        }
        for bit in 0..golden.len() * 8 {
            let mut bytes = golden.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                Message::parse(&bytes),
                Err(igmp::ParseError::Checksum),
                "bit {bit}"
            );
        }
    }
}

/// Flips with a right checksum: no panic, and what is accepted can be written again.
#[test]
fn igmp_flips_under_a_right_checksum() {
    for golden in [COST_REPORT, V3_QUERY] {
        for bit in 0..golden.len() * 8 {
            let mut bytes = golden.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            fix_checksum(&mut bytes);
            if let Ok(message) = Message::parse(&bytes) {
                let mut again = [0; 64];
                let len = message.emit(&mut again).unwrap();
                assert_eq!(Message::parse(&again[..len]), Ok(message), "bit {bit}");
            }
        }
    }
    for (at, value) in [(4, 10), (12, 224)] {
        let mut bytes = V3_QUERY.to_vec();
        bytes[at] = value;
        fix_checksum(&mut bytes);
        assert_eq!(Message::parse(&bytes), Err(igmp::ParseError::Address));
    }
    let mut bytes = vec![0x11, 10, 0, 0, 239, 1, 2, 3, 0, 0];
    fix_checksum(&mut bytes);
    assert_eq!(Message::parse(&bytes), Err(igmp::ParseError::Length));
    let mut bytes = vec![0x13, 10, 0, 0, 239, 1, 2, 3];
    fix_checksum(&mut bytes);
    assert_eq!(Message::parse(&bytes), Err(igmp::ParseError::Type));
}

fn fix_checksum(bytes: &mut [u8]) {
    bytes[2..4].fill(0);
    let sum: u64 = bytes
        .chunks(2)
        .map(|pair| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0)))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    bytes[2..4].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

#[test]
fn foreign_auxiliary_data_is_skipped() {
    // Two words of somebody else's in the first record; the second is ours.
    let mut bytes = vec![0x22, 0, 0, 0, 0, 0, 0, 2];
    bytes.extend_from_slice(&[4, 2, 0, 0, 239, 1, 2, 3, 1, 2, 3, 4, 5, 6, 7, 8]);
    bytes.extend_from_slice(&[2, 2, 0, 0, 239, 1, 2, 4, 0x4c, 0x4d, 0, 9, 1, 1, 1, 1]);
    bytes.extend_from_slice(b"more");
    fix_checksum(&mut bytes);
    let Ok(Message::V3Report(records)) = Message::parse(&bytes) else {
        panic!("a report");
    };
    let costs: Vec<_> = records.iter().map(|record| record.cost()).collect();
    assert_eq!(costs, [None, Some(Cost(9))]);
}

/// RFC 3376 §4.1.1: the code never says more than was meant, and loses less than a sixteenth.
#[test]
fn code_is_a_floating_point_number() {
    for value in 0..=31_744u32 {
        let coded = Code::from_value(value).value();
        assert!(
            coded <= value && value - coded <= value / 16,
            "{value} -> {coded}"
        );
    }
    for code in 0..=255 {
        assert_eq!(Code::from_value(Code(code).value()), Code(code));
    }
    assert_eq!(
        (Code(0x8f).value(), Code::from_value(u32::MAX).value()),
        (0x1f << 3, 31_744)
    );
}

prop_compose! {
    fn an_entry()(
        source in any::<u32>(), group in 0xe000_0000u32..0xf000_0000, who in any::<u32>(),
        cost in 0u16..0xffff, has in any::<bool>(),
    ) -> Entry {
        let unicast = |bits| Ipv4Addr::from_bits(bits % 0xe000_0000);
        let neighbour = Some(unicast(who)).filter(|who| has && !who.is_unspecified());
        let cost = if neighbour.is_some() { Cost(cost) } else { Cost::WITHDRAWN };
        Entry { key: Key::new(unicast(source), Ipv4Addr::from_bits(group)), neighbour, cost }
    }
}

proptest! {
    #[test]
    fn hier_round_trip(
        entries in prop::collection::vec(an_entry(), 1..=64),
        boot in any::<u32>(), sequence in any::<u32>(), hold_time_ms in 1u16..,
    ) {
        let header = Header { kind: Kind::Elected, boot, sequence, hold_time_ms };
        let repr = Repr { header, entries: &entries };
        let mut bytes = [0; hier::MAX_LEN];
        let len = repr.emit(&mut bytes).unwrap();
        let mut room = [Entry::EMPTY; MAX_ENTRIES];
        prop_assert_eq!(Repr::parse(&bytes[..len], &mut room), Ok(repr));
    }

    #[test]
    fn hier_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = View::new_checked(&bytes);
    }

    #[test]
    fn igmp_any_bytes(mut bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0usize..6) {
        if bytes.len() >= 4 {
            bytes[0] = [0x11, 0x12, 0x16, 0x17, 0x22, 0x13][kind];
            fix_checksum(&mut bytes);
        }
        if let Ok(Message::V3Report(records)) = Message::parse(&bytes) {
            let count = records.iter().inspect(|r| { r.cost(); r.sources.iter().count(); }).count();
            prop_assert_eq!(count, records.len());
        }
    }

    #[test]
    fn igmp_report_round_trip(
        records in prop::collection::vec(
            (1u8..7, 0xe100_0000u32..0xf000_0000, prop::collection::vec(1u32..0xe000_0000, 0..9),
             prop::option::of(any::<u16>())), 0..20),
    ) {
        let mut bytes = [0; 2000];
        let mut writer = ReportWriter::new(&mut bytes).unwrap();
        for (kind, group, sources, cost) in &records {
            let sources = sources.iter().map(|bits| Ipv4Addr::from_bits(*bits));
            let group = Ipv4Addr::from_bits(*group);
            prop_assert!(writer.push(RecordType::from(*kind), group, sources, cost.map(Cost)));
        }
        let len = writer.finish();
        let Ok(Message::V3Report(parsed)) = Message::parse(&bytes[..len]) else {
            return Err(TestCaseError::fail("a report"));
        };
        prop_assert_eq!(parsed.len(), records.len());
        for (record, (kind, group, sources, cost)) in parsed.iter().zip(&records) {
            prop_assert_eq!(u8::from(record.kind), *kind);
            prop_assert_eq!(record.group.to_bits(), *group);
            prop_assert_eq!(&record.sources.iter().map(|s| s.to_bits()).collect::<Vec<_>>(), sources);
            prop_assert_eq!(record.cost(), cost.map(Cost));
        }
    }
}
