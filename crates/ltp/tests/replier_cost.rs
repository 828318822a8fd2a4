//! The cost that a receiver offers as a replier follows its own loss.

use ltp::cost::ReplierCost;
use ltp::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(2);

/// The costs after each interval in which that many of 1,000 packets were lost.
fn costs(base: u16, lost: &[u64]) -> Vec<u16> {
    let mut now = Instant::ZERO;
    let (mut expected, mut came) = (7, 5);
    let mut cost = ReplierCost::new(base, now, (expected, came));
    let mut next = |lost: &u64| {
        now += INTERVAL;
        (expected, came) = (expected + 1000, came + 1000 - lost);
        let old = cost.cost();
        let changed = cost.update(now, (expected, came));
        assert_eq!(changed, cost.cost() != old);
        cost.cost()
    };
    lost.iter().map(&mut next).collect()
}

#[test]
fn it_rises_at_once_and_falls_slowly() {
    let lost = [0, 9, 10, 50, 0, 0, 0, 0, 0, 0, 50, 300];
    let expected = [10, 10, 20, 40, 40, 40, 30, 30, 30, 20, 40, 60];
    assert_eq!(costs(10, &lost), expected);
}

#[test]
fn it_never_withdraws_the_offer() {
    assert_eq!(costs(65_534, &[500]), [65_534]);
    assert_eq!(costs(40_000, &[500]), [65_534]);
}

#[test]
fn few_packets_and_short_times_show_nothing() {
    let mut cost = ReplierCost::new(10, Instant::ZERO, (0, 0));
    assert!(!cost.update(Instant::ZERO + INTERVAL, (255, 0)));
    assert!(!cost.update(Instant::from_millis(1), (100_000, 0)));
    assert!(cost.update(Instant::ZERO + INTERVAL, (256, 0)));
}
