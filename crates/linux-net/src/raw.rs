//! Whole packets through the kernel's routing: dmcasts and reports of membership out, IGMP in.

use std::marker::PhantomData;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::error::{Capability, JoinError, OpenError, ReceiveError, SendError};
use crate::family::{Endpoint, Family};
use crate::sys;
use crate::sys::message::{
    BATCH, Control, Outgoing, SocketAddress, from_bytes, receive, send_batch,
};
use crate::udp::Membership;

/// A raw socket. What it sends starts with the IP header, options or extension headers included; the kernel routes by
/// its destination. It fills in the checksum of an IPv4 header, and its source and identification where they are zero;
/// of an IPv6 packet it changes nothing.
#[derive(Debug)]
pub struct Socket<A: Family> {
    socket: OwnedFd,
    family: PhantomData<A>,
}

/// A raw IPv4 socket (`IP_HDRINCL`).
pub type Ipv4Socket = Socket<Ipv4Addr>;

/// A raw IPv6 socket (`IPV6_HDRINCL`): extension headers, hop-by-hop ones too, leave as they are, and their privileges
/// are those of the socket. It receives nothing.
pub type Ipv6Socket = Socket<Ipv6Addr>;

/// A packet to send.
#[derive(Clone, Copy, Debug)]
pub struct Transmit<'a> {
    /// Interface for a multicast packet or a link-local IPv6 destination, by index; 0 lets the routes decide.
    pub interface: u32,
    /// The whole IP packet, at most the MTU long.
    pub packet: &'a [u8],
}

/// A packet received.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// Interface it arrived on, by index.
    pub interface: u32,
    /// The whole IPv4 packet.
    pub packet: &'a [u8],
}

impl<A: Family> Socket<A> {
    /// Opens a socket that only sends. Requires CAP_NET_RAW.
    ///
    /// # Errors
    /// [`OpenError`]: CAP_NET_RAW is missing, or the kernel refuses the socket.
    pub fn sender() -> Result<Self, OpenError> {
        Self::open("raw IP socket", libc::IPPROTO_RAW)
    }

    fn open(what: &'static str, protocol: libc::c_int) -> Result<Self, OpenError> {
        let error = OpenError::from(what, Capability::NetRaw);
        let socket = sys::socket(A::FAMILY, libc::SOCK_RAW, protocol).map_err(error)?;
        for (name, value) in A::RAW_OPTIONS {
            sys::set_int(&socket, A::LEVEL, name, value).map_err(error)?;
        }
        Ok(Self {
            socket,
            family: PhantomData,
        })
    }

    /// Becomes a member of a group.
    ///
    /// # Errors
    /// [`JoinError`]: there is no such interface or group, or the socket is a member already.
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

    /// Sends one packet.
    ///
    /// # Errors
    /// [`SendError`]: there is no room, the packet is too long or malformed, or the interface is down.
    pub fn send(&self, interface: u32, packet: &[u8]) -> Result<(), SendError> {
        self.send_batch(&[Transmit { interface, packet }])
            .map(|_| ())
    }

    /// Sends up to 64 packets with one system call and returns the number accepted, in order.
    /// An error means that the first was refused.
    ///
    /// # Errors
    /// [`SendError`] for the first packet; later packets that fail are only not taken.
    pub fn send_batch(&self, packets: &[Transmit<'_>]) -> Result<usize, SendError> {
        let mut controls = [const { Control::<40>::new() }; BATCH];
        let packets = &packets[..packets.len().min(BATCH)];
        for (control, packet) in controls.iter_mut().zip(packets) {
            if packet.interface != 0 {
                control
                    .push_path(A::UNSPECIFIED.into(), packet.interface)
                    .ok_or(SendError::Malformed)?;
            }
        }
        let nowhere = SocketAddr::new(A::UNSPECIFIED.into(), 0);
        let mut messages = [Outgoing {
            address: SocketAddress::from(nowhere),
            control: None,
            bytes: &[],
        }; BATCH];
        let mut count = 0;
        for ((message, packet), control) in messages.iter_mut().zip(packets).zip(&controls) {
            let destination = packet.packet.get(A::DESTINATION).and_then(A::from_octets);
            let Some(destination) = destination else {
                break;
            };
            let to = A::Socket::with_port(destination, 0, packet.interface);
            message.address = SocketAddress::from(to.into());
            message.control = (packet.interface != 0).then_some(control);
            message.bytes = packet.packet;
            count += 1;
        }
        if count == 0 {
            return if packets.is_empty() {
                Ok(0)
            } else {
                Err(SendError::Malformed)
            };
        }
        send_batch(&self.socket, &messages[..count]).map_err(SendError::classify)
    }
}

impl Ipv4Socket {
    /// A socket that sends, and receives the IGMP packets that reach this host: queries always,
    /// reports of groups it is a member of. Needs CAP_NET_RAW.
    ///
    /// # Errors
    /// As [`Socket::sender`].
    pub fn igmp() -> Result<Self, OpenError> {
        Self::open("raw socket for IGMP", libc::IPPROTO_IGMP)
    }

    /// Receives the next packet; `None` when none has arrived. Packets longer than `buffer` are
    /// dropped.
    ///
    /// # Errors
    /// [`ReceiveError`] when the interface is down or the socket fails.
    pub fn receive<'b>(&self, buffer: &'b mut [u8]) -> Result<Option<Received<'b>>, ReceiveError> {
        loop {
            let incoming = match receive::<64>(&self.socket, buffer) {
                Ok(incoming) => incoming,
                Err(error) => return ReceiveError::classify(error).map_or(Ok(None), Err),
            };
            if incoming.truncated {
                continue;
            }
            let interface = incoming
                .control()
                .find(|(level, kind, _)| (*level, *kind) == (libc::IPPROTO_IP, libc::IP_PKTINFO))
                .and_then(|(_, _, data)| from_bytes::<libc::in_pktinfo>(data))
                .map_or(0, |info| info.ipi_ifindex.unsigned_abs());
            return Ok(Some(Received {
                interface,
                packet: &buffer[..incoming.len],
            }));
        }
    }
}

impl<A: Family> AsFd for Socket<A> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
