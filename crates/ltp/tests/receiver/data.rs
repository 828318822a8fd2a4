//! DATA and repairs: what is taken, and which packets are requested when and from which peer.

use ltp::store::HeapRing;
use ltp::wire::request::{Kind, REPAIR_ALONE};
use ltp::wire::sync;
use ltp::{Assist, Delivery, Destination, Error, Meta, ReceiverConfig, ReceiverEvent};

use super::{BLOCK, Lone, Sent, at, content, host, ms, requests, seq, source, wanted};

fn to_source() -> Destination {
    Destination::Unicast(source())
}

fn lms(config: &mut ReceiverConfig) {
    config.assist = Assist::Lms;
}

/// Requests for packets are to go at once.
fn eager(config: &mut ReceiverConfig) {
    config.gap_delay = ms(0);
}

#[test]
fn packets_that_are_not_of_the_session_are_dropped() {
    let mut lone = Lone::new(3 * BLOCK, |_| {});
    assert_eq!(lone.data(0), Err(Error::BeforeSync));
    let heartbeat = lone.heartbeat(0);
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    let meta = Meta::group(source());
    let mut packet = lone.packet(0, None);
    let short = lone.handle(&meta, &packet[..packet.len() - 1]);
    assert_eq!(short, Err(Error::PayloadLength));
    let elsewhere = lone.handle(&Meta::group(host(1)), &packet);
    assert_eq!(elsewhere, Err(Error::OtherSource));
    packet[7] ^= 1;
    assert_eq!(lone.handle(&meta, &packet), Err(Error::OtherSession));
    assert_eq!(lone.data(12), Err(Error::BeyondEnd));
    assert_eq!(lone.receiver.stats().data_packets, 0);
    assert_eq!(lone.receiver.stats().drops.get(Error::BeyondEnd), 1);
    assert_eq!(lone.data(11), Ok(()));
    assert_eq!(lone.receiver.loss_counters(), (12, 1));
    let report = lone.handle(&meta, &[0x16; 40]);
    assert_eq!(report, Err(Error::Unexpected));
}

#[test]
fn each_packet_is_taken_once() {
    let mut lone = Lone::open(3 * BLOCK, lms);
    lone.all_data(0..6);
    assert_eq!(lone.receiver.newest_block(), 0b0011);
    for number in [0, 5] {
        assert_eq!(lone.data(number), Ok(()));
    }
    // A repair that was not requested, and one of a packet that came as a repair.
    let to_group = Meta::group(source());
    assert_eq!(lone.repair(&to_group, 5, 1), Ok(()));
    assert_eq!(lone.repair(&to_group, 7, 1), Ok(()));
    assert_eq!(lone.repair(&to_group, 7, 1), Ok(()));
    assert_eq!(lone.data(7), Ok(()));
    // One to this host alone was asked for by it.
    assert_eq!(lone.repair(&Meta::unicast(source()), 4, 1), Ok(()));
    let stats = lone.receiver.stats();
    assert_eq!((stats.data_packets, stats.duplicate_data), (6, 3));
    assert_eq!((stats.repairs, stats.unneeded_repairs), (1, 1));
    assert_eq!((stats.duplicate_repairs, stats.lost_packets), (2, 1));
    assert_eq!(lone.receiver.loss_counters(), (8, 9));
    // In a block that is final, too.
    assert_eq!(lone.digests(0, 0, None), Ok(()));
    assert_eq!(lone.receiver.progress().0, BLOCK as u64);
    assert_eq!(lone.data(3), Ok(()));
    assert_eq!(lone.repair(&to_group, 3, 1), Ok(()));
    let stats = lone.receiver.stats();
    assert_eq!((stats.duplicate_data, stats.unneeded_repairs), (4, 2));
}

#[test]
fn packets_too_far_ahead_are_requested_when_there_is_room() {
    let store = HeapRing::new(4 * BLOCK);
    let read = |config: &mut ReceiverConfig| config.delivery = Delivery::Read;
    let mut lone = Lone::with_store(content(8 * BLOCK), store, read);
    let heartbeat = lone.heartbeat(0);
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    lone.all_data(0..16);
    assert_eq!(lone.data(17), Err(Error::BeyondWindow));
    assert_eq!(
        lone.repair(&Meta::group(source()), 20, 1),
        Err(Error::BeyondWindow)
    );
    assert_eq!(
        lone.receiver.loss_counters().0,
        18,
        "a repair shows no new data"
    );
    assert_eq!(lone.digests(0, 3, None), Ok(()));
    assert_eq!(lone.data(16), Err(Error::BeyondWindow), "nothing was read");
    assert_eq!(wanted(&lone.run_for(ms(100))), []);
    assert_eq!(lone.receiver.peek().map(<[u8]>::len), Ok(BLOCK));
    lone.receiver.consume(lone.now, 2 * BLOCK - 1);
    let packets = wanted(&lone.run_for(ms(10)));
    assert_eq!(packets, [(to_source(), vec![(16, 17)])]);
    lone.all_data([16]);
    assert_eq!(
        lone.receiver.peek().map(<[u8]>::len),
        Ok(1),
        "the rest of its block"
    );
    lone.receiver.consume(lone.now, 1);
    let rest = lone.receiver.peek().map(<[u8]>::to_vec);
    assert_eq!(rest, Ok(lone.content[2 * BLOCK..3 * BLOCK].to_vec()));
    lone.receiver.consume(lone.now, usize::MAX);
    assert_eq!(
        lone.receiver.peek(),
        Ok(&[][..]),
        "no more than is verified"
    );
    assert_eq!(lone.data(31), Ok(()));
}

#[test]
fn gaps_are_requested_after_a_short_time_in_one_request() {
    let mut lone = Lone::open(8 * BLOCK, lms);
    lone.all_data([0, 1, 4]);
    assert_eq!(lone.receiver.stats().lost_packets, 2);
    let meanwhile = lone.run_to(at(0));
    assert_eq!(wanted(&meanwhile), []);
    // One comes late, and more are lost.
    lone.all_data([3, 7, 9]);
    assert_eq!(lone.run_to(at(0)).len(), 0);
    let sent = lone.run_to(at(1));
    let group = sent[0].to;
    assert!(matches!(group, Destination::Request(option) if option.turning_point.is_none()));
    assert_eq!(wanted(&sent), [(group, vec![(2, 2), (5, 6), (8, 8)])]);
    let request = sent[0].request().unwrap();
    assert_eq!(
        (request.number, request.nonce, request.token),
        (1, REPAIR_ALONE, 0)
    );
    let stats = lone.receiver.stats();
    assert_eq!((stats.requested_packets, stats.requests_group), (4, 1));
    assert_eq!(stats.lost_packets, 5);
    assert_eq!(stats.frame_bytes, sent[0].bytes.len() as u64 + 42);
}

#[test]
fn without_help_the_source_is_asked_after_a_random_time() {
    let mut lone = Lone::open(80 * BLOCK, |config| {
        config.gap_delay = ms(8);
        config.limits.window_blocks = 128;
    });
    let mut waits = Vec::new();
    for newest in (1..10).map(|gap| 20 * gap) {
        let start = lone.now;
        lone.all_data([newest]);
        let sent = lone.run_for(ms(40));
        let asks = |sent: &&Sent| {
            let packets = wanted(std::slice::from_ref(*sent));
            packets.iter().any(|(to, ranges)| {
                assert_eq!(*to, to_source());
                ranges.last().is_some_and(|range| range.1 == newest - 1)
            })
        };
        let first = sent.iter().find(asks).expect("a request");
        let wait = (first.at - start).total_millis();
        assert!((8..=16).contains(&wait), "{wait} ms");
        waits.push(wait);
    }
    assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
}

#[test]
fn a_request_is_repeated_and_then_goes_to_the_source() {
    let mut lone = Lone::open(4 * BLOCK, |config| {
        lms(config);
        eager(config);
        config.initial_timeout = ms(100);
    });
    lone.all_data([0, 2]);
    let sent = lone.run_to(at(3_000));
    let data: Vec<&Sent> = sent
        .iter()
        .filter(|sent| sent.is(5) && sent.bytes[1] == 0)
        .collect();
    let numbers: Vec<u32> = data
        .iter()
        .map(|sent| sent.request().unwrap().number)
        .collect();
    assert_eq!(numbers[..5], [1, 2, 3, 4, 5]);
    for sent in &data[..3] {
        assert!(matches!(sent.to, Destination::Request(_)));
    }
    for sent in &data[3..] {
        assert_eq!(sent.to, to_source());
        let request = sent.request().unwrap();
        assert_eq!(request.nonce, lone.receiver.id());
    }
    // Twice as long each time, and up to an eighth more; the source has its own time.
    let waits: Vec<u64> = data
        .windows(2)
        .map(|pair| (pair[1].at - pair[0].at).total_millis())
        .collect();
    for (wait, expected) in waits.iter().zip([100, 200, 400, 100, 200]) {
        assert!((expected..=expected * 9 / 8).contains(wait), "{waits:?}");
    }
    // Two that the source has not answered: was the packet ever sent?
    let doubts: Vec<&Sent> = sent
        .iter()
        .filter(|sent| sent.is(5) && sent.bytes[1] == 2)
        .collect();
    assert_eq!(doubts[0].at, data[5].at);
    let stats = lone.receiver.stats();
    assert_eq!(stats.requests_group, 3);
    assert_eq!(stats.requests_source, data.len() as u64 - 3);
    assert_eq!(stats.confirmations, doubts.len() as u64);
}

#[test]
fn a_repair_with_the_tag_of_the_request_gives_the_round_trip() {
    let mut lone = Lone::open(4 * BLOCK, eager);
    lone.all_data([0, 3]);
    let sent = lone.poll();
    assert_eq!(wanted(&sent), [(to_source(), vec![(1, 2)])]);
    let tag = sent[0].request().unwrap().tag;
    lone.now = at(24);
    let to_host = Meta::unicast(source());
    assert_eq!(lone.repair(&to_host, 1, tag.wrapping_add(1)), Ok(()));
    assert_eq!(lone.receiver.round_trip(), None);
    assert_eq!(lone.repair(&to_host, 2, tag), Ok(()));
    assert_eq!(lone.receiver.round_trip(), Some(ms(24)));
    assert_eq!(wanted(&lone.run_to(at(2_000))), [], "nothing is missing");
    // The next request names it.
    lone.all_data([5]);
    let request = requests(&lone.poll(), Kind::Data).remove(0);
    assert_eq!(request.round_trip_us, 24_000);
}

#[test]
fn as_many_packets_are_requested_as_may_be_outstanding() {
    let mut lone = Lone::open(16 * BLOCK, |config| {
        eager(config);
        config.max_outstanding = 10;
        config.limits.requests = 8;
    });
    lone.all_data([63]);
    // Whole blocks, until ten are reached.
    assert_eq!(wanted(&lone.poll()), [(to_source(), vec![(0, 11)])]);
    assert_eq!(lone.receiver.stats().requested_packets, 12);
    for number in 0..3 {
        assert_eq!(lone.repair(&Meta::unicast(source()), number, 0), Ok(()));
    }
    let more = wanted(&lone.poll());
    assert_eq!(more, [(to_source(), vec![(12, 15)])], "nine were left");
    // And as many blocks as the table has room for.
    let mut lone = Lone::open(16 * BLOCK, |config| {
        eager(config);
        config.limits.requests = 2;
    });
    lone.all_data([60]);
    assert_eq!(wanted(&lone.poll()), [(to_source(), vec![(0, 7)])]);
}

#[test]
fn a_heartbeat_names_packets_that_were_lost_at_the_end() {
    let mut lone = Lone::open(2 * BLOCK, eager);
    lone.all_data([0]);
    let heartbeat = lone.heartbeat(7);
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    assert_eq!(wanted(&lone.poll()), [(to_source(), vec![(1, 6)])]);
    assert_eq!(lone.receiver.stats().lost_packets, 6);
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    assert_eq!(lone.receiver.stats().lost_packets, 6);
}

#[test]
fn a_block_that_disagrees_with_a_confirmed_digest_is_requested_again() {
    let mut lone = Lone::open(4 * BLOCK, eager);
    // The digest comes first, and is false; the source confirms it.
    let lie = [[9; 32]];
    let announced = sync::Repr {
        digested: Some(1),
        ..lone.heartbeat(0)
    };
    assert_eq!(lone.sync(&announced), Ok(()));
    assert_eq!(lone.false_digests(0, &lie, None), Ok(()));
    lone.all_data(0..4);
    let sent = lone.run_for(ms(20));
    let question = &requests(&sent, Kind::Digests)[0];
    assert_eq!((question.ranges[0].lo, question.ranges[0].hi), (0, 0));
    assert_ne!(question.nonce, 0);
    assert_eq!(lone.false_digests(0, &lie, Some(question.nonce)), Ok(()));
    let rejected = ReceiverEvent::BlockRejected { block: 0 };
    assert!(lone.events().contains(&rejected));
    assert_eq!(lone.receiver.stats().blocks_rejected, 1);
    let missing = lone.missing();
    assert_eq!(missing, [(0, 4_096)]);
    let again = lone.run_for(ms(20));
    assert_eq!(wanted(&again), [(to_source(), vec![(0, 3)])]);
    // The same bytes come again: now the digest is in doubt.
    for number in 0..4 {
        assert_eq!(lone.repair(&Meta::unicast(source()), number, 1), Ok(()));
    }
    assert_eq!(lone.receiver.stats().digests_rejected, 1);
    assert_eq!(lone.receiver.stats().blocks_rejected, 1);
    let sent = lone.run_for(ms(20));
    let question = &requests(&sent, Kind::Digests)[0];
    assert_eq!(lone.digests(0, 0, Some(question.nonce)), Ok(()));
    assert_eq!(lone.receiver.progress().0, BLOCK as u64);
}

#[test]
fn ranges_that_are_missing_are_named() {
    let mut lone = Lone::open(4 * BLOCK + 300, |_| {});
    let all = Lone::missing;
    lone.all_data([0, 2, 3, 4, 5, 6, 7, 9, 17]);
    let gaps = [(256, 512), (1_024, 2_304), (2_560, 4_352)];
    assert_eq!(
        all(&lone),
        gaps,
        "a block without its digest is missing whole"
    );
    assert_eq!(lone.digests(1, 1, None), Ok(()));
    assert_eq!(all(&lone), [(256, 512), (2_048, 2_304), (2_560, 4_352)]);
    lone.all_data([1]);
    assert_eq!(lone.digests(0, 0, None), Ok(()));
    assert_eq!(all(&lone), [(2_048, 2_304), (2_560, 4_352)]);
    lone.all_data([8, 10, 11, 12, 13, 14, 15]);
    assert_eq!(lone.digests(2, 3, None), Ok(()));
    assert_eq!(all(&lone), [(4_096, 4_352)]);
    // Of a stream all that follows is missing.
    let mut lone = Lone::new(4 * BLOCK, |_| {});
    let heartbeat = sync::Repr {
        length: None,
        stream: true,
        ..lone.heartbeat(0)
    };
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    lone.all_data([0, 1]);
    assert_eq!(all(&lone), [(512, u64::MAX)]);
    lone.all_data([2, 3]);
    assert_eq!(all(&lone), [(0, u64::MAX)]);
    assert_eq!(lone.digests(0, 0, None), Ok(()));
    assert_eq!(all(&lone), [(1_024, u64::MAX)]);
}

#[test]
fn the_sequence_wraps() {
    // Packet 6 is the first after the wrap.
    assert_eq!(seq(6), 0);
    let mut lone = Lone::open(4 * BLOCK, eager);
    lone.all_data([0, 9]);
    assert_eq!(wanted(&lone.poll()), [(to_source(), vec![(1, 8)])]);
    for number in 1..9 {
        assert_eq!(lone.repair(&Meta::unicast(source()), number, 0), Ok(()));
    }
    lone.finish();
    assert!(lone.receiver.is_complete());
}

#[test]
fn requests_keep_to_their_rate() {
    let mut lone = Lone::open(16 * BLOCK, |config| {
        eager(config);
        config.requests_per_second = 20;
        config.initial_timeout = ms(5_000);
        config.max_timeout = ms(5_000);
    });
    let mut sent = Vec::new();
    for number in (0..20).step_by(2) {
        lone.all_data([number]);
        sent.extend(lone.poll());
    }
    assert_eq!(wanted(&sent).len(), 4, "as many at once");
    // The rest goes in one, 50 ms later.
    let sent = lone.run_to(at(1_000));
    assert_eq!(wanted(&sent).len(), 1);
    assert_eq!(sent[0].at, at(50));
}

#[test]
fn four_hundred_bytes_have_room_for_any_request() {
    let mut lone = Lone::open(4 * BLOCK, eager);
    lone.all_data([0, 2]);
    let poll = |lone: &mut Lone, len: usize| {
        let transmit = lone.receiver.poll_transmit(lone.now, &mut vec![0; len]);
        transmit.is_some()
    };
    assert!(!poll(&mut lone, 399));
    assert!(poll(&mut lone, 400));
}

#[test]
fn a_heartbeat_that_says_nothing_new_causes_no_search() {
    let mut lone = Lone::open(4 * BLOCK, |_| {});
    lone.all_data(0..2);
    let before = lone.receiver.poll_timeout();
    let heartbeat = lone.heartbeat(2);
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    assert_eq!(lone.receiver.poll_timeout(), before);
}
