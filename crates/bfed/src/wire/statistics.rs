//! STATISTICS: traffic through a data node, by which sessions are assigned (§5.3.1).
//!
//! ```text
//! +---------------------------------------------------------------+
//! |  sessions (4)                                                 |
//! +---------------------------------------------------------------+
//! |  bit/s forwarded, over the last interval (8)                  |
//! +---------------------------------------------------------------+
//! |  sessions that changed: a list, at most 12, of                |
//! |    packets received (8), bytes received (8), copies sent (8), |
//! |    copies dropped (8), session's name                         |
//! +---------------------------------------------------------------+
//! ```

use alloc::vec::Vec;

use super::reader::Listed;
use crate::name::SessionName;

/// Most sessions in one message.
pub const MAX_ENTRIES: usize = 12;

fields! {
    /// Counters of one session at one data node since it was assigned there.
    Entry {
        /// Packets received from the tree.
        packets: u64,
        /// Their payload in bytes.
        bytes: u64,
        /// Copies sent.
        copies: u64,
        /// Copies dropped because a queue was full.
        dropped: u64,
        /// The session.
        session: SessionName,
    }
}

impl Listed for Entry {
    const MAX: usize = MAX_ENTRIES;
}

message! {
    /// A STATISTICS message.
    Repr = Statistics {
        /// Number of sessions at the node.
        sessions: u32,
        /// Rate forwarded in the last interval, in bit/s.
        rate_bps: u64,
        /// Some of the sessions; several messages together contain all.
        entries: Vec<Entry>,
    }
}
