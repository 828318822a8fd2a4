//! A data node and a data node of a peer that was let in and lies: control agreed on its addresses and labels,
//! and it says anything that is well-formed, also with the address of a third party. An honest peer has a
//! session each way beside it.
//!
//! Asserted: the third party gets no data, and no more packets than were sent in its name and one rate
//! allows; the liar gets no more than it is owed; the honest sessions go on after everything; calls for the
//! liar's channels become rarer; the memory that is held stays within a bound.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bfed::data::{DataEvent, Destination, EdgeId, HEADER_LEN, Meta, Transmit, Verdict};
use bfed::native::Direction;
use bfed::wire::class::Class;
use bfed::wire::data::{Kind, Packet, Repr};
use bfed::wire::join::FlowChannel;
use bfed::wire::node::Heartbeat;
use bfed::wire::reclaim::Repr as Reclaim;
use bfed::wire::report::{self, Repr as Report};
use bfed::wire::subscribe::{Edge, Repr as Subscribe};
use bfed::wire::{MAX_MESSAGE_LEN, Message};
use bfed::wire::{fragment, init, parity, repair};
use bfed::{
    ChannelAddress, ConnId, DataConfig, DataNode, Duration, FlowLabel, Instant, NodeId, PeerId,
    SessionName,
};

use super::native::FakeNative;
use super::pass;
use crate::memory::Meter;
use crate::script::{Lines, Script};

const QUEUE: usize = 16 * 1024;
/// Room for the longest packet and the longest message.
const BUFFER: usize = 70_000;
const _: () = assert!(BUFFER >= MAX_MESSAGE_LEN);
/// Queues, one frame beyond each; frames of the liar that are not whole; initialisations; the rest.
const BOUND: usize = 16 * (QUEUE + 4096) * 2 + (2 << 20) * 2 + (4 << 20) * 2 + (512 << 10);
/// Packets that are not answers, to addresses that have not proved themselves: 100 a second for a peer, and a
/// quarter of a second's at once.
const SIGNS_PER_SECOND: u64 = 100;

const LIAR: SocketAddr = address(2);
const THIRD: SocketAddr = address(3);
const HONEST: SocketAddr = address(4);

const fn address(host: u8) -> SocketAddr {
    let ip = std::net::Ipv4Addr::new(10, 0, 0, host);
    SocketAddr::new(std::net::IpAddr::V4(ip), 4000)
}

const LIVE_DOWN: &str = "bfed://1/liar-live/?content=real-time";
const LIVE_UP: &str = "bfed://2/liar-live/?content=real-time";
const TALK: &str = "bfed://1/liar-talk/?content=real-time&multi-source=true";
const FILE_UP: &str = "bfed://2/liar-file";
const FILE_DOWN: &str = "bfed://1/liar-file";
const FORGED_DOWN: &str = "bfed://1/forged/?content=real-time";
const FORGED_UP: &str = "bfed://2/forged/?content=real-time";
const HONEST_DOWN: &str = "bfed://1/honest";
const HONEST_UP: &str = "bfed://4/honest";
const ALL: [&str; 9] = [
    LIVE_DOWN,
    LIVE_UP,
    TALK,
    FILE_UP,
    FILE_DOWN,
    FORGED_DOWN,
    FORGED_UP,
    HONEST_DOWN,
    HONEST_UP,
];
/// Interval at which the control node refreshes the sessions: well within their lifetime.
const RECLAIM_INTERVAL: Duration = Duration::from_secs(10);

struct Bench {
    now: Instant,
    began: Instant,
    node: DataNode<FakeNative>,
    /// Frames sent to native channels.
    native_frames: u64,
    meter: Meter,
    /// Labels that control and the liar agreed on, either way.
    labels: Vec<FlowLabel>,
    /// Packets in the third party's name, and packets to it.
    forged: u64,
    to_third: u64,
    /// Numbers of the node's PROBEs to the liar and cookies of its ECHOes, as they came last.
    nonce: u32,
    cookie: u64,
    dials: Vec<(EdgeId, SocketAddr)>,
    dialled: BTreeMap<SocketAddr, u64>,
    next_conn: u64,
    reclaim_at: Instant,
    honest: HonestPeer,
    /// What the node has to send is written here.
    buffer: Vec<u8>,
}

/// The channels of the honest peer.
struct HonestPeer {
    /// Of the session that it gets.
    down: ConnId,
    /// Of the session that it gives.
    up: ConnId,
    label: FlowLabel,
    /// Native channels: the source of the data.
    source: bfed::native::ChannelId,
    got: u64,
}

fn stream(at: SocketAddr, label: Option<u32>) -> FlowChannel {
    FlowChannel {
        label: label.and_then(FlowLabel::new),
        address: ChannelAddress::Stream(at),
    }
}

fn datagram(at: SocketAddr, label: Option<u32>) -> FlowChannel {
    FlowChannel {
        label: label.and_then(FlowLabel::new),
        address: ChannelAddress::Datagram(at),
    }
}

impl Bench {
    fn new() -> Self {
        let now = Instant::from_secs(100);
        let mut config = DataConfig::new(NodeId(1));
        config.datagram = Some(address(1));
        config.stream = config.datagram;
        config.plane.max_queue_bytes = QUEUE;
        let mut meter = Meter::default();
        let mut native = FakeNative::default();
        native.pool = 106;
        let node = meter.run(|| DataNode::new(config, Box::new(native), [1; 32], now));
        let label = FlowLabel::new(0x0404).expect("not 0");
        let mut bench = Bench {
            now,
            began: now,
            node,
            native_frames: 0,
            meter,
            labels: Vec::new(),
            forged: 0,
            to_third: 0,
            nonce: 0,
            cookie: 0,
            dials: Vec::new(),
            dialled: BTreeMap::new(),
            next_conn: 2,
            reclaim_at: now,
            buffer: vec![0; BUFFER],
            honest: HonestPeer {
                down: ConnId(1),
                up: ConnId(2),
                label,
                source: bfed::native::ChannelId(1),
                got: 0,
            },
        };
        bench.node.connected(now);
        bench.set_up();
        bench
    }

    fn tell(&mut self, message: &Message) -> Vec<FlowChannel> {
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        let Bench {
            node,
            meter,
            now,
            buffer,
            ..
        } = self;
        let _ = meter.run(|| node.handle_packet(*now, &(), &bytes));
        let mut flows = Vec::new();
        while let Some(len) = meter.run(|| node.poll_transmit_control(buffer)) {
            if let Ok(Message::AllocateResponse(response)) = Message::parse(&buffer[..len]) {
                flows = response.flows;
            }
        }
        flows
    }

    fn subscribe(
        &mut self,
        up: bool,
        name: &str,
        peer: u32,
        flows: Vec<FlowChannel>,
    ) -> Vec<FlowChannel> {
        let edge = match peer {
            0 => Edge::Native,
            peer => Edge::Peer {
                peer: PeerId(peer),
                // Of the two peers the liar has a bound.
                rate_bps: if peer == 2 { 1_000_000 } else { 0 },
            },
        };
        self.tell(&Message::Subscribe(Subscribe {
            up,
            request: 1,
            epoch: 1,
            edge,
            flows,
            session: SessionName::parse(name).expect("a name"),
        }))
    }

    fn set_up(&mut self) {
        // The honest peer first: its source has the first native channel.
        self.subscribe(true, HONEST_DOWN, 0, vec![]);
        let own = self.subscribe(false, HONEST_DOWN, 4, vec![stream(HONEST, None)]);
        let attach = Repr::new(Kind::Attach, own[0].label.expect("a label"));
        self.hear(Meta::Stream(self.honest.down, HONEST.ip()), attach, &[]);
        let theirs = stream(HONEST, Some(self.honest.label.get()));
        self.subscribe(true, HONEST_UP, 4, vec![theirs]);
        self.subscribe(false, HONEST_UP, 0, vec![]);
        self.events();
        let (edge, _) = self.dials.pop().expect("a call to the honest peer");
        assert!(self.node.dialled(edge, self.honest.up));
        // The liar, and a third party that it names.
        for (name, at) in [(LIVE_DOWN, LIAR), (FORGED_DOWN, THIRD)] {
            self.subscribe(true, name, 0, vec![]);
            let own = self.subscribe(false, name, 2, vec![datagram(at, None)]);
            self.labels.extend(own.iter().filter_map(|flow| flow.label));
        }
        for (name, at, label) in [(LIVE_UP, LIAR, 0x0202), (FORGED_UP, THIRD, 0x0203)] {
            self.subscribe(true, name, 2, vec![datagram(at, Some(label))]);
            self.subscribe(false, name, 0, vec![]);
            self.labels.extend(FlowLabel::new(label));
        }
        self.subscribe(true, TALK, 0, vec![]);
        let own = self.subscribe(false, TALK, 2, vec![datagram(LIAR, Some(0x0205))]);
        self.labels.extend(own.iter().filter_map(|flow| flow.label));
        self.labels.extend(FlowLabel::new(0x0205));
        self.subscribe(true, FILE_UP, 2, vec![stream(LIAR, Some(0x0206))]);
        self.subscribe(false, FILE_UP, 0, vec![]);
        self.labels.extend(FlowLabel::new(0x0206));
        self.subscribe(true, FILE_DOWN, 0, vec![]);
        let own = self.subscribe(false, FILE_DOWN, 2, vec![stream(LIAR, None)]);
        self.labels.extend(own.iter().filter_map(|flow| flow.label));
        self.events();
    }

    /// A packet arrives.
    fn hear(&mut self, meta: Meta, repr: Repr, payload: &[u8]) {
        let mut frame = vec![0; HEADER_LEN + payload.len()];
        frame[HEADER_LEN..].copy_from_slice(payload);
        let payload_len = payload.len();
        Repr {
            payload_len,
            ..repr
        }
        .emit(&mut frame);
        if meta == Meta::Datagram(THIRD) {
            self.forged += 1;
        }
        self.forward(meta, frame);
    }

    fn forward(&mut self, meta: Meta, mut frame: Vec<u8>) {
        let now = self.now;
        let Bench { node, meter, .. } = self;
        let mut cursor = match meter.run(|| node.plane().forward(now, &meta, &mut frame)) {
            Verdict::Only(copy) => return self.sent(&copy, &frame),
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
            assert!(copies <= 2, "no flow has more edges out");
            self.sent(&copy, &frame);
        }
        self.meter.drop(cursor);
    }

    /// The node sends a packet.
    fn sent(&mut self, copy: &Transmit, frame: &[u8]) {
        let bytes = &frame[copy.range.clone()];
        match copy.to {
            Destination::Path(_) => unreachable!("this data node has no key"),
            Destination::Stream(conn) => self.honest.got += u64::from(conn == self.honest.down),
            Destination::Native(channel) | Destination::NativeInit(channel) => {
                assert!(self.node.native().open.contains_key(&channel));
                self.native_frames += 1;
            }
            Destination::Datagram(to) => {
                let packet = Packet::new_checked(bytes).expect("a packet");
                let sign = matches!(packet.kind(), Kind::Probe | Kind::Echo);
                if to == THIRD {
                    assert!(sign, "{:?} to one that proved nothing", packet.kind());
                    self.to_third += 1;
                } else {
                    assert!(to == LIAR || sign, "{to} was never named for datagrams");
                }
                if to == LIAR && packet.kind() == Kind::Probe {
                    self.nonce = packet.sequence();
                }
                if to == LIAR && packet.kind() == Kind::Echo {
                    self.cookie = packet.cookie();
                }
            }
        }
    }

    /// What the node has to send and to do.
    fn drain(&mut self) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut count = 0;
        loop {
            let Bench {
                node, meter, now, ..
            } = self;
            let Some(copy) = meter.run(|| node.plane().poll_transmit(*now, &mut buffer)) else {
                break;
            };
            self.sent(&copy, &buffer);
            count += 1;
            assert!(count < 2_000, "more than its queues hold");
        }
        while self.node.poll_transmit_control(&mut buffer).is_some() {}
        self.buffer = buffer;
        self.events();
        let seconds = (self.now - self.began).secs() + 1;
        let rate = SIGNS_PER_SECOND * (seconds + 1);
        assert!(
            self.to_third <= self.forged + rate,
            "more than one rate in all"
        );
        self.meter.check(BOUND);
    }

    fn events(&mut self) {
        loop {
            let node = &mut self.node;
            let Some(event) = self.meter.run(|| node.poll_event()) else {
                return;
            };
            if let DataEvent::Dial { edge, to } = event {
                assert!(
                    to == LIAR || to == HONEST,
                    "{to} was never named for channels"
                );
                *self.dialled.entry(to).or_default() += 1;
                self.dials.push((edge, to));
            }
        }
    }

    /// Time passes while the control node refreshes all sessions.
    fn wait(&mut self, us: u64) {
        let mut at = self.now;
        let fire = |bench: &mut Bench, now| {
            bench.now = now;
            let Bench { node, meter, .. } = bench;
            meter.run(|| node.handle_timeout(now));
            bench.drain();
        };
        pass(self, &mut at, us, |bench| bench.node.poll_timeout(), fire);
        self.now = at;
        let beat = Heartbeat {
            epoch: 1,
            sequence: 1,
            draining: false,
            complete: false,
        };
        self.tell(&Message::Heartbeat(beat));
        if self.now >= self.reclaim_at {
            self.reclaim_at = self.now + RECLAIM_INTERVAL;
            for name in ALL {
                self.tell(&Message::Reclaim(Reclaim {
                    epoch: 1,
                    what: None,
                    session: SessionName::parse(name).expect("a name"),
                }));
            }
        }
        if !self.node.is_connected() {
            self.node.connected(self.now);
        }
    }

    /// The liar says something.
    fn lie(&mut self, script: &mut Script<'_>) {
        let label = self.labels[script.pick(self.labels.len())];
        let from = script.of(&[LIAR, LIAR, LIAR, THIRD]);
        let meta = match script.pick(4) {
            0 => Meta::Stream(ConnId(3 + u64::from(script.u8() % 8)), from.ip()),
            _ => Meta::Datagram(from),
        };
        let any = Repr {
            sequence: script.u32(),
            timestamp_us: script.u32(),
            rtt_us: script.u32(),
            ..Repr::new(Kind::Data, label)
        };
        let (kind, payload) = match script.pick(11) {
            0 => (Kind::Data, script.bytes().to_vec()),
            1 => {
                let mut payload = vec![0; fragment::LEN];
                fragment::Repr {
                    frame: script.u8().into(),
                    index: script.u8() % 64,
                    count: 2 + script.u8() % 63,
                }
                .emit(&mut payload);
                payload.extend(vec![7; 1 + usize::from(script.u16()) % 1400]);
                (Kind::Fragment, payload)
            }
            2 => {
                let mut payload = vec![0; report::LEN];
                let now = self.now.total_micros() as u32;
                Report {
                    // Of late, or of any time.
                    echo_us: if script.flag() { now } else { script.u32() },
                    delay_us: script.u32() % 1_000_000,
                    received_rate: script.u32(),
                    loss: script.u32(),
                }
                .emit(&mut payload);
                (Kind::Report, payload)
            }
            3 => (Kind::Attach, vec![]),
            4 => (Kind::Probe, vec![]),
            5 => (Kind::Echo, vec![]),
            6 => {
                let len = usize::from(script.u16()) % 1400;
                let mut payload = vec![7; init::LEN + len];
                init::Repr {
                    generation: script.u8().into(),
                    total: script.u16(),
                    offset: if script.flag() { 0 } else { script.u16() },
                }
                .emit(&mut payload);
                (Kind::Init, payload)
            }
            7 => {
                let mut payload = vec![0; repair::LEN];
                repair::Request {
                    first: script.u8().into(),
                    others: u64::from(script.u32()) << script.u8() % 33,
                }
                .emit(&mut payload);
                (Kind::RepairRequest, payload)
            }
            8 => (Kind::Tail, vec![]),
            9 => {
                let len = 2 * (2 + usize::from(script.u8()));
                let mut payload = vec![script.u8(); parity::LEN + len];
                parity::Repr {
                    count: 1 + script.u8() % 32,
                    total: 1 + script.u8() % 8,
                    index: script.u8() % 8,
                }
                .emit(&mut payload);
                (Kind::Parity, payload)
            }
            _ => {
                let mut payload = vec![0; init::LEN];
                init::Request {
                    generation: script.u8().into(),
                    offset: script.u16(),
                }
                .emit(&mut payload);
                (Kind::InitRequest, payload)
            }
        };
        let mut repr = Repr { kind, ..any };
        if matches!(
            kind,
            Kind::Data | Kind::Fragment | Kind::Tail | Kind::Parity
        ) && script.flag()
        {
            // Numbers near each other, so that some are missing and some come twice.
            repr.sequence %= 32;
            repr.class = Class::from_bits(script.u8() % 128).unwrap_or_default();
            repr.age_ms = script.u8().into();
            repr.is_again = matches!(kind, Kind::Data | Kind::Fragment) && script.flag();
        }
        if matches!(kind, Kind::Probe | Kind::Echo) && script.flag() {
            // What it learned at its own address; under the third party's it guesses.
            let (sequence, cookie) = (self.nonce, self.cookie);
            repr = Repr {
                sequence,
                ..Repr::new(kind, label).with_cookie(if from == LIAR { cookie } else { 1 })
            };
        }
        let payload = &payload[..payload.len().min(2000)];
        // A third party's own answers would prove its address: it sends none.
        let proves = from == THIRD && kind == Kind::Echo && repr.sequence == self.nonce;
        if !proves {
            self.hear(meta, repr, payload);
        }
    }

    fn channels(&mut self, script: &mut Script<'_>) {
        let now = self.now;
        match script.pick(4) {
            0 => {
                if let Some((edge, to)) = self.dials.pop() {
                    match script.flag() {
                        true => {
                            self.next_conn += 1;
                            let conn = ConnId(self.next_conn.max(3));
                            let Bench { node, meter, .. } = self;
                            meter.run(|| node.dialled(edge, conn));
                        }
                        false => {
                            let Bench { node, meter, .. } = self;
                            meter.run(|| node.dial_failed(now, edge, to));
                        }
                    }
                }
            }
            1 => {
                let conn = ConnId(3 + u64::from(script.u8() % 8));
                let Bench { node, meter, .. } = self;
                meter.run(|| node.stream_ended(now, conn));
            }
            // Its channel takes no more, or more again.
            _ => {
                if let Some((edge, _)) = self.dials.last().copied() {
                    let Bench { node, meter, .. } = self;
                    meter.run(|| node.plane().blocked(edge));
                    if script.flag() {
                        meter.run(|| node.plane().writable(now, edge));
                    }
                }
            }
        }
    }

    /// Data of every native source.
    fn sources(&mut self, len: usize) {
        let open = self.node.native().open.iter();
        let sources = open.filter(|(_, channel)| channel.2 == Direction::Up);
        let sources: Vec<_> = sources.map(|(&channel, _)| channel).collect();
        for channel in sources {
            let frame = vec![0; HEADER_LEN + len];
            self.forward(Meta::Native(channel), frame);
        }
    }

    /// The honest peer receives what the source sends, and its own data arrives.
    fn honest_sessions_go_on(&mut self) {
        let before = self.honest.got;
        let frame = vec![9; HEADER_LEN + 100];
        self.forward(Meta::Native(self.honest.source), frame);
        assert_eq!(self.honest.got, before + 1, "what goes to the honest peer");
        let before = self.native_frames;
        let data = Repr::new(Kind::Data, self.honest.label);
        self.hear(Meta::Stream(self.honest.up, HONEST.ip()), data, &[9; 100]);
        self.drain();
        assert_eq!(self.native_frames, before + 1, "what comes from it");
    }

    /// A liar that refuses is called ever more rarely.
    fn liar_refuses_calls(&mut self) {
        let before = self.dialled.get(&LIAR).copied().unwrap_or(0);
        for _ in 0..120 {
            self.wait(1_000_000);
            let now = self.now;
            for (edge, to) in std::mem::take(&mut self.dials) {
                self.node.dial_failed(now, edge, to);
            }
        }
        let calls = self.dialled.get(&LIAR).copied().unwrap_or(0) - before;
        assert!(calls <= 20, "{calls} calls in two minutes");
        self.honest_sessions_go_on();
    }
}

pub fn run(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let mut bench = Bench::new();
    let mut steps = 0;
    while script.more() && steps < 300 {
        steps += 1;
        match script.pick(8) {
            0..=3 => bench.lie(&mut script),
            4 => bench.channels(&mut script),
            5 => bench.sources(usize::from(script.u16()) % 20_000),
            _ => bench.wait(script.pause_us()),
        }
        bench.drain();
    }
    bench.honest_sessions_go_on();
    // Two minutes take as long as everything before: one input in eight has them.
    if bytes.len().is_multiple_of(8) {
        bench.liar_refuses_calls();
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for label in 0..8_u8 {
        for kind in 0..6_u8 {
            let mut lines = Lines::default();
            for step in 0..40_u8 {
                // A lie from its own address, by datagram; then time, sources and channels.
                lines.u8(0).u8(label).u8(step % 4).u8(1 + step % 4);
                for word in 0..12 {
                    lines.u8(step.wrapping_mul(word));
                }
                lines.u8(kind).u8(0).u8(40).u8(step).u8(1).u8(1);
                lines.u8(5).u8(100).u8(step);
                lines.u8(6).u8(100 + step).u8(4).u8(step).u8(step);
            }
            seeds.push(lines.0);
        }
    }
    seeds
}

#[cfg(test)]
mod tests {
    #[test]
    fn random_lies() {
        let mut state = 1_u64;
        for round in 0..200_u64 {
            let mut next = || {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(round | 1);
                (state >> 33) as u8
            };
            let len = 200 + usize::from(next()) * 8;
            let bytes: Vec<u8> = (0..len).map(|_| next()).collect();
            super::run(&bytes);
        }
    }
}
