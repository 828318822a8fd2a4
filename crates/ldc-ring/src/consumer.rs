//! The consumer: claims messages in order, and completes them.

use core::fmt;
#[cfg(not(loom))]
use core::ptr::NonNull;

use proto_core::time::Instant;

use crate::block::{Block, HAS_EXTRA};
use crate::completed::Completed;
use crate::message::{NO_DEADLINE, deadline_from_micros};
use crate::shape::Shape;
use crate::state::{self, CLAIMED, DEAD, DONE, HELD, READY};
use crate::sync::{Ordering, fence};

/// The producer wrote nonsense into the ring, an index or a record that it cannot have come to by itself:
/// nothing that follows can be trusted. Close the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what the ring holds makes no sense: its producer is broken")
    }
}

impl core::error::Error for Corrupt {}

/// The producer has not taken earlier acknowledgements yet: try again after it has called
/// [`crate::Producer::poll_ack`]. Nothing was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckQueueFull;

impl fmt::Display for AckQueueFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue of acknowledgements is full")
    }
}

impl core::error::Error for AckQueueFull {}

/// What became of the messages, counted by the consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsumerStats {
    /// Messages claimed.
    pub claimed: u64,
    /// Messages passed over because the producer dropped them.
    pub dropped: u64,
    /// Messages passed over because their deadline was past.
    pub expired: u64,
}

/// A message that is the consumer's. Read it, then give it to [`Consumer::complete`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the producer gets the slots back when the message is completed"]
pub struct Claimed {
    position: u32,
    len: u32,
    priority: u32,
    user_seq: u64,
    deadline: i64,
}

impl Claimed {
    /// The user's sequence number.
    pub fn user_seq(&self) -> u64 {
        self.user_seq
    }

    /// Bytes of the message.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the message has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The user's priority.
    pub fn priority(&self) -> u32 {
        self.priority
    }

    /// When the message loses its value.
    pub fn deadline(&self) -> Option<Instant> {
        deadline_from_micros(self.deadline)
    }

    /// What [`Consumer::ack`] needs, for after the message was completed.
    pub fn ticket(&self) -> Ticket {
        Ticket {
            position: self.position,
            user_seq: self.user_seq,
        }
    }
}

/// Names a message that was claimed, for its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    position: u32,
    user_seq: u64,
}

/// The side that takes messages out. `K` keeps the memory alive, `D` is room for a bit a slot
/// ([`Shape::completed_words`]), in memory of its own.
///
/// Every method ends within a bounded number of steps, whatever the producer does meanwhile.
///
/// # Invariants
///
/// `told <= dev <= kern <= seen`, as positions; `seen - dev` is at most the number of slots. The messages from
/// `dev` to `kern` are claimed and not yet given back; those of them that are completed are marked in `completed`.
/// After a message is claimed, nothing that the producer can write is read to decide about its slots.
pub struct Consumer<K, D> {
    block: Block<K>,
    completed: Completed<D>,
    /// The oldest position not yet claimed (`kern_i`).
    kern: u32,
    /// `user_i` when it was last looked at: up to there messages are in the ring.
    seen: u32,
    /// The oldest position not yet given back (`dev_i`).
    dev: u32,
    /// `dev` as the producer knows it.
    told: u32,
    /// Tell it when so many slots more are free, or all that was seen.
    batch: u32,
    ack_head: u32,
    stats: ConsumerStats,
}

impl<K, D: AsRef<[u32]> + AsMut<[u32]>> Consumer<K, D> {
    /// A consumer that goes on where the ring's last one was. What that one had claimed and not given
    /// back is claimed again: until it is, its state stays `CLAIMED`, and the producer cannot change it.
    /// `None`: `completed` is too short.
    pub(crate) fn over(block: Block<K>, completed: D) -> Option<Self> {
        let completed = Completed::new(completed, block.shape)?;
        let line = &block.head().consumer;
        let dev = line.dev_i.load(Ordering::Acquire);
        let ack_head = block.head().news.ack_head.load(Ordering::Relaxed);
        block.head().news.told.store(dev, Ordering::Release);
        Some(Self {
            batch: block.shape.batch(),
            block,
            completed,
            kern: dev,
            seen: dev,
            dev,
            told: dev,
            ack_head,
            stats: ConsumerStats::default(),
        })
    }

    /// The ring's geometry.
    pub fn shape(&self) -> Shape {
        self.block.shape
    }

    /// What became of the messages, as far as this consumer has come.
    pub fn stats(&self) -> ConsumerStats {
        self.stats
    }

    /// Claims the next message: from now on the producer cannot change its mind about it. Passes over
    /// dropped messages, and over those whose deadline is before `now` (with no `now`, over none).
    ///
    /// `None`: nothing there, or all that is there is held back. Passes over at most one ring full of
    /// messages a call.
    #[inline(always)]
    pub fn claim(&mut self, now: Option<Instant>) -> Result<Option<Claimed>, Corrupt> {
        let now = now.map_or(i64::MIN, |now| now.total_micros());
        if self.kern != self.seen && self.swap() == Ok(()) {
            let message = self.message()?;
            if message.deadline >= now {
                self.pass(&message);
                self.stats.claimed += 1;
                return Ok(Some(message));
            }
        }
        self.search(now)
    }

    /// Claims what is at `kern`. The state there, if it is not `READY`.
    #[inline]
    fn swap(&self) -> Result<(), u32> {
        let ready = state::word(self.kern, READY);
        let claimed = state::word(self.kern, CLAIMED);
        // Without a look before: a swap that fails costs as much as a load, and one that succeeds fetches
        // the line once.
        let record = self.block.record(self.kern);
        let swapped =
            record
                .state
                .compare_exchange(ready, claimed, Ordering::Acquire, Ordering::Acquire);
        swapped.map(|_| ())
    }

    /// Moves `kern` over a message.
    #[inline]
    fn pass(&mut self, message: &Claimed) {
        let pieces = self.block.shape.pieces(message.len());
        self.kern = self.kern.wrapping_add(pieces);
        let line = &self.block.head().consumer;
        line.kern_i.store(self.kern, Ordering::Relaxed);
    }

    /// Claims the next message, where the first is not there for the taking.
    #[cold]
    #[inline(never)]
    fn search(&mut self, now: i64) -> Result<Option<Claimed>, Corrupt> {
        for _ in 0..self.block.shape.slots() {
            if self.kern == self.seen && !self.look()? {
                break;
            }
            let mine = match self.swap() {
                Ok(()) => true,
                // The producer was quicker, or it is what another consumer left.
                Err(word) => match state::state(self.kern, word) {
                    Some(HELD) => break,
                    Some(CLAIMED) => true,
                    Some(DEAD) => {
                        self.stats.dropped += 1;
                        false
                    }
                    Some(DONE) => false,
                    _ => return Err(Corrupt),
                },
            };
            let message = self.message()?;
            self.pass(&message);
            if mine && message.deadline >= now {
                self.stats.claimed += 1;
                return Ok(Some(message));
            }
            self.stats.expired += u64::from(mine);
            self.complete(message);
        }
        self.tell();
        Ok(None)
    }

    /// Looks whether anything more was sent.
    #[inline]
    fn look(&mut self) -> Result<bool, Corrupt> {
        let seen = self.block.head().producer.user_i.load(Ordering::Acquire);
        if seen.wrapping_sub(self.dev) > self.block.shape.slots()
            || seen.wrapping_sub(self.dev) < self.kern.wrapping_sub(self.dev)
        {
            return Err(Corrupt);
        }
        self.seen = seen;
        Ok(seen != self.kern)
    }

    /// Tells the producer which slots are free.
    #[inline(never)]
    fn tell(&mut self) {
        if self.told != self.dev {
            self.told = self.dev;
            let news = &self.block.head().news;
            news.told.store(self.dev, Ordering::Release);
        }
    }

    /// Copies from `offset` of a claimed message into `bytes`.
    ///
    /// # Panics
    ///
    /// When they would go over its end, or the message is not one that this consumer claimed and has not
    /// completed.
    #[inline(always)]
    pub fn read(&self, message: &Claimed, offset: usize, bytes: &mut [u8]) {
        let len = message.len();
        assert!(
            offset <= len && bytes.len() <= len - offset,
            "past the message's end"
        );
        self.check(message);
        // SAFETY: the slots are claimed by this consumer, and not given back.
        unsafe {
            self.block
                .payload
                .read(self.block.shape, message.position, offset, bytes);
        };
    }

    /// Where the bytes of a claimed message from `offset` on lie: in one place, or in two when the message
    /// goes over the end of the ring. For system calls that read memory by themselves. Another process may
    /// write there if it breaks the rules: never make a reference of it.
    ///
    /// # Panics
    ///
    /// When `offset` is past the message's end, or the message is not one that this consumer claimed and has
    /// not completed.
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

    /// Gives the slots of a message back to the producer. Messages may be completed in any order; slots
    /// go back in the order of the ring (`dev_i`), and a producer that found the ring full learns of them an
    /// eighth of the ring at a time (see the crate's "Units and bounds").
    ///
    /// # Panics
    ///
    /// When the message is not one that this consumer claimed.
    #[inline(always)]
    pub fn complete(&mut self, message: Claimed) {
        self.check(&message);
        let pieces = self.block.shape.pieces(message.len());
        if message.position != self.dev {
            return self.set_done(message.position, pieces);
        }
        self.dev = self.dev.wrapping_add(pieces);
        if self.dev != self.kern {
            self.dev = self.completed.take_run(self.dev, self.kern);
        }
        let line = &self.block.head().consumer;
        line.dev_i.store(self.dev, Ordering::Release);
        if self.dev.wrapping_sub(self.told) >= self.batch || self.dev == self.seen {
            self.tell();
        }
    }

    /// Fails unless the slots of a message lie between `dev` and `kern`, where all are this consumer's. A message
    /// of another ring, or of a consumer that this one took over from, may name any.
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

    /// Remembers that a message was completed although an older one is not. The state word in the block is for a
    /// consumer that takes over; this one relies on its own map alone.
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

    /// Tells the producer that a message has reached whom it was for: marks it, where its slot has not
    /// been used again (`kern_acked`), and sends its sequence number, which arrives in any case.
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
            .news
            .ack_head
            .store(self.ack_head, Ordering::Release);
        Ok(())
    }

    /// Goes idle: asks the producer to wake the consumer (`kern_flag`). `false`: do not sleep, something can
    /// be claimed, or the producer has closed the ring. When it is true, sleep until woken or, where
    /// messages have deadlines, as long as you like: an expired message costs nothing while nobody waits.
    #[must_use = "sleep only when it is true"]
    pub fn idle(&mut self) -> bool {
        self.tell();
        let head = self.block.head();
        head.news.kern_flag.store(1, Ordering::Relaxed);
        // Pairs with the fence in `Producer::notify`.
        fence(Ordering::SeqCst);
        let something = head.producer.user_i.load(Ordering::Relaxed) != self.kern && {
            let word = self.block.record(self.kern).state.load(Ordering::Relaxed);
            state::state(self.kern, word) != Some(HELD)
        };
        if something || self.is_closed() {
            head.news.kern_flag.store(0, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Whether the producer has closed the ring. Messages sent before are still there: claim until there is
    /// none.
    pub fn is_closed(&self) -> bool {
        self.block.head().producer.closed.load(Ordering::Acquire) != 0
    }

    /// Tells the producer that nothing more will be claimed.
    pub fn close(&mut self) {
        self.tell();
        self.block.head().news.closed.store(1, Ordering::Release);
    }

    /// What the record at `kern` says. Its length is checked: a message longer than what was sent would
    /// lead us astray.
    #[inline]
    fn message(&self) -> Result<Claimed, Corrupt> {
        let shape = self.block.shape;
        let record = self.block.record(self.kern);
        let word = record.len.load(Ordering::Relaxed);
        let len = word & !HAS_EXTRA;
        // At `kern` there is a message, of one slot at least.
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

    /// Deadline and priority of the message at `kern`.
    #[inline(never)]
    fn extra(&self) -> (i64, u32) {
        let extra = self.block.extra(self.kern);
        (
            extra.deadline.load() as i64,
            extra.priority.load(Ordering::Relaxed),
        )
    }

    /// Sets the acknowledgement flag of a message, unless its slot was used again: then the news goes
    /// through the queue alone.
    fn mark_acked(&self, position: u32) {
        let record = self.block.record(position);
        let word = record.state.load(Ordering::Relaxed);
        if let Some(CLAIMED | DONE) = state::state(position, word) {
            // The producer may be taking the slot at this moment.
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
    /// The other side of `Producer::start_at`.
    pub(crate) fn start_at(&mut self, position: u32) {
        (self.kern, self.seen, self.dev, self.told) = (position, position, position, position);
    }
}
