//! The rings of a stream and what drains them: a TCP or a QUIC connection.

use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use ldc_linux::{Attributes, Drained, SendError, Sender, WaitError, quic, tcp};

use crate::policy::ring_of;
use crate::send::POLL_INTERVAL;

/// Sequence number of the end message, which no window uses.
const LAST: u64 = u64::MAX;

/// The rings, one per class, and their drain.
pub(crate) enum Ring {
    Tcp {
        rings: Drained<Result<tcp::Ended, tcp::Error>, Vec<Sender>>,
        control: TcpStream,
    },
    Quic(Drained<Result<quic::Stats, quic::Error>, Vec<Sender>>),
}

/// Why a ring was not drained to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Incomplete {
    Interrupted,
    /// --linger has passed.
    TooSlow,
}

/// What was sent through a ring.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    pub(crate) expired: u64,
    /// Given up while they were on their way, so they may have arrived or not.
    pub(crate) reset: u64,
}

/// How a drain ended.
pub(crate) enum Closed {
    /// TCP has taken everything; the receiver closes the connection when it has read it.
    Tcp(TcpStream),
    /// The receiver has acknowledged everything.
    Acknowledged,
    /// The receiver left early.
    Left,
    /// The receiver did not acknowledge everything within --linger.
    TooSlow,
}

impl Ring {
    /// Returns the senders by class.
    pub(crate) fn rings(&mut self) -> &mut [Sender] {
        match self {
            Ring::Tcp { rings, .. } => rings,
            Ring::Quic(rings) => rings,
        }
    }

    /// Returns the number of messages that wait.
    pub(crate) fn pending(&mut self) -> usize {
        let rings = self.rings().iter_mut();
        rings.map(|ring| ring.ring().pending().count()).sum()
    }

    /// Returns whether the drain has ended.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.rings().iter().any(Sender::is_closed)
    }

    /// Sends the end message after all others, and waits until `end` for room.
    pub(crate) fn send_end(&mut self, message: &[u8], end: Instant) {
        let rings = self.rings();
        if rings.len() > 1 {
            // The order in which rings are claimed is not that of sending.
            wait_empty(rings, end);
        }
        let ring = ring_of(rings, usize::MAX);
        while Instant::now() < end && !cli::interrupt::raised() {
            let sent = ring.send_wait(LAST, message, Attributes::default(), Some(POLL_INTERVAL));
            if sent != Err(SendError::Full) {
                break;
            }
        }
        ring.notify();
    }

    /// Waits until all messages have left the rings, until `end`. After that, or when interrupted, TCP is shut down.
    pub(crate) fn drain(&mut self, end: Instant) -> Option<Incomplete> {
        // QUIC keeps the messages until they are acknowledged, and has its own limit for that.
        let is_empty = wait_empty(self.rings(), end);
        let incomplete = if cli::interrupt::raised() {
            Incomplete::Interrupted
        } else if is_empty {
            return None;
        } else {
            Incomplete::TooSlow
        };
        if let Ring::Tcp { control, .. } = self {
            let _ = control.shutdown(Shutdown::Both);
        }
        Some(incomplete)
    }

    /// Closes the rings and waits for the drain, unless it is `incomplete`.
    ///
    /// # Errors
    /// The connection failed.
    pub(crate) fn finish(self, incomplete: Option<Incomplete>) -> Result<(Written, Closed)> {
        match self {
            Ring::Tcp { rings, .. } => match rings.finish() {
                Ok(ended) => Ok((ended.stats.into(), Closed::Tcp(ended.socket))),
                Err(tcp::Error::PeerClosed) => Ok((Written::default(), Closed::Left)),
                Err(_) if incomplete.is_some() => Ok((Written::default(), Closed::TooSlow)),
                Err(error) => Err(error.into()),
            },
            // The process ends, and the connection with it.
            Ring::Quic(_) if incomplete.is_some() => Ok((Written::default(), Closed::TooSlow)),
            Ring::Quic(rings) => match rings.finish() {
                Ok(stats) => Ok((stats.into(), Closed::Acknowledged)),
                Err(quic::Error::Closed { code, .. }) if code == u64::from(quic::code::DONE) => {
                    Ok((Written::default(), Closed::Left))
                }
                Err(quic::Error::TimedOut) => Ok((Written::default(), Closed::TooSlow)),
                Err(error) => Err(anyhow!(error)),
            },
        }
    }
}

/// Waits until all rings are empty, until `end`. Returns `false` if they are not.
fn wait_empty(rings: &mut [Sender], end: Instant) -> bool {
    for ring in rings {
        let all = ring.shape().slots();
        loop {
            let timeout = POLL_INTERVAL.min(end.saturating_duration_since(Instant::now()));
            match ring.wait_room(all, Some(timeout.max(Duration::from_millis(1)))) {
                Err(WaitError::TimedOut) => {}
                // A closed ring fills no more.
                _ => break,
            }
            if Instant::now() >= end || cli::interrupt::raised() {
                return false;
            }
        }
    }
    true
}

impl From<tcp::Stats> for Written {
    fn from(stats: tcp::Stats) -> Written {
        Written {
            messages: stats.messages,
            bytes: stats.bytes,
            expired: stats.expired,
            reset: 0,
        }
    }
}

impl From<quic::Stats> for Written {
    fn from(stats: quic::Stats) -> Written {
        Written {
            messages: stats.acked + stats.datagrams,
            bytes: stats.bytes,
            expired: stats.expired,
            reset: stats.abandoned,
        }
    }
}
