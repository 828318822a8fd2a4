//! Bytes of messages: those of several slots, parts of them, changes in place.

use ldc_ring::{Attributes, Changed, Instant, SendError};

use crate::common::{claim_all, ring};
use crate::{PLAIN, payload};

#[test]
fn a_message_larger_than_a_slot_takes_several_and_comes_out_whole() {
    let (mut producer, mut consumer) = ring(4, 64);
    // Twenty rounds, so that it begins in each slot and goes over the end of the ring.
    for seq in 0..20u64 {
        let bytes: Vec<u8> = (0..150).map(|at| (at + seq) as u8).collect();
        producer.send(seq, &bytes, PLAIN).unwrap();
        assert_eq!(producer.free_slots(), 1);
        assert_eq!(producer.send(99, &[0; 65], PLAIN), Err(SendError::Full));
        let message = consumer.claim(None).unwrap().unwrap();
        assert_eq!(payload(&consumer, &message), bytes);
        let [first, second] = consumer.chunks(&message, 10);
        assert_eq!(first.1 + second.1, 140);
        consumer.complete(message);
    }
}

#[test]
fn a_message_in_pieces_is_dropped_whole_or_not_at_all() {
    let (mut producer, mut consumer) = ring(8, 64);
    producer.send(1, &[1; 200], PLAIN).unwrap();
    producer.send(2, &[2; 200], PLAIN).unwrap();
    let message = consumer.claim(None).unwrap().unwrap();
    assert_eq!(
        producer.cancel(1),
        Changed {
            changed: 0,
            too_late: 1
        }
    );
    assert_eq!(
        producer.cancel(2),
        Changed {
            changed: 1,
            too_late: 0
        }
    );
    assert_eq!(payload(&consumer, &message), [1; 200]);
    consumer.complete(message);
    assert_eq!(claim_all(&mut consumer), []);
    assert_eq!(producer.free_slots(), 8);
}

#[test]
fn any_part_of_a_message_can_be_read_and_changed() {
    let (mut producer, mut consumer) = ring(4, 64);
    for seq in 0..8u64 {
        let mut bytes: Vec<u8> = (0..150).map(|at| (at + seq) as u8).collect();
        producer.send(seq, &bytes, PLAIN).unwrap();
        for (offset, len) in [(0, 64), (10, 20), (54, 10), (60, 10), (80, 10), (130, 20)] {
            let changed = producer.modify(seq, |payload| {
                let mut part = vec![0; len];
                payload.read(offset, &mut part);
                assert_eq!(part, bytes[offset..offset + len]);
                part.fill(len as u8);
                payload.write(offset, &part);
            });
            assert_eq!(changed, Ok(()));
            bytes[offset..offset + len].fill(len as u8);
        }
        let message = consumer.claim(None).unwrap().unwrap();
        for (offset, len) in [(0, 64), (10, 20), (54, 10), (60, 10), (80, 10), (130, 20)] {
            let mut part = vec![0; len];
            consumer.read(&message, offset, &mut part);
            assert_eq!(part, bytes[offset..offset + len], "{offset}");
        }
        consumer.complete(message);
    }
}

#[test]
fn a_message_modified_keeps_its_slots() {
    let (mut producer, mut consumer) = ring(4, 64);
    producer.send(1, &[1; 100], PLAIN).unwrap();
    let resized = producer
        .modify(1, |payload| {
            payload.write(0, &[2; 100]);
            assert!(!payload.resize(64), "one slot fewer");
            assert!(!payload.resize(129), "one slot more");
            assert!(!payload.resize(257), "more than the ring");
            assert!(payload.resize(128));
            payload.resize(65)
        })
        .unwrap();
    assert!(resized);
    let len = producer.modify(1, |payload| (payload.len(), payload.is_empty()));
    assert_eq!(len, Ok((65, false)));
    assert_eq!(producer.pending().next().map(|sent| sent.len), Some(65));
    producer.send(2, b"x", PLAIN).unwrap();
    let emptied = producer.modify(2, |payload| payload.resize(0) && payload.is_empty());
    assert_eq!(emptied, Ok(true));
    let message = consumer.claim(None).unwrap().unwrap();
    assert_eq!(payload(&consumer, &message), [2; 65]);
}

#[test]
fn a_message_that_takes_the_whole_ring_can_be_resized_to_the_last_byte() {
    let (mut producer, mut consumer) = ring(4, 64);
    producer.send(1, &[1; 200], PLAIN).unwrap();
    assert_eq!(producer.modify(1, |payload| payload.resize(256)), Ok(true));
    assert_eq!(consumer.claim(None).unwrap().unwrap().len(), 256);
}

#[test]
fn a_message_modified_keeps_its_deadline() {
    let (mut producer, mut consumer) = ring(4, 64);
    let attributes = Attributes {
        deadline: Some(Instant::from_millis(10)),
        priority: 7,
    };
    producer.send(1, &[1; 100], attributes).unwrap();
    assert_eq!(producer.modify(1, |payload| payload.resize(65)), Ok(true));
    assert_eq!(producer.modify(1, |payload| payload.resize(70)), Ok(true));
    let message = consumer.claim(None).unwrap().unwrap();
    assert_eq!((message.len(), message.priority()), (70, 7));
    assert_eq!(message.deadline(), attributes.deadline);
}

#[test]
fn a_message_being_sent_has_the_length_that_was_asked_for() {
    let (mut producer, _consumer) = ring(4, 64);
    let sent = producer.send_with(1, 10, PLAIN, |payload| {
        assert!(!payload.resize(9));
        assert_eq!(payload.len(), 10);
    });
    assert_eq!(sent, Ok(()));
}

#[test]
fn a_change_that_panics_gives_the_message_back() {
    let (mut producer, mut consumer) = ring(4, 64);
    producer.send(1, b"x", PLAIN).unwrap();
    let change = std::panic::AssertUnwindSafe(|| {
        let _ = producer.modify(1, |payload| payload.write(9, b"past the end"));
    });
    assert!(std::panic::catch_unwind(change).is_err());
    assert_eq!(claim_all(&mut consumer), [1]);
}
