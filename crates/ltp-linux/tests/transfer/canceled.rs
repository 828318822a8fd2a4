//! Transfers into a buffer that are canceled in the middle.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ltp_linux::tokio::Transfer;
use ltp_linux::{
    Cancel, Error, Group, ReceiveConfig, ReceiveEvent, Receiver, SendConfig, Sender, Sink, Source,
};

use super::{content, group};

/// Runs `receive` while the sender of a stream stands still in its middle.
fn stand_still(receive: impl FnOnce(Group)) {
    let group = group();
    let cancel = Cancel::new().expect("eventfd");
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let (their_group, raised) = (group.clone(), cancel.clone());
    let sending = thread::spawn(move || {
        let mut config = SendConfig::new(their_group);
        config.receivers = Some(1);
        Sender::open(&config, Source::stream(reader), raised, &mut |_| {})?.run(&mut |_| {})
    });
    writer.write_all(&content(300_000)).expect("it is read");
    receive(group);
    cancel.cancel();
    let sent = sending.join().expect("no panic");
    assert!(matches!(sent, Err(Error::Canceled)));
}

fn has_bytes(event: &ReceiveEvent) -> bool {
    matches!(event, ReceiveEvent::Position { bytes, .. } if *bytes > 0)
}

#[test]
fn a_buffer_is_canceled() {
    stand_still(|group| {
        let cancel = Cancel::new().expect("eventfd");
        let (config, sink) = (ReceiveConfig::new(group), Sink::buffer(1 << 20));
        let receiver = Receiver::open(&config, sink, cancel.clone(), &mut |_| {});
        let mut receiver = receiver.expect("open");
        let received = receiver.run(&mut |event| {
            if has_bytes(&event) {
                cancel.cancel();
            }
        });
        assert!(matches!(received, Err(Error::Canceled)));
        assert!(receiver.progress().0 > 0);
        receiver.close();
    });
}

#[test]
fn a_buffer_of_a_task_is_canceled() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    stand_still(|group| {
        runtime.block_on(async {
            let config = ReceiveConfig::new(group);
            let mut receiving = Transfer::receive(config, Sink::buffer(1 << 20)).expect("a thread");
            loop {
                let event = receiving.next_event().await.expect("it runs");
                if has_bytes(&event) {
                    break;
                }
            }
            receiving.cancel();
            assert!(matches!(receiving.finish().await, Err(Error::Canceled)));
        });
    });
}

#[test]
fn a_task_receives_into_a_buffer() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let (group, bytes) = (group(), content(300_000));
        let config = ReceiveConfig::new(group.clone());
        let receiving = Transfer::receive(config, Sink::buffer(bytes.len())).expect("a thread");
        let mut config = SendConfig::new(group);
        config.receivers = Some(1);
        let sending = Transfer::send(config, Source::buffer(bytes.clone())).expect("a thread");
        sending.finish().await.expect("sent");
        let received = receiving.finish().await.expect("received");
        assert!(received.bytes == bytes);
        assert_eq!(received.length, bytes.len() as u64);
    });
}

#[test]
fn the_end_of_a_stream_after_a_cancel_is_not_the_end_of_the_content() {
    let (group, cancel) = (group(), Cancel::new().expect("eventfd"));
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let has_blocks = Arc::new(AtomicBool::new(false));
    let receiving = thread::spawn({
        let (group, has_blocks) = (group.clone(), Arc::clone(&has_blocks));
        move || {
            let (config, sink) = (ReceiveConfig::new(group), Sink::buffer(1 << 20));
            let own = Cancel::new().expect("eventfd");
            let mut receiver = Receiver::open(&config, sink, own, &mut |_| {}).expect("open");
            receiver.run(&mut |event| {
                // All whole blocks: the rest is sent when the stream ends.
                if matches!(event, ReceiveEvent::Position { bytes, .. } if bytes >= 4 << 16) {
                    has_blocks.store(true, Ordering::SeqCst);
                }
            })
        }
    });
    let mut config = SendConfig::new(group);
    config.receivers = Some(1);
    let stream = Source::stream(reader);
    let sender = Sender::open(&config, stream, cancel.clone(), &mut |_| {});
    let feeding = thread::spawn(move || {
        writer.write_all(&content(300_000)).expect("it is read");
        writer
    });
    let mut feeding = Some(feeding);
    let sent = sender.expect("open").run(&mut |_| {
        // On the sender's own thread: it sees the cancel and the end of the stream together.
        if has_blocks.load(Ordering::SeqCst)
            && let Some(feeding) = feeding.take()
        {
            let writer = feeding.join().expect("no panic");
            cancel.cancel();
            drop(writer);
        }
    });
    assert!(matches!(sent, Err(Error::Canceled)), "{sent:?}");
    let received = receiving.join().expect("no panic");
    let received = received.map(|received| received.length);
    assert!(
        matches!(received, Err(Error::Incomplete(_))),
        "{received:?}"
    );
}
