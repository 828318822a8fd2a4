use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::error::{Capability, OpenError};
use crate::sys;
use crate::sys::message::{BATCH, Outgoing, send_batch};

/// Puts IPv4 and IPv6 packets on links as they are (`AF_PACKET`): the caller says the interface and the
/// Ethernet address. The kernel neither routes, filters, fragments nor checks them, but they keep to the
/// queueing discipline of the interface, as all that it sends: its rate, its classes and its queue.
#[derive(Debug)]
pub struct Sender {
    socket: OwnedFd,
}

/// What became of queued packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Handed to the interface.
    pub sent: u64,
    /// Not sent: the interface is down or gone, its queueing discipline has no room, or the packet is
    /// larger than its MTU.
    pub failed: u64,
}

impl Sender {
    /// Opens a sender. Needs CAP_NET_RAW.
    ///
    /// # Errors
    /// [`OpenError`]: CAP_NET_RAW is missing, or the kernel refuses the socket.
    pub fn open() -> Result<Self, OpenError> {
        let error = OpenError::from("packet sender", Capability::NetRaw);
        // Protocol 0: receives nothing.
        let socket = sys::socket(libc::AF_PACKET, libc::SOCK_DGRAM, 0).map_err(error)?;
        // Room for bursts in drivers that hold on to packets until they are on the wire.
        sys::buffer_size(&socket, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, 4 << 20);
        Ok(Self { socket })
    }

    /// Starts a batch: [`SendBatch::queue`] borrows packets where they lie, and
    /// [`SendBatch::flush`] sends them with one system call.
    pub fn batch<'a>(&self) -> SendBatch<'_, 'a> {
        let idle = Outgoing {
            address: sys::link_address(0, 0, [0; 6]),
            control: None,
            bytes: &[],
        };
        SendBatch {
            sender: self,
            queue: [idle; BATCH],
            len: 0,
            sent: Sent::default(),
        }
    }

    /// Sends one packet now.
    pub fn send(&self, interface: u32, link: [u8; 6], packet: &[u8]) -> Sent {
        let mut batch = self.batch();
        batch.queue(interface, link, packet);
        batch.flush()
    }
}

impl AsFd for Sender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Packets waiting to be sent; they stay borrowed until the flush. A batch that is dropped
/// without one sends nothing that is still queued.
#[must_use = "queued packets leave with flush()"]
#[derive(Debug)]
pub struct SendBatch<'s, 'a> {
    sender: &'s Sender,
    queue: [Outgoing<'a, libc::sockaddr_ll>; BATCH],
    /// Packets queued; at most `BATCH`.
    len: usize,
    sent: Sent,
}

impl<'a> SendBatch<'_, 'a> {
    /// Queues a packet for an interface and an Ethernet address (a neighbour's, or
    /// [`group_link_address`](super::group_link_address)). Sends the queue first when it is
    /// full.
    pub fn queue(&mut self, interface: u32, link: [u8; 6], packet: &'a [u8]) {
        if self.len == BATCH {
            self.send_queue();
        }
        let ethertype = match packet.first().map(|first| first >> 4) {
            Some(6) => libc::ETH_P_IPV6,
            _ => libc::ETH_P_IP,
        };
        let address = sys::link_address(ethertype as u16, interface, link);
        self.queue[self.len] = Outgoing {
            address,
            control: None,
            bytes: packet,
        };
        self.len += 1;
    }

    /// Sends the queue and returns the outcome of everything queued in this batch.
    pub fn flush(mut self) -> Sent {
        self.send_queue();
        self.sent
    }

    fn send_queue(&mut self) {
        let mut done = 0;
        while done < self.len {
            match send_batch(&self.sender.socket, &self.queue[done..self.len]) {
                Ok(sent) if sent > 0 => {
                    done += sent;
                    self.sent.sent += sent as u64;
                }
                // The first of the rest cannot be sent: leave it out.
                _ => {
                    done += 1;
                    self.sent.failed += 1;
                }
            }
        }
        self.len = 0;
    }
}
