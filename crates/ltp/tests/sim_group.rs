//! Thousands of seeds: every receiver ends with every byte, whatever the network does.
//!
//! `LTP_SEED=n cargo test -p ltp --test sim_group` replays one seed, `LTP_SEEDS=n` runs `n`.

mod common;

use common::network::rng;
use common::{Group, content, files, receiver_config, seed, sender_config};
use ltp::store::HeapRing;
use ltp::{
    Assist, Delivery, Duration, Instant, Parity, Receiver, ReceiverConfig, Sender, SenderConfig,
};
use netsim::{LinkConfig, Loss, Rng};

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

fn links(rng: &mut Rng) -> LinkConfig {
    let loss = [0.0, 0.001, 0.01, 0.05, 0.2][rng.below(5) as usize];
    LinkConfig::new()
        .delay(Duration::from_micros(50 + rng.below(20_000)))
        .loss(Loss::Bernoulli(loss))
        .duplicate(0.05 * rng.unit())
        .reorder(0.1 * rng.unit(), Duration::from_millis(3))
}

fn configs(rng: &mut Rng, length: usize) -> (SenderConfig, ReceiverConfig) {
    let mut sender = sender_config(length);
    let mut receiver = receiver_config();
    sender.block_exponent = 10 + rng.below(5) as u8;
    sender.max_packet_len = (300 + rng.below(1100)) as u16;
    sender.first_sequence = 0u32.wrapping_sub(rng.below(40) as u32);
    sender.rate_bps = [None, Some(10_000_000), Some(100_000_000)][rng.below(3) as usize];
    sender.max_segments = 1 + rng.below(8) as usize;
    sender.receiver_timeout = Duration::from_secs(300);
    if rng.below(3) == 0 {
        sender.key = Some([7; 32]);
        receiver.key = sender.key;
    }
    sender.integrity = rng.below(5) != 0;
    receiver.require_integrity = sender.integrity;
    receiver.assist = if rng.below(2) == 0 {
        Assist::Lms
    } else {
        Assist::None
    };
    receiver.gap_delay = Duration::from_micros(rng.below(5_000));
    receiver.source_timeout = Duration::from_secs(100);
    sender.linger = Duration::from_secs(100);
    let parities = [Parity::OnRequest, Parity::Percent(10), Parity::Auto];
    if sender.integrity && rng.below(2) == 0 {
        sender.parity = Some(parities[rng.below(3) as usize]);
        receiver.limits.parity = [0, 3, 512][rng.below(3) as usize];
    }
    (sender, receiver)
}

#[test]
fn files_arrive() {
    for number in seeds() {
        let _named = Named("files_arrive", number);
        let rng = &mut rng(number + 1);
        let length = rng.below(150_000) as usize;
        let bytes = content(length, number);
        let (mut sender, receiver) = configs(rng, length);
        let count = 1 + rng.below(4) as usize;
        let known = rng.below(2) == 0;
        sender.receivers = known.then_some(count as u32);
        if known && rng.below(2) == 0 {
            sender.window_blocks = Some(2 + rng.below(20) as u32);
        }
        let block = 1usize << sender.block_exponent;
        let capacity = length.next_multiple_of(block).max(2 * block);
        let store = HeapRing::whole(bytes.clone());
        let machine = Sender::new(sender, store, seed(number), Instant::ZERO).unwrap();
        let receivers = (0..count as u64).map(|index| {
            let mut config = receiver.clone();
            config.limits.window_blocks = 1 << (1 + rng.below(8));
            config.limits.requests = 1 + rng.below(64) as usize;
            let seed = seed(number * 1000 + index + 1);
            Receiver::new(config, HeapRing::new(capacity), seed, Instant::ZERO)
        });
        let receivers = receivers.collect();
        let mut net = Group::new(machine, receivers, number);
        if receiver.assist == Assist::Lms && rng.below(2) == 0 {
            net.elect_replier();
        }
        net.set_links(links(rng));
        net.run_until(LIMIT, |net| {
            net.all_complete() && (!known || net.is_confirmed())
        });
        net.check_content(&bytes);
    }
}

#[test]
fn streams_arrive() {
    for number in seeds() {
        let _named = Named("streams_arrive", number);
        let rng = &mut rng(number + 1);
        let length = rng.below(150_000) as usize;
        let bytes = content(length, number);
        let (mut sender, mut receiver) = configs(rng, length);
        sender.length = None;
        receiver.delivery = Delivery::Read;
        let count = 1 + rng.below(3) as usize;
        sender.receivers = Some(count as u32);
        sender.connect_timeout = Duration::from_secs(60);
        let block = 1usize << sender.block_exponent;
        let ring = HeapRing::new(block * (2 + rng.below(30)) as usize);
        let machine = Sender::new(sender, ring, seed(number), Instant::ZERO).unwrap();
        let receivers = (0..count as u64).map(|index| {
            let mut config = receiver.clone();
            config.limits.window_blocks = 1 << (1 + rng.below(5));
            let ring = HeapRing::new(block * (2 + rng.below(20)) as usize);
            Receiver::new(config, ring, seed(number * 1000 + index + 1), Instant::ZERO)
        });
        let receivers = receivers.collect();
        let mut net = Group::new(machine, receivers, number);
        if receiver.assist == Assist::Lms && rng.below(2) == 0 {
            net.elect_replier();
        }
        net.set_links(links(rng));
        let mut written = 0;
        let mut read = vec![Vec::new(); count];
        net.run_until(LIMIT, |net| {
            net.with_sender(|sender, now| {
                written += sender.send(now, &bytes[written..]).unwrap();
                if written == bytes.len() {
                    sender.finish(now);
                }
            });
            for (index, read) in read.iter_mut().enumerate() {
                read.extend(net.read(index));
            }
            net.all_complete() && net.is_confirmed()
        });
        assert!(read.iter().all(|read| *read == bytes), "bytes differ");
    }
}

#[test]
fn the_same_seed_gives_the_same_session() {
    let run = || {
        let bytes = content(100_000, 5);
        let mut net = files(&bytes, 3, 5, sender_config(bytes.len()), &receiver_config());
        net.sim.enable_trace_hash();
        net.set_loss(0.05);
        net.run_until(LIMIT, |net| net.all_complete());
        (
            net.now(),
            net.sim.trace_hash(),
            format!("{:?}", net.receiver(2).stats()),
        )
    };
    assert_eq!(run(), run());
}
