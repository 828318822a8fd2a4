//! Digests: when they are requested and from which peer, and what lies to the left of a late start.

use ltp::digest::{Hashing, MerkleFrontier};
use ltp::store::HeapRing;
use ltp::wire::digests::{Repr, put_digest};
use ltp::wire::report::{ReportAck, Verdict};
use ltp::wire::request::Kind;
use ltp::wire::sync;
use ltp::{Assist, Delivery, Destination, Error, Meta, ReceiverConfig, ReceiverEvent, Start};

use super::{BLOCK, Lone, SESSION, Sent, at, content, host, ms, requests, source};

fn to_source() -> Destination {
    Destination::Unicast(source())
}

/// Tells that digests of blocks before that one were sent.
fn announce(lone: &mut Lone, digested: u64) {
    let next = lone.receiver.loss_counters().0;
    let heartbeat = sync::Repr {
        digested: Some(digested),
        ..lone.heartbeat(next)
    };
    assert_eq!(lone.sync(&heartbeat), Ok(()));
}

/// Requests for digests: where they went, and the blocks.
fn asked(sent: &[Sent]) -> Vec<(Destination, u32, u32)> {
    let request = |sent: &Sent| {
        let request = sent
            .request()
            .filter(|request| request.kind == Kind::Digests)?;
        Some((sent.to, request.ranges[0].lo, request.ranges[0].hi))
    };
    sent.iter().filter_map(request).collect()
}

#[test]
fn digests_that_do_not_come_are_requested_from_the_source() {
    let mut lone = Lone::open(8 * BLOCK, |config| {
        config.gap_delay = ms(5);
        config.initial_timeout = ms(100);
    });
    lone.all_data(0..12);
    announce(&mut lone, 2);
    // Twice the time in which gaps are looked for, and up to twice that.
    let sent = lone.run_to(at(20));
    assert_eq!(asked(&sent), [(to_source(), 0, 1)], "as far as announced");
    let first = &requests(&sent, Kind::Digests)[0];
    let time = sent.iter().find(|sent| sent.is(5)).unwrap().at;
    assert!((at(10)..=at(20)).contains(&time), "{time}");
    assert_ne!(first.nonce, 0);
    // A token: it is asked again at once.
    let token = ReportAck {
        verdict: Verdict::Token,
        tag: first.tag,
        session: SESSION,
        receiver: first.nonce,
        token: 0x99,
    };
    assert_eq!(lone.ack(&token), Ok(()));
    let again = requests(&lone.poll(), Kind::Digests).remove(0);
    assert_eq!((again.token, again.nonce), (0x99, first.nonce));
    assert_eq!(again.number, first.number, "it does not count twice");
    // Without an answer it is repeated, less and less often.
    let times: Vec<_> = lone.run_to(at(1_000)).iter().map(|sent| sent.at).collect();
    assert!(times.len() >= 2, "{times:?}");
    let other = lone.digests(0, 1, Some(first.nonce ^ 1));
    assert_eq!(other, Err(Error::Unasked));
    // An answer may have room for the first only, and the rest is asked for at once.
    assert_eq!(lone.digests(0, 0, Some(first.nonce)), Ok(()));
    assert_eq!(lone.receiver.progress().0, BLOCK as u64);
    let rest = asked(&lone.poll());
    assert_eq!(rest, [(to_source(), 1, 1)]);
    assert_eq!(lone.digests(1, 1, Some(first.nonce)), Ok(()));
    assert_eq!(lone.receiver.progress().0, 2 * BLOCK as u64);
    assert_eq!(asked(&lone.run_to(at(3_000))), []);
    let late = lone.digests(2, 2, Some(first.nonce));
    assert_eq!(late, Err(Error::Unasked));
}

#[test]
fn with_lms_the_group_is_asked_first() {
    let mut lone = Lone::open(8 * BLOCK, |config| {
        config.assist = Assist::Lms;
        config.initial_timeout = ms(100);
    });
    lone.all_data(0..4);
    announce(&mut lone, 1);
    let sent = lone.run_to(at(3_000));
    let asked = requests(&sent, Kind::Digests);
    let numbers: Vec<_> = asked.iter().map(|request| request.number).collect();
    assert_eq!(numbers[..5], [1, 2, 3, 4, 5]);
    let to: Vec<_> = sent
        .iter()
        .filter(|sent| sent.is(5) && sent.bytes[1] == 1)
        .collect();
    for (sent, request) in to.iter().zip(&asked) {
        let is_source = request.number > 3;
        assert_eq!(sent.to == to_source(), is_source);
        assert_eq!(request.nonce != 0, is_source);
    }
    let waits: Vec<u64> = to
        .windows(2)
        .map(|pair| (pair[1].at - pair[0].at).total_millis())
        .collect();
    for (wait, expected) in waits.iter().zip([100, 200, 400, 100, 200]) {
        assert!((expected..=expected * 5 / 4).contains(wait), "{waits:?}");
    }
    // The sixth: the source is asked whether it has sent any.
    assert!(!requests(&sent, Kind::Sync).is_empty());
    let doubt = sent.iter().find(|sent| sent.bytes[1] == 2).unwrap();
    assert_eq!(doubt.at, to[5].at);
}

#[test]
fn digests_from_elsewhere_are_dropped() {
    let mut lone = Lone::new(2 * BLOCK, |_| {});
    assert_eq!(lone.digests(0, 0, None), Err(Error::BeforeSync));
    let heartbeat = lone.heartbeat(0);
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    let repr = Repr {
        session: SESSION,
        first_block: 0,
        answer: None,
        left: false,
        count: 1,
    };
    let mut packet = vec![0; repr.buffer_len()];
    repr.emit(&mut packet);
    let elsewhere = lone.handle(&Meta::group(host(1)), &packet);
    assert_eq!(elsewhere, Err(Error::OtherSource));
    let unasked = lone.handle(&Meta::unicast(source()), &packet);
    assert_eq!(unasked, Err(Error::Unasked));
    packet[7] ^= 1;
    let other = lone.handle(&Meta::group(source()), &packet);
    assert_eq!(other, Err(Error::OtherSession));
    assert_eq!(lone.receiver.stats().digests, 0);
    let plain = |config: &mut ReceiverConfig| config.require_integrity = false;
    let mut lone = Lone::new(2 * BLOCK, plain);
    let heartbeat = sync::Repr {
        digested: None,
        ..lone.heartbeat(0)
    };
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    assert_eq!(lone.digests(0, 0, None), Err(Error::Integrity));
    // Its blocks are final without.
    lone.all_data(0..8);
    assert!(lone.receiver.is_complete());
    let complete = ReceiverEvent::Complete {
        length: 2_048,
        digest: None,
    };
    assert_eq!(lone.events().last(), Some(&complete));
}

#[test]
fn digests_ahead_of_the_window_are_not_kept() {
    let mut lone = Lone::open(64 * BLOCK, |config| config.limits.window_blocks = 4);
    assert_eq!(lone.digests(2, 9, None), Ok(()));
    lone.all_data(0..16);
    let missing = lone.missing();
    assert_eq!(
        missing,
        [(0, 2_048), (4_096, 65_536)],
        "blocks 2 and 3 are verified"
    );
    assert_eq!(lone.receiver.stats().digests, 1);
}

fn late(config: &mut ReceiverConfig) {
    config.start = Start::Now;
    config.delivery = Delivery::Read;
    config.initial_timeout = ms(50);
    config.min_timeout = ms(50);
    config.max_timeout = ms(50);
}

/// A receiver that has started at block 5 of 8, and got block 5 with its digest.
fn started_late() -> (Lone, u64) {
    let store = HeapRing::new(16 * BLOCK);
    let mut lone = Lone::with_store(content(8 * BLOCK), store, late);
    let heartbeat = sync::Repr {
        digested: Some(5),
        ..lone.heartbeat(18)
    };
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    assert_eq!(
        requests(&lone.run_for(ms(20)), Kind::Left).len(),
        0,
        "nothing came"
    );
    lone.all_data(20..24);
    let sent = lone.run_for(ms(20));
    let left = &requests(&sent, Kind::Left)[0];
    assert_eq!((left.ranges[0].lo, left.ranges[0].hi), (5, 5));
    assert_ne!(left.nonce, 0);
    assert_eq!(sent[0].to, to_source());
    assert_eq!(lone.digests(5, 5, None), Ok(()));
    assert_eq!(lone.receiver.progress().0, 5 * BLOCK as u64, "it waits");
    let nonce = left.nonce;
    (lone, nonce)
}

/// The source's answer on what lies to the left of a block.
pub(super) fn left(lone: &mut Lone, block: usize, nonce: u64, known: bool) -> Result<(), Error> {
    let hashing = Hashing::new(None);
    let mut frontier = MerkleFrontier::default();
    for value in &lone.values()[..block] {
        frontier.push(&hashing, *value);
    }
    let values = lone.values();
    let mut packet = vec![0; 20 + 32 * 8];
    let kept = |block: u64| Some(values[block as usize]);
    let count = frontier.left_of(&hashing, block as u64, kept, |index, value| {
        put_digest(&mut packet, index, value);
    });
    let repr = Repr {
        session: SESSION,
        first_block: block as u32,
        answer: Some(nonce),
        left: true,
        count: if known { count.unwrap() } else { 0 },
    };
    repr.emit(&mut packet);
    packet.truncate(repr.buffer_len());
    lone.handle(&Meta::unicast(source()), &packet)
}

/// The rest of the content comes. Returns the digest that the application is told.
fn finish_late(lone: &mut Lone) -> Option<[u8; 32]> {
    lone.all_data(24..32);
    assert_eq!(lone.digests(6, 7, None), Ok(()));
    let end = lone.last_heartbeat();
    assert_eq!(lone.sync(&end), Ok(()));
    let events = lone.events();
    match events.last() {
        Some(ReceiverEvent::Complete { length, digest }) => {
            assert_eq!(*length, 8_192);
            *digest
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_late_receiver_asks_for_what_lies_to_the_left() {
    let (mut lone, nonce) = started_late();
    assert_eq!(left(&mut lone, 5, nonce ^ 1, true), Err(Error::Unasked));
    assert_eq!(left(&mut lone, 6, nonce, true), Ok(()), "of another block");
    assert_eq!(lone.receiver.progress().0, 5 * BLOCK as u64);
    assert_eq!(left(&mut lone, 5, nonce, true), Ok(()));
    assert_eq!(lone.receiver.progress().0, 6 * BLOCK as u64);
    assert_eq!(left(&mut lone, 5, nonce, true), Err(Error::Unasked), "once");
    let digest = lone.digest();
    assert_eq!(finish_late(&mut lone), Some(digest));
}

#[test]
fn where_the_source_does_not_know_it_the_whole_is_not_verified() {
    let (mut lone, nonce) = started_late();
    assert_eq!(left(&mut lone, 5, nonce, false), Ok(()));
    assert_eq!(lone.receiver.progress().0, 6 * BLOCK as u64);
    assert_eq!(finish_late(&mut lone), None);
    // Nor where it does not answer six times.
    let (mut lone, _) = started_late();
    let sent = lone.run_for(ms(2_000));
    assert_eq!(requests(&sent, Kind::Left).len(), 5);
    assert_eq!(lone.receiver.progress().0, 6 * BLOCK as u64);
    assert_eq!(finish_late(&mut lone), None);
}

/// The source says by unicast that it has announced digests of that many blocks.
fn correct(lone: &mut Lone, digested: u64) {
    let next = lone.receiver.loss_counters().0;
    let truth = sync::Repr {
        digested: Some(digested),
        ..lone.heartbeat(next)
    };
    let other = sync::Repr {
        length: Some(99 * BLOCK as u64),
        ..truth
    };
    assert_eq!(lone.sync(&other), Err(Error::Contradiction));
    let answer = sync::Repr {
        answer: Some(super::confirmation::question(&lone.poll()).nonce),
        ..truth
    };
    assert_eq!(lone.sync_from(&Meta::unicast(source()), &answer), Ok(()));
}

#[test]
fn digests_that_the_source_does_not_have_are_requested_no_more() {
    let forged = |digested: u64| {
        let mut lone = Lone::open(8 * BLOCK, |config| config.initial_timeout = ms(100));
        lone.all_data(0..12);
        announce(&mut lone, 3);
        let sent = lone.run_to(at(20));
        assert_eq!(asked(&sent), [(to_source(), 0, 2)]);
        correct(&mut lone, digested);
        let nonce = requests(&sent, Kind::Digests)[0].nonce;
        (lone, nonce)
    };
    let (mut lone, nonce) = forged(0);
    assert_eq!(asked(&lone.run_to(at(3_000))), []);
    assert_eq!(lone.digests(0, 0, Some(nonce)), Err(Error::Unasked));
    // It has the first of them.
    let (mut lone, nonce) = forged(1);
    assert_eq!(lone.digests(0, 0, Some(nonce)), Ok(()));
    assert_eq!(lone.receiver.progress().0, BLOCK as u64);
}

#[test]
fn an_answer_that_names_other_blocks_than_were_asked_for_is_none() {
    let mut lone = Lone::open(8 * BLOCK, |_| {});
    lone.all_data(0..4);
    announce(&mut lone, 1);
    let nonce = requests(&lone.run_to(at(20)), Kind::Digests)[0].nonce;
    // The first block was changed on the way.
    let first = lone.values()[0];
    assert_eq!(lone.false_digests(1, &[first], Some(nonce)), Ok(()));
    lone.all_data(4..8);
    assert_eq!(lone.digests(0, 1, None), Ok(()));
    assert_eq!(lone.receiver.progress().0, 2 * BLOCK as u64);
    assert_eq!(lone.receiver.stats().blocks_rejected, 0);
}

#[test]
fn missing_digests_are_requested_in_time_however_many_follow() {
    let mut lone = Lone::open(16 * BLOCK, |config| config.gap_delay = ms(5));
    let mut sent = Vec::new();
    // Those of block 2 are lost.
    for (block, time) in [0, 100, 200, 204, 208, 212, 216, 220]
        .into_iter()
        .enumerate()
    {
        sent.extend(lone.run_to(at(time)));
        let packet = 4 * block as u32;
        lone.all_data(packet..packet + 4);
        announce(&mut lone, block as u64 + 1);
        if block != 2 {
            assert_eq!(lone.digests(block, block, None), Ok(()));
        }
    }
    let time = sent.iter().find(|sent| sent.is(5)).expect("a request").at;
    assert!((at(210)..=at(220)).contains(&time), "{time}");
    // Nor do they wait where no more follow.
    let mut lone = Lone::open(3 * BLOCK, |config| config.gap_delay = ms(5));
    for (block, time) in [0, 100, 200].into_iter().enumerate() {
        lone.run_to(at(time));
        let packet = 4 * block as u32;
        lone.all_data(packet..packet + 4);
        announce(&mut lone, block as u64 + 1);
        if block != 2 {
            assert_eq!(lone.digests(block, block, None), Ok(()));
        }
    }
    assert_eq!(asked(&lone.run_to(at(220))), [(to_source(), 2, 2)]);
}

/// Its time is that of six requests, however short that of its source is.
#[test]
fn what_lies_to_the_left_is_not_what_a_receiver_gives_up_for() {
    let mut lone = Lone::with_store(content(8 * BLOCK), HeapRing::new(16 * BLOCK), |config| {
        late(config);
        config.source_timeout = ms(50);
    });
    let heartbeat = sync::Repr {
        silence_ms: 1,
        digested: Some(5),
        ..lone.heartbeat(18)
    };
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    lone.all_data(20..24);
    assert_eq!(lone.digests(5, 5, None), Ok(()));
    for step in 1..100 {
        lone.run_to(at(10 * step));
        assert_eq!(lone.sync(&heartbeat), Ok(()));
        assert_eq!(lone.failure(), None, "{step}");
    }
    assert_eq!(lone.receiver.progress().0, 6 * BLOCK as u64);
}
