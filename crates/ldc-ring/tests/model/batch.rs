//! Batches: messages that are published, claimed and completed together.

use ldc_ring::{Attributes, Shape, channel};
use loom::thread;

use crate::{C, Got, P, against_idle, send, seqs};

/// Claims at most `count` messages, then reads them, then completes them together.
fn take_together(consumer: &mut C, count: usize) -> Got {
    let claimed: Vec<_> = consumer
        .claims(None)
        .take(count)
        .map(Result::unwrap)
        .collect();
    let mut got = Got::new();
    for message in &claimed {
        let mut byte = [0];
        consumer.read(message, 0, &mut byte);
        got.push((message.user_seq(), byte[0]));
    }
    consumer.complete_all(claimed);
    got
}

fn send_together(producer: &mut P, seqs: [u64; 2]) -> [bool; 2] {
    let mut batch = producer.batch();
    let sent = seqs.map(|seq| batch.send(seq, &[seq as u8], Attributes::default()).is_ok());
    batch.publish();
    sent
}

/// Runs `produce` against a consumer that claims two messages together. Then `check` gets the results of the producer,
/// what the consumer got concurrently, and what it got afterwards.
fn against_claims<R: 'static>(
    before: &'static [u64],
    produce: impl Fn(&mut P) -> R + Sync + Send + 'static,
    check: impl Fn(R, Got, Got) + Sync + Send + 'static,
) {
    loom::model(move || {
        let (mut producer, mut consumer) = channel(Shape::new(4, 64).unwrap());
        for seq in before {
            send(&mut producer, *seq, 0);
        }
        let other = thread::spawn(move || {
            let got = take_together(&mut consumer, 2);
            (consumer, got)
        });
        let answer = produce(&mut producer);
        let (mut consumer, got) = other.join().unwrap();
        let rest = take_together(&mut consumer, 8);
        check(answer, got, rest);
        assert_eq!(producer.free_slots(), 4);
    });
}

#[test]
fn batch_against_claims() {
    against_claims(
        &[],
        |producer| send_together(producer, [1, 2]),
        |sent, got, rest| {
            assert_eq!(sent, [true; 2]);
            // Both become visible together.
            assert!(got.is_empty() || rest.is_empty());
            assert_eq!([got, rest].concat(), [(1, 1), (2, 2)]);
        },
    );
}

#[test]
fn cancel_against_claims() {
    against_claims(
        &[1, 2, 3],
        |producer| [3, 1, 2].map(|seq| (seq, producer.cancel(seq).changed == 1)),
        |answers, got, rest| {
            let all = seqs(&[got, rest].concat());
            for (seq, cancelled) in answers {
                // Exactly one of the two sides got it.
                assert_eq!(cancelled, !all.contains(&seq));
            }
        },
    );
}

#[test]
fn hold_back_against_claims() {
    against_claims(
        &[1, 2],
        |producer| {
            let held = producer.hold_back(1).changed;
            for seq in 3 - u64::from(held)..3 {
                producer
                    .modify(seq, |payload| payload.write(0, &[9]))
                    .unwrap();
            }
            producer.release();
            held
        },
        |held, got, rest| {
            let all = [got, rest].concat();
            assert_eq!(seqs(&all), [1, 2]);
            let anew = all.iter().filter(|(_, byte)| *byte == 9).count();
            assert_eq!(anew as u32, held);
        },
    );
}

#[test]
fn batch_against_complete_all() {
    loom::model(|| {
        let (mut producer, mut consumer) = channel(Shape::new(2, 64).unwrap());
        assert_eq!(send_together(&mut producer, [1, 2]), [true; 2]);
        let other = thread::spawn(move || {
            let got = take_together(&mut consumer, 2);
            assert_eq!(got, [(1, 1), (2, 2)]);
            consumer
        });
        let [third, fourth] = send_together(&mut producer, [3, 4]);
        // Their slots become free together, perhaps between the two.
        assert!(fourth || !third);
        let mut consumer = other.join().unwrap();
        let sent = [(third, (3, 3)), (fourth, (4, 4))];
        let expected: Got = sent
            .iter()
            .filter(|(sent, _)| *sent)
            .map(|(_, got)| *got)
            .collect();
        assert_eq!(take_together(&mut consumer, 2), expected);
    });
}

#[test]
fn batch_against_idle() {
    against_idle(|producer| {
        send_together(producer, [2, 3]);
    });
}
