//! Several rings claimed by one scheduler: strict and weighted orders, and what an adversary can do to them.

use crate::common::{C, P, ring};
use ldc_ring::schedule::{ClassesError, MAX_CLASSES, Scheduler};
use ldc_ring::{Attributes, Corrupt};
use proptest::prelude::*;

struct Classes {
    producers: Vec<P>,
    consumers: Vec<C>,
    scheduler: Scheduler,
}

impl Classes {
    fn new(scheduler: Scheduler, slots: u32) -> Classes {
        let rings = (0..scheduler.classes()).map(|_| ring(slots, 2048));
        let (producers, consumers) = rings.unzip();
        Classes {
            producers,
            consumers,
            scheduler,
        }
    }

    fn send(&mut self, class: usize, seq: u64, len: usize) {
        let bytes = vec![0; len];
        let sent = self.producers[class].send(seq, &bytes, Attributes::default());
        sent.expect("room in the ring");
    }

    /// Claims and completes the next message: its class, sequence number and length.
    fn take(&mut self) -> Option<(usize, u64, usize)> {
        let consumers = &mut self.consumers;
        let claimed = self.scheduler.claim(|class| consumers[class].claim(None));
        let (class, message) = claimed.expect("intact rings")?;
        let taken = (class, message.user_seq(), message.len());
        consumers[class].complete(message);
        Some(taken)
    }
}

#[test]
fn unusable_classes_are_refused() {
    let count = Scheduler::strict(0).map(drop);
    assert_eq!(count, Err(ClassesError::Count));
    let count = Scheduler::strict(MAX_CLASSES + 1).map(drop);
    assert_eq!(count, Err(ClassesError::Count));
    let weights = Scheduler::weighted(&[]).map(drop);
    assert_eq!(weights, Err(ClassesError::Count));
    let weights = Scheduler::weighted(&[1, 0]).map(drop);
    assert_eq!(weights, Err(ClassesError::ZeroWeight));
    assert_eq!(Scheduler::weighted(&[1; MAX_CLASSES]).map(drop), Ok(()));
}

#[test]
fn strict_claims_the_most_important_class_first() {
    let mut classes = Classes::new(Scheduler::strict(3).unwrap(), 8);
    classes.send(2, 20, 1);
    classes.send(1, 10, 1);
    assert_eq!(classes.take(), Some((1, 10, 1)));
    // Sent after the others, and still next.
    classes.send(0, 0, 1);
    classes.send(0, 1, 1);
    assert_eq!(classes.take(), Some((0, 0, 1)));
    assert_eq!(classes.take(), Some((0, 1, 1)));
    assert_eq!(classes.take(), Some((2, 20, 1)));
    assert_eq!(classes.take(), None);
}

#[test]
fn a_class_that_is_held_back_does_not_block_the_others() {
    for scheduler in [Scheduler::strict(2), Scheduler::weighted(&[9, 1])] {
        let mut classes = Classes::new(scheduler.unwrap(), 8);
        classes.send(0, 0, 1);
        classes.send(1, 1, 1);
        classes.producers[0].hold_back_all();
        assert_eq!(classes.take(), Some((1, 1, 1)));
        assert_eq!(classes.take(), None);
        classes.producers[0].release();
        assert_eq!(classes.take(), Some((0, 0, 1)));
    }
}

#[test]
fn weights_divide_the_bytes_whatever_the_lengths_of_the_messages() {
    // Class 0 sends long messages, class 1 short ones; the weights are 3 to 1.
    let mut classes = Classes::new(Scheduler::weighted(&[3, 1]).unwrap(), 1024);
    for seq in 0..400 {
        classes.send(0, seq, 1400);
        classes.send(1, seq, 100);
    }
    for seq in 400..1000 {
        classes.send(1, seq, 100);
    }
    let mut bytes = [0; 2];
    while bytes[0] < 280_000 {
        let (class, _, len) = classes.take().expect("both have messages");
        bytes[class] += len;
    }
    // At most one message of each beside the exact share.
    let share = bytes[0] / 3;
    assert!(bytes[1].abs_diff(share) <= 1400 / 3 + 100, "{bytes:?}");
}

#[test]
fn a_class_that_was_empty_gets_no_credit_for_that_time() {
    let mut classes = Classes::new(Scheduler::weighted(&[1, 1]).unwrap(), 256);
    for seq in 0..200 {
        classes.send(0, seq, 1000);
    }
    for _ in 0..100 {
        assert_eq!(classes.take().map(|(class, ..)| class), Some(0));
    }
    // Class 1 begins now. It gets its half, and no more to catch up.
    for seq in 0..100 {
        classes.send(1, seq, 1000);
    }
    let first: Vec<usize> = (0..20)
        .filter_map(|_| classes.take())
        .map(|(class, ..)| class)
        .collect();
    assert_eq!(
        first.iter().filter(|class| **class == 1).count(),
        10,
        "{first:?}"
    );
}

#[test]
fn a_flood_of_empty_messages_leaves_the_other_class_its_share() {
    let mut classes = Classes::new(Scheduler::weighted(&[1, 1]).unwrap(), 64);
    for seq in 0..60 {
        classes.send(0, seq, 0);
    }
    classes.send(1, 0, 10);
    let before = (0..60).take_while(|_| classes.take().is_some_and(|(class, ..)| class == 0));
    // Each counts as a byte.
    assert!(before.count() <= 1);
}

#[test]
fn a_corrupt_ring_is_an_error_and_claims_nothing() {
    let mut scheduler = Scheduler::strict(2).unwrap();
    let claimed = scheduler.claim(|_| Err(Corrupt));
    assert_eq!(claimed, Err(Corrupt));
}

proptest! {
    /// Any messages in any classes: each arrives once, in the order of its class; each ring is asked at most once per
    /// claim, and `None` means that all rings are empty.
    #[test]
    fn nothing_is_lost_or_reordered_within_a_class(
        weights in proptest::collection::vec(1u32.., 1..=MAX_CLASSES),
        strict: bool,
        steps in proptest::collection::vec((0usize..MAX_CLASSES, 0usize..2000, any::<bool>()), 1..200),
    ) {
        let count = weights.len();
        let scheduler = if strict { Scheduler::strict(count) } else { Scheduler::weighted(&weights) };
        let mut classes = Classes::new(scheduler.unwrap(), 256);
        let mut sent = [0u64; MAX_CLASSES];
        let mut taken = [0u64; MAX_CLASSES];
        for (class, len, take) in steps {
            let class = class % count;
            classes.send(class, sent[class], len);
            sent[class] += 1;
            if take {
                let (class, seq, _) = classes.take().expect("one was just sent");
                prop_assert_eq!(seq, taken[class]);
                taken[class] += 1;
            }
        }
        loop {
            let mut asked = [0; MAX_CLASSES];
            let consumers = &mut classes.consumers;
            let claimed = classes.scheduler.claim(|class| {
                asked[class] += 1;
                consumers[class].claim(None)
            });
            prop_assert!(asked.iter().all(|times| *times <= 1));
            let Some((class, message)) = claimed.unwrap() else { break };
            prop_assert_eq!(message.user_seq(), taken[class]);
            taken[class] += 1;
            classes.consumers[class].complete(message);
        }
        prop_assert_eq!(sent, taken);
    }
}
