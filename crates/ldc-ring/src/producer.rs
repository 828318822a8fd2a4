//! The producer: sends, and changes its mind.

use core::fmt;

use crate::block::{Block, HAS_EXTRA};
use crate::index::{Entry, Index};
use crate::message::{Attributes, Changed, Sent};
use crate::place::{PayloadMut, Release};
use crate::shape::Shape;
use crate::state::{self, DEAD, HELD, READY};
use crate::sync::{Ordering, fence};

/// Why a message was not sent. Nothing was put into the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// Not enough free slots at the moment, as far as the consumer has told: try again when it has moved on,
    /// or drop something. [`Producer::free_slots`] looks more closely.
    Full,
    /// Longer than [`Shape::max_message`]: it will never fit.
    TooLong,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendError::Full => "not enough free slots in the ring",
            SendError::TooLong => "the message is longer than the ring",
        })
    }
}

impl core::error::Error for SendError {}

/// Why a message was not modified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModifyError {
    /// No message with this sequence number is in the ring: never sent, or gone long ago.
    Unknown,
    /// The consumer had claimed it already (or skipped it, its deadline past): it is as it was.
    TooLate,
    /// It was dropped.
    Dropped,
}

impl fmt::Display for ModifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ModifyError::Unknown => "no message with this sequence number is in the ring",
            ModifyError::TooLate => "the consumer has claimed the message already",
            ModifyError::Dropped => "the message was dropped",
        })
    }
}

impl core::error::Error for ModifyError {}

/// The side that sends. `K` keeps the memory alive, `I` is room for the index ([`Entry`] a slot).
///
/// # Invariants
///
/// `given <= (barrier, if any) <= user`, as positions; `user - given` is at most the number of slots. A message
/// begins at `given`, or it is `user`; the messages from there on are in `index`. While there is a barrier
/// below `user`, the message there is `HELD`, so the consumer, which takes them in order, can claim none
/// from there on: all of them belong to the producer.
pub struct Producer<K, I> {
    block: Block<K>,
    index: Index<I>,
    /// Just above the newest position sent (`user_i`).
    user: u32,
    /// All slots before this position were given back (`dev_i`, as far as it was looked at).
    given: u32,
    /// The oldest position held back (`umod_i`), while there is a hold-back.
    barrier: Option<u32>,
    ack_tail: u32,
}

impl<K, I: AsRef<[Entry]> + AsMut<[Entry]>> Producer<K, I> {
    pub(crate) fn over(block: Block<K>, index: I) -> Option<Self> {
        let index = Index::new(index, block.shape)?;
        Some(Self {
            block,
            index,
            user: 0,
            given: 0,
            barrier: None,
            ack_tail: 0,
        })
    }

    /// The ring's geometry.
    pub fn shape(&self) -> Shape {
        self.block.shape
    }

    /// Sends a message: copies it into the ring. It takes [`Shape::pieces`] slots, all of the same sequence
    /// number; either all of it is sent or nothing. Sequence numbers are the user's; they may
    /// repeat, and then [`Producer::drop`] means all of them.
    ///
    /// No system call and no barrier: call [`Producer::notify`] when it is time to wake an idle consumer,
    /// best once for many messages (thesis §4.2.4).
    ///
    /// During a hold-back the message is held back too.
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

    /// Sends a message of `len` bytes that `fill` writes in place. Bytes that it leaves out have any
    /// value that was there before. If `fill` panics nothing is sent.
    #[inline(always)]
    pub fn send_with(
        &mut self,
        user_seq: u64,
        len: usize,
        attributes: Attributes,
        fill: impl FnOnce(&mut PayloadMut<'_, K>),
    ) -> Result<(), SendError> {
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
        // A hold-back whose messages were all dropped has its barrier at the next one sent.
        let state = if self.barrier == Some(position) {
            HELD
        } else {
            READY
        };
        self.set(position, state);
        self.user = position.wrapping_add(pieces);
        let line = &self.block.head().producer;
        line.user_i.store(self.user, Ordering::Release);
        if self.barrier.is_none() {
            line.umod_i.store(self.user, Ordering::Relaxed);
        }
        self.index.put(user_seq, position, len as u32, attributes);
        Ok(())
    }

    /// Drops the messages with this sequence number that the consumer has not claimed (thesis §4.2.3,
    /// Figure 3.4). A message in several pieces is dropped as a whole, or, once it is claimed, not at
    /// all. Its slots are free again when the consumer has passed over them.
    ///
    /// A sequence number that was never sent, or whose messages have left the ring, gives zeros.
    #[inline]
    pub fn drop(&mut self, user_seq: u64) -> Changed {
        let mut outcome = Changed::default();
        let mut found = self.index.find(user_seq, self.user);
        while let Some(position) = self.index.next(&mut found) {
            if self.index.get(position).is_dead() {
                continue;
            }
            if self.kill(position) {
                outcome.changed += 1;
            } else if self.is_in_ring(position) {
                outcome.too_late += 1;
            }
        }
        outcome
    }

    /// Drops every message for which `keep` says no and that the consumer has not claimed. Looks at each
    /// message in the ring, oldest first.
    pub fn retain(&mut self, mut keep: impl FnMut(&Sent) -> bool) -> Changed {
        let mut outcome = Changed::default();
        self.look();
        let mut position = self.given;
        while position != self.user {
            let next = self.after(position);
            if !self.index.get(position).is_dead()
                && self.is_open(position)
                && !keep(&self.sent_at(position))
            {
                if self.kill(position) {
                    outcome.changed += 1;
                } else {
                    outcome.too_late += 1;
                }
            }
            position = next;
        }
        outcome
    }

    /// Changes the oldest message with this sequence number in place, while `change` runs (thesis §6.3). The
    /// consumer waits there meanwhile: be quick. Call [`Producer::notify`] afterwards.
    pub fn modify<R>(
        &mut self,
        user_seq: u64,
        change: impl FnOnce(&mut PayloadMut<'_, K>) -> R,
    ) -> Result<R, ModifyError> {
        let mut from = self.given;
        loop {
            let position = self.oldest_open(user_seq, from)?;
            if self.is_held(position) {
                return Ok(self.change(position, change));
            }
            if self.swap(position, READY, HELD) {
                // Also when `change` panics, the consumer goes on.
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

    /// The oldest message with this sequence number, not before `from`, that is not claimed; why there is none.
    fn oldest_open(&self, user_seq: u64, from: u32) -> Result<u32, ModifyError> {
        let mut found = self.index.find(user_seq, self.user);
        let mut oldest = Err(ModifyError::Unknown);
        while let Some(position) = self.index.next(&mut found) {
            if !self.is_before(position, from) && self.is_open(position) {
                oldest = Ok(position);
            } else if oldest == Err(ModifyError::Unknown) {
                oldest = Err(if self.index.get(position).is_dead() {
                    ModifyError::Dropped
                } else {
                    ModifyError::TooLate
                });
            }
        }
        oldest
    }

    /// Holds back the oldest message with this sequence number and all that were sent after it: moves
    /// `umod_i` back (Figure 3.5). What the consumer claimed meanwhile stays claimed (Figure 3.6): then the
    /// hold-back begins at the first message it has not. All messages held back belong to the producer
    /// until [`Producer::release`]; messages sent meanwhile are held back too.
    ///
    /// `changed` counts the messages now held back, dropped ones left out; `too_late` those asked for that are
    /// claimed and still in the ring. With nothing left to hold back, nothing is held back. A message that
    /// has left the ring stands for all that was sent after it, until its slots are used again.
    pub fn hold_back(&mut self, user_seq: u64) -> Changed {
        let mut found = self.index.find(user_seq, self.user);
        let mut oldest = None;
        while let Some(position) = self.index.next(&mut found) {
            oldest = Some(position);
        }
        oldest.map_or(Changed::default(), |position| self.hold_back_from(position))
    }

    /// Holds back all that the consumer has not claimed.
    pub fn hold_back_all(&mut self) -> Changed {
        let mut outcome = self.hold_back_from(self.given);
        outcome.too_late = 0;
        outcome
    }

    /// Ends the hold-back: all messages may be claimed. Call [`Producer::notify`] afterwards.
    pub fn release(&mut self) {
        if let Some(barrier) = self.barrier.take()
            && barrier != self.user
        {
            self.set(barrier, READY);
        }
        self.hint_umod();
    }

    /// Ends the hold-back for all messages sent before the oldest one with this sequence number that is
    /// held back. `false`: no such message is held back, and nothing has changed. Call
    /// [`Producer::notify`] afterwards.
    pub fn release_until(&mut self, user_seq: u64) -> bool {
        let mut found = self.index.find(user_seq, self.user);
        let mut target = None;
        while let Some(position) = self.index.next(&mut found) {
            if self.is_held(position) && !self.index.get(position).is_dead() {
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

    /// Whether the consumer is idle and wants to be woken, by whatever the two sides agreed on (`kern_flag`;
    /// `ldc_notify` of the thesis). Answers `true` once for each time the consumer went idle.
    #[must_use = "an idle consumer must be woken"]
    pub fn notify(&mut self) -> bool {
        // Pairs with the fence in `Consumer::idle`: either it sees what was sent, or we see its flag.
        fence(Ordering::SeqCst);
        let flag = &self.block.head().news.kern_flag;
        if flag.load(Ordering::Relaxed) == 0 {
            return false;
        }
        flag.store(0, Ordering::Relaxed);
        true
    }

    /// The next sequence number whose message was acknowledged, in the order of the acknowledgements; its slot
    /// may have been used again since.
    pub fn poll_ack(&mut self) -> Option<u64> {
        let head = self.block.head().news.ack_head.load(Ordering::Acquire);
        let waiting = head.wrapping_sub(self.ack_tail);
        // More than the queue holds: the peer writes nonsense, and gets no attention.
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

    /// Whether the newest message with this sequence number is acknowledged, as far as its slot still tells
    /// (`kern_acked`): `None` when it is not known any more, or was never sent.
    pub fn acked(&self, user_seq: u64) -> Option<bool> {
        let mut found = self.index.find(user_seq, self.user);
        let position = self.index.next(&mut found)?;
        let word = self.block.record(position).state.load(Ordering::Acquire);
        Some(state::state(position, word).is_some() && state::is_acked(word))
    }

    /// The messages whose fate is still open, oldest first. The consumer may claim some while you look.
    pub fn pending(&mut self) -> impl Iterator<Item = Sent> {
        self.look();
        let this = &*self;
        let mut position = self.given;
        core::iter::from_fn(move || {
            while position != this.user {
                let at = position;
                position = this.after(at);
                if !this.index.get(at).is_dead() && this.is_open(at) {
                    return Some(this.sent_at(at));
                }
            }
            None
        })
    }

    /// Slots that are free at the moment. It reads what the consumer writes with each message: to ask often
    /// slows it down.
    pub fn free_slots(&mut self) -> u32 {
        self.look();
        self.block.shape.slots() - self.user.wrapping_sub(self.given)
    }

    /// Whether there is a hold-back.
    pub fn is_holding_back(&self) -> bool {
        self.barrier.is_some()
    }

    /// Tells the consumer that no message will follow. What is held back stays held back. Call
    /// [`Producer::notify`] afterwards.
    pub fn close(&mut self) {
        self.block
            .head()
            .producer
            .closed
            .store(1, Ordering::Release);
    }

    /// Whether the consumer has closed the ring: nothing more will be claimed.
    pub fn is_closed(&self) -> bool {
        self.block.head().news.closed.load(Ordering::Acquire) != 0
    }

    /// The slots that a message takes; fails unless they are free.
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
            self.learn(self.block.head().news.told.load(Ordering::Acquire));
            if self.used(pieces) > shape.slots() {
                return Err(SendError::Full);
            }
        }
        Ok(pieces)
    }

    /// Slots in use, and `more`.
    #[inline]
    fn used(&self, more: u32) -> u32 {
        self.user.wrapping_add(more).wrapping_sub(self.given)
    }

    /// The consumer says that it has given back all slots before a position. It can only have moved on, not past
    /// what was sent, and to where a message begins; a peer that says otherwise gets no attention.
    fn learn(&mut self, given: u32) {
        if self.is_before(given, self.given) || given != self.user && !self.index.knows(given) {
            return;
        }
        self.given = given;
        // Only a peer that writes nonsense gives back what we hold back.
        if let Some(barrier) = self.barrier
            && self.is_before(barrier, given)
        {
            self.barrier = Some(given);
        }
    }

    /// Looks how much of the ring was given back, to the slot.
    fn look(&mut self) {
        self.learn(self.block.head().consumer.dev_i.load(Ordering::Acquire));
    }

    /// Whether a position is before another; neither is after `user`.
    #[inline]
    fn is_before(&self, position: u32, other: u32) -> bool {
        self.user.wrapping_sub(position) > self.user.wrapping_sub(other)
    }

    /// The position after the message at `position`; not past `user`.
    fn after(&self, position: u32) -> u32 {
        let len = self.index.get(position).len() as usize;
        let pieces = self.block.shape.pieces(len);
        position.wrapping_add(pieces.min(self.user.wrapping_sub(position)))
    }

    /// Whether the message's slots are still its own.
    fn is_in_ring(&mut self, position: u32) -> bool {
        self.look();
        !self.is_before(position, self.given)
    }

    /// Whether the consumer has not claimed the message.
    fn is_open(&self, position: u32) -> bool {
        let word = self.block.record(position).state.load(Ordering::Acquire);
        matches!(state::state(position, word), Some(READY | HELD))
    }

    /// Whether the message is behind the barrier, and so the producer's.
    fn is_held(&self, position: u32) -> bool {
        self.barrier
            .is_some_and(|barrier| !self.is_before(position, barrier))
    }

    fn sent_at(&self, position: u32) -> Sent {
        self.index.get(position).sent(self.is_held(position))
    }

    /// Sets the state of a slot that is the producer's.
    #[inline]
    fn set(&self, position: u32, state: u32) {
        let word = state::word(position, state);
        self.block
            .record(position)
            .state
            .store(word, Ordering::Release);
    }

    /// Takes a slot from one state to another, unless the consumer was quicker.
    #[inline]
    fn swap(&self, position: u32, from: u32, to: u32) -> bool {
        let (from, to) = (state::word(position, from), state::word(position, to));
        self.block
            .record(position)
            .state
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Marks a live message dead, unless it is claimed.
    fn kill(&mut self, position: u32) -> bool {
        if self.is_held(position) {
            if self.barrier == Some(position) {
                self.move_barrier(position);
            }
            self.set(position, DEAD);
        } else if !self.swap(position, READY, DEAD) {
            return false;
        }
        self.index.get_mut(position).set_dead();
        true
    }

    /// Moves the barrier from a message about to be dropped to the next live one.
    fn move_barrier(&mut self, position: u32) {
        let mut next = self.after(position);
        while next != self.user && self.index.get(next).is_dead() {
            next = self.after(next);
        }
        if next != self.user {
            self.set(next, HELD);
        }
        self.barrier = Some(next);
        self.hint_umod();
    }

    /// Puts the barrier at the first message from `position` on that the consumer has not claimed.
    fn hold_back_from(&mut self, mut position: u32) -> Changed {
        self.look();
        if self.is_before(position, self.given) {
            position = self.given;
        }
        let mut too_late = 0;
        while position != self.user && !self.is_held(position) {
            if !self.index.get(position).is_dead() {
                if self.swap(position, READY, HELD) {
                    if let Some(barrier) = self.barrier.replace(position)
                        && barrier != self.user
                    {
                        // Out of the consumer's reach, behind the new barrier.
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
            changed += u32::from(!self.index.get(position).is_dead());
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
    /// An empty ring as it is after `position` slots.
    pub(crate) fn start_at(&mut self, position: u32) {
        (self.user, self.given) = (position, position);
        self.index.clear(position);
        self.block
            .head()
            .producer
            .user_i
            .store(position, Ordering::Relaxed);
    }
}
