//! Errors, one enum a verb. Each variant says what a caller can do about it.

use std::io;

use ldc_ring::AttachError;
use thiserror::Error;

/// A ring was not made, not passed on or not attached to.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InitError {
    /// The memory is not a ring that can be used.
    #[error("the ring: {0}")]
    Ring(AttachError),
    /// The memory that the peer passed could be made smaller under our feet: refuse that peer.
    #[error("the peer's memory is not sealed against shrinking and growing")]
    NotSealed,
    /// The peer passed more memory than we are willing to map.
    #[error("the peer's ring takes {len} bytes, more than the {most} allowed")]
    TooLarge {
        /// What it takes.
        len: u64,
        /// What [`crate::shm::attach`] was told to accept.
        most: u64,
    },
    /// What came over the Unix socket is no offer of a ring: the peer is another program, or of another
    /// version.
    #[error("what came over the socket is no offer of a ring")]
    NoOffer,
    /// The peer went away before it said anything.
    #[error("the peer went away")]
    Gone,
    /// The ring has a receiver that is alive.
    #[error("the ring has a receiver already, and it is alive")]
    InUse,
    /// The receiver closed the ring: nothing will be claimed from it any more. Make a new one.
    #[error("the receiver has closed the ring")]
    Closed,
    /// Anything else.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl InitError {
    pub(crate) fn io<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> InitError {
        move |source| InitError::Io {
            what,
            source: source.into(),
        }
    }
}

/// A message was not sent. Nothing of it was put into the ring.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum SendError {
    /// Not enough free slots at the moment: drop something, wait ([`crate::Sender::send_wait`]), or do
    /// without this message.
    #[error("not enough free slots in the ring")]
    Full,
    /// Longer than the ring: it will never fit.
    #[error("the message is longer than the ring")]
    TooLong,
    /// Nobody will take messages any more: the receiver closed the ring, or the drain has ended
    /// ([`crate::Drained::finish`] says why).
    #[error("the ring is closed: nobody takes messages from it any more")]
    Closed,
    /// The receiver died: give the ring to another ([`crate::Sender::pass`]).
    #[error("the receiver is gone")]
    Gone,
}

impl From<ldc_ring::SendError> for SendError {
    fn from(error: ldc_ring::SendError) -> SendError {
        match error {
            ldc_ring::SendError::Full => SendError::Full,
            ldc_ring::SendError::TooLong => SendError::TooLong,
        }
    }
}

/// Waiting ended, and not with what was waited for.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum WaitError {
    /// The time is over.
    #[error("the time is over")]
    TimedOut,
    /// The receiver closed the ring, or the drain has ended.
    #[error("the ring is closed")]
    Closed,
    /// The receiver died without a word.
    #[error("the receiver is gone")]
    Gone,
}
