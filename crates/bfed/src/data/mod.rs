//! The data plane (§5.3): how a data node forwards packets.
//!
//! The control node tells a [`DataNode`] which sessions it carries; its [`Plane`] forwards them. Forwarding does
//! not need the control node and continues while it is disconnected.
//!
//! | packet | from | sent to |
//! | --- | --- | --- |
//! | of a session with one source | upstream, or the owner's native network | every downstream edge |
//! | | downstream | dropped and counted |
//! | of a session with many sources | any edge | every other edge |
//! | with a label that was not given to this sender | | dropped and counted |
//!
//! | edge | transport | congestion |
//! | --- | --- | --- |
//! | to a peer, real-time | UDP, at the rate that [`tfrc`] and the rate limit of the link allow | frames that would arrive after their deadline are dropped, and the least important of a full queue |
//! | to a peer over QUIC, real-time | QUIC datagrams, at the rate that QUIC's congestion control and the rate limit of the link allow | as above |
//! | to a peer, bulk | TCP, or a QUIC stream | the session's source is paused, data in flight is queued; a receiver that makes no progress for ten seconds is disconnected |
//! | native | the native network's own | as above, by the session's content |
//!
//! Data nodes that send to each other check with PROBE and ECHO that the other is alive, detect its failure within
//! six heartbeat intervals, and tell their control nodes. This needs a UDP socket at the address of the TCP
//! listener: a neighbour without one is never reported.
//!
//! # Driving the machine
//!
//! ```text
//! loop {
//!     while let Some(event) = node.poll_event() { Dial, Close, Pause, Resume, ControlLost }
//!     while let Some(len) = node.poll_transmit_control(&mut buffer) { write buffer[..len] to the control node }
//!     while let Some(transmit) = node.plane().poll_transmit(now, &mut buffer) { send it }
//!     wait for packets, or until node.poll_timeout()
//!     a message of the control node:  node.handle_packet(now, &(), message)
//!     packets of data:       node.plane().prefetch(packets) if there are several, then for each:
//!                            match node.plane().forward(now, &meta, &mut frame) {
//!                                Verdict::Only(transmit) => send it
//!                                Verdict::Forward(mut cursor) =>
//!                                    while let Some(transmit) = node.plane().next_transmit(now, &mut cursor, &mut frame) { send it }
//!                                Verdict::Taken | Verdict::Drop(_) => {}
//!                            }
//!     always:                node.handle_timeout(now)
//! }
//! ```
//!
//! `frame` holds one packet with its header of [`HEADER_LEN`] bytes; data of the native network is preceded by as
//! many unused bytes. The driver sends `frame[transmit.range]` to `transmit.to`. When the destination takes no
//! more, it calls `blocked`, then `takes` whenever a part was sent, and `writable` when it takes more again.
//!
//! # Memory
//!
//! A real-time session of one flow with a source, a peer and the native network downstream takes at most 6 KiB;
//! queues take [`PlaneConfig::max_queue_bytes`] for each edge, shared between edges that wait for the same frame.

mod control_link;
mod cursor;
mod dialer;
mod edge;
mod flow;
mod fragment;
mod ingress;
mod init;
mod link;
mod liveness;
mod node;
mod paths;
mod plane;
mod queue;
mod repair;
mod session;
mod sessions;
mod shortcut;
mod table;
pub mod tfrc;
mod transmit;

use core::net::{IpAddr, SocketAddr};
use core::ops::Range;

use proto_core::time::Duration;

use crate::native::{ChannelId, FrameClass};
use crate::types::ConnId;
use crate::wire::ParseError;
use crate::wire::data::MAX_PAYLOAD_LEN;

pub use crate::wire::data::HEADER_LEN;
pub use cursor::Cursor;
pub use ingress::PREFETCH_MAX;
pub use link::LinkStatus;
pub use node::{DataConfig, DataEvent, DataNode, NodeTransmit};
pub use paths::{MIN_PATH_PAYLOAD, PathId};
pub use plane::{Plane, PlaneStats};
pub use queue::{AGE_BOUNDS_MS, Ages};
pub use repair::{MAX_BYTES as MAX_REPAIR_BYTES, Repairs};

/// Handle of an edge: one way in or out of a session's flow. The handle of a removed edge is invalid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EdgeId {
    index: u32,
    generation: u32,
}

/// Where a packet arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meta {
    /// As a UDP datagram from the address.
    Datagram(SocketAddr),
    /// On a TCP channel with the address, split into packets by the lengths in their headers.
    Stream(ConnId, IpAddr),
    /// As a datagram on a QUIC path.
    Path(PathId),
    /// On a stream of a QUIC path, split into packets as those of a TCP channel are.
    PathStream(ConnId, PathId),
    /// From the native network: unused bytes take the place of the header.
    Native(ChannelId),
    /// The same, with the class that its source gave it.
    Frame(ChannelId, FrameClass),
}

/// Where a packet is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// A UDP address.
    Datagram(SocketAddr),
    /// A TCP channel, or a stream of a QUIC path.
    Stream(ConnId),
    /// A datagram on a QUIC path.
    Path(PathId),
    /// A channel of the native network: `NativeNet::send_data`.
    Native(ChannelId),
    /// The same, but the bytes are the initialisation of the flow's container: `NativeNet::send_init`.
    NativeInit(ChannelId),
}

/// A packet to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// The edge, for `blocked`.
    pub edge: EdgeId,
    /// The destination.
    pub to: Destination,
    /// The bytes of the frame or buffer.
    pub range: Range<usize>,
}

/// What to do with a packet.
#[derive(Debug)]
pub enum Verdict {
    /// Send this packet and no other. Its header is written.
    Only(Transmit),
    /// Send the packets that [`Plane::next_transmit`] returns.
    Forward(Cursor),
    /// Nothing: it was for this node itself.
    Taken,
    /// Drop it.
    Drop(DataError),
}

proto_core::drop_reasons! {
    /// Why a packet, or a copy of one, was dropped.
    pub enum DataError: "packet dropped: {}" {
        /// Malformed.
        Malformed = "malformed",
        /// A packet of another version: the other data node runs another release.
        Version = "version",
        /// Unknown sender and label: spoofed, or out of date.
        UnknownFlow = "unknown_flow",
        /// Unknown native channel.
        UnknownChannel = "unknown_channel",
        /// From downstream in a session with one source.
        WrongDirection = "wrong_direction",
        /// Duplicate.
        Duplicate = "duplicate",
        /// An ATTACH or REPORT for a flow that is not that sender's.
        NotYours = "not_yours",
        /// A copy for a TCP channel or QUIC stream that has ended, or was not opened within the stall timeout. Bulk data waits for
        /// one that has not been opened for the first time.
        NotAttached = "not_attached",
        /// The oldest one of the least important frames of a full queue.
        QueueFull = "queue_full",
        /// A PROBE without an ECHO: too many came from addresses that are not proved.
        ProbeRate = "probe_rate",
        /// A frame that is too long even in fragments, or whose fragments did not arrive in time.
        Incomplete = "incomplete",
        /// A frame that had waited for half of its time while a more important one waited behind it.
        Yielded = "yielded",
        /// A frame of a real-time session that would arrive after its deadline.
        TooLate = "too_late",
        /// Frames that waited for a receiver that was disconnected because it made no progress.
        Stalled = "stalled",
        /// Data over datagrams that came before the answer to the first INIT_REQUEST.
        BeforeInit = "before_init",
        /// An initialisation that is too long, or that exceeds the bytes that its peer may have here.
        InitRefused = "init_refused",
        /// A packet that was to be sent again, but is not there any more, or would come too late.
        RepairGone = "repair_gone",
        /// A packet that was to be sent again too soon or too often, or within too many others.
        RepairRate = "repair_rate",
        /// An INIT_REQUEST too soon after the last one that was answered.
        InitRate = "init_rate",
        /// A message of an old control node.
        Fenced = "fenced",
        /// A malformed or unexpected message of the control node.
        BadControl = "bad_control",
    }
    /// Number of dropped packets and copies by reason.
    pub type Drops;
}

impl From<ParseError> for DataError {
    fn from(error: ParseError) -> Self {
        match error {
            ParseError::Version => DataError::Version,
            _ => DataError::Malformed,
        }
    }
}

/// Limits of a plane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PlaneConfig {
    /// Most edges of all sessions.
    pub max_edges: usize,
    /// Most bytes that wait for one edge. Real-time: the least important frame is dropped; bulk: the source is paused when
    /// the edge is blocked, or when half of this waits for a link with a rate limit, or for a channel that is not open yet.
    pub max_queue_bytes: usize,
    /// Longest IP packet sent to other data nodes, in bytes: longer frames are sent in fragments.
    pub mtu: usize,
    /// Lifetime of a frame of a real-time session whose source declares none; longest time that a frame without a class
    /// waits, and a fragment for the others of its frame.
    pub real_time_delay: Duration,
    /// Lost packets of real-time sessions are asked for, and sent, again.
    pub repairs: bool,
    /// Longest time for which data that comes over datagrams is dropped, while the sender has not said which
    /// initialisation the flow has.
    pub init_wait: Duration,
    /// A receiver of bulk data that makes no progress for this long, while its source is paused, is disconnected.
    pub stall_timeout: Duration,
}

impl PlaneConfig {
    /// Returns the longest payload of a datagram to the address, in bytes.
    fn payload_len(&self, to: SocketAddr) -> usize {
        let headers = if to.is_ipv4() { 28 } else { 48 };
        let len = self.mtu.saturating_sub(headers + HEADER_LEN);
        len.min(MAX_PAYLOAD_LEN)
    }
}

impl Default for PlaneConfig {
    fn default() -> Self {
        PlaneConfig {
            max_edges: 65_536,
            max_queue_bytes: 512 * 1024,
            mtu: 1500,
            real_time_delay: Duration::from_millis(500),
            repairs: true,
            init_wait: Duration::from_millis(750),
            stall_timeout: Duration::from_secs(10),
        }
    }
}
