//! Small networks for tests: namespaces joined by wires.

use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

pub(crate) use netlab::host::{self, Host, readable as readable_within, with_namespaces};

/// Joins two hosts by a wire over which packets pass; the addresses are of one /24.
pub(crate) fn wire(
    a: &Host,
    a_name: &str,
    a_address: [u8; 4],
    b: &Host,
    b_name: &str,
    b_address: [u8; 4],
) {
    let (to_a, to_b) = (a_address.into(), b_address.into());
    host::wire([(a, a_name, to_a), (b, b_name, to_b)]);
    until_it_carries(a, b, to_b);
    until_it_carries(b, a, to_a);
}

/// Waits until datagrams pass: an interface that reports a carrier may still drop the first
/// packets, since its queue is attached a moment later.
pub(crate) fn until_it_carries(from: &Host, to: &Host, address: Ipv4Addr) {
    let listener = to.run(|| UdpSocket::bind((address, 7)).expect("bind"));
    listener
        .set_read_timeout(Some(Duration::from_millis(20)))
        .expect("timeout");
    let sender = from.run(|| UdpSocket::bind("0.0.0.0:0").expect("bind"));
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        sender.send_to(b"?", (address, 7)).expect("send");
        if listener.recv(&mut [0; 8]).is_ok() {
            return;
        }
        assert!(Instant::now() < deadline, "{address} cannot be reached");
    }
}

/// Waits until `fd` is readable, two seconds at most.
pub(crate) fn readable(fd: BorrowedFd<'_>) -> bool {
    readable_within(fd, Duration::from_secs(2))
}

/// Calls `next` until it answers something, waiting on `fd` in between, ten seconds at most.
pub(crate) fn soon<F: AsFd, T>(
    door: &mut F,
    mut next: impl FnMut(&mut F) -> Option<T>,
) -> Option<T> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(found) = next(door) {
            return Some(found);
        }
        let left = deadline.checked_duration_since(Instant::now())?;
        readable_within(door.as_fd(), left);
    }
}

pub(crate) const REQUEST: u8 = 138;
pub(crate) const DMCAST: u8 = 139;

/// An LMS option, classic form.
pub(crate) fn classic(kind: u8, source: Ipv4Addr, group: Ipv4Addr) -> Vec<u8> {
    let mut option = vec![kind, 16, 0xff, 0xff, 0, 0, 0, 0];
    option.extend(source.octets());
    option.extend(group.octets());
    option
}

/// An LMS option, single form.
pub(crate) fn single(sub_option: u8, source: Ipv4Addr, group: Ipv4Addr) -> Vec<u8> {
    let mut option = vec![158, 20, 0x4c, 0x4d];
    let mut inner = classic(sub_option, source, group);
    inner[0] = sub_option;
    option.extend(inner);
    option
}

fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|w| u32::from(u16::from_be_bytes([w[0], *w.get(1).unwrap_or(&0)])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A whole IPv4 packet; options are padded.
pub(crate) fn ipv4(
    protocol: u8,
    source: Ipv4Addr,
    to: Ipv4Addr,
    options: &[u8],
    body: &[u8],
) -> Vec<u8> {
    let mut options = options.to_vec();
    options.resize(options.len().next_multiple_of(4), 0);
    let header = 20 + options.len();
    let mut packet = vec![0x40 | (header / 4) as u8, 0];
    packet.extend(((header + body.len()) as u16).to_be_bytes());
    packet.extend([0, 1, 0x40, 0, 16, protocol, 0, 0]);
    packet.extend(source.octets());
    packet.extend(to.octets());
    packet.extend(options);
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(body);
    packet
}

/// A UDP datagram without a checksum.
pub(crate) fn udp(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let mut datagram = Vec::new();
    datagram.extend(from.to_be_bytes());
    datagram.extend(to.to_be_bytes());
    datagram.extend(((8 + payload.len()) as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(payload);
    datagram
}
