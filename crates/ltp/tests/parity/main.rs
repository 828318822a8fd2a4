//! Repair with parity: what it costs to many receivers, who gets it, and what forged parity does.

#[path = "../common/mod.rs"]
mod common;
mod forged;
mod restart;

use common::packets::request;
use common::{Group, content, files, link, receiver_config, sender_config};
use ltp::digest::Hashing;
use ltp::store::HeapRing;
use ltp::wire::request::Kind;
use ltp::{Assist, ConfigError, Duration, Meta, Parity, ReceiverConfig, SenderConfig};
use netsim::Loss;
use std::cell::Cell;
use std::rc::Rc;

const LIMIT: Duration = Duration::from_secs(120);

fn sender(bytes: &[u8], parity: Option<Parity>) -> SenderConfig {
    let mut config = sender_config(bytes.len());
    config.parity = parity;
    config
}

/// A transfer to receivers that lose one packet of a hundred each.
fn transfer(
    bytes: &[u8],
    receivers: usize,
    config: SenderConfig,
    receiver: &ReceiverConfig,
) -> Group {
    let mut net = files(bytes, receivers, 3, config, receiver);
    net.set_loss(0.01);
    net.run_until(LIMIT, |net| net.all_complete());
    net.check_content(bytes);
    net
}

/// Frame bytes of the source as a multiple of the content.
fn cost(net: &Group, bytes: &[u8]) -> f64 {
    net.source_bytes() as f64 / bytes.len() as f64
}

#[test]
fn parity_serves_a_thousand_receivers() {
    // Fewer of them, and less, where the code is not optimised.
    let (receivers, len) = match cfg!(debug_assertions) {
        true => (150, 1 << 20),
        false => (1000, 8 << 20),
    };
    let bytes = content(len, 1);
    let run = |parity| {
        let net = transfer(
            &bytes,
            receivers,
            sender(&bytes, parity),
            &receiver_config(),
        );
        cost(&net, &bytes)
    };
    let with = [Parity::OnRequest, Parity::Auto, Parity::Percent(10)].map(|one| run(Some(one)));
    let without = run(None);
    eprintln!("{receivers} receivers: {with:.3?} times the content, without parity {without:.3}");
    assert!(with.iter().all(|&cost| cost < 1.3), "{with:?}");
    assert!(without > 1.8, "{without}");
}

#[test]
fn receivers_with_and_without_room_for_parity_share_a_session() {
    let bytes = content(1 << 20, 2);
    let config = sender(&bytes, Some(Parity::Auto));
    let mut receiver = receiver_config();
    receiver.limits.parity = 0;
    let mut net = files(&bytes, 8, 4, config, &receiver_config());
    for index in 4..8 {
        let store = ltp::store::HeapRing::new(bytes.len());
        let seed = common::seed(900 + index as u64);
        let machine = ltp::Receiver::new(receiver.clone(), store, seed, net.now());
        net.set_receiver(index, machine);
    }
    net.set_loss(0.02);
    net.run_until(LIMIT, |net| net.all_complete());
    net.check_content(&bytes);
    let stats: Vec<_> = net.receivers().map(|one| one.stats().clone()).collect();
    for (index, stats) in stats.iter().enumerate() {
        let restored = stats.restored_packets;
        assert_eq!(restored > 0, index < 4, "{index}: {restored}");
        assert_eq!(stats.parity > 0, index < 4);
    }
    let sent = net.sender().stats();
    assert!(sent.parity_group > 0 && sent.repairs_group + sent.repairs_unicast > 0);
}

#[test]
fn one_receiver_gets_the_packets_it_lacks() {
    let bytes = content(1 << 20, 5);
    let mut config = sender(&bytes, Some(Parity::OnRequest));
    config.receivers = Some(1);
    let net = transfer(&bytes, 1, config, &receiver_config());
    let stats = net.sender().stats();
    assert_eq!((stats.parity_group, stats.parity_unicast), (0, 0));
    assert!(stats.repairs_unicast > 0);
    assert_eq!(net.receiver(0).stats().restored_packets, 0);
}

#[test]
fn losses_are_restored_without_a_request_when_enough_was_sent_in_advance() {
    let bytes = content(1 << 20, 6);
    let config = sender(&bytes, Some(Parity::Percent(5)));
    let mut net = files(&bytes, 4, 6, config, &receiver_config());
    // Two packets of each block, others at each receiver; parity is not lost.
    let receivers = net.receivers.clone();
    net.lose(move |to, packet| {
        let number = || u32::from_be_bytes([packet[8], packet[9], packet[10], packet[11]]) % 47;
        let index = receivers.iter().position(|&node| node == to);
        packet[0] == 0x11 && index.is_some_and(|index| number() / 2 == 3 * index as u32)
    });
    net.run_until(LIMIT, |net| net.all_complete());
    net.check_content(&bytes);
    for receiver in net.receivers() {
        let stats = receiver.stats();
        assert_eq!(stats.restored_packets, 2 * 16);
        assert_eq!(stats.requested_packets, 0);
    }
}

#[test]
fn a_replier_answers_with_parity() {
    let bytes = content(1 << 20, 7);
    let config = sender(&bytes, Some(Parity::OnRequest));
    let mut receiver = receiver_config();
    receiver.assist = Assist::Lms;
    let mut net = files(&bytes, 6, 8, config, &receiver);
    net.elect_replier();
    // The replier gets everything.
    for index in 1..6 {
        let lossy = link().loss(Loss::Bernoulli(0.02));
        let id = net.links[index];
        net.sim.set_link(id, link(), lossy);
    }
    net.run_until(LIMIT, |net| net.all_complete());
    net.check_content(&bytes);
    assert!(net.receiver(0).stats().parity_sent > 0);
    let restored = net.receivers().map(|one| one.stats().restored_packets);
    let restored: Vec<_> = restored.collect();
    assert!(
        restored[1..].iter().all(|&restored| restored > 0),
        "{restored:?}"
    );
}

#[test]
fn a_late_receiver_gets_everything() {
    let bytes = content(1 << 20, 9);
    let config = sender(&bytes, Some(Parity::Auto));
    let mut net = files(&bytes, 3, 9, config, &receiver_config());
    net.set_deaf(2, true);
    net.run_until(LIMIT, |net| {
        net.receiver(0).is_complete() && net.receiver(1).is_complete()
    });
    net.set_deaf(2, false);
    net.set_loss(0.05);
    net.run_until(LIMIT, |net| net.all_complete());
    net.check_content(&bytes);
}

#[test]
fn requests_from_strangers_bring_no_parity_in_advance() {
    let bytes = content(4 << 20, 10);
    let config = sender(&bytes, Some(Parity::Auto));
    let mut net = files(&bytes, 2, 10, config, &receiver_config());
    net.run_until(LIMIT, |net| net.sender().progress().0 > 100_000);
    let session = net.sender().session();
    // From an address that proved nothing: answered, but not with more in advance.
    while !net.all_complete() {
        let next = net.sender().progress().0 / 1395;
        let sequence = (next as u32).saturating_sub(60);
        let packet = request(session, Kind::DataOrParity, (sequence, sequence + 5), 0);
        let _ = net.inject_to_sender(&Meta::unicast(common::host(9)), &packet);
        net.run_for(Duration::from_millis(3));
    }
    assert_eq!(net.sender().stats().parity_in_advance, 0);
}

#[test]
fn parity_needs_digests() {
    let mut config = sender(&[0; 9], Some(Parity::Auto));
    config.integrity = false;
    let store = ltp::store::HeapRing::whole(vec![0; 9]);
    let sender = ltp::Sender::new(config, store, [0; 32], ltp::Instant::ZERO);
    assert_eq!(sender.err(), Some(ConfigError::Parity));
}

#[test]
fn parity_that_is_held_counts_when_a_restarted_source_sends_again() {
    let bytes = content(1 << 17, 16);
    let mut config = sender(&bytes, Some(Parity::Percent(10)));
    config.receivers = Some(2);
    config.digest = Some(Hashing::new(None).whole(&bytes));
    let start = |number| {
        let store = ltp::store::HeapRing::whole(bytes.clone());
        let seed = common::seed(number);
        ltp::Sender::new(config.clone(), store, seed, ltp::Instant::ZERO).expect("configuration")
    };
    let mut net = files(&bytes, 2, 17, config.clone(), &receiver_config());
    let comes = Rc::new(Cell::new(false));
    let (deaf, fourth) = (net.receivers[0], Rc::clone(&comes));
    // Of block 0 it has two parity packets, and lacks three packets, of which one comes from the second source.
    net.lose(move |to, packet| {
        let word = |at: usize| {
            let bytes = [packet[at], packet[at + 1], packet[at + 2], packet[at + 3]];
            u32::from_be_bytes(bytes)
        };
        let is_lost = match packet[0] {
            0x11 => (3..6).contains(&word(8)) && !(fourth.get() && word(8) == 4),
            0x12 => (3..6).contains(&word(8)),
            0x1a => word(8) == 0 && packet[16] >= 2,
            _ => false,
        };
        to == deaf && is_lost
    });
    net.run_until(LIMIT, |net| net.receiver(1).is_complete());
    net.run_for(Duration::from_millis(50));
    assert_eq!(net.receiver(0).progress().0, 0);
    comes.set(true);
    net.set_sender(Some(start(18)));
    net.run_until(LIMIT, |net| net.all_complete());
    net.check_content(&bytes);
}

#[test]
fn what_the_parity_that_is_held_restores_is_not_requested() {
    let bytes = content(1 << 18, 19);
    let config = sender(&bytes, Some(Parity::Percent(2)));
    let mut net = files(&bytes, 2, 19, config, &receiver_config());
    // Three packets of each block are lost; one parity packet is sent in advance.
    let deaf = net.receivers[0];
    net.lose(move |to, packet| {
        let number = || u32::from_be_bytes([packet[8], packet[9], packet[10], packet[11]]) % 47;
        packet[0] == 0x11 && to == deaf && (7..10).contains(&number())
    });
    net.run_until(LIMIT, |net| net.all_complete());
    net.check_content(&bytes);
    let stats = net.receiver(0).stats();
    assert_eq!(stats.lost_packets, 4 * 3);
    assert_eq!(stats.requested_packets, 4 * 2);
    assert_eq!(stats.restored_packets, 4 * 3);
}

#[test]
fn a_gap_before_a_pause_of_the_source_is_requested() {
    let mut config = SenderConfig::new(common::group());
    config.parity = Some(Parity::Auto);
    config.rate_bps = Some(100_000_000);
    let now = ltp::Instant::ZERO;
    let stream = ltp::Sender::new(config, HeapRing::new(1 << 18), common::seed(1), now);
    let store = HeapRing::new(1 << 18);
    let receiver = ltp::Receiver::new(receiver_config(), store, common::seed(2), now);
    let mut net = Group::new(stream.expect("configuration"), vec![receiver], 20);
    net.lose(move |_, packet| packet[0] == 0x11 && packet[11] == 3);
    net.run_for(Duration::from_millis(50));
    let bytes = content(20 * 1395, 20);
    net.with_sender(|sender, now| sender.send(now, &bytes).expect("room"));
    // Half a block, and then nothing: there is no parity of it.
    net.run_until(LIMIT, |net| net.receiver(0).stats().repairs == 1);
    assert_eq!(net.receiver(0).stats().data_packets, 19);
}
