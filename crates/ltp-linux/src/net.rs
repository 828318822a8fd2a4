//! The sockets of a transfer.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use linux_net::SendError;
use linux_net::poll::Watch;
use linux_net::udp::{self, Batch, GroupSocket, Membership, Options};
use ltp::{Destination, Instant, Meta, Transmit};

use crate::interface::Local;
use crate::lms::{Lms, Requests};
use crate::{Error, ReceiveConfig, Recovery, SendConfig};

/// Size of a receiver's buffer: more than a sender's window (24 MiB), with the kernel's overhead.
const BUFFER_BYTES: usize = 32 << 20;
/// Bytes handed to the kernel at once; a UDP datagram before segmentation is no longer.
const BATCH_BYTES: usize = 65_000;
/// Pieces taken at once where little comes.
const SMALL_BATCH: usize = 4;
/// Batches taken in a row.
const ROUNDS: usize = 8;
/// Pieces taken at once where the kernel joins packets to pieces of up to 64 KiB: few enough to
/// stay in the cache until they are gathered.
const LARGE_PIECES: usize = 2;
/// From this average on pieces count as large, bytes.
const LARGE: usize = 8 << 10;

/// The socket of bulk data, which adapts its batches to the kernel's.
struct Bulk {
    socket: GroupSocket,
    /// For single packets: many, to save system calls.
    batch: Batch,
    large_batch: Batch,
    is_large: bool,
}

impl Bulk {
    fn new(socket: GroupSocket) -> Result<Bulk, Error> {
        let granted = socket
            .receive_buffer_bytes()
            .map_err(Error::io("the receive buffer's size"))?;
        if granted < BUFFER_BYTES {
            tracing::info!(
                event = "receive_buffer_small",
                granted,
                "a small receive buffer: raise net.core.rmem_max to {BUFFER_BYTES} for high rates"
            );
        }
        Ok(Bulk {
            socket,
            batch: Batch::new(Batch::MAX),
            large_batch: Batch::new(LARGE_PIECES),
            is_large: false,
        })
    }

    /// Takes one batch. Returns how many pieces came.
    fn receive(
        &mut self,
        meta: fn(SocketAddr) -> Meta,
        take: &mut impl FnMut(&Meta, &[u8]),
    ) -> Result<usize, Error> {
        let batch = if self.is_large {
            &mut self.large_batch
        } else {
            &mut self.batch
        };
        let pieces = self.socket.receive(batch)?;
        let mut bytes = 0;
        for piece in batch.joined() {
            let meta = meta(piece.source);
            for payload in piece.each() {
                bytes += payload.len();
                take(&meta, payload);
            }
        }
        if let Some(average) = bytes.checked_div(pieces) {
            self.is_large = average >= LARGE;
        }
        Ok(pieces)
    }
}

/// What happens to packets that the kernel does not take.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unsent {
    /// They wait: a source sends them later, and ends when they are too long for the interface.
    Wait,
    /// They are dropped: a receiver repeats its requests.
    Drop,
}

/// The sockets. A sender has one socket of its own; a receiver one for the group's data and one of its own; a
/// receiver below a relay one for both.
pub(crate) struct Net {
    bulk: Option<Bulk>,
    /// For packets to this host; packets are sent from it too.
    own: Option<(GroupSocket, Batch)>,
    /// Requests to the group, at a sender with LMS.
    requests: Option<Requests>,
    /// The endpoint of a receiver with LMS.
    pub(crate) lms: Option<Box<dyn Lms>>,
    group: SocketAddr,
    buffer: Box<[u8]>,
    unsent: Unsent,
    /// A batch that did not fit the kernel's buffer: from `.1` on.
    waiting: Option<(Transmit, usize)>,
    /// Packets that the network refused for good.
    refused: u64,
}

impl Net {
    fn new(group: SocketAddr, unsent: Unsent) -> Net {
        Net {
            bulk: None,
            own: None,
            requests: None,
            lms: None,
            group,
            buffer: vec![0; BATCH_BYTES].into(),
            unsent,
            waiting: None,
            refused: 0,
        }
    }

    /// Opens the sockets of a sender.
    pub(crate) fn sender(given: &SendConfig, local: &Local) -> Result<Net, Error> {
        let group = given.group.address;
        let interface = local.interface.index;
        // The kernel chooses a random port, so that a host that has not received from the sender cannot guess it.
        let bind = SocketAddr::new(local.address, 0);
        let config = udp::Config {
            interface,
            ttl: given.group.ttl,
            // Receivers on this host get packets too.
            loopback: true,
            receive_buffer_bytes: 4 << 20,
            send_buffer_bytes: 2 << 20,
            ..udp::Config::new(bind)
        };
        let own = GroupSocket::open(&config)?;
        own.set_segmentation(given.segmentation);
        let mut net = Net::new(group, Unsent::Wait);
        net.own = Some((own, Batch::new(SMALL_BATCH)));
        if let Recovery::Lms { port, .. } = given.recovery {
            net.requests = Some(Requests::open(given, local, port)?);
        }
        Ok(net)
    }

    /// Opens the sockets of a receiver.
    pub(crate) fn receiver(
        given: &ReceiveConfig,
        local: &Local,
        lms: Option<Box<dyn Lms>>,
    ) -> Result<Net, Error> {
        let group = given.group.address;
        let interface = local.interface.index;
        let bulk = GroupSocket::open(&udp::Config {
            interface,
            receive_buffer_bytes: BUFFER_BYTES,
            send_buffer_bytes: 1 << 16,
            // Requests of other receivers; those for this host come by another socket.
            options: Options::Refuse,
            ..udp::Config::new(group)
        })?;
        let joined = bulk.join(&Membership {
            group: group.ip(),
            source: given.source,
            interface,
        });
        joined.map_err(Error::join("joining the group"))?;
        let own = GroupSocket::open(&udp::Config {
            interface,
            ttl: given.group.ttl,
            receive_buffer_bytes: BUFFER_BYTES / 8,
            send_buffer_bytes: 1 << 20,
            ..udp::Config::new(SocketAddr::new(local.address, 0))
        })?;
        let mut net = Net::new(group, Unsent::Drop);
        net.bulk = Some(Bulk::new(bulk)?);
        net.own = Some((own, Batch::new(SMALL_BATCH)));
        net.lms = lms;
        Ok(net)
    }

    /// Opens the one socket of a receiver below a relay.
    pub(crate) fn relayed_receiver(given: &ReceiveConfig, local: &Local) -> Result<Net, Error> {
        let bulk = GroupSocket::open(&udp::Config {
            interface: local.interface.index,
            receive_buffer_bytes: BUFFER_BYTES,
            send_buffer_bytes: 1 << 20,
            options: Options::Refuse,
            ..udp::Config::new(SocketAddr::new(local.address, 0))
        })?;
        let mut net = Net::new(given.group.address, Unsent::Drop);
        net.bulk = Some(Bulk::new(bulk)?);
        Ok(net)
    }

    /// Takes what has arrived, a few batches at most. Returns how many pieces of bulk data came.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        mut take: impl FnMut(&Meta, &[u8]),
    ) -> Result<usize, Error> {
        let mut pieces = 0;
        if let Some(bulk) = &mut self.bulk {
            let is_group = self.own.is_some();
            let meta = if is_group { Meta::group } else { Meta::unicast };
            pieces = bulk.receive(meta, &mut take)?;
        }
        if let Some((own, batch)) = &mut self.own {
            for _ in 0..ROUNDS {
                if own.receive(batch)? == 0 {
                    break;
                }
                for datagram in batch.received() {
                    take(&Meta::unicast(datagram.source), datagram.payload);
                }
            }
        }
        if let Some(requests) = &mut self.requests {
            requests.receive(&mut take)?;
        }
        if let Some(lms) = &mut self.lms {
            lms.receive(now, &mut take);
        }
        Ok(pieces)
    }

    /// Whether the last packets did not fit the kernel's buffer.
    pub(crate) fn is_blocked(&self) -> bool {
        self.waiting.is_some()
    }

    /// Sends one batch that `next` writes. Returns false when it has none, or the kernel's buffer is full.
    pub(crate) fn send(
        &mut self,
        next: impl FnOnce(&mut [u8]) -> Option<Transmit>,
    ) -> Result<bool, Error> {
        let (transmit, mut from) = match self.waiting.take() {
            Some(waiting) => waiting,
            None => match next(&mut self.buffer) {
                Some(transmit) => (transmit, 0),
                None => return Ok(false),
            },
        };
        let sent = match transmit.destination {
            Destination::Unicast(to) => self.send_from(to, &transmit, &mut from),
            Destination::Group => self.send_from(self.group, &transmit, &mut from),
            Destination::Request(_) | Destination::Dmcast(_) => {
                self.send_by_routers(transmit.destination, transmit.len)
            }
            Destination::Relay => Ok(()),
        };
        match sent {
            Ok(()) => {}
            Err(error) if self.unsent == Unsent::Drop => {
                tracing::debug!(%error, destination = ?transmit.destination, "not sent");
            }
            Err(SendError::WouldBlock) => {
                self.waiting = Some((transmit, from));
                return Ok(false);
            }
            Err(error @ SendError::TooBig) => return Err(Error::PacketTooBig(error)),
            // A receiver that vanished, or a route that flaps: repairs follow.
            Err(error) => {
                if self.refused == 0 {
                    let peer = transmit.destination;
                    tracing::warn!(event = "send_refused", %error, ?peer, "packets are refused");
                }
                self.refused += 1;
            }
        }
        Ok(true)
    }

    /// Sends what takes LMS routers; without them there is none.
    fn send_by_routers(&mut self, to: Destination, len: usize) -> Result<(), SendError> {
        let bytes = &self.buffer[..len];
        let (Some(lms), Some((own, _))) = (&mut self.lms, &self.own) else {
            return Ok(());
        };
        match to {
            Destination::Request(option) => lms.send_request(&option, bytes, own),
            Destination::Dmcast(to) => lms.send_repair(to, bytes),
            Destination::Unicast(_) | Destination::Group | Destination::Relay => Ok(()),
        }
    }

    /// Sends the bytes of the buffer from `from` on, and moves `from` past those that were sent.
    fn send_from(
        &self,
        destination: SocketAddr,
        transmit: &Transmit,
        from: &mut usize,
    ) -> Result<(), SendError> {
        while *from < transmit.len {
            let piece = udp::Transmit {
                destination,
                bytes: &self.buffer[*from..transmit.len],
                segment_len: transmit.segment_len,
            };
            *from += self.sending().send(&piece)?;
        }
        Ok(())
    }

    /// The socket that packets are sent from.
    pub(crate) fn sending(&self) -> &GroupSocket {
        let own = self.own.as_ref().map(|(own, _)| own);
        let bulk = self.bulk.as_ref().map(|bulk| &bulk.socket);
        own.or(bulk).expect("a transfer has a socket")
    }

    /// Returns what to wait for.
    pub(crate) fn watches(&self) -> Vec<Watch<'_>> {
        let mut watches = vec![match self.is_blocked() {
            true => Watch::both(self.sending().as_fd()),
            false => Watch::readable(self.sending().as_fd()),
        }];
        let bulk = self.bulk.as_ref().map(|bulk| bulk.socket.as_fd());
        let requests = self.requests.iter().flat_map(Requests::fds);
        let lms = self.lms.iter().flat_map(|lms| lms.fds());
        let others = bulk.into_iter().chain(requests).chain(lms);
        watches.extend(others.map(|fd: BorrowedFd<'_>| Watch::readable(fd)));
        watches
    }

    /// Returns how many packets of bulk data the kernel dropped.
    pub(crate) fn dropped(&self) -> u32 {
        let bulk = self.bulk.as_ref();
        bulk.map_or(0, |bulk| bulk.socket.dropped().unwrap_or(0))
    }
}
