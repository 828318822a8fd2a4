//! IPv6 on the real kernel: options, whole packets, the ring, multicast routes, addresses.

mod capture;
mod guard;
mod routes;
mod sockets;

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsFd;
use std::time::Duration;

use crate::common::{Host, host, readable, readable_within, soon, udp, with_namespaces};
use linux_net::link::{Editor, LinkEvent, Watcher as LinkWatcher};
use linux_net::mroute::{
    MrouteEvent, Route, Table, TableError, UpcallKind, Watcher, WatcherConfig,
};
use linux_net::packet::{
    RequestTap, Ring, RingConfig, Sender, complete_checksum, group_link_address,
};
use linux_net::raw::Ipv6Socket;
use linux_net::udp::{
    Batch, Config, GroupSocket, Membership, OptionBuffer, OptionSocket, Options, Transmit,
};
use linux_net::{JoinError, SendError};

const A: Ipv6Addr = Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, 1);
const B: Ipv6Addr = Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, 2);
const C: Ipv6Addr = Ipv6Addr::new(0xfd00, 9, 1, 0, 0, 0, 0, 3);
/// Of site-local scope, and source-specific of global scope.
const GROUP: Ipv6Addr = Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 0x1234);
const SSM: Ipv6Addr = Ipv6Addr::new(0xff3e, 0, 0, 0, 0, 0, 0, 0x1234);
const ANY: Ipv6Addr = Ipv6Addr::UNSPECIFIED;
const PORT: u16 = 5004;
const NOT_SOON: Duration = Duration::from_millis(100);
const UDP: u8 = 17;
const ICMP: u8 = 58;
const TUNNEL: u8 = 41;
const HOP_BY_HOP: u8 = 0;

/// A hop-by-hop header with an option that hosts skip: RFC 4727's experiment 0x1e.
const HEADER: [u8; 16] = [0, 1, 0x1e, 12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

/// The header in front of UDP.
fn header_of(next: u8) -> Vec<u8> {
    let mut header = HEADER.to_vec();
    header[0] = next;
    header
}

/// A whole IPv6 packet.
fn ipv6(next: u8, from: Ipv6Addr, to: Ipv6Addr, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((body.len() as u16).to_be_bytes());
    packet.extend([next, 16]);
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.extend(body);
    packet
}

fn behind_header(next: u8, from: Ipv6Addr, to: Ipv6Addr, body: &[u8]) -> Vec<u8> {
    let body = [header_of(next), body.to_vec()].concat();
    ipv6(HOP_BY_HOP, from, to, &body)
}

/// A host and its neighbour, which have addresses of one /64.
fn pair() -> (Host, Host) {
    let (a, b) = (Host::new(), Host::new());
    wire((&a, "a0", A), (&b, "b0", B));
    (a, b)
}

fn wire(near: (&Host, &str, Ipv6Addr), far: (&Host, &str, Ipv6Addr)) {
    host::wire([near, far]);
    // An interface that reports a carrier may drop its first packets.
    for (from, to) in [(near, far), (far, near)] {
        let listener =
            to.0.run(|| std::net::UdpSocket::bind((to.2, 7)).expect("bind"));
        let sender = from
            .0
            .run(|| std::net::UdpSocket::bind((from.2, 0)).expect("bind"));
        let passed = (0..1000).any(|_| {
            sender.send_to(b"?", (to.2, 7)).expect("send");
            readable_within(listener.as_fd(), Duration::from_millis(20))
        });
        assert!(passed, "{} cannot be reached", to.2);
    }
}

fn member(
    host: &Host,
    name: &str,
    group: Ipv6Addr,
    source: Option<Ipv6Addr>,
) -> Membership<Ipv6Addr> {
    Membership {
        group,
        source,
        interface: host.index(name),
    }
}

fn at(address: Ipv6Addr, port: u16) -> SocketAddrV6 {
    SocketAddrV6::new(address, port, 0, 0)
}

/// A socket of a host that sends to groups by its interface.
fn sender(host: &Host, name: &str, from: Ipv6Addr) -> GroupSocket {
    let config = Config {
        interface: host.index(name),
        ..Config::new(at(from, 0))
    };
    host.run(|| GroupSocket::open(&config).unwrap())
}

/// An MLD message of a type.
fn mld(kind: u8) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    message.extend(GROUP.octets());
    message
}
