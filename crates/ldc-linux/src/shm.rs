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
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use ldc_ring::Shape;
use linux_net::poll::{self, Watch};
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
/// offer until the read timeout of the socket expires; [`Attachment`] waits in steps.
///
/// The peer need not be trusted: this side checks what it passes.
///
/// # Errors
/// No valid offer arrives, or the memory cannot be mapped.
pub fn attach(socket: UnixStream, max_len: usize) -> Result<Receiver, InitError> {
    let mut attachment = Attachment::new(socket, max_len);
    while !attachment.receive(MsgFlags::empty())? {}
    attachment.attach()
}

/// An offer that is awaited in steps, between which the caller does something else; then it attaches as [`attach`] does.
#[derive(Debug)]
pub struct Attachment {
    socket: UnixStream,
    max_len: usize,
    bytes: [u8; OFFER],
    have: usize,
    fd: Option<OwnedFd>,
}

impl Attachment {
    /// Waits for the offer of a ring of at most `max_len` bytes on `socket`.
    #[must_use]
    pub fn new(socket: UnixStream, max_len: usize) -> Self {
        Attachment {
            socket,
            max_len,
            bytes: [0; OFFER],
            have: 0,
            fd: None,
        }
    }

    /// Waits at most `limit` for the rest of the offer, whatever timeouts and mode the socket has. Returns whether all of it has
    /// arrived.
    ///
    /// # Errors
    /// The peer is gone, or the socket failed.
    pub fn wait(&mut self, limit: Duration) -> Result<bool, InitError> {
        let end = Instant::now().checked_add(limit);
        while self.have < OFFER {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let mut watch = [Watch::readable(self.socket.as_fd())];
            let ready = poll::wait(&mut watch, left);
            let ready = ready.map_err(InitError::io("cannot wait for the offer of a ring"))?;
            if ready > 0 {
                self.receive(MsgFlags::MSG_DONTWAIT)?;
            } else if left.is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Receives more of the offer, and the descriptor that arrives with it. Returns whether all of it has arrived.
    fn receive(&mut self, flags: MsgFlags) -> Result<bool, InitError> {
        let slice = IoSliceMut::new(&mut self.bytes[self.have..]);
        match sys::receive_with_fd(&self.socket, slice, flags) {
            Ok((0, _)) => return Err(InitError::Gone),
            Ok((count, received)) => {
                self.have += count;
                self.fd = self.fd.take().or(received);
            }
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) if flags.contains(MsgFlags::MSG_DONTWAIT) => {}
            Err(Errno::ECONNRESET) => return Err(InitError::Gone),
            Err(error) => return Err(InitError::io("cannot receive the offer of a ring")(error)),
        }
        Ok(self.have == OFFER)
    }

    /// Attaches to the ring, once all of the offer has arrived.
    ///
    /// # Errors
    /// The offer is not valid or not complete, or the memory cannot be mapped.
    pub fn attach(self) -> Result<Receiver, InitError> {
        let (magic, rest) = self.bytes.split_at(4);
        let (version, len) = rest.split_at(4);
        if magic != MAGIC {
            return Err(InitError::NoOffer);
        }
        let version = version.try_into().map_or(0, u32::from_ne_bytes);
        if version != OFFER_VERSION {
            return Err(InitError::OtherVersion(version));
        }
        let memory = Memory::adopt(self.fd.ok_or(InitError::NoOffer)?, self.max_len)?;
        let offered_len = len.try_into().map_or(0, u64::from_ne_bytes);
        if offered_len != memory.len() as u64 {
            return Err(InitError::NoOffer);
        }
        ends::attach(memory, WakeSocket::over(self.socket))
    }
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
