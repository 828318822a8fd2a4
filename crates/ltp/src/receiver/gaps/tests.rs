#![cfg(feature = "alloc")]

use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::SessionId;
use crate::wire::request::{Kind, Range};

fn at(millis: i64) -> Instant {
    Instant::from_millis(millis)
}

/// Blocks of 64 packets; the sequence wraps in the third one.
fn geometry() -> Geometry {
    Geometry::new(12, 64, Seq(u32::MAX - 150)).expect("64 packets")
}

/// Room for four blocks, and 100 requests a second.
fn gaps() -> Gaps<'static> {
    let group = core::net::SocketAddr::from(([239, 1, 2, 3], 5_000));
    let mut config = ReceiverConfig::new(group);
    config.requests_per_second = 100;
    let mut table = vec![PendingRequest::default(); 4];
    table[2].mask = 5;
    Gaps::new(&config, table.into(), at(0))
}

fn repr(tag: u16) -> request::Repr {
    request::Repr {
        kind: Kind::Data,
        tag,
        session: SessionId(1),
        number: 1,
        round_trip_us: 0,
        token: 0,
        nonce: 0,
        ranges: Default::default(),
    }
}

/// Composes a request of what is due and was sent that often. Returns its ranges, as packet numbers, and the packets.
fn compose(gaps: &mut Gaps<'_>, attempts: u8, now: Instant) -> (Vec<(u64, u64)>, u64) {
    let mut repr = repr(9);
    let deadline = now + Duration::from_millis(50);
    let times = (now, deadline);
    let packets = gaps.compose(&mut repr, &geometry(), attempts, false, times);
    let number = |sequence| Seq(sequence).number(geometry().first(), 100);
    let range = |range: &Range| Some((number(range.lo)?, number(range.hi)?));
    let ranges: Option<Vec<_>> = repr.ranges.iter().map(range).collect();
    (ranges.expect("near packet 100"), packets)
}

#[test]
fn the_newest_packet_is_the_highest_known() {
    let mut gaps = gaps();
    assert!(gaps.is_next(0));
    assert!(gaps.is_next(1));
    assert!(!gaps.is_next(1));
    assert!(!gaps.is_next(3));
    assert_eq!(gaps.highest(), 2);
    assert_eq!(gaps.extend(5), 3, "packets 2, 3 and 4");
    assert_eq!(gaps.extend(4), 0);
    assert_eq!(gaps.highest(), 5);
    assert!(gaps.is_unscanned());
    gaps.scanned = 5;
    assert!(!gaps.is_unscanned());
    gaps.rescan(7);
    assert!(!gaps.is_unscanned());
    gaps.rescan(4);
    assert!(gaps.is_unscanned());
    gaps.restart(9);
    assert_eq!(gaps.highest(), 9);
    assert!(!gaps.is_unscanned());
}

#[test]
fn each_block_with_gaps_has_an_entry() {
    let mut gaps = gaps();
    assert!(!gaps.has_requests());
    for block in 3..7 {
        assert!(gaps.add(block, 0b101, 0, at(5)));
    }
    assert!(!gaps.add(7, 1, 0, at(5)), "there is no room");
    assert_eq!(gaps.outstanding, 8);
    assert!(gaps.has_requests());
    assert_eq!((gaps.requested(3), gaps.requested(7)), (0b101, 0));
    assert!(gaps.arrived(3, 0b001, None).is_some());
    assert!(gaps.arrived(3, 0b001, None).is_none());
    assert!(gaps.arrived(8, 0b100, None).is_none());
    assert_eq!((gaps.requested(3), gaps.outstanding), (0b100, 7));
    assert!(!gaps.add(7, 1, 0, at(5)));
    assert!(gaps.arrived(3, 0b100, None).is_some());
    assert!(gaps.add(7, 1, 0, at(5)), "the entry is free");
    gaps.forget_requests();
    assert!(!gaps.has_requests());
    assert_eq!((gaps.requested(4), gaps.outstanding), (0, 0));
    gaps.add(3, 0b1, 0, at(5));
    assert!(gaps.has_requests());
    gaps.arrived(3, 0b1, None);
    assert!(!gaps.has_requests());
}

#[test]
fn packets_that_were_never_sent_are_not_requested() {
    let mut gaps = gaps();
    gaps.extend(500);
    gaps.scanned = 300;
    for block in 0..4 {
        gaps.add(block, u64::MAX, 0, at(5));
    }
    gaps.clip(&geometry(), 64 + 5);
    let masks = [0, 1, 2, 3].map(|block| gaps.requested(block));
    assert_eq!(masks, [u64::MAX, 0b11111, 0, 0]);
    assert_eq!((gaps.outstanding, gaps.used), (69, 2));
    assert_eq!((gaps.highest(), gaps.scanned), (69, 69));
    gaps.clip(&geometry(), 64);
    assert_eq!((gaps.outstanding, gaps.used), (64, 1));
    gaps.scanned = 10;
    gaps.clip(&geometry(), 0);
    assert!(!gaps.has_requests());
    assert_eq!(gaps.scanned, 0);
}

#[test]
fn requests_keep_to_their_rate() {
    let mut gaps = gaps();
    // A twentieth of a second's at once, and one each 10 ms.
    let burst = (0..9).take_while(|_| {
        let may = gaps.may_request(at(0));
        compose(&mut gaps, 0, at(0));
        may
    });
    assert_eq!(burst.count(), 5);
    // The one that was too many is owed.
    assert_eq!(gaps.ready_at(), at(20));
    assert!(!gaps.may_request(at(19)));
    assert!(gaps.may_request(at(20)));
    let group = core::net::SocketAddr::from(([239, 1, 2, 3], 5_000));
    let mut config = ReceiverConfig::new(group);
    config.requests_per_second = 0;
    let table = vec![PendingRequest::default(); 1].into();
    let mut gaps = Gaps::new(&config, table, at(0));
    for _ in 0..4 {
        assert!(gaps.may_request(at(0)), "four at once");
        compose(&mut gaps, 0, at(0));
    }
    assert_eq!(gaps.ready_at(), at(1_000), "and one a second");
}

#[test]
fn what_is_due_and_was_sent_equally_often_is_requested_at_once() {
    let mut gaps = gaps();
    assert_eq!(gaps.due(at(99)), None);
    gaps.add(0, 0b0110_0001, 0, at(10));
    gaps.add(1, 0b1, 1, at(5));
    gaps.add(2, 0b11, 0, at(11));
    assert_eq!(gaps.due(at(4)), None);
    assert_eq!(gaps.due(at(5)), Some(1));
    assert_eq!(compose(&mut gaps, 1, at(5)), (vec![(64, 64)], 1));
    assert_eq!(gaps.due(at(10)), Some(0));
    let (ranges, packets) = compose(&mut gaps, 0, at(10));
    assert_eq!((ranges, packets), (vec![(0, 0), (5, 6)], 3));
    assert_eq!(gaps.due(at(10)), None);
    // Each is due again at its deadline, as a request that was sent more often.
    assert_eq!(gaps.due(at(11)), Some(0));
    assert_eq!(compose(&mut gaps, 0, at(11)), (vec![(128, 129)], 2));
    assert_eq!(gaps.due(at(54)), None);
    assert_eq!(gaps.due(at(55)), Some(2));
    assert_eq!(compose(&mut gaps, 2, at(55)), (vec![(64, 64)], 1));
    assert_eq!(gaps.due(at(60)), Some(1));
    let (ranges, packets) = compose(&mut gaps, 1, at(61));
    assert_eq!((ranges.len(), packets), (3, 5));
}

#[test]
fn runs_that_meet_at_a_block_become_one() {
    let mut gaps = gaps();
    gaps.add(1, 1 << 63, 0, at(0));
    gaps.add(2, u64::MAX, 0, at(0));
    gaps.add(3, 0b101, 0, at(0));
    // Block 2 has the wrap of the sequence.
    let expected = (vec![(127, 192), (194, 194)], 67);
    assert_eq!(compose(&mut gaps, 0, at(0)), expected);
}

#[test]
fn a_request_has_room_for_32_ranges_and_none_of_a_block_in_part() {
    let every_other = 0x5555_5555_5555_5555;
    let mut gaps = gaps();
    gaps.add(1, 0b1 << 63, 0, at(0));
    gaps.add(2, every_other, 0, at(0));
    gaps.add(3, 0b1, 0, at(0));
    // The first run of block 2 joins the last of block 1: 32 ranges.
    let (ranges, packets) = compose(&mut gaps, 0, at(0));
    assert_eq!((ranges.len(), packets), (32, 33));
    assert_eq!((ranges[0], ranges[31]), ((127, 128), (190, 190)));
    assert_eq!(compose(&mut gaps, 0, at(0)), (vec![(192, 192)], 1));

    let mut gaps = self::gaps();
    gaps.add(1, 1 << 60 | 1 << 63, 0, at(0));
    gaps.add(2, every_other, 0, at(0));
    // It would join it, and has no room: the range stays as it was.
    let first = (vec![(124, 124), (127, 127)], 2);
    assert_eq!(compose(&mut gaps, 0, at(0)), first);
    let (ranges, packets) = compose(&mut gaps, 0, at(0));
    assert_eq!((ranges.len(), packets), (32, 32));
    assert_eq!(ranges[0], (128, 128));
}

#[test]
fn a_repair_answers_the_request_with_its_tag() {
    let mut gaps = gaps();
    gaps.add(1, 0b11111, 0, at(0));
    let arrival = |gaps: &mut Gaps<'_>, bit: u64, tag| {
        let arrival = gaps.arrived(1, bit, tag).expect("it was requested");
        (arrival.answers, arrival.attempts)
    };
    assert_eq!(arrival(&mut gaps, 0b1, Some(0)), (false, 0), "not sent yet");
    compose(&mut gaps, 0, at(7));
    assert_eq!(arrival(&mut gaps, 0b10, Some(9)), (true, 1));
    assert_eq!(arrival(&mut gaps, 0b100, Some(8)), (false, 1));
    assert_eq!(arrival(&mut gaps, 0b1000, None), (false, 1), "DATA");
    let mut repr = repr(10);
    let times = (at(80), at(90));
    assert_eq!(gaps.compose(&mut repr, &geometry(), 1, true, times), 1);
    let last = gaps.arrived(1, 0b10000, Some(10)).expect("the last");
    assert_eq!(
        (last.sent, last.by_source, last.attempts),
        (at(80), true, 2)
    );
}

#[test]
fn requests_are_counted_up_to_255() {
    let mut gaps = gaps();
    gaps.add(0, 1, 254, at(0));
    compose(&mut gaps, 254, at(0));
    assert_eq!(gaps.due(at(50)), Some(255));
    assert_eq!(compose(&mut gaps, 255, at(50)).1, 1);
    assert_eq!(gaps.due(at(100)), Some(255));
}

#[test]
fn parity_that_is_held_limits_what_is_requested_of_a_block() {
    let mut gaps = gaps();
    assert!(gaps.add(1, 0b1011, 0, at(0)));
    assert!(gaps.add(1, 0b1_0000, 0, at(0)));
    assert!(gaps.add(2, 0b11, 0, at(0)));
    compose(&mut gaps, 0, at(5));
    assert!(gaps.limit(1, 4, Some(9)).is_none(), "no more are requested");
    let arrival = gaps.limit(1, 3, Some(9)).expect("one request is shorter");
    assert!(arrival.answers);
    assert_eq!((arrival.sent, arrival.attempts), (at(5), 1));
    assert_eq!(gaps.requested(1).count_ones(), 3);
    assert_eq!(gaps.outstanding, 5);
    // The tag of another request measures nothing.
    let arrival = gaps.limit(1, 1, Some(8)).expect("shorter again");
    assert!(!arrival.answers);
    assert_eq!((gaps.requested(1).count_ones(), gaps.outstanding), (1, 3));
    assert!(gaps.limit(1, 0, None).is_some());
    assert_eq!((gaps.requested(1), gaps.requested(2)), (0, 0b11));
    assert_eq!((gaps.used, gaps.outstanding), (1, 2));
    assert!(gaps.limit(1, 0, None).is_none());
}
