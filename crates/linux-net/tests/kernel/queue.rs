//! Pieces of several datagrams, to several receivers with one system call.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;

use crate::common::{Host, readable, wire, with_namespaces};
use linux_net::inet::{Config, UdpSocket};
use linux_net::udp::Batch;

const A: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const SEGMENT: usize = 1000;

fn open(host: &Host, address: Ipv4Addr) -> UdpSocket {
    let config = Config::new((address, 0).into());
    host.run(|| UdpSocket::open(&config).unwrap())
}

fn received(socket: &UdpSocket, count: usize) -> Vec<Vec<u8>> {
    let (mut batch, mut got) = (Batch::new(Batch::MAX), Vec::new());
    while got.len() < count && readable(socket.as_fd()) {
        socket.receive(&mut batch).unwrap();
        got.extend(batch.received().map(|one| one.payload.to_vec()));
    }
    got
}

fn datagrams(count: usize, last: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..count * SEGMENT)
        .map(|at| (at / SEGMENT) as u8)
        .collect();
    bytes.extend(vec![0xee; last]);
    bytes
}

/// Sends to two receivers, in pieces or not, over a wire: what both got, and the outcome.
fn send(segmentation: bool, bytes: &[u8], segment: usize) -> ([Vec<Vec<u8>>; 2], [u64; 2]) {
    let mut result = None;
    with_namespaces(|| {
        let (a, b) = (Host::new(), Host::new());
        wire(&a, "a0", A.octets(), &b, "b0", B.octets());
        let (sender, receivers) = (open(&a, A), [open(&b, B), open(&b, B)]);
        sender.set_segmentation(segmentation);
        let mut queue = sender.queue();
        let address = |socket: &UdpSocket| -> SocketAddr { socket.local_address().unwrap() };
        for receiver in &receivers {
            queue.push_segments(address(receiver), bytes, segment);
            queue.push(address(receiver), b"alone");
        }
        let sent = queue.flush();
        let count = bytes.len().div_ceil(segment) + 1;
        let got = receivers.each_ref().map(|one| received(one, count));
        result = Some((got, [sent.sent, sent.failed]));
    });
    result.unwrap()
}

#[test]
fn receivers_get_the_datagrams_of_a_piece_in_order() {
    // More than the kernel takes in one piece.
    let bytes = datagrams(150, 300);
    let mut wanted: Vec<_> = bytes.chunks(SEGMENT).map(<[u8]>::to_vec).collect();
    wanted.push(b"alone".to_vec());
    for segmentation in [true, false] {
        let (got, counts) = send(segmentation, &bytes, SEGMENT);
        assert_eq!(counts, [304, 0]);
        for got in got {
            assert!(got == wanted, "{} datagrams", got.len());
        }
    }
}

#[test]
fn datagrams_that_are_too_long_for_the_path_are_counted_each() {
    for segmentation in [true, false] {
        let (got, counts) = send(segmentation, &[1; 5 * 2000], 2000);
        assert_eq!(counts, [2, 10]);
        assert_eq!(got, [[b"alone".to_vec()], [b"alone".to_vec()]]);
    }
}
