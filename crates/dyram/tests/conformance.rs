//! Both machines keep the contract of `proto_core::Machine`.

use std::net::SocketAddr;

use dyram::storage::{Limits, Storage};
use dyram::wire::{Body, Join, Joined, NO_CHILD, Nack, Packet, Repr, Role};
use dyram::{
    Attachment, AttachmentConfig, AttachmentEvent, Config, Duration, Event, Instant, Meta, Parents,
    Relay, RelayId, Seq, SessionKey, Transmit,
};
use netsim::conformance::{self, Pair, Paired};

const SOURCE: SocketAddr = address(1);
const RELAY: SocketAddr = address(9);
const RECEIVER: SocketAddr = address(7);

const fn address(host: u8) -> SocketAddr {
    SocketAddr::new(
        std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, host)),
        5000,
    )
}

fn key() -> SessionKey {
    SessionKey::new(SOURCE.ip(), [239, 1, 2, 3].into()).unwrap()
}

fn relay(now: Instant) -> Relay<'static> {
    let limits = Limits {
        sessions: 2,
        children: 4,
        nack_states: 8,
        window: 64,
    };
    let storage = Storage::owned(limits).unwrap();
    Relay::new(Config::new(RelayId(9)), storage, [3; 32], now).unwrap()
}

fn attachment(now: Instant) -> Attachment {
    let mut relays = Parents::new();
    relays.push(RELAY).unwrap();
    let config = AttachmentConfig {
        key: key(),
        role: Role::Receiver,
        relays,
    };
    Attachment::new(config, [4; 32], now)
}

/// Length of a packet, and what the driver of the other machine knows of it.
fn delivered(transmit: &Transmit, from: SocketAddr, to: SocketAddr) -> (usize, Option<Meta>) {
    let arrives = transmit.destination == to;
    (transmit.len, arrives.then(|| Meta::unicast(from)))
}

/// A receiver attaches to a relay.
struct Attaches {
    is_attached: bool,
}

impl Pair for Attaches {
    type Machine = Attachment;
    type Peer = Relay<'static>;
    type Command = ();

    fn machine(&self, now: Instant) -> Attachment {
        attachment(now)
    }

    fn peer(&self, now: Instant) -> Relay<'static> {
        relay(now)
    }

    fn commands(&self) -> Vec<(Duration, ())> {
        vec![
            (Duration::from_millis(700), ()),
            (Duration::from_secs(9), ()),
        ]
    }

    fn command(&self, attachment: &mut Attachment, now: Instant, (): &()) {
        attachment.suspect(now);
    }

    fn to_peer(&self, transmit: &Transmit) -> (usize, Option<Meta>) {
        delivered(transmit, RECEIVER, RELAY)
    }

    fn to_machine(&self, transmit: &Transmit) -> (usize, Option<Meta>) {
        delivered(transmit, RELAY, RECEIVER)
    }

    fn notified(&mut self, _now: Instant, event: &AttachmentEvent) -> Vec<()> {
        self.is_attached |= *event == AttachmentEvent::Attached(RELAY);
        Vec::new()
    }

    fn peer_notified(&mut self, _peer: &mut Relay<'static>, _now: Instant, _event: Event) {}

    fn loses_every(&self) -> u32 {
        7
    }

    fn is_goal_reached(&self) -> bool {
        self.is_attached
    }
}

#[test]
fn attachment_of_a_receiver() {
    let make = || Paired::new(Attaches { is_attached: false });
    let summary = conformance::run(make).unwrap();
    assert!(summary.received > 20 && summary.events > 1, "{summary:?}");
}

/// What happens at a relay beside the receiver that attaches.
#[derive(Clone)]
enum Command {
    /// A packet arrives.
    Packet(SocketAddr, Vec<u8>),
    Drain,
}

/// A relay serves a source and a receiver; packets are lost and asked for.
struct Serves {
    token: u64,
    events: Vec<&'static str>,
}

fn packet(child: u16, sequence: u32, body: Body<'_>) -> Vec<u8> {
    let repr = Repr {
        key: key(),
        session: if matches!(body, Body::Join(_)) { 0 } else { 5 },
        child,
        sequence: Seq(sequence),
        body,
    };
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(&mut bytes);
    bytes
}

fn join(token: u64) -> Vec<u8> {
    let join = Join {
        role: Role::Source,
        token,
        stamp: 1,
        far_us: 0,
        round_trip_us: 0,
        receivers: 1,
        relay: RelayId(0),
    };
    packet(NO_CHILD, 0, Body::Join(join))
}

impl Serves {
    /// Learns the token that the relay sends to the source: it follows from the relay's seed.
    fn new() -> Serves {
        let (mut relay, mut buffer) = (relay(Instant::ZERO), [0; 256]);
        let meta = Meta::unicast(SOURCE);
        relay.handle_packet(Instant::ZERO, &meta, &join(0)).unwrap();
        let sent = relay.poll_transmit(Instant::ZERO, &mut buffer).unwrap();
        let packet = Packet::new_checked(&buffer[..sent.len]).unwrap();
        let Body::Joined(Joined { token, .. }) = Repr::parse(&packet).body else {
            panic!("a JOIN is answered by JOINED");
        };
        let events = Vec::new();
        Serves { token, events }
    }
}

impl Pair for Serves {
    type Machine = Relay<'static>;
    type Peer = Attachment;
    type Command = Command;

    fn machine(&self, now: Instant) -> Relay<'static> {
        relay(now)
    }

    fn peer(&self, now: Instant) -> Attachment {
        attachment(now)
    }

    fn commands(&self) -> Vec<(Duration, Command)> {
        let mut commands = Vec::new();
        let mut at = |ms, from, packet| {
            commands.push((Duration::from_millis(ms), Command::Packet(from, packet)));
        };
        for refresh in 0..20 {
            at(1 + 2_000 * refresh, SOURCE, join(self.token));
        }
        for (ms, sequence) in [(1_000, 0), (1_010, 1), (1_020, 4), (1_030, 5)] {
            at(ms, SOURCE, packet(NO_CHILD, sequence, Body::Data(b"data")));
        }
        let nack = Nack {
            mask: 0b1,
            ack: Some(Seq(1)),
            repeats: 0,
        };
        at(1_040, RECEIVER, packet(0, 1, Body::Nack(nack)));
        at(1_050, SOURCE, packet(NO_CHILD, 2, Body::Repair(b"data")));
        at(1_200, RECEIVER, packet(0, 3, Body::Ack));
        commands.push((Duration::from_secs(30), Command::Drain));
        commands
    }

    fn command(&self, relay: &mut Relay<'static>, now: Instant, command: &Command) {
        match command {
            Command::Packet(from, packet) => {
                let _ = relay.forward(now, &Meta::unicast(*from), &mut packet.clone());
            }
            Command::Drain => relay.drain(now),
        }
    }

    fn to_peer(&self, transmit: &Transmit) -> (usize, Option<Meta>) {
        delivered(transmit, RELAY, RECEIVER)
    }

    fn to_machine(&self, transmit: &Transmit) -> (usize, Option<Meta>) {
        delivered(transmit, RECEIVER, RELAY)
    }

    fn notified(&mut self, _now: Instant, event: &Event) -> Vec<Command> {
        self.events.push(match event {
            Event::SourceArrived(..) => "source",
            Event::ChildJoined(..) => "child",
            Event::Closed(..) => "closed",
            _ => "other",
        });
        Vec::new()
    }

    fn peer_notified(&mut self, _peer: &mut Attachment, _now: Instant, _event: AttachmentEvent) {}

    fn is_goal_reached(&self) -> bool {
        ["source", "child"]
            .iter()
            .all(|event| self.events.contains(event))
    }
}

#[test]
fn a_relay_with_a_source_and_a_receiver() {
    let summary = conformance::run(|| Paired::new(Serves::new())).unwrap();
    assert!(summary.sent > 25 && summary.events > 5, "{summary:?}");
}
