//! Streams, whose length is not known beforehand: their end, their pauses, and what a forger makes
//! of not knowing it.

mod common;

use common::packets::{data_packet, emit, heartbeat};
use common::{Group, content, files, receiver_config, sender_config, source};
use ltp::wire::sync;
use ltp::{
    Delivery, Duration, Error, Failure, Meta, ReceiverConfig, ReceiverEvent, Sender, SenderConfig,
};

const LIMIT: Duration = Duration::from_secs(60);

fn stream(configure: impl FnOnce(&mut SenderConfig, &mut ReceiverConfig)) -> Group {
    let mut sender = sender_config(0);
    sender.length = None;
    let mut receiver = receiver_config();
    configure(&mut sender, &mut receiver);
    files(&[0; 1 << 20], 1, 1, sender, &receiver)
}

fn write(net: &mut Group, bytes: &[u8]) {
    let sent = net.with_sender(|sender, now| sender.send(now, bytes));
    assert_eq!(sent, Ok(bytes.len()));
}

fn ends_well(net: &mut Group, bytes: &[u8]) {
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
            net.run_for(Duration::from_secs(2));
            assert_eq!(net.sender().progress(), (len as u64, None));
            net.with_sender(Sender::finish);
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
    net.run_for(Duration::from_secs(60));
    net.set_sender(None);
    let died = net.now();
    net.run_until(LIMIT, |net| net.events(0).iter().any(is_failure));
    assert!(
        net.now() > died + Duration::from_secs(15),
        "{}",
        net.state()
    );
    let failed = net.events(0).iter().find(|event| is_failure(event));
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
    net.lose(|_, packet| matches!(packet[0] & 0xf, 4 | 5));
    write(&mut net, &bytes);
    net.run_until(LIMIT, |net| net.events(0).iter().any(is_failure));
    let failed = ReceiverEvent::Failed {
        failure: Failure::Unanswered,
        first_missing: 0..u64::MAX,
    };
    assert_eq!(net.events(0).last(), Some(&failed));
}

/// A heartbeat that cannot be contradicted names a packet far ahead: the short numbers on the wire still
/// expand to the right ones.
#[test]
fn a_forged_newest_packet_does_not_shift_the_numbers() {
    let bytes = content(500_000, 4);
    let mut net = stream(|_, _| {});
    write(&mut net, &bytes);
    net.run_until(LIMIT, |net| net.receiver(0).stats().data_packets > 20);
    let packet = emit(&sync::Repr {
        next: 1 << 34,
        stream: true,
        ..heartbeat(&net)
    });
    let meta = Meta::group(source());
    assert_eq!(net.inject(0, &meta, &packet), Ok(()));
    net.run_for(Duration::from_millis(30));
    net.with_sender(Sender::finish);
    ends_well(&mut net, &bytes);
    let dropped = &net.receiver(0).stats().drops;
    assert_eq!(dropped.get(Error::BeyondWindow), 0);
    assert_eq!(dropped.get(Error::BeyondEnd), 0);
}

/// Packets past the end, forged before the end is known, do not keep the last block from
/// being whole.
#[test]
fn data_past_the_end_is_forgotten_when_the_end_is_known() {
    let bytes = content((1 << 16) + 3 * 1395 - 10, 5);
    let mut net = stream(|_, _| {});
    net.run_until(LIMIT, |net| net.receiver(0).session().is_some());
    let geometry = net.sender().geometry();
    // In the last block, and in one after it that is whole.
    let invented = [57]
        .into_iter()
        .chain(geometry.first_packet(3)..geometry.first_packet(4));
    for number in invented {
        let forged = data_packet(&net, number, None);
        let meta = Meta::group(source());
        assert_eq!(net.inject(0, &meta, &forged), Ok(()));
    }
    // The second packet of the last block comes only when the end is known.
    net.lose(|_, packet| matches!(packet[0] & 0xf, 1 | 2) && packet[8..12] == [0, 0, 0, 48]);
    write(&mut net, &bytes);
    net.with_sender(Sender::finish);
    net.run_until(LIMIT, |net| net.receiver(0).progress().1.is_some());
    net.run_for(Duration::from_millis(500));
    net.lose(|_, _| false);
    ends_well(&mut net, &bytes);
}

/// The last packet is padded. Without digests only the length tells where the content ends in it, or a later packet
/// that there is more.
#[test]
fn padding_is_never_read() {
    for heartbeats in [true, false] {
        // The last block has as many packets as a full one.
        let bytes = content((1 << 17) - 100, 6);
        let mut net = stream(|sender, receiver| {
            sender.integrity = false;
            receiver.require_integrity = false;
            receiver.delivery = Delivery::Read;
        });
        net.run_until(LIMIT, |net| net.receiver(0).session().is_some());
        net.lose(move |_, packet| !heartbeats && packet[0] & 0xf == 3);
        write(&mut net, &bytes[..1 << 16]);
        net.run_for(Duration::from_millis(300));
        let mut read = net.read(0);
        assert!(read.len() == 1 << 16 || !heartbeats);
        write(&mut net, &bytes[1 << 16..]);
        net.with_sender(Sender::finish);
        net.run_for(Duration::from_millis(300));
        read.extend(net.read(0));
        assert!(bytes.starts_with(&read), "{} bytes read", read.len());
        assert!(read.len() >= 1 << 16);
        net.lose(|_, _| false);
        net.run_until(LIMIT, |net| {
            read.extend(net.read(0));
            net.all_complete()
        });
        assert!(read == bytes, "{} bytes read", read.len());
    }
}
