//! Neither end sleeps while the other waits for it or has gone.

use loom::thread;

use crate::ends::{Receiver, Sender, Wake, pair};
use crate::error::WaitError;
use crate::{Attributes, SendError, Shape};

/// Runs all orders of operations in which threads are interrupted at most three times.
fn model(slots: u32, run: impl Fn(Sender, Receiver) + Send + Sync + 'static) {
    model_within(3, slots, run);
}

/// Runs all orders of operations in which threads are interrupted at most that often.
fn model_within(
    interruptions: usize,
    slots: u32,
    run: impl Fn(Sender, Receiver) + Send + Sync + 'static,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.check(move || {
        let shape = Shape::new(slots, 64).expect("a shape");
        let (sender, receiver) = pair(shape).expect("a ring");
        run(sender, receiver);
    });
}

fn send(sender: &mut Sender, seq: u64) {
    let sent = sender.send(seq, &[seq as u8], Attributes::default());
    sent.expect("room");
}

/// Receives until the sender has closed the ring or is gone.
fn receive_all(receiver: &mut Receiver) -> (Vec<u64>, Wake) {
    let mut seqs = Vec::new();
    loop {
        while let Some(message) = receiver.claim(None).expect("a sound ring") {
            seqs.push(message.user_seq());
            receiver.complete(message);
        }
        match receiver.wait(None) {
            Wake::Ready => {}
            end => return (seqs, end),
        }
    }
}

#[test]
fn a_sender_that_waits_for_room_gets_it() {
    model_within(2, 1, |mut sender, mut receiver| {
        let receiving = thread::spawn(move || receive_all(&mut receiver));
        for seq in 0..2 {
            let sent = sender.send_wait(seq, &[0], Attributes::default(), None);
            sent.expect("the receiver lives");
        }
        drop(sender);
        let received = receiving.join().expect("no panic");
        assert_eq!(received, (vec![0, 1], Wake::Closed));
    });
}

/// The receiver does not go idle.
#[test]
fn a_sender_that_waits_is_woken_by_the_slots_that_are_freed() {
    model(1, |mut sender, mut receiver| {
        send(&mut sender, 0);
        let message = receiver.claim(None).expect("a sound ring").expect("sent");
        let receiving = thread::spawn(move || {
            receiver.complete(message);
            receiver
        });
        sender.wait_room(1, None).expect("the receiver lives");
        receiving.join().expect("no panic");
    });
}

/// The receiver goes idle before it has freed as many slots as the sender waits for.
#[test]
fn a_sender_that_waits_is_woken_by_a_receiver_that_goes_idle() {
    model(2, |mut sender, mut receiver| {
        send(&mut sender, 0);
        let receiving = thread::spawn(move || receive_all(&mut receiver));
        sender.wait_room(2, None).expect("the receiver lives");
        drop(sender);
        let received = receiving.join().expect("no panic");
        assert_eq!(received, (vec![0], Wake::Closed));
    });
}

#[test]
fn a_receiver_that_waits_gets_what_is_sent() {
    model(2, |mut sender, mut receiver| {
        let receiving = thread::spawn(move || {
            for seq in 0..2 {
                let message = loop {
                    if let Some(message) = receiver.claim(None).expect("a sound ring") {
                        break message;
                    }
                    assert_eq!(receiver.wait(None), Wake::Ready);
                };
                assert_eq!(message.user_seq(), seq);
                receiver.complete(message);
            }
        });
        for seq in 0..2 {
            send(&mut sender, seq);
            sender.notify();
        }
        receiving.join().expect("no panic");
    });
}

#[test]
fn a_sender_that_waits_learns_that_the_receiver_closes() {
    model(1, |mut sender, receiver| {
        send(&mut sender, 0);
        let receiving = thread::spawn(move || drop(receiver));
        assert_eq!(sender.wait_room(1, None), Err(WaitError::Closed));
        let sent = sender.send(1, &[1], Attributes::default());
        assert_eq!(sent, Err(SendError::Closed));
        receiving.join().expect("no panic");
    });
}

#[test]
fn a_receiver_that_waits_learns_that_the_sender_closes() {
    model(1, |mut sender, mut receiver| {
        let receiving = thread::spawn(move || receive_all(&mut receiver));
        send(&mut sender, 0);
        sender.close();
        let received = receiving.join().expect("no panic");
        assert_eq!(received, (vec![0], Wake::Closed));
    });
}
