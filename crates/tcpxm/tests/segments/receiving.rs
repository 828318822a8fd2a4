//! What a receiver makes of segments: timestamps (RFC 7323), selective acknowledgements (RFC 2018, RFC 2883),
//! and the time of acknowledgements (RFC 5681 §4.2, RFC 9293 §3.8.6.3).

use std::collections::BTreeSet;

use tcpxm::wire::{GroupOption, Options};
use tcpxm::{Config, Duration, Error};

use crate::hand::*;

fn established(change: impl FnOnce(&mut Config), options: Options) -> Hand {
    let mut config = Config::default();
    change(&mut config);
    let mss = Some(1000);
    Hand::establish(config, Options { mss, ..options })
}

fn stamped(group: bool) -> Hand {
    let options = Options {
        timestamps: Some((1_000, 0)),
        group: group.then_some(GroupOption::Named(ip(GROUP))),
        ..Options::default()
    };
    established(|_| (), options)
}

/// Hands in data at an offset with a timestamp.
fn give(hand: &mut Hand, offset: u32, stamp: u32, to: &str) -> Result<(), Error> {
    let mut segment = hand.segment(hand.seq.plus(offset), hand.ack, ACK, b"data");
    segment.options.timestamps = Some((stamp, 0));
    hand.inject(&segment, to)
}

/// RFC 7323 §4.3: the timestamp of the segment that the acknowledgement is caused by, or of the last one before a
/// hole.
#[test]
fn the_echo_is_of_the_segment_that_is_acknowledged() {
    let mut hand = stamped(false);
    let echo = |hand: &mut Hand| {
        hand.sent()
            .pop()
            .map(|sent| sent.options.timestamps.unwrap().1)
    };
    give(&mut hand, 0, 2_000, "10.0.0.1").unwrap();
    give(&mut hand, 4, 2_010, "10.0.0.1").unwrap();
    assert_eq!(echo(&mut hand), Some(2_000), "the earlier of two");
    give(&mut hand, 12, 2_020, "10.0.0.1").unwrap();
    assert_eq!(echo(&mut hand), Some(2_000), "after a hole");
    give(&mut hand, 8, 2_030, "10.0.0.1").unwrap();
    assert_eq!(echo(&mut hand), Some(2_030), "the hole is filled");
}

/// RFC 7323 §5.3, R1, and §5.5: after 24 days the clock may have wrapped.
#[test]
fn an_old_timestamp_is_held_against_a_segment_for_24_days() {
    let day_ms = 24 * 3_600 * 1_000;
    for (wait_ms, expected) in [(24 * day_ms - 1, Err(Error::Paws)), (24 * day_ms, Ok(()))] {
        let mut hand = stamped(false);
        hand.wait(wait_ms);
        assert_eq!(give(&mut hand, 0, 999, "10.0.0.1"), expected);
        let answers = hand.sent().len();
        assert_eq!(
            answers,
            usize::from(expected.is_err()),
            "R1: an acknowledgement"
        );
    }
    // Equal is not older, and a missing one is accepted.
    let mut hand = stamped(false);
    give(&mut hand, 0, 1_000, "10.0.0.1").unwrap();
    hand.give(hand.seq.plus(4), hand.ack, "A", b"data").unwrap();
    assert_eq!(hand.read(), b"datadata");
}

/// The paths of a group's data are different ones: what is a second late is not old.
#[test]
fn a_member_of_a_group_takes_segments_that_are_a_second_late() {
    for to in ["10.0.0.1", GROUP] {
        let mut hand = stamped(true);
        assert_eq!(give(&mut hand, 0, 0, to), Ok(()));
        assert_eq!(give(&mut hand, 4, u32::MAX, to), Err(Error::Paws));
    }
}

/// It would make everything later look old. Clocks may be ten seconds apart.
#[test]
fn a_timestamp_from_the_future_on_the_group_s_address_is_refused() {
    let mut hand = stamped(true);
    hand.wait(5_000);
    assert_eq!(give(&mut hand, 0, 16_001, GROUP), Err(Error::Paws));
    assert_eq!(give(&mut hand, 0, 16_000, GROUP), Ok(()));
}

#[test]
fn blocks_show_the_newest_first_and_all_others_in_turn() {
    let options = Options {
        sack_permitted: true,
        ..Options::default()
    };
    let mut hand = established(|_| (), options);
    let at = |hand: &Hand, n: u32| hand.seq.plus(20 * n);
    // Holes between ten ranges; the newest is one in the middle.
    for n in [1, 2, 3, 4, 6, 7, 8, 9, 10, 5] {
        hand.give(at(&hand, n), hand.ack, "A", &[7; 10]).unwrap();
        let sent = hand.sent().pop().unwrap();
        let blocks = sent.options.sack;
        let newest = (at(&hand, n), at(&hand, n).plus(10));
        assert_eq!(blocks.as_slice()[0], newest, "{n}");
        let distinct: BTreeSet<u32> = blocks.as_slice().iter().map(|(from, _)| from.0).collect();
        assert_eq!(distinct.len(), blocks.len(), "{n}");
    }
    // RFC 2018 §4: a block is repeated, so that losses of acknowledgements do no harm.
    let mut shown: Vec<u32> = Vec::new();
    for n in 0..5 {
        hand.give(at(&hand, 5).plus(10 + n), hand.ack, "A", &[7])
            .unwrap();
        let sent = hand.sent().pop().unwrap();
        let blocks = sent.options.sack;
        assert_eq!(blocks.len(), 4);
        let first = (at(&hand, 5), at(&hand, 5).plus(11 + n));
        assert_eq!(blocks.as_slice()[0], first);
        shown.extend(blocks.as_slice()[1..].iter().map(|(from, _)| from.0));
    }
    let distinct: BTreeSet<u32> = shown.into_iter().collect();
    assert_eq!(distinct.len(), 9, "all others in five acknowledgements");
}

/// RFC 2018 §4: as many as there is space for.
#[test]
fn ranges_that_come_before_the_first_acknowledgement_are_all_told() {
    let options = Options {
        sack_permitted: true,
        ..Options::default()
    };
    let mut hand = established(|_| (), options);
    let starts = [1, 2, 3, 4].map(|n| hand.seq.plus(20 * n));
    for seq in starts {
        hand.give(seq, hand.ack, "A", &[7; 10]).unwrap();
    }
    let sent = hand.sent();
    assert_eq!(sent.len(), 1);
    let blocks = sent[0].options.sack.as_slice().iter();
    let told: BTreeSet<u32> = blocks.map(|(from, _)| from.0).collect();
    assert_eq!(told, BTreeSet::from(starts.map(|seq| seq.0)));
}

/// RFC 2883 §4.1: of data that was read long ago, and of data that waits for what is missing.
#[test]
fn a_duplicate_is_told_once_before_the_blocks() {
    let options = Options {
        sack_permitted: true,
        ..Options::default()
    };
    let mut hand = established(|_| (), options);
    let (seq, ack) = (hand.seq, hand.ack);
    let blocks = |hand: &mut Hand| -> Vec<(u32, u32)> {
        let sent = hand.sent().pop().unwrap();
        let blocks = sent.options.sack;
        let offset = |number: tcpxm::Seq| number.0.wrapping_sub(seq.0);
        let blocks = blocks.as_slice().iter();
        blocks
            .map(|(from, to)| (offset(*from), offset(*to)))
            .collect()
    };
    hand.give(seq, ack, "A", &[7; 100]).unwrap();
    hand.give(seq.plus(200), ack, "A", &[7; 100]).unwrap();
    assert_eq!(blocks(&mut hand), [(200, 300)]);
    assert_eq!(hand.give(seq, ack, "A", &[7; 50]), Err(Error::Duplicate));
    assert_eq!(blocks(&mut hand), [(0, 50), (200, 300)]);
    let middle = hand.give(seq.plus(20), ack, "A", &[7; 50]);
    assert_eq!(middle, Err(Error::Duplicate));
    assert_eq!(blocks(&mut hand), [(20, 70), (200, 300)]);
    let inside = hand.give(seq.plus(210), ack, "A", &[7; 50]);
    assert_eq!(inside, Err(Error::Duplicate));
    assert_eq!(blocks(&mut hand), [(210, 260), (200, 300)]);
    hand.give(seq.plus(300), ack, "A", &[7; 10]).unwrap();
    assert_eq!(blocks(&mut hand), [(200, 310)]);
    // Some of it is new: no duplicate.
    hand.give(seq.plus(50), ack, "A", &[7; 100]).unwrap();
    assert_eq!(blocks(&mut hand), [(200, 310)]);
    assert_eq!(hand.read().len(), 150);
}

#[test]
fn delays_of_acknowledgements_have_a_limit() {
    // RFC 9293 MUST-40: no longer than half a second.
    let mut hand = established(
        |config| {
            config.delayed_ack = Duration::from_secs(10);
            config.ack_every = 0;
        },
        Options::default(),
    );
    hand.give(hand.seq, hand.ack, "A", b"data").unwrap();
    assert_eq!(hand.sent().len(), 1, "every segment at least");
    let mut hand = established(
        |config| {
            config.delayed_ack = Duration::from_secs(10);
            config.ack_every = 3;
        },
        Options::default(),
    );
    let (seq, ack) = (hand.seq, hand.ack);
    hand.give(seq, ack, "A", b"data").unwrap();
    hand.wait(100);
    hand.give(seq.plus(4), ack, "A", b"data").unwrap();
    assert!(hand.sent().is_empty());
    hand.wait(399);
    assert!(hand.sent().is_empty());
    hand.wait(1);
    assert_eq!(hand.sent().len(), 1);
    for n in 2..5 {
        assert!(hand.sent().is_empty());
        hand.give(seq.plus(4 * n), ack, "A", b"data").unwrap();
    }
    assert_eq!(hand.sent().len(), 1, "every third");
}

/// RFC 5681 §4.2: an acknowledgement rides on data.
#[test]
fn data_carries_the_acknowledgement() {
    let mut hand = Hand::plain();
    hand.give(hand.seq, hand.ack, "A", b"data").unwrap();
    hand.send(b"answer");
    let sent = hand.sent();
    assert_eq!((sent.len(), sent[0].ack), (1, hand.seq.plus(4)));
    hand.wait(1_000);
    assert!(hand.sent().iter().all(|sent| !sent.payload.is_empty()));
    // A hole is still told without data, where there is space for blocks.
    hand.seq = hand.seq.plus(4);
    hand.acknowledge(6, 60_000);
    hand.give(hand.seq.plus(10), hand.ack, "A", b"early")
        .unwrap();
    hand.send(b"more");
    let sent = hand.sent();
    assert_eq!(
        sent.iter().filter(|sent| sent.payload.is_empty()).count(),
        1
    );
}

/// RFC 9293 §3.10.7.4, first step: what begins before the window is taken from there on.
#[test]
fn a_segment_that_overlaps_the_window_is_cut() {
    let mut hand = established(|config| config.receive_buffer = 2_048, Options::default());
    let (seq, ack) = (hand.seq, hand.ack);
    hand.give(seq, ack, "A", b"0123").unwrap();
    hand.give(seq.plus(2), ack, "A", b"2345").unwrap();
    assert_eq!(hand.read(), b"012345");
    hand.sent();
    let long = vec![b'x'; 3_000];
    hand.give(seq.plus(6), ack, "A", &long).unwrap();
    assert_eq!(hand.read().len(), 2_048);
    // A segment before the stream: its number is that of the SYN.
    let before = hand.give(ISS.minus(3), ack, "A", b"xxxx");
    assert_eq!(before, Err(Error::Duplicate));
    assert!(hand.read().is_empty());
    let mut hand = Hand::plain();
    hand.give(ISS.minus(1), hand.ack, "A", b"xxdata").unwrap();
    assert_eq!(hand.read(), b"data");
}

/// RFC 2018 §2: blocks need the other side's permission, and the space that data has.
#[test]
fn blocks_are_in_acknowledgements_alone_and_only_where_agreed() {
    for sack_permitted in [false, true] {
        let options = Options {
            sack_permitted,
            ..Options::default()
        };
        let mut hand = established(|_| (), options);
        hand.acknowledge(0, 60_000);
        hand.give(hand.seq.plus(10), hand.ack, "A", b"early")
            .unwrap();
        hand.send(&[7; 2_000]);
        let sent = hand.sent();
        assert_eq!(sent.len(), 3);
        for segment in sent {
            let expected = sack_permitted && segment.payload.is_empty();
            assert_eq!(segment.options.sack.is_empty(), !expected);
        }
    }
}

/// RFC 7323 §4.3: TS.Recent never goes back.
#[test]
fn a_late_timestamp_is_not_echoed() {
    let mut hand = stamped(true);
    give(&mut hand, 0, 2_000, "10.0.0.1").unwrap();
    give(&mut hand, 4, 1_500, GROUP).unwrap();
    hand.wait(40);
    give(&mut hand, 8, 1_600, GROUP).unwrap();
    hand.wait(40);
    let echo = hand.sent().pop().unwrap().options.timestamps.unwrap().1;
    assert_eq!(echo, 2_000);
}

/// RFC 9293 §3.10.7.4, first step. Without data at a rate, so that two sides never answer each other endlessly.
#[test]
fn what_is_out_of_the_window_is_answered() {
    let mut hand = Hand::plain();
    let (seq, ack) = (hand.seq, hand.ack);
    let edge = seq.plus(65_535);
    assert_eq!(hand.give(edge, ack, "A", b"x"), Err(Error::Window));
    hand.assert_challenge();
    assert_eq!(hand.give(edge.minus(1), ack, "A", b"x"), Ok(()));
    hand.sent();
    let mut answers = [0; 3];
    for _ in 0..20 {
        for (n, (text, payload)) in [("A", &b""[..]), ("A", b"x"), ("FA", b"")]
            .iter()
            .enumerate()
        {
            let far = hand.give(seq.plus(100_000), ack, text, payload);
            assert_eq!(far, Err(Error::Window));
            answers[n] += hand.sent().len();
        }
    }
    assert_eq!(answers, [10, 20, 20]);
}

/// Data may reach beyond the window where there is space, and what follows may come before the window is told.
#[test]
fn the_next_byte_is_always_taken_where_there_is_space() {
    for to in ["10.0.0.1", GROUP] {
        let mut hand = stamped(true);
        let options = Options {
            timestamps: Some((1_000, 0)),
            ..Options::default()
        };
        for (offset, len) in [(0, 60_000), (60_000, 5_000), (65_000, 5_000)] {
            let payload = vec![7; len];
            let mut segment = hand.segment(hand.seq.plus(offset), hand.ack, ACK, &payload);
            segment.options = options;
            hand.inject(&segment, "10.0.0.1").unwrap();
        }
        assert_eq!(give(&mut hand, 70_000, 1_000, to), Ok(()));
        assert_eq!(give(&mut hand, 70_005, 1_000, to), Err(Error::Window));
    }
}

/// The report on the group's reception: copies that come late count, however small the buffer is.
#[test]
fn a_late_copy_counts_as_received_by_multicast() {
    let group = Some(GroupOption::Named(ip(GROUP)));
    let options = Options {
        group,
        ..Options::default()
    };
    let mut hand = established(|config| config.receive_buffer = 4_096, options);
    let (seq, ack) = (hand.seq, hand.ack);
    let give = |hand: &mut Hand, n: u32, to: &str| {
        let segment = hand.segment(seq.plus(n * 1_000), ack, ACK, &[7; 1_000]);
        hand.inject(&segment, to)
    };
    for n in 0..1_100 {
        give(&mut hand, n, "10.0.0.1").unwrap();
        assert_eq!(hand.read().len(), 1_000);
    }
    hand.sent();
    for n in 1_000..1_064 {
        assert_eq!(give(&mut hand, n, GROUP), Err(Error::Duplicate));
    }
    hand.wait(40);
    let feedback = hand.sent().pop().unwrap().options.feedback.unwrap();
    assert_eq!(feedback.percent, 50, "64 of the last 128");
    // Older than a mebibyte: it may be forged.
    assert_eq!(give(&mut hand, 51, GROUP), Err(Error::Window));
    assert_eq!(give(&mut hand, 52, GROUP), Err(Error::Duplicate));
}
