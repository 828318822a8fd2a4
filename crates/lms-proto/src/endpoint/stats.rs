//! Counters of an endpoint, and the reasons for which it refuses packets.

use core::fmt;

/// Why a packet was refused. Nothing else changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum DropReason {
    /// Not a whole IPv4 packet with an LMS-HIER or IGMP message that can be read.
    Malformed,
    /// It arrived on another interface.
    WrongInterface,
    /// The TTL is not 1: it may come from another link.
    Ttl,
    /// The sender's address is not on the interface's subnet.
    WrongSubnet,
    /// The sender's address is our own.
    OwnAddress,
    /// The boot number is an older one, or the sequence number not a newer one: a replay.
    Replay,
    /// The router sends more packets than it may.
    Rate,
    /// More routers on this link than there is room for, all of them heard lately.
    RoutersFull,
}

impl DropReason {
    /// All reasons, in the order of their declaration.
    pub const ALL: &'static [DropReason] = &[
        DropReason::Malformed,
        DropReason::WrongInterface,
        DropReason::Ttl,
        DropReason::WrongSubnet,
        DropReason::OwnAddress,
        DropReason::Replay,
        DropReason::Rate,
        DropReason::RoutersFull,
    ];

    /// The reason in snake case, as metrics and status name it.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::Malformed => "malformed",
            DropReason::WrongInterface => "wrong_interface",
            DropReason::Ttl => "ttl",
            DropReason::WrongSubnet => "wrong_subnet",
            DropReason::OwnAddress => "own_address",
            DropReason::Replay => "replay",
            DropReason::Rate => "rate",
            DropReason::RoutersFull => "routers_full",
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
    /// ELECTED messages accepted.
    pub elected_received: u64,
    /// IGMP queries that had an answer of ours follow.
    pub queries_received: u64,
    /// Reports sent.
    pub reports_sent: u64,
    /// Offers and withdrawals in these reports.
    pub records_sent: u64,
    /// Messages of others to others: UPDATEs, reports.
    pub ignored: u64,
    dropped: [u64; DropReason::ALL.len()],
}

impl Stats {
    /// How many packets were refused for this reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    pub(super) fn drop(&mut self, reason: DropReason) -> DropReason {
        let counter = &mut self.dropped[reason as usize];
        *counter = counter.wrapping_add(1);
        reason
    }
}
