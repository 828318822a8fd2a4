//! Thousands of seeds: every receiver ends with every byte, whatever the network does.
//!
//! `LTP_SEED=n cargo test -p ltp --test sim_group` replays one seed, `LTP_SEEDS=n` runs `n`.

mod common;

use common::{Dice, Faults, Group, content, group, receiver_config, seed, sender_config};
use ltp::store::HeapRing;
use ltp::{
    Assist, Delivery, Duration, Instant, Receiver, ReceiverConfig, Sender, SenderConfig,
    SenderEvent,
};

const LIMIT: Duration = Duration::from_secs(600);

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

/// Names the seed when a run panics.
struct Named(&'static str, u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "replay: LTP_SEED={} cargo test -p ltp --test sim_group {}",
                self.1, self.0
            );
        }
    }
}

fn faults(dice: &mut Dice) -> Faults {
    let loss = [0, 1_000, 10_000, 50_000, 200_000][(dice.next() % 5) as usize];
    Faults {
        loss,
        duplicate: dice.next() % 50_000,
        reorder: dice.next() % 100_000,
        delay_us: 50 + dice.next() % 20_000,
        ..Faults::default()
    }
}

fn configs(dice: &mut Dice, length: usize) -> (SenderConfig, ReceiverConfig) {
    let mut sender = sender_config(length);
    let mut receiver = receiver_config();
    sender.block_exponent = 10 + (dice.next() % 5) as u8;
    sender.max_packet_len = (300 + dice.next() % 1100) as u16;
    sender.first_sequence = 0u32.wrapping_sub((dice.next() % 40) as u32);
    sender.rate_bps = [None, Some(10_000_000), Some(100_000_000)][(dice.next() % 3) as usize];
    sender.max_segments = 1 + (dice.next() % 8) as usize;
    sender.receiver_timeout = Duration::from_secs(300);
    if dice.next().is_multiple_of(3) {
        sender.key = Some([7; 32]);
        receiver.key = sender.key;
    }
    sender.integrity = !dice.next().is_multiple_of(5);
    receiver.require_integrity = sender.integrity;
    receiver.assist = if dice.next().is_multiple_of(2) {
        Assist::Lms
    } else {
        Assist::None
    };
    receiver.gap_delay = Duration::from_micros(dice.next() % 5_000);
    receiver.source_timeout = Duration::from_secs(100);
    sender.linger = Duration::from_secs(100);
    (sender, receiver)
}

#[test]
fn files_arrive() {
    for number in seeds() {
        let _named = Named("files_arrive", number);
        let dice = &mut Dice::new(number + 1);
        let length = (dice.next() % 150_000) as usize;
        let bytes = content(length, number);
        let (mut sender, receiver) = configs(dice, length);
        let count = 1 + (dice.next() % 4) as usize;
        let known = dice.next().is_multiple_of(2);
        sender.receivers = known.then_some(count as u32);
        if known && dice.next().is_multiple_of(2) {
            sender.window_blocks = Some(2 + (dice.next() % 20) as u32);
        }
        let block = 1usize << sender.block_exponent;
        let capacity = length.next_multiple_of(block).max(2 * block);
        let store = HeapRing::whole(bytes.clone());
        let machine = Sender::new(sender, store, seed(number), Instant::ZERO).unwrap();
        let receivers = (0..count as u64).map(|index| {
            let mut config = receiver.clone();
            config.limits.window_blocks = 1 << (1 + dice.next() % 8);
            config.limits.requests = 1 + (dice.next() % 64) as usize;
            let seed = seed(number * 1000 + index + 1);
            Receiver::new(config, HeapRing::new(capacity), seed, Instant::ZERO)
        });
        let receivers = receivers.collect();
        let mut net = Group::new(machine, receivers, number);
        net.lms = receiver.assist == Assist::Lms && dice.next().is_multiple_of(2);
        net.faults = faults(dice);
        net.run_until(LIMIT, |net| {
            net.all_complete() && (!known || net.sender_events.contains(&SenderEvent::Complete))
        });
        net.check_content(&bytes);
    }
}

#[test]
fn streams_arrive() {
    for number in seeds() {
        let _named = Named("streams_arrive", number);
        let dice = &mut Dice::new(number + 1);
        let length = (dice.next() % 150_000) as usize;
        let bytes = content(length, number);
        let (mut sender, mut receiver) = configs(dice, length);
        sender.length = None;
        receiver.delivery = Delivery::Read;
        let count = 1 + (dice.next() % 3) as usize;
        sender.receivers = Some(count as u32);
        sender.connect_timeout = Duration::from_secs(60);
        let block = 1usize << sender.block_exponent;
        let ring = HeapRing::new(block * (2 + dice.next() % 30) as usize);
        let machine = Sender::new(sender, ring, seed(number), Instant::ZERO).unwrap();
        let receivers = (0..count as u64).map(|index| {
            let mut config = receiver.clone();
            config.limits.window_blocks = 1 << (1 + dice.next() % 5);
            let ring = HeapRing::new(block * (2 + dice.next() % 20) as usize);
            Receiver::new(config, ring, seed(number * 1000 + index + 1), Instant::ZERO)
        });
        let receivers = receivers.collect();
        let mut net = Group::new(machine, receivers, number);
        net.lms = receiver.assist == Assist::Lms && dice.next().is_multiple_of(2);
        net.faults = faults(dice);
        let mut written = 0;
        let mut read = vec![Vec::new(); count];
        net.run_until(LIMIT, |net| {
            let now = net.now;
            written += net.sender.send(now, &bytes[written..]).unwrap();
            if written == bytes.len() {
                net.sender.finish(now);
            }
            for (receiver, read) in net.receivers.iter_mut().zip(&mut read) {
                loop {
                    let chunk = receiver.peek().unwrap();
                    let len = chunk.len();
                    if len == 0 {
                        break;
                    }
                    read.extend_from_slice(chunk);
                    receiver.consume(now, len);
                }
            }
            net.all_complete() && net.sender_events.contains(&SenderEvent::Complete)
        });
        assert!(read.iter().all(|read| *read == bytes), "bytes differ");
    }
}

#[test]
fn the_same_seed_gives_the_same_session() {
    let run = || {
        let bytes = content(100_000, 5);
        let mut net = common::files(&bytes, 3, 5, sender_config(bytes.len()), &receiver_config());
        net.faults.loss = 50_000;
        net.run_until(LIMIT, |net| net.all_complete());
        (
            net.now,
            net.wire.len(),
            format!("{:?}", net.receivers[2].stats()),
        )
    };
    assert_eq!(run(), run());
    let _ = group();
}
