//! A ring drained into a UDP socket.

use std::net::UdpSocket;
use std::time::Duration;

use ldc_linux::udp::{self, Config, Error};
use ldc_linux::{Attributes, Shape};

const PLAIN: Attributes = Attributes {
    deadline: None,
    priority: 0,
};

fn sockets() -> (UdpSocket, UdpSocket) {
    let far = UdpSocket::bind("127.0.0.1:0").unwrap();
    let near = UdpSocket::bind("127.0.0.1:0").unwrap();
    near.connect(far.local_addr().unwrap()).unwrap();
    far.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    (near, far)
}

fn shape() -> Shape {
    Shape::new(64, 1500).unwrap()
}

/// Receives datagrams until the one with no bytes.
fn all(far: &UdpSocket) -> Vec<Vec<u8>> {
    let mut seen = Vec::new();
    let mut bytes = [0; 2000];
    loop {
        match far.recv(&mut bytes).unwrap() {
            0 => return seen,
            len => seen.push(bytes[..len].to_vec()),
        }
    }
}

#[test]
fn each_message_is_a_datagram_and_dropped_ones_stay_away() {
    let (near, far) = sockets();
    let config = Config {
        // A millisecond each, so that most of them wait in the ring.
        rate_bps: Some(8_000_000),
        burst: 1_000,
    };
    let mut ldc = udp::init(near, shape(), config).unwrap();
    for number in 0..50u8 {
        ldc.send(number.into(), &[number; 972], PLAIN).unwrap();
    }
    ldc.notify();
    let kept: Vec<u8> = (0..50)
        .filter(|number| ldc.cancel((49 - number).into()).changed == 0 || *number > 44)
        .collect();
    ldc.send(99, b"", PLAIN).unwrap();
    let stats = ldc.finish().unwrap();
    let seen = all(&far);
    assert!(kept.len() < 25, "{}", kept.len());
    assert_eq!(stats.datagrams, seen.len() as u64 + 1);
    assert_eq!(stats.datagrams + stats.cancelled, 51);
    assert!(seen.iter().all(|one| one.len() == 972));
    assert!(seen.is_sorted());
}

#[test]
fn a_deadline_keeps_a_late_datagram_back() {
    let (near, far) = sockets();
    let config = Config {
        rate_bps: Some(80_000),
        burst: 100,
    };
    let mut ldc = udp::init(near, shape(), config).unwrap();
    // 100 ms each: the second is late when its turn comes.
    let soon = ldc_linux::now() + ldc_linux::Duration::from_millis(20);
    let late = Attributes {
        deadline: Some(soon),
        ..PLAIN
    };
    ldc.send(1, &[1; 972], PLAIN).unwrap();
    ldc.send(2, &[2; 972], late).unwrap();
    ldc.send(3, b"", PLAIN).unwrap();
    let stats = ldc.finish().unwrap();
    assert_eq!((stats.datagrams, stats.expired), (2, 1));
    assert_eq!(all(&far), [vec![1; 972]]);
}

#[test]
fn what_is_too_big_is_counted_and_the_rest_goes_on() {
    let (near, far) = sockets();
    let mut ldc = udp::init(near, shape(), Config::default()).unwrap();
    ldc.send(1, &vec![1; 70_000], PLAIN).unwrap();
    ldc.send(2, &[2; 100], PLAIN).unwrap();
    ldc.send(3, b"", PLAIN).unwrap();
    let stats = ldc.finish().unwrap();
    assert_eq!((stats.too_big, stats.datagrams), (1, 2));
    assert_eq!(all(&far), [vec![2; 100]]);
}

#[test]
fn a_port_where_nobody_listens_is_counted_and_no_end() {
    let (near, far) = sockets();
    drop(far);
    let mut ldc = udp::init(near, shape(), Config::default()).unwrap();
    for number in 0..20u8 {
        ldc.send(number.into(), &[number], PLAIN).unwrap();
        ldc.notify();
        std::thread::sleep(Duration::from_millis(1));
    }
    let stats = ldc.finish().unwrap();
    assert_eq!(stats.datagrams, 20);
    assert!(stats.refused > 0);
}

#[test]
fn a_socket_without_destination_is_an_error() {
    let near = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut ldc = udp::init(near, shape(), Config::default()).unwrap();
    ldc.send(1, b"x", PLAIN).unwrap();
    assert!(matches!(ldc.finish(), Err(Error::NotConnected)));
}
