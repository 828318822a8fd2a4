//! Errors, one enum per operation.

use std::io;

use ldc_ring::AttachError;
use thiserror::Error;

/// A ring could not be created, passed on or attached to.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InitError {
    /// The memory holds no usable ring.
    #[error("cannot use the ring: {0}")]
    Ring(AttachError),
    /// The peer could shrink the memory that it passed: refuse the peer.
    #[error("the peer's memory is not sealed against shrinking and growing")]
    NotSealed,
    /// The peer's memory is larger than the caller accepts.
    #[error("the peer's ring takes {len} bytes, more than the limit of {limit}")]
    TooLarge {
        /// Bytes of the memory.
        len: u64,
        /// The limit passed to [`crate::shm::attach`].
        limit: u64,
    },
    /// The peer sent something other than an offer of a ring: it is another program.
    #[error("the peer sent no offer of a ring")]
    NoOffer,
    /// The peer offers a ring in another version of the format.
    #[error(
        "the peer offers version {0} of a ring, this process takes version {own}: build both with the same release of \
         ldc-linux",
        own = crate::OFFER_VERSION
    )]
    OtherVersion(u32),
    /// The peer disconnected before it sent an offer.
    #[error("the peer disconnected")]
    Gone,
    /// The ring has a live receiver.
    #[error("the ring already has a live receiver")]
    InUse,
    /// The receiver closed the ring and will claim no more messages: create a new ring.
    #[error("the receiver has closed the ring")]
    Closed,
    /// The number of rings differs from the number of classes: pass one ring per class.
    #[error("{rings} rings for a scheduler of {classes} classes")]
    Classes {
        /// Rings that were passed.
        rings: usize,
        /// Classes of the scheduler.
        classes: usize,
    },
    /// The TLS configuration cannot be used for QUIC.
    #[error("the TLS configuration cannot be used for QUIC: {0}")]
    Tls(String),
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// What failed.
        what: &'static str,
        /// The error of the kernel.
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

/// A message was not sent.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum SendError {
    /// Too few slots are free: cancel messages, wait ([`crate::Sender::send_wait`]), or discard this message.
    #[error("not enough free slots in the ring")]
    Full,
    /// Longer than the ring: it can never be sent.
    #[error("the message is longer than the ring")]
    TooLong,
    /// The receiver closed the ring, or the drain has ended ([`crate::Drained::finish`] returns why).
    #[error("the receiver has closed the ring")]
    Closed,
    /// The receiver died: pass the ring to another one ([`crate::Sender::pass`]).
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

/// A wait ended without success.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum WaitError {
    /// The timeout expired.
    #[error("the timeout expired")]
    TimedOut,
    /// The receiver closed the ring, or the drain has ended.
    #[error("the ring is closed")]
    Closed,
    /// The receiver died without closing the ring.
    #[error("the receiver is gone")]
    Gone,
}
