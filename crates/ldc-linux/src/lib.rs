//! Late data choice on an unmodified Linux kernel: messages that have not left the host can still be cancelled or
//! modified (LDC, `docs/papers.md`; the ring itself is `ldc-ring`).
//!
//! The thesis patched the kernel so that TCP took packets out of a ring at the last moment. Here a thread or a future
//! moves messages from the ring into the socket only when the socket has little unsent data (`TCP_NOTSENT_LOWAT`). All
//! other messages stay in the ring, where the application can change them. The receiver needs no support: it reads the
//! bytes of the messages in order.
//!
//! ```
//! use std::io::Read;
//! use std::net::{TcpListener, TcpStream};
//!
//! use ldc_linux::{Attributes, Shape, tcp};
//!
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let socket = TcpStream::connect(listener.local_addr()?)?;
//! let mut ldc = tcp::init(socket, Shape::new(64, 1500)?, tcp::Config::default())?;
//! for layer in 0..4 {
//!     ldc.send(layer, format!("layer {layer}\n").as_bytes(), Attributes::default())?;
//! }
//! ldc.notify();
//! // The link is too slow: cancel the last layer, unless it has left.
//! let cancelled = ldc.cancel(3).changed == 1;
//! ldc.finish()?;
//!
//! let mut got = String::new();
//! listener.accept()?.0.read_to_string(&mut got)?;
//! assert!(got.ends_with(if cancelled { "layer 2\n" } else { "layer 3\n" }));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Calls of the thesis
//!
//! | LDC §4.2.3 | this crate |
//! | --- | --- |
//! | `ldc_init(socket, ring_size, packet_size)` | [`tcp::init`], [`udp::init`], [`shm::init`] with a [`Shape`] |
//! | `ldc_send(lpr, user_seq, addr, size, notify)` | [`Sender::send`]; [`Sender::notify`] is a separate call (§4.2.4) |
//! | `ldc_drop(lpr, user_seq)` | [`Sender::cancel`] |
//! | `ldc_notify` (an `ioctl` there) | [`Sender::notify`]: one byte on a socket, only if the other side sleeps |
//! | modify in the ring, move `umod_i` back | [`Sender::ring`]: `modify`, `hold_back`, `release` |
//! | `kern_acked`, `user_seq` | `poll_ack` of [`Sender::ring`], with [`tcp::Config::acks`] |
//!
//! # Entry points
//!
//! | the ring is drained by | use |
//! | --- | --- |
//! | a thread, into a TCP socket | [`tcp::init`] |
//! | a future, into a TCP socket (feature `tokio`) | `tcp::init_tokio` |
//! | your own event loop, into a TCP socket | [`tcp::Drain`] |
//! | a thread, into a QUIC connection (feature `quic`) | `quic::init` |
//! | your own event loop, into a QUIC connection (feature `quic`) | `quic::Drain` |
//! | a thread, into a UDP socket at a given rate | [`udp::init`] |
//! | a kind of drain chosen at run time | [`any::Sender`] |
//! | another process | [`shm::init`] in the sender, [`shm::attach`] in the other process |
//! | another process, into its TCP socket | [`shm::attach`], then [`tcp::Drain::new`] with the [`Receiver`] |
//!
//! Messages of several priorities go into one ring per class, which one drain claims in a strict or weighted order:
//! [`tcp::init_classes`], or [`Rings`] with any drain.
//!
//! # Failures
//!
//! | event | effect |
//! | --- | --- |
//! | the ring is full | `send` returns [`SendError::Full`]; [`Sender::send_wait`] waits |
//! | a message is longer than the ring | [`SendError::TooLong`], permanently |
//! | the TCP peer closed, reset, or timed out | the drain ends with an error, which `finish` returns, and the ring is closed: [`Sender::is_closed`] at once, [`SendError::Closed`] once the ring is full |
//! | the receiving process dies | waiting returns [`WaitError::Gone`]; [`Sender::pass`] passes the ring to another receiver, which continues at the same message |
//! | the sending process dies | the receiver gets all messages that are not held back, then [`Wake::Gone`]; of a message that was being modified and those after it, none; a drain writes them and ends with [`tcp::Error::ProducerDied`] |
//! | the other process corrupts the memory | messages disappear or their bytes change: see `ldc-ring`. It cannot shrink the memory, because only sealed memory is accepted |
//!
//! The kernel closes the socket of a process that dies, which ends each wait of the other process at once.
//!
//! # Bounds
//!
//! | what | bound |
//! | --- | --- |
//! | memory of a ring | [`Shape::block_len`] and one page, mapped by both sides; the sender's index: 40 bytes per slot |
//! | unsent bytes in a TCP socket | [`tcp::Unsent`] and one message |
//! | messages claimed and not written | 64 |
//! | messages written and not acknowledged, with [`tcp::Config::acks`] | 65,536; further acknowledgements are not reported, and counted |

#[cfg(not(loom))]
pub mod any;
mod ends;
mod error;
#[allow(unsafe_code, reason = "maps memory, and marks it as a ring")]
#[cfg_attr(loom, path = "models/memory.rs")]
mod memory;
#[cfg(loom)]
mod models;
#[cfg(all(feature = "quic", not(loom)))]
pub mod quic;
#[cfg(not(loom))]
mod rings;
#[cfg(not(loom))]
pub mod shm;
mod sync;
#[allow(unsafe_code, reason = "system calls")]
#[cfg(not(loom))]
mod sys;
#[cfg(not(loom))]
pub mod tcp;
#[cfg(not(loom))]
mod thread;
#[cfg(not(loom))]
pub mod udp;
#[cfg_attr(loom, path = "models/wake.rs")]
mod wake;

pub use ends::{Receiver, Sender, Wake};
pub use error::{InitError, SendError, WaitError};
pub use ldc_ring::{
    Attributes, Changed, Claimed, Duration, Instant, ModifyError, Sent, Shape, ShapeError, Ticket,
    schedule, window,
};
pub use memory::Memory;
#[cfg(not(loom))]
pub use rings::Rings;
#[cfg(not(loom))]
pub use thread::Drained;

/// The version of the offer. One more in a build of the next version (`docs/wire.md`).
const OFFER_VERSION: u32 = 1 + cfg!(polycast_next_version) as u32;

/// Returns the time of the clock of deadlines: CLOCK_MONOTONIC, which all processes of a host share, in microseconds.
pub fn now() -> Instant {
    Instant::from_micros(i64::try_from(now_ns() / 1_000).unwrap_or(i64::MAX))
}

/// Returns the time of CLOCK_MONOTONIC in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    let clock = nix::time::ClockId::CLOCK_MONOTONIC;
    // Every Linux has this clock.
    let now = nix::time::clock_gettime(clock).map_or(std::time::Duration::ZERO, Into::into);
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
