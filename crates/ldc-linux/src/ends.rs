//! The two ends of a ring in mapped memory: what `ldc-ring` has, and sleeping, waking, noticing death.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

use ldc_ring::{Attributes, Changed, Claimed, Consumer, Corrupt, Entry, Producer, Shape};
use linux_net::poll::{Watch, wait};

use crate::bell::Bell;
use crate::error::{InitError, SendError, WaitError};
use crate::memory::Memory;

/// The end that sends, and changes its mind. Dropping it closes the ring: what was sent still leaves.
pub struct Sender {
    producer: Producer<Memory, Box<[Entry]>>,
    memory: Memory,
    bell: Bell,
}

/// The end that takes messages out: another process, or the drain of a socket. Dropping it closes the
/// ring: nothing more will be taken.
pub struct Receiver {
    consumer: Consumer<Memory, Box<[u32]>>,
    memory: Memory,
    bell: Bell,
    /// Slots given back since the sender said how many it wants.
    freed: u32,
    /// The sender has closed the ring, and after that there was nothing to claim.
    ended: bool,
}

/// Why a receiver's sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Look: there may be messages.
    Ready,
    /// The time is over.
    TimedOut,
    /// The sender closed the ring, and it is empty.
    Closed,
    /// The sender died without a word, and there is nothing more to claim.
    Gone,
}

/// Makes a ring; the receiver's end is attached later, over the bell's other end.
pub(crate) fn create(shape: Shape, bell: Bell) -> Result<Sender, InitError> {
    let memory = Memory::create(shape)?;
    let index = vec![Entry::EMPTY; shape.slots() as usize].into_boxed_slice();
    let (at, len) = (memory.at(), memory.ring_len());
    // SAFETY: mapped for as long as the clone of `memory` that the producer keeps, aligned to a page, new,
    // and only the rings of this module reach into it, by copies.
    let made = unsafe { Producer::create(at, len, shape, memory.clone(), index) };
    let producer = made.map_err(InitError::Ring)?;
    Ok(Sender {
        producer,
        memory,
        bell,
    })
}

/// Both ends of a ring, for two threads.
pub(crate) fn pair(shape: Shape) -> Result<(Sender, Receiver), InitError> {
    let (ours, theirs) = Bell::pair().map_err(InitError::io("a socket pair"))?;
    let sender = create(shape, ours)?;
    let receiver = attach(sender.memory.clone(), theirs)?;
    Ok((sender, receiver))
}

/// The receiver's end of a ring in this memory.
pub(crate) fn attach(memory: Memory, bell: Bell) -> Result<Receiver, InitError> {
    let words = Shape::completed_words_within(memory.ring_len());
    let completed = vec![0; words].into_boxed_slice();
    // SAFETY: mapped for as long as the clone of `memory` that the consumer keeps, and sealed, so the
    // mapping never faults. That there is no other consumer: who passes the memory on promises it,
    // and a second one could only take messages from the first.
    let made =
        unsafe { Consumer::attach(memory.at(), memory.ring_len(), memory.clone(), completed) };
    let consumer = made.map_err(InitError::Ring)?;
    Ok(Receiver {
        consumer,
        memory,
        bell,
        freed: 0,
        ended: false,
    })
}

/// The time that is left until `end`; `None` for ever, an error when it is over.
fn left(end: Option<Instant>) -> Result<Option<Duration>, WaitError> {
    let Some(end) = end else { return Ok(None) };
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(WaitError::TimedOut)
    } else {
        Ok(Some(left))
    }
}

impl Sender {
    /// The ring's geometry.
    pub fn shape(&self) -> Shape {
        self.producer.shape()
    }

    /// Sends a message: copies it into the ring, no system call (`ldc_send`). Call [`Sender::notify`]
    /// when it is time to start, best once for many messages (thesis §4.2.4).
    ///
    /// # Errors
    /// Nothing was sent: [`SendError::Full`], [`SendError::TooLong`], and, once the ring is full,
    /// [`SendError::Closed`].
    #[inline]
    pub fn send(
        &mut self,
        user_seq: u64,
        bytes: &[u8],
        attributes: Attributes,
    ) -> Result<(), SendError> {
        let sent = self.producer.send(user_seq, bytes, attributes);
        sent.map_err(|error| self.refused(error))
    }

    #[cold]
    fn refused(&self, error: ldc_ring::SendError) -> SendError {
        match SendError::from(error) {
            SendError::Full if self.is_closed() => SendError::Closed,
            error => error,
        }
    }

    /// Sends a message; when the ring is full, waits until there is room, at most `timeout` (`None`: as
    /// long as it takes). Wakes the receiver while it waits. With a hold-back, give a time: what is held back
    /// never makes room.
    ///
    /// # Errors
    /// Nothing was sent. [`SendError::Full`]: the time is over.
    pub fn send_wait(
        &mut self,
        user_seq: u64,
        bytes: &[u8],
        attributes: Attributes,
        timeout: Option<Duration>,
    ) -> Result<(), SendError> {
        let end = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            match self.send(user_seq, bytes, attributes) {
                Err(SendError::Full) => {}
                done => return done,
            }
            let slots = self.shape().pieces(bytes.len());
            let left = left(end).map_err(|_| SendError::Full)?;
            self.wait_room(slots, left).map_err(|error| match error {
                WaitError::TimedOut => SendError::Full,
                WaitError::Closed => SendError::Closed,
                WaitError::Gone => SendError::Gone,
            })?;
        }
    }

    /// Drops the messages with this sequence number that are still in the ring (`ldc_drop`). What was
    /// claimed leaves; the answer says how many of each.
    pub fn drop(&mut self, user_seq: u64) -> Changed {
        self.producer.drop(user_seq)
    }

    /// Wakes the receiver if it sleeps (`ldc_notify`); answers whether it did. Costs no system call when
    /// it does not sleep.
    pub fn notify(&mut self) -> bool {
        let asleep = self.producer.notify();
        if asleep {
            self.bell.ring();
        }
        asleep
    }

    /// All else that a ring can do: modify, hold back, release, retain, pending, poll_ack. Call
    /// [`Sender::notify`] after what lets messages go.
    pub fn ring(&mut self) -> &mut Producer<Memory, Box<[Entry]>> {
        &mut self.producer
    }

    /// Waits until so many slots are free, at most `timeout` (`None`: as long as it takes).
    ///
    /// # Errors
    /// When the time is over or nobody takes messages any more.
    pub fn wait_room(&mut self, slots: u32, timeout: Option<Duration>) -> Result<(), WaitError> {
        let end = timeout.map(|timeout| Instant::now() + timeout);
        while !self.ask_room(slots)? {
            let left = left(end)?;
            let mut set = [Watch::readable(self.bell.as_fd())];
            // A signal ends it early, which only makes us look again.
            let _ = wait(&mut set, left);
            self.rang()?;
        }
        Ok(())
    }

    /// Whether so many slots are free. If not, the receiver will ring the bell when they are, or when it
    /// has nothing more to do; it is woken for that.
    pub(crate) fn ask_room(&mut self, slots: u32) -> Result<bool, WaitError> {
        let all = self.shape().slots();
        let slots = slots.clamp(1, all);
        for look in 0..2 {
            if self.producer.free_slots() >= slots {
                self.wanted().store(0, Ordering::Relaxed);
                return Ok(true);
            }
            if self.is_closed() {
                return Err(WaitError::Closed);
            }
            if look == 0 {
                // Half the ring at least, so that one wake-up pays for many messages.
                self.wanted().store(slots.max(all / 2), Ordering::Relaxed);
                // Pairs with the one in `Receiver::freed`: it sees what we want, or we what it freed.
                fence(Ordering::SeqCst);
            }
        }
        self.notify();
        Ok(false)
    }

    /// The bell may have rung.
    pub(crate) fn rang(&mut self) -> Result<(), WaitError> {
        match (self.bell.clear(), self.is_closed()) {
            (_, true) => Err(WaitError::Closed),
            (false, false) => Err(WaitError::Gone),
            (true, false) => Ok(()),
        }
    }

    fn wanted(&self) -> &AtomicU32 {
        self.memory.wanted(self.producer.shape())
    }

    /// Whether the receiver has closed the ring, or the drain has ended.
    pub fn is_closed(&self) -> bool {
        self.producer.is_closed()
    }

    /// Whether the receiver is there, as far as the system knows: one system call.
    pub fn is_attached(&self) -> bool {
        self.bell.clear() && !self.is_closed()
    }

    /// Gives a ring whose receiver died to another one, which is at the other end of `socket` and calls
    /// [`crate::shm::attach`]. It goes on where that one was: what was claimed and not completed is
    /// claimed again.
    ///
    /// # Errors
    /// [`InitError::InUse`] while the receiver lives, [`InitError::Closed`] when it closed the ring.
    pub fn pass(&mut self, socket: std::os::unix::net::UnixStream) -> Result<(), InitError> {
        if self.is_closed() {
            return Err(InitError::Closed);
        }
        if self.bell.clear() {
            return Err(InitError::InUse);
        }
        crate::shm::offer(&self.memory, &socket)?;
        self.bell = Bell::over(socket);
        Ok(())
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Says that nothing more comes, and lets the receiver know.
    pub(crate) fn close(&mut self) {
        self.producer.close();
        self.notify();
    }
}

impl AsFd for Sender {
    /// Readable when the receiver has made the room that was waited for, closed the ring or died: for
    /// event loops, together with [`Sender::wait_room`] and a time of zero.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.close();
    }
}

impl Receiver {
    /// The ring's geometry.
    pub fn shape(&self) -> Shape {
        self.consumer.shape()
    }

    /// Claims the next message, past those dropped and those whose deadline is before `now`. `None`:
    /// nothing there, or all of it is held back.
    ///
    /// # Errors
    /// The sender wrote nonsense: give the ring up.
    #[inline]
    pub fn claim(&mut self, now: Option<crate::Instant>) -> Result<Option<Claimed>, Corrupt> {
        let claimed = self.consumer.claim(now)?;
        if claimed.is_some() || !self.consumer.is_closed() {
            return Ok(claimed);
        }
        // What was sent before the ring was closed can be seen now.
        let claimed = self.consumer.claim(now)?;
        self.ended = claimed.is_none();
        Ok(claimed)
    }

    /// Gives a message back, and wakes a sender that waits for its room.
    pub fn complete(&mut self, message: Claimed) {
        let slots = self.shape().pieces(message.len());
        self.consumer.complete(message);
        self.freed(slots);
    }

    /// As [`Receiver::complete`], without a look at who waits: [`Receiver::freed`] follows.
    pub(crate) fn complete_silently(&mut self, message: Claimed) -> u32 {
        let slots = self.shape().pieces(message.len());
        self.consumer.complete(message);
        slots
    }

    /// So many slots were given back.
    pub(crate) fn freed(&mut self, slots: u32) {
        // Pairs with the one in `Sender::ask_room`.
        fence(Ordering::SeqCst);
        let wanted = self.wanted().load(Ordering::Relaxed);
        if wanted == 0 {
            self.freed = 0;
            return;
        }
        self.freed = self.freed.saturating_add(slots);
        if self.freed >= wanted {
            self.wake_sender();
        }
    }

    fn wake_sender(&mut self) {
        self.wanted().store(0, Ordering::Relaxed);
        self.freed = 0;
        self.bell.ring();
    }

    fn wanted(&self) -> &AtomicU32 {
        self.memory.wanted(self.consumer.shape())
    }

    /// All else that the receiving side of a ring can do: read, chunks, ack, stats.
    pub fn ring(&mut self) -> &mut Consumer<Memory, Box<[u32]>> {
        &mut self.consumer
    }

    /// Sleeps until the sender notifies, at most `timeout` (`None`: as long as it takes). Does not sleep
    /// when there is something to claim.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Wake {
        if !self.go_idle() {
            return if self.ended {
                Wake::Closed
            } else {
                Wake::Ready
            };
        }
        let mut set = [Watch::readable(self.bell.as_fd())];
        if !matches!(wait(&mut set, timeout), Ok(1..)) {
            return Wake::TimedOut;
        }
        self.rang()
    }

    /// Asks to be woken, and wakes a sender that waits for room: there is nothing more to free. `false`:
    /// do not sleep.
    pub(crate) fn go_idle(&mut self) -> bool {
        let idle = self.consumer.idle();
        if self.wanted().load(Ordering::Relaxed) != 0 {
            self.wake_sender();
        }
        idle
    }

    /// The bell has rung while we were idle.
    pub(crate) fn rang(&mut self) -> Wake {
        let alive = self.bell.clear();
        match (self.go_idle(), alive) {
            (false, _) | (true, true) => Wake::Ready,
            (true, false) => Wake::Gone,
        }
    }

    /// Whether the sender has closed the ring and all of it was claimed; what it held back stays.
    pub fn is_ended(&self) -> bool {
        self.ended
    }
}

impl AsFd for Receiver {
    /// Readable when the sender has notified or died: for event loops, after [`Receiver::wait`] with a
    /// time of zero has answered [`Wake::TimedOut`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.consumer.close();
        // A sender that waits looks, and finds it closed.
        self.bell.ring();
    }
}
