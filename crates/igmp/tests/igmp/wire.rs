//! Goldens of IGMP messages, both ways; truncations, bit flips, round trips.

use core::net::Ipv4Addr;

use igmp::datagram::{IGMP_AT, finish_membership};
use igmp::wire::{
    ALL_V3_ROUTERS, Code, Cost, Message, ParseError, Query, QueryV3, RecordType, ReportWriter,
    Sources,
};
use proptest::prelude::*;

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
fn golden_report_with_cost() {
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
    let len = finish_membership(&mut packet, Ipv4Addr::new(10, 0, 1, 7), ALL_V3_ROUTERS, 24);
    assert_eq!(len, Some(48));
    let golden = [
        0x46, 0xc0, 0, 48, 0, 0, 0x40, 0, 1, 2, 0xf8, 0xea, 10, 0, 1, 7, 224, 0, 0,
        22, // IPv4
        0x94, 4, 0, 0, // Router Alert
    ];
    assert_eq!(packet[..24], golden);
}

#[test]
fn golden_queries_and_older_messages() {
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
fn truncations_and_flips() {
    for golden in [COST_REPORT, V3_QUERY, &[0x16, 0, 0xf8, 0xfa, 239, 1, 2, 3]] {
        for len in 0..golden.len() {
            assert!(Message::parse(&golden[..len]).is_err(), "{len} bytes");
        }
        for bit in 0..golden.len() * 8 {
            let mut bytes = golden.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                Message::parse(&bytes),
                Err(ParseError::Checksum),
                "bit {bit}"
            );
        }
    }
}

/// Flips with a right checksum: no panic, and what is accepted can be written again.
#[test]
fn flips_under_a_right_checksum() {
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
        assert_eq!(Message::parse(&bytes), Err(ParseError::Address));
    }
    let mut bytes = vec![0x11, 10, 0, 0, 239, 1, 2, 3, 0, 0];
    fix_checksum(&mut bytes);
    assert_eq!(Message::parse(&bytes), Err(ParseError::Length));
    let mut bytes = vec![0x13, 10, 0, 0, 239, 1, 2, 3];
    fix_checksum(&mut bytes);
    assert_eq!(Message::parse(&bytes), Err(ParseError::Type));
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
    // Two foreign words in the first record; the second record has a cost.
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

proptest! {
    #[test]
    fn any_bytes(mut bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0usize..6) {
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
    fn report_round_trip(
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
