//! Losses as one peer's acknowledgements show them: without SACK (RFC 5681 §3.2, RFC 6582), by timeouts (RFC 6298),
//! and those that were none (RFC 3522, RFC 3708, RFC 4015).

use tcpxm::wire::Options;
use tcpxm::{Config, Error};

use crate::flight::Flight;
use crate::hand::*;

/// RFC 5681 §3.2, steps 1 to 4; RFC 3042.
#[test]
fn the_third_duplicate_acknowledgement_repairs() {
    let mut flight = Flight::new(false, false);
    flight.write(20);
    assert_eq!(flight.sent(), (0..10).collect::<Vec<_>>());
    flight.pass();
    flight.acknowledge(0, &[]);
    assert_eq!(flight.sent(), [10], "limited transmit");
    flight.acknowledge(0, &[]);
    assert_eq!(flight.sent(), [11]);
    assert_eq!(flight.window(), 10);
    flight.acknowledge(0, &[]);
    assert_eq!(flight.sent(), [0]);
    assert_eq!(flight.window(), 5, "half of the flight");
    // Each further one shows that a segment has left: the eighth lets new data go.
    for duplicate in 4..=7 {
        flight.acknowledge(0, &[]);
        assert_eq!(flight.sent(), [], "{duplicate}");
    }
    flight.acknowledge(0, &[]);
    assert_eq!(flight.sent(), [12]);
    // RFC 6582 §3.2, step 3, full acknowledgement.
    flight.pass();
    flight.acknowledge(13, &[]);
    // Half of the flight, and what one acknowledgement lets it grow by.
    assert!((5..=6).contains(&flight.window()));
    assert_eq!(flight.sent().len() as u64, flight.window());
    assert_eq!(flight.hand.endpoint.stats().retransmissions, 1);
    assert_eq!(flight.hand.stats().retransmissions, 1);
}

/// RFC 6298 §5.1: a timer that runs is left alone.
#[test]
fn a_repair_does_not_put_the_timeout_off() {
    let mut flight = Flight::new(false, false);
    flight.write(10);
    flight.sent();
    flight.pass();
    for _ in 0..3 {
        flight.acknowledge(0, &[]);
    }
    assert_eq!(flight.sent(), [0]);
    let (again, ms) = flight.wait_for(300);
    assert_eq!((again, ms), (vec![0], 180));
    assert_eq!(flight.hand.endpoint.stats().timeouts, 1);
}

/// RFC 9937: one loss among ten reduces the window to five. One segment leaves for every two that arrive until no more
/// are in flight, and then one for each.
#[test]
fn during_recovery_half_as_much_leaves_as_arrives() {
    let mut flight = Flight::new(true, false);
    flight.write(30);
    flight.sent();
    flight.pass();
    let leaves = (4..=10).map(|arrived| {
        flight.acknowledge(0, &[(1, arrived)]);
        flight.sent()
    });
    let leaves: Vec<Vec<u32>> = leaves.collect();
    // Three had arrived when the loss was found.
    let expected = [
        vec![0],
        vec![10],
        vec![],
        vec![],
        vec![11],
        vec![12],
        vec![13],
    ];
    assert_eq!(leaves, expected);
    assert_eq!(flight.window(), 5);
}

/// RFC 9937 §6.2, where more was lost than the window is reduced by: no more leaves than arrives, and one segment more
/// for an acknowledgement that moves on and shows no further loss.
#[test]
fn after_many_losses_repairs_begin_slowly() {
    // Seven of ten are lost, three have arrived.
    let lost = || {
        let mut flight = Flight::new(true, false);
        flight.write(20);
        flight.sent();
        flight.pass();
        flight.acknowledge(0, &[(7, 10)]);
        assert_eq!(flight.sent(), [0, 1, 2], "the window is five");
        flight.pass();
        flight
    };
    let mut flight = lost();
    flight.acknowledge(1, &[(7, 10)]);
    assert_eq!(flight.sent(), [3, 4], "it moves on");
    let mut flight = lost();
    flight.acknowledge(0, &[(3, 4), (7, 10)]);
    assert_eq!(flight.sent(), [4], "something was late");
    let mut flight = lost();
    flight.acknowledge(1, &[(2, 3), (7, 10)]);
    assert_eq!(flight.sent(), [1, 3], "a repair is lost, two have arrived");
}

/// RFC 9937 §6.2: acknowledgements let more be sent, or less; the reordering timer (RFC 8985 §6.2) does when it finds a
/// loss. Data that was sent shortly after what it waits for has made it wait longer.
#[test]
fn a_reordering_timer_that_finds_nothing_lost_takes_nothing_away() {
    // Sendings within a twenty-fourth of the round trip count as one.
    let mut flight = Flight::over(990, |_| (), true, false);
    flight.write(3);
    flight.sent();
    flight.pass();
    flight.acknowledge(0, &[(2, 3)]);
    flight.acknowledge(3, &[]);
    // It reorders. Seven of ten are lost.
    flight.write(10);
    flight.sent();
    flight.pass();
    flight.acknowledge(3, &[(10, 13)]);
    assert_eq!(flight.wait_for(20), (vec![3, 4, 5], 5));
    flight.pass();
    flight.acknowledge(6, &[(10, 13)]);
    assert_eq!(flight.sent(), [6, 7, 8, 9]);
    flight.pass();
    flight.acknowledge(9, &[(10, 13)]);
    flight.write(4);
    assert_eq!(flight.sent(), [13, 14, 15, 16]);
    flight.pass();
    // The repair of 9 is lost, and 13 may be.
    flight.acknowledge(9, &[(14, 17), (10, 13)]);
    assert_eq!(flight.sent(), [9]);
    flight.write(1);
    assert_eq!(flight.sent(), [17]);
    // The timer fires.
    flight.hand.wait(10);
    flight.write(2);
    assert_eq!(flight.sent(), [18], "three had arrived");
}

/// RFC 6582 §3.2, step 3, partial acknowledgement: the next hole is repaired at once, and the window is reduced once.
#[test]
fn a_partial_acknowledgement_shows_the_next_loss() {
    let mut flight = Flight::new(false, false);
    flight.write(10);
    flight.sent();
    flight.pass();
    for _ in 0..3 {
        flight.acknowledge(0, &[]);
    }
    assert_eq!(flight.sent(), [0]);
    flight.pass();
    flight.acknowledge(4, &[]);
    assert_eq!(flight.sent(), [4]);
    flight.pass();
    flight.acknowledge(7, &[]);
    assert_eq!(flight.sent(), [7]);
    assert_eq!(flight.window(), 5);
    flight.pass();
    flight.acknowledge(10, &[]);
    assert_eq!(flight.sent(), []);
    assert_eq!(flight.hand.endpoint.stats().timeouts, 0);
}

/// RFC 5681 §2: what a duplicate acknowledgement is.
#[test]
fn other_segments_are_no_duplicate_acknowledgements() {
    // With data, or with another window: as often as it takes.
    let mut flight = Flight::new(false, false);
    flight.write(10);
    flight.sent();
    flight.pass();
    for n in 0..5 {
        flight.give(0, &[], 60_000, b"data").unwrap();
        flight.give(0, &[], 50_000 + n, b"").unwrap();
    }
    assert_eq!(flight.sent(), []);
    // Two, then news, then two.
    for acknowledged in [0, 1] {
        flight.give(acknowledged, &[], 50_004, b"").unwrap();
        flight.give(acknowledged, &[], 50_004, b"").unwrap();
    }
    assert_eq!(flight.sent(), []);
    flight.give(1, &[], 50_004, b"").unwrap();
    flight.give(1, &[], 50_004, b"").unwrap();
    assert_eq!(flight.sent(), [1]);
    // During recovery they show no further loss.
    flight.give(1, &[], 50_004, b"data").unwrap();
    flight.give(1, &[], 50_005, b"").unwrap();
    assert_eq!(flight.sent(), []);
    // Nothing is outstanding.
    let mut flight = Flight::new(false, false);
    flight.write(2);
    flight.sent();
    flight.acknowledge(2, &[]);
    for _ in 0..5 {
        flight.acknowledge(2, &[]);
    }
    assert_eq!(flight.sent(), []);
    flight.write(1);
    assert_eq!(flight.sent(), [2]);
    for _ in 0..2 {
        flight.acknowledge(2, &[]);
    }
    assert_eq!(flight.sent(), []);
}

/// RFC 6298 §5.4 to §5.6, RFC 5681 §3.1: one segment, then slow start up to half of what was in flight.
#[test]
fn after_a_timeout_everything_is_sent_again_from_one_segment_on() {
    for sack in [false, true] {
        let mut flight = Flight::with(|config| config.sack = sack, sack, false);
        flight.write(10);
        flight.sent();
        if sack {
            // Probes come first.
            let (probe, _) = flight.wait_for(100);
            assert_eq!(probe, [9]);
        }
        let (again, _) = flight.wait_for(300);
        assert_eq!((again, flight.window()), (vec![0], 1));
        let (again, ms) = flight.wait_for(1_000);
        assert_eq!((again, ms), (vec![0], 400), "twice as long");
        flight.pass();
        flight.acknowledge(1, &[]);
        assert_eq!(flight.sent(), [1, 2]);
        flight.pass();
        flight.acknowledge(3, &[]);
        assert_eq!(flight.sent(), [3, 4, 5, 6]);
        flight.pass();
        flight.acknowledge(7, &[]);
        // Five segments, and congestion avoidance from there on.
        assert_eq!(flight.window(), 5);
        assert_eq!(flight.sent(), [7, 8, 9]);
        flight.pass();
        flight.acknowledge(10, &[]);
        assert_eq!(flight.hand.endpoint.stats().timeouts, 2);
        // The timeout is what it was.
        flight.write(1);
        assert_eq!(flight.sent(), [10]);
        if sack {
            flight.wait_for(100);
        }
        let (again, _) = flight.wait_for(201);
        assert_eq!(again, [10]);
    }
}

/// RFC 8985 §6.3, RFC 2018 §8.
#[test]
fn what_was_selectively_acknowledged_is_not_sent_again_after_a_timeout() {
    let mut flight = Flight::new(true, false);
    flight.write(4);
    flight.sent();
    flight.pass();
    flight.acknowledge(0, &[(1, 2)]);
    let (repair, _) = flight.wait_for(20);
    assert_eq!(repair, [0]);
    // Nothing more is heard; the probe for the repair comes first.
    let (probe, _) = flight.wait_for(100);
    assert_eq!(probe, [0]);
    let (again, _) = flight.wait_for(300);
    assert_eq!(again, [0]);
    flight.pass();
    flight.acknowledge(2, &[]);
    assert_eq!(flight.sent(), [2, 3]);
}

/// Duplicate acknowledgements after a timeout are of what was sent twice (RFC 6582 §4.1).
#[test]
fn after_a_timeout_duplicates_are_no_losses() {
    let mut flight = Flight::new(false, false);
    flight.write(10);
    flight.sent();
    let (again, _) = flight.wait_for(300);
    assert_eq!(again, [0]);
    for _ in 0..4 {
        flight.acknowledge(0, &[]);
        assert_eq!(flight.sent(), []);
    }
    assert_eq!(flight.window(), 1);
}

/// RFC 3522: the acknowledgement echoes the first sending, so that the timeout was too early.
#[test]
fn a_timeout_that_was_too_early_is_taken_back() {
    for (spurious, expected) in [(true, (10, 1)), (false, (2, 0))] {
        let mut flight = Flight::new(false, true);
        flight.write(10);
        flight.sent();
        let first = flight.echo;
        let (again, _) = flight.wait_for(300);
        assert_eq!((again, flight.window()), (vec![0], 1));
        if spurious {
            flight.echo = first;
        }
        flight.acknowledge(1, &[]);
        let undone = flight.hand.endpoint.stats().undone;
        assert_eq!((flight.window().min(10), undone), expected);
        let again = flight.sent();
        // Restored, nothing more is sent twice.
        assert_eq!(again, if spurious { vec![] } else { vec![1, 2] });
        flight.pass();
        flight.acknowledge(10, &[]);
        assert_eq!(flight.hand.endpoint.stats().undone, expected.1, "once");
    }
}

/// The echo of an acknowledgement that leaves the first repair out says nothing about it, and neither has an echo of
/// 0 a meaning (RFC 7323 §3.2).
#[test]
fn only_the_acknowledgement_of_the_first_repair_shows_that_it_was_not_needed() {
    let mut flight = Flight::new(false, true);
    flight.write(10);
    flight.sent();
    let first = flight.echo;
    flight.wait_for(300);
    flight.echo = 0;
    flight.acknowledge(1, &[]);
    assert_eq!(flight.sent(), [1, 2]);
    flight.echo = first;
    flight.acknowledge(2, &[]);
    assert_eq!(flight.hand.endpoint.stats().undone, 0);
    // The acknowledgement moves on by half of the first repair only.
    let mut flight = Flight::new(false, true);
    flight.write(10);
    flight.sent();
    let first = flight.echo;
    flight.wait_for(300);
    flight.echo = first;
    let mut half = flight
        .hand
        .segment(flight.hand.seq, flight.base.plus(500), ACK, &[]);
    half.options.timestamps = Some((2, first));
    flight.hand.inject(&half, "10.0.0.1").unwrap();
    assert_eq!(flight.hand.endpoint.stats().undone, 0);
    flight.acknowledge(1, &[]);
    assert_eq!(flight.hand.endpoint.stats().undone, 1);
}

/// RFC 3708: the receiver has got everything twice that was sent twice.
#[test]
fn repairs_that_were_all_duplicates_are_taken_back() {
    let mut flight = Flight::new(true, false);
    flight.write(10);
    flight.sent();
    flight.pass();
    flight.acknowledge(0, &[(2, 5)]);
    assert_eq!(flight.sent(), [0]);
    flight.acknowledge(0, &[(2, 7)]);
    assert_eq!(flight.sent(), [1]);
    assert_eq!(flight.window(), 5);
    // The originals were late.
    flight.acknowledge(7, &[]);
    flight.pass();
    flight.acknowledge(10, &[(0, 1)]);
    assert_eq!(flight.hand.endpoint.stats().undone, 0, "half of it");
    // The end of the repairs is acknowledged once more.
    flight.give(10, &[], 50_000, b"").unwrap();
    flight.acknowledge(10, &[(1, 2)]);
    assert_eq!(flight.hand.endpoint.stats().undone, 1);
    assert!(flight.window() >= 10);
}

/// Nothing was sent twice yet that could have been needless.
#[test]
fn a_duplicate_before_the_first_repair_takes_nothing_back() {
    let mut flight = Flight::new(true, false);
    flight.write(10);
    flight.sent();
    flight.pass();
    flight.acknowledge(0, &[(1, 4)]);
    assert_eq!(flight.window(), 5);
    flight.acknowledge(0, &[(2, 3), (1, 4)]);
    assert_eq!(flight.hand.endpoint.stats().undone, 0);
    assert_eq!((flight.window(), flight.sent()), (5, vec![0]));
}

/// A report of something else is none of these repairs: it came after they were all over.
#[test]
fn a_later_duplicate_takes_nothing_back() {
    let mut flight = Flight::new(true, false);
    flight.write(10);
    flight.sent();
    flight.pass();
    flight.acknowledge(0, &[(1, 4)]);
    assert_eq!(flight.sent(), [0]);
    flight.pass();
    flight.acknowledge(10, &[]);
    flight.write(2);
    assert_eq!(flight.sent(), [10, 11]);
    flight.pass();
    flight.acknowledge(11, &[]);
    flight.acknowledge(11, &[(0, 1)]);
    assert_eq!(flight.hand.endpoint.stats().undone, 0);
    assert_eq!(flight.window(), 5);
}

/// RFC 8985 §6.2, step 4: after a duplicate the path is known to reorder.
#[test]
fn after_a_duplicate_losses_are_believed_later() {
    let wait_ms = |duplicates: u32| {
        let mut flight = Flight::new(true, false);
        flight.write(4);
        flight.sent();
        flight.pass();
        flight.acknowledge(4, &[]);
        for n in 0..duplicates {
            // Reports about one flight count once.
            flight.write(1);
            flight.sent();
            flight.acknowledge(4 + n, &[(0, 1)]);
            flight.acknowledge(4 + n, &[(1, 2)]);
            flight.pass();
            flight.acknowledge(5 + n, &[]);
        }
        flight.write(2);
        let sent = flight.sent();
        flight.pass();
        flight.acknowledge(sent[0], &[(sent[1], sent[1] + 1)]);
        flight.wait_for(100).1
    };
    // A quarter of a round trip, and one more for each round trip with a duplicate, up to a whole one.
    assert_eq!([0, 1, 2, 3, 4].map(wait_ms), [5, 10, 15, 20, 20]);
}

/// RFC 2018 §3: blocks of what was not sent, or of nothing, are not believed.
#[test]
fn impossible_blocks_are_ignored() {
    let lost = |sack: bool, ranges: &[(u32, u32)]| {
        let mut flight = Flight::with(|config| config.sack = sack, true, false);
        flight.write(10);
        flight.sent();
        flight.pass();
        flight.acknowledge(0, ranges);
        flight.hand.wait(10);
        flight.sent()
    };
    assert_eq!(lost(true, &[(3, 6)]), [0]);
    assert_eq!(lost(true, &[(7, 10)])[0], 0, "up to the end");
    assert_eq!(lost(false, &[(3, 6)]), [], "without the option");
    assert_eq!(lost(true, &[(7, 11)]), [], "never sent");
    assert_eq!(lost(true, &[(6, 3)]), []);
    assert_eq!(lost(true, &[(6, 6)]), []);
    let mut flight = Flight::new(true, false);
    flight.write(10);
    flight.sent();
    flight.pass();
    let mut before = flight.hand.segment(flight.hand.seq, flight.base, ACK, &[]);
    let of = [(2_000, 5_000), (5_000, 0)].map(|(from, to)| (from, flight.base.minus(to)));
    for (from, to) in of {
        before.options.sack.push((flight.base.plus(from), to));
    }
    flight.hand.inject(&before, "10.0.0.1").unwrap();
    flight.hand.wait(10);
    assert_eq!(flight.sent(), [], "before the stream");
    // A bad block leaves the others valid.
    assert_eq!(lost(true, &[(7, 11), (3, 6)]), [0]);
}

/// RFC 5961 §5.2: as far back as the largest window, and at least 64 KiB.
#[test]
fn an_old_acknowledgement_is_accepted_as_far_back_as_a_window() {
    let mut hand = Hand::plain();
    let (seq, ack) = (hand.seq, hand.ack);
    let too_old = hand.give(seq, ack.minus(65_537), "A", b"x");
    assert_eq!(too_old, Err(Error::AckChallenged));
    assert_eq!(hand.give(seq, ack.minus(65_536), "A", b"x"), Ok(()));
    let options = Options {
        window_scale: Some(3),
        ..Options::default()
    };
    let mut hand = Hand::establish(Config::default(), options);
    hand.acknowledge(0, 60_000);
    let (seq, ack) = (hand.seq, hand.ack);
    let too_old = hand.give(seq, ack.minus(480_001), "A", b"x");
    assert_eq!(too_old, Err(Error::AckChallenged));
    assert_eq!(hand.give(seq, ack.minus(480_000), "A", b"x"), Ok(()));
}
