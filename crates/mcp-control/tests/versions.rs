//! What other versions may send: "How formats evolve" in `docs/wire.md`.

use mcp_control::Failed;
use mcp_control::wire::hello::{Capabilities, Hello, Welcome};
use mcp_control::wire::progress::Done;
use mcp_control::wire::{self, Message, ParseError};

const KEEP_ALIVE: [u8; 8] = [1, 17, 0, 0, 0, 0, 0, 0];

/// A frame of this type; its body follows.
fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = (body.len() as u32).to_be_bytes();
    [&[1, kind, 0, 0], &len[..], body].concat()
}

fn hello(lowest: u8, highest: u8, capabilities: u16) -> Vec<u8> {
    let [high, low] = capabilities.to_be_bytes();
    frame(1, &[b"PMCP", &[lowest, highest, high, low][..]].concat())
}

#[test]
fn fields_after_the_known_ones_and_unknown_capabilities_are_passed_over() {
    let mut known = b"PMCP\x01\0\0\x04\0\x10\0\0".to_vec();
    known.extend([0, 0, 0x10, 0, 0, 0, 0, 0]);
    let appended = frame(2, &[&known[..], &[7; 4]].concat());
    let welcome = Welcome::parse(&appended).expect("of a later version");
    assert_eq!((welcome.version, welcome.max_entries), (1, 0x10_0000));
    assert_eq!(Ok(welcome), Welcome::parse(&frame(2, &known)));
    let hello = Hello::parse(&hello(1, 1, 0xffff)).expect("of a later version");
    assert!(hello.capabilities.has(Capabilities::AEAD));
    // Other messages are as long as they are.
    assert_eq!(Done::parse(&frame(14, &[0; 52])), Err(ParseError::Length));
}

#[test]
fn what_is_not_known_is_refused_by_name() {
    assert_eq!(wire::split(&KEEP_ALIVE).map(|_| ()), Ok(()));
    let with = |at: usize, byte: u8| {
        let mut frame = KEEP_ALIVE;
        frame[at] = byte;
        wire::split(&frame).map(|_| ()).unwrap_err()
    };
    assert_eq!(with(0, 0), ParseError::Version);
    assert_eq!(with(0, 2), ParseError::Version);
    for unknown in [0, 24, 255] {
        assert_eq!(with(1, unknown), ParseError::Type);
    }
    assert_eq!(with(2, 1), ParseError::Reserved);
    assert_eq!(with(3, 0x80), ParseError::Reserved);
    // A type that version 1 does not have.
    let mut other = KEEP_ALIVE;
    other[..2].copy_from_slice(&[2, 24]);
    assert_eq!(wire::split(&other).map(|_| ()), Err(ParseError::Version));
    let mut other_protocol = hello(1, 1, 3);
    other_protocol[11] += 1;
    assert_eq!(Hello::parse(&other_protocol), Err(ParseError::Version));
    let unknown_reason = frame(16, &[0, 18, 0, 0, 255, 255, 255, 255]);
    assert_eq!(Failed::parse(&unknown_reason), Err(ParseError::Value));
}

#[test]
fn a_prepared_data_connection_without_port_or_carrier_or_with_a_stray_key_is_refused() {
    let greeting = [b"PMCP", &[1, 1, 0, 3][..]].concat();
    let parse = |fields: [u8; 8], key: u8| {
        let body = [&greeting[..], &fields, &[key; 32]].concat();
        Hello::parse(&frame(1, &body)).map(|hello| hello.prepared.is_some())
    };
    let sealed = [17, 1, 0, 0, 0xc0, 0, 0xc3, 0x50];
    let plain = [17, 0, 0, 0, 0xc0, 0, 0xc3, 0x50];
    assert_eq!((parse(sealed, 7), parse(plain, 0)), (Ok(true), Ok(true)));
    assert_eq!(parse(plain, 7), Err(ParseError::Value), "a stray key");
    for (at, value, error) in [
        (0, 18, ParseError::Value),
        (1, 2, ParseError::Value),
        (2, 1, ParseError::Reserved),
        (3, 1, ParseError::Reserved),
    ] {
        let mut fields = plain;
        fields[at] = value;
        assert_eq!(parse(fields, 0), Err(error), "{at}");
    }
    for ports in [[0, 0, 0xc3, 0x50], [0xc0, 0, 0, 0]] {
        let mut fields = plain;
        fields[4..].copy_from_slice(&ports);
        assert_eq!(parse(fields, 0), Err(ParseError::Value), "{ports:?}");
    }
}
