//! A ring drained into a UDP socket at a given rate: each message is a datagram, which stays in the ring until it is
//! sent.
//!
//! The drain paces by its own clock.

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use ldc_ring::Claimed;
use linux_net::poll::{self, Watch};
use thiserror::Error;

use crate::error::InitError;
use crate::thread::Drained;
use crate::{Receiver, Shape, Wake, ends, now, now_ns, sys};

/// How a ring is drained.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bits per second, including UDP and IP headers; `None`: as fast as the socket accepts datagrams.
    pub rate_bps: Option<u64>,
    /// Bytes that may leave at once after a pause, such as a wait for a processor.
    pub burst: u32,
}

impl Default for Config {
    /// No pacing; bursts of 16 KiB if a rate is set.
    fn default() -> Config {
        Config {
            rate_bps: None,
            burst: 16 << 10,
        }
    }
}

/// Counters of a drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Datagrams passed to the kernel.
    pub datagrams: u64,
    /// Bytes in these datagrams, without headers.
    pub bytes: u64,
    /// Messages skipped because they were cancelled.
    pub cancelled: u64,
    /// Messages skipped because their deadline had passed.
    pub expired: u64,
    /// Messages not sent because they exceed the datagram size of the path.
    pub too_big: u64,
    /// Number of ICMP errors "port unreachable" from the peer's host.
    pub refused: u64,
}

/// Why a drain ended early. Its ring is closed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The destination is unreachable.
    #[error("the destination is unreachable: no route, or the interface is down")]
    Unreachable,
    /// A packet filter or a route of this host prohibits the datagram.
    #[error("this host's packet filter or a prohibiting route refuses the datagram")]
    Refused,
    /// The socket has no destination: connect it first.
    #[error("the socket is not connected")]
    NotConnected,
    /// The sending process died without closing the ring; all its messages have left.
    #[error("the sending process died")]
    ProducerDied,
    /// The sending process violated the protocol of the ring.
    #[error("the ring is corrupt: its producer violated the protocol")]
    Corrupt,
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// What failed.
        what: &'static str,
        /// The error of the kernel.
        source: io::Error,
    },
}

/// What the caller of [`Drain::step`] does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Call [`Drain::step`] again.
    Again,
    /// Wait that long: then the next datagram is due.
    Due(Duration),
    /// Wait until the socket is writable.
    Writable,
    /// Wait until [`Drain::wake_fd`] is readable, then call [`Drain::clear_wakeup`].
    Idle,
    /// All messages have left, and the ring is closed.
    Finished,
}

/// Bytes of a datagram's headers: IPv4 and UDP.
const HEADERS: u64 = 28;

/// Schedules datagrams by a rate, in nanoseconds.
#[derive(Debug)]
struct Pacer {
    rate_bps: Option<u64>,
    burst: u64,
    next_ns: u64,
}

impl Pacer {
    fn duration_ns(&self, bytes: u64) -> u64 {
        let ns = |rate: u64| u128::from(bytes) * 8_000_000_000 / u128::from(rate.max(1));
        self.rate_bps
            .map_or(0, |rate| u64::try_from(ns(rate)).unwrap_or(u64::MAX))
    }

    /// Returns the time at which the next datagram is due.
    fn due_ns(&self) -> u64 {
        self.next_ns
    }

    /// Records that a datagram of `bytes` bytes was sent at `now_ns`.
    fn record(&mut self, now_ns: u64, bytes: u64) {
        let earliest = now_ns.saturating_sub(self.duration_ns(self.burst));
        let next = self.next_ns.max(earliest);
        self.next_ns = next.saturating_add(self.duration_ns(bytes + HEADERS));
    }
}

/// Moves messages from a ring into a UDP socket, one per datagram.
pub struct Drain {
    receiver: Receiver,
    socket: UdpSocket,
    pacer: Pacer,
    /// The message that the socket had no room for.
    claimed: Option<Claimed>,
    gone: bool,
    stats: Stats,
}

impl Drain {
    /// Returns a drain of this ring into this socket, which must be connected.
    pub fn new(receiver: Receiver, socket: UdpSocket, config: Config) -> Drain {
        Drain {
            receiver,
            socket,
            pacer: Pacer {
                rate_bps: config.rate_bps,
                burst: config.burst.into(),
                next_ns: 0,
            },
            claimed: None,
            gone: false,
            stats: Stats::default(),
        }
    }

    /// Returns the counters.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Returns the socket.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the descriptor that becomes readable when the sender wakes the drain.
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }

    /// Sends one datagram if one is due; never blocks.
    ///
    /// # Errors
    /// Sending has failed permanently, or the ring is corrupt. Do not call it again.
    pub fn step(&mut self) -> Result<Next, Error> {
        let (now_ns, due_ns) = (now_ns(), self.pacer.due_ns());
        let early_ns = due_ns.saturating_sub(now_ns);
        if early_ns > 0 {
            return Ok(Next::Due(Duration::from_nanos(early_ns)));
        }
        if self.claimed.is_none() {
            let message = self.receiver.claim(Some(now()));
            let Some(message) = message.map_err(|_| Error::Corrupt)? else {
                return Ok(self.idle());
            };
            self.claimed = Some(message);
        }
        let ring = self.receiver.consumer();
        let message = self.claimed.iter().map(|message| (ring, message));
        match sys::send(&self.socket, message, 0) {
            Ok(bytes) => {
                self.stats.datagrams += 1;
                self.stats.bytes += bytes as u64;
                self.pacer.record(now_ns, bytes as u64);
            }
            Err(error) => {
                if let Some(next) = self.classify(error)? {
                    return Ok(next);
                }
            }
        }
        if let Some(message) = self.claimed.take() {
            self.receiver.complete(message);
        }
        Ok(Next::Again)
    }

    /// Returns when to retry a datagram that was not sent, or `None` to discard it.
    fn classify(&mut self, error: io::Error) -> Result<Option<Next>, Error> {
        match error.raw_os_error() {
            Some(libc::EAGAIN) => Ok(Some(Next::Writable)),
            // The interface's queue is full; the socket does not signal when it has room.
            Some(libc::ENOBUFS) => Ok(Some(Next::Due(Duration::from_millis(1)))),
            Some(libc::EMSGSIZE) => {
                self.stats.too_big += 1;
                Ok(None)
            }
            // The error concerns an earlier datagram; this one was not sent.
            Some(libc::ECONNREFUSED) => {
                self.stats.refused += 1;
                Ok(Some(Next::Again))
            }
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN) => {
                Err(Error::Unreachable)
            }
            Some(libc::EPERM | libc::EACCES) => Err(Error::Refused),
            Some(libc::EDESTADDRREQ | libc::ENOTCONN) => Err(Error::NotConnected),
            _ => Err(Error::Io {
                what: "cannot send",
                source: error,
            }),
        }
    }

    fn idle(&mut self) -> Next {
        let ring = self.receiver.ring().stats();
        (self.stats.cancelled, self.stats.expired) = (ring.cancelled, ring.expired);
        if self.receiver.is_ended() || self.gone {
            Next::Finished
        } else if self.receiver.enter_idle() {
            Next::Idle
        } else {
            Next::Again
        }
    }

    /// Discards pending wake-ups, after [`Next::Idle`] when [`Drain::wake_fd`] is readable.
    pub fn clear_wakeup(&mut self) {
        self.gone |= self.receiver.clear_wakeup() == Wake::Gone;
    }

    /// Runs until all messages have left and the ring is closed.
    ///
    /// # Errors
    /// Sending has failed permanently, the sender died, or the ring is corrupt.
    pub fn run(mut self) -> Result<Stats, Error> {
        let waiting = |source| Error::Io {
            what: "cannot wait for the socket",
            source,
        };
        loop {
            match self.step()? {
                Next::Again => {}
                Next::Due(left) => {
                    poll::wait(&mut [], Some(left)).map_err(waiting)?;
                }
                Next::Writable => {
                    let mut set = [Watch::writable(self.socket.as_fd())];
                    poll::wait(&mut set, None).map_err(waiting)?;
                }
                Next::Idle => {
                    let mut set = [Watch::readable(self.receiver.as_fd())];
                    poll::wait(&mut set, None).map_err(waiting)?;
                    self.clear_wakeup();
                }
                Next::Finished if self.gone => return Err(Error::ProducerDied),
                Next::Finished => return Ok(self.stats),
            }
        }
    }
}

/// Returns a ring that a thread drains into a connected socket (`ldc_init`), one datagram per message, at the rate of
/// `config`.
///
/// # Errors
/// The memory cannot be allocated, or the thread cannot be spawned.
pub fn init(
    socket: UdpSocket,
    shape: Shape,
    config: Config,
) -> Result<Drained<Result<Stats, Error>>, InitError> {
    let (sender, receiver) = ends::pair(shape)?;
    let drain = Drain::new(receiver, socket, config);
    Drained::start(sender, "ldc-udp", move || drain.run())
        .map_err(InitError::io("cannot spawn the thread of the drain"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_spaces_datagrams_and_a_pause_allows_one_burst() {
        // 1000 bytes with headers take a millisecond.
        let mut pacer = Pacer {
            rate_bps: Some(8_000_000),
            burst: 2_000,
            next_ns: 0,
        };
        let ms = 1_000_000;
        let start = 1_000 * ms;
        // Two as a burst, then one per millisecond.
        let mut due = Vec::new();
        let mut now = start;
        for _ in 0..5 {
            now = now.max(pacer.due_ns());
            due.push((now - start) / ms);
            pacer.record(now, 972);
        }
        assert_eq!(due, [0, 0, 0, 1, 2]);
        let unpaced = Pacer {
            rate_bps: None,
            burst: 0,
            next_ns: 0,
        };
        assert_eq!(unpaced.duration_ns(u64::MAX / 2), 0);
    }
}
