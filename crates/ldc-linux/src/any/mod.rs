//! A sender whose kind of drain is chosen at run time: what the interfaces for other languages are built on.
//!
//! One [`Sender`] holds the rings of all classes of messages and, where a thread of this process drains them, that thread.
//! A call that names a sequence number applies to all classes.
//!
//! ```
//! use std::io::Read;
//! use std::net::{TcpListener, TcpStream};
//!
//! use ldc_linux::{Attributes, Shape, any, schedule::Scheduler, tcp};
//!
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let socket = TcpStream::connect(listener.local_addr()?)?;
//! let shape = Shape::new(64, 1500)?;
//! let mut ldc = any::Sender::tcp(socket, shape, Scheduler::strict(2)?, tcp::Config::default())?;
//! ldc.send(1, 7, b"in the second class", Attributes::default())?;
//! ldc.notify();
//! assert!(ldc.finish(None)?.is_some());
//! let mut got = String::new();
//! listener.accept()?.0.read_to_string(&mut got)?;
//! assert_eq!(got, "in the second class");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod receiver;

#[cfg(feature = "quic")]
use std::net::SocketAddr;
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
#[cfg(feature = "quic")]
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ldc_ring::{Attributes, Changed, ModifyError, Shape};
use thiserror::Error;

pub use receiver::Receiver;

use crate::error::{InitError, SendError, WaitError};
use crate::rings::Rings;
use crate::schedule::Scheduler;
pub use crate::sys::duplicate;
use crate::{ends, shm, tcp, udp};

/// Counters of a drain that has ended. Those that its kind does not have are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Messages that left: written to the socket, passed to the kernel as datagrams, or, over QUIC, acknowledged.
    pub messages: u64,
    /// Bytes of messages written, or handed to QUIC.
    pub bytes: u64,
    /// Messages skipped because they were cancelled.
    pub cancelled: u64,
    /// Messages skipped because their deadline had passed.
    pub expired: u64,
    /// Messages that the peer acknowledged (TCP with [`tcp::Config::acks`], QUIC).
    pub acked: u64,
    /// Acknowledgements not reported to the sender, because it did not take earlier ones.
    pub acks_lost: u64,
    /// Messages given up after they were claimed (QUIC).
    pub abandoned: u64,
    /// Messages that the peer's host or the peer refused: ICMP errors (UDP), streams that were stopped (QUIC).
    pub refused: u64,
    /// Messages not sent because they exceed the datagram size of the path (UDP).
    pub too_big: u64,
    /// Packets that QUIC found to be lost.
    pub lost_packets: u64,
}

/// Why a drain ended early.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// Of a TCP socket.
    #[error(transparent)]
    Tcp(#[from] tcp::Error),
    /// Of a UDP socket.
    #[error(transparent)]
    Udp(#[from] udp::Error),
    /// Of a QUIC connection.
    #[cfg(feature = "quic")]
    #[error(transparent)]
    Quic(#[from] crate::quic::Error),
    /// Messages are held back, and so the drain cannot end: release or cancel them first. Nothing was changed.
    #[error("messages are held back and would never leave: release or cancel them first")]
    HeldBack,
    /// [`Sender::finish`] has returned the result already.
    #[error("the sender has finished already")]
    Finished,
    /// A bug of this crate.
    #[error("the thread of the drain panicked")]
    Panicked,
}

impl From<tcp::Ended> for Stats {
    /// Drops the socket.
    fn from(ended: tcp::Ended) -> Stats {
        let stats = ended.stats;
        Stats {
            messages: stats.messages,
            bytes: stats.bytes,
            cancelled: stats.cancelled,
            expired: stats.expired,
            acked: stats.acked,
            acks_lost: stats.acks_lost,
            ..Stats::default()
        }
    }
}

impl From<udp::Stats> for Stats {
    fn from(stats: udp::Stats) -> Stats {
        Stats {
            messages: stats.datagrams,
            bytes: stats.bytes,
            cancelled: stats.cancelled,
            expired: stats.expired,
            refused: stats.refused,
            too_big: stats.too_big,
            ..Stats::default()
        }
    }
}

#[cfg(feature = "quic")]
impl From<crate::quic::Stats> for Stats {
    fn from(stats: crate::quic::Stats) -> Stats {
        Stats {
            messages: stats.acked,
            bytes: stats.bytes,
            cancelled: stats.cancelled,
            expired: stats.expired,
            acked: stats.acked,
            acks_lost: stats.acks_lost,
            abandoned: stats.abandoned,
            refused: stats.refused,
            lost_packets: stats.lost_packets,
            ..Stats::default()
        }
    }
}

/// What empties the rings.
enum Drainer {
    /// Another thread or process, which this side does not own.
    Peer,
    Thread(JoinHandle<Result<Stats, Error>>),
    /// [`Sender::finish`] has returned its result.
    Finished,
}

/// The state of a class's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The ring's geometry.
    pub shape: Shape,
    /// Slots that a message can take now.
    pub free_slots: u32,
    /// Messages that were not claimed and not cancelled.
    pub pending: u32,
    /// Messages are held back.
    pub is_holding_back: bool,
    /// The receiver has closed the ring, or the drain has ended.
    pub is_closed: bool,
    /// The receiver's end exists.
    pub is_attached: bool,
}

/// The sending ends of the rings of all classes, and the thread that drains them. After it is dropped, the thread
/// continues until all messages have left or sending fails.
pub struct Sender {
    /// By class, at least one.
    senders: Vec<crate::Sender>,
    drainer: Drainer,
    /// `finish` was called: the rings are closed.
    is_finishing: bool,
}

/// No class has this number.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("there is no class {class}: the sender has {classes}, numbered from 0")]
pub struct NoClass {
    /// The number.
    pub class: usize,
    /// How many there are.
    pub classes: usize,
}

impl Sender {
    /// Returns a ring for two threads of this process.
    ///
    /// # Errors
    /// The memory cannot be allocated, or no descriptor is left.
    pub fn pair(shape: Shape) -> Result<(Sender, Receiver), InitError> {
        let (sender, receiver) = ends::pair(shape)?;
        Ok((Sender::over(vec![sender], Drainer::Peer), receiver.into()))
    }

    /// As [`shm::init`].
    ///
    /// # Errors
    /// As [`shm::init`].
    pub fn shm(socket: UnixStream, shape: Shape) -> Result<Sender, InitError> {
        let sender = shm::init(socket, shape)?;
        Ok(Sender::over(vec![sender], Drainer::Peer))
    }

    /// As [`tcp::init_classes`]: a ring of this shape per class of the scheduler.
    ///
    /// # Errors
    /// As [`tcp::init_classes`].
    pub fn tcp(
        socket: TcpStream,
        shape: Shape,
        scheduler: Scheduler,
        config: tcp::Config,
    ) -> Result<Sender, InitError> {
        let (senders, rings) = Rings::create(shape, scheduler)?;
        let drain = tcp::Drain::new(rings, socket, config)?;
        Sender::start(senders, "ldc-tcp", move || Ok(drain.run()?.into()))
    }

    /// As [`udp::init`].
    ///
    /// # Errors
    /// As [`udp::init`].
    pub fn udp(socket: UdpSocket, shape: Shape, config: udp::Config) -> Result<Sender, InitError> {
        let (sender, receiver) = ends::pair(shape)?;
        let drain = udp::Drain::new(receiver, socket, config);
        Sender::start(vec![sender], "ldc-udp", move || Ok(drain.run()?.into()))
    }

    /// As [`crate::quic::init`], with a ring of this shape per class of the scheduler.
    ///
    /// # Errors
    /// As [`crate::quic::init`].
    #[cfg(feature = "quic")]
    pub fn quic(
        remote: SocketAddr,
        name: &str,
        tls: Arc<rustls::ClientConfig>,
        shape: Shape,
        scheduler: Scheduler,
        config: crate::quic::Config,
    ) -> Result<Sender, InitError> {
        let (senders, rings) = Rings::create(shape, scheduler)?;
        let drain = crate::quic::Drain::connect(rings, remote, name, tls, config)?;
        Sender::start(senders, "ldc-quic", move || Ok(drain.run()?.into()))
    }

    fn over(senders: Vec<crate::Sender>, drainer: Drainer) -> Sender {
        Sender {
            senders,
            drainer,
            is_finishing: false,
        }
    }

    fn start(
        senders: Vec<crate::Sender>,
        name: &str,
        work: impl FnOnce() -> Result<Stats, Error> + Send + 'static,
    ) -> Result<Sender, InitError> {
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(work)
            .map_err(InitError::io("cannot spawn the thread of the drain"))?;
        Ok(Sender::over(senders, Drainer::Thread(thread)))
    }

    /// Returns the number of classes.
    pub fn classes(&self) -> usize {
        self.senders.len()
    }

    /// Returns the sender of a class, for all calls that [`crate::Sender`] has.
    ///
    /// # Errors
    /// There is no such class.
    pub fn class(&mut self, class: usize) -> Result<&mut crate::Sender, NoClass> {
        let classes = self.senders.len();
        self.senders
            .get_mut(class)
            .ok_or(NoClass { class, classes })
    }

    /// As [`crate::Sender::send`], into the ring of a class.
    ///
    /// # Errors
    /// As [`crate::Sender::send`]; [`SendError::Closed`] also if [`Sender::finish`] was called.
    ///
    /// # Panics
    /// If there is no such class.
    pub fn send(
        &mut self,
        class: usize,
        user_seq: u64,
        bytes: &[u8],
        attributes: Attributes,
    ) -> Result<(), SendError> {
        if self.is_finishing {
            return Err(SendError::Closed);
        }
        self.senders[class].send(user_seq, bytes, attributes)
    }

    /// As [`crate::Sender::send_wait`], into the ring of a class.
    ///
    /// # Errors
    /// As [`crate::Sender::send_wait`]; [`SendError::Closed`] also if [`Sender::finish`] was called.
    ///
    /// # Panics
    /// If there is no such class.
    pub fn send_wait(
        &mut self,
        class: usize,
        user_seq: u64,
        bytes: &[u8],
        attributes: Attributes,
        timeout: Option<Duration>,
    ) -> Result<(), SendError> {
        if self.is_finishing {
            return Err(SendError::Closed);
        }
        self.senders[class].send_wait(user_seq, bytes, attributes, timeout)
    }

    /// Wakes the receiver of each class if it sleeps, and returns whether one did.
    pub fn notify(&mut self) -> bool {
        let woken = self.senders.iter_mut().map(crate::Sender::notify);
        woken.fold(false, |any, one| any | one)
    }

    fn sum(&mut self, call: impl Fn(&mut crate::Sender) -> Changed) -> Changed {
        let mut sum = Changed::default();
        for sender in &mut self.senders {
            let one = call(sender);
            sum.changed = sum.changed.saturating_add(one.changed);
            sum.too_late = sum.too_late.saturating_add(one.too_late);
        }
        sum
    }

    /// As [`crate::Sender::cancel`], in all classes.
    pub fn cancel(&mut self, user_seq: u64) -> Changed {
        self.sum(|sender| sender.cancel(user_seq))
    }

    /// As [`crate::Sender::abandon`], in all classes.
    pub fn abandon(&mut self, user_seq: u64) -> Changed {
        self.sum(|sender| sender.abandon(user_seq))
    }

    /// Holds back the oldest message with this sequence number and all messages of its class sent after it, in each class
    /// that has one (`hold_back` of [`crate::Sender::ring`]).
    pub fn hold_back(&mut self, user_seq: u64) -> Changed {
        self.sum(|sender| sender.ring().hold_back(user_seq))
    }

    /// Holds back all messages that were not claimed, in all classes.
    pub fn hold_back_all(&mut self) -> Changed {
        self.sum(|sender| sender.ring().hold_back_all())
    }

    /// Ends the hold-back of all classes.
    pub fn release(&mut self) {
        for sender in &mut self.senders {
            sender.ring().release();
        }
    }

    /// Ends the hold-back for the messages sent before the oldest held one with this sequence number, in each class that
    /// holds one back. Returns `false` and changes nothing if none does.
    pub fn release_until(&mut self, user_seq: u64) -> bool {
        let released = self.senders.iter_mut();
        released.fold(false, |any, sender| {
            sender.ring().release_until(user_seq) | any
        })
    }

    /// Overwrites a part of the oldest message with this sequence number that was not claimed.
    ///
    /// # Errors
    /// There is none ([`ChangeError::Modify`]), or the part exceeds it; nothing was changed.
    pub fn modify(
        &mut self,
        user_seq: u64,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), ChangeError> {
        self.change(user_seq, |len| {
            let end = offset.checked_add(bytes.len());
            end.is_some_and(|end| end <= len)
                .then_some((len, offset, bytes))
        })
    }

    /// Replaces the oldest message with this sequence number that was not claimed. The new one must take as many slots.
    ///
    /// # Errors
    /// There is none ([`ChangeError::Modify`]), or the new one takes another number of slots; nothing was changed.
    pub fn replace(&mut self, user_seq: u64, bytes: &[u8]) -> Result<(), ChangeError> {
        self.change(user_seq, |_| Some((bytes.len(), 0, bytes)))
    }

    /// Runs a change in the first class that has the message: `plan` returns the new length, the offset and the bytes.
    fn change<'a>(
        &mut self,
        user_seq: u64,
        plan: impl Fn(usize) -> Option<(usize, usize, &'a [u8])>,
    ) -> Result<(), ChangeError> {
        let mut result = Err(ModifyError::Unknown);
        for sender in &mut self.senders {
            let one = sender.ring().modify(user_seq, |payload| {
                let Some((len, offset, bytes)) = plan(payload.len()) else {
                    return false;
                };
                let fits = len == payload.len() || payload.resize(len);
                if fits {
                    payload.write(offset, bytes);
                }
                fits
            });
            match one {
                Ok(true) => {
                    result = Ok(());
                    break;
                }
                Ok(false) => return Err(ChangeError::Length),
                // A class that knows the message says more than one that does not.
                Err(ModifyError::Unknown) => {}
                Err(error) => result = Err(error),
            }
        }
        Ok(result?)
    }

    /// Returns the sequence number of the next acknowledged message, of class 0 first.
    pub fn poll_ack(&mut self) -> Option<u64> {
        let mut senders = self.senders.iter_mut();
        senders.find_map(|sender| sender.ring().poll_ack())
    }

    /// Returns the state of a class's ring. Counts the pending messages one by one.
    ///
    /// # Errors
    /// There is no such class.
    pub fn state(&mut self, class: usize) -> Result<State, NoClass> {
        let sender = self.class(class)?;
        Ok(State {
            shape: sender.shape(),
            free_slots: sender.ring().free_slots(),
            pending: u32::try_from(sender.ring().pending().count()).unwrap_or(u32::MAX),
            is_holding_back: sender.ring().is_holding_back(),
            is_closed: sender.is_closed(),
            is_attached: sender.is_attached(),
        })
    }

    /// Returns whether the thread of the drain has ended. `false` without a thread.
    pub fn has_ended(&self) -> bool {
        match &self.drainer {
            Drainer::Peer => false,
            Drainer::Thread(thread) => thread.is_finished(),
            Drainer::Finished => true,
        }
    }

    /// Closes the rings, and waits until all messages have left and the drain has ended, at most `timeout` (`None`:
    /// without limit). Returns `None` if the timeout expired; then it may be called again. A ring that another thread or
    /// process empties is closed, and not waited for.
    ///
    /// # Errors
    /// The drain ended early, messages are held back, or it was called after it had returned a result.
    pub fn finish(&mut self, timeout: Option<Duration>) -> Result<Option<Stats>, Error> {
        if matches!(self.drainer, Drainer::Finished) {
            return Err(Error::Finished);
        }
        let mut rings = self.senders.iter_mut().map(crate::Sender::ring);
        let is_held = rings.any(|ring| {
            // A drain that has ended takes no more messages, held back or not.
            ring.is_holding_back() && !ring.is_closed()
        });
        if is_held && !self.has_ended() {
            return Err(Error::HeldBack);
        }
        self.is_finishing = true;
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        for sender in &mut self.senders {
            sender.close();
        }
        if matches!(self.drainer, Drainer::Thread(_)) {
            for sender in &mut self.senders {
                match sender.wait_closed(end) {
                    Err(WaitError::TimedOut) => return Ok(None),
                    // The receiving end is dropped as the last thing that the thread does.
                    Ok(()) | Err(WaitError::Closed | WaitError::Gone) => {}
                }
            }
        }
        match std::mem::replace(&mut self.drainer, Drainer::Finished) {
            Drainer::Thread(thread) => match thread.join() {
                Ok(result) => result.map(Some),
                Err(_) => Err(Error::Panicked),
            },
            Drainer::Peer | Drainer::Finished => Ok(Some(Stats::default())),
        }
    }
}

/// A message was not changed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ChangeError {
    /// No such message can be changed.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// The bytes exceed the message, or the new message takes another number of slots.
    #[error("the bytes exceed the message, or the new length takes another number of slots")]
    Length,
}
