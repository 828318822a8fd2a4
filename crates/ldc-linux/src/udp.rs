//! A ring drained into a UDP socket at a given rate: each message is a datagram, and stays in the ring until
//! the moment it leaves.
//!
//! The drain paces by its own clock. Where the interface's queueing discipline is `fq`, the kernel can do
//! the last stretch more evenly: with [`Config::ahead`] datagrams are handed over that much early,
//! with their time of departure (`SO_TXTIME`). What was handed over can no longer be changed, so keep
//! it short; under another queueing discipline the time is ignored and datagrams leave at once.

use std::collections::VecDeque;
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
    /// Bits a second, headers of UDP and IP counted; `None`: as fast as the socket takes them.
    pub rate_bps: Option<u64>,
    /// How much may leave at once after a pause, bytes: what the drain may catch up after it had to wait
    /// for a processor.
    pub burst: u32,
    /// Hand datagrams over that much before their time, for `fq` to send them then.
    pub ahead: Option<Duration>,
}

impl Default for Config {
    /// No pacing; bursts of 16 KiB once there is.
    fn default() -> Config {
        Config {
            rate_bps: None,
            burst: 16 << 10,
            ahead: None,
        }
    }
}

/// What a drain did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Datagrams handed to the kernel.
    pub datagrams: u64,
    /// Bytes of them, without headers.
    pub bytes: u64,
    /// Messages passed over because they were dropped.
    pub dropped: u64,
    /// Messages passed over because their deadline was past.
    pub expired: u64,
    /// Messages larger than a datagram may be on this path: not sent.
    pub too_big: u64,
    /// Times the peer's host said that nobody listens there.
    pub refused: u64,
}

/// Why a drain ended early. Its ring is closed then.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no way to the destination.
    #[error("no way to the destination: no route, or the interface is down")]
    Unreachable,
    /// This host does not let the datagram out.
    #[error("refused by this host's packet filter or by a prohibiting route")]
    Refused,
    /// The socket has no destination: connect it first.
    #[error("the socket is not connected")]
    NotConnected,
    /// The sending process died without a word; everything that it had sent left.
    #[error("the sending process died")]
    ProducerDied,
    /// The sending process wrote nonsense into the ring.
    #[error("the ring is corrupt: its sender is broken")]
    Corrupt,
    /// Anything else.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Call [`Drain::step`] again.
    Again,
    /// The next datagram is due in so long.
    Due(Duration),
    /// Wait until the socket is writable.
    Writable,
    /// Wait until the ring's bell is readable ([`Drain::bell`]), then call [`Drain::rang`].
    Idle,
    /// Everything has left, and nothing more comes.
    Finished,
}

/// Bytes of a datagram's headers: IPv4 and UDP.
const HEADERS: u64 = 28;

/// When the next datagram may leave: a bucket that fills with time, in nanoseconds.
#[derive(Debug)]
struct Pacer {
    rate_bps: Option<u64>,
    burst: u64,
    next_ns: u64,
}

impl Pacer {
    fn takes_ns(&self, bytes: u64) -> u64 {
        let ns = |rate: u64| u128::from(bytes) * 8_000_000_000 / u128::from(rate.max(1));
        self.rate_bps
            .map_or(0, |rate| u64::try_from(ns(rate)).unwrap_or(u64::MAX))
    }

    /// When the next datagram is due.
    fn due_ns(&self) -> u64 {
        self.next_ns
    }

    /// A datagram of so many bytes left at `now`.
    fn left(&mut self, now_ns: u64, bytes: u64) {
        let earliest = now_ns.saturating_sub(self.takes_ns(self.burst));
        let next = self.next_ns.max(earliest);
        self.next_ns = next.saturating_add(self.takes_ns(bytes + HEADERS));
    }
}

/// Moves messages from a ring into a UDP socket, one a datagram.
pub struct Drain {
    receiver: Receiver,
    socket: UdpSocket,
    pacer: Pacer,
    ahead_ns: u64,
    stamped: bool,
    /// The one that the socket had no room for.
    claimed: VecDeque<Claimed>,
    gone: bool,
    stats: Stats,
}

impl Drain {
    /// A drain of this ring into this socket, which is connected to where datagrams go.
    ///
    /// # Errors
    /// When the kernel knows no times of departure ([`Config::ahead`]).
    pub fn new(receiver: Receiver, socket: UdpSocket, config: Config) -> Result<Drain, InitError> {
        if config.ahead.is_some() {
            sys::allow_departures(&socket).map_err(InitError::io("setting SO_TXTIME"))?;
        }
        let ahead = config.ahead.unwrap_or_default();
        Ok(Drain {
            receiver,
            socket,
            pacer: Pacer {
                rate_bps: config.rate_bps,
                burst: config.burst.into(),
                next_ns: 0,
            },
            ahead_ns: u64::try_from(ahead.as_nanos()).unwrap_or(u64::MAX),
            stamped: config.ahead.is_some(),
            claimed: VecDeque::with_capacity(1),
            gone: false,
            stats: Stats::default(),
        })
    }

    /// What it did so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The socket.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// What the sender wakes the drain by.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }

    /// Sends one datagram if one is due; never waits.
    ///
    /// # Errors
    /// Nothing can be sent any more, or the ring is broken. Do not call it again.
    pub fn step(&mut self) -> Result<Next, Error> {
        let (now_ns, due_ns) = (now_ns(), self.pacer.due_ns());
        let early_ns = due_ns.saturating_sub(now_ns);
        if early_ns > self.ahead_ns {
            return Ok(Next::Due(Duration::from_nanos(early_ns - self.ahead_ns)));
        }
        if self.claimed.is_empty() {
            let message = self.receiver.claim(Some(now()));
            let Some(message) = message.map_err(|_| Error::Corrupt)? else {
                return Ok(self.idle());
            };
            self.claimed.push_back(message);
        }
        let departure = self.stamped.then_some(due_ns.max(now_ns));
        let ring = self.receiver.ring();
        match sys::send(&self.socket, ring, self.claimed.iter(), 0, departure) {
            Ok(bytes) => {
                self.stats.datagrams += 1;
                self.stats.bytes += bytes as u64;
                self.pacer.left(now_ns, bytes as u64);
            }
            Err(error) => {
                if let Some(next) = self.sort(error)? {
                    return Ok(next);
                }
            }
        }
        while let Some(message) = self.claimed.pop_front() {
            self.receiver.complete(message);
        }
        Ok(Next::Again)
    }

    /// What to do about a datagram that did not leave: try it again then, or (`None`) give it up.
    fn sort(&mut self, error: io::Error) -> Result<Option<Next>, Error> {
        match error.raw_os_error() {
            Some(libc::EAGAIN) => Ok(Some(Next::Writable)),
            // The interface's queue is full, of which the socket knows nothing.
            Some(libc::ENOBUFS) => Ok(Some(Next::Due(Duration::from_millis(1)))),
            Some(libc::EMSGSIZE) => {
                self.stats.too_big += 1;
                Ok(None)
            }
            // It speaks of an earlier datagram; this one was not sent.
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
                what: "sending",
                source: error,
            }),
        }
    }

    fn idle(&mut self) -> Next {
        let ring = self.receiver.ring().stats();
        (self.stats.dropped, self.stats.expired) = (ring.dropped, ring.expired);
        if self.receiver.is_ended() || self.gone {
            Next::Finished
        } else if self.receiver.go_idle() {
            Next::Idle
        } else {
            Next::Again
        }
    }

    /// After [`Next::Idle`]: the bell is readable.
    pub fn rang(&mut self) {
        self.gone |= self.receiver.rang() == Wake::Gone;
    }

    /// Runs until everything has left and the ring is closed.
    ///
    /// # Errors
    /// Nothing can be sent any more, the sender died, or the ring is broken.
    pub fn run(mut self) -> Result<Stats, Error> {
        let waiting = |source| Error::Io {
            what: "waiting",
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
                    self.rang();
                }
                Next::Finished if self.gone => return Err(Error::ProducerDied),
                Next::Finished => return Ok(self.stats),
            }
        }
    }
}

/// Makes a connected socket late-choosing (`ldc_init`): what is sent into the ring that comes back goes out in
/// datagrams, at the rate of `config`. A thread plays the kernel's part.
///
/// # Errors
/// When there is no memory or no thread.
pub fn init(
    socket: UdpSocket,
    shape: Shape,
    config: Config,
) -> Result<Drained<Result<Stats, Error>>, InitError> {
    let (sender, receiver) = ends::pair(shape)?;
    let drain = Drain::new(receiver, socket, config)?;
    Drained::start(sender, "ldc-udp", move || drain.run())
        .map_err(InitError::io("starting the drain's thread"))
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
        // Two of the burst, and then one each millisecond.
        let mut due = Vec::new();
        let mut now = start;
        for _ in 0..5 {
            now = now.max(pacer.due_ns());
            due.push((now - start) / ms);
            pacer.left(now, 972);
        }
        assert_eq!(due, [0, 0, 0, 1, 2]);
        let unpaced = Pacer {
            rate_bps: None,
            burst: 0,
            next_ns: 0,
        };
        assert_eq!(unpaced.takes_ns(u64::MAX / 2), 0);
    }
}
