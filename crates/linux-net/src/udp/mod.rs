//! UDP to and from groups: data on a [`GroupSocket`], datagrams with IP options (LMS requests)
//! on an [`OptionSocket`].
//!
//! Two sockets on one port share the work: the data socket refuses datagrams with IP options in
//! the kernel ([`Options::Refuse`]) and takes the rest in large batches; the option socket takes
//! only those, one at a time, each with its options.

mod group;
mod option;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};

use crate::error::{Capability, JoinError, OpenError};
use crate::{filter, sys};

pub use group::{Batch, Datagram, GroupSocket, Piece, Transmit};
pub use option::{OptionBuffer, OptionDatagram, OptionSocket};

/// What a UDP socket does with datagrams whose IP header carries options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Options {
    /// Receives them like any other.
    #[default]
    Accept,
    /// The kernel drops them before they reach this socket: another one takes them.
    Refuse,
}

/// How to open a UDP socket.
#[derive(Clone, Debug)]
pub struct Config {
    /// Local address. A receiver of one group binds to group and port, so that nothing else
    /// reaches it; to receive unicast too, bind to `0.0.0.0` and the port: memberships of other
    /// programs do not reach it either. Port 0: the kernel's choice.
    pub bind: SocketAddrV4,
    /// Interface of outgoing multicast, by index; 0 lets the routes decide.
    pub interface: u32,
    /// Time to live of outgoing multicast: 1 stays on the link.
    pub ttl: u8,
    /// Whether other sockets of this host receive the multicast packets of this one.
    pub loopback: bool,
    /// Room for what arrives and was not read yet, in bytes; the kernel grants up to
    /// `net.core.rmem_max`, and all of it to a process with CAP_NET_ADMIN.
    pub receive_buffer_bytes: usize,
    /// Send buffer, in bytes, likewise.
    pub send_buffer_bytes: usize,
    /// Datagrams with IP options.
    pub options: Options,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            bind: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
            interface: 0,
            ttl: 1,
            loopback: false,
            receive_buffer_bytes: 8 << 20,
            send_buffer_bytes: 4 << 20,
            options: Options::Accept,
        }
    }
}

/// A group to join: any source, or one (RFC 4607).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Membership {
    /// The group.
    pub group: Ipv4Addr,
    /// Only this source's packets (source-specific multicast).
    pub source: Option<Ipv4Addr>,
    /// On this interface, by index; 0 lets the routes decide.
    pub interface: u32,
}

/// `struct group_source_req` for IPv4: an interface and two socket addresses in 128 bytes each.
#[derive(Clone, Copy)]
#[repr(C)]
struct GroupSourceRequest {
    interface: u32,
    #[cfg(target_pointer_width = "64")]
    pad: u32,
    group: libc::sockaddr_in,
    group_rest: [u8; 112],
    source: libc::sockaddr_in,
    source_rest: [u8; 112],
}

// SAFETY: `repr(C)`, integers only; the padding is spelled out.
unsafe impl sys::Plain for GroupSourceRequest {}

impl Membership {
    /// Joins (`true`) or leaves.
    pub(crate) fn apply(&self, fd: &impl AsFd, join: bool) -> Result<(), JoinError> {
        if !self.group.is_multicast() || self.source.is_some_and(|s| s.is_multicast()) {
            return Err(JoinError::NotAGroup);
        }
        let done = match self.source {
            None => {
                let request = libc::ip_mreqn {
                    imr_multiaddr: sys::in_addr(self.group),
                    imr_address: sys::in_addr(Ipv4Addr::UNSPECIFIED),
                    imr_ifindex: self.interface.cast_signed(),
                };
                let name = if join {
                    libc::IP_ADD_MEMBERSHIP
                } else {
                    libc::IP_DROP_MEMBERSHIP
                };
                sys::set_option(fd, libc::IPPROTO_IP, name, &request)
            }
            Some(source) => {
                let request = GroupSourceRequest {
                    interface: self.interface,
                    #[cfg(target_pointer_width = "64")]
                    pad: 0,
                    group: sys::message::sockaddr(SocketAddrV4::new(self.group, 0)),
                    group_rest: [0; 112],
                    source: sys::message::sockaddr(SocketAddrV4::new(source, 0)),
                    source_rest: [0; 112],
                };
                const MCAST_JOIN_SOURCE_GROUP: libc::c_int = 46;
                const MCAST_LEAVE_SOURCE_GROUP: libc::c_int = 47;
                let name = if join {
                    MCAST_JOIN_SOURCE_GROUP
                } else {
                    MCAST_LEAVE_SOURCE_GROUP
                };
                sys::set_option(fd, libc::IPPROTO_IP, name, &request)
            }
        };
        done.map_err(|e| JoinError::classify(join, e))
    }
}

/// A bound UDP socket with everything in [`Config`] applied.
fn open(config: &Config, what: &'static str) -> Result<socket2::Socket, OpenError> {
    let error = OpenError::from(what, Capability::NetBindService);
    let fd: OwnedFd = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0).map_err(error)?;
    let socket = socket2::Socket::from(fd);
    // Programs share a group's address, and each receives all packets. Of a host's own address and port the
    // kernel would give all packets to the one that came last.
    let shared = config.bind.ip().is_multicast() || config.bind.ip().is_unspecified();
    socket.set_reuse_address(shared).map_err(error)?;
    // Without this a socket receives every group that any program of this host joined.
    sys::set_int(&socket, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0).map_err(error)?;
    let interface = libc::ip_mreqn {
        imr_multiaddr: sys::in_addr(Ipv4Addr::UNSPECIFIED),
        imr_address: sys::in_addr(Ipv4Addr::UNSPECIFIED),
        imr_ifindex: config.interface.cast_signed(),
    };
    sys::set_option(&socket, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &interface).map_err(|e| {
        match e.raw_os_error() {
            Some(libc::EADDRNOTAVAIL) => OpenError::NoInterface { what },
            _ => error(e),
        }
    })?;
    socket
        .set_multicast_ttl_v4(u32::from(config.ttl))
        .map_err(error)?;
    socket
        .set_multicast_loop_v4(config.loopback)
        .map_err(error)?;
    sys::buffer_size(
        &socket,
        libc::SO_RCVBUFFORCE,
        libc::SO_RCVBUF,
        config.receive_buffer_bytes,
    );
    sys::buffer_size(
        &socket,
        libc::SO_SNDBUFFORCE,
        libc::SO_SNDBUF,
        config.send_buffer_bytes,
    );
    if config.options == Options::Refuse {
        sys::attach_filter(&socket, &filter::udp_options(false)).map_err(error)?;
    }
    socket
        .bind(&socket2::SockAddr::from(config.bind))
        .map_err(error)?;
    Ok(socket)
}
