//! Federation: names, control messages, data packets.

use bfed::SessionName;
use bfed::wire::data::{Packet, Repr};
use bfed::wire::{Frames, MAX_MESSAGE_LEN, Message, report, update};

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

/// Data packets and the reports in them.
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
