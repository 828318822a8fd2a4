//! Senders that have the key and lie, and hosts that do not have it.

use std::time::Duration;

use ldc_linux::quic::{self, Config, Error, Event, Limits, Receiver};
use quinn_proto::{Dir, StreamId, VarInt};

use super::raw::Raw;
use super::{NAME, bind, connected, shape, tls, until};

const ALPN: &[u8] = b"ldc/1";
/// A receiver's turn.
const TURN: Duration = Duration::from_millis(2);

/// Drives both ends until the receiver has an event.
fn next(receiver: &mut Receiver, raw: &mut Raw) -> Event {
    let mut event = None;
    until("an event", || {
        raw.step();
        event = receiver.wait(TURN).expect("no failure");
        event.is_some()
    });
    event.expect("it was waited for")
}

/// A connected sender, whose first message has arrived.
fn begun(receiver: &mut Receiver, address: std::net::SocketAddr) -> Raw {
    let mut raw = Raw::new(address, ALPN);
    assert!(matches!(next(receiver, &mut raw), Event::Connected(_)));
    write(&mut raw, b"\x01x", true);
    assert!(matches!(next(receiver, &mut raw), Event::Message(bytes) if bytes == b"x"));
    raw
}

/// Opens a stream and writes these bytes.
fn write(raw: &mut Raw, bytes: &[u8], finish: bool) -> Option<StreamId> {
    let id = raw.connection.streams().open(Dir::Uni)?;
    let mut stream = raw.connection.send_stream(id);
    assert_eq!(stream.write(bytes), Ok(bytes.len()));
    if finish {
        stream.finish().expect("it is open");
    }
    Some(id)
}

/// The receiver still serves: it takes another sender.
fn serves_another(receiver: &mut Receiver, address: std::net::SocketAddr) {
    let ring = quic::init(address, NAME, tls(), shape(16), Config::default()).expect("a ring");
    connected(receiver);
    drop(ring);
}

#[test]
fn a_message_without_bound_ends_the_connection_before_it_arrives() {
    let limits = Limits {
        message: 1_000,
        ..Limits::default()
    };
    for bytes in [
        &[0x43, 0xe9][..],
        &[0xff; 8],
        &[0xbf, 0xff, 0xff, 0xff, 1, 2, 3],
    ] {
        let (mut receiver, address) = bind(limits);
        let mut raw = begun(&mut receiver, address);
        write(&mut raw, bytes, false);
        let event = next(&mut receiver, &mut raw);
        assert!(
            matches!(event, Event::Failed(Error::Protocol(_))),
            "{event:?}"
        );
        until("the sender is told", || {
            raw.step();
            let _ = receiver.wait(TURN);
            raw.lost().is_some()
        });
        let reason = raw.lost().expect("it was waited for");
        assert!(reason.contains("more than the limit"), "{reason}");
        serves_another(&mut receiver, address);
    }
}

#[test]
fn a_stream_that_ends_within_a_message_ends_the_connection() {
    let (mut receiver, address) = bind(Limits::default());
    let mut raw = begun(&mut receiver, address);
    write(&mut raw, b"\x05abc", true);
    let event = next(&mut receiver, &mut raw);
    assert!(
        matches!(event, Event::Failed(Error::Protocol(_))),
        "{event:?}"
    );
}

#[test]
fn streams_beyond_the_limit_cannot_be_opened_and_open_ones_hold_bounded_memory() {
    let limits = Limits {
        message: 20_000,
        streams: 8,
        buffer: 64 << 10,
        ..Limits::default()
    };
    let (mut receiver, address) = bind(limits);
    let mut raw = begun(&mut receiver, address);
    // Each promises 20,000 bytes and stops before the last.
    let mut whole = vec![0x80, 0, 0x4e, 0x20];
    whole.resize(4 + 19_999, 7);
    let mut opened = 0;
    for _ in 0..100 {
        let Some(id) = raw.connection.streams().open(Dir::Uni) else {
            break;
        };
        opened += 1;
        let mut rest = &whole[..];
        until("the bytes are taken", || {
            match raw.connection.send_stream(id).write(rest) {
                Ok(count) => rest = &rest[count..],
                // The receiver has stopped it.
                Err(quinn_proto::WriteError::Stopped(_)) => rest = &[],
                Err(quinn_proto::WriteError::Blocked) => {}
                Err(error) => panic!("{error}"),
            }
            raw.step();
            assert!(receiver.wait(TURN).expect("no failure").is_none());
            rest.is_empty()
        });
    }
    // Eight at once; a stream that was stopped makes room for another.
    assert!((8..100).contains(&opened) || receiver.stats().overflow > 0);
    // More than 64 KiB of incomplete messages are not kept: the fourth stream of 20,000 bytes was too many.
    until("the receiver has stopped a stream", || {
        raw.step();
        let _ = receiver.wait(TURN);
        receiver.stats().overflow > 0
    });
}

#[test]
fn a_sender_that_says_nothing_makes_room_for_another() {
    let limits = Limits {
        setup_timeout: Duration::from_millis(200),
        ..Limits::default()
    };
    let (mut receiver, address) = bind(limits);
    let mut raw = Raw::new(address, ALPN);
    assert!(matches!(next(&mut receiver, &mut raw), Event::Connected(_)));
    let event = next(&mut receiver, &mut raw);
    assert!(matches!(event, Event::Failed(Error::TimedOut)), "{event:?}");
    assert_eq!(receiver.stats().failed, 1);
    serves_another(&mut receiver, address);
}

#[test]
fn handshakes_that_stop_half_way_cost_nothing_and_block_nobody() {
    let (mut receiver, address) = bind(Limits::default());
    // First packets of many hosts, none of which answers.
    for _ in 0..64 {
        Raw::new(address, ALPN).send();
        assert!(receiver.wait(Duration::ZERO).expect("no failure").is_none());
    }
    assert_eq!(receiver.stats().busy, 0);
    serves_another(&mut receiver, address);
}

#[test]
fn a_second_sender_is_refused_while_the_first_is_served() {
    let (mut receiver, address) = bind(Limits::default());
    let mut first = begun(&mut receiver, address);
    let mut second = Raw::new(address, ALPN);
    until("the second is refused", || {
        first.step();
        second.step();
        assert!(receiver.wait(TURN).expect("no failure").is_none());
        second.lost().is_some()
    });
    assert!(!second.is_connected());
    assert_eq!(receiver.stats().busy, 1);
    write(&mut first, b"\x01y", true);
    assert!(matches!(next(&mut receiver, &mut first), Event::Message(bytes) if bytes == b"y"));
}

#[test]
fn another_protocol_is_refused() {
    let (mut receiver, address) = bind(Limits::default());
    let mut raw = Raw::new(address, b"h3");
    until("it is refused", || {
        raw.step();
        assert!(receiver.wait(TURN).expect("no failure").is_none());
        raw.lost().is_some()
    });
    assert!(!raw.is_connected());
}

#[test]
fn a_reset_stream_leaves_nothing_behind() {
    let (mut receiver, address) = bind(Limits::default());
    let mut raw = begun(&mut receiver, address);
    for _ in 0..50 {
        let id = write(&mut raw, b"\x40\xffhalf a message", false).expect("a stream");
        raw.step();
        assert!(receiver.wait(TURN).expect("no failure").is_none());
        let reset = raw.connection.send_stream(id).reset(VarInt::from_u32(1));
        reset.expect("it is open");
    }
    until("all are reset", || {
        raw.step();
        assert!(receiver.wait(TURN).expect("no failure").is_none());
        receiver.stats().reset == 50
    });
    assert_eq!(receiver.stats().overflow, 0);
}

#[test]
fn a_datagram_flood_of_a_sender_that_nobody_reads_is_dropped() {
    let (mut receiver, address) = bind(Limits::default());
    let mut raw = begun(&mut receiver, address);
    for _ in 0..200 {
        let bytes = bytes::Bytes::from(vec![1; 1_000]);
        let _ = raw.connection.datagrams().send(bytes, true);
        raw.step();
    }
    let mut got = 0;
    while let Some(event) = receiver.wait(TURN).expect("no failure") {
        assert!(matches!(event, Event::Message(_)), "{event:?}");
        got += 1;
    }
    assert!(got <= 200);
}
