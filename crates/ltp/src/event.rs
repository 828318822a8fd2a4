//! Events for the application.

use core::net::SocketAddr;
use core::ops::Range;

use crate::SessionId;
use crate::digest::Digest;

proto_core::errors! {
    /// Why a receiver gave up.
    pub enum Failure {
        /// No heartbeat came at all.
        NoSource = "no source was heard",
        /// The source went silent.
        SourceLost = "the source went silent",
        /// The source has ended, or started another session, and no other host had the rest.
        SourceLeft = "the source left before everything had arrived",
        /// The source no longer stores packets that are missing.
        NoLongerStored = "the source no longer stores packets that are missing",
        /// Every block verified, but the whole is not what the source announced: a forger reached
        /// the group, and the wrong blocks could not be found and fetched again. The source did not
        /// answer, or contradicts itself; or the application reads the bytes as they come
        /// ([`crate::Delivery::Read`]) or the store is shorter than the content, so that earlier blocks
        /// cannot be compared; or a host with the key forged.
        WholeDigest = "the digest of the whole is wrong",
        /// A block and the source's digest of it were fetched again and again, in turn, and disagreed for
        /// three times [`crate::ReceiverConfig::source_timeout`]: they are changed on the way, or forged.
        Disagreement = "a block and its digest disagreed repeatedly",
        /// The source is alive, but requests are not answered.
        Unanswered = "the source is alive but does not answer requests",
        /// The store failed.
        Store = "the store failed",
        /// It held the rate below [`crate::SenderConfig::min_rate_bps`].
        TooSlow = "this receiver's path is slower than the source's lowest rate",
    }
}

/// An event of a receiver.
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
    /// A block's digest was wrong; it was discarded and is requested again.
    BlockRejected {
        /// The block's number.
        block: u64,
    },
    /// Everything arrived and verified.
    Complete {
        /// Bytes from the start of the content.
        length: u64,
        /// Digest of the whole; `None` without digests, or after a late start where the source no longer knew
        /// the digests of earlier blocks.
        digest: Option<Digest>,
    },
    /// The content will never be complete; [`crate::Receiver::missing`] names every missing range.
    Failed {
        /// Why.
        failure: Failure,
        /// The first missing range, in bytes; its end is `u64::MAX` when the length is unknown.
        first_missing: Range<u64>,
    },
}

/// An event of a sender.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SenderEvent {
    /// The first data packet is about to be sent.
    Started {
        /// Receivers that have joined by then.
        joined: u32,
    },
    /// An address reported for the first time, after it had returned its token.
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
    /// A receiver gave up, left early, went silent, stood still, or holds something else than was sent. The sender
    /// no longer waits for it.
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
    /// What the relay acknowledges for all below it did not advance for
    /// [`crate::SenderConfig::receiver_timeout`] although it lacked something. New data does not wait for
    /// it any more; it counts again when it advances.
    RelayStalled {
        /// Blocks that all below the relay hold from the start on.
        blocks: u64,
    },
    /// Everything was sent once; repairs go on.
    Sent {
        /// Length of the content.
        length: u64,
        /// Digest of the whole.
        digest: Option<Digest>,
    },
    /// At least [`crate::SenderConfig::receivers`] hosts have confirmed that they have everything, and
    /// no receiver that joined lacks anything.
    Complete,
    /// The sender has ended: the linger time has passed without a request, or it was closed.
    Finished,
    /// The store failed, or its content does not match [`crate::SenderConfig::digest`]: the sender announces
    /// its end.
    StoreFailed,
}

/// A receiver that joined, as the sender sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReceiverInfo {
    /// Its random identifier.
    pub receiver: u64,
    /// Its address.
    pub address: SocketAddr,
    /// Blocks it holds from the start on, by its last report.
    pub blocks: u64,
    /// Its state.
    pub state: ReceiverState,
}

/// State of a receiver that joined.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReceiverState {
    /// The sender waits for it.
    Receiving,
    /// It confirmed that it has everything.
    Complete,
    /// The sender no longer waits for it. It may still complete.
    Failed(ReceiverFailure),
}

/// What happened to a receiver, as the sender sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReceiverFailure {
    /// It reported that it gave up.
    GaveUp,
    /// It left before it was complete.
    Left,
    /// It went silent.
    Silent,
    /// It reported, but did not advance for [`crate::SenderConfig::receiver_timeout`] although it lacked
    /// something.
    NoProgress,
    /// It went silent after another receiver had joined from its host: a receiver that was started again.
    /// Or it had failed, and another one joined from its host.
    Replaced,
    /// Receivers of its host failed or were started again three times: it is served, not waited for.
    NotWaitedFor,
    /// Its digest of the whole was not the content's, and it could not put that right.
    Mismatch,
    /// It held the rate below [`crate::SenderConfig::min_rate_bps`].
    TooSlow,
}
