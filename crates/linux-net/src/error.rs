//! Errors, one enum a verb. Each variant says what a caller can do about it.

use std::io;

use thiserror::Error;

/// A capability of `capabilities(7)`, named where one is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Capability {
    /// Configure interfaces, routes, packet filters.
    NetAdmin,
    /// Raw and packet sockets, IP options the kernel does not know.
    NetRaw,
    /// Ports below 1024.
    NetBindService,
    /// Namespaces, mounts.
    SysAdmin,
    /// BPF programs and maps.
    Bpf,
    /// BPF programs that compute with addresses.
    Perfmon,
}

impl Capability {
    /// The number in `linux/capability.h`.
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::NetBindService => 10,
            Self::NetAdmin => 12,
            Self::NetRaw => 13,
            Self::SysAdmin => 21,
            Self::Perfmon => 38,
            Self::Bpf => 39,
        }
    }
}

impl core::fmt::Display for Capability {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::NetRaw => "CAP_NET_RAW",
            Self::NetBindService => "CAP_NET_BIND_SERVICE",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::Bpf => "CAP_BPF",
            Self::Perfmon => "CAP_PERFMON",
        })
    }
}

/// A socket could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The process lacks a capability.
    #[error("{what} needs {capability}: run as root, or grant it with `setcap {}+ep PROGRAM`, or run inside `unshare -Urn`",
        capability.to_string().to_lowercase())]
    Privilege {
        /// What was being opened.
        what: &'static str,
        /// The capability that it requires.
        capability: Capability,
    },
    /// The address is taken by another socket.
    #[error("{what}: address in use; another program has it, stop it or choose another port")]
    AddressInUse {
        /// What was being opened.
        what: &'static str,
    },
    /// The address belongs to no interface of this host.
    #[error("{what}: the address is not one of this host's; `ip address` lists them")]
    AddressNotAvailable {
        /// What was being opened.
        what: &'static str,
    },
    /// There is no such interface.
    #[error("{what}: no such interface; `ip link` lists them")]
    NoInterface {
        /// What was being opened.
        what: &'static str,
    },
    /// The kernel was built without it.
    #[error("{what}: not supported by this kernel ({source})")]
    Unsupported {
        /// What was being opened.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Anything else.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl OpenError {
    /// Classifies the kernel's error; `capability` is the one that the operation requires.
    pub(crate) fn classify(what: &'static str, capability: Capability, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::Privilege { what, capability },
            Some(libc::EADDRINUSE) => Self::AddressInUse { what },
            Some(libc::EADDRNOTAVAIL) => Self::AddressNotAvailable { what },
            Some(libc::ENODEV | libc::ENXIO) => Self::NoInterface { what },
            Some(
                libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT | libc::ENOPROTOOPT | libc::EOPNOTSUPP,
            ) => Self::Unsupported { what, source },
            _ => Self::Io { what, source },
        }
    }

    /// As [`Self::classify`], for `map_err`.
    pub(crate) fn from(
        what: &'static str,
        capability: Capability,
    ) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::classify(what, capability, source)
    }
}

/// A group was not joined or left.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JoinError {
    /// There is no such interface, or none that leads to the group.
    #[error("no interface to join on: name one, or add a route for the group")]
    NoInterface,
    /// The address is not a multicast group, or the source is not unicast.
    #[error(
        "not a multicast group (224.0.0.0/4, ff00::/8), or not a unicast source of its version of IP"
    )]
    NotAGroup,
    /// This socket joined it before.
    #[error("this socket is already a member of that group on that interface")]
    AlreadyJoined,
    /// This socket is no member.
    #[error("this socket is not a member of that group on that interface")]
    NotJoined,
    /// The kernel's bound of memberships a socket.
    #[error(
        "too many memberships on one socket: raise net.ipv4.igmp_max_memberships (groups), net.ipv4.igmp_max_msf or net.ipv6.mld_max_msf (sources)"
    )]
    TooMany,
    /// Anything else.
    #[error("joining or leaving a group: {0}")]
    Io(io::Error),
}

impl JoinError {
    pub(crate) fn classify(joining: bool, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::ENODEV | libc::ENXIO) => Self::NoInterface,
            Some(libc::EINVAL) if joining => Self::NotAGroup,
            Some(libc::EADDRINUSE) => Self::AlreadyJoined,
            Some(libc::EADDRNOTAVAIL) if joining => Self::AlreadyJoined,
            Some(libc::EADDRNOTAVAIL | libc::EINVAL) => Self::NotJoined,
            Some(libc::ENOBUFS) => Self::TooMany,
            _ => Self::Io(source),
        }
    }
}

/// A packet was not sent.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SendError {
    /// The socket's buffer or the interface's queue is full: wait until it is writable, or drop.
    #[error("no room in the socket's buffer: wait until it is writable")]
    WouldBlock,
    /// Larger than the interface carries in one piece.
    #[error(
        "the packet is larger than the interface's MTU or than 65,507 bytes: send smaller packets"
    )]
    TooBig,
    /// No route, or the interface is down or gone.
    #[error("no way to the destination: no route, or the interface is down or gone")]
    Unreachable,
    /// This host does not let the packet out.
    #[error(
        "refused by this host's packet filter (`nft list ruleset`) or by a prohibiting route (`ip route`)"
    )]
    Refused,
    /// The process lacks a capability.
    #[error("sending this needs {0}: run as root, or grant it with setcap")]
    Privilege(Capability),
    /// The packet, or its options, are not well formed.
    #[error("the kernel refuses the packet as malformed: check its header and its options")]
    Malformed,
    /// Anything else.
    #[error("sending: {0}")]
    Io(io::Error),
}

impl SendError {
    pub(crate) fn classify(source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => Self::WouldBlock,
            Some(libc::EMSGSIZE) => Self::TooBig,
            Some(
                libc::ENETUNREACH
                | libc::EHOSTUNREACH
                | libc::ENETDOWN
                | libc::ENODEV
                | libc::ENXIO,
            ) => Self::Unreachable,
            Some(libc::EPERM | libc::EACCES) => Self::Refused,
            Some(libc::EINVAL) => Self::Malformed,
            _ => Self::Io(source),
        }
    }
}

/// Receiving failed. An empty queue is no error: receiving methods answer `None` or 0 then.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The interface the socket is bound to is down or gone.
    #[error("the interface is down or gone")]
    InterfaceDown,
    /// Anything else.
    #[error("receiving: {0}")]
    Io(io::Error),
}

impl ReceiveError {
    /// Whether the socket is of no use any more. All others pass: a host short of memory, an ICMP
    /// message about an earlier packet.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::InterfaceDown => true,
            Self::Io(source) => matches!(
                source.raw_os_error(),
                Some(libc::EBADF | libc::ENOTSOCK | libc::EINVAL | libc::EOPNOTSUPP | libc::EFAULT)
            ),
        }
    }

    /// `None` for an empty queue or an interrupted call.
    pub(crate) fn classify(source: io::Error) -> Option<Self> {
        match source.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => None,
            Some(libc::ENETDOWN | libc::ENODEV | libc::ENXIO) => Some(Self::InterfaceDown),
            _ => Some(Self::Io(source)),
        }
    }
}
