//! An endpoint keeps the contract of `proto_core::Machine`, on both sides of a connection.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use netsim::conformance::{self, Pair, Paired};
use tcpxm::wire::Segment;
use tcpxm::{
    Carrier, Config, ConnId, Duration, Endpoint, Event, Instant, Meta, Received, Transmit,
};

const PORT: u16 = 7000;
const LOCAL_PORT: u16 = 41_000;
const LEN_BYTES: usize = 100_000;
/// Every 15th packet is lost, each way.
const LOSS: u32 = 15;

type Machine = Endpoint;

fn address(number: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, number).into()
}

fn config(carrier: Carrier) -> Config {
    let mut config = Config::default();
    config.carrier = carrier;
    config.receive_buffer = 64 << 10;
    config.send_buffer = 256 << 10;
    config.time_wait = Duration::from_secs(5);
    config
}

/// Number 1 connects and sends, 2 listens and receives.
fn sender(now: Instant, carrier: Carrier) -> Machine {
    Endpoint::new(config(carrier), [1; 32], now)
}

fn receiver(now: Instant, carrier: Carrier) -> Machine {
    let mut endpoint = Endpoint::new(config(carrier), [2; 32], now);
    endpoint.listen(now, PORT).unwrap();
    endpoint
}

fn to_receiver(transmit: &Transmit) -> (usize, Option<Meta>) {
    let meta = Meta {
        source: SocketAddr::new(address(1), LOCAL_PORT),
        destination: address(2),
    };
    (transmit.len, Some(meta))
}

fn to_sender(transmit: &Transmit) -> (usize, Option<Meta>) {
    let meta = Meta {
        source: SocketAddr::new(address(2), PORT),
        destination: address(1),
    };
    (transmit.len, Some(meta))
}

fn open(endpoint: &mut Machine, now: Instant) {
    let (local, remote) = (
        SocketAddr::new(address(1), LOCAL_PORT),
        SocketAddr::new(address(2), PORT),
    );
    let connection = endpoint.connect(now, local, remote).unwrap();
    let sent = endpoint.send(now, connection, &[7; LEN_BYTES]).unwrap();
    assert_eq!(sent, LEN_BYTES);
    endpoint.shutdown(now, connection).unwrap();
}

/// Reads what there is; at the end closes the other direction too. Returns how much it was.
fn read(endpoint: &mut Machine, now: Instant, connection: ConnId) -> usize {
    let mut buffer = [0; 4096];
    let mut total = 0;
    loop {
        match endpoint.recv(now, connection, &mut buffer) {
            Ok(Received::Data(len)) => total += len,
            Ok(Received::End) => {
                let _ = endpoint.shutdown(now, connection); // once more is harmless
                return total;
            }
            Ok(Received::Nothing) | Err(_) => return total,
        }
    }
}

#[derive(Clone, Copy)]
enum Command {
    Open,
    Accept,
    Read(ConnId),
}

fn execute(endpoint: &mut Machine, now: Instant, command: Command) -> usize {
    match command {
        Command::Open => open(endpoint, now),
        Command::Accept => while endpoint.accept(now, PORT).is_some() {},
        Command::Read(connection) => return read(endpoint, now, connection),
    }
    0
}

fn react(event: &Event) -> Vec<Command> {
    match *event {
        Event::Incoming { .. } => vec![Command::Accept],
        Event::Readable { connection } | Event::Finished { connection } => {
            vec![Command::Read(connection)]
        }
        _ => Vec::new(),
    }
}

/// The endpoint under test sends, or receives.
struct OneWay {
    carrier: Carrier,
    sends: bool,
    is_closed: bool,
    received: usize,
}

impl Pair for OneWay {
    type Machine = Machine;
    type Peer = Machine;
    type Command = Command;

    fn machine(&self, now: Instant) -> Machine {
        if self.sends {
            sender(now, self.carrier)
        } else {
            receiver(now, self.carrier)
        }
    }

    fn peer(&self, now: Instant) -> Machine {
        if self.sends {
            return receiver(now, self.carrier);
        }
        let mut peer = sender(now, self.carrier);
        open(&mut peer, now);
        peer
    }

    fn commands(&self) -> Vec<(Duration, Command)> {
        let open = (Duration::from_millis(3), Command::Open);
        if self.sends { vec![open] } else { Vec::new() }
    }

    fn command(&self, machine: &mut Machine, now: Instant, command: &Command) {
        execute(machine, now, *command);
    }

    fn to_peer(&self, transmit: &Transmit) -> (usize, Option<Meta>) {
        if self.sends {
            to_receiver(transmit)
        } else {
            to_sender(transmit)
        }
    }

    fn to_machine(&self, transmit: &Transmit) -> (usize, Option<Meta>) {
        if self.sends {
            to_sender(transmit)
        } else {
            to_receiver(transmit)
        }
    }

    fn notified(&mut self, _: Instant, event: &Event) -> Vec<Command> {
        self.is_closed |= matches!(event, Event::Closed { failure: None, .. });
        react(event)
    }

    fn peer_notified(&mut self, peer: &mut Machine, now: Instant, event: Event) {
        for command in react(&event) {
            self.received += execute(peer, now, command);
        }
    }

    fn loses_every(&self) -> u32 {
        LOSS
    }

    fn is_goal_reached(&self) -> bool {
        self.is_closed && (!self.sends || self.received == LEN_BYTES)
    }

    fn has_ended(&self) -> bool {
        true
    }

    /// Over UDP a segment has no checksum of its own, so that a truncated one may be a shorter segment: it is
    /// answered as RFC 9293 says, by an acknowledgement or a reset. Over IP nothing is excepted.
    fn is_junk(&self, _: &Meta, packet: &[u8]) -> bool {
        self.carrier == Carrier::Ip || Segment::parse(packet).is_err()
    }
}

fn run(sends: bool, carrier: Carrier) -> conformance::Summary {
    let make = || {
        Paired::new(OneWay {
            carrier,
            sends,
            is_closed: false,
            received: 0,
        })
    };
    conformance::run(make).unwrap()
}

#[test]
fn connecting_endpoint() {
    for carrier in [Carrier::Udp, Carrier::Ip] {
        let summary = run(true, carrier);
        assert!(summary.sent > 60 && summary.received > 20, "{summary:?}");
    }
}

#[test]
fn listening_endpoint() {
    for carrier in [Carrier::Udp, Carrier::Ip] {
        let summary = run(false, carrier);
        assert!(summary.received > 60 && summary.sent > 20, "{summary:?}");
    }
}
