//! Late joiners, sources that die, leave or restart, and the packets that this costs.

mod common;

use std::net::SocketAddrV4;

use common::network::SOURCE;
use common::{Group, Source, content, files, link, receiver_config, seed, sender_config, source};
use ltp::store::HeapRing;
use ltp::{
    Assist, Delivery, Duration, Failure, Instant, Meta, Receiver, ReceiverEvent, Sender,
    SenderConfig, SenderEvent, Start,
};
use netsim::{Loss, NodeId};

const LIMIT: Duration = Duration::from_secs(120);

fn failed(events: &[ReceiverEvent]) -> Option<(Failure, std::ops::Range<u64>)> {
    events.iter().find_map(|event| match event {
        ReceiverEvent::Failed {
            failure,
            first_missing,
        } => Some((*failure, first_missing.clone())),
        _ => None,
    })
}

/// A stream through a ring of 8 blocks of 4 KiB, with one receiver from the start and one that
/// hears nothing until `late_at` bytes were sent.
fn stream(late: Start, late_at: u64, bytes: &[u8]) -> (Group, Vec<u8>) {
    let mut config = sender_config(0);
    config.length = None;
    config.block_exponent = 12;
    let sender = Sender::new(config, HeapRing::new(32 << 10), seed(1), Instant::ZERO).unwrap();
    let receivers = [Start::Beginning, late]
        .into_iter()
        .enumerate()
        .map(|(index, start)| {
            let mut config = receiver_config();
            config.delivery = Delivery::Read;
            config.start = start;
            Receiver::new(
                config,
                HeapRing::new(64 << 10),
                seed(index as u64 + 2),
                Instant::ZERO,
            )
        });
    let mut net = Group::new(sender, receivers.collect(), 1);
    net.set_deaf(1, true);
    let (mut written, mut late_bytes) = (0, Vec::new());
    net.run_until(LIMIT, |net| {
        net.with_sender(|sender, now| {
            written += sender.send(now, &bytes[written..]).unwrap();
            if written == bytes.len() {
                sender.finish(now);
            }
        });
        if net.sender().progress().0 >= late_at {
            net.set_deaf(1, false);
        }
        net.read(0);
        late_bytes.extend(net.read(1));
        net.receiver(0).is_complete()
            && (net.receiver(1).is_complete() || failed(net.events(1)).is_some())
    });
    net.run_until(LIMIT, |net| (0..2).all(|index| net.events(index).len() > 1));
    (net, late_bytes)
}

#[test]
fn a_late_joiner_gets_the_beginning_while_it_is_held() {
    let bytes = content(3_000_000, 1);
    let mut net = files(&bytes, 2, 1, sender_config(bytes.len()), &receiver_config());
    net.set_deaf(1, true);
    net.run_until(LIMIT, |net| net.sender().progress().0 > 2_000_000);
    net.set_deaf(1, false);
    net.run_until(LIMIT, |net| net.all_complete());
    net.check_content(&bytes);
}

#[test]
fn a_late_joiner_of_a_stream_that_has_moved_on_gets_an_error_that_names_the_bytes() {
    let bytes = content(300_000, 2);
    let (net, _) = stream(Start::Beginning, 150_000, &bytes);
    let (failure, missing) = failed(net.events(1)).expect("an error");
    assert_eq!(failure, Failure::NoLongerStored);
    assert_eq!(missing.start, 0);
    assert_eq!(
        net.receiver(1).missing().next().map(|range| range.start),
        Some(0)
    );
}

#[test]
fn a_late_joiner_may_start_where_the_stream_is() {
    for start in [Start::Now, Start::Oldest] {
        let bytes = content(300_000, 3);
        let (net, late) = stream(start, 150_000, &bytes);
        let Some(ReceiverEvent::Opened { start: first, .. }) = net.events(1).first() else {
            panic!("{:?}", net.events(1));
        };
        assert!(*first > 0);
        assert_eq!(failed(net.events(1)), None);
        assert!(
            late == bytes[*first as usize..],
            "{} of {}",
            late.len(),
            bytes.len()
        );
        // The source sent the chaining values to the left, so that the whole is known.
        let complete = ReceiverEvent::Complete {
            length: 300_000,
            digest: Some(*blake3::hash(&bytes).as_bytes()),
        };
        assert!(net.events(1).contains(&complete), "{:?}", net.events(1));
    }
}

#[test]
fn a_source_that_dies_leaves_an_error_that_names_what_is_missing() {
    let bytes = content(2_000_000, 4);
    let mut net = files(&bytes, 2, 4, sender_config(bytes.len()), &receiver_config());
    net.set_loss(0.01);
    net.run_until(LIMIT, |net| net.sender().progress().0 > 1_000_000);
    net.set_sender(None);
    net.run_until(LIMIT, |net| {
        (0..2).all(|index| failed(net.events(index)).is_some())
    });
    for (index, receiver) in net.receivers().enumerate() {
        let (failure, first) = failed(net.events(index)).unwrap();
        assert_eq!(failure, Failure::SourceLost);
        let missing: Vec<_> = receiver.missing().collect();
        assert_eq!(missing.first(), Some(&first));
        assert_eq!(missing.last().map(|range| range.end), Some(2_000_000));
        assert!(
            missing.windows(2).all(|pair| pair[0].end < pair[1].start),
            "{missing:?}"
        );
        let mut held = vec![true; bytes.len()];
        for range in &missing {
            held[range.start as usize..range.end as usize].fill(false);
        }
        let store = receiver.store().as_bytes();
        assert!(
            held.iter()
                .zip(store.iter().zip(&bytes))
                .all(|(held, (a, b))| !held || a == b)
        );
        assert!(!receiver.is_complete());
    }
}

#[test]
fn no_source_at_all() {
    let mut net = files(&[1], 1, 5, sender_config(1), &receiver_config());
    net.set_sender(None);
    net.run_until(LIMIT, |net| !net.events(0).is_empty());
    assert_eq!(
        failed(net.events(0)),
        Some((Failure::NoSource, 0..u64::MAX))
    );
}

#[test]
fn a_source_that_leaves_early() {
    let bytes = content(2_000_000, 6);
    let mut net = files(&bytes, 1, 6, sender_config(bytes.len()), &receiver_config());
    net.run_until(LIMIT, |net| net.sender().progress().0 > 1_000_000);
    net.with_sender(Sender::close);
    net.run_until(LIMIT, |net| failed(net.events(0)).is_some());
    assert!(matches!(
        failed(net.events(0)),
        Some((Failure::SourceLeft, _))
    ));
    assert!(net.sender_events().contains(&SenderEvent::Finished));
    assert!(net.sender().is_ended() && net.sender().poll_timeout().is_none());
}

/// Kills the source in the middle and starts another one of the same content on another port.
fn restart(mut config: SenderConfig, bytes: &[u8]) -> Group {
    config.digest = Some(*blake3::hash(bytes).as_bytes());
    let mut net = files(bytes, 2, 7, config.clone(), &receiver_config());
    net.set_loss(0.01);
    net.run_until(LIMIT, |net| net.sender().progress().0 > 1_000_000);
    net.set_sender(None);
    net.run_for(Duration::from_secs(2));
    net.source = another_source(&mut net, config, bytes);
    net
}

/// Starts a sender of that content on the next port of the source.
fn another_source(net: &mut Group, config: SenderConfig, bytes: &[u8]) -> NodeId {
    let store = HeapRing::whole(bytes.to_vec());
    let sender = Sender::new(config, store, seed(99), net.now()).unwrap();
    let address = SocketAddrV4::new(*SOURCE.ip(), SOURCE.port() + 1);
    net.add_source(address, sender)
}

fn resumed(net: &Group) -> bool {
    let session = net.sender().session();
    let resumed = ReceiverEvent::Resumed { session };
    (0..2).all(|index| net.events(index).contains(&resumed))
}

#[test]
fn a_source_restarted_with_the_same_content_is_followed_to_its_new_session_and_port() {
    let bytes = content(2_000_000, 8);
    let mut net = restart(sender_config(bytes.len()), &bytes);
    net.run_until(LIMIT, |net| net.all_complete());
    net.check_content(&bytes);
    assert!(resumed(&net), "{}", net.state());
}

#[test]
fn a_restarted_source_that_waits_for_its_receivers_continues_at_the_slowest() {
    let bytes = content(2_000_000, 7);
    let mut config = sender_config(bytes.len());
    config.receivers = Some(2);
    config.connect_timeout = Duration::from_secs(60);
    let mut net = restart(config, &bytes);
    let began = net.now();
    let held = net.receivers().map(|receiver| receiver.progress().0);
    let held = held.min().unwrap();
    net.run_until(LIMIT, |net| {
        let is_start = |event: &SenderEvent| matches!(event, SenderEvent::Started { .. });
        net.sender_events().iter().any(is_start)
    });
    let waited = net.now() - began;
    assert!(waited < Duration::from_secs(3), "started after {waited}");
    net.run_until(LIMIT, |net| net.all_complete() && net.is_confirmed());
    net.check_content(&bytes);
    assert!(resumed(&net), "{}", net.state());
    let sent = net.sender().stats().data_packets;
    let missing = 1_435 - net.sender().geometry().first_packet(held >> 16);
    assert_eq!(sent, missing, "of 1,435 packets");
}

/// One receiver is new, and has nothing; the other one waited.
#[test]
fn a_restarted_source_sends_all_of_it_where_a_receiver_has_nothing() {
    let bytes = content(2_000_000, 12);
    let mut config = sender_config(bytes.len());
    config.receivers = Some(2);
    let mut net = restart(config, &bytes);
    let fresh = HeapRing::new(bytes.len().next_multiple_of(1 << 16));
    let receiver = Receiver::new(receiver_config(), fresh, seed(500), net.now());
    net.set_receiver(1, receiver);
    net.run_until(LIMIT, |net| net.all_complete() && net.is_confirmed());
    net.check_content(&bytes);
    assert!(net.sender().stats().data_packets >= 1_435);
}

/// Two transfers of one content by one host to one group: receivers stay with the first.
#[test]
fn a_second_source_on_the_host_takes_no_receiver_away() {
    let bytes = content(2_000_000, 13);
    let mut config = sender_config(bytes.len());
    config.digest = Some(*blake3::hash(&bytes).as_bytes());
    let mut net = files(&bytes, 2, 13, config.clone(), &receiver_config());
    net.run_until(LIMIT, |net| net.sender().progress().0 > 300_000);
    another_source(&mut net, config, &bytes);
    net.run_until(LIMIT, |net| net.all_complete());
    net.check_content(&bytes);
    for (index, receiver) in net.receivers().enumerate() {
        assert_eq!(receiver.session(), Some(net.sender().session()));
        let left = |event: &ReceiverEvent| matches!(event, ReceiverEvent::Resumed { .. });
        let events = net.events(index);
        assert!(!events.iter().any(left), "{events:?}");
    }
}

#[test]
fn a_source_restarted_with_other_content_ends_the_old_session_with_an_error() {
    let bytes = content(2_000_000, 9);
    let mut net = files(&bytes, 1, 9, sender_config(bytes.len()), &receiver_config());
    net.run_until(LIMIT, |net| net.sender().progress().0 > 1_000_000);
    let other = content(2_000_000, 10);
    let config = sender_config(other.len());
    let sender = Sender::new(config, HeapRing::whole(other), seed(98), net.now()).unwrap();
    net.set_sender(Some(sender));
    net.run_until(LIMIT, |net| failed(net.events(0)).is_some());
    assert!(matches!(
        failed(net.events(0)),
        Some((Failure::SourceLeft, _))
    ));
}

#[test]
fn a_receiver_that_gives_up_or_leaves_or_dies_is_reported() {
    let bytes = content(4_000_000, 11);
    let mut config = sender_config(bytes.len());
    config.receivers = Some(3);
    config.receiver_timeout = Duration::from_secs(5);
    config.linger = Duration::from_secs(8);
    let mut net = files(&bytes, 3, 11, config, &receiver_config());
    net.run_until(LIMIT, |net| net.sender().progress().0 > 1_000_000);
    net.with_receiver(0, Receiver::close);
    net.set_deaf(1, true);
    net.run_until(LIMIT, |net| {
        net.sender_events().contains(&SenderEvent::Finished)
    });
    let failures: Vec<_> = net
        .sender_events()
        .iter()
        .filter_map(|event| match event {
            SenderEvent::ReceiverFailed {
                receiver, failure, ..
            } => Some((*receiver, *failure)),
            _ => None,
        })
        .collect();
    let left = (net.receiver(0).id(), ltp::ReceiverFailure::Left);
    assert!(failures.contains(&left), "{failures:?}");
    assert!(
        failures.iter().any(|(id, _)| *id == net.receiver(1).id()),
        "{failures:?}"
    );
    assert_eq!(net.sender().receivers(), (3, 1));
    assert!(!net.is_confirmed());
}

/// The share of a 100 Mbit/s link that 8 receivers get, all done.
fn goodput(loss: f64, assist: Assist, unicast: bool) -> f64 {
    let bytes = content(12_000_000, 12);
    let mut config = sender_config(bytes.len());
    config.rate_bps = Some(100_000_000);
    config.receivers = Some(8);
    config.repair.unicast = unicast;
    let mut receiver = receiver_config();
    receiver.assist = assist;
    let mut net = files(&bytes, 8, 12, config, &receiver);
    let delay = Duration::from_micros(200);
    net.set_links(link().delay(delay).loss(Loss::Bernoulli(loss)));
    net.run_until(LIMIT, |net| net.sender().stats().data_packets > 0);
    let started = net.now();
    net.run_until(LIMIT, |net| net.is_confirmed());
    net.check_content(&bytes);
    let time = (net.now() - started).total_micros() as f64;
    bytes.len() as f64 * 8.0 / time
}

#[test]
fn what_a_link_of_100_megabits_delivers() {
    let clean = goodput(0.0, Assist::None, true);
    let unicast = goodput(0.01, Assist::None, true);
    let multicast = goodput(0.01, Assist::None, false);
    eprintln!("no loss {clean:.2}, 1 % loss {unicast:.2} adaptive, {multicast:.2} multicast");
    assert!(clean >= 95.0, "{clean}");
    assert!(unicast >= 88.0, "{unicast}");
    assert!(multicast >= 88.0, "{multicast}");
}

#[test]
fn an_unrequested_heartbeat_by_unicast_opens_nothing() {
    let bytes = content(10, 13);
    let mut net = files(&bytes, 1, 13, sender_config(10), &receiver_config());
    let mut buffer = [0; 2048];
    let poll = |sender: &mut Source, now| sender.poll_transmit(now, &mut buffer).unwrap();
    let sync = net.with_sender(poll);
    let meta = Meta::unicast(source());
    let result = net.inject(0, &meta, &buffer[..sync.len]);
    assert_eq!(result, Err(ltp::Error::Unasked));
}

#[test]
fn an_empty_content() {
    let mut config = sender_config(0);
    config.receivers = Some(2);
    let mut net = files(&[], 2, 14, config, &receiver_config());
    net.run_until(LIMIT, |net| net.all_complete() && net.is_confirmed());
}

#[test]
fn a_session_to_skip_is_not_begun_and_another_is() {
    let bytes = content(100_000, 4);
    let mut net = files(&bytes, 1, 1, sender_config(bytes.len()), &receiver_config());
    let skipped = net.sender().session();
    let mut config = receiver_config();
    config.skip = Some(skipped);
    config.source_timeout = Duration::from_secs(3600);
    let store = HeapRing::new(bytes.len().next_multiple_of(1 << 16));
    net.set_receiver(0, Receiver::new(config, store, seed(9), net.now()));
    net.run_for(Duration::from_secs(2));
    assert_eq!(net.events(0), []);
    assert!(!net.receiver(0).is_complete());
    // The source is restarted: that is another session.
    let sender = Sender::new(
        sender_config(bytes.len()),
        HeapRing::whole(bytes.clone()),
        seed(77),
        net.now(),
    );
    net.set_sender(Some(sender.unwrap()));
    assert_ne!(net.sender().session(), skipped);
    net.run_until(LIMIT, |net| net.receiver(0).is_complete());
    net.check_content(&bytes);
}
