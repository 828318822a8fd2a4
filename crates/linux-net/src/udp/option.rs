use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd};

use super::{Config, Membership, Options, open};
use crate::error::{Capability, JoinError, OpenError, ReceiveError, SendError};
use crate::sys::message::{Control, from_bytes, receive, send};
use crate::{filter, sys};

/// Most bytes of options an IPv4 header holds.
const MAX_OPTIONS: usize = 40;

/// A UDP socket for datagrams with IP options: LMS requests (LMS §6.3.1).
///
/// Options travel as ancillary data: `IP_RETOPTS` out, `IP_RECVOPTS` in. The kernel gives this
/// socket only datagrams that have some. A socket joined to one source receives requests of that
/// source alone: endpoints of source-specific groups take the others' from a
/// [`RequestTap`](crate::packet::RequestTap).
#[derive(Debug)]
pub struct OptionSocket {
    socket: socket2::Socket,
}

/// One datagram with options.
#[derive(Clone, Copy, Debug)]
pub struct OptionDatagram<'a> {
    /// Sender.
    pub source: SocketAddrV4,
    /// The group, or this host's address.
    pub destination: Ipv4Addr,
    /// Interface it arrived on, by index.
    pub interface: u32,
    /// The options of its IP header, as they stood there.
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

impl OptionSocket {
    /// Opens a socket; the policy on options in `config` does not count, it receives only
    /// datagrams with options. Needs no privileges to open and to receive.
    ///
    /// # Errors
    /// [`OpenError`]: the address is in use or not one of this host, there is no such interface, or the kernel refuses.
    pub fn open(config: &Config) -> Result<Self, OpenError> {
        let what = "UDP socket for datagrams with IP options";
        let error = OpenError::from(what, Capability::NetRaw);
        let socket = open(
            &Config {
                options: Options::Accept,
                ..config.clone()
            },
            what,
        )?;
        sys::attach_filter(&socket, &filter::udp_options(true)).map_err(error)?;
        sys::set_int(&socket, libc::IPPROTO_IP, libc::IP_RECVOPTS, 1).map_err(error)?;
        sys::set_int(&socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1).map_err(error)?;
        Ok(Self { socket })
    }

    /// Becomes a member of a group.
    ///
    /// # Errors
    /// [`JoinError`]: there is no such interface or group, the socket is a member already, or has too many memberships.
    pub fn join(&self, membership: &Membership) -> Result<(), JoinError> {
        membership.apply(&self.socket, true)
    }

    /// Ends a membership; closing the socket ends them all.
    ///
    /// # Errors
    /// [`JoinError`]: the socket is not a member.
    pub fn leave(&self, membership: &Membership) -> Result<(), JoinError> {
        membership.apply(&self.socket, false)
    }

    /// The bound address.
    ///
    /// # Errors
    /// The kernel's error when the address cannot be read.
    pub fn local_address(&self) -> std::io::Result<SocketAddrV4> {
        self.socket
            .local_addr()?
            .as_socket_ipv4()
            .ok_or_else(|| std::io::Error::other("not an IPv4 socket"))
    }

    /// Sends one datagram with options in its IP header (40 bytes at most; padded to a multiple
    /// of 4 by the kernel). Options that the kernel does not know, such as those of LMS, need
    /// CAP_NET_RAW at each call.
    ///
    /// # Errors
    /// [`SendError`]: there is no room, no route, CAP_NET_RAW is missing, or the options are malformed.
    pub fn send(
        &self,
        destination: SocketAddrV4,
        options: &[u8],
        payload: &[u8],
    ) -> Result<(), SendError> {
        let control = ancillary(options).ok_or(SendError::Malformed)?;
        // For a process without CAP_NET_RAW the kernel answers EINVAL, as for a malformed
        // option: the option's form distinguishes the two.
        send(&self.socket, destination, &control, payload)
            .map(|_| ())
            .map_err(|e| match e.raw_os_error() {
                Some(libc::EINVAL) if well_formed(options) => {
                    SendError::Privilege(Capability::NetRaw)
                }
                _ => SendError::classify(e),
            })
    }

    /// Bytes of ancillary data that [`send`](Self::send) hands to the kernel with these options:
    /// `cmsghdr`, the options, and the filling up to its alignment. `None` for more than 40 bytes.
    pub fn ancillary_len(options: &[u8]) -> Option<usize> {
        ancillary(options).map(|control| control.len())
    }

    /// Takes the next datagram; `None` when nothing is there.
    ///
    /// # Errors
    /// [`ReceiveError`] when the interface is down or the socket fails.
    pub fn receive<'b>(
        &self,
        buffer: &'b mut OptionBuffer,
    ) -> Result<Option<OptionDatagram<'b>>, ReceiveError> {
        loop {
            let incoming = match receive::<160>(&self.socket, &mut buffer.payload) {
                Ok(incoming) => incoming,
                Err(error) => return ReceiveError::classify(error).map_or(Ok(None), Err),
            };
            let Some(source) = incoming.source.filter(|_| !incoming.truncated) else {
                continue;
            };
            let (mut destination, mut interface) = (Ipv4Addr::UNSPECIFIED, 0);
            let mut options_len = 0;
            for (level, kind, data) in incoming.control() {
                if level != libc::IPPROTO_IP {
                    continue;
                }
                if kind == libc::IP_PKTINFO {
                    if let Some(info) = from_bytes::<libc::in_pktinfo>(data) {
                        destination = sys::from_in_addr(info.ipi_addr);
                        interface = info.ipi_ifindex.unsigned_abs();
                    }
                } else if kind == libc::IP_RECVOPTS && data.len() <= MAX_OPTIONS {
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

/// The ancillary data of a datagram with these options; `None` when they are too long.
fn ancillary(options: &[u8]) -> Option<Control<64>> {
    let mut control = Control::new();
    if options.len() > MAX_OPTIONS {
        return None;
    }
    control.push(libc::IPPROTO_IP, libc::IP_RETOPTS, options)?;
    Some(control)
}

/// The options' lengths add up.
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

impl AsFd for OptionSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
