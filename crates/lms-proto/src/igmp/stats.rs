//! Counters of the IGMP machines, and the reasons for which they refuse.

use core::fmt;

/// Why a packet, or one record of it, was refused. Nothing else changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum DropReason {
    /// Not a whole IPv4 packet with an IGMP message that can be read.
    Malformed,
    /// It arrived on an interface that this machine is not for.
    WrongInterface,
    /// The TTL is not 1: it may come from another link.
    Ttl,
    /// The sender's address is not on the interface's subnet.
    WrongSubnet,
    /// The sender's address is our own.
    OwnAddress,
    /// More packets than are looked at in a second.
    Rate,
    /// A group of the link-local block, which is not forwarded and needs no state.
    LinkLocalGroup,
    /// No room for another group.
    GroupsFull,
    /// No room for another source of a group.
    SourcesFull,
    /// A query of a version below 3: an older router is on the link (RFC 3376 §7.3.1 wants all of
    /// a link's routers configured alike).
    OlderQuery,
}

impl DropReason {
    /// All reasons, in the order of their declaration.
    pub const ALL: &'static [DropReason] = &[
        DropReason::Malformed,
        DropReason::WrongInterface,
        DropReason::Ttl,
        DropReason::WrongSubnet,
        DropReason::OwnAddress,
        DropReason::Rate,
        DropReason::LinkLocalGroup,
        DropReason::GroupsFull,
        DropReason::SourcesFull,
        DropReason::OlderQuery,
    ];

    /// The reason in snake case, as metrics and status name it.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::Malformed => "malformed",
            DropReason::WrongInterface => "wrong_interface",
            DropReason::Ttl => "ttl",
            DropReason::WrongSubnet => "wrong_subnet",
            DropReason::OwnAddress => "own_address",
            DropReason::Rate => "rate",
            DropReason::LinkLocalGroup => "link_local_group",
            DropReason::GroupsFull => "groups_full",
            DropReason::SourcesFull => "sources_full",
            DropReason::OlderQuery => "older_query",
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
    /// Reports and leaves of any version accepted.
    pub reports_received: u64,
    /// Queries accepted.
    pub queries_received: u64,
    /// Queries sent.
    pub queries_sent: u64,
    /// Reports and leaves sent.
    pub reports_sent: u64,
    dropped: [u64; DropReason::ALL.len()],
}

impl Stats {
    /// How many packets and records were refused for this reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    pub(super) fn drop(&mut self, reason: DropReason) -> DropReason {
        let counter = &mut self.dropped[reason as usize];
        *counter = counter.wrapping_add(1);
        reason
    }
}
