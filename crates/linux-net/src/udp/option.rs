use std::marker::PhantomData;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};

use super::{Config, Membership, Options, open};
use crate::error::{Capability, JoinError, OpenError, ReceiveError, SendError};
use crate::family::{Endpoint, Family};
use crate::inet::scoped;
use crate::sys::message::{Control, from_bytes, receive, send};
use crate::{filter, sys};

/// Most bytes of options that a datagram is received with: an IPv4 header holds 40; a hop-by-hop header may have 2,048,
/// but none that LMS sends is longer than this.
pub(crate) const MAX_OPTIONS: usize = 256;
/// Room for the ancillary data of a datagram: its options and where it arrived.
const CONTROL: usize = MAX_OPTIONS + 64;

/// A UDP socket for datagrams with options of IP: LMS requests (LMS §6.3.1).
///
/// Options travel as ancillary data, as bytes that neither side changes:
///
/// | | IPv4 | IPv6 |
/// | --- | --- | --- |
/// | the bytes | the options of the header, 40 at most | a whole hop-by-hop header (RFC 8200 §4.3), 8 to 256, its length and padding included; the kernel writes the first byte |
/// | out | `IP_RETOPTS` | `IPV6_HOPOPTS` |
/// | in | `IP_RECVOPTS` | `IPV6_RECVHOPOPTS` |
/// | sending takes | CAP_NET_RAW for options that the kernel does not know | CAP_NET_RAW |
///
/// The kernel gives this socket only datagrams that have some. A socket joined to one source receives requests of that
/// source alone: endpoints of source-specific groups take the others' from a
/// [`RequestTap`](crate::packet::RequestTap).
#[derive(Debug)]
pub struct OptionSocket<A: Family = Ipv4Addr> {
    socket: socket2::Socket,
    /// Of outgoing multicast.
    interface: u32,
    family: PhantomData<A>,
}

/// One datagram with options.
#[derive(Clone, Copy, Debug)]
pub struct OptionDatagram<'a, A: Family = Ipv4Addr> {
    /// Sender.
    pub source: A::Socket,
    /// The group, or this host's address.
    pub destination: A,
    /// Interface it arrived on, by index.
    pub interface: u32,
    /// The options of its IPv4 header, or its hop-by-hop header, as they stood there.
    pub options: &'a [u8],
    /// What it carries.
    pub payload: &'a [u8],
}

/// Room for one datagram with its options.
#[derive(Debug)]
pub struct OptionBuffer {
    pub(crate) options: [u8; MAX_OPTIONS],
    pub(crate) payload: Vec<u8>,
}

impl OptionBuffer {
    /// Room for payloads of up to `payload_len` bytes; longer ones are dropped.
    pub fn new(payload_len: usize) -> Self {
        Self {
            options: [0; MAX_OPTIONS],
            payload: vec![0; payload_len],
        }
    }
}

/// How one version of IP carries options.
pub trait Carrier: Sized {
    /// Most bytes of them.
    const MAX: usize;
    /// Ancillary data that sends them.
    const SEND: libc::c_int;
    /// Socket option that asks for them, and their type when they arrive.
    const RECEIVE: (libc::c_int, libc::c_int);
    /// Socket option that asks where a datagram arrived.
    const PACKET_INFO: libc::c_int;

    /// Whether the lengths in them add up.
    fn well_formed(options: &[u8]) -> bool;

    /// Reads where a datagram arrived: its destination and the interface.
    fn packet_info(kind: libc::c_int, data: &[u8]) -> Option<(Self, u32)>;
}

impl Carrier for Ipv4Addr {
    const MAX: usize = 40;
    const SEND: libc::c_int = libc::IP_RETOPTS;
    const RECEIVE: (libc::c_int, libc::c_int) = (libc::IP_RECVOPTS, libc::IP_RECVOPTS);
    const PACKET_INFO: libc::c_int = libc::IP_PKTINFO;

    fn well_formed(mut options: &[u8]) -> bool {
        loop {
            match *options {
                [] | [0, ..] => return true,
                [1, ref rest @ ..] => options = rest,
                [_, len, ..] if len >= 2 && usize::from(len) <= options.len() => {
                    options = &options[usize::from(len)..];
                }
                _ => return false,
            }
        }
    }

    fn packet_info(kind: libc::c_int, data: &[u8]) -> Option<(Self, u32)> {
        let info: libc::in_pktinfo = from_bytes(data).filter(|_| kind == libc::IP_PKTINFO)?;
        Some((
            sys::from_in_addr(info.ipi_addr),
            info.ipi_ifindex.unsigned_abs(),
        ))
    }
}

impl Carrier for Ipv6Addr {
    const MAX: usize = MAX_OPTIONS;
    const SEND: libc::c_int = libc::IPV6_HOPOPTS;
    const RECEIVE: (libc::c_int, libc::c_int) = (libc::IPV6_RECVHOPOPTS, libc::IPV6_HOPOPTS);
    const PACKET_INFO: libc::c_int = libc::IPV6_RECVPKTINFO;

    fn well_formed(header: &[u8]) -> bool {
        let Some((&[_, units], mut options)) = header.split_first_chunk::<2>() else {
            return false;
        };
        if (usize::from(units) + 1) * 8 != header.len() {
            return false;
        }
        loop {
            match *options {
                [] => return true,
                [0, ref rest @ ..] => options = rest,
                [_, len, ref rest @ ..] if usize::from(len) <= rest.len() => {
                    options = &rest[usize::from(len)..];
                }
                _ => return false,
            }
        }
    }

    fn packet_info(kind: libc::c_int, data: &[u8]) -> Option<(Self, u32)> {
        let info: libc::in6_pktinfo = from_bytes(data).filter(|_| kind == libc::IPV6_PKTINFO)?;
        Some((info.ipi6_addr.s6_addr.into(), info.ipi6_ifindex))
    }
}

impl<A: Family> OptionSocket<A> {
    /// Opens a socket; the policy on options in `config` does not count, it receives only
    /// datagrams with options. Needs no privileges to open and to receive.
    ///
    /// # Errors
    /// [`OpenError`]: the address is in use or not one of this host, there is no such interface, or the kernel refuses.
    pub fn open<S: Endpoint<Address = A>>(config: &Config<S>) -> Result<Self, OpenError> {
        let what = "UDP socket for datagrams with IP options";
        let error = OpenError::from(what, Capability::NetRaw);
        let config = Config {
            options: Options::Accept,
            ..config.clone()
        };
        let filter = filter::udp_options(true, A::FAMILY == libc::AF_INET);
        let socket = open(&config, what, Some(&filter))?;
        for name in [A::RECEIVE.0, A::PACKET_INFO] {
            sys::set_int(&socket, A::LEVEL, name, 1).map_err(error)?;
        }
        Ok(Self {
            socket,
            interface: config.interface,
            family: PhantomData,
        })
    }

    /// Becomes a member of a group.
    ///
    /// # Errors
    /// [`JoinError`]: there is no such interface or group, the socket is a member already, or has too many memberships.
    pub fn join(&self, membership: &Membership<A>) -> Result<(), JoinError> {
        membership.apply(&self.socket, true)
    }

    /// Ends a membership; closing the socket ends them all.
    ///
    /// # Errors
    /// [`JoinError`]: the socket is not a member.
    pub fn leave(&self, membership: &Membership<A>) -> Result<(), JoinError> {
        membership.apply(&self.socket, false)
    }

    /// The bound address.
    ///
    /// # Errors
    /// The kernel's error when the address cannot be read.
    pub fn local_address(&self) -> std::io::Result<A::Socket> {
        let other = || std::io::Error::other("a socket of another version of IP");
        let address = self.socket.local_addr()?.as_socket();
        address.and_then(A::Socket::of).ok_or_else(other)
    }

    /// Sends one datagram with options. Those in an IPv4 header are padded to a multiple of 4 by the kernel. Options
    /// that the kernel does not know, such as those of LMS, and hop-by-hop headers need CAP_NET_RAW at each call.
    ///
    /// # Errors
    /// [`SendError`]: there is no room, no route, CAP_NET_RAW is missing, or the options are malformed.
    pub fn send(
        &self,
        destination: A::Socket,
        options: &[u8],
        payload: &[u8],
    ) -> Result<(), SendError> {
        let control = ancillary::<A>(options).ok_or(SendError::Malformed)?;
        let destination = scoped(destination.into(), self.interface);
        let sent = send(&self.socket, destination, &control, payload);
        sent.map(|_| ()).map_err(|e| match e.raw_os_error() {
            // The kernel's answers to a process without CAP_NET_RAW (IPv4, IPv6) are also those to other packets.
            Some(libc::EINVAL | libc::EPERM) if !has_net_raw() => {
                SendError::Privilege(Capability::NetRaw)
            }
            _ => SendError::classify(e),
        })
    }

    /// Takes the next datagram; `None` when nothing is there.
    ///
    /// # Errors
    /// [`ReceiveError`] when the interface is down or the socket fails.
    pub fn receive<'b>(
        &self,
        buffer: &'b mut OptionBuffer,
    ) -> Result<Option<OptionDatagram<'b, A>>, ReceiveError> {
        loop {
            let incoming = match receive::<CONTROL>(&self.socket, &mut buffer.payload) {
                Ok(incoming) => incoming,
                Err(error) => return ReceiveError::classify(error).map_or(Ok(None), Err),
            };
            let source = incoming.source.filter(|_| !incoming.truncated);
            let Some(source) = source.and_then(A::Socket::of) else {
                continue;
            };
            let (mut destination, mut interface) = (A::UNSPECIFIED, 0);
            let mut options_len = 0;
            for (level, kind, data) in incoming.control() {
                if level != A::LEVEL {
                    continue;
                }
                if let Some(info) = A::packet_info(kind, data) {
                    (destination, interface) = info;
                } else if kind == A::RECEIVE.1 && data.len() <= MAX_OPTIONS {
                    options_len = data.len();
                    buffer.options[..options_len].copy_from_slice(data);
                }
            }
            return Ok(Some(OptionDatagram {
                source,
                destination,
                interface,
                options: &buffer.options[..options_len],
                payload: &buffer.payload[..incoming.len],
            }));
        }
    }
}

impl OptionSocket {
    /// Bytes of ancillary data that [`send`](Self::send) hands to the kernel with these options of an IPv4 header:
    /// `cmsghdr`, the options, and the filling up to its alignment. `None` for more than 40 bytes, or options whose lengths do not add up.
    pub fn ancillary_len(options: &[u8]) -> Option<usize> {
        ancillary::<Ipv4Addr>(options).map(|control| control.len())
    }
}

/// The ancillary data of a datagram with these options; `None` when they are too long or malformed.
fn ancillary<A: Family>(options: &[u8]) -> Option<Control<CONTROL>> {
    let mut control = Control::new();
    // The kernel sends hop-by-hop headers as they are.
    if options.len() > A::MAX || !A::well_formed(options) {
        return None;
    }
    control.push(A::LEVEL, A::SEND, options)?;
    Some(control)
}

fn has_net_raw() -> bool {
    let held = sys::capability::effective().unwrap_or(0);
    held & 1 << Capability::NetRaw.number() != 0
}

impl<A: Family> AsFd for OptionSocket<A> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_hop_by_hop_headers_add_up_or_are_refused() {
        let alert = [0, 0, 5, 2, 0, 0, 1, 0];
        assert!(Ipv6Addr::well_formed(&alert));
        for len in 0..alert.len() {
            assert!(!Ipv6Addr::well_formed(&alert[..len]), "{len}");
        }
        for (at, value) in [(1, 1), (3, 5), (7, 1)] {
            let mut odd = alert;
            odd[at] = value;
            assert!(!Ipv6Addr::well_formed(&odd), "{at}");
        }
        let mut long = [0; MAX_OPTIONS + 8];
        long[1] = 32;
        assert!(ancillary::<Ipv6Addr>(&long).is_none());
        long[1] = 31;
        assert!(ancillary::<Ipv6Addr>(&long[..MAX_OPTIONS]).is_some());
    }
}
