//! Long random lists of operations against an oracle that is too simple to be wrong: a list of messages.

use std::collections::VecDeque;

use ldc_ring::{Attributes, Changed, Instant, SendError, Shape, channel};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Send {
        seq: u64,
        len: usize,
        deadline: Option<i64>,
    },
    Drop(u64),
    Modify(u64),
    HoldBack(u64),
    HoldBackAll,
    ReleaseUntil(u64),
    Release,
    Claim {
        now: i64,
    },
    Complete(usize),
    Ack(usize),
    PollAck,
}

fn step() -> impl Strategy<Value = Step> {
    let seq = 0..10u64;
    prop_oneof![
        6 => (seq.clone(), 0..200usize, prop::option::of(0..50i64))
            .prop_map(|(seq, len, deadline)| Step::Send { seq, len, deadline }),
        2 => seq.clone().prop_map(Step::Drop),
        2 => seq.clone().prop_map(Step::Modify),
        1 => seq.clone().prop_map(Step::HoldBack),
        1 => Just(Step::HoldBackAll),
        1 => seq.prop_map(Step::ReleaseUntil),
        2 => Just(Step::Release),
        4 => (0..60i64).prop_map(|now| Step::Claim { now }),
        4 => (0..4usize).prop_map(Step::Complete),
        1 => (0..4usize).prop_map(Step::Ack),
        1 => Just(Step::PollAck),
    ]
}

#[derive(Clone, Debug, PartialEq)]
enum Fate {
    Open,
    Dead,
    Claimed,
    Done,
}

#[derive(Clone, Debug)]
struct Message {
    seq: u64,
    bytes: Vec<u8>,
    deadline: Option<i64>,
    fate: Fate,
    dropped: bool,
    slots: u32,
}

/// The ring as a list, oldest message first.
struct Oracle {
    slots: u32,
    messages: VecDeque<Message>,
    /// Messages before it are not held back.
    barrier: Option<usize>,
    acks: VecDeque<u64>,
}

impl Oracle {
    fn used(&self) -> u32 {
        self.messages.iter().map(|message| message.slots).sum()
    }

    fn matching(&self, seq: u64) -> Vec<usize> {
        (0..self.messages.len())
            .filter(|at| self.messages[*at].seq == seq)
            .collect()
    }

    fn is_held(&self, at: usize) -> bool {
        self.barrier.is_some_and(|barrier| at >= barrier)
    }

    fn send(&mut self, message: Message) -> Result<(), SendError> {
        if self.used() + message.slots > self.slots {
            return Err(SendError::Full);
        }
        self.messages.push_back(message);
        Ok(())
    }

    fn drop(&mut self, seq: u64) -> Changed {
        let mut outcome = Changed::default();
        for at in self.matching(seq) {
            match self.messages[at].fate {
                Fate::Open => {
                    self.messages[at].fate = Fate::Dead;
                    self.messages[at].dropped = true;
                    outcome.changed += 1;
                }
                Fate::Claimed | Fate::Done if !self.messages[at].dropped => outcome.too_late += 1,
                _ => {}
            }
        }
        outcome
    }

    fn modify(&mut self, seq: u64) -> bool {
        let open = |at: &usize| self.messages[*at].fate == Fate::Open;
        match self.matching(seq).iter().find(|at| open(at)) {
            Some(at) => {
                self.messages[*at].bytes.fill(0xee);
                true
            }
            None => false,
        }
    }

    fn hold_back_from(&mut self, from: usize) -> Changed {
        let mut too_late = 0;
        let mut at = from;
        while at < self.messages.len() && !self.is_held(at) {
            match self.messages[at].fate {
                Fate::Open => {
                    self.barrier = Some(at);
                    break;
                }
                Fate::Claimed | Fate::Done if !self.messages[at].dropped => too_late += 1,
                _ => {}
            }
            at += 1;
        }
        let held = self
            .messages
            .iter()
            .skip(at)
            .filter(|message| message.fate == Fate::Open);
        Changed {
            changed: held.count() as u32,
            too_late,
        }
    }

    fn release_until(&mut self, seq: u64) -> bool {
        let target = self
            .matching(seq)
            .into_iter()
            .find(|at| self.is_held(*at) && self.messages[*at].fate == Fate::Open);
        if let Some(target) = target {
            self.barrier = Some(target);
        }
        target.is_some()
    }

    fn claim(&mut self, now: i64) -> Option<Message> {
        for at in 0..self.messages.len() {
            let held = self.is_held(at);
            let message = &mut self.messages[at];
            match message.fate {
                Fate::Claimed | Fate::Done => {}
                // Behind the barrier a dropped message is passed over only once the barrier is beyond it.
                Fate::Dead if !held => message.fate = Fate::Done,
                Fate::Open if !held && message.deadline.is_some_and(|at| at < now) => {
                    message.fate = Fate::Done;
                }
                Fate::Open if !held => {
                    message.fate = Fate::Claimed;
                    return Some(message.clone());
                }
                Fate::Open | Fate::Dead => return None,
            }
        }
        None
    }

    /// Completes the n-th claimed message.
    fn complete(&mut self, nth: usize) {
        let at = (0..self.messages.len())
            .filter(|at| self.messages[*at].fate == Fate::Claimed)
            .nth(nth)
            .unwrap();
        self.messages[at].fate = Fate::Done;
    }

    /// Slots go back in order.
    fn settle(&mut self) {
        while self
            .messages
            .front()
            .is_some_and(|message| message.fate == Fate::Done)
        {
            self.messages.pop_front();
            self.barrier = self.barrier.map(|barrier| barrier.saturating_sub(1));
        }
        // A barrier whose message was dropped moves to the next live one.
        if let Some(barrier) = &mut self.barrier {
            while *barrier < self.messages.len() && self.messages[*barrier].fate == Fate::Dead {
                *barrier += 1;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn the_ring_does_what_a_list_would(
        slots_log2 in 0..5u32,
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let slots = 1 << slots_log2;
        let (mut producer, mut consumer) = channel(Shape::new(slots, 64).unwrap());
        let mut oracle = Oracle {
            slots,
            messages: VecDeque::new(),
            barrier: None,
            acks: VecDeque::new(),
        };
        let mut claimed: Vec<ldc_ring::Claimed> = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Send { seq, len, deadline } => {
                    let bytes = vec![number as u8; len];
                    let attributes = Attributes {
                        deadline: deadline.map(Instant::from_micros),
                        priority: 0,
                    };
                    let pieces = (len as u32).div_ceil(64).max(1);
                    let message = Message { seq, bytes: bytes.clone(), deadline, fate: Fate::Open, dropped: false, slots: pieces };
                    let expected = if pieces > slots { Err(SendError::TooLong) } else { oracle.send(message) };
                    prop_assert_eq!(producer.send(seq, &bytes, attributes), expected);
                }
                Step::Drop(seq) => prop_assert_eq!(producer.drop(seq), oracle.drop(seq)),
                Step::Modify(seq) => {
                    let change = producer.modify(seq, |payload| {
                        let len = payload.len();
                        payload.write(0, &vec![0xee; len]);
                    });
                    prop_assert_eq!(change.is_ok(), oracle.modify(seq));
                }
                Step::HoldBack(seq) => {
                    let expected = match oracle.matching(seq).first() {
                        Some(first) => oracle.hold_back_from(*first),
                        None => Changed::default(),
                    };
                    prop_assert_eq!(producer.hold_back(seq), expected);
                }
                Step::HoldBackAll => {
                    let expected = oracle.hold_back_from(0);
                    prop_assert_eq!(producer.hold_back_all().changed, expected.changed);
                }
                Step::ReleaseUntil(seq) => {
                    prop_assert_eq!(producer.release_until(seq), oracle.release_until(seq));
                }
                Step::Release => {
                    producer.release();
                    oracle.barrier = None;
                }
                Step::Claim { now } => {
                    let message = consumer.claim(Some(Instant::from_micros(now))).unwrap();
                    let expected = oracle.claim(now);
                    prop_assert_eq!(message.is_some(), expected.is_some());
                    if let (Some(message), Some(expected)) = (message, expected) {
                        let mut bytes = vec![0; message.len()];
                        consumer.read(&message, 0, &mut bytes);
                        prop_assert_eq!(message.user_seq(), expected.seq);
                        prop_assert_eq!(bytes, expected.bytes);
                        claimed.push(message);
                    }
                }
                Step::Complete(nth) if nth < claimed.len() => {
                    consumer.complete(claimed.remove(nth));
                    oracle.complete(nth);
                }
                Step::Ack(nth) if nth < claimed.len() => {
                    let ticket = claimed[nth].ticket();
                    let room = oracle.acks.len() < slots as usize;
                    prop_assert_eq!(consumer.ack(ticket).is_ok(), room);
                    if room {
                        oracle.acks.push_back(claimed[nth].user_seq());
                    }
                }
                Step::PollAck => prop_assert_eq!(producer.poll_ack(), oracle.acks.pop_front()),
                Step::Complete(_) | Step::Ack(_) => {}
            }
            oracle.settle();
            prop_assert_eq!(producer.free_slots(), slots - oracle.used());
            let open = oracle.messages.iter().filter(|message| message.fate == Fate::Open);
            let open: Vec<u64> = open.map(|message| message.seq).collect();
            let pending: Vec<u64> = producer.pending().map(|sent| sent.user_seq).collect();
            prop_assert_eq!(pending, open);
        }
    }
}
