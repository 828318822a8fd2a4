use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// A version of IP as a type parameter: [`Ipv4Addr`] or [`Ipv6Addr`], and no other type.
///
/// What exists once for each version in the kernel (raw packets, options in headers, multicast routes) takes it, as the
/// protocol crates do; what the kernel treats alike (group data, membership) takes [`SocketAddr`] and [`IpAddr`].
/// See `docs/decisions/0031-ipv6-endpoints.md`.
pub trait Family:
    sealed::Kernel + Copy + Ord + Hash + Debug + Display + Into<IpAddr> + Send + Sync + 'static
{
    /// An address with a port.
    type Socket: Endpoint<Address = Self>;

    /// No address: any source, or the kernel's choice.
    const UNSPECIFIED: Self;

    /// Whether it is a multicast group.
    fn is_group(self) -> bool;

    /// Reads an address from as many bytes as it has.
    fn from_octets(octets: &[u8]) -> Option<Self>;
}

/// An address with a port, of one version of IP: [`SocketAddrV4`] or [`SocketAddrV6`].
pub trait Endpoint: Copy + Debug + PartialEq + Into<SocketAddr> + 'static {
    /// The address without the port.
    type Address: Family<Socket = Self>;

    /// Creates one; `interface`, by index, is the zone of a link-local IPv6 address.
    fn with_port(address: Self::Address, port: u16, interface: u32) -> Self;

    /// The address without the port.
    fn address(self) -> Self::Address;

    /// The port.
    fn port(self) -> u16;

    /// The address of this version in `address`; `None` when that is of the other version.
    fn of(address: SocketAddr) -> Option<Self>;
}

impl Family for Ipv4Addr {
    type Socket = SocketAddrV4;

    const UNSPECIFIED: Self = Self::UNSPECIFIED;

    fn is_group(self) -> bool {
        self.is_multicast()
    }

    fn from_octets(octets: &[u8]) -> Option<Self> {
        <[u8; 4]>::try_from(octets).ok().map(Into::into)
    }
}

impl Family for Ipv6Addr {
    type Socket = SocketAddrV6;

    const UNSPECIFIED: Self = Self::UNSPECIFIED;

    fn is_group(self) -> bool {
        self.is_multicast()
    }

    fn from_octets(octets: &[u8]) -> Option<Self> {
        <[u8; 16]>::try_from(octets).ok().map(Into::into)
    }
}

impl Endpoint for SocketAddrV4 {
    type Address = Ipv4Addr;

    fn with_port(address: Ipv4Addr, port: u16, _interface: u32) -> Self {
        Self::new(address, port)
    }

    fn address(self) -> Ipv4Addr {
        *self.ip()
    }

    fn port(self) -> u16 {
        SocketAddrV4::port(&self)
    }

    fn of(address: SocketAddr) -> Option<Self> {
        match address {
            SocketAddr::V4(address) => Some(address),
            SocketAddr::V6(_) => None,
        }
    }
}

impl Endpoint for SocketAddrV6 {
    type Address = Ipv6Addr;

    fn with_port(address: Ipv6Addr, port: u16, interface: u32) -> Self {
        let scope = if needs_zone(address) { interface } else { 0 };
        Self::new(address, port, 0, scope)
    }

    fn address(self) -> Ipv6Addr {
        *self.ip()
    }

    fn port(self) -> u16 {
        SocketAddrV6::port(&self)
    }

    fn of(address: SocketAddr) -> Option<Self> {
        match address {
            SocketAddr::V6(address) => Some(address),
            SocketAddr::V4(_) => None,
        }
    }
}

/// Whether an address means something on one interface only: unicast of link-local scope, and groups of interface-local
/// and link-local scope (RFC 4291 §2.5.6 and §2.7).
pub(crate) fn needs_zone(address: Ipv6Addr) -> bool {
    let first = address.segments()[0];
    first & 0xffc0 == 0xfe80 || (first & 0xff00 == 0xff00 && matches!(first & 0xf, 1 | 2))
}

pub(crate) mod sealed {
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::ops::Range;

    const IPV6_HDRINCL: libc::c_int = 36;

    /// What the kernel calls things in each version of IP.
    pub trait Kernel: Sized + crate::udp::Carrier + crate::mroute::Structures {
        /// Address family of sockets.
        const FAMILY: libc::c_int;
        /// Level of socket options and of ancillary data.
        const LEVEL: libc::c_int;
        /// Its packets on a link.
        const ETHERTYPE: u16;
        /// Settings of a raw socket that sends whole packets.
        const RAW_OPTIONS: [(libc::c_int, libc::c_int); 3];
        /// Where the destination stands in a packet.
        const DESTINATION: Range<usize>;
    }

    impl Kernel for Ipv4Addr {
        const FAMILY: libc::c_int = libc::AF_INET;
        const LEVEL: libc::c_int = libc::IPPROTO_IP;
        const ETHERTYPE: u16 = libc::ETH_P_IP as u16;
        const RAW_OPTIONS: [(libc::c_int, libc::c_int); 3] = [
            (libc::IP_HDRINCL, 1),
            (libc::IP_PKTINFO, 1),
            (libc::IP_MULTICAST_LOOP, 0),
        ];
        const DESTINATION: Range<usize> = 16..20;
    }

    impl Kernel for Ipv6Addr {
        const FAMILY: libc::c_int = libc::AF_INET6;
        const LEVEL: libc::c_int = libc::IPPROTO_IPV6;
        const ETHERTYPE: u16 = libc::ETH_P_IPV6 as u16;
        const RAW_OPTIONS: [(libc::c_int, libc::c_int); 3] = [
            (IPV6_HDRINCL, 1),
            (libc::IPV6_RECVPKTINFO, 1),
            (libc::IPV6_MULTICAST_LOOP, 0),
        ];
        const DESTINATION: Range<usize> = 24..40;
    }
}
