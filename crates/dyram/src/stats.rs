//! Counters.

proto_core::drop_reasons! {
    /// Why a packet was dropped.
    pub enum DropReason: "packet dropped: {}" {
        /// No packet of DyRAM.
        Malformed = "malformed",
        /// Of a session that nobody here takes part in.
        NoSession = "no_session",
        /// Going down, but not from the parent.
        NotFromParent = "not_from_parent",
        /// Going up, but not from the child that it names.
        NotFromChild = "not_from_child",
        /// Of another session identifier than the one that runs: two sources collide, or one is old.
        OtherSession = "other_session",
        /// Data that was here already.
        Duplicate = "duplicate",
        /// Data further ahead than the window is long, not yet followed by its next.
        FarAhead = "far_ahead",
        /// A NACK, an acknowledgement or an answer about packets that were never sent.
        NotSent = "not_sent",
        /// A NACK for what its sender acknowledged.
        Acknowledged = "acknowledged",
        /// A NACK like one that is being dealt with.
        Suppressed = "suppressed",
        /// A NACK when all states are taken: it will come again.
        NackStatesFull = "nack_states_full",
        /// A repair that nobody asked its sender for, or that is not wanted any more.
        Unrequested = "unrequested",
        /// A JOIN that cannot be answered now: too many wait for an answer.
        JoinFlood = "join_flood",
        /// The name of a stalled child, too soon after another.
        NoticeFlood = "notice_flood",
        /// LEAVE, JOINED or MOVE with a wrong token.
        BadToken = "bad_token",
        /// A JOIN as source from another address than the source's.
        NotSource = "not_source",
        /// A service that does not go this way.
        WrongWay = "wrong_way",
    }
    /// How many packets were dropped, by reason.
    pub type Drops;
}

/// Counters of a relay; all wrap.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// New packets from above.
    pub data: u64,
    /// Packets that arrived after they were missed.
    pub recovered: u64,
    /// Packets that were seen to be missing.
    pub gaps: u64,
    /// Packets asked for by children (each packet of a NACK counts).
    pub nacked: u64,
    /// Packets asked of repliers.
    pub asked_repliers: u64,
    /// Packets asked of the parent.
    pub asked_parent: u64,
    /// Repairs from repliers below.
    pub repaired_below: u64,
    /// Repairs from above.
    pub repaired_above: u64,
    /// Packets given up: nobody had them.
    pub given_up: u64,
    /// Times that a replier said it lacks a packet.
    pub absent: u64,
    /// JOINs that a child was taken in with.
    pub joined: u64,
    /// Children that left.
    pub left: u64,
    /// Children that were removed for being silent.
    pub silent: u64,
    /// Children that the session no longer waits for, because their acknowledgement did not advance.
    pub stalled: u64,
    /// JOINs refused for want of room.
    pub refused: u64,
    /// Events that nobody fetched in time.
    pub events_lost: u64,
    /// Packets dropped, by reason.
    pub drops: Drops,
}
