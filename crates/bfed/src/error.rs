//! Drop reasons and counters of a control node.

use crate::wire::ParseError;

proto_core::drop_reasons! {
    /// Why a message was refused. It was counted; where the table in [`session`](crate::session) says so, its
    /// stream ends.
    pub enum Error: "message dropped: {}" {
        /// Unknown or closed stream.
        UnknownStream = "unknown_stream",
        /// Malformed; the stream ends.
        Malformed = "malformed",
        /// Another version of the protocol: the peer or data node runs another release; the stream ends.
        Version = "version",
        /// Not allowed in this state or from this side; the stream ends.
        OutOfOrder = "out_of_order",
        /// An OPEN that does not match; the stream ends.
        BadOpen = "bad_open",
        /// Routes of a table that the session does not have.
        ForeignTable = "foreign_table",
        /// More routes than the peer may announce; the stream ends.
        PrefixLimit = "prefix_limit",
        /// A JOIN that was answered with NO_ROUTE.
        JoinRefused = "join_refused",
        /// A JOIN or TRANSLATION with an address where the peer's data nodes may not be.
        ForeignAddress = "foreign_address",
        /// Unknown session.
        UnknownSession = "unknown_session",
        /// A TRANSLATION or NO_ROUTE from a peer that is not the upstream.
        NotUpstream = "not_upstream",
        /// An ECHO_REPLY that is too late, or without a request.
        EchoUnasked = "echo_unasked",
        /// An SROUTE_RESPONSE without a request.
        SrouteUnasked = "sroute_unasked",
        /// An SROUTE_REQUEST that was answered with "no route".
        SrouteRefused = "sroute_refused",
        /// A data node's response to an old request.
        StaleAnswer = "stale_answer",
        /// A data node that is not registered, exceeds the limit, or has the number of another; the stream ends.
        BadNode = "bad_node",
        /// A data node obeys a newer control node: this one is fenced.
        Fenced = "fenced",
    }
    /// Number of refused messages by reason.
    pub type Drops;
}

impl From<ParseError> for Error {
    fn from(error: ParseError) -> Self {
        match error {
            ParseError::Version => Error::Version,
            _ => Error::Malformed,
        }
    }
}

/// Counters of a control node since its start.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Stats {
    /// Messages received.
    pub messages_received: u64,
    /// Messages sent.
    pub messages_sent: u64,
    /// Messages refused, by reason.
    pub drops: Drops,
    /// Counters of routing.
    pub routes: crate::routing::RouteStats,
    /// Peering sessions established.
    pub peerings: u64,
    /// Sessions whose trees this gateway became part of.
    pub trees: u64,
    /// Times a tree was examined because routes, peers or data nodes changed.
    pub trees_examined: u64,
    /// Times a session's upstream changed.
    pub reroutes: u64,
    /// Loops detected in trees.
    pub loops: u64,
    /// SROUTE discoveries started here.
    pub discoveries: u64,
    /// SROUTE discoveries without an answer in time.
    pub discoveries_failed: u64,
    /// Requests of clients.
    pub clients: u64,
    /// Of those, redirected.
    pub redirected: u64,
    /// Of those, refused.
    pub refused: u64,
    /// Data nodes that failed.
    pub nodes_lost: u64,
    /// Sessions that moved to another data node.
    pub moved: u64,
    /// Times all data nodes of a peer fell silent.
    pub silent: u64,
    /// ECHO_REQUESTs sent.
    pub echoes: u64,
    /// ECHO_REQUESTs that were not answered in time.
    pub echoes_unanswered: u64,
    /// Times the measured cost of a link changed.
    pub delay_changes: u64,
    /// Downstream peers whose soft state expired.
    pub expired: u64,
}
