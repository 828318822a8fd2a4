//! A golden byte vector for each drawing of `docs/wire.md`, both ways.

use crate::common::{channel, conference, cost, gateway, name, unhex};
use bfed::wire::class::{Class, Priority};
use bfed::wire::transport::Transport;
use bfed::wire::{
    Message, allocate, attributes, client, data, echo, join, liveness, no_route, node,
    notification, open, reclaim, report, sroute, statistics, subscribe, translation, update,
};
use bfed::*;

#[track_caller]
fn golden(hex: &str, value: Message) {
    let bytes = unhex(hex);
    assert_eq!(Message::parse(&bytes), Ok(value.clone()), "bytes to value");
    let mut buffer = vec![0xff; value.buffer_len()];
    assert_eq!(value.emit(&mut buffer), buffer.len());
    assert_eq!(buffer, bytes, "value to bytes");
}

#[test]
fn open() {
    golden(
        "62660101002400000102005a0000000700000001deadbeef000201020fff0204\
         00030078",
        Message::Open(open::Repr {
            version_low: 1,
            version_high: 2,
            hold_time_s: 90,
            gateway: gateway(7, 1),
            boot: 0xdead_beef,
            tables: Tables::ALL,
            graceful: Some(open::Graceful {
                restarting: true,
                preserved: true,
                restart_time_s: 120,
            }),
            transport: Transport::Plain,
            echo: false,
        }),
    );
}

#[test]
fn open_with_quic() {
    golden(
        "62660101002100000101005a0000000700000001deadbeef0002010200010301\
         02",
        Message::Open(open::Repr {
            version_low: 1,
            version_high: 1,
            hold_time_s: 90,
            gateway: gateway(7, 1),
            boot: 0xdead_beef,
            tables: Tables::from_bits(1).unwrap(),
            graceful: None,
            transport: Transport::Quic,
            echo: false,
        }),
    );
}

#[test]
fn open_with_echo() {
    golden(
        "62660101002000000101005a0000000700000001deadbeef0002010200010400",
        Message::Open(open::Repr {
            version_low: 1,
            version_high: 1,
            hold_time_s: 90,
            gateway: gateway(7, 1),
            boot: 0xdead_beef,
            tables: Tables::from_bits(1).unwrap(),
            graceful: None,
            transport: Transport::Plain,
            echo: true,
        }),
    );
}

#[test]
fn echo_request() {
    let token = 0x0123_4567_89ab_cdef;
    let reply = false;
    golden(
        "62660106001000000123456789abcdef",
        Message::Echo(echo::Repr { reply, token }),
    );
}

#[test]
fn echo_reply() {
    let token = 0x0123_4567_89ab_cdef;
    let reply = true;
    golden(
        "62660107001000000123456789abcdef",
        Message::Echo(echo::Repr { reply, token }),
    );
}

#[test]
fn keepalive() {
    golden("6266010200080000", Message::KeepAlive);
}

#[test]
fn notification() {
    golden(
        "6266010300140000080a35313320726f75746573",
        Message::Notification(notification::Repr::new(
            notification::Reason::PrefixLimit,
            "513 routes",
        )),
    );
}

#[test]
fn update() {
    golden(
        "6266010400480000050000010000000900000002000100000007000000010028\
         0001000400000003000200100000000800000004000000070000000180030008\
         0001000100000002",
        Message::Update(update::Repr {
            table: Table::new(Metric::Latency, Content::Bulk, true),
            withdrawn: vec![gateway(9, 2)],
            announced: vec![update::Announced {
                destination: gateway(7, 1),
                attributes: attributes::Attributes {
                    cost: Cost(3),
                    path: vec![gateway(8, 4), gateway(7, 1)],
                    tags: vec![0x10001, 2],
                },
            }],
        }),
    );
}

#[test]
fn end_of_table() {
    golden(
        "62660105000900000b",
        Message::EndOfTable(Table::new(Metric::Bandwidth, Content::RealTime, true)),
    );
}

#[test]
fn sroute_request() {
    golden(
        "62660110003400000000004d00000007000000011e0000020000000700000001\
         0000000700000002000a626665643a2f2f372f6d",
        Message::SrouteRequest(sroute::Request {
            request: 77,
            towards: gateway(7, 1),
            hop_limit: 30,
            internal: false,
            gateways: vec![gateway(7, 1), gateway(7, 2)],
            session: name(),
        }),
    );
}

#[test]
fn sroute_response() {
    golden(
        "62660111003400000000004d0000000200000007000000010000000300000007\
         00000002ffffffff000a626665643a2f2f372f6d",
        Message::SrouteResponse(sroute::Response {
            request: 77,
            outcome: sroute::Outcome::Costs,
            costs: vec![cost(7, 1, 3), cost(7, 2, u32::MAX)],
            session: name(),
        }),
    );
}

#[test]
fn join() {
    golden(
        "6266011200850000011f00010000000700000001000000030002aabbccdd0100\
         0006c00002011388000000000400001220010db8000000000000000000000001\
         13890041626665643a2f2f6973702e6e65742f3232342e352e362e372f383838\
         382f383838392f3f636f6e74656e743d525450266d756c74692d736f75726365\
         3d74727565",
        Message::Join(join::Repr {
            hop_limit: 31,
            sroutes: Some(vec![cost(7, 1, 3)]),
            flows: vec![
                channel(
                    0xaabb_ccdd,
                    ChannelAddress::Datagram("192.0.2.1:5000".parse().unwrap()),
                ),
                channel(
                    0,
                    ChannelAddress::Stream("[2001:db8::1]:5001".parse().unwrap()),
                ),
            ],
            session: conference(),
        }),
    );
}

#[test]
fn leave() {
    golden(
        "6266011300140000000a626665643a2f2f372f6d",
        Message::Leave(name()),
    );
}

#[test]
fn translation() {
    golden(
        "62660114003e0000000200000008000000040000000700000001000100000000\
         0500000e3233392e312e322e333a35303030000a626665643a2f2f372f6d",
        Message::Translation(translation::Repr {
            path: vec![gateway(8, 4), gateway(7, 1)],
            flows: vec![channel(
                0,
                ChannelAddress::Native(b"239.1.2.3:5000".to_vec()),
            )],
            session: name(),
        }),
    );
}

#[test]
fn no_route() {
    golden(
        "626601150015000002000a626665643a2f2f372f6d",
        Message::NoRoute(no_route::Repr {
            reason: no_route::Reason::NoSession,
            session: name(),
        }),
    );
}

#[test]
fn register() {
    golden(
        "62660120001c000000000003deadbeef000027100000000000000002",
        Message::Register(node::Register {
            node: NodeId(3),
            boot: 0xdead_beef,
            max_sessions: 10_000,
            epoch: 2,
        }),
    );
}

#[test]
fn liveness() {
    golden(
        "62660129000d00000000000702",
        Message::Liveness(liveness::Repr {
            peer: PeerId(7),
            state: liveness::State::Silent,
        }),
    );
}

#[test]
fn heartbeat() {
    golden(
        "626601210018000000000000000000020000002900000001",
        Message::Heartbeat(node::Heartbeat {
            epoch: 2,
            sequence: 41,
            draining: true,
            complete: false,
        }),
    );
}

#[test]
fn subscribe_down() {
    golden(
        "6266012200400000000000050000000000000002010000000000000900000000\
         3b9aca0000010000000001000006c00002011388000a626665643a2f2f372f6d",
        Message::Subscribe(subscribe::Repr {
            up: false,
            request: 5,
            epoch: 2,
            edge: subscribe::Edge::Peer {
                peer: PeerId(9),
                rate_bps: 1_000_000_000,
            },
            flows: vec![channel(
                0,
                ChannelAddress::Datagram("192.0.2.1:5000".parse().unwrap()),
            )],
            session: name(),
        }),
    );
}

#[test]
fn subscribe_up() {
    golden(
        "6266012300260000000000060000000000000002000000000000000a62666564\
         3a2f2f372f6d",
        Message::Subscribe(subscribe::Repr {
            up: true,
            request: 6,
            epoch: 2,
            edge: subscribe::Edge::Native,
            flows: vec![],
            session: name(),
        }),
    );
}

#[test]
fn allocate() {
    golden(
        "6266012400260000000000040000000000000002000000000100000a62666564\
         3a2f2f372f6d",
        Message::Allocate(allocate::Request {
            request: 4,
            epoch: 2,
            edge: subscribe::Edge::Native,
            transport: Transport::Plain,
            session: name(),
        }),
    );
}

#[test]
fn allocate_response_with_quic() {
    golden(
        "62660125004a000000000004000000010000000106000026c00002021770abab\
         abababababababababababababababababababababababababababababab000a\
         626665643a2f2f372f6d",
        Message::AllocateResponse(allocate::Response {
            request: 4,
            outcome: allocate::Outcome::Done,
            flows: vec![channel(
                1,
                ChannelAddress::Quic("192.0.2.2:6000".parse().unwrap(), KeyDigest([0xab; 32])),
            )],
            session: name(),
        }),
    );
}

#[test]
fn allocate_response() {
    golden(
        "62660125002a000000000004000000010000000101000006c00002021770000a\
         626665643a2f2f372f6d",
        Message::AllocateResponse(allocate::Response {
            request: 4,
            outcome: allocate::Outcome::Done,
            flows: vec![channel(
                1,
                ChannelAddress::Datagram("192.0.2.2:6000".parse().unwrap()),
            )],
            session: name(),
        }),
    );
}

#[test]
fn refresh() {
    golden(
        "62660126001c00000000000000000002000a626665643a2f2f372f6d",
        Message::Reclaim(reclaim::Repr {
            epoch: 2,
            what: None,
            session: name(),
        }),
    );
}

#[test]
fn reclaim() {
    golden(
        "6266012700300000000000000000000201000000010000000000000900000000\
         00000000000a626665643a2f2f372f6d",
        Message::Reclaim(reclaim::Repr {
            epoch: 2,
            what: Some(reclaim::ReclaimTarget::Receiver(subscribe::Edge::Peer {
                peer: PeerId(9),
                rate_bps: 0,
            })),
            session: name(),
        }),
    );
}

#[test]
fn statistics() {
    golden(
        "62660128004200000000000100000000000186a0000100000000000000010000\
         0000000003e800000000000000020000000000000000000a626665643a2f2f37\
         2f6d",
        Message::Statistics(statistics::Repr {
            sessions: 1,
            rate_bps: 100_000,
            entries: vec![statistics::Entry {
                packets: 1,
                bytes: 1000,
                copies: 2,
                dropped: 0,
                session: name(),
            }],
        }),
    );
}

#[test]
fn request() {
    golden(
        "62660130001c00000000006301010000000a626665643a2f2f372f6d",
        Message::Request(client::Request {
            nonce: 99,
            want: client::Want::Join,
            redirects: 1,
            session: name(),
            token: None,
        }),
    );
}

#[test]
fn request_with_a_token() {
    golden(
        "626601300021000000000063010100\
         00000a626665643a2f2f372f6d000376342e",
        Message::Request(client::Request {
            nonce: 99,
            want: client::Want::Join,
            redirects: 1,
            session: name(),
            token: client::Token::new("v4."),
        }),
    );
}

#[test]
fn tokens_are_bounded_and_printable() {
    let longest = "x".repeat(client::MAX_TOKEN_LEN);
    assert!(client::Token::new(&longest).is_some());
    for wrong in ["", "a b", "\u{e9}", "\n", &format!("{longest}x")] {
        assert_eq!(client::Token::new(wrong), None, "{wrong:?}");
    }
    let token = client::Token::new("secret").unwrap();
    assert!(!format!("{token:?}").contains("secret"));
}

#[test]
fn answer_translation() {
    golden(
        "62660131002f0000000000630100006900010500000d687474703a2f2f656467\
         652f6d000a626665643a2f2f372f6d",
        Message::Answer(client::AnswerRepr {
            nonce: 99,
            lifetime_s: 105,
            answer: client::Answer::Translation(vec![ChannelAddress::Native(
                b"http://edge/m".to_vec(),
            )]),
            session: name(),
        }),
    );
}

#[test]
fn answer_no_route() {
    golden(
        "6266013100200000000000630200000000000001000a626665643a2f2f372f6d",
        Message::Answer(client::AnswerRepr {
            nonce: 99,
            lifetime_s: 0,
            answer: client::Answer::NoRoute(no_route::Reason::Unreachable),
            session: name(),
        }),
    );
}

#[test]
fn answer_redirect() {
    golden(
        "6266013100310000000000630300000000000009000000020c3139322e302e32\
         2e393a3830000a626665643a2f2f372f6d",
        Message::Answer(client::AnswerRepr {
            nonce: 99,
            lifetime_s: 0,
            answer: client::Answer::Redirect {
                gateway: gateway(9, 2),
                mediator: "192.0.2.9:80".into(),
            },
            session: name(),
        }),
    );
}

#[test]
fn answer_cost() {
    golden(
        "626601310020000000000000040000000000000c000a626665643a2f2f372f6d",
        Message::Answer(client::AnswerRepr {
            nonce: 0,
            lifetime_s: 0,
            answer: client::Answer::Cost(Cost(12)),
            session: name(),
        }),
    );
}

#[track_caller]
fn golden_packet(hex: &str, repr: data::Repr, payload: &[u8]) {
    let bytes = unhex(hex);
    let packet = data::Packet::new_checked(&bytes[..]).unwrap();
    assert_eq!(data::Repr::parse(&packet), repr, "bytes to value");
    assert_eq!(packet.payload(), payload);
    let mut buffer = vec![0xff; repr.buffer_len()];
    buffer[data::HEADER_LEN..].copy_from_slice(payload);
    repr.emit(&mut buffer);
    assert_eq!(buffer, bytes, "value to bytes");
}

fn header(kind: data::Kind, payload_len: usize) -> data::Repr {
    let label = FlowLabel::new(0xaabb_ccdd).unwrap();
    data::Repr {
        kind,
        label,
        sequence: 0,
        timestamp_us: 0,
        rtt_us: 0,
        payload_len,
        class: Class::NONE,
        age_ms: 0,
        is_again: false,
    }
}

#[test]
fn data_packet_with_a_class() {
    let repr = data::Repr {
        sequence: 7,
        timestamp_us: 1_000_000,
        rtt_us: 32_000,
        class: Class::new(Priority::Key, Duration::from_millis(500)),
        age_ms: 40,
        ..header(data::Kind::Data, 4)
    };
    golden_packet(
        "116e0004aabbccdd00000007000f424003e8002864617461",
        repr,
        b"data",
    );
}

#[test]
fn data_packet_again() {
    let repr = data::Repr {
        sequence: 7,
        timestamp_us: 1_000_000,
        rtt_us: 32_000,
        class: Class::new(Priority::Key, Duration::from_millis(500)),
        age_ms: 40,
        is_again: true,
        ..header(data::Kind::Data, 4)
    };
    golden_packet(
        "11ee0004aabbccdd00000007000f424003e8002864617461",
        repr,
        b"data",
    );
}

#[test]
fn classes() {
    // Lifetimes are rounded down to one that a header can name.
    for (millis, named) in [(0, 10), (10, 10), (19, 10), (399, 300), (1_000_000, 60_000)] {
        let class = Class::new(Priority::Normal, Duration::from_millis(millis));
        assert_eq!(class.lifetime(), Some(Duration::from_millis(named)));
    }
    for bits in 0..=255 {
        let class = Class::from_bits(bits);
        let refused = bits != 0 && (bits & 128 != 0 || bits & 31 == 0);
        assert_eq!(class.is_none(), refused, "{bits}");
        let Some(class) = class else { continue };
        assert_eq!((class.bits(), class.is_some()), (bits, bits != 0));
        assert_eq!(class.lifetime().is_some(), bits != 0);
        assert_eq!(class.with_priority(class.priority()), class);
    }
    assert_eq!(Class::NONE.priority(), Priority::Normal);
    // Flags are of DATA and FRAGMENT alone.
    for kind in 1..=8 {
        let bytes = unhex(&format!(
            "1{kind}6e0004aabbccdd00000007000f424003e8002864617461"
        ));
        let is_data = matches!(kind, 1 | 6);
        assert_eq!(data::Packet::new_checked(&bytes[..]).is_ok(), is_data);
    }
    // Longer round-trip times are told as the longest.
    let mut bytes = [0; data::HEADER_LEN];
    for (rtt_us, told) in [(0, 0), (1, 32), (32, 32), (33, 64), (u32::MAX, 65_535 * 32)] {
        let repr = data::Repr {
            rtt_us,
            class: Class::new(Priority::Key, Duration::from_millis(500)),
            ..header(data::Kind::Data, 0)
        };
        repr.emit(&mut bytes);
        let packet = data::Packet::new_checked(&bytes[..]).unwrap();
        assert_eq!(packet.rtt_us(), told);
    }
}

#[test]
fn data_packet() {
    let repr = data::Repr {
        sequence: 7,
        timestamp_us: 1_000_000,
        rtt_us: 30_000,
        ..header(data::Kind::Data, 4)
    };
    golden_packet(
        "11000004aabbccdd00000007000f42400000753064617461",
        repr,
        b"data",
    );
}

#[test]
fn attach_packet() {
    golden_packet(
        "12000000aabbccdd000000000000000000000000",
        header(data::Kind::Attach, 0),
        b"",
    );
}

#[test]
fn probe_packet() {
    let repr = data::Repr {
        sequence: 0x0102_0304,
        ..header(data::Kind::Probe, 0).with_cookie(0x1122_3344_5566_7788)
    };
    golden_packet("14000000aabbccdd010203041122334455667788", repr, b"");
}

#[test]
fn echo_packet() {
    let repr = data::Repr {
        sequence: 0x0102_0304,
        ..header(data::Kind::Echo, 0).with_cookie(0x1122_3344_5566_7788)
    };
    golden_packet("15000000aabbccdd010203041122334455667788", repr, b"");
}

#[test]
fn fragment_packet() {
    let mut payload = *b"........data";
    let fragment = wire::fragment::Repr {
        frame: 0x0102_0304,
        index: 1,
        count: 3,
    };
    fragment.emit(&mut payload);
    assert_eq!(wire::fragment::Repr::parse(&payload), Ok(fragment));
    let repr = data::Repr {
        sequence: 7,
        timestamp_us: 1_000_000,
        rtt_us: 30_000,
        ..header(data::Kind::Fragment, payload.len())
    };
    golden_packet(
        "1600000caabbccdd00000007000f424000007530010203040103000064617461",
        repr,
        &payload,
    );
}

#[test]
fn init_packet() {
    let mut payload = *b"........init";
    let init = wire::init::Repr {
        generation: 0x0102_0304,
        total: 1500,
        offset: 1000,
    };
    init.emit(&mut payload);
    assert_eq!(wire::init::Repr::parse(&payload), Ok((init, &b"init"[..])));
    golden_packet(
        "1700000caabbccdd0000000000000000000000000102030405dc03e8696e6974",
        header(data::Kind::Init, payload.len()),
        &payload,
    );
}

#[test]
fn init_request_packet() {
    let mut payload = [0xff; wire::init::LEN];
    let request = wire::init::Request {
        generation: 0x0102_0304,
        offset: 1000,
    };
    request.emit(&mut payload);
    assert_eq!(wire::init::Request::parse(&payload), Ok(request));
    golden_packet(
        "18000008aabbccdd00000000000000000000000001020304000003e8",
        header(data::Kind::InitRequest, payload.len()),
        &payload,
    );
}

#[test]
fn repair_request_packet() {
    let mut request = wire::repair::Request::new(7);
    assert!(request.add(8) && request.add(10) && !request.add(7 + 65));
    assert_eq!(request.packets().collect::<Vec<_>>(), [7, 8, 10]);
    let mut payload = [0; wire::repair::LEN];
    request.emit(&mut payload);
    assert_eq!(wire::repair::Request::parse(&payload), Ok(request));
    golden_packet(
        "1900000caabbccdd000000000000000000000000000000070000000000000005",
        header(data::Kind::RepairRequest, payload.len()),
        &payload,
    );
}

#[test]
fn tail_packet() {
    let repr = data::Repr {
        sequence: 7,
        class: Class::new(Priority::Key, Duration::from_millis(500)),
        age_ms: 42,
        ..header(data::Kind::Tail, 0)
    };
    golden_packet("1a6e0000aabbccdd00000007000000000000002a", repr, &[]);
}

#[test]
fn parity_packet() {
    let front = wire::parity::Repr {
        count: 16,
        total: 4,
        index: 3,
    };
    let shard = wire::parity::Shard {
        kind: data::Kind::Data,
        class: Class::new(Priority::Key, Duration::from_millis(500)),
        payload: b"data",
    };
    let mut payload = vec![0xff; wire::parity::LEN + shard.buffer_len()];
    front.emit(&mut payload);
    shard.emit(&mut payload[wire::parity::LEN..]);
    let (parsed, rest) = wire::parity::Repr::parse(&payload).unwrap();
    assert_eq!(parsed, front);
    assert_eq!(wire::parity::Shard::parse(rest), Ok(shard));
    let repr = data::Repr {
        sequence: 7,
        class: Class::new(Priority::Key, Duration::from_millis(500)),
        age_ms: 42,
        ..header(data::Kind::Parity, payload.len())
    };
    golden_packet(
        "1b6e000caabbccdd00000007000000000000002a1004030000046e0164617461",
        repr,
        &payload,
    );
}

#[test]
fn report_packet() {
    let report = report::Repr {
        echo_us: 1_000_000,
        delay_us: 250,
        received_rate: 125_000,
        loss: 1 << 25,
    };
    let mut payload = [0; report::LEN];
    report.emit(&mut payload);
    assert_eq!(report::Repr::parse(&payload), Ok(report));
    golden_packet(
        "13000010aabbccdd000000000000000000000000000f4240000000fa0001e848\
         02000000",
        header(data::Kind::Report, report::LEN),
        &payload,
    );
}
