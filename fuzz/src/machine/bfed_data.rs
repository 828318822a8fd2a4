//! A data node: control messages real and forged, packets from those it knows and from others.
//!
//! Asserted: copies go only where control said; a packet makes no more copies than the flow has
//! edges; sessions and edges stay within their limits, and memory within its bound.

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

use bfed::data::{DataEvent, Destination, HEADER_LEN, Meta, Verdict};
use bfed::wire::allocate::Request;
use bfed::wire::class::Class;
use bfed::wire::data::{Kind, Packet, Repr};
use bfed::wire::join::FlowChannel;
use bfed::wire::node::Heartbeat;
use bfed::wire::reclaim::{ReclaimTarget, Repr as Reclaim};
use bfed::wire::subscribe::{Edge, Repr as Subscribe};
use bfed::wire::transport::Transport;
use bfed::wire::{MAX_MESSAGE_LEN, Message};
use bfed::{
    ChannelAddress, ConnId, DataConfig, DataNode, FlowLabel, Instant, KeyDigest, NodeId, PeerId,
    SessionName,
};

use super::native::FakeNative;
use super::pass;
use crate::memory::Meter;
use crate::script::{Lines, Script};

const SESSIONS: usize = 8;
const EDGES: usize = 32;
const QUEUE: usize = 4096;
/// 6 KiB a session; each edge's queue, which may go one packet beyond; answers that wait for control; frames
/// of three peers that are not whole.
const BOUND: usize =
    SESSIONS * 6 * 1024 + EDGES * (QUEUE + 2048) * 2 + 64 * 2048 + (128 << 10) + 3 * (2 << 20);

struct Bench {
    now: Instant,
    node: DataNode<FakeNative>,
    meter: Meter,
    /// Addresses that control has named.
    named: BTreeSet<SocketAddr>,
    /// Labels that the node gave out, for packets that it should take.
    labels: VecDeque<FlowLabel>,
    /// PROBEs that the node sent, with their destinations: only these are answered by an ECHO.
    probes: VecDeque<(SocketAddr, FlowLabel, u32)>,
    dials: VecDeque<bfed::data::EdgeId>,
    next_conn: u64,
}

fn address(script: &mut Script<'_>) -> SocketAddr {
    (
        [10, 0, 1, script.u8() % 5],
        4000 + u16::from(script.u8() % 2),
    )
        .into()
}

/// Data nodes at this port speak QUIC.
const QUIC: u16 = 4001;

fn key(address: SocketAddr) -> KeyDigest {
    match address.ip() {
        IpAddr::V4(ip) => KeyDigest([ip.octets()[3]; 32]),
        IpAddr::V6(_) => KeyDigest([0; 32]),
    }
}

fn session(script: &mut Script<'_>) -> SessionName {
    let kind = script.of(&["", "?content=real-time", "?sources=many", "?flows=a,b"]);
    let name = format!("bfed://1/session-{}/{kind}", script.u8() % 12);
    SessionName::parse(&name).unwrap_or_else(|_| SessionName::parse("bfed://1/x").expect("a name"))
}

fn edge(script: &mut Script<'_>) -> Edge {
    match script.pick(4) {
        0 => Edge::Native,
        number => Edge::Peer {
            peer: PeerId(number as u32),
            rate_bps: if script.flag() { 0 } else { 100_000 },
        },
    }
}

impl Bench {
    fn channel(&mut self, script: &mut Script<'_>) -> FlowChannel {
        let address = address(script);
        self.named.insert(address);
        FlowChannel {
            label: FlowLabel::new(script.u8().into()),
            address: match script.pick(3) {
                0 => ChannelAddress::Stream(address),
                1 => ChannelAddress::Native(vec![239, 0, 0, 1]),
                _ if address.port() == QUIC => ChannelAddress::Quic(address, key(address)),
                _ => ChannelAddress::Datagram(address),
            },
        }
    }

    fn message(&mut self, script: &mut Script<'_>) -> Message {
        let epoch = u64::from(script.u8() / 64);
        let request = script.u8().into();
        match script.pick(5) {
            0 => Message::Allocate(Request {
                request,
                epoch,
                edge: edge(script),
                transport: match request % 2 {
                    0 => Transport::Plain,
                    _ => Transport::Quic,
                },
                session: session(script),
            }),
            1 | 2 => {
                let flows = (0..script.pick(3)).map(|_| self.channel(script)).collect();
                Message::Subscribe(Subscribe {
                    up: script.flag(),
                    request,
                    epoch,
                    edge: edge(script),
                    flows,
                    session: session(script),
                })
            }
            3 => {
                let edge = edge(script);
                Message::Reclaim(Reclaim {
                    epoch,
                    what: script.of(&[
                        None,
                        Some(ReclaimTarget::All),
                        Some(ReclaimTarget::Receiver(edge)),
                        Some(ReclaimTarget::Source(edge)),
                    ]),
                    session: session(script),
                })
            }
            _ => Message::Heartbeat(Heartbeat {
                epoch,
                sequence: script.u32(),
                draining: script.flag(),
                complete: false,
            }),
        }
    }

    fn control(&mut self, bytes: &[u8]) {
        let Bench {
            node, meter, now, ..
        } = self;
        let _ = meter.run(|| node.handle_packet(*now, &(), bytes));
    }

    fn allowed(&self, to: Destination) {
        match to {
            Destination::Datagram(to) => assert!(self.named.contains(&to), "{to} was never named"),
            Destination::Native(channel) | Destination::NativeInit(channel) => {
                assert!(self.node.native().open.contains_key(&channel))
            }
            Destination::Stream(conn) => assert!(conn.0 <= self.next_conn),
            Destination::Path(_) => {}
        }
    }

    /// How a datagram from that address arrives: over QUIC where the control node named a path, unless it is forged.
    fn datagram(&mut self, from: SocketAddr, forged: bool) -> Meta {
        let path = self.node.plane().path(from, key(from));
        let path = path.filter(|_| !forged);
        path.map_or(Meta::Datagram(from), Meta::Path)
    }

    fn packet(&mut self, meta: Meta, bytes: &[u8]) {
        let mut frame = bytes.to_vec();
        let now = self.now;
        let Bench { node, meter, .. } = self;
        let verdict = meter.run(|| node.plane().forward(now, &meta, &mut frame));
        let mut cursor = match verdict {
            Verdict::Only(copy) => return self.copied(&copy, &frame),
            Verdict::Forward(cursor) => cursor,
            Verdict::Taken | Verdict::Drop(_) => return,
        };
        let mut copies = 0;
        loop {
            let Bench { node, meter, .. } = self;
            let copy = meter.run(|| node.plane().next_transmit(now, &mut cursor, &mut frame));
            let Some(copy) = copy else {
                break;
            };
            copies += 1;
            assert!(copies <= EDGES, "more copies than edges");
            self.copied(&copy, &frame);
        }
        self.meter.drop(cursor);
    }

    fn copied(&self, copy: &bfed::data::Transmit, frame: &[u8]) {
        assert!(copy.range.end <= frame.len());
        match copy.to {
            Destination::Datagram(to) => assert!(self.named.contains(&to), "{to} was never named"),
            Destination::Native(channel) | Destination::NativeInit(channel) => {
                assert!(self.node.native().open.contains_key(&channel))
            }
            Destination::Stream(_) | Destination::Path(_) => {}
        }
    }

    fn drain(&mut self) {
        let mut buffer = vec![0; 70_000];
        let now = self.now;
        loop {
            let node = &mut self.node;
            let Some(len) = self.meter.run(|| node.poll_transmit_control(&mut buffer)) else {
                break;
            };
            assert!(len <= MAX_MESSAGE_LEN);
            if let Ok(Message::AllocateResponse(response)) = Message::parse(&buffer[..len]) {
                self.labels
                    .extend(response.flows.iter().filter_map(|flow| flow.label));
                while self.labels.len() > 8 {
                    self.labels.pop_front();
                }
            }
        }
        let mut sent = 0;
        loop {
            let node = &mut self.node;
            let Some(copy) = self
                .meter
                .run(|| node.plane().poll_transmit(now, &mut buffer))
            else {
                break;
            };
            self.allowed(copy.to);
            self.sent(&copy.to, &buffer[copy.range]);
            sent += 1;
            assert!(sent < 5_000, "more than its queues hold");
        }
        loop {
            let node = &mut self.node;
            let Some(event) = self.meter.run(|| node.poll_event()) else {
                break;
            };
            if let DataEvent::Dial { edge, to } = event {
                assert!(self.named.contains(&to), "{to} was never named");
                self.dials.push_back(edge);
                self.dials.truncate(8);
            }
        }
        self.meter.check(BOUND);
        assert!(self.node.session_count() <= SESSIONS);
        assert!(self.node.plane().edge_count() <= EDGES);
    }

    /// PROBEs and ECHOes go to data nodes that control has named, and say nothing but their header.
    fn sent(&mut self, to: &Destination, bytes: &[u8]) {
        let Ok(packet) = Packet::new_checked(bytes) else {
            return;
        };
        let plane = self.node.plane();
        let to = match *to {
            Destination::Datagram(to) => Some(to),
            Destination::Path(path) => plane.path_end(path).map(|(to, _)| to),
            _ => None,
        };
        if let (Kind::Probe, Some(to)) = (packet.kind(), to) {
            assert!(packet.payload().is_empty());
            self.probes
                .push_back((to, packet.label(), packet.sequence()));
            while self.probes.len() > 8 {
                self.probes.pop_front();
            }
        }
    }

    /// The answer to a PROBE, from its destination.
    fn echo(&mut self) {
        let Some((from, label, sequence)) = self.probes.pop_front() else {
            return;
        };
        let mut bytes = [0; HEADER_LEN];
        // Each fourth knows no cookie.
        let cookie = u64::from(sequence % 4) << 40;
        Repr {
            sequence,
            ..Repr::new(Kind::Echo, label).with_cookie(cookie)
        }
        .emit(&mut bytes);
        let meta = self.datagram(from, false);
        self.packet(meta, &bytes);
    }

    fn data(&mut self, script: &mut Script<'_>) {
        let label = match self.labels.get(script.pick(self.labels.len().max(1))) {
            Some(label) if script.flag() => *label,
            _ => FlowLabel::new(script.u32()).unwrap_or(FlowLabel::new(1).expect("not 0")),
        };
        let payload = script.bytes();
        let kind = script.of(&[
            Kind::Data,
            Kind::Attach,
            Kind::Report,
            Kind::Probe,
            Kind::Echo,
            Kind::Init,
            Kind::InitRequest,
            Kind::RepairRequest,
            Kind::Tail,
            Kind::Parity,
        ]);
        let most = match kind {
            Kind::Probe | Kind::Echo => usize::from(script.u8() == 0),
            _ => 1400,
        };
        let payload = &payload[..payload.len().min(most)];
        let repr = Repr {
            kind,
            label,
            sequence: script.u16().into(),
            timestamp_us: script.u32(),
            rtt_us: script.u16().into(),
            payload_len: payload.len(),
            class: Class::from_bits(script.u8() % 128).unwrap_or_default(),
            age_ms: script.u8().into(),
            is_again: script.flag(),
        };
        let mut bytes = vec![0; HEADER_LEN + payload.len()];
        bytes[HEADER_LEN..].copy_from_slice(payload);
        repr.emit(&mut bytes);
        if script.u8() % 8 == 1 {
            script.damage(&mut bytes);
        }
        let meta = match script.pick(4) {
            0 => Meta::Stream(
                ConnId(script.u8().into()),
                IpAddr::from([10, 0, 1, script.u8() % 5]),
            ),
            1 => Meta::Native(bfed::native::ChannelId(u64::from(script.u8() % 12))),
            _ => {
                let from = address(script);
                self.datagram(from, repr.sequence % 2 == 1)
            }
        };
        self.packet(meta, &bytes);
    }

    fn command(&mut self, script: &mut Script<'_>) {
        let now = self.now;
        let Bench {
            node,
            meter,
            dials,
            next_conn,
            ..
        } = self;
        match script.pick(7) {
            6 => self.echo(),
            0 => {
                if let Some(edge) = dials.pop_front() {
                    *next_conn += 1;
                    let conn = ConnId(*next_conn);
                    meter.run(|| node.dialled(edge, conn));
                }
            }
            1 => {
                let conn = ConnId(script.u8().into());
                meter.run(|| node.stream_ended(now, conn));
            }
            2 => meter.run(|| node.disconnected()),
            3 => meter.run(|| node.connected(now)),
            4 if script.u8() == 0 => meter.run(|| node.drain(now)),
            _ => {
                if let Some(edge) = dials.front() {
                    meter.run(|| node.plane().blocked(*edge));
                    if script.flag() {
                        meter.run(|| node.plane().writable(now, *edge));
                    }
                }
            }
        }
    }
}

pub fn run(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let now = Instant::from_secs(100);
    let mut config = DataConfig::new(NodeId(1));
    config.key = Some(KeyDigest([9; 32]));
    config.datagram = Some(([10, 0, 0, 1], 4000).into());
    config.stream = config.datagram;
    config.max_sessions = SESSIONS as u32;
    config.max_queue = 64;
    config.plane.max_edges = EDGES;
    config.plane.max_queue_bytes = QUEUE;
    let mut meter = Meter::default();
    let mut native = FakeNative::default();
    native.pool = 6;
    let node = meter.run(|| DataNode::new(config, Box::new(native), [1; 32], now));
    let mut bench = Bench {
        now,
        node,
        meter,
        named: BTreeSet::new(),
        labels: VecDeque::new(),
        probes: VecDeque::new(),
        dials: VecDeque::new(),
        next_conn: 0,
    };
    bench.node.connected(now);
    let mut steps = 0;
    while script.more() && steps < 300 {
        steps += 1;
        match script.pick(7) {
            0 => bench.control(script.bytes()),
            1 | 2 => {
                let message = bench.message(&mut script);
                let mut bytes = vec![0; message.buffer_len()];
                message.emit(&mut bytes);
                bench.control(&bytes);
            }
            3 | 4 => bench.data(&mut script),
            5 => {
                let us = script.pause_us();
                let mut at = bench.now;
                pass(
                    &mut bench,
                    &mut at,
                    us,
                    |bench| bench.node.poll_timeout(),
                    |bench, now| {
                        bench.now = now;
                        let Bench { node, meter, .. } = bench;
                        meter.run(|| node.handle_timeout(now));
                        bench.drain();
                    },
                );
                bench.now = at;
            }
            _ => bench.command(&mut script),
        }
        bench.drain();
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for golden in crate::goldens::of("crates/bfed/tests/wire/golden.rs") {
        let mut lines = Lines::default();
        lines
            .u8(0)
            .bytes(&golden)
            .u8(5)
            .u8(150)
            .u8(0)
            .bytes(&golden);
        seeds.push(lines.0);
    }
    for edge in 0..4 {
        for kind in 0..4 {
            let mut lines = Lines::default();
            for number in 0..4 {
                // Allocate, subscribe upward to one peer and downward to the others.
                lines
                    .u8(1)
                    .u8(64)
                    .u8(number)
                    .u8(0)
                    .u8(edge)
                    .u8(1)
                    .u8(kind)
                    .u8(number);
                lines
                    .u8(1)
                    .u8(64)
                    .u8(number)
                    .u8(1)
                    .u8(1)
                    .u8(number)
                    .u8(0)
                    .u8(2)
                    .u8(7)
                    .u8(1)
                    .u8(1)
                    .u8(1)
                    .u8(kind)
                    .u8(number);
                lines
                    .u8(1)
                    .u8(64)
                    .u8(number)
                    .u8(1)
                    .u8(1)
                    .u8(number)
                    .u8(0)
                    .u8(2)
                    .u8(0)
                    .u8(0)
                    .u8(2)
                    .u8(1)
                    .u8(kind)
                    .u8(number);
            }
            for step in 0..20u8 {
                // Each fourth is a PROBE, without payload.
                lines.u8(3).u8(step).u8(1).bytes(b"payload");
                match step % 4 {
                    3 => lines.u8(3).u8(1),
                    _ => lines.u8(0),
                };
                lines
                    .u8(step)
                    .u8(0)
                    .u8(0)
                    .u8(0)
                    .u8(0)
                    .u8(0)
                    .u8(0)
                    .u8(0)
                    .u8(0)
                    .u8(2)
                    .u8(step % 5)
                    .u8(0);
                lines.u8(5).u8(step * 8).u8(6).u8(step);
            }
            seeds.push(lines.0);
        }
    }
    seeds
}
