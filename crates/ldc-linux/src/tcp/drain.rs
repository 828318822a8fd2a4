//! The drain of one socket as a machine: a step, then what to wait for.

use std::collections::VecDeque;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use ldc_ring::{AckQueueFull, Ticket};
use linux_net::poll::{self, Watch};

use super::{Config, Ended, Error, Stats};
use crate::error::InitError;
use crate::rings::{Freed, Rings, Taken};
use crate::sys::{self, BATCH, TcpInfo};
use crate::{Wake, now};

/// Maximum number of messages written and not acknowledged that are tracked.
const TICKETS: usize = 65_536;

/// What the caller of [`Drain::step`] does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Call [`Drain::step`] again.
    Again,
    /// Wait until the socket is writable.
    Writable,
    /// Wait until [`Drain::wake_fd`] is readable or the socket reports an error, at most that long; then call
    /// [`Drain::clear_wakeup`].
    Idle(Option<Duration>),
    /// All messages were written, and the ring is closed.
    Finished,
}

/// Moves messages from a ring, or from one ring per class, into a TCP socket.
pub struct Drain {
    rings: Rings,
    socket: TcpStream,
    config: Config,
    /// Messages claimed and not completely written, oldest first: at most [`BATCH`].
    claimed: VecDeque<Taken>,
    /// Total length of these messages.
    claimed_bytes: usize,
    /// Bytes of the first one that were written.
    offset: usize,
    /// Tickets of messages written and not acknowledged, with the stream offset of their end and the class.
    tickets: VecDeque<(u64, usize, Ticket)>,
    /// Current TCP_NOTSENT_LOWAT.
    limit: u32,
    rtt: Duration,
    /// The sender died: end when the ring is empty.
    gone: bool,
    stats: Stats,
}

impl Drain {
    /// Returns a drain of this ring, or of these rings, into this socket.
    ///
    /// # Errors
    /// The socket is not a TCP socket.
    pub fn new(
        rings: impl Into<Rings>,
        socket: TcpStream,
        config: Config,
    ) -> Result<Drain, InitError> {
        sys::tcp_info(&socket).map_err(InitError::io("cannot read TCP_INFO"))?;
        Ok(Drain {
            rings: rings.into(),
            socket,
            config,
            claimed: VecDeque::with_capacity(BATCH),
            claimed_bytes: 0,
            offset: 0,
            tickets: VecDeque::new(),
            limit: 0,
            rtt: Duration::ZERO,
            gone: false,
            stats: Stats::default(),
        })
    }

    /// Returns the counters.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Returns the socket, to wait for after [`Next::Writable`].
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the descriptor that becomes readable when the sender wakes the drain, to wait for after [`Next::Idle`].
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.rings.as_fd()
    }

    /// Fills the socket up to its limit of unsent bytes with one system call; never blocks.
    ///
    /// # Errors
    /// The connection has failed, or the ring is corrupt. Do not call it again.
    pub fn step(&mut self) -> Result<Next, Error> {
        let info = sys::tcp_info(&self.socket).map_err(Error::classify("cannot read TCP_INFO"))?;
        if info.closed {
            return Err(self.failure());
        }
        self.adapt(info)?;
        self.report_acks()?;
        let room = (self.limit as usize).saturating_sub(info.notsent as usize);
        if room == 0 {
            self.stats.waits += 1;
            return Ok(Next::Writable);
        }
        self.claim(room)?;
        if self.claimed.is_empty() {
            return Ok(self.idle());
        }
        let (first, rings) = (self.offset, &self.rings);
        let parts = self.claimed.iter();
        let parts = parts.map(|taken| (rings.consumer(taken), &taken.message));
        match sys::send(&self.socket, parts, first) {
            Ok(sent) => {
                self.written(sent);
                Ok(Next::Again)
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                self.stats.waits += 1;
                Ok(Next::Writable)
            }
            Err(error) => Err(Error::classify("cannot write to the socket")(error)),
        }
    }

    /// Sets the limit of unsent bytes when it has changed by more than a quarter.
    fn adapt(&mut self, info: TcpInfo) -> Result<(), Error> {
        self.rtt = Duration::from_micros(u64::from(info.rtt_us));
        let unsent = self.config.unsent;
        let least = u64::from(unsent.segments) * u64::from(info.mss.max(1));
        let window = u128::from(info.cwnd) * u128::from(info.mss);
        let slack_us = unsent.slack.as_micros();
        let by_rate = window * slack_us / u128::from(info.rtt_us.max(1));
        let limit = u128::from(least).max(by_rate).min(unsent.max_bytes.into());
        // At most `max_bytes`, so 32 bits suffice. 0 would select the system's default.
        let limit = limit.max(1) as u32;
        if limit.abs_diff(self.limit) > self.limit / 4 || self.limit == 0 {
            let value = libc::c_int::try_from(limit).unwrap_or(libc::c_int::MAX);
            sys::set_int(
                &self.socket,
                libc::IPPROTO_TCP,
                libc::TCP_NOTSENT_LOWAT,
                value,
            )
            .map_err(Error::classify("cannot set TCP_NOTSENT_LOWAT"))?;
            self.limit = limit;
        }
        Ok(())
    }

    /// Claims as many messages as fill `room` bytes, at most [`BATCH`] per call, so that a sender in another process
    /// cannot keep the drain busy with empty messages.
    fn claim(&mut self, room: usize) -> Result<(), Error> {
        let now = now();
        for _ in self.claimed.len()..BATCH {
            if self.claimed_bytes - self.offset >= room {
                break;
            }
            let taken = self.rings.claim(now).map_err(|_| Error::Corrupt)?;
            let Some(taken) = taken else { break };
            if taken.message.is_empty() {
                // Nothing to write.
                self.done(taken, self.stats.bytes, &mut Freed::default());
                continue;
            }
            self.claimed_bytes += taken.message.len();
            self.claimed.push_back(taken);
        }
        let ring = self.rings.stats();
        (self.stats.cancelled, self.stats.expired) = (ring.cancelled, ring.expired);
        Ok(())
    }

    /// Records that the socket accepted `sent` bytes.
    fn written(&mut self, sent: usize) {
        self.stats.bytes += sent as u64;
        self.offset += sent;
        let mut end = self.stats.bytes - self.offset as u64;
        let mut freed = Freed::default();
        while let Some(first) = self.claimed.front()
            && first.message.len() <= self.offset
            && let Some(taken) = self.claimed.pop_front()
        {
            let len = taken.message.len();
            self.offset -= len;
            self.claimed_bytes -= len;
            end += len as u64;
            self.done(taken, end, &mut freed);
        }
        self.rings.wake_senders(freed);
    }

    /// Completes a message that was written up to its end, which is at stream offset `end`. Adds the slots to report to
    /// `freed`.
    fn done(&mut self, taken: Taken, end: u64, freed: &mut Freed) {
        self.stats.messages += 1;
        if self.config.acks {
            if self.tickets.len() < TICKETS {
                let ticket = taken.message.ticket();
                self.tickets.push_back((end, taken.class, ticket));
            } else {
                self.stats.acks_lost += 1;
            }
        }
        self.rings.complete(taken, freed);
    }

    /// Reports acknowledged messages to the sender.
    fn report_acks(&mut self) -> Result<(), Error> {
        if self.tickets.is_empty() {
            return Ok(());
        }
        let pending =
            sys::unacknowledged(&self.socket).map_err(Error::classify("cannot read SIOCOUTQ"))?;
        let acked = self.stats.bytes.saturating_sub(pending);
        while let Some((end, class, ticket)) = self.tickets.front()
            && *end <= acked
        {
            match self.rings.ack(*class, *ticket) {
                Ok(()) => self.stats.acked += 1,
                Err(AckQueueFull) => self.stats.acks_lost += 1,
            }
            self.tickets.pop_front();
        }
        Ok(())
    }

    /// Returns what to wait for when no message can be claimed.
    fn idle(&mut self) -> Next {
        let ended = self.rings.is_ended() || self.gone;
        if ended && self.tickets.is_empty() {
            return Next::Finished;
        }
        if !ended && !self.rings.enter_idle() {
            return Next::Again;
        }
        self.stats.idles += 1;
        // The kernel does not signal acknowledgements, so poll for them.
        let interval = (self.rtt / 2).clamp(Duration::from_millis(1), Duration::from_millis(100));
        Next::Idle(self.awaits_acks().then_some(interval))
    }

    /// Discards pending wake-ups, after [`Next::Idle`].
    pub fn clear_wakeup(&mut self) {
        self.gone |= self.rings.clear_wakeup() == Wake::Gone;
    }

    /// Returns why the connection ended.
    pub(super) fn failure(&self) -> Error {
        match self.socket.take_error() {
            Ok(Some(error)) | Err(error) => Error::classify("cannot wait for the socket")(error),
            Ok(None) => Error::PeerClosed,
        }
    }

    /// Returns whether wake-ups matter: after the sender has closed the ring or died, none follow.
    pub(super) fn watches_sender(&self) -> bool {
        !self.gone && !self.rings.is_ended()
    }

    /// Runs until all messages were written and the ring is closed.
    ///
    /// # Errors
    /// The connection has failed, the sender died, or the ring is corrupt.
    pub fn run(mut self) -> Result<Ended, Error> {
        loop {
            match self.step()? {
                Next::Again => {}
                Next::Writable => self.wait_writable()?,
                Next::Idle(limit) => self.wait_sender(limit)?,
                Next::Finished => return self.end(),
            }
        }
    }

    pub(super) fn end(self) -> Result<Ended, Error> {
        if self.gone {
            return Err(Error::ProducerDied);
        }
        Ok(Ended {
            stats: self.stats,
            socket: self.socket,
        })
    }

    /// Returns whether messages await acknowledgements that must be reported.
    pub(super) fn awaits_acks(&self) -> bool {
        !self.tickets.is_empty()
    }

    fn wait_writable(&self) -> Result<(), Error> {
        let mut set = [Watch::writable(self.socket.as_fd())];
        // While messages await acknowledgements, poll for them.
        let limit = self.awaits_acks().then(|| Duration::from_millis(100));
        poll::wait(&mut set, limit).map_err(Error::classify("cannot wait for the socket"))?;
        Ok(())
    }

    fn wait_sender(&mut self, limit: Option<Duration>) -> Result<(), Error> {
        let mut set = [
            Watch::failed(self.socket.as_fd()),
            Watch::readable(self.rings.as_fd()),
        ];
        let watched = if self.watches_sender() { 2 } else { 1 };
        poll::wait(&mut set[..watched], limit)
            .map_err(Error::classify("cannot wait for messages"))?;
        if set[0].has_failed() {
            return Err(self.failure());
        }
        self.clear_wakeup();
        Ok(())
    }
}
