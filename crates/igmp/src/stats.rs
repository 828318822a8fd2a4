//! Counters of the machines, and the reasons for which they refuse.

proto_core::drop_reasons! {
    /// Why a packet, or one record of it, was refused. Nothing else changed.
    pub enum DropReason: "{}" {
        /// Not a whole packet with a membership message that can be read.
        Malformed = "malformed",
        /// It arrived on an interface that this machine is not for.
        WrongInterface = "wrong_interface",
        /// The TTL or hop limit is not 1: it may come from another link.
        Ttl = "ttl",
        /// The sender's address is not on the interface's subnet; of MLD, not link-local.
        WrongSubnet = "wrong_subnet",
        /// An MLD message without the Router Alert option (RFC 9777 §6.2, §7.4).
        RouterAlert = "router_alert",
        /// The sender's address is this system's own.
        OwnAddress = "own_address",
        /// More packets than are looked at in a second.
        Rate = "rate",
        /// A record of a group that stays on its link or in its node: it is not forwarded and needs no state.
        LinkLocalGroup = "link_local_group",
        /// No room for another group.
        GroupsFull = "groups_full",
        /// No room for another source of a group.
        SourcesFull = "sources_full",
        /// A query of a version below 3, of MLD below 2: an older router is on the link (RFC 3376 §7.3.1 and RFC 9777
        /// §8.3.1 require that all routers of a link are configured alike).
        OlderQuery = "older_query",
    }
    /// Packets and records refused, by reason.
    pub type Drops;
}

/// Counters since the start; all wrap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Reports and leaves of any version accepted.
    pub reports_received: u64,
    /// Queries accepted.
    pub queries_received: u64,
    /// Queries sent.
    pub queries_sent: u64,
    /// Reports and leaves sent.
    pub reports_sent: u64,
    /// Packets and records refused, by reason.
    pub drops: Drops,
}

impl Stats {
    pub(super) fn drop(&mut self, reason: DropReason) -> DropReason {
        self.drops.count(reason);
        reason
    }
}
