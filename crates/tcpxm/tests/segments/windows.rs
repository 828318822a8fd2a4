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
    let mut hand = established(|config| config.user_timeout = Duration::from_secs(5));
    hand.acknowledge(0, 0);
    hand.send(&[7; 3_000]);
    for _ in 0..12 {
        assert!(probe(&mut hand) <= 5_000);
        hand.wait(20);
        hand.acknowledge(0, 0);
    }
    assert_eq!(hand.end(), None);
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
