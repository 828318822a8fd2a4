//! The peer dies, or corrupts the block.

mod hostile_list;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use hostile_list::{
    Bench, C, CLAIMED, DEV_I, DONE, LEN, P, PLAIN, RECORDS, SHAPE, Step, TOLD, USER_I, completed,
    run,
};
use ldc_ring::{AttachError, Corrupt, Entry, Memory, ModifyError, SendError};
use proptest::prelude::*;

fn drain(consumer: &mut C) -> Vec<u64> {
    let mut seqs = Vec::new();
    while let Ok(Some(message)) = consumer.claim(None) {
        seqs.push(message.user_seq());
        consumer.complete(message);
    }
    seqs
}

#[test]
fn memory_that_is_no_ring_is_refused() {
    let mut memory = Memory::<LEN>::new();
    let at = NonNull::from(&mut memory.0).cast::<u8>();
    // SAFETY: the memory outlives the attempts.
    unsafe {
        assert_eq!(
            C::attach(at, LEN, (), completed()).err(),
            Some(AttachError::NotARing)
        );
        assert_eq!(
            C::attach(at, 10, (), completed()).err(),
            Some(AttachError::TooShort)
        );
        assert_eq!(
            C::attach(at.add(8), LEN - 8, (), completed()).err(),
            Some(AttachError::Misaligned)
        );
        assert_eq!(
            C::create(at, LEN - 1, SHAPE, (), completed()).err(),
            Some(AttachError::TooShort)
        );
        C::create(at, LEN, SHAPE, (), completed()).unwrap();
        assert_eq!(
            C::attach(at, LEN - 1, (), completed()).err(),
            Some(AttachError::TooShort)
        );
        let short = P::attach(at, LEN, (), vec![Entry::EMPTY; 7]);
        assert_eq!(short.err(), Some(AttachError::IndexTooShort));
        let short = C::attach(at, LEN, (), Vec::new());
        assert_eq!(short.err(), Some(AttachError::CompletedTooShort));
        at.add(4).write(9);
        assert_eq!(
            C::attach(at, LEN, (), completed()).err(),
            Some(AttachError::Version(9))
        );
        at.add(4).write(3);
        at.add(8).write(7);
        assert_eq!(
            C::attach(at, LEN, (), completed()).err(),
            Some(AttachError::Geometry)
        );
    }
}

#[test]
fn a_producer_cannot_be_taken_over() {
    let (bench, mut producer, _consumer) = Bench::new();
    producer.send(1, b"x", PLAIN).unwrap();
    drop(producer);
    // SAFETY: the first producer is gone.
    let second = unsafe { P::attach(bench.at(0), LEN, (), vec![Entry::EMPTY; 8]) };
    assert_eq!(second.err(), Some(AttachError::InUse));
}

#[test]
fn a_producer_that_died_where_positions_wrap_cannot_be_taken_over() {
    let (bench, mut producer, _consumer) = Bench::new();
    producer.send(1, b"x", PLAIN).unwrap();
    drop(producer);
    bench.scribble(USER_I, 0);
    // SAFETY: the first producer is gone.
    let second = unsafe { P::attach(bench.at(0), LEN, (), vec![Entry::EMPTY; 8]) };
    assert_eq!(second.err(), Some(AttachError::InUse));
}

#[test]
fn what_a_dead_producer_sent_still_arrives() {
    let (_bench, mut producer, mut consumer) = Bench::new();
    producer.send(1, b"x", PLAIN).unwrap();
    producer.send(2, b"x", PLAIN).unwrap();
    producer.send(3, b"x", PLAIN).unwrap();
    producer.hold_back(3);
    drop(producer);
    assert_eq!(drain(&mut consumer), [1, 2]);
}

#[test]
fn a_second_consumer_goes_on_where_the_first_died() {
    for completed_before_death in 0..=3 {
        let (bench, mut producer, mut consumer) = Bench::new();
        // Somewhere in the second round, messages of several slots among them.
        for seq in 0..5 {
            producer.send(seq, &[0; 100], PLAIN).unwrap();
            assert_eq!(drain(&mut consumer), [seq]);
        }
        for seq in 10..14 {
            producer.send(seq, &[seq as u8; 100], PLAIN).unwrap();
        }
        producer.cancel(12);
        let claimed: Vec<_> = (0..3)
            .filter_map(|_| consumer.claim(None).unwrap())
            .collect();
        for message in claimed.into_iter().take(completed_before_death) {
            consumer.complete(message);
        }
        consumer = bench.consumer();
        let expected: &[u64] = match completed_before_death {
            0 => &[10, 11, 13],
            1 => &[11, 13],
            2 => &[13],
            _ => &[],
        };
        assert_eq!(drain(&mut consumer), expected);
        assert_eq!(producer.free_slots(), 8);
        producer.send(20, &[0; 512], PLAIN).unwrap();
        assert_eq!(drain(&mut consumer), [20]);
    }
}

#[test]
fn what_a_dead_consumer_had_claimed_cannot_be_changed() {
    let (bench, mut producer, mut consumer) = Bench::new();
    producer.send(1, b"x", PLAIN).unwrap();
    producer.send(2, b"x", PLAIN).unwrap();
    // Half of it may have been sent already.
    let _ = consumer.claim(None).unwrap().unwrap();
    consumer = bench.consumer();
    assert_eq!(producer.cancel(1).too_late, 1);
    assert_eq!(producer.modify(1, |_| ()), Err(ModifyError::TooLate));
    assert_eq!(producer.hold_back(1).changed, 1);
    assert_eq!(drain(&mut consumer), [1]);
}

#[test]
fn a_message_longer_than_the_ring_is_noticed() {
    let (bench, mut producer, mut consumer) = Bench::new();
    producer.send(1, b"x", PLAIN).unwrap();
    // The length of the first record.
    bench.scribble(RECORDS + 4 + 3, 0x7f);
    assert_eq!(consumer.claim(None), Err(Corrupt));
}

#[test]
fn a_message_longer_than_what_was_sent_is_noticed() {
    let (bench, mut producer, mut consumer) = Bench::new();
    producer.send(1, b"x", PLAIN).unwrap();
    // Two slots, which fit into the ring.
    bench.scribble(RECORDS + 4, 65);
    assert_eq!(consumer.claim(None), Err(Corrupt));
}

#[test]
fn messages_that_were_never_sent_are_noticed() {
    let (bench, _producer, mut consumer) = Bench::new();
    // A full ring according to the index, without any record.
    bench.scribble(USER_I, 8);
    assert!(!consumer.idle(), "there is something to look at");
    assert_eq!(consumer.claim(None), Err(Corrupt));
    // More than a ring full.
    bench.scribble(USER_I, 9);
    assert_eq!(consumer.claim(None), Err(Corrupt));
}

#[test]
fn room_that_was_never_used_is_not_believed() {
    let (bench, mut producer, _consumer) = Bench::new();
    for seq in 0..4 {
        producer.send(seq, &[0; 100], PLAIN).unwrap();
    }
    // In the middle of a message; after the last message sent.
    for nonsense in [3, 9, 0xff] {
        bench.scribble(TOLD, nonsense);
        bench.scribble(DEV_I, nonsense);
        assert_eq!(producer.send(4, b"x", PLAIN), Err(SendError::Full));
        assert_eq!(producer.free_slots(), 0);
    }
    // A plausible wrong value affects the consumer only.
    bench.scribble(TOLD, 4);
    producer.send(4, b"x", PLAIN).unwrap();
    // And back.
    bench.scribble(DEV_I, 2);
    assert_eq!(producer.free_slots(), 3);
}

#[test]
fn giving_back_what_is_held_back_leaves_the_hold_back_at_what_is_left() {
    let (bench, mut producer, _consumer) = Bench::new();
    for seq in 0..4 {
        producer.send(seq, b"x", PLAIN).unwrap();
    }
    assert_eq!(producer.hold_back(1).changed, 3);
    bench.scribble(DEV_I, 3);
    assert_eq!(producer.free_slots(), 7);
    assert!(producer.modify(3, |_| ()).is_ok());
    assert_eq!(producer.modify(2, |_| ()), Err(ModifyError::TooLate));
    producer.release();
    assert_eq!(producer.cancel(3).changed, 1);
}

#[test]
fn a_consumer_that_frees_nothing_only_fills_the_ring() {
    let (_bench, mut producer, _) = Bench::new();
    for seq in 0..8 {
        producer.send(seq, b"x", PLAIN).unwrap();
    }
    assert_eq!(producer.send(8, b"x", PLAIN), Err(SendError::Full));
    assert_eq!(producer.retain(|_| false).changed, 8);
    assert_eq!(producer.send(8, b"x", PLAIN), Err(SendError::Full));
}

#[test]
fn rewritten_state_of_a_claimed_message_does_not_complete_it() {
    let (bench, mut producer, mut consumer) = Bench::new();
    for seq in 0..3 {
        producer.send(seq, &[seq as u8; 10], PLAIN).unwrap();
    }
    let claimed: Vec<_> = (0..3)
        .map(|_| consumer.claim(None).unwrap().unwrap())
        .collect();
    bench.set_state(1, DONE);
    bench.set_state(2, DONE);
    for message in claimed {
        let mut bytes = [0xff; 10];
        consumer.read(&message, 0, &mut bytes);
        assert_eq!(bytes, [message.user_seq() as u8; 10]);
        assert_eq!(consumer.chunks(&message, 0)[0].1, 10);
        consumer.complete(message);
    }
    assert_eq!(producer.free_slots(), 8);
}

#[test]
fn rewritten_state_of_a_completed_message_does_not_reopen_it() {
    let (bench, mut producer, mut consumer) = Bench::new();
    for seq in 0..3 {
        producer.send(seq, b"x", PLAIN).unwrap();
    }
    let first = consumer.claim(None).unwrap().unwrap();
    let second = consumer.claim(None).unwrap().unwrap();
    let third = consumer.claim(None).unwrap().unwrap();
    consumer.complete(second);
    bench.set_state(1, CLAIMED);
    consumer.complete(first);
    assert_eq!(producer.free_slots(), 7, "the third alone is still claimed");
    consumer.complete(third);
    assert_eq!(producer.free_slots(), 8);
}

#[test]
fn rewritten_length_of_a_completed_message_frees_no_other_slot() {
    let (bench, mut producer, mut consumer) = Bench::new();
    for seq in 0..4 {
        producer.send(seq, b"x", PLAIN).unwrap();
    }
    let first = consumer.claim(None).unwrap().unwrap();
    let second = consumer.claim(None).unwrap().unwrap();
    let third = consumer.claim(None).unwrap().unwrap();
    consumer.complete(second);
    bench.set_len(1, 200);
    consumer.complete(first);
    let mut bytes = [0];
    consumer.read(&third, 0, &mut bytes);
    assert_eq!(bytes, *b"x");
    consumer.complete(third);
    assert_eq!(drain(&mut consumer), [3]);
    assert_eq!(producer.free_slots(), 8);
}

fn step() -> impl Strategy<Value = Step> {
    let seq = 0..12u64;
    prop_oneof![
        8 => (seq.clone(), 0..200usize).prop_map(|(seq, len)| Step::Send(seq, len)),
        1 => seq.clone().prop_map(Step::Cancel),
        1 => seq.clone().prop_map(Step::Modify),
        1 => seq.clone().prop_map(Step::HoldBack),
        1 => Just(Step::HoldBackAll),
        2 => Just(Step::Release),
        1 => seq.prop_map(Step::ReleaseUntil),
        1 => Just(Step::Retain),
        8 => Just(Step::Claim),
        4 => (0..8usize).prop_map(Step::Complete),
        4 => (0..8usize).prop_map(Step::Read),
        1 => Just(Step::Ack),
        1 => Just(Step::PollAck),
        1 => Just(Step::Idle),
        1 => Just(Step::Notify),
        1 => Just(Step::Reattach),
        // Few values, so that some are plausible.
        2 => (any::<usize>(), prop_oneof![0..32u8, any::<u8>()])
            .prop_map(|(at, value)| Step::Scribble(at, value)),
        1 => (any::<usize>(), any::<u32>()).prop_map(|(at, value)| Step::Word(at, value)),
        4 => (0..8u32, 0..8u32).prop_map(|(at, state)| Step::State(at, state)),
        2 => (0..8u32, 0..600u32).prop_map(|(at, len)| Step::Len(at, len)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// With any writes to the block between any two operations, neither side panics, hangs or accesses other memory.
    #[test]
    fn nonsense_in_the_block_hurts_nobody(steps in prop::collection::vec(step(), 1..120)) {
        run(steps);
    }
}

/// The peer writes concurrently: any word at any moment, mostly well-formed state words.
#[test]
fn a_block_rewritten_at_full_speed_hurts_nobody() {
    let (bench, mut producer, mut consumer) = Bench::new();
    let words: Vec<&AtomicU32> = (128..LEN - SHAPE.max_message())
        .step_by(4)
        .map(|at| bench.word(at))
        .collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = 1u64;
            while !stop.load(Ordering::Relaxed) {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                let at = (random >> 40) as usize % words.len();
                let old = words[at].load(Ordering::Relaxed);
                let value = match random >> 60 {
                    0 => (random >> 16) as u32,
                    // The state of the same position, the lowest bits of a length or an index.
                    _ => old & !7 | (random >> 33) as u32 & 7,
                };
                words[at].store(value, Ordering::Relaxed);
            }
        });
        let mut claimed = Vec::new();
        for round in 0..200_000u64 {
            let _ = producer.send(round % 12, &[1; 150][..(round % 150) as usize], PLAIN);
            if round % 16 == 0 {
                producer.hold_back(round % 12);
                producer.release();
                producer.cancel(round % 7);
            }
            match consumer.claim(None) {
                Ok(Some(message)) => claimed.push(message),
                Ok(None) => {}
                Err(Corrupt) => {
                    claimed.clear();
                    consumer = bench.consumer();
                }
            }
            if claimed.len() > 3 {
                let message = claimed.swap_remove((round % 3) as usize);
                consumer.read(&message, 0, &mut vec![0; message.len()]);
                consumer.complete(message);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}
