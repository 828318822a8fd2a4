use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd};

use quinn_udp::RecvMeta;

use super::{Config, Membership, open};
use crate::error::{JoinError, OpenError, ReceiveError, SendError};
use crate::inet::{self, UdpSocket};
use crate::poll::{self, Watch};
use crate::sys;

/// A UDP socket for bulk data to and from groups: many packets a system call each way
/// (`UDP_SEGMENT` out, `recvmmsg` and `UDP_GRO` in).
///
/// Never waits, except in [`send_all`](Self::send_all): use [`poll`](crate::poll) on its
/// descriptor. Packets are no longer than the interface takes, and routers may fragment them: nothing
/// reports datagrams above the MTU of a group's path.
///
/// ```
/// use std::os::fd::AsFd;
/// use linux_net::poll::{self, Watch};
/// use linux_net::udp::{Batch, Config, GroupSocket, Transmit};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let bind = "127.0.0.1:0".parse()?;
/// let receiver = GroupSocket::open(&Config { bind, ..Config::default() })?;
/// let sender = GroupSocket::open(&Config::default())?;
/// sender.send_all(&Transmit {
///     destination: receiver.local_address()?,
///     bytes: b"hello, world",
///     segment_len: Some(7),
/// })?;
///
/// poll::wait(&mut [Watch::readable(receiver.as_fd())], None)?;
/// let mut batch = Batch::new(8);
/// receiver.receive(&mut batch)?;
/// let payloads: Vec<_> = batch.iter().map(|datagram| datagram.payload).collect();
/// assert_eq!(payloads, [&b"hello, "[..], b"world"]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct GroupSocket(UdpSocket);

/// What to send: one datagram, or several of equal length (the last may be shorter) in a row.
#[derive(Clone, Copy, Debug)]
pub struct Transmit<'a, S = SocketAddrV4> {
    /// Destination.
    pub destination: S,
    /// Payload of one datagram, or of several in a row.
    pub bytes: &'a [u8],
    /// Payload length of each datagram; `None`: `bytes` is one.
    pub segment_len: Option<usize>,
}

impl GroupSocket {
    /// Opens a socket. Needs no privileges (ports below 1024 aside).
    ///
    /// # Errors
    /// [`OpenError`]: the address is in use or not one of this host, there is no such interface, or the kernel refuses.
    pub fn open<S: Copy + Into<SocketAddr>>(config: &Config<S>) -> Result<Self, OpenError> {
        let what = "UDP socket for group data";
        let socket = open(config, what, None)?;
        UdpSocket::fragmented(socket, config.interface, what).map(Self)
    }

    /// Joins a group: the kernel reports it to the routers by IGMP or MLD.
    ///
    /// # Errors
    /// [`JoinError`]: there is no such interface or group, the socket is a member already, or has too many memberships.
    pub fn join<A: Copy + Into<IpAddr>>(
        &self,
        membership: &Membership<A>,
    ) -> Result<(), JoinError> {
        membership.apply(self.0.socket(), true)
    }

    /// Ends a membership; closing the socket ends them all.
    ///
    /// # Errors
    /// [`JoinError`]: the socket is not a member.
    pub fn leave<A: Copy + Into<IpAddr>>(
        &self,
        membership: &Membership<A>,
    ) -> Result<(), JoinError> {
        membership.apply(self.0.socket(), false)
    }

    /// The bound address.
    ///
    /// # Errors
    /// The kernel's error when the address cannot be read.
    pub fn local_address(&self) -> std::io::Result<SocketAddr> {
        self.0.local_address()
    }

    /// Receive buffer the kernel granted, bytes (it counts its own overhead in: about half of
    /// it holds payload).
    ///
    /// # Errors
    /// The kernel's error when the option cannot be read.
    pub fn receive_buffer_bytes(&self) -> std::io::Result<usize> {
        self.0.socket().recv_buffer_size()
    }

    /// Datagrams the kernel dropped here since the socket was opened, most of them because the
    /// receive buffer was full.
    ///
    /// # Errors
    /// The kernel's error when the counter cannot be read.
    pub fn dropped(&self) -> std::io::Result<u32> {
        const SO_MEMINFO: libc::c_int = 55;
        const SK_MEMINFO_DROPS: usize = 8;
        let info: [u32; 9] = sys::get_option(self.0.socket(), libc::SOL_SOCKET, SO_MEMINFO)?;
        Ok(info[SK_MEMINFO_DROPS])
    }

    /// Most datagrams of equal length that one call hands to the kernel in one piece; 1 where
    /// the interface cannot segment, or this was switched off.
    pub fn max_segments(&self) -> usize {
        self.0.max_segments()
    }

    /// Sets whether the kernel gets several datagrams in one piece (the default) or one at a time: see
    /// [`batching`](crate::batching). [`GroupSocket::send`] takes the same [`Transmit`] either way.
    pub fn set_segmentation(&self, on: bool) {
        self.0.set_segmentation(on);
    }

    /// Sends as many whole datagrams as fit and returns the number of bytes accepted.
    /// An error means that none were.
    ///
    /// # Errors
    /// [`SendError`]: there is no room, no route, or a datagram is too long.
    pub fn send<S: Copy + Into<SocketAddr>>(
        &self,
        transmit: &Transmit<'_, S>,
    ) -> Result<usize, SendError> {
        self.0.send(&inet::Transmit {
            source: None,
            destination: transmit.destination.into(),
            bytes: transmit.bytes,
            segment_len: transmit.segment_len,
        })
    }

    /// Sends everything, and waits while the socket's buffer is full.
    ///
    /// # Errors
    /// As [`GroupSocket::send`], except that it waits while the socket's buffer is full.
    pub fn send_all<S: Copy + Into<SocketAddr>>(
        &self,
        transmit: &Transmit<'_, S>,
    ) -> Result<(), SendError> {
        let mut rest = *transmit;
        loop {
            match self.send(&rest) {
                Ok(taken) => rest.bytes = &rest.bytes[taken..],
                Err(SendError::WouldBlock) => {
                    poll::wait(&mut [Watch::writable(self.as_fd())], None)
                        .map_err(SendError::Io)?;
                    continue;
                }
                Err(error) => return Err(error),
            }
            if rest.bytes.is_empty() {
                return Ok(());
            }
        }
    }

    /// Receives into `batch`, whose previous content is lost, and returns the number of
    /// buffers filled, 0 when nothing has arrived.
    ///
    /// # Errors
    /// [`ReceiveError`] when the interface is down or the socket fails.
    pub fn receive(&self, batch: &mut Batch) -> Result<usize, ReceiveError> {
        self.0.receive(batch)
    }
}

impl AsFd for GroupSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Buffers for [`GroupSocket::receive`] and [`UdpSocket::receive`]: 64 KiB each, since the kernel may hand over up to 64
/// datagrams of one sender in one piece.
#[derive(Debug)]
pub struct Batch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) metas: Vec<RecvMeta>,
    pub(crate) filled: usize,
}

/// One datagram received by IPv4.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Sender.
    pub source: SocketAddrV4,
    /// The group, or this host's address.
    pub destination: Ipv4Addr,
    /// Interface it arrived on, by index.
    pub interface: u32,
    /// What it carries.
    pub payload: &'a [u8],
}

impl Batch {
    /// Most buffers that one call can fill.
    pub const MAX: usize = quinn_udp::BATCH_SIZE;
    pub(crate) const BUFFER_BYTES: usize = 1 << 16;

    /// Room for `buffers` pieces, 1 to [`MAX`](Self::MAX), 64 KiB each.
    pub fn new(buffers: usize) -> Self {
        let count = buffers.clamp(1, Self::MAX);
        Self {
            bytes: vec![0; count * Self::BUFFER_BYTES],
            metas: vec![RecvMeta::default(); count],
            filled: 0,
        }
    }

    /// The datagrams of the last call that came by IPv4, in order of arrival; [`received`](Self::received) has those of
    /// both versions.
    pub fn iter(&self) -> impl Iterator<Item = Datagram<'_>> {
        self.received().filter_map(|received| {
            let (SocketAddr::V4(source), IpAddr::V4(destination)) =
                (received.source, received.destination)
            else {
                return None;
            };
            Some(Datagram {
                source,
                destination,
                interface: received.interface,
                payload: received.payload,
            })
        })
    }
}
