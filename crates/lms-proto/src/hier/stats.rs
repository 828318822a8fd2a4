//! Counters of a hierarchy, and the reasons for which it refuses.

proto_core::drop_reasons! {
    /// Why a message, or one record of it, was refused. Nothing else changed.
    pub enum DropReason: "{}" {
        /// Not a whole IPv4 packet with an LMS-HIER message or an IGMP report that can be read.
        Malformed = "malformed",
        /// An LMS-HIER message of another version: the neighbour runs another release.
        Version = "version",
        /// The TTL is not 1: it may come from another link.
        Ttl = "ttl",
        /// It arrived on an interface that the hierarchy does not have.
        UnknownInterface = "unknown_interface",
        /// The sender's address is not on that interface's subnet.
        WrongSubnet = "wrong_subnet",
        /// The sender's address is our own.
        OwnAddress = "own_address",
        /// The boot number is an older one, or the sequence number not a newer one: a replay.
        Replay = "replay",
        /// The neighbour sends more packets than it may.
        Rate = "rate",
        /// The table of neighbouring hosts and routers is full.
        PeersFull = "peers_full",
        /// An ELECTED message on a link on which this router itself elects: those go down, and are for hosts.
        WrongType = "wrong_type",
        /// A record's entry does not exist.
        UnknownGroup = "unknown_group",
        /// A record's entry does not have that interface downstream.
        WrongInterface = "wrong_interface",
        /// No room for the record's offer: in its entry, or in the tables.
        TableFull = "table_full",
    }
    /// How many messages and records were refused, by reason.
    pub type Drops;
}

/// Counters since the start; all wrap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// UPDATE messages accepted.
    pub updates_received: u64,
    /// IGMP packets examined for a replier's cost.
    pub reports_received: u64,
    /// Offers added, changed, refreshed or withdrawn by a message.
    pub records_accepted: u64,
    /// UPDATE messages sent.
    pub updates_sent: u64,
    /// ELECTED messages sent.
    pub elected_sent: u64,
    /// Changes of an entry's elected replier.
    pub elections: u64,
    /// Offers that expired because their neighbour went silent.
    pub expired: u64,
    /// Entries that could not be advertised on a link because the table of adverts is full.
    pub adverts_full: u64,
    /// How many messages and records were refused, by reason.
    pub drops: Drops,
}

impl Stats {
    pub(super) fn drop(&mut self, reason: DropReason) -> DropReason {
        self.drops.count(reason);
        reason
    }
}
