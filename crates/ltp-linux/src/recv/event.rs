//! Events of a receiver.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use linux_net::OpenError;
use ltp::SessionId;
use ltp::relayed::AttachmentEvent;

use crate::version::OtherVersion;

/// What happens during a transfer.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReceiveEvent {
    /// LMS's IP options cannot be used, for want of CAP_NET_RAW: requests and repairs travel by datagrams.
    LmsUnprivileged(OpenError),
    /// A sender, relay or router speaks another version of its protocol. Told once for senders and relays, and once for
    /// routers.
    OtherVersion(OtherVersion),
    /// The receiver waits for a sender.
    Waiting {
        /// The interface.
        interface: String,
    },
    /// A sender was heard.
    Opened {
        /// The session.
        session: SessionId,
        /// Address of the sender.
        source: SocketAddr,
        /// Name of the content, made harmless.
        name: String,
        /// Where the file will stand; `None`: no file.
        path: Option<PathBuf>,
        /// Bytes of the content; `None`: a stream.
        length: Option<u64>,
        /// The first byte that is received.
        start: u64,
    },
    /// A relay serves this receiver, or does so no longer.
    Relay(AttachmentEvent),
    /// More bytes were verified, or the length became known.
    Position {
        /// Bytes verified from the start on.
        bytes: u64,
        /// Bytes of the content, if known.
        length: Option<u64>,
    },
    /// The state, once a second.
    Progress {
        /// Bytes verified from the start on.
        bytes: u64,
        /// Bytes of the content, if known.
        length: Option<u64>,
        /// Packets that did not arrive when they were sent first.
        lost_packets: u64,
    },
    /// A block did not match its digest; it is asked for again.
    BlockRejected {
        /// Number of the block.
        block: u64,
    },
    /// The sender was restarted with the same content.
    Resumed {
        /// The new session.
        session: SessionId,
    },
    /// Everything is verified and where it belongs. The bytes of a buffer come with the result alone.
    Complete(Received),
    /// The receiver stays to repair losses of others.
    Serving {
        /// For this time; `None`: until the sender ends, or 3 s after the last request.
        limit: Option<Duration>,
    },
}

/// A content that arrived whole.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// Bytes of the content.
    pub length: u64,
    /// Digest of the content (BLAKE3); `None` where only its blocks were verified.
    pub digest: Option<[u8; 32]>,
    /// The file; `None`: a stream or a buffer.
    pub path: Option<PathBuf>,
    /// Time since the sender was first heard.
    pub elapsed: Duration,
    /// Whether the file was there before with the same digest.
    pub existing: bool,
    /// The content, where it was received into a buffer ([`Sink::buffer`](crate::Sink::buffer)); else empty.
    pub bytes: Vec<u8>,
}
