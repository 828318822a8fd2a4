//! NOTIFICATION: why a peering, or a data node's connection, ends. It is the last message on the connection.
//!
//! ```text
//! +---------------+---------------+
//! |  reason       |  length       |  text for people, UTF-8, at most 128 bytes
//! +---------------+---------------+
//! ```

use alloc::string::String;

use super::reader::clip;

numbered! {
    /// Why a session ends.
    Reason {
        /// A malformed message.
        BadMessage = 1 "bad_message",
        /// No common version of the protocol.
        Version = 2 "version",
        /// Not the gateway that is configured here.
        BadPeer = 3 "bad_peer",
        /// No message within the hold time.
        HoldTimer = 4 "hold_timer",
        /// A message that the present state does not allow.
        OutOfOrder = 5 "out_of_order",
        /// No table in common.
        Tables = 6 "tables",
        /// An unknown mandatory attribute, or an UPDATE that cannot be split into routes.
        BadUpdate = 7 "bad_update",
        /// More routes than the limit.
        PrefixLimit = 8 "prefix_limit",
        /// The receiver reads too slowly: too many messages wait.
        TooSlow = 9 "too_slow",
        /// The administrator closes the peering, or the program ends.
        Shutdown = 10 "shutdown",
        /// Another connection with the same peer is kept.
        Collision = 11 "collision",
        /// The peering's configuration changed.
        Reconfigured = 12 "reconfigured",
        /// A newer control node is active.
        Fenced = 13 "fenced",
        /// The peer does not answer an OPEN in time.
        OpenTimer = 14 "open_timer",
        /// The peer's data nodes are silent.
        Silent = 15 "silent",
        /// Not the transport between data nodes that is configured here.
        Transport = 16 "transport",
    }
}

message! {
    /// A NOTIFICATION.
    Repr = Notification {
        /// Why.
        reason: Reason,
        /// Details for people, at most [`MAX_TEXT_LEN`](super::reader::MAX_TEXT_LEN) bytes.
        text: String,
    }
}

impl Repr {
    /// Creates a message with details, which are cut to the longest text allowed.
    #[must_use]
    pub fn new(reason: Reason, text: &str) -> Self {
        let text = clip(text);
        Repr { reason, text }
    }
}
