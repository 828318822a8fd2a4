//! The receiver's side (RFC 4654 §4).

use ltp::tfmcc::Receiver;
use ltp::wire::pace::Echo;
use proto_core::tfrc::throughput;

use super::*;

const ME: u64 = 7;
const RATE: u64 = 8_000_000;

/// A receiver that has taken a PACE of round 1 and a packet.
fn receiver(pace: &Pace, chance: f64) -> Receiver {
    let mut receiver = Receiver::new();
    receiver.handle_pace(START, pace, ME, chance);
    receiver.receive(START, 1, FRAME);
    receiver
}

/// A receiver whose round-trip time is `round_trip`, and the time of its next PACE.
fn measured(round_trip: Duration) -> (Receiver, Instant) {
    let mut receiver = receiver(&pace(START, 1, RATE), 0.0);
    let feedback = receiver.poll_feedback(START).expect("feedback");
    let now = START + round_trip + ms(30);
    echo(&mut receiver, now, 2, &feedback, 30_000);
    (receiver, now)
}

/// The PACE of a round that echoes the feedback, which the source held for `held_us`.
fn echo(receiver: &mut Receiver, now: Instant, round: u16, feedback: &Feedback, held_us: u32) {
    let mut pace = pace(now, round, RATE);
    let echo = Echo {
        receiver: ME,
        stamp_us: feedback.stamp_us,
        held_us,
    };
    let _ = pace.echoes.push(echo);
    receiver.handle_pace(now, &pace, ME, 0.0);
}

/// Packets from `first` on, one in a millisecond; those for which `is_lost` holds do not come.
fn stream(
    receiver: &mut Receiver,
    now: Instant,
    numbers: std::ops::Range<u32>,
    is_lost: impl Fn(u32) -> bool,
) -> Instant {
    let mut at = now;
    for number in numbers {
        at += ms(1);
        if !is_lost(number) {
            receiver.receive(at, number, FRAME);
        }
    }
    at
}

#[test]
fn without_a_pace_or_a_packet_there_is_no_feedback() {
    let mut receiver = Receiver::new();
    receiver.receive(START, 1, FRAME);
    assert!(!receiver.is_used());
    assert_eq!(
        (receiver.poll_timeout(), receiver.poll_feedback(START)),
        (None, None)
    );
    let mut receiver = Receiver::new();
    receiver.handle_pace(START, &pace(START, 1, RATE), ME, 0.0);
    assert!(receiver.is_used());
    assert_eq!(receiver.poll_feedback(START), None, "nothing came");
}

#[test]
fn the_first_feedback_answers_the_pace() {
    let mut receiver = receiver(&pace(START, 1, RATE), 0.0);
    let now = START + ms(3);
    let feedback = receiver.poll_feedback(now).expect("feedback");
    assert_eq!(
        (feedback.round, feedback.round_trip_us, feedback.loss),
        (1, 0, 0)
    );
    assert_eq!(feedback.rate_bps, u64::MAX);
    assert_eq!(
        (feedback.stamp_us, feedback.echo_us, feedback.held_us),
        (clock(now), clock(START), 3_000)
    );
    // One frame in the round-trip time that was assumed.
    assert_eq!(feedback.received_bps, 80_000);
    assert_eq!(receiver.poll_feedback(now), None);
}

#[test]
fn an_echo_gives_the_round_trip_time_and_later_paces_what_the_way_adds() {
    let (mut receiver, now) = measured(ms(50));
    receiver.receive(now, 2, FRAME);
    let feedback = receiver.poll_feedback(now).expect("feedback");
    assert_eq!(feedback.round_trip_us, 50_000);
    // The next PACE is 10 ms longer on its way.
    let now = now + ms(500);
    let late = pace(now - ms(10), 3, RATE);
    receiver.handle_pace(now, &late, ME, 0.0);
    receiver.receive(now, 3, FRAME);
    let feedback = receiver.poll_feedback(now).expect("feedback");
    assert_eq!(feedback.round_trip_us, 60_000);
}

#[test]
fn echoes_of_others_and_forged_ones_measure_nothing() {
    for (id, stamp_off) in [(ME + 1, 0), (ME, 1)] {
        let mut receiver = receiver(&pace(START, 1, RATE), 0.0);
        let feedback = receiver.poll_feedback(START).expect("feedback");
        let now = START + ms(50);
        let mut pace = pace(now, 2, RATE);
        let echo = Echo {
            receiver: id,
            stamp_us: feedback.stamp_us.wrapping_add(stamp_off),
            held_us: 0,
        };
        let _ = pace.echoes.push(echo);
        receiver.handle_pace(now, &pace, ME, 0.0);
        receiver.receive(now, 2, FRAME);
        let feedback = receiver.poll_feedback(now).expect("feedback");
        assert_eq!(feedback.round_trip_us, 0);
    }
}

#[test]
fn a_round_trip_of_more_than_ten_seconds_is_not_measured() {
    for (elapsed_us, held_us, measured_us) in [
        (50_000, 50_001, 0),
        (10_000_000, 0, 10_000_000),
        (10_000_001, 0, 0),
        (60_000_000, 0, 0),
    ] {
        let mut receiver = receiver(&pace(START, 1, RATE), 0.0);
        let feedback = receiver.poll_feedback(START).expect("feedback");
        let now = START + Duration::from_micros(elapsed_us);
        echo(&mut receiver, now, 2, &feedback, held_us);
        receiver.receive(now, 2, FRAME);
        let feedback = receiver.poll_feedback(now).expect("feedback");
        assert_eq!(feedback.round_trip_us, measured_us, "{elapsed_us}");
    }
}

#[test]
fn loss_gives_the_rate_of_the_throughput_equation() {
    let (mut receiver, now) = measured(ms(50));
    let at = stream(&mut receiver, now, 2..4_002, |number| number % 200 == 0);
    assert!((receiver.loss_event_rate() * 200.0 - 1.0).abs() < 0.05);
    receiver.handle_pace(at, &pace(at, 3, RATE), ME, 0.0);
    let feedback = receiver.poll_feedback(at).expect("feedback");
    let rate = throughput(FRAME as f64, 0.05, receiver.loss_event_rate());
    close(feedback.rate_bps as f64, 8.0 * rate);
    close(
        f64::from(feedback.loss),
        receiver.loss_event_rate() * 4_294_967_296.0,
    );
    // 1,000 frames a second.
    assert!((feedback.received_bps as f64 / 8e6 - 1.0).abs() < 0.1);
}

/// The first interval is the one at which the equation gives that rate, also when the round-trip time turns out to be
/// another than was assumed.
#[test]
fn after_the_first_loss_a_receiver_can_have_the_rate_at_which_packets_came() {
    let mut receiver = receiver(&pace(START, 1, RATE), 0.0);
    let at = stream(&mut receiver, START, 2..500, |number| number == 490);
    let feedback = receiver.poll_feedback(at).expect("feedback");
    assert_eq!(feedback.round_trip_us, 0);
    close(feedback.rate_bps as f64, RATE as f64);
    // A quarter of the time that was assumed.
    let at = at + ms(25);
    echo(&mut receiver, at, 2, &feedback, 0);
    receiver.receive(at, 500, FRAME);
    let feedback = receiver.poll_feedback(at).expect("feedback");
    assert_eq!(feedback.round_trip_us, 25_000);
    let ratio = feedback.rate_bps as f64 / RATE as f64;
    // Timeouts count more at the higher loss.
    assert!((0.95..1.0).contains(&ratio), "{ratio}");
}

#[test]
fn the_rate_at_which_packets_come_is_that_of_the_last_two_round_trips() {
    let (mut receiver, now) = measured(ms(50));
    let mut number = 1;
    let mut run = |receiver: &mut Receiver, start: Instant, time: u64, interval: u64| {
        for step in 1..=time {
            let at = start + ms(step);
            if step % interval == 0 {
                number += 1;
                receiver.receive(at, number, FRAME);
            }
            if step % 10 == 0 {
                receiver.handle_pace(at, &pace(at, 2, RATE), ME, 0.0);
            }
        }
        start + ms(time)
    };
    let at = run(&mut receiver, now, 1_000, 1);
    let at = run(&mut receiver, at, 110, 10);
    let feedback = receiver.poll_feedback(at).expect("feedback");
    close(feedback.received_bps as f64, 800_000.0);
}

/// The source learns of the first loss a round trip late, and its queue has grown by one.
#[test]
fn losses_within_three_round_trips_after_slow_start_are_one_event() {
    let (mut receiver, mut at) = measured(ms(50));
    let start = Pace {
        slow_start: true,
        ..pace(at, 2, RATE)
    };
    receiver.handle_pace(at, &start, ME, 0.0);
    let mut next = 2;
    let mut begins_event = |receiver: &mut Receiver, lost: u32| {
        let before = receiver.loss_event_rate();
        at = stream(receiver, at, next..lost + 4, |number| number == lost);
        next = lost + 4;
        (receiver.loss_event_rate() != before, at)
    };
    let (begins, at) = begins_event(&mut receiver, 100);
    assert!(begins);
    receiver.handle_pace(at, &pace(at, 2, RATE), ME, 0.0);
    assert!(!begins_event(&mut receiver, 249).0);
    assert!(begins_event(&mut receiver, 300).0);
    // From then on within one round trip.
    assert!(!begins_event(&mut receiver, 349).0);
    assert!(begins_event(&mut receiver, 360).0);
}

#[test]
fn losses_within_a_round_trip_are_one_event() {
    let (mut receiver, now) = measured(ms(50));
    let at = stream(&mut receiver, now, 2..6_002, |number| number % 500 < 20);
    let apart = receiver.loss_event_rate();
    assert!((apart * 500.0 - 1.0).abs() < 0.1, "{apart}");
    receiver.handle_pace(at, &pace(at, 3, RATE), ME, 0.0);
    assert!(receiver.poll_feedback(at).is_some());
}

#[test]
fn the_limiting_receiver_answers_once_in_a_round_trip() {
    let (mut receiver, now) = measured(ms(50));
    let limiting = Pace {
        limiting: ME,
        ..pace(now, 2, RATE)
    };
    receiver.handle_pace(now, &limiting, ME, 0.0);
    receiver.receive(now, 2, FRAME);
    let mut answers = Vec::new();
    let mut at = now;
    for number in 3..500 {
        at += ms(1);
        if number != 260 {
            receiver.receive(at, number, FRAME);
        }
        if receiver.poll_feedback(at).is_some() {
            answers.push((at - now).total_millis());
            receiver.handle_pace(
                at,
                &Pace {
                    limiting: ME,
                    ..pace(at, 2, RATE)
                },
                ME,
                0.0,
            );
        }
    }
    let gaps: Vec<_> = answers.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|&gap| gap == 50), "{answers:?}");
    assert!(answers.len() >= 9);
}

#[test]
fn a_limiting_receiver_to_which_nothing_has_come_answers_with_the_next_packet() {
    let (mut receiver, now) = measured(ms(50));
    let limiting = Pace {
        limiting: ME,
        ..pace(now, 2, RATE)
    };
    receiver.handle_pace(now, &limiting, ME, 0.0);
    assert_eq!(receiver.poll_feedback(now), None);
    assert_eq!(receiver.poll_timeout(), None);
    receiver.receive(now + ms(1), 2, FRAME);
    assert!(receiver.poll_feedback(now + ms(1)).is_some());
}

/// When a receiver of a group of `receivers` answers in a round, in milliseconds.
fn answer_ms(chance: f64, receivers: u32, rate_bps: u64) -> u64 {
    let pace = Pace {
        receivers,
        ..pace(START, 1, rate_bps)
    };
    let receiver = receiver(&pace, chance);
    let at = receiver.poll_timeout().expect("a time");
    assert!(at >= START);
    (at - START).total_millis()
}

#[test]
fn few_receivers_answer_at_once_and_many_at_random_times() {
    assert_eq!(answer_ms(1.0, 4, RATE), 0);
    // Without loss the rate counts as a high one: the latest time is that of the whole round.
    assert_eq!(answer_ms(1.0, 10_000, RATE), 800);
    assert_eq!(answer_ms(1e-9, 10_000, RATE), 200);
    assert_eq!(answer_ms(0.01, 10_000, RATE), 200 + 300);
}

#[test]
fn the_lower_a_rate_is_the_earlier_it_is_told() {
    // From half the source's rate to nine tenths of it.
    for (ratio, wait_ms) in [(0.4, 600), (0.5, 600), (0.7, 700), (0.9, 800), (1.2, 800)] {
        let (mut receiver, now) = measured(ms(50));
        let at = stream(&mut receiver, now, 2..4_002, |number| number % 200 == 0);
        let rate = 8.0 * throughput(FRAME as f64, 0.05, receiver.loss_event_rate());
        let pace = Pace {
            receivers: 10_000,
            ..pace(at, 3, (rate / ratio) as u64)
        };
        receiver.handle_pace(at, &pace, ME, 1.0);
        let due = receiver.poll_timeout().expect("a time");
        assert_eq!((due - at).total_millis(), wait_ms, "{ratio}");
    }
}

#[test]
fn of_ten_thousand_receivers_a_few_answer_and_the_lowest_is_among_the_first() {
    // The uniform numbers of a fixed generator.
    let mut state = 1_u64;
    let mut chance = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / (1_u64 << 31) as f64
    };
    let mut times: Vec<u64> = (0..10_000)
        .map(|_| answer_ms(chance(), 10_000, RATE))
        .collect();
    times.sort_unstable();
    // All that answer before the first answer has reached them, a round trip of 100 ms later.
    let first = times[0];
    let answers = times.iter().filter(|&&at| at <= first + 100).count();
    assert!((1..=20).contains(&answers), "{answers}");
}

#[test]
fn a_rate_that_another_told_is_not_told() {
    let told = |suppress_bps| {
        let (mut receiver, now) = measured(ms(50));
        let at = stream(&mut receiver, now, 2..4_002, |number| number % 200 == 0);
        let pace = Pace {
            receivers: 10_000,
            ..pace(at, 3, RATE)
        };
        receiver.handle_pace(at, &pace, ME, 1.0);
        let rate = 8.0 * throughput(FRAME as f64, 0.05, receiver.loss_event_rate());
        let suppress_bps = (rate * suppress_bps) as u64;
        receiver.handle_pace(
            at,
            &Pace {
                suppress_bps,
                ..pace
            },
            ME,
            1.0,
        );
        receiver.poll_timeout().is_some()
    };
    assert!(!told(0.9));
    assert!(!told(1.1));
    assert!(told(1.13));
}

#[test]
fn in_slow_start_the_rate_at_which_packets_come_is_told_unless_another_told_one_as_low() {
    let told = |suppress_bps| {
        let start = Pace {
            slow_start: true,
            receivers: 10_000,
            ..pace(START, 1, RATE)
        };
        let mut receiver = receiver(&start, 1.0);
        // 900 kB in a second.
        stream(&mut receiver, START, 2..901, |_| false);
        let at = START + ms(1_000);
        let next = Pace {
            round: 2,
            suppress_bps,
            ..start
        };
        receiver.handle_pace(at, &next, ME, 1.0);
        receiver.poll_timeout().is_some()
    };
    assert!(told(u64::MAX));
    assert!(told(8_000_100));
    // A tenth more than comes.
    assert!(!told(8_000_000));
    assert!(!told(7_200_000));
}

#[test]
fn forged_rounds_make_a_receiver_answer_four_times_a_second() {
    let mut receiver = receiver(&pace(START, 0, RATE), 0.0);
    let mut answers = 0;
    for step in 1..2_000_u16 {
        let now = START + ms(u64::from(step) * 5);
        receiver.handle_pace(now, &pace(now, step, RATE), ME, 0.0);
        receiver.receive(now, u32::from(step) + 1, FRAME);
        answers += usize::from(receiver.poll_feedback(now).is_some());
    }
    assert!((40..=45).contains(&answers), "{answers} in 10 s");
}

#[test]
fn a_token_that_comes_has_the_last_feedback_sent_again() {
    let mut receiver = receiver(&pace(START, 1, RATE), 0.0);
    receiver.token_came(START);
    assert!(receiver.poll_feedback(START).is_some());
    assert_eq!(receiver.poll_feedback(START + ms(1)), None);
    receiver.token_came(START + ms(2));
    assert!(receiver.poll_feedback(START + ms(2)).is_some());
}

/// Relays pass on the lowest: receivers that lost packets, by their rates, then in slow start those to which least comes.
#[test]
fn the_rank_is_the_rate_and_without_loss_above_all_rates() {
    let mut start = pace(START, 1, RATE);
    let mut ranks = Vec::new();
    for slow_start in [true, false] {
        start.slow_start = slow_start;
        let mut receiver = receiver(&start, 0.0);
        let feedback = receiver.poll_feedback(START + ms(3)).expect("feedback");
        ranks.push(receiver.rank(&feedback));
        let lossy = limited(START, ME, ms(20), 5_000_000);
        assert_eq!(receiver.rank(&lossy), 5_000_000);
        match slow_start {
            true => assert_eq!(ranks, [(1 << 62) + feedback.received_bps]),
            false => assert_eq!(ranks[1], u64::MAX),
        }
    }
    assert!(ranks[0] < ranks[1]);
}
