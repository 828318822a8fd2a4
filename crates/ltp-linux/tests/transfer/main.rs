//! Transfers over the loopback interface; the examples are run as a newcomer would run them.
#![allow(missing_docs)]

mod canceled;
mod confirmed;
#[path = "../../examples/receive_file.rs"]
mod receive_file;
#[path = "../../examples/receive_stream.rs"]
mod receive_stream;
#[path = "../../examples/send_buffer.rs"]
mod send_buffer;
mod versions;

use std::io::Write;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::Duration;

use ltp_linux::{
    Cancel, Error, Group, Rate, ReceiveConfig, ReceiveEvent, Receiver, SendConfig, SendEvent,
    SendOutcome, Sender, Sink, Source, receive, receive_buffer, send,
};

/// A group of its own for each test.
fn group() -> Group {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let process = std::process::id();
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let text = format!(
        "239.196.{}.{}:{}",
        process % 250 + 1,
        next + 1,
        20_000 + process % 20_000
    );
    Group::new(text.parse().expect("a group")).interface("lo")
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[test]
fn a_buffer_arrives_in_a_buffer() {
    let group = group();
    let config = ReceiveConfig::new(group.clone());
    let receiving = thread::spawn(move || receive_buffer(&config, 1 << 20));
    let bytes = content(300_000);
    let outcome = send_buffer::send_buffer(group, bytes.clone()).expect("sent");
    assert_eq!(outcome, SendOutcome::Complete);
    let received = receiving.join().expect("no panic").expect("received");
    assert!(received == bytes);
}

#[test]
fn a_buffer_arrives_as_a_file() {
    let (group, folder) = (group(), tempfile::tempdir().expect("folder"));
    let (their_group, path) = (group.clone(), folder.path().to_owned());
    let cancel = Cancel::new().expect("eventfd");
    let receiving = thread::spawn(move || receive_file::receive_file(their_group, &path, cancel));
    let bytes = content(300_000);
    let outcome = send_buffer::send_buffer(group, bytes.clone()).expect("sent");
    assert_eq!(outcome, SendOutcome::Complete);
    let received = receiving.join().expect("no panic").expect("received");
    let path = folder.path().join("greeting.txt");
    assert_eq!(received.path.as_ref(), Some(&path));
    assert_eq!(received.length, 300_000);
    assert_eq!(received.digest, Some(*blake3::hash(&bytes).as_bytes()));
    assert!(std::fs::read(path).expect("the file") == bytes);
}

#[test]
fn a_stream_arrives_as_a_stream() {
    let group = group();
    let their_group = group.clone();
    let receiving = thread::spawn(move || {
        receive_stream::count_lines(their_group).map_err(|error| error.to_string())
    });
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let writing =
        thread::spawn(move || (0..20_000).try_for_each(|line| writeln!(writer, "line {line}")));
    let mut config = SendConfig::new(group);
    config.receivers = Some(1);
    let outcome = send(&config, Source::stream(reader)).expect("sent");
    assert_eq!(outcome, SendOutcome::Complete);
    writing.join().expect("no panic").expect("written");
    assert_eq!(receiving.join().expect("no panic"), Ok(20_000));
}

#[test]
fn a_sent_file_is_reported_event_by_event() {
    let (group, folder) = (group(), tempfile::tempdir().expect("folder"));
    let path = folder.path().join("image");
    std::fs::write(&path, content(200_000)).expect("a file");
    let config = ReceiveConfig::new(group.clone());
    let receiving = thread::spawn(move || receive_buffer(&config, 1 << 20));
    let mut config = SendConfig::new(group);
    config.receivers = Some(1);
    let source = Source::file(&path).expect("a source");
    let mut told = Vec::new();
    let cancel = Cancel::new().expect("eventfd");
    let mut sender =
        Sender::open(&config, source, cancel, &mut |event| told.push(event)).expect("open");
    assert!(matches!(
        told[0],
        SendEvent::Reading {
            bytes: 0,
            length: 200_000
        }
    ));
    told.clear();
    let outcome = sender.run(&mut |event| told.push(event)).expect("sent");
    assert_eq!(outcome, SendOutcome::Complete);
    assert!(matches!(&told[0], SendEvent::Opened { name, .. } if name == "image"));
    let at = |wanted: fn(&SendEvent) -> bool| told.iter().position(wanted).expect("told");
    let joined = at(|event| matches!(event, SendEvent::Joined { .. }));
    let sent = at(|event| {
        matches!(
            event,
            SendEvent::Sent {
                length: 200_000,
                ..
            }
        )
    });
    let complete = at(|event| matches!(event, SendEvent::ReceiverComplete { .. }));
    assert!(joined < sent && joined < complete);
    assert_eq!(sender.receivers(), (1, 1));
    let member = sender.members().next().expect("one receiver");
    assert_eq!(member.bytes, 200_000);
    receiving.join().expect("no panic").expect("received");
}

/// Both ends are tasks of one runtime; a transfer that is dropped is canceled.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_sent_and_received_by_tasks() {
    use ltp_linux::tokio::Transfer;
    let (group, folder) = (group(), tempfile::tempdir().expect("folder"));
    let config = ReceiveConfig::new(group.clone());
    let receiving = Transfer::receive(config, Sink::folder(folder.path())).expect("a thread");
    let mut config = SendConfig::new(group.clone());
    config.receivers = Some(1);
    let source = Source::buffer(content(300_000)).named("image");
    let mut sending = Transfer::send(config, source).expect("a thread");
    let mut is_joined = false;
    while let Some(event) = sending.next_event().await {
        is_joined |= matches!(event, SendEvent::Joined { .. });
    }
    assert!(is_joined);
    assert_eq!(sending.finish().await.expect("sent"), SendOutcome::Complete);
    let received = receiving.finish().await.expect("received");
    assert_eq!(received.path, Some(folder.path().join("image")));

    let waiting = Transfer::receive(ReceiveConfig::new(group), Sink::folder(folder.path()));
    let waiting = waiting.expect("a thread");
    waiting.cancel();
    assert!(matches!(waiting.finish().await, Err(Error::Canceled)));
}

#[test]
fn a_buffer_has_a_limit() {
    let group = group();
    let config = ReceiveConfig::new(group.clone());
    let receiving = thread::spawn(move || receive_buffer(&config, 100_000));
    let mut config = SendConfig::new(group);
    config.receivers = Some(1);
    config.connect_timeout = Duration::from_secs(2);
    config.linger = Duration::from_millis(100);
    let sent = send(&config, Source::buffer(content(300_000)));
    let unconfirmed = sent.expect_err("the receiver has refused it");
    assert!(
        matches!(unconfirmed, Error::Unconfirmed(_)),
        "{unconfirmed}"
    );
    let error = receiving.join().expect("no panic").expect_err("too long");
    assert!(matches!(error, Error::TooLong(100_000)), "{error}");
}

#[test]
fn waiting_ends_by_itself_or_when_canceled() {
    let mut config = ReceiveConfig::new(group());
    config.connect_timeout = Some(Duration::from_millis(50));
    let error = receive_buffer(&config, 0).expect_err("no sender");
    assert!(matches!(error, Error::NoSender { .. }), "{error}");

    config.connect_timeout = None;
    let cancel = Cancel::new().expect("eventfd");
    let sink = Sink::folder(std::env::temp_dir());
    let mut receiver = Receiver::open(&config, sink, cancel.clone(), &mut |_| {}).expect("open");
    let error = receiver.run(&mut |event| {
        if matches!(event, ReceiveEvent::Waiting { .. }) {
            cancel.cancel();
        }
    });
    assert!(matches!(error, Err(Error::Canceled)));
    receiver.close();

    let mut config = SendConfig::new(group());
    config.receivers = Some(1);
    let mut sender = Sender::open(&config, Source::buffer([1; 10]), cancel, &mut |_| {});
    if let Ok(sender) = &mut sender {
        assert!(matches!(sender.run(&mut |_| {}), Err(Error::Canceled)));
    }
}

#[test]
fn what_cannot_work_is_refused() {
    let mut config = ReceiveConfig::new(Group::new("232.1.2.3:5000".parse().expect("a group")));
    config.group.interface = Some("lo".into());
    let error = receive_buffer(&config, 0).expect_err("no source");
    assert!(error.to_string().contains("source-specific"), "{error}");
    let config = ReceiveConfig::new(group().interface("nowhere0"));
    let error = receive(&config, Sink::stream(std::io::sink())).expect_err("no interface");
    assert!(error.to_string().contains("nowhere0"), "{error}");
    let error = Source::file("/nowhere").expect_err("no file");
    assert_eq!(error.to_string(), "cannot read /nowhere");
    let mut config = SendConfig::new(group());
    config.mtu = Some(100);
    let error = send(&config, Source::buffer([0; 1])).expect_err("a small MTU");
    assert!(error.to_string().contains("576"), "{error}");
}

/// `open` refuses configurations that cannot work, and names the reason.
#[test]
fn configurations_that_cannot_work_are_refused() {
    let sender = |change: fn(&mut SendConfig)| {
        let mut config = SendConfig::new(group());
        change(&mut config);
        let refused = send(&config, Source::buffer(content(10)));
        refused
            .expect_err("a configuration that cannot work")
            .to_string()
    };
    let no_group =
        sender(|config| config.group.address = "192.168.1.1:5000".parse().expect("an address"));
    assert!(
        no_group.starts_with("192.168.1.1 is not a multicast address"),
        "{no_group}"
    );
    for reserved in [[224, 0, 0, 1], [224, 0, 0, 255]] {
        let mut group = group();
        group.address.set_ip(reserved.into());
        let error = send(&SendConfig::new(group), Source::buffer(content(10)));
        let error = error.expect_err("a link-local group").to_string();
        assert!(
            error.contains("is reserved for routing protocols"),
            "{error}"
        );
    }
    let mut routed = group();
    routed.address.set_ip([224, 0, 1, 0].into());
    routed.check().expect("a group that routers forward");
    assert!(sender(|config| config.group.address.set_port(0)).contains("port 0"));
    assert!(sender(|config| config.group.ttl = 0).contains("TTL"));
    assert!(sender(|config| config.rate = Rate::Fixed(0)).contains("rate is 0"));
    assert!(sender(|config| config.receivers = Some(0)).contains("0 receivers"));

    let receiver = |group, folder| {
        let refused = receive(&ReceiveConfig::new(group), Sink::folder(folder));
        refused
            .expect_err("a configuration that cannot work")
            .to_string()
    };
    let mut unicast = group();
    unicast.address.set_ip([10, 0, 0, 1].into());
    assert!(receiver(unicast, "/tmp").contains("not a multicast address"));
    assert!(receiver(group(), "/no/such/folder").contains("/no/such/folder does not exist"));
    let file = receiver(group(), "/proc/version");
    assert!(
        !file.contains("does not exist") && file.contains("/proc/version"),
        "{file}"
    );

    let folder = Source::file("/tmp").expect_err("a folder");
    let why = std::error::Error::source(&folder)
        .expect("the reason")
        .to_string();
    assert!(why.contains("folder"), "{why}");
}
