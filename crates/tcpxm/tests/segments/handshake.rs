//! Handshakes (RFC 9293 §3.5, §3.10.7.2 to §3.10.7.4) and what they agree on (RFC 7323, RFC 2018, RFC 6691).

use std::net::{IpAddr, SocketAddr};

use tcpxm::store::Ring;
use tcpxm::wire::{GroupOption, Options, Segment};
use tcpxm::{
    Config, Duration, Endpoint, Error, Event, Failure, GroupPolicy, Instant, Meta, Seq, State,
};

use crate::hand::*;

/// The default without timestamps, so that segments have no options.
fn bare() -> Config {
    let mut config = Config::default();
    config.timestamps = false;
    config
}

fn offer(timestamps: bool, sack_permitted: bool, window_scale: bool) -> Options {
    Options {
        mss: Some(1000),
        timestamps: timestamps.then_some((900, 0)),
        sack_permitted,
        window_scale: window_scale.then_some(3),
        ..Options::default()
    }
}

/// All combinations of three switches.
fn combinations() -> impl Iterator<Item = [bool; 3]> {
    (0..8).map(|bits| [1, 2, 4].map(|bit| bits & bit != 0))
}

fn configured([timestamps, sack, window_scaling]: [bool; 3]) -> Config {
    let mut config = Config::default();
    config.timestamps = timestamps;
    config.sack = sack;
    config.window_scaling = window_scaling;
    config
}

#[test]
fn a_syn_offers_what_is_configured() {
    for switches @ [timestamps, sack, scaling] in combinations() {
        let (_, syn) = Hand::connecting(configured(switches));
        let options = syn.options;
        // An MTU of 1500 less the headers of IP, UDP and TCP (RFC 6691).
        assert_eq!(options.mss, Some(1452));
        assert_eq!(options.timestamps.is_some(), timestamps);
        assert_eq!(options.sack_permitted, sack);
        // 4 MiB in units of 128 bytes fit the field.
        assert_eq!(options.window_scale, scaling.then_some(7));
        assert_eq!(options.group, None);
        assert_eq!(syn.window, 65_535, "never scaled (RFC 7323 §2.2)");
    }
    let mut small = Config::default();
    small.receive_buffer = 2048;
    let (_, syn) = Hand::connecting(small);
    assert_eq!((syn.window, syn.options.window_scale), (2048, Some(0)));
}

#[test]
fn an_option_counts_when_both_sides_have_it() {
    for ours in combinations() {
        for theirs in combinations() {
            let both: Vec<bool> = ours.iter().zip(theirs).map(|(a, b)| *a && b).collect();
            let [timestamps, sack, scaling] = both[..] else {
                unreachable!()
            };
            // The peer begins: the answer has what it offered and is configured.
            let options = offer(theirs[0], theirs[1], theirs[2]);
            let mut hand = Hand::new(configured(ours));
            hand.answer("S", options).unwrap();
            let answer = hand.sent().pop().unwrap();
            assert_eq!(answer.flags, flags("SA"));
            assert_eq!(answer.options.timestamps.is_some(), timestamps);
            assert_eq!(answer.options.sack_permitted, sack);
            assert_eq!(answer.options.window_scale.is_some(), scaling);
            if let Some((_, echo)) = answer.options.timestamps {
                assert_eq!(echo, 900);
            }
            let hand = Hand::establish(configured(ours), options);
            assert_eq!(hand.stats().negotiated, (timestamps, scaling, sack));
            // This side begins, and an answer has more than was offered.
            let (mut hand, _) = Hand::connecting(configured(ours));
            hand.answer("SA", options).unwrap();
            assert_eq!(hand.stats().negotiated, (timestamps, scaling, sack));
            let ack = hand.sent().pop().unwrap();
            assert_eq!(ack.flags, ACK);
            assert_eq!(ack.options.timestamps.is_some(), timestamps);
        }
    }
}

/// RFC 7323 §2.2: the window of a SYN is not scaled, later ones are, both ways.
#[test]
fn windows_are_scaled_after_the_handshake() {
    let (mut hand, _) = Hand::connecting(Config::default());
    hand.answer("SA", offer(false, false, true)).unwrap();
    assert_eq!(hand.stats().send_window, 60_000);
    hand.seq = hand.seq.plus(1);
    let ack = hand.sent().pop().unwrap();
    assert!((4 << 20) - 128 <= u32::from(ack.window) << 7);
    hand.acknowledge(0, 1_000);
    assert_eq!(hand.stats().send_window, 8_000);
    // Without the peer's option neither side scales.
    let (mut hand, _) = Hand::connecting(Config::default());
    hand.answer("SA", offer(false, false, false)).unwrap();
    hand.seq = hand.seq.plus(1);
    assert_eq!(hand.sent().pop().unwrap().window, 65_535);
    hand.acknowledge(0, 1_000);
    assert_eq!(hand.stats().send_window, 1_000);
}

/// RFC 9293 §3.7.1: 536 bytes without the option. Tiny segments would serve only to make this side send headers.
#[test]
fn segments_fit_both_sides_and_are_never_tiny() {
    let payload = |config: Config, mss: Option<u16>| {
        let options = Options {
            mss,
            ..Options::default()
        };
        let (mut hand, _) = Hand::connecting(config);
        hand.answer("SA", options).unwrap();
        hand.stats().payload
    };
    for (mss, expected) in [
        (None, 536),
        (Some(1000), 1000),
        (Some(9000), 1452),
        (Some(88), 88),
        (Some(1), 88),
    ] {
        assert_eq!(payload(Config::default(), mss), expected);
    }
    let mut small = Config::default();
    small.mtu = 700;
    assert_eq!(payload(small, Some(1000)), 652);
    // RFC 6691 §2: options come off.
    let (mut hand, _) = Hand::connecting(Config::default());
    hand.answer("SA", offer(true, false, false)).unwrap();
    assert_eq!(hand.stats().payload, 1000 - 12);
}

#[test]
fn an_ipv6_peer_without_the_option_takes_1220_bytes() {
    let now = Instant::ZERO;
    let mut endpoint = Endpoint::<Ring>::new(Config::default(), [7; 32], now);
    let peer: IpAddr = "2001:db8::9".parse().unwrap();
    let local: IpAddr = "2001:db8::1".parse().unwrap();
    let id = endpoint
        .connect(
            now,
            SocketAddr::new(local, PORT),
            SocketAddr::new(peer, PEER_PORT),
        )
        .unwrap();
    let mut buffer = [0; 1500];
    let transmit = endpoint.poll_transmit(now, &mut buffer).unwrap();
    let syn = Segment::parse(&buffer[..transmit.len]).unwrap();
    assert_eq!(syn.options.mss, Some(1432));
    let answer = Segment {
        source_port: PEER_PORT,
        destination_port: PORT,
        seq: ISS,
        ack: syn.seq.plus(1),
        flags: flags("SA"),
        window: 60_000,
        options: Options::default(),
        payload: &[],
    };
    let mut bytes = vec![0; answer.buffer_len()];
    answer.emit(&mut bytes);
    let meta = Meta {
        source: SocketAddr::new(peer, PEER_PORT),
        destination: local,
    };
    endpoint.handle_packet(now, &meta, &bytes).unwrap();
    assert_eq!(endpoint.conn_stats(id).unwrap().payload, 1220);
}

/// RFC 9293 §3.10.7.3, first to fourth step.
#[test]
fn what_a_syn_is_answered_with() {
    let mut dropped = Vec::new();
    for (flag_text, ack_offset) in [
        ("A", 1),
        ("A", -1),
        ("SA", 1),
        ("RA", 1),
        ("R", 0),
        ("A", 0),
        ("P", 0),
    ] {
        let (mut hand, _) = Hand::connecting(Config::default());
        let ack = hand.ack.plus(ack_offset as u32);
        let error = hand.give(ISS, ack, flag_text, b"").unwrap_err();
        let resets: Vec<(Seq, bool)> = hand
            .sent()
            .iter()
            .map(|sent| (sent.seq, sent.flags == flags("R")))
            .collect();
        let reset_due = ack_offset != 0 && !flag_text.contains('R');
        let expected = if reset_due { vec![(ack, true)] } else { vec![] };
        assert_eq!(resets, expected, "{flag_text} {ack_offset}");
        assert_eq!(hand.state(), State::SynSent);
        dropped.push(error);
    }
    use Error::{AckChallenged, NoAck, ResetWindow};
    let expected = [
        AckChallenged,
        AckChallenged,
        AckChallenged,
        AckChallenged,
        ResetWindow,
        NoAck,
        NoAck,
    ];
    assert_eq!(dropped, expected);
    let (mut hand, _) = Hand::connecting(Config::default());
    hand.give(ISS, hand.ack, "RA", b"").unwrap();
    assert!(hand.sent().is_empty());
    assert_eq!(hand.end(), Some(Some(Failure::Refused)));
    let (mut hand, syn) = Hand::connecting(Config::default());
    hand.give(ISS, hand.ack, "SA", b"").unwrap();
    assert_eq!(hand.state(), State::Established);
    let sent = hand.sent();
    assert_eq!(sent.len(), 1, "acknowledged at once");
    assert_eq!(
        (sent[0].flags, sent[0].seq, sent[0].ack),
        (ACK, syn.seq.plus(1), ISS.plus(1))
    );
    assert!(matches!(hand.events()[..], [Event::Connected { .. }]));
}

/// RFC 6298 §2.1, §5.5: after a second, then after twice as long each time.
#[test]
fn a_syn_is_sent_again_as_long_as_the_attempt_lasts() {
    let mut config = Config::default();
    config.connect_timeout = Duration::from_secs(8);
    let (mut hand, syn) = Hand::connecting(config.clone());
    for expected_ms in [1_000, 2_000, 4_000] {
        let (sent, ms) = hand.wait_for(10_000);
        assert_eq!((ms, sent.len()), (expected_ms, 1));
        assert_eq!((sent[0].seq, sent[0].flags), (syn.seq, flags("S")));
    }
    hand.wait(999);
    assert_eq!(hand.end(), None);
    hand.wait(1);
    assert!(hand.sent().is_empty());
    assert_eq!(hand.end(), Some(Some(Failure::ConnectTimeout)));
    // The same for the answer to a SYN; the application never learns of that connection.
    let mut hand = Hand::new(config);
    hand.give(ISS, Seq(0), "S", b"").unwrap();
    let first = hand.sent().pop().unwrap();
    for expected_ms in [1_000, 2_000, 4_000] {
        let (sent, ms) = hand.wait_for(10_000);
        assert_eq!((ms, sent.len()), (expected_ms, 1));
        assert_eq!((sent[0].seq, sent[0].flags), (first.seq, flags("SA")));
    }
    hand.wait(1_000);
    assert!(hand.sent().is_empty() && hand.events().is_empty());
    assert_eq!(hand.endpoint.connections(), 0);
}

/// RFC 6298 §5.7, and RFC 7323 §4.1: timestamps show which SYN was answered.
#[test]
fn a_handshake_measures_the_round_trip_unless_it_took_several_syns() {
    let rto_ms = |timestamps: bool, lost: bool| {
        let (mut hand, _) = Hand::connecting(Config::default());
        if lost {
            hand.wait_for(1_000);
        }
        hand.wait(300);
        hand.answer("SA", offer(timestamps, false, false)).unwrap();
        hand.stats().rto.total_millis()
    };
    assert_eq!([true, false].map(|stamps| rto_ms(stamps, false)), [900; 2]);
    assert_eq!(rto_ms(false, true), 3_000);
    assert_eq!(rto_ms(true, true), 1_000);
}

#[test]
fn a_syn_that_comes_again_is_answered_again() {
    let mut hand = Hand::new(bare());
    hand.give(ISS, Seq(0), "S", b"").unwrap();
    let first = hand.sent().pop().unwrap();
    assert_eq!(hand.give(ISS, Seq(0), "S", b""), Err(Error::Duplicate));
    let again = hand.sent().pop().unwrap();
    assert_eq!(
        (again.seq, again.ack, again.flags),
        (first.seq, ISS.plus(1), flags("SA"))
    );
    // Another number: RFC 5961 §4.2.
    for seq in [ISS.plus(1), ISS.minus(1)] {
        assert_eq!(hand.give(seq, Seq(0), "S", b""), Err(Error::SynChallenged));
    }
    // RFC 9293 §3.10.7.4, fifth step.
    let wrong = first.seq.plus(2);
    assert_eq!(
        hand.give(ISS.plus(1), wrong, "A", b""),
        Err(Error::AckChallenged)
    );
    let reset = hand.sent().into_iter().find(|sent| sent.flags.rst).unwrap();
    assert_eq!((reset.seq, reset.flags), (wrong, flags("R")));
    hand.give(ISS.plus(1), first.seq.plus(1), "A", b"").unwrap();
    assert!(matches!(hand.events()[..], [Event::Incoming { .. }]));
}

/// RFC 9293 §3.10.7.4, second step: back to LISTEN, or refused.
#[test]
fn a_reset_ends_a_handshake() {
    let mut hand = Hand::new(bare());
    hand.give(ISS, Seq(0), "S", b"").unwrap();
    hand.sent();
    assert_eq!(hand.give(ISS, Seq(0), "R", b""), Err(Error::ResetWindow));
    hand.give(ISS.plus(1), Seq(0), "R", b"").unwrap();
    assert!(hand.sent().is_empty() && hand.events().is_empty());
    assert_eq!(hand.endpoint.connections(), 0);

    let (mut hand, _) = Hand::connecting(bare());
    hand.give(ISS, Seq(0), "S", b"").unwrap();
    hand.give(ISS.plus(1), Seq(0), "R", b"").unwrap();
    assert_eq!(hand.end(), Some(Some(Failure::Refused)));
}

/// RFC 9293 §3.5, figure 8. Options are agreed on as ever.
#[test]
fn both_sides_begin() {
    for ours in combinations() {
        for theirs in combinations() {
            let options = offer(theirs[0], theirs[1], theirs[2]);
            let (mut hand, syn) = Hand::connecting(configured(ours));
            hand.answer("S", options).unwrap();
            assert_eq!(hand.state(), State::SynReceived);
            let answer = hand.sent().pop().unwrap();
            assert_eq!((answer.flags, answer.seq), (flags("SA"), syn.seq));
            assert_eq!(answer.ack, ISS.plus(1));
            let both = |at: usize| ours[at] && theirs[at];
            assert_eq!(answer.options.timestamps.is_some(), both(0));
            assert_eq!(answer.options.sack_permitted, both(1));
            assert_eq!(answer.options.window_scale.is_some(), both(2));
            // The peer's answer to this side's SYN: its SYN again, with an acknowledgement.
            hand.answer("SA", options).unwrap();
            assert_eq!(hand.state(), State::Established);
            assert_eq!(hand.stats().negotiated, (both(0), both(2), both(1)));
            assert_eq!(hand.stats().send_window, 60_000, "not scaled");
            let ack = hand.sent().pop().unwrap();
            assert_eq!((ack.flags, ack.ack), (ACK, ISS.plus(1)));
            hand.seq = ISS.plus(1);
            hand.acknowledge(0, 0);
            assert_eq!(hand.stats().send_window, 0, "it counts from now on");
        }
    }
    // Acknowledgements of something else do not.
    for (flag_text, ack_offset) in [("SA", 1), ("S", 0)] {
        let (mut hand, _) = Hand::connecting(bare());
        hand.give(ISS, Seq(0), "S", b"").unwrap();
        let ack = hand.ack.plus(ack_offset);
        let again = hand.give(ISS, ack, flag_text, b"");
        assert_eq!(again, Err(Error::Duplicate), "{flag_text}");
        assert_eq!(hand.state(), State::SynReceived);
    }
    // A plain acknowledgement does as well.
    let (mut hand, _) = Hand::connecting(bare());
    hand.give(ISS, Seq(0), "S", b"").unwrap();
    hand.give(ISS.plus(1), hand.ack, "A", b"").unwrap();
    assert_eq!(hand.state(), State::Established);
}

/// TCP-XM §2.1: a receiver accepts the group that is offered, or proposes another one.
#[test]
fn a_group_is_answered_as_configured() {
    let other = ip("239.192.9.9");
    let v6 = ip("ff18::1");
    let accept = GroupPolicy::Accept;
    for (policy, offered, expected) in [
        (accept, Some(ip(GROUP)), Some(ip(GROUP))),
        (accept, Some(v6), None),
        (accept, None, None),
        (GroupPolicy::Refuse, Some(ip(GROUP)), None),
        (GroupPolicy::Propose(other), Some(ip(GROUP)), Some(other)),
        (GroupPolicy::Propose(other), None, None),
        (GroupPolicy::Propose(v6), Some(ip(GROUP)), None),
    ] {
        let mut config = bare();
        config.groups = policy;
        let mut hand = Hand::new(config);
        let group = offered.map(GroupOption::Named);
        let options = Options {
            group,
            ..Options::default()
        };
        hand.answer("S", options).unwrap();
        let answer = hand.sent().pop().unwrap();
        let what = format!("{policy:?} {offered:?}");
        assert_eq!(
            answer.options.group,
            expected.map(GroupOption::Named),
            "{what}"
        );
        hand.give(ISS.plus(1), answer.seq.plus(1), "A", b"")
            .unwrap();
        let joined = hand.events().into_iter().find_map(|event| match event {
            Event::Join { group, .. } => Some(group),
            _ => None,
        });
        assert_eq!(joined, expected, "{what}");
    }
}

/// RFC 6191, and RFC 9293 §3.10.7.4, fourth step: in TIME-WAIT a later SYN begins a new connection.
#[test]
fn a_later_syn_replaces_a_connection_in_time_wait() {
    let stamp = |value: u32| Some((value, 0));
    // Sequence number, timestamp, and whether it begins a connection.
    for (offset, stamps, begins) in [
        (1, None, true),
        (-1, None, false),
        (-1, stamp(901), true),
        (1, stamp(899), false),
        (1, stamp(900), true),
        (-1, stamp(900), false),
    ] {
        let mut hand = Hand::establish(Config::default(), offer(true, false, false));
        let id = hand.id.unwrap();
        hand.endpoint.shutdown(hand.now, id).unwrap();
        hand.sent();
        hand.ack = hand.ack.plus(1);
        hand.answer("FA", offer(true, false, false)).unwrap();
        assert_eq!(hand.state(), State::TimeWait);
        hand.events();
        hand.sent();
        let next = hand.seq.plus(1);
        let mut syn = hand.segment(next.plus(offset as u32), Seq(0), flags("S"), &[]);
        syn.options.timestamps = stamps;
        let result = hand.inject(&syn, "10.0.0.1");
        let begun = hand.sent().iter().any(|sent| sent.flags == flags("SA"));
        assert_eq!(begun, begins, "{offset} {stamps:?}");
        let expected = if begins {
            Ok(())
        } else {
            Err(Error::SynChallenged)
        };
        assert_eq!(result, expected, "{offset} {stamps:?}");
    }
}

/// A connection fails, or is given up: a peer that knows of it is told.
#[test]
fn an_abort_of_a_handshake_is_a_reset_only_where_the_peer_has_answered() {
    let (mut hand, _) = Hand::connecting(bare());
    hand.endpoint.abort(hand.now, hand.id.unwrap()).unwrap();
    assert!(hand.sent().is_empty());
    let (mut hand, syn) = Hand::connecting(bare());
    hand.give(ISS, Seq(0), "S", b"").unwrap();
    hand.endpoint.abort(hand.now, hand.id.unwrap()).unwrap();
    let sent = hand.sent();
    assert_eq!(sent.len(), 1, "no SYN-ACK any more");
    assert_eq!((sent[0].flags, sent[0].ack), (flags("RA"), ISS.plus(1)));
    assert_eq!(sent[0].seq, syn.seq.plus(1));
}

/// What is written, and the end of it, waits for the answer to the SYN, which is all that has a timer.
#[test]
fn what_is_written_before_the_answer_follows_it() {
    for content in [&b"data"[..], b""] {
        let (mut hand, _) = Hand::connecting(bare());
        hand.send(content);
        hand.endpoint.shutdown(hand.now, hand.id.unwrap()).unwrap();
        let (sent, ms) = hand.wait_for(1_000);
        assert_eq!((sent.len(), sent[0].flags, ms), (1, flags("S"), 1_000));
        let next = hand.now + Duration::from_secs(2);
        assert_eq!(hand.endpoint.poll_timeout(), Some(next));
        hand.give(ISS, hand.ack, "SA", b"").unwrap();
        let sent = hand.sent();
        let data: Vec<u8> = sent.iter().flat_map(|sent| sent.payload.clone()).collect();
        assert_eq!(data, content);
        assert!(sent.last().unwrap().flags.fin);
    }
}
