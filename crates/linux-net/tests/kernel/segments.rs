//! TCP segments beside the kernel's TCP.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use crate::common::{Host, readable, wire, with_namespaces};
use linux_net::OpenError;
use linux_net::inet::{self, Config, Membership, SegmentBatch, SegmentSocket, Transmit};

const A: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const SSM: Ipv4Addr = Ipv4Addr::new(232, 1, 2, 3);
const PORT: u16 = 5004;

fn pair() -> (Host, Host) {
    let (a, b) = (Host::new(), Host::new());
    wire(&a, "a0", A.octets(), &b, "b0", B.octets());
    (a, b)
}

fn open(host: &Host, bind: impl Into<SocketAddr> + Send) -> Result<SegmentSocket, OpenError> {
    let config = Config::new(bind.into());
    host.run(|| SegmentSocket::open(&config))
}

/// The next segment: its source, its destination, its bytes.
fn next(socket: &SegmentSocket) -> Option<(IpAddr, IpAddr, Vec<u8>)> {
    let mut batch = SegmentBatch::new(8);
    while readable(socket.as_fd()) {
        socket.receive(&mut batch).unwrap();
        if let Some(first) = batch.iter().next() {
            return Some((first.source.ip(), first.destination, first.payload.to_vec()));
        }
    }
    None
}

/// A SYN with a checksum.
fn syn(source: IpAddr, destination: IpAddr, to_port: u16) -> Vec<u8> {
    let mut segment = vec![0; 20];
    segment[..2].copy_from_slice(&PORT.to_be_bytes());
    segment[2..4].copy_from_slice(&to_port.to_be_bytes());
    (segment[12], segment[13]) = (0x50, 0x02);
    let octets = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let words = [
        octets(source),
        octets(destination),
        vec![0, 6, 0, 20],
        segment.clone(),
    ]
    .concat();
    let words = words.chunks_exact(2);
    let mut sum: u32 = words
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
        .sum();
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    segment[16..18].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    segment
}

fn checksum_holds(source: IpAddr, destination: IpAddr, segment: &[u8]) -> bool {
    let octets = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let length = (segment.len() as u16).to_be_bytes().to_vec();
    let mut words = [octets(source), octets(destination), vec![0, 6], length].concat();
    words.extend(segment);
    words.resize(words.len().next_multiple_of(2), 0);
    let words = words.chunks_exact(2);
    let mut sum: u32 = words
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum == 0xffff
}

/// The kernel's TCP on the same host would refuse the connection at once: it keeps silent.
#[test]
fn the_kernel_does_not_answer_for_a_held_port() {
    with_namespaces(|| {
        let (a, b) = pair();
        let address = SocketAddr::new(B.into(), PORT);
        let refused = a.run(|| TcpStream::connect(address));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);

        let socket = open(&b, address).expect("open");
        let patience = Duration::from_millis(300);
        let silent = a.run(|| TcpStream::connect_timeout(&address, patience));
        assert_eq!(silent.unwrap_err().kind(), ErrorKind::TimedOut);
        // The SYN is here, with its checksum completed.
        let (from, to, segment) = next(&socket).expect("a segment");
        assert_eq!((from, to), (A.into(), B.into()));
        assert_eq!(segment[13], 0x02);
        assert!(checksum_holds(from, to, &segment));
        // Segments of no connection at all are not answered either.
        let sender = open(&a, SocketAddr::new(A.into(), PORT)).expect("open");
        let bytes = &syn(A.into(), B.into(), PORT)[..];
        let destination = address;
        let transmit = Transmit {
            source: None,
            destination,
            bytes,
            segment_len: None,
        };
        assert_eq!(sender.send(&transmit).expect("sent"), bytes.len());
        assert!(next(&socket).is_some());
        assert!(next(&sender).is_none(), "the kernel has answered");
    });
}

#[test]
fn a_held_port_is_taken_and_free_again_afterwards() {
    with_namespaces(|| {
        let (a, b) = pair();
        let address = SocketAddr::new(B.into(), PORT);
        let socket = open(&b, address).expect("open");
        let taken = open(&b, address);
        assert!(
            matches!(taken, Err(OpenError::AddressInUse { .. })),
            "{taken:?}"
        );
        assert!(b.run(|| TcpListener::bind(address)).is_err());
        drop(socket);
        let listener = b.run(|| TcpListener::bind(address)).expect("free");
        // Other connections of the host go on beside a held port.
        let _other = open(&b, SocketAddr::new(B.into(), PORT + 1)).expect("open");
        let mut client = a.run(|| TcpStream::connect(address)).expect("connected");
        let mut server = listener.accept().expect("accepted").0;
        client.write_all(b"hello").expect("written");
        let mut bytes = [0; 5];
        server.read_exact(&mut bytes).expect("read");
        assert_eq!(&bytes, b"hello");
    });
}

#[test]
fn a_group_is_heard_from_its_source_only() {
    with_namespaces(|| {
        let (a, b) = pair();
        let group = SocketAddr::new(SSM.into(), PORT);
        let (index, from) = (b.index("b0"), a.index("a0"));
        let joined = |source: Ipv4Addr| {
            let socket = open(&b, group).expect("open");
            let membership = Membership {
                group: SSM.into(),
                source: Some(source.into()),
                interface: index,
            };
            socket.join(&membership).expect("joined");
            socket
        };
        let (heard, deaf) = (joined(A), joined(Ipv4Addr::new(10, 9, 0, 7)));
        let config = Config {
            interface: from,
            ..Config::new(SocketAddr::new(A.into(), PORT))
        };
        let sender = a.run(|| SegmentSocket::open(&config)).expect("open");
        let bytes = &syn(A.into(), SSM.into(), PORT)[..];
        let transmit = Transmit {
            source: None,
            destination: group,
            bytes,
            segment_len: None,
        };
        sender.send(&transmit).expect("sent");
        let (from, to, segment) = next(&heard).expect("a segment");
        assert_eq!((from, to, &segment[..]), (A.into(), SSM.into(), bytes));
        assert!(next(&deaf).is_none());
    });
}

/// Over loopback, where IPv6 is always there.
#[test]
fn ipv6_works_likewise() {
    with_namespaces(|| {
        let host = Host::new();
        let address = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), PORT);
        let Ok(socket) = open(&host, address) else {
            assert!(!std::path::Path::new("/proc/net/if_inet6").exists());
            return;
        };
        let patience = Duration::from_millis(300);
        let silent = host.run(|| TcpStream::connect_timeout(&address, patience));
        assert_eq!(silent.unwrap_err().kind(), ErrorKind::TimedOut);
        let (from, to, segment) = next(&socket).expect("a segment");
        assert_eq!((from, to), (address.ip(), address.ip()));
        assert!(checksum_holds(from, to, &segment));
        let sender = open(&host, SocketAddr::new(address.ip(), 0)).expect("open");
        let bytes = &syn(address.ip(), address.ip(), PORT)[..];
        let transmit = Transmit {
            source: None,
            destination: address,
            bytes,
            segment_len: None,
        };
        sender.send(&transmit).expect("sent");
        let mut came = false;
        while let Some((.., segment)) = next(&socket) {
            came |= segment == bytes;
            if came {
                break;
            }
        }
        assert!(came);
        let route = host.run(|| inet::route(address.ip(), 0)).expect("a route");
        assert_eq!(route.source, address.ip());
        assert!(route.mtu >= 1280);
    });
}
