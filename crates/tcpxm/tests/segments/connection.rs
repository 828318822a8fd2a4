//! One connection: RFC 9293, RFC 5961, RFC 7323, RFC 2018.

use tcpxm::store::NullStore;
use tcpxm::wire::Options;
use tcpxm::{Config, Error, Event, Failure, Seq, State};

use crate::hand::*;

#[test]
fn a_reset_counts_only_at_the_very_next_number() {
    // RFC 5961 §3.2, for a spread of wrong guesses, on either side of the wrap.
    for offset in [1, 100, 60_000] {
        let mut hand = Hand::plain();
        let seq = hand.seq.plus(offset);
        assert_eq!(
            hand.give(seq, Seq(0), "R", &[]),
            Err(Error::ResetChallenged)
        );
        hand.assert_challenge();
        assert_eq!(hand.state(), State::Established);
    }
    for offset in [-1i32, -5000, i32::MIN + 1] {
        let mut hand = Hand::plain();
        let seq = hand.seq.plus(offset as u32);
        assert_eq!(hand.give(seq, Seq(0), "R", &[]), Err(Error::ResetWindow));
        assert!(hand.sent().is_empty());
        assert_eq!(hand.state(), State::Established);
    }
    let mut hand = Hand::plain();
    let seq = hand.seq;
    assert_eq!(hand.give(seq, Seq(0), "R", &[]), Ok(()));
    assert_eq!(hand.state(), State::Closed);
    assert!(hand.sent().is_empty(), "a reset is not answered");
    let closed = std::iter::from_fn(|| hand.endpoint.poll_event()).any(|event| {
        matches!(
            event,
            Event::Closed {
                failure: Some(Failure::Reset),
                ..
            }
        )
    });
    assert!(closed);
}

#[test]
fn a_syn_on_a_connection_is_challenged() {
    // RFC 5961 §4.2, whatever its number.
    for offset in [0u32, 1, 70_000, 0x8000_0000, u32::MAX] {
        for text in ["S", "SA"] {
            let mut hand = Hand::plain();
            let (seq, ack) = (hand.seq.plus(offset), hand.ack);
            assert_eq!(hand.give(seq, ack, text, &[]), Err(Error::SynChallenged));
            hand.assert_challenge();
            assert_eq!(hand.state(), State::Established);
        }
    }
}

#[test]
fn acknowledgements_of_the_unsent_and_of_long_ago_are_challenged() {
    // RFC 5961 §5.2; data that comes with them is not taken.
    for offset in [
        1u32,
        100_000,
        0x7fff_ffff,
        0u32.wrapping_sub(70_000),
        0x8000_0001,
    ] {
        let mut hand = Hand::plain();
        let (seq, ack) = (hand.seq, hand.ack.plus(offset));
        assert_eq!(
            hand.give(seq, ack, "A", b"forged"),
            Err(Error::AckChallenged),
            "{offset}"
        );
        hand.assert_challenge();
        assert!(hand.read().is_empty());
    }
}

#[test]
fn challenges_have_a_rate() {
    let mut hand = Hand::plain();
    let mut answers = 0;
    for _ in 0..1000 {
        let seq = hand.seq.plus(5);
        hand.give(seq, Seq(0), "R", &[]).unwrap_err();
        answers += hand.sent().len();
    }
    assert_eq!(answers, 10);
    assert_eq!(hand.endpoint.stats().challenges_suppressed, 990);
    hand.wait(1000);
    let seq = hand.seq.plus(5);
    hand.give(seq, Seq(0), "R", &[]).unwrap_err();
    hand.assert_challenge();
}

#[test]
fn segments_without_ack_and_out_of_the_window_change_nothing() {
    let mut hand = Hand::plain();
    let (seq, ack) = (hand.seq, hand.ack);
    assert_eq!(hand.give(seq, ack, "P", b"x"), Err(Error::NoAck));
    assert!(hand.sent().is_empty());
    assert_eq!(
        hand.give(seq.plus(1 << 30), ack, "A", b"x"),
        Err(Error::Window)
    );
    hand.assert_challenge();
    assert_eq!(
        hand.give(seq.minus(2), ack, "A", b"xx"),
        Err(Error::Duplicate)
    );
    hand.assert_challenge();
    assert_eq!(
        hand.give(seq.minus(1), ack, "A", &[]),
        Err(Error::Window),
        "keep-alive probe"
    );
    hand.assert_challenge();
    assert!(hand.read().is_empty());
}

#[test]
fn data_is_put_in_order_across_the_wrap() {
    let mut hand = Hand::plain();
    let (seq, ack) = (hand.seq, hand.ack);
    let content: Vec<u8> = (0..2000u64).map(NullStore::byte).collect();
    assert!(seq.plus(2000).0 < seq.0, "the numbers wrap");
    for start in [1000, 1500, 500, 300] {
        hand.give(
            seq.plus(start),
            ack,
            "A",
            &content[start as usize..start as usize + 500],
        )
        .unwrap();
        let sent = hand.sent();
        assert_eq!(sent.len(), 1, "each hole is told at once");
        assert_eq!(sent[0].ack, seq);
    }
    hand.give(seq, ack, "A", &content[..600]).unwrap();
    assert_eq!(hand.sent()[0].ack, seq.plus(2000));
    assert_eq!(hand.read(), content);
}

#[test]
fn sack_blocks_show_the_newest_first_and_a_duplicate_once() {
    let options = Options {
        mss: Some(1000),
        sack_permitted: true,
        ..Options::default()
    };
    let mut hand = Hand::establish(Config::default(), options);
    let (seq, ack) = (hand.seq, hand.ack);
    let block = |from: u32, to: u32| (seq.plus(from), seq.plus(to));
    hand.give(seq.plus(100), ack, "A", &[0; 100]).unwrap();
    assert_eq!(hand.sent()[0].options.sack.as_slice(), [block(100, 200)]);
    hand.give(seq.plus(300), ack, "A", &[0; 100]).unwrap();
    let sent = hand.sent();
    assert_eq!(
        sent[0].options.sack.as_slice(),
        [block(300, 400), block(100, 200)]
    );
    // RFC 2883 §4.2.
    assert_eq!(
        hand.give(seq.plus(100), ack, "A", &[0; 100]),
        Err(Error::Duplicate)
    );
    let sent = hand.sent();
    assert_eq!(sent[0].options.sack.as_slice()[0], block(100, 200));
    assert_eq!(sent[0].options.sack.len(), 3);
    hand.give(seq, ack, "A", &[0; 100]).unwrap();
    let sent = hand.sent();
    assert_eq!(
        (sent[0].ack, sent[0].options.sack.as_slice()),
        (seq.plus(200), &[block(300, 400)][..])
    );
}

#[test]
fn old_timestamps_are_refused() {
    // RFC 7323 §5.
    let options = Options {
        mss: Some(1000),
        timestamps: Some((1000, 0)),
        ..Options::default()
    };
    let mut hand = Hand::establish(Config::default(), options);
    let (seq, ack) = (hand.seq, hand.ack);
    let give = |hand: &mut Hand, stamp: u32, at: u32| {
        let mut segment = hand.segment(seq.plus(at), ack, ACK, b"data");
        segment.options.timestamps = Some((stamp, 0));
        hand.inject(&segment, "10.0.0.1")
    };
    assert_eq!(give(&mut hand, 2000, 0), Ok(()));
    hand.wait(50);
    assert_eq!(hand.sent()[0].options.timestamps.unwrap().1, 2000, "echoed");
    assert_eq!(give(&mut hand, 1999, 4), Err(Error::Paws));
    assert_eq!(give(&mut hand, 2001, 4), Ok(()));
    assert_eq!(hand.read(), b"datadata");
}

#[test]
fn acknowledgements_are_delayed_and_every_second_segment_is_told() {
    let mut hand = Hand::plain();
    let (seq, ack) = (hand.seq, hand.ack);
    hand.give(seq, ack, "A", &[0; 100]).unwrap();
    assert!(hand.sent().is_empty());
    hand.wait(39);
    assert!(hand.sent().is_empty());
    hand.wait(1);
    assert_eq!(hand.sent()[0].ack, seq.plus(100));
    hand.give(seq.plus(100), ack, "A", &[0; 100]).unwrap();
    hand.give(seq.plus(200), ack, "A", &[0; 100]).unwrap();
    assert_eq!(hand.sent()[0].ack, seq.plus(300));
    hand.wait(100);
    assert!(hand.sent().is_empty());
}

#[test]
fn the_window_closes_stays_and_opens_without_shrinking() {
    let mut small = Config::default();
    small.receive_buffer = 4096;
    let mut hand = Hand::establish(
        small,
        Options {
            mss: Some(1000),
            ..Options::default()
        },
    );
    let (seq, ack) = (hand.seq, hand.ack);
    let mut edge = 0;
    for n in 0..4 {
        hand.give(seq.plus(n * 1024), ack, "A", &[n as u8; 1024])
            .unwrap();
        hand.wait(40);
        for sent in hand.sent() {
            let right = sent.ack.since(seq) + i32::from(sent.window);
            assert!(right >= edge, "the window shrank");
            edge = right;
        }
    }
    assert_eq!(edge, 4096);
    // A probe with data is refused and answered; one byte read opens nothing (silly window).
    assert_eq!(
        hand.give(seq.plus(4096), ack, "A", b"p"),
        Err(Error::Window)
    );
    let sent = hand.sent();
    assert_eq!((sent[0].ack, sent[0].window), (seq.plus(4096), 0));
    let mut one = [0];
    hand.endpoint
        .recv(hand.now, hand.id.unwrap(), &mut one)
        .unwrap();
    hand.wait(100);
    assert!(hand.sent().is_empty());
    assert_eq!(hand.read().len(), 4095);
    let sent = hand.sent();
    assert_eq!((sent[0].ack, sent[0].window), (seq.plus(4096), 4096));
}
