//! A DyRAM relay with a source, two honest receivers, and two children that were let in (a receiver and a relay)
//! and say anything that is well-formed, under their own numbers and tokens.
//!
//! Asserted: every new packet goes to both honest receivers, once; once the script has ended the liars
//! only refresh, and within the stall timeouts the acknowledgement to the source is the newest again, and a
//! packet that an honest receiver lacks is repaired; when all are silent the session ends and the relay
//! sends nothing more; what the relay sends of its own is bounded by what it received; nothing is allocated
//! after the start.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use dyram::storage::{Limits, Storage};
use dyram::wire::{Body, Feedback, Join, Nack, Packet, Repr, Role, Service, Stalled, Status};
use dyram::{
    Config, DefaultReplier, Duration, Instant, Meta, Relay, RelayId, Seq, SessionKey, Verdict,
    packets,
};

use super::pass;
use crate::memory::Meter;
use crate::script::{Lines, Script};

const RUN: u32 = 5;
const HONEST: [u8; 2] = [0, 1];
const LIARS: [u8; 2] = [2, 3];
const REFRESH_MS: u64 = 500;
const STALL_MS: u64 = 1_000;
/// A liar that is a relay is waited for up to four and a half times the stall timeout, and two refreshes; another
/// that stalls then an eighth more.
const TAIL_MS: u64 = 12_000;

fn source() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 5000))
}

fn child(number: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 1, 0, number), 5000))
}

fn key() -> SessionKey {
    SessionKey::new(source().ip(), IpAddr::from([239, 1, 2, 3])).expect("one family")
}

struct Bench {
    relay: Relay<'static>,
    now: Instant,
    meter: Meter,
    /// Token and number of each address.
    known: BTreeMap<SocketAddr, (u64, u16)>,
    next: u32,
    refresh_at: Instant,
    acknowledged: Option<u32>,
    /// The packet that honest receiver 0 lacks.
    lacks: Option<u32>,
    /// The liars answer nothing and only refresh.
    quiet: bool,
    received: u64,
    sent: u64,
}

impl Bench {
    fn new(script: &mut Script<'_>) -> Bench {
        let mut config = Config::new(RelayId(9));
        config.default_replier = script.of(&[DefaultReplier::First, DefaultReplier::Spread]);
        config.early_detection = script.flag();
        config.refresh = Duration::from_millis(REFRESH_MS);
        config.stall_timeout = Duration::from_millis(STALL_MS);
        config.takeover = Duration::from_millis(1_500);
        let limits = Limits {
            sessions: 2,
            children: 8,
            nack_states: 8,
            window: 64,
        };
        let now = Instant::from_secs(1);
        let storage = Storage::owned(limits).expect("sizes that fit");
        let mut bench = Bench {
            relay: Relay::new(config, storage, [3; 32], now).expect("a configuration that works"),
            now,
            meter: Meter::default(),
            known: BTreeMap::new(),
            next: 0,
            refresh_at: now,
            acknowledged: None,
            lacks: None,
            quiet: false,
            received: 0,
            sent: 0,
        };
        // Once for the tokens, once with them.
        for _ in 0..2 {
            bench.join(source(), Role::Source, [0; 3]);
            for number in HONEST {
                bench.join(child(number), Role::Receiver, [0; 3]);
            }
            bench.join(child(LIARS[0]), Role::Receiver, [0; 3]);
            bench.join(child(LIARS[1]), Role::Relay, [0; 3]);
        }
        bench.data();
        bench
    }

    fn say(&mut self, from: SocketAddr, sequence: u32, body: Body<'_>) {
        let nameless = matches!(body, Body::Join(_) | Body::Leave(_) | Body::Move(_));
        let has_sequence = !nameless && !matches!(body, Body::Feedback(_));
        let number = self.known.get(&from).map_or(0xffff, |&(_, number)| number);
        let repr = Repr {
            key: key(),
            session: if nameless { 0 } else { RUN },
            child: number,
            sequence: Seq(if has_sequence { sequence } else { 0 }),
            body,
        };
        let mut bytes = vec![0; repr.buffer_len()];
        repr.emit(&mut bytes);
        self.hear(from, &mut bytes);
    }

    fn hear(&mut self, from: SocketAddr, bytes: &mut [u8]) {
        self.received += 1;
        let now = self.now;
        let verdict = self
            .meter
            .run(|| self.relay.forward(now, &Meta::unicast(from), bytes));
        let Verdict::Send(fanout) = verdict else {
            return self.drain();
        };
        let targets: Vec<_> = self.relay.targets(&fanout).collect();
        let packet = Packet::new_checked(&bytes[..]).expect("what was forwarded is a packet");
        let (service, seq) = (packet.service(), packet.sequence().0);
        if service == Service::Data {
            for number in HONEST {
                let copies = targets.iter().filter(|&&to| to == child(number)).count();
                assert_eq!(copies, 1, "an honest receiver gets {copies} copies");
            }
        }
        if service == Service::Repair && targets.contains(&child(0)) && self.lacks == Some(seq) {
            self.lacks = None;
        }
        self.drain();
    }

    fn join(&mut self, from: SocketAddr, role: Role, [far_us, receivers, round_trip_us]: [u32; 3]) {
        let token = self.known.get(&from).map_or(0, |&(token, _)| token);
        let relay = RelayId(if role == Role::Relay { 12 } else { 0 });
        self.say(
            from,
            0,
            Body::Join(Join {
                role,
                token,
                stamp: 1,
                far_us,
                receivers,
                relay,
                round_trip_us,
            }),
        );
    }

    fn data(&mut self) {
        let seq = self.next;
        self.next += 1;
        self.say(source(), seq, Body::Data(b"data"));
        for number in HONEST {
            if number == 0 && self.lacks.is_some() {
                continue;
            }
            self.say(child(number), self.next, Body::Ack);
        }
    }

    /// What the relay says of its own, and what honest parties answer.
    fn drain(&mut self) {
        let mut answers = Vec::new();
        let mut buffer = [0; 256];
        let mut count = 0;
        loop {
            let now = self.now;
            let polled = self
                .meter
                .run(|| self.relay.poll_transmit(now, &mut buffer));
            let Some(transmit) = polled else { break };
            count += 1;
            assert!(count < 500, "more than its tables hold");
            self.sent += 1;
            let to = transmit.destination;
            let packet = Packet::new_checked(&buffer[..transmit.len]).expect("a packet");
            let repr = Repr::parse(&packet);
            match repr.body {
                Body::Joined(joined) => {
                    let entry = self.known.entry(to).or_insert((0, 0xffff));
                    entry.0 = joined.token;
                    if joined.status == Status::Joined {
                        entry.1 = repr.child;
                    }
                }
                Body::Ack if to == source() => self.acknowledged = Some(repr.sequence.0),
                Body::Nack(nack) => {
                    if to == source()
                        && let Some(ack) = nack.ack
                    {
                        self.acknowledged = Some(ack.0);
                    }
                    let honest = to == source() || HONEST.iter().any(|&n| child(n) == to);
                    let wanted = packets(repr.sequence, nack.mask);
                    answers.extend(wanted.filter(|_| honest).map(|seq| (to, seq)));
                }
                _ => {}
            }
        }
        while self.relay.poll_event().is_some() {}
        for (from, seq) in answers {
            let has = seq.0 < self.next && !(from == child(0) && self.lacks == Some(seq.0));
            let body = if has {
                Body::Repair(b"data")
            } else {
                Body::Absent(0)
            };
            self.say(from, seq.0, body);
        }
    }

    /// Time passes; honest parties refresh, and the liars where they are quiet.
    fn pass(&mut self, us: u64, refresh: bool) {
        let end = self.now + Duration::from_micros(us);
        while self.now < end {
            if refresh && self.refresh_at <= self.now {
                self.refresh_at = self.now + Duration::from_millis(REFRESH_MS);
                self.join(source(), Role::Source, [0; 3]);
                for number in HONEST {
                    self.join(child(number), Role::Receiver, [0; 3]);
                }
                if self.quiet {
                    self.join(child(LIARS[0]), Role::Receiver, [0; 3]);
                    self.join(child(LIARS[1]), Role::Relay, [0; 3]);
                }
            }
            let step = Duration::from_millis(50).min(end - self.now);
            let mut at = self.now;
            pass(
                self,
                &mut at,
                step.total_micros(),
                |bench| bench.relay.poll_timeout(),
                |bench, now| {
                    bench.now = now;
                    bench.meter.run(|| bench.relay.handle_timeout(now));
                    bench.drain();
                },
            );
            self.now = at;
        }
    }

    /// What a liar says.
    fn lie(&mut self, script: &mut Script<'_>) {
        let from = child(script.of(&LIARS));
        let mask = if script.flag() { script.u64() } else { 0 };
        // Near the newest: far from it everything is refused alike.
        let sequence = self
            .next
            .wrapping_sub(u32::from(script.u8()))
            .wrapping_add(8);
        let token = self.known.get(&from).map_or(0, |&(token, _)| token);
        let body = match script.pick(11) {
            0 => Body::Data(b"lies"),
            1 => Body::Cast(b"lies"),
            2 => Body::Repair(b"lies"),
            3 => Body::Nack(Nack {
                mask,
                ack: script.flag().then_some(Seq(sequence)),
                repeats: script.u8().into(),
            }),
            4 => Body::Ack,
            5 => Body::Absent(mask),
            6 => Body::Leave(token),
            7 => Body::Move(token),
            8 => Body::Stalled(Stalled {
                child: child(script.u8()),
                relay: RelayId(u32::from(script.u8()) + 1),
            }),
            9 => Body::Feedback(Feedback {
                rank: script.u8().into(),
                held_us: script.u32(),
                message: &[0; 140][..usize::from(script.u8() % 140)],
            }),
            _ => {
                let role = script.of(&[Role::Receiver, Role::Relay]);
                let claims = [script.u32(), script.u32(), script.u32()];
                // From other ports too, each asked for its token first.
                let mut from = from;
                from.set_port(5000 + u16::from(script.u8() % 4));
                self.join(from, role, claims);
                return self.join(from, role, claims);
            }
        };
        self.say(from, sequence, body);
    }

    /// Everything is well again.
    fn settle(&mut self) {
        self.quiet = true;
        self.lacks = None;
        for _ in 0..TAIL_MS / 100 {
            self.data();
            self.pass(100_000, true);
        }
        // The script may have drained nothing and changed no source: the session is served.
        let acknowledged = self.acknowledged.expect("an acknowledgement");
        let behind = self.next.wrapping_sub(acknowledged);
        assert!(behind <= 3, "{behind} packets behind after {TAIL_MS} ms");
        self.lacks = Some(self.next - 1);
        // Two liars may be elected before the source is asked: an answer is waited for up to a second, then two.
        for _ in 0..120 {
            let Some(lost) = self.lacks else { break };
            self.forget_ack();
            self.say(child(0), lost, Body::Nack(Nack::default()));
            self.pass(50_000, true);
        }
        assert_eq!(self.lacks, None, "an honest receiver gets no repair");
        let before = self.sent;
        self.pass(60_000_000, false);
        assert!(
            self.sent - before < 200,
            "{} packets to silent neighbours",
            self.sent - before
        );
        assert_eq!(self.relay.sessions().count(), 0);
        let ms = (self.now - Instant::from_secs(1)).total_millis();
        let bound = 100 * self.received + ms;
        assert!(
            self.sent <= bound,
            "{} sent for {}",
            self.sent,
            self.received
        );
    }

    /// Honest receiver 0 acknowledged what it is now made to lack: a new packet is what it lacks.
    fn forget_ack(&mut self) {
        let number = self.known[&child(0)].1;
        let ack = self
            .relay
            .children(&key())
            .find(|info| info.address == child(0))
            .and_then(|info| info.acknowledged);
        if let (Some(ack), Some(lost), true) = (ack, self.lacks, number != 0xffff)
            && !ack.since(Seq(lost)).is_negative()
            && ack != Seq(lost)
        {
            let lost = self.next;
            self.lacks = Some(lost);
            self.data();
        }
    }
}

pub fn child_that_lies(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let mut bench = Bench::new(&mut script);
    let mut steps = 0;
    while script.more() && steps < 500 {
        steps += 1;
        match script.pick(4) {
            0 => bench.data(),
            1 => bench.pass(u64::from(script.u8()) * 1_000, true),
            _ => bench.lie(&mut script),
        }
        bench.meter.check(0);
        assert!(bench.relay.sessions().count() <= 2);
        assert!(bench.relay.children(&key()).count() <= 8);
    }
    bench.settle();
    bench.meter.check(0);
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for kind in 0..10 {
        let mut lines = Lines::default();
        lines.u8(kind & 1).u8(kind >> 1 & 1);
        for step in 0..30u8 {
            lines.u8(0);
            lines.u8(2).u8(step & 1).u8(step & 1);
            if step & 1 == 1 {
                for byte in 0..8 {
                    lines.u8(step.wrapping_mul(37) ^ byte);
                }
            }
            lines.u8(8 + step % 5).u8(kind).u8(step).u8(step).u8(1);
            lines.u8(1).u8(step * 8);
        }
        seeds.push(lines.0);
    }
    seeds
}

#[cfg(test)]
mod tests {
    /// Scripts at random: 400, or as many as RUNS says.
    #[test]
    fn random_lies() {
        let runs = std::env::var("RUNS")
            .ok()
            .and_then(|runs| runs.parse().ok());
        for seed in 1..=runs.unwrap_or(400u64) {
            let mut random = seed;
            let bytes: Vec<u8> = (0..600)
                .map(|_| {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    (random >> 40) as u8
                })
                .collect();
            super::child_that_lies(&bytes);
        }
    }
}
