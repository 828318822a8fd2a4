//! When a receiver gives up although its source lives.

use ltp::wire::request::Kind;
use ltp::wire::sync;
use ltp::{Failure, Meta};

use super::{BLOCK, Lone, Sent, at, ms, requests, source};

/// A receiver of two blocks that looks each 50 ms whether to give up, after three seconds.
fn watched() -> Lone {
    Lone::open(2 * BLOCK, |config| {
        config.gap_delay = ms(0);
        config.source_timeout = ms(1_000);
        config.initial_timeout = ms(20);
        config.min_timeout = ms(20);
        config.max_timeout = ms(20);
    })
}

/// The source lives, and has sent the first block and a digest of it.
fn live(lone: &mut Lone) {
    let heartbeat = sync::Repr {
        silence_ms: 1,
        digested: Some(1),
        ..lone.heartbeat(4)
    };
    assert_eq!(lone.sync(&heartbeat), Ok(()));
}

/// Answers what is asked now: with a digest that is wrong, or with the packets of block 0.
fn answer(lone: &mut Lone, sent: &[Sent]) {
    if let Some(asked) = requests(sent, Kind::Digests).last() {
        let lie = [[9; 32]];
        assert_eq!(lone.false_digests(0, &lie, Some(asked.nonce)), Ok(()));
    }
    if !requests(sent, Kind::Data).is_empty() {
        for number in 0..4 {
            let _ = lone.repair(&Meta::unicast(source()), number, 0);
        }
    }
}

/// How long after the start a session fails in which data and digest of a block disagree that often.
fn disagrees(times: u64) -> (Failure, u64) {
    let mut lone = watched();
    lone.all_data(0..4);
    for step in 1..1_000 {
        live(&mut lone);
        let sent = lone.run_to(at(10 * step));
        let stats = lone.receiver.stats();
        if stats.blocks_rejected + stats.digests_rejected < times {
            answer(&mut lone, &sent);
        }
        if let Some(failure) = lone.failure() {
            let stats = lone.receiver.stats();
            assert_eq!(stats.blocks_rejected + stats.digests_rejected, times);
            return (failure, 10 * step as u64);
        }
    }
    panic!("it goes on");
}

#[test]
fn data_and_digests_that_never_agree_end_the_session() {
    let (failure, time) = disagrees(8);
    assert_eq!(failure, Failure::Disagreement);
    assert!((3_000..=4_000).contains(&time), "{time}");
    let (failure, _) = disagrees(7);
    assert_eq!(failure, Failure::Unanswered);
}

/// Its time begins with the session, and anew with each packet and each block that is final.
#[test]
fn a_receiver_that_gets_ahead_is_not_given_up() {
    let run_to = |lone: &mut Lone, until: i64| {
        while lone.now < at(until) {
            live(lone);
            lone.run_to(at(until).min(lone.now + ms(900)));
            assert_eq!(lone.failure(), None, "at {}", lone.now);
        }
    };
    let mut lone = Lone::new(2 * BLOCK, |config| config.source_timeout = ms(1_000));
    lone.now = at(900);
    live(&mut lone);
    // Each of four packets comes when nearly three timeouts are over.
    for step in 1..=4 {
        run_to(&mut lone, 900 + 2_900 * step);
        let number = step as u32 - 1;
        assert_eq!(lone.repair(&Meta::unicast(source()), number, 0), Ok(()));
    }
    assert_eq!(lone.digests(0, 0, None), Ok(()));
    assert_eq!(lone.receiver.progress().0, BLOCK as u64);
}

/// How long after its first block is final a receiver fails whose second one disagrees with its digest.
#[test]
fn blocks_that_are_final_give_more_time_to_those_that_disagree() {
    let mut lone = watched();
    lone.all_data(0..4);
    let heartbeat = sync::Repr {
        silence_ms: 1,
        digested: Some(2),
        ..lone.heartbeat(8)
    };
    for step in 1..=20 {
        assert_eq!(lone.sync(&heartbeat), Ok(()));
        lone.run_to(at(100 * step));
    }
    lone.all_data(4..8);
    assert_eq!(lone.digests(0, 0, None), Ok(()));
    for step in 201..1_000 {
        assert_eq!(lone.sync(&heartbeat), Ok(()));
        let sent = lone.run_to(at(10 * step));
        if let Some(failure) = lone.failure() {
            assert_eq!(failure, Failure::Disagreement);
            assert!((500..=600).contains(&step), "{step}");
            return;
        }
        if let Some(asked) = requests(&sent, Kind::Digests).last() {
            let lie = [[9; 32]];
            assert_eq!(lone.false_digests(1, &lie, Some(asked.nonce)), Ok(()));
        }
        if !requests(&sent, Kind::Data).is_empty() {
            for number in 4..8 {
                let _ = lone.repair(&Meta::unicast(source()), number, 0);
            }
        }
    }
    panic!("it goes on");
}
