//! A ring drained just in time into an ordinary TCP socket (LDC chapter 4, without a kernel patch).
//!
//! The drain keeps few unsent bytes in the socket and refills it shortly before TCP runs out of data:
//!
//! ```text
//! application --send--> [ ring: cancel, modify, hold back ] --claim--> [ unsent | in flight ] --> peer
//!                          all data that can wait                      kernel's send buffer
//! ```
//!
//! Unsent bytes in the socket can no longer be changed, so many of them cost latency; too few when an acknowledgement
//! opens the window cost throughput. [`Unsent`] sets the balance: a few segments (as the `MIN_BUF(1,3)` of Goel et al.,
//! LDC §3.2.4, whose send buffer is the window and three packets), and on fast links the bytes that leave while the
//! drain waits for a processor.
//!
//! A message is written as a whole or not at all: once its first byte is in the socket the rest follows, unless the
//! connection fails.

mod drain;
#[cfg(feature = "tokio")]
#[allow(unsafe_code, reason = "registers descriptors with the runtime")]
mod future;

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use thiserror::Error;

pub use drain::{Drain, Next};
#[cfg(feature = "tokio")]
pub use future::{drive, init_tokio};

use crate::error::InitError;
use crate::rings::Rings;
use crate::schedule::Scheduler;
use crate::thread::Drained;
use crate::{Sender, Shape, ends};

/// How a ring is drained.
#[derive(Clone, Copy, Debug, Default)]
pub struct Config {
    /// Limit of unsent bytes in the socket.
    pub unsent: Unsent,
    /// Report to the sender what the peer's TCP has acknowledged (`kern_acked`): `poll_ack` of
    /// [`crate::Sender::ring`]. The drain then ends only when all messages are acknowledged.
    pub acks: bool,
}

/// The limit of unsent bytes in the socket: `segments`, or what leaves within `slack` at the current rate, whichever is
/// more, up to `max_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsent {
    /// Segments, at any rate.
    pub segments: u32,
    /// Longest wait of the drain for a processor before it refills the socket.
    pub slack: Duration,
    /// Upper limit, bytes.
    pub max_bytes: u32,
}

impl Default for Unsent {
    /// Three segments or 5 ms, at most 1 MiB.
    fn default() -> Unsent {
        Unsent {
            segments: 3,
            slack: Duration::from_millis(5),
            max_bytes: 1 << 20,
        }
    }
}

impl Unsent {
    /// Returns a fixed limit, independent of the rate.
    pub fn fixed(bytes: u32) -> Unsent {
        Unsent {
            segments: u32::MAX,
            slack: Duration::ZERO,
            max_bytes: bytes.max(1),
        }
    }
}

/// Counters of a drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Messages written completely.
    pub messages: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Messages skipped because they were cancelled.
    pub cancelled: u64,
    /// Messages skipped because their deadline had passed.
    pub expired: u64,
    /// Messages acknowledged by the peer's TCP, with [`Config::acks`].
    pub acked: u64,
    /// Acknowledgements not reported to the sender, because it did not take earlier ones or too many messages were in
    /// flight.
    pub acks_lost: u64,
    /// Number of waits for the socket.
    pub waits: u64,
    /// Number of idle periods, each ended by `notify`.
    pub idles: u64,
}

/// Why a drain ended early. Its ring is closed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer closed or reset the connection; data that it had not read is lost.
    #[error("the peer has closed the connection")]
    PeerClosed,
    /// The peer sent no acknowledgement for too long (see TCP_USER_TIMEOUT in tcp(7)).
    #[error("the connection timed out")]
    TimedOut,
    /// The network reports that the peer is unreachable.
    #[error("the peer is unreachable")]
    Unreachable,
    /// The sending process died without closing the ring; all its messages were written.
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

impl Error {
    pub(crate) fn classify(what: &'static str) -> impl Fn(io::Error) -> Error {
        move |source| match source.raw_os_error() {
            Some(libc::EPIPE | libc::ECONNRESET | libc::ECONNABORTED | libc::ENOTCONN) => {
                Error::PeerClosed
            }
            Some(libc::ETIMEDOUT) => Error::TimedOut,
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN) => Error::Unreachable,
            _ => Error::Io { what, source },
        }
    }
}

/// The result of a drain that ended regularly.
#[derive(Debug)]
pub struct Ended {
    /// Counters.
    pub stats: Stats,
    /// The socket. Dropping it closes the connection; the kernel still delivers what was written.
    pub socket: TcpStream,
}

/// Returns a ring that a thread drains into a connected socket (`ldc_init`).
///
/// To read from the socket, call [`TcpStream::try_clone`] first. Bytes written to such a clone appear between messages.
///
/// # Errors
/// The memory cannot be allocated, the thread cannot be spawned, or the socket is not a TCP socket.
pub fn init(
    socket: TcpStream,
    shape: Shape,
    config: Config,
) -> Result<Drained<Result<Ended, Error>>, InitError> {
    let (sender, receiver) = ends::pair(shape)?;
    let drain = Drain::new(receiver, socket, config)?;
    Drained::start(sender, "ldc-tcp", move || drain.run())
        .map_err(InitError::io("cannot spawn the thread of the drain"))
}

/// As [`init`], with one ring of this shape per class of the scheduler: what leaves next is the scheduler's choice, not
/// the order of sending. Returns the senders by class.
///
/// # Errors
/// As [`init`].
pub fn init_classes(
    socket: TcpStream,
    shape: Shape,
    scheduler: Scheduler,
    config: Config,
) -> Result<Drained<Result<Ended, Error>, Vec<Sender>>, InitError> {
    let (senders, rings) = Rings::create(shape, scheduler)?;
    let drain = Drain::new(rings, socket, config)?;
    Drained::start(senders, "ldc-tcp", move || drain.run())
        .map_err(InitError::io("cannot spawn the thread of the drain"))
}
