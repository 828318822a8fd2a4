//! Feedback that comes by way of a relay.

use super::*;

/// Receiver `number` tells its rate by way of a relay, which is host 9.
fn relayed(sender: &mut Sender, now: Instant, number: u64, rate_bps: u64, rank: u64) {
    sender.sent();
    sender.limited();
    let feedback = limited(now, number, RTT, rate_bps);
    let taken = sender.handle_relayed_feedback(now, host(9), rank, 0, &feedback);
    assert_eq!(taken, Ok(()));
}

/// The relay decides which one below it limits: a higher one after the limiting one has left is followed at once.
#[test]
fn receivers_below_a_relay_are_one_receiver() {
    let mut sender = sender();
    let mut now = START + ms(100);
    relayed(&mut sender, now, 1, 500_000, 500_000);
    assert_eq!((sender.rate_bps(), limiting(&sender)), (500_000, Some(1)));
    for _ in 0..50 {
        now += RTT;
        relayed(&mut sender, now, 2, 600_000, 600_000);
    }
    assert_eq!((sender.rate_bps(), limiting(&sender)), (600_000, Some(2)));
    // One that answers itself counts below the rate only.
    answer(&mut sender, now, 3, 700_000);
    assert_eq!(limiting(&sender), Some(2));
    answer(&mut sender, now, 3, 400_000);
    assert_eq!((sender.rate_bps(), limiting(&sender)), (400_000, Some(3)));
    relayed(&mut sender, now, 2, 600_000, 600_000);
    assert_eq!(limiting(&sender), Some(3));
}

#[test]
fn no_rate_below_a_relay_counts_above_its_rank() {
    let mut sender = sender();
    let now = START + ms(100);
    relayed(&mut sender, now, 1, 50_000_000, 300_000);
    assert_eq!(sender.rate_bps(), 300_000);
    let mut sender = self::sender();
    let lossless = unlimited(now, 1, RTT, 50_000_000);
    let tell = |sender: &mut Sender, rank| {
        sender.limited();
        let told = sender.handle_relayed_feedback(now, host(9), rank, 0, &lossless);
        assert_eq!(told, Ok(()));
    };
    tell(&mut sender, 1 << 62 | 500_000);
    assert!(sender.is_slow_start());
    assert_eq!(sender.rate_bps(), 1_000_000, "twice what came");
    tell(&mut sender, 200_000);
    assert_eq!(
        (sender.rate_bps(), sender.is_slow_start()),
        (200_000, false)
    );
}

/// A rate that was computed with the longest round-trip time is not corrected: the rank was not, either.
#[test]
fn a_rate_below_a_relay_is_not_corrected_by_the_round_trip_time() {
    let mut sender = sender();
    let now = START + ms(100);
    let feedback = Feedback {
        round_trip_us: 0,
        ..limited(now, 1, ms(1), 300_000)
    };
    let taken = sender.handle_relayed_feedback(now, host(9), 300_000, 0, &feedback);
    assert_eq!((taken, sender.rate_bps()), (Ok(()), 300_000));
}

/// Neither the source nor the receiver counts it in its round-trip time.
#[test]
fn the_time_that_relays_hold_feedback_is_no_part_of_the_round_trip() {
    let mut sender = sender();
    let sent = START + ms(100);
    let now = sent + ms(7);
    let feedback = Feedback {
        held_us: 2_000,
        ..limited(sent, 1, RTT, 300_000)
    };
    let taken = sender.handle_relayed_feedback(now, host(9), 300_000, 7_000, &feedback);
    assert_eq!(taken, Ok(()));
    let limiting = sender.limiting().unwrap();
    assert_eq!(limiting.round_trip, ms(18));
    let pace = sender.poll_pace(now + ms(1), MANY).unwrap();
    assert_eq!((pace.echoes.len(), pace.echoes[0].held_us), (1, 8_000));
    // More than it can have been.
    let taken = sender.handle_relayed_feedback(now, host(9), 300_000, u32::MAX, &feedback);
    assert_eq!(taken, Err(FeedbackError::Stale));
}

/// Each receiver below a relay has a round-trip time of its own.
#[test]
fn another_receiver_below_a_relay_begins_with_its_own_round_trip_time() {
    let mut sender = sender();
    let now = START + ms(200);
    for (number, round_trip) in [(1, ms(100)), (2, ms(10))] {
        let feedback = limited(now, number, round_trip, 300_000);
        let taken = sender.handle_relayed_feedback(now, host(9), 300_000, 0, &feedback);
        assert_eq!(taken, Ok(()));
        let limiting = sender.limiting().unwrap();
        assert_eq!(
            (limiting.receiver, limiting.round_trip),
            (number, round_trip)
        );
    }
}

/// Another receiver than the limiting one has answered then, although the relay limits.
#[test]
fn a_round_lasts_its_length_once_another_below_the_limiting_relay_has_answered() {
    let mut sender = sender();
    let now = START + ms(100);
    relayed(&mut sender, now, 1, 500_000, 500_000);
    let first = sender.poll_pace(now, 1).expect("a PACE");
    sender.sent();
    let now = sender.poll_timeout().expect("the end of the round");
    sender.handle_timeout(now);
    let began = sender.pace_at().expect("a PACE");
    let second = sender.poll_pace(began, 1).expect("a PACE");
    assert_eq!(second.round, first.round + 1);
    let mut length = |number| {
        relayed(&mut sender, began + ms(1), number, 500_000, 500_000);
        sender.sent();
        sender.poll_timeout().expect("the end of the round") - began
    };
    let alone = length(1);
    assert_eq!(length(2) * 2, alone);
}
