use alloc::vec::Vec;

use super::*;
use crate::routing::Damping;

const START: Instant = Instant::from_secs(1);

/// Takes equal round trips every [`INTERVAL`] until one changes the cost. Returns when, and the cost.
fn until_change(estimator: &mut Estimator, now: Instant, millis: u64) -> Option<(Instant, Cost)> {
    let mut at = now;
    for _ in 0..2_000 {
        at += INTERVAL;
        if let Some(cost) = estimator.take(at, Duration::from_millis(millis)) {
            return Some((at, cost));
        }
    }
    None
}

#[test]
fn a_new_session_needs_three_round_trips_and_then_the_lowest_counts() {
    let mut estimator = Estimator::default();
    for millis in [90, 40] {
        assert!(estimator.is_starting());
        assert_eq!(estimator.take(START, Duration::from_millis(millis)), None);
    }
    let third = estimator.take(START, Duration::from_millis(60));
    assert_eq!(third, Some(Cost(20_000)), "half of the lowest");
    assert!(!estimator.is_starting());
    let shown = estimator.shown();
    assert_eq!(shown.round_trip, Some(Duration::from_millis(60)));
    assert_eq!(shown.cost, third);
}

#[test]
fn one_fast_round_trip_in_a_window_is_enough_and_leaves_with_it() {
    let mut estimator = Estimator::default();
    let (mut now, _) = until_change(&mut estimator, START, 40).expect("the first cost");
    now += MIN_HOLD;
    for at in 1..100 {
        now += INTERVAL;
        let millis = if at % WINDOW == 0 { 40 } else { 900 };
        assert_eq!(estimator.take(now, Duration::from_millis(millis)), None);
    }
    // The 99th was slow: the last fast one leaves after the rest of the window.
    let (then, cost) = until_change(&mut estimator, now, 900).expect("slow now");
    assert_eq!(cost, Cost(450_000));
    assert!(then - now <= INTERVAL * WINDOW as u32);
}

#[test]
fn costs_stay_within_their_bounds() {
    for (millis, cost) in [
        (0, MIN_COST),
        (1, MIN_COST),
        (2_000, MAX_COST),
        (1 << 40, MAX_COST),
    ] {
        let mut estimator = Estimator::default();
        assert_eq!(
            until_change(&mut estimator, START, millis)
                .expect("a cost")
                .1,
            cost
        );
    }
}

#[test]
fn small_differences_change_nothing() {
    // A quarter of 100 ms, and 2 ms where a quarter is less.
    for (used, small, large) in [(200, 249, 252), (200, 151, 148), (4, 8, 9)] {
        let mut estimator = Estimator::default();
        let (now, _) = until_change(&mut estimator, START, used).expect("the first cost");
        assert_eq!(
            until_change(&mut estimator, now, small),
            None,
            "{used} {small}"
        );
        let (_, cost) = until_change(&mut estimator, now, large).expect("a change");
        assert_eq!(cost, Cost(large as u32 * 500));
    }
}

#[test]
fn changes_that_follow_one_another_take_longer_and_longer() {
    let mut estimator = Estimator::default();
    let (mut now, _) = until_change(&mut estimator, START, 10).expect("the first cost");
    let mut times = Vec::new();
    for at in 0..8 {
        let millis = if at % 2 == 0 { 1_000 } else { 10 };
        let (then, _) = until_change(&mut estimator, now, millis).expect("a change");
        times.push((then - now).total_micros() / 1_000_000);
        now = then;
    }
    assert_eq!(times, [60, 120, 240, 480, 960, 960, 960, 960]);
    // A session that breaks changes nothing about it.
    estimator.restart();
    let (then, _) = until_change(&mut estimator, now, 10_000).expect("a change");
    assert_eq!(then - now, MAX_HOLD);
    // After a quiet time the next change is soon followed by another.
    let quiet = then + MAX_HOLD * QUIET;
    let (first, _) = until_change(&mut estimator, quiet, 10).expect("a change");
    let (second, _) = until_change(&mut estimator, first, 1_000).expect("a change");
    assert_eq!(second - first, MIN_HOLD);
}

/// All ways to choose, at each change, between the earliest next one and the end of the quiet time.
#[test]
fn no_link_brings_a_neighbour_to_suppress_its_routes() {
    let damping = Damping::default();
    let half_life = damping.half_life.total_micros() as f64;
    let mut highest: f64 = 0.0;
    for choices in 0_u32..1 << 12 {
        let (mut hold, mut penalty) = (MIN_HOLD, 0.0);
        for at in 0..24 {
            penalty += f64::from(damping.change);
            highest = highest.max(penalty);
            let (wait, next) = match choices >> (at % 12) & 1 {
                0 => (hold, (hold * 2).min(MAX_HOLD)),
                _ => (hold * QUIET, MIN_HOLD),
            };
            penalty *= libm::exp2(-(wait.total_micros() as f64) / half_life);
            hold = next;
        }
    }
    assert!(highest <= 2_500.0, "{highest}");
    assert!(
        highest * 2.0 < f64::from(damping.suppress),
        "two such links"
    );
}
