//! IP multicast of any source.

use std::net::SocketAddr;

use bfed::ClientRequest;
use bfed::native::{Direction, FrameClass, NativeError, Priority, Upcall};
use bfed::wire::client::{Answer, AnswerRepr, Want};
use bfed::wire::notification::{Reason, Repr as Notification};
use bfed::wire::sroute::Outcome;
use bfed::{ChannelAddress, Cost, Duration, GatewayId, Scope};
use bfed_gateway::native::{
    ClientLimits, Groups, GroupsConfig, Link, MulticastConfig, NetworkConfig, Role, SapConfig, ip,
};

use linux_net::link::Editor;

use crate::common::*;

pub(crate) const MEDIATOR: &str = "239.255.98.102:25190";

pub(crate) fn config() -> MulticastConfig {
    MulticastConfig {
        data: GroupsConfig {
            link: Link {
                interface: Some("lo".into()),
                max_payload: Some(1000),
                ..Link::default()
            },
            groups: Groups::parse("239.200.0.0/30").unwrap(),
            port: 6000,
            export: vec!["239.0.0.0/8".parse().unwrap()],
        },
        mediator: MEDIATOR.parse().unwrap(),
        sap: SapConfig::default(),
        limits: ClientLimits::default(),
        cost: None,
    }
}

#[test]
fn a_session_of_the_network_is_heard_whoever_sends_it() {
    alone(|| {
        let mut net = channels(&NetworkConfig::Ip(config()));
        let session = name("bfed://7/239.1.2.3/5004");
        let channel = up(&mut *net, &session).unwrap();
        let source = Host::bound(([127, 0, 0, 1], 0).into());
        for text in ["one", "", "three"] {
            source.send(([239, 1, 2, 3], 5004).into(), text.as_bytes());
        }
        for text in ["one", "", "three"] {
            let upcall = Upcall::Data {
                channel,
                len: text.len(),
            };
            assert_eq!(soon(&mut *net), (upcall, text.as_bytes().to_vec()));
        }
        // Another port of the group, and another group on the port, are other sessions.
        source.send(([239, 1, 2, 3], 5005).into(), b"x");
        source.send(([239, 1, 2, 4], 5004).into(), b"x");
        nothing(&mut *net);
        // A paused channel is not read; what arrives meanwhile is read afterwards.
        net.set_paused(channel, true);
        source.send(([239, 1, 2, 3], 5004).into(), b"waits");
        nothing(&mut *net);
        net.set_paused(channel, false);
        assert_eq!(soon(&mut *net).1, b"waits");
        net.unsubscribe(now(), first_flow(&session, Direction::Up), channel);
        source.send(([239, 1, 2, 3], 5004).into(), b"x");
        nothing(&mut *net);
    });
}

#[test]
fn what_a_gateway_sent_itself_does_not_come_back() {
    alone(|| {
        let mut net = channels(&NetworkConfig::Ip(config()));
        let session = name("bfed://7/239.1.2.3/5004/?multi-source=true");
        let channel = up(&mut *net, &session).unwrap();
        let group: SocketAddr = ([239, 1, 2, 3], 5004).into();
        let mut host = Host::in_group(group, None);
        net.send_data(now(), channel, b"from elsewhere").unwrap();
        net.flush(now());
        assert_eq!(host.receive(5000), [b"from elsewhere"]);
        nothing(&mut *net);
        assert_eq!(count(&*net, "own_datagrams"), 1);
        // Equal bytes from another socket, even of this host, are not dropped.
        host.send(group, b"from elsewhere");
        assert_eq!(soon(&mut *net).1, b"from elsewhere");
    });
}

#[test]
fn sessions_from_elsewhere_get_groups_of_the_pool() {
    alone(|| {
        let mut net = channels(&NetworkConfig::Ip(config()));
        let session = name("bfed://9/x");
        let (channel, address) = down(&mut *net, &session).unwrap();
        assert_eq!(address, "239.200.0.0:6000");
        let mut host = Host::in_group(address.parse().unwrap(), None);
        net.send_data(now(), channel, b"hello").unwrap();
        net.send_data(now(), channel, b"again").unwrap();
        net.send_data(now(), channel, b"x").unwrap();
        net.flush(now());
        let mut received = vec![];
        while received.len() < 3 {
            received.extend(host.receive(5000));
        }
        assert_eq!(
            received,
            [&b"hello"[..], b"again", b"x"],
            "in order, each by itself"
        );
        for _ in 1..4 {
            down(&mut *net, &session).unwrap();
        }
        assert_eq!(down(&mut *net, &session), Err(NativeError::Full));
        net.reclaim_channel(now(), first_flow(&session, Direction::Down), channel);
        assert_eq!(down(&mut *net, &session).unwrap().1, address);
        assert_eq!(
            net.send_data(now(), channel, b"x"),
            Err(NativeError::Refused)
        );
    });
}

#[test]
fn a_byte_stream_is_cut_to_size_and_a_real_time_frame_is_not() {
    alone(|| {
        let mut net = channels(&NetworkConfig::Ip(config()));
        let (bulk, address) = down(&mut *net, &name("bfed://9/x")).unwrap();
        let mut host = Host::in_group(address.parse().unwrap(), None);
        let bytes: Vec<u8> = (0..16_384u32).map(|n| n as u8).collect();
        net.send_data(now(), bulk, &bytes).unwrap();
        net.send_data(now(), bulk, b"end").unwrap();
        net.flush(now());
        let mut received: Vec<Vec<u8>> = vec![];
        while received.last().is_none_or(|last| last != b"end") {
            let more = host.receive(5000);
            assert!(!more.is_empty());
            received.extend(more);
        }
        assert!(received.iter().all(|datagram| datagram.len() <= 1000));
        assert_eq!(received.concat(), [&bytes[..], b"end"].concat());

        let (real_time, _) = down(&mut *net, &name("bfed://9/y/?content=real-time")).unwrap();
        assert_eq!(
            net.send_data(now(), real_time, &bytes),
            Err(NativeError::Refused)
        );
        assert_eq!(net.send_data(now(), real_time, &bytes[..1000]), Ok(()));
        assert_eq!(count(&*net, "frames_too_big"), 1);
    });
}

#[test]
fn long_frames_of_a_byte_stream_follow_one_another_in_full_datagrams() {
    alone(|| {
        let mut net = channels(&NetworkConfig::Ip(config()));
        let (bulk, address) = down(&mut *net, &name("bfed://9/x")).unwrap();
        let mut host = Host::in_group(address.parse().unwrap(), None);
        let frame = |number: u8| vec![number; 16_384];
        let sent: Vec<Vec<u8>> = (0..10).map(frame).collect();
        let mut received: Vec<Vec<u8>> = vec![];
        for frame in &sent {
            net.send_data(now(), bulk, frame).unwrap();
            // What makes a whole piece for the kernel does not wait for more.
            received.extend(host.receive(0));
        }
        assert!(received.len() >= 100, "{}", received.len());
        net.flush(now());
        let all = sent.concat();
        while received.iter().map(Vec::len).sum::<usize>() < all.len() {
            let more = host.receive(5000);
            assert!(!more.is_empty());
            received.extend(more);
        }
        assert!(received.concat() == all);
        // All are full, but the last.
        let (last, full) = received.split_last().unwrap();
        assert!(full.iter().all(|datagram| datagram.len() == 1000));
        assert_eq!(last.len(), all.len() % 1000);
        assert_eq!(count(&*net, "frames_sent"), 10);
    });
}

#[test]
fn a_class_of_service_is_set() {
    alone(|| {
        let mut config = config();
        config.data.link.dscp = 34;
        let mut net = channels(&NetworkConfig::Ip(config));
        let (channel, address) = down(&mut *net, &name("bfed://9/x")).unwrap();
        let group: SocketAddr = address.parse().unwrap();
        // A raw socket is given the IP header too.
        let udp = Some(socket2::Protocol::UDP);
        let host = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::RAW, udp).unwrap();
        let SocketAddr::V4(v4) = group else { panic!() };
        let lo = socket2::InterfaceIndexOrAddress::Index(1);
        host.join_multicast_v4_n(v4.ip(), &lo).unwrap();
        host.set_read_timeout(Some(std::time::Duration::from_secs(20)))
            .unwrap();
        net.send_data(now(), channel, b"hello").unwrap();
        net.flush(now());
        let mut buffer = [0; 64];
        assert_eq!(
            std::io::Read::read(&mut &host, &mut buffer).unwrap(),
            20 + 8 + 5
        );
        assert_eq!(buffer[1], 34 << 2, "the class of service in the header");
        assert_eq!(count(&*net, "datagrams_unsent"), 0);
    });
}

#[test]
fn names_that_are_no_groups_are_no_sessions() {
    alone(|| {
        let mut net = channels(&NetworkConfig::Ip(config()));
        let wrong = [
            "bfed://7/10.0.0.1/5004",
            "bfed://7/224.0.0.5/5004",
            "bfed://7/239.1.2.3/audio",
            "bfed://7/10.0.0.1@232.1.2.3/5004",
            "bfed://7/ff15::1/5004",
            // The pool's groups carry others' sessions, the mediator's its messages.
            "bfed://7/239.200.0.1/5004",
            "bfed://7/239.255.98.102/5004",
        ];
        let mut front = mediator(&NetworkConfig::Ip(config()));
        for text in wrong {
            assert_eq!(
                up(&mut *net, &name(text)),
                Err(NativeError::NoSession),
                "{text}"
            );
            let sroutes = front
                .get_sroutes(now(), 1, &name(text), &[gateway()])
                .unwrap();
            assert_eq!(sroutes.outcome, Outcome::NoSession, "{text}");
        }
        // A message of another gateway is not trusted more than a name.
        let session = name("bfed://9/x");
        let flow = first_flow(&session, Direction::Up);
        let (channel, _) = net.allocate_channel(now(), flow).unwrap();
        for address in [
            &b"10.0.0.1:5"[..],
            b"",
            b"\xff\xff",
            b"10.0.0.1@232.1.2.3:5",
        ] {
            let done = net.subscribe(now(), flow, channel, Some(address));
            assert_eq!(done, Err(NativeError::NoSession));
        }
        let done = net.subscribe(now(), flow, channel, Some(b"239.1.1.1:5"));
        assert_eq!(done, Ok(()));
    });
}

#[test]
fn data_nodes_of_one_gateway_share_no_group() {
    alone(|| {
        let mut all = std::collections::BTreeSet::new();
        for part in 0..2 {
            let role = Role::Channels { part, parts: 2 };
            let mut net = NetworkConfig::Ip(config()).open(role, owner()).unwrap();
            while let Ok((_, address)) = down(&mut *net, &name("bfed://9/x")) {
                assert!(all.insert(address));
            }
        }
        assert_eq!(all.len(), 4);
    });
}

#[test]
fn ipv6_works_alike() {
    alone(|| {
        let mut config = config();
        // The loopback interface has no route to IPv6 groups, others have.
        let mut editor = Editor::open().unwrap();
        editor.add_veth("v0", "v1", None).unwrap();
        for name in ["v1", "v0"] {
            let index = editor.index(name).unwrap();
            editor.set_up(index, true).unwrap();
        }
        let index = editor.index("v0").unwrap();
        let address: std::net::Ipv6Addr = "fd00::1".parse().unwrap();
        editor.add_address(index, address, 64).unwrap();
        config.data.link.interface = Some("v0".into());
        config.data.groups = Groups::parse("ff15::100/126").unwrap();
        config.data.export = vec!["ff00::/8".parse().unwrap()];
        config.mediator = "[ff15::6266]:25190".parse().unwrap();
        let mut net = channels(&NetworkConfig::Ip(config.clone()));
        let channel = up(&mut *net, &name("bfed://7/ff15::1/5004")).unwrap();
        let source = Host::bound_on("[::]:0".parse().unwrap(), index);
        source.send("[ff15::1]:5004".parse().unwrap(), b"six");
        assert_eq!(
            soon(&mut *net),
            (Upcall::Data { channel, len: 3 }, b"six".to_vec())
        );
        let (channel, address) = down(&mut *net, &name("bfed://9/x")).unwrap();
        assert_eq!(address, "[ff15::100]:6000");
        let mut host = Host::in_group_on(address.parse().unwrap(), None, index);
        net.send_data(now(), channel, b"hello").unwrap();
        net.flush(now());
        assert_eq!(host.receive(5000), [b"hello"]);
        let mut front = mediator(&NetworkConfig::Ip(config));
        source.send(
            "[ff15::6266]:25190".parse().unwrap(),
            &request(Want::Join, 5, &name("bfed://9/x")),
        );
        assert!(matches!(soon(&mut *front).0, Upcall::Join(_)));
    });
}

#[test]
fn a_full_link_makes_a_channel_busy_and_then_writable_again() {
    alone(|| {
        let mut editor = Editor::open().unwrap();
        editor.add_veth("v0", "v1", None).unwrap();
        for name in ["v1", "v0"] {
            let index = editor.index(name).unwrap();
            editor.set_up(index, true).unwrap();
        }
        let near = editor.index("v0").unwrap();
        editor
            .add_address(near, std::net::Ipv4Addr::new(10, 1, 0, 1), 24)
            .unwrap();
        // A slow link with a long queue: the socket's buffer fills first.
        editor
            .set_token_bucket(near, 100_000_000, 20_000, 64 << 20)
            .unwrap();
        let mut config = config();
        config.data.link.interface = Some("v0".into());
        let mut net = channels(&NetworkConfig::Ip(config));
        let (channel, _) = down(&mut *net, &name("bfed://9/x")).unwrap();
        let frame = [7; 16_384];
        let mut fits = 0;
        let refused = loop {
            match net.send_data(now(), channel, &frame) {
                Ok(()) => fits += 1,
                Err(error) => break error,
            }
            assert!(fits < 5000);
        };
        assert_eq!(refused, NativeError::Busy);
        let mut writable = None;
        for _ in 0..2000 {
            writable = net.poll_writable();
            if writable.is_some() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(writable, Some(channel));
        assert_eq!(net.poll_writable(), None, "told once");
        assert_eq!(count(&*net, "datagrams_unsent"), 0);
        assert_eq!(net.send_data(now(), channel, b"goes on"), Ok(()));
    });
}

#[test]
fn one_answer_to_the_group_serves_all_who_asked() {
    alone(|| {
        let mut front = mediator(&NetworkConfig::Ip(config()));
        let group: SocketAddr = MEDIATOR.parse().unwrap();
        let mut hosts = [Host::in_group(group, None), Host::in_group(group, None)];
        let session = name("bfed://9/x");
        let asked = [
            request(Want::Join, 5, &session),
            request(Want::Join, 6, &session),
        ];
        hosts[0].send(group, &asked[0]);
        hosts[1].send(group, &asked[1]);
        let Upcall::Join(ClientRequest {
            client,
            scope: Scope::Heard,
            cost_only: false,
            ..
        }) = soon(&mut *front).0
        else {
            panic!();
        };
        nothing(&mut *front);
        assert_eq!(count(&*front, "requests_damped"), 1);
        let address = ChannelAddress::Native(b"239.200.0.0:6000".to_vec());
        let translation = answer(Answer::Translation(vec![address]), &session);
        front.answer(now(), Some(client), &translation);
        front.answer(now(), Some(client), &translation);
        for host in &mut hosts {
            let mut received = vec![];
            while received.len() < 3 {
                received.extend(host.receive(5000));
            }
            assert_eq!(received[..2], asked, "clients hear each other");
            assert_eq!(
                AnswerRepr::parse(&received[2]).unwrap(),
                translation,
                "nonce 0: for all"
            );
            assert!(host.receive(50).is_empty(), "once");
        }
        // Its own answer came back and is not counted as malformed.
        nothing(&mut *front);
        assert_eq!(count(&*front, "requests_malformed"), 0);
        hosts[0].send(group, &request(Want::Leave, 5, &session));
        nothing(&mut *front);
        front.handle_timeout(now() + ip::GRACE);
        assert_eq!(soon(&mut *front).0, Upcall::Leave(session));
    });
}

#[test]
fn costs_are_answered_to_whom_they_are_for() {
    alone(|| {
        let mut front = mediator(&NetworkConfig::Ip(config()));
        let group: SocketAddr = MEDIATOR.parse().unwrap();
        let mut host = Host::in_group(group, None);
        let session = name("bfed://9/x");
        host.send(group, &request(Want::Cost, 77, &session));
        let Upcall::Join(ClientRequest {
            client,
            cost_only: true,
            ..
        }) = soon(&mut *front).0
        else {
            panic!();
        };
        front.answer(
            now(),
            Some(client),
            &answer(Answer::Cost(Cost(3)), &session),
        );
        let mut received = vec![];
        while received.len() < 2 {
            received.extend(host.receive(5000));
        }
        let received = AnswerRepr::parse(&received[1]).unwrap();
        assert_eq!(
            (received.nonce, received.answer),
            (77, Answer::Cost(Cost(3)))
        );
        // A request for the cost makes no client of the session.
        front.handle_timeout(now() + Duration::from_secs(200));
        nothing(&mut *front);
    });
}

#[test]
fn a_request_of_another_version_is_answered_with_both_versions() {
    alone(|| {
        let mut front = mediator(&NetworkConfig::Ip(config()));
        let group: SocketAddr = MEDIATOR.parse().unwrap();
        let mut host = Host::in_group(group, None);
        let mut newer = request(Want::Join, 5, &name("bfed://9/x"));
        newer[2] = 2;
        host.send(group, &newer);
        nothing(&mut *front);
        let mut received = vec![];
        while received.len() < 2 {
            received.extend(host.receive(5000));
        }
        let why = Notification::parse(&received[1]).unwrap();
        assert_eq!(why.reason, Reason::Version);
        assert!(why.text.starts_with(
            "the client speaks version 2 of the control protocol, the gateway version 1: install"
        ));
        // An answer of another gateway of another version, and what this one said itself, are not answered.
        let answer = answer(Answer::Cost(Cost(3)), &name("bfed://9/x"));
        let mut bytes = vec![0; answer.buffer_len()];
        answer.emit(&mut bytes);
        bytes[2] = 2;
        host.send(group, &bytes);
        nothing(&mut *front);
        assert_eq!(host.receive(200).len(), 1, "what was sent alone");
        assert_eq!(count(&*front, "requests_other_version"), 2);
        assert_eq!(count(&*front, "requests_malformed"), 0);
        // A flood is answered within a rate.
        for _ in 0..100 {
            host.send(group, &newer);
        }
        nothing(&mut *front);
        let batches = std::iter::from_fn(|| Some(host.receive(200)));
        let received: Vec<_> = batches.take_while(|batch| !batch.is_empty()).collect();
        let refusals = received
            .iter()
            .flatten()
            .filter(|one| Notification::parse(one).is_ok())
            .count();
        assert!((1..=12).contains(&refusals), "{refusals}");
        assert_eq!(count(&*front, "requests_other_version"), 102);
    });
}

#[test]
fn nonsense_and_floods_cost_little_and_pass() {
    alone(|| {
        let mut config = config();
        config.limits = ClientLimits {
            clients: 3,
            requests_per_second: 100,
        };
        let mut front = mediator(&NetworkConfig::Ip(config));
        let group: SocketAddr = MEDIATOR.parse().unwrap();
        let host = Host::bound(([127, 0, 0, 1], 0).into());
        let good = request(Want::Join, 5, &name("bfed://9/x"));
        for end in 0..good.len() {
            host.send(group, &good[..end]);
        }
        host.send(group, &[good.clone(), vec![0]].concat());
        nothing(&mut *front);
        assert_eq!(count(&*front, "requests_malformed"), good.len() as u64 + 1);
        for number in 0..150 {
            host.send(
                group,
                &request(Want::Join, 5, &name(&format!("bfed://9/{number}"))),
            );
        }
        for _ in 0..3 {
            assert!(matches!(soon(&mut *front).0, Upcall::Join(_)));
        }
        nothing(&mut *front);
        assert_eq!(count(&*front, "requests_no_room"), 97);
        assert_eq!(count(&*front, "requests_rate_limited"), 50);
    });
}

#[test]
fn costs_of_gateways_are_told_where_the_administrator_says_them() {
    alone(|| {
        let mut config = config();
        let session = name("bfed://7/239.1.2.3/5004");
        let other = GatewayId::new(OWN, 2).unwrap();
        let asked = [other, gateway()];
        let mut silent = mediator(&NetworkConfig::Ip(config.clone()));
        let reported = silent.get_sroutes(now(), 1, &session, &asked).unwrap();
        assert_eq!(
            (reported.outcome, reported.costs.len(), reported.got_all),
            (Outcome::Null, 0, true)
        );
        drop(silent);
        config.cost = Some(12);
        let mut front = mediator(&NetworkConfig::Ip(config));
        let reported = front.get_sroutes(now(), 1, &session, &asked).unwrap();
        assert_eq!(
            (reported.outcome, reported.got_all),
            (Outcome::Costs, false)
        );
        assert_eq!(
            (reported.costs[0].gateway, reported.costs[0].cost),
            (gateway(), Cost(12))
        );
        assert!(
            front
                .get_sroutes(now(), 1, &session, &[other])
                .unwrap()
                .costs
                .is_empty()
        );
    });
}

#[test]
fn peers_have_the_groups_that_are_exported_and_no_others() {
    alone(|| {
        let mut config = config();
        let ssdp = "bfed://7/239.255.255.250/1900";
        let film = "bfed://7/239.1.2.3/5004";
        // By default none.
        config.data.export = vec![];
        let mut net = channels(&NetworkConfig::Ip(config.clone()));
        for group in [ssdp, film] {
            assert_eq!(up(&mut *net, &name(group)), Err(NativeError::NoSession));
        }
        assert_eq!(count(&*net, "sessions_refused"), 2);
        drop(net);
        config.data.export = vec!["239.1.0.0/16".parse().unwrap()];
        let mut net = channels(&NetworkConfig::Ip(config));
        assert_eq!(up(&mut *net, &name(ssdp)), Err(NativeError::NoSession));
        let channel = up(&mut *net, &name(film)).unwrap();
        let source = Host::bound(([127, 0, 0, 1], 0).into());
        source.send(([239, 255, 255, 250], 1900).into(), b"M-SEARCH");
        source.send(([239, 1, 2, 3], 5004).into(), b"film");
        assert_eq!(
            soon(&mut *net),
            (Upcall::Data { channel, len: 4 }, b"film".to_vec())
        );
        nothing(&mut *net);
        // Sessions from elsewhere come in groups of the pool, exported or not.
        down(&mut *net, &name("bfed://9/x")).unwrap();
    });
}

#[test]
fn packets_of_rtp_tell_their_priority() {
    alone(|| {
        let mut config = config();
        config.data.link.rtp = vec![(96, media::rtp::Format::H264)];
        let mut net = channels(&NetworkConfig::Ip(config));
        let session = name("bfed://7/239.1.2.3/5004/?content=real-time");
        let channel = up(&mut *net, &session).unwrap();
        let source = Host::bound(([127, 0, 0, 1], 0).into());
        let packet = |number: u8, unit: u8| [&[0x80, number], &[0; 10][..], &[unit, 1]].concat();
        let frame = |priority| Upcall::Frame {
            channel,
            len: 14,
            class: FrameClass {
                priority,
                lifetime: None,
            },
        };
        let data = Upcall::Data { channel, len: 14 };
        for (packet, expected) in [
            (packet(96, 0x65), frame(Priority::Key)),
            (packet(96, 0x41), data.clone()),
            (packet(96, 0x01), frame(Priority::Discardable)),
            (packet(97, 0x65), data),
        ] {
            source.send(([239, 1, 2, 3], 5004).into(), &packet);
            assert_eq!(soon(&mut *net), (expected, packet));
        }
    });
}
