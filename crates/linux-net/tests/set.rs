//! Many descriptors in one: `poll::Set`.

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::Duration;

use linux_net::poll::{self, Ready, Set, Watch};

fn socket() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

#[test]
fn only_who_is_ready_is_told_of_and_the_set_is_readable_then() {
    let (set, sender) = (Set::new().unwrap(), socket());
    let sockets: Vec<UdpSocket> = (0..100).map(|_| socket()).collect();
    for (key, socket) in sockets.iter().enumerate() {
        set.add(socket.as_fd(), key as u64, true, false).unwrap();
    }
    assert_eq!(set.ready().unwrap().count(), 0);
    sender
        .send_to(b"x", sockets[42].local_addr().unwrap())
        .unwrap();
    let mut watch = [Watch::readable(set.as_fd())];
    assert_eq!(
        poll::wait(&mut watch, Some(Duration::from_secs(5))).unwrap(),
        1
    );
    let told: Vec<Ready> = set.ready().unwrap().collect();
    let expected = Ready {
        key: 42,
        readable: true,
        writable: false,
    };
    assert_eq!(told, [expected]);
    // Level-triggered: it stays ready until it is read, or no longer asked for.
    assert_eq!(set.ready().unwrap().count(), 1);
    set.change(sockets[42].as_fd(), 42, false, false).unwrap();
    assert_eq!(set.ready().unwrap().count(), 0);
    set.change(sockets[42].as_fd(), 7, false, true).unwrap();
    let told: Vec<Ready> = set.ready().unwrap().collect();
    assert_eq!(
        told.iter().map(|r| (r.key, r.writable)).collect::<Vec<_>>(),
        [(7, true)]
    );
    set.remove(sockets[42].as_fd()).unwrap();
    assert_eq!(set.ready().unwrap().count(), 0);
}

#[test]
fn everybody_gets_a_turn() {
    let set = Set::new().unwrap();
    let sockets: Vec<UdpSocket> = (0..3 * Set::MAX).map(|_| socket()).collect();
    for (key, socket) in sockets.iter().enumerate() {
        set.add(socket.as_fd(), key as u64, false, true).unwrap();
    }
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..3 {
        seen.extend(set.ready().unwrap().map(|ready| ready.key));
    }
    assert_eq!(seen.len(), sockets.len());
}

#[test]
fn a_descriptor_that_is_closed_leaves() {
    let set = Set::new().unwrap();
    let socket = socket();
    set.add(socket.as_fd(), 1, false, true).unwrap();
    drop(socket);
    assert_eq!(set.ready().unwrap().count(), 0);
}
