//! Announcements by SAP, in networks of groups.

use std::net::SocketAddr;

use bfed::native::Direction;
use bfed::{Duration, SessionName};
use bfed_gateway::native::{Groups, Network, NetworkConfig, Role, SapConfig};
use linux_net::link::Editor;
use sap::{Description, Media, Origin, Packet};

use crate::common::*;

/// Where sessions of the pool, 239.200.0.0/30, are announced, and those of 239.0.0.0/8.
const SAP: &str = "224.2.127.254:9875";

fn config(announce: bool, learn_from: &[&str]) -> NetworkConfig {
    let learn_from = learn_from.iter().map(|text| text.parse().unwrap());
    NetworkConfig::Ip(bfed_gateway::native::MulticastConfig {
        sap: SapConfig {
            announce,
            learn_from: learn_from.collect(),
        },
        ..crate::ip::config()
    })
}

fn group() -> SocketAddr {
    SAP.parse().unwrap()
}

/// The next packet of the group.
fn packet(host: &mut Host) -> (bool, Vec<u8>) {
    let packets = host.receive(5000);
    let packet = Packet::parse(packets.first().expect("a packet")).unwrap();
    (packet.deletion, packet.payload.to_vec())
}

/// An announcement of a host.
fn announcement(id: u32, description: &Description, deletion: bool) -> Vec<u8> {
    let origin = Origin {
        session: format!("- {id}"),
        address: "studio".into(),
        version: 1,
    };
    let source = [127, 0, 0, 1].into();
    Packet {
        deletion,
        hash: 1,
        source,
        payload: description.emit(&origin).as_bytes(),
    }
    .emit()
}

fn names(network: &dyn Network) -> Vec<String> {
    let announced = network.announced().into_iter();
    announced
        .map(|one| one.session.as_str().to_owned())
        .collect()
}

#[test]
fn sessions_from_elsewhere_are_announced_while_they_are_presented() {
    alone(|| {
        let mut host = Host::in_group(group(), None);
        let mut net = channels(&config(true, &[]));
        let session = name(
            "bfed://9/tv/a/b/?content=real-time&title=Evening%20news&media=video%3ARTP%2FAVP%3A33%2Caudio%3Audp%3Ampeg",
        );
        let present = |net: &mut Box<dyn Network>, at: usize| {
            let flow = session.flows().nth(at).unwrap();
            let flow = bfed::native::NativeFlow::new(&session, flow, Direction::Down);
            let (channel, _) = net.allocate_channel(now(), flow).unwrap();
            net.handle_timeout(now());
            channel
        };
        present(&mut net, 0);
        assert!(
            host.receive(100).is_empty(),
            "not before all of its flows have groups"
        );
        let second = present(&mut net, 1);
        let (deletion, payload) = packet(&mut host);
        let (_, description) = Description::parse(&payload).unwrap();
        assert!(!deletion);
        assert_eq!(description.name, "Evening news");
        assert_eq!(description.federated.as_deref(), Some(session.as_str()));
        let media: Vec<_> = description
            .media
            .iter()
            .map(|one| {
                (
                    one.kind.as_str(),
                    one.protocol.as_str(),
                    one.format.as_str(),
                    one.group.to_string(),
                )
            })
            .collect();
        assert_eq!(
            media,
            [
                ("video", "RTP/AVP", "33", "239.200.0.0:6000".to_owned()),
                ("audio", "udp", "mpeg", "239.200.0.1:6000".to_owned()),
            ]
        );
        assert_eq!(
            net.poll_timeout().map(|at| at > now()),
            Some(true),
            "repeated"
        );
        let flow = session.flows().nth(1).unwrap();
        let flow = bfed::native::NativeFlow::new(&session, flow, Direction::Down);
        net.reclaim_channel(now(), flow, second);
        net.handle_timeout(now() + Duration::from_secs(1));
        assert!(packet(&mut host).0, "deleted");
        assert_eq!(count(&*net, "announcements_sent"), 2);
    });
}

#[test]
fn the_data_nodes_of_a_process_share_one_rate() {
    alone(|| {
        const PARTS: usize = 4;
        const HOUR_S: u64 = 3600;
        let mut host = Host::in_group(group(), None);
        let config = NetworkConfig::Ip(bfed_gateway::native::MulticastConfig {
            data: bfed_gateway::native::GroupsConfig {
                groups: Groups::parse("239.200.0.0/22").unwrap(),
                ..crate::ip::config().data
            },
            sap: SapConfig {
                announce: true,
                learn_from: vec![],
            },
            ..crate::ip::config()
        });
        let mut nets: Vec<_> = (0..PARTS)
            .map(|part| {
                let role = Role::Channels { part, parts: PARTS };
                started(config.open(role, owner()).unwrap())
            })
            .collect();
        // More sessions in each than the whole rate would announce in an interval of 300 s.
        for (at, net) in nets.iter_mut().enumerate() {
            for number in 0..200 {
                let title = "x".repeat(100);
                let session = name(&format!("bfed://9/{at}-{number}/?title={title}"));
                down(&mut **net, &session).unwrap();
            }
        }
        let (mut bytes, mut packets) = (0, 0);
        let end = now() + Duration::from_secs(HOUR_S);
        loop {
            let due = nets.iter().filter_map(|net| net.poll_timeout()).min();
            let Some(due) = due.filter(|due| *due < end) else {
                break;
            };
            for net in &mut nets {
                net.handle_timeout(due);
            }
            loop {
                let received = host.receive(0);
                if received.is_empty() {
                    break;
                }
                packets += received.len();
                bytes += received.iter().map(Vec::len).sum::<usize>();
            }
        }
        let sent: u64 = nets
            .iter()
            .map(|net| count(&**net, "announcements_sent"))
            .sum();
        assert_eq!(packets as u64, sent, "all of them were counted");
        // 4000 bit/s of RFC 2974, and the burst at the start.
        let burst = sap::BURST.total_micros() / 1_000_000;
        let allowed = 500 * (HOUR_S + burst) as usize + PARTS * sap::MAX_PACKET_LEN;
        assert!(bytes <= allowed, "{bytes} of {allowed}");
        // All of them had their part.
        for net in &nets {
            assert!(count(&**net, "announcements_sent") > 200);
        }
    });
}

#[test]
fn a_gateway_that_ends_withdraws_and_one_without_announces_nothing() {
    alone(|| {
        let mut host = Host::in_group(group(), None);
        let session = name("bfed://9/tv");
        let mut net = channels(&config(true, &[]));
        down(&mut *net, &session).unwrap();
        net.handle_timeout(now());
        let (_, payload) = packet(&mut host);
        let text = String::from_utf8(payload).unwrap();
        for line in [
            "s=bfed://9/tv\r\n",
            "c=IN IP4 239.200.0.0/16\r\n",
            "m=video 6000 udp mpeg\r\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        drop(net);
        assert!(packet(&mut host).0);
        let mut net = channels(&config(false, &[]));
        down(&mut *net, &session).unwrap();
        net.handle_timeout(now());
        assert!(host.receive(100).is_empty());
    });
}

#[test]
fn announcements_of_hosts_that_are_believed_are_listed() {
    alone(|| {
        let mut net = mediator(&config(false, &["127.0.0.0/8"]));
        let host = Host::bound(([127, 0, 0, 1], 0).into());
        let at = |text: &str| text.parse().unwrap();
        let mut media = Media::new("audio", at("239.1.2.3:5006"), "RTP/AVP", "96");
        media.rtpmap = Some("opus/48000/2".into());
        let video = Media::new("video", at("239.1.2.3:5004"), "RTP/AVP", "33");
        let news = Description::new("Evening news", vec![video, media]);
        host.send(group(), &announcement(1, &news, false));
        // What a gateway presents, groups of the pool, and media in several groups are not sessions of this network.
        let mut federated = news.clone();
        federated.federated = Some("bfed://9/x".into());
        host.send(group(), &announcement(2, &federated, false));
        let of = |text: &str| Media::new("video", at(text), "udp", "mpeg");
        let pool = Description::new("pool", vec![of("239.200.0.1:6000")]);
        host.send(group(), &announcement(3, &pool, false));
        let two = Description::new("two", vec![of("239.1.2.3:1"), of("239.1.2.4:1")]);
        host.send(group(), &announcement(4, &two, false));
        host.send(group(), b"\x20nonsense");
        nothing(&mut *net);
        let [name] = &names(&*net)[..] else {
            panic!("{:?}", names(&*net));
        };
        let session = SessionName::parse(name).unwrap();
        assert!(
            name.starts_with("bfed://7/239.1.2.3/5004/5006/?content=real-time&"),
            "{name}"
        );
        assert_eq!(session.parameters().count(), 3);
        assert_eq!(net.announced()[0].title, "Evening news");
        assert_eq!(count(&*net, "announcements_received"), 4);
        assert_eq!(count(&*net, "announcements_malformed"), 1);
        host.send(group(), &announcement(1, &news, true));
        nothing(&mut *net);
        assert!(names(&*net).is_empty());
    });
}

#[test]
fn announcements_of_other_hosts_change_nothing() {
    alone(|| {
        let mut net = mediator(&config(false, &["10.0.0.0/8"]));
        let host = Host::bound(([127, 0, 0, 1], 0).into());
        let media = Media::new("video", "239.1.2.3:5004".parse().unwrap(), "udp", "mpeg");
        let lie = Description::new("lie", vec![media]);
        for id in 0..100 {
            host.send(group(), &announcement(id, &lie, false));
        }
        nothing(&mut *net);
        assert!(names(&*net).is_empty());
        assert_eq!(count(&*net, "announcements_not_believed"), 100);
    });
}

#[test]
fn ipv6_works_alike() {
    alone(|| {
        let mut editor = Editor::open().unwrap();
        editor.add_veth("v0", "v1", None).unwrap();
        for name in ["v1", "v0"] {
            let index = editor.index(name).unwrap();
            editor.set_up(index, true).unwrap();
        }
        let index = editor.index("v0").unwrap();
        let address: std::net::Ipv6Addr = "fd00::1".parse().unwrap();
        editor.add_address(index, address, 64).unwrap();
        let mut config = crate::ip::config();
        config.data.link.interface = Some("v0".into());
        config.data.groups = Groups::parse("ff15::100/126").unwrap();
        config.data.export = vec!["ff00::/8".parse().unwrap()];
        config.mediator = "[ff15::6266]:25190".parse().unwrap();
        config.sap = SapConfig {
            announce: true,
            learn_from: vec!["fd00::/64".parse().unwrap(), "fe80::/10".parse().unwrap()],
        };
        let config = NetworkConfig::Ip(config);
        let group: SocketAddr = "[ff05::2:7ffe]:9875".parse().unwrap();
        let mut host = Host::in_group_on(group, None, index);
        let mut net = channels(&config);
        down(&mut *net, &name("bfed://9/tv")).unwrap();
        net.handle_timeout(now());
        let (_, payload) = packet(&mut host);
        let text = String::from_utf8(payload).unwrap();
        assert!(text.contains("c=IN IP6 ff15::100\r\n"), "{text}");
        let mut front = mediator(&config);
        let media = Media::new("video", "[ff15::1]:5004".parse().unwrap(), "udp", "mpeg");
        let news = Description::new("news", vec![media]);
        let source = Host::bound_on("[::]:0".parse().unwrap(), index);
        source.send(group, &announcement(1, &news, false));
        nothing(&mut *front);
        let names = names(&*front);
        assert!(names[0].starts_with("bfed://7/ff15::1/5004/?"), "{names:?}");
    });
}

#[test]
fn in_a_source_specific_network_the_source_is_announced() {
    alone(|| {
        let NetworkConfig::Ssm(mut config) = crate::ssm::config() else {
            unreachable!();
        };
        config.sap = SapConfig {
            announce: true,
            learn_from: vec!["127.0.0.0/8".parse().unwrap()],
        };
        let config = NetworkConfig::Ssm(config);
        let mut host = Host::in_group(group(), None);
        let mut net = channels(&config);
        down(&mut *net, &name("bfed://9/tv")).unwrap();
        net.handle_timeout(now());
        let (_, payload) = packet(&mut host);
        let text = String::from_utf8(payload.clone()).unwrap();
        let filter = "a=source-filter: incl IN IP4 232.98.0.0 127.0.0.1\r\n";
        assert!(text.contains(filter), "{text}");
        let mut front = mediator(&config);
        let mut media = Media::new("video", "232.1.2.3:5004".parse().unwrap(), "udp", "mpeg");
        media.source = Some([127, 0, 0, 9].into());
        let news = Description::new("news", vec![media]);
        Host::bound(([127, 0, 0, 1], 0).into()).send(group(), &announcement(1, &news, false));
        nothing(&mut *front);
        let names = names(&*front);
        assert!(
            names[0].starts_with("bfed://7/127.0.0.9@232.1.2.3/5004/?"),
            "{names:?}"
        );
    });
}
