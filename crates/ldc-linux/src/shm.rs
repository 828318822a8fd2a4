//! A ring between two processes: a sealed memfd, passed over a Unix socket that later carries wake-ups.
//!
//! ```no_run
//! # use std::os::unix::net::UnixStream;
//! use ldc_linux::{Attributes, Shape, Wake, shm};
//!
//! # fn one() -> Result<(), Box<dyn std::error::Error>> {
//! // The sending process, for instance a media server:
//! let mut ldc = shm::init(UnixStream::connect("/run/mixer")?, Shape::new(256, 1500)?)?;
//! ldc.send(1, b"frame", Attributes::default())?;
//! ldc.notify();
//! # Ok(()) }
//! # fn other(socket: UnixStream) -> Result<(), Box<dyn std::error::Error>> {
//! // The receiving process, on the connection that it accepted:
//! let mut ring = shm::attach(socket, 64 << 20)?;
//! loop {
//!     while let Some(message) = ring.claim(Some(ldc_linux::now()))? {
//!         let mut bytes = vec![0; message.len()];
//!         ring.ring().read(&message, 0, &mut bytes);
//!         ring.complete(message);
//!     }
//!     match ring.wait(None) {
//!         Wake::Ready | Wake::TimedOut => {}
//!         Wake::Closed | Wake::Gone => break,
//!     }
//! }
//! # Ok(()) }
//! ```
//!
//! # The offer
//!
//! The sender writes 16 bytes, with the memfd as ancillary data (SCM_RIGHTS). Each later byte, in either direction, is
//! a wake-up, and the end of the stream means that the peer has died:
//!
//! ```text
//! +---------------------+---------------------+
//! | "LDCm"              | version 1           |    native byte order: both run on one machine
//! +---------------------+---------------------+
//! | bytes of the memfd, 64 bits               |
//! +-------------------------------------------+
//! ```
//!
//! The memfd holds the ring and 64 more bytes. It is sealed (`F_SEAL_SHRINK`, `F_SEAL_GROW`), so that neither side can
//! change its length while the other uses it.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use ldc_ring::Shape;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

use crate::ends;
use crate::error::InitError;
use crate::memory::Memory;
use crate::sync::step;
use crate::sys;
use crate::wake::WakeSocket;
use crate::{OFFER_VERSION, Receiver, Sender};

const MAGIC: [u8; 4] = *b"LDCm";
pub(crate) const OFFER: usize = 16;

/// Creates a ring (`ldc_init`) and offers it to the process at the other end of `socket`, which calls [`attach`].
/// Sending can begin at once.
///
/// # Errors
/// The memory cannot be allocated, or the peer is gone.
pub fn init(socket: UnixStream, shape: Shape) -> Result<Sender, InitError> {
    let wake = socket
        .try_clone()
        .map_err(InitError::io("cannot duplicate the socket"))?;
    let sender = ends::create(shape, WakeSocket::over(wake))?;
    offer(sender.memory(), &socket)?;
    Ok(sender)
}

/// Attaches to the ring that the process at the other end of `socket` offers, of at most `max_len` bytes. Waits for the
/// offer until the read timeout of the socket expires.
///
/// The peer need not be trusted: this side checks what it passes.
///
/// # Errors
/// No valid offer arrives, or the memory cannot be mapped.
pub fn attach(socket: UnixStream, max_len: usize) -> Result<Receiver, InitError> {
    let (offer, fd) = receive(&socket)?;
    let (magic, rest) = offer.split_at(4);
    let (version, len) = rest.split_at(4);
    if magic != MAGIC {
        return Err(InitError::NoOffer);
    }
    let version = version.try_into().map_or(0, u32::from_ne_bytes);
    if version != OFFER_VERSION {
        return Err(InitError::OtherVersion(version));
    }
    let memory = Memory::adopt(fd.ok_or(InitError::NoOffer)?, max_len)?;
    let offered_len = len.try_into().map_or(0, u64::from_ne_bytes);
    if offered_len != memory.len() as u64 {
        return Err(InitError::NoOffer);
    }
    ends::attach(memory, WakeSocket::over(socket))
}

/// Sends the memory to a peer.
pub(crate) fn offer(memory: &Memory, socket: &UnixStream) -> Result<(), InitError> {
    let mut bytes = [0; OFFER];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..8].copy_from_slice(&OFFER_VERSION.to_ne_bytes());
    bytes[8..].copy_from_slice(&(memory.len() as u64).to_ne_bytes());
    let fds = [memory.fd().as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&fds)];
    let slices = [IoSlice::new(&bytes)];
    let fd = socket.as_raw_fd();
    step();
    match sendmsg::<()>(fd, &slices, &rights, MsgFlags::MSG_NOSIGNAL, None) {
        // So few bytes are never sent in part.
        Ok(_) => Ok(()),
        Err(Errno::EPIPE | Errno::ECONNRESET) => Err(InitError::Gone),
        Err(error) => Err(InitError::io("cannot offer the ring")(error)),
    }
}

/// Receives the bytes of an offer, and the descriptor that arrives with them.
fn receive(socket: &UnixStream) -> Result<([u8; OFFER], Option<OwnedFd>), InitError> {
    let mut bytes = [0; OFFER];
    let (mut have, mut fd) = (0, None);
    while have < OFFER {
        let slice = IoSliceMut::new(&mut bytes[have..]);
        match sys::receive_with_fd(socket, slice) {
            Ok((0, _)) => return Err(InitError::Gone),
            Ok((count, received)) => {
                have += count;
                fd = fd.or(received);
            }
            Err(Errno::EINTR) => {}
            Err(Errno::ECONNRESET) => return Err(InitError::Gone),
            Err(error) => return Err(InitError::io("cannot receive the offer of a ring")(error)),
        }
    }
    Ok((bytes, fd))
}
