//! Counters.

use crate::wire::ParseError;

proto_core::drop_reasons! {
    /// Why a packet was dropped.
    pub enum DropReason: "packet dropped: {}" {
        /// Not a DyRAM packet.
        Malformed = "malformed",
        /// A DyRAM packet of another version: the sender runs another release.
        Version = "version",
        /// The session is unknown here.
        NoSession = "no_session",
        /// It goes down, but is not from the parent.
        NotFromParent = "not_from_parent",
        /// It goes up, but is not from the child that it names.
        NotFromChild = "not_from_child",
        /// Not the running session identifier: two sources have one name, or the packet is old.
        OtherSession = "other_session",
        /// Data that was received before.
        Duplicate = "duplicate",
        /// Data ahead by more than the window, not yet followed by the next packet.
        FarAhead = "far_ahead",
        /// A NACK or an acknowledgement of packets that were never sent.
        NotSent = "not_sent",
        /// A NACK for a packet that its sender has acknowledged.
        Acknowledged = "acknowledged",
        /// A NACK for a packet that the same child has already asked for.
        Suppressed = "suppressed",
        /// A NACK while all NACK states are in use; the child repeats it.
        NackStatesFull = "nack_states_full",
        /// A repair or ABSENT that its sender was not asked for, or that comes too late.
        Unrequested = "unrequested",
        /// A JOIN while too many answers are pending.
        JoinFlood = "join_flood",
        /// A STALLED message too soon after another.
        NoticeFlood = "notice_flood",
        /// LEAVE, JOINED or MOVE with a wrong token or time stamp.
        BadToken = "bad_token",
        /// A JOIN as source from an address that is not the source's.
        NotSource = "not_source",
        /// A service that does not travel in this direction.
        WrongWay = "wrong_way",
    }
    /// Packets dropped, by reason.
    pub type Drops;
}

impl From<ParseError> for DropReason {
    fn from(error: ParseError) -> Self {
        match error {
            ParseError::Version => DropReason::Version,
            _ => DropReason::Malformed,
        }
    }
}

/// Counters of a relay. They wrap.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// New packets from above.
    pub data: u64,
    /// Missing packets that arrived late.
    pub recovered: u64,
    /// Packets detected as missing.
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
    /// Packets given up: no replier had them.
    pub given_up: u64,
    /// Packets that a replier reported as missing there.
    pub absent: u64,
    /// Children that joined.
    pub joined: u64,
    /// Children that left.
    pub left: u64,
    /// Children removed because they were silent.
    pub silent: u64,
    /// Children that stalled: the session no longer waits for them.
    pub stalled: u64,
    /// Feedback of children that went upward.
    pub feedback: u64,
    /// Feedback of children that was dropped because that of a child with a lower rank is passed on.
    pub feedback_suppressed: u64,
    /// JOINs refused because a table was full.
    pub refused: u64,
    /// Events discarded because too many were pending.
    pub events_lost: u64,
    /// Packets dropped, by reason.
    pub drops: Drops,
}
