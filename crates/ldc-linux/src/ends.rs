//! The two ends of a ring in mapped memory: `ldc-ring` with sleeping, wake-ups and detection of dead peers.

#[cfg(not(loom))]
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use ldc_ring::{Attributes, Changed, Claimed, Corrupt, Shape};

use crate::error::{InitError, SendError, WaitError};
use crate::memory::{Consumer, Memory, Producer};
use crate::sync::{AtomicU32, Ordering, fence};
use crate::wake::WakeSocket;

/// The producer's end of a ring. Dropping it closes the ring; messages already sent still leave.
pub struct Sender {
    producer: Producer,
    memory: Memory,
    wake: WakeSocket,
}

/// The consumer's end of a ring: another process, or the drain of a socket. Dropping it closes the ring.
pub struct Receiver {
    consumer: Consumer,
    memory: Memory,
    wake: WakeSocket,
    /// Slots released since the sender requested room.
    freed: u32,
    /// The sender has closed the ring, and it was empty afterwards.
    ended: bool,
}

/// Why [`Receiver::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Messages may be available.
    Ready,
    /// The timeout expired.
    TimedOut,
    /// The sender closed the ring, and it is empty.
    Closed,
    /// The sender died without closing the ring, and it is empty.
    Gone,
}

/// Creates a ring. The receiver attaches later, at the other end of `wake`.
pub(crate) fn create(shape: Shape, wake: WakeSocket) -> Result<Sender, InitError> {
    let (memory, producer) = Memory::create(shape)?;
    Ok(Sender {
        producer,
        memory,
        wake,
    })
}

/// Creates a ring and returns both ends, for two threads.
pub(crate) fn pair(shape: Shape) -> Result<(Sender, Receiver), InitError> {
    let (ours, theirs) =
        WakeSocket::pair().map_err(InitError::io("cannot create a socket pair"))?;
    let sender = create(shape, ours)?;
    let receiver = attach(sender.memory.clone(), theirs)?;
    Ok((sender, receiver))
}

/// Attaches as receiver to the ring in `memory`.
pub(crate) fn attach(memory: Memory, wake: WakeSocket) -> Result<Receiver, InitError> {
    Ok(Receiver {
        consumer: memory.attach()?,
        memory,
        wake,
        freed: 0,
        ended: false,
    })
}

/// Returns the time left until `end`, `None` without an end.
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
    /// Returns the ring's geometry.
    pub fn shape(&self) -> Shape {
        self.producer.shape()
    }

    /// Copies a message into the ring, without a system call (`ldc_send`). Call [`Sender::notify`] afterwards,
    /// preferably once for many messages (LDC §4.2.4).
    ///
    /// # Errors
    /// Nothing was sent: [`SendError::Full`], [`SendError::TooLong`], or [`SendError::Closed`] for a closed ring that
    /// is full.
    #[inline]
    pub fn send(
        &mut self,
        user_seq: u64,
        bytes: &[u8],
        attributes: Attributes,
    ) -> Result<(), SendError> {
        let sent = self.producer.send(user_seq, bytes, attributes);
        sent.map_err(|error| self.send_error(error))
    }

    #[cold]
    fn send_error(&self, error: ldc_ring::SendError) -> SendError {
        match SendError::from(error) {
            SendError::Full if self.is_closed() => SendError::Closed,
            error => error,
        }
    }

    /// Sends a message, and waits for room if the ring is full, at most `timeout` (`None`: without limit). Wakes the
    /// receiver while it waits. During a hold-back use a timeout: messages held back never make room.
    ///
    /// # Errors
    /// Nothing was sent. [`SendError::Full`]: the timeout expired.
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

    /// Cancels the messages with this sequence number that are not claimed yet (`ldc_drop`). Returns how many were
    /// cancelled, and how many were already claimed and will leave.
    pub fn cancel(&mut self, user_seq: u64) -> Changed {
        self.producer.cancel(user_seq)
    }

    /// Wakes the receiver if it sleeps (`ldc_notify`), and returns whether it did. Makes no system call otherwise.
    pub fn notify(&mut self) -> bool {
        let asleep = self.producer.notify();
        if asleep {
            self.wake.wake();
        }
        asleep
    }

    /// As [`Sender::cancel`], and asks the receiver to stop delivering the messages that it has claimed: a drain into QUIC
    /// resets their streams, all other receivers ignore the request. Call [`Sender::notify`] afterwards.
    pub fn abandon(&mut self, user_seq: u64) -> Changed {
        self.producer.abandon(user_seq)
    }

    /// Returns the producer of the ring, for batches, modify, hold back, release, retain, pending and poll_ack. Call
    /// [`Sender::notify`] after a call that makes messages available.
    pub fn ring(&mut self) -> &mut Producer {
        &mut self.producer
    }

    /// Waits until `slots` slots are free, at most `timeout` (`None`: without limit).
    ///
    /// # Errors
    /// The timeout expired, or the receiver has closed the ring or died.
    pub fn wait_room(&mut self, slots: u32, timeout: Option<Duration>) -> Result<(), WaitError> {
        let end = timeout.map(|timeout| Instant::now() + timeout);
        while !self.request_room(slots)? {
            // A signal may end the wait early; the loop checks again.
            self.wake.wait(left(end)?);
            self.clear_wakeup()?;
        }
        Ok(())
    }

    /// Returns whether `slots` slots are free. If not, the receiver will wake this side when they are, or when it goes
    /// idle; it is woken for that.
    pub(crate) fn request_room(&mut self, slots: u32) -> Result<bool, WaitError> {
        let all = self.shape().slots();
        let slots = slots.clamp(1, all);
        for attempt in 0..2 {
            if self.producer.free_slots() >= slots {
                self.requested().store(0, Ordering::Relaxed);
                return Ok(true);
            }
            if self.is_closed() {
                return Err(WaitError::Closed);
            }
            if attempt == 0 {
                // At least half the ring, so that one wake-up serves many messages.
                self.requested()
                    .store(slots.max(all / 2), Ordering::Relaxed);
                // Pairs with the fence in `Receiver::freed`: either the receiver sees the request, or this side the
                // slots.
                fence(Ordering::SeqCst);
            }
        }
        self.notify();
        Ok(false)
    }

    /// Discards pending wake-ups; fails if the ring is closed or the receiver is gone.
    pub(crate) fn clear_wakeup(&mut self) -> Result<(), WaitError> {
        match (self.wake.clear(), self.is_closed()) {
            (_, true) => Err(WaitError::Closed),
            (false, false) => Err(WaitError::Gone),
            (true, false) => Ok(()),
        }
    }

    fn requested(&self) -> &AtomicU32 {
        self.memory.requested(self.producer.shape())
    }

    /// Returns whether the receiver has closed the ring, or the drain has ended.
    pub fn is_closed(&self) -> bool {
        self.producer.is_closed()
    }

    /// Returns whether the receiver's end of the wake socket is open and the ring is not closed. Makes one system call.
    pub fn is_attached(&self) -> bool {
        self.wake.is_open() && !self.is_closed()
    }

    /// Passes a ring whose receiver died to a new one, which is at the other end of `socket` and calls
    /// [`crate::shm::attach`]. Messages that were claimed and not completed are claimed again.
    ///
    /// # Errors
    /// [`InitError::InUse`] while the receiver lives, [`InitError::Closed`] if it closed the ring.
    #[cfg(not(loom))]
    pub fn pass(&mut self, socket: std::os::unix::net::UnixStream) -> Result<(), InitError> {
        if self.is_closed() {
            return Err(InitError::Closed);
        }
        if self.wake.is_open() {
            return Err(InitError::InUse);
        }
        crate::shm::offer(&self.memory, &socket)?;
        self.wake = WakeSocket::over(socket);
        Ok(())
    }

    #[cfg(not(loom))]
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Waits until the receiver has closed the ring, until `end` (`None`: without limit).
    #[cfg(not(loom))]
    pub(crate) fn wait_closed(&mut self, end: Option<Instant>) -> Result<(), WaitError> {
        while !self.is_closed() {
            self.wake.wait(left(end)?);
            self.clear_wakeup()?;
        }
        Ok(())
    }

    /// Closes the ring and wakes the receiver.
    pub(crate) fn close(&mut self) {
        self.producer.close();
        self.notify();
    }
}

#[cfg(not(loom))]
impl AsFd for Sender {
    /// Returns the descriptor that becomes readable when the receiver has freed the requested slots, closed the ring or
    /// died: for event loops, with [`Sender::wait_room`] and a timeout of zero.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.close();
    }
}

impl Receiver {
    /// Returns the ring's geometry.
    pub fn shape(&self) -> Shape {
        self.consumer.shape()
    }

    /// Claims the next message; skips cancelled ones and those whose deadline is before `now`. Returns `None` if the
    /// ring is empty or all its messages are held back.
    ///
    /// # Errors
    /// The sender violated the protocol: stop using the ring.
    #[inline]
    pub fn claim(&mut self, now: Option<crate::Instant>) -> Result<Option<Claimed>, Corrupt> {
        let claimed = self.consumer.claim(now)?;
        if claimed.is_some() || !self.consumer.is_closed() {
            return Ok(claimed);
        }
        // Messages sent before the ring was closed are visible now.
        let claimed = self.consumer.claim(now)?;
        self.ended = claimed.is_none();
        Ok(claimed)
    }

    /// Passes over cancelled messages, and wakes a sender that waits for room: for a drain that can claim nothing for
    /// now.
    ///
    /// # Errors
    /// The sender violated the protocol: stop using the ring.
    #[cfg(not(loom))]
    pub(crate) fn skip_cancelled(&mut self) -> Result<(), Corrupt> {
        if self.consumer.skip_cancelled()? == 0 {
            return Ok(());
        }
        // Pairs with the fence in `Sender::request_room`. The request may be for more slots than were freed, but none may
        // follow for a long time.
        fence(Ordering::SeqCst);
        if self.requested().load(Ordering::Relaxed) != 0 {
            self.wake_sender();
        }
        Ok(())
    }

    /// Releases a message, and wakes a sender that waits for room.
    pub fn complete(&mut self, message: Claimed) {
        let slots = self.shape().pieces(message.len());
        self.consumer.complete(message);
        self.freed(slots);
    }

    /// Releases a message without waking the sender; the caller passes the returned slots to [`Receiver::freed`].
    #[cfg(not(loom))]
    pub(crate) fn complete_silently(&mut self, message: Claimed) -> u32 {
        let slots = self.shape().pieces(message.len());
        self.consumer.complete(message);
        slots
    }

    /// Counts released slots, and wakes the sender once its request is met.
    pub(crate) fn freed(&mut self, slots: u32) {
        // Pairs with the fence in `Sender::request_room`.
        fence(Ordering::SeqCst);
        let requested = self.requested().load(Ordering::Relaxed);
        if requested == 0 {
            self.freed = 0;
            return;
        }
        self.freed = self.freed.saturating_add(slots);
        if self.freed >= requested {
            self.wake_sender();
        }
    }

    fn wake_sender(&mut self) {
        self.requested().store(0, Ordering::Relaxed);
        self.freed = 0;
        self.wake.wake();
    }

    fn requested(&self) -> &AtomicU32 {
        self.memory.requested(self.consumer.shape())
    }

    /// Returns the consumer of the ring, for read, chunks, ack and stats.
    pub fn ring(&mut self) -> &mut Consumer {
        &mut self.consumer
    }

    #[cfg(not(loom))]
    pub(crate) fn consumer(&self) -> &Consumer {
        &self.consumer
    }

    /// Sleeps until the sender notifies, at most `timeout` (`None`: without limit). Returns at once if a message can be
    /// claimed.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Wake {
        if !self.enter_idle() {
            return if self.ended {
                Wake::Closed
            } else {
                Wake::Ready
            };
        }
        if !self.wake.wait(timeout) {
            return Wake::TimedOut;
        }
        self.clear_wakeup()
    }

    /// Asks the sender for a wake-up, and wakes a sender that waits for room, because no more slots will be freed.
    /// Returns `false` if the receiver must not sleep.
    pub(crate) fn enter_idle(&mut self) -> bool {
        let idle = self.consumer.idle();
        if self.requested().load(Ordering::Relaxed) != 0 {
            self.wake_sender();
        }
        idle
    }

    /// Discards pending wake-ups, and returns why the idle state ended.
    pub(crate) fn clear_wakeup(&mut self) -> Wake {
        let alive = self.wake.clear();
        match (self.enter_idle(), alive) {
            (false, _) | (true, true) => Wake::Ready,
            (true, false) => Wake::Gone,
        }
    }

    /// Returns whether the sender has closed the ring and all messages were claimed, except those held back.
    pub fn is_ended(&self) -> bool {
        self.ended
    }
}

#[cfg(not(loom))]
impl AsFd for Receiver {
    /// Returns the descriptor that becomes readable when the sender has notified or died: for event loops, after
    /// [`Receiver::wait`] with a timeout of zero has returned [`Wake::TimedOut`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.consumer.close();
        // A waiting sender finds the ring closed.
        self.wake.wake();
    }
}
