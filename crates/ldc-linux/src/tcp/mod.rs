//! A ring drained just in time into an ordinary TCP socket (thesis chapter 4, without the patch).
//!
//! The drain keeps the socket's unsent bytes low and fills it up only when TCP is about to run dry:
//!
//! ```text
//! application --send--> [ ring: drop, modify, hold back ] --claim--> [ unsent | under way ] --> peer
//!                          everything that can wait                    kernel's send buffer
//! ```
//!
//! What is unsent in the socket can no longer be changed, so it is the price in latency; what is missing
//! there when an acknowledgement opens the window is the price in throughput. [`Unsent`] sets the balance:
//! a few segments (as the `MIN_BUF(1,3)` of Goel and others, thesis §3.2.4, whose send buffer is the
//! window and three packets), and on fast links as many bytes as leave while the drain waits for its
//! turn on the processor.
//!
//! A message is written whole or not at all: once its first byte is in the socket the rest follows, whatever
//! the sender changes its mind about meanwhile. When the connection fails, so does the rest of it.

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
use crate::thread::Drained;
use crate::{Shape, ends};

/// How a ring is drained.
#[derive(Clone, Copy, Debug, Default)]
pub struct Config {
    /// How much may lie unsent in the socket.
    pub unsent: Unsent,
    /// Tell the sender what the peer's TCP has acknowledged (`kern_acked`): `poll_ack` of
    /// [`crate::Sender::ring`]. Then the drain also ends only when everything is acknowledged.
    pub acks: bool,
}

/// How many bytes may lie unsent in the socket: segments, or what leaves within `slack` at the present
/// rate, whichever is more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsent {
    /// Segments, whatever the rate.
    pub segments: u32,
    /// How long the drain may have to wait for a processor before it refills the socket.
    pub slack: Duration,
    /// Never more than so many bytes.
    pub most: u32,
}

impl Default for Unsent {
    /// Three segments or 5 ms, at most 1 MiB.
    fn default() -> Unsent {
        Unsent {
            segments: 3,
            slack: Duration::from_millis(5),
            most: 1 << 20,
        }
    }
}

impl Unsent {
    /// So many bytes, whatever the rate.
    pub fn fixed(bytes: u32) -> Unsent {
        Unsent {
            segments: u32::MAX,
            slack: Duration::ZERO,
            most: bytes.max(1),
        }
    }
}

/// What a drain did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Messages written whole.
    pub messages: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Messages passed over because they were dropped.
    pub dropped: u64,
    /// Messages passed over because their deadline was past.
    pub expired: u64,
    /// Messages acknowledged by the peer's TCP, with [`Config::acks`].
    pub acked: u64,
    /// Acknowledgements that the sender did not hear of: it did not take the earlier ones, or too many
    /// messages were under way.
    pub acks_lost: u64,
    /// Times it waited for the socket.
    pub waits: u64,
    /// Times it went idle, and had to be woken by `notify`.
    pub idles: u64,
}

/// Why a drain ended early. Its ring is closed then.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer closed or reset the connection: what it had not read is lost.
    #[error("the peer has closed the connection")]
    PeerClosed,
    /// The peer did not acknowledge for too long (see TCP_USER_TIMEOUT in tcp(7)).
    #[error("the peer does not answer any more")]
    TimedOut,
    /// The network says that there is no way to the peer.
    #[error("there is no way to the peer any more")]
    Unreachable,
    /// The sending process died without a word; everything that it had sent was written.
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

impl Error {
    pub(crate) fn sort(what: &'static str) -> impl Fn(io::Error) -> Error {
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

/// What is left of a drain that came to its end.
#[derive(Debug)]
pub struct Ended {
    /// What it did.
    pub stats: Stats,
    /// The socket; dropping it closes the connection once everything is acknowledged.
    pub socket: TcpStream,
}

/// Makes a connected socket late-choosing (`ldc_init`): what is sent into the ring that comes back goes out
/// over the socket. A thread plays the kernel's part.
///
/// The socket may still be read from, through a [`TcpStream::try_clone`] made before. Who writes to such
/// a clone puts bytes between the messages.
///
/// # Errors
/// When there is no memory or no thread, or the socket is none of TCP.
pub fn init(
    socket: TcpStream,
    shape: Shape,
    config: Config,
) -> Result<Drained<Result<Ended, Error>>, InitError> {
    let (sender, receiver) = ends::pair(shape)?;
    let drain = Drain::new(receiver, socket, config)?;
    Drained::start(sender, "ldc-tcp", move || drain.run())
        .map_err(InitError::io("starting the drain's thread"))
}
