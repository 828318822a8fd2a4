//! The receivers a sender waits for: an address that proved itself is a receiver, each that joined is
//! waited for while it advances, and hosts that lie change neither the end nor the pace of the others.

mod common;

use std::net::SocketAddr;

use common::packets::{report, request, tell, token_of};
use common::{
    Group, content, files, group, has_content, host, receiver_config, seed, sender_config,
};
use ltp::store::HeapRing;
use ltp::wire::report::Status;
use ltp::wire::request::Kind;
use ltp::{
    Delivery, Duration, Error, Instant, Meta, Receiver, ReceiverConfig, ReceiverFailure,
    ReceiverState, Sender, SenderConfig, SenderEvent,
};

const LIMIT: Duration = Duration::from_secs(120);

/// What a report of completion says of the digest of the whole.
fn prefix(bytes: &[u8]) -> u64 {
    let digest = blake3::hash(bytes);
    digest.as_bytes()[..8]
        .iter()
        .fold(0, |prefix, &byte| prefix << 8 | u64::from(byte))
}

fn port(address: SocketAddr, port: u16) -> SocketAddr {
    SocketAddr::new(address.ip(), port)
}

fn config(length: usize, receivers: u32) -> SenderConfig {
    let mut config = sender_config(length);
    config.receivers = Some(receivers);
    config.block_exponent = 12;
    config.rate_bps = Some(20_000_000);
    config
}

fn failures(net: &Group) -> Vec<(SocketAddr, ReceiverFailure)> {
    let failure = |event: &SenderEvent| match event {
        SenderEvent::ReceiverFailed {
            address, failure, ..
        } => Some((*address, *failure)),
        _ => None,
    };
    net.sender_events().iter().filter_map(failure).collect()
}

/// One receiver of a host completes, and another one of the same host is started: the sender expects two
/// hosts, and the second one has most of it still to come.
#[test]
fn a_host_that_runs_its_receiver_twice_counts_once() {
    let bytes = content(300_000, 1);
    let mut config = config(bytes.len(), 2);
    config.digest = Some(*blake3::hash(&bytes).as_bytes());
    let mut net = files(&bytes, 2, 1, config, &receiver_config());
    let session = net.sender().session();
    // The second host hears nothing yet.
    net.set_deaf(1, true);
    net.run_until(LIMIT, |net| net.receiver(0).is_complete());
    net.run_until(LIMIT, |net| net.sender().receivers().1 == 1);
    let again = port(host(0), 4001);
    let token = token_of(&mut net, again);
    let blocks = bytes.len().div_ceil(4096) as u64;
    let mut done = report(session, 99, Status::Joined, 0, token);
    assert_eq!(tell(&mut net, again, &done), Ok(()));
    done.status = Status::Complete;
    done.blocks = blocks;
    done.digest = prefix(&bytes);
    assert_eq!(tell(&mut net, again, &done), Ok(()));
    net.run_for(Duration::from_millis(10));
    assert!(!net.is_confirmed(), "one host counts as two");
    assert_eq!(net.sender().receivers(), (1, 1));
    net.set_deaf(1, false);
    net.run_until(LIMIT, |net| net.all_complete() && net.is_confirmed());
    net.check_content(&bytes);
    assert_eq!(net.sender().receivers(), (2, 2));
}

/// Three receivers join where two are expected: the third is waited for, too.
#[test]
fn every_receiver_that_joined_is_waited_for() {
    for seed in 0..10 {
        let bytes = content(300_000, seed);
        let mut net = files(&bytes, 3, seed, config(bytes.len(), 2), &receiver_config());
        net.run_until(LIMIT, |net| net.sender().receivers().0 == 3);
        // The third one loses all packets for a while.
        net.set_deaf(2, true);
        net.run_until(LIMIT, |net| net.sender().receivers().1 == 2);
        net.run_for(Duration::from_secs(4));
        assert!(!net.is_confirmed(), "the third receiver lacks packets");
        assert!(!net.sender().is_ended());
        net.set_deaf(2, false);
        net.run_until(LIMIT, |net| net.all_complete() && net.is_confirmed());
        net.check_content(&bytes);
        assert_eq!(net.sender().receivers(), (3, 3));
        assert_eq!(failures(&net), []);
    }
}

/// A host that was let in reports completion under two identifiers right at the start, with the digest that
/// every heartbeat carries.
#[test]
fn forged_completions_of_one_host_end_nothing() {
    let bytes = content(600_000, 3);
    let mut config = config(bytes.len(), 2);
    config.digest = Some(*blake3::hash(&bytes).as_bytes());
    let mut net = files(&bytes, 2, 3, config, &receiver_config());
    let session = net.sender().session();
    net.run_until(LIMIT, |net| net.sender().stats().data_packets > 7);
    let blocks = bytes.len().div_ceil(4096) as u64;
    for (id, from) in [(5, port(host(9), 1)), (6, port(host(9), 2))] {
        let token = token_of(&mut net, from);
        let mut forged = report(session, id, Status::Complete, blocks, token);
        forged.digest = prefix(&bytes);
        assert_eq!(tell(&mut net, from, &forged), Ok(()));
    }
    net.run_for(Duration::from_millis(10));
    assert!(!net.is_confirmed(), "two forged reports end the transfer");
    net.run_until(LIMIT, |net| net.all_complete() && net.is_confirmed());
    net.check_content(&bytes);
}

/// A receiver that is killed and started again at once: the session ends well as soon as its second run is
/// done and the first one has been silent long enough.
#[test]
fn a_receiver_that_was_killed_and_started_again_is_one_receiver() {
    let bytes = content(300_000, 4);
    let mut config = config(bytes.len(), 1);
    config.receiver_timeout = Duration::from_secs(3);
    let mut net = files(&bytes, 1, 4, config, &receiver_config());
    let session = net.sender().session();
    net.run_until(LIMIT, |net| net.sender().receivers().0 == 1);
    // The first run, of which nothing is heard after it joined.
    let first = port(host(0), 3999);
    let token = token_of(&mut net, first);
    let joined = report(session, 77, Status::Joined, 0, token);
    assert_eq!(tell(&mut net, first, &joined), Ok(()));
    let second = port(host(0), 4001);
    let token = token_of(&mut net, second);
    let joined = report(session, 78, Status::Joined, 0, token);
    assert_eq!(tell(&mut net, second, &joined), Ok(()));
    let mut leaving = joined;
    leaving.status = Status::Leaving;
    assert_eq!(tell(&mut net, second, &leaving), Ok(()));
    let third = port(host(0), 4002);
    let token = token_of(&mut net, third);
    let joined = report(session, 79, Status::Joined, 0, token);
    assert_eq!(tell(&mut net, third, &joined), Ok(()));
    net.run_until(LIMIT, |net| net.all_complete());
    let mut complete = joined;
    complete.status = Status::Complete;
    complete.blocks = bytes.len().div_ceil(4096) as u64;
    assert_eq!(tell(&mut net, third, &complete), Ok(()));
    net.run_until(LIMIT, |net| net.is_confirmed());
    assert_eq!(net.sender().receivers(), (1, 1));
    let replaced = (first, ReceiverFailure::Replaced);
    assert!(failures(&net).contains(&replaced), "{:?}", failures(&net));
}

/// Reports without advance keep nothing alive: neither the window nor the end.
#[test]
fn a_receiver_that_does_not_advance_is_dropped_and_named() {
    for invited in [3, 2] {
        let bytes = content(3_000_000, 5);
        let mut config = config(bytes.len(), invited);
        config.window_blocks = Some(64);
        config.receiver_timeout = Duration::from_secs(5);
        let store = HeapRing::whole(bytes.clone());
        let sender = Sender::new(config, store, seed(5), Instant::ZERO).expect("configuration");
        let receivers = (0..3u64).map(|index| {
            let mut config: ReceiverConfig = receiver_config();
            if index == 2 {
                // Its application never reads.
                config.delivery = Delivery::Read;
                config.limits.window_blocks = 32;
            } else {
                config.limits.window_blocks = 1024;
            }
            let ring = HeapRing::new(bytes.len().next_multiple_of(4096));
            Receiver::new(config, ring, seed(10 + index), Instant::ZERO)
        });
        let mut net = Group::new(sender, receivers.collect(), 5);
        net.run_until(LIMIT, |net| net.sender().stats().stalls > 0);
        let waiting = net.sender().waiting_for().expect("the slowest receiver");
        assert_eq!(waiting.address, host(2));
        assert_eq!(waiting.state, ReceiverState::Receiving);
        net.run_until(LIMIT, |net| {
            (0..2).all(|index| net.receiver(index).is_finished())
        });
        let stuck = (host(2), ReceiverFailure::NoProgress);
        assert_eq!(failures(&net), [stuck], "{invited} invited");
        for receiver in net.receivers().take(2) {
            assert!(has_content(receiver, &bytes));
        }
        // It continues to report, and the session still ends, without success.
        net.run_until(LIMIT, |net| net.sender().is_ended());
        assert!(!net.is_confirmed());
        let state = net.sender().members().find(|info| info.address == host(2));
        let failed = ReceiverState::Failed(ReceiverFailure::NoProgress);
        assert_eq!(state.map(|info| info.state), Some(failed));
    }
}

/// A stream that pauses for minutes drops no receiver: one that lacks nothing cannot advance.
#[test]
fn a_pause_of_the_stream_drops_no_receiver() {
    let mut config = SenderConfig::new(group());
    config.block_exponent = 12;
    config.receivers = Some(2);
    let ring = HeapRing::new(64 << 12);
    let sender = Sender::new(config, ring, seed(6), Instant::ZERO).expect("configuration");
    let receivers = (0..2u64).map(|index| {
        let ring = HeapRing::new(256 << 12);
        Receiver::new(receiver_config(), ring, seed(10 + index), Instant::ZERO)
    });
    let mut net = Group::new(sender, receivers.collect(), 6);
    let bytes = content(200_000, 6);
    for part in bytes.chunks(50_000) {
        let sent = net.with_sender(|sender, now| sender.send(now, part));
        assert_eq!(sent, Ok(part.len()));
        net.run_for(Duration::from_secs(90));
    }
    net.with_sender(Sender::finish);
    net.run_until(LIMIT, |net| net.all_complete() && net.is_confirmed());
    assert_eq!(failures(&net), []);
}

/// A host that joins repeatedly, and never advances, holds the others up for three timeouts, not for
/// ever.
#[test]
fn a_host_that_joins_again_and_again_is_not_waited_for() {
    let bytes = content(2_000_000, 7);
    let mut config = config(bytes.len(), 2);
    config.window_blocks = Some(64);
    config.receiver_timeout = Duration::from_secs(2);
    let mut net = files(&bytes, 2, 7, config, &receiver_config());
    let session = net.sender().session();
    net.run_until(LIMIT, |net| net.sender().stats().data_packets > 50);
    let start = net.now();
    for number in 0..3_000u16 {
        if net.sender().is_ended() {
            break;
        }
        // At the same port and at new ones.
        let from = port(host(9), 10_000 + number / 2);
        let token = token_of(&mut net, from);
        let blocks = net.sender().progress().0 / 4096;
        let joined = report(session, u64::from(number), Status::Joined, blocks, token);
        let _ = tell(&mut net, from, &joined);
        net.run_for(Duration::from_millis(100));
    }
    assert!(net.all_complete(), "{}", net.state());
    net.check_content(&bytes);
    assert!(net.sender().is_ended(), "{}", net.state());
    let took = net.now() - start;
    assert!(took < Duration::from_secs(40), "{took}");
    let given_up = |(at, failure): &(SocketAddr, _)| {
        at.ip() == host(9).ip() && *failure == ReceiverFailure::NotWaitedFor
    };
    let known = net
        .sender()
        .members()
        .filter(|info| info.address.ip() == host(9).ip());
    let last =
        known.filter(|info| info.state == ReceiverState::Failed(ReceiverFailure::NotWaitedFor));
    assert!(last.count() > 0 || failures(&net).iter().any(given_up));
}

/// One host, any number of ports: it gets its share of the table, and others still join.
#[test]
fn one_host_cannot_fill_the_table() {
    let bytes = content(2_000_000, 8);
    let mut config = config(bytes.len(), 20);
    config.limits.receivers = 128;
    config.connect_timeout = Duration::from_secs(1000);
    let mut net = files(&bytes, 0, 8, config, &receiver_config());
    let session = net.sender().session();
    let mut refused = 0;
    for number in 0..2_000u16 {
        let from = port(host(9), 10_000 + number);
        let token = token_of(&mut net, from);
        let joined = report(session, u64::from(number), Status::Joined, 0, token);
        refused += u32::from(tell(&mut net, from, &joined) == Err(Error::ReceiversFull));
        net.run_for(Duration::from_millis(1));
    }
    assert!(refused > 1_900, "{refused}");
    assert_eq!(net.sender().receivers(), (1, 0));
    for index in 100..119 {
        let token = token_of(&mut net, host(index));
        let joined = report(session, index as u64, Status::Joined, 0, token);
        assert_eq!(tell(&mut net, host(index), &joined), Ok(()), "{index}");
        net.run_for(Duration::from_millis(1));
    }
    assert_eq!(net.sender().receivers(), (20, 0));
}

/// Requests of a stranger after everything was sent do not hold the sender without limit, where receivers report.
#[test]
fn requests_of_a_stranger_do_not_keep_the_sender() {
    let bytes = content(100_000, 9);
    let mut config = config(bytes.len(), 2);
    config.linger = Duration::from_secs(1);
    config.connect_timeout = Duration::from_millis(10);
    let mut net = files(&bytes, 1, 9, config, &receiver_config());
    net.run_until(LIMIT, |net| net.all_complete());
    let sent = net.now();
    while !net.sender().is_ended() {
        let request = request(net.sender().session(), Kind::Data, (0, 0), 0);
        let _ = net.inject_to_sender(&Meta::unicast(host(9)), &request);
        let later = net.now() + Duration::from_millis(200);
        net.run_until(LIMIT, |net| net.now() >= later || net.sender().is_ended());
        assert!(net.now() - sent < Duration::from_secs(30), "still asked");
    }
    assert!(!net.is_confirmed(), "one of two hosts has confirmed");
}

/// A relay acknowledges the same packet repeatedly, since a child below it is stuck: the source reports
/// that and continues, and the acknowledgement counts again once it advances.
#[test]
fn a_stuck_subtree_is_left_behind_and_named() {
    let bytes = content(3_000_000, 10);
    let mut config = sender_config(bytes.len());
    config.block_exponent = 12;
    config.window_blocks = Some(64);
    config.receiver_timeout = Duration::from_secs(5);
    config.linger = Duration::from_secs(1);
    let mut net = files(&bytes, 1, 10, config, &receiver_config());
    let first = net.sender().next_sequence();
    net.with_sender(|sender, now| sender.acknowledged(now, first + 100));
    net.with_sender(|sender, now| sender.acknowledged(now, first));
    let mut stalled = None;
    let mut ended = None;
    for _ in 0..600 {
        let later = net.now() + Duration::from_millis(100);
        net.run_until(LIMIT, |net| net.now() >= later || net.sender().is_ended());
        if net.sender().is_ended() {
            ended = Some(net.now());
            break;
        }
        let held_back = net.sender().progress().0 < bytes.len() as u64;
        if net.now() < Instant::from_secs(4) {
            assert!(held_back, "the window waits for the relay");
            assert!(!net.sender().is_relay_stalled());
        }
        if net.sender().is_relay_stalled() {
            stalled = stalled.or(Some(net.now()));
        }
        net.with_sender(|sender, now| sender.acknowledged(now, first));
    }
    let stalled = stalled.expect("it is told");
    assert!(stalled < Instant::from_secs(7), "{stalled}");
    let told = |event: &&SenderEvent| **event == SenderEvent::RelayStalled { blocks: 0 };
    assert_eq!(net.sender_events().iter().filter(told).count(), 1);
    assert!(net.all_complete(), "the others have everything");
    assert!(ended.is_some(), "the sender ends: {}", net.state());
}

/// As above, but the subtree advances before the end.
#[test]
fn a_subtree_that_advances_counts_again() {
    let bytes = content(3_000_000, 11);
    let mut config = sender_config(bytes.len());
    config.block_exponent = 12;
    config.window_blocks = Some(64);
    config.rate_bps = Some(2_000_000);
    config.receiver_timeout = Duration::from_secs(3);
    let mut net = files(&bytes, 1, 11, config, &receiver_config());
    let first = net.sender().next_sequence();
    net.with_sender(|sender, now| sender.acknowledged(now, first));
    net.run_until(LIMIT, |net| net.sender().is_relay_stalled());
    let next = net.sender().next_sequence();
    net.with_sender(|sender, now| sender.acknowledged(now, next));
    assert!(!net.sender().is_relay_stalled());
    let before = net.sender().progress().0;
    net.run_for(Duration::from_millis(2_900));
    let sent = (net.sender().progress().0 - before) >> 12;
    assert!(
        (60..=65).contains(&sent),
        "{sent} blocks ahead of the relay"
    );
}

/// All receivers that report have everything, and a child of the relay does not: the sender waits for it as long as
/// for any receiver.
#[test]
fn a_relay_that_lacks_something_is_waited_for_after_all_reports() {
    let bytes = content(100_000, 12);
    let mut config = config(bytes.len(), 1);
    config.linger = Duration::from_millis(300);
    config.receiver_timeout = Duration::from_secs(1);
    let mut net = files(&bytes, 1, 12, config, &receiver_config());
    let first = net.sender().next_sequence();
    net.with_sender(|sender, now| sender.acknowledged(now, first));
    net.run_until(LIMIT, |net| net.is_confirmed());
    net.run_for(Duration::from_millis(200));
    net.with_sender(|sender, now| sender.acknowledged(now, first + 1));
    let advanced = net.now();
    net.run_until(LIMIT, |net| net.sender().is_ended());
    let waited = (net.now() - advanced).total_millis();
    assert!((1_000..2_000).contains(&waited), "{waited} ms");
}

/// A sender that is to end at once when everything is confirmed waits until then.
#[test]
fn without_linger_time_receivers_are_waited_for_all_the_same() {
    let bytes = content(100_000, 13);
    let mut config = config(bytes.len(), 2);
    config.linger = Duration::ZERO;
    let mut net = files(&bytes, 2, 13, config, &receiver_config());
    net.set_loss(0.1);
    net.run_until(LIMIT, |net| net.sender().is_ended());
    assert!(net.is_confirmed(), "{}", net.state());
}
