//! Each machine against a peer that breaks the rules.

use std::sync::Arc;

use mcp_control::limits::MAX_FRAME_LEN;
use mcp_control::wire::hello::Capabilities;
use mcp_control::wire::offer::{CopyId, Offer, emit_entry};
use mcp_control::wire::plan::Carrier;
use mcp_control::wire::progress::{FileDigest, FileVerdict, Progress};
use mcp_control::wire::{self, Header, Message, Type};
use mcp_control::*;
use proptest::prelude::*;

use crate::common::*;

#[test]
fn a_greeting_or_offer_that_does_not_come_ends_the_connection() {
    let start = Instant::from_secs(1);
    for greets in [false, true] {
        let mut server = Server::new(udp(), start);
        let mut buffer = vec![0; MAX_FRAME_LEN];
        let mut limit = udp().greeting;
        if greets {
            let mut client = Client::new(client_config(), manifest(), start);
            let hello = client.poll_transmit(start, &mut buffer).unwrap();
            server
                .handle_packet(start, &(), &buffer[..hello.len])
                .unwrap();
            limit = udp().setup;
        }
        let mut now = start;
        let mut alive = [0; 8];
        wire::KeepAlive.emit(&mut alive);
        while !server.is_ended() {
            now = server.poll_timeout().unwrap();
            server.handle_timeout(now);
            // Saying "still there" does not help.
            let _ = server.handle_packet(now, &(), &alive);
            while server.poll_transmit(now, &mut buffer).is_some() {}
        }
        assert_eq!(now, start + limit);
    }
}

#[test]
fn names_that_escape_end_the_copy() {
    let mut pair = Pair::new(client_config(), udp());
    // The client's own checks are gone around: an entry written by hand.
    let now = pair.now;
    let mut buffer = vec![0; MAX_FRAME_LEN];
    let hello = pair.client.poll_transmit(now, &mut buffer).unwrap();
    pair.server
        .handle_packet(now, &(), &buffer[..hello.len])
        .unwrap();
    let offer = Offer {
        copy: CopyId([1; 16]),
        entries: 1,
        bytes: 0,
    };
    let mut frame = vec![0; offer.buffer_len()];
    offer.emit(&mut frame);
    pair.server.handle_packet(now, &(), &frame).unwrap();
    let entry = Entry {
        path: RelPath::new(b"aa/b").unwrap(),
        kind: Kind::File { len: 0 },
        mode: 0o644,
        modified: Timestamp::default(),
    };
    let mut frame = vec![0; 8 + 28 + 4];
    emit_entry(&entry, &mut frame[8..]);
    frame[36..].copy_from_slice(b"../b");
    Header {
        kind: Type::Entries,
        body_len: 32,
    }
    .emit(&mut frame);
    pair.server.handle_packet(now, &(), &frame).unwrap();
    let Some(ServerEvent::Failed {
        failed,
        side: Side::Here,
    }) = pair.server.poll_event()
    else {
        panic!("it was taken");
    };
    assert_eq!((failed.reason, failed.entry), (Reason::Name, Some(0)));
}

#[test]
fn the_plan_keeps_to_the_carrier_whose_port_is_kept() {
    let server = ServerConfig::new(Capabilities::UDP.with(Capabilities::IP));
    let mut pair = Pair::new(client_config(), server);
    pair.scanned();
    pair.client
        .suggest(pair.now, Carrier::Ip, 4000, 5000)
        .unwrap();
    pair.settle();
    pair.server.port(pair.now, 5000).unwrap();
    pair.settle();
    let runs = vec![Run { first: 0, count: 1 }];
    let layout = Arc::new(Layout::new(&manifest(), runs).unwrap());
    pair.client.plan(pair.now, Some((path(), layout))).unwrap();
    let mut buffer = vec![0; MAX_FRAME_LEN];
    let frame = pair.client.poll_transmit(pair.now, &mut buffer).unwrap();
    let refused = pair
        .server
        .handle_packet(pair.now, &(), &buffer[..frame.len]);
    assert_eq!(refused, Err(Error::Contradiction));
}

#[test]
fn events_that_nobody_takes_stop_the_peer() {
    let mut pair = Pair::new(client_config(), udp());
    pair.planned();
    let mut frame = [0; 24];
    Progress {
        received: 0,
        held: 0,
    }
    .emit(&mut frame);
    let mut taken = 0;
    let refused = loop {
        match pair.client.handle_packet(pair.now, &(), &frame) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((refused, taken), (Error::Full, 16));
    pair.client.poll_event();
    assert_eq!(pair.client.handle_packet(pair.now, &(), &frame), Ok(()));
}

#[test]
fn counts_that_contradict_are_refused() {
    let mut pair = Pair::new(client_config(), udp());
    pair.planned();
    let mut frame = [0; 24];
    Progress {
        received: u64::MAX,
        held: 0,
    }
    .emit(&mut frame);
    let refused = pair.client.handle_packet(pair.now, &(), &frame);
    assert_eq!(refused, Err(Error::Contradiction));
    assert_eq!(pair.client.stats().contradicting, 1);
}

#[test]
fn each_file_has_one_digest() {
    let mut pair = Pair::new(client_config(), udp());
    pair.planned();
    let now = pair.now;
    let digest = |entry| FileDigest {
        entry,
        verdict: FileVerdict::Digest([1; 32]),
    };
    let mut frame = vec![0; digest(0).buffer_len()];
    // The folder, the second file, the first one, the second one again.
    let wrong = Err(Error::Contradiction);
    for (entry, expected) in [(0, wrong), (2, Ok(())), (1, wrong), (2, wrong)] {
        digest(entry).emit(&mut frame);
        assert_eq!(
            pair.server.handle_packet(now, &(), &frame),
            expected,
            "{entry}"
        );
    }
    let verdict = FileVerdict::Changed;
    pair.client.digest(now, 2, verdict).unwrap();
    assert_eq!(pair.client.digest(now, 2, verdict), Err(UnexpectedMessage));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// At every point of a copy, either machine takes any frame without a panic, and tells the
    /// application nothing when it refuses one.
    #[test]
    fn hostile_peers(
        steps in 0usize..5,
        frames in prop::collection::vec(
            (0u8..19, prop::collection::vec(any::<u8>(), 0..90), any::<u16>()), 1..30),
    ) {
        let mut pair = Pair::new(client_config(), udp());
        match steps {
            0 => {}
            1 => pair.settle(),
            2 => pair.scanned(),
            _ => { pair.planned(); }
        }
        for (kind, body, small) in frames {
            let mut frame = vec![1, kind, 0, 0];
            frame.extend_from_slice(&(body.len() as u32).to_be_bytes());
            frame.extend_from_slice(&body);
            // Small numbers get further than random ones.
            if body.len() > 8 && small % 2 == 0 {
                frame[8..15].fill(0);
            }
            let now = pair.now;
            if pair.client.handle_packet(now, &(), &frame).is_err() {
                prop_assert_eq!(pair.client.poll_event(), None);
            }
            if pair.server.handle_packet(now, &(), &frame).is_err() {
                prop_assert_eq!(pair.server.poll_event(), None);
            }
            while pair.client.poll_event().is_some() {}
            while pair.server.poll_event().is_some() {}
        }
    }
}
