//! The native network interface (§5.4, Figure 8): what a broadcast network must provide to be part of the
//! federation. Each kind of network has its own implementation; the rest of a gateway does not depend on the kind.
//!
//! | Figure 8 | this crate |
//! | --- | --- |
//! | `allocate_channel`, `subscribe`, `refresh`, `unsubscribe`, `reclaim_channel`, `send_data` | the same, called by the [`DataNode`](crate::data::DataNode); `send_data` by its driver |
//! | `get_sroutes` | the same, called by the control node's driver on [`Event::GetSroutes`](crate::Event::GetSroutes) |
//! | `recvd_data` | [`Upcall::Data`], [`Upcall::Frame`] |
//! | `recvd_join_request` | [`Upcall::Join`] |
//! | `recvd_leave_request` | [`Upcall::Leave`] |
//! | (the paper has no containers of media) | [`Upcall::Init`], [`NativeNet::send_init`] |
//! | (the paper has no call for the answer to a client) | [`NativeNet::answer`], on [`Event::Answer`](crate::Event::Answer), [`Moved`](crate::Event::Moved) and [`Ended`](crate::Event::Ended) |
//!
//! It is a machine too: calls return at once, upcalls are polled, and sockets belong to the driver.

use alloc::vec::Vec;

use proto_core::time::{Duration, Instant};

use crate::event::{ClientId, ClientRequest, Sroutes};
use crate::name::SessionName;
use crate::types::GatewayId;
pub use crate::wire::class::Priority;
use crate::wire::client::AnswerRepr;
use crate::wire::sroute::Outcome;

/// A channel of the native network, which assigns the number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ChannelId(pub u64);

/// Direction of a session's data through a native channel (Figure 8: `up_or_down`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// From the native network: from its source, or from another gateway.
    Up,
    /// To clients and gateways in the native network.
    Down,
}

proto_core::errors! {
    /// Why the native network refuses a request.
    pub enum NativeError {
        /// No such session.
        NoSession = "no such session in the native network",
        /// The pool of addresses is used up.
        Full = "the native network has no address left",
        /// Not supported.
        Refused = "the native network cannot do it",
        /// Busy: nothing was sent.
        Busy = "the native network takes no data now",
    }
}

/// What the source of a frame says of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FrameClass {
    /// How much it matters.
    pub priority: Priority,
    /// How long it is worth sending; `None`: as the session's name says, or else as the gateway is configured.
    pub lifetime: Option<Duration>,
}

/// An upcall of a native network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Upcall {
    /// Data arrived on a channel (`recvd_data`): `len` bytes, after the unused bytes for a header.
    Data {
        /// The channel.
        channel: ChannelId,
        /// Length in bytes.
        len: usize,
    },
    /// As [`Upcall::Data`], with what its source says of the frame.
    Frame {
        /// The channel.
        channel: ChannelId,
        /// Length in bytes.
        len: usize,
        /// Priority and lifetime.
        class: FrameClass,
    },
    /// The container of a channel's flow has an initialisation, or another one than before: `len` bytes, after the
    /// unused bytes for a header; 0 if the flow has none any more. Data that follows it belongs to it.
    Init {
        /// The channel.
        channel: ChannelId,
        /// Length in bytes.
        len: usize,
    },
    /// A client requests a session, or its cost (`recvd_join_request`): call
    /// [`ControlNode::client_requests`](crate::ControlNode::client_requests).
    Join(ClientRequest),
    /// No client wants the session any more (`recvd_leave_request`).
    Leave(SessionName),
    /// The answer to a `get_sroutes` that took time.
    Sroutes {
        /// Number of the request.
        request: u32,
        /// The answer.
        answer: Sroutes,
    },
}

/// One flow of a session in one direction: what a channel of the native network carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NativeFlow<'a> {
    /// The session.
    pub session: &'a SessionName,
    /// Name of the flow, as [`SessionName::flows`] returns it.
    pub name: &'a str,
    /// Direction of the data.
    pub direction: Direction,
}

impl<'a> NativeFlow<'a> {
    /// Creates a flow from its parts.
    #[must_use]
    pub const fn new(session: &'a SessionName, name: &'a str, direction: Direction) -> Self {
        NativeFlow {
            session,
            name,
            direction,
        }
    }
}

/// A native network.
///
/// Every method has a default: no channels (requests are refused), no clients, unknown costs.
#[expect(
    unused_variables,
    reason = "the parameters' names document the methods that do nothing by default"
)]
pub trait NativeNet {
    /// Allocates a channel for a flow. Returns it with its native address, at most
    /// [`MAX_NATIVE_ADDRESS_LEN`](crate::wire::address::MAX_NATIVE_ADDRESS_LEN) bytes.
    ///
    /// # Errors
    /// No channel is available.
    fn allocate_channel(
        &mut self,
        now: Instant,
        flow: NativeFlow<'_>,
    ) -> Result<(ChannelId, Vec<u8>), NativeError> {
        Err(NativeError::Refused)
    }

    /// Receives data of a channel. `address` is where another gateway of this network sends the flow; `None` for
    /// the session's own native address, or the channel's.
    ///
    /// # Errors
    /// Nothing can be received there.
    fn subscribe(
        &mut self,
        now: Instant,
        flow: NativeFlow<'_>,
        channel: ChannelId,
        address: Option<&[u8]>,
    ) -> Result<(), NativeError> {
        Err(NativeError::Refused)
    }

    /// Refreshes a subscription.
    fn refresh(&mut self, now: Instant, flow: NativeFlow<'_>, channel: ChannelId) {}

    /// Stops receiving data of a channel.
    fn unsubscribe(&mut self, now: Instant, flow: NativeFlow<'_>, channel: ChannelId) {}

    /// Frees a channel and its address.
    fn reclaim_channel(&mut self, now: Instant, flow: NativeFlow<'_>, channel: ChannelId) {}

    /// Sends a frame on a channel. The network drops its own packets that loop back.
    ///
    /// # Errors
    /// The frame was not sent. After [`NativeError::Busy`] the driver reports the edge as blocked.
    fn send_data(
        &mut self,
        now: Instant,
        channel: ChannelId,
        data: &[u8],
    ) -> Result<(), NativeError> {
        Err(NativeError::Refused)
    }

    /// Takes the initialisation of the container of a channel's flow, before the data that belongs to it; empty if the
    /// flow has none any more. It is not part of the data: receivers that join late need it in front of theirs.
    fn send_init(&mut self, now: Instant, channel: ChannelId, init: &[u8]) {}

    /// Returns the costs of gateways of this network for a session of this network, from the root of the native tree
    /// (§5.2.2). `None` if they are still being measured; [`Upcall::Sroutes`] follows.
    fn get_sroutes(
        &mut self,
        now: Instant,
        request: u32,
        session: &SessionName,
        gateways: &[GatewayId],
    ) -> Option<Sroutes> {
        Some(Sroutes::none(Outcome::Null))
    }

    /// Answers the request `client`, or notifies all clients of the session if it is `None`.
    fn answer(&mut self, now: Instant, client: Option<ClientId>, answer: &AnswerRepr) {}

    /// Returns the next upcall; drain until `None`. Data is written into `buffer` from
    /// [`HEADER_LEN`](crate::wire::data::HEADER_LEN) on.
    fn poll_upcall(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Upcall> {
        None
    }

    /// Handles the passing of time.
    fn handle_timeout(&mut self, now: Instant) {}

    /// Returns when to call [`handle_timeout`](Self::handle_timeout).
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}
