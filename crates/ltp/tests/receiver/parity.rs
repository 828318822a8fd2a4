//! Parity step by step: what it takes from requests that wait, what a replier subtracts because it has just come to all
//! receivers, and blocks that it restores wrongly.

use ltp::wire::parity::{self, PARITY_HEADER_LEN};
use ltp::wire::request::{self, Kind, Range};
use ltp::wire::sync;
use ltp::{Assist, Destination, Error, Meta, ReceiverConfig, ReceiverEvent};

use super::{BLOCK, Lone, PAYLOAD, SESSION, Sent, at, ms, requests, seq, source, turned};

/// Packets of a block.
const PER_BLOCK: usize = BLOCK / PAYLOAD;

fn with_parity(heartbeat: sync::Repr<'static>) -> sync::Repr<'static> {
    sync::Repr {
        parity: true,
        ..heartbeat
    }
}

/// A receiver of a source that makes parity; gaps are requested at once.
fn open(blocks: usize, configure: impl FnOnce(&mut ReceiverConfig)) -> Lone {
    let mut lone = Lone::new(blocks * BLOCK, |config| {
        config.gap_delay = ms(0);
        configure(config);
    });
    let heartbeat = with_parity(lone.heartbeat(0));
    assert_eq!(lone.sync(&heartbeat), Ok(()));
    lone
}

/// The parity packet with that index of a block, as its bytes are in `lone.content` now.
fn parity_packet(lone: &Lone, block: usize, index: u8, tag: u16) -> Vec<u8> {
    let bytes = &lone.content[block * BLOCK..][..BLOCK];
    let shards = reed_solomon_simd::encode(PER_BLOCK, PER_BLOCK, bytes.chunks(PAYLOAD));
    let shards = shards.expect("parity of four packets");
    let mut packet = vec![0; PARITY_HEADER_LEN];
    parity::Repr {
        tag,
        session: SESSION,
        block: block as u32,
        number: None,
        index,
        packets: PER_BLOCK as u8,
    }
    .emit(&mut packet);
    packet.extend_from_slice(&shards[usize::from(index)]);
    packet
}

/// Parity of a block comes to the group.
fn parity(lone: &mut Lone, block: usize, index: u8, tag: u16) {
    let packet = parity_packet(lone, block, index, tag);
    assert_eq!(lone.handle(&Meta::group(source()), &packet), Ok(()));
}

/// The packets that a request of that kind names, by number.
fn named(sent: &[Sent], kind: Kind) -> Vec<(u32, u32)> {
    let requests = requests(sent, kind);
    let ranges = requests.iter().flat_map(|request| &request.ranges);
    let number = |sequence: u32| sequence.wrapping_sub(seq(0));
    let ranges = ranges.map(|range| (number(range.lo), number(range.hi)));
    ranges.collect()
}

/// Runs until the receiver requests packets.
fn until_request(lone: &mut Lone) -> Vec<Sent> {
    for _ in 0..1_000 {
        let sent = lone.run_for(ms(1));
        if !named(&sent, Kind::DataOrParity).is_empty() {
            return sent;
        }
    }
    panic!("nothing is requested");
}

#[test]
fn parity_that_comes_shortens_the_request_that_waits() {
    // Only parity with the tag of the request measures the round trip.
    for (answers, round_trip_us) in [(true, 7_000), (false, 0)] {
        let mut lone = open(2, |_| {});
        lone.all_data(3..8);
        let first = lone.run_for(ms(0));
        assert_eq!(named(&first, Kind::DataOrParity), [(0, 2)]);
        let tag = requests(&first, Kind::DataOrParity)[0].tag;
        let tag = if answers { tag } else { tag + 1 };
        lone.run_for(ms(7));
        parity(&mut lone, 0, 1, tag);
        // One parity packet of three came: two are requested again.
        let second = until_request(&mut lone);
        assert_eq!(named(&second, Kind::DataOrParity), [(0, 1)]);
        let repeated = &requests(&second, Kind::DataOrParity)[0];
        assert_eq!(repeated.round_trip_us, round_trip_us);
        assert_eq!(lone.receiver.stats().requested_packets, 3 + 2);
        // A packet that is no longer requested shortens it as well.
        assert_eq!(lone.repair(&Meta::group(source()), 2, 1), Ok(()));
        assert_eq!(lone.receiver.stats().restored_packets, 0);
        let third = until_request(&mut lone);
        assert_eq!(named(&third, Kind::DataOrParity), [(0, 0)]);
        parity(&mut lone, 0, 3, tag);
        assert_eq!(lone.receiver.stats().restored_packets, 2);
        assert_eq!(lone.digests(0, 1, None), Ok(()));
        assert_eq!(lone.receiver.progress().0, 2 * BLOCK as u64);
        let rest = lone.run_for(ms(1_000));
        assert_eq!(named(&rest, Kind::DataOrParity), []);
        assert_eq!(lone.receiver.store().as_bytes(), lone.content);
    }
}

#[test]
fn a_gap_takes_the_place_in_the_table_that_parity_frees() {
    let mut lone = open(3, |config| config.limits.requests = 1);
    lone.all_data((0..9).filter(|number| ![2, 5].contains(number)));
    assert_eq!(named(&lone.run_for(ms(5)), Kind::DataOrParity), [(2, 2)]);
    // Without its digest the block is not final.
    parity(&mut lone, 0, 0, 1);
    assert_eq!(lone.receiver.stats().restored_packets, 1);
    assert_eq!(named(&lone.run_for(ms(5)), Kind::DataOrParity), [(5, 5)]);
}

/// An elected replier that has both blocks.
fn replier() -> Lone {
    let mut lone = open(2, |config| config.assist = Assist::Lms);
    lone.all_data(0..8);
    assert_eq!(lone.digests(0, 0, None), Ok(()));
    lone
}

/// Requests that many packets of a block, or their parity. Returns how many parity packets are the answer.
fn ask(lone: &mut Lone, block: u32, count: u32) -> Result<usize, Error> {
    let mut repr = request::Repr {
        kind: Kind::DataOrParity,
        tag: 0x0506,
        session: SESSION,
        number: 1,
        round_trip_us: 0,
        token: 0,
        nonce: 0,
        ranges: Default::default(),
    };
    let lo = seq(block * PER_BLOCK as u32);
    let hi = lo.wrapping_add(count - 1);
    let _ = repr.ranges.push(Range { lo, hi });
    let mut packet = vec![0; repr.buffer_len()];
    repr.emit(&mut packet);
    lone.handle(&turned(), &packet)?;
    let sent = lone.poll();
    assert!(sent.iter().all(|sent| sent.is(10)));
    Ok(sent.len())
}

#[test]
fn a_replier_subtracts_parity_that_has_just_come_to_all() {
    // Of a block that is final, and of one that waits for its digest.
    for block in [0, 1] {
        let mut lone = replier();
        parity(&mut lone, block as usize, 0, 9);
        assert_eq!(ask(&mut lone, block, 1), Err(Error::RequestHeldDown));
        assert_eq!(ask(&mut lone, block, 3), Ok(2));
        // It was for requests that were on their way: 20 ms later it counts no more.
        lone.run_to(at(20));
        assert_eq!(ask(&mut lone, block, 3), Ok(3));
    }
    let mut lone = replier();
    parity(&mut lone, 0, 0, 9);
    parity(&mut lone, 0, 1, 9);
    assert_eq!(ask(&mut lone, 0, 3), Ok(1));
    assert_eq!(ask(&mut lone, 1, 3), Ok(3), "another block");
}

#[test]
fn a_replier_does_not_subtract_parity_that_came_to_it_alone() {
    let mut lone = replier();
    let packet = parity_packet(&lone, 0, 0, 9);
    assert_eq!(lone.handle(&Meta::unicast(source()), &packet), Ok(()));
    assert_eq!(ask(&mut lone, 0, 3), Ok(3));
}

/// Requests are for what is lacking beside parity that was sent in advance.
#[test]
fn a_replier_does_not_subtract_parity_in_advance() {
    let mut lone = replier();
    parity(&mut lone, 0, 0, 0);
    assert_eq!(ask(&mut lone, 0, 1), Ok(1));
    assert_eq!(ask(&mut lone, 0, 3), Ok(2), "the first was just sent");
}

/// The source confirms the digest that this receiver doubts.
fn settle(lone: &mut Lone, block: usize) {
    let sent = lone.run_for(ms(20));
    answer(lone, &sent, block);
}

/// The answer to the request for that digest.
fn answer(lone: &mut Lone, sent: &[Sent], block: usize) {
    let nonce = requests(sent, Kind::Digests)[0].nonce;
    assert_eq!(lone.digests(block, block, Some(nonce)), Ok(()));
}

/// Parity of other bytes than those of that block.
fn spoil(lone: &mut Lone, block: usize) {
    let mut packet = parity_packet(lone, block, 0, 1);
    packet[PARITY_HEADER_LEN] ^= 1;
    assert_eq!(lone.handle(&Meta::group(source()), &packet), Ok(()));
}

#[test]
fn a_block_that_parity_spoilt_is_requested_from_the_source_as_packets() {
    let to_source = Destination::Unicast(source());
    for assist in [Assist::None, Assist::Lms] {
        let mut lone = open(3, |config| config.assist = assist);
        lone.all_data((0..12).filter(|number| *number != 2));
        assert_eq!(lone.digests(0, 2, None), Ok(()));
        spoil(&mut lone, 0);
        assert_eq!(lone.receiver.stats().restored_packets, 1);
        settle(&mut lone, 0);
        let stats = lone.receiver.stats();
        assert_eq!((stats.restored_wrongly, stats.blocks_rejected), (1, 1));
        let rejected = ReceiverEvent::BlockRejected { block: 0 };
        assert!(lone.events().contains(&rejected));
        // Neither its parity is asked for again, nor is it taken.
        let sent = lone.run_for(ms(1_000));
        assert_eq!(named(&sent, Kind::DataOrParity), []);
        assert_eq!(named(&sent, Kind::Data)[0], (0, 3));
        let asks = |sent: &&Sent| sent.request().is_some_and(|one| one.kind == Kind::Data);
        assert!(sent.iter().filter(asks).all(|sent| sent.to == to_source));
        parity(&mut lone, 0, 1, 1);
        let stats = lone.receiver.stats();
        assert_eq!((stats.parity, stats.parity_lost), (1, 1));
        for number in 0..4 {
            assert_eq!(lone.repair(&Meta::unicast(source()), number, 1), Ok(()));
        }
        let last = with_parity(lone.last_heartbeat());
        assert_eq!(lone.sync(&last), Ok(()));
        let complete = ReceiverEvent::Complete {
            length: 3 * BLOCK as u64,
            digest: Some(lone.digest()),
        };
        assert_eq!(lone.events().last(), Some(&complete));
        assert_eq!(lone.receiver.store().as_bytes(), lone.content);
    }
}

/// The request for it waits until there is room in the table.
#[test]
fn a_spoilt_block_is_requested_as_packets_when_there_was_no_room_for_its_request() {
    let mut lone = open(3, |config| {
        config.assist = Assist::Lms;
        config.limits.requests = 1;
    });
    lone.all_data((0..4).filter(|number| *number != 2));
    assert_eq!(lone.digests(0, 2, None), Ok(()));
    lone.all_data([4, 6, 7, 8]);
    spoil(&mut lone, 0);
    // The gap of the next block takes the only entry.
    let sent = lone.run_for(ms(5));
    assert_eq!(named(&sent, Kind::DataOrParity), [(5, 5)]);
    answer(&mut lone, &sent, 0);
    assert_eq!(lone.receiver.stats().restored_wrongly, 1);
    assert_eq!(lone.repair(&Meta::group(source()), 5, 1), Ok(()));
    let sent = lone.run_for(ms(5));
    assert_eq!(named(&sent, Kind::DataOrParity), []);
    assert_eq!(named(&sent, Kind::Data), [(0, 3)]);
}

#[test]
fn after_eight_spoilt_blocks_packets_are_requested() {
    let mut lone = open(12, |_| {});
    for block in 0..10 {
        let first = (block * PER_BLOCK) as u32;
        let spoils = block < 8;
        lone.all_data((first..first + 4).filter(|number| *number != first + 1));
        assert_eq!(lone.digests(block, block, None), Ok(()));
        lone.all_data([first + 4]);
        let sent = lone.run_for(ms(0));
        let kind = if spoils {
            Kind::DataOrParity
        } else {
            Kind::Data
        };
        assert_eq!(named(&sent, kind), [(first + 1, first + 1)]);
        if spoils {
            spoil(&mut lone, block);
            settle(&mut lone, block);
        } else {
            // Right or wrong, it is not taken.
            parity(&mut lone, block, 0, 1);
            assert_eq!(lone.receiver.stats().parity, 8);
        }
        for number in first..first + 4 {
            let _ = lone.repair(&Meta::unicast(source()), number, 1);
        }
        lone.run_for(ms(0));
        assert_eq!(lone.receiver.progress().0, ((block + 1) * BLOCK) as u64);
    }
    assert_eq!(lone.receiver.stats().restored_wrongly, 8);
}

/// Block 0 was restored. Block 1 was restored too, but from forged packets and parity, and its forged digest fits.
#[test]
fn an_audit_upholds_what_parity_restored_and_finds_a_changed_packet() {
    let mut lone = open(4, |_| {});
    let truth = lone.content.clone();
    lone.content[BLOCK + 3 * PAYLOAD] ^= 1;
    lone.all_data((0..16).filter(|number| ![1, 2, 4].contains(number)));
    for (block, index) in [(0, 3), (0, 0), (1, 2)] {
        parity(&mut lone, block, index, 1);
    }
    assert_eq!(lone.receiver.stats().restored_packets, 3);
    assert_eq!(lone.digests(0, 3, None), Ok(()));
    assert_eq!(lone.receiver.progress().0, 4 * BLOCK as u64);
    lone.content = truth;
    let last = with_parity(lone.last_heartbeat());
    assert_eq!(lone.sync(&last), Ok(()));
    let sent = lone.poll();
    let question = requests(&sent, Kind::Sync).remove(0);
    let answer = sync::Repr {
        answer: Some(question.nonce),
        ..last
    };
    assert_eq!(lone.sync_from(&Meta::unicast(source()), &answer), Ok(()));
    assert_eq!(lone.receiver.stats().audits, 1);
    let sent = lone.run_for(ms(10));
    let asked = requests(&sent, Kind::Digests).remove(0);
    assert_eq!(lone.digests(0, 3, Some(asked.nonce)), Ok(()));
    let stats = lone.receiver.stats();
    assert_eq!((stats.blocks_audited, stats.blocks_rejected), (4, 1));
    assert_eq!(lone.missing(), [(BLOCK as u64, 2 * BLOCK as u64)]);
    // The wrong block comes as packets.
    let sent = lone.run_for(ms(10));
    assert_eq!(named(&sent, Kind::DataOrParity), []);
    assert_eq!(named(&sent, Kind::Data), [(4, 7)]);
    parity(&mut lone, 1, 0, 1);
    assert_eq!(lone.receiver.stats().parity_lost, 1);
    for number in 4..8 {
        assert_eq!(lone.repair(&Meta::unicast(source()), number, 1), Ok(()));
    }
    let complete = ReceiverEvent::Complete {
        length: 4 * BLOCK as u64,
        digest: Some(lone.digest()),
    };
    assert_eq!(lone.events().last(), Some(&complete));
    assert_eq!(lone.receiver.store().as_bytes(), lone.content);
}
