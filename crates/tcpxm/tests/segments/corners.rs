//! Corners where two rules meet.

use std::net::{IpAddr, SocketAddr};

use tcpxm::store::Ring;
use tcpxm::wire::{GroupOption, Options, Segment};
use tcpxm::{Config, ConnId, Endpoint, Error, Event, GroupConfig, Instant, Meta, Seq, State};

use crate::hand::*;

#[test]
fn a_scaled_window_never_reaches_beyond_the_buffer() {
    let mut config = Config::default();
    config.receive_buffer = 1 << 20;
    let options = Options {
        mss: Some(1460),
        window_scale: Some(7),
        ..Options::default()
    };
    let mut hand = Hand::establish(config, options);
    let shift = 5;
    let mut sent = 0;
    let mut reach = 0;
    let payload = [7; 1001];
    // The application does not read; the peer fills the window.
    while sent + 1001 <= reach.max(60_000) {
        hand.give(hand.seq, hand.ack, "A", &payload).unwrap();
        sent += 1001;
        hand.seq = hand.seq.plus(1001);
        for answer in hand.sent() {
            let acked = u64::from(answer.ack.0.wrapping_sub(ISS.plus(1).0));
            let edge = acked + (u64::from(answer.window) << shift);
            assert!(edge <= 1 << 20, "{edge} after {sent}");
            assert!(edge + (1 << shift) > reach, "it went back by a unit");
            reach = edge;
        }
    }
    assert!(sent > 1_000_000, "{sent}");
}

#[test]
fn a_burst_interrupted_by_acknowledgements_goes_on() {
    let now = Instant::ZERO;
    let mut endpoint = Endpoint::new(Config::default(), [3; 32], now);
    let receivers = (1..=2).map(|n| IpAddr::from([10, 0, 0, n])).collect();
    let mut config = GroupConfig::new("10.0.1.1:4444".parse().unwrap(), receivers, PORT);
    config.group = tcpxm::GroupChoice::Given(ip(GROUP));
    let id = endpoint
        .open_group(now, &config, Ring::new(1 << 16))
        .unwrap();
    endpoint.send(now, id, &[9; 8000]).unwrap();
    let mut buffer = [0; 1500];
    let mut iss = Seq(0);
    let inject = |endpoint: &mut Endpoint<Ring>, from: u8, seq, ack: Seq, text: &str| {
        let segment = Segment {
            source_port: PORT,
            destination_port: 4444,
            seq,
            ack,
            flags: flags(text),
            window: 60_000,
            options: Options {
                mss: text.contains('S').then_some(1000),
                group: text.contains('S').then_some(GroupOption::Named(ip(GROUP))),
                ..Options::default()
            },
            payload: &[],
        };
        let mut bytes = vec![0; segment.buffer_len()];
        segment.emit(&mut bytes);
        let meta = Meta {
            source: SocketAddr::new(IpAddr::from([10, 0, 0, from]), PORT),
            destination: ip("10.0.1.1"),
        };
        endpoint.handle_packet(now, &meta, &bytes).unwrap();
    };
    while let Some(transmit) = endpoint.poll_transmit(now, &mut buffer) {
        iss = Segment::parse(&buffer[..transmit.len]).unwrap().seq;
    }
    for from in 1..=2 {
        inject(&mut endpoint, from, Seq(100), iss.plus(1), "SA");
    }
    // The copies to the group leave, and reach all receivers before the unicast copies do.
    let mut copies = 0;
    while copies < 8 {
        let transmit = endpoint.poll_transmit(now, &mut buffer).unwrap();
        copies += usize::from(transmit.is_multicast());
    }
    for from in 1..=2 {
        inject(&mut endpoint, from, Seq(101), iss.plus(1 + 8000), "A");
    }
    while endpoint.poll_transmit(now, &mut buffer).is_some() {}
    let members: Vec<ConnId> = endpoint.members(id).unwrap().collect();
    assert_eq!(members.len(), 2);
    for member in members {
        let stats = endpoint.conn_stats(member).unwrap();
        assert_eq!(
            (stats.state, stats.acknowledged),
            (State::Established, 8000)
        );
    }
}

#[test]
fn a_multicast_copy_that_took_longer_is_seen_as_such() {
    // Unicast copies are two milliseconds ahead: those on the group have older timestamps.
    let options = Options {
        mss: Some(1000),
        timestamps: Some((1000, 0)),
        group: Some(GroupOption::Named(ip(GROUP))),
        ..Options::default()
    };
    let mut hand = Hand::establish(Config::default(), options);
    let mut last = None;
    for n in 0..40u32 {
        for (to, behind) in [("10.0.0.1", 0), (GROUP, 2)] {
            let Some(n) = n.checked_sub(behind) else {
                continue;
            };
            let mut data = hand.segment(hand.seq.plus(n * 100), hand.ack, ACK, &[1; 100]);
            data.options.timestamps = Some((1001 + n, 0));
            let result = hand.inject(&data, to);
            let expected = if to == GROUP {
                Err(Error::Duplicate)
            } else {
                Ok(())
            };
            assert_eq!(result, expected, "{to} {n}");
        }
        hand.wait(1);
        last = hand.sent().pop().or(last);
    }
    let feedback = last.unwrap().options.feedback.unwrap();
    assert!((45..=50).contains(&feedback.percent), "{feedback:?}");
}

#[test]
fn a_group_segment_from_the_future_makes_nothing_look_old() {
    let options = Options {
        mss: Some(1000),
        timestamps: Some((1000, 0)),
        group: Some(GroupOption::Named(ip(GROUP))),
        ..Options::default()
    };
    let mut hand = Hand::establish(Config::default(), options);
    hand.wait(60_000);
    let stamped = |hand: &Hand, stamp, payload| {
        let mut data = hand.segment(hand.seq, hand.ack, ACK, payload);
        data.options.timestamps = Some((stamp, 0));
        data
    };
    let forged = stamped(&hand, 1000 + (1 << 30), b"bad!");
    assert_eq!(hand.inject(&forged, GROUP), Err(Error::Paws));
    let late = stamped(&hand, 61_500, b"good");
    assert_eq!(
        hand.inject(&late, GROUP),
        Ok(()),
        "a clock that is half a second fast"
    );
    assert_eq!(hand.read(), b"good");
}

#[test]
fn what_lies_before_the_window_says_nothing_about_multicast() {
    let mut hand = Hand::grouped();
    for n in 1..=100u32 {
        let old = hand.seq.minus((1 << 30) + 1000 * n);
        let forged = hand.segment(old, hand.ack, flags("PA"), &[0; 100]);
        assert_eq!(hand.inject(&forged, GROUP), Err(Error::Window));
    }
    let data = hand.segment(hand.seq, hand.ack, flags("PA"), b"data");
    hand.inject(&data, "10.0.0.1").unwrap();
    hand.wait(100);
    let sent = hand.sent().pop().unwrap();
    assert_eq!(sent.options.feedback.unwrap().percent, 0);
}

#[test]
fn a_new_connection_leaves_unread_data_of_the_old_one_alone() {
    let mut hand = Hand::plain();
    let id = hand.id.unwrap();
    hand.endpoint.shutdown(hand.now, id).unwrap();
    let fin = hand.sent().pop().unwrap();
    assert!(fin.flags.fin);
    hand.ack = hand.ack.plus(1);
    hand.give(hand.seq, hand.ack, "FA", b"last words").unwrap();
    assert_eq!(hand.state(), State::TimeWait);
    // The same ports again, a later sequence number.
    let seq = hand.seq.plus(1_000_000);
    let _ = hand.give(seq, Seq(0), "S", &[]);
    assert_eq!(hand.read(), b"last words");
    let events: Vec<Event> = std::iter::from_fn(|| hand.endpoint.poll_event()).collect();
    let closed =
        |event: &Event| matches!(event, Event::Closed { connection, .. } if *connection == id);
    assert!(events.iter().any(closed), "{events:?}");
    // Once nothing is left of it, the port is free.
    hand.sent();
    hand.give(seq, Seq(0), "S", &[]).unwrap();
    assert!(hand.sent().pop().unwrap().flags.syn);
}

#[test]
fn a_reset_survives_a_second_abort() {
    let mut hand = Hand::plain();
    let id = hand.id.unwrap();
    hand.endpoint.abort(hand.now, id).unwrap();
    let _ = hand.endpoint.abort(hand.now, id);
    let sent = hand.sent();
    assert_eq!(sent.len(), 1);
    assert!(sent[0].flags.rst);
}

#[test]
fn a_reset_at_the_right_edge_of_the_window_is_challenged() {
    let mut hand = Hand::plain();
    // What filled the window is lost; the peer gave up and sent a reset behind it.
    let edge = hand.seq.plus(65_535);
    assert_eq!(
        hand.give(edge, hand.ack, "R", &[]),
        Err(Error::ResetChallenged)
    );
    hand.assert_challenge();
    // And its plain acknowledgement is one.
    assert_eq!(hand.give(edge, hand.ack, "A", &[]), Ok(()));
}

#[test]
fn who_completes_a_handshake_with_a_port_that_listens_no_more_is_reset() {
    let mut hand = Hand::new(Config::default());
    hand.inject(&hand.segment(ISS, Seq(0), flags("S"), &[]), "10.0.0.1")
        .unwrap();
    let answer = hand.sent().pop().unwrap();
    hand.endpoint.unlisten(hand.now, PORT).unwrap();
    let _ = hand.give(ISS.plus(1), answer.seq.plus(1), "A", &[]);
    assert!(hand.sent().iter().any(|sent| sent.flags.rst));
    while hand.endpoint.poll_event().is_some() {}
    assert_eq!(hand.endpoint.connections(), 0);
}

#[test]
fn a_least_timeout_above_the_largest_gives_way() {
    let mut config = Config::default();
    config.min_rto = tcpxm::Duration::from_secs(2);
    config.max_rto = tcpxm::Duration::from_secs(1);
    let hand = Hand::establish(config, Options::default());
    let stats = hand.endpoint.conn_stats(hand.id.unwrap()).unwrap();
    assert_eq!(stats.rto, tcpxm::Duration::from_secs(1));
}

#[test]
fn times_without_end_do_not_overflow() {
    let forever = tcpxm::Duration::from_micros(u64::MAX);
    let mut config = Config::default();
    config.connect_timeout = forever;
    config.user_timeout = forever;
    config.time_wait = forever;
    config.keep_alive = Some(forever);
    config.max_rto = forever;
    let mut hand = Hand::establish(config, Options::default());
    let id = hand.id.unwrap();
    hand.endpoint.send(hand.now, id, b"data").unwrap();
    assert_eq!(hand.sent().len(), 1);
    hand.wait(2000);
    assert_eq!(hand.sent().len(), 1, "sent again");
}

#[test]
fn a_time_of_ninety_years_is_kept() {
    const YEAR_MS: u64 = 365 * 24 * 3_600 * 1_000;
    let mut config = Config::default();
    config.time_wait = tcpxm::Duration::from_millis(90 * YEAR_MS);
    let mut hand = Hand::establish(config, Options::default());
    hand.endpoint.shutdown(hand.now, hand.id.unwrap()).unwrap();
    hand.sent();
    hand.ack = hand.ack.plus(1);
    hand.give(hand.seq, hand.ack, "FA", b"").unwrap();
    hand.wait(89 * YEAR_MS);
    assert_eq!(hand.state(), State::TimeWait);
}

/// A rate is one of IP packets: with the headers of IP, UDP and TCP and the options.
#[test]
fn a_rate_counts_all_bytes() {
    for (timestamps, headers) in [(None, 48), (Some((1, 0)), 60)] {
        let mut config = Config::default();
        // A byte each microsecond.
        config.max_rate_bps = Some(8_000_000);
        let options = Options {
            mss: Some(1_000),
            timestamps,
            ..Options::default()
        };
        let mut hand = Hand::establish(config, options);
        let payload = if timestamps.is_some() { 988 } else { 1_000 };
        hand.send(&vec![7; 15 * payload as usize]);
        assert_eq!(hand.sent().len(), 10);
        hand.acknowledge(10 * payload, 60_000);
        assert!(hand.sent().is_empty());
        let next = hand.now + tcpxm::Duration::from_micros(10 * u64::from(payload + headers));
        assert_eq!(hand.endpoint.poll_timeout(), Some(next));
    }
}
