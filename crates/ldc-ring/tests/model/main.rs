//! Every interleaving of each pair of concurrent operations, by loom:
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p ldc-ring --release --test model`
//!
//! Loom also reports concurrent access to the payload of a slot. The models are small (two or three messages), so that
//! each ends within seconds without a bound on the switches between threads.
//!
//! | | claim | complete | go idle |
//! | --- | --- | --- | --- |
//! | send | `send_against_claim` | `send_against_complete` | `send_against_idle` |
//! | cancel | `cancel_against_claim`, `cancel_against_skip` | `cancel_against_complete` | `cancel_against_idle` |
//! | abandon | `abandon_against_claim` | `abandon_against_complete` | as cancel |
//! | modify | `modify_against_claim` | `modify_against_complete` | `modify_against_idle` |
//! | hold back | `hold_back_against_claim` | `hold_back_against_complete` | `hold_back_against_idle` |
//! | wake up | `wake_up_against_claim` | `wake_up_against_complete` | `wake_up_against_idle` |
//! | publish a batch | `batch_against_claims` | `batch_against_complete_all` | `batch_against_idle` |
//!
//! Cancel and hold back also come against the claims of a batch.
#![cfg(loom)]

mod batch;

use ldc_ring::{Attributes, Changed, Consumer, Entry, Heap, ModifyError, Producer, Shape, channel};
use loom::thread;

type P = Producer<Heap, Box<[Entry]>>;
type C = Consumer<Heap, Box<[u32]>>;

/// The messages that the consumer got: sequence numbers and first bytes.
type Got = Vec<(u64, u8)>;

fn send(producer: &mut P, seq: u64, value: u8) {
    producer.send(seq, &[value], Attributes::default()).unwrap();
}

/// Claims at most `count` messages in `count` attempts.
fn take(consumer: &mut C, count: usize) -> Got {
    let mut got = Got::new();
    for _ in 0..count {
        if let Some(message) = consumer.claim(None).unwrap() {
            let mut byte = [0];
            consumer.read(&message, 0, &mut byte);
            got.push((message.user_seq(), byte[0]));
            consumer.complete(message);
        }
    }
    got
}

/// Runs `produce` against a consumer that claims `attempts` times in another thread. Then the consumer takes the rest,
/// and
/// `check` gets the results of the producer and all messages that arrived.
fn race<R: 'static>(
    slots: u32,
    before: &'static [u64],
    attempts: usize,
    produce: impl Fn(&mut P) -> R + Sync + Send + 'static,
    check: impl Fn(R, Got) + Sync + Send + 'static,
) {
    loom::model(move || {
        let (mut producer, mut consumer) = channel(Shape::new(slots, 64).unwrap());
        for seq in before {
            send(&mut producer, *seq, 0);
        }
        let other = thread::spawn(move || {
            let got = take(&mut consumer, attempts);
            (consumer, got)
        });
        let answer = produce(&mut producer);
        let (mut consumer, mut got) = other.join().unwrap();
        got.extend(take(&mut consumer, 8));
        check(answer, got);
    });
}

fn seqs(got: &Got) -> Vec<u64> {
    got.iter().map(|(seq, _)| *seq).collect()
}

#[test]
fn send_against_claim() {
    race(
        2,
        &[1],
        2,
        |producer| {
            let mut sent = vec![1];
            for seq in [2, 3] {
                if producer
                    .send(seq, &[seq as u8], Attributes::default())
                    .is_ok()
                {
                    sent.push(seq);
                }
            }
            sent
        },
        |sent, got| {
            assert_eq!(seqs(&got), sent);
            assert!(
                got.iter()
                    .all(|(seq, byte)| *seq == 1 || *byte == *seq as u8)
            );
        },
    );
}

#[test]
fn cancel_against_claim() {
    race(
        2,
        &[1, 2],
        2,
        |producer| [producer.cancel(1), producer.cancel(2)],
        |answers, got| {
            for (answer, seq) in answers.iter().zip([1, 2]) {
                // Exactly one of the two sides got it.
                assert_eq!(answer.changed == 1, !seqs(&got).contains(&seq));
            }
        },
    );
}

#[test]
fn cancel_against_skip() {
    loom::model(|| {
        let (mut producer, mut consumer) = channel(Shape::new(2, 64).unwrap());
        send(&mut producer, 1, 0);
        send(&mut producer, 2, 0);
        let other = thread::spawn(move || {
            let skipped = consumer.skip_cancelled().unwrap();
            (consumer, skipped)
        });
        assert_eq!(producer.cancel(1).changed, 1);
        // Its slot is reused at once, if it is free.
        let is_sent = producer.send(3, &[0], Attributes::default()).is_ok();
        let (mut consumer, skipped) = other.join().unwrap();
        assert!(skipped == 1 || !is_sent);
        let expected: &[u64] = if is_sent { &[2, 3] } else { &[2] };
        assert_eq!(seqs(&take(&mut consumer, 4)), expected);
    });
}

#[test]
fn abandon_against_claim() {
    loom::model(|| {
        let (mut producer, mut consumer) = channel(Shape::new(2, 64).unwrap());
        send(&mut producer, 1, 0);
        let other = thread::spawn(move || {
            let message = consumer.claim(None).unwrap();
            let seen = message
                .as_ref()
                .is_some_and(|message| consumer.is_abandoned(message));
            (consumer, message, seen)
        });
        let answer = producer.abandon(1);
        let (mut consumer, message, seen) = other.join().unwrap();
        // Either it was cancelled, or the consumer has it and learns of the request.
        assert_eq!(answer.changed == 1, message.is_none());
        assert!(!seen || answer.too_late == 1);
        if let Some(message) = message {
            assert_eq!(answer.too_late, 1);
            assert!(consumer.is_abandoned(&message));
            consumer.complete(message);
        }
        assert_eq!(take(&mut consumer, 1), Got::new());
        assert_eq!(producer.free_slots(), 2);
    });
}

#[test]
fn cancel_of_a_message_in_pieces_against_claim() {
    loom::model(|| {
        let (mut producer, mut consumer) = channel(Shape::new(4, 64).unwrap());
        producer.send(1, &[1; 100], Attributes::default()).unwrap();
        producer.send(2, &[2; 1], Attributes::default()).unwrap();
        let other = thread::spawn(move || {
            let got = take(&mut consumer, 2);
            (consumer, got)
        });
        let answer = producer.cancel(1);
        let (mut consumer, mut got) = other.join().unwrap();
        got.extend(take(&mut consumer, 2));
        let expected: &[(u64, u8)] = if answer.changed == 1 {
            &[(2, 2)]
        } else {
            &[(1, 1), (2, 2)]
        };
        assert_eq!(got, expected);
        assert_eq!(producer.free_slots(), 4);
    });
}

#[test]
fn modify_against_claim() {
    race(
        2,
        &[1, 2],
        2,
        |producer| producer.modify(2, |payload| payload.write(0, &[9])).is_ok(),
        |modified, got| {
            // The old or the new version arrives, as the result says; no mixture and no loss.
            assert_eq!(got, [(1, 0), (2, if modified { 9 } else { 0 })]);
        },
    );
}

#[test]
fn hold_back_against_claim() {
    race(
        4,
        &[1, 2, 3],
        3,
        |producer| {
            let answer = producer.hold_back(1);
            // The producer owns all messages held back: loom would report an access of the consumer.
            for seq in 4 - u64::from(answer.changed)..4 {
                producer
                    .modify(seq, |payload| payload.write(0, &[9]))
                    .unwrap();
            }
            producer.release();
            answer
        },
        |answer, got| {
            assert_eq!(seqs(&got), [1, 2, 3]);
            let anew = got.iter().filter(|(_, byte)| *byte == 9).count();
            assert_eq!(anew as u32, answer.changed);
            assert!(answer.changed + answer.too_late <= 3);
        },
    );
}

#[test]
fn a_send_during_a_hold_back_against_claim() {
    race(
        4,
        &[1],
        2,
        |producer| {
            let held = producer.hold_back(1).changed == 1;
            send(producer, 2, 2);
            if held {
                // Still held back, although another message was sent after it.
                producer
                    .modify(1, |payload| payload.write(0, &[9]))
                    .unwrap();
                producer.cancel(1);
            }
            producer.release();
            held
        },
        |held, got| assert_eq!(seqs(&got), if held { vec![2] } else { vec![1, 2] }),
    );
}

#[test]
fn release_in_part_against_claim() {
    race(
        4,
        &[1, 2],
        2,
        |producer| {
            let held = producer.hold_back(1).changed;
            if held == 2 && producer.release_until(2) {
                producer
                    .modify(2, |payload| payload.write(0, &[9]))
                    .unwrap();
            }
            producer.release();
            held
        },
        |held, got| {
            assert_eq!(seqs(&got), [1, 2]);
            assert_eq!(got[1].1 == 9, held == 2);
        },
    );
}

#[test]
fn wake_up_against_claim() {
    race(
        2,
        &[1, 2],
        2,
        |producer| [producer.notify(), producer.notify()],
        |woken, got| {
            // A consumer that was never woken is idle; claiming does not make it idle again.
            assert_eq!(woken, [true, false]);
            assert_eq!(seqs(&got), [1, 2]);
        },
    );
}

/// Runs `produce` in a ring of four, messages 1 (of two slots) and 2 claimed and 3 not, while the consumer reads
/// and completes those two, the newer first or the older first. Then `check` gets the results of the producer and all
/// messages that arrived after them.
fn against_complete<R: 'static>(
    produce: impl Fn(&mut P) -> R + Sync + Send + Copy + 'static,
    check: impl Fn(R, Got) + Sync + Send + Copy + 'static,
) {
    for younger_first in [false, true] {
        loom::model(move || {
            let (mut producer, mut consumer) = channel(Shape::new(4, 64).unwrap());
            producer.send(1, &[1; 65], Attributes::default()).unwrap();
            send(&mut producer, 2, 2);
            send(&mut producer, 3, 3);
            let mut claimed = [1, 2].map(|_| consumer.claim(None).unwrap().unwrap());
            if younger_first {
                claimed.reverse();
            }
            let other = thread::spawn(move || {
                for message in claimed {
                    let mut bytes = [0; 65];
                    let len = message.len();
                    consumer.read(&message, 0, &mut bytes[..len]);
                    assert!(
                        bytes[..len]
                            .iter()
                            .all(|byte| u64::from(*byte) == message.user_seq())
                    );
                    consumer.complete(message);
                }
                consumer
            });
            let answer = produce(&mut producer);
            let mut consumer = other.join().unwrap();
            check(answer, take(&mut consumer, 4));
            assert_eq!(producer.free_slots(), 4);
        });
    }
}

#[test]
fn send_against_complete() {
    against_complete(
        |producer| {
            // Into one slot, or into two that become free one after the other.
            let small = producer.send(4, &[4], Attributes::default()).is_ok();
            let large = producer.send(5, &[5; 65], Attributes::default()).is_ok();
            (small, large)
        },
        |(small, large), got| {
            let sent = [(3, true), (4, small), (5, large)];
            let expected = sent.iter().filter(|(_, sent)| *sent);
            assert_eq!(
                seqs(&got),
                expected.map(|(seq, _)| *seq).collect::<Vec<_>>()
            );
            assert!(got.iter().all(|(seq, byte)| *seq == u64::from(*byte)));
        },
    );
}

/// As above, when the producer reads `dev_i` instead of the reported position.
#[test]
fn send_after_a_look_against_complete() {
    against_complete(
        |producer| {
            let free = producer.free_slots();
            let sent = producer.send(4, &[4; 65], Attributes::default()).is_ok();
            assert!(sent || free < 2);
            sent
        },
        |sent, got| assert_eq!(seqs(&got), if sent { vec![3, 4] } else { vec![3] }),
    );
}

#[test]
fn cancel_against_complete() {
    against_complete(
        |producer| [1, 2, 3].map(|seq| producer.cancel(seq)),
        |[first, second, third], got| {
            // Too late, or already left.
            assert_eq!((first.changed, second.changed), (0, 0));
            assert!(first.too_late <= 1 && second.too_late <= 1);
            let changed = Changed {
                changed: 1,
                too_late: 0,
            };
            assert_eq!((third, got), (changed, Got::new()));
        },
    );
}

#[test]
fn abandon_against_complete() {
    against_complete(
        |producer| [1, 2, 3].map(|seq| producer.abandon(seq)),
        |[first, second, third], got| {
            // The request came before the messages were completed, or has no effect.
            assert_eq!((first.changed, second.changed), (0, 0));
            assert!(first.too_late <= 1 && second.too_late <= 1);
            assert_eq!((third.changed, got), (1, Got::new()));
        },
    );
}

#[test]
fn modify_against_complete() {
    against_complete(
        |producer| [1, 2, 3].map(|seq| producer.modify(seq, |payload| payload.write(0, &[9]))),
        |answers, got| {
            let late = Err(ModifyError::TooLate);
            assert_eq!(answers, [late, late, Ok(())]);
            assert_eq!(got, [(3, 9)]);
        },
    );
}

#[test]
fn hold_back_against_complete() {
    against_complete(
        |producer| {
            let answer = producer.hold_back(1);
            producer
                .modify(3, |payload| payload.write(0, &[9]))
                .unwrap();
            producer.release();
            answer
        },
        |answer, got| {
            assert!(answer.changed == 1 && answer.too_late <= 2);
            assert_eq!(got, [(3, 9)]);
        },
    );
}

#[test]
fn wake_up_against_complete() {
    against_complete(
        |producer| [producer.notify(), producer.notify()],
        |woken, got| {
            assert_eq!(woken, [true, false]);
            assert_eq!(seqs(&got), [3]);
        },
    );
}

/// The consumer goes idle while the producer sends, cancels, modifies or releases: either it does not sleep,
/// or it is woken.
fn against_idle(produce: impl Fn(&mut P) + Sync + Send + 'static) {
    loom::model(move || {
        let (mut producer, mut consumer) = channel(Shape::new(2, 64).unwrap());
        let _ = producer.notify();
        send(&mut producer, 1, 0);
        let other = thread::spawn(move || {
            let mut got = take(&mut consumer, 1);
            let asleep = consumer.idle();
            if !asleep {
                got.extend(take(&mut consumer, 3));
            }
            (consumer, got, asleep)
        });
        produce(&mut producer);
        let woken = producer.notify();
        let (mut consumer, _, asleep) = other.join().unwrap();
        let left = consumer.claim(None).unwrap().is_some();
        assert!(
            !asleep || woken || !left,
            "a message waits, and nobody wakes the consumer"
        );
    });
}

#[test]
fn send_against_idle() {
    against_idle(|producer| send(producer, 2, 0));
}

#[test]
fn cancel_against_idle() {
    against_idle(|producer| {
        producer.cancel(1);
    });
}

#[test]
fn modify_against_idle() {
    against_idle(|producer| {
        let _ = producer.modify(1, |payload| payload.write(0, &[9]));
    });
}

#[test]
fn hold_back_against_idle() {
    against_idle(|producer| {
        producer.hold_back(1);
        producer.release();
    });
}

#[test]
fn wake_up_against_idle() {
    loom::model(|| {
        let (mut producer, mut consumer) = channel(Shape::new(2, 64).unwrap());
        let _ = producer.notify();
        let other = thread::spawn(move || consumer.idle());
        let woken = producer.notify();
        assert!(other.join().unwrap(), "there is nothing to claim");
        // Once for each time that the consumer went idle.
        assert_eq!(producer.notify(), !woken);
    });
}

#[test]
fn close_against_idle() {
    loom::model(|| {
        let (mut producer, mut consumer) = channel(Shape::new(2, 64).unwrap());
        let _ = producer.notify();
        let other = thread::spawn(move || consumer.idle());
        producer.close();
        let woken = producer.notify();
        assert!(!other.join().unwrap() || woken, "it would sleep for ever");
    });
}

#[test]
fn acknowledgements_against_slots_used_again() {
    loom::model(|| {
        let (mut producer, mut consumer) = channel(Shape::new(1, 64).unwrap());
        send(&mut producer, 1, 1);
        let other = thread::spawn(move || {
            let message = consumer.claim(None).unwrap().unwrap();
            let ticket = message.ticket();
            consumer.complete(message);
            consumer.ack(ticket).unwrap();
        });
        let again = producer.send(2, &[2], Attributes::default()).is_ok();
        let early = producer.poll_ack();
        other.join().unwrap();
        assert_eq!(early.or_else(|| producer.poll_ack()), Some(1));
        if again {
            // The acknowledgement was for the first message, not the second.
            assert_eq!(producer.acked(2), Some(false));
        }
    });
}

#[test]
fn a_deadline_against_drop() {
    loom::model(|| {
        let (mut producer, mut consumer) = channel(Shape::new(2, 64).unwrap());
        let soon = Attributes {
            deadline: Some(ldc_ring::Instant::from_micros(1)),
            priority: 0,
        };
        producer.send(1, &[1], soon).unwrap();
        send(&mut producer, 2, 2);
        let other = thread::spawn(move || {
            let late = Some(ldc_ring::Instant::from_micros(2));
            let message = consumer.claim(late).unwrap().unwrap();
            (message.user_seq(), consumer.stats())
        });
        let answer = producer.cancel(1);
        let (seq, stats) = other.join().unwrap();
        assert_eq!(seq, 2);
        assert_eq!(
            (stats.cancelled, stats.expired),
            (answer.changed.into(), 1 - u64::from(answer.changed))
        );
    });
}
