//! Paths that take only short segments, and say so (RFC 1191) or not (RFC 2923 §2.1).

use tcpxm::Config;
use tcpxm::wire::Options;

use crate::hand::*;

/// Segments of an MTU of 1500, of 1280 and of 576.
const FULL: u32 = 1452;
const LINK: u32 = 1232;
const HOST: u32 = 528;

fn established(mss: u16) -> Hand {
    let mss = Some(mss);
    let options = Options {
        mss,
        ..Options::default()
    };
    let mut config = Config::default();
    config.timestamps = false;
    Hand::establish(config, options)
}

/// Lengths of the segments of data that are sent now.
fn lengths(hand: &mut Hand) -> Vec<u32> {
    let sent = hand.sent().into_iter();
    sent.map(|sent| sent.payload.len() as u32)
        .filter(|len| *len > 0)
        .collect()
}

/// Length of the repairs after this many timeouts.
fn timeouts(hand: &mut Hand, count: u32) -> Vec<u32> {
    (0..count)
        .map(|_| {
            let (sent, _) = hand.wait_for(60_000);
            assert_eq!(sent[0].seq, hand.ack);
            sent[0].payload.len() as u32
        })
        .collect()
}

fn holes(hand: &Hand) -> (u64, usize) {
    (hand.endpoint.stats().black_holes, hand.stats().payload)
}

#[test]
fn after_two_timeouts_repairs_are_short_and_one_that_arrives_is_enough() {
    let mut hand = established(9_000);
    hand.send(&[7; 4 * FULL as usize]);
    assert_eq!(lengths(&mut hand), [FULL; 4]);
    assert_eq!(timeouts(&mut hand, 3), [FULL, LINK, LINK]);
    // A duplicate acknowledgement says nothing.
    hand.acknowledge(0, 60_000);
    assert_eq!(holes(&hand), (0, FULL as usize));
    hand.acknowledge(LINK, 60_000);
    assert_eq!(holes(&hand), (1, LINK as usize));
    // What is in flight in long segments is sent again, by slow start.
    assert_eq!(lengths(&mut hand), [LINK; 2]);
    hand.acknowledge(2 * LINK, 60_000);
    assert_eq!(lengths(&mut hand), [LINK, 4 * FULL - 4 * LINK]);
    hand.acknowledge(4 * FULL - 3 * LINK, 60_000);
    hand.send(&[7; 2 * LINK as usize]);
    assert_eq!(lengths(&mut hand), [LINK; 2]);
}

#[test]
fn after_four_timeouts_repairs_are_what_every_host_takes_and_two_are_needed() {
    let mut hand = established(9_000);
    hand.send(&[7; 4 * FULL as usize]);
    lengths(&mut hand);
    assert_eq!(timeouts(&mut hand, 5), [FULL, LINK, LINK, HOST, HOST]);
    hand.acknowledge(HOST, 60_000);
    assert_eq!(holes(&hand), (0, FULL as usize));
    assert_eq!(
        lengths(&mut hand)[0],
        FULL,
        "it may have been down for a while"
    );
    assert_eq!(timeouts(&mut hand, 4)[3], HOST);
    hand.acknowledge(HOST, 60_000);
    assert_eq!(holes(&hand), (1, HOST as usize));
}

#[test]
fn where_full_segments_got_through_three_repairs_are_needed() {
    let short: [u32; 2] = [800, 900];
    for (acknowledged, needed) in [(&[FULL][..], 3), (&[FULL - 1], 1), (&short, 1)] {
        let mut hand = established(9_000);
        hand.send(&[7; 9 * FULL as usize]);
        lengths(&mut hand);
        for bytes in acknowledged {
            hand.acknowledge(*bytes, 60_000);
        }
        for strike in 1..=needed {
            assert_eq!(holes(&hand).0, 0, "{strike} of {needed}");
            lengths(&mut hand);
            assert_eq!(timeouts(&mut hand, 2)[1], LINK);
            hand.acknowledge(LINK, 60_000);
        }
        assert_eq!(holes(&hand), (1, LINK as usize));
    }
}

#[test]
fn segments_that_are_short_anyway_show_no_hole() {
    for (mss, expected) in [
        (1_233, [1_233, LINK, LINK, HOST]),
        (1_232, [LINK, LINK, LINK, HOST]),
        (1_000, [1_000, 1_000, 1_000, HOST]),
        (528, [HOST; 4]),
        (500, [500; 4]),
    ] {
        let mut hand = established(mss);
        hand.send(&[7; 4_000]);
        lengths(&mut hand);
        assert_eq!(timeouts(&mut hand, 4), expected, "{mss}");
        let repair = expected[3];
        hand.acknowledge(repair, 60_000);
        assert_eq!(holes(&hand).0, 0, "{mss}");
    }
    // Exactly what every link carries.
    let mut hand = established(LINK as u16);
    hand.send(&[7; 4_000]);
    lengths(&mut hand);
    assert_eq!(timeouts(&mut hand, 2), [LINK; 2]);
    hand.acknowledge(LINK, 60_000);
    assert_eq!(holes(&hand).0, 0);
}

/// RFC 1191 §6.5: what was too long is sent again at once; that is no congestion.
#[test]
fn a_report_of_the_path_is_acted_on() {
    let mut hand = established(9_000);
    let peer = ip("10.0.0.9");
    hand.send(&[7; 3 * FULL as usize]);
    assert_eq!(lengths(&mut hand), [FULL; 3]);
    hand.endpoint.set_path_mtu(hand.now, peer, 1_500);
    assert_eq!(lengths(&mut hand), [], "it was known");
    hand.endpoint.set_path_mtu(hand.now, peer, 1_280);
    let all = [LINK, LINK, LINK, 3 * FULL - 3 * LINK];
    assert_eq!(lengths(&mut hand), all);
    hand.endpoint.set_path_mtu(hand.now, peer, 1_400);
    assert_eq!(lengths(&mut hand), [], "longer than known");
    assert_eq!(hand.stats().payload, LINK as usize);
    assert_eq!(hand.stats().congestion_window, 10 * u64::from(LINK));
    hand.acknowledge(3 * FULL, 60_000);
    hand.endpoint.set_path_mtu(hand.now, peer, 68);
    assert_eq!(lengths(&mut hand), [], "nothing is in flight");
    assert_eq!(hand.endpoint.poll_timeout(), None);
    assert_eq!(hand.stats().payload, HOST as usize, "every host takes that");
    assert_eq!(hand.endpoint.stats().timeouts, 0);
}

#[test]
fn a_report_during_the_handshake_counts_when_it_is_complete() {
    let (mut hand, _) = Hand::connecting(Config::default());
    hand.endpoint.set_path_mtu(hand.now, ip("10.0.0.9"), 1_280);
    let mss = Some(9_000);
    let options = Options {
        mss,
        ..Options::default()
    };
    hand.answer("SA", options).unwrap();
    assert_eq!(hand.stats().payload, LINK as usize);
}
