//! What other versions may send ("How formats evolve" in `docs/wire.md`).

use crate::common::{gateway, unhex};
use bfed::wire::data::{self, Kind, Packet};
use bfed::wire::reader::MAX_TEXT_LEN;
use bfed::wire::{
    Frames, HEADER_LEN, Message, ParseError, Type, describe_mismatch, notification, open,
    other_version,
};
use bfed::{FlowLabel, Tables};

/// A keep-alive, whose header is all of it.
const KEEPALIVE: [u8; HEADER_LEN] = [0x62, 0x66, 1, 2, 0, 8, 0, 0];

fn refused(bytes: &[u8]) -> ParseError {
    Message::parse(bytes).unwrap_err()
}

#[test]
fn other_versions_are_refused_by_name() {
    assert_eq!(other_version(&KEEPALIVE), None);
    for number in [0, 2, 255] {
        let mut other = KEEPALIVE;
        other[2] = number;
        assert_eq!(refused(&other), ParseError::Version);
        // Whatever another version has after the first four bytes.
        assert_eq!(refused(&other[..4]), ParseError::Version);
        assert_eq!(other_version(&other[..4]), Some(number));
        assert_eq!(other_version(&other[..3]), None);
        let mut input = &other[..];
        assert!(matches!(
            Frames::new().next(&mut input),
            Err(ParseError::Version)
        ));
        other[3] = 200;
        assert_eq!(refused(&other), ParseError::Version, "and another type");
        other[1] = 0x67;
        assert_eq!(refused(&other), ParseError::Identifier);
        assert_eq!(other_version(&other), None);
    }
}

#[test]
fn unknown_types_reserved_bits_and_appended_bytes_are_refused() {
    let known = Type::ALL.iter().map(|kind| *kind as u8);
    let known: Vec<u8> = known.collect();
    for number in (0..=255).filter(|number| !known.contains(number)) {
        let mut other = KEEPALIVE;
        other[3] = number;
        assert_eq!(refused(&other), ParseError::Type);
    }
    for at in [6, 7] {
        let mut other = KEEPALIVE;
        other[at] = 1;
        assert_eq!(refused(&other), ParseError::Reserved);
    }
    let mut longer = [&KEEPALIVE[..], &[0]].concat();
    assert_eq!(refused(&longer), ParseError::Length);
    longer[5] += 1;
    assert_eq!(
        refused(&longer),
        ParseError::Length,
        "counted in the header"
    );
    let unknown_reason = unhex("62660103000a00001100");
    assert_eq!(refused(&unknown_reason), ParseError::Value);
}

/// OPEN and NOTIFICATION are what all versions understand.
#[test]
fn the_greeting_has_version_1_in_its_header_and_may_grow() {
    let mut bytes = unhex(
        "62660101002700000102005a0000000700000001deadbeef000301020fff0204\
         0003007863016a",
    );
    let mut expected = open::Repr {
        version_low: 1,
        version_high: 2,
        hold_time_s: 90,
        gateway: gateway(7, 1),
        boot: 0xdead_beef,
        tables: Tables::ALL,
        graceful: Some(open::Graceful {
            restarting: true,
            preserved: true,
            restart_time_s: 120,
        }),
        transport: bfed::wire::transport::Transport::Plain,
        echo: false,
    };
    // A capability of a later version is passed over.
    assert_eq!(Message::parse(&bytes), Ok(Message::Open(expected)));
    assert_eq!(expected.agreed_version(), Some(1));
    // So are tables and flags.
    (bytes[28], bytes[32]) = (0xff, 0xff);
    assert_eq!(Message::parse(&bytes), Ok(Message::Open(expected)));
    (expected.version_low, bytes[8]) = (2, 2);
    assert_eq!(Message::parse(&bytes), Ok(Message::Open(expected)));
    assert_eq!(expected.agreed_version(), None);
    bytes[2] = 2;
    assert_eq!(refused(&bytes), ParseError::Version);
    let why = describe_mismatch("the control node", "the data node", (2, 2));
    assert_eq!(
        why,
        "the data node speaks version 2 of the control protocol, the control node version 1: install one \
         release of polycast on both"
    );
    assert!(why.len() <= MAX_TEXT_LEN, "it fits a NOTIFICATION");
    let why = notification::Repr::new(notification::Reason::Version, &why);
    let mut bytes = vec![0; why.buffer_len()];
    why.emit(&mut bytes);
    assert_eq!(bytes[2], 1);
    let range = describe_mismatch(gateway(1, 1), gateway(2, 1), (2, 9));
    assert!(
        range.starts_with("2.1 speaks versions 2 to 9 of"),
        "{range}"
    );
}

#[test]
fn data_packets_of_other_versions_are_refused_by_name() {
    let repr = data::Repr::new(Kind::Probe, FlowLabel::new(7).unwrap());
    let mut probe = vec![0; repr.buffer_len()];
    repr.emit(&mut probe);
    let refused = |bytes: &[u8]| Packet::new_checked(bytes).map(|_| ()).unwrap_err();
    for number in [0, 2, 15] {
        let mut other = probe.clone();
        other[0] = number << 4 | 4;
        assert_eq!(refused(&other), ParseError::Version);
        assert_eq!(refused(&other[..1]), ParseError::Version);
    }
    for number in [0, 12, 15] {
        let mut other = probe.clone();
        other[0] = 0x10 | number;
        assert_eq!(refused(&other), ParseError::Type);
    }
    let mut flags = probe.clone();
    flags[1] = 0x80;
    assert_eq!(refused(&flags), ParseError::Reserved);
    probe.push(0);
    assert_eq!(refused(&probe), ParseError::Length);
}
