//! A ring drained into a TCP socket: what arrives, what can still be changed, and every way it ends.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::common::{connection, message, numbers};
use ldc_linux::tcp::{self, Config, Error, Unsent};
use ldc_linux::{Attributes, InitError, SendError, Shape, WaitError};

const PLAIN: Attributes = Attributes {
    deadline: None,
    priority: 0,
};
/// Little unsent, so that much stays in the ring.
const TIGHT: Config = Config {
    unsent: Unsent {
        segments: 1,
        slack: Duration::ZERO,
        max_bytes: 4096,
    },
    acks: false,
};
const LONG: Option<Duration> = Some(Duration::from_secs(20));

fn shape(slots: u32, slot_bytes: u32) -> Shape {
    Shape::new(slots, slot_bytes).unwrap()
}

#[test]
fn every_message_arrives_whole_and_in_order() {
    let (near, far) = connection();
    let mut ldc = tcp::init(near, shape(16, 512), Config::default()).unwrap();
    let reader = std::thread::spawn(move || numbers(far));
    for number in 0..5_000u32 {
        // From 8 bytes to eight slots, and now and then one with none at all.
        let len = 8 + (number as usize * 37) % 4_000;
        ldc.send_wait(number.into(), &message(number, len), PLAIN, LONG)
            .unwrap();
        if number % 50 == 0 {
            ldc.send_wait(number.into(), b"", PLAIN, LONG).unwrap();
        }
    }
    let stats = ldc.finish().unwrap().stats;
    assert_eq!(stats.messages, 5_100);
    assert!(reader.join().unwrap().into_iter().eq(0..5_000));
}

/// A connection whose receiver does not read, and a ring with far more than TCP takes.
fn stalled(count: u32) -> (Ldc, TcpStream) {
    let (near, far) = connection();
    let mut ldc = tcp::init(near, shape(count, 4096), TIGHT).unwrap();
    for number in 0..count {
        ldc.send(number.into(), &message(number, 4096), PLAIN)
            .unwrap();
    }
    ldc.notify();
    // Until the socket takes no more.
    let mut left = u32::MAX;
    loop {
        let now = ldc.ring().pending().count() as u32;
        if now == left && now < count {
            return (ldc, far);
        }
        left = now;
        std::thread::sleep(Duration::from_millis(50));
    }
}

type Ldc = ldc_linux::Drained<Result<tcp::Ended, Error>>;

#[test]
fn what_has_not_left_can_be_dropped_and_nothing_is_torn() {
    let count = 4_096;
    let (mut ldc, far) = stalled(count);
    let mut kept = Vec::new();
    let mut dropped = 0;
    for number in (0..count).rev() {
        if number % 2 == 1 && ldc.cancel(number.into()).changed == 1 {
            dropped += 1;
        } else {
            kept.push(number);
        }
    }
    kept.reverse();
    // 16 MiB were sent; the kernel would have taken several of them.
    assert!(dropped > count * 7 / 16, "only {dropped} of {count}");
    let reader = std::thread::spawn(move || numbers(far));
    let stats = ldc.finish().unwrap().stats;
    assert_eq!(reader.join().unwrap(), kept);
    assert_eq!(stats.cancelled, u64::from(dropped));
}

#[test]
fn what_has_not_left_can_be_modified_and_shortened() {
    let (mut ldc, far) = stalled(1_024);
    let changed = message(7, 100);
    let modified = ldc.ring().modify(1_023, |payload| {
        assert!(!payload.resize(5_000));
        assert!(!payload.resize(0) || payload.resize(100));
        assert!(payload.resize(100));
        payload.write(0, &changed);
    });
    modified.unwrap();
    let reader = std::thread::spawn(move || numbers(far));
    ldc.finish().unwrap();
    let seen = reader.join().unwrap();
    assert_eq!(seen.last(), Some(&7));
    assert_eq!(seen.len(), 1_024);
}

#[test]
fn what_is_late_is_not_sent() {
    let (mut ldc, mut far) = stalled(1_024);
    let pending: Vec<u64> = ldc.ring().pending().map(|sent| sent.user_seq).collect();
    for seq in &pending {
        ldc.cancel(*seq);
    }
    // Dropped ones free their slots when the drain passes over them.
    let mut bytes = vec![0; 1 << 20];
    let _ = far.read(&mut bytes).unwrap();
    let past = Attributes {
        deadline: Some(ldc_linux::now()),
        ..PLAIN
    };
    std::thread::sleep(Duration::from_millis(2));
    ldc.send_wait(2_000, &message(2_000, 64), past, LONG)
        .unwrap();
    ldc.send_wait(2_001, &message(2_001, 64), PLAIN, LONG)
        .unwrap();
    let reader = std::thread::spawn(move || {
        let mut rest = Vec::new();
        far.read_to_end(&mut rest).unwrap();
        rest
    });
    let stats = ldc.finish().unwrap().stats;
    assert_eq!(stats.expired, 1);
    let rest = reader.join().unwrap();
    assert!(rest.ends_with(&message(2_001, 64)));
    assert!(!rest.windows(64).any(|part| part == message(2_000, 64)));
}

#[test]
fn what_is_held_back_leaves_when_released_and_only_then() {
    let (mut ldc, far) = stalled(1_024);
    let held = ldc.ring().hold_back(1_000);
    assert_eq!((held.changed, held.too_late), (24, 0));
    let reader = std::thread::spawn(move || numbers(far));
    while ldc.ring().pending().count() > 24 {
        std::thread::yield_now();
    }
    // Everything else has left.
    let free = ldc.wait_room(1_000, LONG);
    assert_eq!((free, ldc.ring().pending().count()), (Ok(()), 24));
    ldc.ring().release();
    ldc.notify();
    ldc.finish().unwrap();
    assert!(reader.join().unwrap().into_iter().eq(0..1_024));
}

#[test]
fn what_stays_held_back_to_the_end_never_leaves() {
    let (mut ldc, far) = stalled(1_024);
    ldc.ring().hold_back(1_000);
    let reader = std::thread::spawn(move || numbers(far));
    let stats = ldc.finish().unwrap().stats;
    assert_eq!(stats.messages, 1_000);
    assert!(reader.join().unwrap().into_iter().eq(0..1_000));
}

#[test]
fn a_full_ring_says_so_and_waiting_ends() {
    let (mut ldc, far) = stalled(256);
    // The drain may still write for a while before it stalls; until then slots become free again.
    let short = Some(Duration::from_millis(20));
    let (full, late, waited) = loop {
        let full = ldc.send(9, &message(9, 64), PLAIN);
        let late = ldc.send_wait(9, &message(9, 64), PLAIN, short);
        let waited = ldc.wait_room(1, short);
        if full.is_err() && late.is_err() && waited.is_err() {
            break (full, late, waited);
        }
    };
    assert_eq!((full, late), (Err(SendError::Full), Err(SendError::Full)));
    assert_eq!(waited, Err(WaitError::TimedOut));
    let long = vec![0; 256 * 4096 + 1];
    assert_eq!(ldc.send(9, &long, PLAIN), Err(SendError::TooLong));
    let reader = std::thread::spawn(move || numbers(far).len());
    ldc.send_wait(9, &message(9, 64), PLAIN, LONG).unwrap();
    ldc.finish().unwrap();
    assert!(reader.join().unwrap() > 256);
}

#[test]
fn a_peer_that_closes_ends_the_drain_and_closes_the_ring() {
    let (mut ldc, far) = stalled(64);
    // Unread bytes make the close a reset.
    drop(far);
    let ended = loop {
        match ldc.send_wait(1, &message(1, 4096), PLAIN, LONG) {
            Ok(()) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(ended, SendError::Closed);
    assert!(ldc.is_closed() && !ldc.is_attached());
    assert_eq!(ldc.wait_room(64, LONG), Err(WaitError::Closed));
    assert!(matches!(ldc.finish(), Err(Error::PeerClosed)));
}

#[test]
fn a_reset_is_noticed_while_the_drain_is_idle() {
    let (near, far) = connection();
    let mut ldc = tcp::init(near, shape(4, 64), Config::default()).unwrap();
    ldc.send(1, &message(1, 8), PLAIN).unwrap();
    ldc.notify();
    // Close with an unread byte: a reset.
    while far.peek(&mut [0]).unwrap() == 0 {}
    drop(far);
    while !ldc.has_ended() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(ldc.is_closed());
    assert!(matches!(ldc.finish(), Err(Error::PeerClosed)));
}

#[test]
fn a_peer_that_only_stops_sending_is_no_error() {
    let (near, far) = connection();
    far.shutdown(Shutdown::Write).unwrap();
    let mut ldc = tcp::init(near, shape(4, 64), Config::default()).unwrap();
    ldc.send(1, &message(1, 8), PLAIN).unwrap();
    ldc.finish().unwrap();
    assert_eq!(numbers(far), [1]);
}

#[test]
fn the_connection_stays_open_until_the_socket_is_dropped() {
    let (near, mut far) = connection();
    let mut ldc = tcp::init(near, shape(4, 64), Config::default()).unwrap();
    ldc.send(1, b"ring", PLAIN).unwrap();
    let mut socket = ldc.finish().unwrap().socket;
    socket.write_all(b" and after").unwrap();
    drop(socket);
    let mut all = String::new();
    far.read_to_string(&mut all).unwrap();
    assert_eq!(all, "ring and after");
}

#[test]
fn acknowledgements_reach_the_sender_in_order() {
    let (near, far) = connection();
    let config = Config {
        acks: true,
        ..Config::default()
    };
    let mut ldc = tcp::init(near, shape(8, 64), config).unwrap();
    let reader = std::thread::spawn(move || numbers(far).len());
    let mut acked = Vec::new();
    for number in 0..200u32 {
        ldc.send_wait(number.into(), &message(number, 40), PLAIN, LONG)
            .unwrap();
        ldc.notify();
        acked.extend(std::iter::from_fn(|| ldc.ring().poll_ack()));
        // Wait until all is acknowledged before the next message, so that no acknowledgement is lost.
        while acked.len() <= number as usize {
            acked.extend(std::iter::from_fn(|| ldc.ring().poll_ack()));
            std::thread::yield_now();
        }
    }
    let stats = ldc.finish().unwrap().stats;
    assert_eq!((stats.acked, stats.acks_lost), (200, 0));
    assert!(acked.into_iter().eq(0..200));
    assert_eq!(reader.join().unwrap(), 200);
}

#[test]
fn acknowledgements_that_nobody_takes_are_counted_and_hold_nothing_up() {
    let (near, far) = connection();
    let config = Config {
        acks: true,
        ..Config::default()
    };
    let mut ldc = tcp::init(near, shape(4, 64), config).unwrap();
    let reader = std::thread::spawn(move || numbers(far).len());
    for number in 0..100u32 {
        ldc.send_wait(1, &message(number, 40), PLAIN, LONG).unwrap();
    }
    let stats = ldc.finish().unwrap().stats;
    assert_eq!(stats.acked, 4);
    assert_eq!(stats.acks_lost, 96);
    assert_eq!(reader.join().unwrap(), 100);
}

#[test]
fn a_socket_of_another_kind_is_refused() {
    let (one, _other) = UnixStream::pair().unwrap();
    let socket = TcpStream::from(OwnedFd::from(one));
    let refused = tcp::init(socket, shape(4, 64), Config::default());
    assert!(matches!(refused, Err(InitError::Io { .. })));
}

#[test]
fn a_sender_that_is_dropped_lets_everything_leave() {
    let (near, far) = connection();
    let mut ldc = tcp::init(near, shape(8, 64), Config::default()).unwrap();
    for number in 0..8 {
        ldc.send(number.into(), &message(number, 50), PLAIN)
            .unwrap();
    }
    drop(ldc);
    assert_eq!(numbers(far), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn a_step_ends_however_many_empty_messages_come() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut sender = ldc_linux::shm::init(ours, shape(1_024, 64)).unwrap();
    let receiver = ldc_linux::shm::attach(theirs, 1 << 20).unwrap();
    for seq in 0..1_000 {
        sender.send(seq, b"", PLAIN).unwrap();
    }
    let (near, far) = connection();
    let mut drain = tcp::Drain::new(receiver, near, Config::default()).unwrap();
    assert_eq!(drain.step().unwrap(), tcp::Next::Again);
    let taken = drain.stats().messages;
    assert!((1..=64).contains(&taken), "{taken} in one step");
    sender.send(1_000, &message(7, 32), PLAIN).unwrap();
    drop(sender);
    while drain.step().unwrap() != tcp::Next::Finished {}
    assert_eq!(drain.stats().messages, 1_001);
    drop(drain);
    assert_eq!(numbers(far), [7]);
}
