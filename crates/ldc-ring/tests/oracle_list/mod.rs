//! A ring as a list of messages, too simple to be wrong, and the comparison of a ring with it.

mod takes;

use std::collections::VecDeque;

use ldc_ring::{Attributes, Changed, Entry, Instant, Producer, SendError};

pub(crate) use takes::{Here, Takes};

/// A result of the ring that is not the oracle's.
#[derive(Debug)]
pub(crate) struct Mismatch(String);

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Mismatch {}

/// Compares a result of the ring with the oracle's.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, ring: T, oracle: T) -> Result<(), Mismatch> {
    if ring == oracle {
        return Ok(());
    }
    let words = format!("{what}: the ring says {ring:?}, a list {oracle:?}");
    Err(Mismatch(words))
}

/// The attributes of a message.
fn attributes(seq: u64, deadline: Option<i64>) -> Attributes {
    Attributes {
        deadline: deadline.map(Instant::from_micros),
        priority: priority(seq),
    }
}

/// The priority of each message with this sequence number.
pub(crate) fn priority(seq: u64) -> u32 {
    (seq % 4) as u32
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Send {
        seq: u64,
        len: usize,
        deadline: Option<i64>,
    },
    /// Messages with consecutive sequence numbers, in a batch.
    SendBatch {
        seq: u64,
        len: usize,
        count: u64,
    },
    Cancel(u64),
    /// Adds one to each byte.
    Modify(u64),
    HoldBack(u64),
    HoldBackAll,
    ReleaseUntil(u64),
    Release,
    /// Cancels messages of this priority and above.
    Retain(u32),
    Claim {
        now: i64,
    },
    ClaimBatch {
        now: i64,
        count: usize,
    },
    /// Passes over cancelled messages.
    Skip,
    Complete(usize),
    /// Completes at most so many messages together, oldest first.
    CompleteAll(usize),
    Ack(usize),
    PollAck,
    Idle,
    Notify,
    /// Reads which slots are free and which messages are not claimed.
    Inspect,
}

#[derive(Clone, Debug, PartialEq)]
enum Disposition {
    Open,
    Cancelled,
    Claimed,
    /// Claimed by a consumer that died: its successor claims it again.
    ClaimedBefore,
    Done,
    /// Completed by a consumer that died: its successor passes over it.
    DoneBefore,
    /// Its slots are free and not yet reused.
    Gone,
}

#[derive(Clone, Debug)]
struct Message {
    seq: u64,
    bytes: Vec<u8>,
    deadline: Option<i64>,
    disposition: Disposition,
    cancelled: bool,
    position: u64,
    slots: u32,
}

/// The ring as a list, oldest message first.
#[derive(Debug)]
struct Oracle {
    slots: u32,
    /// Slots used since the start.
    next: u64,
    messages: VecDeque<Message>,
    /// Messages before it are not held back.
    barrier: Option<usize>,
    acks: VecDeque<u64>,
    idle: bool,
    /// Messages that consumers passed over because their deadline was over.
    expired: u64,
}

impl Oracle {
    fn new(slots: u32) -> Self {
        Self {
            slots,
            next: 0,
            messages: VecDeque::new(),
            barrier: None,
            acks: VecDeque::new(),
            // A new consumer was never woken.
            idle: true,
            expired: 0,
        }
    }

    fn used(&self) -> u32 {
        let there = self
            .messages
            .iter()
            .filter(|message| message.disposition != Disposition::Gone);
        there.map(|message| message.slots).sum()
    }

    fn matching(&self, seq: u64) -> Vec<usize> {
        (0..self.messages.len())
            .filter(|at| self.messages[*at].seq == seq)
            .collect()
    }

    fn is_held(&self, at: usize) -> bool {
        self.barrier.is_some_and(|barrier| at >= barrier)
    }

    fn send(&mut self, seq: u64, bytes: Vec<u8>, deadline: Option<i64>) -> Result<(), SendError> {
        let slots = (bytes.len() as u32).div_ceil(SLOT_BYTES).max(1);
        if slots > self.slots {
            return Err(SendError::TooLong);
        }
        if self.used() + slots > self.slots {
            return Err(SendError::Full);
        }
        self.messages.push_back(Message {
            seq,
            bytes,
            deadline,
            disposition: Disposition::Open,
            cancelled: false,
            position: self.next,
            slots,
        });
        self.next += u64::from(slots);
        // The previous messages of these slots become unknown.
        while self.messages[0].position + u64::from(self.slots) < self.next {
            self.messages.pop_front();
            self.barrier = self.barrier.map(|barrier| barrier.saturating_sub(1));
        }
        Ok(())
    }

    /// Returns whether a message was claimed, or passed over for its deadline, and is in the ring.
    fn is_too_late(&self, at: usize) -> bool {
        let message = &self.messages[at];
        let open = [Disposition::Open, Disposition::Cancelled, Disposition::Gone];
        !message.cancelled && !open.contains(&message.disposition)
    }

    fn retain(&mut self, below: u32) -> Changed {
        let mut outcome = Changed::default();
        for message in &mut self.messages {
            if message.disposition == Disposition::Open && priority(message.seq) >= below {
                message.disposition = Disposition::Cancelled;
                message.cancelled = true;
                outcome.changed += 1;
            }
        }
        outcome
    }

    fn cancel(&mut self, seq: u64) -> Changed {
        let mut outcome = Changed::default();
        for at in self.matching(seq) {
            match self.messages[at].disposition {
                Disposition::Open => {
                    self.messages[at].disposition = Disposition::Cancelled;
                    self.messages[at].cancelled = true;
                    outcome.changed += 1;
                }
                _ if self.is_too_late(at) => outcome.too_late += 1,
                _ => {}
            }
        }
        outcome
    }

    fn modify(&mut self, seq: u64) -> bool {
        let open = |at: &usize| self.messages[*at].disposition == Disposition::Open;
        match self.matching(seq).iter().find(|at| open(at)) {
            Some(at) => {
                let bytes = &mut self.messages[*at].bytes;
                bytes
                    .iter_mut()
                    .for_each(|byte| *byte = byte.wrapping_add(1));
                true
            }
            None => false,
        }
    }

    fn hold_back_from(&mut self, from: usize) -> Changed {
        let mut too_late = 0;
        let mut at = from;
        while at < self.messages.len() && !self.is_held(at) {
            match self.messages[at].disposition {
                Disposition::Open => {
                    self.barrier = Some(at);
                    break;
                }
                _ if self.is_too_late(at) => too_late += 1,
                _ => {}
            }
            at += 1;
        }
        let held = self
            .messages
            .iter()
            .skip(at)
            .filter(|message| message.disposition == Disposition::Open);
        Changed {
            changed: held.count() as u32,
            too_late,
        }
    }

    fn release_until(&mut self, seq: u64) -> bool {
        let target = self
            .matching(seq)
            .into_iter()
            .find(|at| self.is_held(*at) && self.messages[*at].disposition == Disposition::Open);
        if let Some(target) = target {
            self.barrier = Some(target);
        }
        target.is_some()
    }

    fn claim(&mut self, now: i64) -> Option<Message> {
        for at in 0..self.messages.len() {
            let held = self.is_held(at);
            let message = &mut self.messages[at];
            match message.disposition {
                Disposition::Claimed | Disposition::Done | Disposition::Gone => {}
                Disposition::DoneBefore => message.disposition = Disposition::Done,
                Disposition::ClaimedBefore if message.deadline.is_some_and(|at| at < now) => {
                    message.disposition = Disposition::Done;
                    self.expired += 1;
                }
                Disposition::ClaimedBefore => {
                    message.disposition = Disposition::Claimed;
                    return Some(message.clone());
                }
                // A cancelled message after the barrier is skipped only once the barrier has passed it.
                Disposition::Cancelled if !held => message.disposition = Disposition::Done,
                Disposition::Open if !held && message.deadline.is_some_and(|at| at < now) => {
                    message.disposition = Disposition::Done;
                    self.expired += 1;
                }
                Disposition::Open if !held => {
                    message.disposition = Disposition::Claimed;
                    return Some(message.clone());
                }
                Disposition::Open | Disposition::Cancelled => return None,
            }
        }
        None
    }

    /// Passes over the messages that are next and were cancelled, or completed by a consumer that died.
    fn skip(&mut self) -> u32 {
        let mut slots = 0;
        for at in 0..self.messages.len() {
            let held = self.is_held(at);
            let message = &mut self.messages[at];
            match message.disposition {
                Disposition::Claimed | Disposition::Done | Disposition::Gone => continue,
                Disposition::DoneBefore => {}
                Disposition::Cancelled if !held => {}
                _ => break,
            }
            message.disposition = Disposition::Done;
            slots += message.slots;
        }
        slots
    }

    /// Completes the n-th claimed message.
    fn complete(&mut self, nth: usize) {
        let at = (0..self.messages.len())
            .filter(|at| self.messages[*at].disposition == Disposition::Claimed)
            .nth(nth)
            .unwrap();
        self.messages[at].disposition = Disposition::Done;
    }

    /// The consumer dies.
    fn replace(&mut self) {
        for message in &mut self.messages {
            match message.disposition {
                Disposition::Claimed => message.disposition = Disposition::ClaimedBefore,
                Disposition::Done => message.disposition = Disposition::DoneBefore,
                _ => {}
            }
        }
    }

    /// Slots are released in order.
    fn settle(&mut self) {
        for message in &mut self.messages {
            match message.disposition {
                Disposition::Gone => {}
                Disposition::Done => message.disposition = Disposition::Gone,
                _ => break,
            }
        }
        // A barrier whose message was cancelled moves to the next message that is not cancelled.
        if let Some(barrier) = &mut self.barrier {
            while *barrier < self.messages.len()
                && self.messages[*barrier].disposition == Disposition::Cancelled
            {
                *barrier += 1;
            }
        }
    }

    /// Returns whether the consumer would find a message to claim or to skip.
    fn something(&self) -> bool {
        let next = self.messages.iter().position(|message| {
            matches!(
                message.disposition,
                Disposition::Open
                    | Disposition::Cancelled
                    | Disposition::ClaimedBefore
                    | Disposition::DoneBefore
            )
        });
        next.is_some_and(|at| !self.is_held(at))
    }
}

/// Bytes of a slot in these tests.
pub(crate) const SLOT_BYTES: u32 = 64;

/// An oracle beside a ring.
#[derive(Debug)]
pub(crate) struct Comparison {
    oracle: Oracle,
    /// Sequence numbers of the claimed messages.
    pub(crate) claimed: Vec<u64>,
    /// Messages that the ring took.
    pub(crate) sent: u32,
    /// Messages that the ring said are cancelled.
    pub(crate) cancelled: u32,
}

/// What the tests of consumers that die, and simulations, need.
#[allow(
    dead_code,
    reason = "not every program with this module has such consumers"
)]
impl Comparison {
    /// Tells the oracle that the consumer died, with what it had claimed, and that another took its place.
    pub(crate) fn replace(&mut self) {
        self.claimed.clear();
        self.oracle.replace();
    }

    /// Returns how many messages consumers passed over because their deadline was over.
    pub(crate) fn expired(&self) -> u64 {
        self.oracle.expired
    }

    /// Returns whether the consumer asked to be woken.
    pub(crate) fn would_wake(&self) -> bool {
        self.oracle.idle
    }

    /// Returns whether the consumer would find something if it looked now.
    pub(crate) fn has_work(&self) -> bool {
        self.oracle.something()
    }
}

impl Comparison {
    pub(crate) fn new(slots: u32) -> Self {
        Comparison {
            oracle: Oracle::new(slots),
            claimed: Vec::new(),
            sent: 0,
            cancelled: 0,
        }
    }

    /// Executes an operation on the ring and on the oracle, and compares the results. `value` is each byte of a message
    /// to send.
    pub(crate) fn step<K, I: AsRef<[Entry]> + AsMut<[Entry]>>(
        &mut self,
        step: Step,
        value: u8,
        producer: &mut Producer<K, I>,
        consumer: &mut impl Takes,
    ) -> Result<(), Mismatch> {
        let Comparison {
            oracle, claimed, ..
        } = self;
        match step {
            Step::Claim { now } => {
                let message = consumer.claim(now);
                let expected = oracle.claim(now);
                claimed.extend(expected.as_ref().map(|message| message.seq));
                let expected = expected.map(|message| (message.seq, message.bytes));
                same("claim", message, expected)?;
            }
            Step::ClaimBatch { now, count } => {
                let messages = consumer.claim_batch(now, count);
                let expected = std::iter::from_fn(|| oracle.claim(now)).take(count);
                let expected: Vec<_> = expected.map(|got| (got.seq, got.bytes)).collect();
                claimed.extend(expected.iter().map(|(seq, _)| *seq));
                same("claims", messages, expected)?;
            }
            Step::Skip => same("skip", consumer.skip(), oracle.skip())?,
            Step::CompleteAll(count) => {
                let count = count.min(claimed.len());
                claimed.drain(..count);
                consumer.complete_all(count);
                (0..count).for_each(|_| oracle.complete(0));
            }
            Step::Complete(nth) if nth < claimed.len() => {
                claimed.remove(nth);
                consumer.complete(nth);
                oracle.complete(nth);
            }
            Step::Ack(nth) if nth < claimed.len() => {
                let room = oracle.acks.len() < oracle.slots as usize;
                same("ack", consumer.ack(nth), room)?;
                if room {
                    oracle.acks.push_back(claimed[nth]);
                }
            }
            Step::Complete(_) | Step::Ack(_) => {}
            Step::Idle => {
                oracle.idle = !oracle.something();
                same("idle", consumer.idle(), oracle.idle)?;
            }
            step => self.producer_step(step, value, producer)?,
        }
        self.oracle.settle();
        Ok(())
    }

    /// One step of the producer.
    fn producer_step<K, I: AsRef<[Entry]> + AsMut<[Entry]>>(
        &mut self,
        step: Step,
        value: u8,
        producer: &mut Producer<K, I>,
    ) -> Result<(), Mismatch> {
        let oracle = &mut self.oracle;
        match step {
            Step::Send { seq, len, deadline } => {
                let bytes = vec![value; len];
                let answer = producer.send(seq, &bytes, attributes(seq, deadline));
                self.sent += u32::from(answer.is_ok());
                same("send", answer, oracle.send(seq, bytes, deadline))?;
            }
            Step::SendBatch { seq, len, count } => {
                let mut batch = producer.batch();
                for seq in seq..seq + count {
                    let bytes = vec![value; len];
                    let answer = batch.send(seq, &bytes, attributes(seq, None));
                    self.sent += u32::from(answer.is_ok());
                    same("batch", answer, oracle.send(seq, bytes, None))?;
                }
            }
            Step::Cancel(seq) => {
                let answer = producer.cancel(seq);
                self.cancelled += answer.changed;
                same("cancel", answer, oracle.cancel(seq))?;
            }
            Step::Modify(seq) => {
                let change = producer.modify(seq, |payload| {
                    let mut bytes = vec![0; payload.len()];
                    payload.read(0, &mut bytes);
                    bytes
                        .iter_mut()
                        .for_each(|byte| *byte = byte.wrapping_add(1));
                    payload.write(0, &bytes);
                });
                same("modify", change.is_ok(), oracle.modify(seq))?;
            }
            Step::HoldBack(seq) => {
                let expected = match oracle.matching(seq).first() {
                    Some(first) => oracle.hold_back_from(*first),
                    None => Changed::default(),
                };
                same("hold_back", producer.hold_back(seq), expected)?;
            }
            Step::HoldBackAll => {
                let expected = oracle.hold_back_from(0);
                same(
                    "hold_back_all",
                    producer.hold_back_all().changed,
                    expected.changed,
                )?;
            }
            Step::ReleaseUntil(seq) => {
                same(
                    "release_until",
                    producer.release_until(seq),
                    oracle.release_until(seq),
                )?;
            }
            Step::Retain(below) => {
                let answer = producer.retain(|sent| sent.attributes.priority < below);
                self.cancelled += answer.changed;
                same("retain", answer, oracle.retain(below))?;
            }
            Step::Release => {
                producer.release();
                oracle.barrier = None;
            }
            Step::PollAck => same("poll_ack", producer.poll_ack(), oracle.acks.pop_front())?,
            Step::Notify => {
                same(
                    "notify",
                    producer.notify(),
                    core::mem::take(&mut oracle.idle),
                )?;
            }
            Step::Inspect => self.inspect(producer)?,
            step => unreachable!("{step:?} is the consumer's"),
        }
        Ok(())
    }

    /// Compares what the producer knows of the ring.
    fn inspect<K, I: AsRef<[Entry]> + AsMut<[Entry]>>(
        &self,
        producer: &mut Producer<K, I>,
    ) -> Result<(), Mismatch> {
        let oracle = &self.oracle;
        let free = oracle.slots - oracle.used();
        same("free_slots", producer.free_slots(), free)?;
        let is_open = |message: &&Message| message.disposition == Disposition::Open;
        let open = oracle.messages.iter().filter(is_open);
        let open: Vec<u64> = open.map(|message| message.seq).collect();
        let pending: Vec<u64> = producer.pending().map(|sent| sent.user_seq).collect();
        same("pending", pending, open)
    }
}
