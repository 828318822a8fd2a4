//! A ring with a hostile peer: random lists of operations, between which any word of the shared block is overwritten,
//! with random values or with values that the protocol allows.
//!
//! [`run`] asserts that neither side panics, that a claimed message keeps its length until it is completed, that the
//! consumer releases no slot while an older message is claimed, and that it never holds more than a full ring.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use ldc_ring::{Attributes, Claimed, Consumer, Entry, Memory, Producer, Shape, Ticket};

pub(crate) const SHAPE: Shape = match Shape::new(8, 64) {
    Ok(shape) => shape,
    Err(_) => panic!(),
};
pub(crate) const LEN: usize = SHAPE.block_len();
pub(crate) const PLAIN: Attributes = Attributes {
    deadline: None,
    priority: 0,
};

/// Offsets in the block of the words that the tests overwrite.
pub(crate) const USER_I: usize = 128;
pub(crate) const TOLD: usize = 256;
pub(crate) const DEV_I: usize = 388;
pub(crate) const RECORDS: usize = 512;
/// Bytes of a record: state word, length word, sequence number.
const RECORD: usize = 16;

/// States of a message, as `ldc-ring` numbers them.
pub(crate) const CLAIMED: u32 = 4;
pub(crate) const DONE: u32 = 5;

pub(crate) type P = Producer<(), Vec<Entry>>;
pub(crate) type C = Consumer<(), Vec<u32>>;

/// A block that tests rewrite, and both sides of its ring.
pub(crate) struct Bench {
    memory: NonNull<Memory<LEN>>,
}

impl Bench {
    pub(crate) fn new() -> (Bench, P, C) {
        let bench = Bench {
            memory: NonNull::from(Box::leak(Box::new(Memory::new()))),
        };
        let index = vec![Entry::EMPTY; SHAPE.slots() as usize];
        // SAFETY: leaked memory, reached through this pointer alone.
        let producer = unsafe { Producer::create(bench.at(0), LEN, SHAPE, (), index) }.unwrap();
        let consumer = bench.consumer();
        (bench, producer, consumer)
    }

    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < LEN);
        // SAFETY: within the memory.
        unsafe { self.memory.cast().add(offset) }
    }

    pub(crate) fn consumer(&self) -> C {
        // SAFETY: as above; the caller drops the consumer before it.
        unsafe { Consumer::attach(self.at(0), LEN, (), completed()) }.unwrap()
    }

    /// The word at an offset. All words below the payload are atomics for both sides.
    pub(crate) fn word(&self, offset: usize) -> &AtomicU32 {
        let word = self.at(offset & !3).cast::<AtomicU32>();
        // SAFETY: within the memory, aligned, and lives as long as `self`.
        unsafe { word.as_ref() }
    }

    /// Overwrites one byte.
    pub(crate) fn scribble(&self, offset: usize, value: u8) {
        let word = self.word(offset);
        let mut bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        bytes[offset & 3] = value;
        word.store(u32::from_ne_bytes(bytes), Ordering::Relaxed);
    }

    /// Returns the consumer's `dev_i` in the block.
    pub(crate) fn dev_i(&self) -> u32 {
        self.word(DEV_I).load(Ordering::Relaxed)
    }

    /// Overwrites the state word of the message at `position`, as a hostile producer can at any time.
    pub(crate) fn set_state(&self, position: u32, state: u32) {
        let slot = (position % SHAPE.slots()) as usize;
        let word = position << 4 | state;
        self.word(RECORDS + slot * RECORD)
            .store(word, Ordering::Relaxed);
    }

    /// Overwrites the length word of the message at `position`.
    pub(crate) fn set_len(&self, position: u32, len: u32) {
        let slot = (position % SHAPE.slots()) as usize;
        self.word(RECORDS + slot * RECORD + 4)
            .store(len, Ordering::Relaxed);
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // SAFETY: leaked in `new`; the tests drop both sides with it.
        drop(unsafe { Box::from_raw(self.memory.as_ptr()) });
    }
}

pub(crate) fn completed() -> Vec<u32> {
    vec![0; SHAPE.completed_words()]
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Send(u64, usize),
    Cancel(u64),
    Modify(u64),
    HoldBack(u64),
    HoldBackAll,
    Release,
    ReleaseUntil(u64),
    Retain,
    Claim,
    /// The n-th of the messages claimed and not completed.
    Complete(usize),
    Read(usize),
    Ack,
    PollAck,
    Idle,
    Notify,
    Reattach,
    /// One byte anywhere after the geometry.
    Scribble(usize, u8),
    /// One word of the head, the records or the attributes.
    Word(usize, u32),
    /// A well-formed state word for a position at a given distance after `dev_i`.
    State(u32, u32),
    /// A length that fits into the ring, for the message at that position.
    Len(u32, u32),
}

/// What the consumer holds, as its own answers say: lengths in the order of the ring, completed or not.
#[derive(Default)]
struct Held {
    first: u64,
    messages: VecDeque<(u32, bool)>,
}

impl Held {
    fn claim(&mut self, pieces: u32) -> u64 {
        self.messages.push_back((pieces, false));
        self.first + self.messages.len() as u64 - 1
    }

    /// Returns whether this completion releases slots: no older message is claimed and incomplete.
    fn complete(&mut self, at: u64) -> bool {
        self.messages[(at - self.first) as usize].1 = true;
        let before = self.first;
        while let Some((_, true)) = self.messages.front() {
            self.messages.pop_front();
            self.first += 1;
        }
        self.first != before
    }
}

/// The consumer's side of a run.
struct Consuming {
    consumer: C,
    held: Held,
    /// Messages claimed and not completed, each with its number in `held`.
    claimed: Vec<(u64, Claimed)>,
    tickets: Vec<Ticket>,
}

impl Consuming {
    fn new(consumer: C) -> Self {
        Self {
            consumer,
            held: Held::default(),
            claimed: Vec::new(),
            tickets: Vec::new(),
        }
    }

    fn claim(&mut self) {
        if let Ok(Some(message)) = self.consumer.claim(None) {
            let pieces = SHAPE.pieces(message.len());
            self.tickets.push(message.ticket());
            self.claimed.push((self.held.claim(pieces), message));
            let slots: u32 = self.held.messages.iter().map(|(pieces, _)| pieces).sum();
            assert!(slots <= SHAPE.slots(), "claimed more than the ring holds");
        }
    }

    fn complete(&mut self, bench: &Bench, nth: usize) {
        if !self.claimed.is_empty() {
            let (at, message) = self.claimed.remove(nth % self.claimed.len());
            let freed = self.held.complete(at);
            let before = bench.dev_i();
            self.consumer.complete(message);
            let moved = bench.dev_i() != before;
            assert!(freed || !moved, "an older message is not completed");
        }
    }

    fn read(&mut self, nth: usize) {
        if !self.claimed.is_empty() {
            let (_, message) = &self.claimed[nth % self.claimed.len()];
            let lens = self.consumer.chunks(message, 0).map(|(_, len)| len);
            assert_eq!(lens[0] + lens[1], message.len());
            self.consumer.read(message, 0, &mut vec![0; message.len()]);
        }
    }

    fn ack(&mut self) {
        if let Some(ticket) = self.tickets.pop() {
            let _ = self.consumer.ack(ticket);
        }
    }

    /// Replaces the consumer by a new one, which holds nothing. Tickets of the old one stay in use.
    fn reattach(&mut self, consumer: C) {
        self.claimed.clear();
        self.held = Held::default();
        self.consumer = consumer;
    }

    fn read_and_complete_all(mut self) {
        for (_, message) in self.claimed {
            self.consumer.read(&message, 0, &mut vec![0; message.len()]);
            self.consumer.complete(message);
        }
    }
}

/// Executes the steps. Panics if one side accepts wrong values of the other.
pub(crate) fn run(steps: impl IntoIterator<Item = Step>) {
    let (bench, mut producer, consumer) = Bench::new();
    let mut consuming = Consuming::new(consumer);
    for step in steps {
        match step {
            Step::Send(seq, len) => {
                let _ = producer.send(seq, &vec![1; len], PLAIN);
            }
            Step::Cancel(seq) => {
                producer.cancel(seq);
            }
            Step::Modify(seq) => {
                let _ = producer.modify(seq, |payload| {
                    let len = payload.len();
                    payload.write(0, &vec![2; len]);
                    payload.resize(len / 2);
                });
            }
            Step::HoldBack(seq) => {
                producer.hold_back(seq);
            }
            Step::HoldBackAll => {
                producer.hold_back_all();
            }
            Step::Release => producer.release(),
            Step::ReleaseUntil(seq) => {
                producer.release_until(seq);
            }
            Step::Retain => {
                producer.retain(|sent| sent.user_seq % 2 == 0);
            }
            Step::Claim => consuming.claim(),
            Step::Complete(nth) => consuming.complete(&bench, nth),
            Step::Read(nth) => consuming.read(nth),
            Step::Ack => consuming.ack(),
            Step::PollAck => {
                producer.poll_ack();
            }
            Step::Idle => {
                let _ = consuming.consumer.idle();
            }
            Step::Notify => {
                let _ = producer.notify();
            }
            Step::Reattach => consuming.reattach(bench.consumer()),
            Step::Scribble(at, value) => bench.scribble(128 + at % (LEN - 128), value),
            Step::Word(at, value) => bench
                .word(128 + at % (SHAPE.block_len() - SHAPE.max_message() - 128))
                .store(value, Ordering::Relaxed),
            Step::State(at, state) => bench.set_state(bench.dev_i().wrapping_add(at), state),
            Step::Len(at, len) => bench.set_len(bench.dev_i().wrapping_add(at), len),
        }
        assert!(producer.pending().count() <= SHAPE.slots() as usize);
        assert!(producer.free_slots() <= SHAPE.slots());
    }
    // After the last write, claimed messages can still be read and released.
    consuming.read_and_complete_all();
}
