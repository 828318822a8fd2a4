//! The producer: sends, cancels, modifies and holds back messages.

use core::fmt;

use crate::block::{Block, HAS_EXTRA};
use crate::error::{ModifyError, SendError};
use crate::index::{Entry, Index};
use crate::message::{Attributes, Changed, Sent};
use crate::payload_mut::{PayloadMut, Release};
use crate::shape::Shape;
use crate::state::{self, CANCELLED, HELD, READY};
use crate::sync::{Ordering, fence};

/// The side that sends. `K` keeps the memory alive, `I` is private memory for the index (one [`Entry`] per slot).
///
/// # Invariants
///
/// `free_until <= (barrier, if any) <= user`, as positions; `user - free_until` is at most the number of slots. A
/// message begins at `free_until`, or it equals `user`; all messages from there on are in `index`. While a barrier lies
/// before `user`, the message at the barrier is `HELD`. The consumer takes messages in order, so it can claim none from
/// the barrier on: the producer owns them all.
pub struct Producer<K, I> {
    block: Block<K>,
    pub(crate) index: Index<I>,
    /// One past the newest position sent (`user_i`, once it is published).
    user: u32,
    /// All slots before this position are free (`dev_i` when it was last read).
    free_until: u32,
    /// Oldest position held back (`umod_i`), during a hold-back.
    barrier: Option<u32>,
    ack_tail: u32,
}

/// Shows the positions, not the messages.
impl<K, I> fmt::Debug for Producer<K, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("user", &self.user)
            .field("free_until", &self.free_until)
            .field("barrier", &self.barrier)
            .field("ack_tail", &self.ack_tail)
            .finish_non_exhaustive()
    }
}

impl<K, I: AsRef<[Entry]> + AsMut<[Entry]>> Producer<K, I> {
    pub(crate) fn over(block: Block<K>, index: I) -> Option<Self> {
        let index = Index::new(index, block.shape)?;
        Some(Self {
            block,
            index,
            user: 0,
            free_until: 0,
            barrier: None,
            ack_tail: 0,
        })
    }

    /// Returns the ring's geometry.
    pub fn shape(&self) -> Shape {
        self.block.shape
    }

    /// Copies a message into the ring. It takes [`Shape::pieces`] slots; either all of it is sent or none. The user
    /// chooses sequence numbers; if several messages share one, [`Producer::cancel`] applies to all of them.
    ///
    /// Makes no system call and issues no memory barrier. Call [`Producer::notify`] to wake an idle consumer,
    /// preferably once for many messages (LDC §4.2.4).
    ///
    /// During a hold-back the message is held back too.
    ///
    /// # Errors
    ///
    /// Nothing was sent: too few slots are free, or the message is longer than the ring.
    #[inline(always)]
    pub fn send(
        &mut self,
        user_seq: u64,
        bytes: &[u8],
        attributes: Attributes,
    ) -> Result<(), SendError> {
        self.send_with(user_seq, bytes.len(), attributes, |payload| {
            payload.write(0, bytes);
        })
    }

    /// Sends a message of `len` bytes that `fill` writes in place. Bytes that `fill` does not write have unspecified
    /// values. If `fill` panics, nothing is sent.
    ///
    /// # Errors
    ///
    /// As [`Producer::send`].
    #[inline(always)]
    pub fn send_with(
        &mut self,
        user_seq: u64,
        len: usize,
        attributes: Attributes,
        fill: impl FnOnce(&mut PayloadMut<'_, K>),
    ) -> Result<(), SendError> {
        let position = self.append(user_seq, len, attributes, fill)?;
        self.publish();
        // After the message, for which the consumer may be waiting.
        self.index.put(user_seq, position, len as u32, attributes);
        Ok(())
    }

    /// Writes the next message and its record, which [`Producer::publish`] shows to the consumer. Returns its position,
    /// for the index.
    #[inline(always)]
    pub(crate) fn append(
        &mut self,
        user_seq: u64,
        len: usize,
        attributes: Attributes,
        fill: impl FnOnce(&mut PayloadMut<'_, K>),
    ) -> Result<u32, SendError> {
        let pieces = self.room_for(len)?;
        let position = self.user;
        fill(&mut PayloadMut::new(&self.block, position, len));
        let record = self.block.record(position);
        record.user_seq.store(user_seq);
        let mut word = len as u32;
        if !attributes.is_default() {
            word |= HAS_EXTRA;
            self.block.set_extra(position, attributes);
        }
        record.len.store(word, Ordering::Relaxed);
        // After all its messages were cancelled, a hold-back has its barrier at the next message sent.
        let state = if self.barrier == Some(position) {
            HELD
        } else {
            READY
        };
        self.set(position, state);
        self.user = position.wrapping_add(pieces);
        Ok(position)
    }

    /// Makes all messages visible to the consumer.
    #[inline]
    pub(crate) fn publish(&self) {
        let line = &self.block.head().producer;
        line.user_i.store(self.user, Ordering::Release);
        if self.barrier.is_none() {
            line.umod_i.store(self.user, Ordering::Relaxed);
        }
    }

    /// Cancels the messages with this sequence number that the consumer has not claimed (LDC §4.2.3, Figure 3.4). A
    /// message of several slots is cancelled as a whole, or not at all once it is claimed. Its slots become free when
    /// the consumer passes over them.
    ///
    /// Returns zeros for a sequence number that was never sent or whose messages have left the ring.
    #[inline]
    pub fn cancel(&mut self, user_seq: u64) -> Changed {
        self.cancel_or(user_seq, |_, _| ())
    }

    /// As [`Producer::cancel`]; calls `late` with the position of each claimed message.
    pub(crate) fn cancel_or(&mut self, user_seq: u64, late: impl Fn(&Self, u32)) -> Changed {
        let mut outcome = Changed::default();
        let mut found = self.index.find(user_seq, self.user);
        while let Some(position) = self.index.next(&mut found) {
            if self.index.get(position).is_cancelled() {
                continue;
            }
            if self.try_cancel(position) {
                outcome.changed += 1;
            } else if self.is_in_ring(position) {
                late(self, position);
                outcome.too_late += 1;
            }
        }
        outcome
    }

    /// Cancels each message that the consumer has not claimed and for which `keep` returns `false`. Visits all messages
    /// in the ring, oldest first.
    pub fn retain(&mut self, mut keep: impl FnMut(&Sent) -> bool) -> Changed {
        let mut outcome = Changed::default();
        self.refresh();
        let mut position = self.free_until;
        while position != self.user {
            let next = self.after(position);
            if !self.index.get(position).is_cancelled()
                && self.is_open(position)
                && !keep(&self.sent_at(position))
            {
                if self.try_cancel(position) {
                    outcome.changed += 1;
                } else {
                    outcome.too_late += 1;
                }
            }
            position = next;
        }
        outcome
    }

    /// Runs `change` on the oldest unclaimed message with this sequence number, in place (LDC §6.3). The consumer
    /// cannot pass the message meanwhile, so `change` should be short. Call [`Producer::notify`] afterwards.
    ///
    /// # Errors
    ///
    /// No such message, or it is claimed or cancelled.
    pub fn modify<R>(
        &mut self,
        user_seq: u64,
        change: impl FnOnce(&mut PayloadMut<'_, K>) -> R,
    ) -> Result<R, ModifyError> {
        let mut from = self.free_until;
        loop {
            let position = self.oldest_open(user_seq, from)?;
            if self.is_held(position) {
                return Ok(self.change(position, change));
            }
            if self.swap(position, READY, HELD) {
                // Releases the message even if `change` panics.
                let release = Release::new(&self.block, position);
                let (result, len) = PayloadMut::run(
                    &self.block,
                    position,
                    self.index.get(position).len(),
                    change,
                );
                drop(release);
                self.index.get_mut(position).set_len(len);
                return Ok(result);
            }
            // Claimed meanwhile.
            from = position.wrapping_add(1);
        }
    }

    /// Returns the position of the oldest unclaimed message with this sequence number, from `from` on, or why there is
    /// none.
    fn oldest_open(&self, user_seq: u64, from: u32) -> Result<u32, ModifyError> {
        let mut found = self.index.find(user_seq, self.user);
        let mut oldest = Err(ModifyError::Unknown);
        while let Some(position) = self.index.next(&mut found) {
            if !self.is_before(position, from) && self.is_open(position) {
                oldest = Ok(position);
            } else if oldest == Err(ModifyError::Unknown) {
                oldest = Err(if self.index.get(position).is_cancelled() {
                    ModifyError::Cancelled
                } else {
                    ModifyError::TooLate
                });
            }
        }
        oldest
    }

    /// Holds back the oldest message with this sequence number and all messages sent after it, by moving `umod_i` back
    /// (Figure 3.5). Messages that the consumer claims first stay claimed (Figure 3.6), and the hold-back begins at the
    /// first unclaimed one. The producer owns all messages held back until [`Producer::release`]; messages sent in the
    /// meantime are held back too.
    ///
    /// In the result, `changed` counts the messages now held back, without cancelled ones, and `too_late` the requested
    /// ones that are claimed and still in the ring. If no message can be held back, no hold-back begins. A message that
    /// has left the ring can still be named until its slots are reused: all messages sent after it are held back.
    pub fn hold_back(&mut self, user_seq: u64) -> Changed {
        let mut found = self.index.find(user_seq, self.user);
        let mut oldest = None;
        while let Some(position) = self.index.next(&mut found) {
            oldest = Some(position);
        }
        oldest.map_or(Changed::default(), |position| self.hold_back_from(position))
    }

    /// Holds back all unclaimed messages.
    pub fn hold_back_all(&mut self) -> Changed {
        let mut outcome = self.hold_back_from(self.free_until);
        outcome.too_late = 0;
        outcome
    }

    /// Ends the hold-back, so that all messages can be claimed. Call [`Producer::notify`] afterwards.
    pub fn release(&mut self) {
        if let Some(barrier) = self.barrier.take()
            && barrier != self.user
        {
            self.set(barrier, READY);
        }
        self.hint_umod();
    }

    /// Ends the hold-back for all messages sent before the oldest held one with this sequence number. Returns `false`
    /// and changes nothing if no such message is held back. Call [`Producer::notify`] afterwards.
    pub fn release_until(&mut self, user_seq: u64) -> bool {
        let mut found = self.index.find(user_seq, self.user);
        let mut target = None;
        while let Some(position) = self.index.next(&mut found) {
            if self.is_held(position) && !self.index.get(position).is_cancelled() {
                target = Some(position);
            }
        }
        let (Some(target), Some(barrier)) = (target, self.barrier) else {
            return false;
        };
        if barrier != target {
            self.set(target, HELD);
            self.set(barrier, READY);
            self.barrier = Some(target);
            self.hint_umod();
        }
        true
    }

    /// Returns whether the consumer is idle and must be woken (`kern_flag`; `ldc_notify` in the thesis): `true` once
    /// for each time that the consumer went idle.
    #[must_use = "an idle consumer must be woken"]
    pub fn notify(&mut self) -> bool {
        // Pairs with the fence in `Consumer::idle`: either the consumer sees the messages, or the producer its flag.
        fence(Ordering::SeqCst);
        let flag = &self.block.head().signals.kern_flag;
        if flag.load(Ordering::Relaxed) == 0 {
            return false;
        }
        flag.store(0, Ordering::Relaxed);
        true
    }

    /// Returns the sequence number of the next acknowledged message, in the order of the acknowledgements. The slots of
    /// the message may have been reused.
    pub fn poll_ack(&mut self) -> Option<u64> {
        let head = self.block.head().signals.ack_head.load(Ordering::Acquire);
        let waiting = head.wrapping_sub(self.ack_tail);
        // More than the queue holds: the peer is faulty, and its value is ignored.
        if waiting == 0 || waiting > self.block.shape.slots() {
            return None;
        }
        let user_seq = self.block.ack(self.ack_tail).load();
        self.ack_tail = self.ack_tail.wrapping_add(1);
        self.block
            .head()
            .producer
            .ack_tail
            .store(self.ack_tail, Ordering::Release);
        Some(user_seq)
    }

    /// Returns whether the newest message with this sequence number is acknowledged (`kern_acked`), or `None` if it is
    /// unknown.
    pub fn acked(&self, user_seq: u64) -> Option<bool> {
        let mut found = self.index.find(user_seq, self.user);
        let position = self.index.next(&mut found)?;
        let word = self.block.record(position).state.load(Ordering::Acquire);
        Some(state::state(position, word).is_some() && state::is_acked(word))
    }

    /// Returns the unclaimed messages, oldest first. The consumer may claim some during the iteration.
    pub fn pending(&mut self) -> impl Iterator<Item = Sent> {
        self.refresh();
        let this = &*self;
        let mut position = self.free_until;
        core::iter::from_fn(move || {
            while position != this.user {
                let at = position;
                position = this.after(at);
                if !this.index.get(at).is_cancelled() && this.is_open(at) {
                    return Some(this.sent_at(at));
                }
            }
            None
        })
    }

    /// Returns the number of free slots. Reads a cache line that the consumer writes with each message, so frequent
    /// calls slow the consumer down.
    pub fn free_slots(&mut self) -> u32 {
        self.refresh();
        self.block.shape.slots() - self.user.wrapping_sub(self.free_until)
    }

    /// Returns whether messages are held back.
    pub fn is_holding_back(&self) -> bool {
        self.barrier.is_some()
    }

    /// Tells the consumer that no message will follow. Messages held back stay held back. Call [`Producer::notify`]
    /// afterwards.
    pub fn close(&mut self) {
        self.block
            .head()
            .producer
            .closed
            .store(1, Ordering::Release);
    }

    /// Returns whether the consumer has closed the ring and will claim no more messages.
    pub fn is_closed(&self) -> bool {
        self.block.head().signals.closed.load(Ordering::Acquire) != 0
    }

    /// Returns the number of slots that a message takes; fails unless they are free.
    #[inline]
    fn room_for(&mut self, len: usize) -> Result<u32, SendError> {
        let shape = self.block.shape;
        if len <= shape.slot_bytes() as usize && self.used(1) <= shape.slots() {
            return Ok(1);
        }
        self.make_room(len)
    }

    #[cold]
    #[inline(never)]
    fn make_room(&mut self, len: usize) -> Result<u32, SendError> {
        let shape = self.block.shape;
        if len > shape.max_message() {
            return Err(SendError::TooLong);
        }
        let pieces = shape.pieces(len);
        if self.used(pieces) > shape.slots() {
            let reported = self.block.head().signals.free_until.load(Ordering::Acquire);
            self.set_free_until(reported);
            if self.used(pieces) > shape.slots() {
                return Err(SendError::Full);
            }
        }
        Ok(pieces)
    }

    /// Returns the number of slots in use plus `more`.
    #[inline]
    fn used(&self, more: u32) -> u32 {
        self.user.wrapping_add(more).wrapping_sub(self.free_until)
    }

    /// Accepts the consumer's statement that all slots before a position are free. The position can only advance, not
    /// beyond what was sent, and to the beginning of a message; other values of a faulty peer are ignored.
    fn set_free_until(&mut self, position: u32) {
        if self.is_before(position, self.free_until)
            || position != self.user && !self.index.knows(position)
        {
            return;
        }
        self.free_until = position;
        // Only a faulty peer releases messages that are held back.
        if let Some(barrier) = self.barrier
            && self.is_before(barrier, position)
        {
            self.barrier = Some(position);
        }
    }

    /// Reads `dev_i`, so that `free_until` is exact.
    fn refresh(&mut self) {
        self.set_free_until(self.block.head().consumer.dev_i.load(Ordering::Acquire));
    }

    /// Returns whether a position is before another; neither is after `user`.
    #[inline]
    fn is_before(&self, position: u32, other: u32) -> bool {
        self.user.wrapping_sub(position) > self.user.wrapping_sub(other)
    }

    /// Returns the position after the message at `position`, at most `user`.
    fn after(&self, position: u32) -> u32 {
        let len = self.index.get(position).len() as usize;
        let pieces = self.block.shape.pieces(len);
        position.wrapping_add(pieces.min(self.user.wrapping_sub(position)))
    }

    /// Returns whether the message's slots have not been released.
    fn is_in_ring(&mut self, position: u32) -> bool {
        self.refresh();
        !self.is_before(position, self.free_until)
    }

    /// Returns whether the message is neither claimed nor cancelled.
    fn is_open(&self, position: u32) -> bool {
        let word = self.block.record(position).state.load(Ordering::Acquire);
        matches!(state::state(position, word), Some(READY | HELD))
    }

    /// Returns whether the message is held back.
    fn is_held(&self, position: u32) -> bool {
        self.barrier
            .is_some_and(|barrier| !self.is_before(position, barrier))
    }

    fn sent_at(&self, position: u32) -> Sent {
        self.index.get(position).sent(self.is_held(position))
    }

    /// Sets the state of a slot that the producer owns.
    #[inline]
    fn set(&self, position: u32, state: u32) {
        let word = state::word(position, state);
        self.block
            .record(position)
            .state
            .store(word, Ordering::Release);
    }

    /// Changes the state of a slot, unless the consumer has changed it first.
    #[inline]
    pub(crate) fn swap(&self, position: u32, from: u32, to: u32) -> bool {
        let (from, to) = (state::word(position, from), state::word(position, to));
        self.block
            .record(position)
            .state
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Cancels a message unless it is claimed.
    fn try_cancel(&mut self, position: u32) -> bool {
        if self.is_held(position) {
            if self.barrier == Some(position) {
                self.move_barrier(position);
            }
            self.set(position, CANCELLED);
        } else if !self.swap(position, READY, CANCELLED) {
            return false;
        }
        self.index.get_mut(position).set_cancelled();
        true
    }

    /// Moves the barrier from a message about to be cancelled to the next one that is not cancelled.
    fn move_barrier(&mut self, position: u32) {
        let mut next = self.after(position);
        while next != self.user && self.index.get(next).is_cancelled() {
            next = self.after(next);
        }
        if next != self.user {
            self.set(next, HELD);
        }
        self.barrier = Some(next);
        self.hint_umod();
    }

    /// Sets the barrier at the first unclaimed message from `position` on.
    fn hold_back_from(&mut self, mut position: u32) -> Changed {
        self.refresh();
        if self.is_before(position, self.free_until) {
            position = self.free_until;
        }
        let mut too_late = 0;
        while position != self.user && !self.is_held(position) {
            if !self.index.get(position).is_cancelled() {
                if self.swap(position, READY, HELD) {
                    if let Some(barrier) = self.barrier.replace(position)
                        && barrier != self.user
                    {
                        // After the new barrier, the consumer cannot claim it.
                        self.set(barrier, READY);
                    }
                    self.hint_umod();
                    break;
                }
                too_late += 1;
            }
            position = self.after(position);
        }
        let mut changed = 0;
        while position != self.user {
            changed += u32::from(!self.index.get(position).is_cancelled());
            position = self.after(position);
        }
        Changed { changed, too_late }
    }

    fn hint_umod(&self) {
        let umod = self.barrier.unwrap_or(self.user);
        self.block
            .head()
            .producer
            .umod_i
            .store(umod, Ordering::Relaxed);
    }

    fn change<R>(&mut self, position: u32, change: impl FnOnce(&mut PayloadMut<'_, K>) -> R) -> R {
        let (result, len) = PayloadMut::run(
            &self.block,
            position,
            self.index.get(position).len(),
            change,
        );
        self.index.get_mut(position).set_len(len);
        result
    }
}

#[cfg(test)]
impl<K, I: AsRef<[Entry]> + AsMut<[Entry]>> Producer<K, I> {
    /// Sets an empty ring to the state after `position` slots.
    pub(crate) fn start_at(&mut self, position: u32) {
        (self.user, self.free_until) = (position, position);
        self.index.clear(position);
        self.block
            .head()
            .producer
            .user_i
            .store(position, Ordering::Relaxed);
    }
}
