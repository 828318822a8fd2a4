//! The consumer: claims messages in order, and completes them.

use core::fmt;
#[cfg(not(loom))]
use core::ptr::NonNull;

use smoltcp::time::Instant;

use crate::block::Block;
use crate::message::deadline_from_micros;
use crate::shape::Shape;
use crate::state::{self, CLAIMED, DEAD, DONE, FREE, READY};
use crate::sync::{Ordering, fence};

/// The producer wrote nonsense into the ring: nothing that follows can be trusted. Close the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the ring holds a message longer than itself: its producer is broken")
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

/// The side that takes messages out. `K` keeps the memory alive.
///
/// Every method ends within a bounded number of steps, whatever the producer does meanwhile.
///
/// # Invariants
///
/// `dev <= kern`, as positions: the messages between them are claimed and not yet given back.
pub struct Consumer<K> {
    block: Block<K>,
    /// The oldest position not yet claimed (`kern_i`).
    kern: u32,
    /// The oldest position not yet given back (`dev_i`).
    dev: u32,
    ack_head: u32,
    stats: ConsumerStats,
}

impl<K> Consumer<K> {
    /// A consumer that goes on where the ring's last one was. What that one had claimed and not given
    /// back is claimed again.
    pub(crate) fn over(block: Block<K>) -> Self {
        let shape = block.shape;
        let line = &block.head().consumer;
        let (mut dev, ack_head) = (
            line.dev_i.load(Ordering::Relaxed),
            line.ack_head.load(Ordering::Relaxed),
        );
        let state_at = |position: u32, round: u32| {
            let word = block.record(position).state.load(Ordering::Acquire);
            state::state(shape, round, word)
        };
        // Given back just before it died, when the hint was not written yet.
        for _ in 0..shape.slots() {
            if state_at(dev, dev.wrapping_add(shape.slots())) != Some(FREE) {
                break;
            }
            dev = dev.wrapping_add(1);
        }
        let mut position = dev;
        for _ in 0..shape.slots() {
            match state_at(position, position) {
                Some(CLAIMED) => {
                    let ready = state::word(shape, position, READY);
                    block.record(position).state.store(ready, Ordering::Relaxed);
                }
                Some(DEAD | DONE) => {}
                _ => break,
            }
            let len = block.record(position).len.load(Ordering::Relaxed) as usize;
            position = position.wrapping_add(shape.pieces(len));
        }
        Self {
            block,
            kern: dev,
            dev,
            ack_head,
            stats: ConsumerStats::default(),
        }
    }

    /// The ring's geometry.
    pub fn shape(&self) -> Shape {
        self.block.shape
    }

    /// What became of the messages so far.
    pub fn stats(&self) -> ConsumerStats {
        self.stats
    }

    /// Claims the next message: from now on the producer cannot change its mind about it. Passes over
    /// dropped messages, and over those whose deadline is before `now` (with no `now`, over none).
    ///
    /// `None`: nothing there, or all that is there is held back. Passes over at most one ring full of
    /// messages a call.
    #[inline]
    pub fn claim(&mut self, now: Option<Instant>) -> Result<Option<Claimed>, Corrupt> {
        let shape = self.block.shape;
        let now = now.map_or(i64::MIN, |now| now.total_micros());
        for _ in 0..shape.slots() {
            let record = self.block.record(self.kern);
            let mut word = record.state.load(Ordering::Acquire);
            if state::state(shape, self.kern, word) == Some(READY) {
                let claimed = state::word(shape, self.kern, CLAIMED);
                match record.state.compare_exchange(
                    word,
                    claimed,
                    Ordering::Acquire,
                    Ordering::Acquire,
                ) {
                    Ok(_) => {
                        let message = self.message()?;
                        self.kern = self.kern.wrapping_add(shape.pieces(message.len()));
                        if message.deadline < now {
                            self.stats.expired += 1;
                            self.complete(message);
                            continue;
                        }
                        self.stats.claimed += 1;
                        self.hint_kern();
                        return Ok(Some(message));
                    }
                    // The producer was quicker: it holds the message back, or dropped it.
                    Err(now_there) => word = now_there,
                }
            }
            match state::state(shape, self.kern, word) {
                Some(DEAD) => self.stats.dropped += 1,
                // Done by the consumer that this one took over from.
                Some(DONE) => {}
                _ => break,
            }
            let message = self.message()?;
            self.kern = self.kern.wrapping_add(shape.pieces(message.len()));
            self.complete(message);
        }
        self.hint_kern();
        Ok(None)
    }

    /// Copies from `offset` of a claimed message into `bytes`.
    ///
    /// # Panics
    ///
    /// When they would go over its end.
    #[inline]
    pub fn read(&self, message: &Claimed, offset: usize, bytes: &mut [u8]) {
        let len = message.len();
        assert!(
            offset <= len && bytes.len() <= len - offset,
            "past the message's end"
        );
        // SAFETY: a `Claimed` exists only for a message whose state makes its slots the consumer's.
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
    /// When `offset` is past the message's end.
    #[cfg(not(loom))]
    pub fn chunks(&self, message: &Claimed, offset: usize) -> [(NonNull<u8>, usize); 2] {
        let rest = message
            .len()
            .checked_sub(offset)
            .expect("past the message's end");
        self.block
            .payload
            .chunks(self.block.shape, message.position, offset, rest)
    }

    /// Gives the slots of a message back to the producer. Messages may be completed in any order; slots
    /// go back in the order of the ring (`dev_i`).
    #[inline]
    pub fn complete(&mut self, message: Claimed) {
        let shape = self.block.shape;
        if message.position != self.dev {
            let record = self.block.record(message.position);
            let word = record.state.load(Ordering::Relaxed);
            let mut done = state::word(shape, message.position, DONE);
            if state::is_acked(word) {
                done = state::with_ack(done);
            }
            record.state.store(done, Ordering::Relaxed);
            return;
        }
        self.free(shape.pieces(message.len()));
        while self.dev != self.kern {
            let record = self.block.record(self.dev);
            let word = record.state.load(Ordering::Relaxed);
            if state::state(shape, self.dev, word) != Some(DONE) {
                break;
            }
            let len = record.len.load(Ordering::Relaxed) as usize;
            self.free(shape.pieces(len).min(self.kern.wrapping_sub(self.dev)));
        }
        self.block
            .head()
            .consumer
            .dev_i
            .store(self.dev, Ordering::Relaxed);
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
            .consumer
            .ack_head
            .store(self.ack_head, Ordering::Release);
        Ok(())
    }

    /// Goes idle: asks the producer to wake the consumer (`kern_flag`). `false`: do not sleep, something can
    /// be claimed, or the producer has closed the ring. When it is true, sleep until woken or, where
    /// messages have deadlines, as long as you like: an expired message costs nothing while nobody waits.
    #[must_use = "sleep only when it is true"]
    pub fn idle(&mut self) -> bool {
        let flag = &self.block.head().consumer.kern_flag;
        flag.store(1, Ordering::Relaxed);
        // Pairs with the fence in `Producer::notify`.
        fence(Ordering::SeqCst);
        let word = self.block.record(self.kern).state.load(Ordering::Relaxed);
        let something = matches!(
            state::state(self.block.shape, self.kern, word),
            Some(READY | DEAD | DONE)
        );
        if something || self.is_closed() {
            flag.store(0, Ordering::Relaxed);
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
        self.block
            .head()
            .consumer
            .closed
            .store(1, Ordering::Release);
    }

    /// What the record at `kern` says. Its length is checked: a message longer than the ring would lead
    /// us astray.
    #[inline]
    fn message(&self) -> Result<Claimed, Corrupt> {
        let record = self.block.record(self.kern);
        let len = record.len.load(Ordering::Relaxed);
        if len as usize > self.block.shape.max_message() {
            return Err(Corrupt);
        }
        Ok(Claimed {
            position: self.kern,
            len,
            priority: record.priority.load(Ordering::Relaxed),
            user_seq: record.user_seq.load(),
            deadline: record.deadline.load() as i64,
        })
    }

    /// Gives the next `pieces` slots back, the first of them last: until then its state says that the
    /// message is claimed, also to one who takes over from a consumer that died in between.
    #[inline]
    fn free(&mut self, pieces: u32) {
        let shape = self.block.shape;
        for piece in (0..pieces).rev() {
            let position = self.dev.wrapping_add(piece);
            let record = self.block.record(position);
            let mut word = state::word(shape, position.wrapping_add(shape.slots()), FREE);
            if state::is_acked(record.state.load(Ordering::Relaxed)) {
                word = state::with_ack(word);
            }
            record.state.store(word, Ordering::Release);
        }
        self.dev = self.dev.wrapping_add(pieces);
    }

    /// Sets the acknowledgement flag of a message that is claimed, or was the last one in its slot.
    fn mark_acked(&self, position: u32) {
        let shape = self.block.shape;
        let record = self.block.record(position);
        let word = record.state.load(Ordering::Relaxed);
        let gone = position.wrapping_add(shape.slots());
        if state::state(shape, position, word).is_some() {
            // Claimed: the slot is ours.
            record.state.store(state::with_ack(word), Ordering::Release);
        } else if state::state(shape, gone, word) == Some(FREE) {
            // Free: the producer may be taking it, then the news goes through the queue alone.
            let _ = record.state.compare_exchange(
                word,
                state::with_ack(word),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
        }
    }

    fn hint_kern(&self) {
        self.block
            .head()
            .consumer
            .kern_i
            .store(self.kern, Ordering::Relaxed);
    }
}

#[cfg(test)]
impl<K> Consumer<K> {
    /// The other side of `Producer::start_at`.
    pub(crate) fn start_at(&mut self, position: u32) {
        (self.kern, self.dev) = (position, position);
    }
}
