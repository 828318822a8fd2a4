//! Datagrams out of and into a data node's socket.

use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use linux_net::inet::{Transmit, UdpSocket};
use linux_net::packet::Sent;
use linux_net::udp::Batch;

/// Bytes gathered before they are sent.
const GATHERED: usize = 1 << 18;

/// A socket, and datagrams that will be sent with one system call.
#[derive(Debug)]
pub(crate) struct Datagrams {
    socket: UdpSocket,
    bytes: Vec<u8>,
    pieces: Vec<(SocketAddr, Range<usize>)>,
    pub(crate) counts: Traffic,
}

/// Datagrams and bytes through a socket.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) received: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent: u64,
    /// No room in the socket's buffer, no route, or too long for the path.
    pub(crate) send_failed: u64,
    pub(crate) receive_failed: u64,
}

impl Datagrams {
    pub(crate) fn new(socket: UdpSocket) -> Self {
        Datagrams {
            socket,
            bytes: Vec::with_capacity(GATHERED),
            pieces: Vec::new(),
            counts: Traffic::default(),
        }
    }

    /// Receives a batch; returns false if nothing has arrived.
    pub(crate) fn receive(&mut self, batch: &mut Batch) -> bool {
        match self.socket.receive(batch) {
            Ok(count) => count > 0,
            Err(_) => {
                self.counts.receive_failed += 1;
                false
            }
        }
    }

    pub(crate) fn count(&mut self, bytes: usize) {
        self.counts.received += 1;
        self.counts.received_bytes += bytes as u64;
    }

    /// Gathers a datagram: its frame's header is written over for the next copy.
    pub(crate) fn push(&mut self, to: SocketAddr, datagram: &[u8]) {
        if self.bytes.len() + datagram.len() > GATHERED {
            self.flush();
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(datagram);
        self.pieces.push((to, start..self.bytes.len()));
    }

    /// Sends the gathered datagrams: rows of datagrams of one length to one receiver in one piece
    /// (`UDP_SEGMENT`), others up to 64 with one `sendmmsg`.
    pub(crate) fn flush(&mut self) {
        if self.pieces.is_empty() {
            return;
        }
        let mut rest = &self.pieces[..];
        let mut queue = self.socket.queue();
        let mut waits = false;
        while let Some((to, first)) = rest.first() {
            let row = row(rest);
            if row < 2 {
                queue.push(*to, &self.bytes[first.clone()]);
                waits = true;
                rest = &rest[1..];
                continue;
            }
            if waits {
                // Datagrams gathered before leave first.
                count(&mut self.counts, queue.flush());
                queue = self.socket.queue();
                waits = false;
            }
            let bytes = &self.bytes[first.start..rest[row - 1].1.end];
            let transmit = Transmit {
                source: None,
                destination: *to,
                bytes,
                segment_len: Some(first.len()),
            };
            let taken = self
                .socket
                .send(&transmit)
                .unwrap_or(0)
                .div_ceil(first.len());
            self.counts.sent += taken.min(row) as u64;
            self.counts.send_failed += row.saturating_sub(taken) as u64;
            rest = &rest[row..];
        }
        count(&mut self.counts, queue.flush());
        self.pieces.clear();
        self.bytes.clear();
    }
}

fn count(counts: &mut Traffic, sent: Sent) {
    counts.sent += sent.sent;
    counts.send_failed += sent.failed;
}

/// Returns how many datagrams from the first on have one length and one receiver; the last may be shorter.
fn row(pieces: &[(SocketAddr, Range<usize>)]) -> usize {
    let Some((to, first)) = pieces.first() else {
        return 0;
    };
    let same = pieces
        .iter()
        .take_while(|(other, range)| other == to && range.len() == first.len())
        .count();
    let shorter = pieces
        .get(same)
        .is_some_and(|(other, range)| other == to && range.len() < first.len());
    same + usize::from(shorter)
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_end_where_the_receiver_or_the_length_changes() {
        let to = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let pieces = |all: &[(u16, usize)]| -> Vec<_> {
            let mut at = 0;
            let piece = |(port, len): &(u16, usize)| {
                at += len;
                (to(*port), at - len..at)
            };
            all.iter().map(piece).collect()
        };
        assert_eq!(row(&pieces(&[])), 0);
        assert_eq!(row(&pieces(&[(1, 9), (1, 9), (2, 9)])), 2);
        assert_eq!(row(&pieces(&[(1, 9), (1, 9), (1, 4), (1, 4)])), 3);
        assert_eq!(row(&pieces(&[(1, 4), (1, 9)])), 1);
        assert_eq!(row(&pieces(&[(1, 0), (1, 0)])), 2);
    }
}
