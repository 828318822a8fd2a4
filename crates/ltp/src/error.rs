//! Why a packet was dropped: one named reason, one counter each.

use crate::wire::ParseError;

proto_core::drop_reasons! {
    /// Why a packet was dropped. Nothing but the counter of that reason has changed, unless
    /// the reason says so.
    pub enum Error: "packet dropped: {}" {
        /// Shorter than its type demands.
        Truncated = "truncated",
        /// Another version of the protocol: a peer needs another release.
        Version = "version",
        /// Unknown packet type.
        Type = "type",
        /// Longer than its type allows.
        Length = "length",
        /// Reserved bits are set, or flags contradict each other.
        Reserved = "reserved",
        /// A field is out of bounds.
        Value = "value",
        /// A packet type that this role does not take.
        Unexpected = "unexpected_type",
        /// The authenticator is wrong: forged, or another key.
        Authenticator = "authenticator",
        /// Another session than ours. When a heartbeat said so, the source was asked which is right.
        OtherSession = "other_session",
        /// Not from the source of the session.
        OtherSource = "other_source",
        /// Data before the first heartbeat said how it is cut; the next heartbeat comes soon.
        BeforeSync = "before_sync",
        /// Data payload of a length other than the session's.
        PayloadLength = "payload_length",
        /// Data past the end of the content.
        BeyondEnd = "beyond_end",
        /// Data too far ahead of a missing packet: the store or the table has no room yet. It is requested
        /// when there is room.
        BeyondWindow = "beyond_window",
        /// The heartbeat contradicts an earlier one; the source was asked which is right.
        Contradiction = "contradiction",
        /// The session has no digests, or no key, and this receiver demands them.
        Integrity = "integrity_required",
        /// The session's blocks do not fit this receiver's store.
        Geometry = "geometry",
        /// An answer without a request: wrong nonce, wrong tag or none pending.
        Unasked = "unasked_answer",
        /// A request that reached a host that is not the elected replier of its link.
        NotElected = "request_not_elected",
        /// A request that no router has turned yet: the router forwards it, and a repair from here would be a
        /// second one.
        NotTurned = "request_not_turned",
        /// A request whose option names another source or group.
        OptionMismatch = "request_option_mismatch",
        /// A request by unicast to a receiver.
        RequestUnicast = "request_unicast",
        /// A request for packets that were never sent.
        RequestUnsent = "request_unsent",
        /// A request for packets that this host does not store: it has requested them itself, or released them.
        RequestNotStored = "request_not_stored",
        /// A request for packets within the hold-down time of their repair.
        RequestHeldDown = "request_held_down",
        /// The queue of repairs is full.
        RepairsFull = "repairs_full",
        /// Too many turning points or requesters at once.
        TargetsFull = "targets_full",
        /// The request did not prove its address: it was answered with a token, or, when the queue of
        /// answers was full, not at all.
        RequestUnverified = "request_unverified",
        /// The queue of answers is full.
        AnswersFull = "answers_full",
        /// A report from a receiver that did not prove its address; it was answered with a token, or,
        /// when the queue of answers was full, not at all.
        ReportUnverified = "report_unverified",
        /// A report that no receiver can be right about.
        ReportImplausible = "report_implausible",
        /// A new receiver, but the table of receivers is full.
        ReceiversFull = "receivers_full",
        /// A report while none are wanted.
        ReportUnwanted = "report_unwanted",
        /// Feedback from a receiver that did not prove its address; it was answered with a token, or, when the queue
        /// of answers was full, not at all.
        FeedbackUnverified = "feedback_unverified",
        /// Feedback that answers no recent packet of this source.
        FeedbackStale = "feedback_stale",
        /// Feedback while there is no congestion control.
        FeedbackUnwanted = "feedback_unwanted",
        /// A packet of a receiver that was given up because it is too slow.
        TooSlow = "too_slow",
        /// A DyRAM relay's packet that is malformed, of another session, or not from our relay.
        Relay = "relay",
        /// A DyRAM packet of another version: a relay, or the source beside one, runs another release.
        RelayVersion = "relay_version",
        /// The machine has ended.
        Ended = "ended",
        /// The store could not keep the data: the receiver has given up.
        Store = "store",
    }
    /// How many packets were dropped, by reason.
    pub type Drops;
}

/// Why a packet of a relay was dropped.
impl From<dyram::DropReason> for Error {
    fn from(reason: dyram::DropReason) -> Self {
        match reason {
            dyram::DropReason::Version => Error::RelayVersion,
            _ => Error::Relay,
        }
    }
}

impl From<ParseError> for Error {
    fn from(error: ParseError) -> Self {
        match error {
            ParseError::Truncated => Error::Truncated,
            ParseError::Version => Error::Version,
            ParseError::Type => Error::Type,
            ParseError::Length => Error::Length,
            ParseError::Reserved => Error::Reserved,
            ParseError::Value => Error::Value,
        }
    }
}
