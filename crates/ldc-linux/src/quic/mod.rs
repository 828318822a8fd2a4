//! A ring drained into a QUIC connection (RFC 9000): a message can be given up until the peer has it.
//!
//! TCP delivers every byte that it was given, so a message that has begun to leave is late data choice's last word. A
//! QUIC stream can be reset: each message, or each run of messages with one sequence number, has a stream of its own, and
//! [`crate::Sender::abandon`] resets it. What was lost of it on the way is not sent again, and its bytes hold up no other
//! message. Messages that are not worth a retransmission leave as datagrams (RFC 9221).
//!
//! ```text
//! application --send--> [ ring: cancel, modify, hold back ] --claim--> [ in flight: abandon ] --> peer
//!                          all data that can wait                       congestion window
//! ```
//!
//! A message is claimed when congestion control lets it go, and not before: all earlier data has left, or shares a packet
//! with it, and the congestion window has room for one more packet. Where pacing or the peer's flow control holds a packet
//! up after all, nothing more is claimed, and its messages can still be abandoned.
//!
//! A claimed message keeps its slots until the peer has acknowledged it, so the ring holds what is in flight as well:
//! create it larger than the bandwidth-delay product.
//!
//! What leaves next is decided when a message is claimed: by the order of the ring, or of several rings
//! ([`crate::schedule`]). The priority of a message decides only what is sent again first.
//!
//! # Authentication
//!
//! The caller passes configurations of TLS 1.3 (`rustls`). Both ends should demand a certificate or a pinned key of the
//! other; an end that accepts any peer is open to anyone. The application protocol is set here (ALPN `ldc/1`), early data
//! stays off.
//!
//! # Bounds
//!
//! | what | bound |
//! | --- | --- |
//! | sender: messages in flight | the slots of the ring |
//! | sender: bytes of streams not acknowledged, copied from the ring | 8 MiB |
//! | sender: streams and datagrams from the peer | none; they end the connection |
//! | receiver: streams open at once | [`Limits::streams`] |
//! | receiver: bytes held by QUIC, not read yet | [`Limits::buffer`], and as much again for messages that are incomplete |
//! | receiver: datagrams not read yet | 1 MiB; then the oldest is dropped |
//! | receiver: connections, handshakes included | 16; further ones are refused |
//! | receiver: time for a handshake, and then for the first message | [`Limits::setup_timeout`] |
//! | receiver: state for an address that has not answered | none: each must return a token first (RFC 9000 §8.1.2) |

mod drain;
mod flight;
mod frame;
mod link;
mod receive;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn_proto::{ConnectionError, IdleTimeout, TransportConfig, VarInt};
use thiserror::Error;

pub use drain::{Drain, Next};
pub use receive::{Event, Limits, Receiver, ReceiverStats};

use crate::error::InitError;
use crate::thread::Drained;
use crate::{Shape, ends};

/// Name of the application protocol.
const ALPN: &[u8] = b"ldc/1";
/// Bytes of streams that the peer has not acknowledged.
const SEND_WINDOW: u64 = 8 << 20;

/// Codes with which an end closes a connection or a stream.
pub mod code {
    /// The sender has sent everything, and the receiver has it.
    pub const DONE: u32 = 0;
    /// The sender gave up a message.
    pub const ABANDONED: u32 = 1;
    /// The receiver serves another sender.
    pub const BUSY: u32 = 2;
    /// A stream does not hold whole messages of acceptable length.
    pub const MALFORMED: u32 = 3;
    /// The receiver holds too many incomplete messages.
    pub const OVERFLOW: u32 = 4;
    /// No message came in time.
    pub const SILENT: u32 = 5;
    /// The application refuses the sender; the reason says why.
    pub const REFUSED: u32 = 6;
    /// The receiver did not acknowledge the last messages in time.
    pub const GAVE_UP: u32 = 7;
}

/// Congestion control of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// NewReno (RFC 9002).
    NewReno,
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// BBR as quinn implements it, which calls it experimental: on slow links with short queues it loses more than the
    /// others.
    Bbr,
}

/// Which messages share a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Streams {
    /// None: each message has a stream of its own.
    #[default]
    PerMessage,
    /// Consecutive messages with the same sequence number, which arrive in order. Their stream is reset once all of
    /// them are abandoned or expired.
    PerSequence,
}

/// How a ring is drained.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Congestion control.
    pub congestion: Congestion,
    /// Which messages share a stream.
    pub streams: Streams,
    /// Messages of a lower priority than this leave as datagrams, if they fit into one: a lost one is not sent again. 0:
    /// none.
    pub datagrams_below: u32,
    /// The connection ends when nothing arrives for this time.
    pub idle_timeout: Duration,
    /// Time allowed after the ring is closed for the peer to acknowledge the remaining messages; then the drain ends with
    /// [`Error::TimedOut`].
    pub linger: Duration,
    /// Report to the sender what the peer has acknowledged: `poll_ack` of [`crate::Sender::ring`].
    pub acks: bool,
}

impl Default for Config {
    /// CUBIC, a stream per message, no datagrams, time limits of 30 s.
    fn default() -> Config {
        Config {
            congestion: Congestion::default(),
            streams: Streams::default(),
            datagrams_below: 0,
            idle_timeout: Duration::from_secs(30),
            linger: Duration::from_secs(30),
            acks: false,
        }
    }
}

/// Counters of a drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Messages that the peer has acknowledged.
    pub acked: u64,
    /// Messages sent as datagrams.
    pub datagrams: u64,
    /// Bytes of messages handed to QUIC.
    pub bytes: u64,
    /// Messages skipped because they were cancelled.
    pub cancelled: u64,
    /// Messages skipped because their deadline had passed.
    pub expired: u64,
    /// Messages given up after they were claimed: abandoned, or past their deadline.
    pub abandoned: u64,
    /// Messages whose stream the peer refused.
    pub refused: u64,
    /// Acknowledgements not reported to the sender, because it did not take earlier ones.
    pub acks_lost: u64,
    /// Packets that QUIC found to be lost.
    pub lost_packets: u64,
    /// Congestion window, bytes, when a message could last have been claimed.
    pub window: u64,
    /// Number of idle periods, each ended by `notify`.
    pub idles: u64,
}

/// Why a connection ended early. The ring of a drain is closed then.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer closed the connection.
    #[error("the peer has closed the connection (code {code}{}{reason})", if reason.is_empty() { "" } else { ": " })]
    Closed {
        /// See [`code`].
        code: u64,
        /// The peer's words.
        reason: String,
    },
    /// Nothing arrived from the peer for the idle timeout (no program listens there, or the path is down), or it did not
    /// acknowledge the last messages within [`Config::linger`].
    #[error("the connection timed out")]
    TimedOut,
    /// One end does not accept the certificate or the key of the other: both need matching ones.
    #[error("authentication failed: {0}")]
    Tls(String),
    /// The peer, or something between, violated the protocol.
    #[error("QUIC failed: {0}")]
    Protocol(String),
    /// A packet filter or a route of this host prohibits the datagrams.
    #[error("this host's packet filter or a prohibiting route refuses the datagrams")]
    Refused,
    /// The sending process died without closing the ring.
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
    pub(crate) fn io(what: &'static str) -> impl Fn(io::Error) -> Error {
        move |source| Error::Io { what, source }
    }
}

impl From<ConnectionError> for Error {
    fn from(error: ConnectionError) -> Error {
        // Alerts of TLS (RFC 9001 §4.8).
        let is_tls = |code: u64| (0x100..0x200).contains(&code);
        match error {
            ConnectionError::ApplicationClosed(close) => Error::Closed {
                code: close.error_code.into_inner(),
                reason: String::from_utf8_lossy(&close.reason).into_owned(),
            },
            ConnectionError::ConnectionClosed(close) if is_tls(close.error_code.into()) => {
                Error::Tls(format!("the peer refused this end: {close}"))
            }
            ConnectionError::TransportError(error) if is_tls(error.code.into()) => {
                Error::Tls(error.to_string())
            }
            ConnectionError::TimedOut => Error::TimedOut,
            other => Error::Protocol(other.to_string()),
        }
    }
}

/// Returns what both ends set alike.
fn transport(idle_timeout: Duration) -> TransportConfig {
    let mut transport = TransportConfig::default();
    let limit = IdleTimeout::try_from(idle_timeout).ok();
    transport
        .max_idle_timeout(limit)
        .keep_alive_interval(Some(idle_timeout / 4))
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .send_window(SEND_WINDOW);
    transport
}

/// Returns a ring that a thread drains into a QUIC connection to `remote`, whose certificate must be for `name`. The
/// connection is set up meanwhile; messages wait in the ring.
///
/// # Errors
/// The memory cannot be allocated, the socket cannot be opened, the thread cannot be spawned, or the TLS configuration is
/// not for TLS 1.3. That the peer does not answer or is not accepted is an error of [`Drained::finish`].
pub fn init(
    remote: SocketAddr,
    name: &str,
    tls: Arc<rustls::ClientConfig>,
    shape: Shape,
    config: Config,
) -> Result<Drained<Result<Stats, Error>>, InitError> {
    let (sender, receiver) = ends::pair(shape)?;
    let drain = Drain::connect(receiver, remote, name, tls, config)?;
    start(sender, drain)
}

/// Returns rings that a thread drains. `senders` is the sender of the ring, or the senders of all rings, of `drain`:
/// [`crate::Rings::create`].
///
/// # Errors
/// The thread cannot be spawned.
pub fn start<S>(senders: S, drain: Drain) -> Result<Drained<Result<Stats, Error>, S>, InitError> {
    Drained::start(senders, "ldc-quic", move || drain.run())
        .map_err(InitError::io("cannot spawn the thread of the drain"))
}
