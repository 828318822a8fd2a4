//! Events and results of a sender.

use std::net::SocketAddr;
use std::time::Duration;

use ltp::relayed::AttachmentEvent;
use ltp::{ReceiverFailure, ReceiverState, SessionId};

use crate::version::OtherVersion;

/// What happens during a transfer.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum SendEvent {
    /// The content is read for its digest before the start.
    Reading {
        /// Bytes read.
        bytes: u64,
        /// Bytes of the content.
        length: u64,
    },
    /// The sender starts.
    Opened {
        /// The session.
        session: SessionId,
        /// Name of the content.
        name: String,
        /// Bytes of the content; `None`: a stream.
        length: Option<u64>,
        /// The address that is sent from.
        source: SocketAddr,
        /// The interface.
        interface: String,
        /// The rate, bit/s; `None`: nothing limits it.
        rate_bps: Option<u64>,
    },
    /// A receiver or relay speaks another version of its protocol. Told once.
    OtherVersion(OtherVersion),
    /// A receiver joined.
    Joined {
        /// Its identifier.
        receiver: u64,
        /// Its address.
        address: SocketAddr,
    },
    /// Data begins.
    Started {
        /// Hosts that have joined.
        joined: u32,
    },
    /// A relay serves this source, or does so no longer.
    Relay(AttachmentEvent),
    /// A receiver does not advance, and its relay no longer waits for it.
    ReceiverStalled {
        /// Its address.
        address: SocketAddr,
        /// The relay's identifier.
        relay: String,
    },
    /// What the relay acknowledges makes no progress; new data no longer waits for it.
    RelayStalled {
        /// Bytes acknowledged.
        bytes: u64,
    },
    /// More bytes were sent for the first time, or the length of a stream became known.
    Position {
        /// Bytes sent once.
        bytes: u64,
        /// Bytes of the content, if known.
        length: Option<u64>,
    },
    /// The state, once a second.
    Progress {
        /// Bytes sent once.
        bytes: u64,
        /// Bytes of the content, if known.
        length: Option<u64>,
        /// Hosts that have joined.
        joined: u32,
        /// Hosts that have confirmed.
        complete: u32,
        /// The rate, bit/s; `None`: nothing limits it.
        rate_bps: Option<u64>,
        /// The receiver that new data or the end waits for.
        waiting_for: Option<ReceiverStatus>,
        /// The receiver whose rate the sender follows, with [`Rate::Congestion`](crate::Rate::Congestion). Below relays its
        /// address is that of the sender's relay.
        limiting: Option<LimitingStatus>,
    },
    /// The rate has changed; at most once a second.
    Rate {
        /// The rate, bit/s; `None`: nothing limits it.
        rate_bps: Option<u64>,
    },
    /// Segmentation batches are lost on the way to a receiver; single datagrams are sent from now on.
    SegmentationOff,
    /// A receiver has confirmed everything.
    ReceiverComplete {
        /// Its identifier.
        receiver: u64,
        /// Its address.
        address: SocketAddr,
    },
    /// A receiver failed or was given up.
    ReceiverFailed {
        /// Its identifier.
        receiver: u64,
        /// Its address.
        address: SocketAddr,
        /// Bytes it has, from the start on.
        bytes: u64,
        /// Why.
        failure: ReceiverFailure,
    },
    /// Everything was sent once; repairs go on.
    Sent {
        /// Bytes of the content.
        length: u64,
        /// Digest of the content (BLAKE3), if it was computed.
        digest: Option<[u8; 32]>,
        /// Time since the start.
        elapsed: Duration,
    },
}

/// A receiver that has joined, as the sender knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiverStatus {
    /// Its identifier.
    pub receiver: u64,
    /// Its address.
    pub address: SocketAddr,
    /// Its state.
    pub state: ReceiverState,
    /// Bytes it has, from the start on, rounded up to whole blocks while the length is unknown.
    pub bytes: u64,
}

/// The receiver that congestion control follows.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct LimitingStatus {
    /// Its identifier.
    pub receiver: u64,
    /// Its address.
    pub address: SocketAddr,
    /// The rate that a TCP would have there, bits of Ethernet frames a second; `None` before its first loss.
    pub rate_bps: Option<u64>,
    /// Its loss event rate (RFC 4654 §4.3), 0 to 1.
    pub loss: f64,
    /// Its round-trip time.
    pub round_trip: Duration,
}

/// How a transfer ended, as far as the sender knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendOutcome {
    /// [`SendConfig::receivers`](crate::SendConfig::receivers) hosts have confirmed, and no receiver that joined
    /// lacks anything.
    Complete,
    /// Everything was sent, no number of receivers was expected, and nothing more was asked for.
    Sent,
}

/// Everything was sent, but something is known or suspected to lack part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unconfirmed {
    /// Nothing below the relay has acknowledged or asked for anything.
    #[error("sent, but no receiver below the relay acknowledged anything")]
    Unheard,
    /// Relays stopped waiting for some receivers: [`Sender::stalled`](crate::Sender::stalled) names them.
    #[error("sent, but relays stopped waiting for some receivers")]
    Stalled,
    /// What the relay acknowledged stood still.
    #[error("sent, but what the relay acknowledged stood still")]
    RelayStalled,
    /// Fewer hosts than expected have confirmed, or a receiver that joined lacks something:
    /// [`Sender::members`](crate::Sender::members) names them. Receivers at one address count as one host.
    #[error(
        "sent, but not confirmed by all: {expected} hosts expected, {joined} joined, {confirmed} confirmed"
    )]
    Receivers {
        /// Hosts that were expected.
        expected: u32,
        /// Hosts that joined.
        joined: u32,
        /// Hosts that confirmed everything.
        confirmed: u32,
    },
}
