//! A receiver as replier: which requests of others it answers.

use lms_proto::Kind as OptionKind;
use ltp::digest::Digest;
use ltp::store::HeapRing;
use ltp::wire::request::{self, Kind, Range};
use ltp::wire::{Seq, data, digests, sync};
use ltp::{Destination, Error, Failure, Geometry, Meta, ReceiverConfig, SessionId};

use super::{BLOCK, Lone, SESSION, Sent, at, content, host, ms, point, seq, source, turned};

fn ask(lone: &mut Lone, meta: &Meta, repr: &request::Repr) -> Result<(), Error> {
    let mut packet = vec![0; repr.buffer_len()];
    repr.emit(&mut packet);
    lone.handle(meta, &packet)
}

fn request(kind: Kind, lo: u32, hi: u32) -> request::Repr {
    let mut repr = request::Repr {
        kind,
        tag: 0x0506,
        session: SESSION,
        number: 1,
        round_trip_us: 0,
        token: 0,
        nonce: 0,
        ranges: Default::default(),
    };
    let _ = repr.ranges.push(Range { lo, hi });
    repr
}

fn packets(lo: u32, hi: u32) -> request::Repr {
    request(Kind::Data, seq(lo), seq(hi))
}

/// The numbers of the packets that were repaired.
fn repaired(sent: &[Sent]) -> Vec<u32> {
    let number = |sent: &Sent| {
        assert_eq!(sent.to, Destination::Dmcast(point()));
        assert_eq!(sent.bytes[2..4], [5, 6], "the tag of the request");
        u32::from_be_bytes(sent.bytes[8..12].try_into().unwrap()).wrapping_sub(seq(0))
    };
    sent.iter().filter(|sent| sent.is(2)).map(number).collect()
}

/// A receiver that has the first three blocks but for packet 6, of four.
fn replier(configure: impl FnOnce(&mut ReceiverConfig)) -> Lone {
    let mut lone = Lone::open(4 * BLOCK, |config| {
        config.assist = ltp::Assist::Lms;
        config.gap_delay = ms(10_000);
        configure(config);
    });
    lone.all_data((0..12).filter(|number| *number != 6));
    assert_eq!(lone.digests(0, 0, None), Ok(()));
    assert_eq!(lone.digests(2, 2, None), Ok(()));
    lone
}

#[test]
fn packets_that_are_stored_go_to_the_turning_point_once() {
    let mut lone = replier(|_| {});
    assert_eq!(ask(&mut lone, &turned(), &packets(2, 7)), Ok(()));
    let sent = lone.poll();
    let mut numbers = repaired(&sent);
    numbers.sort_unstable();
    assert_eq!(numbers, [2, 3, 4, 5, 7]);
    for repair in &sent {
        let number = repaired(std::slice::from_ref(repair))[0] as usize;
        assert_eq!(repair.bytes[16..], lone.content[number * 256..][..256]);
    }
    let stats = lone.receiver.stats();
    assert_eq!((stats.requests_taken, stats.repairs_sent), (1, 5));
    assert_eq!(stats.frame_bytes, 5 * (256 + 16 + 42));
    // They are held down for 20 ms.
    lone.run_to(at(19));
    let held = ask(&mut lone, &turned(), &packets(2, 7));
    assert_eq!(held, Err(Error::RequestHeldDown));
    assert_eq!(ask(&mut lone, &turned(), &packets(1, 7)), Ok(()));
    assert_eq!(repaired(&lone.poll()), [1]);
    lone.run_to(at(20));
    assert_eq!(ask(&mut lone, &turned(), &packets(2, 2)), Ok(()));
    assert_eq!(repaired(&lone.poll()), [2]);
}

#[test]
fn what_is_not_stored_is_not_answered() {
    let mut lone = replier(|_| {});
    let not_stored = Err(Error::RequestNotStored);
    assert_eq!(ask(&mut lone, &turned(), &packets(6, 6)), not_stored);
    let unsent = ask(&mut lone, &turned(), &packets(12, 15));
    assert_eq!(unsent, Err(Error::RequestUnsent));
    assert_eq!(ask(&mut lone, &turned(), &packets(11, 15)), Ok(()));
    assert_eq!(repaired(&lone.poll()), [11]);
    let mut repr = packets(6, 6);
    let _ = repr.ranges.push(Range {
        lo: seq(8),
        hi: seq(8),
    });
    assert_eq!(ask(&mut lone, &turned(), &repr), Ok(()));
    assert_eq!(repaired(&lone.poll()), [8]);
}

#[test]
fn requests_that_are_not_for_this_replier_are_dropped() {
    let mut lone = Lone::new(4 * BLOCK, |_| {});
    let repr = packets(0, 0);
    assert_eq!(ask(&mut lone, &turned(), &repr), Err(Error::BeforeSync));
    let mut lone = replier(|_| {});
    let by_unicast = ask(&mut lone, &Meta::unicast(host(9)), &repr);
    assert_eq!(by_unicast, Err(Error::RequestUnicast));
    let plain = ask(&mut lone, &Meta::group(host(9)), &repr);
    assert_eq!(plain, Err(Error::NotTurned));
    let mut meta = turned();
    meta.option.as_mut().unwrap().turning_point = None;
    assert_eq!(ask(&mut lone, &meta, &repr), Err(Error::NotTurned));
    let mut meta = turned();
    meta.elected = false;
    assert_eq!(ask(&mut lone, &meta, &repr), Err(Error::NotElected));
    let mut meta = turned();
    meta.option.as_mut().unwrap().group = host(9).ip();
    assert_eq!(ask(&mut lone, &meta, &repr), Err(Error::OptionMismatch));
    let mut meta = turned();
    meta.option.as_mut().unwrap().source = host(9).ip();
    assert_eq!(ask(&mut lone, &meta, &repr), Err(Error::OptionMismatch));
    let mut meta = turned();
    meta.option.as_mut().unwrap().kind = OptionKind::Dmcast;
    assert_eq!(ask(&mut lone, &meta, &repr), Err(Error::OptionMismatch));
    let other = request::Repr {
        session: SessionId(1),
        ..repr.clone()
    };
    let other = ask(&mut lone, &turned(), &other);
    assert_eq!(other, Err(Error::OtherSession));
    for kind in [Kind::Sync, Kind::Left] {
        let refused = ask(&mut lone, &turned(), &request(kind, 1, 1));
        assert_eq!(refused, Err(Error::Unexpected));
    }
    assert_eq!(lone.poll().len(), 0);
    let mut lone = replier(|config| config.replier.enabled = false);
    assert_eq!(ask(&mut lone, &turned(), &repr), Err(Error::Ended));
}

#[test]
fn one_request_gets_32_blocks_at_most() {
    let mut lone = Lone::open(64 * BLOCK, |config| {
        config.limits.window_blocks = 64;
        config.limits.repairs = 64;
        config.replier.rate_bps = 1_000_000_000;
        config.replier.turning_point_rate_bps = 1_000_000_000;
    });
    lone.all_data(0..160);
    let mut repr = packets(0, 79);
    let _ = repr.ranges.push(Range {
        lo: seq(80),
        hi: seq(159),
    });
    assert_eq!(ask(&mut lone, &turned(), &repr), Ok(()));
    let mut numbers = repaired(&lone.run_for(ms(10)));
    numbers.sort_unstable();
    assert_eq!(numbers, (0..128).collect::<Vec<_>>());
}

#[test]
fn a_ring_gives_what_it_still_has() {
    let store = HeapRing::new(4 * BLOCK);
    let mut lone = Lone::with_store(content(16 * BLOCK), store, |_| {});
    let heartbeat = lone.heartbeat(0);
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    for block in 0..6u32 {
        lone.all_data(4 * block..4 * block + 4);
        assert_eq!(lone.digests(block as usize, block as usize, None), Ok(()));
    }
    let gone = ask(&mut lone, &turned(), &packets(4, 7));
    assert_eq!(gone, Err(Error::RequestNotStored));
    assert_eq!(ask(&mut lone, &turned(), &packets(4, 8)), Ok(()));
    assert_eq!(repaired(&lone.poll()), [8]);
    // What is overwritten before it was sent is not sent.
    assert_eq!(ask(&mut lone, &turned(), &packets(9, 12)), Ok(()));
    lone.all_data(24..28);
    assert_eq!(repaired(&lone.poll()), [12]);
}

/// The values of the digests that were sent, and the first block.
fn digests_of(sent: &[Sent]) -> Option<(u32, Vec<Digest>)> {
    let sent = sent.iter().find(|sent| sent.is(4))?;
    assert_eq!(sent.to, Destination::Dmcast(point()));
    let (repr, values) = digests::Repr::parse(&sent.bytes).unwrap();
    assert!(repr.answer.is_none() && !repr.left);
    Some((repr.first_block, values.to_vec()))
}

#[test]
fn digests_of_verified_blocks_are_answered_once() {
    let mut lone = replier(|_| {});
    let digests = |lo, hi| request(Kind::Digests, lo, hi);
    let not_stored = Err(Error::RequestNotStored);
    assert_eq!(ask(&mut lone, &turned(), &digests(1, 2)), not_stored);
    assert_eq!(ask(&mut lone, &turned(), &digests(3, 3)), not_stored);
    assert_eq!(ask(&mut lone, &turned(), &digests(2, 3)), Ok(()));
    let value = lone.values()[2];
    assert_eq!(digests_of(&lone.poll()), Some((2, vec![value])));
    let held = ask(&mut lone, &turned(), &digests(2, 2));
    assert_eq!(held, Err(Error::RequestHeldDown));
    // Packet 2 is another number.
    assert_eq!(ask(&mut lone, &turned(), &packets(2, 2)), Ok(()));
    assert_eq!(repaired(&lone.poll()), [2]);
    let stats = lone.receiver.stats();
    assert_eq!((stats.requests_taken, stats.digests_sent), (2, 1));
    lone.run_to(at(20));
    assert_eq!(ask(&mut lone, &turned(), &digests(2, 2)), Ok(()));
    assert!(digests_of(&lone.poll()).is_some());
}

#[test]
fn four_answers_with_digests_wait_at_most() {
    let mut lone = Lone::open(8 * BLOCK, |_| {});
    lone.all_data(0..32);
    assert_eq!(lone.digests(0, 7, None), Ok(()));
    for block in 0..4 {
        let repr = request(Kind::Digests, block, block);
        assert_eq!(ask(&mut lone, &turned(), &repr), Ok(()));
    }
    let full = ask(&mut lone, &turned(), &request(Kind::Digests, 4, 4));
    assert_eq!(full, Err(Error::AnswersFull));
    let sent = lone.poll();
    assert_eq!(sent.iter().filter(|sent| sent.is(4)).count(), 4);
    let again = ask(&mut lone, &turned(), &request(Kind::Digests, 4, 7));
    assert_eq!(again, Ok(()));
    let (first, values) = digests_of(&lone.poll()).unwrap();
    assert_eq!((first, &values[..]), (4, &lone.values()[4..8]));
    // No more than fit a packet of the source, which has 268 bytes.
    lone.run_for(ms(20));
    let all = ask(&mut lone, &turned(), &request(Kind::Digests, 0, 7));
    assert_eq!(all, Ok(()));
    let (first, values) = digests_of(&lone.poll()).unwrap();
    assert_eq!((first, &values[..]), (0, &lone.values()[..7]));
    assert_eq!(lone.poll().len(), 0);
}

#[test]
fn repairs_keep_to_the_rate_of_the_replier() {
    let mut lone = replier(|config| {
        // 310 bytes of a frame take 31 ms.
        config.replier.rate_bps = 80_000;
        config.replier.turning_point_rate_bps = 1_000_000;
        config.replier.hold_down = ms(0);
    });
    let mut sent = Vec::new();
    for _ in 0..100 {
        let _ = ask(&mut lone, &turned(), &packets(0, 3));
        sent.extend(lone.run_for(ms(31)));
    }
    // Two of the longest packets of digests at once, and one in each step.
    let count = sent.iter().filter(|sent| sent.is(2)).count();
    assert!((111..=114).contains(&count), "{count}");
}

#[test]
fn a_receiver_below_makes_requests_be_for_others() {
    let mut lone = Lone::open(4 * BLOCK, |config| {
        config.assist = ltp::Assist::Lms;
        config.gap_delay = ms(0);
    });
    lone.all_data([0, 2]);
    let nonce = |sent: &[Sent]| super::requests(sent, Kind::Data)[0].nonce;
    assert_eq!(nonce(&lone.poll()), request::REPAIR_ALONE);
    assert_eq!(ask(&mut lone, &turned(), &packets(0, 0)), Ok(()));
    lone.poll();
    lone.all_data([4]);
    assert_eq!(nonce(&lone.poll()), 0);
}

/// What has just come to this host by way of the group comes to the receivers below it, too.
#[test]
fn what_was_just_repaired_to_all_is_not_repaired_again() {
    let held = |meta: &Meta, after: i64| {
        let mut lone = replier(|_| {});
        assert_eq!(lone.repair(meta, 6, 1), Ok(()));
        lone.now = at(after);
        ask(&mut lone, &turned(), &packets(6, 6))
    };
    let to_group = Meta::group(source());
    assert_eq!(held(&to_group, 0), Err(Error::RequestHeldDown));
    assert_eq!(held(&to_group, 19), Err(Error::RequestHeldDown));
    assert_eq!(held(&to_group, 20), Ok(()));
    assert_eq!(held(&Meta::unicast(source()), 0), Ok(()), "it came alone");
}

/// A frame of 9,000 bytes is longer than what may be sent at once at these rates.
#[test]
fn long_packets_are_repaired_at_low_rates_too() {
    for (rate_bps, point_bps) in [(1_000_000_000, 100_000), (100_000, 1_000_000_000)] {
        let mut lone = Lone::with_store(vec![], HeapRing::new(2 << 16), |config| {
            config.replier.rate_bps = rate_bps;
            config.replier.turning_point_rate_bps = point_bps;
        });
        let heartbeat = sync::Repr {
            geometry: Geometry::new(16, 8_948, Seq(seq(0))).unwrap(),
            length: Some(1 << 16),
            ..lone.heartbeat(0)
        };
        assert_eq!(lone.sync(&heartbeat), Ok(()));
        for number in 0..3 {
            let mut packet = vec![7; 8_948 + data::DATA_HEADER_LEN];
            data::Repr {
                repair: None,
                session: SESSION,
                sequence: Seq(seq(number)),
                number: None,
            }
            .emit(&mut packet);
            assert_eq!(lone.handle(&Meta::group(source()), &packet), Ok(()));
        }
        assert_eq!(ask(&mut lone, &turned(), &packets(0, 2)), Ok(()));
        // Two at once, and one after 720 ms.
        let mut sent = lone.run_for(ms(0));
        assert_eq!(repaired(&sent), [0, 1]);
        sent = lone.run_for(ms(719));
        assert_eq!(repaired(&sent), []);
        sent = lone.run_for(ms(2));
        assert_eq!(repaired(&sent), [2]);
    }
}

#[test]
fn a_replier_says_when_the_next_repair_may_go() {
    let mut lone = replier(|config| {
        config.replier.rate_bps = 80_000;
        config.replier.hold_down = ms(0);
    });
    assert_eq!(ask(&mut lone, &turned(), &packets(0, 11)), Ok(()));
    assert_eq!(lone.poll().iter().filter(|sent| sent.is(2)).count(), 11);
    // Two more at once, and then one in 31 ms.
    assert_eq!(ask(&mut lone, &turned(), &packets(0, 11)), Ok(()));
    let sent = lone.run_for(ms(400));
    let times: Vec<_> = sent
        .iter()
        .filter(|sent| sent.is(2))
        .map(|sent| sent.at)
        .collect();
    assert_eq!(times.len(), 11);
    for pair in times[2..].windows(2) {
        let took = (pair[1] - pair[0]).total_millis();
        assert!((30..=31).contains(&took), "{took} ms");
    }
}

#[test]
fn digests_keep_to_the_rate_of_the_replier_too() {
    for (rate_bps, point_bps) in [(80_000, 1_000_000), (1_000_000, 80_000)] {
        let mut lone = replier(|config| {
            config.replier.rate_bps = rate_bps;
            config.replier.turning_point_rate_bps = point_bps;
            config.replier.hold_down = ms(0);
        });
        let mut sent = Vec::new();
        for _ in 0..250 {
            let _ = ask(&mut lone, &turned(), &request(Kind::Digests, 0, 0));
            sent.extend(lone.run_for(ms(4)));
        }
        // A frame of 94 bytes; ten bytes a millisecond, and 4,252 at once.
        let count = sent.iter().filter(|sent| sent.is(4)).count();
        assert!((149..=152).contains(&count), "{count}");
        let frames = sent.iter().map(|sent| sent.bytes.len() as u64 + 42);
        assert_eq!(lone.receiver.stats().frame_bytes, frames.sum::<u64>());
    }
}

#[test]
fn packets_of_a_block_that_proves_wrong_are_not_sent() {
    let mut lone = Lone::open(4 * BLOCK, |config| config.gap_delay = ms(0));
    let lie = [[9; 32]];
    assert_eq!(lone.false_digests(0, &lie, None), Ok(()));
    lone.all_data(0..5);
    let sent = lone.run_for(ms(20));
    let nonce = super::requests(&sent, Kind::Digests)[0].nonce;
    assert_eq!(ask(&mut lone, &turned(), &packets(0, 4)), Ok(()));
    assert_eq!(lone.false_digests(0, &lie, Some(nonce)), Ok(()));
    assert_eq!(repaired(&lone.poll()), [4]);
}

#[test]
fn a_replier_says_when_the_next_digests_may_go() {
    for (key, frame) in [(None, 286), (Some([7; 32]), 302)] {
        let mut lone = Lone::open(8 * BLOCK, |config| {
            config.key = key;
            config.replier.rate_bps = 80_000;
            config.replier.hold_down = ms(0);
        });
        lone.all_data(0..32);
        assert_eq!(lone.digests(0, 7, None), Ok(()));
        // Two of the longest packets of digests at once.
        let digests = request(Kind::Digests, 0, 6);
        let mut count = 0;
        while ask(&mut lone, &turned(), &digests) == Ok(()) && !lone.poll().is_empty() {
            count += 1;
        }
        assert_eq!(count, 4_252 / frame);
        for _ in 0..3 {
            assert_eq!(ask(&mut lone, &turned(), &digests), Ok(()));
        }
        // Ten bytes a millisecond.
        let sent = lone.run_for(ms(200));
        let times: Vec<_> = sent.iter().map(|sent| sent.at).collect();
        assert_eq!(times.len(), 4);
        for pair in times.windows(2) {
            assert_eq!((pair[1] - pair[0]).total_micros(), 100 * frame);
        }
    }
}

#[test]
fn digests_under_a_key_are_no_longer_than_the_sources_packets_either() {
    let mut lone = Lone::open(8 * BLOCK, |config| config.key = Some([7; 32]));
    lone.all_data(0..32);
    assert_eq!(lone.digests(0, 7, None), Ok(()));
    assert_eq!(
        ask(&mut lone, &turned(), &request(Kind::Digests, 0, 7)),
        Ok(())
    );
    let sent = lone.poll();
    let (first, values) = digests_of(&sent).unwrap();
    assert_eq!((first, values.len()), (0, 7));
    // With the authenticator.
    let len = sent[0].bytes.len() + 16;
    assert!(len <= Lone::geometry().packet_len(), "{len} bytes");
    assert_eq!(lone.receiver.stats().frame_bytes, len as u64 + 42);
}

/// A receiver that has got all of that many blocks in packets of 528 bytes, two a block.
fn long_packets(blocks: usize) -> Lone {
    let mut lone = Lone::new(blocks * BLOCK, |_| {});
    let heartbeat = sync::Repr {
        geometry: Geometry::new(10, 512, Seq(seq(0))).unwrap(),
        ..lone.heartbeat(0)
    };
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    let payloads: Vec<_> = lone.content.chunks(512).map(<[u8]>::to_vec).collect();
    for (number, payload) in (0..).zip(payloads) {
        let mut packet = vec![0; data::DATA_HEADER_LEN];
        data::Repr {
            repair: None,
            session: SESSION,
            sequence: Seq(seq(number)),
            number: None,
        }
        .emit(&mut packet);
        packet.extend(payload);
        assert_eq!(lone.handle(&Meta::group(source()), &packet), Ok(()));
    }
    assert_eq!(lone.digests(0, blocks - 1, None), Ok(()));
    lone
}

#[test]
fn a_buffer_shorter_than_an_answer_gets_nothing() {
    let into = |lone: &mut Lone, len: usize| {
        let transmit = lone.receiver.poll_transmit(lone.now, &mut vec![0; len]);
        transmit.map(|transmit| transmit.len)
    };
    let mut lone = long_packets(12);
    assert_eq!(ask(&mut lone, &turned(), &packets(3, 3)), Ok(()));
    assert_eq!(into(&mut lone, 527), None);
    assert_eq!(into(&mut lone, 528), Some(528));
    // Digests are then asked for again.
    let digests = request(Kind::Digests, 0, 11);
    assert_eq!(ask(&mut lone, &turned(), &digests), Ok(()));
    assert_eq!(into(&mut lone, 403), None);
    assert_eq!(into(&mut lone, 404), None);
    lone.run_for(ms(20));
    assert_eq!(ask(&mut lone, &turned(), &digests), Ok(()));
    assert_eq!(into(&mut lone, 404), Some(404));
}

#[test]
fn a_receiver_that_has_given_up_repairs_nothing() {
    let mut lone = replier(|config| config.source_timeout = ms(1_000));
    assert_eq!(ask(&mut lone, &turned(), &packets(0, 3)), Ok(()));
    let digests = request(Kind::Digests, 0, 0);
    assert_eq!(ask(&mut lone, &turned(), &digests), Ok(()));
    // Three times as long as a live source is silent.
    lone.now = at(1_500);
    lone.receiver.handle_timeout(lone.now);
    assert_eq!(lone.failure(), Some(Failure::SourceLost));
    assert_eq!(lone.poll().len(), 0);
    let refused = ask(&mut lone, &turned(), &packets(0, 3));
    assert_eq!(refused, Err(Error::Ended));
}
