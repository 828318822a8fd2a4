//! The data plane (§5.3): what a data node does with packets.
//!
//! [`DataNode`] hears from the control node which sessions it carries; its [`Plane`] forwards. The
//! control node is not needed to forward: when it is away, everything goes on as it was.
//!
//! | a packet came | from | goes to |
//! | --- | --- | --- |
//! | on a one-directional session | upstream, or the owner's native network | every edge below |
//! | | below | nobody: dropped, counted |
//! | on a session of many sources | any edge | every other edge |
//! | with a label that this sender was not given | | dropped, counted |
//!
//! | edge | transport | when more comes than fits |
//! | --- | --- | --- |
//! | to a peer, real-time | UDP, at the rate that [`tfrc`] allows and the link's bound | a frame that waited for [`PlaneConfig::real_time_delay`] is dropped, and the oldest of a full queue |
//! | to a peer, bulk | TCP | the session's source is paused, what is on its way is queued; a receiver that takes nothing for ten seconds is cut off |
//! | native | the native network's own | as above, by the session's content |
//!
//! Data nodes that send to each other know by PROBE and ECHO whether the other lives, within six heartbeats'
//! time, and tell their control nodes. That takes a UDP socket at the address of the TCP listener: a
//! neighbour that has none is never judged.
//!
//! # How to drive it
//!
//! ```text
//! loop {
//!     while let Some(event) = node.poll_event() { Dial, Close, Pause, Resume, ControlLost }
//!     while let Some(len) = node.poll_transmit_control(&mut buffer) { write buffer[..len] to the control node }
//!     while let Some(copy) = node.plane().poll_transmit(now, &mut buffer) { send it }
//!     wait for packets, or until node.poll_timeout()
//!     a message of control:  node.handle_packet(now, &mut native, message)
//!     packets of data:       node.plane().prefetch(packets), where several are there, and each of them:
//!                            match node.plane().forward(now, &meta, &mut frame) {
//!                                Verdict::Only(copy) => send it
//!                                Verdict::Forward(mut cursor) =>
//!                                    while let Some(copy) = node.plane().next_transmit(now, &mut cursor, &mut frame) { send it }
//!                                Verdict::Taken | Verdict::Drop(_) => {}
//!                            }
//!     in any case:           node.handle_timeout(now, &mut native)
//! }
//! ```
//!
//! `frame` holds one packet with its header of [`HEADER_LEN`] bytes; data of the native network is
//! put behind as much room. To send a copy is to send `frame[copy.range]` to `copy.to`. Where that
//! takes no more, `blocked`, and later `writable`; in between `takes` for each part of it that went.
//!
//! # Memory
//!
//! A real-time session of one flow with a source, a peer and the native network below costs at most
//! 6 KiB; queues take [`PlaneConfig::max_queue_bytes`] an edge, shared where several edges wait for one
//! frame.

mod books;
mod edge;
mod flow;
mod fragment;
mod ingress;
mod link;
mod node;
mod plane;
mod shortcut;
mod table;
pub mod tfrc;
mod transmit;
mod watch;

use core::net::{IpAddr, SocketAddr};
use core::ops::Range;

use proto_core::time::Duration;

use crate::native::ChannelId;
use crate::types::ConnId;
use crate::wire::data::MAX_PAYLOAD_LEN;

pub use crate::wire::data::HEADER_LEN;
pub use ingress::PREFETCH_MAX;
pub use node::{DataConfig, DataEvent, DataNode};
pub use plane::{Cursor, Plane, PlaneStats};

/// One way in or out of a session's flow. Handles of edges that are gone lead nowhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EdgeId {
    index: u32,
    generation: u32,
}

/// Where a packet came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meta {
    /// A UDP datagram from that address.
    Datagram(SocketAddr),
    /// A TCP channel, cut into packets by the length in their headers; from that address.
    Stream(ConnId, IpAddr),
    /// The native network: there is no header, only room for one.
    Native(ChannelId),
}

/// Where a copy goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// A UDP address.
    Datagram(SocketAddr),
    /// A TCP channel.
    Stream(ConnId),
    /// A channel of the native network: `NativeNet::send_data`.
    Native(ChannelId),
}

/// One copy of a packet to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// The edge, for `blocked`.
    pub edge: EdgeId,
    /// Where to.
    pub to: Destination,
    /// Which bytes of the frame or buffer.
    pub range: Range<usize>,
}

/// What becomes of a packet.
#[derive(Debug)]
pub enum Verdict {
    /// This copy of it is to be sent, and no other: its header is written.
    Only(Transmit),
    /// Copies of it are to be sent: [`Plane::next_transmit`].
    Forward(Cursor),
    /// It was for this node itself.
    Taken,
    /// It goes nowhere.
    Drop(DataError),
}

proto_core::drop_reasons! {
    /// Why a packet, or a copy of one, was dropped.
    pub enum DataError: "packet dropped: {}" {
        /// Not a packet.
        Malformed = "malformed",
        /// A sender and label that lead nowhere: spoofed, or out of date.
        UnknownFlow = "unknown_flow",
        /// A native channel that leads nowhere.
        UnknownChannel = "unknown_channel",
        /// From below on a one-directional session.
        WrongDirection = "wrong_direction",
        /// It had come before.
        Duplicate = "duplicate",
        /// An ATTACH or REPORT for a flow that is not that sender's.
        NotYours = "not_yours",
        /// A copy for a TCP channel that nobody has opened yet.
        NotAttached = "not_attached",
        /// The oldest copy of a full queue.
        QueueFull = "queue_full",
        /// A PROBE to which there was no ECHO: too many came from addresses that have not proved themselves.
        ProbeRate = "probe_rate",
        /// A frame that is too long even in fragments, or of which fragments did not come in time.
        Incomplete = "incomplete",
        /// A frame of a real-time session that waited longer than it is of use.
        TooLate = "too_late",
        /// All that waited for a receiver that was cut off.
        Stalled = "stalled",
        /// A message of the control node that was out of date: there is a newer one.
        Fenced = "fenced",
        /// A message of the control node that cannot be read, or comes at the wrong time.
        BadControl = "bad_control",
    }
    /// How many packets and copies were dropped, by reason.
    pub type Drops;
}

/// Bounds of a plane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlaneConfig {
    /// Most edges over all sessions.
    pub max_edges: usize,
    /// Most bytes that wait for one edge. Real-time: the oldest frame is dropped; bulk: the source is
    /// paused as soon as the edge is blocked, and where a link's bound holds it up, from half of it on.
    pub max_queue_bytes: usize,
    /// Longest IP packet that is sent to other data nodes, in bytes: frames that are longer go in fragments.
    pub mtu: usize,
    /// How long a frame of a real-time session waits at most, and a fragment for the others.
    pub real_time_delay: Duration,
    /// A receiver of bulk data that takes nothing for so long, while its source is paused, is cut off.
    pub stall_timeout: Duration,
}

impl PlaneConfig {
    /// Longest payload of a datagram to that address, in bytes.
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
            stall_timeout: Duration::from_secs(10),
        }
    }
}
