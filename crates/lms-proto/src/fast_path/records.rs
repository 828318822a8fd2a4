//! What the machine publishes. All records are plain words and bytes in a fixed layout, without padding.

use core::net::Ipv4Addr;

use proto_core::{RateLimit, TokenBucket};

use crate::router::{Cookies, Numbers};
use crate::rule::{Role, Tree};
use crate::table::{Credit, CreditLimit, KeyHash};
use crate::{Address as _, Iface, InterfaceConfig, LinkAddr};

/// Interfaces from this number on are the machine's.
pub(super) const IFACE_LIMIT: u16 = 48;

/// The link address of a record whose requests go to all neighbours of a link: that of no neighbour.
pub(super) const WHOLE_LINK: LinkAddr = LinkAddr([0; 6]);

/// Limits and secrets.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Settings {
    pub(super) cookies: Cookies,
    pub(super) requests: RateLimit,
    pub(super) dmcasts: RateLimit,
    pub(super) wrong_numbers: RateLimit,
    pub(super) all_requests: RateLimit,
    pub(super) all_dmcasts: RateLimit,
    /// The driver's clock when that of the machine started, in nanoseconds.
    pub start_ns: u64,
    pub(super) numbers: Numbers,
    pub(super) credit: CreditLimit,
    /// The port of the UDP carrier, 0 for none.
    pub(super) udp_port: u16,
    pub(super) reserved: u16,
}

impl Settings {
    #[inline]
    pub(super) fn is_udp_port(&self, port: u16) -> bool {
        self.udp_port != 0 && self.udp_port == port
    }
}

/// The limits of all groups together, which the driver has beside the machine's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Totals {
    /// Requests.
    pub requests: RateLimit,
    /// Dmcasts.
    pub dmcasts: RateLimit,
}

/// An entry of a source tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Record {
    /// Downstream interfaces, all below 48, by bits.
    pub(super) downstream: u64,
    /// Where its words are: the number of its [`EntryId`](crate::table::EntryId).
    pub slot: u32,
    pub(super) parent: u16,
    pub(super) replier: u16,
    /// What a request that turns here names; unspecified: the machine decides.
    pub(super) turning_router: Ipv4Addr,
    /// The replier's link address, or [`WHOLE_LINK`].
    pub(super) replier_link: [u8; 6],
    pub(super) reserved: [u8; 2],
    /// The replier's address, where its neighbours are told apart by address, because the machine does not know its link
    /// address; else unspecified.
    pub(super) replier_address: Ipv4Addr,
    /// Of source and group, as in the table.
    pub(super) hash: KeyHash,
}

impl Record {
    #[inline]
    pub(super) fn tree(&self) -> Tree {
        Tree {
            parent: Iface(self.parent),
            replier: Iface(self.replier),
        }
    }

    #[inline]
    pub(super) fn is_downstream(&self, iface: Iface) -> bool {
        iface.0 < IFACE_LIMIT && self.downstream >> iface.0 & 1 == 1
    }

    /// The role of an interface.
    #[inline]
    pub(super) fn role(&self, iface: Iface) -> Role {
        self.tree().role(iface, self.is_downstream(iface))
    }

    /// Whether requests go to the replier's whole link.
    #[inline]
    pub(super) fn is_for_link(&self) -> bool {
        self.replier_link == WHOLE_LINK.0
    }
}

/// An interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Port {
    /// Its MTU in bytes; 0: the driver cannot send there, the machine decides.
    pub mtu: u32,
    /// Its own address; unspecified for none.
    pub address: Ipv4Addr,
    /// Length of its subnet's prefix in bits.
    pub prefix_len: u8,
    /// 1: on its subnet there is no other address of this router than its own, and no other subnet. 0: not so, or not known.
    pub is_apart: u8,
    /// Its link address: the sender of frames.
    pub link: [u8; 6],
}

impl Port {
    /// An interface that the driver cannot send on, and that has no address.
    pub const NONE: Port = Port {
        mtu: 0,
        address: Ipv4Addr::UNSPECIFIED,
        prefix_len: 0,
        is_apart: 0,
        link: [0; 6],
    };

    /// Whether an address lies on its subnet.
    #[inline]
    pub(super) fn is_on_link(&self, address: Ipv4Addr) -> bool {
        !self.address.is_unspecified() && self.address.shares_prefix(address, self.prefix_len)
    }

    /// Whether a host of the subnet cannot have this address.
    #[inline]
    pub(super) fn is_reserved(&self, address: Ipv4Addr) -> bool {
        InterfaceConfig::ipv4(self.address, self.prefix_len).is_reserved(address)
    }
}

/// The buckets and the credit of an entry, each one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Words {
    /// [`Word::Requests`](super::Word::Requests).
    pub requests: u64,
    /// [`Word::Dmcasts`](super::Word::Dmcasts).
    pub dmcasts: u64,
    /// [`Word::Credit`](super::Word::Credit).
    pub credit: u64,
}

impl Words {
    /// Full buckets, no credit.
    pub const NEW: Words = Words {
        requests: TokenBucket::FULL.to_bits(),
        dmcasts: TokenBucket::FULL.to_bits(),
        credit: 0,
    };
}

/// A bucket's word with one token less.
#[inline]
pub(super) fn taken(bits: u64, now_ns: i64, limit: &RateLimit) -> Option<u64> {
    let bucket = TokenBucket::from_bits(bits).taken_ns(now_ns, limit)?;
    Some(bucket.to_bits())
}

/// The credit's word of a repair less, where one may pass.
#[inline]
pub(super) fn spent(bits: u64, tick: u32, is_classic: bool) -> Option<u64> {
    let credit = Credit::from_bits(bits);
    let spent = credit.allows(tick, is_classic).then(|| credit.spent())?;
    Some(spent.to_bits())
}

/// What the driver counts of one interface.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct PortCounters {
    /// Packets that arrived.
    pub received: u64,
    /// Those of them that were dropped.
    pub dropped: u64,
    /// Those of them that are requests to the parent, by the machine's rule; like the next three, before the driver's own
    /// limits.
    pub to_parent: u64,
    /// Requests that turned.
    pub turned: u64,
    /// Turned requests to the replier.
    pub to_replier: u64,
    /// Dmcasts to be multicast.
    pub dmcasts: u64,
    /// Requests sent.
    pub requests_sent: u64,
    /// Dmcasts sent.
    pub dmcasts_sent: u64,
    /// Packets not sent because they are longer than the MTU.
    pub too_long: u64,
}

impl PortCounters {
    /// All packets sent.
    pub fn sent(&self) -> u64 {
        self.requests_sent.saturating_add(self.dmcasts_sent)
    }

    /// These and others.
    #[must_use]
    pub fn and(&self, other: &PortCounters) -> PortCounters {
        self.zip(other, u64::saturating_add)
    }

    /// What was counted since an earlier reading.
    #[must_use]
    pub fn since(&self, before: &PortCounters) -> PortCounters {
        self.zip(before, u64::saturating_sub)
    }

    fn zip(&self, other: &PortCounters, join: impl Fn(u64, u64) -> u64) -> PortCounters {
        PortCounters {
            received: join(self.received, other.received),
            dropped: join(self.dropped, other.dropped),
            to_parent: join(self.to_parent, other.to_parent),
            turned: join(self.turned, other.turned),
            to_replier: join(self.to_replier, other.to_replier),
            dmcasts: join(self.dmcasts, other.dmcasts),
            requests_sent: join(self.requests_sent, other.requests_sent),
            dmcasts_sent: join(self.dmcasts_sent, other.dmcasts_sent),
            too_long: join(self.too_long, other.too_long),
        }
    }
}
