//! The source's side (RFC 4654 §3).

mod relayed;
mod too_slow;

use ltp::tfmcc::{FeedbackError, MANY, Sender};

use super::*;

const LEAST: u64 = 64_000;
const MOST: u64 = 10_000_000_000;
const RTT: Duration = Duration::from_millis(20);

fn sender() -> Sender {
    Sender::new(START, FRAME, LEAST, MOST)
}

/// A source that follows receiver 1, which can have that rate, and the time.
fn following(rate_bps: u64) -> (Sender, Instant) {
    let mut sender = sender();
    let now = START + ms(100);
    let feedback = limited(now, 1, RTT, rate_bps);
    sender.handle_feedback(now, host(1), &feedback).unwrap();
    // The rate of the first feedback is not reached at once.
    let (mut sender, mut now) = (sender, now);
    while sender.rate_bps() < rate_bps {
        now += RTT;
        answer(&mut sender, now, 1, rate_bps);
    }
    (sender, now)
}

/// Receiver `number` tells its rate to a busy source.
fn answer(sender: &mut Sender, now: Instant, number: u16, rate_bps: u64) {
    sender.sent();
    sender.limited();
    let feedback = limited(now, number.into(), RTT, rate_bps);
    let taken = sender.handle_feedback(now, host(number), &feedback);
    assert_eq!(taken, Ok(()));
}

fn limiting(sender: &Sender) -> Option<u64> {
    sender.limiting().map(|limiting| limiting.receiver)
}

#[test]
fn ten_packets_in_a_tenth_of_a_second_begin() {
    let sender = sender();
    assert_eq!(sender.rate_bps(), 10 * 8_000 * 10);
    assert!(sender.is_slow_start());
    let bounded = Sender::new(START, FRAME, LEAST, 100_000);
    assert_eq!(bounded.rate_bps(), 100_000);
}

#[test]
fn slow_start_doubles_once_in_the_longest_round_trip_up_to_twice_what_came() {
    let mut sender = sender();
    let mut now = START;
    let mut tell = |sender: &mut Sender, after: u64, received: u64| {
        now += ms(after);
        sender.limited();
        let feedback = unlimited(now, 1, RTT, received);
        sender.handle_feedback(now, host(1), &feedback).unwrap();
        sender.rate_bps()
    };
    // This receiver answers every 20 ms, but one may be 100 ms away.
    assert_eq!(tell(&mut sender, 20, 10_000_000), 800_000, "too soon");
    assert_eq!(tell(&mut sender, 80, 10_000_000), 1_600_000);
    assert_eq!(tell(&mut sender, 60, 10_000_000), 1_600_000, "too soon");
    assert_eq!(tell(&mut sender, 40, 10_000_000), 3_200_000);
    assert_eq!(tell(&mut sender, 100, 2_000_000), 4_000_000);
    assert_eq!(
        tell(&mut sender, 100, 1_000_000),
        4_000_000,
        "it does not fall"
    );
}

#[test]
fn the_rate_does_not_rise_while_the_application_is_the_limit() {
    let mut sender = sender();
    let now = START + ms(50);
    let feedback = unlimited(now, 1, RTT, 10_000_000);
    sender.handle_feedback(now, host(1), &feedback).unwrap();
    assert_eq!(sender.rate_bps(), 800_000);
    let (mut sender, now) = following(1_000_000);
    for step in 1..50 {
        let now = now + RTT * step;
        let feedback = limited(now, 1, RTT, 5_000_000);
        sender.handle_feedback(now, host(1), &feedback).unwrap();
        assert_eq!(sender.rate_bps(), 1_000_000);
    }
}

#[test]
fn in_slow_start_the_receiver_to_which_least_comes_limits() {
    let mut sender = sender();
    let now = START + ms(30);
    let mut tell = |number: u16, received| {
        sender.limited();
        let feedback = unlimited(now, number.into(), RTT, received);
        sender
            .handle_feedback(now, host(number), &feedback)
            .unwrap();
        limiting(&sender)
    };
    assert_eq!(tell(1, 700_000), Some(1));
    assert_eq!(tell(2, 800_000), Some(1));
    assert_eq!(tell(2, 700_000), Some(1), "no less than to the first");
    assert_eq!(tell(3, 600_000), Some(3));
}

#[test]
fn the_first_loss_ends_slow_start() {
    let mut sender = sender();
    answer(&mut sender, START + ms(20), 1, 500_000);
    assert!(!sender.is_slow_start());
    assert_eq!(sender.rate_bps(), 500_000);
    assert_eq!(limiting(&sender), Some(1));
}

#[test]
fn the_lowest_rate_is_followed_at_once_and_others_are_ignored() {
    let (mut sender, now) = following(10_000_000);
    answer(&mut sender, now, 2, 11_000_000);
    assert_eq!(
        (sender.rate_bps(), limiting(&sender)),
        (10_000_000, Some(1))
    );
    answer(&mut sender, now, 2, 10_000_000);
    assert_eq!(limiting(&sender), Some(1), "it can have the rate");
    answer(&mut sender, now, 3, 2_000_000);
    assert_eq!((sender.rate_bps(), limiting(&sender)), (2_000_000, Some(3)));
    // The former one no longer speaks for the group.
    answer(&mut sender, now + RTT, 1, 10_000_000);
    assert_eq!((sender.rate_bps(), limiting(&sender)), (2_000_000, Some(3)));
}

#[test]
fn the_rate_grows_by_an_eighth_in_the_longest_round_trip_at_most() {
    let (mut sender, mut now) = following(80_000_000);
    now += RTT;
    // The longest round-trip time is still the 100 ms that were assumed.
    answer(&mut sender, now, 1, 800_000_000);
    close(sender.rate_bps() as f64, 80e6 * (1.0 + 0.2 / 8.0));
    now += ms(5_000);
    let before = sender.rate_bps() as f64;
    answer(&mut sender, now, 1, 800_000_000);
    close(sender.rate_bps() as f64, before * 1.125);
    // A low rate grows by a packet in that time.
    let (mut sender, now) = following(100_000);
    answer(&mut sender, now + ms(100), 1, 800_000_000);
    close(sender.rate_bps() as f64, 100e3 + 80e3);
}

#[test]
fn a_rate_of_a_receiver_without_round_trip_time_is_scaled() {
    let (mut sender, now) = following(10_000_000);
    let mut feedback = limited(now, 2, RTT, 1_500_000);
    feedback.round_trip_us = 0;
    sender.handle_feedback(now, host(2), &feedback).unwrap();
    // It assumed 100 ms, and has 20 ms.
    assert_eq!(sender.rate_bps(), 7_500_000);
}

#[test]
fn bounds_hold_whatever_receivers_tell() {
    let (mut sender, now) = following(10_000_000);
    answer(&mut sender, now, 2, 0);
    assert_eq!(sender.rate_bps(), LEAST);
    let mut sender = Sender::new(START, FRAME, LEAST, 2_000_000);
    for step in 1..100 {
        sender.limited();
        let now = START + RTT * step;
        let feedback = unlimited(now, 1, RTT, u64::MAX);
        sender.handle_feedback(now, host(1), &feedback).unwrap();
    }
    assert_eq!(sender.rate_bps(), 2_000_000);
    sender.set_highest(Some(1_000_000));
    assert_eq!(sender.rate_bps(), 1_000_000);
}

#[test]
fn a_limiting_receiver_that_falls_silent_is_forgotten() {
    let (mut sender, now) = following(10_000_000);
    sender.sent();
    sender.handle_timeout(now + ms(499));
    assert_eq!(limiting(&sender), Some(1));
    sender.handle_timeout(now + ms(500));
    assert_eq!(limiting(&sender), None);
    // Another one takes its place, also with a higher rate.
    answer(&mut sender, now + ms(520), 2, 20_000_000);
    assert_eq!(limiting(&sender), Some(2));
    // Without packets there is nothing to answer.
    let (mut idle, now) = following(10_000_000);
    idle.handle_timeout(now + ms(60_000));
    assert_eq!(limiting(&idle), Some(1));
}

#[test]
fn a_limiting_receiver_that_is_far_away_may_be_silent_for_ten_round_trips() {
    let mut sender = sender();
    let now = START + ms(300);
    let feedback = limited(now, 1, ms(200), 500_000);
    sender.handle_feedback(now, host(1), &feedback).unwrap();
    sender.sent();
    sender.handle_timeout(now + ms(1_999));
    assert_eq!(limiting(&sender), Some(1));
    sender.handle_timeout(now + ms(2_000));
    assert_eq!(limiting(&sender), None);
}

/// When the rate is halved if packets are sent and nobody answers.
fn halved_after(mut sender: Sender) -> Duration {
    let before = sender.rate_bps();
    let mut now = START;
    while sender.rate_bps() == before {
        sender.sent();
        now = sender.poll_timeout().expect("the end of a round");
        sender.handle_timeout(now);
        let pace = sender.pace_at().map(|at| sender.poll_pace(at, MANY));
        assert!(pace.is_some());
    }
    assert_eq!(sender.rate_bps(), before / 2);
    now - START
}

#[test]
fn the_rate_is_halved_after_four_rounds_or_four_packets_without_feedback() {
    // A round of 10,000 receivers is eight times the longest round-trip time.
    close(halved_after(sender()).total_micros() as f64, 3_200_000.0);
    let slow = Sender::new(START, FRAME, 80, 800);
    assert_eq!(halved_after(slow), ms(40_000));
}

#[test]
fn a_receiver_that_has_everything_is_forgotten() {
    let (mut sender, now) = following(10_000_000);
    sender.forget(now, host(2));
    assert_eq!(limiting(&sender), Some(1));
    sender.forget(now, host(1));
    assert_eq!(limiting(&sender), None);
    assert_eq!(sender.rate_bps(), 10_000_000);
}

#[test]
fn silence_of_all_halves_the_rate_down_to_the_least() {
    let (mut sender, mut now) = following(10_000_000);
    assert_eq!(sender.poll_timeout(), None, "nothing was sent since");
    for expected in [5_000_000, 2_500_000, 1_250_000] {
        sender.sent();
        while sender.rate_bps() > expected {
            now = sender.poll_timeout().expect("a time without feedback");
            sender.handle_timeout(now);
        }
        assert_eq!(sender.rate_bps(), expected);
    }
    for _ in 0..40 {
        sender.sent();
        now += ms(60_000);
        sender.handle_timeout(now);
    }
    assert_eq!(sender.rate_bps(), LEAST);
}

#[test]
fn feedback_to_no_recent_pace_is_refused() {
    let (mut sender, now) = following(10_000_000);
    let good = limited(now, 2, RTT, 1_000_000);
    let forged = [
        Feedback {
            echo_us: good.echo_us.wrapping_sub(21_000_000),
            ..good
        },
        Feedback {
            echo_us: clock(now).wrapping_add(1_000),
            ..good
        },
        Feedback {
            held_us: 25_000,
            ..good
        },
    ];
    for feedback in forged {
        let taken = sender.handle_feedback(now, host(2), &feedback);
        assert_eq!(taken, Err(FeedbackError::Stale));
    }
    assert_eq!(sender.rate_bps(), 10_000_000);
    assert_eq!(sender.handle_feedback(now, host(2), &good), Ok(()));
}

/// A receiver may hold its answer for a while, if the PACE is not older than twice the longest round trip.
#[test]
fn feedback_counts_twenty_seconds_after_the_pace_and_after_a_round_trip_of_ten() {
    for (elapsed, held, taken) in [
        (10_000_000, 0, true),
        (10_000_001, 0, false),
        (19_000_000, 18_000_000, true),
        (20_000_000, 19_000_000, true),
        (20_000_001, 19_000_000, false),
        (60_000_000, 59_000_000, false),
    ] {
        let mut sender = sender();
        let now = START + ms(100);
        let feedback = Feedback {
            echo_us: clock(now).wrapping_sub(elapsed),
            held_us: held,
            ..limited(now, 1, RTT, 500_000)
        };
        let expected = if taken {
            Ok(())
        } else {
            Err(FeedbackError::Stale)
        };
        assert_eq!(
            sender.handle_feedback(now, host(1), &feedback),
            expected,
            "{elapsed}, {held}"
        );
        assert_eq!(limiting(&sender), taken.then_some(1));
    }
}

#[test]
fn the_limiting_receiver_s_loss_and_smoothed_round_trip_time_are_told() {
    let (mut sender, now) = following(1_000_000);
    let told = sender.limiting().expect("it limits the rate");
    assert_eq!(told.round_trip, RTT);
    assert_eq!(told.loss, 1.0 / 4_096.0);
    let longer = Feedback {
        loss: 1 << 30,
        ..limited(now, 1, RTT * 2, 1_000_000)
    };
    sender.handle_feedback(now, host(1), &longer).unwrap();
    // A sample counts a tenth.
    let told = sender.limiting().expect("it limits the rate");
    assert_eq!(told.round_trip, ms(22));
    assert_eq!(told.loss, 0.25);
}

#[test]
fn who_knows_the_identifier_of_the_limiting_receiver_does_not_speak_for_it() {
    let (mut sender, now) = following(1_000_000);
    for step in 1..100 {
        let now = now + RTT * step;
        sender.limited();
        let forged = limited(now, 1, RTT, 900_000_000);
        sender.handle_feedback(now, host(66), &forged).unwrap();
    }
    assert_eq!(sender.rate_bps(), 1_000_000);
    assert_eq!(
        sender.limiting().map(|limiting| limiting.address),
        Some(host(1))
    );
}

#[test]
fn a_liar_that_limits_raises_the_rate_no_faster_than_an_honest_receiver() {
    let (mut sender, now) = following(1_000_000);
    let lie = Feedback {
        received_bps: u64::MAX,
        ..limited(now + ms(1), 1, ms(1), u64::MAX - 1)
    };
    for step in 0..1_000 {
        sender.limited();
        let lie = Feedback {
            echo_us: clock(now + ms(1)),
            held_us: 1_000,
            ..lie
        };
        let _ = sender.handle_feedback(now + Duration::from_micros(2_000 + step), host(1), &lie);
    }
    // 3 ms are a thirtieth of the longest round-trip time.
    assert!(sender.rate_bps() < 1_010_000, "{}", sender.rate_bps());
}

#[test]
fn a_pace_echoes_what_came_since_the_last_one() {
    let mut sender = sender();
    assert_eq!(sender.pace_at(), Some(START));
    let first = sender.poll_pace(START, MANY).expect("a PACE");
    assert_eq!(
        (first.round, first.slow_start, first.limiting),
        (0, true, 0)
    );
    assert_eq!(
        (first.stamp_us, first.max_round_trip_us),
        (clock(START), 100_000)
    );
    assert_eq!(first.suppress_bps, u64::MAX);
    assert_eq!(sender.poll_pace(START + ms(1), MANY), None);
    for number in 1..=20 {
        let now = START + ms(10) + Duration::from_micros(number);
        let feedback = unlimited(now, number, RTT, 1_000_000 - number);
        sender
            .handle_feedback(now, host(number as u16), &feedback)
            .unwrap();
    }
    let at = sender.pace_at().expect("a PACE");
    let second = sender.poll_pace(at, MANY).expect("a PACE");
    assert_eq!(second.echoes.len(), 16);
    assert_eq!((second.limiting, second.suppress_bps), (20, 999_980));
    let echo = second.echoes[0];
    let held = clock(at).wrapping_sub(echo.stamp_us);
    assert_eq!((echo.receiver, echo.held_us), (1, held));
    assert!(second.echoes.iter().all(|echo| echo.receiver <= 16));
}

#[test]
fn the_limiting_receiver_is_echoed_first_and_always() {
    let (mut sender, now) = following(1_000_000);
    let at = sender.pace_at().expect("a PACE").max(now);
    sender.poll_pace(at, MANY).expect("a PACE");
    for number in (2..=20).chain([1]) {
        answer(&mut sender, at + ms(1), number, 2_000_000);
    }
    answer(&mut sender, at + ms(2), 1, 1_000_000);
    let at = sender.pace_at().expect("a PACE");
    let pace = sender.poll_pace(at, MANY).expect("a PACE");
    assert_eq!(pace.echoes.len(), 16);
    assert_eq!(pace.echoes[0].receiver, 1);
}

#[test]
fn paces_take_a_hundredth_of_the_rate_and_none_follows_within_five_milliseconds() {
    let (mut sender, now) = following(100_000_000);
    let at = sender.pace_at().expect("a PACE").max(now);
    sender.poll_pace(at, 1).expect("a PACE");
    answer(&mut sender, at, 1, 100_000_000);
    assert_eq!(sender.pace_at(), Some(at + ms(5)));
    let (mut slow, now) = following(100_000);
    let at = slow.pace_at().expect("a PACE").max(now);
    slow.poll_pace(at, 1).expect("a PACE");
    answer(&mut slow, at, 1, 100_000);
    let wait = slow.pace_at().expect("a PACE") - at;
    // 144 bytes with headers, at 1,000 bit/s.
    assert_eq!(wait, ms(1_152));
}

/// Begins a round. Returns its number and when it begins.
fn begin_round(sender: &mut Sender) -> (u16, Instant) {
    let at = sender.pace_at().expect("a PACE");
    (sender.poll_pace(at, MANY).expect("a PACE").round, at)
}

#[test]
fn a_round_is_eight_round_trips_for_ten_thousand_receivers() {
    let mut sender = sender();
    let (first, began) = begin_round(&mut sender);
    sender.handle_timeout(began + ms(60_000));
    assert_eq!(sender.poll_timeout(), None, "nothing was sent");
    sender.sent();
    let far = unlimited(began + ms(10), 1, RTT, 700_000);
    sender
        .handle_feedback(began + ms(10), host(1), &far)
        .unwrap();
    sender.sent();
    let end = sender.poll_timeout().expect("the end of the round");
    // ln 10,000 / (0.75 ln 4.64) times 100 ms, and two packets at 800 kbit/s.
    close((end - began).total_micros() as f64, 800_000.0 + 20_000.0);
    sender.handle_timeout(end);
    let (second, _) = begin_round(&mut sender);
    assert_eq!(second, first + 1);
}

#[test]
fn a_round_in_which_only_the_limiting_receiver_answered_is_twice_as_long() {
    let (mut sender, now) = following(100_000_000);
    let at = sender.pace_at().expect("a PACE").max(now);
    let mut length = |at: Instant| {
        let pace = sender.poll_pace(at, 1).expect("a PACE");
        sender.sent();
        let end = sender.poll_timeout().expect("the end of the round");
        sender.handle_timeout(end);
        // Two packets at 100 Mbit/s.
        let longest = u64::from(pace.max_round_trip_us) + 160;
        (end, (end - at).total_micros() as f64 / longest as f64)
    };
    // Receiver 1 was not yet the limiting one when it answered first.
    let (end, first) = length(at);
    let (_, second) = length(end);
    assert_eq!((first, second), (1.0, 2.0));
}

#[test]
fn the_lowest_rate_of_the_round_suppresses_others() {
    let (mut sender, now) = following(10_000_000);
    // A new round begins.
    sender.forget(now, host(1));
    let at = sender.pace_at().expect("a PACE").max(now);
    let round = sender.poll_pace(at, MANY).expect("a PACE").round;
    for (number, rate, of, expected) in [
        (2, 30_000_000, round, 30_000_000),
        (3, 20_000_000, round, 20_000_000),
        (4, 25_000_000, round, 20_000_000),
        (5, 15_000_000, round.wrapping_sub(1), 20_000_000),
    ] {
        let feedback = Feedback {
            round: of,
            ..limited(at + ms(1), number, RTT, rate)
        };
        sender
            .handle_feedback(at + ms(1), host(number as u16), &feedback)
            .unwrap();
        sender.sent();
        let when = sender.pace_at().expect("a PACE");
        let pace = sender.poll_pace(when, MANY).expect("a PACE");
        assert_eq!(pace.suppress_bps, expected, "receiver {number}");
    }
}

#[test]
fn the_longest_round_trip_time_grows_at_once_and_falls_by_a_tenth_a_round() {
    let (mut sender, now) = following(10_000_000);
    let far = limited(now, 2, ms(400), 50_000_000);
    sender.handle_feedback(now, host(2), &far).unwrap();
    let mut at = sender.pace_at().expect("a PACE").max(now);
    let pace = sender.poll_pace(at, 1).expect("a PACE");
    assert_eq!(pace.max_round_trip_us, 400_000);
    let mut longest = Vec::new();
    for _ in 0..400 {
        at += RTT;
        answer(&mut sender, at, 1, 10_000_000);
        sender.handle_timeout(at);
        let pace = sender.poll_pace(at + ms(5), 1).expect("a PACE");
        if longest.last() != Some(&pace.max_round_trip_us) {
            longest.push(pace.max_round_trip_us);
        }
    }
    assert_eq!(longest[..3], [400_000, 360_000, 324_000]);
    assert!(longest.iter().all(|&longest| longest >= 20_000));
}

#[test]
fn rounds_without_feedback_leave_the_longest_round_trip_time() {
    let mut sender = sender();
    for round in 0..5 {
        let at = sender.pace_at().expect("a PACE");
        let pace = sender.poll_pace(at, 1).expect("a PACE");
        assert_eq!((pace.round, pace.max_round_trip_us), (round, 100_000));
        sender.sent();
        let end = sender.poll_timeout().expect("the end of the round");
        sender.handle_timeout(end);
    }
}

#[test]
fn a_pace_is_no_longer_than_a_data_packet_and_the_next_one_has_the_other_echoes() {
    // Of 150 bytes 108 are data, and 60 a PACE without echoes and its authentication.
    let mut sender = Sender::new(START, 150, LEAST, MOST);
    let now = START + ms(20);
    for number in 1..=5 {
        let feedback = unlimited(now, number.into(), RTT, 500_000);
        sender
            .handle_feedback(now, host(number), &feedback)
            .unwrap();
    }
    assert_eq!(sender.pace_len(), 44 + 3 * 16);
    let first = sender.poll_pace(now, 5).expect("PACE");
    assert_eq!(first.echoes.len(), 3);
    let at = sender.pace_at().expect("there are more echoes");
    assert_eq!(sender.pace_len(), 44 + 2 * 16);
    let second = sender.poll_pace(at, 5).expect("PACE");
    assert_eq!(second.echoes.len(), 2);
    assert_eq!(sender.pace_at(), None);
    // The shortest packets have one.
    let mut sender = Sender::new(START, 80, LEAST, MOST);
    for number in 1..=2 {
        let feedback = unlimited(now, number.into(), RTT, 500_000);
        sender
            .handle_feedback(now, host(number), &feedback)
            .unwrap();
    }
    assert_eq!(sender.poll_pace(now, 5).expect("PACE").echoes.len(), 1);
}
