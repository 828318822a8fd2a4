//! Membership in groups, and how multicast leaves, for both versions of IP.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use super::message::SocketAddress;
use super::{Plain, set_int, set_option};

/// `struct group_req`: an interface and a socket address in 128 bytes.
#[derive(Clone, Copy)]
#[repr(C)]
struct GroupRequest {
    interface: u32,
    #[cfg(target_pointer_width = "64")]
    pad: u32,
    group: SocketAddress,
    group_rest: [u8; REST],
}

/// `struct group_source_req`: an interface and two socket addresses in 128 bytes each.
#[derive(Clone, Copy)]
#[repr(C)]
struct GroupSourceRequest {
    of: GroupRequest,
    source: SocketAddress,
    source_rest: [u8; REST],
}

/// What `struct sockaddr_storage` has more.
const REST: usize = 128 - size_of::<SocketAddress>();

// SAFETY: `repr(C)`, integers only; the padding is spelled out.
unsafe impl Plain for GroupRequest {}
// SAFETY: as above.
unsafe impl Plain for GroupSourceRequest {}

const JOIN: libc::c_int = 42;
const LEAVE: libc::c_int = 45;
const JOIN_SOURCE: libc::c_int = 46;
const LEAVE_SOURCE: libc::c_int = 47;

fn level(version: IpAddr) -> libc::c_int {
    match version {
        IpAddr::V4(_) => libc::IPPROTO_IP,
        IpAddr::V6(_) => libc::IPPROTO_IPV6,
    }
}

/// Joins (`true`) or leaves (RFC 3678 §5.1).
pub(crate) fn change(
    fd: &impl AsFd,
    group: IpAddr,
    source: Option<IpAddr>,
    interface: u32,
    join: bool,
) -> io::Result<()> {
    let of = GroupRequest {
        interface,
        #[cfg(target_pointer_width = "64")]
        pad: 0,
        group: SocketAddr::new(group, 0).into(),
        group_rest: [0; REST],
    };
    match source {
        None => {
            let name = if join { JOIN } else { LEAVE };
            set_option(fd, level(group), name, &of)
        }
        Some(source) => {
            let request = GroupSourceRequest {
                of,
                source: SocketAddr::new(source, 0).into(),
                source_rest: [0; REST],
            };
            let name = if join { JOIN_SOURCE } else { LEAVE_SOURCE };
            set_option(fd, level(group), name, &request)
        }
    }
}

/// Multicast leaves by this interface; 0: the routes decide.
pub(crate) fn interface(fd: &impl AsFd, version: IpAddr, interface: u32) -> io::Result<()> {
    let interface = interface.cast_signed();
    match version {
        IpAddr::V4(_) => {
            let none = super::in_addr(std::net::Ipv4Addr::UNSPECIFIED);
            let request = libc::ip_mreqn {
                imr_multiaddr: none,
                imr_address: none,
                imr_ifindex: interface,
            };
            set_option(fd, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &request)
        }
        IpAddr::V6(_) => set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF, interface),
    }
}

/// Sets the TTL of multicast, whether this host receives it, and that the socket receives no group that
/// others joined.
pub(crate) fn settings(fd: &impl AsFd, version: IpAddr, ttl: u8, loopback: bool) -> io::Result<()> {
    const IPV6_MULTICAST_ALL: libc::c_int = 29;
    let (hops, looped, all) = match version {
        IpAddr::V4(_) => (
            libc::IP_MULTICAST_TTL,
            libc::IP_MULTICAST_LOOP,
            libc::IP_MULTICAST_ALL,
        ),
        IpAddr::V6(_) => (
            libc::IPV6_MULTICAST_HOPS,
            libc::IPV6_MULTICAST_LOOP,
            IPV6_MULTICAST_ALL,
        ),
    };
    set_int(fd, level(version), hops, i32::from(ttl))?;
    set_int(fd, level(version), looped, i32::from(loopback))?;
    set_int(fd, level(version), all, 0)
}
