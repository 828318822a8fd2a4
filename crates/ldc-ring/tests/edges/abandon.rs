//! Messages that the producer gives up after the consumer has claimed them.

use crate::PLAIN;
use crate::common::{claim_all, ring};
use ldc_ring::Changed;

#[test]
fn a_claimed_message_is_marked_and_an_unclaimed_one_is_cancelled() {
    let (mut producer, mut consumer) = ring(8, 64);
    for (seq, bytes) in [(1, b"a"), (2, b"b"), (1, b"c")] {
        producer.send(seq, bytes, PLAIN).unwrap();
    }
    let first = consumer.claim(None).unwrap().unwrap();
    let second = consumer.claim(None).unwrap().unwrap();
    let expected = Changed {
        changed: 1,
        too_late: 1,
    };
    assert_eq!(producer.abandon(1), expected);
    assert!(consumer.is_abandoned(&first));
    assert!(!consumer.is_abandoned(&second));
    assert_eq!(claim_all(&mut consumer), [0; 0]);
    // In any order, as ever.
    consumer.complete(second);
    consumer.complete(first);
    assert_eq!(producer.free_slots(), 8);
}

#[test]
fn cancelling_marks_nothing() {
    let (mut producer, mut consumer) = ring(8, 64);
    producer.send(1, b"a", PLAIN).unwrap();
    let message = consumer.claim(None).unwrap().unwrap();
    assert_eq!(producer.cancel(1).too_late, 1);
    assert!(!consumer.is_abandoned(&message));
    consumer.complete(message);
}

#[test]
fn a_completed_message_and_the_next_one_in_its_slot_are_not_marked() {
    let (mut producer, mut consumer) = ring(1, 64);
    producer.send(1, b"a", PLAIN).unwrap();
    let message = consumer.claim(None).unwrap().unwrap();
    consumer.complete(message);
    assert_eq!(producer.abandon(1), Changed::default());
    producer.send(2, b"b", PLAIN).unwrap();
    assert_eq!(producer.abandon(1), Changed::default());
    let message = consumer.claim(None).unwrap().unwrap();
    assert!(!consumer.is_abandoned(&message));
    consumer.complete(message);
}

#[test]
fn a_message_completed_out_of_order_is_done_even_if_it_was_abandoned() {
    let (mut producer, mut consumer) = ring(4, 64);
    for seq in 0..3 {
        producer.send(seq, b"x", PLAIN).unwrap();
    }
    let first = consumer.claim(None).unwrap().unwrap();
    let second = consumer.claim(None).unwrap().unwrap();
    producer.abandon(1);
    consumer.complete(second);
    // A request that comes too late has no effect.
    assert_eq!(producer.abandon(1).too_late, 1);
    consumer.complete(first);
    assert_eq!(claim_all(&mut consumer), [2]);
    assert_eq!(producer.free_slots(), 4);
}

#[test]
fn the_successor_of_a_dead_consumer_does_not_deliver_abandoned_messages() {
    let (mut producer, mut consumer) = ring(8, 64);
    for seq in 0..3 {
        producer.send(seq, b"x", PLAIN).unwrap();
    }
    let _first = consumer.claim(None).unwrap().unwrap();
    let _second = consumer.claim(None).unwrap().unwrap();
    producer.abandon(0);
    consumer.restart();
    assert_eq!(claim_all(&mut consumer), [1, 2]);
    assert_eq!(consumer.stats().cancelled, 1);
    assert_eq!(producer.free_slots(), 8);
}

#[test]
fn an_acknowledged_message_stays_acknowledged() {
    let (mut producer, mut consumer) = ring(8, 64);
    producer.send(1, b"a", PLAIN).unwrap();
    let message = consumer.claim(None).unwrap().unwrap();
    consumer.ack(message.ticket()).unwrap();
    producer.abandon(1);
    assert!(!consumer.is_abandoned(&message));
    assert_eq!(producer.poll_ack(), Some(1));
    consumer.complete(message);
}

#[test]
fn cancelled_messages_leave_without_a_claim() {
    let (mut producer, mut consumer) = ring(4, 64);
    for seq in [1, 1, 2, 1] {
        producer.send(seq, b"x", PLAIN).unwrap();
    }
    let first = consumer.claim(None).unwrap().unwrap();
    producer.cancel(1);
    assert_eq!(consumer.skip_cancelled(), Ok(1));
    // In order, as ever: an older one is claimed. The one after the message with another number waits for its turn.
    assert_eq!(producer.free_slots(), 0);
    consumer.complete(first);
    assert_eq!(consumer.skip_cancelled(), Ok(0));
    assert_eq!(producer.free_slots(), 2);
    assert_eq!(claim_all(&mut consumer), [2]);
    assert_eq!(consumer.stats().cancelled, 2);
    assert_eq!(producer.free_slots(), 4);
}
