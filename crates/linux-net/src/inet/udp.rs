use std::io::IoSliceMut;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use quinn_udp::UdpSocketState;

use super::queue::SendQueue;
use super::{
    Config, Fragmentation, Joined, JoinedMut, Membership, Received, ReceivedMut, Transmit, bind,
    scoped, to,
};
use crate::error::{Capability, JoinError, OpenError, ReceiveError, SendError};
use crate::sys;
use crate::sys::message::{BATCH, Control, Outgoing, send_batch};
use crate::udp::Batch;

/// Longest UDP payload over IPv4, bytes.
pub(super) const MAX_PAYLOAD: usize = 65_507;
const WHAT: &str = "UDP socket";

/// A UDP socket for bulk data: many packets a system call each way (`UDP_SEGMENT` out, `recvmmsg` and
/// `UDP_GRO` in). Never waits.
#[derive(Debug)]
pub struct UdpSocket {
    socket: socket2::Socket,
    state: UdpSocketState,
    fragmentation: Fragmentation,
    segments: AtomicBool,
    interface: u32,
}

impl UdpSocket {
    /// Opens a socket that others of this program may share an address with. Needs no privileges
    /// (ports below 1024 aside).
    ///
    /// # Errors
    /// The address is in use, or none of this host's.
    pub fn open(config: &Config) -> Result<Self, OpenError> {
        let socket = bind(config, WHAT, |_| Ok(()))?;
        Self::new(socket, config.interface, WHAT, Fragmentation::path_mtu)
    }

    /// Takes over a bound socket, whose packets routers (IPv4) or this host (IPv6) may then fragment.
    pub(crate) fn fragmented(
        socket: socket2::Socket,
        interface: u32,
        what: &'static str,
    ) -> Result<Self, OpenError> {
        Self::new(socket, interface, what, Fragmentation::allowed)
    }

    fn new(
        socket: socket2::Socket,
        interface: u32,
        what: &'static str,
        fragmentation: impl FnOnce(&socket2::Socket, IpAddr) -> std::io::Result<Fragmentation>,
    ) -> Result<Self, OpenError> {
        let error = OpenError::from(what, Capability::NetBindService);
        let version = match socket.local_addr().map_err(error)?.as_socket() {
            Some(address) => address.ip(),
            None => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        };
        // It has a setting of its own for fragments, which is replaced.
        let state = UdpSocketState::new((&socket).into()).map_err(error)?;
        let fragmentation = fragmentation(&socket, version).map_err(error)?;
        Ok(Self {
            socket,
            state,
            fragmentation,
            segments: AtomicBool::new(true),
            interface,
        })
    }

    pub(crate) fn socket(&self) -> &socket2::Socket {
        &self.socket
    }

    /// The bound address.
    ///
    /// # Errors
    /// The kernel's.
    pub fn local_address(&self) -> std::io::Result<SocketAddr> {
        let odd = || std::io::Error::other("neither IPv4 nor IPv6");
        self.socket.local_addr()?.as_socket().ok_or_else(odd)
    }

    /// Becomes a member.
    ///
    /// # Errors
    /// As [`JoinError`] says.
    pub fn join(&self, membership: &Membership) -> Result<(), JoinError> {
        membership.apply(&self.socket, true)
    }

    /// Ends a membership; closing the socket ends them all.
    ///
    /// # Errors
    /// It was no member.
    pub fn leave(&self, membership: &Membership) -> Result<(), JoinError> {
        membership.apply(&self.socket, false)
    }

    /// The class of service of what a [`SendQueue`] sends, 0 to 63 (RFC 2474);
    /// [`send`](Self::send) sets it to 0 for its datagrams.
    ///
    /// # Errors
    /// The kernel's: some classes take CAP_NET_ADMIN where the administrator says so.
    pub fn set_dscp(&self, dscp: u8) -> std::io::Result<()> {
        let (level, name) = match self.local_address()? {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
        };
        sys::set_int(&self.socket, level, name, i32::from(dscp & 63) << 2)
    }

    /// Most datagrams of equal length that one call hands to the kernel in one piece; 1 where
    /// the interface cannot segment, or this was switched off.
    pub fn max_segments(&self) -> usize {
        if self.segments.load(Ordering::Relaxed) {
            self.state.max_gso_segments().max(1)
        } else {
            1
        }
    }

    /// Sets whether the kernel gets several datagrams in one piece (the default) or one at a time: see
    /// [`batching`](crate::batching). [`UdpSocket::send`] takes the same [`Transmit`] either way.
    pub fn set_segmentation(&self, on: bool) {
        self.segments.store(on, Ordering::Relaxed);
    }

    /// Sends as many whole datagrams as fit and returns the number of bytes accepted.
    /// An error means that none were.
    ///
    /// # Errors
    /// As [`SendError`] says; [`SendError::TooBig`] for datagrams above the path's MTU.
    pub fn send(&self, transmit: &Transmit<'_>) -> Result<usize, SendError> {
        let whole = transmit.bytes.len();
        let Some(segment) = transmit.segment_len.filter(|segment| *segment < whole) else {
            return self.send_piece(transmit, transmit.bytes, None);
        };
        if segment == 0 {
            return Err(SendError::Malformed);
        }
        let mut taken = 0;
        while taken < whole {
            let rest = &transmit.bytes[taken..];
            let count = self.max_segments().min(MAX_PAYLOAD / segment);
            let sent = if count > 1 {
                let piece = &rest[..rest.len().min(count * segment)];
                match self.send_piece(transmit, piece, Some(segment)) {
                    // The interface cannot segment, which the socket state remembers; or datagrams of this length
                    // are to be fragmented, which the kernel does with single ones.
                    Err(SendError::Malformed | SendError::TooBig | SendError::Io(_))
                        if piece.len() > segment =>
                    {
                        self.send_one_by_one(transmit, piece, segment)
                    }
                    result => result,
                }
            } else {
                self.send_one_by_one(transmit, rest, segment)
            };
            match sent {
                Ok(sent) => taken += sent,
                Err(error) if taken == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(taken)
    }

    fn send_piece(
        &self,
        transmit: &Transmit<'_>,
        contents: &[u8],
        segment_size: Option<usize>,
    ) -> Result<usize, SendError> {
        self.prepare(transmit.destination)?;
        let transmit = quinn_udp::Transmit {
            destination: scoped(transmit.destination, self.interface),
            ecn: None,
            contents,
            segment_size,
            src_ip: transmit.source,
        };
        self.state
            .try_send((&self.socket).into(), &transmit)
            .map_err(SendError::classify)?;
        Ok(contents.len())
    }

    fn prepare(&self, destination: SocketAddr) -> Result<(), SendError> {
        let prepared = self.fragmentation.prepare(&self.socket, destination.ip());
        prepared.map_err(SendError::classify)
    }

    /// Up to a batch of datagrams with one `sendmmsg`.
    fn send_one_by_one(
        &self,
        transmit: &Transmit<'_>,
        bytes: &[u8],
        segment: usize,
    ) -> Result<usize, SendError> {
        self.prepare(transmit.destination)?;
        let mut control = Control::<40>::new();
        if let Some(source) = transmit.source {
            control.push_path(source, 0).ok_or(SendError::Malformed)?;
        }
        let mut messages = [Outgoing {
            address: to(transmit.destination, self.interface),
            control: (control.len() > 0).then_some(&control),
            bytes: &[],
        }; BATCH];
        let mut count = 0;
        for (message, piece) in messages.iter_mut().zip(bytes.chunks(segment)) {
            message.bytes = piece;
            count += 1;
        }
        let sent = send_batch(&self.socket, &messages[..count]).map_err(SendError::classify)?;
        Ok(messages[..sent].iter().map(|m| m.bytes.len()).sum())
    }

    /// Starts a queue: [`SendQueue::push`] borrows datagrams where they lie, for any destinations,
    /// and one system call sends up to 64 of them, or of the pieces of [`SendQueue::push_segments`].
    ///
    /// Its IPv4 datagrams are sent as unicast is: see "Path MTU" in the [module documentation](super).
    pub fn queue<'a>(&self) -> SendQueue<'_, 'a> {
        // The kernel refuses this setting to no socket that it granted it before.
        let unicast = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let _ = self.fragmentation.prepare(&self.socket, unicast);
        SendQueue::new(self)
    }

    pub(super) fn interface(&self) -> u32 {
        self.interface
    }

    /// Receives into `batch`, whose previous content is lost, and returns how many
    /// buffers were filled, 0 when nothing was there.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn receive(&self, batch: &mut Batch) -> Result<usize, ReceiveError> {
        let count = batch.metas.len();
        batch.filled = 0;
        let mut buffers = batch.bytes.chunks_exact_mut(Batch::BUFFER_BYTES);
        let mut slices: [IoSliceMut<'_>; Batch::MAX] =
            std::array::from_fn(|_| IoSliceMut::new(buffers.next().unwrap_or_default()));
        let slices = &mut slices[..count];
        match self
            .state
            .recv((&self.socket).into(), slices, &mut batch.metas)
        {
            Ok(filled) => batch.filled = filled.min(count),
            Err(error) => {
                if let Some(error) = ReceiveError::classify(error) {
                    return Err(error);
                }
            }
        }
        Ok(batch.filled)
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Batch {
    /// The datagrams of the last call, in order of arrival, of either version of IP.
    pub fn received(&self) -> impl Iterator<Item = Received<'_>> {
        self.joined().flat_map(|joined| {
            joined.each().map(move |payload| Received {
                source: joined.source,
                destination: joined.destination,
                interface: joined.interface,
                payload,
            })
        })
    }

    /// The datagrams of the last call as the kernel has joined them: those of one piece came from one sender, so that
    /// what depends on the sender alone is done once for all of them.
    pub fn joined(&self) -> impl Iterator<Item = Joined<'_>> {
        let buffers = self.bytes.chunks_exact(Self::BUFFER_BYTES);
        let filled = buffers.zip(&self.metas[..self.filled]);
        filled.map(|(buffer, meta)| {
            let none = match meta.addr {
                SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
            };
            Joined {
                source: meta.addr,
                destination: meta.dst_ip.unwrap_or(none),
                interface: meta.interface_index.unwrap_or(0),
                payloads: &buffer[..meta.len.min(buffer.len())],
                stride: meta.stride.max(1),
            }
        })
    }

    /// As [`joined`](Self::joined), to be edited where they lie.
    pub fn joined_mut(&mut self) -> impl Iterator<Item = JoinedMut<'_>> {
        let buffers = self.bytes.chunks_exact_mut(Self::BUFFER_BYTES);
        let filled = buffers.zip(&self.metas[..self.filled]);
        filled.map(|(buffer, meta)| {
            let len = meta.len.min(buffer.len());
            JoinedMut {
                source: meta.addr,
                payloads: &mut buffer[..len],
                stride: meta.stride.max(1),
            }
        })
    }

    /// The datagrams of the last call, in order of arrival, to be edited where they lie.
    pub fn received_mut(&mut self) -> impl Iterator<Item = ReceivedMut<'_>> {
        let buffers = self.bytes.chunks_exact_mut(Self::BUFFER_BYTES);
        let filled = buffers.zip(&self.metas[..self.filled]);
        filled.flat_map(|(buffer, meta)| {
            let len = meta.len.min(buffer.len());
            let payloads = buffer[..len].chunks_mut(meta.stride.max(1));
            payloads.map(move |payload| ReceivedMut {
                source: meta.addr,
                payload,
            })
        })
    }
}
