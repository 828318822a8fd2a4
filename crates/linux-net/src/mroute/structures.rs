//! What the kernel's interface of multicast routing looks like in each version of IP (`linux/mroute.h` and
//! `linux/mroute6.h`): the same requests by the same numbers, with structures of their own.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::sys::{self, Plain, in_addr, in6_addr};

/// The kernel's bound on interfaces that take part in multicast routing, in each version of IP.
pub(crate) const MAXVIFS: usize = 32;

const VIFF_USE_IFINDEX: u8 = 0x8;

/// An interface of a route for each of the kernel's virtual interfaces.
pub(crate) type Outputs = [bool; MAXVIFS];

/// The structures of one version of IP.
pub trait Structures: Copy {
    /// Protocol of the socket that owns the routes.
    const PROTOCOL: libc::c_int;
    /// Their family in netlink, and the group of their notifications.
    const NETLINK: (u8, u32);
    /// The routing table of programs that choose none.
    const TABLE: u32;
    /// `struct vifctl`, `struct mif6ctl`.
    type Interface: Plain;
    /// `struct mfcctl`, `struct mf6cctl`.
    type Entry: Plain;
    /// `struct sioc_sg_req`, `struct sioc_sg_req6`.
    type Request: Copy;

    /// Keeps packets of the network out of a new socket that will own the routes, where one could be taken for an upcall.
    fn refuse_packets(fd: &std::os::fd::OwnedFd) -> std::io::Result<()>;

    /// Describes an interface to add; `None` when the kernel has no room for its index.
    fn interface(vif: u16, index: u32) -> Option<Self::Interface>;

    /// Removes an interface.
    fn remove_interface(fd: &std::os::fd::OwnedFd, vif: u16) -> std::io::Result<()>;

    /// Describes a route.
    fn entry(source: Self, group: Self, parent: u16, outputs: &Outputs) -> Self::Entry;

    /// Asks what a route has carried.
    fn request(source: Self, group: Self) -> Self::Request;

    /// The answer: packets, bytes, packets from a wrong interface.
    fn counters(request: &Self::Request) -> [libc::c_ulong; 3];

    /// Reads an upcall: its kind, virtual interface, source and group. `None` for another packet.
    fn upcall(message: &[u8]) -> Option<(u8, u16, Self, Self)>;
}

pub(super) const DEL_VIF: libc::c_int = 203;

/// `struct vifctl` with an interface index.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Vifctl {
    vif: u16,
    flags: u8,
    threshold: u8,
    rate_limit: u32,
    ifindex: i32,
    remote: u32,
}

/// `struct mfcctl`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Mfcctl {
    origin: libc::in_addr,
    group: libc::in_addr,
    parent: u16,
    ttls: [u8; MAXVIFS],
    pad: u16,
    unused: [u32; 4],
}

/// `struct sioc_sg_req` and, with IPv6 addresses, `struct sioc_sg_req6`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SgRequest<A> {
    source: A,
    group: A,
    packets: libc::c_ulong,
    bytes: libc::c_ulong,
    wrong_interface: libc::c_ulong,
}

/// `struct mif6ctl`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Mif6ctl {
    mif: u16,
    flags: u8,
    threshold: u8,
    index: u16,
    pad: u16,
    rate_limit: u32,
}

/// `struct mf6cctl`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Mf6cctl {
    origin: libc::sockaddr_in6,
    group: libc::sockaddr_in6,
    parent: u16,
    pad: u16,
    outputs: [u32; 8],
}

// SAFETY: `repr(C)`, integers only, padding spelled out.
unsafe impl Plain for Vifctl {}
// SAFETY: as above.
unsafe impl Plain for Mfcctl {}
// SAFETY: as above.
unsafe impl Plain for Mif6ctl {}
// SAFETY: as above.
unsafe impl Plain for Mf6cctl {}

impl Structures for Ipv4Addr {
    const PROTOCOL: libc::c_int = libc::IPPROTO_IGMP;
    /// `RTNL_FAMILY_IPMR`, `RTNLGRP_IPV4_MROUTE`.
    const NETLINK: (u8, u32) = (128, 6);
    /// `RT_TABLE_DEFAULT`.
    const TABLE: u32 = 253;
    type Interface = Vifctl;
    type Entry = Mfcctl;
    type Request = SgRequest<libc::in_addr>;

    fn refuse_packets(_fd: &std::os::fd::OwnedFd) -> std::io::Result<()> {
        // They have IGMP's protocol number where an upcall has 0.
        Ok(())
    }

    fn interface(vif: u16, index: u32) -> Option<Vifctl> {
        Some(Vifctl {
            vif,
            flags: VIFF_USE_IFINDEX,
            threshold: 1,
            ifindex: index.cast_signed(),
            ..Vifctl::default()
        })
    }

    fn remove_interface(fd: &std::os::fd::OwnedFd, vif: u16) -> std::io::Result<()> {
        let request = Vifctl {
            vif,
            ..Vifctl::default()
        };
        sys::set_option(fd, libc::IPPROTO_IP, DEL_VIF, &request)
    }

    fn entry(source: Self, group: Self, parent: u16, outputs: &Outputs) -> Mfcctl {
        Mfcctl {
            origin: in_addr(source),
            group: in_addr(group),
            parent,
            // Each output with the least TTL that passes.
            ttls: outputs.map(u8::from),
            pad: 0,
            unused: [0; 4],
        }
    }

    fn request(source: Self, group: Self) -> Self::Request {
        SgRequest::new(in_addr(source), in_addr(group))
    }

    fn counters(request: &Self::Request) -> [libc::c_ulong; 3] {
        request.counters()
    }

    fn upcall(message: &[u8]) -> Option<(u8, u16, Self, Self)> {
        // `struct igmpmsg` overlays the IPv4 header: a protocol of 0 marks it.
        let message: &[u8; 20] = message.first_chunk().filter(|m: &&[u8; 20]| m[9] == 0)?;
        let vif = u16::from_le_bytes([message[10], message[11]]);
        let address =
            |at: usize| Ipv4Addr::from([0, 1, 2, 3].map(|offset: usize| message[at + offset]));
        Some((message[8], vif, address(12), address(16)))
    }
}

impl Structures for Ipv6Addr {
    const PROTOCOL: libc::c_int = libc::IPPROTO_ICMPV6;
    /// `RTNL_FAMILY_IP6MR`, `RTNLGRP_IPV6_MROUTE`.
    const NETLINK: (u8, u32) = (129, 10);
    /// `RT6_TABLE_DFLT`, which is `RT_TABLE_MAIN`.
    const TABLE: u32 = 254;
    type Interface = Mif6ctl;
    type Entry = Mf6cctl;
    type Request = SgRequest<libc::sockaddr_in6>;

    fn refuse_packets(fd: &std::os::fd::OwnedFd) -> std::io::Result<()> {
        // An ICMPv6 message of type 0, which is reserved, reads as an upcall. The filter refuses messages of all types
        // (RFC 3542, section 3.2); the kernel's upcalls do not pass it.
        const ICMPV6_FILTER: libc::c_int = 1;
        sys::set_option(fd, libc::IPPROTO_ICMPV6, ICMPV6_FILTER, &[u32::MAX; 8])?;
        // What came before the filter.
        while sys::message::receive::<0>(fd, &mut [0; 1]).is_ok() {}
        Ok(())
    }

    fn interface(vif: u16, index: u32) -> Option<Mif6ctl> {
        Some(Mif6ctl {
            mif: vif,
            flags: 0,
            threshold: 1,
            index: index.try_into().ok()?,
            pad: 0,
            rate_limit: 0,
        })
    }

    fn remove_interface(fd: &std::os::fd::OwnedFd, vif: u16) -> std::io::Result<()> {
        // `mifi_t`, an unsigned short.
        sys::set_option(fd, libc::IPPROTO_IPV6, DEL_VIF, &vif)
    }

    fn entry(source: Self, group: Self, parent: u16, outputs: &Outputs) -> Mf6cctl {
        let mut set = [0; 8];
        for (vif, _) in outputs
            .iter()
            .enumerate()
            .filter(|(_, is_output)| **is_output)
        {
            set[vif / 32] |= 1 << (vif % 32);
        }
        Mf6cctl {
            origin: sockaddr_in6(source),
            group: sockaddr_in6(group),
            parent,
            pad: 0,
            outputs: set,
        }
    }

    fn request(source: Self, group: Self) -> Self::Request {
        SgRequest::new(sockaddr_in6(source), sockaddr_in6(group))
    }

    fn counters(request: &Self::Request) -> [libc::c_ulong; 3] {
        request.counters()
    }

    fn upcall(message: &[u8]) -> Option<(u8, u16, Self, Self)> {
        // `struct mrt6msg`: its first byte is 0.
        let message: &[u8; 40] = message.first_chunk().filter(|m: &&[u8; 40]| m[0] == 0)?;
        let mif = u16::from_ne_bytes([message[2], message[3]]);
        let address = |at: usize| {
            let octets: [u8; 16] = message[at..at + 16].try_into().ok()?;
            Some(Ipv6Addr::from(octets))
        };
        Some((message[1], mif, address(8)?, address(24)?))
    }
}

fn sockaddr_in6(address: Ipv6Addr) -> libc::sockaddr_in6 {
    libc::sockaddr_in6 {
        sin6_family: libc::AF_INET6 as libc::sa_family_t,
        sin6_port: 0,
        sin6_flowinfo: 0,
        sin6_addr: in6_addr(address),
        sin6_scope_id: 0,
    }
}

impl<A: Copy> SgRequest<A> {
    fn new(source: A, group: A) -> Self {
        Self {
            source,
            group,
            packets: 0,
            bytes: 0,
            wrong_interface: 0,
        }
    }

    fn counters(&self) -> [libc::c_ulong; 3] {
        [self.packets, self.bytes, self.wrong_interface]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upcalls_are_read_and_other_packets_are_not() {
        let mut message = vec![0, 1, 3, 0, 0, 0, 0, 0];
        let (source, group): (Ipv6Addr, Ipv6Addr) =
            ("fd00::1".parse().unwrap(), "ff3e::1".parse().unwrap());
        message.extend(source.octets());
        message.extend(group.octets());
        #[cfg(target_endian = "little")]
        assert_eq!(Ipv6Addr::upcall(&message), Some((1, 3, source, group)));
        for len in 0..message.len() {
            assert_eq!(Ipv6Addr::upcall(&message[..len]), None, "{len}");
        }
        message[0] = 143;
        assert_eq!(Ipv6Addr::upcall(&message), None);
        let mut message = vec![0; 20];
        (message[8], message[10]) = (2, 4);
        message[12..].copy_from_slice(&[10, 0, 0, 1, 239, 1, 2, 3]);
        let (source, group) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(239, 1, 2, 3));
        assert_eq!(Ipv4Addr::upcall(&message), Some((2, 4, source, group)));
        message[9] = 2;
        assert_eq!(Ipv4Addr::upcall(&message), None);
    }

    #[test]
    fn structures_are_as_long_as_the_kernels() {
        assert_eq!(size_of::<Vifctl>(), 16);
        assert_eq!(size_of::<Mfcctl>(), 60);
        assert_eq!(size_of::<Mif6ctl>(), 12);
        assert_eq!(size_of::<Mf6cctl>(), 92);
        assert_eq!(
            size_of::<SgRequest<libc::sockaddr_in6>>() % size_of::<libc::c_ulong>(),
            0
        );
    }
}
