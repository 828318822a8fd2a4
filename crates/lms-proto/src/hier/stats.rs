//! Counters of a hierarchy, and the reasons for which it refuses.

use core::fmt;

/// Why a message, or one record of it, was refused. Nothing else changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum DropReason {
    /// Not a whole IPv4 packet with an LMS-HIER message or an IGMP report that can be read.
    Malformed,
    /// The TTL is not 1: it may come from another link.
    Ttl,
    /// It arrived on an interface that the hierarchy was not told of.
    UnknownInterface,
    /// The sender's address is not on that interface's subnet.
    WrongSubnet,
    /// The sender's address is our own.
    OwnAddress,
    /// The boot number is an older one, or the sequence number not a newer one: a replay.
    Replay,
    /// The neighbour sends more packets than it may.
    Rate,
    /// The table of neighbouring hosts and routers is full.
    PeersFull,
    /// An ELECTED message: those go down, and are for hosts.
    WrongType,
    /// A record's entry does not exist.
    UnknownGroup,
    /// A record's entry does not have that interface downstream.
    WrongInterface,
    /// No room for the record's offer: in its entry, or in the tables.
    TableFull,
}

impl DropReason {
    /// All reasons, in the order of their declaration.
    pub const ALL: &'static [DropReason] = &[
        DropReason::Malformed,
        DropReason::Ttl,
        DropReason::UnknownInterface,
        DropReason::WrongSubnet,
        DropReason::OwnAddress,
        DropReason::Replay,
        DropReason::Rate,
        DropReason::PeersFull,
        DropReason::WrongType,
        DropReason::UnknownGroup,
        DropReason::WrongInterface,
        DropReason::TableFull,
    ];

    /// The reason in snake case, as metrics and status name it.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::Malformed => "malformed",
            DropReason::Ttl => "ttl",
            DropReason::UnknownInterface => "unknown_interface",
            DropReason::WrongSubnet => "wrong_subnet",
            DropReason::OwnAddress => "own_address",
            DropReason::Replay => "replay",
            DropReason::Rate => "rate",
            DropReason::PeersFull => "peers_full",
            DropReason::WrongType => "wrong_type",
            DropReason::UnknownGroup => "unknown_group",
            DropReason::WrongInterface => "wrong_interface",
            DropReason::TableFull => "table_full",
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for DropReason {}

/// Counters since the start; all wrap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// UPDATE messages accepted.
    pub updates_received: u64,
    /// IGMP packets looked at for a replier's cost.
    pub reports_received: u64,
    /// Offers taken, changed, refreshed or withdrawn by a message.
    pub records_accepted: u64,
    /// UPDATE messages sent.
    pub updates_sent: u64,
    /// ELECTED messages sent.
    pub elected_sent: u64,
    /// Times that an entry's elected replier became another, or none.
    pub elections: u64,
    /// Offers that ran out because their neighbour went silent.
    pub expired: u64,
    /// Links that an entry could not be told on, because the table of adverts is full.
    pub adverts_full: u64,
    dropped: [u64; DropReason::ALL.len()],
}

impl Stats {
    /// How many messages and records were refused for this reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    pub(super) fn drop(&mut self, reason: DropReason) -> DropReason {
        let counter = &mut self.dropped[reason as usize];
        *counter = counter.wrapping_add(1);
        reason
    }
}
