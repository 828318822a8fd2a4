//! Interfaces, addresses, and what a driver says about a packet.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

use proto_core::hash::HashKey;
use proto_core::slab::TableKey;

use crate::Address;

/// A router-local interface number. The driver chooses the numbers; small and dense ones keep
/// the tables small, since a set of interfaces is a bitmap up to the largest number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Iface(pub u16);

impl Iface {
    /// No interface: 0xffff, as on the wire.
    pub const UNSET: Iface = Iface(0xffff);

    /// Whether this is a real interface.
    pub const fn is_set(self) -> bool {
        self.0 != Self::UNSET.0
    }
}

impl fmt::Display for Iface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_set() {
            write!(f, "{}", self.0)
        } else {
            f.write_str("unset")
        }
    }
}

/// The link-layer (Ethernet) address of a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkAddr(pub [u8; 6]);

impl fmt::Display for LinkAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// What names a multicast forwarding entry: `(S, G)`, or `(*, G)` with the unspecified address as source.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key<A = Ipv4Addr> {
    /// The original source, [`Key::ANY_SOURCE`] for a shared tree.
    pub source: A,
    /// The multicast group.
    pub group: A,
}

impl<A: Address> Key<A> {
    /// The source of a shared tree, `(*, G)`.
    pub const ANY_SOURCE: A = A::UNSPECIFIED;

    /// The key of a source tree.
    pub const fn new(source: A, group: A) -> Self {
        Key { source, group }
    }

    /// The key of a shared tree.
    pub const fn any_source(group: A) -> Self {
        Key {
            source: Self::ANY_SOURCE,
            group,
        }
    }

    /// Whether this names a shared tree.
    pub fn is_any_source(&self) -> bool {
        self.source == Self::ANY_SOURCE
    }
}

impl<A: Address> TableKey for Key<A> {
    #[inline]
    fn hash(&self, key: &HashKey) -> u64 {
        self.source.hash_pair(self.group, key).hash()
    }
}

impl<A: Address> fmt::Display for Key<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_any_source() {
            write!(f, "(*, {})", self.group)
        } else {
            write!(f, "({}, {})", self.source, self.group)
        }
    }
}

/// What a machine must know of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct InterfaceConfig<A = Ipv4Addr> {
    /// This node's own address: of a router, the turning-point address that it writes, to which hosts anywhere in
    /// the tree send. With IPv6 it may be that of another interface.
    pub address: A,
    /// Length of the prefix of the link's subnet: the first bits of `address`, 0 to all.
    pub prefix_len: u8,
    /// The source of what it sends to the link: for IPv4 `address` again, for IPv6 the interface's link-local address.
    pub link_local: A,
}

impl InterfaceConfig<Ipv4Addr> {
    /// An interface with this address, on the subnet of its first `prefix_len` bits.
    pub const fn ipv4(address: Ipv4Addr, prefix_len: u8) -> Self {
        InterfaceConfig {
            address,
            prefix_len,
            link_local: address,
        }
    }
}

impl InterfaceConfig<Ipv6Addr> {
    /// An interface with these addresses, on the subnet of the first `prefix_len` bits of the first of them.
    pub const fn ipv6(address: Ipv6Addr, prefix_len: u8, link_local: Ipv6Addr) -> Self {
        InterfaceConfig {
            address,
            prefix_len,
            link_local,
        }
    }
}

impl<A: Address> InterfaceConfig<A> {
    /// Whether `address` lies on this interface's subnet. A link-local address lies on every link; for IPv4 it must be
    /// of the subnet too.
    pub fn on_link(&self, address: A) -> bool {
        self.address.shares_prefix(address, self.prefix_len)
            || (A::HAS_LINK_LOCAL && address.is_link_local())
    }

    /// Whether `address` is one of this node's own two.
    pub fn is_own(&self, address: A) -> bool {
        address == self.address || address == self.link_local
    }

    /// Whether `address` is reserved on this subnet, and so no host's ([`Address::is_reserved`]).
    pub fn is_reserved(&self, address: A) -> bool {
        self.address.shares_prefix(address, self.prefix_len) && address.is_reserved(self.prefix_len)
    }
}

/// Where on its link a packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NextHop<A = Ipv4Addr> {
    /// A multicast frame to the address of the packet's own group.
    Group,
    /// A unicast frame to one neighbour; `link` is `None` while its link address is unknown,
    /// then the driver resolves it.
    Neighbour {
        /// The neighbour's address on that link.
        addr: A,
        /// Its link address, as learnt from the last packet it sent.
        link: Option<LinkAddr>,
    },
    /// Wherever this node's own unicast routing sends it, by the packet's destination.
    Routed,
}

/// A packet to send, a whole IP packet of `len` bytes in the caller's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Transmit<A = Ipv4Addr> {
    /// The interface to send it on.
    pub iface: Iface,
    /// Where on that link.
    pub next_hop: NextHop<A>,
    /// Length of the packet in bytes.
    pub len: usize,
}

/// What the driver knows of a packet that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Meta {
    /// The interface the packet arrived on.
    pub iface: Iface,
    /// The sender of the frame, where the link has addresses. On the link of an LMS replier it identifies the replier's
    /// requests from those of its neighbours.
    pub link_source: Option<LinkAddr>,
}
