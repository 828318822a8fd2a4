//! SRM: Scalable Reliable Multicast with fixed timers (Floyd, Jacobson, Liu, McCanne, Zhang; IEEE/ACM
//! Transactions on Networking 5(6), 1997), as a machine for the comparison.
//!
//! A member A that misses a packet of S multicasts a request to all after a time uniform over
//! 2^i [C1 d, (C1 + C2) d], d its one-way distance to S. A request that it receives first doubles the
//! timer; further ones until halfway to the new timer count as the same round (ignore-backoff). A
//! member B that has the packet answers a request of A by a repair to all after a time uniform over
//! [D1 d, (D1 + D2) d], d its distance to A, unless it receives the repair first. Having sent or received a
//! repair it ignores requests for that packet for three times its distance to S (the source itself: to the
//! member that asked).
//! C1 = C2 = 2 and D1 = D2 = 1 are the defaults of the network simulator ns-2 (its manual, chapter on
//! SRM: `C1_`, `C2_`, `D1_`, `D2_`). [`Constants::LogOfGroup`] sets D1 = D2 = log10 of the group size, as
//! versions of ns-2 do for `Agent/SRM/Fixed` (`tcl/mcast/srm.tcl`); whether the simulations of the
//! paper itself did was not verified.
//!
//! Distances come from session messages in SRM; here each packet carries its time of sending, and clocks
//! agree, which is the same with no error. A member that receives a request for a packet it had not
//! missed yet takes it as the first sign of the loss.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use netsim::tree::Role;
use netsim::{Duration, Instant, Io, Node, Port, Record, Rng, Sim};

use super::watch::{Arrival, Outcome, Watch, processor_time};
use super::world::{BEGIN, GAP, TIMEOUT, World};

const C1: f64 = 2.0;
const C2: f64 = 2.0;

/// D1 = D2 of the repair timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Constants {
    /// 1.
    Fixed,
    /// log10 of the number of members, at least 1.
    LogOfGroup,
}

impl Constants {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Fixed => "SRM, D = 1",
            Self::LogOfGroup => "SRM, D = log10 G",
        }
    }

    fn repair_factor(self, members: u32) -> f64 {
        match self {
            Self::Fixed => 1.0,
            Self::LogOfGroup => f64::from(members).log10().max(1.0),
        }
    }
}

const NEVER: Instant = Instant::from_micros(i64::MAX);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Data = 1,
    Request = 2,
    Repair = 3,
    /// Says how many packets there were; sent after the last.
    Session = 4,
}

/// Kind, sequence, when it was sent.
struct Message {
    kind: Kind,
    sequence: u32,
    sent: Instant,
}

impl Message {
    const LEN: usize = 13;

    fn emit(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = self.kind as u8;
        bytes[1..5].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[5..].copy_from_slice(&self.sent.total_micros().to_be_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.try_into().ok()?;
        let kind = match bytes[0] {
            1 => Kind::Data,
            2 => Kind::Request,
            3 => Kind::Repair,
            4 => Kind::Session,
            _ => return None,
        };
        let sequence = u32::from_be_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
        let sent = i64::from_be_bytes(bytes[5..].try_into().ok()?);
        Some(Self {
            kind,
            sequence,
            sent: Instant::from_micros(sent),
        })
    }
}

/// A request that waits for its time, or for the repair.
struct Request {
    sequence: u32,
    at: Instant,
    round: u32,
    ignore_until: Instant,
}

/// A scheduled repair; [`Answer`] says whether it was cancelled.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Repair {
    at: Instant,
    sequence: u32,
    /// To the receiver that asked.
    distance: Duration,
}

/// What a member that may repair a packet knows of that, in microseconds of virtual time: a run is
/// shorter than the 71 minutes that fit.
#[derive(Clone, Copy, Default)]
struct Answer {
    /// When its repair is due; 0 when none is planned.
    repair_us: u32,
    /// Requests are ignored before this.
    held_us: u32,
}

fn micros(at: Instant) -> u32 {
    u32::try_from(at.total_micros()).unwrap_or(u32::MAX)
}

/// A member: the source or a receiver.
struct Member {
    /// No request, repair or data packet is due before this.
    due: Instant,
    watch: Watch,
    /// Packets that the source has still to send, and when the next is due.
    source: Option<Box<Source>>,
    /// One-way distance to the source.
    distance: Duration,
    /// D1 = D2.
    repair_factor: f64,
    requests: Vec<Request>,
    /// By sequence, up to the highest that was requested.
    answers: Vec<Answer>,
    repairs: BinaryHeap<Reverse<Repair>>,
    rng: Rng,
    requests_heard: u64,
}

struct Source {
    packets: u32,
    next: u32,
    due: Instant,
    /// Session messages that are still to follow the last packet.
    sessions: u32,
}

impl Member {
    fn uniform(&mut self, low: f64, high: f64, distance: Duration) -> Duration {
        let factor = low + (high - low) * self.rng.unit();
        Duration::from_micros((factor * distance.total_micros() as f64) as u64)
    }

    fn request_delay(&mut self, round: u32) -> Duration {
        let scale = f64::from(1u32 << round.min(20));
        self.uniform(scale * C1, scale * (C1 + C2), self.distance)
    }

    /// Has this member the packet?
    fn has(&self, sequence: u32) -> bool {
        match &self.source {
            Some(source) => sequence < source.next,
            None => self.watch.is_there(sequence),
        }
    }

    fn missing(&mut self, now: Instant, from: u32, to: u32) {
        for sequence in from..to {
            let at = now + self.request_delay(0);
            self.due = self.due.min(at);
            self.requests.push(Request {
                sequence,
                at,
                round: 0,
                ignore_until: Instant::ZERO,
            });
        }
    }

    fn packet(&mut self, now: Instant, message: &Message, repair: bool) {
        if self.source.is_none() {
            let before = self.watch.next();
            match self.watch.arrived(now, message.sequence, repair) {
                Arrival::Ahead => self.missing(now, before, message.sequence),
                Arrival::Fills => self
                    .requests
                    .retain(|request| request.sequence != message.sequence),
                Arrival::Known => {}
            }
        }
        if repair {
            self.hold_down(now, message.sequence, self.distance);
        }
    }

    fn session(&mut self, now: Instant, end: u32) {
        if self.source.is_none() {
            let before = self.watch.next();
            self.watch.announced(now, end);
            self.missing(now, before, end);
        }
    }

    fn answer(&mut self, sequence: u32) -> &mut Answer {
        let index = sequence as usize;
        if index >= self.answers.len() {
            self.answers.resize(index + 1, Answer::default());
        }
        &mut self.answers[index]
    }

    /// A repair was sent or received: none is due now, and requests are ignored for a while.
    fn hold_down(&mut self, now: Instant, sequence: u32, distance: Duration) {
        let until = micros(now + distance * 3);
        let answer = self.answer(sequence);
        answer.repair_us = 0;
        answer.held_us = answer.held_us.max(until);
    }

    fn request(&mut self, now: Instant, message: &Message) {
        self.requests_heard += 1;
        let sequence = message.sequence;
        if self.has(sequence) {
            self.plan_repair(now, sequence, now - message.sent);
            return;
        }
        let before = self.watch.next();
        if sequence >= before {
            self.watch.announced(now, sequence + 1);
            self.missing(now, before, sequence + 1);
        }
        let at = self
            .requests
            .iter()
            .position(|request| request.sequence == sequence);
        let Some(at) = at else { return };
        if now >= self.requests[at].ignore_until {
            let round = self.requests[at].round + 1;
            self.back_off(now, at, round);
        }
    }

    fn back_off(&mut self, now: Instant, at: usize, round: u32) {
        let delay = self.request_delay(round);
        let request = &mut self.requests[at];
        (request.round, request.at) = (round, now + delay);
        request.ignore_until = now + delay / 2;
    }

    fn plan_repair(&mut self, now: Instant, sequence: u32, distance: Duration) {
        let answer = *self.answer(sequence);
        if answer.held_us > micros(now) || answer.repair_us != 0 {
            return;
        }
        let low = self.repair_factor;
        let at = now + self.uniform(low, low * 2.0, distance);
        self.due = self.due.min(at);
        self.answer(sequence).repair_us = micros(at);
        self.repairs.push(Reverse(Repair {
            at,
            sequence,
            distance,
        }));
    }

    fn is_planned(&self, repair: &Repair) -> bool {
        self.answers[repair.sequence as usize].repair_us == micros(repair.at)
    }

    /// The next repair that was not cancelled, if it is due by `end`.
    fn next_repair(&mut self, end: Instant) -> Option<Repair> {
        while let Some(Reverse(repair)) = self.repairs.peek() {
            let planned = self.is_planned(repair);
            if planned && repair.at > end {
                return None;
            }
            let repair = self.repairs.pop().map(|Reverse(repair)| repair);
            if planned {
                return repair;
            }
        }
        None
    }

    /// When the next thing is due; a time far away for nothing.
    fn earliest(&self) -> Instant {
        let source = self.source.as_ref();
        let due = source.filter(|source| source.next < source.packets || source.sessions > 0);
        let requests = self.requests.iter().map(|request| request.at);
        let repairs = self.repairs.peek().map(|Reverse(repair)| repair.at);
        let all = requests.chain(repairs).chain(due.map(|source| source.due));
        all.min().unwrap_or(NEVER)
    }

    fn send_due(&mut self, now: Instant, io: &mut Io<'_>) {
        let mut out = Vec::new();
        if let Some(source) = &mut self.source
            && source.due <= now
        {
            if source.next < source.packets {
                out.push((Kind::Data, source.next));
                source.next += 1;
                source.due += GAP;
            } else if source.sessions > 0 {
                out.push((Kind::Session, source.packets));
                source.sessions -= 1;
                source.due += GAP * 10;
            }
        }
        for at in 0..self.requests.len() {
            if self.requests[at].at <= now {
                out.push((Kind::Request, self.requests[at].sequence));
                let round = self.requests[at].round + 1;
                self.back_off(now, at, round);
            }
        }
        while let Some(repair) = self.next_repair(now) {
            let to_source = self.source.is_none().then_some(self.distance);
            out.push((Kind::Repair, repair.sequence));
            self.hold_down(now, repair.sequence, to_source.unwrap_or(repair.distance));
        }
        self.due = self.earliest();
        for (kind, sequence) in out {
            io.send(
                Port(0),
                &Message {
                    kind,
                    sequence,
                    sent: now,
                }
                .emit(),
            );
        }
    }
}

enum Peer {
    Router,
    Member(Box<Member>),
}

impl Node for Peer {
    #[inline]
    fn handle_packet(&mut self, now: Instant, port: Port, packet: &[u8], io: &mut Io<'_>) {
        match self {
            Self::Router => {
                let ports = io.ports();
                io.forward_each((0..ports).map(Port).filter(|other| *other != port));
            }
            Self::Member(member) => {
                let Some(message) = Message::parse(packet) else {
                    return;
                };
                match message.kind {
                    Kind::Data => member.packet(now, &message, false),
                    Kind::Repair => member.packet(now, &message, true),
                    Kind::Request => member.request(now, &message),
                    Kind::Session => member.session(now, message.sequence),
                }
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant, io: &mut Io<'_>) {
        if let Self::Member(member) = self {
            member.send_due(now, io);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let Self::Member(member) = self else {
            return None;
        };
        (member.due < NEVER).then_some(member.due)
    }

    fn touch(&self) -> u64 {
        let Self::Member(member) = self else { return 0 };
        let next = member.watch.next();
        let answer = member.answers.last().map_or(0, |answer| answer.held_us);
        u64::from(next ^ answer) ^ member.requests.len() as u64
    }
}

/// The sequence of a data packet.
fn data_sequence(record: &Record<'_>) -> Option<u32> {
    let message = Message::parse(record.bytes)?;
    (message.kind == Kind::Data).then_some(message.sequence)
}

fn member(world: &World, node: u32, constants: Constants) -> Member {
    let source = Source {
        packets: world.plan.packets,
        next: 0,
        due: BEGIN,
        sessions: 20,
    };
    Member {
        rng: Rng::new(world.node_seed(node)),
        watch: Watch::default(),
        source: (node == 0).then(|| Box::new(source)),
        distance: world.tree.delay(node, 0),
        repair_factor: constants.repair_factor(world.plan.receivers + 1),
        requests: Vec::new(),
        answers: Vec::new(),
        repairs: BinaryHeap::new(),
        due: if node == 0 { BEGIN } else { NEVER },
        requests_heard: 0,
    }
}

fn is_done(sim: &Sim<Peer>, packets: u32) -> bool {
    sim.nodes().all(|(id, node)| match node {
        Peer::Member(member) if id.0 != 0 => member.watch.has_all(packets),
        _ => true,
    })
}

/// Runs SRM over the world's plan.
pub(super) fn run(world: &World, constants: Constants) -> Outcome {
    let since = processor_time();
    let packets = world.plan.packets;
    let mut sim = world.simulate(data_sequence, |node| match world.tree.role(node) {
        Role::Router => Peer::Router,
        Role::Source | Role::Receiver => Peer::Member(Box::new(member(world, node, constants))),
    });
    let last = BEGIN + GAP * packets;
    sim.run_until(last);
    while !is_done(&sim, packets) && sim.now() < last + TIMEOUT {
        let at = sim.now() + Duration::from_millis(250);
        sim.run_until(at);
    }
    let mut heard = 0;
    let mut watches = Vec::new();
    for (id, node) in sim.nodes() {
        match node {
            Peer::Member(member) if id.0 == 0 => heard = member.requests_heard,
            Peer::Member(member) => watches.push((id.0, &member.watch)),
            Peer::Router => {}
        }
    }
    Outcome::gather(constants.name(), world, watches.into_iter())
        .source_requests(heard)
        .costs(&sim, world, since)
}
