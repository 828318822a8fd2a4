//! Peers that speak another version ("How formats evolve" in `docs/wire.md`).

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use linux_net::udp::{self, GroupSocket, Transmit};
use ltp_linux::{
    Cancel, Error, OtherVersion, ReceiveConfig, ReceiveEvent, Receiver, SendConfig, SendEvent,
    Sender, Sink, Source,
};

use super::{content, group};

/// Sends a datagram to a group on the loopback interface.
fn multicast(group: SocketAddr, bytes: &[u8]) {
    let socket = GroupSocket::open(&udp::Config {
        bind: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0),
        interface: linux_net::link::find("lo").expect("lo").index,
        loopback: true,
        ..udp::Config::default()
    });
    let transmit = Transmit {
        destination: group,
        bytes,
        segment_len: None,
    };
    socket.expect("a socket").send(&transmit).expect("sent");
}

fn check(others: &[OtherVersion]) {
    let [other] = others else {
        panic!("told once: {others:?}")
    };
    assert_eq!(other.peer, Ipv4Addr::LOCALHOST);
    assert_eq!(
        (other.protocol, other.version, other.own_version),
        ("LTP", 2, 1)
    );
}

#[test]
fn a_receiver_names_the_versions_where_its_sender_speaks_another_one() {
    let group = group();
    let address = group.address;
    let mut config = ReceiveConfig::new(group);
    config.connect_timeout = Some(Duration::from_millis(500));
    let cancel = Cancel::new().expect("eventfd");
    let sink = Sink::buffer(1 << 20);
    let mut receiver = Receiver::open(&config, sink, cancel, &mut |_| {}).expect("open");
    let mut others = Vec::new();
    let error = receiver.run(&mut |event| match event {
        ReceiveEvent::Waiting { .. } => {
            // SYNC, DATA, and a datagram that is no LTP.
            multicast(address, &[0x23; 96]);
            multicast(address, &[0x21; 100]);
            multicast(address, &[]);
        }
        ReceiveEvent::OtherVersion(other) => others.push(other),
        _ => {}
    });
    check(&others);
    let error = error.expect_err("there is no other sender");
    assert!(matches!(error, Error::NoSender { .. }), "{error}");
    let said = "127.0.0.1 speaks version 2 of LTP, this host version 1: install the same release";
    assert!(error.to_string().contains(said), "{error}");
    assert_eq!(receiver.stats().drops.get(ltp::Error::Version), 2);
}

#[test]
fn a_sender_names_a_receiver_that_speaks_another_version() {
    let mut config = SendConfig::new(group());
    config.receivers = Some(1);
    config.connect_timeout = Duration::from_millis(300);
    config.linger = Duration::from_millis(100);
    let source = Source::buffer(content(1_000));
    let cancel = Cancel::new().expect("eventfd");
    let mut sender = Sender::open(&config, source, cancel, &mut |_| {}).expect("open");
    let mut others = Vec::new();
    let unconfirmed = sender.run(&mut |event| match event {
        SendEvent::Opened { source, .. } => {
            // A REPORT.
            let receiver = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            receiver.send_to(&[0x26; 40], source).expect("sent");
            receiver.send_to(&[0x26; 40], source).expect("sent");
        }
        SendEvent::OtherVersion(other) => others.push(other),
        _ => {}
    });
    check(&others);
    assert!(matches!(unconfirmed, Err(Error::Unconfirmed(_))));
}
