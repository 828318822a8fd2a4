use super::*;

fn at(millis: i64) -> Instant {
    Instant::from_millis(millis)
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Three attempts go to the group or the relay.
fn recovery(assist: Assist) -> Recovery {
    let group = core::net::SocketAddr::from(([239, 1, 2, 3], 5_000));
    let mut config = ReceiverConfig::new(group);
    config.assist = assist;
    config.initial_timeout = ms(200);
    config.min_timeout = ms(30);
    config.max_timeout = ms(2_000);
    config.max_outstanding = 48;
    Recovery::new(&config, at(0))
}

fn arrival(attempts: u8, by_source: bool) -> Arrival {
    Arrival {
        sent: at(1_000),
        by_source,
        answers: true,
        attempts,
    }
}

#[test]
fn after_three_attempts_the_source_is_asked() {
    let targets = |assist| [0, 2, 3, 200].map(|attempts| recovery(assist).target(attempts));
    let source = Target::Source;
    assert_eq!(targets(Assist::None), [source; 4]);
    let (group, relay) = (Target::Group, Target::Relay);
    assert_eq!(targets(Assist::Lms), [group, group, source, source]);
    assert_eq!(targets(Assist::Dyram), [relay, relay, source, source]);
    let is = |assist| {
        let recovery = recovery(assist);
        (recovery.is_source(), recovery.is_lms(), recovery.is_dyram())
    };
    assert_eq!(is(Assist::None), (true, false, false));
    assert_eq!(is(Assist::Lms), (false, true, false));
    assert_eq!(is(Assist::Dyram), (false, false, true));
}

#[test]
fn each_repeated_request_waits_twice_as_long() {
    let source = recovery(Assist::None);
    let waits = |number| source.timeout(number, Target::Source);
    assert_eq!([1, 2, 3, 4].map(waits), [200, 400, 800, 1_600].map(ms));
    assert_eq!([5, 50].map(waits), [ms(2_000); 2]);
    // Attempts that did not go to the source say nothing of it.
    let lms = recovery(Assist::Lms);
    let waits = |number| lms.timeout(number, Target::Source);
    assert_eq!([4, 5, 6].map(waits), [200, 400, 800].map(ms));
    assert_eq!(waits(1), ms(200));
    let waits = |number| lms.timeout(number, Target::Group);
    assert_eq!([1, 2, 3].map(waits), [200, 400, 800].map(ms));
}

#[test]
fn round_trips_of_source_and_group_are_measured_apart() {
    let mut lms = recovery(Assist::Lms);
    assert_eq!(
        (lms.source_trip().smoothed(), lms.group_trip()),
        (None, None)
    );
    lms.arrived(&arrival(2, false), at(1_080));
    assert_eq!(lms.group_trip(), Some(ms(80)));
    assert_eq!(lms.source_trip().smoothed(), None);
    assert_eq!(lms.timeout(1, Target::Group), ms(240));
    assert_eq!(lms.timeout(4, Target::Source), ms(200));
    lms.arrived(&arrival(4, true), at(1_040));
    assert_eq!(lms.source_trip().smoothed(), Some(ms(40)));
    assert_eq!(lms.timeout(4, Target::Source), ms(120));
    assert_eq!(lms.group_trip(), Some(ms(80)));
    // A repair of an earlier request does not tell how long it took.
    let unanswered = Arrival {
        answers: false,
        ..arrival(2, false)
    };
    lms.arrived(&unanswered, at(1_900));
    assert_eq!(lms.group_trip(), Some(ms(80)));
    // A minute at most.
    let mut lms = recovery(Assist::Lms);
    lms.arrived(&arrival(1, true), at(100_000));
    assert_eq!(lms.source_trip().smoothed(), Some(ms(60_000)));
    let mut lms = recovery(Assist::Lms);
    lms.sample_source(ms(70_000));
    assert_eq!(lms.source_trip().smoothed(), Some(ms(60_000)));
}

#[test]
fn a_relay_gets_twice_the_time_that_it_may_need() {
    let mut dyram = recovery(Assist::Dyram);
    let waits = |dyram: &Recovery| [1, 2, 3, 4].map(|number| dyram.timeout(number, Target::Relay));
    assert_eq!(waits(&dyram), [200, 400, 800, 1_600].map(ms));
    dyram.set_relay_delay(ms(50));
    assert_eq!(waits(&dyram), [100, 200, 400, 800].map(ms));
    assert_eq!(dyram.timeout(40, Target::Relay), ms(2_000));
    dyram.set_relay_delay(ms(1));
    assert_eq!(waits(&dyram), [30, 60, 120, 240].map(ms), "at least 30 ms");
    dyram.set_relay_delay(ms(9_000));
    assert_eq!(waits(&dyram), [ms(2_000); 4]);
    // Round trips of repairs from it are no measure.
    dyram.arrived(&arrival(1, false), at(1_001));
    assert_eq!(waits(&dyram), [ms(2_000); 4]);
    assert_eq!(dyram.timeout(4, Target::Source), ms(200));
    // Others have none.
    let mut lms = recovery(Assist::Lms);
    lms.set_relay_delay(ms(50));
    assert_eq!(lms.timeout(1, Target::Group), ms(200));
}

#[test]
fn a_shortest_wait_above_the_longest_counts_alone() {
    let group = core::net::SocketAddr::from(([239, 1, 2, 3], 5_000));
    let mut config = ReceiverConfig::new(group);
    config.assist = Assist::Dyram;
    config.min_timeout = ms(500);
    config.max_timeout = ms(100);
    let recovery = Recovery::new(&config, at(0));
    let waits = |target| [1, 2].map(|number| recovery.timeout(number, target));
    assert_eq!(waits(Target::Relay), [ms(500); 2]);
    assert_eq!(waits(Target::Source), [ms(500); 2]);
}

#[test]
fn two_unanswered_requests_to_the_source_raise_doubt() {
    let recovery = recovery(Assist::Lms);
    assert!(!recovery.is_doubtful(4));
    assert!(recovery.is_doubtful(5));
    assert!(!recovery.is_digest_doubtful(5));
    assert!(recovery.is_digest_doubtful(6));
}

#[test]
fn digests_are_requested_from_the_group_with_lms_only() {
    let lms = recovery(Assist::Lms);
    assert_eq!(lms.first_digest_attempt(true), 0);
    assert_eq!(lms.first_digest_attempt(false), 3);
    let targets = [1, 3, 4].map(|number| lms.digest_target(number));
    assert_eq!(targets, [Target::Group, Target::Group, Target::Source]);
    for assist in [Assist::None, Assist::Dyram] {
        let recovery = recovery(assist);
        assert_eq!(recovery.first_digest_attempt(true), 3);
        assert_eq!(recovery.digest_target(1), Target::Source);
        assert_eq!(recovery.digest_target(4), Target::Source);
    }
    let waits = |number, target| lms.digest_timeout(number, target);
    let group = [1, 2, 3].map(|number| waits(number, Target::Group));
    assert_eq!(group, [200, 400, 800].map(ms));
    let source = [4, 5, 6].map(|number| waits(number, Target::Source));
    assert_eq!(source, [200, 400, 800].map(ms));
    let mut measured = recovery(Assist::Lms);
    measured.arrived(&arrival(1, false), at(1_080));
    assert_eq!(measured.digest_timeout(1, Target::Group), ms(240));
    assert_eq!(measured.digest_timeout(4, Target::Source), ms(200));
}

#[test]
fn a_receiver_asks_for_itself_alone_unless_others_have_asked_it() {
    let mut lms = recovery(Assist::Lms);
    let nonce = |recovery: &Recovery, target, now| recovery.nonce(target, 77, now);
    assert_eq!(nonce(&lms, Target::Group, at(0)), REPAIR_ALONE);
    assert_eq!(nonce(&lms, Target::Source, at(0)), 77);
    lms.requested_from_below(at(500));
    assert_eq!(nonce(&lms, Target::Group, at(500)), 0);
    assert_eq!(nonce(&lms, Target::Group, at(10_499)), 0);
    assert_eq!(nonce(&lms, Target::Source, at(600)), 77);
    assert_eq!(nonce(&lms, Target::Group, at(10_500)), REPAIR_ALONE);
    lms.requested_from_below(at(11_000));
    lms.forget_requests_from_below();
    assert_eq!(nonce(&lms, Target::Group, at(11_001)), REPAIR_ALONE);
    let dyram = recovery(Assist::Dyram);
    assert_eq!(nonce(&dyram, Target::Relay, at(0)), 0);
}

/// Repairs that come to first requests.
fn repair(dyram: &mut Recovery, count: u32) {
    for _ in 0..count {
        dyram.arrived(&arrival(1, false), at(1_010));
    }
}

#[test]
fn more_is_requested_from_a_relay_as_repairs_come() {
    assert_eq!(recovery(Assist::None).max_outstanding(), 48);
    assert_eq!(recovery(Assist::Lms).max_outstanding(), 48);
    let mut dyram = recovery(Assist::Dyram);
    assert_eq!(dyram.max_outstanding(), 32);
    repair(&mut dyram, 1);
    assert_eq!(dyram.max_outstanding(), 33);
    // Those of repeated requests do not show that there is room.
    dyram.arrived(&arrival(2, false), at(1_010));
    assert_eq!(dyram.max_outstanding(), 33);
    repair(&mut dyram, 100);
    assert_eq!(dyram.max_outstanding(), 48, "no more than configured");
}

#[test]
fn and_half_of_that_when_they_do_not_come() {
    let mut dyram = recovery(Assist::Dyram);
    repair(&mut dyram, 8);
    // The relay may need 200 ms.
    dyram.repeats(at(199));
    assert_eq!(dyram.max_outstanding(), 40, "too soon");
    dyram.repeats(at(200));
    assert_eq!(dyram.max_outstanding(), 20);
    dyram.repeats(at(399));
    assert_eq!(dyram.max_outstanding(), 20, "of the same loss");
    // Above half of what was too much it grows by one a window.
    repair(&mut dyram, 19);
    assert_eq!(dyram.max_outstanding(), 20);
    repair(&mut dyram, 1);
    assert_eq!(dyram.max_outstanding(), 21);
    repair(&mut dyram, 20);
    assert_eq!(dyram.max_outstanding(), 21);
    repair(&mut dyram, 1);
    assert_eq!(dyram.max_outstanding(), 22);
    repair(&mut dyram, 15);
    dyram.repeats(at(400));
    assert_eq!(dyram.max_outstanding(), 11);
    repair(&mut dyram, 10);
    assert_eq!(dyram.max_outstanding(), 11, "counted anew");
    dyram.repeats(at(600));
    dyram.repeats(at(800));
    assert_eq!(dyram.max_outstanding(), 8, "no less");
    let mut lms = recovery(Assist::Lms);
    lms.repeats(at(9_000));
    assert_eq!(lms.max_outstanding(), 48);
}
