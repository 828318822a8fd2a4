//! UDP sockets and the tap.

use super::*;

#[test]
fn options_make_the_round_trip_and_data_goes_its_own_way() {
    with_namespaces(|| {
        let (a, b) = pair();
        let config = Config {
            interface: a.index("a0"),
            ..Config::new(at(A, 0))
        };
        let requests = a.run(|| OptionSocket::open(&config).unwrap());
        let membership = member(&b, "b0", GROUP, None);
        let (mut receiver, data) = b.run(|| {
            let receiver = OptionSocket::open(&Config::new(at(ANY, PORT))).unwrap();
            receiver.join(&membership).unwrap();
            let refuse = Config {
                options: Options::Refuse,
                ..Config::new(at(ANY, PORT))
            };
            let data = GroupSocket::open(&refuse).unwrap();
            data.join(&membership).unwrap();
            (receiver, data)
        });
        let to = at(GROUP, PORT);
        requests.send(to, &HEADER, b"nak").unwrap();
        let mut buffer = OptionBuffer::new(1500);
        soon(&mut receiver, |receiver| {
            let got = receiver.receive(&mut buffer).unwrap()?;
            assert_eq!((*got.source.ip(), got.destination), (A, GROUP));
            assert_eq!(got.interface, membership.interface);
            assert_eq!(got.payload, b"nak");
            assert_eq!(got.options[1..], HEADER[1..]);
            assert_eq!(got.options[0], UDP, "the kernel's next header");
            Some(())
        })
        .expect("the option socket receives it");
        let missed = !readable_within(data.as_fd(), NOT_SOON);
        assert!(missed, "the data socket must not receive it");
        let transmit = Transmit {
            destination: SocketAddr::from(to),
            bytes: b"data",
            segment_len: None,
        };
        sender(&a, "a0", A).send_all(&transmit).unwrap();
        assert!(readable(data.as_fd()));
        let mut batch = Batch::new(4);
        assert_eq!(data.receive(&mut batch).unwrap(), 1);
        let got = batch.received().next().unwrap();
        assert_eq!(
            (got.source.ip(), got.payload),
            (IpAddr::V6(A), &b"data"[..])
        );
        assert_eq!(
            (got.destination, got.interface),
            (IpAddr::V6(GROUP), membership.interface)
        );
        assert!(receiver.receive(&mut buffer).unwrap().is_none());
        for bad in [&HEADER[..8], &[0, 0, 5, 9, 0, 0, 0, 0], &[0], &[0; 264]] {
            let error = requests.send(to, bad, b"x").unwrap_err();
            assert!(matches!(error, SendError::Malformed), "{bad:?}: {error}");
        }
    });
}

#[test]
fn a_source_specific_member_hears_its_source_and_the_tap_the_requests_of_others() {
    with_namespaces(|| {
        let (a, b) = pair();
        let other: Ipv6Addr = "fd00:9::77".parse().unwrap();
        let index = a.index("a0");
        a.edit(|editor| editor.add_address(index, other, 64).unwrap());
        let membership = member(&b, "b0", SSM, Some(A));
        let (data, mut tap) = b.run(|| {
            let data = GroupSocket::open(&Config::new(at(SSM, PORT))).unwrap();
            data.join(&membership).unwrap();
            let wrong = Membership {
                group: IpAddr::V6(SSM),
                source: Some(IpAddr::from([10, 0, 0, 1])),
                interface: 0,
            };
            assert!(matches!(data.join(&wrong), Err(JoinError::NotAGroup)));
            (
                data,
                RequestTap::open(membership.interface, SSM, PORT).unwrap(),
            )
        });
        let transmit = |from: Ipv6Addr, bytes: &[u8]| {
            let transmit = Transmit {
                destination: at(SSM, PORT),
                bytes,
                segment_len: None,
            };
            sender(&a, "a0", from).send_all(&transmit).unwrap();
        };
        transmit(other, b"forged");
        transmit(A, b"data");
        assert!(readable(data.as_fd()));
        let mut batch = Batch::new(4);
        data.receive(&mut batch).unwrap();
        let payloads: Vec<_> = batch.received().map(|got| got.payload).collect();
        assert_eq!(payloads, [b"data"]);
        let config = Config {
            interface: index,
            ..Config::new(at(other, 0))
        };
        let requests = a.run(|| OptionSocket::open(&config).unwrap());
        requests.send(at(SSM, PORT + 1), &HEADER, b"no").unwrap();
        requests.send(at(GROUP, PORT), &HEADER, b"no").unwrap();
        requests.send(at(SSM, PORT), &HEADER, b"nak").unwrap();
        let mut buffer = OptionBuffer::new(1500);
        soon(&mut tap, |tap| {
            let got = tap.receive(&mut buffer).unwrap()?;
            assert_eq!((*got.source.ip(), got.destination), (other, SSM));
            assert_eq!(got.payload, b"nak");
            assert_eq!(got.options, header_of(UDP));
            Some(())
        })
        .expect("the tap receives it");
        assert!(!readable_within(data.as_fd(), NOT_SOON));
    });
}

#[test]
fn batches_of_a_link_local_sender_arrive_with_its_zone() {
    with_namespaces(|| {
        let (a, b) = pair();
        let link_local = |host: &Host, name: &str| {
            let found = host.interface(name).ipv6;
            let found = found.iter().find(|own| own.is_link_local());
            found.expect("a link-local address").address.address
        };
        let group: Ipv6Addr = "ff12::1234".parse().unwrap();
        let (from, b0) = (link_local(&a, "a0"), b.index("b0"));
        let data = b.run(|| {
            // The address of the group is one of the interface, and so is the sender's.
            let config = Config {
                interface: b0,
                ..Config::new(at(group, PORT))
            };
            let data = GroupSocket::open(&config).unwrap();
            data.join(&member(&b, "b0", group, None)).unwrap();
            data
        });
        let bytes: Vec<u8> = (0..40_000).map(|at| at as u8).collect();
        let transmit = Transmit {
            destination: at(group, PORT),
            bytes: &bytes,
            segment_len: Some(1000),
        };
        let sender = sender(&a, "a0", from);
        assert!(sender.max_segments() > 1, "the kernel segments");
        sender.send_all(&transmit).unwrap();
        let (mut got, mut batch) = (Vec::new(), Batch::new(8));
        while got.len() < bytes.len() && readable(data.as_fd()) {
            data.receive(&mut batch).unwrap();
            for datagram in batch.received() {
                let SocketAddr::V6(source) = datagram.source else {
                    panic!("{:?}", datagram.source)
                };
                assert_eq!((*source.ip(), source.scope_id()), (from, b0));
                assert_eq!(datagram.payload.len(), 1000);
                got.extend_from_slice(datagram.payload);
            }
        }
        assert!(got == bytes, "{} of {} bytes", got.len(), bytes.len());
    });
}
