//! The other side dies, or writes nonsense into the block.

use std::ptr::NonNull;

use ldc_ring::{
    AttachError, Attributes, Consumer, Corrupt, Entry, Memory, ModifyError, Producer, SendError,
    Shape,
};
use proptest::prelude::*;

const SHAPE: Shape = match Shape::new(8, 64) {
    Ok(shape) => shape,
    Err(_) => panic!(),
};
const LEN: usize = SHAPE.block_len();
const PLAIN: Attributes = Attributes {
    deadline: None,
    priority: 0,
};

/// Where the words lie that the tests overwrite.
const USER_I: usize = 128;
const TOLD: usize = 256;
const DEV_I: usize = 388;
const RECORDS: usize = 512;

type P = Producer<(), Vec<Entry>>;
type C = Consumer<()>;

/// A block that test code scribbles in, and both sides of its ring.
struct Bench {
    memory: NonNull<Memory<LEN>>,
}

impl Bench {
    fn new() -> (Bench, P, C) {
        let bench = Bench {
            memory: NonNull::from(Box::leak(Box::new(Memory::new()))),
        };
        let index = vec![Entry::EMPTY; 8];
        // SAFETY: leaked memory, reached through this pointer alone.
        let producer = unsafe { Producer::create(bench.at(0), LEN, SHAPE, (), index) }.unwrap();
        let consumer = bench.consumer();
        (bench, producer, consumer)
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < LEN);
        // SAFETY: within the memory.
        unsafe { self.memory.cast().add(offset) }
    }

    fn consumer(&self) -> C {
        // SAFETY: as above; the test drops the consumer before it.
        unsafe { Consumer::attach(self.at(0), LEN, ()) }.unwrap()
    }

    fn scribble(&self, offset: usize, value: u8) {
        // SAFETY: within the memory; both sides run on this thread.
        unsafe { self.at(offset).write(value) };
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // SAFETY: leaked in `new`; the tests drop both sides with it.
        drop(unsafe { Box::from_raw(self.memory.as_ptr()) });
    }
}

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
        assert_eq!(C::attach(at, LEN, ()).err(), Some(AttachError::NotARing));
        assert_eq!(C::attach(at, 10, ()).err(), Some(AttachError::TooShort));
        assert_eq!(
            C::attach(at.add(8), LEN - 8, ()).err(),
            Some(AttachError::Misaligned)
        );
        assert_eq!(
            C::create(at, LEN - 1, SHAPE, ()).err(),
            Some(AttachError::TooShort)
        );
        C::create(at, LEN, SHAPE, ()).unwrap();
        assert_eq!(
            C::attach(at, LEN - 1, ()).err(),
            Some(AttachError::TooShort)
        );
        let short = P::attach(at, LEN, (), vec![Entry::EMPTY; 7]);
        assert_eq!(short.err(), Some(AttachError::IndexTooShort));
        at.add(4).write(9);
        assert_eq!(C::attach(at, LEN, ()).err(), Some(AttachError::Version(9)));
        at.add(4).write(2);
        at.add(8).write(7);
        assert_eq!(C::attach(at, LEN, ()).err(), Some(AttachError::Geometry));
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
        producer.drop(12);
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
    // Half of it may be on its way already.
    let _ = consumer.claim(None).unwrap().unwrap();
    consumer = bench.consumer();
    assert_eq!(producer.drop(1).too_late, 1);
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
    // It fits into the ring: two slots.
    bench.scribble(RECORDS + 4, 65);
    assert_eq!(consumer.claim(None), Err(Corrupt));
}

#[test]
fn messages_that_were_never_sent_are_noticed() {
    let (bench, _producer, mut consumer) = Bench::new();
    // A ring full of messages, and no record says so.
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
    // In the middle of a message; past what was sent.
    for nonsense in [3, 9, 0xff] {
        bench.scribble(TOLD, nonsense);
        bench.scribble(DEV_I, nonsense);
        assert_eq!(producer.send(4, b"x", PLAIN), Err(SendError::Full));
        assert_eq!(producer.free_slots(), 0);
    }
    // A lie that makes sense hurts the consumer alone.
    bench.scribble(TOLD, 4);
    producer.send(4, b"x", PLAIN).unwrap();
    // And back again.
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
    assert_eq!(producer.drop(3).changed, 1);
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

#[derive(Clone, Debug)]
enum Step {
    Send(u64, usize),
    Drop(u64),
    Modify(u64),
    HoldBack(u64),
    HoldBackAll,
    Release,
    ReleaseUntil(u64),
    Retain,
    Claim,
    Complete,
    Ack,
    PollAck,
    Idle,
    Notify,
    Reattach,
    Scribble(usize, u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..12u64, 0..300usize).prop_map(|(seq, len)| Step::Send(seq, len)),
        (0..12u64).prop_map(Step::Drop),
        (0..12u64).prop_map(Step::Modify),
        (0..12u64).prop_map(Step::HoldBack),
        Just(Step::HoldBackAll),
        Just(Step::Release),
        (0..12u64).prop_map(Step::ReleaseUntil),
        Just(Step::Retain),
        Just(Step::Claim),
        Just(Step::Complete),
        Just(Step::Ack),
        Just(Step::PollAck),
        Just(Step::Idle),
        Just(Step::Notify),
        Just(Step::Reattach),
        // Indexes, records and acknowledgements, often: few values, so that they make sense at times.
        (128..LEN, prop_oneof![0..32u8, any::<u8>()])
            .prop_map(|(at, value)| Step::Scribble(at, value)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Whatever is written into the block, neither side panics, hangs or leaves its memory.
    #[test]
    fn nonsense_in_the_block_hurts_nobody(steps in prop::collection::vec(step(), 1..120)) {
        let (bench, mut producer, mut consumer) = Bench::new();
        let mut claimed = Vec::new();
        let mut tickets = Vec::new();
        for step in steps {
            match step {
                Step::Send(seq, len) => { let _ = producer.send(seq, &vec![1; len], PLAIN); }
                Step::Drop(seq) => { producer.drop(seq); }
                Step::Modify(seq) => {
                    let _ = producer.modify(seq, |payload| {
                        let len = payload.len();
                        payload.write(0, &vec![2; len]);
                        payload.resize(len / 2);
                    });
                }
                Step::HoldBack(seq) => { producer.hold_back(seq); }
                Step::HoldBackAll => { producer.hold_back_all(); }
                Step::Release => producer.release(),
                Step::ReleaseUntil(seq) => { producer.release_until(seq); }
                Step::Retain => { producer.retain(|sent| sent.user_seq % 2 == 0); }
                Step::Claim => {
                    if let Ok(Some(message)) = consumer.claim(None) {
                        let mut bytes = vec![0; message.len()];
                        consumer.read(&message, 0, &mut bytes);
                        tickets.push(message.ticket());
                        claimed.push(message);
                    }
                }
                Step::Complete => { if !claimed.is_empty() { consumer.complete(claimed.remove(0)); } }
                Step::Ack => { if let Some(ticket) = tickets.pop() { let _ = consumer.ack(ticket); } }
                Step::PollAck => { producer.poll_ack(); }
                Step::Idle => { let _ = consumer.idle(); }
                Step::Notify => { let _ = producer.notify(); }
                Step::Reattach => { claimed.clear(); consumer = bench.consumer(); }
                Step::Scribble(at, value) => bench.scribble(at, value),
            }
            let _ = (producer.pending().count(), producer.free_slots());
        }
    }
}
