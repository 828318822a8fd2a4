//! A sender's timers and what it measures: the retransmission timeout (RFC 6298), tail loss probes (RFC 8985 §7),
//! idle times and round trips.

use crate::flight::Flight;

/// RFC 8985 §7.4.2. What the probe repaired is a loss like others, unless it was a duplicate.
#[test]
fn a_probe_that_repaired_a_loss_costs_what_a_loss_costs() {
    let window = |then: &dyn Fn(&mut Flight)| {
        let mut flight = Flight::new(true, false);
        flight.write(10);
        flight.sent();
        flight.pass();
        flight.acknowledge(9, &[]);
        let (probe, _) = flight.wait_for(150);
        assert_eq!(probe, [9]);
        flight.pass();
        then(&mut flight);
        flight.write(2);
        flight.sent();
        flight.pass();
        flight.acknowledge(11, &[]);
        flight.acknowledge(12, &[]);
        flight.window()
    };
    assert_eq!(
        window(&|flight| flight.acknowledge(10, &[(9, 10)])),
        10,
        "the original had arrived"
    );
    let both = |flight: &mut Flight| {
        flight.acknowledge(10, &[]);
        flight.acknowledge(10, &[]);
    };
    assert_eq!(window(&both), 10, "both had arrived");
    assert_eq!(window(&|flight| flight.acknowledge(10, &[])), 5);
}

/// RFC 8985 §7.2, §7.3.
#[test]
fn a_lost_fin_is_probed_for() {
    let mut flight = Flight::new(true, false);
    flight
        .hand
        .endpoint
        .shutdown(flight.hand.now, flight.hand.id.unwrap())
        .unwrap();
    assert_eq!(flight.hand.sent().len(), 1);
    let (sent, ms) = flight.hand.wait_for(200);
    assert!(sent[0].flags.fin);
    // Two round trips, and the delay of an acknowledgement.
    assert_eq!((sent.len(), ms), (1, 82));
    let stats = flight.hand.endpoint.stats();
    assert_eq!(
        (stats.probes, stats.retransmissions, stats.timeouts),
        (1, 1, 0)
    );
}

/// RFC 5681 §4.1: the path may have changed.
#[test]
fn after_an_idle_time_it_starts_with_the_initial_window() {
    for (idle_ms, restarts) in [(150, false), (200, false), (201, true)] {
        let mut flight = Flight::new(true, false);
        flight.write(30);
        flight.sent();
        flight.pass();
        for acknowledged in 1..=10 {
            flight.acknowledge(acknowledged, &[]);
        }
        flight.sent();
        flight.pass();
        flight.acknowledge(30, &[]);
        let window = flight.window();
        assert!(window >= 20);
        flight.hand.wait(idle_ms);
        flight.write(50);
        let expected = if restarts { 10 } else { window };
        assert_eq!(flight.sent().len() as u64, expected, "{idle_ms}");
    }
}

/// RFC 7661 §4.2: what was in flight counts for three round trips, and for a second at least.
#[test]
fn a_loss_halves_what_a_long_path_has_carried() {
    let window = |quiet: u32| {
        let mut flight = Flight::over(1_000, |_| (), false, false);
        flight.write(10);
        flight.sent();
        flight.hand.wait(1_000);
        flight.acknowledge(10, &[]);
        // Little is sent for some round trips.
        for n in 0..quiet {
            flight.write(4);
            flight.sent();
            flight.hand.wait(1_000);
            flight.acknowledge(14 + 4 * n, &[]);
        }
        flight.write(4);
        flight.sent();
        flight.hand.wait(1_000);
        for _ in 0..3 {
            flight.acknowledge(10 + 4 * quiet, &[]);
        }
        flight.window()
    };
    assert_eq!([1, 5].map(window), [5, 2]);
}

/// RFC 2861, RFC 7661: a window that was not used does not grow.
#[test]
fn a_sender_with_little_to_send_keeps_its_window() {
    let mut flight = Flight::new(true, false);
    for round in 0..5 {
        flight.write(2);
        flight.sent();
        flight.pass();
        flight.acknowledge(2 * round + 2, &[]);
    }
    assert_eq!(flight.window(), 10);
}

/// The same after a timeout: it holds nothing back where one segment was all.
#[test]
fn after_the_timeout_of_a_lone_segment_the_window_is_one_segment() {
    for (segments, expected) in [(1, 1), (2, 2)] {
        let mut flight = Flight::new(false, false);
        flight.write(segments);
        flight.sent();
        flight.wait_for(300);
        assert_eq!(flight.window(), 1);
        flight.acknowledge(1, &[]);
        assert_eq!(flight.window(), expected, "{segments}");
    }
}

/// RFC 6298 §3, RFC 7323 §4.1: a timestamp shows which sending was acknowledged.
#[test]
fn round_trips_of_repairs_are_measured_by_timestamps_alone() {
    let smoothed = |timestamps: bool, echo_first: bool| {
        let mut flight = Flight::new(false, timestamps);
        flight.write(1);
        flight.sent();
        let first = flight.echo;
        flight.wait_for(300);
        flight.hand.wait(100);
        if echo_first {
            flight.echo = first;
        }
        flight.acknowledge(1, &[]);
        flight.hand.stats().smoothed_rtt.unwrap().total_millis()
    };
    assert_eq!(
        smoothed(false, false),
        20,
        "either may have been acknowledged"
    );
    assert_eq!(smoothed(true, false), 30, "an eighth of what it is longer");
    // The wait for the timeout is no part of a round trip.
    assert_eq!(smoothed(true, true), 20);
}

/// RFC 6298 §5.3: only an acknowledgement of new data starts the timer again, or takes the back-off away (§5.7).
#[test]
fn duplicate_acknowledgements_do_not_put_a_timeout_off() {
    let mut flight = Flight::new(false, true);
    flight.write(3);
    flight.sent();
    let first = flight.echo;
    flight.hand.wait(150);
    flight.acknowledge(0, &[]);
    let (again, ms) = flight.wait_for(300);
    assert_eq!((again, ms), (vec![0], 50));
    let (_, ms) = flight.wait_for(1_000);
    assert_eq!(ms, 400);
    flight.acknowledge(0, &[]);
    let (_, ms) = flight.wait_for(2_000);
    assert_eq!(ms, 800);
    // RFC 7323 §4.3: and they are no samples, whatever they echo.
    flight.echo = first;
    flight.acknowledge(0, &[]);
    let smoothed = flight.hand.stats().smoothed_rtt.unwrap();
    assert_eq!(smoothed.total_millis(), 20);
    flight.wait_for(2_000);
    let (_, ms) = flight.wait_for(5_000);
    assert_eq!(ms, 3_200, "they do not take the back-off away");
}

/// What arrives behind a hole shows that the path works.
#[test]
fn selective_acknowledgements_put_the_timeout_off() {
    let mut flight = Flight::new(true, false);
    flight.write(10);
    flight.sent();
    for arrived in 2..=9 {
        flight.hand.wait(150);
        flight.sent();
        flight.acknowledge(0, &[(1, arrived)]);
    }
    assert_eq!(flight.hand.endpoint.stats().timeouts, 0);
}

#[test]
fn each_acknowledgement_of_new_data_starts_the_timeout_again() {
    let mut flight = Flight::new(false, false);
    flight.write(5);
    flight.sent();
    for acknowledged in 1..=4 {
        flight.hand.wait(150);
        flight.acknowledge(acknowledged, &[]);
        assert_eq!(flight.sent(), []);
    }
    assert_eq!(flight.hand.endpoint.stats().timeouts, 0);
    let (again, _) = flight.wait_for(3_000);
    assert_eq!(again, [4]);
}

/// RFC 7323 §3.2: an echo that was never sent is no timestamp of ours.
#[test]
fn an_impossible_echo_is_no_sample() {
    for ahead in [1, 1_000, 0x7fff_0000] {
        let mut flight = Flight::new(false, true);
        flight.write(1);
        flight.sent();
        flight.wait_for(300);
        flight.echo = flight.echo.wrapping_add(ahead);
        flight.acknowledge(1, &[]);
        let smoothed = flight.hand.stats().smoothed_rtt.unwrap();
        assert_eq!(smoothed.total_millis(), 20, "{ahead}");
    }
}

/// Seventeen minutes are no round trip: the peer has echoed something else.
#[test]
fn an_echo_of_long_ago_is_no_sample() {
    for (wait_ms, sampled) in [((1 << 20) - 1, true), (1 << 20, false)] {
        let mut flight = Flight::with(
            |config| config.user_timeout = tcpxm::Duration::from_secs(3_600),
            false,
            true,
        );
        flight.write(1);
        flight.sent();
        flight.wait_for(300);
        flight.hand.wait(wait_ms);
        flight.acknowledge(1, &[]);
        let smoothed = flight.hand.stats().smoothed_rtt.unwrap();
        assert_eq!(smoothed.total_millis() > 20, sampled, "{wait_ms}");
    }
}

/// RFC 8985 §7.2: two round trips after the last sending, and longer for a lone segment, whose acknowledgement may be
/// delayed; never after the retransmission timeout.
#[test]
fn the_end_of_a_flight_is_probed_after_two_round_trips() {
    for (segments, expected_ms) in [(5, 42), (2, 42), (1, 82)] {
        let mut flight = Flight::new(true, false);
        flight.write(segments);
        flight.sent();
        let (probe, ms) = flight.wait_for(200);
        assert_eq!((probe, ms), (vec![segments - 1], expected_ms));
        // One probe; then the timeout, from the probe on.
        let (again, ms) = flight.wait_for(300);
        assert_eq!((again, ms), (vec![0], 200));
    }
    // The time counts from the last sending.
    let mut flight = Flight::new(true, false);
    flight.write(2);
    flight.sent();
    flight.hand.wait(30);
    flight.write(2);
    assert_eq!(flight.sent(), [2, 3]);
    let (probe, ms) = flight.wait_for(200);
    assert_eq!((probe, ms), (vec![3], 42));
    // Without SACK nothing would tell what a probe repaired.
    let mut flight = Flight::new(false, false);
    flight.write(5);
    flight.sent();
    let (again, ms) = flight.wait_for(300);
    assert_eq!((again, ms), (vec![0], 200));
    assert_eq!(flight.hand.endpoint.stats().probes, 0);
}

/// RFC 8985 §7.2: when there are selective acknowledgements, losses are found by them.
#[test]
fn no_probe_is_sent_while_a_hole_is_known() {
    let mut flight = Flight::new(true, false);
    flight.write(3);
    flight.sent();
    flight.pass();
    flight.acknowledge(0, &[(1, 2)]);
    let (repair, ms) = flight.wait_for(100);
    assert_eq!((repair, ms), (vec![0], 5), "the reordering window");
    assert_eq!(flight.hand.endpoint.stats().probes, 0);
    flight.pass();
    flight.acknowledge(3, &[]);
    for _ in 0..1_000 {
        flight.hand.wait(1);
        assert_eq!(flight.sent(), [], "nothing is in flight");
    }
    assert_eq!(flight.hand.endpoint.stats().timeouts, 0);
}

/// RFC 8985 §7.2: no probe while everything is sent again after a timeout.
#[test]
fn after_a_timeout_nothing_is_probed() {
    let mut flight = Flight::new(true, false);
    flight.write(5);
    flight.sent();
    flight.wait_for(100);
    let (again, _) = flight.wait_for(300);
    assert_eq!(again, [0]);
    let (again, ms) = flight.wait_for(1_000);
    assert_eq!((again, ms), (vec![0], 400));
    assert_eq!(flight.hand.endpoint.stats().probes, 1);
    flight.pass();
    flight.acknowledge(1, &[]);
    assert_eq!(flight.sent(), [1, 2]);
    let (again, ms) = flight.wait_for(1_000);
    assert_eq!((again[0], ms), (1, 200));
    assert_eq!(flight.hand.endpoint.stats().probes, 1);
}

/// RFC 8985 §6.2, step 4: 16 recoveries without a duplicate, and the path is taken to be in order again.
#[test]
fn reordering_is_forgotten_after_sixteen_recoveries() {
    let wait_ms = |recoveries: u32| {
        let mut flight = Flight::new(true, false);
        flight.write(2);
        flight.sent();
        flight.pass();
        flight.acknowledge(1, &[]);
        flight.acknowledge(1, &[(0, 1)]);
        flight.acknowledge(2, &[]);
        let mut next = 2;
        for _ in 0..recoveries {
            flight.write(2);
            assert_eq!(flight.sent(), [next, next + 1]);
            flight.pass();
            flight.acknowledge(next, &[(next + 1, next + 2)]);
            assert_eq!(flight.wait_for(100).0, [next]);
            flight.pass();
            next += 2;
            flight.acknowledge(next, &[]);
        }
        flight.write(2);
        flight.sent();
        flight.pass();
        flight.acknowledge(next, &[(next + 1, next + 2)]);
        flight.wait_for(100).1
    };
    assert_eq!([0, 15, 16].map(wait_ms), [10, 10, 5]);
}

/// RFC 2883 §4.2: a duplicate above the acknowledgement is the first block, within the second one.
#[test]
fn a_duplicate_of_early_data_is_recognised() {
    let mut flight = Flight::new(true, false);
    flight.write(10);
    flight.sent();
    flight.pass();
    flight.acknowledge(0, &[(2, 5)]);
    assert_eq!(flight.sent(), [0]);
    flight.acknowledge(0, &[(2, 7)]);
    assert_eq!(flight.sent(), [1]);
    // The late original of 1, and then its repair.
    flight.acknowledge(0, &[(1, 7)]);
    flight.acknowledge(0, &[(1, 2), (1, 7)]);
    assert_eq!(flight.hand.endpoint.stats().undone, 0);
    // Those of 0.
    flight.acknowledge(7, &[]);
    flight.acknowledge(7, &[(0, 1)]);
    assert_eq!(flight.hand.endpoint.stats().undone, 1);
    // The end of the second block.
    let mut flight = Flight::new(true, false);
    flight.write(10);
    flight.sent();
    flight.pass();
    flight.acknowledge(1, &[(3, 6)]);
    assert_eq!(flight.sent(), [1]);
    flight.acknowledge(1, &[(1, 2), (1, 2)]);
    assert_eq!(flight.hand.endpoint.stats().undone, 1);
    // Two ranges that lie apart are both news.
    let mut flight = Flight::new(true, false);
    flight.write(10);
    flight.sent();
    flight.pass();
    flight.acknowledge(0, &[(8, 10), (2, 5)]);
    flight.acknowledge(2, &[]);
    flight.pass();
    flight.acknowledge(8, &[]);
    assert_eq!(flight.sent(), []);
    assert_eq!(flight.hand.stats().acknowledged, 8_000);
    flight.acknowledge(10, &[]);
    assert_eq!(flight.hand.stats().outstanding, 0);
}

/// An acknowledgement was lost: the next one has both ranges, the newest first. That is no reordering, and losses are
/// believed at once.
#[test]
fn two_ranges_that_are_new_together_say_nothing_of_reordering() {
    for blocks in [[(8, 10), (2, 5)], [(2, 5), (8, 10)]] {
        let mut flight = Flight::new(true, false);
        flight.write(10);
        flight.sent();
        flight.pass();
        flight.acknowledge(0, &blocks);
        assert_eq!(flight.sent(), [0, 1, 5, 6, 7], "{blocks:?}");
    }
}

/// In recovery too there is one probe for each silence: something arrives, and another repair is lost.
#[test]
fn each_silence_during_recovery_is_probed_once() {
    let mut flight = Flight::new(true, false);
    flight.write(10);
    flight.sent();
    flight.pass();
    flight.acknowledge(0, &[(1, 5), (6, 10)]);
    assert_eq!(flight.sent(), [0, 5]);
    // Both repairs are lost.
    for (first, then) in [(0, 5), (5, 10)] {
        let (probe, _) = flight.wait_for(100);
        assert_eq!(probe, [first]);
        flight.pass();
        flight.acknowledge(then, &[(6, 10)]);
        flight.sent();
    }
    let stats = flight.hand.endpoint.stats();
    assert_eq!((stats.probes, stats.timeouts), (2, 0));
}

/// RFC 8985 §7.2: none while something is selectively acknowledged. The repairs were needless as far as is known, so
/// that nothing is known to be lost.
#[test]
fn no_probe_is_sent_after_repairs_that_were_taken_back() {
    let mut flight = Flight::new(true, true);
    flight.write(10);
    flight.sent();
    let first = flight.echo;
    flight.pass();
    flight.acknowledge(0, &[(3, 10)]);
    assert_eq!(flight.sent(), [0, 1, 2]);
    flight.echo = first;
    flight.acknowledge(1, &[(3, 10)]);
    assert_eq!(flight.hand.endpoint.stats().undone, 1);
    let (again, ms) = flight.wait_for(500);
    assert_eq!((again, ms), (vec![1], 200));
    let stats = flight.hand.endpoint.stats();
    assert_eq!((stats.probes, stats.timeouts), (0, 1));
}
