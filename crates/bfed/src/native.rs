//! The native network interface (§5.4, Figure 8): what a broadcast network must offer to be part of
//! the federation. Each kind of network has its own; the rest of a gateway knows none of them.
//!
//! | Figure 8 | here |
//! | --- | --- |
//! | `allocate_channel`, `subscribe`, `refresh`, `unsubscribe`, `reclaim_channel`, `send_data` | the same, called by the [`DataNode`](crate::data::DataNode); `send_data` by its driver |
//! | `get_sroutes` | the same, called by the control node's driver on [`Event::GetSroutes`](crate::Event::GetSroutes) |
//! | `recvd_data` | [`Upcall::Data`] |
//! | `recvd_join_request` | [`Upcall::Join`] |
//! | `recvd_leave_request` | [`Upcall::Leave`] |
//! | (the paper has no call by which a client gets its answer) | [`NativeNet::answer`], on [`Event::Answer`](crate::Event::Answer), [`Moved`](crate::Event::Moved) and [`Ended`](crate::Event::Ended) |
//!
//! It is a machine like the others: calls return at once, what the network has to say is polled, and
//! sockets belong to the driver.

use alloc::vec::Vec;
use core::fmt;

use proto_core::time::Instant;

use crate::event::{ClientId, Scope, Sroutes};
use crate::name::SessionName;
use crate::types::GatewayId;
use crate::wire::client::AnswerRepr;

/// A channel of the native network; the network numbers them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ChannelId(pub u64);

/// Which way a session's data goes through a native channel (Figure 8: `up_or_down`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// The session comes from the native network: from its source, or from another gateway.
    Up,
    /// It goes to clients and gateways in the native network.
    Down,
}

/// Why the native network cannot do something.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NativeError {
    /// It knows no such session.
    NoSession,
    /// Its pool of addresses is used up.
    Full,
    /// It can never do that.
    Refused,
    /// Not now: nothing was sent.
    Busy,
}

impl fmt::Display for NativeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NativeError::NoSession => "no such session in the native network",
            NativeError::Full => "the native network has no address left",
            NativeError::Refused => "the native network cannot do it",
            NativeError::Busy => "the native network takes no data now",
        })
    }
}

impl core::error::Error for NativeError {}

/// What a native network tells a gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Upcall {
    /// Data came on a channel (`recvd_data`): `len` bytes, after the room for a header.
    Data {
        /// Which channel.
        channel: ChannelId,
        /// How many bytes.
        len: usize,
    },
    /// A client wants a session, or to know its cost (`recvd_join_request`):
    /// [`ControlNode::join`](crate::ControlNode::join) or `ask_cost`.
    Join {
        /// The request, for the answer.
        client: ClientId,
        /// Which session.
        session: SessionName,
        /// How often the client was redirected.
        redirects: u8,
        /// Who else has heard it.
        scope: Scope,
        /// Only the cost is asked for.
        cost_only: bool,
    },
    /// No client wants the session any more (`recvd_leave_request`).
    Leave(SessionName),
    /// The answer to a `get_sroutes` that could not be given at once.
    Sroutes {
        /// The question's number.
        request: u32,
        /// The answer.
        answer: Sroutes,
    },
}

/// A native network.
///
/// What deals with channels refuses unless it is written: a mediator alone has none.
pub trait NativeNet {
    /// Makes a channel for a flow, and says at which native address others find it: at most
    /// [`MAX_NATIVE_ADDRESS_LEN`](crate::wire::address::MAX_NATIVE_ADDRESS_LEN) bytes.
    ///
    /// # Errors
    /// There is none to be had.
    fn allocate_channel(
        &mut self,
        now: Instant,
        session: &SessionName,
        flow: &str,
        direction: Direction,
    ) -> Result<(ChannelId, Vec<u8>), NativeError> {
        let _ = (now, session, flow, direction);
        Err(NativeError::Refused)
    }

    /// Listens: data that comes on the channel is handed up. `address` is where another gateway of
    /// this network sends the flow; `None` for the session's own native address, or the channel's.
    ///
    /// # Errors
    /// Nothing can be heard there.
    fn subscribe(
        &mut self,
        now: Instant,
        session: &SessionName,
        flow: &str,
        direction: Direction,
        channel: ChannelId,
        address: Option<&[u8]>,
    ) -> Result<(), NativeError> {
        let _ = (now, session, flow, direction, channel, address);
        Err(NativeError::Refused)
    }

    /// The subscription is still wanted.
    fn refresh(
        &mut self,
        now: Instant,
        session: &SessionName,
        flow: &str,
        direction: Direction,
        channel: ChannelId,
    ) {
        let _ = (now, session, flow, direction, channel);
    }

    /// No more data of the channel is wanted.
    fn unsubscribe(
        &mut self,
        now: Instant,
        session: &SessionName,
        flow: &str,
        direction: Direction,
        channel: ChannelId,
    ) {
        let _ = (now, session, flow, direction, channel);
    }

    /// The channel and its address are free again.
    fn reclaim_channel(
        &mut self,
        now: Instant,
        session: &SessionName,
        flow: &str,
        direction: Direction,
        channel: ChannelId,
    ) {
        let _ = (now, session, flow, direction, channel);
    }

    /// Sends a frame to all who listen to the channel. What the network gives back of it is dropped
    /// by the network, not handed up.
    ///
    /// # Errors
    /// It was not sent. After [`NativeError::Busy`] the driver tells the plane that the edge is
    /// blocked.
    fn send_data(
        &mut self,
        now: Instant,
        channel: ChannelId,
        data: &[u8],
    ) -> Result<(), NativeError> {
        let _ = (now, channel, data);
        Err(NativeError::Refused)
    }

    /// What gateways of this network cost for a session of this network, from the root of the native
    /// tree on (§5.2.2). `None`: it is being measured, [`Upcall::Sroutes`] will say.
    fn get_sroutes(
        &mut self,
        now: Instant,
        request: u32,
        session: &SessionName,
        gateways: &[GatewayId],
    ) -> Option<Sroutes>;

    /// Tells clients. `client` is the request that is answered; `None`: all who have the session.
    fn answer(&mut self, now: Instant, client: Option<ClientId>, answer: &AnswerRepr);

    /// The next thing that the network has to say; drain until `None`. Data is written into `buffer`
    /// from [`HEADER_LEN`](crate::wire::data::HEADER_LEN) on.
    fn poll_upcall(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Upcall>;

    /// Time has passed.
    fn handle_timeout(&mut self, now: Instant);

    /// When to call [`handle_timeout`](Self::handle_timeout).
    fn poll_timeout(&self) -> Option<Instant>;
}
