//! LTP through a DyRAM relay: a root, a relay and two leaves, and a forger beside them.
//!
//! Asserted: with a group key a leaf that says "complete" has the source's bytes; the relay sends
//! only to hosts that have joined it; nothing is allocated after the start.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};

use dyram::storage::{Limits, Storage};
use dyram::wire::{Body, Feedback, MAX_MESSAGE, Nack, Repr};
use dyram::{Relay, RelayId, Seq, SessionKey, Verdict};
use ltp::relayed::{self, OVERHEAD};
use ltp::store::HeapRing;
use ltp::{Assist, Instant, Receiver, ReceiverEvent, Sender};

use super::ltp::{BLOCK, LENGTH, content, group, receiver_config, sender_config, source};
use super::ltp_forged::forged;
use super::{delay_one, pass};
use crate::memory::Meter;
use crate::script::{Lines, Script};

const WIRE: usize = 96;
const LEAVES: usize = 2;

fn relay() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 1, 0, 1), 4143))
}

fn leaf(index: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 2, 0, index as u8), 4000))
}

struct Flight {
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

struct Bench {
    now: Instant,
    root: relayed::Sender<'static, HeapRing>,
    relay: Relay<'static>,
    leaves: Vec<relayed::Receiver<'static, HeapRing>>,
    complete: [bool; LEAVES],
    failed: [bool; LEAVES],
    wire: VecDeque<Flight>,
    meter: Meter,
    /// Bytes that may be allocated after the start.
    bound: usize,
}

impl Bench {
    fn new(script: &mut Script<'_>) -> Bench {
        let key = Some([9; 32]);
        let now = Instant::from_secs(1);
        let mut config = sender_config(key, script.flag());
        config.max_packet_len = 300;
        config.congestion = script.flag();
        config.parity = super::ltp::parity(script);
        let bound = super::ltp::memory(&config);
        let sender = Sender::new(config, HeapRing::whole(content()), [1; 32], now);
        let relays = || [relay()].into_iter().collect();
        let sender = sender.expect("a configuration that works");
        let root = relayed::Sender::new(sender, source(), group().ip(), relays(), [4; 32], now);
        let limits = Limits {
            sessions: 2,
            children: 4,
            nack_states: 16,
            window: 64,
        };
        let storage = Storage::owned(limits).expect("sizes that fit");
        let machine = Relay::new(dyram::Config::new(RelayId(1)), storage, [5; 32], now);
        let leaf = |index: usize| {
            let seed = [6 + index as u8; 32];
            let config = receiver_config(key, Assist::Dyram);
            let receiver = Receiver::new(config, HeapRing::new(8 << BLOCK), seed, now);
            relayed::Receiver::new(receiver, source().ip(), group().ip(), relays(), seed, now)
                .expect("one family")
        };
        Bench {
            now,
            root: root.expect("one family"),
            relay: machine.expect("a configuration that works"),
            leaves: (0..LEAVES).map(leaf).collect(),
            complete: [false; LEAVES],
            failed: [false; LEAVES],
            wire: VecDeque::new(),
            meter: Meter::default(),
            bound,
        }
    }

    fn post(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        if self.wire.len() < WIRE {
            let bytes = bytes.to_vec();
            self.wire.push_back(Flight { from, to, bytes });
        }
    }

    fn drain(&mut self) {
        let now = self.now;
        let mut buffer = [0; 1000];
        for _ in 0..WIRE {
            let Some(transmit) = self.meter.run(|| self.root.poll_transmit(now, &mut buffer))
            else {
                break;
            };
            assert!(transmit.len <= 300 + OVERHEAD);
            let to = transmit.destination.unicast().expect("a unicast packet");
            self.post(source(), to, &buffer[..transmit.len]);
        }
        while self.root.poll_event().is_some() {}
        while let Some(transmit) = self
            .meter
            .run(|| self.relay.poll_transmit(now, &mut buffer))
        {
            self.post(relay(), transmit.destination, &buffer[..transmit.len]);
        }
        while self.relay.poll_event().is_some() {}
        for index in 0..LEAVES {
            for _ in 0..WIRE {
                let machine = &mut self.leaves[index];
                let Some(transmit) = self.meter.run(|| machine.poll_transmit(now, &mut buffer))
                else {
                    break;
                };
                let to = transmit.destination.unicast().expect("a unicast packet");
                assert!(
                    to == relay() || to.ip() == source().ip(),
                    "a leaf writes to {to}"
                );
                self.post(leaf(index), to, &buffer[..transmit.len]);
            }
            while let Some(event) = self.leaves[index].poll_event() {
                let relayed::ReceiverEvent::Receiver(event) = event else {
                    continue;
                };
                self.complete[index] |= matches!(event, ReceiverEvent::Complete { .. });
                self.failed[index] |= matches!(event, ReceiverEvent::Failed { .. });
            }
            if self.complete[index] {
                let store = self.leaves[index].receiver().store();
                assert!(
                    store.as_bytes()[..LENGTH] == content(),
                    "complete with other bytes"
                );
            }
        }
    }

    fn hear(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let now = self.now;
        if to == source() {
            let _ = self.meter.run(|| {
                self.root
                    .handle_packet(now, &ltp::Meta::unicast(from), bytes)
            });
        } else if to == relay() {
            let mut bytes = bytes.to_vec();
            let verdict = self.meter.run(|| {
                self.relay
                    .forward(now, &dyram::Meta::unicast(from), &mut bytes)
            });
            if let Verdict::Send(fanout) = verdict {
                let targets: Vec<_> = self.relay.targets(&fanout).collect();
                assert!(targets.len() <= 5, "four children and a parent");
                for target in targets {
                    let member =
                        target == source() || (0..LEAVES).any(|index| leaf(index) == target);
                    assert!(member, "{target} has never joined");
                    self.post(relay(), target, &bytes);
                }
            }
        } else if let Some(index) = (0..LEAVES).find(|index| leaf(*index) == to) {
            let machine = &mut self.leaves[index];
            let _ = self
                .meter
                .run(|| machine.handle_packet(now, &ltp::Meta::unicast(from), bytes));
        }
        self.drain();
    }

    fn arrive(&mut self, count: usize) {
        for _ in 0..count {
            let Some(flight) = self.wire.pop_front() else {
                return;
            };
            self.hear(flight.from, flight.to, &flight.bytes);
        }
    }

    fn wait(&mut self, us: u64) {
        let mut at = self.now;
        pass(self, &mut at, us, Bench::due, Bench::fire);
        self.now = at;
    }

    fn due(&self) -> Option<Instant> {
        let leaves = self
            .leaves
            .iter()
            .filter_map(relayed::Receiver::poll_timeout);
        let others = [self.root.poll_timeout(), self.relay.poll_timeout()];
        leaves.chain(others.into_iter().flatten()).min()
    }

    fn fire(&mut self, now: Instant) {
        self.now = now;
        let Bench {
            root,
            relay,
            leaves,
            meter,
            ..
        } = self;
        meter.run(|| root.handle_timeout(now));
        meter.run(|| relay.handle_timeout(now));
        for leaf in leaves {
            meter.run(|| leaf.handle_timeout(now));
        }
        self.drain();
    }

    fn attack(&mut self, script: &mut Script<'_>) {
        let inner = |bench: &Bench, script: &mut Script<'_>| forged(script, bench.root.sender());
        let mut bytes = match script.pick(4) {
            0 => script.bytes().to_vec(),
            1 => inner(self, script),
            2 => {
                let payload = inner(self, script);
                let key = SessionKey::new(source().ip(), group().ip()).expect("one family");
                let mask = script.u64();
                let body = match script.pick(8) {
                    0 => Body::Data(&payload),
                    1 => Body::Repair(&payload),
                    2 => Body::Cast(&payload),
                    3 => Body::Nack(Nack {
                        mask,
                        ack: script.flag().then(|| Seq(script.u8().into())),
                        repeats: script.u16(),
                    }),
                    4 => Body::Absent(mask),
                    5 => Body::Leave(mask),
                    6 => Body::Feedback(Feedback {
                        rank: mask,
                        held_us: 0,
                        message: &payload[..payload.len().min(MAX_MESSAGE)],
                    }),
                    _ => Body::Ack,
                };
                let session = self.root.sender().session().0;
                let child = u16::from(script.u8() % 5);
                let number = u32::from(script.u8());
                let has_sequence = !matches!(body, Body::Feedback(_));
                let repr = Repr {
                    key,
                    session,
                    child,
                    sequence: Seq(if has_sequence { number } else { 0 }),
                    body,
                };
                let mut bytes = vec![0; repr.buffer_len()];
                repr.emit(&mut bytes);
                bytes
            }
            _ if self.wire.is_empty() => return,
            _ => {
                let at = script.pick(self.wire.len());
                self.wire[at].bytes.clone()
            }
        };
        if script.flag() {
            script.damage(&mut bytes);
        }
        // A forger off the path: his own address, or one of those that he may forge here.
        let froms = [
            SocketAddr::from(([10, 9, 9, 9], 9)),
            source(),
            relay(),
            leaf(0),
            leaf(1),
        ];
        let from = script.of(&froms);
        let to = script.of(&[source(), relay(), leaf(0), leaf(1)]);
        self.hear(from, to, &bytes);
    }
}

pub fn run(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let mut bench = Bench::new(&mut script);
    let mut steps = 0;
    while script.more() && steps < 300 {
        steps += 1;
        match script.pick(7) {
            0 | 1 => {
                bench.drain();
                bench.arrive(WIRE);
            }
            2 => bench.arrive(script.pick(WIRE)),
            3 => bench.wire.truncate(script.pick(WIRE)),
            4 => delay_one(&mut bench.wire, &mut script),
            5 => bench.wait(script.pause_us()),
            _ => bench.attack(&mut script),
        }
        bench.meter.check(bench.bound);
    }
    for _ in 0..400 {
        bench.arrive(WIRE);
        bench.wait(200_000);
        if (0..LEAVES).all(|index| bench.complete[index] || bench.failed[index]) {
            return;
        }
    }
    panic!("neither complete nor failed");
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for golden in crate::goldens::of("crates/ltp/tests/golden_wire.rs")
        .into_iter()
        .chain(super::dyram::goldens())
    {
        let mut lines = Lines(vec![1, 0, 4]);
        lines.u8(0).u8(0).u8(5).u8(100).u8(0);
        for from in 0..4 {
            lines.u8(6).u8(0).bytes(&golden).u8(0).u8(from).u8(from);
        }
        seeds.push(lines.0);
    }
    for kind in 0..5 {
        for body in 0..7 {
            let mut lines = Lines(vec![1, 0, body]);
            for step in 0..30u8 {
                lines
                    .u8(2)
                    .u8(step)
                    .u8(5)
                    .u8(80)
                    .u8(6)
                    .u8(2)
                    .u8(step)
                    .u8(kind)
                    .u8(step)
                    .u8(body);
            }
            seeds.push(lines.0);
        }
    }
    seeds
}
