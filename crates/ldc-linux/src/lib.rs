//! Late data choice on an ordinary Linux kernel: what was sent and has not left yet can still be dropped or
//! changed (LDC, `docs/papers.md`; the ring itself is `ldc-ring`).
//!
//! The thesis patched the kernel so that its TCP took packets out of a ring at the last moment. Here a
//! thread, or a future, plays that part: it moves messages from the ring into the socket only when the
//! socket has next to nothing unsent (`TCP_NOTSENT_LOWAT`), so what is not about to leave stays in
//! the ring, within the application's reach. The receiver is not involved: it sees the bytes of the
//! messages, one after the other.
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
//! // Too much after all: not the last one, if it is still here.
//! let dropped = ldc.drop(3).changed == 1;
//! ldc.finish()?;
//!
//! let mut got = String::new();
//! listener.accept()?.0.read_to_string(&mut got)?;
//! assert!(got.ends_with(if dropped { "layer 2\n" } else { "layer 3\n" }));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The words of the thesis
//!
//! | thesis §4.2.3 | here |
//! | --- | --- |
//! | `ldc_init(socket, ring_size, packet_size)` | [`tcp::init`], [`udp::init`], [`shm::init`] with a [`Shape`] |
//! | `ldc_send(lpr, user_seq, addr, size, notify)` | [`Sender::send`]; [`Sender::notify`] is a call of its own (§4.2.4) |
//! | `ldc_drop(lpr, user_seq)` | [`Sender::drop`] |
//! | `ldc_notify` (an `ioctl` there) | [`Sender::notify`]: one byte on a socket, and only when the other side sleeps |
//! | modify in the ring, move `umod_i` back | [`Sender::ring`]: `modify`, `hold_back`, `release` |
//! | `kern_acked`, `user_seq` | `poll_ack` of [`Sender::ring`], with [`tcp::Config::acks`] |
//!
//! # Which door for what
//!
//! | the ring is drained by | use |
//! | --- | --- |
//! | a thread, into a TCP socket | [`tcp::init`] |
//! | a future, into a TCP socket (feature `tokio`) | `tcp::init_tokio` |
//! | your own event loop, into a TCP socket | [`tcp::Drain`] |
//! | a thread, into a UDP socket at a given rate | [`udp::init`] |
//! | another process, for whatever it does with it | [`shm::init`] there and [`shm::attach`] here |
//! | another process, into its TCP socket | [`shm::attach`], and its [`Receiver`] into [`tcp::Drain::new`] |
//!
//! # When something goes wrong
//!
//! | event | who learns of it, and how |
//! | --- | --- |
//! | ring full | `send` answers [`SendError::Full`]; [`Sender::send_wait`] waits |
//! | message longer than the ring | [`SendError::TooLong`], for good |
//! | TCP peer closed, connection reset, timed out | the drain ends with an error, `finish` hands it on; the ring is closed: [`SendError::Closed`] once it is full, [`Sender::is_closed`] at once |
//! | the receiving process dies | waiting answers [`WaitError::Gone`]; another one can be given the ring ([`Sender::pass`]): it goes on where that one was |
//! | the sending process dies | the receiver gets all that was sent and not held back, then [`Wake::Gone`]; a drain writes it and ends with [`tcp::Error::ProducerDied`] |
//! | the other process writes nonsense into the memory | messages vanish or their bytes change, no more: see `ldc-ring`. It cannot shrink the memory: it is sealed, and what is not sealed is refused |
//!
//! # Bounds
//!
//! | what | bound |
//! | --- | --- |
//! | memory of a ring | [`Shape::block_len`] and one page, mapped by both sides; the sender's index: 48 bytes a slot |
//! | unsent bytes in a TCP socket | [`tcp::Unsent`] and one message |
//! | messages claimed and not written | 64 |
//! | messages written and not acknowledged, with [`tcp::Config::acks`] | 65,536; the news of others is lost, and counted |

mod bell;
#[allow(unsafe_code, reason = "marks memory that both sides map as a ring")]
mod ends;
mod error;
#[allow(unsafe_code, reason = "maps memory")]
mod memory;
pub mod shm;
#[allow(unsafe_code, reason = "system calls")]
mod sys;
pub mod tcp;
mod thread;
pub mod udp;

pub use ends::{Receiver, Sender, Wake};
pub use error::{InitError, SendError, WaitError};
pub use ldc_ring::{
    Attributes, Changed, Claimed, Duration, Instant, ModifyError, Sent, Shape, ShapeError, Ticket,
    window,
};
pub use memory::Memory;
pub use thread::Drained;

/// The clock of deadlines: CLOCK_MONOTONIC, which all processes of a machine share, in microseconds.
pub fn now() -> Instant {
    Instant::from_micros(i64::try_from(now_ns() / 1_000).unwrap_or(i64::MAX))
}

/// The same in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    let clock = nix::time::ClockId::CLOCK_MONOTONIC;
    // Every Linux has this clock.
    let now = nix::time::clock_gettime(clock).map_or(std::time::Duration::ZERO, Into::into);
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
