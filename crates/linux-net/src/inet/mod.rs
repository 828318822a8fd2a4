//! What carries TCP-XM, over IPv4 and IPv6 alike: UDP ([`UdpSocket`]), or IP itself with protocol 6
//! ([`SegmentSocket`]).
//!
//! # Beside the kernel's TCP
//!
//! A raw socket gets a copy of each TCP packet that reaches the host. The kernel's TCP gets the
//! packet too, and answers with a reset what belongs to none of its connections. So a
//! [`SegmentSocket`] holds its port with a listening socket of the kernel's own, whose filter
//! refuses everything: the kernel finds the socket of a segment, the filter drops it, and no one
//! answers. No other program can take the port meanwhile, no packet filter has to be changed, and
//! nothing is left behind, however the process ends.
//!
//! # Path MTU
//!
//! Unicast leaves with the don't-fragment bit, no more than the path is known to take: the kernel checks
//! the ICMP messages that say so, and remembers them by route. [`SendError::TooBig`] means that
//! a packet was longer; [`route`] returns the known MTU.
//!
//! IPv4 multicast leaves without that bit, no longer than the interface takes: no router reports what
//! is too long for a group's path, so the bit would only lose packets that a router could fragment. And
//! the kernel's multicast forwarding (`ip_mr`) compares the length of a whole segmentation batch with
//! the MTU: with the bit set it drops batches that reach it before they are segmented, as they do over
//! virtual links.
//!
//! IPv6 routers fragment nothing: to a group, too, they answer a packet that is too long with a message
//! (RFC 4443 §2.4), and the group sockets of [`udp`](crate::udp) then have this host fragment what follows.
//!
//! [`SendError::TooBig`]: crate::SendError::TooBig

mod queue;
mod segments;
mod udp;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::error::{Capability, OpenError};
use crate::family::needs_zone;
use crate::sys;
use crate::sys::message::SocketAddress;

pub use queue::SendQueue;
pub use segments::{SegmentBatch, SegmentSocket};
pub use udp::UdpSocket;

/// How to open a socket.
#[derive(Clone, Debug)]
pub struct Config {
    /// Local address and port; a receiver of one group binds to the group and its port. Port 0: the
    /// kernel's choice.
    pub bind: SocketAddr,
    /// Interface of outgoing multicast, by index; 0 lets the routes decide.
    pub interface: u32,
    /// Time to live, or hop limit, of outgoing multicast: 1 stays on the link.
    pub ttl: u8,
    /// Whether other sockets of this host receive the multicast packets of this one.
    pub loopback: bool,
    /// No other socket of this host may have the address too; of a group's address several may.
    pub exclusive: bool,
    /// Room for what arrives and was not read yet, in bytes; the kernel grants up to
    /// `net.core.rmem_max`, and all of it to a process with CAP_NET_ADMIN.
    pub receive_buffer_bytes: usize,
    /// Send buffer, in bytes, likewise.
    pub send_buffer_bytes: usize,
}

impl Config {
    /// With the buffers that bulk data needs: 8 MiB to receive, 4 MiB to send; multicast stays on
    /// the link and is not looped back.
    pub fn new(bind: SocketAddr) -> Self {
        Self {
            bind,
            interface: 0,
            ttl: 1,
            loopback: false,
            exclusive: false,
            receive_buffer_bytes: 8 << 20,
            send_buffer_bytes: 4 << 20,
        }
    }
}

/// What to send: one packet's payload, or several of equal length (the last may be shorter) in a row.
#[derive(Clone, Copy, Debug)]
pub struct Transmit<'a> {
    /// The address to send from; `None`: the socket's, or the routes' choice.
    pub source: Option<IpAddr>,
    /// Destination. The ports are in the header of the segment.
    pub destination: SocketAddr,
    /// The payload of one packet, or of several in a row.
    pub bytes: &'a [u8],
    /// Length of each payload; `None`: `bytes` is one.
    pub segment_len: Option<usize>,
}

/// One payload received.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// Sender. The port is 0; it is in the header of the segment.
    pub source: SocketAddr,
    /// The group, or this host's address.
    pub destination: IpAddr,
    /// Interface it arrived on, by index; 0 where the kernel does not say.
    pub interface: u32,
    /// What it carries.
    pub payload: &'a [u8],
}

/// Payloads that the kernel has joined: one after the other, of equal length but perhaps the last.
#[derive(Clone, Copy, Debug)]
pub struct Joined<'a> {
    /// Sender. The port is 0; it is in the header of the segment.
    pub source: SocketAddr,
    /// The group, or this host's address.
    pub destination: IpAddr,
    /// Interface they arrived on, by index.
    pub interface: u32,
    /// What they carry.
    pub payloads: &'a [u8],
    /// Bytes of each.
    pub stride: usize,
}

impl<'a> Joined<'a> {
    /// What each carries.
    pub fn each(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        // An empty datagram has no chunks: it is delivered as one empty payload.
        let empty = self.payloads.is_empty().then_some(self.payloads);
        self.payloads.chunks(self.stride.max(1)).chain(empty)
    }
}

/// Payloads that the kernel has joined, as [`Joined`], to be edited where they lie.
#[derive(Debug)]
pub struct JoinedMut<'a> {
    /// Sender.
    pub source: SocketAddr,
    /// What they carry.
    pub payloads: &'a mut [u8],
    /// Bytes of each, but perhaps the last.
    pub stride: usize,
}

/// One payload received, to be edited where it lies.
#[derive(Debug)]
pub struct ReceivedMut<'a> {
    /// Sender.
    pub source: SocketAddr,
    /// What it carries.
    pub payload: &'a mut [u8],
}

/// A group to join, of either version of IP.
pub type Membership = crate::udp::Membership<IpAddr>;

/// How packets to one destination leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The address that they are sent from, unless a socket is bound to another.
    pub source: IpAddr,
    /// The longest IP packet that the path is known to take, in bytes: the route's, or its
    /// interface's, or what routers on the way have said lately.
    pub mtu: u16,
}

/// Asks the kernel for the way to a destination. `interface`, by index: where multicast leaves, and
/// what link-local addresses are on; 0: the routes decide.
///
/// # Errors
/// No route leads there.
pub fn route(destination: IpAddr, interface: u32) -> std::io::Result<Route> {
    let socket = datagrams(destination)?;
    sys::multicast::interface(&socket, destination, interface)?;
    // Connecting a datagram socket sends nothing; port 9 discards (RFC 863).
    let address = scoped(SocketAddr::new(destination, 9), interface);
    socket.connect(&address.into())?;
    let mtu: libc::c_int = match destination {
        IpAddr::V4(_) => sys::get_option(&socket, libc::IPPROTO_IP, libc::IP_MTU)?,
        IpAddr::V6(_) => sys::get_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_MTU)?,
    };
    let local = socket.local_addr()?.as_socket();
    let odd = || std::io::Error::other("neither IPv4 nor IPv6");
    Ok(Route {
        source: local.ok_or_else(odd)?.ip(),
        mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
    })
}

fn datagrams(family: IpAddr) -> std::io::Result<socket2::Socket> {
    sys::socket(sys::family(family), libc::SOCK_DGRAM, 0).map(socket2::Socket::from)
}

/// A bound UDP socket with everything in [`Config`] applied; `filter` runs before it is bound.
pub(crate) fn bind(
    config: &Config,
    what: &'static str,
    filter: impl FnOnce(&socket2::Socket) -> std::io::Result<()>,
) -> Result<socket2::Socket, OpenError> {
    let error = OpenError::from(what, Capability::NetBindService);
    let version = config.bind.ip();
    let socket = datagrams(version).map_err(error)?;
    socket.set_reuse_address(!config.exclusive).map_err(error)?;
    if version.is_ipv6() {
        socket.set_only_v6(true).map_err(error)?;
    }
    configure(&socket, config, what, error)?;
    filter(&socket).map_err(error)?;
    let address = scoped(config.bind, config.interface);
    socket.bind(&address.into()).map_err(error)?;
    Ok(socket)
}

/// Applies what both kinds of socket have in common.
fn configure(
    socket: &impl AsFd,
    config: &Config,
    what: &'static str,
    error: impl Fn(std::io::Error) -> OpenError,
) -> Result<(), OpenError> {
    let no_interface = |source: std::io::Error| match source.raw_os_error() {
        Some(libc::EADDRNOTAVAIL | libc::ENODEV) => OpenError::NoInterface { what },
        _ => error(source),
    };
    let version = config.bind.ip();
    sys::multicast::interface(socket, version, config.interface).map_err(no_interface)?;
    sys::multicast::settings(socket, version, config.ttl, config.loopback).map_err(&error)?;
    let ask = sys::buffer_size;
    ask(
        socket,
        libc::SO_RCVBUFFORCE,
        libc::SO_RCVBUF,
        config.receive_buffer_bytes,
    );
    ask(
        socket,
        libc::SO_SNDBUFFORCE,
        libc::SO_SNDBUF,
        config.send_buffer_bytes,
    );
    Ok(())
}

/// Sets the TTL, or hop limit, of a socket to 255, so that its peer can compute how many hops its
/// packets have crossed (RFC 5082). Those that a listener accepts inherit it; `version` is its address's.
///
/// # Errors
/// The kernel's.
pub fn tell_hops(socket: &impl AsFd, version: IpAddr) -> std::io::Result<()> {
    let (level, name) = match version {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TTL),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
    };
    sys::set_int(socket, level, name, 255)
}

/// Generalized TTL security (RFC 5082): beside [`tell_hops`], the kernel drops what arrives with a TTL,
/// or hop limit, of less than `least`.
///
/// # Errors
/// The kernel's.
pub fn bound_hops(socket: &impl AsFd, version: IpAddr, least: u8) -> std::io::Result<()> {
    tell_hops(socket, version)?;
    let (level, name) = match version {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MINTTL),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT),
    };
    sys::set_int(socket, level, name, least.into())
}

/// `IP_PMTUDISC_INTERFACE`: no don't-fragment bit; packets above the interface's MTU are refused.
const INTERFACE_MTU: libc::c_int = 4;

/// Whether a socket's packets carry the don't-fragment bit: see "Path MTU" in the
/// [module documentation](self).
///
/// The kernel keeps this for each socket, not for each packet: it is changed when the kind of the
/// destination changes. Callers that send from several threads at once may have a packet sent with the
/// setting of another; both settings deliver it on ordinary paths.
#[derive(Debug)]
pub(crate) struct Fragmentation {
    /// `IP_MTU_DISCOVER` for unicast.
    unicast: libc::c_int,
    /// What the socket is set to.
    current: AtomicI32,
}

impl Fragmentation {
    /// Unicast carries the bit and follows the path MTU; IPv4 multicast does neither.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn path_mtu(socket: &impl AsFd, version: IpAddr) -> std::io::Result<Self> {
        if version.is_ipv6() {
            let (level, on) = (libc::IPPROTO_IPV6, libc::IP_PMTUDISC_DO);
            sys::set_int(socket, level, libc::IPV6_MTU_DISCOVER, on)?;
            sys::set_int(socket, level, libc::IPV6_DONTFRAG, 1)?;
        }
        Self::set(socket, version, libc::IP_PMTUDISC_DO)
    }

    /// Routers, or for IPv6 this host, may fragment every packet.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn allowed(socket: &impl AsFd, version: IpAddr) -> std::io::Result<Self> {
        if version.is_ipv6() {
            let (level, on) = (libc::IPPROTO_IPV6, libc::IP_PMTUDISC_WANT);
            sys::set_int(socket, level, libc::IPV6_MTU_DISCOVER, on)?;
            sys::set_int(socket, level, libc::IPV6_DONTFRAG, 0)?;
        }
        Self::set(socket, version, INTERFACE_MTU)
    }

    fn set(socket: &impl AsFd, version: IpAddr, unicast: libc::c_int) -> std::io::Result<Self> {
        if version.is_ipv4() {
            apply_discovery(socket, unicast)?;
        }
        Ok(Self {
            unicast,
            current: AtomicI32::new(unicast),
        })
    }

    /// Called before a packet leaves.
    pub(crate) fn prepare(&self, socket: &impl AsFd, destination: IpAddr) -> std::io::Result<()> {
        let wanted = match destination {
            IpAddr::V4(address) if address.is_multicast() => INTERFACE_MTU,
            IpAddr::V4(_) => self.unicast,
            IpAddr::V6(_) => return Ok(()),
        };
        if self.current.load(Ordering::Relaxed) != wanted {
            apply_discovery(socket, wanted)?;
            self.current.store(wanted, Ordering::Relaxed);
        }
        Ok(())
    }
}

fn apply_discovery(socket: &impl AsFd, mode: libc::c_int) -> std::io::Result<()> {
    sys::set_int(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, mode)
}

/// An address of link-local scope, a group's too, means something on an interface only: it gets this one, unless it
/// has one.
pub fn scoped(address: SocketAddr, interface: u32) -> SocketAddr {
    match address {
        SocketAddr::V6(mut address) if needs_zone(*address.ip()) => {
            if address.scope_id() == 0 {
                address.set_scope_id(interface);
            }
            address.into()
        }
        address => address,
    }
}

/// Returns the destination in the kernel's form.
fn to(destination: SocketAddr, interface: u32) -> SocketAddress {
    SocketAddress::from(scoped(destination, interface))
}
