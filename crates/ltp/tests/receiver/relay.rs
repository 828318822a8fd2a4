//! Below a relay: requests and repairs by way of it, and acknowledgements.

use ltp::wire::request::Kind;
use ltp::wire::sync;
use ltp::{Assist, Destination, Error, Meta, ReceiverConfig};

use super::{BLOCK, Lone, at, ms, requests, seq, source, wanted};

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
    // A source that waits repeats nothing until it goes on.
    let mut lone = Lone::open(16 * BLOCK, below);
    announce(&mut lone, 1, true);
    announce(&mut lone, 2, true);
    announce(&mut lone, 3, false);
    let stalled = sync::Repr {
        stalled: true,
        digested: Some(4),
        ..lone.heartbeat(16)
    };
    lone.run_to(at(301));
    let _ = lone.repair(&Meta::group(source()), 0, 0);
    assert_eq!(lone.sync(&stalled), Ok(()));
}
