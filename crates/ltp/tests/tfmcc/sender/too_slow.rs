//! Receivers that are given up because they hold the rate below the lowest one.

use ltp::tfmcc::TOO_SLOW;

use super::*;

#[test]
fn a_receiver_that_holds_the_rate_too_low_is_given_up() {
    let (mut sender, now) = following(1_000_000);
    assert_eq!(sender.refuse_too_slow(now, 1_000_000), None);
    assert_eq!(sender.refuse_too_slow(now, 1_000_001), None);
    assert_eq!(sender.too_slow_at(1_000_001), Some(now + TOO_SLOW));
    let before = now + TOO_SLOW - Duration::from_micros(1);
    assert_eq!(sender.refuse_too_slow(before, 1_000_001), None);
    let refused = sender.refuse_too_slow(now + TOO_SLOW, 1_000_001);
    assert_eq!(refused.map(|limiting| limiting.receiver), Some(1));
    assert!(sender.is_refused(host(1)) && !sender.is_refused(host(2)));
    assert_eq!(limiting(&sender), None);
}

#[test]
fn the_time_below_the_lowest_rate_counts_for_one_receiver_and_without_a_break() {
    let (mut sender, now) = following(1_000_000);
    assert_eq!(sender.refuse_too_slow(now, 2_000_000), None);
    answer(&mut sender, now + ms(4_000), 2, 900_000);
    assert_eq!(sender.refuse_too_slow(now + TOO_SLOW, 2_000_000), None);
    answer(&mut sender, now + ms(6_000), 2, 3_000_000);
    assert_eq!(sender.refuse_too_slow(now + ms(6_000), 2_000_000), None);
    answer(&mut sender, now + ms(7_000), 2, 900_000);
    assert_eq!(sender.refuse_too_slow(now + ms(7_000), 2_000_000), None);
    assert_eq!(sender.refuse_too_slow(now + ms(11_999), 2_000_000), None);
    assert!(
        sender
            .refuse_too_slow(now + ms(12_000), 2_000_000)
            .is_some()
    );
}

#[test]
fn a_receiver_that_can_just_have_the_lowest_rate_is_kept() {
    let (mut sender, now) = following(1_000_000);
    assert_eq!(sender.refuse_too_slow(now, 1_000_000), None);
    assert_eq!(sender.refuse_too_slow(now + TOO_SLOW, 1_000_000), None);
    assert_eq!(limiting(&sender), Some(1));
    // It was below it until now.
    answer(&mut sender, now, 1, 900_000);
    assert_eq!(sender.refuse_too_slow(now, 1_000_000), None);
    assert!(sender.too_slow_at(1_000_000).is_some());
    answer(&mut sender, now + RTT, 1, 1_000_000);
    assert_eq!(sender.too_slow_at(1_000_000), None);
}

#[test]
fn the_last_eight_that_were_too_slow_are_remembered() {
    let (mut sender, mut now) = following(1_000_000);
    for number in 1..=9 {
        answer(&mut sender, now, number, 100_000);
        assert_eq!(sender.refuse_too_slow(now, 200_000), None);
        now += TOO_SLOW;
        assert!(sender.refuse_too_slow(now, 200_000).is_some(), "{number}");
    }
    assert!(!sender.is_refused(host(1)));
    assert!((2..=9).all(|number| sender.is_refused(host(number))));
}
