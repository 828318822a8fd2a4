//! Shortcuts change nothing but how long a packet takes.

use bfed::data::{DataEvent, Destination, EdgeId, HEADER_LEN, Meta, Verdict};
use bfed::native::ChannelId;
use bfed::wire::Message;
use bfed::wire::data::{Kind, Repr};
use bfed::wire::join::FlowChannel;
use bfed::wire::node::Heartbeat;
use bfed::wire::reclaim::ReclaimTarget;
use bfed::wire::subscribe::Edge;
use bfed::*;

use crate::fake::{Station, payload};

const FILE: &str = "bfed://1/m";

/// The peer below; a bound that never holds anything up takes the long way, always.
fn below(rate_bps: u64) -> Edge {
    let peer = PeerId(1);
    Edge::Peer { peer, rate_bps }
}

fn stream(label: Option<FlowLabel>) -> FlowChannel {
    FlowChannel {
        label,
        address: ChannelAddress::Stream(([10, 0, 0, 2], 4000).into()),
    }
}

/// The peer below comes for its session on that stream.
fn attach(station: &mut Station, label: FlowLabel, conn: u64) {
    let mut attach = vec![0; HEADER_LEN];
    Repr::new(Kind::Attach, label).emit(&mut attach);
    let from = Meta::Stream(ConnId(conn), [10, 0, 0, 2].into());
    assert!(matches!(station.packet(from, attach), Err(Verdict::Taken)));
}

/// A source of the native network, and a receiver over TCP.
struct Pair {
    station: Station,
    label: FlowLabel,
    edge: Option<EdgeId>,
    conn: u64,
    beats: u32,
}

impl Pair {
    fn new(rate_bps: u64) -> Pair {
        let mut station = Station::with(1, |config| config.plane.max_queue_bytes = 5000);
        station.subscribe(true, FILE, Edge::Native, &[]).unwrap();
        let own = station.subscribe(false, FILE, below(rate_bps), &[stream(None)]);
        let label = own.unwrap()[0].label.unwrap();
        attach(&mut station, label, 7);
        Pair {
            station,
            label,
            edge: None,
            conn: 7,
            beats: 0,
        }
    }

    /// A frame of the source.
    fn frame(&mut self, len: usize, fill: u8) -> String {
        let mut frame = vec![fill; HEADER_LEN + len];
        let (now, plane) = (self.station.now, self.station.node.plane());
        let meta = Meta::Native(ChannelId(1));
        let mut copies = Vec::new();
        match plane.forward(now, &meta, &mut frame) {
            Verdict::Only(copy) => copies.push((frame[copy.range.clone()].to_vec(), copy)),
            Verdict::Forward(mut cursor) => {
                while let Some(copy) = plane.next_transmit(now, &mut cursor, &mut frame) {
                    copies.push((frame[copy.range.clone()].to_vec(), copy));
                }
            }
            other => return format!("{other:?}"),
        }
        for (_, copy) in &copies {
            if let Destination::Stream(_) = copy.to {
                self.edge = Some(copy.edge);
            }
        }
        format!("{copies:?}")
    }

    /// Does one of the things that can happen; everything that comes of it.
    fn step(&mut self, what: u64, len: usize) -> String {
        self.beats += 1;
        let heartbeat = Heartbeat {
            epoch: 1,
            sequence: self.beats,
            draining: false,
            complete: false,
        };
        self.station
            .receive(&Message::Heartbeat(heartbeat))
            .unwrap();
        let (now, edge) = (self.station.now, self.edge);
        let seen = match what {
            0..8 => self.frame(len, what as u8),
            8 => {
                edge.inspect(|&edge| self.station.node.plane().blocked(edge));
                String::new()
            }
            9 | 10 => {
                edge.inspect(|&edge| self.station.node.plane().writable(now, edge));
                String::new()
            }
            11 => format!(
                "{:?}",
                self.station.subscribe(false, FILE, Edge::Native, &[])
            ),
            12 => {
                self.station
                    .reclaim(FILE, Some(ReclaimTarget::Receiver(Edge::Native)));
                String::new()
            }
            13 => {
                self.station.node.stream_ended(now, ConnId(self.conn));
                String::new()
            }
            14 => {
                self.conn += 1;
                attach(&mut self.station, self.label, self.conn);
                String::new()
            }
            _ => {
                self.station.wait(700);
                String::new()
            }
        };
        let packets = self.station.drain();
        let (events, messages) = (self.station.events(), self.station.sent());
        let stats = self.station.node.plane().stats();
        format!("{seen} {packets:?} {events:?} {messages:?} {stats:?}")
    }
}

#[test]
fn what_happens_is_the_same_with_and_without() {
    for seed in 0..50_u64 {
        let mut state = seed;
        let mut random = |count: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % count
        };
        let (mut short, mut long) = (Pair::new(0), Pair::new(u64::MAX));
        for step in 0..400 {
            let (what, len) = (random(16), random(1000) as usize);
            let (a, b) = (short.step(what, len), long.step(what, len));
            assert_eq!(a, b, "seed {seed}, step {step}: {what}");
        }
    }
}

#[test]
fn a_receiver_that_has_gone_gets_nothing_more() {
    let mut pair = Pair::new(0);
    for _ in 0..3 {
        pair.frame(100, 1);
    }
    let copies = |pair: &mut Pair| pair.station.node.plane().stats().copies;
    assert_eq!(copies(&mut pair), 3);
    let gone = ReclaimTarget::Receiver(below(0));
    pair.station.reclaim(FILE, Some(gone));
    pair.frame(100, 1);
    assert_eq!(copies(&mut pair), 3);
}

#[test]
fn a_link_that_gets_a_bound_keeps_it() {
    // By this session, and by another over the same link.
    for session in [FILE, "bfed://1/another"] {
        let mut pair = Pair::new(0);
        for _ in 0..3 {
            pair.frame(1000, 1);
        }
        let bounded = below(8000);
        let own = pair
            .station
            .subscribe(false, session, bounded, &[stream(None)]);
        let same_edge = own.unwrap()[0].label == Some(pair.label);
        assert_eq!(same_edge, session == FILE);
        let sent = |pair: &mut Pair| pair.station.node.plane().stats().copies;
        let before = sent(&mut pair);
        for _ in 0..10 {
            pair.frame(1000, 1);
        }
        assert!(sent(&mut pair) - before <= 1, "a tenth of a second's worth");
    }
}

#[test]
fn from_a_stream_into_the_native_network_and_back_to_the_long_way() {
    let mut station = Station::new(1);
    let label = FlowLabel::new(77).unwrap();
    let up = Edge::Peer {
        peer: PeerId(9),
        rate_bps: 0,
    };
    station
        .subscribe(true, FILE, up, &[stream(Some(label))])
        .unwrap();
    station.subscribe(false, FILE, Edge::Native, &[]).unwrap();
    let [DataEvent::Dial { edge, .. }] = station.events()[..] else {
        panic!();
    };
    assert!(station.node.dialled(edge, ConnId(3)));
    station.drain();
    let mut packet = vec![0; HEADER_LEN];
    packet.extend(b"frame");
    Repr {
        payload_len: 5,
        ..Repr::new(Kind::Data, label)
    }
    .emit(&mut packet);
    let from = Meta::Stream(ConnId(3), [10, 0, 0, 2].into());
    for _ in 0..3 {
        let sent = station.packet(from, packet.clone()).unwrap();
        assert!(matches!(sent[0].0, Destination::Native(_)));
        assert_eq!((sent.len(), payload(&sent[0])), (1, &b"frame"[..]));
    }
    // Another receiver.
    let own = station.subscribe(false, FILE, below(0), &[stream(None)]);
    attach(&mut station, own.unwrap()[0].label.unwrap(), 8);
    assert_eq!(station.packet(from, packet.clone()).unwrap().len(), 2);
    // The source's stream ends, and later data of the source is dropped.
    station.node.stream_ended(station.now, ConnId(3));
    assert!(station.packet(from, packet).is_err());
}

#[test]
fn all_packets_but_the_first_take_the_short_way_to_one_receiver() {
    let mut pair = Pair::new(0);
    let mut frame = vec![1; HEADER_LEN + 100];
    let short = |pair: &mut Pair, frame: &mut [u8]| {
        let (now, plane) = (pair.station.now, pair.station.node.plane());
        let verdict = plane.forward(now, &Meta::Native(ChannelId(1)), frame);
        matches!(verdict, Verdict::Only(_))
    };
    pair.frame(100, 1);
    assert!((0..10).all(|_| short(&mut pair, &mut frame)));
    // Not where there are two.
    pair.station
        .subscribe(false, FILE, Edge::Native, &[])
        .unwrap();
    pair.frame(100, 1);
    assert!((0..10).all(|_| !short(&mut pair, &mut frame)));
}
