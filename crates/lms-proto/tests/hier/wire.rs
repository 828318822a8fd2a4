//! Goldens of LMS-HIER messages, both ways; truncations, bit flips, round trips.

use core::net::{Ipv4Addr, Ipv6Addr};

use igmp::datagram::{UDP_AT, finish_udp};
use lms_proto::Key;
use lms_proto::hier::Cost;
use lms_proto::wire::hier::{
    self, EmitError, Entry, Header, Kind, MAX_ENTRIES, ParseError, Repr, View,
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
    10, 0, 9, 1, 232, 1, 1, 2, 0, 0, 0, 0, 0xff, 0xff, 0, 0, // none on this link
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

/// One entry that names a replier, and one of a shared tree that is withdrawn: 52 bytes each.
const ELECTED6: &[u8] = &[
    1, 2, 0x4c, 0x4d, 0, 0, 0, 7, 0, 0, 0, 9, 1, 0x5e, 0, 2, // hold 350 ms, 2 entries
    0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, // source 2001:db8::1
    0xff, 0x3e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0x12, 0x34, // group ff3e::8000:1234
    0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, // replier fe80::7
    0, 3, 0, 0, // cost 3
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // of any source
    0xff, 0x15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, // group ff15::5
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, // none on this link
];

fn elected6() -> (Header, [Entry<Ipv6Addr>; 2]) {
    let address = |text: &str| text.parse::<Ipv6Addr>().unwrap();
    let header = Header {
        kind: Kind::Elected,
        boot: 7,
        sequence: 9,
        hold_time_ms: 350,
    };
    let named = Entry {
        key: Key::new(address("2001:db8::1"), address("ff3e::8000:1234")),
        neighbour: Some(address("fe80::7")),
        cost: Cost(3),
    };
    let shared = Key::any_source(address("ff15::5"));
    let none = Entry {
        key: shared,
        neighbour: None,
        cost: Cost::WITHDRAWN,
    };
    (header, [named, none])
}

#[test]
fn golden_hier_message_of_ipv6() {
    let (header, entries) = elected6();
    let repr = Repr {
        header,
        entries: &entries,
    };
    let mut bytes = [0xa5; hier::MAX_LEN];
    assert_eq!(repr.emit(&mut bytes), Ok(ELECTED6.len()));
    assert_eq!(&bytes[..ELECTED6.len()], ELECTED6);
    let mut room = [Entry::EMPTY; MAX_ENTRIES];
    assert_eq!(Repr::parse(ELECTED6, &mut room), Ok(repr));

    let refused = |bytes: &[u8]| View::<Ipv6Addr>::new_checked(bytes).unwrap_err();
    for len in 0..ELECTED6.len() {
        assert_eq!(refused(&ELECTED6[..len]), ParseError::Truncated);
    }
    for (at, value, error) in [
        (15, 0, ParseError::Count),
        (15, 28, ParseError::Count),
        (15, 3, ParseError::Truncated),
        (15, 1, ParseError::Trailing),
        (16, 0xff, ParseError::Address),
        (32, 0x20, ParseError::Address),
        (48, 0xff, ParseError::Address),
        (66, 1, ParseError::Reserved),
    ] {
        let mut bytes = ELECTED6.to_vec();
        bytes[at] = value;
        assert_eq!(refused(&bytes), error, "byte {at} = {value}");
    }
    // A message of the other family is not taken for one of this.
    assert_eq!(refused(ELECTED), ParseError::Truncated);
    assert_eq!(
        View::<Ipv4Addr>::new_checked(ELECTED6).unwrap_err(),
        ParseError::Trailing
    );
}

#[test]
fn a_message_of_ipv6_has_27_entries_at_most() {
    let (header, [entry, _]) = elected6();
    let entries = [entry; 28];
    let mut bytes = [0; hier::MAX_LEN];
    let full = Repr {
        header,
        entries: &entries[..27],
    };
    assert_eq!(full.emit(&mut bytes), Ok(hier::MAX_LEN));
    let mut room = [Entry::EMPTY; MAX_ENTRIES];
    assert_eq!(Repr::parse(&bytes, &mut room), Ok(full));
    let longer = Repr {
        header,
        entries: &entries,
    };
    let mut room = [0; 2 * hier::MAX_LEN];
    assert!(longer.emit(&mut room).is_err());
}

/// "How formats evolve" in `docs/wire.md`.
#[test]
fn what_other_versions_may_send_is_refused_by_name() {
    let refused = |bytes: &[u8]| View::<Ipv4Addr>::new_checked(bytes).unwrap_err();
    for version in [0, 2, 255] {
        let mut other = UPDATE.to_vec();
        other[0] = version;
        assert_eq!(refused(&other), ParseError::Version);
        assert_eq!(hier::version(&other), Some(version));
        // Whatever another version has after the first four bytes: another type, nothing at all.
        other[1] = 9;
        other.truncate(4);
        assert_eq!(refused(&other), ParseError::Version);
        assert_eq!(hier::version(&other), Some(version));
        assert_eq!(refused(&other[..3]), ParseError::Truncated);
        assert_eq!(hier::version(&other[..3]), None);
    }
    let mut other = UPDATE.to_vec();
    (other[0], other[3]) = (2, 0x4e);
    assert_eq!(refused(&other), ParseError::Identifier);
    assert_eq!(hier::version(&other), None);
    for (at, value, error) in [
        (1, 0, ParseError::Type),
        (1, 3, ParseError::Type),
        (30, 1, ParseError::Reserved),
        (31, 0x80, ParseError::Reserved),
    ] {
        let mut bytes = UPDATE.to_vec();
        bytes[at] = value;
        assert_eq!(refused(&bytes), error);
    }
}

#[test]
fn hier_truncations_and_flips() {
    for golden in [UPDATE, ELECTED] {
        for len in 0..golden.len() {
            assert_eq!(
                View::<Ipv4Addr>::new_checked(&golden[..len]).unwrap_err(),
                ParseError::Truncated
            );
        }
        let mut longer = golden.to_vec();
        longer.push(0);
        assert_eq!(
            View::<Ipv4Addr>::new_checked(&longer).unwrap_err(),
            ParseError::Trailing
        );
        for bit in 0..golden.len() * 8 {
            let mut bytes = golden.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            // An accepted message is written as the same bytes.
            let mut room = [Entry::<Ipv4Addr>::EMPTY; MAX_ENTRIES];
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
            View::<Ipv4Addr>::new_checked(&bytes).unwrap_err(),
            *error,
            "byte {at} = {value}"
        );
    }
    let mut bytes = UPDATE.to_vec();
    bytes[12..14].fill(0);
    assert_eq!(
        View::<Ipv4Addr>::new_checked(&bytes).unwrap_err(),
        ParseError::HoldTime
    );
    let mut bytes = ELECTED.to_vec();
    bytes[28..30].fill(0xff);
    assert_eq!(
        View::<Ipv4Addr>::new_checked(&bytes).unwrap_err(),
        ParseError::Neighbour
    );
}

#[test]
fn golden_hier_packet() {
    let mut packet = vec![0xa5; UDP_AT];
    packet.extend_from_slice(UPDATE);
    let len = finish_udp(
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
        let _ = View::<Ipv4Addr>::new_checked(&bytes);
    }
}
