//! Sizes, wrap-around, order, deadlines, acknowledgements, closing: each edge as it is documented.

mod abandon;
mod batch;
#[path = "../common/mod.rs"]
mod common;
mod payload;
mod schedule;

use common::{claim_all, ring};
use ldc_ring::{
    AckQueueFull, AttachError, Attributes, Changed, Corrupt, Instant, ModifyError, SendError,
    Shape, ShapeError,
};

const PLAIN: Attributes = Attributes {
    deadline: None,
    priority: 0,
};

fn payload(consumer: &common::C, message: &ldc_ring::Claimed) -> Vec<u8> {
    let mut bytes = vec![0; message.len()];
    consumer.read(message, 0, &mut bytes);
    bytes
}

#[test]
fn shapes_that_make_no_sense_are_refused() {
    assert_eq!(Shape::new(0, 64), Err(ShapeError::NoSlots));
    assert_eq!(Shape::new(1 << 21, 64), Err(ShapeError::TooManySlots));
    assert_eq!(Shape::new(8, 0), Err(ShapeError::NoBytes));
    assert_eq!(Shape::new(8, 1 << 25), Err(ShapeError::TooManyBytes));
    assert_eq!(Shape::new(1 << 20, 1 << 12), Err(ShapeError::TooManyBytes));
    let shape = Shape::new(5, 100).unwrap();
    assert_eq!((shape.slots(), shape.slot_bytes()), (8, 128));
    assert_eq!(shape.block_len(), 512 + 8 * 32 + 64 + 8 * 128);
}

#[test]
fn a_ring_of_one_slot() {
    let (mut producer, mut consumer) = ring(1, 64);
    for seq in 0..100 {
        producer.send(seq, &[seq as u8], PLAIN).unwrap();
        assert_eq!(producer.send(seq + 1, b"x", PLAIN), Err(SendError::Full));
        let message = consumer.claim(None).unwrap().unwrap();
        assert_eq!(producer.send(seq + 1, b"x", PLAIN), Err(SendError::Full));
        assert_eq!(payload(&consumer, &message), [seq as u8]);
        consumer.complete(message);
        assert_eq!(consumer.claim(None), Ok(None));
    }
}

#[test]
fn a_message_without_bytes_takes_a_slot_and_arrives() {
    let (mut producer, mut consumer) = ring(2, 64);
    producer.send(1, b"", PLAIN).unwrap();
    assert_eq!(producer.free_slots(), 1);
    producer.send(2, b"x", PLAIN).unwrap();
    let message = consumer.claim(None).unwrap().unwrap();
    assert!(message.is_empty());
    assert_eq!(payload(&consumer, &message), b"");
    assert!(!consumer.claim(None).unwrap().unwrap().is_empty());
}

#[test]
fn a_message_larger_than_the_ring_is_refused_for_good() {
    let (mut producer, _consumer) = ring(4, 64);
    assert_eq!(producer.send(1, &[0; 257], PLAIN), Err(SendError::TooLong));
    producer.send(1, &[0; 256], PLAIN).unwrap();
    assert_eq!(producer.free_slots(), 0);
}

#[test]
fn cancelling_what_was_never_sent_or_is_gone_changes_nothing() {
    let (mut producer, mut consumer) = ring(4, 64);
    assert_eq!(producer.cancel(7), Changed::default());
    producer.send(7, b"x", PLAIN).unwrap();
    assert_eq!(claim_all(&mut consumer), [7]);
    assert_eq!(producer.cancel(7), Changed::default());
    assert_eq!(producer.modify(7, |_| ()), Err(ModifyError::TooLate));
    assert_eq!(producer.modify(8, |_| ()), Err(ModifyError::Unknown));
    producer.send(9, b"x", PLAIN).unwrap();
    assert_eq!(producer.cancel(9).changed, 1);
    assert_eq!(producer.cancel(9), Changed::default());
    assert_eq!(producer.modify(9, |_| ()), Err(ModifyError::Cancelled));
}

#[test]
fn one_sequence_number_for_several_messages_means_all_of_them() {
    let (mut producer, mut consumer) = ring(8, 64);
    for seq in [1, 2, 1, 2, 1] {
        producer.send(seq, b"x", PLAIN).unwrap();
    }
    let message = consumer.claim(None).unwrap().unwrap();
    assert_eq!(
        producer.cancel(1),
        Changed {
            changed: 2,
            too_late: 1
        }
    );
    consumer.complete(message);
    assert_eq!(claim_all(&mut consumer), [2, 2]);
}

#[test]
fn sequence_numbers_in_steps_of_powers_of_two_and_at_the_end_of_their_range() {
    let (mut producer, mut consumer) = ring(64, 64);
    let seqs: Vec<u64> = (0..64)
        .map(|at| (u64::MAX - 31 * (1 << 32)).wrapping_add(at << 32))
        .collect();
    for _ in 0..3 {
        for seq in &seqs {
            producer.send(*seq, b"x", PLAIN).unwrap();
        }
        for seq in seqs.iter().step_by(2) {
            assert_eq!(producer.cancel(*seq).changed, 1);
        }
        assert_eq!(
            claim_all(&mut consumer),
            seqs.iter().skip(1).step_by(2).copied().collect::<Vec<_>>()
        );
    }
}

#[test]
fn a_send_during_a_hold_back_releases_nothing() {
    let (mut producer, mut consumer) = ring(8, 64);
    producer.send(1, b"x", PLAIN).unwrap();
    assert_eq!(producer.hold_back_all().changed, 1);
    producer.send(2, b"x", PLAIN).unwrap();
    assert_eq!(claim_all(&mut consumer), []);
    // Also when all messages held back are cancelled.
    assert_eq!(producer.cancel(1).changed, 1);
    assert_eq!(producer.cancel(2).changed, 1);
    assert_eq!(claim_all(&mut consumer), []);
    producer.send(3, b"x", PLAIN).unwrap();
    producer.send(4, b"x", PLAIN).unwrap();
    assert_eq!(claim_all(&mut consumer), []);
    assert!(producer.is_holding_back());
    producer.release();
    assert!(!producer.is_holding_back());
    assert_eq!(claim_all(&mut consumer), [3, 4]);
}

#[test]
fn a_hold_back_can_be_widened_and_released_in_part() {
    let (mut producer, mut consumer) = ring(16, 64);
    for seq in 0..8 {
        producer.send(seq, b"x", PLAIN).unwrap();
    }
    assert_eq!(producer.hold_back(6).changed, 2);
    assert_eq!(producer.hold_back(3).changed, 5);
    // Inside what is held back already: nothing new.
    assert_eq!(
        producer.hold_back(7),
        Changed {
            changed: 1,
            too_late: 0
        }
    );
    assert_eq!(claim_all(&mut consumer), [0, 1, 2]);
    assert!(producer.release_until(5));
    assert_eq!(claim_all(&mut consumer), [3, 4]);
    assert!(!producer.release_until(4));
    assert_eq!(producer.cancel(5).changed, 1);
    assert!(producer.release_until(7));
    assert_eq!(claim_all(&mut consumer), [6]);
    producer.release();
    assert_eq!(claim_all(&mut consumer), [7]);
}

#[test]
fn with_nothing_left_to_hold_back_nothing_is_held_back() {
    let (mut producer, mut consumer) = ring(4, 64);
    producer.send(1, b"x", PLAIN).unwrap();
    let message = consumer.claim(None).unwrap().unwrap();
    assert_eq!(
        producer.hold_back(1),
        Changed {
            changed: 0,
            too_late: 1
        }
    );
    assert!(!producer.is_holding_back());
    producer.send(2, b"x", PLAIN).unwrap();
    consumer.complete(message);
    assert_eq!(claim_all(&mut consumer), [2]);
}

#[test]
fn deadlines_are_kept_by_the_consumer() {
    let (mut producer, mut consumer) = ring(8, 64);
    let by = |millis| Attributes {
        deadline: Some(Instant::from_millis(millis)),
        priority: 3,
    };
    producer.send(1, b"x", by(10)).unwrap();
    producer.send(2, b"x", by(20)).unwrap();
    producer.send(3, b"x", PLAIN).unwrap();
    let message = consumer
        .claim(Some(Instant::from_millis(11)))
        .unwrap()
        .unwrap();
    assert_eq!(message.user_seq(), 2);
    assert_eq!(message.deadline(), Some(Instant::from_millis(20)));
    assert_eq!(message.priority(), 3);
    consumer.complete(message);
    assert_eq!(consumer.stats().expired, 1);
    // To the very moment it is in time.
    producer.send(4, b"x", by(30)).unwrap();
    let message = consumer
        .claim(Some(Instant::from_millis(30)))
        .unwrap()
        .unwrap();
    assert_eq!((message.user_seq(), message.deadline()), (3, None));
    let message = consumer
        .claim(Some(Instant::from_millis(30)))
        .unwrap()
        .unwrap();
    assert_eq!(message.user_seq(), 4);
}

#[test]
fn attributes_arrive_each_without_the_other() {
    let (mut producer, mut consumer) = ring(8, 64);
    let never = Instant::from_micros(i64::MAX - 1);
    for (given, arrives) in [
        ((None, 5), (None, 5)),
        ((Some(Instant::ZERO), 0), (Some(Instant::ZERO), 0)),
        // The last value stands for "none".
        ((Some(Instant::from_micros(i64::MAX)), 0), (Some(never), 0)),
    ] {
        let (deadline, priority) = given;
        let attributes = Attributes { deadline, priority };
        producer.send(1, b"x", attributes).unwrap();
        let message = consumer.claim(None).unwrap().unwrap();
        assert_eq!((message.deadline(), message.priority()), arrives);
        consumer.complete(message);
    }
}

#[test]
fn the_consumer_counts_what_it_claims_and_skips() {
    let (mut producer, mut consumer) = ring(8, 64);
    for seq in 0..4 {
        producer.send(seq, b"x", PLAIN).unwrap();
    }
    assert_eq!(producer.cancel(1).changed, 1);
    assert_eq!(producer.hold_back(3).changed, 1);
    assert_eq!(claim_all(&mut consumer), [0, 2]);
    producer.release();
    assert_eq!(claim_all(&mut consumer), [3]);
    let stats = consumer.stats();
    assert_eq!((stats.claimed, stats.cancelled, stats.expired), (3, 1, 0));
}

#[test]
fn errors_say_what_is_wrong() {
    for (error, text) in [
        (SendError::TooLong.to_string(), "longer than the ring"),
        (SendError::Full.to_string(), "free slots"),
        (ModifyError::Unknown.to_string(), "no message"),
        (ModifyError::TooLate.to_string(), "claimed"),
        (ModifyError::Cancelled.to_string(), "cancelled"),
        (AckQueueFull.to_string(), "is full"),
        (Corrupt.to_string(), "violated the protocol"),
        (ShapeError::NoSlots.to_string(), "slot"),
        (AttachError::Version(9).to_string(), "layout 9"),
    ] {
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn acknowledgements_arrive_by_sequence_number_even_after_the_slot_was_used_again() {
    let (mut producer, mut consumer) = ring(2, 64);
    let mut tickets = Vec::new();
    for seq in 0..4 {
        producer.send(seq, b"x", PLAIN).unwrap();
        let message = consumer.claim(None).unwrap().unwrap();
        tickets.push(message.ticket());
        if seq == 3 {
            consumer.ack(message.ticket()).unwrap();
            assert_eq!(producer.acked(3), Some(true));
            assert_eq!(producer.poll_ack(), Some(3));
            consumer.ack(message.ticket()).unwrap();
            assert_eq!(producer.acked(3), Some(true), "also the second time");
        }
        consumer.complete(message);
    }
    assert_eq!(
        producer.acked(3),
        Some(true),
        "until the slot is used again"
    );
    assert_eq!(producer.acked(2), Some(false));
    consumer.ack(tickets[0]).unwrap();
    assert_eq!(producer.acked(0), None);
    assert_eq!(consumer.ack(tickets[1]), Err(AckQueueFull));
    assert_eq!(producer.poll_ack(), Some(3));
    consumer.ack(tickets[2]).unwrap();
    assert_eq!(producer.acked(2), Some(true));
    assert_eq!(producer.poll_ack(), Some(0));
    assert_eq!(producer.poll_ack(), Some(2));
    assert_eq!(producer.poll_ack(), None);
    producer.send(9, b"x", PLAIN).unwrap();
    producer.send(10, b"x", PLAIN).unwrap();
    assert_eq!(
        (producer.acked(9), producer.acked(10)),
        (Some(false), Some(false))
    );
}

#[test]
fn an_idle_consumer_is_woken_once() {
    let (mut producer, mut consumer) = ring(4, 64);
    assert!(producer.notify(), "a new consumer waits to be woken");
    assert!(!producer.notify());
    assert!(consumer.idle());
    producer.send(1, b"x", PLAIN).unwrap();
    assert!(producer.notify());
    assert!(!consumer.idle(), "there is something to claim");
    assert!(!producer.notify());
    assert_eq!(claim_all(&mut consumer), [1]);
    // What is held back is no reason to stay awake.
    producer.send(2, b"x", PLAIN).unwrap();
    assert_eq!(producer.hold_back_all().changed, 1);
    assert!(consumer.idle());
    producer.release();
    assert!(producer.notify());
}

#[test]
fn closing_is_seen_by_the_other_side_after_what_was_sent() {
    let (mut producer, mut consumer) = ring(4, 64);
    producer.send(1, b"x", PLAIN).unwrap();
    producer.close();
    assert!(consumer.is_closed());
    assert_eq!(claim_all(&mut consumer), [1]);
    assert!(!consumer.idle(), "nobody would wake it");
    assert!(!producer.is_closed());
    consumer.close();
    assert!(producer.is_closed());
}

#[test]
fn retain_drops_by_what_is_known_of_a_message() {
    let (mut producer, mut consumer) = ring(8, 64);
    for seq in 0..6 {
        let priority = 6 - seq as u32;
        producer
            .send(
                seq,
                &[0; 9],
                Attributes {
                    deadline: None,
                    priority,
                },
            )
            .unwrap();
    }
    let first = consumer.claim(None).unwrap().unwrap();
    assert_eq!(producer.cancel(5).changed, 1);
    let mut seen = Vec::new();
    let changed = producer.retain(|sent| {
        seen.push(sent.user_seq);
        sent.attributes.priority > 3 && sent.len == 9
    });
    let all_in_time = Changed {
        changed: 2,
        too_late: 0,
    };
    assert_eq!(changed, all_in_time);
    assert_eq!(seen, [1, 2, 3, 4], "neither claimed nor cancelled");
    // What is claimed at the last moment stays.
    let mut second = None;
    let changed = producer.retain(|_| {
        if second.is_none() {
            second = consumer.claim(None).unwrap();
        }
        false
    });
    let one_of_two = Changed {
        changed: 1,
        too_late: 1,
    };
    assert_eq!(changed, one_of_two);
    consumer.complete(first);
    consumer.complete(second.unwrap());
    assert_eq!(claim_all(&mut consumer), []);
}

#[test]
fn a_window_sends_the_dearest_first_and_ends_with_its_time() {
    use ldc_ring::window::{Outcome, Unit, Window};
    let (mut producer, mut consumer) = ring(2, 64);
    let mut units: Vec<Unit<'_>> = [(0, 1), (1, 3), (2, 2), (3, 3), (4, 0)]
        .map(|(user_seq, priority)| Unit {
            user_seq,
            priority,
            bytes: b"unit",
        })
        .to_vec();
    let too_long = [0; 129];
    units.push(Unit {
        user_seq: 5,
        priority: 9,
        bytes: &too_long,
    });
    let mut window = Window::new(&mut units, Instant::from_secs(1));
    assert_eq!(
        window.progress(Instant::from_millis(0), &mut producer),
        None
    );
    assert_eq!(claim_all(&mut consumer), [1, 3]);
    assert_eq!(
        window.progress(Instant::from_secs(1), &mut producer),
        None,
        "its end is part of it"
    );
    // The window ends: one unit is skipped in the ring, one was never put in.
    let message = consumer
        .claim(Some(Instant::from_millis(900)))
        .unwrap()
        .unwrap();
    assert_eq!(message.user_seq(), 2);
    let late = Instant::from_millis(1001);
    assert_eq!(consumer.claim(Some(late)), Ok(None));
    assert_eq!(consumer.stats().expired, 1);
    let outcome = Outcome {
        sent: 4,
        late: 1,
        too_long: 1,
    };
    assert_eq!(window.progress(late, &mut producer), Some(outcome));
    consumer.complete(message);
}

#[test]
fn a_large_ring_tells_of_room_an_eighth_at_a_time() {
    let (mut producer, mut consumer) = ring(64, 64);
    for seq in 0..64 {
        producer.send(seq, b"x", PLAIN).unwrap();
    }
    for _ in 0..7 {
        let message = consumer.claim(None).unwrap().unwrap();
        consumer.complete(message);
    }
    assert_eq!(producer.send(64, b"x", PLAIN), Err(SendError::Full));
    // Asked, it looks to the slot.
    assert_eq!(producer.free_slots(), 7);
    assert_eq!(producer.send(64, b"x", PLAIN), Ok(()));
    for seq in 65..71 {
        producer.send(seq, b"x", PLAIN).unwrap();
    }
    assert_eq!(producer.send(71, b"x", PLAIN), Err(SendError::Full));
    let message = consumer.claim(None).unwrap().unwrap();
    consumer.complete(message);
    assert_eq!(producer.send(71, b"x", PLAIN), Ok(()), "eight are told of");
    assert_eq!(producer.send(72, b"x", PLAIN), Err(SendError::Full));
    // All that it knows of is done: it tells at once.
    assert_eq!(claim_all(&mut consumer).len(), 64);
    assert_eq!(producer.send(72, &[0; 64 * 64], PLAIN), Ok(()));
}

#[test]
fn a_small_ring_tells_of_each_free_slot() {
    let (mut producer, mut consumer) = ring(32, 64);
    for seq in 0..32 {
        producer.send(seq, b"x", PLAIN).unwrap();
    }
    let message = consumer.claim(None).unwrap().unwrap();
    consumer.complete(message);
    assert_eq!(producer.send(32, b"x", PLAIN), Ok(()));
}

#[test]
fn storage_for_any_ring_in_a_block_suffices_and_is_bounded() {
    for (slots, slot_bytes) in [(1, 64), (64, 64), (4096, 64), (1 << 20, 64), (64, 4096)] {
        let shape = Shape::new(slots, slot_bytes).unwrap();
        let words = Shape::completed_words_within(shape.block_len());
        assert!(words >= shape.completed_words(), "{slots} {slot_bytes}");
    }
    let smallest = Shape::new(4096, 64).unwrap();
    let words = Shape::completed_words_within(smallest.block_len());
    assert!(words < smallest.completed_words() + 2, "{words}");
    let largest = Shape::completed_words_within(usize::MAX);
    assert_eq!(largest, Shape::new(1 << 20, 64).unwrap().completed_words());
}

#[test]
fn a_hold_back_from_a_message_that_is_gone_holds_what_was_sent_after_it() {
    let (mut producer, mut consumer) = ring(4, 64);
    for seq in 0..3 {
        producer.send(seq, b"x", PLAIN).unwrap();
    }
    let message = consumer.claim(None).unwrap().unwrap();
    consumer.complete(message);
    let all_but_it = Changed {
        changed: 2,
        too_late: 0,
    };
    assert_eq!(producer.hold_back(0), all_but_it);
    assert_eq!(claim_all(&mut consumer), []);
    producer.release();
    // Its slot is used again: not known any more.
    producer.send(3, b"x", PLAIN).unwrap();
    producer.send(4, b"x", PLAIN).unwrap();
    assert_eq!(producer.hold_back(0), Changed::default());
    assert_eq!(claim_all(&mut consumer), [1, 2, 3, 4]);
}

#[test]
fn a_message_of_another_ring_is_refused() {
    let (mut producer, mut consumer) = ring(4, 64);
    let (mut other_producer, mut other_consumer) = ring(4, 64);
    other_producer.send(1, &[1; 256], PLAIN).unwrap();
    let foreign = other_consumer.claim(None).unwrap().unwrap();
    let refused = |consumer: &common::C| {
        let read = std::panic::AssertUnwindSafe(|| consumer.read(&foreign, 0, &mut [0; 256]));
        std::panic::catch_unwind(read).is_err()
    };
    // Nothing is claimed here; then less than that message has.
    assert!(refused(&consumer));
    producer.send(2, &[2; 64], PLAIN).unwrap();
    producer.send(3, &[3; 64], PLAIN).unwrap();
    let ours = consumer.claim(None).unwrap().unwrap();
    assert!(refused(&consumer));
    assert_eq!(payload(&consumer, &ours), [2; 64]);
    let complete = std::panic::AssertUnwindSafe(|| consumer.complete(foreign));
    assert!(std::panic::catch_unwind(complete).is_err());
    assert_eq!(producer.free_slots(), 2);
}
