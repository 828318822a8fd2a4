//! Federation: names, control messages, data packets.

use std::collections::BTreeMap;

use bfed::authorise::{NamePattern, Right};
use bfed::wire::data::{Packet, Repr};
use bfed::wire::{Frames, MAX_MESSAGE_LEN, Message, init, parity, repair, report, update};
use bfed::{BnNum, SessionName};
use bfed_token::{Claims, Presented, Verifier};

/// Each message, and the cutting of a stream into messages.
pub fn message(bytes: &[u8]) {
    let mut frames = Frames::new();
    let mut input = bytes;
    while let Ok(Some(frame)) = frames.next(&mut input) {
        assert!(frame.len() <= MAX_MESSAGE_LEN);
        one(frame);
    }
    assert!(frames.partial().len() <= MAX_MESSAGE_LEN);
    one(bytes);
}

fn one(bytes: &[u8]) {
    let _ = update::Repr::parse_lenient(bytes);
    let Ok(message) = Message::parse(bytes) else {
        return;
    };
    let mut out = vec![0; message.buffer_len()];
    assert_eq!(message.emit(&mut out), out.len());
    assert_eq!(Message::parse(&out), Ok(message));
}

/// Data packets, and the reports and initialisations in them.
pub fn data(bytes: &[u8]) {
    let Ok(packet) = Packet::new_checked(bytes) else {
        return;
    };
    let repr = Repr::parse(&packet);
    let mut out = bytes.to_vec();
    repr.emit(&mut out);
    let again = Packet::new_checked(&out[..]).expect("what is written parses");
    assert_eq!(Repr::parse(&again), repr);
    if let Ok(value) = report::Repr::parse(packet.payload()) {
        let mut out = vec![0; bfed::wire::report::LEN];
        value.emit(&mut out);
        assert_eq!(report::Repr::parse(&out), Ok(value));
    }
    if let Ok((value, rest)) = init::Repr::parse(packet.payload()) {
        let mut out = packet.payload().to_vec();
        value.emit(&mut out);
        assert_eq!(out, packet.payload());
        assert!(usize::from(value.offset) + rest.len() <= init::MAX_INIT_LEN);
    }
    if let Ok((value, shard)) = parity::Repr::parse(packet.payload()) {
        let mut out = packet.payload().to_vec();
        value.emit(&mut out);
        assert_eq!(out, packet.payload());
        if let Ok(packet) = parity::Shard::parse(shard) {
            let mut out = vec![0; packet.buffer_len()];
            packet.emit(&mut out);
            assert_eq!(parity::Shard::parse(&out), Ok(packet));
        }
    }
    if let Ok(value) = repair::Request::parse(packet.payload()) {
        let mut out = [0; repair::LEN];
        value.emit(&mut out);
        assert_eq!(out, packet.payload());
        let mut again = repair::Request::new(value.first);
        assert!(value.packets().all(|sequence| again.add(sequence)));
        assert_eq!(again, value);
    }
    if let Ok(value) = init::Request::parse(packet.payload()) {
        let mut out = [0; init::LEN];
        value.emit(&mut out);
        assert_eq!(out, packet.payload());
    }
}

/// Names of sessions: the normal form is a fixed point.
pub fn name(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else {
        return;
    };
    let Ok(name) = SessionName::parse(text) else {
        return;
    };
    assert!(name.as_str().len() <= bfed::name::MAX_NAME_LEN);
    assert_eq!(SessionName::parse(name.as_str()).as_ref(), Ok(&name));
    assert_eq!(name.flows().count(), name.flow_count());
    let _ = (
        name.owner(),
        name.native_bytes(),
        name.table(),
        name.parameters().count(),
    );
}

/// Patterns of names: the normal form is a fixed point, and a name matches itself.
pub fn pattern(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else {
        return;
    };
    let (pattern, name) = (text.parse::<NamePattern>(), SessionName::parse(text));
    if let Ok(pattern) = &pattern {
        assert_eq!(pattern.to_string().parse().as_ref(), Ok(pattern));
        if let Ok(name) = &name {
            let _ = pattern.matches(name, None, &BTreeMap::new());
        }
    }
    if let Ok(name) = &name {
        let owner = text.find("//").map_or(0, |at| at + 2);
        let end = text[owner..].find('/').map_or(text.len(), |at| owner + at);
        let own: NamePattern = text[..end]
            .to_ascii_lowercase()
            .parse()
            .expect("an owner is a pattern");
        assert!(own.matches(name, None, &BTreeMap::new()));
    }
}

/// Tokens, and the claims in one whose signature counts.
pub fn token(bytes: &[u8]) {
    let Ok(text) = core::str::from_utf8(bytes) else {
        return;
    };
    // The public key of RFC 8032, test 1: its tokens do not occur.
    let key = "k4.public.11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
    let verifier = Verifier::new(
        BnNum::new(7).expect("not 0"),
        vec![key.parse().expect("a key")],
    );
    let session = SessionName::parse("bfed://7/news").expect("a name");
    let presented = Presented {
        token: text,
        right: Right::Join,
        session: &session,
        owner: None,
        from: None,
    };
    assert!(verifier.verify(1_800_000_000, &presented).is_err());
    if let Some(claims) = Claims::from_json(text) {
        let json = claims.to_json().expect("what was read is written");
        assert_eq!(Claims::from_json(&json), Some(claims));
    }
}
