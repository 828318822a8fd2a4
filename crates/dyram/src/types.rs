//! Types that all modules of the crate use.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// The name of a session: its source and its group (DyRAM §3.2), of one address family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionKey {
    /// Address of the source.
    pub source: IpAddr,
    /// Multicast address of the group. It names the session even where no packet is sent to it.
    pub group: IpAddr,
}

impl SessionKey {
    /// Returns the name of this source and group. `None` if their address families differ, or one is an IPv4-mapped
    /// IPv6 address.
    #[must_use]
    pub const fn new(source: IpAddr, group: IpAddr) -> Option<Self> {
        match (source, group) {
            (IpAddr::V4(_), IpAddr::V4(_)) => Some(SessionKey { source, group }),
            (IpAddr::V6(from), IpAddr::V6(to))
                if from.to_ipv4_mapped().is_none() && to.to_ipv4_mapped().is_none() =>
            {
                Some(SessionKey { source, group })
            }
            _ => None,
        }
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {})", self.source, self.group)
    }
}

/// A session's name as tables store it: the halves of the source, then of the group, IPv4 as IPv4-mapped IPv6.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawKey(pub(crate) [u64; 4]);

impl RawKey {
    /// Compares word by word, because a key just read from a packet is in registers.
    #[inline]
    pub(crate) fn is(&self, other: &RawKey) -> bool {
        let ([a, b, c, d], [e, f, g, h]) = (self.0, other.0);
        (a ^ e) | (b ^ f) | (c ^ g) | (d ^ h) == 0
    }
}

impl From<SessionKey> for RawKey {
    fn from(key: SessionKey) -> Self {
        let [source, group] = [key.source, key.group].map(|ip| match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
            IpAddr::V6(ip) => ip.to_bits(),
        });
        RawKey([
            (source >> 64) as u64,
            source as u64,
            (group >> 64) as u64,
            group as u64,
        ])
    }
}

impl From<RawKey> for SessionKey {
    fn from(key: RawKey) -> Self {
        let ip = |high: u64, low: u64| {
            Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)).to_canonical()
        };
        let [a, b, c, d] = key.0;
        SessionKey {
            source: ip(a, b),
            group: ip(c, d),
        }
    }
}

/// A relay's identifier, unique in its tree like a router identifier of OSPF; by convention one of its IPv4 addresses.
/// 0 stands for no relay.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct RelayId(pub u32);

impl fmt::Display for RelayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&core::net::Ipv4Addr::from_bits(self.0), f)
    }
}

/// What the driver knows of a packet that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Meta {
    /// Source address and port of the datagram.
    pub source: SocketAddr,
    /// Whether it was sent to the group's address rather than to this host's.
    pub group: bool,
}

impl Meta {
    /// Returns the metadata of a datagram sent to this host's address.
    #[must_use]
    pub const fn unicast(source: SocketAddr) -> Self {
        Meta {
            source,
            group: false,
        }
    }
}

/// A packet to send: the first `len` bytes of the caller's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Transmit {
    /// Address and port of the datagram.
    pub destination: SocketAddr,
    /// Length of the packet in bytes.
    pub len: usize,
}

/// Prefix of IPv4-mapped IPv6 addresses (RFC 4291 §2.5.5.2).
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// A socket address in 18 bytes, IPv4 as IPv4-mapped IPv6. Tables store these.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Addr {
    ip: [u8; 16],
    port: u16,
}

impl From<SocketAddr> for Addr {
    #[inline]
    fn from(address: SocketAddr) -> Self {
        let ip = match address {
            SocketAddr::V4(v4) => {
                let mut ip = [0; 16];
                ip[..12].copy_from_slice(&MAPPED);
                ip[12..].copy_from_slice(&v4.ip().octets());
                ip
            }
            SocketAddr::V6(v6) => v6.ip().octets(),
        };
        Addr {
            ip,
            port: address.port(),
        }
    }
}

impl From<Addr> for SocketAddr {
    #[inline]
    fn from(addr: Addr) -> Self {
        match addr.ip.split_last_chunk() {
            Some((prefix, v4)) if *prefix == MAPPED => {
                SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::from(*v4), addr.port))
            }
            _ => SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(addr.ip), addr.port, 0, 0)),
        }
    }
}

impl Addr {
    /// Compares word by word, because a key just read from a packet is in registers.
    #[inline]
    pub(crate) fn is(&self, other: &Addr) -> bool {
        let words = |addr: &Addr| {
            let ip = u128::from_ne_bytes(addr.ip);
            (ip as u64, (ip >> 64) as u64)
        };
        let ((a, b), (c, d)) = (words(self), words(other));
        (a ^ c) | (b ^ d) | u64::from(self.port ^ other.port) == 0
    }

    /// Returns the address that [`Addr::bytes`] encoded.
    pub(crate) fn from_bytes(bytes: [u8; 18]) -> Addr {
        let [ip @ .., high, low] = bytes;
        Addr {
            ip,
            port: u16::from_be_bytes([high, low]),
        }
    }

    /// Whether the IP addresses are equal.
    pub(crate) fn same_host(&self, other: &Addr) -> bool {
        self.ip == other.ip
    }

    /// Returns the encoding that tokens cover and STALLED carries.
    pub(crate) fn bytes(&self) -> [u8; 18] {
        let mut bytes = [0; 18];
        bytes[..16].copy_from_slice(&self.ip);
        bytes[16..].copy_from_slice(&self.port.to_be_bytes());
        bytes
    }
}
