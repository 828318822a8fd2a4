//! UDP to and from groups: data on a [`GroupSocket`], datagrams with options of IP (LMS requests)
//! on an [`OptionSocket`].
//!
//! Options of IP are those in an IPv4 header, or in a hop-by-hop header of IPv6 (RFC 8200 §4.3).
//!
//! Two sockets on one port share the work: the data socket refuses datagrams with options in
//! the kernel ([`Options::Refuse`]) and takes the rest in large batches; the option socket takes
//! only those, one at a time, each with its options.
//!
//! [`Config`], [`Transmit`] and [`Membership`] take addresses of either version of IP: [`SocketAddr`] where a
//! program serves both, [`SocketAddrV4`] where it speaks one.

mod group;
mod option;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use crate::error::{JoinError, OpenError};
use crate::{filter, inet, sys};

pub use group::{Batch, Datagram, GroupSocket, Transmit};
pub(crate) use option::{Carrier, MAX_OPTIONS};
pub use option::{OptionBuffer, OptionDatagram, OptionSocket};

/// What a UDP socket does with datagrams with options of IP.
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
pub struct Config<S = SocketAddrV4> {
    /// Local address. A receiver of one group binds to group and port, so that nothing else
    /// reaches it; to receive unicast too, bind to `0.0.0.0` or `::` and the port: memberships of other
    /// programs do not reach it either. Port 0: the kernel's choice. A link-local IPv6 address without a
    /// zone is one of `interface`.
    pub bind: S,
    /// Interface of outgoing multicast, by index; 0 lets the routes decide.
    pub interface: u32,
    /// Time to live, or hop limit, of outgoing multicast: 1 stays on the link.
    pub ttl: u8,
    /// Whether other sockets of this host receive the multicast packets of this one.
    pub loopback: bool,
    /// Room for what arrives and was not read yet, in bytes; the kernel grants up to
    /// `net.core.rmem_max`, and all of it to a process with CAP_NET_ADMIN.
    pub receive_buffer_bytes: usize,
    /// Send buffer, in bytes, likewise.
    pub send_buffer_bytes: usize,
    /// Datagrams with options of IP.
    pub options: Options,
}

impl<S> Config<S> {
    /// With the buffers that bulk data needs: 8 MiB to receive, 4 MiB to send; multicast stays on
    /// the link and is not looped back; datagrams with options are received.
    pub fn new(bind: S) -> Self {
        Self {
            bind,
            interface: 0,
            ttl: 1,
            loopback: false,
            receive_buffer_bytes: 8 << 20,
            send_buffer_bytes: 4 << 20,
            options: Options::Accept,
        }
    }
}

impl Default for Config {
    /// Any address and port of IPv4.
    fn default() -> Self {
        Self::new(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))
    }
}

/// A group to join: any source, or one (RFC 4607).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Membership<A = Ipv4Addr> {
    /// The group.
    pub group: A,
    /// Only this source's packets (source-specific multicast).
    pub source: Option<A>,
    /// On this interface, by index; 0 lets the routes decide.
    pub interface: u32,
}

impl<A: Copy + Into<IpAddr>> Membership<A> {
    /// Joins (`true`) or leaves.
    pub(crate) fn apply(&self, fd: &impl std::os::fd::AsFd, join: bool) -> Result<(), JoinError> {
        let (group, source) = (self.group.into(), self.source.map(Into::into));
        let wrong = |source: IpAddr| source.is_multicast() || source.is_ipv4() != group.is_ipv4();
        if !group.is_multicast() || source.is_some_and(wrong) {
            return Err(JoinError::NotAGroup);
        }
        let done = sys::multicast::change(fd, group, source, self.interface, join);
        done.map_err(|error| JoinError::classify(join, error))
    }
}

/// A bound UDP socket with everything in [`Config`] applied.
fn open<S: Copy + Into<SocketAddr>>(
    config: &Config<S>,
    what: &'static str,
    filter: Option<&[libc::sock_filter]>,
) -> Result<socket2::Socket, OpenError> {
    let bind = config.bind.into();
    // Programs share a group's address, and each receives all packets. Of a host's own address and port the
    // kernel would give all packets to the one that came last.
    let shared = bind.ip().is_multicast() || bind.ip().is_unspecified();
    let config_of_either = inet::Config {
        bind,
        interface: config.interface,
        ttl: config.ttl,
        loopback: config.loopback,
        exclusive: !shared,
        receive_buffer_bytes: config.receive_buffer_bytes,
        send_buffer_bytes: config.send_buffer_bytes,
    };
    let refusing = filter::udp_options(false, bind.is_ipv4());
    let filter = filter.or_else(|| (config.options == Options::Refuse).then_some(&refusing[..]));
    inet::bind(&config_of_either, what, |socket| {
        filter.map_or(Ok(()), |filter| sys::attach_filter(socket, filter))
    })
}
