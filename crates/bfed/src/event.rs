//! Events and transmits of a control node.

use alloc::string::String;
use alloc::vec::Vec;

use crate::authorise::{Right, Subject};
use crate::name::SessionName;
use crate::session::CloseReason;
use crate::types::{ChannelAddress, ConnId, Cost, GatewayId, NodeId, PeerId};
use crate::wire::client::Answer;
use crate::wire::no_route;
use crate::wire::sroute::{GatewayCost, Outcome};

/// A client's pending request, numbered by the driver or the native network.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u64);

/// Which gateways received a client's request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scope {
    /// This one, chosen by the mediator. If another of the network is nearer, the client is redirected.
    Chosen,
    /// All gateways of the network, as in an IP multicast network (§5.4): the nearest answers, the others are
    /// silent.
    Heard,
}

/// A client's request for a session (`recvd_join_request`, §5.4).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientRequest {
    /// Number of the request, for the answer.
    pub client: ClientId,
    /// Who asks: authorisation rules may name it.
    pub subject: Subject,
    /// The session.
    pub session: SessionName,
    /// How often the client was redirected.
    pub redirects: u8,
    /// Which gateways received the request.
    pub scope: Scope,
    /// Only the cost is asked for (§7, access selection).
    pub cost_only: bool,
}

impl ClientRequest {
    /// Returns a request to this gateway from a client without a known address that was not redirected.
    #[must_use]
    pub const fn new(client: ClientId, session: SessionName) -> Self {
        ClientRequest {
            client,
            subject: Subject::Client(None),
            session,
            redirects: 0,
            scope: Scope::Chosen,
            cost_only: false,
        }
    }
}

/// A message to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// The stream.
    pub conn: ConnId,
    /// Its length in bytes.
    pub len: usize,
}

/// What a control node's driver has to do or may want to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Open a stream to the peer, then call `connected` or `dial_failed`.
    Dial(PeerId),
    /// Close the stream once everything written to it has been sent. The machine has forgotten it.
    Close(ConnId),
    /// The session with the peer is established.
    PeerUp(PeerId),
    /// The session with the peer has ended.
    PeerDown {
        /// The peer.
        peer: PeerId,
        /// Why.
        why: CloseReason,
    },
    /// The measured cost of the link to the peer in the tables for latency has changed.
    DelayChanged {
        /// The peer.
        peer: PeerId,
        /// The new cost, in microseconds.
        cost: Cost,
    },
    /// Answer a client with `NativeNet::answer` (§5.2.1).
    Answer {
        /// The request.
        client: ClientId,
        /// The session in the request.
        session: SessionName,
        /// The answer.
        answer: Answer,
        /// How long a TRANSLATION is valid unless the client asks again, in seconds.
        lifetime_s: u16,
    },
    /// Notify the clients of a session of new addresses: the data node changed.
    Moved {
        /// The session.
        session: SessionName,
        /// The native addresses of its flows.
        addresses: Vec<ChannelAddress>,
    },
    /// Notify the clients of a session that it has ended for them.
    Ended {
        /// The session.
        session: SessionName,
        /// Why.
        reason: no_route::Reason,
    },
    /// Ask the native network for costs with `NativeNet::get_sroutes` (§5.4), then call `sroutes`.
    GetSroutes {
        /// Number of the request.
        request: u32,
        /// The session, of this network.
        session: SessionName,
        /// The gateways of this network whose costs are asked for.
        gateways: Vec<GatewayId>,
    },
    /// A request was denied, and counted under the rule. For the log: requests come as often as their sender likes.
    Denied {
        /// Name of the authorisation rule.
        rule: String,
        /// The right that the request needed.
        right: Right,
        /// Who made it.
        subject: Subject,
        /// The session.
        session: SessionName,
    },
    /// Resolve the DNS name of a network, then call `resolved`.
    Resolve(String),
    /// This gateway is part of the session's tree.
    TreeUp {
        /// The session.
        session: SessionName,
        /// The gateways towards the owner, the next first; none at the owner.
        path: Vec<GatewayId>,
    },
    /// This gateway is no longer part of the session's tree.
    TreeDown(SessionName),
    /// A data node has registered.
    NodeUp(NodeId),
    /// A data node has failed or left; its sessions move.
    NodeDown {
        /// The data node.
        node: NodeId,
        /// It had been drained and carried no session: it left as announced.
        drained: bool,
    },
}

/// A native network's answer about the costs of its gateways.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sroutes {
    /// Costs, null, or no such session.
    pub outcome: Outcome,
    /// The known costs.
    pub costs: Vec<GatewayCost>,
    /// No more costs can be known here; otherwise the missing gateways are asked themselves.
    pub got_all: bool,
}

impl Sroutes {
    /// Returns an answer without costs.
    #[must_use]
    pub const fn none(outcome: Outcome) -> Self {
        Sroutes {
            outcome,
            costs: Vec::new(),
            got_all: true,
        }
    }
}
