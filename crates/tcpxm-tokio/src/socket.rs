//! One socket of an endpoint: of UDP, or of IP with protocol 6.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use linux_net::inet::{self, Joined, Membership, SegmentBatch, SegmentSocket, UdpSocket};
use linux_net::udp::Batch;
use linux_net::{OpenError, ReceiveError};
use tcpxm::Carrier;

/// Batches received from one socket before the next one's turn.
const BATCHES: usize = 16;
/// Packets in a batch of TCP segments over IP.
const PACKETS: usize = 16;

/// A socket.
pub(crate) enum Socket {
    Udp(UdpSocket),
    Ip(SegmentSocket),
}

/// Buffers for incoming packets.
pub(crate) enum Room {
    Udp(Datagrams),
    Ip(SegmentBatch),
}

/// Buffers for datagrams: a few of 64 KiB where the kernel joins datagrams, many small ones where it does not.
pub(crate) struct Datagrams {
    joined: Batch,
    single: Batch,
    is_joined: bool,
}

/// Buffers of each kind; the few fit a processor's cache.
const JOINED: usize = 1;
const SINGLE: usize = Batch::MAX;
/// Longer buffers than this on average hold joined datagrams.
const JOINED_BYTES: usize = 4096;

impl Room {
    pub(crate) fn new(carrier: Carrier) -> Room {
        match carrier {
            Carrier::Udp => Room::Udp(Datagrams::new()),
            Carrier::Ip => Room::Ip(SegmentBatch::new(PACKETS)),
        }
    }
}

impl Datagrams {
    fn new() -> Datagrams {
        Datagrams {
            joined: Batch::new(JOINED),
            single: Batch::new(SINGLE),
            is_joined: true,
        }
    }

    /// Receives a batch; returns whether there may be more.
    fn receive(
        &mut self,
        socket: &UdpSocket,
        mut take: impl FnMut(Joined<'_>),
    ) -> Result<bool, ReceiveError> {
        let (batch, most) = if self.is_joined {
            (&mut self.joined, JOINED)
        } else {
            (&mut self.single, SINGLE)
        };
        let pieces = socket.receive(batch)?;
        let mut bytes = 0;
        batch.joined().for_each(|joined| {
            bytes += joined.payloads.len();
            take(joined);
        });
        let is_joined = bytes > pieces * JOINED_BYTES;
        // Single datagrams do not tell whether a stream is joined.
        if is_joined || pieces == most {
            self.is_joined = is_joined;
        }
        Ok(pieces == most)
    }
}

fn refused(error: OpenError) -> io::Error {
    let kind = match error {
        OpenError::AddressInUse { .. } => io::ErrorKind::AddrInUse,
        OpenError::Privilege { .. } => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error.to_string())
}

impl Socket {
    pub(crate) fn open(carrier: Carrier, config: &inet::Config) -> io::Result<Socket> {
        match carrier {
            Carrier::Udp => UdpSocket::open(config).map(Socket::Udp),
            Carrier::Ip => SegmentSocket::open(config).map(Socket::Ip),
        }
        .map_err(refused)
    }

    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        match self {
            Socket::Udp(socket) => socket.local_address(),
            Socket::Ip(socket) => Ok(socket.local_address()),
        }
    }

    pub(crate) fn change(&self, membership: &Membership, join: bool) -> io::Result<()> {
        match (self, join) {
            (Socket::Udp(socket), true) => socket.join(membership),
            (Socket::Udp(socket), false) => socket.leave(membership),
            (Socket::Ip(socket), true) => socket.join(membership),
            (Socket::Ip(socket), false) => socket.leave(membership),
        }
        .map_err(|error| io::Error::other(error.to_string()))
    }

    /// Receives a batch; returns whether there may be more.
    fn receive(
        &self,
        room: &mut Room,
        mut take: impl FnMut(Joined<'_>),
    ) -> Result<bool, ReceiveError> {
        match (self, room) {
            (Socket::Udp(socket), Room::Udp(datagrams)) => datagrams.receive(socket, take),
            (Socket::Ip(socket), Room::Ip(batch)) => {
                let packets = socket.receive(batch)?;
                // The kernel joins segments to one.
                batch.iter().for_each(|received| {
                    take(Joined {
                        source: received.source,
                        destination: received.destination,
                        interface: received.interface,
                        payloads: received.payload,
                        stride: received.payload.len(),
                    });
                });
                Ok(packets == PACKETS)
            }
            _ => Ok(false), // All are of one kind.
        }
    }
}

impl Socket {
    /// Receives batches until there is nothing for now, or `enough` bytes. Temporary errors are counted.
    ///
    /// # Errors
    /// The socket failed.
    pub(crate) fn drain(
        &self,
        room: &mut Room,
        taken: &mut Taken,
        enough: usize,
        mut take: impl FnMut(Joined<'_>),
    ) -> Result<(), ReceiveError> {
        for _ in 0..BATCHES {
            let more = self.receive(room, |joined| {
                taken.packets += 1;
                taken.bytes += joined.payloads.len();
                take(joined);
            });
            match more {
                Ok(true) if taken.bytes < enough => {}
                Ok(_) => break,
                Err(error) if error.is_lasting() => return Err(error),
                Err(_) => {
                    taken.errors += 1;
                    break;
                }
            }
        }
        Ok(())
    }
}

/// The result of receiving from all sockets.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    pub(crate) packets: usize,
    pub(crate) bytes: usize,
    /// Temporary errors.
    pub(crate) errors: u64,
    /// More has arrived than was to be received.
    pub(crate) has_more: bool,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Udp(socket) => socket.as_fd(),
            Socket::Ip(socket) => socket.as_fd(),
        }
    }
}
