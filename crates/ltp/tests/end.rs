//! When a driver may stop: the state that the front page of the crate names.

#[path = "common/dice.rs"]
mod dice;

use std::net::{Ipv4Addr, SocketAddr};

use dice::{Dice, content, seed};
use ltp::store::HeapRing;
use ltp::{
    Destination, Duration, Failure, Instant, Meta, Receiver, ReceiverConfig, ReceiverEvent, Sender,
    SenderConfig, SenderEvent,
};

fn group() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(239, 1, 2, 3), 5000))
}

fn source() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 4000))
}

fn host(index: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 1, index as u8), 4000))
}

fn sender_config(length: usize) -> SenderConfig {
    let mut config = SenderConfig::new(group());
    config.length = Some(length as u64);
    config.rate_bps = Some(100_000_000);
    config
}

struct End {
    at: Instant,
    sender: Vec<SenderEvent>,
    receivers: Vec<Vec<ReceiverEvent>>,
}

/// The loop of the front page: each machine is driven until it is finished, and then not any more.
fn drive(
    bytes: &[u8],
    config: SenderConfig,
    count: usize,
    loss: u64,
    number: u64,
    source_dies: bool,
) -> End {
    let mut now = Instant::ZERO;
    let store = HeapRing::whole(bytes.to_vec());
    let mut sender = Sender::new(config, store, seed(number), now).expect("configuration");
    let room = bytes.len().next_multiple_of(1 << 16);
    let mut receivers: Vec<_> = (0..count as u64)
        .map(|index| {
            let seed = seed(number * 100 + index + 1);
            Receiver::new(ReceiverConfig::new(group()), HeapRing::new(room), seed, now)
        })
        .collect();
    let mut end = End {
        at: now,
        sender: Vec::new(),
        receivers: vec![Vec::new(); count],
    };
    let mut dice = Dice::new(number);
    let mut buffer = [0; 2048];
    while !sender.is_finished() || receivers.iter().any(|receiver| !receiver.is_finished()) {
        let dead = source_dies && sender.stats().data_packets > 40;
        if dead && receivers.iter().all(Receiver::is_finished) {
            break;
        }
        while !dead && !sender.is_finished() {
            let Some(transmit) = sender.poll_transmit(now, &mut buffer) else {
                break;
            };
            let packet = &buffer[..transmit.len];
            for (index, receiver) in receivers.iter_mut().enumerate() {
                let meta = match transmit.destination {
                    Destination::Unicast(to) if to != host(index) => continue,
                    Destination::Unicast(_) => Meta::unicast(source()),
                    _ => Meta::group(source()),
                };
                if !dice.chance(loss) && !receiver.is_finished() {
                    let _ = receiver.handle_packet(now, &meta, packet);
                }
            }
        }
        while let Some(event) = sender.poll_event() {
            end.sender.push(event);
        }
        for (index, receiver) in receivers.iter_mut().enumerate() {
            let from: SocketAddr = host(index);
            while !receiver.is_finished() {
                let Some(transmit) = receiver.poll_transmit(now, &mut buffer) else {
                    break;
                };
                if !dice.chance(loss) && !dead {
                    let packet = &buffer[..transmit.len];
                    let _ = sender.handle_packet(now, &Meta::unicast(from), packet);
                }
            }
            while let Some(event) = receiver.poll_event() {
                end.receivers[index].push(event);
            }
        }
        let open = receivers.iter().filter(|receiver| !receiver.is_finished());
        let timeouts = open.filter_map(Receiver::poll_timeout);
        let own = sender
            .poll_timeout()
            .filter(|_| !dead && !sender.is_finished());
        now = timeouts.chain(own).min().unwrap_or(now).max(now);
        sender.handle_timeout(now);
        for receiver in &mut receivers {
            receiver.handle_timeout(now);
        }
        assert!(now < Instant::from_secs(300), "never finished");
    }
    if !source_dies {
        for receiver in &receivers {
            assert!(receiver.store().as_bytes()[..bytes.len()] == *bytes);
        }
    }
    end.at = now;
    end
}

fn config(length: usize, receivers: u32) -> SenderConfig {
    let mut config = sender_config(length);
    config.receivers = Some(receivers);
    config
}

/// Without loss: at once, and no receiver counts as silent.
#[test]
fn the_loop_of_the_front_page_ends_when_everything_is_confirmed() {
    let bytes = content(500_000, 1);
    let end = drive(&bytes, config(bytes.len(), 3), 3, 0, 1, false);
    assert!(end.at < Instant::from_secs(2), "{}", end.at);
    assert_eq!(end.sender.last(), Some(&SenderEvent::Complete));
    let failed = |event: &SenderEvent| matches!(event, SenderEvent::ReceiverFailed { .. });
    assert!(!end.sender.iter().any(failed), "{:?}", end.sender);
    for events in &end.receivers {
        let last = events.last();
        assert!(
            matches!(last, Some(ReceiverEvent::Complete { .. })),
            "{events:?}"
        );
    }
}

/// With loss, also of the last reports and of their answers.
#[test]
fn it_ends_well_with_loss() {
    for number in 0..100 {
        let bytes = content(100_000, number);
        let end = drive(&bytes, config(bytes.len(), 2), 2, 50_000, number, false);
        assert_eq!(end.sender.last(), Some(&SenderEvent::Complete), "{number}");
        let failed = |event: &SenderEvent| matches!(event, SenderEvent::ReceiverFailed { .. });
        assert!(!end.sender.iter().any(failed), "{number}: {:?}", end.sender);
    }
}

/// Where receivers do not report the sender finishes after its linger time, a receiver when all is here.
#[test]
fn without_reports_too() {
    let bytes = content(100_000, 2);
    let mut config = sender_config(bytes.len());
    config.linger = Duration::from_secs(1);
    let end = drive(&bytes, config, 1, 0, 2, false);
    assert_eq!(end.sender.last(), Some(&SenderEvent::Finished));
    assert!(end.at < Instant::from_secs(4), "{}", end.at);
}

/// A receiver that gives up is finished, too, after it has tried to say so.
#[test]
fn a_receiver_that_fails_is_finished() {
    let bytes = content(500_000, 3);
    let end = drive(&bytes, config(bytes.len(), 1), 1, 0, 3, true);
    let last = end.receivers[0].last();
    let failed = |event: &ReceiverEvent| {
        matches!(
            event,
            ReceiverEvent::Failed {
                failure: Failure::SourceLost,
                ..
            }
        )
    };
    assert!(last.is_some_and(failed), "{last:?}");
}
