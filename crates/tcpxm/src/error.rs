//! Errors of packets, commands and connections.

use core::fmt;

use crate::wire::ParseError;

proto_core::drop_reasons! {
    /// The reason why a packet was dropped. Only the counter of that reason has changed, and where TCP requires
    /// it an acknowledgement or a reset is queued.
    pub enum Error: "segment dropped: {}" {
        /// Shorter than its header says.
        Truncated = "truncated",
        /// The data offset is below the header.
        Header = "header",
        /// An option has an illegal length.
        Option = "option_length",
        /// The checksum is wrong, or source and destination are of different families.
        Checksum = "checksum",
        /// The source is a multicast, broadcast or unspecified address (RFC 9293 MUST-57, MUST-63).
        Source = "source_address",
        /// A segment to a group that is not one of this endpoint's connections.
        GroupUnknown = "group_unknown",
        /// No tag, or a wrong one, on a connection whose sender has a key.
        Forged = "forged",
        /// SYN, FIN, RST or URG on the group address, or no data.
        GroupControl = "group_control",
        /// Data from a receiver of a group, whose sender accepts none. The acknowledgement with it was
        /// accepted.
        GroupData = "group_data",
        /// No connection; a reset was sent unless the rate of resets forbids.
        NoConnection = "no_connection",
        /// A reset, or an acknowledgement, that a listener has no use for.
        ListenerIgnored = "listener_ignored",
        /// A SYN while the listener's queue of complete connections is full.
        BacklogFull = "backlog_full",
        /// A SYN while there are as many connections as may be.
        ConnectionsFull = "connections_full",
        /// Timestamp older than the last one (RFC 7323 §5), or on a group address one from the future.
        Paws = "paws",
        /// Outside of the receive window.
        Window = "out_of_window",
        /// A duplicate; an acknowledgement is owed.
        Duplicate = "duplicate",
        /// Data that would make one hole too many.
        ReassemblyFull = "reassembly_full",
        /// A reset in the window, but not at its left edge (RFC 5961 §3).
        ResetChallenged = "reset_challenged",
        /// A reset outside of the window.
        ResetWindow = "reset_out_of_window",
        /// A SYN on a synchronised connection (RFC 5961 §4).
        SynChallenged = "syn_challenged",
        /// An acknowledgement of unsent data, or too old (RFC 5961 §5).
        AckChallenged = "ack_challenged",
        /// No ACK bit where there must be one.
        NoAck = "no_ack",
        /// A segment that a connection in TIME-WAIT ignores (RFC 1337).
        TimeWait = "time_wait",
        /// Data after the other side's FIN, or after this side has closed.
        Closed = "closed",
    }
    /// How many packets were dropped, by reason.
    pub type Drops;
}

impl From<ParseError> for Error {
    fn from(error: ParseError) -> Self {
        match error {
            ParseError::Truncated => Error::Truncated,
            ParseError::Header => Error::Header,
            ParseError::Option => Error::Option,
            ParseError::Checksum => Error::Checksum,
        }
    }
}

/// A command that could not be carried out; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CommandError {
    /// No such connection or group, or it is gone.
    Unknown,
    /// The connection has failed; [`Event::Closed`](crate::Event::Closed) has the reason.
    Failed,
    /// This direction of the connection was closed before.
    Closed,
    /// The address is unspecified, multicast, or of another family than the others.
    Address,
    /// The port is in use, or no random one was free.
    PortInUse,
    /// As many connections as the configuration allows, or a group of no receivers.
    Limit,
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CommandError::Unknown => "no such connection or group",
            CommandError::Failed => "the connection has failed",
            CommandError::Closed => "closed for this direction",
            CommandError::Address => "address cannot be used",
            CommandError::PortInUse => "port is in use",
            CommandError::Limit => "too many connections, or no receivers",
        })
    }
}

impl core::error::Error for CommandError {}

/// Why a connection ended before its time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Failure {
    /// The peer answered the SYN with a reset: the port is closed there.
    Refused,
    /// The SYN was not answered in time.
    ConnectTimeout,
    /// The other side reset the connection.
    Reset,
    /// The other side stopped answering.
    Timeout,
    /// Multicast was demanded, and the receiver answered without the group option, or got nothing but
    /// repairs for [`GroupConfig::multicast_timeout`](crate::GroupConfig::multicast_timeout).
    NoMulticast,
    /// A detached receiver held the group up, whose store cannot read old data again.
    TooSlow,
    /// Too few receivers answered in time: the whole group has failed.
    TooFew,
    /// The store of sent data failed.
    Store,
    /// This side aborted it.
    Aborted,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failure::Refused => "connection refused",
            Failure::ConnectTimeout => "no answer",
            Failure::Reset => "connection reset",
            Failure::Timeout => "stopped answering",
            Failure::NoMulticast => "multicast does not reach it",
            Failure::TooSlow => "too slow for the others",
            Failure::TooFew => "too few receivers answered",
            Failure::Store => "data to send could not be read",
            Failure::Aborted => "aborted",
        })
    }
}

impl core::error::Error for Failure {}
