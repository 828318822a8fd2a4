//! UDP sockets on the real kernel.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsFd;
use std::time::Duration;

use crate::common::{
    Host, REQUEST, classic, readable, readable_within, single, soon, wire, with_namespaces,
};
use linux_net::packet::RequestTap;
use linux_net::udp::{
    Batch, Config, GroupSocket, Membership, OptionBuffer, OptionSocket, Options, Transmit,
};
use linux_net::{JoinError, OpenError, SendError};

const A: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const SSM: Ipv4Addr = Ipv4Addr::new(232, 1, 2, 3);
const PORT: u16 = 5004;
const NOT_SOON: Duration = Duration::from_millis(100);

fn pair() -> (Host, Host) {
    let (a, b) = (Host::new(), Host::new());
    wire(&a, "a0", A.octets(), &b, "b0", B.octets());
    (a, b)
}

fn sending(host: &Host, name: &str) -> Config {
    Config {
        interface: host.index(name),
        ..Config::default()
    }
}

fn receiving() -> Config {
    Config {
        bind: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT),
        ..Config::default()
    }
}

fn member(host: &Host, name: &str, group: Ipv4Addr, source: Option<Ipv4Addr>) -> Membership {
    Membership {
        group,
        source,
        interface: host.index(name),
    }
}

#[test]
fn options_make_the_round_trip() {
    with_namespaces(|| {
        let (a, b) = pair();
        let config = sending(&a, "a0");
        let sender = a.run(|| OptionSocket::open(&config).unwrap());
        let membership = member(&b, "b0", GROUP, None);
        let (mut receiver, data) = b.run(|| {
            let receiver = OptionSocket::open(&receiving()).unwrap();
            receiver.join(&membership).unwrap();
            let refuse = Config {
                options: Options::Refuse,
                ..receiving()
            };
            let data = GroupSocket::open(&refuse).unwrap();
            data.join(&membership).unwrap();
            (receiver, data)
        });
        let mut buffer = OptionBuffer::new(1500);
        let to = SocketAddrV4::new(GROUP, PORT);
        for options in [
            classic(REQUEST, A, GROUP),
            classic(crate::common::DMCAST, A, GROUP),
            single(1, A, GROUP),
            [vec![1, 1], classic(REQUEST, A, GROUP), vec![1]].concat(),
        ] {
            sender.send(to, &options, b"nak").unwrap();
            let interface = membership.interface;
            soon(&mut receiver, |receiver| {
                let got = receiver.receive(&mut buffer).unwrap()?;
                assert_eq!(*got.source.ip(), A);
                assert_eq!(got.destination, GROUP);
                assert_eq!(got.interface, interface);
                assert_eq!(got.payload, b"nak");
                assert_eq!(&got.options[..options.len()], &options[..]);
                assert!(got.options[options.len()..].iter().all(|b| *b == 0));
                Some(())
            })
            .expect("the option socket hears it");
        }
        assert!(
            !readable_within(data.as_fd(), NOT_SOON),
            "the data socket must not hear it"
        );

        // The other way round: plain data reaches the data socket only.
        a.run(|| {
            let plain = GroupSocket::open(&config).unwrap();
            plain
                .send_all(&Transmit {
                    destination: to,
                    bytes: b"data",
                    segment_len: None,
                })
                .unwrap();
        });
        assert!(readable(data.as_fd()));
        let mut batch = Batch::new(4);
        assert_eq!(data.receive(&mut batch).unwrap(), 1);
        assert_eq!(batch.iter().next().unwrap().payload, b"data");
        assert!(receiver.receive(&mut buffer).unwrap().is_none());
    });
}

#[test]
fn bad_options_are_told_from_missing_privileges() {
    with_namespaces(|| {
        let (a, _b) = pair();
        let config = sending(&a, "a0");
        let sender = a.run(|| OptionSocket::open(&config).unwrap());
        let to = SocketAddrV4::new(GROUP, PORT);
        for bad in [&[138, 0, 0, 0][..], &[138, 40, 0, 0], &[138], &[1; 41]] {
            let error = sender.send(to, bad, b"x").unwrap_err();
            assert!(matches!(error, SendError::Malformed), "{bad:?}: {error}");
        }
    });
}

#[test]
fn a_source_specific_member_hears_its_source_and_the_tap_hears_the_others() {
    with_namespaces(|| {
        // Two senders on one link: a bridge would do, two addresses of one host do as well.
        let (a, b) = pair();
        let other = Ipv4Addr::new(10, 9, 0, 77);
        let index = a.index("a0");
        a.run(|| {
            let mut editor = linux_net::link::Editor::open().unwrap();
            editor.add_address(index, other, 24).unwrap();
        });
        let membership = member(&b, "b0", SSM, Some(A));
        let (data, options, mut tap) = b.run(|| {
            let data = GroupSocket::open(&Config {
                options: Options::Refuse,
                ..receiving()
            })
            .unwrap();
            data.join(&membership).unwrap();
            assert!(matches!(
                data.join(&membership),
                Err(JoinError::AlreadyJoined)
            ));
            let options = OptionSocket::open(&receiving()).unwrap();
            options.join(&membership).unwrap();
            (
                data,
                options,
                RequestTap::open(membership.interface, SSM, PORT).unwrap(),
            )
        });
        let to = SocketAddrV4::new(SSM, PORT);
        let from = |address| Config {
            bind: SocketAddrV4::new(address, 0),
            ..Config {
                interface: index,
                ..Config::default()
            }
        };
        a.run(|| {
            for (address, text) in [(other, b"no!"), (A, b"yes")] {
                let socket = GroupSocket::open(&from(address)).unwrap();
                socket
                    .send_all(&Transmit {
                        destination: to,
                        bytes: text,
                        segment_len: None,
                    })
                    .unwrap();
            }
            let socket = OptionSocket::open(&from(other)).unwrap();
            socket.send(to, &classic(REQUEST, A, SSM), b"plea").unwrap();
            // Not for the tap: another port, and no LMS option.
            let elsewhere = SocketAddrV4::new(SSM, PORT + 1);
            socket
                .send(elsewhere, &classic(REQUEST, A, SSM), b"port")
                .unwrap();
            socket.send(to, &[148, 4, 0, 0], b"alert").unwrap();
        });
        let mut buffer = OptionBuffer::new(1500);
        soon(&mut tap, |tap| {
            let got = tap.receive(&mut buffer).unwrap()?;
            assert_eq!((*got.source.ip(), got.destination), (other, SSM));
            assert_eq!(got.options, classic(REQUEST, A, SSM));
            assert_eq!(got.payload, b"plea");
            assert_eq!(got.interface, membership.interface);
            Some(())
        })
        .expect("the tap hears another host's request");
        assert!(!readable_within(tap.as_fd(), NOT_SOON));
        let mut batch = Batch::new(4);
        data.receive(&mut batch).unwrap();
        let heard: Vec<_> = batch
            .iter()
            .map(|d| (*d.source.ip(), d.payload.to_vec()))
            .collect();
        assert_eq!(heard, [(A, b"yes".to_vec())]);
        let mut buffer = OptionBuffer::new(1500);
        assert!(
            options.receive(&mut buffer).unwrap().is_none(),
            "hidden by the membership"
        );
        b.run(|| data.leave(&membership).unwrap());
    });
}

#[test]
fn segments_arrive_as_they_were_sent() {
    with_namespaces(|| {
        let (a, b) = pair();
        let config = sending(&a, "a0");
        let sender = a.run(|| GroupSocket::open(&config).unwrap());
        let membership = member(&b, "b0", GROUP, None);
        let receiver = b.run(|| {
            let receiver = GroupSocket::open(&receiving()).unwrap();
            receiver.join(&membership).unwrap();
            receiver
        });
        let bytes: Vec<u8> = (0..100_u32 * 1400 + 99)
            .map(|i| (i * 7 / 3) as u8)
            .collect();
        let to = SocketAddrV4::new(GROUP, PORT);
        sender
            .send_all(&Transmit {
                destination: to,
                bytes: &bytes,
                segment_len: Some(1400),
            })
            .unwrap();
        let mut batch = Batch::new(Batch::MAX);
        let (mut received, mut buffers, mut datagrams) = (Vec::new(), 0, 0);
        while received.len() < bytes.len() && readable(receiver.as_fd()) {
            buffers += receiver.receive(&mut batch).unwrap();
            for datagram in batch.iter() {
                assert_eq!(datagram.destination, GROUP);
                assert_eq!(datagram.interface, membership.interface);
                received.extend_from_slice(datagram.payload);
                datagrams += 1;
            }
        }
        assert_eq!(datagrams, 101);
        assert!(received == bytes, "bytes differ");
        assert!(
            buffers < 10,
            "GRO hands several datagrams over in one piece: {buffers}"
        );
        assert_eq!(receiver.dropped().unwrap(), 0);

        // Without segmentation offload on the way: same bytes, one buffer each.
        a.run(|| linux_net::ethtool::switch_offloads_off("a0").unwrap());
        let some = &bytes[..20 * 1400 + 5];
        sender
            .send_all(&Transmit {
                destination: to,
                bytes: some,
                segment_len: Some(1400),
            })
            .unwrap();
        let mut received = Vec::new();
        while received.len() < some.len() && readable(receiver.as_fd()) {
            receiver.receive(&mut batch).unwrap();
            batch
                .iter()
                .for_each(|datagram| received.extend_from_slice(datagram.payload));
        }
        assert!(received == some, "bytes differ");

        let too_big = vec![0; 3000];
        let error = sender.send(&Transmit {
            destination: to,
            bytes: &too_big,
            segment_len: None,
        });
        assert!(matches!(error, Err(SendError::TooBig)), "{error:?}");
        let empty = Transmit {
            destination: to,
            bytes: b"",
            segment_len: None,
        };
        sender.send_all(&empty).unwrap();
        assert!(readable(receiver.as_fd()));
        receiver.receive(&mut batch).unwrap();
        assert_eq!(
            batch.iter().map(|d| d.payload.len()).collect::<Vec<_>>(),
            [0]
        );
    });
}

#[test]
fn groups_that_are_none_are_refused() {
    let socket = GroupSocket::open(&Config::default()).unwrap();
    let wrong = Membership {
        group: A,
        source: None,
        interface: 0,
    };
    assert!(matches!(socket.join(&wrong), Err(JoinError::NotAGroup)));
    let nowhere = Membership {
        group: GROUP,
        source: None,
        interface: 4_000_000,
    };
    assert!(matches!(socket.join(&nowhere), Err(JoinError::NoInterface)));
    let stranger = Membership {
        group: GROUP,
        source: Some(A),
        interface: 1,
    };
    assert!(matches!(socket.leave(&stranger), Err(JoinError::NotJoined)));
}

/// Of two programs on one address and port of this host, one would take the other's packets.
#[test]
fn a_group_is_shared_and_a_hosts_own_port_is_not() {
    let open = |ip, port| {
        GroupSocket::open(&Config {
            bind: SocketAddrV4::new(ip, port),
            interface: 1,
            ..Config::default()
        })
    };
    let first = open(Ipv4Addr::LOCALHOST, 0).unwrap();
    let port = first.local_address().unwrap().port();
    let second = open(Ipv4Addr::LOCALHOST, port);
    assert!(matches!(second, Err(OpenError::AddressInUse { .. })));
    let _group = open(SSM, port).unwrap();
    open(SSM, port).unwrap();
}
