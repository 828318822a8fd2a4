//! Bits that change on the way under a valid checksum: the content is right, and every session ends.
//!
//! `LTP_SEED=n cargo test -p ltp --test corruption` replays one seed, `LTP_SEEDS=n` runs `n`.

mod common;

use std::cell::Cell;
use std::rc::Rc;

use common::{content, files, has_content, link, receiver_config, sender_config};
use ltp::wire::digests::DIGESTS_HEADER_LEN;
use ltp::{Assist, Duration, Failure, ReceiverEvent, SenderConfig, SenderEvent};
use netsim::Loss;

const LIMIT: Duration = Duration::from_secs(300);
const BLOCK: u64 = 1 << 12;

fn config(length: usize, receivers: u32) -> SenderConfig {
    let mut config = sender_config(length);
    config.block_exponent = BLOCK.trailing_zeros() as u8;
    config.rate_bps = Some(20_000_000);
    config.receivers = Some(receivers);
    config
}

/// DATA (type 1), and DIGESTS (type 4) by unicast: with a nonce, flag 0x10.
fn is_data(packet: &[u8]) -> bool {
    packet[0] & 0xf == 1
}

fn is_digests_answer(packet: &[u8]) -> bool {
    packet[0] & 0xf == 4 && packet[1] & 0x10 != 0
}

/// At one of three receivers one bit changes in a DATA packet, and one in the unicast answer with the digest
/// that it then asks for.
#[test]
fn a_bit_in_the_data_and_one_in_the_digest_that_tells() {
    for byte in 0..32usize {
        let bytes = content(400_000, byte as u64);
        let sender = config(bytes.len(), 3);
        let mut net = files(&bytes, 3, byte as u64, sender, &receiver_config());
        let flips = Rc::new(Cell::new((false, false)));
        let seen = flips.clone();
        net.change(1, move |packet| {
            let (data, digest) = seen.get();
            if !data && is_data(packet) && packet[11] == 9 {
                packet[20] ^= 0x10;
                seen.set((true, digest));
            }
            if !digest && is_digests_answer(packet) {
                // A digest of the answer, not its header.
                let at = packet.len() - 32 + byte;
                packet[at] ^= 0x10;
                seen.set((data, true));
            }
        });
        net.run_until(LIMIT, |net| net.all_complete() && net.is_confirmed());
        assert_eq!(flips.get(), (true, true), "nothing was changed");
        net.check_content(&bytes);
        let rejected = net.receiver(1).stats().blocks_rejected;
        assert!((1..=4).contains(&rejected), "{rejected} blocks thrown away");
        let failed = |event: &SenderEvent| matches!(event, SenderEvent::ReceiverFailed { .. });
        assert!(!net.sender_events().iter().any(failed));
    }
}

/// Digests of one block that are wrong in each answer: the receiver ends with an error that says
/// so, and the others with every byte.
#[test]
fn a_digest_that_is_always_wrong_ends_in_an_error() {
    let bytes = content(400_000, 40);
    let mut sender = config(bytes.len(), 3);
    sender.receiver_timeout = Duration::from_secs(100);
    let mut net = files(&bytes, 3, 40, sender, &receiver_config());
    net.change(1, |packet| {
        // The digest of block 5, in whatever packet it comes.
        let first = u32::from_be_bytes([packet[8], packet[9], packet[10], packet[11]]);
        if packet[0] & 0xf == 4 {
            let at = DIGESTS_HEADER_LEN + 32 * (5usize.wrapping_sub(first as usize) & 0xffff);
            if first <= 5 && at < packet.len() {
                packet[at] ^= 1;
            }
        }
    });
    net.run_until(LIMIT, |net| {
        let ended = |event: &ReceiverEvent| {
            matches!(
                event,
                ReceiverEvent::Failed { .. } | ReceiverEvent::Complete { .. }
            )
        };
        (0..3).all(|index| net.events(index).iter().any(ended))
    });
    let failed = net.events(1).last();
    let expected = ReceiverEvent::Failed {
        failure: Failure::Disagreement,
        first_missing: 5 * BLOCK..6 * BLOCK,
    };
    assert_eq!(failed, Some(&expected));
    for index in [0, 2] {
        assert!(has_content(net.receiver(index), &bytes));
    }
    let rejected = net.receiver(1).stats().blocks_rejected;
    assert!(rejected < 3_000, "{rejected} blocks thrown away");
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name| {
        std::env::var(name)
            .ok()
            .and_then(|text: String| text.parse().ok())
    };
    if let Some(seed) = number("LTP_SEED") {
        return seed..seed + 1;
    }
    0..number("LTP_SEEDS").unwrap_or(if cfg!(debug_assertions) { 300 } else { 3000 })
}

/// One packet of a hundred is changed in one bit, in each direction, for each receiver separately. Some more are: a
/// changed header loses the packet, and is up to two fifths of it.
#[test]
fn one_percent_of_the_packets_is_changed() {
    for number in seeds() {
        let named = Named(number);
        let bytes = content(150_000 + (number as usize * 977) % 50_000, number);
        let mut sender = config(bytes.len(), 3);
        sender.linger = Duration::from_secs(20);
        sender.receiver_timeout = Duration::from_secs(30);
        if number % 3 == 0 && number % 8 < 6 {
            sender.digest = Some(*blake3::hash(&bytes).as_bytes());
        }
        let mut receiver = receiver_config();
        receiver.source_timeout = Duration::from_secs(30);
        if number % 4 == 1 {
            receiver.assist = Assist::Lms;
        }
        if number % 8 >= 6 {
            sender.key = Some([7; 32]);
            receiver.key = sender.key;
        }
        let mut net = files(&bytes, 3, number, sender, &receiver);
        if number % 8 == 1 {
            net.elect_replier();
        }
        let loss = Loss::Bernoulli([0.0, 0.005][(number % 2) as usize]);
        net.set_links(link().corrupt(0.017).loss(loss));
        net.run_until(LIMIT, |net| net.all_complete() && net.is_confirmed());
        net.check_content(&bytes);
        drop(named);
    }
}

/// Names the seed when a run panics.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "replay: LTP_SEED={} cargo test -p ltp --test corruption",
                self.0
            );
        }
    }
}
