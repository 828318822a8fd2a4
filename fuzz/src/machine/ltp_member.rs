//! An LTP source, two honest receivers, and a third host that was let in: it has the group's key, proves its
//! address at many ports, and then says anything well-formed: reports of any state, requests for
//! anything, the feedback of any rate, as if started again and again. Packets to the
//! honest receivers get lost now and then, once they have joined.
//!
//! Asserted: both honest receivers end with every byte and are never given up; the source reports that every receiver is
//! done only when each honest receiver that joined is; the source ends within a bounded time, although the
//! third host repeats itself without end; nothing is allocated after the start.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};

use ltp::digest::Hashing;
use ltp::store::HeapRing;
use ltp::wire::pace::{FEEDBACK_LEN, Feedback, Pace};
use ltp::wire::report::{Loss, Report, ReportAck, Status};
use ltp::wire::request::{self, Kind, Range};
use ltp::{
    Assist, Destination, Duration, Instant, Meta, Receiver, ReceiverEvent, Sender, SenderEvent,
    SessionId,
};

use super::ltp::{BLOCK, LENGTH, content, due, receiver_config, sender_config, source, time_out};
use super::pass;
use crate::memory::Meter;
use crate::script::{Lines, Script};

const RECEIVERS: usize = 2;
/// Blocks of the content.
const BLOCKS: u64 = (LENGTH as u64).div_ceil(1 << BLOCK);
/// Ports that the third host speaks from.
const PORTS: usize = 12;
/// Packets to honest receivers that get lost in all. With the retransmission timeouts doubled as many times, a
/// receiver still advances within [`RECEIVER_TIMEOUT`].
const LOSSES: u8 = 8;
const RECEIVER_TIMEOUT: Duration = Duration::from_secs(10);
/// Lies that it repeats at the end.
const REPEATED: usize = 6;
/// The source ends this long after the script at the latest.
const BOUND: Duration = Duration::from_secs(120);

fn host(index: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 1, index as u8), 4000))
}

fn liar(port: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 1, 99), 4000 + port as u16))
}

/// What the third host says, at one of its ports.
#[derive(Clone, Copy, Debug)]
enum Lie {
    Report {
        status: Status,
        id: u64,
        blocks: u64,
        honest_digest: bool,
        digest: u64,
    },
    Request {
        kind: Kind,
        lo: u32,
        count: u32,
        round_trip_us: u32,
        group: bool,
    },
    /// To the newest PACE.
    Feedback {
        id: u64,
        held_us: u32,
        round_trip_us: u32,
        loss: u32,
        rate_bps: u64,
        received_bps: u64,
    },
}

struct Bench {
    now: Instant,
    sender: Sender<'static, HeapRing>,
    receivers: Vec<Receiver<'static, HeapRing>>,
    joined: [bool; RECEIVERS],
    wire: VecDeque<(usize, Meta, Vec<u8>)>,
    /// Packets to honest receivers that get lost.
    losses: u8,
    /// How many more the script may lose.
    losses_left: u8,
    tokens: BTreeMap<SocketAddr, u64>,
    hashing: Hashing,
    /// Round and timestamp of the newest PACE.
    paced: (u16, u32),
    meter: Meter,
    /// Bytes that may be allocated after the start.
    bound: usize,
}

impl Bench {
    fn new(script: &mut Script<'_>) -> Bench {
        let now = Instant::from_secs(1);
        let key = script.flag().then_some([9; 32]);
        let mut config = sender_config(key, true);
        config.receivers = Some(1 + script.pick(3) as u32);
        config.window_blocks = script.flag().then_some(2);
        config.rate_bps = Some(script.of(&[1_000_000, 10_000_000]));
        config.connect_timeout = Duration::from_millis(500);
        config.receiver_timeout = RECEIVER_TIMEOUT;
        config.linger = Duration::from_secs(1);
        config.limits.receivers = script.of(&[4, 8, 64]);
        config.congestion = script.flag();
        config.parity = super::ltp::parity(script);
        let bound = super::ltp::memory(&config);
        let sender = Sender::new(config, HeapRing::whole(content()), [1; 32], now);
        let receiver = |index: usize| {
            let config = receiver_config(key, Assist::None);
            let store = HeapRing::new(8 << BLOCK);
            Receiver::new(config, store, [2 + index as u8; 32], now)
        };
        Bench {
            now,
            sender: sender.expect("a configuration that works"),
            receivers: (0..RECEIVERS).map(receiver).collect(),
            joined: [false; RECEIVERS],
            wire: VecDeque::new(),
            losses: 0,
            losses_left: LOSSES,
            tokens: BTreeMap::new(),
            hashing: Hashing::new(key),
            paced: (0, 0),
            meter: Meter::default(),
            bound,
        }
    }

    fn drain(&mut self) {
        let mut buffer = [0; 1500];
        let now = self.now;
        while let Some(transmit) = self
            .meter
            .run(|| self.sender.poll_transmit(now, &mut buffer))
        {
            for packet in transmit.packets(&buffer) {
                self.from_source(transmit.destination, packet);
            }
        }
        while let Some(event) = self.sender.poll_event() {
            self.event(&event);
        }
        for index in 0..RECEIVERS {
            loop {
                let receiver = &mut self.receivers[index];
                let sent = self.meter.run(|| receiver.poll_transmit(now, &mut buffer));
                let Some(transmit) = sent else { break };
                let meta = Meta::unicast(host(index));
                self.to_source(&meta, &buffer[..transmit.len]);
            }
            while let Some(event) = self.receivers[index].poll_event() {
                let failed = matches!(event, ReceiverEvent::Failed { .. });
                assert!(!failed, "honest receiver {index}: {event:?}");
            }
        }
    }

    fn from_source(&mut self, destination: Destination, packet: &[u8]) {
        let Destination::Unicast(to) = destination else {
            if let Some(Ok(pace)) = self.hashing.open(packet).map(Pace::parse) {
                self.paced = (pace.round, pace.stamp_us);
            }
            for index in 0..RECEIVERS {
                self.post(index, Meta::group(source()), packet);
            }
            return;
        };
        if let Some(index) = (0..RECEIVERS).find(|index| host(*index) == to) {
            self.post(index, Meta::unicast(source()), packet);
        } else if let Some(ack) = self.hashing.open(packet).map(ReportAck::parse)
            && let Ok(ack) = ack
        {
            self.tokens.insert(to, ack.token);
        }
    }

    fn post(&mut self, index: usize, meta: Meta, packet: &[u8]) {
        if self.losses > 0 {
            self.losses -= 1;
        } else {
            self.wire.push_back((index, meta, packet.to_vec()));
        }
    }

    fn to_source(&mut self, meta: &Meta, packet: &[u8]) {
        let now = self.now;
        let _ = self
            .meter
            .run(|| self.sender.handle_packet(now, meta, packet));
    }

    fn event(&mut self, event: &SenderEvent) {
        match event {
            SenderEvent::Joined { address, .. } => {
                if let Some(index) = (0..RECEIVERS).find(|index| host(*index) == *address) {
                    self.joined[index] = true;
                }
            }
            SenderEvent::ReceiverFailed { address, .. } => {
                let honest = (0..RECEIVERS).any(|index| host(index) == *address);
                assert!(!honest, "an honest receiver is given up: {event:?}");
            }
            SenderEvent::Complete => {
                let done = (0..RECEIVERS)
                    .all(|index| !self.joined[index] || self.receivers[index].is_complete());
                assert!(
                    done,
                    "success is told while an honest receiver lacks packets"
                );
            }
            _ => {}
        }
    }

    /// This number of packets to honest receivers is lost from now on, within the remaining budget.
    fn lose(&mut self, count: u8) {
        let count = count.min(self.losses_left);
        self.losses_left -= count;
        self.losses += count;
    }

    fn deliver(&mut self) {
        while let Some((index, meta, packet)) = self.wire.pop_front() {
            let (receiver, now) = (&mut self.receivers[index], self.now);
            let _ = self
                .meter
                .run(|| receiver.handle_packet(now, &meta, &packet));
        }
    }

    fn wait(&mut self, us: u64) {
        let mut at = self.now;
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
        self.deliver();
        self.drain();
    }

    fn say(&mut self, port: usize, lie: Lie) {
        let from = liar(port);
        let token = self.tokens.get(&from).copied().unwrap_or(0);
        let session = self.sender.session();
        let (mut bytes, len) = match lie {
            Lie::Report {
                status,
                id,
                blocks,
                honest_digest,
                digest,
            } => {
                let prefix = self.sender.digest().map_or(digest, |digest| {
                    u64::from_be_bytes(digest[..8].try_into().expect("8 bytes"))
                });
                let mut report = Report {
                    status,
                    tag: 1,
                    session,
                    receiver: id,
                    blocks,
                    token,
                    digest: if honest_digest { prefix } else { digest },
                    loss: Loss::default(),
                };
                if status != Status::Complete {
                    report.digest = 0;
                }
                if status == Status::Progress {
                    let expected = (digest >> 32) as u32;
                    let lost = (digest as u32).min(expected);
                    report.loss = Loss { expected, lost };
                }
                let mut bytes = vec![0; report.buffer_len() + 64];
                report.emit(&mut bytes);
                (bytes, report.buffer_len())
            }
            Lie::Request { .. } => request_bytes(session, token, &lie),
            Lie::Feedback { .. } => feedback_bytes(session, self.paced, token, &lie),
        };
        let len = self.hashing.seal(&mut bytes, len);
        let meta = match lie {
            Lie::Request { group: true, .. } => {
                let mut meta = Meta::group(from);
                meta.elected = true;
                meta
            }
            _ => Meta::unicast(from),
        };
        self.to_source(&meta, &bytes[..len]);
        if matches!(lie, Lie::Request { group: true, .. }) {
            for index in 0..RECEIVERS {
                self.wire.push_back((index, meta, bytes[..len].to_vec()));
            }
        }
    }
}

fn request_bytes(session: SessionId, token: u64, lie: &Lie) -> (Vec<u8>, usize) {
    let &Lie::Request {
        kind,
        lo,
        count,
        round_trip_us,
        ..
    } = lie
    else {
        return (vec![0; 64], 0);
    };
    let mut repr = request::Repr {
        kind,
        tag: 2,
        session,
        number: 1,
        round_trip_us,
        token,
        nonce: 5,
        ranges: Default::default(),
    };
    let range = match kind {
        Kind::Sync => Range { lo: 0, hi: 0 },
        Kind::Left => Range { lo, hi: lo },
        Kind::Data | Kind::DataOrParity | Kind::Digests => Range {
            lo,
            hi: lo.wrapping_add(count),
        },
    };
    let _ = repr.ranges.push(range);
    let len = repr.buffer_len();
    let mut bytes = vec![0; len + 64];
    repr.emit(&mut bytes);
    (bytes, len)
}

fn feedback_bytes(
    session: SessionId,
    (round, echo_us): (u16, u32),
    token: u64,
    lie: &Lie,
) -> (Vec<u8>, usize) {
    let Lie::Feedback {
        id,
        held_us,
        round_trip_us,
        loss,
        rate_bps,
        received_bps,
    } = *lie
    else {
        return (vec![0; 64], 0);
    };
    let feedback = Feedback {
        session,
        round,
        receiver: id,
        token,
        stamp_us: 1,
        echo_us,
        held_us,
        round_trip_us,
        loss,
        rate_bps: if loss == 0 { u64::MAX } else { rate_bps },
        received_bps,
    };
    let mut bytes = vec![0; FEEDBACK_LEN + 64];
    feedback.emit(&mut bytes);
    (bytes, FEEDBACK_LEN)
}

fn lie(script: &mut Script<'_>) -> Lie {
    let kind = script.pick(4);
    if kind == 3 {
        return Lie::Feedback {
            id: 1 + u64::from(script.u8()),
            held_us: script.of(&[0, 1_000, 1 << 20, u32::MAX]),
            round_trip_us: script.of(&[0, 1, 20_000, u32::MAX]),
            loss: script.of(&[0, 1, 1 << 24, u32::MAX]),
            rate_bps: script.of(&[0, 1_000, 1_000_000, 1 << 60]),
            received_bps: script.of(&[0, 1_000, 1_000_000, u64::MAX]),
        };
    }
    if kind < 2 {
        return Lie::Report {
            status: script.of(&[
                Status::Joined,
                Status::Progress,
                Status::Complete,
                Status::Failed,
                Status::Leaving,
            ]),
            id: script.u8().into(),
            blocks: script.of(&[0, 1, 2, 3, BLOCKS - 1, BLOCKS, BLOCKS + 1, 1 << 40]),
            honest_digest: script.flag(),
            digest: script.u8().into(),
        };
    }
    Lie::Request {
        kind: script.of(&[
            Kind::Data,
            Kind::Digests,
            Kind::Sync,
            Kind::Left,
            Kind::DataOrParity,
        ]),
        lo: script.u8().into(),
        count: script.u8().into(),
        round_trip_us: script.u32(),
        group: script.flag(),
    }
}

pub fn run(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let mut bench = Bench::new(&mut script);
    let mut lies: VecDeque<(usize, Lie)> = VecDeque::new();
    let mut steps = 0;
    while script.more() && steps < 200 {
        steps += 1;
        match script.pick(8) {
            // A receiver that has heard nothing yet cannot be waited for.
            0 if bench.joined == [true; RECEIVERS] => bench.lose(script.u8() % 8),
            0 => {}
            1 | 2 => bench.wait(u64::from(script.u8()) * 200),
            _ => {
                let said = (script.pick(PORTS), lie(&mut script));
                bench.say(said.0, said.1);
                if lies.len() == REPEATED {
                    lies.pop_front();
                }
                lies.push_back(said);
                bench.drain();
                bench.deliver();
                bench.drain();
            }
        }
        bench.meter.check(bench.bound);
    }
    // The third host repeats its last lies without end, each time as if started again.
    let end = bench.now + BOUND;
    let mut round = 0u64;
    while !bench.sender.is_ended() {
        round += 1;
        for &(port, said) in &lies {
            let said = match said {
                Lie::Report {
                    status,
                    id,
                    blocks,
                    honest_digest,
                    digest,
                } => Lie::Report {
                    status,
                    id: id + round,
                    blocks,
                    honest_digest,
                    digest,
                },
                other => other,
            };
            bench.say((port + round as usize / 4) % PORTS, said);
        }
        bench.wait(100_000);
        assert!(bench.now < end, "the source does not end: {lies:?}");
    }
    bench.meter.check(bench.bound);
    // What a receiver still waits for is the answer to its last report.
    for _ in 0..600 {
        if bench.receivers.iter().all(Receiver::is_finished) {
            break;
        }
        bench.wait(100_000);
    }
    for (index, receiver) in bench.receivers.iter().enumerate() {
        assert!(receiver.is_finished(), "honest receiver {index} goes on");
        assert!(
            receiver.is_complete(),
            "honest receiver {index} lacks bytes"
        );
        let held = receiver.store().as_bytes();
        assert!(held[..LENGTH] == content()[..], "wrong bytes");
    }
}

/// Each kind of lie, alone and in pairs, again and again.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for flags in [[0; 7], [1, 1, 1, 0, 1, 1, 5], [0, 2, 1, 1, 2, 0, 4]] {
        for status in 0..5u8 {
            for blocks in [0, 2, 5, 7] {
                let mut lines = Lines(flags.to_vec());
                lines.u8(0).u8(3).u8(1).u8(100);
                for step in 0..24u8 {
                    // A report, twice: the first one brings the token.
                    for _ in 0..2 {
                        lines.u8(3).u8(step / 4).u8(0).u8(status).u8(step);
                        lines.u8(blocks).u8(step & 1).u8(7);
                    }
                    lines.u8(1).u8(40 * (step % 6));
                }
                seeds.push(lines.0);
            }
        }
    }
    for rate in 0..4u8 {
        for received in 0..4u8 {
            let mut lines = Lines(vec![0, 1, 0, 1, 1, 1, rate]);
            lines.u8(0).u8(3).u8(1).u8(100);
            for step in 0..48u8 {
                lines.u8(3).u8(step / 16).u8(3).u8(step / 16);
                lines.u8(step % 4).u8(step % 3).u8(rate.min(step % 4));
                lines.u8(rate).u8(received);
                lines.u8(1).u8(40 * (step % 6));
            }
            seeds.push(lines.0);
        }
    }
    seeds
}
