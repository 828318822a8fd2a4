//! An LTP source and two receivers, the first of them elected replier, around a wire that a forger
//! shares: packets get lost, late, doubled and damaged, and others are made up.
//!
//! Asserted: with a group key a receiver that says "complete" has the source's bytes; nobody sends
//! more to a stranger by unicast than the stranger sent, unless he has shown the token that was sent
//! to him; receivers write by unicast to the source alone; nothing is allocated after the start.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use lms_proto::{Iface, Kind as OptionKind};
use ltp::store::HeapRing;
use ltp::wire::report::ReportAck;
use ltp::{
    Assist, Delivery, Destination, Instant, LmsOption, Meta, Parity, Receiver, ReceiverConfig,
    ReceiverEvent, ReceiverLimits, Sender, SenderConfig, SenderLimits, Start, Transmit,
    TurningPoint,
};

use super::ltp_forged::forged;
use super::{delay_one, pass};
use crate::memory::Meter;
use crate::script::{Lines, Script};

pub(super) const LENGTH: usize = 6_000;
pub(super) const BLOCK: u8 = 10;
/// Packets on the wire at most; more are lost.
const WIRE: usize = 96;
const RECEIVERS: usize = 2;

pub(super) fn source() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 4000))
}

fn host(index: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 1, index as u8), 4000))
}

fn stranger(number: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 9, 9, number % 4), 9))
}

pub(super) fn group() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(239, 1, 2, 3), 5000))
}

pub(super) fn content() -> Vec<u8> {
    (0..LENGTH).map(|at| (at * 31 + at / 251) as u8).collect()
}

/// The destination of a packet.
#[derive(Clone, Copy, PartialEq)]
enum To {
    Source,
    Receiver(usize),
}

struct Flight {
    to: To,
    meta: Meta,
    bytes: Vec<u8>,
}

pub(super) fn sender_config(key: Option<[u8; 32]>, reports: bool) -> SenderConfig {
    let mut config = SenderConfig::new(group());
    config.length = Some(LENGTH as u64);
    config.block_exponent = BLOCK;
    config.max_packet_len = 300;
    config.rate_bps = Some(10_000_000);
    config.key = key;
    config.receivers = reports.then_some(RECEIVERS as u32);
    config.limits = SenderLimits {
        receivers: 4,
        digests: 8,
        repairs: 4,
        hold_down: 16,
        targets: 4,
    };
    config
}

/// The parity of a session: none in half of them.
pub(super) fn parity(script: &mut Script<'_>) -> Option<Parity> {
    let some = [Parity::OnRequest, Parity::Percent(30), Parity::Auto].map(Some);
    script.of(&[None, None, None, some[0], some[1], some[2]])
}

/// Bytes that machines with this configuration may allocate after the start: with parity the tables of the code, once
/// for all of them, and a few blocks each.
pub(super) fn memory(config: &SenderConfig) -> usize {
    config.parity.map_or(0, |_| 20 << 20)
}

pub(super) fn receiver_config(key: Option<[u8; 32]>, assist: Assist) -> ReceiverConfig {
    let mut config = ReceiverConfig::new(group());
    config.source = Some(source().ip());
    config.key = key;
    config.assist = assist;
    config.limits = ReceiverLimits {
        window_blocks: 8,
        requests: 4,
        repairs: 4,
        hold_down: 16,
        targets: 4,
        parity: 6,
    };
    config
}

struct Bench {
    now: Instant,
    sender: Sender<'static, HeapRing>,
    receivers: Vec<Receiver<'static, HeapRing>>,
    complete: [bool; RECEIVERS],
    failed: [bool; RECEIVERS],
    /// The first byte that each was to deliver.
    starts: [u64; RECEIVERS],
    wire: VecDeque<Flight>,
    meter: Meter,
    /// Bytes that may be allocated after the start.
    bound: usize,
    keyed: bool,
    lms: bool,
    /// Bytes received from and sent to hosts that have shown no token, and the tokens sent to them.
    strangers: BTreeMap<SocketAddr, (usize, usize, Vec<[u8; 8]>)>,
    proven: Vec<SocketAddr>,
}

impl Bench {
    fn new(script: &mut Script<'_>) -> Bench {
        let (keyed, lms, reports) = (script.flag(), script.flag(), script.flag());
        let now = Instant::from_secs(1);
        let key = keyed.then_some([9; 32]);
        let store = HeapRing::whole(content());
        let mut config = sender_config(key, reports);
        config.congestion = script.flag();
        config.parity = parity(script);
        let bound = memory(&config);
        let sender = Sender::new(config, store, [1; 32], now);
        let assist = if lms { Assist::Lms } else { Assist::None };
        let mut config = receiver_config(key, assist);
        config.start = script.of(&[Start::Beginning, Start::Oldest, Start::Now]);
        config.delivery = script.of(&[Delivery::Store, Delivery::Read]);
        let receiver = |index: usize| {
            let store = HeapRing::new(8 << BLOCK);
            Receiver::new(config.clone(), store, [2 + index as u8; 32], now)
        };
        Bench {
            now,
            sender: sender.expect("a configuration that works"),
            receivers: (0..RECEIVERS).map(receiver).collect(),
            complete: [false; RECEIVERS],
            failed: [false; RECEIVERS],
            starts: [0; RECEIVERS],
            wire: VecDeque::new(),
            meter: Meter::default(),
            bound,
            keyed,
            lms,
            strangers: BTreeMap::new(),
            proven: Vec::new(),
        }
    }

    fn post(&mut self, to: To, meta: Meta, bytes: &[u8]) {
        if self.wire.len() < WIRE {
            let bytes = bytes.to_vec();
            self.wire.push_back(Flight { to, meta, bytes });
        }
    }

    /// To every receiver but the one that sends.
    fn multicast(&mut self, from: SocketAddr, bytes: &[u8]) {
        for index in 0..RECEIVERS {
            if host(index) != from {
                self.post(To::Receiver(index), Meta::group(from), bytes);
            }
        }
    }

    fn unicast(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let meta = Meta::unicast(from);
        if to == source() {
            self.post(To::Source, meta, bytes);
        } else if let Some(index) = (0..RECEIVERS).find(|index| host(*index) == to) {
            self.post(To::Receiver(index), meta, bytes);
        } else if !self.proven.contains(&to) {
            let (had, sent, tokens) = self.strangers.entry(to).or_default();
            *sent += bytes.len();
            assert!(sent <= had, "{sent} bytes to a stranger who sent {had}");
            if let Ok(ack) = ReportAck::parse(bytes) {
                tokens.push(ack.token.to_be_bytes());
            }
        }
    }

    fn request(&mut self, from: SocketAddr, option: LmsOption, bytes: &[u8]) {
        let turns = self.lms && from != host(0);
        let turning_point = turns.then_some(TurningPoint {
            router: Ipv4Addr::new(10, 0, 0, 254).into(),
            iface: Iface(1),
            cookie: 0,
        });
        let mut meta = Meta::group(from);
        meta.elected = true;
        meta.option = Some(LmsOption {
            turning_point,
            ..option
        });
        let to = if turns { To::Receiver(0) } else { To::Source };
        self.post(to, meta, bytes);
    }

    fn sent(&mut self, from: SocketAddr, transmit: &Transmit, buffer: &[u8]) {
        for packet in transmit.packets(buffer) {
            match transmit.destination {
                Destination::Group => self.multicast(from, packet),
                Destination::Request(option) => self.request(from, option, packet),
                Destination::Unicast(to) => {
                    assert!(
                        from == source() || to.ip() == source().ip(),
                        "{from} writes to {to}"
                    );
                    self.unicast(from, to, packet);
                }
                // The repair is the source's, for all receivers below.
                Destination::Dmcast(_) => self.multicast(source(), packet),
                // Asked for by `wanted`, which a relay would have done.
                Destination::Relay => {}
            }
        }
    }

    fn drain(&mut self) {
        let mut buffer = [0; 1500];
        for _ in 0..WIRE {
            let Some(transmit) = self
                .meter
                .run(|| self.sender.poll_transmit(self.now, &mut buffer))
            else {
                break;
            };
            self.sent(source(), &transmit, &buffer);
        }
        while self.sender.poll_event().is_some() {}
        for index in 0..RECEIVERS {
            let mut count = 0;
            loop {
                let receiver = &mut self.receivers[index];
                let Some(transmit) = self
                    .meter
                    .run(|| receiver.poll_transmit(self.now, &mut buffer))
                else {
                    break;
                };
                self.sent(host(index), &transmit, &buffer);
                count += 1;
                assert!(count < 500, "more than its tables hold");
            }
            self.read(index);
            while let Some(event) = self.receivers[index].poll_event() {
                match event {
                    ReceiverEvent::Complete { .. } => self.complete[index] = true,
                    ReceiverEvent::Failed { .. } => self.failed[index] = true,
                    ReceiverEvent::Opened { start, .. } => self.starts[index] = start,
                    _ => {}
                }
            }
            if self.complete[index] && self.keyed {
                // A receiver that joins after the last packet starts behind the end of a short last block.
                let from = LENGTH.min(self.starts[index] as usize);
                let held = self.receivers[index].store().as_bytes();
                assert!(
                    held[from..LENGTH] == content()[from..],
                    "complete with other bytes"
                );
            }
        }
    }

    fn is_over(&self, index: usize) -> bool {
        self.complete[index] || self.failed[index] || self.receivers[index].is_ended()
    }

    fn read(&mut self, index: usize) {
        let receiver = &mut self.receivers[index];
        while let Ok(bytes) = receiver.peek() {
            let len = bytes.len();
            if len == 0 {
                break;
            }
            receiver.consume(self.now, len);
        }
    }

    fn hear(&mut self, to: To, meta: &Meta, bytes: &[u8]) {
        if let Some((had, _, tokens)) = self.strangers.get_mut(&meta.source) {
            *had += bytes.len();
            if bytes
                .windows(8)
                .any(|window| tokens.iter().any(|token| token == window))
            {
                self.proven.push(meta.source);
            }
        }
        let now = self.now;
        let result = match to {
            To::Source => self
                .meter
                .run(|| self.sender.handle_packet(now, meta, bytes)),
            To::Receiver(index) => {
                let receiver = &mut self.receivers[index];
                self.meter.run(|| receiver.handle_packet(now, meta, bytes))
            }
        };
        let _ = result;
    }

    /// What is on the wire arrives.
    fn arrive(&mut self, count: usize) {
        for _ in 0..count {
            let Some(flight) = self.wire.pop_front() else {
                return;
            };
            self.hear(flight.to, &flight.meta, &flight.bytes);
            self.drain();
        }
    }

    fn wait(&mut self, us: u64) {
        let now = self.now;
        let mut at = now;
        pass(self, &mut at, us, Bench::due, Bench::fire);
        self.now = at;
    }

    fn due(&self) -> Option<Instant> {
        due(&self.sender, &self.receivers)
    }

    fn fire(&mut self, now: Instant) {
        self.now = now;
        time_out(now, &mut self.sender, &mut self.receivers, &mut self.meter);
        self.drain();
    }

    fn attack(&mut self, script: &mut Script<'_>) {
        let mut bytes = match script.pick(3) {
            0 => script.bytes().to_vec(),
            1 => forged(script, &self.sender),
            _ if self.wire.is_empty() => return,
            _ => {
                let at = script.pick(self.wire.len());
                self.wire[at].bytes.clone()
            }
        };
        if script.flag() {
            script.damage(&mut bytes);
        }
        let to = script.of(&[To::Source, To::Receiver(0), To::Receiver(1)]);
        let from = match script.pick(4) {
            0 => source(),
            1 => host(script.pick(RECEIVERS)),
            _ => stranger(script.u8()),
        };
        let mut meta = if script.flag() {
            Meta::group(from)
        } else {
            Meta::unicast(from)
        };
        if script.flag() {
            meta.elected = script.flag();
            meta.option = Some(LmsOption {
                kind: script.of(&[OptionKind::Request, OptionKind::Dmcast]),
                turning_point: script.flag().then(|| TurningPoint {
                    router: IpAddr::from([10, 0, 0, script.u8()]),
                    iface: Iface(script.u8().into()),
                    cookie: 0,
                }),
                source: source().ip(),
                group: group().ip(),
            });
        }
        if from.ip() == stranger(from.port() as u8).ip() || from.port() == 9 {
            self.strangers.entry(from).or_default();
        }
        self.hear(to, &meta, &bytes);
        self.drain();
    }

    fn command(&mut self, script: &mut Script<'_>) {
        let now = self.now;
        match script.u8() {
            0 => self.sender.close(now),
            1 => self.receivers[0].close(now),
            2 => self
                .sender
                .set_rate(now, Some(script.u32().max(10_000).into())),
            3 => {
                let _ = self.sender.wanted(now, script.u32());
                let _ = self.receivers[0].wanted(now, script.u32());
            }
            4 => self.sender.acknowledged(now, script.u32()),
            _ => {}
        }
        self.drain();
    }
}

/// Returns when one of the machines asks for its timeout.
pub(super) fn due(
    sender: &Sender<'static, HeapRing>,
    receivers: &[Receiver<'static, HeapRing>],
) -> Option<Instant> {
    let receivers = receivers.iter().filter_map(Receiver::poll_timeout);
    receivers.chain(sender.poll_timeout()).min()
}

/// Tells all machines the time.
pub(super) fn time_out(
    now: Instant,
    sender: &mut Sender<'static, HeapRing>,
    receivers: &mut [Receiver<'static, HeapRing>],
    meter: &mut Meter,
) {
    meter.run(|| sender.handle_timeout(now));
    for receiver in receivers {
        meter.run(|| receiver.handle_timeout(now));
    }
}

pub fn run(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let mut bench = Bench::new(&mut script);
    let mut steps = 0;
    while script.more() && steps < 300 {
        steps += 1;
        match script.pick(8) {
            0 | 1 => {
                bench.drain();
                bench.arrive(WIRE);
            }
            2 => bench.arrive(script.pick(WIRE)),
            3 => bench.wire.truncate(script.pick(WIRE)),
            4 => delay_one(&mut bench.wire, &mut script),
            5 => bench.wait(script.pause_us()),
            6 => bench.attack(&mut script),
            _ => bench.command(&mut script),
        }
        bench.meter.check(bench.bound);
    }
    // On a wire that works again, receivers come to an end.
    for _ in 0..400 {
        bench.arrive(WIRE);
        bench.wait(200_000);
        if (0..RECEIVERS).all(|index| bench.is_over(index)) {
            return;
        }
    }
    let states: Vec<_> = bench
        .receivers
        .iter()
        .map(|receiver| receiver.progress())
        .collect();
    panic!("neither complete nor failed: {states:?}");
}

/// Every golden to every machine, in the middle of a session.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for golden in crate::goldens::of("crates/ltp/tests/golden_wire.rs") {
        for flags in [[1, 1, 1, 1, 4], [0, 0, 0, 0, 0]] {
            let mut lines = Lines(flags.to_vec());
            lines.u8(0).u8(0).u8(0).u8(5).u8(100);
            for to in 0..3 {
                lines
                    .u8(6)
                    .u8(0)
                    .bytes(&golden)
                    .u8(0)
                    .u8(to)
                    .u8(0)
                    .u8(to & 1)
                    .u8(0)
                    .u8(0);
            }
            seeds.push(lines.0);
        }
    }
    for kind in 0..8 {
        for flags in [
            [1, 1, 1, 1, 0],
            [0, 0, 1, 1, 5],
            [1, 0, 0, 0, 3],
            [0, 1, 0, 0, 4],
        ] {
            let mut lines = Lines(flags.to_vec());
            lines.u8(0).u8(0);
            for step in 0..40u8 {
                lines
                    .u8(2)
                    .u8(step)
                    .u8(5)
                    .u8(80)
                    .u8(6)
                    .u8(1)
                    .u8(step)
                    .u8(kind);
                lines.u8(step).u8(1).u8(step).u8(0).u8(1).u8(2).u8(0);
            }
            seeds.push(lines.0);
        }
    }
    seeds
}
