use std::net::SocketAddr;

use super::udp::MAX_PAYLOAD;
use super::{UdpSocket, to};
use crate::packet::Sent;
use crate::sys::message::{BATCH, Control, Outgoing, SocketAddress, send_batch};

/// Datagrams for several destinations, on the stack; see [`UdpSocket::queue`].
#[derive(Debug)]
pub struct SendQueue<'s, 'a> {
    socket: &'s UdpSocket,
    pieces: [Piece<'a>; BATCH],
    len: usize,
    /// A queued piece has several datagrams.
    segments: bool,
    sent: Sent,
}

/// What one message of `sendmmsg` carries: datagrams of `segment` bytes each, but perhaps the last.
#[derive(Clone, Copy, Debug)]
struct Piece<'a> {
    address: SocketAddress,
    bytes: &'a [u8],
    segment: usize,
}

impl Piece<'_> {
    fn datagrams(&self) -> u64 {
        self.bytes.len().div_ceil(self.segment).max(1) as u64
    }
}

impl<'s, 'a> SendQueue<'s, 'a> {
    pub(super) fn new(socket: &'s UdpSocket) -> Self {
        let idle = Piece {
            address: to(SocketAddr::from(([0; 4], 0)), 0),
            bytes: &[],
            segment: 1,
        };
        SendQueue {
            socket,
            pieces: [idle; BATCH],
            len: 0,
            segments: false,
            sent: Sent::default(),
        }
    }

    /// Queues a datagram; a full queue is sent first.
    pub fn push(&mut self, destination: SocketAddr, bytes: &'a [u8]) {
        self.insert(destination, bytes, bytes.len().max(1));
    }

    /// Queues datagrams of `segment` bytes each, but perhaps the last, that lie one after the other. The kernel gets
    /// them in as few pieces as it takes (`UDP_SEGMENT`), and one at a time where the interface cannot segment or
    /// [`UdpSocket::set_segmentation`] says so.
    pub fn push_segments(&mut self, destination: SocketAddr, bytes: &'a [u8], segment: usize) {
        let segment = segment.max(1);
        if bytes.len() <= segment {
            return self.push(destination, bytes);
        }
        let count = self.socket.max_segments().min(MAX_PAYLOAD / segment).max(1);
        for piece in bytes.chunks(count * segment) {
            self.insert(destination, piece, segment);
        }
    }

    fn insert(&mut self, destination: SocketAddr, bytes: &'a [u8], segment: usize) {
        if self.len == BATCH {
            self.send();
        }
        self.segments |= bytes.len() > segment;
        self.pieces[self.len] = Piece {
            address: to(destination, self.socket.interface()),
            bytes,
            segment,
        };
        self.len += 1;
    }

    /// Sends the queue and returns the outcome of every queued datagram: no room in the socket's
    /// buffer, no route, or too long for the path counts as failed.
    pub fn flush(mut self) -> Sent {
        self.send();
        self.sent
    }

    fn send(&mut self) {
        let (queued, segments) = (self.len, self.segments);
        (self.len, self.segments) = (0, false);
        let mut rest = &self.pieces[..queued];
        while let Some(first) = rest.first() {
            let done = match self.socket.send_pieces(rest, segments) {
                Ok(done) => done.max(1),
                // An error is that of the first: the others may have another way.
                Err(error) => {
                    let sent = self.socket.send_alone(first, &error);
                    self.sent.sent += sent;
                    self.sent.failed += first.datagrams() - sent;
                    rest = &rest[1..];
                    continue;
                }
            };
            let (taken, left) = rest.split_at(done.min(rest.len()));
            self.sent.sent += taken.iter().map(Piece::datagrams).sum::<u64>();
            rest = left;
        }
    }
}

impl UdpSocket {
    /// Sends up to a batch of pieces with one `sendmmsg`; returns how many were accepted.
    fn send_pieces(&self, pieces: &[Piece<'_>], segments: bool) -> std::io::Result<usize> {
        let mut messages = [Outgoing {
            address: to(SocketAddr::from(([0; 4], 0)), 0),
            control: None,
            bytes: &[],
        }; BATCH];
        for (message, piece) in messages.iter_mut().zip(pieces) {
            (message.address, message.bytes) = (piece.address, piece.bytes);
        }
        let messages = &mut messages[..pieces.len()];
        if !segments {
            return send_batch(self.socket(), messages);
        }
        let mut controls = [Control::<40>::new(); BATCH];
        for ((message, piece), control) in messages.iter_mut().zip(pieces).zip(&mut controls) {
            if piece.bytes.len() > piece.segment {
                let segment = (piece.segment as u16).to_ne_bytes();
                let pushed = control.push(libc::SOL_UDP, libc::UDP_SEGMENT, &segment);
                message.control = pushed.map(|()| &*control);
            }
        }
        send_batch(self.socket(), messages)
    }

    /// Sends the datagrams of a piece that the kernel refused one at a time, if others may pass; returns how many it
    /// accepted.
    fn send_alone(&self, piece: &Piece<'_>, error: &std::io::Error) -> u64 {
        match error.raw_os_error() {
            // The interface computes no checksums: it can never segment.
            Some(libc::EIO) => self.set_segmentation(false),
            // Datagrams of this length need fragments, which the kernel makes of single ones.
            Some(libc::EINVAL | libc::EMSGSIZE) => {}
            _ => return 0,
        }
        if piece.bytes.len() <= piece.segment {
            return 0;
        }
        let one = |bytes: &&[u8]| {
            let single = Piece { bytes, ..*piece };
            self.send_pieces(&[single], false).is_ok()
        };
        piece.bytes.chunks(piece.segment).filter(one).count() as u64
    }
}
