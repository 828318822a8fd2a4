//! Without a key, a forged block that comes first with a matching digest is accepted for a
//! while; the whole tells, and the receiver finds the wrong blocks and ends with the true bytes.

mod common;

use common::packets::{data_packet, digests_packet, emit, heartbeat};
use common::{Group, content, files, has_content, receiver_config, seed, sender_config, source};
use ltp::digest::Hashing;
use ltp::store::HeapRing;
use ltp::wire::sync;
use ltp::{
    Assist, Delivery, Duration, Failure, Instant, Meta, Parity, Receiver, ReceiverEvent, Sender,
    SenderConfig, SenderEvent,
};

const LIMIT: Duration = Duration::from_secs(120);
const BLOCK: usize = 1 << 12;

/// A session of small blocks, begun but far from done; the window of receivers is `window` blocks.
fn begun(bytes: &[u8], number: u64, window: usize, assist: Assist, delivery: Delivery) -> Group {
    let config = small_blocks(bytes);
    begun_with(config, bytes, number, window, assist, delivery)
}

fn small_blocks(bytes: &[u8]) -> SenderConfig {
    let mut config = sender_config(bytes.len());
    config.block_exponent = BLOCK.trailing_zeros() as u8;
    config.rate_bps = Some(10_000_000);
    config
}

fn begun_with(
    config: SenderConfig,
    bytes: &[u8],
    number: u64,
    window: usize,
    assist: Assist,
    delivery: Delivery,
) -> Group {
    let store = HeapRing::whole(bytes.to_vec());
    let sender = Sender::new(config, store, seed(number), Instant::ZERO).unwrap();
    let receivers = (1..=3)
        .map(|index| {
            let mut config = receiver_config();
            config.limits.window_blocks = window;
            config.assist = assist;
            config.delivery = delivery;
            let store = HeapRing::new(bytes.len().next_multiple_of(BLOCK));
            Receiver::new(config, store, seed(number * 1000 + index), Instant::ZERO)
        })
        .collect();
    let mut net = Group::new(sender, receivers, number);
    if assist == Assist::Lms {
        net.elect_replier();
    }
    net.run_until(LIMIT, |net| {
        net.receivers().all(|r| r.stats().data_packets > 5)
    });
    net
}

/// The next block of which nothing was sent.
fn unsent(net: &Group) -> u64 {
    net.sender().progress().0.div_ceil(BLOCK as u64) + 1
}

/// A block's digest and data, invented, before the true ones.
fn forge(net: &mut Group, receiver: usize, block: u64) {
    let geometry = net.sender().geometry();
    let length = net.sender().progress().1;
    let len = geometry.len_of(block, length);
    let fake = vec![0x66; len];
    let value = Hashing::new(None).block(geometry.block_offset(block), &fake);
    let meta = Meta::group(source());
    let packet = digests_packet(net, block as u32, &[value], None);
    net.inject(receiver, &meta, &packet).unwrap();
    let first = geometry.first_packet(block);
    let packets = geometry.mask(block, length).count_ones();
    for number in first..first + u64::from(packets) {
        let packet = data_packet(net, number, Some(1));
        net.inject(receiver, &meta, &packet).unwrap();
    }
}

/// The true bytes everywhere, and the counters of receiver 0, which was deceived in `wrong` blocks.
fn finish(net: &mut Group, bytes: &[u8], wrong: u64) {
    net.run_until(LIMIT, |net| net.all_complete());
    net.check_content(bytes);
    let stats = net.receiver(0).stats();
    let blocks = bytes.len().div_ceil(BLOCK) as u64;
    assert_eq!((stats.audits, stats.blocks_audited), (1, blocks));
    assert_eq!(stats.blocks_rejected, wrong);
}

/// Where receiver 0 is no replier, which repairs with the bytes that it accepted.
fn check_others(net: &Group) {
    for receiver in net.receivers().skip(1) {
        assert_eq!(receiver.stats().audits, 0);
        assert_eq!(receiver.stats().blocks_rejected, 0);
    }
}

#[test]
fn one_block_several_or_the_last() {
    let bytes = content(100 * BLOCK - 1234, 1);
    let last = 99;
    for assist in [Assist::None, Assist::Lms] {
        for (number, loss) in [(1, 0.0), (2, 0.05)] {
            for case in 0..4 {
                let mut net = begun(&bytes, number, 128, assist, Delivery::Store);
                let next = unsent(&net);
                let blocks: Vec<u64> = match case {
                    0 => vec![next],
                    1 => vec![next, next + 1, next + 7, next + 40],
                    2 => vec![last],
                    _ => (next..=last).collect(),
                };
                for &block in &blocks {
                    forge(&mut net, 0, block);
                }
                net.set_loss(loss);
                finish(&mut net, &bytes, blocks.len() as u64);
                if assist == Assist::None {
                    check_others(&net);
                }
            }
        }
    }
}

#[test]
fn a_content_much_longer_than_the_window() {
    let bytes = content(400 * BLOCK + 1, 3);
    let mut net = begun(&bytes, 3, 8, Assist::None, Delivery::Store);
    let mut wrong = 0;
    while unsent(&net) < 390 {
        let block = unsent(&net);
        forge(&mut net, 0, block);
        wrong += 1;
        net.run_until(LIMIT, |net| unsent(net) > block + 20);
    }
    net.set_loss(0.02);
    finish(&mut net, &bytes, wrong);
    check_others(&net);
}

/// Blocks that parity restored are found to be right, and the forged ones are not repaired with it.
#[test]
fn a_transfer_that_parity_repaired() {
    let bytes = content(100 * BLOCK - 1234, 11);
    for assist in [Assist::None, Assist::Lms] {
        for parity in [Parity::OnRequest, Parity::Percent(20)] {
            let mut config = small_blocks(&bytes);
            config.parity = Some(parity);
            let mut net = begun_with(config, &bytes, 11, 128, assist, Delivery::Store);
            net.set_loss(0.05);
            let next = unsent(&net);
            for block in [next, next + 7, 99] {
                forge(&mut net, 0, block);
            }
            finish(&mut net, &bytes, 3);
            for receiver in net.receivers() {
                assert!(receiver.stats().restored_packets > 0);
            }
            assert_eq!(net.receiver(0).stats().restored_wrongly, 0);
            if assist == Assist::None {
                check_others(&net);
            }
        }
    }
}

#[test]
fn a_single_block_is_all_there_is() {
    let bytes = content(BLOCK - 100, 4);
    let mut config = sender_config(bytes.len());
    config.block_exponent = BLOCK.trailing_zeros() as u8;
    let mut net = files(&bytes, 1, 4, config, &receiver_config());
    net.run_until(LIMIT, |net| net.receiver(0).session().is_some());
    forge(&mut net, 0, 0);
    finish(&mut net, &bytes, 1);
}

#[test]
fn a_forger_that_continues() {
    let bytes = content(60 * BLOCK, 6);
    let mut net = begun(&bytes, 6, 64, Assist::None, Delivery::Store);
    let next = unsent(&net);
    forge(&mut net, 0, next);
    net.run_until(LIMIT, |net| {
        let block = unsent(net).min(59);
        forged_digest(net, block);
        net.receiver(0).stats().audits > 0
    });
    let mut rounds = 0..200;
    net.run_until(LIMIT, |net| {
        if let Some(round) = rounds.next() {
            forged_digest(net, round % 60);
        }
        net.all_complete()
    });
    net.check_content(&bytes);
    assert_eq!(net.receiver(0).stats().audits, 1);
}

fn forged_digest(net: &mut Group, block: u64) {
    let packet = digests_packet(net, block as u32, &[[0xee; 32]], None);
    let _ = net.inject(0, &Meta::group(source()), &packet);
}

#[test]
fn the_source_answers_no_more_than_was_requested() {
    let bytes = content(500 * BLOCK, 7);
    let mut net = begun(&bytes, 7, 512, Assist::None, Delivery::Store);
    let next = unsent(&net);
    forge(&mut net, 0, next);
    net.run_until(LIMIT, |net| net.receiver(0).stats().audits > 0);
    let asked = net.receiver(0).stats().requests_source;
    let answers = net.sender().stats().answers;
    finish(&mut net, &bytes, 1);
    check_others(&net);
    let asked = net.receiver(0).stats().requests_source - asked;
    let answers = net.sender().stats().answers - answers;
    // Digests fit a packet by the dozen; one request brings one of them, and the repair is another.
    assert!((12..30).contains(&asked), "{asked} requests");
    assert!(answers <= asked, "{answers} answers to {asked} requests");
}

#[test]
fn a_source_that_dies_leaves_the_rest_named() {
    let bytes = content(200 * BLOCK, 8);
    let mut net = begun(&bytes, 8, 256, Assist::None, Delivery::Store);
    let wrong = unsent(&net);
    forge(&mut net, 0, wrong);
    net.run_until(LIMIT, |net| net.receiver(0).stats().blocks_audited > 60);
    net.set_sender(None);
    let failed = |event: &ReceiverEvent| matches!(event, ReceiverEvent::Failed { .. });
    net.run_until(LIMIT, |net| net.events(0).iter().any(failed));
    let missing: Vec<_> = net.receiver(0).missing().collect();
    let audited = net.receiver(0).stats().blocks_audited * BLOCK as u64;
    let wrong = wrong * BLOCK as u64;
    let expected = [wrong..wrong + BLOCK as u64, audited..bytes.len() as u64];
    assert_eq!(missing, expected);
    assert!(has_content(net.receiver(0), &bytes[..wrong as usize]));
}

#[test]
fn what_was_read_cannot_be_taken_back() {
    let bytes = content(60 * BLOCK, 9);
    let mut net = begun(&bytes, 9, 64, Assist::None, Delivery::Read);
    let next = unsent(&net);
    forge(&mut net, 0, next);
    let ended = |event: &ReceiverEvent| matches!(event, ReceiverEvent::Failed { .. });
    net.run_until(LIMIT, |net| net.events(0).iter().any(ended));
    let whole = 0..bytes.len() as u64;
    assert!(net.events(0).contains(&ReceiverEvent::Failed {
        failure: Failure::WholeDigest,
        first_missing: whole.clone(),
    }));
    assert_eq!(net.receiver(0).missing().collect::<Vec<_>>(), [whole]);
    assert_eq!(net.receiver(0).stats().audits, 0);
}

/// A heartbeat's digest of the whole, changed.
fn change_root(packet: &mut [u8]) {
    if packet[0] & 0xf == 3 && packet[1] & 2 != 0 {
        packet[64] ^= 1;
    }
}

#[test]
fn digests_that_contradict_their_own_root_end_in_an_error() {
    for silent in [false, true] {
        let bytes = content(30 * BLOCK, 10);
        let mut config = sender_config(bytes.len());
        config.block_exponent = BLOCK.trailing_zeros() as u8;
        let mut net = files(&bytes, 1, 10, config, &receiver_config());
        net.change(0, change_root);
        // The source confirms its root, and says nothing of its blocks.
        let is_answer = |packet: &[u8]| packet[0] & 0xf == 4 && packet[1] & 0x10 != 0;
        net.lose(move |_, packet| silent && is_answer(packet));
        net.run_until(LIMIT, |net| net.events(0).len() > 1);
        let expected = ReceiverEvent::Failed {
            failure: Failure::WholeDigest,
            first_missing: 0..bytes.len() as u64,
        };
        assert_eq!(net.events(0)[1], expected);
        let audited = if silent { 0 } else { 30 };
        assert_eq!(net.receiver(0).stats().blocks_audited, audited);
        assert_eq!(net.receiver(0).missing().count(), 1);
    }
}

/// Two receivers that report, of which the first is deceived in everything: a content of one block
/// of the same length, its digest, and the digest of the whole.
fn deceived(name: u64, key: Option<[u8; 32]>) -> (Group, Vec<u8>) {
    let bytes = content(BLOCK - 100, name);
    let mut config = sender_config(bytes.len());
    config.block_exponent = BLOCK.trailing_zeros() as u8;
    config.receivers = Some(2);
    config.key = key;
    let mut receiver = receiver_config();
    receiver.key = key;
    (files(&bytes, 2, name, config, &receiver), bytes)
}

#[test]
fn a_completion_that_the_source_does_not_know_is_audited() {
    for number in 20..30 {
        let (mut net, bytes) = deceived(number, None);
        net.set_loss(if number % 2 == 0 { 0.0 } else { 0.05 });
        net.run_until(LIMIT, |net| net.receiver(0).session().is_some());
        forge(&mut net, 0, 0);
        let packet = emit(&sync::Repr {
            next: 3,
            digested: Some(1),
            digest: Some(Hashing::new(None).whole(&vec![0x66; bytes.len()])),
            reports: true,
            ..heartbeat(&net)
        });
        let _ = net.inject(0, &Meta::group(source()), &packet);
        assert!(net.receiver(0).is_complete());
        net.run_until(LIMIT, |net| net.all_complete() && net.is_confirmed());
        net.check_content(&bytes);
        let digest = Some(*blake3::hash(&bytes).as_bytes());
        let length = bytes.len() as u64;
        let completions: Vec<_> = net
            .events(0)
            .iter()
            .filter(|event| matches!(event, ReceiverEvent::Complete { .. }))
            .collect();
        assert_eq!(completions, [&ReceiverEvent::Complete { length, digest }]);
        assert_eq!(net.receiver(0).stats().audits, 1);
        let failed = |event: &&SenderEvent| matches!(event, SenderEvent::ReceiverFailed { .. });
        assert_eq!(net.sender_events().iter().find(failed), None);
    }
}

#[test]
fn a_source_that_denies_what_it_confirmed_ends_in_an_error() {
    for key in [None, Some([3; 32])] {
        let (mut net, bytes) = deceived(31, key);
        let hashing = Hashing::new(key);
        net.run_until(LIMIT, |net| net.receiver(0).is_complete());
        // Every report is answered with a denial, every question with the same digest as before.
        net.change(0, move |packet| {
            if packet[0] & 0xf == 7 && packet[1] == 0 {
                packet[1] = 1;
                let len = packet.len() - hashing.overhead();
                hashing.seal(packet, len);
            }
        });
        net.run_until(LIMIT, |net| net.events(0).len() > 1);
        let failed = ReceiverEvent::Failed {
            failure: Failure::WholeDigest,
            first_missing: 0..bytes.len() as u64,
        };
        assert_eq!(net.events(0)[1], failed);
    }
}
