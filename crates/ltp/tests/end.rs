//! When a driver may stop: the state that the front page of the crate names.

mod common;

use common::network::Host;
use common::{Group, Sink, Source, content, files, group, sender_config};
use ltp::{Duration, Failure, Instant, ReceiverConfig, ReceiverEvent, SenderConfig, SenderEvent};

const LIMIT: Duration = Duration::from_secs(300);

/// The loop of the front page: each machine is driven until it is finished, and then not any more.
fn drive(
    bytes: &[u8],
    config: SenderConfig,
    count: usize,
    loss: f64,
    number: u64,
    source_dies: bool,
) -> Group {
    let receiver = ReceiverConfig::new(group());
    let mut net = files(bytes, count, number, config, &receiver);
    net.set_loss(loss);
    net.sim.with(net.source, |host: &mut Host<Source>, _, _| {
        host.is_done = Source::is_finished;
    });
    for &receiver in &net.receivers {
        net.sim.with(receiver, |host: &mut Host<Sink>, _, _| {
            host.is_done = Sink::is_finished;
        });
    }
    if source_dies {
        net.run_until(LIMIT, |net| net.sender().stats().data_packets > 40);
        net.set_sender(None);
    } else {
        net.run_until(LIMIT, |net| net.sender().is_finished());
    }
    net.run_until(LIMIT, |net| net.receivers().all(Sink::is_finished));
    if !source_dies {
        net.check_content(bytes);
    }
    net
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
    let end = drive(&bytes, config(bytes.len(), 3), 3, 0.0, 1, false);
    assert!(end.now() < Instant::from_secs(2), "{}", end.now());
    assert_eq!(end.sender_events().last(), Some(&SenderEvent::Complete));
    let failed = |event: &SenderEvent| matches!(event, SenderEvent::ReceiverFailed { .. });
    assert!(!end.sender_events().iter().any(failed), "{}", end.state());
    for index in 0..3 {
        let events = end.events(index);
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
        let end = drive(&bytes, config(bytes.len(), 2), 2, 0.05, number, false);
        let last = end.sender_events().last();
        assert_eq!(last, Some(&SenderEvent::Complete), "{number}");
        let failed = |event: &&SenderEvent| matches!(event, SenderEvent::ReceiverFailed { .. });
        let failed = end.sender_events().iter().find(failed);
        assert_eq!(failed, None, "{number}");
    }
}

/// Where receivers do not report the sender finishes after its linger time, a receiver when all is here.
#[test]
fn without_reports_too() {
    let bytes = content(100_000, 2);
    let mut config = sender_config(bytes.len());
    config.linger = Duration::from_secs(1);
    let end = drive(&bytes, config, 1, 0.0, 2, false);
    assert_eq!(end.sender_events().last(), Some(&SenderEvent::Finished));
    assert!(end.now() < Instant::from_secs(4), "{}", end.now());
}

/// A receiver that gives up is finished, too, after it has tried to say so.
#[test]
fn a_receiver_that_fails_is_finished() {
    let bytes = content(500_000, 3);
    let end = drive(&bytes, config(bytes.len(), 1), 1, 0.0, 3, true);
    let last = end.events(0).last();
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
