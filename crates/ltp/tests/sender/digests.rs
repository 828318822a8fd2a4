//! Digests of blocks: when they go, and the answers to requests for them.

use std::cell::Cell;
use std::rc::Rc;

use ltp::digest::{Digest, Hashing, Tree};
use ltp::store::{HeapRing, Store, StoreError};
use ltp::wire::request::Kind;
use ltp::{Destination, Error, Instant, Meta, SenderConfig, SenderEvent};

use super::{BLOCK, Sent, Solo, asked, at, content, group, host, request};

fn chaining_values(bytes: &[u8]) -> Vec<Digest> {
    let hashing = Hashing::new(None);
    let block = |(index, block): (usize, &[u8])| hashing.block((index * BLOCK) as u64, block);
    bytes.chunks(BLOCK).enumerate().map(block).collect()
}

/// The packets of digests: when they went, to which address, and the blocks they were of.
fn told(sent: &[Sent], values: &[Digest]) -> Vec<(Instant, Destination, u64, u64)> {
    let packet = |sent: &Sent| {
        let (repr, digests) = sent.digests()?;
        let first = repr.first_block as usize;
        assert_eq!(digests, values[first..first + digests.len()]);
        assert!(!repr.left);
        let last = first + digests.len() - 1;
        Some((sent.at, sent.to, first as u64, last as u64))
    };
    sent.iter().filter_map(packet).collect()
}

/// A stream to which blocks are added one at a time, a millisecond apart; a packet has room for 31 digests.
fn one_by_one(window: Option<u32>, blocks: usize) -> Vec<(i64, u64, u64)> {
    let bytes = content(blocks * BLOCK);
    let mut solo = Solo::stream(1_024, |config| {
        config.max_packet_len = BLOCK as u16 + ltp::wire::data::DATA_HEADER_LEN as u16;
        config.window_blocks = window;
        config.receivers = window.map(|_| 1);
        config.connect_timeout = ltp::Duration::from_millis(10);
    });
    solo.run_to(at(100));
    let mut sent = Vec::new();
    for (index, block) in bytes.chunks(BLOCK).enumerate() {
        sent.extend(solo.run_to(at(100 + index as i64)));
        assert_eq!(solo.sender.send(solo.now, block), Ok(BLOCK));
    }
    sent.extend(solo.run_to(at(200)));
    let told = told(&sent, &chaining_values(&bytes));
    assert_eq!(solo.sender.stats().digests, told.len() as u64);
    let of = |(at, to, first, last): (Instant, Destination, u64, u64)| {
        assert_eq!(to, Destination::Group);
        (at.total_millis(), first, last)
    };
    told.into_iter().map(of).collect()
}

#[test]
fn digests_wait_for_16_or_for_20_milliseconds() {
    assert_eq!(one_by_one(None, 19), [(115, 0, 15), (136, 16, 18)]);
    assert_eq!(one_by_one(None, 1), [(120, 0, 0)]);
}

#[test]
fn digests_of_a_short_window_wait_for_an_eighth_of_it() {
    assert_eq!(one_by_one(Some(32), 5), [(103, 0, 3), (124, 4, 4)]);
    let each = [(100, 0, 0), (101, 1, 1), (102, 2, 2)];
    assert_eq!(one_by_one(Some(8), 3), each);
    assert_eq!(one_by_one(Some(4), 3), each);
    assert_eq!(one_by_one(Some(64), 16), [(107, 0, 7), (115, 8, 15)]);
    assert_eq!(one_by_one(Some(1_000), 16), [(115, 0, 15)]);
}

#[test]
fn at_the_end_the_last_ones_go_at_once() {
    let bytes = content(18 * BLOCK + 1);
    let mut solo = Solo::whole(&bytes, |_| {});
    let sent = solo.run_to(at(8));
    let values = chaining_values(&bytes);
    // A packet has room for seven.
    let last = |sent: &[Sent]| -> Vec<u64> {
        let told = told(sent, &values);
        told.iter().map(|told| told.3).collect()
    };
    assert_eq!(last(&sent), [6, 13, 18]);
    // Those of a file need not be remembered.
    let mut forgetful = Solo::whole(&bytes, |config| config.limits.digests = 0);
    assert_eq!(last(&forgetful.run_to(at(8))), [6, 13, 18]);
    let mut tree = Tree::default();
    let hashing = Hashing::new(None);
    for value in &values {
        tree.push(&hashing, *value, || {
            *blake3::hash(&bytes[..BLOCK]).as_bytes()
        });
    }
    assert_eq!(solo.sender.digest(), Some(tree.root(&hashing)));
    assert_eq!(solo.sender.digest(), Some(*blake3::hash(&bytes).as_bytes()));
}

#[test]
fn a_content_of_one_block_has_its_own_digest() {
    for len in [0, 1, BLOCK] {
        let bytes = content(len);
        let mut solo = Solo::whole(&bytes, |_| {});
        solo.run_to(at(20));
        let digest = *blake3::hash(&bytes).as_bytes();
        assert_eq!(solo.sender.digest(), Some(digest), "{len} bytes");
    }
}

#[test]
fn a_content_that_is_not_what_was_announced_ends_the_session() {
    let mut solo = Solo::whole(&content(3 * BLOCK), |config| config.digest = Some([1; 32]));
    let sent = solo.run_to(at(100));
    let last = sent.iter().rev().find_map(Sent::sync).unwrap();
    assert!(last.closing);
    assert!(solo.sender.is_ended());
    let expected = [
        SenderEvent::Started { joined: 0 },
        SenderEvent::StoreFailed,
        SenderEvent::Finished,
    ];
    assert_eq!(solo.events(), expected);
    // Without digests it is not known.
    let mut solo = Solo::whole(&content(3 * BLOCK), |config| {
        config.digest = Some([1; 32]);
        config.integrity = false;
    });
    solo.run_to(at(100));
    assert_eq!(solo.events().len(), 2);
    assert!(!solo.sender.is_ended());
}

#[test]
fn a_store_that_lacks_the_content_ends_the_session() {
    let store = HeapRing::whole(content(BLOCK));
    let mut solo = Solo::new(store, Some(2 * BLOCK), |_| {});
    solo.run_to(at(100));
    assert!(solo.sender.is_ended());
    assert!(solo.events().contains(&SenderEvent::StoreFailed));
    assert_eq!(solo.sender.stats().data_packets, 4);
}

/// A store whose medium fails at some time.
struct Fading {
    bytes: HeapRing,
    has_failed: Rc<Cell<bool>>,
}

impl Store for Fading {
    fn capacity(&self) -> Option<u64> {
        None
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.bytes.write(offset, bytes)
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        match self.has_failed.get() {
            true => Err(StoreError::Failed),
            false => self.bytes.read(offset, out),
        }
    }

    fn block(&mut self, offset: u64, len: usize) -> Result<&[u8], StoreError> {
        match self.has_failed.get() {
            true => Err(StoreError::Failed),
            false => self.bytes.block(offset, len),
        }
    }
}

fn fading(
    length: Option<usize>,
    configure: impl FnOnce(&mut SenderConfig),
) -> (Solo<Fading>, Rc<Cell<bool>>) {
    let has_failed = Rc::new(Cell::new(false));
    let store = Fading {
        bytes: HeapRing::whole(content(8 * BLOCK)),
        has_failed: has_failed.clone(),
    };
    (Solo::new(store, length, configure), has_failed)
}

/// The source announces its end, and tells the application once, whatever is still requested.
#[test]
fn a_store_that_fails_is_named_once() {
    let ends = |solo: &mut Solo<Fading>| {
        let mut events = solo.events();
        events.retain(|event| *event == SenderEvent::StoreFailed);
        for _ in 0..60 {
            if !events.is_empty() {
                let _ = solo.ask_packets(&Meta::group(host(1)), 0, 7);
            }
            let later = solo.now + ltp::Duration::from_millis(1);
            let sent = solo.run_to(later);
            assert!(sent.iter().all(|sent| sent.is(3)), "heartbeats alone");
            events.extend(solo.events());
        }
        assert!(solo.sender.is_ended());
        assert_eq!(events, [SenderEvent::StoreFailed, SenderEvent::Finished]);
    };
    // When a packet is requested again.
    let (mut solo, has_failed) = fading(Some(8 * BLOCK), |_| {});
    solo.run_to(at(100));
    has_failed.set(true);
    assert_eq!(solo.ask_packets(&Meta::group(host(1)), 0, 7), Ok(()));
    ends(&mut solo);
    // Nothing more is read, even if that would succeed.
    let (mut solo, has_failed) = fading(Some(8 * BLOCK), |_| {});
    solo.run_to(at(100));
    has_failed.set(true);
    assert_eq!(solo.ask_packets(&Meta::group(host(1)), 0, 7), Ok(()));
    assert!(solo.poll().iter().all(|sent| sent.is(3)));
    has_failed.set(false);
    ends(&mut solo);
    // When digests are computed again that were not remembered.
    let (mut solo, has_failed) = fading(None, |config| config.limits.digests = 0);
    assert_eq!(solo.sender.send(at(0), &content(BLOCK)), Ok(BLOCK));
    solo.run_to(at(15));
    assert_eq!(solo.sender.stats().data_packets, 4);
    has_failed.set(true);
    ends(&mut solo);
}

#[test]
fn packets_and_digests_of_one_number_are_held_down_apart() {
    let mut solo = Solo::whole(&content(8 * BLOCK), |_| {});
    solo.run_to(at(20));
    let meta = Meta::group(host(1));
    assert_eq!(solo.ask_packets(&meta, 3, 3), Ok(()));
    solo.poll();
    for block in [3, 4] {
        assert_eq!(
            solo.ask(&meta, &request(Kind::Digests, block, block)),
            Ok(())
        );
    }
    assert_eq!(solo.poll().len(), 2);
}

/// However few digests a sender remembers, each is announced before a ring loses its block.
#[test]
fn a_stream_loses_no_block_whose_digest_was_not_announced() {
    let bytes = content(40 * BLOCK);
    let values = chaining_values(&bytes);
    // Of the last, a packet with twelve digests is longer than one of data.
    for (ring, digests, rate_bps, packet_len) in [
        (2, 0, None, 268),
        (4, 0, Some(1_000_000), 268),
        (4, 1, None, 268),
        (4, 2, None, 268),
        (4, 4, None, 268),
        (16, 8, None, 268),
        (16, 8, Some(1_000_000), 268),
        (12, 12, Some(1_000_000), 500),
    ] {
        let mut solo = Solo::stream(ring, |config| {
            config.limits.digests = digests;
            config.rate_bps = rate_bps;
            config.max_packet_len = packet_len;
        });
        let (mut written, mut sent) = (0, Vec::new());
        while written < bytes.len() {
            written += solo.sender.send(solo.now, &bytes[written..]).unwrap();
            let later = solo.now + ltp::Duration::from_millis(1);
            sent.extend(solo.run_to(later));
            assert!(solo.now < at(10_000), "after {written} bytes");
        }
        solo.sender.finish(solo.now);
        sent.extend(solo.run_to(at(12_000)));
        let blocks: Vec<u64> = told(&sent, &values)
            .iter()
            .flat_map(|told| told.2..=told.3)
            .collect();
        let all: Vec<u64> = (0..40).collect();
        assert_eq!(blocks, all, "a ring of {ring}, {digests} remembered");
        let digest = *blake3::hash(&bytes).as_bytes();
        assert_eq!(solo.sender.digest(), Some(digest));
    }
}

#[test]
fn a_ring_has_room_for_what_was_sent_at_once() {
    for integrity in [true, false] {
        let mut solo = Solo::stream(4, |config| config.integrity = integrity);
        solo.run_to(at(10));
        for _ in 0..3 {
            let bytes = content(4 * BLOCK);
            assert_eq!(solo.sender.send(solo.now, &bytes), Ok(4 * BLOCK));
            assert_eq!(solo.sender.room(), 0);
            solo.poll();
            assert_eq!(solo.sender.room(), 4 * BLOCK as u64);
        }
    }
}

/// A stream that has sent 40 blocks through a ring of 16, and remembers eight digests.
fn stream() -> (Solo, Vec<Digest>) {
    let bytes = content(40 * BLOCK);
    let mut solo = Solo::stream(16, |config| config.limits.digests = 8);
    let mut written = 0;
    let mut end = 10;
    while written < bytes.len() {
        written += solo.sender.send(solo.now, &bytes[written..]).unwrap();
        solo.run_to(at(end));
        end += 30;
    }
    solo.run_to(at(1_000));
    (solo, chaining_values(&bytes))
}

#[test]
fn digests_that_the_group_asks_for_go_to_the_group_once() {
    let (mut solo, values) = stream();
    let meta = asked(host(1), group(), None);
    assert_eq!(solo.ask(&meta, &request(Kind::Digests, 35, 37)), Ok(()));
    let sent = solo.poll();
    let expected = [(at(1_000), Destination::Group, 35, 37)];
    assert_eq!(told(&sent, &values), expected);
    assert_eq!(sent[0].digests().unwrap().0.answer, None);
    let again = solo.ask(&meta, &request(Kind::Digests, 35, 36));
    assert_eq!(again, Err(Error::RequestHeldDown));
    assert_eq!(solo.ask(&meta, &request(Kind::Digests, 36, 36)), Ok(()));
    solo.run_to(at(1_020));
    assert_eq!(solo.ask(&meta, &request(Kind::Digests, 35, 36)), Ok(()));
    let stats = solo.sender.stats();
    assert_eq!((stats.requests_group, stats.requests_unicast), (3, 0));
}

#[test]
fn digests_are_answered_for_blocks_that_are_stored_and_announced() {
    let (mut solo, values) = stream();
    let ask = |solo: &mut Solo, lo, hi| {
        let later = solo.now + ltp::Duration::from_millis(100);
        solo.run_to(later);
        solo.ask(&Meta::group(host(1)), &request(Kind::Digests, lo, hi))?;
        let sent = solo.poll();
        let told = told(&sent, &values);
        assert_eq!(told.len(), 1);
        Ok((told[0].2, told[0].3))
    };
    assert_eq!(ask(&mut solo, 38, 39), Ok((38, 39)));
    assert_eq!(ask(&mut solo, 38, 99), Ok((38, 39)));
    assert_eq!(ask(&mut solo, 39, 39), Ok((39, 39)));
    assert_eq!(ask(&mut solo, 40, 41), Err(Error::RequestUnsent));
    assert_eq!(ask(&mut solo, 0, 39), Ok((24, 30)), "of the ring");
    assert_eq!(ask(&mut solo, 0, 25), Ok((24, 25)));
    assert_eq!(ask(&mut solo, 0, 24), Ok((24, 24)));
    assert_eq!(ask(&mut solo, 0, 23), Err(Error::RequestNotStored));
    // Some are remembered, and the others computed again.
    assert_eq!(ask(&mut solo, 29, 35), Ok((29, 35)));
    assert_eq!(ask(&mut solo, 32, 32), Ok((32, 32)));
    let mut plain = Solo::whole(&content(BLOCK), |config| config.integrity = false);
    plain.run_to(at(20));
    let none = plain.ask(&Meta::group(host(1)), &request(Kind::Digests, 0, 0));
    assert_eq!(none, Err(Error::RequestUnsent));
    let none = plain.ask(&Meta::unicast(host(1)), &request(Kind::Left, 1, 1));
    assert_eq!(none, Err(Error::RequestUnsent));
}

#[test]
fn an_address_that_has_shown_its_token_gets_digests_alone() {
    let (mut solo, values) = stream();
    let mut repr = request(Kind::Digests, 39, 39);
    repr.nonce = 99;
    let meta = Meta::unicast(host(1));
    assert_eq!(solo.ask(&meta, &repr), Err(Error::RequestUnverified));
    let sent = solo.poll();
    assert_eq!(sent.len(), 1);
    let ack = sent[0].ack().unwrap();
    assert_eq!(
        (ack.receiver, ack.tag),
        (99, 5),
        "nonce and tag of the request"
    );
    repr.token = ack.token;
    assert_eq!(solo.ask(&meta, &repr), Ok(()));
    let sent = solo.poll();
    let alone = [(at(1_000), Destination::Unicast(host(1)), 39, 39)];
    assert_eq!(told(&sent, &values), alone);
    assert_eq!(sent[0].digests().unwrap().0.answer, Some(99));
    // The token proves nothing of a packet to the group.
    let by_group = solo.ask(&Meta::group(host(1)), &repr);
    assert_eq!(by_group, Ok(()));
    assert_eq!(solo.poll()[0].to, Destination::Group);
    let stats = solo.sender.stats();
    assert_eq!((stats.requests_group, stats.requests_unicast), (1, 1));
    assert_eq!((stats.answers, stats.received), (3, 2));
}

#[test]
fn what_lies_to_the_left_of_a_block_is_told_while_it_is_known() {
    let (mut solo, values) = stream();
    let token = solo.token(host(1));
    let meta = Meta::unicast(host(1));
    let ask = |solo: &mut Solo, block: u32| {
        let mut repr = request(Kind::Left, block, block);
        (repr.token, repr.nonce) = (token, 7);
        solo.ask(&meta, &repr)?;
        let sent = solo.poll();
        assert_eq!(sent[0].to, Destination::Unicast(host(1)));
        let (repr, left) = sent[0].digests().unwrap();
        assert_eq!(
            (repr.first_block, repr.answer, repr.left),
            (block, Some(7), true)
        );
        Ok(left)
    };
    let hashing = Hashing::new(None);
    let whole = |start: usize, left: &[Digest]| {
        let mut tree = Tree::after(start as u64, left).expect("one for each bit");
        for value in &values[start..] {
            tree.push(&hashing, *value, || unreachable!("block 0 is to the left"));
        }
        tree.root(&hashing)
    };
    let root = *blake3::hash(&content(40 * BLOCK)).as_bytes();
    for start in [33, 36, 39, 40] {
        let left = ask(&mut solo, start).expect("an answer");
        if start < 40 {
            assert_eq!(whole(start as usize, &left), root, "from {start}");
        } else {
            assert_eq!(left.len(), 2);
        }
    }
    assert_eq!(ask(&mut solo, 9), Ok(vec![]), "no longer known");
    assert_eq!(ask(&mut solo, 41), Err(Error::RequestUnsent));
    let mut repr = request(Kind::Left, 33, 33);
    repr.token = token;
    let by_group = solo.ask(&Meta::group(host(1)), &repr);
    assert_eq!(by_group, Err(Error::Unexpected));
    assert_eq!(solo.sender.stats().requests_unicast, 5);
}

#[test]
fn small_packets_carry_at_least_one_digest() {
    let bytes = content(3 * BLOCK);
    let mut solo = Solo::whole(&bytes, |config| config.max_packet_len = 34);
    assert!(matches!(
        solo.sender.geometry().packets_per_block(),
        57..=64
    ));
    let sent = solo.run_to(at(20));
    let told: Vec<_> = told(&sent, &chaining_values(&bytes))
        .iter()
        .map(|told| (told.2, told.3))
        .collect();
    assert_eq!(told, [(0, 0), (1, 1), (2, 2)]);
}

/// A driver that polls in a rhythm of its own never has as much of the rate as a packet of digests takes, which is
/// longer than one of data, unless data waits.
#[test]
fn data_does_not_overtake_digests_that_would_be_forgotten() {
    let bytes = content(100 * BLOCK);
    let mut solo = Solo::stream(12, |config| {
        config.limits.digests = 14;
        config.rate_bps = Some(8_000_000);
        config.max_packet_len = 500;
    });
    let (mut written, mut sent) = (0, Vec::new());
    for step in 1..1_000 {
        written += solo.sender.send(solo.now, &bytes[written..]).unwrap();
        // The time of 400 bytes, a frame of data.
        solo.now = Instant::from_micros(400 * step);
        solo.sender.handle_timeout(solo.now);
        sent.extend(solo.poll());
    }
    assert_eq!(written, bytes.len());
    let blocks: Vec<u64> = told(&sent, &chaining_values(&bytes))
        .iter()
        .flat_map(|told| told.2..=told.3)
        .collect();
    assert_eq!(blocks, (0..100).collect::<Vec<_>>());
}
