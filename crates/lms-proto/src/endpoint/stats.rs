//! Counters of an endpoint, and the reasons for which it refuses packets.

proto_core::drop_reasons! {
    /// Why a packet was refused. Nothing else changed.
    pub enum DropReason: "{}" {
        /// Not a whole IP packet with an LMS-HIER, IGMP or MLD message that can be read.
        Malformed = "malformed",
        /// An LMS-HIER message of another version: the router runs another release.
        Version = "version",
        /// It arrived on another interface.
        WrongInterface = "wrong_interface",
        /// The TTL is not 1: it may come from another link.
        Ttl = "ttl",
        /// The sender's address is not on the interface's subnet; of an MLD query, not link-local.
        WrongSubnet = "wrong_subnet",
        /// An MLD query without the Router Alert option (RFC 9777 §6.2).
        RouterAlert = "router_alert",
        /// The sender's address is our own.
        OwnAddress = "own_address",
        /// The boot number is an older one, or the sequence number not a newer one: a replay.
        Replay = "replay",
        /// The router sends more packets than it may.
        Rate = "rate",
        /// The table of this link's routers is full, and all of them are active.
        RoutersFull = "routers_full",
    }
    /// How many packets were refused, by reason.
    pub type Drops;
}

/// Counters since the start; all wrap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// ELECTED messages accepted.
    pub elected_received: u64,
    /// IGMP or MLD queries accepted.
    pub queries_received: u64,
    /// Reports sent.
    pub reports_sent: u64,
    /// Offers and withdrawals in these reports.
    pub records_sent: u64,
    /// Messages that are not for hosts: UPDATEs, reports.
    pub ignored: u64,
    /// How many packets were refused, by reason.
    pub drops: Drops,
}

impl Stats {
    pub(super) fn drop(&mut self, reason: DropReason) -> DropReason {
        self.drops.count(reason);
        reason
    }
}
