//! The consumer: claims messages in order and completes them.

use core::fmt;
#[cfg(not(loom))]
use core::ptr::NonNull;

use proto_core::time::Instant;

use crate::block::{Block, HAS_EXTRA};
use crate::completed::Completed;
use crate::error::{AckQueueFull, Corrupt};
use crate::message::{NO_DEADLINE, deadline_from_micros};
use crate::shape::Shape;
use crate::state::{self, ABANDONED, CANCELLED, CLAIMED, DONE, HELD, READY};
use crate::sync::{Ordering, fence};

/// Messages by outcome, counted by the consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsumerStats {
    /// Messages claimed.
    pub claimed: u64,
    /// Messages skipped because the producer cancelled them.
    pub cancelled: u64,
    /// Messages skipped because their deadline had passed.
    pub expired: u64,
}

/// A claimed message. Read it, then pass it to [`Consumer::complete`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "its slots become free when the message is completed"]
pub struct Claimed {
    position: u32,
    len: u32,
    priority: u32,
    user_seq: u64,
    deadline: i64,
}

impl Claimed {
    /// Returns the sequence number chosen by the user.
    pub fn user_seq(&self) -> u64 {
        self.user_seq
    }

    /// Returns the length of the message in bytes.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns whether the message has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the priority chosen by the user.
    pub fn priority(&self) -> u32 {
        self.priority
    }

    /// Returns the deadline after which the message is worthless.
    pub fn deadline(&self) -> Option<Instant> {
        deadline_from_micros(self.deadline)
    }

    /// Returns the ticket for [`Consumer::ack`], which is valid after the message is completed.
    pub fn ticket(&self) -> Ticket {
        Ticket {
            position: self.position,
            user_seq: self.user_seq,
        }
    }
}

/// Identifies a claimed message for its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    position: u32,
    user_seq: u64,
}

/// The side that takes messages out. `K` keeps the memory alive, `D` is private memory with one bit per slot
/// ([`Shape::completed_words`]).
///
/// Every method ends within a bounded number of steps, regardless of what the producer does concurrently.
///
/// # Invariants
///
/// `reported <= dev <= kern <= seen`, as positions; `seen - dev` is at most the number of slots. The messages from
/// `dev` to `kern` are claimed and not yet released; those of them that are completed are marked in `completed`.
/// After a message is claimed, no decision about its slots depends on memory that the producer can write.
pub struct Consumer<K, D> {
    block: Block<K>,
    completed: Completed<D>,
    /// Oldest position not yet claimed (`kern_i`).
    kern: u32,
    /// `user_i` when it was last read.
    seen: u32,
    /// Oldest position not yet released (`dev_i`).
    dev: u32,
    /// `dev` as last reported to the producer.
    reported: u32,
    /// Free slots that are worth a report.
    batch: u32,
    ack_head: u32,
    stats: ConsumerStats,
}

/// Shows the positions and the counters, not the messages.
impl<K, D> fmt::Debug for Consumer<K, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("kern", &self.kern)
            .field("seen", &self.seen)
            .field("dev", &self.dev)
            .field("reported", &self.reported)
            .field("ack_head", &self.ack_head)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

impl<K, D: AsRef<[u32]> + AsMut<[u32]>> Consumer<K, D> {
    /// Returns a consumer that continues where the ring's last one stopped. Messages that were claimed and not released
    /// are claimed again; until then their state stays `CLAIMED`, and the producer cannot change them. Returns `None`
    /// if `completed` is too short.
    pub(crate) fn over(block: Block<K>, completed: D) -> Option<Self> {
        let completed = Completed::new(completed, block.shape)?;
        let mut consumer = Self {
            batch: block.shape.batch(),
            block,
            completed,
            kern: 0,
            seen: 0,
            dev: 0,
            reported: 0,
            ack_head: 0,
            stats: ConsumerStats::default(),
        };
        consumer.restart();
        Some(consumer)
    }

    /// Starts again where a consumer stands that replaces this one after its death. Messages that were claimed and not
    /// completed are claimed again; counters start at zero.
    ///
    /// ```
    /// use ldc_ring::{Attributes, Shape};
    ///
    /// let (mut producer, mut consumer) = ldc_ring::channel(Shape::new(8, 1500)?);
    /// producer.send(1, b"once", Attributes::default())?;
    /// let lost = consumer.claim(None)?.unwrap();
    ///
    /// consumer.restart();
    /// assert_eq!(consumer.claim(None)?.unwrap().user_seq(), lost.user_seq());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn restart(&mut self) {
        self.completed.clear();
        let head = self.block.head();
        let dev = head.consumer.dev_i.load(Ordering::Acquire);
        head.signals.free_until.store(dev, Ordering::Release);
        self.ack_head = head.signals.ack_head.load(Ordering::Relaxed);
        (self.kern, self.seen) = (dev, dev);
        (self.dev, self.reported) = (dev, dev);
        self.stats = ConsumerStats::default();
    }

    /// Returns the ring's geometry.
    pub fn shape(&self) -> Shape {
        self.block.shape
    }

    /// Returns this consumer's counters.
    pub fn stats(&self) -> ConsumerStats {
        self.stats
    }

    /// Claims the next message; from now on the producer cannot cancel or modify it. Skips cancelled messages, and with
    /// `now` those whose deadline is before it.
    ///
    /// Returns `None` if the ring is empty or all its messages are held back. Skips at most one ring full of messages
    /// per call.
    ///
    /// # Errors
    ///
    /// The producer violated the protocol.
    #[inline(always)]
    pub fn claim(&mut self, now: Option<Instant>) -> Result<Option<Claimed>, Corrupt> {
        let now = now.map_or(i64::MIN, |now| now.total_micros());
        let is_next = self.kern != self.seen && self.swap() == Ok(());
        if !is_next && !self.search(now)? {
            return Ok(None);
        }
        let mut message = self.message()?;
        if message.deadline < now {
            if !self.search(now)? {
                return Ok(None);
            }
            message = self.message()?;
        }
        self.pass(&message);
        self.stats.claimed += 1;
        Ok(Some(message))
    }

    /// Claims the message at `kern`, or returns its state word if it is not `READY`.
    #[inline]
    fn swap(&self) -> Result<(), u32> {
        let ready = state::word(self.kern, READY);
        let claimed = state::word(self.kern, CLAIMED);
        // No load first: a failing swap costs as much as a load, and a successful one fetches the cache line once.
        let record = self.block.record(self.kern);
        let swapped =
            record
                .state
                .compare_exchange(ready, claimed, Ordering::Acquire, Ordering::Acquire);
        swapped.map(|_| ())
    }

    /// Moves `kern` past a message.
    #[inline]
    fn pass(&mut self, message: &Claimed) {
        let pieces = self.block.shape.pieces(message.len());
        self.kern = self.kern.wrapping_add(pieces);
        let line = &self.block.head().consumer;
        line.kern_i.store(self.kern, Ordering::Relaxed);
    }

    /// Moves `kern` to the next message that can be claimed, and claims it, when the one at `kern` cannot be claimed directly
    /// or has expired. Returns whether there is one.
    #[cold]
    #[inline(never)]
    fn search(&mut self, now: i64) -> Result<bool, Corrupt> {
        for _ in 0..self.block.shape.slots() {
            if self.kern == self.seen && !self.refresh()? {
                break;
            }
            let mine = match self.swap() {
                Ok(()) => true,
                // The producer changed it first, or this consumer or a dead one has claimed it.
                Err(word) => match state::state(self.kern, word) {
                    Some(HELD) => break,
                    Some(CLAIMED) => true,
                    // Abandoned after a dead consumer had claimed it.
                    Some(CANCELLED | ABANDONED) => {
                        self.stats.cancelled += 1;
                        false
                    }
                    Some(DONE) => false,
                    _ => return Err(Corrupt),
                },
            };
            if mine && !self.is_expired(now) {
                return Ok(true);
            }
            self.stats.expired += u64::from(mine);
            let message = self.message()?;
            self.pass(&message);
            self.complete(message);
        }
        self.report_free();
        Ok(false)
    }

    /// Passes over the messages that are next in the ring and will never be claimed: cancelled ones, and those that a
    /// consumer before this one has completed. Claims nothing. For a receiver that can send nothing for now: the slots
    /// become free for the producer, as they otherwise do when the next message is claimed. Returns how many slots it
    /// passed.
    ///
    /// # Errors
    ///
    /// As for [`Consumer::claim`].
    pub fn skip_cancelled(&mut self) -> Result<u32, Corrupt> {
        let from = self.kern;
        for _ in 0..self.block.shape.slots() {
            if self.kern == self.seen && !self.refresh()? {
                break;
            }
            let record = self.block.record(self.kern);
            let word = record.state.load(Ordering::Acquire);
            match state::state(self.kern, word) {
                Some(CANCELLED | ABANDONED) => self.stats.cancelled += 1,
                Some(DONE) => {}
                Some(_) => break,
                None => return Err(Corrupt),
            }
            let message = self.message()?;
            self.pass(&message);
            self.complete(message);
        }
        self.report_free();
        Ok(self.kern.wrapping_sub(from))
    }

    /// Returns whether the deadline of the message at `kern` is before `now`.
    #[inline]
    fn is_expired(&self, now: i64) -> bool {
        let word = self.block.record(self.kern).len.load(Ordering::Relaxed);
        word & HAS_EXTRA != 0 && self.extra().0 < now
    }

    /// Reads `user_i` again. Returns whether more was sent.
    #[inline]
    fn refresh(&mut self) -> Result<bool, Corrupt> {
        let seen = self.block.head().producer.user_i.load(Ordering::Acquire);
        if seen.wrapping_sub(self.dev) > self.block.shape.slots()
            || seen.wrapping_sub(self.dev) < self.kern.wrapping_sub(self.dev)
        {
            return Err(Corrupt);
        }
        self.seen = seen;
        Ok(seen != self.kern)
    }

    /// Reports to the producer which slots are free.
    #[inline(never)]
    fn report_free(&mut self) {
        if self.reported != self.dev {
            self.reported = self.dev;
            let signals = &self.block.head().signals;
            signals.free_until.store(self.dev, Ordering::Release);
        }
    }

    /// Copies from `offset` of a claimed message into `bytes`.
    ///
    /// # Panics
    ///
    /// If the range exceeds the message, or this consumer has not claimed the message or has completed it.
    #[inline(always)]
    pub fn read(&self, message: &Claimed, offset: usize, bytes: &mut [u8]) {
        let len = message.len();
        assert!(
            offset <= len && bytes.len() <= len - offset,
            "past the message's end"
        );
        self.check(message);
        // SAFETY: this consumer has claimed the slots and not released them.
        unsafe {
            self.block
                .payload
                .read(self.block.shape, message.position, offset, bytes);
        };
    }

    /// Returns the addresses and lengths of a claimed message from `offset` on: one part, or two if the message wraps
    /// at the end of the ring. Meant for system calls that read memory themselves. A faulty peer process may write
    /// there at any time, so never create a reference to it.
    ///
    /// # Panics
    ///
    /// If `offset` is past the end of the message, or this consumer has not claimed the message or has completed it.
    #[cfg(not(loom))]
    pub fn chunks(&self, message: &Claimed, offset: usize) -> [(NonNull<u8>, usize); 2] {
        let rest = message
            .len()
            .checked_sub(offset)
            .expect("past the message's end");
        self.check(message);
        self.block
            .payload
            .chunks(self.block.shape, message.position, offset, rest)
    }

    /// Returns whether the producer has abandoned a claimed message ([`crate::Producer::abandon`]): a consumer that is
    /// still delivering it should stop. Complete it as any other message.
    ///
    /// # Panics
    ///
    /// If this consumer has not claimed the message or has completed it.
    pub fn is_abandoned(&self, message: &Claimed) -> bool {
        self.check(message);
        let word = self
            .block
            .record(message.position)
            .state
            .load(Ordering::Acquire);
        state::state(message.position, word) == Some(ABANDONED)
    }

    /// Releases the slots of a message to the producer. Messages may be completed in any order; slots become free in
    /// the order of the ring (`dev_i`), and a producer that waits for room sees them in batches (see "Units and
    /// bounds" of the crate).
    ///
    /// # Panics
    ///
    /// If this consumer has not claimed the message.
    #[inline(always)]
    pub fn complete(&mut self, message: Claimed) {
        if self.complete_privately(&message) {
            self.release();
        }
    }

    /// Completes a message, but does not write `dev_i`. Returns whether slots became free.
    #[inline(always)]
    pub(crate) fn complete_privately(&mut self, message: &Claimed) -> bool {
        self.check(message);
        let pieces = self.block.shape.pieces(message.len());
        if message.position != self.dev {
            self.set_done(message.position, pieces);
            return false;
        }
        let dev = self.dev.wrapping_add(pieces);
        self.dev = self.completed.take_run(dev, self.kern);
        true
    }

    /// Releases the slots before `dev`, and reports them if they are many or no more will follow.
    #[inline(always)]
    pub(crate) fn release(&mut self) {
        let line = &self.block.head().consumer;
        line.dev_i.store(self.dev, Ordering::Release);
        if self.dev.wrapping_sub(self.reported) >= self.batch || self.dev == self.seen {
            self.report_free();
        }
    }

    /// Panics unless the slots of a message lie between `dev` and `kern`, where this consumer owns them. A message of
    /// another ring, or of a dead consumer, may name any position.
    #[inline]
    fn check(&self, message: &Claimed) {
        let shape = self.block.shape;
        let before = message.position.wrapping_sub(self.dev);
        let claimed = self.kern.wrapping_sub(self.dev);
        assert!(
            before < claimed
                && (message.len <= shape.slot_bytes()
                    || shape.pieces(message.len()) <= claimed - before),
            "not a message that this consumer claimed"
        );
    }

    /// Records the completion of a message while an older one is incomplete. The state word in the block serves a
    /// consumer that replaces this one; this consumer relies on its private map only.
    #[inline(never)]
    fn set_done(&mut self, position: u32, pieces: u32) {
        self.completed.mark(position, pieces);
        let record = self.block.record(position);
        let word = record.state.load(Ordering::Relaxed);
        let mut done = state::word(position, DONE);
        if state::is_acked(word) {
            done = state::with_ack(done);
        }
        record.state.store(done, Ordering::Relaxed);
    }

    /// Tells the producer that a message was acknowledged: marks its record, unless the slot was reused
    /// (`kern_acked`), and queues its sequence number.
    ///
    /// # Errors
    ///
    /// The queue of acknowledgements is full.
    pub fn ack(&mut self, ticket: Ticket) -> Result<(), AckQueueFull> {
        let line = self.block.head();
        let tail = line.producer.ack_tail.load(Ordering::Acquire);
        if self.ack_head.wrapping_sub(tail) >= self.block.shape.slots() {
            return Err(AckQueueFull);
        }
        self.mark_acked(ticket.position);
        self.block.ack(self.ack_head).store(ticket.user_seq);
        self.ack_head = self.ack_head.wrapping_add(1);
        self.block
            .head()
            .signals
            .ack_head
            .store(self.ack_head, Ordering::Release);
        Ok(())
    }

    /// Goes idle: asks the producer to wake the consumer (`kern_flag`). Returns `false` if a message can be claimed or
    /// the producer has closed the ring; then do not sleep. Deadlines need no timer: an expired message costs nothing
    /// while the consumer sleeps.
    #[must_use = "sleep only if it returns true"]
    pub fn idle(&mut self) -> bool {
        self.report_free();
        let head = self.block.head();
        head.signals.kern_flag.store(1, Ordering::Relaxed);
        // Pairs with the fence in `Producer::notify`.
        fence(Ordering::SeqCst);
        let claimable = head.producer.user_i.load(Ordering::Relaxed) != self.kern && {
            let word = self.block.record(self.kern).state.load(Ordering::Relaxed);
            state::state(self.kern, word) != Some(HELD)
        };
        if claimable || self.is_closed() {
            head.signals.kern_flag.store(0, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Returns whether the producer has closed the ring. Messages sent earlier remain: claim until `None`.
    pub fn is_closed(&self) -> bool {
        self.block.head().producer.closed.load(Ordering::Acquire) != 0
    }

    /// Tells the producer that no more messages will be claimed.
    pub fn close(&mut self) {
        self.report_free();
        self.block.head().signals.closed.store(1, Ordering::Release);
    }

    /// Reads the record at `kern`. Fails if its length exceeds what was sent.
    #[inline]
    fn message(&self) -> Result<Claimed, Corrupt> {
        let shape = self.block.shape;
        let record = self.block.record(self.kern);
        let word = record.len.load(Ordering::Relaxed);
        let len = word & !HAS_EXTRA;
        // A message of at least one slot begins at `kern`.
        if len > shape.slot_bytes()
            && shape.pieces(len as usize) > self.seen.wrapping_sub(self.kern)
        {
            return Err(Corrupt);
        }
        let (deadline, priority) = if word & HAS_EXTRA == 0 {
            (NO_DEADLINE, 0)
        } else {
            self.extra()
        };
        Ok(Claimed {
            position: self.kern,
            len,
            priority,
            user_seq: record.user_seq.load(),
            deadline,
        })
    }

    /// Returns deadline and priority of the message at `kern`.
    #[inline(never)]
    fn extra(&self) -> (i64, u32) {
        let extra = self.block.extra(self.kern);
        (
            extra.deadline.load() as i64,
            extra.priority.load(Ordering::Relaxed),
        )
    }

    /// Sets the acknowledgement flag of a message, unless its slot was reused.
    fn mark_acked(&self, position: u32) {
        let record = self.block.record(position);
        let word = record.state.load(Ordering::Relaxed);
        if let Some(CLAIMED | DONE) = state::state(position, word) {
            // The producer may be reusing the slot concurrently.
            let _ = record.state.compare_exchange(
                word,
                state::with_ack(word),
                Ordering::Release,
                Ordering::Relaxed,
            );
        }
    }
}

#[cfg(test)]
impl<K, D> Consumer<K, D> {
    /// Counterpart of `Producer::start_at`.
    pub(crate) fn start_at(&mut self, position: u32) {
        (self.kern, self.seen, self.dev, self.reported) = (position, position, position, position);
    }
}
