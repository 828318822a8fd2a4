//! What the application wants to know.

use core::fmt;
use core::net::SocketAddr;
use core::ops::Range;

use crate::SessionId;
use crate::digest::Digest;

/// Why a receiver gave up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Failure {
    /// No heartbeat came at all.
    NoSource,
    /// The source went silent.
    SourceLost,
    /// The source said it leaves, or started another session, and nobody had the rest.
    SourceLeft,
    /// The source no longer holds what is missing.
    NoLongerHeld,
    /// Every block verified, but the whole is not what the source announced: a forger reached
    /// the group, and the wrong blocks could not be found and fetched again. The source did not
    /// answer, or contradicts itself; or the application reads the bytes as they come
    /// ([`crate::Delivery::Read`]) or the store is shorter than the content, and what is gone
    /// cannot be compared; or one who has the key forged.
    WholeDigest,
    /// The source lives, but nobody answers requests.
    Unanswered,
    /// The store failed.
    Store,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failure::NoSource => "no source was heard",
            Failure::SourceLost => "the source went silent",
            Failure::SourceLeft => "the source left before everything had arrived",
            Failure::NoLongerHeld => "the source no longer holds what is missing",
            Failure::WholeDigest => "the digest of the whole is wrong",
            Failure::Unanswered => "the source lives, but nobody answers requests",
            Failure::Store => "the store failed",
        })
    }
}

impl core::error::Error for Failure {}

/// What a receiver tells its application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReceiverEvent {
    /// A session was found; its name is [`crate::Receiver::name`].
    Opened {
        /// The session.
        session: SessionId,
        /// Its source.
        source: SocketAddr,
        /// Length of the content, if already known.
        length: Option<u64>,
        /// The first byte that will be delivered: 0 unless started late by choice. Where everything has
        /// been sent by then it may lie behind the end, less than a block, and nothing is delivered.
        start: u64,
    },
    /// The source was restarted with the same content under another session; nothing is lost.
    Resumed {
        /// The new session.
        session: SessionId,
    },
    /// A block's digest was wrong; it was thrown away and is asked for again.
    BlockRejected {
        /// The block's number.
        block: u64,
    },
    /// Everything arrived and verified.
    Complete {
        /// Bytes from the start of the content.
        length: u64,
        /// Digest of the whole; `None` without digests, or when started late and the source did not
        /// say what came before.
        digest: Option<Digest>,
    },
    /// It will never be complete; [`crate::Receiver::missing`] names every missing range.
    Failed {
        /// Why.
        failure: Failure,
        /// The first missing range, in bytes; its end is `u64::MAX` when the length is unknown.
        first_missing: Range<u64>,
    },
}

/// What a sender tells its application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SenderEvent {
    /// The first data packet is about to go.
    Started {
        /// Receivers that have joined by then.
        joined: u32,
    },
    /// A receiver reported for the first time.
    Joined {
        /// Its random identifier.
        receiver: u64,
        /// Its address.
        address: SocketAddr,
    },
    /// A receiver has everything.
    ReceiverComplete {
        /// Its random identifier.
        receiver: u64,
        /// Its address.
        address: SocketAddr,
    },
    /// A receiver gave up, left early, went silent, or holds something else than was sent.
    ReceiverFailed {
        /// Its random identifier.
        receiver: u64,
        /// Its address.
        address: SocketAddr,
        /// Blocks it held from the start on.
        blocks: u64,
        /// What happened.
        failure: ReceiverFailure,
    },
    /// Everything was sent once; repairs go on.
    Sent {
        /// Length of the content.
        length: u64,
        /// Digest of the whole.
        digest: Option<Digest>,
    },
    /// Every expected receiver has everything.
    Complete,
    /// Nothing is left to do: the linger time has passed with no request, or after closing.
    Finished,
    /// The store failed, or what it held is not what [`crate::SenderConfig::digest`] announced: the
    /// sender says good-bye and ends.
    StoreFailed,
}

/// What happened to a receiver, as the sender sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReceiverFailure {
    /// It said so.
    GaveUp,
    /// It left before it was complete.
    Left,
    /// It went silent.
    Silent,
    /// Its digest of the whole was not the content's, and it could not put that right.
    Mismatch,
}
