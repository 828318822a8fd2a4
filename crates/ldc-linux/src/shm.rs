//! A ring between two processes: a sealed memfd, passed over a Unix socket that stays their bell.
//!
//! ```no_run
//! # use std::os::unix::net::UnixStream;
//! use ldc_linux::{Attributes, Shape, Wake, shm};
//!
//! # fn one() -> Result<(), Box<dyn std::error::Error>> {
//! // One process, for instance a media server:
//! let mut ldc = shm::init(UnixStream::connect("/run/mixer")?, Shape::new(256, 1500)?)?;
//! ldc.send(1, b"frame", Attributes::default())?;
//! ldc.notify();
//! # Ok(()) }
//! # fn other(socket: UnixStream) -> Result<(), Box<dyn std::error::Error>> {
//! // The other, on the connection that it accepted:
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
//! The sender writes 16 bytes, with the memfd as ancillary data (SCM_RIGHTS); afterwards each byte, of either
//! side, is a ring of the bell, and the end of the stream a death:
//!
//! ```text
//! +---------------------+---------------------+
//! | "LDCm"              | version 1           |    native byte order: both run on one machine
//! +---------------------+---------------------+
//! | bytes of the memfd, 64 bits               |
//! +-------------------------------------------+
//! ```
//!
//! The memfd holds the ring and one line of 64 bytes more, and is sealed (`F_SEAL_SHRINK`, `F_SEAL_GROW`), so
//! that neither side can take the memory away from under the other.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use ldc_ring::Shape;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

use crate::bell::Bell;
use crate::ends;
use crate::error::InitError;
use crate::memory::Memory;
use crate::sys;
use crate::{Receiver, Sender};

const MAGIC: [u8; 4] = *b"LDCm";
const VERSION: u32 = 1;
pub(crate) const OFFER: usize = 16;

/// Makes a ring (`ldc_init`) and offers it to the process at the other end of `socket`, which calls
/// [`attach`]. Sending may begin at once.
///
/// # Errors
/// When there is no memory, or the peer is gone.
pub fn init(socket: UnixStream, shape: Shape) -> Result<Sender, InitError> {
    let bell = socket
        .try_clone()
        .map_err(InitError::io("a second handle of the socket"))?;
    let sender = ends::create(shape, Bell::over(bell))?;
    offer(sender.memory(), &socket)?;
    Ok(sender)
}

/// Takes the ring that the process at the other end of `socket` offers, of at most `most` bytes. Waits for
/// the offer, as long as the socket's read timeout.
///
/// The peer need not be trusted: what it passes is checked, and can hurt nobody but itself.
///
/// # Errors
/// When the offer does not come, or is none.
pub fn attach(socket: UnixStream, most: usize) -> Result<Receiver, InitError> {
    let (offer, fd) = receive(&socket)?;
    let (magic, rest) = offer.split_at(4);
    let (version, len) = rest.split_at(4);
    let known = magic == MAGIC && version == VERSION.to_ne_bytes();
    let memory = Memory::adopt(fd.ok_or(InitError::NoOffer)?, most)?;
    let len_said = len.try_into().map_or(0, u64::from_ne_bytes);
    if !known || len_said != memory.len() as u64 {
        return Err(InitError::NoOffer);
    }
    ends::attach(memory, Bell::over(socket))
}

/// Sends the memory to a peer.
pub(crate) fn offer(memory: &Memory, socket: &UnixStream) -> Result<(), InitError> {
    let mut bytes = [0; OFFER];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..8].copy_from_slice(&VERSION.to_ne_bytes());
    bytes[8..].copy_from_slice(&(memory.len() as u64).to_ne_bytes());
    let fds = [memory.fd().as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&fds)];
    let slices = [IoSlice::new(&bytes)];
    let fd = socket.as_raw_fd();
    match sendmsg::<()>(fd, &slices, &rights, MsgFlags::MSG_NOSIGNAL, None) {
        // So few bytes go whole.
        Ok(_) => Ok(()),
        Err(Errno::EPIPE | Errno::ECONNRESET) => Err(InitError::Gone),
        Err(error) => Err(InitError::io("offering the ring")(error)),
    }
}

/// The bytes of an offer, and the descriptor that came with it.
fn receive(socket: &UnixStream) -> Result<([u8; OFFER], Option<OwnedFd>), InitError> {
    let mut bytes = [0; OFFER];
    let (mut have, mut fd) = (0, None);
    while have < OFFER {
        let slice = IoSliceMut::new(&mut bytes[have..]);
        match sys::receive_with_fd(socket, slice) {
            Ok((0, _)) => return Err(InitError::Gone),
            Ok((count, came)) => {
                have += count;
                fd = fd.or(came);
            }
            Err(Errno::EINTR) => {}
            Err(Errno::ECONNRESET) => return Err(InitError::Gone),
            Err(error) => return Err(InitError::io("waiting for a ring")(error)),
        }
    }
    Ok((bytes, fd))
}
