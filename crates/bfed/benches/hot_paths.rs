//! Forwarding with 10,000 flows; routes that are announced; the decision between many.

use std::hint::black_box;
use std::net::SocketAddr;

use bfed::data::{Meta, Verdict};
use bfed::native::{ChannelId, Direction, NativeError, Upcall};
use bfed::wire::allocate::Response;
use bfed::wire::attributes::Attributes;
use bfed::wire::client::AnswerRepr;
use bfed::wire::data::{HEADER_LEN, Kind, Repr};
use bfed::wire::join::FlowChannel;
use bfed::wire::subscribe::{Edge, Repr as Subscribe};
use bfed::wire::{MAX_MESSAGE_LEN, Message, open, update};
use bfed::*;
use criterion::{Criterion, criterion_group, criterion_main};

/// No native network at all.
struct None;

impl NativeNet for None {
    fn allocate_channel(
        &mut self,
        _: Instant,
        _: &SessionName,
        _: &str,
        _: Direction,
    ) -> Result<(ChannelId, Vec<u8>), NativeError> {
        Err(NativeError::Refused)
    }
    fn subscribe(
        &mut self,
        _: Instant,
        _: &SessionName,
        _: &str,
        _: Direction,
        _: ChannelId,
        _: Option<&[u8]>,
    ) -> Result<(), NativeError> {
        Err(NativeError::Refused)
    }
    fn refresh(&mut self, _: Instant, _: &SessionName, _: &str, _: Direction, _: ChannelId) {}
    fn unsubscribe(&mut self, _: Instant, _: &SessionName, _: &str, _: Direction, _: ChannelId) {}
    fn reclaim_channel(
        &mut self,
        _: Instant,
        _: &SessionName,
        _: &str,
        _: Direction,
        _: ChannelId,
    ) {
    }
    fn send_data(&mut self, _: Instant, _: ChannelId, _: &[u8]) -> Result<(), NativeError> {
        Err(NativeError::Refused)
    }
    fn get_sroutes(
        &mut self,
        _: Instant,
        _: u32,
        _: &SessionName,
        _: &[GatewayId],
    ) -> Option<Sroutes> {
        Option::None
    }
    fn answer(&mut self, _: Instant, _: Option<ClientId>, _: &AnswerRepr) {}
    fn poll_upcall(&mut self, _: Instant, _: &mut [u8]) -> Option<Upcall> {
        Option::None
    }
    fn handle_timeout(&mut self, _: Instant) {}
    fn poll_timeout(&self) -> Option<Instant> {
        Option::None
    }
}

const UPSTREAM: ([u8; 4], u16) = ([10, 0, 0, 1], 4000);

/// A data node with `flows` bulk sessions from one peer to another; headers of packets of each.
fn node(flows: u32) -> (DataNode, Vec<(Meta, [u8; HEADER_LEN])>) {
    let now = Instant::from_secs(1);
    let mut config = DataConfig::new(NodeId(1));
    config.stream = Some(([10, 0, 0, 2], 4000).into());
    config.max_sessions = flows;
    let mut node = DataNode::new(config, [1; 32], now);
    node.connected(now);
    let mut buffer = vec![0; MAX_MESSAGE_LEN];
    let mut packets = Vec::new();
    for number in 0..flows {
        let session = SessionName::parse(&format!("bfed://1/{number}")).unwrap();
        let address = |last| ChannelAddress::Stream(([10, 0, 0, last], 4000).into());
        let label = FlowLabel::new(number.wrapping_mul(2_654_435_761) | 1);
        for (up, last, label) in [(true, 1, label), (false, 3, Option::None)] {
            let edge = Edge::Peer {
                peer: PeerId(last.into()),
                rate_bps: 0,
            };
            let flows = vec![FlowChannel {
                label,
                address: address(last),
            }];
            let (request, epoch, session) = (1, 1, session.clone());
            let ask = Subscribe {
                up,
                request,
                epoch,
                edge,
                flows,
                session,
            };
            let ask = Message::Subscribe(ask);
            let len = ask.emit(&mut buffer);
            node.handle_packet(now, &mut None, &buffer[..len]).unwrap();
        }
        let (up, down) = (
            ConnId(u64::from(number) * 2),
            ConnId(u64::from(number) * 2 + 1),
        );
        let Some(data::DataEvent::Dial { edge, .. }) = node.poll_event() else {
            panic!()
        };
        assert!(node.dialled(edge, up));
        while let Some(len) = node.poll_control(&mut buffer) {
            if let Ok(Message::AllocateResponse(Response { flows, .. })) =
                Message::parse(&buffer[..len])
                && let Some(flow) = flows.first()
            {
                let mut attach = vec![0; HEADER_LEN];
                let (kind, label) = (Kind::Attach, flow.label.unwrap());
                let (sequence, timestamp_us, rtt_us, payload_len) = (0, 0, 0, 0);
                Repr {
                    kind,
                    label,
                    sequence,
                    timestamp_us,
                    rtt_us,
                    payload_len,
                }
                .emit(&mut attach);
                let from = Meta::Stream(down, [10, 0, 0, 3].into());
                assert!(matches!(
                    node.plane().forward(now, &from, &mut attach),
                    Verdict::Taken
                ));
            }
        }
        let mut packet = [0; HEADER_LEN];
        let (kind, label) = (Kind::Data, label.unwrap());
        let (sequence, timestamp_us, rtt_us, payload_len) = (0, 0, 0, 1200);
        Repr {
            kind,
            label,
            sequence,
            timestamp_us,
            rtt_us,
            payload_len,
        }
        .emit(&mut packet);
        packets.push((Meta::Stream(up, SocketAddr::from(UPSTREAM).ip()), packet));
    }
    (node, packets)
}

fn forward(c: &mut Criterion) {
    for flows in [1, 10_000] {
        let (mut node, packets) = node(flows);
        let now = Instant::from_secs(2);
        // One buffer, as a driver has; what varies is the label.
        let mut frame = vec![0; HEADER_LEN + 1200];
        let mut at = 0;
        c.bench_function(&format!("forward one copy, {flows} flows"), |b| {
            b.iter(|| {
                at = (at + 7919) % packets.len();
                let (meta, packet) = &packets[at];
                frame[..HEADER_LEN].copy_from_slice(packet);
                let Verdict::Forward(mut cursor) = node.plane().forward(now, meta, &mut frame)
                else {
                    panic!();
                };
                let copy = node.plane().next_copy(now, &mut cursor, &mut frame);
                assert!(black_box(copy).is_some());
            });
        });
    }
}

/// A control node with that many established peers.
fn control(peers: u32) -> ControlNode {
    let now = Instant::from_secs(1);
    let own = GatewayId::new(1, 1).unwrap();
    let mut config = Config::new(own);
    config.damping = Option::None;
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
            graceful: Option::None,
        };
        for message in [Message::Open(open), Message::KeepAlive] {
            let len = message.emit(&mut buffer);
            node.handle_packet(now, conn, &buffer[..len]).unwrap();
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
            node.handle_packet(now, ConnId(peer.into()), &announce(peer, 100, peer + 10))
                .unwrap();
        }
        let updates = [announce(0, 100, 1), announce(0, 100, 2)];
        let mut at = 0;
        c.bench_function(name, |b| {
            b.iter(|| {
                at ^= 1;
                node.handle_packet(now, ConnId(0), black_box(&updates[at]))
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
