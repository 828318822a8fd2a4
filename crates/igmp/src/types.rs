//! Interfaces, addresses, and what a driver says about a packet.

use core::fmt;
use core::net::Ipv4Addr;

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

/// What names a multicast forwarding entry: `(S, G)`, or `(*, G)` with source `0.0.0.0`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// The original source, [`Key::ANY_SOURCE`] for a shared tree.
    pub source: Ipv4Addr,
    /// The multicast group.
    pub group: Ipv4Addr,
}

impl Key {
    /// The source of a shared tree, `(*, G)`.
    pub const ANY_SOURCE: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

    /// The key of a source tree.
    pub const fn new(source: Ipv4Addr, group: Ipv4Addr) -> Self {
        Key { source, group }
    }

    /// The key of a shared tree.
    pub const fn any_source(group: Ipv4Addr) -> Self {
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

impl fmt::Display for Key {
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
pub struct InterfaceConfig {
    /// The router's own address on it: the turning-point address it writes, and the source of
    /// what it sends.
    pub address: Ipv4Addr,
    /// Length of the subnet's prefix, 0 to 32 bits. Packets of neighbours outside it are refused.
    pub prefix_len: u8,
}

impl InterfaceConfig {
    /// Whether `address` lies on this interface's subnet.
    pub fn on_link(&self, address: Ipv4Addr) -> bool {
        (self.address.to_bits() ^ address.to_bits()) & self.mask() == 0
    }

    /// Whether `address` is the subnet's own (all bits of the host part 0) or its broadcast address
    /// (all 1), and so no host's. Prefixes of 31 and 32 bits have neither (RFC 3021).
    pub fn is_reserved(&self, address: Ipv4Addr) -> bool {
        let host = address.to_bits() & !self.mask();
        self.prefix_len < 31 && self.on_link(address) && (host == 0 || host == !self.mask())
    }

    fn mask(&self) -> u32 {
        let shift = 32 - u32::from(self.prefix_len.min(32));
        u32::MAX.checked_shl(shift).unwrap_or(0)
    }
}

/// Where on its link a packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NextHop {
    /// A multicast frame to the address of the packet's own group.
    Group,
    /// A unicast frame to one neighbour; `link` is `None` while its link address is unknown,
    /// then the driver resolves it.
    Neighbour {
        /// The neighbour's address on that link.
        addr: Ipv4Addr,
        /// Its link address, as learnt from the last packet it sent.
        link: Option<LinkAddr>,
    },
}

/// A packet to send, a whole IPv4 packet of `len` bytes in the caller's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Transmit {
    /// The interface to send it on.
    pub iface: Iface,
    /// Where on that link.
    pub next_hop: NextHop,
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
