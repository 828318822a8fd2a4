//! Heartbeats: which open a session, what they tell, and when a silent source is given up.

use ltp::store::HeapRing;
use ltp::wire::request::Kind;
use ltp::wire::sync;
use ltp::{Delivery, Error, Failure, Meta, ReceiverConfig, ReceiverEvent, SessionId, Start};

use super::confirmation::question;
use super::{BLOCK, Lone, SESSION, at, content, host, ms, requests, source};

fn opened(lone: &mut Lone) -> Option<(Option<u64>, u64)> {
    lone.events().into_iter().find_map(|event| match event {
        ReceiverEvent::Opened {
            session,
            source: from,
            length,
            start,
        } => {
            assert_eq!((session, from), (SESSION, source()));
            Some((length, start))
        }
        _ => None,
    })
}

#[test]
fn the_first_heartbeat_to_the_group_opens_the_session() {
    let mut lone = Lone::new(3 * BLOCK, |_| {});
    let heartbeat = sync::Repr {
        name: b"a name",
        ..lone.heartbeat(0)
    };
    assert_eq!(lone.receiver.session(), None);
    assert_eq!(lone.missing(), [(0, u64::MAX)]);
    let unasked = Err(Error::Unasked);
    let by_unicast = Meta::unicast(source());
    assert_eq!(lone.sync_from(&by_unicast, &heartbeat), unasked);
    let answer = sync::Repr {
        answer: Some(3),
        name: b"",
        ..heartbeat
    };
    assert_eq!(lone.sync(&answer), unasked);
    let leaving = sync::Repr {
        closing: true,
        ..heartbeat
    };
    assert_eq!(lone.sync(&leaving), Err(Error::Ended));
    let plain = sync::Repr {
        digested: None,
        ..heartbeat
    };
    assert_eq!(lone.sync(&plain), Err(Error::Integrity));
    assert_eq!(lone.receiver.session(), None);
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    assert_eq!(lone.receiver.session(), Some(SESSION));
    assert_eq!(lone.receiver.source(), Some(source()));
    assert_eq!(lone.receiver.geometry(), Some(Lone::geometry()));
    assert_eq!(lone.receiver.name(), b"a name");
    assert_eq!(lone.receiver.progress(), (0, Some(3_072)));
    assert_eq!(opened(&mut lone), Some((Some(3_072), 0)));
    assert_eq!(lone.receiver.stats().syncs, 1);
    assert_eq!(lone.missing(), [(0, 3_072)]);
}

#[test]
fn only_the_configured_source_and_session_count() {
    let mut lone = Lone::new(BLOCK, |config| {
        config.source = Some(source().ip());
        config.session = Some(SESSION);
    });
    let heartbeat = lone.heartbeat(0);
    let elsewhere = Meta::group(host(1));
    assert_eq!(
        lone.sync_from(&elsewhere, &heartbeat),
        Err(Error::OtherSource)
    );
    let other = sync::Repr {
        session: SessionId(1),
        ..heartbeat
    };
    assert_eq!(lone.sync(&other), Err(Error::OtherSession));
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    // The source of the session, whatever is configured.
    let mut lone = Lone::open(BLOCK, |_| {});
    let refused = lone.sync_from(&elsewhere, &heartbeat);
    assert_eq!(refused, Err(Error::OtherSource));
    let by_unicast = lone.sync_from(&Meta::unicast(source()), &heartbeat);
    assert_eq!(by_unicast, Err(Error::Unasked));
    assert_eq!(lone.receiver.stats().syncs, 1);
}

#[test]
fn a_store_must_hold_whole_blocks_two_at_least() {
    let of = |capacity| {
        let store = HeapRing::new(capacity);
        let mut lone = Lone::with_store(content(9 * BLOCK), store, |_| {});
        let heartbeat = lone.heartbeat(0);
        lone.sync(&heartbeat)
    };
    for capacity in [0, BLOCK, 2 * BLOCK + 1, 3 * BLOCK - 512] {
        assert_eq!(of(capacity), Err(Error::Geometry), "{capacity}");
    }
    for capacity in [2 * BLOCK, 3 * BLOCK] {
        assert_eq!(of(capacity), Ok(()), "{capacity}");
    }
}

/// The bytes from which a receiver starts that comes late to a stream.
fn start(start: Start, oldest: u64, next: u64) -> u64 {
    let configure = |config: &mut ReceiverConfig| {
        config.start = start;
        config.delivery = Delivery::Read;
    };
    let mut lone = Lone::with_store(content(99 * BLOCK), HeapRing::new(8 * BLOCK), configure);
    let heartbeat = sync::Repr {
        oldest,
        length: None,
        stream: true,
        ..lone.heartbeat(next)
    };
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    opened(&mut lone).expect("it is open").1 / BLOCK as u64
}

#[test]
fn a_late_receiver_starts_at_a_whole_block() {
    assert_eq!(start(Start::Beginning, 0, 41), 0);
    assert_eq!(start(Start::Oldest, 8, 41), 2);
    assert_eq!(start(Start::Oldest, 9, 41), 3);
    assert_eq!(start(Start::Now, 8, 40), 10);
    assert_eq!(start(Start::Now, 8, 41), 11);
}

#[test]
fn packets_that_are_no_longer_stored_end_the_session() {
    // What a heartbeat says that names its oldest packet, after packets 0 to 5 have come.
    let asks = |oldest: u64| {
        let mut lone = Lone::open(4 * BLOCK, |_| {});
        lone.all_data(0..6);
        let heartbeat = sync::Repr {
            oldest,
            ..lone.heartbeat(16)
        };
        assert_eq!(lone.sync(&heartbeat), Ok(()));
        requests(&lone.poll(), Kind::Sync).len() == 1
    };
    // Block 0 is here, and half of block 1.
    for oldest in [0, 4, 5, 6] {
        assert!(!asks(oldest), "{oldest}");
    }
    for oldest in [7, 8, 9, 16] {
        assert!(asks(oldest), "{oldest}");
    }
}

#[test]
fn a_source_without_heartbeats_is_given_up() {
    let mut lone = Lone::new(BLOCK, |config| config.source_timeout = ms(1_000));
    lone.run_to(at(999));
    assert_eq!(lone.failure(), None);
    lone.run_to(at(1_000));
    assert_eq!(lone.failure(), Some(Failure::NoSource));
    let mut lone = Lone::open(BLOCK, |config| config.source_timeout = ms(2_000));
    lone.run_to(at(1_000));
    let heartbeat = lone.heartbeat(0);
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    lone.run_to(at(2_999));
    assert_eq!(lone.failure(), None);
    lone.run_to(at(3_000));
    assert_eq!(lone.failure(), Some(Failure::SourceLost));
    assert_eq!(lone.sync(&heartbeat), Err(Error::Ended));
    assert_eq!(lone.data(0), Err(Error::Ended));
    // DATA shows that it lives, and repairs do not: another host may send those.
    let mut lone = Lone::open(2 * BLOCK, |config| config.source_timeout = ms(2_000));
    lone.run_to(at(1_000));
    lone.all_data([0]);
    lone.run_to(at(2_500));
    assert_eq!(lone.repair(&Meta::group(source()), 1, 1), Ok(()));
    lone.run_to(at(3_000));
    assert_eq!(lone.failure(), Some(Failure::SourceLost));
}

#[test]
fn a_source_that_says_it_leaves_is_waited_for_a_fifth_of_that() {
    let mut lone = Lone::open(2 * BLOCK, |config| config.source_timeout = ms(5_000));
    lone.run_to(at(1_000));
    assert!(!lone.receiver.is_source_leaving());
    let leaving = sync::Repr {
        closing: true,
        ..lone.heartbeat(0)
    };
    assert_eq!(lone.sync(&leaving), Ok(()));
    assert!(lone.receiver.is_source_leaving());
    lone.run_to(at(1_999));
    assert_eq!(lone.failure(), None);
    lone.run_to(at(2_000));
    assert_eq!(lone.failure(), Some(Failure::SourceLeft));
}

#[test]
fn a_source_may_be_silent_three_times_as_long_as_it_said() {
    let mut lone = Lone::new(BLOCK, |config| config.source_timeout = ms(1_000));
    let heartbeat = sync::Repr {
        silence_ms: 2_000,
        ..lone.heartbeat(0)
    };
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    lone.run_to(at(5_999));
    assert_eq!(lone.failure(), None);
    lone.run_to(at(6_000));
    assert_eq!(lone.failure(), Some(Failure::SourceLost));
}

#[test]
fn requests_without_an_answer_end_the_session_after_three_timeouts() {
    let mut lone = Lone::open(2 * BLOCK, |config| config.source_timeout = ms(1_000));
    let mut heartbeat = lone.heartbeat(4);
    for step in 1..=40 {
        lone.run_to(at(100 * step));
        assert_eq!(lone.receiver.progress().0, 0);
        if let Some(failure) = lone.failure() {
            assert_eq!(failure, Failure::Unanswered);
            // It looks each second.
            assert!((30..=40).contains(&step), "{step}");
            return;
        }
        // The source lives.
        heartbeat.silence_ms = 100;
        assert_eq!(lone.sync(&heartbeat), Ok(()));
    }
    panic!("it waits on");
}

#[test]
fn a_receiver_that_lacks_nothing_waits_for_more() {
    let mut lone = Lone::open(2 * BLOCK, |config| config.source_timeout = ms(1_000));
    lone.all_data(0..4);
    assert_eq!(lone.digests(0, 0, None), Ok(()));
    let heartbeat = sync::Repr {
        digested: Some(1),
        ..lone.heartbeat(4)
    };
    for step in 1..=100 {
        lone.run_to(at(500 * step));
        assert_eq!(lone.sync(&heartbeat), Ok(()));
    }
    assert_eq!(lone.failure(), None);
    assert_eq!(lone.receiver.progress().0, BLOCK as u64);
}

#[test]
fn with_the_end_all_is_complete() {
    let mut lone = Lone::open(2 * BLOCK + 1, |_| {});
    lone.finish();
    let complete = ReceiverEvent::Complete {
        length: 2_049,
        digest: Some(lone.digest()),
    };
    assert!(lone.receiver.is_complete() && !lone.receiver.is_finished());
    assert_eq!(lone.events().last(), Some(&complete));
    assert!(lone.receiver.is_finished() && !lone.receiver.is_ended());
    assert_eq!(lone.receiver.progress(), (2_049, Some(2_049)));
    assert_eq!(lone.receiver.missing().count(), 0);
    assert_eq!(lone.receiver.announced(), Some(lone.digest()));
    assert!(lone.receiver.store().as_bytes().starts_with(&lone.content));
    // It waits for nothing any more.
    let sent = lone.run_to(at(100_000));
    assert_eq!(sent.len(), 0);
    assert_eq!(lone.events(), []);
    lone.receiver.close(lone.now);
    assert!(lone.receiver.is_ended() && lone.receiver.is_finished());
    assert_eq!(lone.receiver.poll_timeout(), None);
    assert_eq!(lone.data(0), Err(Error::Ended));
    let heartbeat = lone.last_heartbeat();
    assert_eq!(lone.sync(&heartbeat), Err(Error::Ended));
}

#[test]
fn what_is_final_may_be_released() {
    let asks = |oldest: u64| {
        let mut lone = Lone::open(32 * BLOCK, |config| config.limits.window_blocks = 4);
        lone.all_data(0..4);
        assert_eq!(lone.digests(0, 0, None), Ok(()));
        // A packet of block 4, which takes the place of block 0 in the window.
        lone.all_data([16]);
        let heartbeat = sync::Repr {
            oldest,
            ..lone.heartbeat(17)
        };
        assert_eq!(lone.sync(&heartbeat), Ok(()));
        requests(&lone.poll(), Kind::Sync).len() == 1
    };
    for oldest in [0, 2, 3, 4] {
        assert!(!asks(oldest), "{oldest}");
    }
    for oldest in [5, 7, 8] {
        assert!(asks(oldest), "{oldest}");
    }
}

#[test]
fn a_last_block_that_came_before_the_end_was_known_is_final_at_once() {
    let mut lone = Lone::new(BLOCK + 512, |_| {});
    let stream = sync::Repr {
        length: None,
        stream: true,
        ..lone.heartbeat(0)
    };
    assert_eq!(lone.sync(&stream), Ok(()));
    lone.all_data(0..6);
    assert_eq!(lone.digests(0, 1, None), Ok(()));
    assert_eq!(lone.receiver.progress(), (1_024, None));
    let end = lone.last_heartbeat();
    assert_eq!(lone.sync(&end), Ok(()));
    assert!(lone.receiver.is_complete());
}

/// A receiver wakes up for nothing else while it lacks nothing.
#[test]
fn a_source_is_looked_for_when_its_time_is_over() {
    let mut lone = Lone::new(BLOCK, |config| config.source_timeout = ms(1_000));
    let heartbeat = sync::Repr {
        silence_ms: 100,
        ..lone.heartbeat(0)
    };
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    lone.run_to(at(400));
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    assert_eq!(lone.receiver.poll_timeout(), Some(at(1_000)));
    lone.run_to(at(1_000));
    assert_eq!(lone.receiver.poll_timeout(), Some(at(1_400)));
    // One that leaves, as it says when it is asked.
    let mut lone = Lone::open(BLOCK, |config| config.source_timeout = ms(5_000));
    let other = sync::Repr {
        digest: Some([1; 32]),
        ..heartbeat
    };
    assert_eq!(lone.sync(&other), Ok(()));
    assert_eq!(
        lone.sync(&sync::Repr {
            digest: Some([2; 32]),
            ..heartbeat
        }),
        Err(Error::Contradiction)
    );
    let leaving = sync::Repr {
        closing: true,
        answer: Some(question(&lone.poll()).nonce),
        ..other
    };
    assert_eq!(lone.sync_from(&Meta::unicast(source()), &leaving), Ok(()));
    assert_eq!(lone.receiver.poll_timeout(), Some(at(1_000)));
    lone.run_to(at(1_000));
    assert_eq!(lone.failure(), Some(Failure::SourceLeft));
}
