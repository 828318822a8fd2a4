//! Contradictions: the source is asked by unicast, under a nonce, and its answer stands.

use ltp::store::{HeapRing, Store, StoreError};
use ltp::wire::request::{self, Kind};
use ltp::wire::sync;
use ltp::{Delivery, Destination, Error, Failure, Meta, ReceiverEvent, SessionId, Start};

use super::{BLOCK, Lone, SESSION, Sent, at, content, host, ms, requests, seq, source};

/// The answer to a question.
fn answer<'n>(heartbeat: sync::Repr<'n>, question: &request::Repr) -> sync::Repr<'n> {
    sync::Repr {
        answer: Some(question.nonce),
        name: b"",
        ..heartbeat
    }
}

pub(super) fn question(sent: &[Sent]) -> request::Repr {
    let questions = requests(sent, Kind::Sync);
    assert_eq!(questions.len(), 1);
    questions[0].clone()
}

fn from_source() -> Meta {
    Meta::unicast(source())
}

/// A heartbeat that names another length than the first.
fn contradict(lone: &mut Lone) -> Result<(), Error> {
    let other = sync::Repr {
        length: Some(5 * BLOCK as u64),
        ..lone.heartbeat(0)
    };
    lone.sync(&other)
}

#[test]
fn a_contradiction_is_put_to_the_source() {
    let mut lone = Lone::open(4 * BLOCK, |config| config.initial_timeout = ms(100));
    assert_eq!(contradict(&mut lone), Err(Error::Contradiction));
    let sent = lone.poll();
    assert_eq!(sent[0].to, Destination::Unicast(source()));
    let first = question(&sent);
    assert_eq!((first.number, first.session), (1, SESSION));
    assert_ne!(first.nonce, 0);
    // One question at a time, repeated with its nonce.
    assert_eq!(contradict(&mut lone), Err(Error::Contradiction));
    assert_eq!(lone.poll().len(), 0);
    assert_eq!(requests(&lone.run_to(at(99)), Kind::Sync).len(), 0);
    let again = question(&lone.run_to(at(125)));
    assert_eq!((again.number, again.nonce), (2, first.nonce));
    // An answer with another nonce, from elsewhere or to the group is none.
    let truth = answer(lone.heartbeat(0), &first);
    let other = sync::Repr {
        answer: Some(first.nonce ^ 1),
        ..truth
    };
    let unasked = Err(Error::Unasked);
    assert_eq!(lone.sync_from(&from_source(), &other), unasked);
    assert_eq!(lone.sync(&truth), unasked);
    let mut elsewhere = source();
    elsewhere.set_port(4_001);
    assert_eq!(lone.sync_from(&Meta::unicast(elsewhere), &truth), unasked);
    let from_other = lone.sync_from(&Meta::unicast(host(1)), &truth);
    assert_eq!(from_other, Err(Error::OtherSource));
    assert_eq!(lone.receiver.stats().syncs, 1);
    assert_eq!(lone.sync_from(&from_source(), &truth), Ok(()));
    assert_eq!(lone.receiver.stats().syncs, 2);
    assert_eq!(lone.sync_from(&from_source(), &truth), unasked, "once");
    assert_eq!(lone.receiver.progress().1, Some(4 * BLOCK as u64));
    assert_eq!(requests(&lone.run_to(at(1_000)), Kind::Sync).len(), 0);
    // It is asked again a second later at the earliest.
    lone.now = at(1_124);
    assert_eq!(contradict(&mut lone), Err(Error::Contradiction));
    assert_eq!(requests(&lone.poll(), Kind::Sync).len(), 0);
    lone.now = at(1_125);
    assert_eq!(contradict(&mut lone), Err(Error::Contradiction));
    assert_ne!(question(&lone.poll()).nonce, first.nonce);
}

#[test]
fn a_question_is_dropped_after_eight_attempts() {
    let mut lone = Lone::open(4 * BLOCK, |config| {
        config.initial_timeout = ms(10);
        config.min_timeout = ms(10);
        config.max_timeout = ms(10);
        config.source_timeout = ms(60_000);
    });
    assert_eq!(contradict(&mut lone), Err(Error::Contradiction));
    // Each has 10 ms, and up to a quarter more.
    let sent = lone.run_to(at(101));
    let numbers: Vec<u32> = requests(&sent, Kind::Sync)
        .iter()
        .map(|request| request.number)
        .collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(lone.receiver.stats().confirmations, 8);
    assert_eq!(lone.failure(), None);
    // Another one is asked a second later.
    lone.run_to(at(1_079));
    assert_eq!(contradict(&mut lone), Err(Error::Contradiction));
    assert_eq!(requests(&lone.poll(), Kind::Sync).len(), 0);
    lone.run_to(at(1_101));
    assert_eq!(contradict(&mut lone), Err(Error::Contradiction));
    assert_eq!(question(&lone.poll()).number, 1);
}

#[test]
fn the_source_is_right_whatever_was_announced() {
    let mut lone = Lone::open(4 * BLOCK, |_| {});
    lone.all_data(0..4);
    assert_eq!(contradict(&mut lone), Err(Error::Contradiction));
    let asked = question(&lone.poll());
    // The content is shorter: three packets.
    let truth = sync::Repr {
        length: Some(700),
        next: 3,
        digested: Some(1),
        ..answer(lone.heartbeat(0), &asked)
    };
    assert_eq!(lone.sync_from(&from_source(), &truth), Ok(()));
    assert_eq!(lone.receiver.progress().1, Some(700));
    assert_eq!(lone.data(3), Err(Error::BeyondEnd));
    assert_eq!(lone.missing(), [(0, 700)]);
    lone.content.truncate(700);
    assert_eq!(lone.digests(0, 0, None), Ok(()));
    let end = lone.last_heartbeat();
    assert_eq!(lone.sync(&end), Ok(()));
    assert!(lone.receiver.is_complete());
}

#[test]
fn packets_that_were_never_sent_are_not_requested_any_more() {
    let mut lone = Lone::open(4 * BLOCK, |config| config.gap_delay = ms(0));
    lone.all_data([0]);
    // A forged heartbeat names packets that the source has not sent yet.
    let forged = lone.heartbeat(9);
    assert_eq!(lone.sync(&forged), Ok(()));
    assert_eq!(super::wanted(&lone.poll()).len(), 1);
    assert_eq!(contradict(&mut lone), Err(Error::Contradiction));
    let asked = question(&lone.poll());
    let truth = answer(lone.heartbeat(3), &asked);
    assert_eq!(lone.sync_from(&from_source(), &truth), Ok(()));
    assert_eq!(lone.receiver.loss_counters(), (3, 1));
    let again = super::wanted(&lone.run_for(ms(300)));
    let to_source = Destination::Unicast(source());
    assert_eq!(again, [(to_source, vec![(1, 2)])]);
}

#[test]
fn a_restarted_source_with_the_content_is_followed() {
    let mut lone = Lone::open(4 * BLOCK, |_| {});
    let known = lone.last_heartbeat();
    assert_eq!(lone.sync(&known), Ok(()));
    lone.all_data(0..2);
    lone.events();
    // It says so on another port.
    let mut elsewhere = source();
    elsewhere.set_port(4_001);
    let other = sync::Repr {
        session: SessionId(78),
        ..known
    };
    let other_session = Err(Error::OtherSession);
    assert_eq!(
        lone.sync_from(&Meta::group(elsewhere), &other),
        other_session
    );
    // The known address is asked first, and in between.
    let mut sent = lone.poll();
    let asked = question(&sent);
    for _ in 0..5 {
        let _ = lone.sync_from(&Meta::group(elsewhere), &other);
        sent.extend(lone.run_for(ms(900)));
    }
    let ports: Vec<u16> = sent
        .iter()
        .filter(|sent| sent.is(5) && sent.bytes[1] == 2)
        .filter_map(|sent| Some(sent.to.unicast()?.port()))
        .collect();
    assert_eq!(ports[..4], [4_000, 4_000, 4_001, 4_000]);
    let truth = answer(other, &asked);
    assert_eq!(lone.sync_from(&Meta::unicast(elsewhere), &truth), Ok(()));
    assert_eq!(lone.receiver.session(), Some(SessionId(78)));
    assert_eq!(lone.receiver.source(), Some(elsewhere));
    let resumed = ReceiverEvent::Resumed {
        session: SessionId(78),
    };
    assert_eq!(lone.events(), [resumed]);
    let gone = lone.missing();
    assert_eq!(gone, [(512, 4_096)], "nothing is lost");
}

#[test]
fn another_transfer_of_the_host_takes_no_receiver_away() {
    let mut lone = Lone::open(4 * BLOCK, |_| {});
    lone.all_data([0]);
    assert_eq!(lone.repair(&from_source(), 1, 0), Ok(()));
    let mut elsewhere = source();
    elsewhere.set_port(4_001);
    let other = sync::Repr {
        session: SessionId(78),
        length: Some(100),
        ..lone.heartbeat(0)
    };
    let refused = lone.sync_from(&Meta::group(elsewhere), &other);
    assert_eq!(refused, Err(Error::OtherSession));
    let asked = question(&lone.poll());
    let truth = answer(other, &asked);
    let refused = lone.sync_from(&Meta::unicast(elsewhere), &truth);
    assert_eq!(refused, Err(Error::OtherSession));
    assert_eq!(lone.receiver.session(), Some(SESSION));
    // The known source answers at last.
    let truth = answer(lone.heartbeat(2), &asked);
    assert_eq!(lone.sync_from(&from_source(), &truth), Ok(()));
    assert_eq!(lone.failure(), None);
    // Where nothing has come yet, it is followed.
    let mut lone = Lone::open(4 * BLOCK, |_| {});
    let _ = lone.sync_from(&Meta::group(elsewhere), &other);
    let asked = question(&lone.poll());
    let truth = answer(other, &asked);
    assert_eq!(lone.sync_from(&Meta::unicast(elsewhere), &truth), Ok(()));
    assert_eq!(lone.receiver.session(), Some(SessionId(78)));
    assert_eq!(lone.receiver.progress(), (0, Some(100)));
}

#[test]
fn a_source_that_has_begun_another_content_ends_the_session() {
    let mut lone = Lone::open(4 * BLOCK, |_| {});
    lone.all_data([0]);
    assert_eq!(lone.repair(&from_source(), 1, 0), Ok(()));
    let other = sync::Repr {
        session: SessionId(78),
        ..lone.heartbeat(0)
    };
    assert_eq!(lone.sync(&other), Err(Error::OtherSession));
    let asked = question(&lone.poll());
    assert_eq!(
        lone.sync_from(&from_source(), &answer(other, &asked)),
        Ok(())
    );
    assert_eq!(lone.failure(), Some(Failure::SourceLeft));
}

#[test]
fn a_session_that_is_cut_otherwise_begins_anew() {
    let mut lone = Lone::open(4 * BLOCK, |_| {});
    lone.all_data([0]);
    let geometry = ltp::Geometry::new(11, 256, ltp::wire::Seq(9)).unwrap();
    let other = sync::Repr {
        geometry,
        ..lone.heartbeat(0)
    };
    assert_eq!(lone.sync(&other), Err(Error::Contradiction));
    let asked = question(&lone.poll());
    lone.events();
    assert_eq!(
        lone.sync_from(&from_source(), &answer(other, &asked)),
        Ok(())
    );
    assert_eq!(lone.receiver.geometry(), Some(geometry));
    assert_eq!(lone.missing(), [(0, 4_096)]);
    assert!(matches!(lone.events()[..], [ReceiverEvent::Opened { .. }]));
}

#[test]
fn data_past_the_end_that_a_heartbeat_names_contradicts_it() {
    let mut lone = Lone::new(4 * BLOCK, |_| {});
    let stream = sync::Repr {
        length: None,
        stream: true,
        ..lone.heartbeat(0)
    };
    assert_eq!(lone.sync(&stream), Ok(()));
    lone.all_data(0..6);
    let short = sync::Repr {
        length: Some(1_280),
        next: 5,
        ..stream
    };
    assert_eq!(lone.sync(&short), Err(Error::Contradiction));
    let fits = sync::Repr {
        length: Some(1_281),
        next: 6,
        ..stream
    };
    assert_eq!(lone.sync(&fits), Ok(()));
}

/// The source has been started again before it knew that a receiver of nine packets has them all.
#[test]
fn what_came_before_a_source_started_again_stays_acknowledged() {
    let mut lone = Lone::open(2 * BLOCK + 1, |_| {});
    let known = lone.last_heartbeat();
    assert_eq!(lone.sync(&known), Ok(()));
    lone.all_data(0..8);
    assert_eq!(lone.digests(0, 2, None), Ok(()));
    let again = sync::Repr {
        session: SessionId(78),
        next: 0,
        ..known
    };
    assert_eq!(lone.sync(&again), Err(Error::OtherSession));
    let asked = question(&lone.poll());
    lone.all_data([8]);
    assert!(!lone.receiver.is_complete(), "the source is asked first");
    let truth = answer(again, &asked);
    assert_eq!(lone.sync_from(&from_source(), &truth), Ok(()));
    assert!(lone.receiver.is_complete());
    assert_eq!(lone.receiver.acknowledged(), Some(seq(9)));
    assert_eq!(lone.receiver.loss_counters(), (9, 9));
    assert_eq!(lone.sync(&again), Ok(()), "nothing contradicts it");
}

/// A store that notes which blocks are dropped.
struct Noting {
    bytes: HeapRing,
    dropped: Vec<u64>,
}

impl Store for Noting {
    fn capacity(&self) -> Option<u64> {
        None
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.bytes.write(offset, bytes)
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        self.bytes.read(offset, out)
    }

    fn block(&mut self, offset: u64, len: usize) -> Result<&[u8], StoreError> {
        self.bytes.block(offset, len)
    }

    fn discard(&mut self, offset: u64, _len: usize) {
        self.dropped.push(offset);
    }
}

#[test]
fn blocks_past_the_end_that_the_source_names_are_dropped() {
    let store = Noting {
        bytes: HeapRing::new(8 * BLOCK),
        dropped: Vec::new(),
    };
    let mut lone = Lone::with_store(content(8 * BLOCK), store, |_| {});
    let stream = sync::Repr {
        length: None,
        stream: true,
        ..lone.heartbeat(0)
    };
    assert_eq!(lone.sync(&stream), Ok(()));
    // Packets from 6 on are forged, two of them of the last block.
    lone.all_data([0, 1, 2, 3, 4, 5, 7, 9, 17]);
    lone.content.truncate(BLOCK + 512);
    let end = lone.last_heartbeat();
    assert_eq!(lone.sync(&end), Err(Error::Contradiction));
    let truth = answer(end, &question(&lone.poll()));
    assert_eq!(lone.sync_from(&from_source(), &truth), Ok(()));
    assert_eq!(lone.receiver.store().dropped, [2_048, 4_096]);
    assert_eq!(lone.missing(), [(0, 1_536)]);
    assert_eq!(lone.digests(0, 1, None), Ok(()));
    assert!(lone.receiver.is_complete());
}

/// A forger has let a receiver begin that the content had no bytes for.
#[test]
fn a_late_receiver_of_a_content_that_has_ended_knows_no_digest() {
    let mut lone = Lone::with_store(content(8 * BLOCK), HeapRing::new(8 * BLOCK), |config| {
        config.start = Start::Now;
        config.delivery = Delivery::Read;
    });
    let stream = sync::Repr {
        length: None,
        stream: true,
        digested: Some(5),
        ..lone.heartbeat(20)
    };
    assert_eq!(lone.sync(&stream), Ok(()));
    lone.all_data(20..24);
    let nonce = requests(&lone.run_for(ms(20)), Kind::Left)[0].nonce;
    assert_eq!(super::digests::left(&mut lone, 5, nonce, true), Ok(()));
    lone.content.truncate(5 * BLOCK);
    let end = lone.last_heartbeat();
    assert_eq!(lone.sync(&end), Err(Error::Contradiction));
    let truth = answer(end, &question(&lone.poll()));
    assert_eq!(lone.sync_from(&from_source(), &truth), Ok(()));
    let complete = ReceiverEvent::Complete {
        length: 5_120,
        digest: None,
    };
    assert_eq!(lone.events().last(), Some(&complete));
}
