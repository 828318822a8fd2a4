//! Floods, strangers, and bytes that mean nothing.

use std::net::{IpAddr, SocketAddr};

use tcpxm::wire::Feedback;
use tcpxm::{Config, Error, Meta, Seq};

use crate::hand::*;

#[test]
fn a_flood_of_syns_is_bounded_and_a_real_peer_gets_in() {
    let mut config = Config::default();
    config.max_half_open = 64;
    let mut hand = Hand::new(config);
    for n in 0..10_000u32 {
        let mut syn = hand.segment(Seq(n), Seq(0), flags("S"), &[]);
        syn.source_port = (n % 60_000) as u16 + 1024;
        let mut bytes = vec![0; syn.buffer_len()];
        syn.emit(&mut bytes);
        let source = SocketAddr::new(IpAddr::from([10, 1, (n >> 8) as u8, n as u8]), 9);
        let meta = Meta {
            source,
            destination: ip("10.0.0.1"),
        };
        hand.endpoint
            .handle_packet(hand.now, &meta, &bytes)
            .unwrap();
        hand.sent();
        assert!(hand.endpoint.connections() <= 64);
    }
    assert_eq!(hand.endpoint.stats().half_open_evicted, 10_000 - 64);
    hand.inject(&hand.segment(ISS, Seq(0), flags("S"), &[]), "10.0.0.1")
        .unwrap();
    let answer = hand.sent().pop().unwrap();
    hand.give(ISS.plus(1), answer.seq.plus(1), "A", &[])
        .unwrap();
    assert!(hand.endpoint.accept(hand.now, PORT).is_some());
    // All others go by themselves.
    for _ in 0..100 {
        hand.wait(2000);
        hand.sent();
    }
    assert_eq!(hand.endpoint.connections(), 1);
}

#[test]
fn segments_for_nobody_are_reset_within_a_rate() {
    let mut config = Config::default();
    config.resets_per_second = 5;
    let mut hand = Hand::new(config);
    for n in 0..20u32 {
        let mut segment = hand.segment(Seq(n), Seq(77), ACK, b"xyz");
        segment.destination_port = 1;
        assert_eq!(hand.inject(&segment, "10.0.0.1"), Err(Error::NoConnection));
    }
    let sent = hand.sent();
    assert_eq!(sent.len(), 5);
    assert!(
        sent.iter()
            .all(|s| s.flags.rst && s.seq == Seq(77) && s.payload.is_empty())
    );
    let mut syn = hand.segment(Seq(9), Seq(0), flags("S"), &[]);
    syn.destination_port = 1;
    hand.wait(1000);
    hand.inject(&syn, "10.0.0.1").unwrap_err();
    let sent = hand.sent();
    assert_eq!((sent[0].flags, sent[0].ack), (flags("RA"), Seq(10)));
    let mut reset = hand.segment(Seq(9), Seq(0), flags("R"), &[]);
    reset.destination_port = 1;
    hand.inject(&reset, "10.0.0.1").unwrap_err();
    assert!(
        hand.sent().is_empty(),
        "a reset is never answered by a reset"
    );
}

#[test]
fn any_bytes_and_any_bit_are_survived() {
    let mut hand = Hand::grouped();
    let (seq, ack) = (hand.seq, hand.ack);
    let mut segment = hand.segment(seq, ack, flags("PA"), b"some data");
    segment.options.timestamps = Some((1, 2));
    segment.options.feedback = Some(Feedback { percent: 50 });
    segment.options.sack.push((ack.plus(5), ack.plus(9)));
    let mut bytes = vec![0; segment.buffer_len()];
    segment.emit(&mut bytes);
    for to in ["10.0.0.1", GROUP] {
        let meta = Meta {
            source: SocketAddr::new(ip("10.0.0.9"), PEER_PORT),
            destination: ip(to),
        };
        for len in 0..bytes.len() {
            let _ = hand.endpoint.handle_packet(hand.now, &meta, &bytes[..len]);
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let _ = hand.endpoint.handle_packet(hand.now, &meta, &flipped);
            hand.wait(1);
            hand.sent();
            while hand.endpoint.poll_event().is_some() {}
        }
    }
    assert!(hand.endpoint.stats().drops.total() > 0);
}
