//! Windows: the peer's, which may be closed (RFC 9293 §3.8.6.1), and ours (§3.8.6.2.2).

use tcpxm::wire::Options;
use tcpxm::{Config, Duration, Failure};

use crate::hand::*;

fn established(change: impl FnOnce(&mut Config)) -> Hand {
    let mut config = Config::default();
    change(&mut config);
    let mss = Some(1000);
    let options = Options {
        mss,
        ..Options::default()
    };
    Hand::establish(config, options)
}

/// Bytes of data that are sent now.
fn data(hand: &mut Hand) -> usize {
    hand.sent().iter().map(|sent| sent.payload.len()).sum()
}

/// Milliseconds until the next probe, which asks for the window and has no data.
fn probe(hand: &mut Hand) -> u64 {
    let (sent, ms) = hand.wait_for(100_000);
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].flags, sent[0].payload.len()), (ACK, 0));
    assert_eq!((sent[0].seq, sent[0].ack), (hand.ack.minus(1), hand.seq));
    ms
}

#[test]
fn a_closed_window_is_probed_less_and_less_often() {
    let mut hand = established(|config| config.max_rto = Duration::from_millis(1_500));
    hand.acknowledge(0, 0);
    hand.send(&[7; 3_000]);
    assert_eq!(data(&mut hand), 0);
    let pauses: Vec<u64> = (0..5).map(|_| probe(&mut hand)).collect();
    assert_eq!(pauses, [200, 400, 800, 1_500, 1_500]);
    // An answer that it is still closed changes nothing.
    hand.acknowledge(0, 0);
    assert_eq!(probe(&mut hand), 1_500);
    hand.acknowledge(0, 60_000);
    assert_eq!(data(&mut hand), 3_000);
    hand.acknowledge(3_000, 0);
    for _ in 0..100 {
        hand.wait(100);
        assert!(hand.sent().is_empty(), "there is nothing to ask for");
    }
    hand.send(&[7; 3_000]);
    assert_eq!(probe(&mut hand), 200, "another time it begins anew");
}

/// RFC 9293 MUST-37. Probes become rarer than the timeout is long.
#[test]
fn a_window_may_stay_closed_as_long_as_probes_are_answered() {
    let answering = |round_trip_ms: u64| {
        let mut hand = established(|config| config.user_timeout = Duration::from_secs(5));
        hand.acknowledge(0, 0);
        hand.send(&[7; 3_000]);
        for _ in 0..12 {
            assert!(probe(&mut hand) <= 5_000);
            hand.wait(round_trip_ms);
            hand.acknowledge(0, 0);
        }
        assert_eq!(hand.end(), None);
        hand
    };
    // Also on the same host, where no time passes.
    answering(0);
    let mut hand = answering(20);
    // It dies. The time counts from the first probe that it does not answer.
    probe(&mut hand);
    hand.wait(4_999);
    assert!(hand.sent().iter().all(|sent| sent.flags == ACK));
    assert_eq!(hand.end(), None);
    hand.wait(1);
    let sent = hand.sent();
    assert_eq!((sent.len(), sent[0].flags), (1, flags("RA")));
    assert_eq!(hand.end(), Some(Some(Failure::Timeout)));
}

/// The first probe is sent whatever the time: the peer had nothing to answer before.
#[test]
fn a_peer_that_was_silent_is_asked_before_it_is_given_up() {
    let mut hand = established(|config| config.user_timeout = Duration::from_secs(5));
    hand.acknowledge(0, 0);
    hand.wait(60_000);
    hand.send(&[7; 3_000]);
    assert_eq!(probe(&mut hand), 200);
    hand.acknowledge(0, 0);
    assert_eq!(hand.end(), None);
}

/// The peer was probed less and less often. What it offers then is used as soon as at any other time.
#[test]
fn a_window_that_opens_a_little_is_used_a_timeout_later() {
    let mut hand = established(|_| ());
    hand.acknowledge(0, 0);
    hand.send(&[7; 3_000]);
    for _ in 0..4 {
        probe(&mut hand);
    }
    hand.wait(20);
    hand.acknowledge(0, 500);
    let (sent, ms) = hand.wait_for(10_000);
    assert_eq!((sent[0].payload.len(), ms), (500, 200));
}

#[test]
fn a_connection_with_nothing_to_send_needs_no_timer() {
    let mut hand = established(|_| ());
    assert_eq!(hand.endpoint.poll_timeout(), None);
    hand.send(&[7; 500]);
    assert_eq!(data(&mut hand), 500);
    hand.acknowledge(500, 60_000);
    assert_eq!(hand.endpoint.poll_timeout(), None);
    hand.acknowledge(0, 0);
    assert_eq!(hand.endpoint.poll_timeout(), None, "a closed window");
}

/// RFC 9293 §3.8.6.2.1: less than a segment, and than half of the largest window, waits for the timeout.
#[test]
fn a_small_window_is_used_after_a_timeout() {
    let mut hand = established(|_| ());
    hand.acknowledge(0, 500);
    hand.send(&[7; 3_000]);
    assert_eq!(data(&mut hand), 0);
    let (sent, ms) = hand.wait_for(1_000);
    assert_eq!((sent[0].payload.len(), ms), (500, 200));
    hand.acknowledge(500, 29_999);
    assert_eq!(data(&mut hand), 2_000, "whole segments");
}

/// RFC 9293 §3.10.7.4, fifth step: SND.WL1 and SND.WL2.
#[test]
fn an_older_segment_does_not_set_the_window() {
    let mut hand = established(|_| ());
    let give = |hand: &mut Hand, offset: u32, window: u16, payload: &[u8]| {
        let mut segment = hand.segment(hand.seq.plus(offset), hand.ack, ACK, payload);
        segment.window = window;
        hand.inject(&segment, "10.0.0.1").unwrap();
        hand.stats().send_window
    };
    assert_eq!(give(&mut hand, 0, 50_000, b"data"), 50_000);
    assert_eq!(give(&mut hand, 4, 40_000, b"data"), 40_000);
    // It overtook these.
    assert_eq!(give(&mut hand, 0, 30_000, b""), 40_000);
    assert_eq!(give(&mut hand, 8, 20_000, b""), 20_000);
    assert_eq!(give(&mut hand, 8, 25_000, b""), 25_000, "the same numbers");
    // The acknowledgement counts where the sequence number is the same.
    hand.seq = hand.seq.plus(8);
    hand.send(&[7; 2_000]);
    assert_eq!(data(&mut hand), 2_000);
    hand.acknowledge(2_000, 10_000);
    assert_eq!(hand.stats().send_window, 10_000);
    let mut old = hand.segment(hand.seq, hand.ack.minus(1_000), ACK, &[]);
    old.window = 50_000;
    hand.inject(&old, "10.0.0.1").unwrap();
    assert_eq!(hand.stats().send_window, 10_000);
}

/// The application reads `len` bytes; the window that the peer is told then, if it is told one.
fn read(hand: &mut Hand, len: usize) -> Option<u16> {
    let mut out = vec![0; len];
    let id = hand.id.unwrap();
    hand.endpoint.recv(hand.now, id, &mut out).unwrap();
    let mut sent = hand.sent();
    assert!(sent.len() <= 1);
    sent.pop().map(|sent| sent.window)
}

#[test]
fn the_peer_is_told_of_space_for_a_segment_and_not_of_less() {
    // As much as a segment, 1452 bytes, or half of the buffer.
    for (buffer, least) in [(2_048, 1_024), (4_096, 1_452)] {
        let mut hand = established(|config| config.receive_buffer = buffer);
        for at in (0..buffer as u32).step_by(1_024) {
            hand.give(hand.seq.plus(at), hand.ack, "A", &[7; 1_024])
                .unwrap();
            hand.wait(40);
        }
        assert_eq!(hand.sent().last().unwrap().window, 0);
        assert_eq!(read(&mut hand, least - 1), None, "of {buffer}");
        assert_eq!(read(&mut hand, 1), Some(least as u16), "of {buffer}");
    }
}

/// A peer with space for several segments learns of more with the next acknowledgement.
#[test]
fn a_large_window_is_updated_by_quarters() {
    let mut hand = established(|config| config.receive_buffer = 32_768);
    for at in 0..8 {
        hand.give(hand.seq.plus(2_048 * at), hand.ack, "A", &[7; 2_048])
            .unwrap();
    }
    assert_eq!(hand.sent().last().unwrap().window, 16_384);
    assert_eq!(read(&mut hand, 8_191), None);
    assert_eq!(read(&mut hand, 1), Some(24_576));
    assert_eq!(read(&mut hand, 2_000), None);
}

#[test]
fn after_the_peer_s_fin_no_window_is_told() {
    let mut hand = established(|config| config.receive_buffer = 2_048);
    hand.give(hand.seq, hand.ack, "FA", &[7; 2_048]).unwrap();
    hand.sent();
    assert_eq!(read(&mut hand, 2_048), None);
}

/// The window that an acknowledgement offers once another segment has come, and the application reads `len` bytes
/// before that.
fn next_window(hand: &mut Hand, len: usize) -> u16 {
    assert_eq!(read(hand, len), None);
    hand.give(hand.seq, hand.ack, "A", &[7; 1_000]).unwrap();
    hand.seq = hand.seq.plus(1_000);
    hand.wait(40);
    hand.sent().pop().unwrap().window
}

/// RFC 9293 §3.8.6.2.2: also where an acknowledgement is sent anyway.
#[test]
fn an_acknowledgement_offers_a_segment_more_and_not_less() {
    let mut hand = established(|config| config.receive_buffer = 8_192);
    assert_eq!(next_window(&mut hand, 0), 7_192);
    assert_eq!(next_window(&mut hand, 1_000), 6_192, "1000 bytes are free");
    assert_eq!(next_window(&mut hand, 451), 5_192, "and 1451");
    assert_eq!(next_window(&mut hand, 1), 4_192 + 1_452);
    // Half of a small buffer.
    let mut hand = established(|config| config.receive_buffer = 2_048);
    assert_eq!(next_window(&mut hand, 0), 1_048);
    assert_eq!(next_window(&mut hand, 1_000), 48);
}

/// A peer with space for two segments goes on by itself.
#[test]
fn less_than_a_quarter_is_told_when_the_peer_has_no_space_for_two_segments() {
    for (left, told) in [
        (2 * 1_452, None),
        (2 * 1_452 - 1, Some(2 * 1_452 - 1 + 1_452)),
    ] {
        let mut hand = established(|config| config.receive_buffer = 8_192);
        let payload = vec![7; 8_192 - left];
        hand.give(hand.seq, hand.ack, "A", &payload).unwrap();
        hand.wait(40);
        assert_eq!(hand.sent().pop().unwrap().window, left as u16);
        assert_eq!(read(&mut hand, 1_452), told, "{left}");
    }
}

/// RFC 7323 §2.3. A window that is not a multiple of the unit is rounded up where the buffer has space for that.
#[test]
fn a_scaled_window_reaches_to_the_end_of_the_buffer() {
    let mut config = Config::default();
    config.receive_buffer = 1 << 20;
    let options = Options {
        window_scale: Some(0),
        ..Options::default()
    };
    let mut hand = Hand::establish(config, options);
    hand.give(hand.seq, hand.ack, "A", &[7; 32]).unwrap();
    hand.wait(40);
    let window = hand.sent().pop().unwrap().window;
    // In units of 32 bytes.
    assert_eq!(32 + (u32::from(window) << 5), 1 << 20);
    let last = hand.seq.plus((1 << 20) - 1);
    assert_eq!(
        hand.give(last, hand.ack, "A", b"x"),
        Ok(()),
        "it was offered"
    );
}
