//! Rings drained into QUIC connections over loopback.

mod hostile;
mod raw;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use control_stream::tls::Credentials;
use ldc_linux::quic::{
    self, Config, Drain, Error, Event, Limits, Receiver, ReceiverStats, Streams,
};
use ldc_linux::schedule::Scheduler;
use ldc_linux::{Attributes, Rings, Sender, Shape};

/// Name in the certificate; with a shared secret any name will do.
const NAME: &str = "polycast";
/// No test should take this long.
const LIMIT: Duration = Duration::from_secs(30);
const PLAIN: Attributes = Attributes {
    deadline: None,
    priority: 0,
};

fn secret(byte: u8) -> Credentials {
    Credentials::from_secret(&[byte; 32]).expect("credentials")
}

fn bind(limits: Limits) -> (Receiver, SocketAddr) {
    let any = (Ipv4Addr::LOCALHOST, 0).into();
    let receiver = Receiver::bind(any, Arc::clone(&secret(1).server), limits);
    let receiver = receiver.expect("a receiver");
    let address = receiver.local_address().expect("an address");
    (receiver, address)
}

fn tls() -> Arc<rustls::ClientConfig> {
    Arc::clone(&secret(1).client)
}

/// Waits for the next event.
fn event(receiver: &mut Receiver) -> Event {
    let event = receiver.wait(LIMIT).expect("no failure");
    event.expect("an event in time")
}

fn connected(receiver: &mut Receiver) {
    assert!(matches!(event(receiver), Event::Connected(_)));
}

/// Receives everything of one sender in a thread.
fn collect(mut receiver: Receiver) -> JoinHandle<(Vec<Vec<u8>>, ReceiverStats)> {
    std::thread::spawn(move || {
        let mut messages = Vec::new();
        loop {
            match event(&mut receiver) {
                Event::Connected(_) => {}
                Event::Message(bytes) => messages.push(bytes),
                Event::Done => return (messages, receiver.stats()),
                Event::Failed(error) => panic!("{error}"),
            }
        }
    })
}

/// Waits until a condition holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn shape(slots: u32) -> Shape {
    Shape::new(slots, 1_500).expect("a shape")
}

/// A message with its number, so that each is different.
fn message(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![number as u8; len];
    let digits = number.to_be_bytes();
    let used = len.min(4);
    bytes[..used].copy_from_slice(&digits[4 - used..]);
    bytes
}

#[test]
fn all_messages_arrive_whole_and_are_acknowledged() {
    let (receiver, address) = bind(Limits::default());
    let collected = collect(receiver);
    let config = Config {
        acks: true,
        ..Config::default()
    };
    let mut ring = quic::init(address, NAME, tls(), shape(256), config).expect("a ring");
    let mut sent = Vec::new();
    let mut acks = Vec::new();
    for number in 0..300 {
        let len = [0, 1, 63, 64, 1_200, 1_400, 20_000][number as usize % 7];
        let bytes = message(number, len);
        ring.send_wait(number.into(), &bytes, PLAIN, Some(LIMIT))
            .expect("room");
        ring.notify();
        sent.push(bytes);
        acks.extend(std::iter::from_fn(|| ring.ring().poll_ack()));
    }
    until("all acknowledged", || {
        acks.extend(std::iter::from_fn(|| ring.ring().poll_ack()));
        acks.len() == 300
    });
    let stats = ring.finish().expect("the receiver has all");
    assert_eq!((stats.acked, stats.abandoned), (300, 0));
    let (mut got, stats) = collected.join().expect("no panic");
    got.sort();
    sent.sort();
    assert!(got == sent);
    assert_eq!((stats.messages, stats.reset), (300, 0));
    acks.sort_unstable();
    assert!(acks.into_iter().eq(0..300));
}

#[test]
fn messages_with_one_sequence_number_share_a_stream_and_keep_their_order() {
    let (receiver, address) = bind(Limits::default());
    let collected = collect(receiver);
    let config = Config {
        streams: Streams::PerSequence,
        ..Config::default()
    };
    let mut ring = quic::init(address, NAME, tls(), shape(512), config).expect("a ring");
    for number in 0..400 {
        let bytes = message(number, 1_000);
        ring.send_wait(u64::from(number / 40), &bytes, PLAIN, Some(LIMIT))
            .expect("room");
    }
    ring.notify();
    assert_eq!(ring.finish().expect("the receiver has all").acked, 400);
    let (got, _) = collected.join().expect("no panic");
    assert_eq!(got.len(), 400);
    for sequence in 0..10 {
        let numbers = got
            .iter()
            .map(|bytes| u32::from_be_bytes(bytes[..4].try_into().expect("four")));
        let of_it: Vec<u32> = numbers.filter(|number| number / 40 == sequence).collect();
        assert!(of_it.is_sorted(), "{of_it:?}");
    }
}

#[test]
fn messages_of_low_priority_leave_as_datagrams_if_they_fit() {
    let (receiver, address) = bind(Limits::default());
    let collected = collect(receiver);
    let config = Config {
        datagrams_below: 5,
        ..Config::default()
    };
    let mut ring = quic::init(address, NAME, tls(), shape(256), config).expect("a ring");
    for (number, (priority, len)) in [(4, 100), (5, 100), (4, 5_000), (0, 0)]
        .into_iter()
        .enumerate()
    {
        let attributes = Attributes {
            deadline: None,
            priority,
        };
        ring.send(number as u64, &message(number as u32, len), attributes)
            .expect("room");
    }
    ring.notify();
    let stats = ring.finish().expect("the receiver has all");
    assert_eq!((stats.datagrams, stats.acked), (2, 2));
    let (got, stats) = collected.join().expect("no panic");
    // Loopback loses nothing.
    assert_eq!((got.len(), stats.datagrams, stats.messages), (4, 2, 2));
}

#[test]
fn a_peer_without_the_key_is_refused_at_both_ends() {
    let (mut receiver, address) = bind(Limits::default());
    let other = Arc::clone(&secret(2).client);
    let ring = quic::init(address, NAME, other, shape(16), Config::default()).expect("a ring");
    until("the drain ends", || {
        assert!(
            receiver
                .wait(Duration::from_millis(5))
                .expect("no failure")
                .is_none()
        );
        ring.has_ended()
    });
    assert!(matches!(ring.finish(), Err(Error::Tls(_))));
    // The next one is served.
    let ring = quic::init(address, NAME, tls(), shape(16), Config::default()).expect("a ring");
    connected(&mut receiver);
    drop(ring);
}

#[test]
fn nothing_is_claimed_before_congestion_control_lets_it_go() {
    let (mut receiver, address) = bind(Limits::default());
    let mut ring =
        quic::init(address, NAME, tls(), shape(1_024), Config::default()).expect("a ring");
    connected(&mut receiver);
    // From now on nothing is acknowledged.
    for number in 0..1_000 {
        ring.send(number, &message(number as u32, 1_200), PLAIN)
            .expect("room");
    }
    ring.notify();
    until("the window is used", || {
        ring.ring().pending().count() < 1_000
    });
    std::thread::sleep(Duration::from_millis(300));
    // The initial window is ten packets (RFC 9002 §7.2).
    let pending = ring.ring().pending().count();
    assert!((985..1_000).contains(&pending), "{pending} of 1,000 wait");
}

#[test]
fn cancelling_makes_room_although_nothing_can_leave() {
    let (mut receiver, address) = bind(Limits::default());
    let mut ring = quic::init(address, NAME, tls(), shape(64), Config::default()).expect("a ring");
    connected(&mut receiver);
    // From now on nothing is acknowledged. What is claimed stays in the ring, at its front; all others follow.
    for number in 0..64 {
        ring.send(number, &message(number as u32, 1_200), PLAIN)
            .expect("room");
    }
    ring.notify();
    until("the window is used", || ring.ring().pending().count() < 60);
    std::thread::sleep(Duration::from_millis(300));
    let kept = ring.ring().pending().count();
    for number in 0..64 {
        ring.abandon(number);
    }
    ring.notify();
    ring.wait_room(64, Some(LIMIT)).expect("room in time");
    assert!(kept > 40, "{kept} of 64 waited");
}

#[test]
fn the_congestion_window_grows_while_messages_wait() {
    let (receiver, address) = bind(Limits::default());
    let collected = collect(receiver);
    let mut ring =
        quic::init(address, NAME, tls(), shape(1_024), Config::default()).expect("a ring");
    for number in 0..3_000 {
        let bytes = message(number, 1_200);
        ring.send_wait(number.into(), &bytes, PLAIN, Some(LIMIT))
            .expect("room");
    }
    let stats = ring.finish().expect("the receiver has all");
    // From 14,720 bytes on, all of them acknowledged in slow start, unless loopback drops some.
    assert!(
        stats.window > 1_000_000 || stats.lost_packets > 0,
        "{stats:?}"
    );
    assert_eq!(collected.join().expect("no panic").0.len(), 3_000);
}

#[test]
fn abandoned_messages_leave_the_ring_although_the_receiver_acknowledges_nothing() {
    let (mut receiver, address) = bind(Limits::default());
    let mut ring = quic::init(address, NAME, tls(), shape(64), Config::default()).expect("a ring");
    connected(&mut receiver);
    for number in 0..40 {
        ring.send(7, &message(number, 1_200), PLAIN).expect("room");
    }
    ring.notify();
    until("some are in flight", || ring.ring().pending().count() < 40);
    let outcome = ring.abandon(7);
    assert!(outcome.changed > 0 && outcome.too_late > 0, "{outcome:?}");
    ring.notify();
    until("all slots are free", || ring.ring().free_slots() == 64);
    // What follows arrives.
    ring.send(8, b"last", PLAIN).expect("room");
    ring.notify();
    let stats = std::thread::spawn(move || ring.finish());
    let mut last = None;
    loop {
        match event(&mut receiver) {
            Event::Message(bytes) => last = Some(bytes),
            Event::Done => break,
            Event::Connected(_) => unreachable!("one sender"),
            Event::Failed(error) => panic!("{error}"),
        }
    }
    assert_eq!(last.as_deref(), Some(&b"last"[..]));
    let stats = stats
        .join()
        .expect("no panic")
        .expect("the receiver has all");
    assert_eq!((stats.acked, stats.abandoned), (1, outcome.too_late.into()));
    assert!(receiver.stats().reset > 0);
}

#[test]
fn a_message_past_its_deadline_is_given_up_in_flight() {
    let (mut receiver, address) = bind(Limits::default());
    let mut ring = quic::init(address, NAME, tls(), shape(64), Config::default()).expect("a ring");
    connected(&mut receiver);
    let attributes = Attributes {
        deadline: Some(ldc_linux::now() + ldc_linux::Duration::from_millis(100)),
        priority: 0,
    };
    ring.send(1, b"soon stale", attributes).expect("room");
    ring.notify();
    until("it is in flight", || ring.ring().pending().count() == 0);
    until("it is given up", || ring.ring().free_slots() == 64);
    drop(ring);
}

#[test]
fn the_most_important_class_leaves_first() {
    let (receiver, address) = bind(Limits::default());
    let collected = collect(receiver);
    let scheduler = Scheduler::strict(2).expect("two classes");
    let (mut senders, rings) = Rings::create(shape(64), scheduler).expect("two rings");
    // The drain begins when both wait.
    for number in 0..20 {
        senders[1]
            .send(number, &message(number as u32, 1_000), PLAIN)
            .expect("room");
    }
    for number in 100..120 {
        senders[0]
            .send(number, &message(number as u32, 1_000), PLAIN)
            .expect("room");
    }
    let drain = Drain::connect(rings, address, NAME, tls(), Config::default()).expect("a drain");
    let ring = quic::start(senders, drain).expect("a thread");
    assert_eq!(ring.finish().expect("the receiver has all").acked, 40);
    let (got, _) = collected.join().expect("no panic");
    let first = &got[..20];
    assert!(
        first.iter().all(|bytes| bytes[3] >= 100),
        "{:?}",
        got.iter().map(|b| b[3]).collect::<Vec<_>>()
    );
}

#[test]
fn a_sender_that_closes_one_of_its_rings_goes_on_with_the_others() {
    let (receiver, address) = bind(Limits::default());
    let collected = collect(receiver);
    let scheduler = Scheduler::weighted(&[1, 1]).expect("two classes");
    let (mut senders, rings) = Rings::create(shape(64), scheduler).expect("two rings");
    let drain = Drain::connect(rings, address, NAME, tls(), Config::default()).expect("a drain");
    let first: Sender = senders.remove(0);
    let mut ring = quic::start(senders, drain).expect("a thread");
    drop(first);
    until("the message has left", || {
        ring[0]
            .send(1, b"x", PLAIN)
            .is_ok_and(|()| ring[0].notify())
    });
    assert!(ring.finish().expect("the receiver has all").acked > 0);
    assert!(!collected.join().expect("no panic").0.is_empty());
}

#[test]
fn a_receiver_that_does_not_answer_ends_the_drain() {
    // Bound, and never driven.
    let (_receiver, address) = bind(Limits::default());
    let config = Config {
        idle_timeout: Duration::from_millis(300),
        ..Config::default()
    };
    let mut ring = quic::init(address, NAME, tls(), shape(16), config).expect("a ring");
    ring.send(1, b"x", PLAIN).expect("room");
    assert!(matches!(ring.finish(), Err(Error::TimedOut)));
}

#[test]
fn a_receiver_that_stops_acknowledging_holds_the_end_up_no_longer_than_the_linger() {
    let (mut receiver, address) = bind(Limits::default());
    let config = Config {
        linger: Duration::from_millis(200),
        ..Config::default()
    };
    let mut ring = quic::init(address, NAME, tls(), shape(1_024), config).expect("a ring");
    connected(&mut receiver);
    for number in 0..100 {
        ring.send(number, &message(number as u32, 1_200), PLAIN)
            .expect("room");
    }
    assert!(matches!(ring.finish(), Err(Error::TimedOut)));
}

/// The error with which a drain ends after a change at its receiver, without another call of the receiver.
fn ended_by(change: impl FnOnce(Receiver)) -> String {
    let (mut receiver, address) = bind(Limits::default());
    let config = Config {
        // Far beyond the limit of this test.
        idle_timeout: 10 * LIMIT,
        ..Config::default()
    };
    let mut ring = quic::init(address, NAME, tls(), shape(64), config).expect("a ring");
    connected(&mut receiver);
    change(receiver);
    until("the ring is closed", || ring.ring().is_closed());
    ring.finish()
        .expect_err("the receiver has left")
        .to_string()
}

#[test]
fn a_receiver_that_is_dropped_tells_its_sender() {
    let error = ended_by(drop);
    assert!(!error.contains("time"), "{error}");
}

#[test]
fn a_receiver_that_refuses_and_is_dropped_tells_its_sender_the_reason() {
    let error = ended_by(|mut receiver| receiver.refuse("not today"));
    assert!(error.contains("not today"), "{error}");
}
