//! The packet ring of late data choice: a sender and a consumer in virtual time, one step at a time.
//!
//! Every step goes to the ring and to the list of the ring's own tests, `crates/ldc-ring/tests/oracle_list`, and the
//! answers must be equal: what was cancelled or modified in time, what came too late, which messages are held back, the
//! bytes and the priority of each message, free slots, whether the consumer may sleep and must be woken. In addition:
//!
//! - the far end of the link receives messages in the order in which they were sent, each at most once; again only if the
//!   consumer died with it;
//! - a consumer that sleeps while there is something to do is a fault, once nothing else can wake it;
//! - at the end every message was delivered, cancelled or passed over for its deadline.
//!
//! There are no packets to write to a trace.

use std::collections::VecDeque;

use anyhow::{Result, ensure};
use ldc_ring::{Entry, Heap, Producer, Shape, channel};
use netsim::{Rng, derive_seed};

use super::oracle_list::{Comparison, Here, SLOT_BYTES, Step};
use super::outcome::Outcome;
use super::transports::Watch;

/// A run that is not over by then never ends: sending takes less than an hour.
const LIMIT_US: i64 = 36_000_000_000;

/// What a seed draws.
#[derive(Debug)]
struct Choices {
    slots: u32,
    /// Steps of the sender.
    steps: u32,
    /// Mean time between two bursts of the sender.
    pause_us: u64,
    /// Steps of a burst, at most.
    burst: u64,
    /// Time between two steps of a burst, at most.
    gap_us: u64,
    /// Longest message.
    longest: u64,
    rate_bps: u64,
    jitter_us: u64,
    /// From a wake-up until the consumer runs, at most.
    wake_us: u64,
    /// Messages on the link, claimed and not completed, at most.
    window: usize,
    /// Messages are completed in any order.
    any_order: bool,
    /// Probabilities, for each message, that the consumer stops for a while, or dies.
    stops: f64,
    deaths: f64,
    /// Share of messages with a deadline, and how long after sending it may be.
    deadlines: f64,
    deadline_us: u64,
    /// Weights of send, cancel, modify, hold back, release, retain.
    weights: [u64; 6],
    /// The sender wakes the consumer after each step, or after a burst.
    eager: bool,
}

impl Choices {
    fn draw(rng: &mut Rng) -> Self {
        let slots = 1 << rng.below(9);
        let longest = u64::from(SLOT_BYTES) * u64::from(slots.min(1 << rng.below(5)));
        let rate_bps = 1 << rng.between(15, 30);
        let mean_us = longest * 8_000_000 / 2 / rate_bps + 1;
        let burst = rng.between(1, 40);
        let may = |rng: &mut Rng, probability| if rng.chance(0.5) { probability } else { 0.0 };
        let mut weights = [20, 0, 0, 0, 0, 0];
        for weight in &mut weights[1..] {
            *weight = if rng.chance(0.7) {
                rng.between(1, 8)
            } else {
                0
            };
        }
        // What is held back is released at times.
        weights[4] = weights[3].max(weights[4]);
        Self {
            slots,
            steps: rng.between(10, 1500) as u32,
            // From a link that idles to one that is far too slow.
            pause_us: (mean_us as f64 * burst as f64 * (0.1 + 2.0 * rng.unit())) as u64,
            burst,
            gap_us: [0, 1, 50, mean_us][rng.below(4) as usize],
            longest,
            rate_bps,
            jitter_us: [0, mean_us / 2, mean_us * 10][rng.below(3) as usize],
            wake_us: [0, 5, 100, 20_000][rng.below(4) as usize],
            window: rng.between(1, 16) as usize,
            any_order: rng.chance(0.4),
            stops: may(rng, 0.02),
            deaths: may(rng, 0.01),
            deadlines: may(rng, 0.6),
            deadline_us: mean_us * rng.between(1, 100),
            weights,
            eager: rng.chance(0.3),
        }
    }
}

/// What the consumer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Runs,
    /// It sleeps until it is woken.
    Sleeps,
    /// It is stopped, or is being replaced, and runs again at its time.
    Stopped,
}

/// A message on the link.
struct Sending {
    seq: u64,
    at_us: i64,
}

/// One ring, both of its sides, the link, and the list beside the ring.
struct World {
    choices: Choices,
    rng: Rng,
    now_us: i64,
    producer: Producer<Heap, Box<[Entry]>>,
    consumer: Here<Heap, Box<[u32]>>,
    comparison: Comparison,
    /// When the sender acts next; `None` once it is done.
    sender_at: Option<i64>,
    /// Steps of the present burst that are left.
    left: u64,
    done: u32,
    seq: u64,
    value: u8,
    state: State,
    /// When the consumer acts next, unless it sleeps.
    consumer_at: i64,
    /// When a wake-up arrives.
    wake_at: Option<i64>,
    /// In the order of their claims, which is that of `Comparison::claimed`.
    sending: VecDeque<Sending>,
    link_free_at: i64,
    /// Counters of consumers that died.
    expired: u64,
    tally: Tally,
}

/// What came of the messages.
#[derive(Debug, Default)]
struct Tally {
    claimed: u64,
    delivered: u64,
    /// Claimed by a consumer that died: its successor sends them again.
    cut: u64,
    /// Not sent: the ring had no room.
    full: u64,
    deaths: u64,
    sleeps: u64,
    /// The sequence number of the last message delivered.
    last: Option<u64>,
}

impl World {
    fn new(seed: u64) -> Result<Self> {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let mut rng = Rng::new(derive_seed(&bytes, 7, 0));
        let choices = Choices::draw(&mut rng);
        let (producer, consumer) = channel(Shape::new(choices.slots, SLOT_BYTES)?);
        Ok(Self {
            comparison: Comparison::new(choices.slots),
            now_us: 0,
            producer,
            consumer: Here {
                consumer,
                claimed: Vec::new(),
            },
            sender_at: Some(0),
            left: 0,
            done: 0,
            seq: rng.below(1 << 40),
            value: 0,
            state: State::Runs,
            consumer_at: 0,
            wake_at: None,
            sending: VecDeque::new(),
            link_free_at: 0,
            expired: 0,
            tally: Tally::default(),
            choices,
            rng,
        })
    }

    /// Executes a step on the ring and on the list.
    fn step(&mut self, step: Step) -> Result<()> {
        let words = format!("at {} us, {step:?}", self.now_us);
        let (producer, consumer) = (&mut self.producer, &mut self.consumer);
        let same = self.comparison.step(step, self.value, producer, consumer);
        same.map_err(|mismatch| anyhow::anyhow!("{words}: {mismatch}"))
    }

    fn run(&mut self) -> Result<()> {
        loop {
            let consumer_at = (self.state != State::Sleeps).then_some(self.consumer_at);
            let on_link = self.sending.iter().map(|sending| sending.at_us).min();
            let on_link = on_link.filter(|_| self.state != State::Stopped);
            let next = [self.sender_at, self.wake_at, consumer_at, on_link];
            let Some(next) = next.into_iter().flatten().min() else {
                return self.finish();
            };
            self.now_us = self.now_us.max(next);
            ensure!(self.now_us < LIMIT_US, "not done after ten hours");
            // Both sides act if they are due, one step each, in an order drawn at random.
            let first = self.rng.below(2);
            for turn in 0..2 {
                if (turn + first).is_multiple_of(2) {
                    self.sender()?;
                } else {
                    self.consumer()?;
                }
            }
            self.step(Step::Inspect)?;
            let stats = self.consumer.consumer.stats();
            let expired = self.expired + stats.expired;
            ensure!(
                expired == self.comparison.expired(),
                "at {} us: the ring counts {expired} expired messages, a list {}",
                self.now_us,
                self.comparison.expired()
            );
        }
    }

    fn sender(&mut self) -> Result<()> {
        if self.sender_at.is_none_or(|at| at > self.now_us) {
            return Ok(());
        }
        if self.left == 0 {
            self.left = self.rng.between(1, self.choices.burst);
        }
        self.left -= 1;
        self.done += 1;
        let is_last = self.done >= self.choices.steps;
        let step = if is_last { Step::Release } else { self.draw() };
        self.step(step)?;
        if self.left == 0 || is_last || self.choices.eager {
            self.notify()?;
        }
        let wait = match self.left {
            0 => self.rng.below(2 * self.choices.pause_us + 1),
            _ => self.rng.below(self.choices.gap_us + 1),
        };
        self.sender_at = (!is_last).then_some(self.now_us + wait as i64);
        Ok(())
    }

    fn draw(&mut self) -> Step {
        let rng = &mut self.rng;
        let total = self.choices.weights.iter().sum();
        let mut ticket = rng.below(total);
        let kind = self.choices.weights.iter().position(|&weight| {
            let hit = ticket < weight;
            ticket = ticket.wrapping_sub(weight);
            hit
        });
        // Of the messages sent last, and a few that were never sent.
        let reach = u64::from(self.choices.slots) * 2;
        let seq = (self.seq + 2).wrapping_sub(rng.below(reach + 4));
        match kind {
            Some(1) => Step::Cancel(seq),
            Some(2) => Step::Modify(seq),
            Some(3) if rng.chance(0.3) => Step::HoldBackAll,
            Some(3) => Step::HoldBack(seq),
            Some(4) if rng.chance(0.5) => Step::ReleaseUntil(seq),
            Some(4) => Step::Release,
            Some(5) if rng.chance(0.3) => Step::Retain(rng.below(4) as u32),
            Some(5) => Step::PollAck,
            _ => {
                // Some share a number, like the parts of a layer.
                self.seq += u64::from(!rng.chance(0.1));
                self.value = rng.below(256) as u8;
                let deadline = rng
                    .chance(self.choices.deadlines)
                    .then(|| self.now_us + rng.below(self.choices.deadline_us) as i64);
                let len = rng.below(self.choices.longest + 1) as usize;
                let pieces = (len as u32).div_ceil(SLOT_BYTES).max(1);
                self.tally.full += u64::from(self.producer.free_slots() < pieces);
                let seq = self.seq;
                Step::Send { seq, len, deadline }
            }
        }
    }

    /// The sender's `notify`, and the wake-up that follows.
    fn notify(&mut self) -> Result<()> {
        let sleeps = self.state == State::Sleeps;
        let had = self.wake_at.is_some();
        let wakes = self.comparison.would_wake();
        self.step(Step::Notify)?;
        if wakes {
            let delay = self.rng.below(self.choices.wake_us + 1);
            let at = self.now_us + delay as i64;
            self.wake_at = Some(self.wake_at.map_or(at, |before| before.min(at)));
        }
        ensure!(
            wakes || had || !sleeps || !self.comparison.has_work(),
            "at {} us: the consumer sleeps, there is work, and nothing wakes it",
            self.now_us
        );
        Ok(())
    }

    fn consumer(&mut self) -> Result<()> {
        if self.wake_at.is_some_and(|at| at <= self.now_us) {
            self.wake_at = None;
            if self.state == State::Sleeps {
                (self.state, self.consumer_at) = (State::Runs, self.now_us);
            }
        }
        match self.state {
            State::Stopped if self.consumer_at > self.now_us => return Ok(()),
            State::Stopped => self.state = State::Runs,
            _ => {}
        }
        self.complete()?;
        if self.state != State::Runs || self.consumer_at > self.now_us {
            return Ok(());
        }
        if self.sending.len() >= self.choices.window {
            self.consumer_at = self.sending.iter().map(|one| one.at_us).min().unwrap_or(0);
            return Ok(());
        }
        let before = self.comparison.claimed.len();
        self.step(Step::Claim { now: self.now_us })?;
        match self.comparison.claimed.get(before).copied() {
            Some(seq) => self.send(seq),
            None => self.idle()?,
        }
        Ok(())
    }

    /// A claimed message goes to the link.
    fn send(&mut self, seq: u64) {
        let message = self.consumer.claimed.last();
        let bits = 8 * message.map_or(0, ldc_ring::Claimed::len) as u64;
        let time = (bits * 1_000_000 / self.choices.rate_bps) as i64;
        let jitter = self.rng.below(self.choices.jitter_us + 1) as i64;
        self.link_free_at = self.link_free_at.max(self.now_us) + time;
        self.tally.claimed += 1;
        let mut at_us = self.link_free_at + jitter;
        if !self.choices.any_order {
            let last = self.sending.back().map_or(0, |last| last.at_us);
            at_us = at_us.max(last);
        }
        self.sending.push_back(Sending { seq, at_us });
        if self.rng.chance(self.choices.stops) {
            self.stop();
        } else if self.rng.chance(self.choices.deaths) {
            self.die();
        }
    }

    fn stop(&mut self) {
        self.state = State::Stopped;
        self.consumer_at = self.now_us + self.rng.below(2_000_000) as i64;
    }

    /// The consumer dies; what is on the link is cut off. A successor starts later, and looks first.
    fn die(&mut self) {
        self.tally.deaths += 1;
        self.tally.cut += self.sending.len() as u64;
        self.sending.clear();
        self.link_free_at = self.now_us;
        self.expired += self.consumer.consumer.stats().expired;
        self.consumer.consumer.restart();
        self.consumer.claimed.clear();
        self.comparison.replace();
        self.stop();
    }

    /// Completes messages that have left.
    fn complete(&mut self) -> Result<()> {
        while let Some(at) = self
            .sending
            .iter()
            .position(|sending| sending.at_us <= self.now_us)
        {
            let seq = self.sending.remove(at).map_or(0, |sending| sending.seq);
            if !self.choices.any_order {
                let last = self.tally.last.replace(seq);
                ensure!(
                    last.is_none_or(|last| last <= seq),
                    "at {} us: message {seq} left after {last:?}",
                    self.now_us
                );
            }
            if self.rng.chance(0.5) {
                self.step(Step::Ack(at))?;
            }
            self.step(Step::Complete(at))?;
            self.tally.delivered += 1;
            (self.consumer_at, self.state) = (self.now_us, State::Runs);
        }
        Ok(())
    }

    /// Nothing can be claimed: the consumer goes to sleep if the ring lets it.
    fn idle(&mut self) -> Result<()> {
        let may_sleep = !self.comparison.has_work();
        self.step(Step::Idle)?;
        if may_sleep {
            self.tally.sleeps += 1;
            self.state = State::Sleeps;
        } else {
            self.consumer_at = self.now_us + 1;
        }
        Ok(())
    }

    /// Nothing can happen any more.
    fn finish(&mut self) -> Result<()> {
        ensure!(
            !self.comparison.has_work(),
            "the consumer sleeps for good, and there is work"
        );
        let (free, slots) = (self.producer.free_slots(), self.choices.slots);
        ensure!(free == slots, "{free} of {slots} slots are free at the end");
        let (sent, cancelled) = (self.comparison.sent, self.comparison.cancelled);
        let expired = self.comparison.expired();
        let delivered = self.tally.delivered;
        ensure!(
            u64::from(sent) == u64::from(cancelled) + expired + delivered,
            "{sent} messages sent: {delivered} delivered, {cancelled} cancelled, {expired} expired"
        );
        Ok(())
    }
}

/// Runs one seed.
///
/// # Errors
/// The ring's parameters are wrong.
pub(super) fn run(seed: u64, watch: &Watch) -> Result<Outcome> {
    let mut world = World::new(seed)?;
    watch.print(|| format!("{:?}", world.choices));
    watch.print(|| "the ring has no packets: nothing is traced".to_owned());
    let mut outcome = Outcome::default();
    if let Err(fault) = world.run() {
        outcome.fault(format!("{fault:#}"));
    }
    let tally = &world.tally;
    watch.print(|| format!("{tally:?}, {:?}", world.consumer.consumer.stats()));
    outcome.whole = tally.delivered;
    outcome.packets = tally.claimed;
    outcome.virtual_ms = (world.now_us / 1000) as u64;
    let named = [
        ("cancelled", u64::from(world.comparison.cancelled)),
        ("deadline over", world.comparison.expired()),
        ("not sent: no room in the ring", tally.full),
        ("cut off, sent again by the next consumer", tally.cut),
    ];
    outcome.named = named
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| (name.to_owned(), count))
        .collect();
    Ok(outcome)
}
