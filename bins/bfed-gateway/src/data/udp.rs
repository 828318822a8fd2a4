//! Datagrams out of and into a data node's socket.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use linux_net::inet::UdpSocket;
use linux_net::udp::Batch;

/// Bytes gathered before they are sent.
const GATHERED: usize = 1 << 18;
/// Buffers that are kept for the next datagrams.
const SPARE: usize = 16;

/// A socket, and datagrams that will be sent with one system call.
#[derive(Debug)]
pub(crate) struct Datagrams {
    socket: UdpSocket,
    /// Gathered datagrams by receiver, in the order of their first datagrams.
    rows: Vec<Row>,
    places: BTreeMap<SocketAddr, usize>,
    /// Bytes in all rows.
    bytes: usize,
    spare: Vec<Row>,
    pub(crate) counts: Traffic,
}

/// Datagrams for one receiver, one after the other.
#[derive(Debug)]
struct Row {
    to: SocketAddr,
    bytes: Vec<u8>,
    lens: Vec<usize>,
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
            rows: Vec::new(),
            places: BTreeMap::new(),
            bytes: 0,
            spare: Vec::new(),
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

    /// Gathers a datagram: its frame's header is overwritten for the next copy.
    pub(crate) fn push(&mut self, to: SocketAddr, datagram: &[u8]) {
        if self.bytes + datagram.len() > GATHERED {
            self.flush();
        }
        let rows = &mut self.rows;
        let at = *self.places.entry(to).or_insert_with(|| {
            let (bytes, lens) = (Vec::new(), Vec::new());
            let spare = self.spare.pop().unwrap_or(Row { to, bytes, lens });
            rows.push(Row { to, ..spare });
            rows.len() - 1
        });
        let row = &mut self.rows[at];
        row.bytes.extend_from_slice(datagram);
        row.lens.push(datagram.len());
        self.bytes += datagram.len();
    }

    /// Sends the gathered datagrams, up to 64 pieces with one `sendmmsg`: datagrams of one length in a row to one
    /// receiver are one piece (`UDP_SEGMENT`).
    pub(crate) fn flush(&mut self) {
        if self.rows.is_empty() {
            return;
        }
        let mut queue = self.socket.queue();
        for row in &self.rows {
            let (mut bytes, mut lens) = (&row.bytes[..], &row.lens[..]);
            while let Some(&first) = lens.first() {
                let count = alike(lens);
                let len = lens[..count].iter().sum();
                let (piece, left) = bytes.split_at(len);
                queue.push_segments(row.to, piece, first);
                (bytes, lens) = (left, &lens[count..]);
            }
        }
        let sent = queue.flush();
        self.counts.sent += sent.sent;
        self.counts.send_failed += sent.failed;
        self.places.clear();
        self.bytes = 0;
        for mut row in self.rows.drain(..) {
            if self.spare.len() < SPARE {
                row.bytes.clear();
                row.lens.clear();
                self.spare.push(row);
            }
        }
    }
}

/// Returns how many datagrams from the first on have one length; the last may be shorter.
fn alike(lens: &[usize]) -> usize {
    let Some(&first) = lens.first() else {
        return 0;
    };
    // An empty datagram has no place in a piece.
    if first == 0 {
        return 1;
    }
    let same = lens.iter().take_while(|len| **len == first).count();
    let shorter = lens.get(same).is_some_and(|len| (1..first).contains(len));
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
    use linux_net::inet::Config;
    use linux_net::poll::{self, Watch};
    use std::time::Duration;

    #[test]
    fn pieces_end_where_the_length_changes() {
        assert_eq!(alike(&[]), 0);
        assert_eq!(alike(&[9, 9, 9]), 3);
        assert_eq!(alike(&[9, 9, 4, 4]), 3);
        assert_eq!(alike(&[4, 9]), 1);
        assert_eq!(alike(&[9, 0, 9]), 1);
        assert_eq!(alike(&[0, 0]), 1);
    }

    /// Copies for several receivers are gathered in turns, as a session with several receivers makes them.
    #[test]
    fn each_receiver_gets_its_datagrams_in_order() {
        let open = || UdpSocket::open(&Config::new(([127, 0, 0, 1], 0).into())).unwrap();
        let receivers = [open(), open(), open()];
        let mut datagrams = Datagrams::new(open());
        let lens = [700, 700, 700, 300, 1, 700, 700, 20, 0, 700];
        for (number, len) in (0..).zip(lens) {
            for receiver in &receivers {
                let to = receiver.local_address().unwrap();
                let port = to.port().to_be_bytes();
                let mut datagram = vec![port[0], port[1], number];
                datagram.resize(len, number);
                datagrams.push(to, &datagram);
            }
        }
        datagrams.flush();
        assert_eq!(datagrams.counts.sent, 30);
        assert_eq!(datagrams.counts.send_failed, 0);
        for receiver in &receivers {
            let port = receiver.local_address().unwrap().port().to_be_bytes();
            let mut batch = Batch::new(Batch::MAX);
            let mut got = Vec::new();
            while got.len() < lens.len() {
                let timeout = Some(Duration::from_secs(5));
                let mut watch = [Watch::readable(receiver.as_fd())];
                poll::wait(&mut watch, timeout).unwrap();
                assert!(receiver.receive(&mut batch).unwrap() > 0);
                got.extend(batch.received().map(|one| one.payload.to_vec()));
            }
            assert_eq!(got.iter().map(Vec::len).collect::<Vec<_>>(), lens);
            for (number, datagram) in (0..).zip(&got).filter(|(_, one)| one.len() > 2) {
                assert_eq!(datagram[..3], [port[0], port[1], number]);
            }
        }
        // What was sent is not sent again.
        datagrams.flush();
        assert_eq!(datagrams.counts.sent, 30);
    }
}
