//! The drain as a machine over one socket: a step, then what to wait for.

use std::collections::VecDeque;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use ldc_ring::{AckQueueFull, Claimed, Ticket};
use linux_net::poll::{self, Watch};

use super::{Config, Ended, Error, Stats};
use crate::error::InitError;
use crate::sys::{self, BATCH, TcpInfo};
use crate::{Receiver, Wake, now};

/// Messages written and not acknowledged that are kept in mind.
const TICKETS: usize = 65_536;

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Call [`Drain::step`] again: there is more to do.
    Again,
    /// Wait until the socket is writable.
    Writable,
    /// Wait until the ring's bell is readable ([`Drain::bell`]) or the socket reports an error, at most so
    /// long; then call [`Drain::rang`].
    Idle(Option<Duration>),
    /// Everything was written, and nothing more comes.
    Finished,
}

/// Moves messages from a ring into a TCP socket.
pub struct Drain {
    receiver: Receiver,
    socket: TcpStream,
    config: Config,
    /// Claimed and not wholly written, oldest first: at most [`BATCH`].
    claimed: VecDeque<Claimed>,
    /// Bytes of them.
    claimed_bytes: usize,
    /// Bytes of the first one that are written.
    offset: usize,
    /// Of messages written: the place of their last byte in the stream.
    tickets: VecDeque<(u64, Ticket)>,
    /// TCP_NOTSENT_LOWAT as it is set.
    limit: u32,
    rtt: Duration,
    /// The sender is gone: end when the ring is empty.
    gone: bool,
    stats: Stats,
}

impl Drain {
    /// A drain of this ring into this socket.
    ///
    /// # Errors
    /// When the socket is none of TCP.
    pub fn new(receiver: Receiver, socket: TcpStream, config: Config) -> Result<Drain, InitError> {
        sys::tcp_info(&socket).map_err(InitError::io("asking for TCP_INFO"))?;
        Ok(Drain {
            receiver,
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

    /// What it did so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The socket: wait for it to be writable when [`Next::Writable`] says so.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// What the sender wakes the drain by: wait for it to be readable when [`Next::Idle`] says so.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }

    /// Writes as much as the socket should hold, with one call of the system; never waits.
    ///
    /// # Errors
    /// The connection has failed, or the ring is broken. Do not call it again.
    pub fn step(&mut self) -> Result<Next, Error> {
        let info = sys::tcp_info(&self.socket).map_err(Error::sort("asking for TCP_INFO"))?;
        if info.closed {
            return Err(self.failure());
        }
        self.adapt(info)?;
        self.news()?;
        let room = (self.limit as usize).saturating_sub(info.notsent as usize);
        if room == 0 {
            self.stats.waits += 1;
            return Ok(Next::Writable);
        }
        self.claim(room)?;
        if self.claimed.is_empty() {
            return Ok(self.idle());
        }
        let first = self.offset;
        let ring = self.receiver.ring();
        match sys::send(&self.socket, ring, self.claimed.iter(), first, None) {
            Ok(sent) => {
                self.written(sent);
                Ok(Next::Again)
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                self.stats.waits += 1;
                Ok(Next::Writable)
            }
            Err(error) => Err(Error::sort("writing to the socket")(error)),
        }
    }

    /// Sets how much may lie unsent, when that has changed by a quarter.
    fn adapt(&mut self, info: TcpInfo) -> Result<(), Error> {
        self.rtt = Duration::from_micros(u64::from(info.rtt_us));
        let unsent = self.config.unsent;
        let least = u64::from(unsent.segments) * u64::from(info.mss.max(1));
        let window = u128::from(info.cwnd) * u128::from(info.mss);
        let slack_us = unsent.slack.as_micros();
        let by_rate = window * slack_us / u128::from(info.rtt_us.max(1));
        let wanted = u128::from(least).max(by_rate).min(unsent.most.into());
        // At most `most`, 32 bits.
        let wanted = wanted.max(1) as u32;
        if wanted.abs_diff(self.limit) > self.limit / 4 || self.limit == 0 {
            // A setting of 0 would mean the system's default.
            let value = libc::c_int::try_from(wanted).unwrap_or(libc::c_int::MAX);
            sys::set_int(
                &self.socket,
                libc::IPPROTO_TCP,
                libc::TCP_NOTSENT_LOWAT,
                value,
            )
            .map_err(Error::sort("setting TCP_NOTSENT_LOWAT"))?;
            self.limit = wanted;
        }
        Ok(())
    }

    /// Claims as many messages as fill `room` bytes, at most [`BATCH`] a call: a sender in another process that sends
    /// empty messages without end must not keep the drain here.
    fn claim(&mut self, room: usize) -> Result<(), Error> {
        let now = now();
        for _ in self.claimed.len()..BATCH {
            if self.claimed_bytes - self.offset >= room {
                break;
            }
            let claimed = self.receiver.claim(Some(now));
            let Some(message) = claimed.map_err(|_| Error::Corrupt)? else {
                break;
            };
            if message.is_empty() {
                // Nothing to write, and nothing to wait for.
                self.done(message, self.stats.bytes);
                continue;
            }
            self.claimed_bytes += message.len();
            self.claimed.push_back(message);
        }
        let ring = self.receiver.ring().stats();
        (self.stats.dropped, self.stats.expired) = (ring.dropped, ring.expired);
        Ok(())
    }

    /// So many bytes more are in the socket.
    fn written(&mut self, sent: usize) {
        self.stats.bytes += sent as u64;
        self.offset += sent;
        let mut end = self.stats.bytes - self.offset as u64;
        let mut freed = 0;
        while let Some(first) = self.claimed.front()
            && first.len() <= self.offset
            && let Some(message) = self.claimed.pop_front()
        {
            self.offset -= message.len();
            self.claimed_bytes -= message.len();
            end += message.len() as u64;
            freed += self.done(message, end);
        }
        self.receiver.freed(freed);
    }

    /// A message is in the socket up to its last byte, which is at `end`.
    fn done(&mut self, message: Claimed, end: u64) -> u32 {
        self.stats.messages += 1;
        if self.config.acks {
            if self.tickets.len() < TICKETS {
                self.tickets.push_back((end, message.ticket()));
            } else {
                self.stats.acks_lost += 1;
            }
        }
        self.receiver.complete_silently(message)
    }

    /// Tells the sender what was acknowledged.
    fn news(&mut self) -> Result<(), Error> {
        if self.tickets.is_empty() {
            return Ok(());
        }
        let pending = sys::unacknowledged(&self.socket).map_err(Error::sort("SIOCOUTQ"))?;
        let acked = self.stats.bytes.saturating_sub(pending);
        while let Some((end, ticket)) = self.tickets.front()
            && *end <= acked
        {
            match self.receiver.ring().ack(*ticket) {
                Ok(()) => self.stats.acked += 1,
                Err(AckQueueFull) => self.stats.acks_lost += 1,
            }
            self.tickets.pop_front();
        }
        Ok(())
    }

    /// Nothing to claim: what to wait for.
    fn idle(&mut self) -> Next {
        let ended = self.receiver.is_ended() || self.gone;
        if ended && self.tickets.is_empty() {
            return Next::Finished;
        }
        if !ended && !self.receiver.go_idle() {
            return Next::Again;
        }
        self.stats.idles += 1;
        // Nothing wakes us when an acknowledgement comes.
        let news = (self.rtt / 2).clamp(Duration::from_millis(1), Duration::from_millis(100));
        Next::Idle(self.tells().then_some(news))
    }

    /// After [`Next::Idle`]: the bell is readable, the time over, or the socket reports an error.
    pub fn rang(&mut self) {
        self.gone |= self.receiver.rang() == Wake::Gone;
    }

    /// Why the connection is no more.
    pub(super) fn failure(&self) -> Error {
        match self.socket.take_error() {
            Ok(Some(error)) | Err(error) => Error::sort("waiting for the socket")(error),
            Ok(None) => Error::PeerClosed,
        }
    }

    /// Whether the bell says anything new: a sender that has closed the ring or died has nothing to add.
    pub(super) fn listens(&self) -> bool {
        !self.gone && !self.receiver.is_ended()
    }

    /// Runs until everything was written and the ring is closed.
    ///
    /// # Errors
    /// The connection has failed, the sender died, or the ring is broken.
    pub fn run(mut self) -> Result<Ended, Error> {
        loop {
            match self.step()? {
                Next::Again => {}
                Next::Writable => self.wait_writable()?,
                Next::Idle(limit) => self.wait_bell(limit)?,
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

    /// Whether there are acknowledgements to tell of.
    pub(super) fn tells(&self) -> bool {
        !self.tickets.is_empty()
    }

    fn wait_writable(&self) -> Result<(), Error> {
        let mut set = [Watch::writable(self.socket.as_fd())];
        // With acknowledgements to tell of, look now and then.
        let limit = self.tells().then(|| Duration::from_millis(100));
        poll::wait(&mut set, limit).map_err(Error::sort("waiting for the socket"))?;
        Ok(())
    }

    fn wait_bell(&mut self, limit: Option<Duration>) -> Result<(), Error> {
        let mut set = [
            Watch::failed(self.socket.as_fd()),
            Watch::readable(self.receiver.as_fd()),
        ];
        let watched = if self.listens() { 2 } else { 1 };
        poll::wait(&mut set[..watched], limit).map_err(Error::sort("waiting for messages"))?;
        if set[0].has_failed() {
            return Err(self.failure());
        }
        self.rang();
        Ok(())
    }
}
