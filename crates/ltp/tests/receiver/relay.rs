//! Below a relay: requests and repairs by way of it, and acknowledgements.

use ltp::store::HeapRing;
use ltp::wire::request::Kind;
use ltp::wire::sync;
use ltp::{Assist, Destination, Error, Meta, ReceiverConfig};

use super::{BLOCK, Lone, Sent, at, content, ms, requests, seq, source, wanted};

fn below(config: &mut ReceiverConfig) {
    config.assist = Assist::Dyram;
    config.gap_delay = ms(1);
}

#[test]
fn packets_are_requested_from_the_relay_without_delay_for_chance() {
    let mut lone = Lone::open(16 * BLOCK, below);
    lone.receiver.set_relay_delay(ms(40));
    lone.all_data([0, 2]);
    let sent = lone.run_to(at(1));
    assert_eq!(wanted(&sent), [(Destination::Relay, vec![(1, 1)])]);
    assert_eq!(lone.receiver.stats().requests_group, 1);
    // Again after twice the time that it may need, and then from the source.
    let sent = lone.run_to(at(700));
    let relay = sent.iter().filter(|sent| sent.to == Destination::Relay);
    let times: Vec<u64> = relay.map(|sent| (sent.at - at(1)).total_millis()).collect();
    assert_eq!(times.len(), 2);
    assert!((80..=90).contains(&times[0]), "{times:?}");
    assert!((240..=270).contains(&times[1]), "{times:?}");
    let source = sent
        .iter()
        .find(|sent| sent.to == Destination::Unicast(source()));
    let time = (source.expect("a request").at - at(1)).total_millis();
    assert!((560..=630).contains(&time), "{time}");
}

#[test]
fn what_is_verified_or_complete_is_acknowledged() {
    let mut lone = Lone::new(3 * BLOCK, below);
    assert_eq!(lone.receiver.acknowledged(), None);
    let heartbeat = lone.heartbeat(0);
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    assert_eq!(lone.receiver.acknowledged(), Some(seq(0)));
    lone.all_data(0..6);
    assert_eq!(lone.receiver.acknowledged(), Some(seq(0)));
    assert_eq!(lone.digests(0, 0, None), Ok(()));
    assert_eq!(lone.receiver.acknowledged(), Some(seq(4)));
    lone.finish();
    assert_eq!(lone.receiver.acknowledged(), Some(seq(12)));
    // A last block that is short has fewer packets.
    let mut lone = Lone::open(2 * BLOCK + 1, below);
    lone.finish();
    assert_eq!(lone.receiver.acknowledged(), Some(seq(9)));
}

#[test]
fn packets_that_the_relay_asks_for_are_repaired_if_they_are_stored() {
    let mut lone = Lone::new(4 * BLOCK, below);
    let want = |lone: &mut Lone, number: u32| lone.receiver.wanted(lone.now, seq(number));
    assert_eq!(want(&mut lone, 0), Err(Error::BeforeSync));
    let heartbeat = lone.heartbeat(0);
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    lone.all_data([0, 1, 2, 3, 5]);
    assert_eq!(lone.digests(0, 0, None), Ok(()));
    for (number, is_stored) in [(0, true), (3, true), (4, false), (5, true), (6, false)] {
        assert_eq!(want(&mut lone, number), Ok(is_stored), "{number}");
    }
    assert_eq!(want(&mut lone, 3), Ok(true), "it waits");
    let sent = lone.run_for(ms(1));
    let repairs: Vec<_> = sent.iter().filter(|sent| sent.is(2)).collect();
    assert_eq!(repairs.len(), 3);
    for repair in &repairs {
        assert_eq!(repair.to, Destination::Relay);
        let number = u32::from_be_bytes(repair.bytes[8..12].try_into().unwrap());
        let at = number.wrapping_sub(seq(0)) as usize * 256;
        assert_eq!(repair.bytes[16..], lone.content[at..at + 256]);
    }
    assert_eq!(lone.receiver.stats().repairs_sent, 3);
    assert_eq!(want(&mut lone, 3), Ok(true), "it is held down");
    assert_eq!(
        lone.run_for(ms(1)).iter().filter(|sent| sent.is(2)).count(),
        0
    );
    assert_eq!(lone.receiver.stats().requests_taken, 4);
    lone.receiver.close(lone.now);
    assert_eq!(want(&mut lone, 0), Err(Error::Ended));
    let mut idle = Lone::open(BLOCK, |config| config.replier.enabled = false);
    assert_eq!(want(&mut idle, 0), Err(Error::Ended));
}

#[test]
fn below_a_relay_lost_digests_are_repeated_with_the_next_ones() {
    let mut lone = Lone::open(16 * BLOCK, below);
    let announce = |lone: &mut Lone, block: u32, brings: bool| {
        lone.run_to(at(100 * i64::from(block)));
        lone.all_data(4 * block..4 * block + 4);
        let digested = sync::Repr {
            digested: Some(u64::from(block) + 1),
            ..lone.heartbeat(4 * u64::from(block) + 4)
        };
        assert_eq!(lone.sync(&digested), Ok(()));
        if brings {
            let block = block as usize;
            assert_eq!(lone.digests(block, block, None), Ok(()));
        }
    };
    announce(&mut lone, 1, true);
    announce(&mut lone, 2, true);
    assert_eq!(lone.receiver.stats().digests, 2);
    // Those of block 3 are lost: two more are waited for, 100 ms apart.
    announce(&mut lone, 3, false);
    let sent = lone.run_to(at(540));
    assert_eq!(requests(&sent, Kind::Digests).len(), 0);
    // They do not come, and the source is asked.
    let sent = lone.run_to(at(900));
    let asked = requests(&sent, Kind::Digests);
    assert_eq!((asked[0].ranges[0].lo, asked[0].ranges[0].hi), (3, 3));
}

/// A receiver below a relay of a content of that many blocks: the last of them has just come, as each other did
/// 100 ms after the one before, and its digest is lost.
fn without_last_digest(came: u32, blocks: usize) -> Lone {
    let mut lone = Lone::open(blocks * BLOCK, below);
    for block in 0..came {
        lone.run_to(at(100 * i64::from(block)));
        lone.all_data(4 * block..4 * block + 4);
        let digested = sync::Repr {
            digested: Some(u64::from(block) + 1),
            ..lone.heartbeat(4 * u64::from(block) + 4)
        };
        assert_eq!(lone.sync(&digested), Ok(()));
        if block + 1 < came {
            let block = block as usize;
            assert_eq!(lone.digests(block, block, None), Ok(()));
        }
    }
    assert_eq!(lone.now, at(300));
    lone
}

/// When digests are first requested: of the blocks that are named.
fn asks(sent: &[Sent]) -> Option<(i64, u32, u32)> {
    let asked = |sent: &Sent| {
        let request = sent.request().filter(|one| one.kind == Kind::Digests)?;
        let range = &request.ranges[0];
        Some((sent.at.total_millis(), range.lo, range.hi))
    };
    sent.iter().find_map(asked)
}

#[test]
fn digests_that_will_not_be_repeated_are_requested_soon() {
    let soon = |asked: Option<(i64, u32, u32)>, from: i64| {
        let (time, ..) = asked.expect("a request");
        assert!((from + 2..=from + 4).contains(&time), "{time}");
    };
    // Five times half the time between two packets of them, and up to twice that.
    let (time, ..) = asks(&without_last_digest(4, 16).run_to(at(1_000))).unwrap();
    assert!((550..=800).contains(&time), "{time}");
    // They were the last ones.
    soon(asks(&without_last_digest(4, 4).run_to(at(1_000))), 300);
    // The next ones do not bring them.
    let mut lone = without_last_digest(4, 16);
    lone.run_to(at(320));
    assert_eq!(lone.digests(4, 4, None), Ok(()));
    soon(asks(&lone.run_to(at(1_000))), 320);
    // The source waits, and sends nothing until it goes on.
    let mut lone = without_last_digest(4, 16);
    lone.run_to(at(320));
    let stalled = sync::Repr {
        stalled: true,
        digested: Some(4),
        ..lone.heartbeat(16)
    };
    for _ in 0..4 {
        assert_eq!(lone.sync(&stalled), Ok(()));
        let asked = asks(&lone.run_for(ms(1)));
        if asked.is_some() {
            return soon(asked, 320);
        }
    }
    panic!("it waits");
}

#[test]
fn digests_that_come_twice_do_not_put_a_request_off() {
    let mut lone = without_last_digest(4, 16);
    let mut sent = Vec::new();
    for _ in 0..40 {
        sent.extend(lone.run_for(ms(20)));
        assert_eq!(lone.digests(2, 2, None), Ok(()));
    }
    let (time, ..) = asks(&sent).expect("a request");
    assert!((300..=800).contains(&time), "{time}");
}

/// A receiver that has asked for 32 packets of 199, all it lacks at a time.
fn busy() -> Lone {
    let mut lone = Lone::open(64 * BLOCK, |config| {
        below(config);
        config.limits.window_blocks = 64;
    });
    lone.receiver.set_relay_delay(ms(40));
    lone.run_to(at(9_000));
    lone.all_data([0, 200]);
    let sent = lone.run_to(at(9_001));
    // Whole blocks, until there are 32.
    assert_eq!(wanted(&sent), [(Destination::Relay, vec![(1, 35)])]);
    lone
}

#[test]
fn a_relay_that_answers_late_is_asked_for_half_as_much() {
    let mut lone = busy();
    for number in 1..9 {
        assert_eq!(lone.repair(&Meta::group(source()), number, 0), Ok(()));
    }
    // For each answer there is one more.
    let sent = lone.run_for(ms(2));
    assert_eq!(wanted(&sent), [(Destination::Relay, vec![(36, 51)])]);
    let mut lone = busy();
    let sent = lone.run_to(at(9_095));
    assert_eq!(wanted(&sent), [(Destination::Relay, vec![(1, 35)])]);
    for number in 1..17 {
        assert_eq!(lone.repair(&Meta::group(source()), number, 0), Ok(()));
    }
    assert_eq!(wanted(&lone.run_for(ms(2))), [], "19 are left, of 16");
    for number in 17..21 {
        assert_eq!(lone.repair(&Meta::group(source()), number, 0), Ok(()));
    }
    let sent = lone.run_for(ms(2));
    assert_eq!(wanted(&sent), [(Destination::Relay, vec![(36, 39)])]);
}

#[test]
fn what_is_not_stored_any_more_is_not_promised_to_the_relay() {
    let store = HeapRing::new(4 * BLOCK);
    let mut lone = Lone::with_store(content(8 * BLOCK), store, below);
    let heartbeat = lone.heartbeat(0);
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    for block in 0..6u32 {
        lone.all_data(4 * block..4 * block + 4);
        assert_eq!(lone.digests(block as usize, block as usize, None), Ok(()));
    }
    for (number, is_stored) in [(0, false), (7, false), (8, true), (23, true), (24, false)] {
        let wanted = lone.receiver.wanted(lone.now, seq(number));
        assert_eq!(wanted, Ok(is_stored), "{number}");
    }
    // Nor what the source has never sent.
    let mut lone = Lone::open(4 * BLOCK, below);
    lone.all_data([0, 1, 2, 3]);
    let other = sync::Repr {
        length: Some(5 * BLOCK as u64),
        ..lone.heartbeat(4)
    };
    assert_eq!(lone.sync(&other), Err(Error::Contradiction));
    let asked = requests(&lone.poll(), Kind::Sync).remove(0);
    let truth = sync::Repr {
        answer: Some(asked.nonce),
        ..lone.heartbeat(2)
    };
    assert_eq!(lone.sync_from(&Meta::unicast(source()), &truth), Ok(()));
    for (number, was_sent) in [(0, true), (1, true), (2, false), (3, false)] {
        let wanted = lone.receiver.wanted(lone.now, seq(number));
        assert_eq!(wanted, Ok(was_sent), "{number}");
    }
}

/// Digests behind a block that lacks packets hold nothing up: more may come that bring them.
#[test]
fn digests_of_later_blocks_are_waited_for_while_an_earlier_one_lacks_packets() {
    let mut lone = Lone::open(16 * BLOCK, below);
    let mut sent = Vec::new();
    for block in 0..12u32 {
        sent.extend(lone.run_to(at(100 * i64::from(block))));
        // The last packet of block 3, and the digest of block 4, are lost.
        lone.all_data((4 * block..4 * block + 4).filter(|&number| number != 15));
        let digested = sync::Repr {
            digested: Some(u64::from(block) + 1),
            ..lone.heartbeat(4 * u64::from(block) + 4)
        };
        assert_eq!(lone.sync(&digested), Ok(()));
        if block != 4 {
            let block = block as usize;
            assert_eq!(lone.digests(block, block, None), Ok(()));
        }
    }
    assert_eq!(asks(&sent), None);
    assert_eq!(lone.repair(&Meta::group(source()), 15, 0), Ok(()));
    let (time, first, last) = asks(&lone.run_for(ms(100))).expect("a request");
    assert!((1_102..=1_104).contains(&time), "{time}");
    assert_eq!((first, last), (4, 4));
}
