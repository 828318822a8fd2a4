//! Batches: dropped, leaked or interrupted half way, in a full ring and around its end.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ldc_ring::{Changed, Claimed, ModifyError, SendError};

use crate::PLAIN;
use crate::common::{C, claim_all, ring};

fn claim_together(consumer: &mut C, count: usize) -> Vec<Claimed> {
    let claims = consumer.claims(None).take(count);
    claims.map(Result::unwrap).collect()
}

fn seqs(messages: &[Claimed]) -> Vec<u64> {
    messages.iter().map(Claimed::user_seq).collect()
}

#[test]
fn a_batch_is_visible_once_it_is_published_or_dropped() {
    let (mut producer, mut consumer) = ring(8, 64);
    let mut batch = producer.batch();
    assert!(batch.is_empty());
    batch.send(1, b"a", PLAIN).unwrap();
    batch
        .send_with(2, 1, PLAIN, |payload| payload.write(0, b"b"))
        .unwrap();
    assert_eq!(batch.len(), 2);
    assert_eq!(consumer.claim(None), Ok(None));
    batch.publish();
    assert_eq!(claim_all(&mut consumer), [1, 2]);

    producer.batch().send(3, b"c", PLAIN).unwrap();
    assert_eq!(claim_all(&mut consumer), [3]);
    producer.batch().publish();
    assert_eq!(claim_all(&mut consumer), []);
}

#[test]
fn each_message_of_a_batch_can_be_changed_until_it_is_claimed() {
    let (mut producer, mut consumer) = ring(8, 64);
    let mut batch = producer.batch();
    for seq in 0..6 {
        batch.send(seq, b"old", PLAIN).unwrap();
    }
    batch.publish();
    let mut claims = consumer.claims(None);
    assert_eq!(claims.next().unwrap().unwrap().user_seq(), 0);
    // The iterator has claimed one message, not the batch.
    assert_eq!(producer.cancel(0).too_late, 1);
    assert_eq!(producer.cancel(1).changed, 1);
    producer
        .modify(2, |payload| payload.write(0, b"new"))
        .unwrap();
    let held = producer.hold_back(4);
    assert_eq!(
        held,
        Changed {
            changed: 2,
            too_late: 0
        }
    );
    let rest: Vec<_> = claims.map(Result::unwrap).collect();
    assert_eq!(seqs(&rest), [2, 3]);
    let mut bytes = [0; 3];
    consumer.read(&rest[0], 0, &mut bytes);
    assert_eq!(&bytes, b"new");
    assert_eq!(producer.modify(3, |_| ()), Err(ModifyError::TooLate));
    producer.release();
    assert_eq!(seqs(&claim_together(&mut consumer, 8)), [4, 5]);
}

#[test]
fn a_batch_in_a_hold_back_is_held_back() {
    let (mut producer, mut consumer) = ring(8, 64);
    producer.send(1, b"x", PLAIN).unwrap();
    producer.hold_back_all();
    producer.cancel(1);
    // The first message of the batch becomes the barrier.
    let mut batch = producer.batch();
    for seq in [2, 3] {
        batch.send(seq, b"x", PLAIN).unwrap();
    }
    batch.publish();
    assert_eq!(claim_together(&mut consumer, 8), []);
    assert!(producer.release_until(3));
    assert_eq!(seqs(&claim_together(&mut consumer, 8)), [2]);
    producer.release();
    assert_eq!(seqs(&claim_together(&mut consumer, 8)), [3]);
}

#[test]
fn a_batch_larger_than_the_ring_is_full_until_it_is_published() {
    let (mut producer, mut consumer) = ring(4, 64);
    let mut batch = producer.batch();
    for seq in 0..4 {
        batch.send(seq, b"x", PLAIN).unwrap();
    }
    // A consumer that does not see the batch makes no room.
    assert_eq!(claim_all(&mut consumer), []);
    assert_eq!(batch.send(4, b"x", PLAIN), Err(SendError::Full));
    assert_eq!(batch.send(4, &[0; 257], PLAIN), Err(SendError::TooLong));
    assert_eq!(batch.len(), 4);
    batch.publish();
    assert_eq!(claim_all(&mut consumer), [0, 1, 2, 3]);
    producer.send(4, b"x", PLAIN).unwrap();
    assert_eq!(claim_all(&mut consumer), [4]);
}

#[test]
fn batches_wrap_around_with_messages_of_several_slots() {
    let (mut producer, mut consumer) = ring(8, 64);
    for round in 0..50u64 {
        let mut batch = producer.batch();
        for (seq, len) in [(0, 65), (1, 1), (2, 190)] {
            let seq = 3 * round + seq;
            batch.send(seq, &[seq as u8; 190][..len], PLAIN).unwrap();
        }
        batch.publish();
        let claimed = claim_together(&mut consumer, 3);
        for message in &claimed {
            let mut bytes = vec![0; message.len()];
            consumer.read(message, 0, &mut bytes);
            assert!(bytes.iter().all(|byte| *byte == message.user_seq() as u8));
        }
        assert_eq!(seqs(&claimed), [3 * round, 3 * round + 1, 3 * round + 2]);
        // Newest first, oldest first.
        match round % 2 {
            0 => consumer.complete_all(claimed.into_iter().rev()),
            _ => consumer.complete_all(claimed),
        }
        assert_eq!(producer.free_slots(), 8);
    }
}

#[test]
fn a_panic_while_a_batch_is_filled_publishes_what_came_before() {
    let (mut producer, mut consumer) = ring(4, 64);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let mut batch = producer.batch();
        batch.send(1, b"x", PLAIN).unwrap();
        let _ = batch.send_with(2, 1, PLAIN, |_| panic!("as told"));
    }));
    assert!(panicked.is_err());
    assert_eq!(claim_all(&mut consumer), [1]);
    producer.send(3, b"x", PLAIN).unwrap();
    assert_eq!(claim_all(&mut consumer), [3]);
    assert_eq!(producer.cancel(2), Changed::default());
}

#[test]
fn a_leaked_batch_arrives_with_the_next_message() {
    let (mut producer, mut consumer) = ring(4, 64);
    let mut batch = producer.batch();
    for seq in [1, 2] {
        batch.send(seq, b"x", PLAIN).unwrap();
    }
    core::mem::forget(batch);
    assert_eq!(claim_all(&mut consumer), []);
    assert_eq!(producer.free_slots(), 2);
    assert_eq!(producer.cancel(1).changed, 1);
    producer.send(3, b"x", PLAIN).unwrap();
    assert_eq!(claim_all(&mut consumer), [2, 3]);
}

#[test]
fn claims_end_after_a_ring_full_and_keep_what_they_returned() {
    let (mut producer, mut consumer) = ring(4, 64);
    for seq in 0..4 {
        producer.send(seq, b"x", PLAIN).unwrap();
    }
    let claimed = claim_together(&mut consumer, usize::MAX);
    assert_eq!(seqs(&claimed), [0, 1, 2, 3]);
    assert_eq!(consumer.claims(None).count(), 0);
    assert_eq!(producer.send(4, b"x", PLAIN), Err(SendError::Full));
    consumer.complete_all(claimed);
    assert_eq!(producer.free_slots(), 4);
    // What an iterator has claimed and its user lost is claimed again by the next consumer.
    producer.send(5, b"x", PLAIN).unwrap();
    assert_eq!(consumer.claims(None).count(), 1);
    consumer.restart();
    assert_eq!(claim_all(&mut consumer), [5]);
}

#[test]
fn a_panic_in_complete_all_releases_what_came_before() {
    let (mut producer, mut consumer) = ring(4, 64);
    let (mut other_producer, mut other) = ring(4, 64);
    for seq in 0..3 {
        producer.send(seq, b"x", PLAIN).unwrap();
        other_producer.send(seq, b"x", PLAIN).unwrap();
    }
    let mut claimed = claim_together(&mut consumer, 2);
    // A message of another ring, at a position that this consumer has not claimed.
    claimed.extend(claim_together(&mut other, 3).pop());
    let completed = catch_unwind(AssertUnwindSafe(|| consumer.complete_all(claimed)));
    assert!(completed.is_err());
    assert_eq!(producer.free_slots(), 3);
    assert_eq!(claim_all(&mut consumer), [2]);
}
