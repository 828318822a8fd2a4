//! Streams, whose length is not known beforehand: their end, their pauses, and what a forger makes
//! of not knowing it.

mod common;

use common::{Files, content, files, receiver_config, sender_config, source};
use ltp::wire::{Seq, data, sync};
use ltp::{Duration, Error, Failure, Meta, ReceiverConfig, ReceiverEvent, SenderConfig};

const LIMIT: Duration = Duration::from_secs(60);

fn stream(configure: impl FnOnce(&mut SenderConfig, &mut ReceiverConfig)) -> Files {
    let mut sender = sender_config(0);
    sender.length = None;
    let mut receiver = receiver_config();
    configure(&mut sender, &mut receiver);
    files(&[0; 1 << 20], 1, 1, sender, &receiver)
}

fn run_for(net: &mut Files, time: Duration) {
    let end = net.now + time;
    net.run_until(time + LIMIT, |net| net.now >= end);
}

fn write(net: &mut Files, bytes: &[u8]) {
    assert_eq!(net.sender.send(net.now, bytes), Ok(bytes.len()));
}

fn ends_well(net: &mut Files, bytes: &[u8]) {
    net.run_until(LIMIT, |net| net.all_complete());
    net.check_content(bytes);
}

/// Everything may have been sent before the application says that this was all.
#[test]
fn the_end_of_a_stream_may_be_announced_long_after_its_last_byte() {
    for len in [0, 1 << 17] {
        for integrity in [true, false] {
            let bytes = content(len, 1);
            let mut net = stream(|sender, receiver| {
                sender.integrity = integrity;
                receiver.require_integrity = integrity;
            });
            write(&mut net, &bytes);
            run_for(&mut net, Duration::from_secs(2));
            assert_eq!(net.sender.progress(), (len as u64, None));
            net.sender.finish(net.now);
            ends_well(&mut net, &bytes);
        }
    }
}

/// A heartbeat says how long the source may be silent: a receiver waits for three of those.
#[test]
fn a_source_that_is_silent_as_announced_is_not_given_up() {
    let bytes = content(1 << 17, 2);
    let mut net = stream(|sender, receiver| {
        sender.heartbeat_idle = Duration::from_secs(8);
        receiver.source_timeout = Duration::from_secs(2);
    });
    write(&mut net, &bytes);
    run_for(&mut net, Duration::from_secs(60));
    net.source_dead = true;
    let died = net.now;
    net.run_until(LIMIT, |net| net.events[0].iter().any(is_failure));
    assert!(net.now > died + Duration::from_secs(15), "{}", net.state());
    let failed = net.events[0].iter().find(|event| is_failure(event));
    let Some(ReceiverEvent::Failed { failure, .. }) = failed else {
        panic!("{}", net.state())
    };
    assert_eq!(*failure, Failure::SourceLost);
}

fn is_failure(event: &ReceiverEvent) -> bool {
    matches!(event, ReceiverEvent::Failed { .. })
}

/// All packets came, but no digests: that is an end with an error, not an endless wait.
#[test]
fn digests_that_never_come_end_in_an_error() {
    let bytes = content(1 << 17, 3);
    let mut net = stream(|_, _| {});
    net.lost = |packet| matches!(packet[0] & 0xf, 4 | 5);
    write(&mut net, &bytes);
    net.run_until(LIMIT, |net| net.events[0].iter().any(is_failure));
    let failed = ReceiverEvent::Failed {
        failure: Failure::Unanswered,
        first_missing: 0..u64::MAX,
    };
    assert_eq!(net.events[0].last(), Some(&failed));
}

/// A heartbeat that cannot be contradicted names a packet far ahead: the short numbers on the wire still
/// expand to the right ones.
#[test]
fn a_forged_newest_packet_does_not_shift_the_numbers() {
    let bytes = content(500_000, 4);
    let mut net = stream(|_, _| {});
    write(&mut net, &bytes);
    net.run_until(LIMIT, |net| net.receivers[0].stats().data_packets > 20);
    let forged = sync::Repr {
        session: net.sender.session(),
        silence_ms: 500,
        geometry: net.sender.geometry(),
        oldest: 0,
        next: 1 << 34,
        length: None,
        digested: Some(0),
        digest: None,
        reports: false,
        closing: false,
        stalled: false,
        stream: true,
        progress_blocks: 0,
        report_window_us: 0,
        answer: None,
        name: b"",
    };
    let mut packet = vec![0; forged.buffer_len()];
    forged.emit(&mut packet);
    let meta = Meta::group(source());
    assert_eq!(
        net.receivers[0].handle_packet(net.now, &meta, &packet),
        Ok(())
    );
    run_for(&mut net, Duration::from_millis(30));
    net.sender.finish(net.now);
    ends_well(&mut net, &bytes);
    let dropped = &net.receivers[0].stats().drops;
    assert_eq!(dropped.get(Error::BeyondWindow), 0);
    assert_eq!(dropped.get(Error::BeyondEnd), 0);
}

/// Packets past the end, forged before the end is known, do not keep the last block from
/// being whole.
#[test]
fn data_past_the_end_is_forgotten_when_the_end_is_known() {
    let bytes = content((1 << 16) + 3 * 1395 - 10, 5);
    let mut net = stream(|_, _| {});
    net.run_until(LIMIT, |net| net.receivers[0].session().is_some());
    let geometry = net.sender.geometry();
    // In the last block, and in one after it that is whole.
    let invented = [57]
        .into_iter()
        .chain(geometry.first_packet(3)..geometry.first_packet(4));
    for number in invented {
        let mut forged = vec![0x66; geometry.packet_len()];
        data::Repr {
            repair: None,
            session: net.sender.session(),
            sequence: Seq::of(number, geometry.first()),
        }
        .emit(&mut forged);
        let meta = Meta::group(source());
        assert_eq!(
            net.receivers[0].handle_packet(net.now, &meta, &forged),
            Ok(())
        );
    }
    // The second packet of the last block comes only when the end is known.
    net.lost = |packet| matches!(packet[0] & 0xf, 1 | 2) && packet[8..12] == [0, 0, 0, 48];
    write(&mut net, &bytes);
    net.sender.finish(net.now);
    net.run_until(LIMIT, |net| net.receivers[0].progress().1.is_some());
    run_for(&mut net, Duration::from_millis(500));
    net.lost = |_| false;
    ends_well(&mut net, &bytes);
}
