//! Contents that are not what was announced, and contents that were stored before.

use ltp::store::{HeapRing, Store};
use ltp::wire::request::{self, Kind};
use ltp::wire::sync;
use ltp::{
    Delivery, Destination, Error, Failure, Meta, ReceiverConfig, ReceiverEvent, SessionId, Start,
};

use super::{BLOCK, Lone, at, content, ms, requests, seq, source, turned, wanted};

fn to_source() -> Destination {
    Destination::Unicast(source())
}

/// A receiver of four blocks that has believed a forged second one with a digest that matches.
fn deceived(configure: impl FnOnce(&mut ReceiverConfig)) -> Lone {
    let mut lone = Lone::open(4 * BLOCK, |config| {
        config.gap_delay = ms(1);
        configure(config);
    });
    let truth = lone.content.clone();
    lone.content[BLOCK..2 * BLOCK].fill(0x66);
    lone.all_data(0..16);
    assert_eq!(lone.digests(0, 3, None), Ok(()));
    assert_eq!(lone.receiver.progress().0, 4 * BLOCK as u64);
    lone.content = truth;
    lone
}

/// The source's answer to the question that is asked now.
fn confirm(lone: &mut Lone, heartbeat: sync::Repr<'static>) {
    let sent = lone.poll();
    let question = requests(&sent, Kind::Sync).remove(0);
    let answer = sync::Repr {
        answer: Some(question.nonce),
        ..heartbeat
    };
    assert_eq!(lone.sync_from(&Meta::unicast(source()), &answer), Ok(()));
}

fn end(lone: &mut Lone) {
    let last = lone.last_heartbeat();
    assert_eq!(lone.sync(&last), Ok(()));
    assert!(!lone.receiver.is_complete());
    confirm(lone, last);
}

/// The digests that are requested from the source.
fn asked(lone: &mut Lone) -> request::Repr {
    let sent = lone.run_for(ms(10));
    let requests = requests(&sent, Kind::Digests);
    assert_eq!(requests.len(), 1);
    requests[0].clone()
}

#[test]
fn an_audit_finds_the_block_that_was_forged() {
    let mut lone = deceived(|_| {});
    end(&mut lone);
    assert_eq!(lone.receiver.stats().audits, 1);
    assert_eq!(lone.receiver.progress().0, 0);
    let asked = asked(&mut lone);
    assert_eq!((asked.ranges[0].lo, asked.ranges[0].hi), (0, 3));
    // What was announced to all proves nothing.
    assert_eq!(lone.digests(0, 3, None), Ok(()));
    assert_eq!(lone.receiver.progress().0, 0);
    assert_eq!(lone.digests(0, 3, Some(asked.nonce)), Ok(()));
    assert_eq!(lone.receiver.progress().0, BLOCK as u64);
    assert_eq!(lone.missing(), [(1_024, 2_048)]);
    let rejected = ReceiverEvent::BlockRejected { block: 1 };
    assert!(lone.events().contains(&rejected));
    let stats = lone.receiver.stats();
    assert_eq!((stats.blocks_audited, stats.blocks_rejected), (4, 1));
    let sent = lone.run_for(ms(10));
    assert_eq!(wanted(&sent), [(to_source(), vec![(4, 7)])]);
    for number in 4..8 {
        assert_eq!(lone.repair(&Meta::unicast(source()), number, 0), Ok(()));
    }
    let complete = ReceiverEvent::Complete {
        length: 4_096,
        digest: Some(lone.digest()),
    };
    assert_eq!(lone.events().last(), Some(&complete));
    assert_eq!(lone.receiver.store().as_bytes(), lone.content);
}

#[test]
fn blocks_under_audit_are_not_given_to_others() {
    let mut lone = deceived(|_| {});
    end(&mut lone);
    let repr = request::Repr {
        kind: Kind::Data,
        tag: 1,
        session: super::SESSION,
        number: 1,
        round_trip_us: 0,
        token: 0,
        nonce: 0,
        ranges: [request::Range {
            lo: seq(0),
            hi: seq(7),
        }]
        .into_iter()
        .collect(),
    };
    let mut packet = vec![0; repr.buffer_len()];
    repr.emit(&mut packet);
    assert_eq!(
        lone.handle(&turned(), &packet),
        Err(Error::RequestNotStored)
    );
    let asked = asked(&mut lone);
    assert_eq!(lone.digests(0, 3, Some(asked.nonce)), Ok(()));
    assert_eq!(lone.handle(&turned(), &packet), Ok(()));
    let sent = lone.run_for(ms(0));
    let repairs = sent.iter().filter(|sent| sent.is(2)).count();
    assert_eq!(repairs, 4, "the first block");
}

#[test]
fn an_answer_with_a_part_of_the_digests_is_followed_by_the_rest() {
    let mut lone = deceived(|_| {});
    end(&mut lone);
    let first = asked(&mut lone);
    assert_eq!(lone.digests(0, 1, Some(first.nonce)), Ok(()));
    assert_eq!(lone.receiver.stats().blocks_audited, 2);
    let rest = asked(&mut lone);
    assert_eq!((rest.ranges[0].lo, rest.ranges[0].hi), (2, 3));
    // Out of order they are no answer.
    assert_eq!(lone.digests(3, 3, Some(rest.nonce)), Ok(()));
    assert_eq!(lone.receiver.stats().blocks_audited, 2);
    assert_eq!(lone.digests(2, 3, Some(rest.nonce)), Ok(()));
    assert_eq!(lone.receiver.stats().blocks_audited, 4);
}

#[test]
fn an_audit_asks_for_four_mebibytes_at_a_time() {
    let mut lone = Lone::open(100 * BLOCK, |config| config.limits.window_blocks = 128);
    let truth = lone.content.clone();
    lone.content[70 * BLOCK] ^= 1;
    lone.all_data(0..400);
    assert_eq!(lone.digests(0, 59, None), Ok(()));
    assert_eq!(lone.digests(60, 99, None), Ok(()));
    lone.content = truth;
    end(&mut lone);
    let first = asked(&mut lone);
    assert_eq!((first.ranges[0].lo, first.ranges[0].hi), (0, 63));
    assert_eq!(lone.digests(0, 63, Some(first.nonce)), Ok(()));
    let second = asked(&mut lone);
    assert_eq!((second.ranges[0].lo, second.ranges[0].hi), (64, 99));
    assert_eq!(lone.digests(64, 99, Some(second.nonce)), Ok(()));
    assert_eq!(lone.receiver.progress().0, 70 * BLOCK as u64);
    assert_eq!(lone.receiver.stats().blocks_rejected, 1);
}

#[test]
fn an_audit_that_is_not_answered_ends_the_session() {
    let mut lone = deceived(|config| config.source_timeout = ms(1_000));
    end(&mut lone);
    let alive = lone.last_heartbeat();
    for step in 1..60 {
        lone.run_to(at(100 * step));
        if let Some(failure) = lone.failure() {
            assert_eq!(failure, Failure::WholeDigest);
            assert!((30..=41).contains(&step), "{step}");
            // It is not known which block is wrong.
            assert_eq!(lone.missing(), [(0, 4_096)]);
            return;
        }
        let _ = lone.sync(&sync::Repr {
            silence_ms: 100,
            ..alive
        });
    }
    panic!("it waits on");
}

#[test]
fn what_an_application_has_read_cannot_be_audited() {
    let mut lone = deceived(|config| config.delivery = Delivery::Read);
    end(&mut lone);
    assert_eq!(lone.failure(), Some(Failure::WholeDigest));
    assert_eq!(lone.receiver.stats().audits, 0);
    assert_eq!(lone.missing(), [(0, 4_096)]);
}

#[test]
fn a_source_whose_digests_do_not_add_up_ends_the_session() {
    let mut lone = deceived(|_| {});
    end(&mut lone);
    let first = asked(&mut lone);
    // Its digests are those of the forged content.
    let truth = lone.content.clone();
    lone.content[BLOCK..2 * BLOCK].fill(0x66);
    assert_eq!(lone.digests(0, 3, Some(first.nonce)), Ok(()));
    lone.content = truth;
    assert_eq!(lone.failure(), Some(Failure::WholeDigest));
}

#[test]
fn a_heartbeat_with_a_forged_digest_is_corrected() {
    let mut lone = Lone::open(4 * BLOCK, |_| {});
    lone.all_data(0..16);
    assert_eq!(lone.digests(0, 3, None), Ok(()));
    let truth = lone.last_heartbeat();
    let forged = sync::Repr {
        digest: Some([1; 32]),
        ..truth
    };
    assert_eq!(lone.sync(&forged), Ok(()));
    confirm(&mut lone, truth);
    assert!(lone.receiver.is_complete());
    assert_eq!(lone.receiver.stats().audits, 0);
}

#[test]
fn a_content_that_is_stored_already_is_adopted_by_its_digest() {
    let mut lone = Lone::new(2 * BLOCK + 1, |_| {});
    let digest = lone.digest();
    let bytes = lone.content.clone();
    for (index, block) in bytes.chunks(BLOCK).enumerate() {
        let store = lone.receiver.store_mut();
        assert_eq!(store.write((index * BLOCK) as u64, block), Ok(()));
    }
    assert!(!lone.receiver.adopt(at(0), digest), "there is no session");
    let mut announced = lone.heartbeat(0);
    assert_eq!(lone.sync(&announced), Ok(()));
    assert!(!lone.receiver.adopt(at(0), digest), "it is not announced");
    announced.digest = Some(digest);
    assert_eq!(lone.sync(&announced), Ok(()));
    assert!(!lone.receiver.adopt(at(0), [1; 32]), "another one is");
    lone.all_data([0]);
    assert!(lone.receiver.adopt(at(0), digest));
    assert!(!lone.receiver.adopt(at(0), digest), "it is complete");
    let complete = ReceiverEvent::Complete {
        length: 2_049,
        digest: Some(digest),
    };
    assert_eq!(lone.events().last(), Some(&complete));
    assert_eq!(lone.receiver.acknowledged(), Some(seq(9)));
    assert_eq!(lone.receiver.progress().0, 2_049);
    // Others get it from here.
    assert_eq!(lone.receiver.wanted(at(0), seq(8)), Ok(true));
    assert_eq!(lone.receiver.wanted(at(0), seq(9)), Ok(false));
    let sent = lone.poll();
    assert_eq!(sent[0].bytes[16], bytes[2 * BLOCK]);
    assert_eq!(sent[0].bytes[17..], [0; 255]);
    assert_eq!(lone.run_to(at(60_000)).len(), 0);
}

#[test]
fn events_that_nobody_takes_are_counted() {
    let mut lone = Lone::open(12 * BLOCK, |_| {});
    let truth = lone.content.clone();
    lone.content.fill(0x66);
    lone.all_data(0..48);
    assert_eq!(lone.digests(0, 11, None), Ok(()));
    lone.content = truth;
    end(&mut lone);
    let asked = asked(&mut lone);
    assert_eq!(lone.digests(0, 11, Some(asked.nonce)), Ok(()));
    assert_eq!(lone.receiver.stats().blocks_rejected, 12);
    // One of them is that the session began.
    assert_eq!(lone.events().len(), 8);
    assert_eq!(lone.receiver.stats().events_lost, 5);
}

/// Drives a receiver whose source lives and answers nothing. Returns when it gives up, in tenths of a second.
fn gives_up(lone: &mut Lone, heartbeat: sync::Repr<'static>) -> i64 {
    let alive = sync::Repr {
        silence_ms: 100,
        ..heartbeat
    };
    for step in lone.now.total_millis() / 100 + 1..200 {
        lone.run_to(at(100 * step));
        if let Some(failure) = lone.failure() {
            assert_eq!(failure, Failure::WholeDigest);
            return step;
        }
        assert_eq!(lone.sync(&alive), Ok(()));
    }
    panic!("it waits on");
}

/// The source's answer to a question about a heartbeat that is not its own.
fn confirm_anew(lone: &mut Lone, truth: sync::Repr<'static>) {
    let other = sync::Repr {
        digest: Some([9; 32]),
        ..truth
    };
    assert_eq!(lone.sync(&other), Err(Error::Contradiction));
    confirm(lone, truth);
}

#[test]
fn an_audit_that_is_not_answered_to_the_end_names_the_rest() {
    let mut lone = deceived(|config| config.source_timeout = ms(1_000));
    end(&mut lone);
    let asked = asked(&mut lone);
    assert_eq!(lone.digests(0, 1, Some(asked.nonce)), Ok(()));
    let heartbeat = lone.last_heartbeat();
    let time = gives_up(&mut lone, heartbeat);
    assert!((30..=41).contains(&time), "{time}");
    assert_eq!(lone.missing(), [(1_024, 4_096)]);
}

#[test]
fn an_audit_waits_for_the_digests_of_a_source_that_starts_again() {
    let mut lone = deceived(|config| config.source_timeout = ms(1_000));
    end(&mut lone);
    let truth = lone.last_heartbeat();
    // It asks for digests in vain, and the source has none yet after it was started again.
    lone.now = at(2_000);
    assert_eq!(lone.sync(&truth), Ok(()));
    lone.now = at(2_900);
    let again = sync::Repr {
        session: SessionId(78),
        digested: Some(0),
        next: 0,
        ..truth
    };
    assert_eq!(lone.sync(&again), Err(Error::OtherSession));
    confirm(&mut lone, again);
    let time = gives_up(&mut lone, again);
    assert!((59..=70).contains(&time), "{time}");
    assert_eq!(lone.missing(), [(0, 4_096)]);
}

#[test]
fn an_audit_does_not_wait_longer_for_packets_because_the_source_lives() {
    let mut lone = deceived(|config| config.source_timeout = ms(1_000));
    end(&mut lone);
    let asked = asked(&mut lone);
    assert_eq!(lone.digests(0, 3, Some(asked.nonce)), Ok(()));
    assert_eq!(lone.missing(), [(1_024, 2_048)]);
    let truth = lone.last_heartbeat();
    lone.now = at(1_400);
    confirm_anew(&mut lone, truth);
    let time = gives_up(&mut lone, truth);
    assert!((30..=41).contains(&time), "{time}");
    assert_eq!(lone.missing(), [(1_024, 2_048)]);
}

#[test]
fn a_doubt_that_the_source_ends_is_forgotten() {
    let mut lone = Lone::new(4 * BLOCK, |config| config.source_timeout = ms(1_000));
    let stream = sync::Repr {
        length: None,
        stream: true,
        next: 8,
        digested: Some(2),
        silence_ms: 100,
        ..lone.heartbeat(0)
    };
    assert_eq!(lone.sync(&stream), Ok(()));
    lone.all_data(0..8);
    assert_eq!(lone.digests(0, 1, None), Ok(()));
    // A heartbeat of somebody else ends it with what came so far.
    let forged = sync::Repr {
        length: Some(2_048),
        digest: Some([1; 32]),
        ..stream
    };
    assert_eq!(lone.sync(&forged), Ok(()));
    confirm(&mut lone, stream);
    for step in 1..100 {
        lone.run_to(at(100 * step));
        assert_eq!(lone.failure(), None, "after {step}");
        assert_eq!(lone.sync(&stream), Ok(()));
    }
    lone.all_data(8..16);
    assert_eq!(lone.digests(2, 3, None), Ok(()));
    let last = lone.last_heartbeat();
    assert_eq!(lone.sync(&last), Ok(()));
    assert!(lone.receiver.is_complete());
    assert_eq!(lone.receiver.stats().audits, 0);
}

#[test]
fn a_content_longer_than_the_store_cannot_be_audited() {
    let store = HeapRing::new(2 * BLOCK);
    let mut lone = Lone::with_store(content(4 * BLOCK), store, |_| {});
    let heartbeat = lone.heartbeat(0);
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    let truth = lone.content.clone();
    lone.content[BLOCK..2 * BLOCK].fill(0x66);
    for block in 0..4 {
        lone.all_data(4 * block..4 * block + 4);
        let block = block as usize;
        assert_eq!(lone.digests(block, block, None), Ok(()));
    }
    lone.content = truth;
    end(&mut lone);
    assert_eq!(lone.failure(), Some(Failure::WholeDigest));
    assert_eq!(lone.receiver.stats().audits, 0);
}

#[test]
fn of_an_empty_content_there_is_nothing_to_audit() {
    let mut lone = Lone::open(0, |_| {});
    let other = sync::Repr {
        digest: Some([1; 32]),
        ..lone.last_heartbeat()
    };
    assert_eq!(lone.sync(&other), Ok(()));
    confirm(&mut lone, other);
    assert_eq!(lone.failure(), Some(Failure::WholeDigest));
    assert_eq!(lone.receiver.stats().audits, 0);
}

#[test]
fn a_late_receiver_audits_what_it_has_received() {
    let mut lone = Lone::new(8 * BLOCK, |config| {
        config.start = Start::Now;
        config.gap_delay = ms(1);
    });
    let heartbeat = sync::Repr {
        digested: Some(5),
        ..lone.heartbeat(18)
    };
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    let left = |lone: &mut Lone| {
        let sent = lone.run_for(ms(10));
        let nonce = requests(&sent, Kind::Left)[0].nonce;
        assert_eq!(super::digests::left(lone, 5, nonce, true), Ok(()));
    };
    let truth = lone.content.clone();
    lone.content[6 * BLOCK..7 * BLOCK].fill(0x66);
    lone.all_data(20..32);
    let told = [5, 6, 7].map(|block| lone.values()[block]);
    lone.content = truth;
    left(&mut lone);
    assert_eq!(lone.false_digests(5, &told, None), Ok(()));
    assert_eq!(lone.receiver.progress().0, 8 * BLOCK as u64);
    end(&mut lone);
    assert_eq!(lone.receiver.stats().audits, 1);
    left(&mut lone);
    let asked = asked(&mut lone);
    assert_eq!((asked.ranges[0].lo, asked.ranges[0].hi), (5, 7));
    assert_eq!(lone.digests(5, 7, Some(asked.nonce)), Ok(()));
    assert_eq!(lone.missing(), [(6_144, 7_168)]);
    for number in 24..28 {
        assert_eq!(lone.repair(&Meta::unicast(source()), number, 0), Ok(()));
    }
    let complete = ReceiverEvent::Complete {
        length: 8_192,
        digest: Some(lone.digest()),
    };
    assert_eq!(lone.events().last(), Some(&complete));
}

/// The source has confirmed four blocks, and then says that there are two.
#[test]
fn a_source_that_contradicts_itself_during_an_audit_ends_the_session() {
    let mut lone = deceived(|config| config.source_timeout = ms(1_000));
    end(&mut lone);
    let asked = asked(&mut lone);
    lone.now = at(1_400);
    let shorter = sync::Repr {
        length: Some(2_048),
        digested: Some(2),
        digest: Some([5; 32]),
        next: 8,
        ..lone.last_heartbeat()
    };
    confirm_anew(&mut lone, shorter);
    assert_eq!(lone.digests(0, 3, Some(asked.nonce)), Ok(()));
    let time = gives_up(&mut lone, shorter);
    assert!((30..=60).contains(&time), "{time}");
}

#[test]
fn a_content_that_was_adopted_is_not_audited() {
    let mut lone = Lone::new(2 * BLOCK, |_| {});
    let digest = lone.digest();
    let announced = sync::Repr {
        digest: Some(digest),
        ..lone.heartbeat(0)
    };
    assert_eq!(lone.sync(&announced), Ok(()));
    let other = sync::Repr {
        digest: Some([1; 32]),
        ..announced
    };
    assert_eq!(lone.sync(&other), Err(Error::Contradiction));
    assert!(lone.receiver.adopt(at(0), digest));
    assert!(!lone.receiver.is_complete(), "the source is asked first");
    confirm(&mut lone, other);
    assert_eq!(lone.failure(), Some(Failure::WholeDigest));
    assert_eq!(lone.receiver.stats().audits, 0);
}
