use alloc::vec::Vec;

use super::resent::MAX_AGAIN;
use super::*;

const SEGMENT: u64 = 1_000;
const ROUND_TRIP: Duration = Duration::from_millis(20);

fn at(millis: i64) -> Instant {
    Instant::from_millis(millis)
}

fn span(start: u64, end: u64) -> Span {
    Span::new(start, end)
}

/// A sender and what one receiver has said.
struct Flight {
    board: Scoreboard,
    log: SentLog,
    nxt: u64,
    in_recovery: bool,
    /// Behind the last byte that came by multicast.
    highest: u64,
    copies_apart: Option<Duration>,
}

impl Flight {
    /// Has sent one segment each millisecond, from 0 on.
    fn of(segments: i64) -> Self {
        let mut flight = Flight {
            board: Scoreboard::new(),
            log: SentLog::default(),
            nxt: 0,
            in_recovery: false,
            highest: 0,
            copies_apart: None,
        };
        for millis in 0..segments {
            flight.send(at(millis));
        }
        flight
    }

    fn send(&mut self, now: Instant) {
        self.nxt += SEGMENT;
        self.log.push(self.nxt, now, Duration::ZERO);
    }

    fn acknowledge(&mut self, now: Instant, ack: u64, sacks: &[Span]) -> Delivered {
        self.acknowledge_sent_before(None, now, ack, sacks)
    }

    fn acknowledge_sent_before(
        &mut self,
        sent_before: Option<Instant>,
        now: Instant,
        ack: u64,
        sacks: &[Span],
    ) -> Delivered {
        let view = AckView {
            now,
            multicast_from: 3_000,
            log: &self.log,
            min_rtt: Some(ROUND_TRIP),
            sent_before,
        };
        self.board.acknowledge(ack, sacks, &view)
    }

    fn detect(&mut self, now: Instant) -> (Lost, Option<Instant>) {
        self.board.detect(&DetectView {
            now,
            nxt: self.nxt,
            log: &self.log,
            in_recovery: self.in_recovery,
            segment: SEGMENT,
            min_rtt: Some(ROUND_TRIP),
            smoothed_rtt: Some(ROUND_TRIP),
            highest: self.highest,
            copies_apart: self.copies_apart,
        })
    }
}

#[test]
fn every_byte_is_in_one_state() {
    let mut flight = Flight::of(10);
    let delivered = flight.acknowledge(at(22), 1_000, &[span(4_000, 6_000)]);
    assert_eq!((delivered.acked, delivered.newly), (1_000, 3_000));
    assert!(flight.board.has_sacked());
    assert_eq!((flight.board.una(), flight.board.gone()), (1_000, 2_000));
    assert_eq!(flight.board.pipe(flight.nxt), 7_000);
    flight.board.lose_first(SEGMENT, flight.nxt);
    assert_eq!(flight.board.lost_bytes(), 1_000);
    assert_eq!(flight.board.pipe(flight.nxt), 6_000);
    assert_eq!(flight.board.next_lost(0, 600), Some(span(1_000, 1_600)));
    flight.board.sent_again(span(1_000, 2_000), at(23));
    assert_eq!(flight.board.lost_bytes(), 0);
    assert_eq!(flight.board.pipe(flight.nxt), 7_000);
    let delivered = flight.acknowledge(at(43), 6_000, &[]);
    assert_eq!((delivered.acked, delivered.newly), (5_000, 3_000));
    assert!(!flight.board.has_sacked());
    assert_eq!(flight.board.pipe(flight.nxt), 4_000);
    // An old acknowledgement, and a range known already.
    let delivered = flight.acknowledge(at(44), 2_000, &[span(4_000, 6_000)]);
    assert_eq!((delivered.acked, delivered.newly), (0, 0));
    assert_eq!(flight.board.una(), 6_000);
}

#[test]
fn an_earlier_segment_is_lost_after_a_quarter_of_a_round_trip() {
    let mut flight = Flight::of(10);
    flight.acknowledge(at(22), 0, &[span(2_000, 4_000)]);
    // The newest that arrived was sent at 3 and took 19 ms; two segments are not three.
    let (lost, timer) = flight.detect(at(22));
    assert_eq!((lost.bytes, timer), (0, Some(at(24))));
    let (lost, timer) = flight.detect(at(24));
    assert_eq!((lost.bytes, lost.in_a_row, lost.end), (1_000, 1_000, 1_000));
    assert_eq!(timer, Some(at(25)));
    let (lost, timer) = flight.detect(at(25));
    assert_eq!((lost.bytes, timer), (1_000, None));
    assert_eq!(flight.board.next_lost(0, 9_000), Some(span(0, 2_000)));
}

#[test]
fn three_segments_later_it_is_lost_at_once_unless_the_path_reorders() {
    let mut flight = Flight::of(10);
    flight.acknowledge(at(24), 0, &[span(2_000, 5_000)]);
    let (lost, timer) = flight.detect(at(24));
    assert_eq!((lost.bytes, lost.in_a_row, timer), (2_000, 2_000, None));

    let mut flight = Flight::of(10);
    flight.in_recovery = true;
    flight.acknowledge(at(25), 0, &[span(5_000, 6_000)]);
    flight.acknowledge(at(25), 0, &[span(3_000, 4_000)]);
    let (lost, timer) = flight.detect(at(25));
    assert_eq!((lost.bytes, timer), (1_000, Some(at(26))));
    // In order, there is no patience in recovery.
    let mut flight = Flight::of(10);
    flight.in_recovery = true;
    flight.acknowledge(at(25), 0, &[span(3_000, 4_000)]);
    flight.acknowledge(at(25), 0, &[span(5_000, 6_000)]);
    assert_eq!(flight.detect(at(25)).0.bytes, 4_000);
}

#[test]
fn duplicates_widen_the_window_up_to_a_round_trip() {
    let due = |widened: u32, narrowed: bool| {
        let mut flight = Flight::of(10);
        for _ in 0..widened {
            flight.board.widen_reordering();
        }
        if narrowed {
            flight.board.narrow_reordering();
        }
        flight.acknowledge(at(23), 0, &[span(3_000, 4_000)]);
        flight.detect(at(23)).1
    };
    assert_eq!(due(0, false), Some(at(25)));
    assert_eq!(due(1, false), Some(at(30)));
    assert_eq!(due(2, false), Some(at(35)));
    assert_eq!(due(9, false), Some(at(40)), "a smoothed round trip at most");
    assert_eq!(due(9, true), Some(at(25)));
}

#[test]
fn runs_of_losses_end_where_something_arrived() {
    let run = |sacks: &[Span], again: Option<Span>, highest: u64| {
        let mut flight = Flight::of(12);
        if let Some(again) = again {
            flight.board.sent_again(again, at(30));
        }
        flight.in_recovery = true;
        flight.highest = highest;
        flight.acknowledge(at(31), 0, sacks);
        let (lost, _) = flight.detect(at(31));
        (lost.bytes, lost.in_a_row, lost.end)
    };
    let last = span(10_000, 11_000);
    assert_eq!(
        run(&[span(2_000, 3_000), last], None, 0),
        (9_000, 7_000, 10_000)
    );
    assert_eq!(
        run(&[span(7_000, 8_000), last], None, 0),
        (9_000, 7_000, 10_000)
    );
    // Between them something was sent again, and has not arrived.
    let again = Some(span(4_000, 5_000));
    assert_eq!(run(&[last], again, 0), (9_000, 9_000, 10_000));
    // What came by multicast later shows that these are no losses of multicast in a row.
    assert_eq!(
        run(&[span(2_000, 3_000), last], None, 2_000),
        (9_000, 7_000, 10_000)
    );
    assert_eq!(
        run(&[span(7_000, 8_000), last], None, 7_000),
        (9_000, 2_000, 10_000)
    );
}

#[test]
fn a_repair_is_lost_when_later_data_arrives_and_its_time_is_over() {
    let mut flight = Flight::of(4);
    flight.acknowledge(at(23), 0, &[span(1_000, 4_000)]);
    assert_eq!(flight.detect(at(23)).0.bytes, 1_000);
    flight.board.sent_again(span(0, 1_000), at(24));
    flight.send(at(25));
    flight.board.widen_reordering();
    flight.board.narrow_reordering();
    flight.acknowledge(at(45), 0, &[span(4_000, 5_000)]);
    // It took 20 ms, and a quarter is added.
    assert_eq!(flight.detect(at(45)).1, Some(at(49)));
    assert_eq!(flight.board.lost_bytes(), 0);
    let (lost, timer) = flight.detect(at(49));
    assert_eq!((lost.bytes, timer), (1_000, None));
    assert_eq!(lost.in_a_row, 0, "not sent for the first time");
    assert_eq!(flight.board.next_lost(0, 9_000), Some(span(0, 1_000)));
}

#[test]
fn where_there_are_two_copies_the_later_one_has_its_time() {
    let mut flight = Flight::of(6);
    flight.copies_apart = Some(Duration::from_millis(50));
    flight.acknowledge(at(22), 0, &[span(1_000, 6_000)]);
    // The newest was sent after 5 ms, and took 17.
    assert_eq!(flight.detect(at(22)), (Lost::default(), Some(at(67))));
    assert_eq!(flight.detect(at(66)).0.bytes, 0);
    assert_eq!(flight.detect(at(67)).0.bytes, 1_000);
}

#[test]
fn an_acknowledgement_of_the_first_sending_says_nothing_of_later_data() {
    for (sent_before, newest) in [
        (None, at(24)),
        (Some(at(25)), at(24)),
        (Some(at(24)), at(3)),
        (Some(at(1)), at(3)),
    ] {
        let mut flight = Flight::of(4);
        flight.acknowledge(at(23), 0, &[span(1_000, 4_000)]);
        flight.detect(at(23));
        flight.board.sent_again(span(0, 1_000), at(24));
        flight.acknowledge_sent_before(sent_before, at(45), 4_000, &[]);
        let (time, _) = flight.board.newest().unwrap();
        assert_eq!(time, newest, "echo of before {sent_before:?}");
    }
}

#[test]
fn a_repair_that_seems_to_arrive_sooner_than_usual_may_be_the_first_sending() {
    for (late, lost) in [(3, 2_000), (13, 0)] {
        let mut flight = Flight::of(3);
        flight.in_recovery = true;
        flight.acknowledge(at(20 + late), 0, &[span(2_000, 3_000)]);
        assert_eq!(flight.detect(at(20 + late)).0.bytes, 2_000);
        flight.board.sent_again(span(0, 1_000), at(39));
        flight.send(at(40));
        flight.board.sent_again(span(1_000, 2_000), at(41));
        flight.acknowledge(at(61), 0, &[span(1_000, 3_000)]);
        assert_eq!(flight.detect(at(61)).0.bytes, lost, "{late} ms");
    }
}

#[test]
fn first_sendings_give_round_trips_and_say_whether_multicast_works() {
    let mut flight = Flight::of(6);
    let delivered = flight.acknowledge(at(22), 3_000, &[]);
    assert_eq!(delivered.rtt, Some(ROUND_TRIP));
    assert_eq!((delivered.first_try, delivered.any_first_try), (None, true));
    flight.board.sent_again(span(3_000, 4_000), at(24));
    // What was sent again does not tell which of both arrived, and nothing before it counts either.
    let delivered = flight.acknowledge(at(25), 4_000, &[]);
    assert_eq!((delivered.rtt, delivered.any_first_try), (None, false));
    let delivered = flight.acknowledge(at(25), 5_000, &[]);
    assert_eq!(delivered.rtt, Some(Duration::from_millis(21)));
    assert_eq!(delivered.first_try, Some(5_000));
}

#[test]
fn a_repair_that_arrives_in_part_stays_in_flight_with_its_rest() {
    let mut flight = Flight::of(6);
    flight.board.sent_again(span(0, 3_000), at(30));
    flight.acknowledge(at(60), 0, &[span(1_000, 2_000)]);
    let mut again: Vec<Span> = flight
        .board
        .again
        .as_slice()
        .iter()
        .map(|again| again.span)
        .collect();
    again.sort_by_key(|span| span.start);
    assert_eq!(again, [span(0, 1_000), span(2_000, 3_000)]);
    flight.acknowledge(at(61), 3_000, &[]);
    assert!(flight.board.again.as_slice().is_empty());
}

#[test]
fn repairs_are_remembered_up_to_a_bound() {
    let mut flight = Flight::of(1_000);
    flight.board.sent_again(span(0, 1_000), at(2_000));
    flight.board.sent_again(span(1_000, 2_000), at(2_000));
    assert_eq!(
        flight.board.again.as_slice().len(),
        1,
        "one after the other"
    );
    flight.board.sent_again(span(2_000, 3_000), at(2_001));
    flight.board.sent_again(span(5_000, 6_000), at(2_001));
    assert_eq!(flight.board.again.as_slice().len(), 3);
    flight.board.sent_again(span(5_200, 5_300), at(2_002));
    assert_eq!(
        flight.board.again.as_slice().len(),
        5,
        "cut in two by a later one"
    );
    for number in 10..261 {
        let start = 2 * number * SEGMENT;
        flight
            .board
            .sent_again(span(start, start + SEGMENT), at(2_003));
    }
    assert_eq!(flight.board.again.as_slice().len(), MAX_AGAIN);
    flight.board.lose_first(SEGMENT, flight.nxt);
    assert_eq!(flight.board.again.as_slice().len(), MAX_AGAIN - 1);
    assert!(flight.board.next_lost(0, SEGMENT).is_some());
    flight.board.sent_again(span(900_000, 901_000), at(2_004));
    assert_eq!(flight.board.next_lost(0, SEGMENT), None, "others wait");
    flight.acknowledge(at(2_030), 0, &[span(20_200, 20_300)]);
    assert_eq!(flight.board.again.as_slice().len(), MAX_AGAIN);
    flight.board.sent_again(span(940_000, 941_000), at(2_005));
    assert_eq!(flight.board.again.as_slice().len(), MAX_AGAIN);
}

#[test]
fn holes_are_what_was_sent_once() {
    let mut flight = Flight::of(10);
    flight.board.sent_again(span(4_000, 5_000), at(20));
    flight.board.sent_again(span(2_000, 3_000), at(21));
    flight.acknowledge(at(29), 0, &[span(6_000, 7_000)]);
    let hole = |from, upper| flight.board.next_hole(from, upper);
    assert_eq!(hole(0, 10_000), Some(span(0, 2_000)));
    assert_eq!(hole(2_000, 10_000), Some(span(3_000, 4_000)));
    assert_eq!(hole(4_000, 10_000), Some(span(5_000, 6_000)));
    assert_eq!(hole(6_500, 8_000), Some(span(7_000, 8_000)));
    assert_eq!(hole(4_000, 5_000), None);
}

#[test]
fn a_timeout_loses_all_but_what_the_receiver_holds() {
    let mut flight = Flight::of(6);
    flight.acknowledge(at(23), 0, &[span(3_000, 4_000)]);
    flight.board.sent_again(span(0, 1_000), at(24));
    let lost = flight.board.lose_all(flight.nxt, 0);
    assert_eq!((lost.bytes, lost.in_a_row, lost.end), (5_000, 2_000, 6_000));
    assert!(flight.board.has_sacked());
    assert_eq!(flight.board.pipe(flight.nxt), 0);
    assert_eq!(flight.board.next_lost(0, 9_000), Some(span(0, 3_000)));
    flight.board.forget_lost();
    assert_eq!(
        (flight.board.lost_bytes(), flight.board.pipe(flight.nxt)),
        (0, 5_000)
    );
    // A receiver that lacks the first byte of what it holds has taken it back.
    flight.acknowledge(at(30), 3_000, &[]);
    let mut flight = Flight::of(6);
    flight.acknowledge(at(23), 0, &[span(0, 2_000)]);
    flight.board.lose_all(flight.nxt, 0);
    assert!(!flight.board.has_sacked());
    assert_eq!(flight.board.lost_bytes(), 6_000);
}

#[test]
fn without_sack_duplicate_acknowledgements_stand_for_segments() {
    let mut flight = Flight::of(6);
    flight.board.inflate(SEGMENT, flight.nxt);
    flight.board.inflate(SEGMENT, flight.nxt);
    assert_eq!(flight.board.pipe(flight.nxt), 4_000);
    for _ in 0..9 {
        flight.board.inflate(SEGMENT, flight.nxt);
    }
    assert_eq!(flight.board.gone(), 5_000, "one is missing");
    flight.acknowledge(at(25), 2_000, &[]);
    assert_eq!(flight.board.gone(), 3_000);
    flight.board.deflate();
    assert_eq!(flight.board.pipe(flight.nxt), 4_000);
    assert_eq!(flight.board.lose_first(SEGMENT, flight.nxt), 1_000);
    assert_eq!(flight.board.next_lost(0, 9_000), Some(span(2_000, 3_000)));
    assert_eq!(
        flight.board.lose_first(SEGMENT, flight.nxt),
        0,
        "it is already"
    );
    flight.board.forget_lost();
    assert_eq!(flight.board.lose_first(9_000, flight.nxt), 4_000);
}

#[test]
fn probes_are_the_ends_of_what_is_missing() {
    let mut flight = Flight::of(6);
    flight.acknowledge(at(25), 1_000, &[span(2_000, 3_000)]);
    assert_eq!(flight.board.tail(flight.nxt, 600), span(5_400, 6_000));
    assert_eq!(flight.board.tail(flight.nxt, 9_000), span(1_000, 6_000));
    assert_eq!(flight.board.head(flight.nxt, 600), span(1_000, 1_600));
    assert_eq!(flight.board.head(flight.nxt, 9_000), span(1_000, 2_000));
    let flight = Flight::of(6);
    assert_eq!(flight.board.head(flight.nxt, 90_000), span(0, 6_000));
}

/// What detection remembers of the bytes that it has looked at is only an abbreviation.
#[test]
fn detection_finds_what_a_search_from_the_start_finds() {
    let mut dice = 7_u64;
    let mut roll = |sides: u64| {
        dice = dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % sides
    };
    let mut most = [0; 3];
    for run in 0..20 {
        let mut flight = Flight::of(0);
        // Scattered losses of long flights exceed all limits, short ones none.
        let flight_segments = [60, 600, 2_000][run % 3];
        for now in 0..6_000 {
            let (una, nxt) = (flight.board.una(), flight.nxt);
            if (nxt - una) / SEGMENT < flight_segments {
                flight.send(at(now));
            }
            let start = una + roll((nxt - una) / SEGMENT + 1) * SEGMENT;
            let some = span(start, (start + (1 + roll(3)) * SEGMENT).min(flight.nxt));
            match roll(400) {
                0 => drop(flight.board.lose_all(flight.nxt, 0)),
                1 => flight.board.forget_lost(),
                2 => drop(flight.board.lose_first(SEGMENT, flight.nxt)),
                3 => drop(flight.acknowledge(at(now), some.end, &[])),
                4..50 => flight.board.sent_to_group(some, at(now - 1)),
                50..300 => drop(flight.acknowledge(at(now), una, &[some])),
                _ => {}
            }
            while now / 1_000 % 2 == 0
                && let Some(lost) = flight.board.next_lost(una, SEGMENT)
            {
                flight.board.sent_again(lost, at(now));
            }
            let mut plain = flight.board.clone();
            plain.settled = 0;
            let same = core::mem::replace(&mut flight.board, plain);
            let expected = flight.detect(at(now));
            let plain = core::mem::replace(&mut flight.board, same);
            let found = flight.detect(at(now));
            assert_eq!(found.1, expected.1, "run {run}, {now} ms");
            assert_eq!(
                flight.board.lost.as_slice(),
                plain.lost.as_slice(),
                "run {run}, {now} ms"
            );
            let board = &flight.board;
            let sizes = [
                board.sacked.as_slice().len(),
                board.lost.as_slice().len(),
                board.again.as_slice().len(),
            ];
            for (most, size) in most.iter_mut().zip(sizes) {
                *most = size.max(*most);
            }
        }
    }
    assert_eq!(most, [MAX_SACKED, MAX_LOST, MAX_AGAIN]);
}
