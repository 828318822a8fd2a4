//! Forwarding with 10,000 flows; routes that are announced; the decision between many.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant as Clock};

use bfed::data::{Destination, Meta, PREFETCH_MAX, Verdict};
use bfed::native::ChannelId;
use bfed::wire::allocate::Response;
use bfed::wire::attributes::Attributes;
use bfed::wire::data::{HEADER_LEN, Kind, Repr};
use bfed::wire::join::FlowChannel;
use bfed::wire::subscribe::{Edge, Repr as Subscribe};
use bfed::wire::{MAX_MESSAGE_LEN, Message, open, update};
use bfed::*;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// A gateway without a native network.
struct NoNetwork;

impl NativeNet for NoNetwork {}

/// The upstream peer's data node.
const SOURCE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 4000);

/// The labels that the upstream peer gives.
fn label_of(number: u32) -> FlowLabel {
    FlowLabel::new(number.wrapping_mul(2_654_435_761) | 1).unwrap()
}

/// The header of a packet of the flow with that label.
fn header(kind: Kind, label: FlowLabel, payload_len: usize) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    Repr {
        payload_len,
        ..Repr::new(kind, label)
    }
    .emit(&mut header);
    header
}

/// A data node with `flows` bulk sessions from one peer to another: session `n` comes on stream `2 n`
/// and goes out on `2 n + 1`. With `udp` they all come from the peer's UDP socket instead.
fn node(flows: u32, udp: bool) -> DataNode<NoNetwork> {
    let now = Instant::from_secs(1);
    let mut config = DataConfig::new(NodeId(1));
    config.stream = Some(([10, 0, 0, 2], 4000).into());
    config.datagram = config.stream;
    config.max_sessions = flows;
    let mut node = DataNode::new(config, Box::new(NoNetwork), [1; 32], now);
    node.connected(now);
    let mut buffer = vec![0; MAX_MESSAGE_LEN];
    for number in 0..flows {
        let session = SessionName::parse(&format!("bfed://1/{number}")).unwrap();
        let from = match udp {
            true => ChannelAddress::Datagram(SOURCE),
            false => ChannelAddress::Stream(SOURCE),
        };
        let to = ChannelAddress::Stream(([10, 0, 0, 3], 4000).into());
        let label = Some(label_of(number));
        for (up, peer, label, address) in [(true, 1, label, from), (false, 3, None, to)] {
            let ask = Subscribe {
                up,
                request: 1,
                epoch: 1,
                edge: Edge::Peer {
                    peer: PeerId(peer),
                    rate_bps: 0,
                },
                flows: vec![FlowChannel { label, address }],
                session: session.clone(),
            };
            let len = Message::Subscribe(ask).emit(&mut buffer);
            node.handle_packet(now, &(), &buffer[..len]).unwrap();
        }
        let number = u64::from(number);
        node.handle_timeout(now);
        if let Some(data::DataEvent::Dial { edge, .. }) = node.poll_event() {
            assert!(node.dialled(edge, ConnId(2 * number)));
        }
        while let Some(len) = node.poll_transmit_control(&mut buffer) {
            if let Ok(Message::AllocateResponse(Response { flows, .. })) =
                Message::parse(&buffer[..len])
                && let Some(flow) = flows.first()
            {
                let mut attach = header(Kind::Attach, flow.label.unwrap(), 0);
                let from = Meta::Stream(ConnId(2 * number + 1), [10, 0, 0, 3].into());
                let verdict = node.plane().forward(now, &from, &mut attach);
                assert!(matches!(verdict, Verdict::Taken));
            }
        }
    }
    let mut frame = vec![0; HEADER_LEN];
    while node.plane().poll_transmit(now, &mut frame).is_some() {}
    node
}

/// The next of `count` numbers, in an order that a prefetcher cannot predict.
fn next(state: &mut u64, count: u32) -> u32 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (((*state >> 32) * u64::from(count)) >> 32) as u32
}

const PAYLOAD_LEN: usize = 1200;

/// What forwarding cannot do without: a place in a table, a line of the flow that is counted in, and a
/// line of the edge with the destination. No logic, only the memory accesses.
fn control_of_memory(c: &mut Criterion) {
    #[derive(Clone)]
    #[repr(align(32))]
    struct Place([u64; 4]);
    #[derive(Clone)]
    #[repr(align(64))]
    struct Line([u64; 8]);

    const FLOWS: u32 = 10_000;
    let size = (4 * FLOWS as usize).next_power_of_two() / 2;
    let home = |flow: u32| (u64::from(flow) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) as usize >> 32;
    let mut places = vec![Place([0; 4]); size];
    for flow in 0..FLOWS {
        places[home(flow) & (size - 1)].0[3] = flow.into();
    }
    let mut flows = vec![Line([0; 8]); FLOWS as usize];
    let edges = vec![[Line([1; 8]), Line([1; 8])]; FLOWS as usize];
    // A processor looks ahead over a few hundred instructions: it fetches the lines of several of these
    // steps at once, but not those of several packets. So the second waits for each step's last line.
    for (name, waits) in [
        ("three cache lines of 10000 flows, overlapping", false),
        ("three cache lines of 10000 flows, one after another", true),
    ] {
        let mut state = 1;
        c.bench_function(name, |b| {
            b.iter(|| {
                let place = home(next(&mut state, FLOWS)) & (size - 1);
                let at = places[place].0[3] as usize;
                let flow = &mut flows[at].0;
                (flow[0], flow[1]) = (flow[0] + 1, flow[1] + 1200);
                let edge = &edges[at + flow[3] as usize][1].0;
                let last = black_box(edge[0]);
                if waits {
                    state += last;
                }
            });
        });
    }
}

/// Forwards one packet, which makes one copy.
#[inline(always)]
fn pass(plane: &mut data::Plane, meta: &Meta, frame: &mut [u8]) {
    let now = Instant::from_secs(2);
    let mut cursor = match plane.forward(now, meta, frame) {
        Verdict::Only(copy) => {
            let Destination::Stream(conn) = copy.to else {
                panic!();
            };
            black_box((conn, &frame[copy.range]));
            return;
        }
        Verdict::Forward(cursor) => cursor,
        Verdict::Taken | Verdict::Drop(_) => panic!(),
    };
    let mut copies = 0;
    while let Some(copy) = plane.next_transmit(now, &mut cursor, frame) {
        let Destination::Stream(conn) = copy.to else {
            panic!();
        };
        black_box((conn, &frame[copy.range]));
        copies += 1;
    }
    assert_eq!(copies, 1);
}

/// Packets in a buffer after one read.
const READ_TOGETHER: usize = 128;

/// Only finding the flow by the label and writing the header for its receiver: the packets are there
/// before the clock runs, in no order, and are taken one by one, without looking ahead.
fn lookup_and_rewrite(c: &mut Criterion) {
    for flows in [1, 10_000] {
        let mut node = node(flows, false);
        let mut state = 1;
        let mut buffer = vec![0; READ_TOGETHER * (HEADER_LEN + PAYLOAD_LEN)];
        let mut metas = [Meta::Native(ChannelId(0)); READ_TOGETHER];
        let name = format!("label looked up and header rewritten, {flows} flows");
        c.bench_function(&name, |b| {
            b.iter_custom(|packets| {
                let mut took = Duration::ZERO;
                for left in (1..=packets).rev().step_by(READ_TOGETHER) {
                    let count = READ_TOGETHER.min(left as usize);
                    let frames = buffer.chunks_exact_mut(HEADER_LEN + PAYLOAD_LEN);
                    let mut together: Vec<_> = metas.iter_mut().zip(frames).take(count).collect();
                    for (meta, frame) in &mut together {
                        let number = next(&mut state, flows);
                        let header = header(Kind::Data, label_of(number), PAYLOAD_LEN);
                        frame[..HEADER_LEN].copy_from_slice(&header);
                        **meta = Meta::Stream(ConnId(2 * u64::from(number)), SOURCE.ip());
                    }
                    let plane = node.plane();
                    let begun = Clock::now();
                    for (meta, frame) in together {
                        pass(plane, meta, frame);
                    }
                    took += begun.elapsed();
                }
                took
            });
        });
    }
}

fn forward(c: &mut Criterion) {
    control_of_memory(c);
    lookup_and_rewrite(c);
    let packet = header(Kind::Data, label_of(0), PAYLOAD_LEN);
    for (flows, udp) in [(1, false), (10_000, false), (10_000, true)] {
        let name = |what: &str| {
            let by = if udp { ", that come over UDP" } else { "" };
            format!("{what}, {flows} flows{by}")
        };
        let mut node = node(flows, udp);
        let mut state = 1;
        let mut sequences = vec![0_u32; flows as usize];
        let mut arrive = |frame: &mut [u8]| {
            let number = next(&mut state, flows);
            frame[..HEADER_LEN].copy_from_slice(&packet);
            frame[4..8].copy_from_slice(&label_of(number).get().to_be_bytes());
            if !udp {
                return Meta::Stream(ConnId(2 * u64::from(number)), SOURCE.ip());
            }
            let sequence = &mut sequences[number as usize];
            *sequence += 1;
            frame[8..12].copy_from_slice(&sequence.to_be_bytes());
            Meta::Datagram(SOURCE)
        };
        // One buffer, as a driver has.
        let mut frame = vec![0; HEADER_LEN + PAYLOAD_LEN];
        c.bench_function(&name("forward one copy"), |b| {
            b.iter(|| {
                let meta = arrive(&mut frame);
                pass(node.plane(), &meta, &mut frame);
            });
        });
        // Packets that have come together.
        let mut frames = vec![vec![0; HEADER_LEN + PAYLOAD_LEN]; PREFETCH_MAX];
        let mut group = c.benchmark_group(name("forward one copy of each of 32"));
        group.throughput(Throughput::Elements(PREFETCH_MAX as u64));
        group.bench_function("look ahead", |b| {
            b.iter(|| {
                let mut metas = [Meta::Native(ChannelId(0)); PREFETCH_MAX];
                for (meta, frame) in metas.iter_mut().zip(&mut frames) {
                    *meta = arrive(frame);
                }
                let plane = node.plane();
                let packets = metas.iter().zip(&frames);
                plane.prefetch(packets.map(|(meta, frame)| (meta, &frame[..])));
                for (meta, frame) in metas.iter().zip(&mut frames) {
                    pass(plane, meta, frame);
                }
            });
        });
        group.finish();
    }
}

/// A control node with that many established peers.
fn control(peers: u32) -> ControlNode {
    let now = Instant::from_secs(1);
    let own = GatewayId::new(1, 1).unwrap();
    let mut config = Config::new(own);
    config.damping = None;
    let mut node = ControlNode::new(config, [1; 32], now).unwrap();
    let mut buffer = vec![0; MAX_MESSAGE_LEN];
    for peer in 0..peers {
        let gateway = GatewayId::new(peer + 2, 1).unwrap();
        let id = PeerId(peer);
        node.add_peer(now, id, PeerConfig::new(gateway)).unwrap();
        let conn = ConnId(peer.into());
        node.connected(now, conn, id, false);
        let open = open::Repr {
            version_low: 1,
            version_high: 1,
            hold_time_s: 0,
            gateway,
            boot: 1,
            tables: Tables::ALL,
            graceful: None,
            transport: bfed::wire::transport::Transport::Plain,
            echo: false,
        };
        for message in [Message::Open(open), Message::KeepAlive] {
            let len = message.emit(&mut buffer);
            node.handle_packet(now, &conn, &buffer[..len]).unwrap();
        }
    }
    node
}

/// An UPDATE of that peer for `routes` destinations.
fn announce(peer: u32, routes: u32, cost: u32) -> Vec<u8> {
    let gateway = GatewayId::new(peer + 2, 1).unwrap();
    let announced = (0..routes).map(|number| {
        let destination = GatewayId::new(10_000 + number, 1).unwrap();
        let path = vec![gateway, GatewayId::new(5000, 1).unwrap(), destination];
        update::Announced {
            destination,
            attributes: Attributes {
                cost: Cost(cost),
                path,
                tags: vec![],
            },
        }
    });
    let table = Table::from_number(0).unwrap();
    let message = update::Repr {
        table,
        withdrawn: vec![],
        announced: announced.collect(),
    };
    let mut bytes = vec![0; message.buffer_len()];
    message.emit(&mut bytes);
    bytes
}

fn routes(c: &mut Criterion) {
    let now = Instant::from_secs(2);
    for (name, peers) in [
        ("100 routes announced, 2 peers", 2),
        ("100 routes decided among 32 peers", 32),
    ] {
        let mut node = control(peers);
        for peer in 0..peers {
            node.handle_packet(now, &ConnId(peer.into()), &announce(peer, 100, peer + 10))
                .unwrap();
        }
        let updates = [announce(0, 100, 1), announce(0, 100, 2)];
        let mut at = 0;
        c.bench_function(name, |b| {
            b.iter(|| {
                at ^= 1;
                node.handle_packet(now, &ConnId(0), black_box(&updates[at]))
                    .unwrap();
            });
        });
    }
    c.bench_function("parse a name", |b| {
        let text = "bfed://multicast.isp.net/224.5.6.7/8888/8889/?content=RTP&single-source=true";
        b.iter(|| SessionName::parse(black_box(text)).unwrap());
    });
}

criterion_group!(benches, forward, routes);
criterion_main!(benches);
