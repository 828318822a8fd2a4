//! TFRC: each rule of RFC 5348 that the receiver of a UDP channel follows.

use bfed::data::tfrc::Receiver;
use bfed::*;

use crate::tfrc::{SEGMENT, START, close, equation, millis};

/// Gives a receiver packets of 1,000 bytes with these numbers, one each `gap`; the round trip takes 10 ms.
fn receive(
    receiver: &mut Receiver,
    now: &mut Instant,
    gap: Duration,
    sequences: impl IntoIterator<Item = u32>,
) {
    for sequence in sequences {
        *now += gap;
        assert!(receiver.receive(*now, sequence, 0, 10_000, SEGMENT));
    }
}

#[test]
fn a_report_says_what_the_sender_needs() {
    let mut receiver = Receiver::new(START);
    assert_eq!(receiver.poll_timeout(), None);
    assert_eq!(receiver.poll_report(START), None, "nothing has arrived");
    let now = START + millis(50);
    assert!(receiver.receive(now, 7, 1234, 100_000, 500));
    assert_eq!(receiver.poll_timeout(), Some(now), "the first at once");
    let first = receiver.poll_report(now + millis(3)).unwrap();
    assert_eq!((first.echo_us, first.delay_us, first.loss), (1234, 3000, 0));
    // Less than a round trip says little about the rate: it counts as one.
    assert_eq!(first.received_rate, 5_000);
    assert_eq!(receiver.poll_timeout(), None);
    assert_eq!(receiver.poll_report(now + millis(500)), None);
    // Then once in a round trip.
    let reported = now + millis(3);
    for (after, sequence) in [(20, 8), (40, 9), (60, 10)] {
        let at = reported + millis(after);
        assert!(receiver.receive(at, sequence, 2000 + sequence, 100_000, 500));
        assert_eq!(receiver.poll_timeout(), Some(reported + millis(100)));
        assert_eq!(receiver.poll_report(at), None);
    }
    let second = receiver.poll_report(reported + millis(150)).unwrap();
    assert_eq!((second.echo_us, second.delay_us), (2010, 90_000));
    assert_eq!(second.received_rate, 10_000, "1,500 bytes in 150 ms");
    // A packet after a pause of a round trip or more: its report is due in no time.
    let at = reported + millis(400);
    assert!(receiver.receive(at, 11, 0, 100_000, 500));
    assert_eq!(receiver.poll_timeout(), Some(reported + millis(250)));
    assert!(receiver.poll_report(at).is_some());
}

#[test]
fn reports_are_a_millisecond_apart_at_least() {
    let mut receiver = Receiver::new(START);
    receiver.receive(START, 1, 0, 20, SEGMENT);
    let report = receiver.poll_report(START).unwrap();
    assert_eq!(report.received_rate, 1_000_000, "in a millisecond");
    receiver.receive(START, 2, 0, 20, SEGMENT);
    assert_eq!(receiver.poll_timeout(), Some(START + millis(1)));
    // A round trip counts as a minute at most, so that no packet can put reports off for hours.
    let mut receiver = Receiver::new(START);
    receiver.receive(START, 1, 0, u32::MAX, SEGMENT);
    receiver.poll_report(START);
    receiver.receive(START, 2, 0, u32::MAX, SEGMENT);
    assert_eq!(receiver.poll_timeout(), Some(START + millis(60_000)));
    // Until the sender knows the round-trip time it says 0.
    let mut receiver = Receiver::new(START);
    receiver.receive(START, 1, 0, 0, SEGMENT);
    receiver.poll_report(START);
    receiver.receive(START, 2, 0, 0, SEGMENT);
    assert_eq!(receiver.poll_timeout(), Some(START + millis(100)));
}

#[test]
fn of_64_numbers_each_is_accepted_once() {
    for base in [1000_u32, 10, u32::MAX] {
        let mut receiver = Receiver::new(START);
        let mut accept = |offset: i32| {
            let sequence = base.wrapping_add_signed(offset);
            receiver.receive(START, sequence, 0, 10_000, SEGMENT)
        };
        assert!(accept(0));
        assert!(!accept(0));
        assert!(accept(-63), "not received");
        assert!(!accept(-63), "a duplicate");
        assert!(!accept(-64), "too old to tell");
        assert!(!accept(-1_000_000));
        assert!(accept(2));
        assert!(accept(1));
        for seen in [0, 1, 2, -63] {
            assert!(!accept(seen));
        }
        assert!(accept(66));
        assert!(!accept(2), "too old now");
        assert!(accept(3));
        assert!(accept(1_000_000));
        assert!(accept(999_999));
        assert!(!accept(1_000_000));
    }
}

#[test]
fn three_later_packets_make_a_loss() {
    let mut now = START;
    let mut receiver = Receiver::new(now);
    receive(&mut receiver, &mut now, millis(1), 1..=100);
    receiver.poll_report(now);
    receive(&mut receiver, &mut now, millis(1), [102, 103]);
    assert_eq!(receiver.loss(), 0.0, "it may be late");
    assert!(receiver.poll_timeout() > Some(now));
    receive(&mut receiver, &mut now, millis(1), [104]);
    assert!(receiver.loss() > 0.0);
    assert_eq!(receiver.poll_timeout(), Some(now), "reported at once");
    // What is two late is no loss.
    let mut receiver = Receiver::new(now);
    receive(&mut receiver, &mut now, millis(1), 1..=100);
    receive(
        &mut receiver,
        &mut now,
        millis(1),
        [102, 103, 101, 104, 105, 106, 107],
    );
    assert_eq!(receiver.loss(), 0.0);
    // Numbers before the first one were never expected.
    let mut receiver = Receiver::new(now);
    receive(&mut receiver, &mut now, millis(1), 5..=100);
    assert_eq!(receiver.loss(), 0.0);
}

/// The loss event rate after loss events with these distances; the last is `open` packets ago. Packets come 20 ms
/// apart, so that each loss is an event of its own.
fn loss_after(intervals: &[u32], open: u32) -> f64 {
    let mut now = START;
    let mut receiver = Receiver::new(now);
    let mut sequence = 1;
    receive(&mut receiver, &mut now, millis(20), 1..100);
    sequence += 99;
    for interval in intervals {
        // The packet `sequence` is lost.
        receive(
            &mut receiver,
            &mut now,
            millis(20),
            sequence + 1..sequence + interval,
        );
        sequence += interval;
    }
    receive(
        &mut receiver,
        &mut now,
        millis(20),
        sequence + 1..=sequence + open,
    );
    receiver.loss()
}

#[test]
fn the_loss_event_rate_is_a_weighted_average_of_eight_intervals() {
    // From the oldest to the newest; the eight last count, with these weights from the newest on (section 5.4).
    let intervals = [500, 20, 90, 40, 60, 10, 70, 30, 50];
    let weights = [1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2];
    let newest = intervals.iter().rev().map(|&interval| f64::from(interval));
    let mean = |intervals: &mut dyn Iterator<Item = f64>| {
        let weighted = intervals
            .zip(weights)
            .map(|(interval, weight)| interval * weight);
        weighted.sum::<f64>() / 6.0
    };
    let closed = mean(&mut newest.clone());
    close(loss_after(&intervals, 3), 1.0 / closed);
    // The open interval counts once it makes the average greater.
    let open = mean(&mut std::iter::once(300.0).chain(newest));
    assert!(open > closed);
    close(loss_after(&intervals, 300), 1.0 / open);
}

#[test]
fn fewer_intervals_are_averaged_with_fewer_weights() {
    // Two distances follow the first loss: its interval is the one that corresponds to the received rate.
    let first = 1.0 / loss_after(&[], 3);
    let third = (f64::from(40 + 80) + first) / 3.0;
    close(loss_after(&[80, 40], 3), 1.0 / third);
}

#[test]
fn losses_within_a_round_trip_are_one_event() {
    let run = |lost: &[u32]| {
        let mut now = START;
        let mut receiver = Receiver::new(now);
        let numbers = (1..=400).filter(|number| !lost.contains(number));
        receive(&mut receiver, &mut now, millis(1), numbers);
        receiver.loss()
    };
    // The round trip is 10 ms, a packet comes in one.
    let one = run(&[200]);
    assert_eq!(run(&[200, 201, 205]), one);
    // The event begins when 203 arrives, and ends when 212 does: 209 lost is noticed then.
    assert_eq!(run(&[200, 208]), one);
    assert!(run(&[200, 220]) > one);
}

#[test]
fn a_long_gap_is_one_event_that_begins_with_it() {
    for gap in [50, 64, 65, 66, 67, 70, 500] {
        let mut now = START;
        let mut receiver = Receiver::new(now);
        receive(&mut receiver, &mut now, millis(20), 1..=100);
        let after = 100 + gap;
        // All of it is noticed within a round trip.
        receive(&mut receiver, &mut now, millis(1), after + 1..=after + 4);
        receive(&mut receiver, &mut now, millis(20), after + 5..=after + 400);
        let first = 1.0 / loss_after(&[], 3);
        // The open interval since the first packet of the gap.
        let open = f64::from(gap + 400 - 1);
        let mean = (first + open) / 2.0;
        assert!(mean > first, "{mean} {first}");
        close(receiver.loss(), 1.0 / mean);
    }
}

#[test]
fn the_first_interval_corresponds_to_the_received_rate() {
    for (gap, rtt_us) in [(1, 10_000), (5, 10_000), (1, 100_000)] {
        let mut now = START;
        let mut receiver = Receiver::new(now);
        for sequence in (1..=1000).chain(1002..=1004) {
            now += millis(gap);
            assert!(receiver.receive(now, sequence, 0, rtt_us, SEGMENT));
        }
        let received = 1_000_000.0 / gap as f64;
        let rtt = f64::from(rtt_us) / 1e6;
        close(equation(1000.0, rtt, receiver.loss()), received);
    }
}

#[test]
fn the_loss_event_rate_is_reported_in_32_bits() {
    let mut now = START;
    let mut receiver = Receiver::new(now);
    receive(
        &mut receiver,
        &mut now,
        millis(20),
        (1..100).chain(101..104),
    );
    assert!(receiver.loss() > 0.0);
    let report = receiver.poll_report(now).unwrap();
    close(f64::from(report.loss) / 4_294_967_296.0, receiver.loss());
}
