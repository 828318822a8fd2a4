//! All orders of whole operations of both sides on small rings, against an oracle.
//!
//! `tests/model` interleaves the steps of two concurrent operations; here whole operations come in every order, and lead
//! more than once around a ring. Each result is that of the oracle: whether a cancellation or a modification came too late,
//! the version that is claimed, the free slots. In addition, messages are claimed in the order in which they were sent, at
//! most once, and at the end each of them was claimed or cancelled, or has expired.

#[allow(dead_code, reason = "some steps are for other tests")]
mod oracle_list;

use std::ptr::NonNull;

use ldc_ring::{Consumer, Entry, Producer, Shape};
use netsim::explore::{Bounds, Fingerprint, Trace, World, explore};
use oracle_list::{Comparison, Here, SLOT_BYTES, Step, Takes};

/// A length that takes one slot, and one that takes two.
const SHORT: usize = 1;
const LONG: usize = SLOT_BYTES as usize + 1;

/// What is explored.
#[derive(Clone, Copy)]
struct Extent {
    slots: u32,
    /// Lengths that a message may have.
    lens: &'static [usize],
    /// Number of sequence numbers that the messages have, in turn.
    seqs: u64,
    /// Deadlines that a message may have.
    deadlines: &'static [Option<i64>],
    /// Times of a claim.
    times: &'static [i64],
    /// Whether messages are acknowledged, and the consumer goes idle and is woken.
    has_signals: bool,
}

const PLAIN: Extent = Extent {
    slots: 2,
    lens: &[SHORT],
    seqs: u64::MAX,
    deadlines: &[None],
    times: &[0],
    has_signals: false,
};

/// Memory that one side of the ring uses, and that is read between operations.
struct Lent<T>(NonNull<[T]>);

impl<T> Lent<T> {
    fn new(content: Vec<T>) -> Self {
        Lent(NonNull::from(Box::leak(content.into())))
    }

    /// Lends the same memory once more.
    fn again(&self) -> Self {
        Lent(self.0)
    }

    /// Frees the memory.
    ///
    /// # Safety
    ///
    /// It is not used again.
    unsafe fn free(&self) {
        // SAFETY: it comes from a box.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl<T> AsRef<[T]> for Lent<T> {
    fn as_ref(&self) -> &[T] {
        // SAFETY: `Ring` frees it last, and uses one `Lent` at a time.
        unsafe { self.0.as_ref() }
    }
}

impl<T> AsMut<[T]> for Lent<T> {
    fn as_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `as_ref`.
        unsafe { self.0.as_mut() }
    }
}

/// Memory with the alignment of a ring.
#[repr(C, align(128))]
#[derive(Clone, Copy)]
struct Line([u8; 128]);

/// The consumer, and the order of the messages that it claimed.
struct Watched {
    here: Here<(), Lent<u32>>,
    /// The number of the last message claimed.
    last: Option<u8>,
    claimed: u32,
    is_ordered: bool,
}

impl Takes for Watched {
    fn claim(&mut self, now: i64) -> Option<(u64, Vec<u8>)> {
        let (seq, bytes) = self.here.claim(now)?;
        let number = Some(number(&bytes));
        self.is_ordered &= self.last < number;
        self.last = number;
        self.claimed += 1;
        Some((seq, bytes))
    }

    fn skip(&mut self) -> u32 {
        self.here.skip()
    }

    fn complete(&mut self, nth: usize) {
        self.here.complete(nth);
    }

    fn ack(&mut self, nth: usize) -> bool {
        self.here.ack(nth)
    }

    fn idle(&mut self) -> bool {
        self.here.idle()
    }
}

/// Returns each byte of a message: its number, and in the lower half the number of its version.
fn first_version(number: u32) -> u8 {
    (number << 4) as u8
}

/// Returns the number of a message.
fn number(bytes: &[u8]) -> u8 {
    bytes[0] >> 4
}

/// A ring and its oracle.
struct Ring {
    extent: Extent,
    producer: Producer<(), Lent<Entry>>,
    consumer: Watched,
    block: Lent<Line>,
    index: Lent<Entry>,
    completed: Lent<u32>,
    comparison: Comparison,
    /// Operations that are left: at most 16, so that numbers and versions of messages fit a byte.
    operations: u32,
    /// Whether all results were those of the oracle.
    result: Result<(), String>,
}

impl Ring {
    fn new(extent: Extent, operations: u32) -> Self {
        let shape = Shape::new(extent.slots, SLOT_BYTES).unwrap();
        let len = shape.block_len();
        let block = Lent::new(vec![Line([0; 128]); len.div_ceil(128)]);
        let index = Lent::new(vec![Entry::EMPTY; extent.slots as usize]);
        let completed = Lent::new(vec![0; shape.completed_words()]);
        let memory = block.0.cast();
        // SAFETY: `Ring` frees the memory last, and refers to it between operations only.
        let producer = unsafe { Producer::create(memory, len, shape, (), index.again()) };
        // SAFETY: as for the producer; there is no other consumer.
        let consumer = unsafe { Consumer::attach(memory, len, (), completed.again()) };
        let here = Here {
            consumer: consumer.unwrap(),
            claimed: Vec::new(),
        };
        Ring {
            extent,
            producer: producer.unwrap(),
            consumer: Watched {
                here,
                last: None,
                claimed: 0,
                is_ordered: true,
            },
            block,
            index,
            completed,
            comparison: Comparison::new(extent.slots),
            operations,
            result: Ok(()),
        }
    }

    fn execute(&mut self, step: Step) {
        let value = first_version(self.comparison.sent);
        let (producer, consumer) = (&mut self.producer, &mut self.consumer);
        let result = self.comparison.step(step, value, producer, consumer);
        self.result = result.map_err(|error| error.to_string());
    }

    fn claimed_now(&self) -> usize {
        self.consumer.here.claimed.len()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: neither side has a destructor that uses it.
        unsafe {
            self.block.free();
            self.index.free();
            self.completed.free();
        }
    }
}

impl World for Ring {
    type Action = Step;

    fn actions(&self, actions: &mut Vec<Step>) {
        if self.operations == 0 {
            return;
        }
        let sent = u64::from(self.comparison.sent);
        for &len in self.extent.lens {
            let seq = sent % self.extent.seqs;
            let deadlines = self.extent.deadlines.iter();
            actions.extend(deadlines.map(|&deadline| Step::Send { seq, len, deadline }));
        }
        // The ring knows no older message.
        let known = sent.saturating_sub(u64::from(self.extent.slots) + 1)..sent;
        for seq in known.take(self.extent.seqs.try_into().unwrap_or(usize::MAX)) {
            let seq = seq % self.extent.seqs;
            actions.extend([Step::Cancel(seq), Step::Modify(seq), Step::HoldBack(seq)]);
            if self.producer.is_holding_back() {
                actions.push(Step::ReleaseUntil(seq));
            }
        }
        actions.extend([Step::HoldBackAll, Step::Release, Step::Inspect]);
        let times = self.extent.times.iter();
        actions.extend(times.map(|&now| Step::Claim { now }));
        actions.push(Step::Skip);
        actions.extend((0..self.claimed_now()).map(Step::Complete));
        if self.extent.has_signals {
            actions.extend((0..self.claimed_now()).map(Step::Ack));
            actions.extend([Step::PollAck, Step::Idle, Step::Notify]);
        }
    }

    fn may_end(&self) -> bool {
        false
    }

    fn apply(&mut self, step: &Step) {
        self.operations -= 1;
        self.execute(step.clone());
    }

    fn describe(&self, step: &Step) -> String {
        format!("{step:?}")
    }

    fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        for line in self.block.as_ref() {
            fingerprint.hash(&line.0);
        }
        fingerprint.debug(&self.index.as_ref());
        fingerprint.hash(self.completed.as_ref());
        fingerprint.debug_without(&self.producer, &[]);
        fingerprint.debug_without(&self.consumer.here.consumer, &[]);
        fingerprint.debug(&self.consumer.here.claimed);
        fingerprint.debug(&self.comparison);
        fingerprint.hash(&(self.operations, self.consumer.last));
    }

    fn check(&self) -> Result<(), String> {
        if !self.consumer.is_ordered {
            return Err("a message was claimed out of order, or twice".into());
        }
        self.result.clone()
    }

    fn finish(&mut self, _: &mut Trace) -> Result<(), String> {
        self.execute(Step::Release);
        let mut is_empty = false;
        while self.result.is_ok() && !is_empty {
            while self.claimed_now() > 0 {
                self.execute(Step::Complete(0));
            }
            self.execute(Step::Claim { now: 0 });
            is_empty = self.claimed_now() == 0;
        }
        self.execute(Step::Inspect);
        self.check()?;
        let expired = self.consumer.here.consumer.stats().expired as u32;
        let gone = self.consumer.claimed + self.comparison.cancelled + expired;
        let sent = self.comparison.sent;
        match gone == sent {
            true => Ok(()),
            false => Err(format!("{sent} messages were sent, {gone} have gone")),
        }
    }
}

/// Explores all runs with a number of operations.
fn all(name: &str, extent: Extent, operations: u32) {
    let make = || Ring::new(extent, operations);
    let report = explore(make, Bounds::default()).unwrap_or_else(|example| panic!("{example}"));
    assert!(report.is_complete && report.states > 100, "{report}");
    println!("LDC ring, {name}, {operations} operations: {report}");
}

const ONE_SLOT: Extent = Extent { slots: 1, ..PLAIN };

const FOUR_SLOTS: Extent = Extent { slots: 4, ..PLAIN };

const PIECES: Extent = Extent {
    lens: &[SHORT, LONG],
    ..PLAIN
};

const PIECES_OF_FOUR: Extent = Extent { slots: 4, ..PIECES };

const REPEATED: Extent = Extent {
    slots: 4,
    seqs: 2,
    ..PLAIN
};

const DEADLINES: Extent = Extent {
    deadlines: &[None, Some(0)],
    times: &[0, 1],
    ..PLAIN
};

const SIGNALS: Extent = Extent {
    has_signals: true,
    ..PLAIN
};

#[test]
fn messages_of_one_slot() {
    all("one slot", ONE_SLOT, 12);
    all("two slots", PLAIN, 9);
    all("four slots", FOUR_SLOTS, 7);
}

#[test]
fn messages_of_two_slots() {
    all("messages of two slots", PIECES, 8);
    all("messages of two of four slots", PIECES_OF_FOUR, 6);
}

#[test]
fn messages_with_the_same_number() {
    all("repeated numbers", REPEATED, 8);
}

#[test]
fn messages_expire() {
    all("deadlines", DEADLINES, 7);
}

#[test]
fn messages_are_acknowledged_and_the_consumer_is_woken() {
    all("acknowledgements and waking", SIGNALS, 8);
}

#[test]
#[ignore = "large: minutes in a release build"]
fn messages_of_one_slot_large() {
    all("one slot, large", ONE_SLOT, 16);
    all("two slots, large", PLAIN, 16);
    all("four slots, large", FOUR_SLOTS, 13);
}

#[test]
#[ignore = "large: minutes in a release build"]
fn messages_of_two_slots_large() {
    all("messages of two slots, large", PIECES, 15);
    all("messages of two of four slots, large", PIECES_OF_FOUR, 11);
}

#[test]
#[ignore = "large: minutes in a release build"]
fn messages_with_the_same_number_large() {
    all("repeated numbers, large", REPEATED, 13);
}

#[test]
#[ignore = "large: minutes in a release build"]
fn messages_expire_large() {
    all("deadlines, large", DEADLINES, 13);
}

#[test]
#[ignore = "large: minutes in a release build"]
fn messages_are_acknowledged_and_the_consumer_is_woken_large() {
    all("acknowledgements and waking, large", SIGNALS, 15);
}
