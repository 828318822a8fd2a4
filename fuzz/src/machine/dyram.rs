//! A DyRAM relay, and an endpoint's attachment, among parents, children and strangers.
//!
//! Asserted of the relay: it sends to its parents and to hosts that have returned the token that was
//! sent to them, and else only answers to JOINs, no longer than these and no more of them; a packet
//! goes to each child once at most; nothing is allocated after the start. Of the attachment: what
//! does not come from a relay of its list is refused.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use dyram::storage::{Limits, Storage};
use dyram::wire::{Body, Join, Joined, Nack, Packet, Repr, Role, Status};
use dyram::{
    Attachment, AttachmentConfig, Carriage, Config, DefaultReplier, Instant, Meta, Relay, RelayId,
    Seq, SessionKey, Verdict,
};

use super::pass;
use crate::memory::Meter;
use crate::script::{Lines, Script};

const CHILDREN: usize = 4;

fn source() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 5000))
}

fn parent() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 1, 1), 4143))
}

fn child(number: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 1, 0, number % 6), 5000))
}

fn key(number: u8) -> SessionKey {
    let group = IpAddr::from([239, 1, 2, 3 + number % 3]);
    SessionKey::new(source().ip(), group).expect("one family")
}

/// The golden packets, their ANEP header before them where the test writes it apart.
pub(crate) fn goldens() -> Vec<Vec<u8>> {
    let goldens = crate::goldens::of("crates/dyram/tests/golden_wire.rs");
    let whole = |rest: Vec<u8>| {
        let mut bytes = vec![0x01, 0x80, 0x44, 0x59, 0x00, 0x08];
        bytes.extend_from_slice(&(32 + rest.len() as u16).to_be_bytes());
        bytes.extend_from_slice(&[0, 1, 0, 3, 0, 0, 0, 1, 10, 0, 0, 1]);
        bytes.extend_from_slice(&[0, 2, 0, 3, 0, 0, 0, 1, 239, 1, 2, 3]);
        bytes.extend_from_slice(&rest);
        bytes
    };
    goldens.into_iter().map(whole).collect()
}

fn body<'a>(script: &mut Script<'a>) -> Body<'a> {
    let mask = if script.flag() {
        script.u64()
    } else {
        script.u8().into()
    };
    match script.pick(11) {
        0 => Body::Data(b"data"),
        1 => Body::Repair(b"data"),
        2 => Body::Cast(b"cast"),
        3 => Body::Nack(Nack {
            mask,
            ack: script.flag().then(|| Seq(script.u8().into())),
            repeats: script.u8().into(),
        }),
        4 => Body::Ack,
        5 => Body::Absent(mask),
        6 => Body::Leave(mask),
        7 => Body::Move(mask),
        8 => Body::Joined(Joined {
            status: script.of(&[
                Status::Joined,
                Status::Challenge,
                Status::Full,
                Status::Loop,
                Status::Draining,
            ]),
            token: mask,
            stamp: script.u32(),
            repair_us: script.u32(),
            refresh_ms: script.u16(),
            live: script.flag(),
            attached: script.flag(),
            path: (0..script.u8() % 4)
                .map(|n| RelayId(u32::from(n) + 8))
                .collect(),
        }),
        _ => Body::Join(Join {
            role: script.of(&[Role::Receiver, Role::Relay, Role::Source]),
            token: 0,
            stamp: script.u32(),
            far_us: script.u32(),
            receivers: script.u32(),
            relay: RelayId(script.u8().into()),
            round_trip_us: script.u32(),
        }),
    }
}

fn packet(script: &mut Script<'_>) -> Vec<u8> {
    let repr = Repr {
        key: key(script.u8()),
        session: 5 + u32::from(script.u8() & 1),
        child: script.of(&[0, 1, 2, 3, 0xffff]),
        sequence: Seq(script.u8().into()),
        body: body(script),
    };
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(&mut bytes);
    bytes
}

/// What the relay knows of an address.
#[derive(Clone, Default)]
struct Known {
    proven: bool,
    asked: usize,
    answered: usize,
    tokens: Vec<u64>,
}

struct Bench {
    relay: Relay<'static>,
    now: Instant,
    meter: Meter,
    known: std::collections::BTreeMap<SocketAddr, Known>,
}

impl Bench {
    fn new(script: &mut Script<'_>) -> Bench {
        let mut config = Config::new(RelayId(9));
        if script.flag() {
            config.parents = [parent()].into_iter().collect();
        }
        config.carriage = script.of(&[Carriage::Relays, Carriage::Multicast]);
        config.default_replier = script.of(&[DefaultReplier::First, DefaultReplier::Spread]);
        config.early_detection = script.flag();
        let limits = Limits {
            sessions: 2,
            children: CHILDREN,
            nack_states: 8,
            window: 64,
        };
        let now = Instant::from_secs(1);
        let storage = Storage::owned(limits).expect("sizes that fit");
        Bench {
            relay: Relay::new(config, storage, [3; 32], now).expect("a configuration that works"),
            now,
            meter: Meter::default(),
            known: Default::default(),
        }
    }

    fn hear(&mut self, from: SocketAddr, bytes: &[u8]) {
        let known = self.known.entry(from).or_default();
        if let Ok(packet) = Packet::new_checked(bytes)
            && let Body::Join(join) = Repr::parse(&packet).body
        {
            known.asked += bytes.len();
            known.proven |= known.tokens.contains(&join.token);
        }
        let mut bytes = bytes.to_vec();
        let now = self.now;
        let verdict = self
            .meter
            .run(|| self.relay.forward(now, &Meta::unicast(from), &mut bytes));
        if let Verdict::Send(fanout) = verdict {
            let mut targets: Vec<_> = self.relay.targets(&fanout).collect();
            let count = targets.len();
            assert!(count <= CHILDREN + 1);
            targets.sort();
            targets.dedup();
            assert_eq!(targets.len(), count, "somebody gets two copies");
            for to in targets {
                self.sent(to, &bytes);
            }
        }
        self.drain();
    }

    fn sent(&mut self, to: SocketAddr, bytes: &[u8]) {
        let known = self.known.entry(to).or_default();
        if known.proven || to == parent() {
            return;
        }
        let packet = Packet::new_checked(bytes).expect("a packet");
        let Body::Joined(joined) = Repr::parse(&packet).body else {
            panic!(
                "{to} has never shown a token and gets {:?}",
                packet.service()
            );
        };
        known.tokens.push(joined.token);
        known.answered += bytes.len();
        assert!(known.answered <= known.asked, "more than {to} sent");
    }

    fn drain(&mut self) {
        let mut buffer = [0; 256];
        let mut count = 0;
        loop {
            let now = self.now;
            let Some(transmit) = self
                .meter
                .run(|| self.relay.poll_transmit(now, &mut buffer))
            else {
                break;
            };
            // An answer takes the token to its address, which has it from then on.
            if let Ok(packet) = Packet::new_checked(&buffer[..transmit.len])
                && let Body::Joined(joined) = Repr::parse(&packet).body
            {
                self.known
                    .entry(transmit.destination)
                    .or_default()
                    .tokens
                    .push(joined.token);
            }
            self.sent(transmit.destination, &buffer[..transmit.len]);
            count += 1;
            assert!(count < 500, "more than its tables hold");
        }
        while self.relay.poll_event().is_some() {}
    }

    /// Joins as the protocol asks, so that the fuzzer need not guess tokens.
    fn join(&mut self, script: &mut Script<'_>, from: SocketAddr) {
        let role = if from == source() {
            Role::Source
        } else {
            script.of(&[Role::Receiver, Role::Relay])
        };
        let tokens = self.known.get(&from).map(|known| known.tokens.clone());
        let join = Join {
            role,
            token: tokens
                .and_then(|tokens| tokens.last().copied())
                .unwrap_or(0),
            stamp: 1,
            far_us: script.u8().into(),
            receivers: 1,
            relay: RelayId(u32::from(script.u8()) + 20),
            round_trip_us: script.u8().into(),
        };
        let repr = Repr {
            key: key(script.u8() & 1),
            session: 0,
            child: 0xffff,
            sequence: Seq(0),
            body: Body::Join(join),
        };
        let mut bytes = vec![0; repr.buffer_len()];
        repr.emit(&mut bytes);
        self.hear(from, &bytes);
    }
}

fn address(script: &mut Script<'_>) -> SocketAddr {
    match script.pick(8) {
        0 => source(),
        1 => parent(),
        number => child(number as u8),
    }
}

pub fn relay(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let mut bench = Bench::new(&mut script);
    while script.more() {
        let op = script.pick(6);
        let from = address(&mut script);
        match op {
            0 => bench.hear(from, script.bytes()),
            1 => bench.join(&mut script, from),
            2 => bench.hear(from, &packet(&mut script)),
            3 => {
                let mut packet = packet(&mut script);
                script.damage(&mut packet);
                bench.hear(from, &packet);
            }
            4 => {
                let us = script.pause_us();
                let mut at = bench.now;
                pass(
                    &mut bench,
                    &mut at,
                    us,
                    |bench| bench.relay.poll_timeout(),
                    |bench, now| {
                        bench.now = now;
                        bench.meter.run(|| bench.relay.handle_timeout(now));
                        bench.drain();
                    },
                );
                bench.now = at;
            }
            _ if script.u8() == 0 => {
                let now = bench.now;
                bench.meter.run(|| bench.relay.drain(now));
            }
            _ => {}
        }
        bench.meter.check(0);
        assert!(bench.relay.sessions().count() <= 2);
        assert!((0..3).all(|number| bench.relay.children(&key(number)).count() <= CHILDREN));
    }
}

pub fn attachment(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let relays = [parent(), child(3)];
    let config = AttachmentConfig {
        key: key(0),
        role: script.of(&[Role::Receiver, Role::Source]),
        relays: relays.into_iter().collect(),
    };
    let mut now = Instant::from_secs(1);
    let mut attachment = Attachment::new(config, [4; 32], now);
    let mut meter = Meter::default();
    let mut buffer = [0; 1500];
    // The last stamp that went out: what an answer must carry to be believed.
    let mut stamp = 0;
    while script.more() {
        let op = script.pick(5);
        let from = address(&mut script);
        let packet = match op {
            0 => script.bytes().to_vec(),
            1 => packet(&mut script),
            2 => {
                let mut body = body(&mut script);
                if let Body::Joined(joined) = &mut body {
                    joined.stamp = stamp;
                }
                let repr = Repr {
                    key: key(0),
                    session: 5,
                    child: script.u8().into(),
                    sequence: Seq(1),
                    body,
                };
                let mut bytes = vec![0; repr.buffer_len()];
                repr.emit(&mut bytes);
                if script.flag() {
                    script.damage(&mut bytes);
                }
                bytes
            }
            3 => {
                let us = script.pause_us();
                pass(
                    &mut attachment,
                    &mut now,
                    us,
                    Attachment::poll_timeout,
                    |attachment, now| {
                        attachment.handle_timeout(now);
                        while attachment.poll_transmit(now, &mut buffer).is_some() {}
                    },
                );
                Vec::new()
            }
            _ => {
                if script.flag() {
                    attachment.suspect(now);
                } else if script.u8() == 0 {
                    attachment.leave(&mut buffer);
                }
                let _ = attachment.send(5, Seq(1), Body::Nack(Nack::default()), &mut buffer);
                let _ = attachment.send(5, Seq(1), Body::Data(b"data"), &mut buffer);
                Vec::new()
            }
        };
        if !packet.is_empty() {
            let before = attachment.relay();
            let taken = meter.run(|| {
                attachment
                    .handle_packet(now, &Meta::unicast(from), &packet)
                    .is_ok()
            });
            if !relays.contains(&from) {
                assert!(
                    !taken && attachment.relay() == before,
                    "a stranger was heard"
                );
            }
        }
        let mut count = 0;
        while let Some(transmit) = attachment.poll_transmit(now, &mut buffer) {
            assert!(relays.contains(&transmit.destination));
            if let Ok(packet) = Packet::new_checked(&buffer[..transmit.len])
                && let Body::Join(join) = Repr::parse(&packet).body
            {
                stamp = join.stamp;
            }
            count += 1;
            assert!(count < 20, "one packet after another without an answer");
        }
        while attachment.poll_event().is_some() {}
        meter.check(0);
    }
}

pub fn relay_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let joined = |lines: &mut Lines| {
        lines.u8(0).u8(0).u8(0).u8(1);
        for from in [0, 0, 2, 2, 3, 3, 4, 4] {
            lines.u8(1).u8(from);
            if from != 0 {
                lines.u8(0);
            }
            lines.u8(9).u8(from).u8(0);
        }
    };
    for golden in goldens() {
        let mut lines = Lines::default();
        joined(&mut lines);
        for from in [0, 1, 2, 3] {
            lines.u8(0).u8(from).bytes(&golden).u8(4).u8(0).u8(100);
        }
        seeds.push(lines.0);
    }
    for kind in 0..10 {
        let mut lines = Lines::default();
        joined(&mut lines);
        for step in 0..30u8 {
            // New data of the source, with gaps, then something of a child, then time.
            lines
                .u8(2)
                .u8(0)
                .u8(0)
                .u8(0)
                .u8(4)
                .u8(step * 2)
                .u8(0)
                .u8(0)
                .u8(0);
            lines
                .u8(2)
                .u8(2 + step % 3)
                .u8(0)
                .u8(0)
                .u8(step % 3)
                .u8(step * 2 + 1)
                .u8(0)
                .u8(0)
                .u8(kind)
                .u8(0)
                .u8(0);
            lines.u8(4).u8(0).u8(step * 6);
        }
        seeds.push(lines.0);
    }
    seeds
}

pub fn attachment_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for golden in goldens() {
        let mut lines = Lines(vec![0]);
        lines
            .u8(0)
            .u8(1)
            .bytes(&golden)
            .u8(3)
            .u8(0)
            .u8(120)
            .u8(0)
            .u8(2)
            .bytes(&golden);
        seeds.push(lines.0);
    }
    for kind in 0..11 {
        let mut lines = Lines(vec![kind & 1]);
        for status in 0..5 {
            lines
                .u8(2)
                .u8(1)
                .u8(0)
                .u8(1)
                .u8(8)
                .u8(status)
                .u8(0)
                .u8(0)
                .u8(0)
                .u8(0);
            lines
                .u8(2)
                .u8(1)
                .u8(0)
                .u8(1)
                .u8(kind)
                .u8(0)
                .u8(0)
                .u8(3)
                .u8(1)
                .u8(140);
        }
        seeds.push(lines.0);
    }
    seeds
}
