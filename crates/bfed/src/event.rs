//! What goes in and out of a control node beside messages.

use alloc::string::String;
use alloc::vec::Vec;

use crate::name::SessionName;
use crate::session::CloseReason;
use crate::types::{ChannelAddress, ConnId, GatewayId, NodeId, PeerId};
use crate::wire::client::Answer;
use crate::wire::no_route;
use crate::wire::sroute::{GatewayCost, Outcome};

/// A client's request that waits for its answer; the driver (or the native network) numbers them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u64);

/// How a client's request came to this gateway.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scope {
    /// The mediator chose this gateway. If another of the network is nearer, the client is redirected.
    Chosen,
    /// All gateways of the network heard it, as in an IP multicast network (§5.4): the nearest
    /// answers, the others are silent.
    Heard,
}

/// Where bytes that were written are to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// The stream.
    pub conn: ConnId,
    /// How many bytes of the buffer.
    pub len: usize,
}

/// What a control node tells its driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Open a stream to the peer, then call `connected` or `dial_failed`.
    Dial(PeerId),
    /// Nothing more will be written to the stream: close it once what was written has left. The
    /// machine has forgotten it.
    Close(ConnId),
    /// Routes and trees flow.
    PeerUp(PeerId),
    /// They do not any more.
    PeerDown {
        /// Which peer.
        peer: PeerId,
        /// Why.
        why: CloseReason,
    },
    /// Answer a client (§5.2.1): `NativeNet::answer`.
    Answer {
        /// Which request.
        client: ClientId,
        /// The session that it asked for.
        session: SessionName,
        /// The answer.
        answer: Answer,
        /// How long a TRANSLATION holds unless the client asks again, in seconds.
        lifetime_s: u16,
    },
    /// Clients that have the session must hear of new addresses: the data node changed.
    Moved {
        /// Which session.
        session: SessionName,
        /// The native addresses of its flows.
        addresses: Vec<ChannelAddress>,
    },
    /// Clients that have the session will get no more of it.
    Ended {
        /// Which session.
        session: SessionName,
        /// Why.
        reason: no_route::Reason,
    },
    /// Ask the native network for costs (`NativeNet::get_sroutes`, §5.4); then `sroutes`.
    GetSroutes {
        /// The number of the question.
        request: u32,
        /// For which session of this network.
        session: SessionName,
        /// Of which gateways of this network.
        gateways: Vec<GatewayId>,
    },
    /// Which network does this DNS name stand for? Then `resolved`.
    Resolve(String),
    /// This gateway is part of the session's tree.
    TreeUp {
        /// Which session.
        session: SessionName,
        /// The gateways between this one and the owner, the next first; none at the owner.
        path: Vec<GatewayId>,
    },
    /// It is no more.
    TreeDown(SessionName),
    /// A data node is there.
    NodeUp(NodeId),
    /// A data node is dead, or has left; its sessions move.
    NodeDown {
        /// Which one.
        node: NodeId,
        /// It had been drained and carried no session: its end was announced.
        drained: bool,
    },
}

/// What a native network says of the costs of its gateways.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sroutes {
    /// Costs, null, or no such session.
    pub outcome: Outcome,
    /// The costs that are known.
    pub costs: Vec<GatewayCost>,
    /// These are all that can be known; otherwise gateways that are missing are asked themselves.
    pub got_all: bool,
}
