//! Why a control node dropped a message, and how often.

proto_core::drop_reasons! {
    /// Why a message did nothing. Its counter has changed; where the table in
    /// [`session`](crate::session) says so, the stream that it came on is ended.
    pub enum Error: "message dropped: {}" {
        /// A stream that the machine does not know, or has ended.
        UnknownStream = "unknown_stream",
        /// It cannot be read; the stream is ended.
        Malformed = "malformed",
        /// It came at the wrong time, or from the wrong side; the stream is ended.
        OutOfOrder = "out_of_order",
        /// An OPEN that does not fit; the stream is ended.
        BadOpen = "bad_open",
        /// Routes of a table that was not agreed on.
        ForeignTable = "foreign_table",
        /// More routes than the peer may have; the stream is ended.
        PrefixLimit = "prefix_limit",
        /// A JOIN that was answered by NO_ROUTE.
        JoinRefused = "join_refused",
        /// A JOIN or TRANSLATION that named an address where the peer's data nodes may not be.
        ForeignAddress = "foreign_address",
        /// About a session that is not known here.
        UnknownSession = "unknown_session",
        /// A TRANSLATION or NO_ROUTE from a peer that was not asked, or is asked no more.
        NotUpstream = "not_upstream",
        /// An SROUTE_RESPONSE that nobody asked for.
        SrouteUnasked = "sroute_unasked",
        /// An SROUTE_REQUEST that was answered by "no route".
        SrouteRefused = "sroute_refused",
        /// A data node's answer to a question that is out of date.
        StaleAnswer = "stale_answer",
        /// A data node that is not registered, one too many, or with another's number; the stream is ended.
        BadNode = "bad_node",
        /// From a data node that obeys a newer control node: this one is fenced.
        Fenced = "fenced",
    }
    /// How many messages were dropped, by reason.
    pub type Drops;
}

/// Counters of a control node since its start.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Stats {
    /// Messages handed in.
    pub messages_received: u64,
    /// Messages written.
    pub messages_sent: u64,
    /// Messages dropped, by reason.
    pub drops: Drops,
    /// Of routing.
    pub routes: crate::routing::RouteStats,
    /// Peerings that were established.
    pub peerings: u64,
    /// Sessions that this gateway became part of.
    pub trees: u64,
    /// Times a session was examined because routes, peers or data nodes changed.
    pub trees_examined: u64,
    /// Times a session's upstream changed.
    pub reroutes: u64,
    /// Loops found in trees.
    pub loops: u64,
    /// SROUTE discoveries started here.
    pub discoveries: u64,
    /// SROUTE discoveries that nobody answered in time.
    pub discoveries_failed: u64,
    /// Clients that asked.
    pub clients: u64,
    /// Of those, such that were redirected.
    pub redirected: u64,
    /// Of those, such that were told NO_ROUTE.
    pub refused: u64,
    /// Data nodes that died.
    pub nodes_lost: u64,
    /// Sessions that moved to another data node.
    pub moved: u64,
    /// Times nothing was heard of a peer's data nodes any more.
    pub silent: u64,
    /// Downstream peers whose soft state expired.
    pub expired: u64,
}
