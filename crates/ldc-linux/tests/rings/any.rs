//! A sender whose kind of drain is chosen at run time.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use ldc_linux::any::{ChangeError, Error, Sender, Stats};
use ldc_linux::schedule::Scheduler;
use ldc_linux::{Attributes, ModifyError, SendError, Shape, Wake, tcp};

const NONE: Attributes = Attributes {
    deadline: None,
    priority: 0,
};

fn shape() -> Shape {
    Shape::new(8, 64).expect("a shape")
}

/// Returns a sender with two classes whose messages stay in the rings until the socket that is returned is read.
fn stopped() -> (Sender, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let socket = TcpStream::connect(listener.local_addr().expect("an address")).expect("a peer");
    let peer = listener.accept().expect("a connection").0;
    let shape = Shape::new(64, 1 << 16).expect("a shape");
    let config = tcp::Config {
        unsent: tcp::Unsent::fixed(1 << 16),
        acks: false,
    };
    let two = Scheduler::strict(2).expect("two classes");
    let mut sender = Sender::tcp(socket, shape, two, config).expect("a sender");
    // More than the peer's kernel takes while nobody reads.
    let bytes = vec![0; 1 << 16];
    for seq in 0..64 {
        sender.send(0, seq, &bytes, NONE).expect("room");
    }
    sender.notify();
    (sender, peer)
}

#[test]
fn a_sequence_number_names_messages_of_all_classes() {
    let (mut sender, mut peer) = stopped();
    sender.send(1, 63, b"small", NONE).expect("room");
    sender.send(1, 70, b"small", NONE).expect("room");
    // Class 0 goes first, and does not end before the peer reads.
    assert_eq!(sender.modify(70, 0, b"S"), Ok(()));
    assert_eq!(sender.modify(70, 5, b"S"), Err(ChangeError::Length));
    let unknown = Err(ChangeError::Modify(ModifyError::Unknown));
    assert_eq!(sender.replace(99, b""), unknown);
    assert_eq!(sender.cancel(63).changed, 2);
    let cancelled = Err(ChangeError::Modify(ModifyError::Cancelled));
    assert_eq!(sender.modify(63, 0, b"S"), cancelled);
    assert_eq!(sender.state(1).expect("class 1").pending, 1);
    assert!(sender.state(2).is_err());
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        peer.read_to_end(&mut all).map(|_| all)
    });
    let stats = sender.finish(None).expect("a whole stream");
    let stats = stats.expect("no time limit");
    let all = reader.join().expect("the reader").expect("bytes");
    assert!(all.ends_with(b"Small"));
    assert_eq!(all.len(), 63 * (1 << 16) + 5);
    assert_eq!((stats.messages, stats.cancelled), (64, 2));
}

#[test]
fn finish_has_a_limit_and_can_be_repeated() {
    let (mut sender, peer) = stopped();
    assert!(matches!(sender.finish(Some(Duration::ZERO)), Ok(None)));
    assert!(!sender.has_ended());
    assert_eq!(sender.send(0, 1, b"late", NONE), Err(SendError::Closed));
    drop(peer);
    let error = sender.finish(None).expect_err("the peer is gone");
    assert!(
        matches!(error, Error::Tcp(tcp::Error::PeerClosed)),
        "{error}"
    );
    assert!(matches!(sender.finish(None), Err(Error::Finished)));
}

#[test]
fn finish_does_not_wait_for_what_is_held_back() {
    let (mut sender, receiver) = Sender::pair(shape()).expect("a ring");
    sender.send(0, 1, b"held", NONE).expect("room");
    assert_eq!(sender.hold_back_all().changed, 1);
    assert!(matches!(sender.finish(None), Err(Error::HeldBack)));
    sender.send(0, 2, b"still open", NONE).expect("room");
    assert!(!sender.release_until(9));
    assert!(sender.release_until(2));
    sender.release();
    // Nothing is waited for: the other side may be a thread that has not begun.
    assert_eq!(sender.finish(None).expect("closed"), Some(Stats::default()));
    drop(receiver);
}

#[test]
fn claimed_messages_have_numbers_that_are_never_used_again() {
    let (mut sender, mut receiver) = Sender::pair(shape()).expect("a ring");
    for seq in 0..3 {
        sender
            .send(0, seq, &[b'0' + seq as u8; 4], NONE)
            .expect("room");
    }
    let (first, message) = receiver.claim().expect("sound").expect("a message");
    assert_eq!(message.user_seq(), 0);
    let (second, _) = receiver.claim().expect("sound").expect("a message");
    assert!(receiver.complete(second) && !receiver.complete(second));
    let mut bytes = [0; 3];
    assert!(receiver.read(first, 1, &mut bytes));
    assert_eq!(&bytes, b"000");
    assert!(!receiver.read(first, 2, &mut bytes) && !receiver.read(first, usize::MAX, &mut bytes));
    assert!(!receiver.read(second, 0, &mut bytes));
    assert_eq!(receiver.is_abandoned(second), None);
    assert!(receiver.ack(second).is_none());
    // A message that was looked at stays the next one, and can be claimed after all.
    assert_eq!(
        receiver.peek().expect("sound").map(|m| m.user_seq()),
        Some(2)
    );
    assert_eq!(receiver.wait(None), Wake::Ready);
    assert_eq!(sender.cancel(2).too_late, 1);
    let (third, message) = receiver.claim().expect("sound").expect("a message");
    assert_eq!((third > second, message.user_seq()), (true, 2));
    assert!(receiver.peek().expect("sound").is_none());
}
