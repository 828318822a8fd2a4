//! Any message emitted and parsed; also cut short, with a flipped bit, or replaced by any bytes.

use crate::common::gateway;
use bfed::wire::attributes::{Attributes, MAX_PATH, Wrong};
use bfed::wire::reader::Field;
use bfed::wire::sroute::GatewayCost;
use bfed::wire::subscribe::Edge;
use bfed::wire::transport::Transport;
use bfed::wire::{
    Frames, MAX_MESSAGE_LEN, Message, ParseError, allocate, client, data, echo, join, no_route,
    node, notification, open, reader, reclaim, sroute, statistics, subscribe, translation, update,
};
use bfed::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::net::SocketAddr;

fn gateways(most: usize) -> impl Strategy<Value = Vec<GatewayId>> {
    proptest::collection::btree_set((1_u32..9, any::<u32>()), 1..most).prop_map(|set| {
        set.into_iter()
            .map(|(network, number)| gateway(network, number))
            .collect()
    })
}

fn address() -> impl Strategy<Value = ChannelAddress> {
    prop_oneof![
        (1_u32..0xe000_0000, 1_u16..).prop_map(|(ip, port)| ChannelAddress::Datagram(
            (core::net::Ipv4Addr::from_bits(ip), port).into()
        )),
        (1_u16.., 1_u16..).prop_map(|(ip, port)| ChannelAddress::Stream(
            (
                core::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, ip),
                port
            )
                .into()
        )),
        (1_u32..0xe000_0000, 1_u16.., any::<[u8; 32]>()).prop_map(|(ip, port, key)| {
            ChannelAddress::Quic(SocketAddr::from((ip.to_be_bytes(), port)), KeyDigest(key))
        }),
        (1_u16.., any::<[u8; 32]>()).prop_map(|(port, key)| {
            let ip = [0x2001, 0xdb8, 0, 0, 0, 0, 0, port];
            ChannelAddress::Quic(SocketAddr::from((ip, port)), KeyDigest(key))
        }),
        vec(any::<u8>(), 1..512).prop_map(ChannelAddress::Native),
    ]
}

fn flow() -> impl Strategy<Value = join::FlowChannel> {
    (any::<u32>(), address()).prop_map(|(label, address)| join::FlowChannel {
        label: FlowLabel::new(label),
        address,
    })
}

/// A session and a channel for each of its flows.
fn session() -> impl Strategy<Value = (SessionName, Vec<join::FlowChannel>)> {
    (1_u32.., "[a-z]{1,60}", vec(flow(), 1..=16)).prop_map(|(owner, native, flows)| {
        let names: String = (0..flows.len()).map(|at| format!("/{at}")).collect();
        (
            SessionName::parse(&format!("bfed://{owner}/{native}{names}")).unwrap(),
            flows,
        )
    })
}

fn costs() -> impl Strategy<Value = Vec<GatewayCost>> {
    (gateways(32), any::<u32>()).prop_map(|(gateways, cost)| {
        gateways
            .into_iter()
            .map(|gateway| GatewayCost {
                gateway,
                cost: Cost(cost),
            })
            .collect()
    })
}

fn transport() -> impl Strategy<Value = Transport> {
    prop_oneof![Just(Transport::Plain), Just(Transport::Quic)]
}

fn edge() -> impl Strategy<Value = Edge> {
    prop_oneof![
        Just(Edge::Native),
        (any::<u32>(), any::<u64>()).prop_map(|(peer, rate_bps)| Edge::Peer {
            peer: PeerId(peer),
            rate_bps
        }),
    ]
}

fn announced() -> impl Strategy<Value = update::Announced> {
    (gateways(MAX_PATH), 0..u32::MAX, vec(any::<u32>(), 0..=16)).prop_map(|(path, cost, tags)| {
        update::Announced {
            destination: *path.last().unwrap(),
            attributes: Attributes {
                cost: Cost(cost),
                path,
                tags,
            },
        }
    })
}

fn peering_message() -> impl Strategy<Value = Message> {
    prop_oneof![
        (
            3_u16..,
            any::<u32>(),
            1_u16..4096,
            any::<Option<(bool, bool, u16)>>(),
            transport(),
            any::<bool>()
        )
            .prop_map(|(hold_time_s, boot, tables, graceful, transport, echo)| {
                Message::Open(open::Repr {
                    version_low: 1,
                    version_high: 3,
                    hold_time_s,
                    gateway: gateway(7, 1),
                    boot,
                    tables: Tables::from_bits(tables).unwrap(),
                    graceful: graceful.map(|(restarting, preserved, restart_time_s)| {
                        open::Graceful {
                            restarting,
                            preserved,
                            restart_time_s,
                        }
                    }),
                    transport,
                    echo,
                })
            }),
        Just(Message::KeepAlive),
        any::<String>().prop_map(|text| Message::Notification(notification::Repr::new(
            notification::Reason::Shutdown,
            &text
        ))),
        (0_u8..12, gateways(20), vec(announced(), 0..8)).prop_map(
            |(table, withdrawn, announced)| {
                let table = Table::from_number(table).unwrap();
                Message::Update(update::Repr {
                    table,
                    withdrawn,
                    announced,
                })
            }
        ),
        any::<(bool, u64)>().prop_map(|(reply, token)| Message::Echo(echo::Repr { reply, token })),
        (0_u8..12).prop_map(|table| Message::EndOfTable(Table::from_number(table).unwrap())),
    ]
}

fn tree_message() -> impl Strategy<Value = Message> {
    prop_oneof![
        (1_u32.., any::<u8>(), any::<bool>(), gateways(32), session()).prop_map(
            |(request, hop_limit, internal, gateways, (session, _))| {
                let towards = gateways[0];
                Message::SrouteRequest(sroute::Request {
                    request,
                    towards,
                    hop_limit,
                    internal,
                    gateways,
                    session,
                })
            }
        ),
        (any::<u32>(), costs(), session()).prop_map(|(request, costs, (session, _))| {
            let outcome = sroute::Outcome::Costs;
            Message::SrouteResponse(sroute::Response {
                request,
                outcome,
                costs,
                session,
            })
        }),
        (any::<u8>(), proptest::option::of(costs()), session()).prop_map(
            |(hop_limit, sroutes, (session, flows))| {
                Message::Join(join::Repr {
                    hop_limit,
                    sroutes,
                    flows,
                    session,
                })
            }
        ),
        session().prop_map(|(session, _)| Message::Leave(session)),
        (gateways(MAX_PATH), session()).prop_map(|(path, (session, flows))| {
            Message::Translation(translation::Repr {
                path,
                flows,
                session,
            })
        }),
        session().prop_map(|(session, _)| Message::NoRoute(no_route::Repr {
            reason: no_route::Reason::Loop,
            session
        })),
    ]
}

fn node_message() -> impl Strategy<Value = Message> {
    prop_oneof![
        (any::<u32>(), any::<u32>(), any::<u32>(), any::<u64>()).prop_map(
            |(node, boot, max_sessions, epoch)| {
                let node = NodeId(node);
                Message::Register(node::Register {
                    node,
                    boot,
                    max_sessions,
                    epoch,
                })
            }
        ),
        (any::<u64>(), any::<u32>(), any::<bool>(), any::<bool>()).prop_map(
            |(epoch, sequence, draining, complete)| {
                Message::Heartbeat(node::Heartbeat {
                    epoch,
                    sequence,
                    draining,
                    complete,
                })
            }
        ),
        (any::<bool>(), any::<u32>(), any::<u64>(), edge(), session()).prop_map(
            |(up, request, epoch, edge, (session, mut flows))| {
                if edge == Edge::Native && !up {
                    flows.clear();
                }
                Message::Subscribe(subscribe::Repr {
                    up,
                    request,
                    epoch,
                    edge,
                    flows,
                    session,
                })
            }
        ),
        (any::<u32>(), any::<u64>(), edge(), transport(), session()).prop_map(
            |(request, epoch, edge, transport, (session, _))| {
                Message::Allocate(allocate::Request {
                    request,
                    epoch,
                    edge,
                    transport,
                    session,
                })
            }
        ),
        (any::<u32>(), session()).prop_map(|(request, (session, flows))| {
            let outcome = allocate::Outcome::Done;
            Message::AllocateResponse(allocate::Response {
                request,
                outcome,
                flows,
                session,
            })
        }),
        (
            any::<u64>(),
            proptest::option::of((any::<bool>(), edge())),
            session()
        )
            .prop_map(|(epoch, what, (session, _))| {
                let what = what.map(|(receiver, edge)| match (receiver, edge) {
                    (true, edge) => reclaim::ReclaimTarget::Receiver(edge),
                    (false, Edge::Native) => reclaim::ReclaimTarget::All,
                    (false, edge) => reclaim::ReclaimTarget::Source(edge),
                });
                Message::Reclaim(reclaim::Repr {
                    epoch,
                    what,
                    session,
                })
            }),
    ]
}

fn report_or_client_message() -> impl Strategy<Value = Message> {
    prop_oneof![
        (any::<u64>(), vec(session(), 0..=12)).prop_map(|(count, sessions)| {
            let entry = |(session, _)| statistics::Entry {
                packets: count,
                bytes: count,
                copies: 1,
                dropped: 0,
                session,
            };
            let entries = sessions.into_iter().map(entry).collect();
            Message::Statistics(statistics::Repr {
                sessions: 9,
                rate_bps: count,
                entries,
            })
        }),
        (1_u32.., any::<u8>(), session(), "[!-~]{0,40}").prop_map(
            |(nonce, redirects, (session, _), token)| {
                let want = client::Want::Cost;
                Message::Request(client::Request {
                    nonce,
                    want,
                    redirects,
                    session,
                    token: client::Token::new(&token),
                })
            }
        ),
        (any::<u32>(), session()).prop_map(|(nonce, (session, flows))| {
            let addresses = flows.into_iter().map(|flow| flow.address).collect();
            Message::Answer(client::AnswerRepr {
                nonce,
                lifetime_s: 105,
                answer: client::Answer::Translation(addresses),
                session,
            })
        }),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        peering_message(),
        tree_message(),
        node_message(),
        report_or_client_message(),
    ]
}

fn emit(message: &Message) -> Vec<u8> {
    let mut buffer = vec![0xff; message.buffer_len()];
    message.emit(&mut buffer);
    buffer
}

/// A message that parses must be the same after it was emitted and parsed again.
fn same_or_error(bytes: &[u8]) {
    if let Ok(message) = Message::parse(bytes) {
        let again = emit(&message);
        assert_eq!(Message::parse(&again), Ok(message), "{bytes:02x?}");
    }
    let _ = update::Repr::parse_lenient(bytes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn round_trip_and_damage(message in message()) {
        let bytes = emit(&message);
        prop_assert!(bytes.len() <= MAX_MESSAGE_LEN);
        prop_assert_eq!(Message::parse(&bytes), Ok(message));
        for len in 0..bytes.len() {
            prop_assert!(Message::parse(&bytes[..len]).is_err(), "cut to {}", len);
        }
        let mut longer = bytes.clone();
        longer.push(0);
        prop_assert_eq!(Message::parse(&longer), Err(ParseError::Length));
        // Every bit of short messages, and every seventh of long ones.
        let step = if bytes.len() < 400 { 1 } else { 7 };
        for bit in (0..8 * bytes.len()).step_by(step) {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            same_or_error(&flipped);
        }
    }

    #[test]
    fn any_body_is_a_message_or_an_error(kind in 0_u8..50, body in vec(any::<u8>(), 0..300)) {
        let mut bytes = vec![0x62, 0x66, 1, kind, 0, 0, 0, 0];
        bytes.extend(&body);
        let len = bytes.len() as u16;
        bytes[4..6].copy_from_slice(&len.to_be_bytes());
        same_or_error(&bytes);
    }

    #[test]
    fn streams_cut_anywhere_give_the_same_messages(
        messages in vec(prop_oneof![peering_message(), tree_message()], 1..6),
        cuts in vec(1_usize..700, 1..20),
    ) {
        let stream: Vec<u8> = messages.iter().flat_map(emit).collect();
        let (mut frames, mut out, mut rest) = (Frames::new(), Vec::new(), &stream[..]);
        for &cut in cuts.iter().cycle() {
            let (mut piece, after) = rest.split_at(cut.min(rest.len()));
            rest = after;
            while let Some(frame) = frames.next(&mut piece).unwrap() {
                out.push(Message::parse(frame).unwrap());
            }
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(out, messages);
        prop_assert_eq!(frames.partial(), &[0_u8; 0]);
    }

    #[test]
    fn any_attributes_are_a_route_or_a_fault(bytes in vec(0_u8..9, 0..60)) {
        if let Ok(attributes) = Attributes::parse(&bytes, gateway(7, 1), |_| ()) {
            prop_assert!(attributes.cost.is_finite());
            prop_assert_eq!(attributes.path.last(), Some(&gateway(7, 1)));
        }
    }

    #[test]
    fn any_packet_is_data_or_an_error(bytes in vec(any::<u8>(), 0..64)) {
        if let Ok(packet) = data::Packet::new_checked(&bytes[..]) {
            let mut again = bytes.clone();
            data::Repr::parse(&packet).emit(&mut again);
            prop_assert_eq!(&again, &bytes);
        }
    }
}

#[test]
fn a_bad_route_leaves_its_neighbours_alone() {
    let good = |number| update::Announced {
        destination: gateway(7, number),
        attributes: Attributes {
            cost: Cost(1),
            path: vec![gateway(7, number)],
            tags: vec![],
        },
    };
    let message = Message::Update(update::Repr {
        table: Table::from_number(0).unwrap(),
        withdrawn: vec![],
        announced: vec![good(1), good(2), good(3)],
    });
    let mut bytes = emit(&message);
    // Cost of the second route: header 8, counts 6, one route of 30, then 10, attribute head 4.
    let at = 8 + 6 + 30 + 10 + 4;
    assert_eq!(bytes[at..at + 4], [0, 0, 0, 1]);
    bytes[at..at + 4].fill(0xff);
    let parsed = update::Repr::parse_lenient(&bytes).unwrap();
    assert_eq!(parsed.update.announced, [good(1), good(3)]);
    assert_eq!(parsed.update.withdrawn, [gateway(7, 2)]);
    assert_eq!(parsed.faulty, [Wrong::Value]);
    assert_eq!(update::Repr::parse(&bytes), Err(ParseError::Value));
}

#[test]
fn frames_refuse_a_header_before_the_body_is_kept() {
    let mut frames = Frames::new();
    let mut input: &[u8] = &[0x62, 0x66, 1, 4, 0xff, 0xff, 0, 0, 1, 2, 3];
    assert_eq!(frames.next(&mut input), Err(ParseError::Length));
    let mut frames = Frames::new();
    assert_eq!(
        frames.next(&mut &b"GET / HTTP/1.1\r\n"[..]),
        Err(ParseError::Identifier)
    );
    assert_eq!(frames.partial(), b"GET / HT");
}

#[test]
fn addresses_that_nothing_can_be_sent_to_are_refused() {
    for (kind, value) in [
        (1, vec![224, 0, 0, 1, 0, 9]),
        (1, vec![255, 255, 255, 255, 0, 9]),
        (2, vec![0, 0, 0, 0, 0, 9]),
        (1, vec![192, 0, 2, 1, 0, 0]),
        (1, vec![192, 0, 2, 1, 0]),
        (1, vec![192, 0, 2, 1, 0, 9, 0]),
        (5, vec![]),
        (5, vec![1; 513]),
        (6, vec![1]),
    ] {
        let mut bytes = vec![kind, 0];
        bytes.extend((value.len() as u16).to_be_bytes());
        bytes.extend(value);
        assert!(
            ChannelAddress::parse(&mut reader::Reader::new(&bytes)).is_err(),
            "{bytes:?}"
        );
    }
}
