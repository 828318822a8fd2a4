//! Client and server keep the contract of `proto_core::Machine`. A packet is one whole frame.

use mcp_control::wire::held::Held;
use mcp_control::wire::plan::Carrier;
use mcp_control::wire::progress::{Done, FileVerdict};
use mcp_control::*;
use netsim::conformance::{self, Pair, Paired};

use crate::common::{client_config, layout, manifest, udp, whole};

const FILE: FileVerdict = FileVerdict::Digest([1; 32]);

fn client(now: Instant) -> Client {
    Client::new(client_config(), manifest(), now)
}

fn server(now: Instant) -> Server {
    Server::new(udp(), now)
}

/// What the copying application does on an event.
fn client_reacts(client: &mut Client, now: Instant, event: &ClientEvent) {
    match event {
        ClientEvent::Scanned => client.suggest(now, Carrier::Udp, 4000, 5000).unwrap(),
        ClientEvent::Port { port, .. } => {
            let path = DataPath {
                carrier: Carrier::Udp,
                group: None,
                source: 4000,
                destination: *port,
                key: None,
                relay: false,
            };
            client.plan(now, Some((path, layout()))).unwrap();
        }
        ClientEvent::Ready => {
            client.digest(now, 1, FILE).unwrap();
            client.digest(now, 2, FILE).unwrap();
            client.expect(now, whole());
        }
        _ => {}
    }
}

/// What the receiving application does on an event.
fn server_reacts(server: &mut Server, now: Instant, event: &ServerEvent) {
    match event {
        ServerEvent::Offered { .. } => {
            let held = Held {
                first: 1,
                digests: vec![[9; 32]],
            };
            server.held(now, &held).unwrap();
            server.scanned(now).unwrap();
        }
        ServerEvent::Suggested { destination, .. } => server.port(now, *destination).unwrap(),
        ServerEvent::Planned { .. } => server.ready(now).unwrap(),
        ServerEvent::Digest(digest) if digest.entry == 2 => {
            let done = Done {
                received: layout().len(),
                bytes: manifest().bytes(),
                whole: whole(),
            };
            server.done(now, &done).unwrap();
        }
        _ => {}
    }
}

struct Copies {
    is_verified: bool,
}

impl Pair for Copies {
    type Machine = Client;
    type Peer = Server;
    type Command = ClientEvent;

    fn machine(&self, now: Instant) -> Client {
        client(now)
    }

    fn peer(&self, now: Instant) -> Server {
        server(now)
    }

    fn command(&self, client: &mut Client, now: Instant, event: &ClientEvent) {
        client_reacts(client, now, event);
    }

    fn to_peer(&self, transmit: &Transmit) -> (usize, Option<()>) {
        (transmit.len, Some(()))
    }

    fn to_machine(&self, transmit: &Transmit) -> (usize, Option<()>) {
        (transmit.len, Some(()))
    }

    fn notified(&mut self, _: Instant, event: &ClientEvent) -> Vec<ClientEvent> {
        self.is_verified |= *event == ClientEvent::Verified;
        vec![event.clone()]
    }

    fn peer_notified(&mut self, server: &mut Server, now: Instant, event: ServerEvent) {
        server_reacts(server, now, &event);
    }

    fn is_goal_reached(&self) -> bool {
        self.is_verified
    }

    fn has_ended(&self) -> bool {
        true
    }

    /// ENTRIES and RUNS are cut where the buffer ends.
    fn fits_packets_to_buffers(&self) -> bool {
        true
    }
}

#[test]
fn mcp_client() {
    let summary = conformance::run(|| Paired::new(Copies { is_verified: false })).unwrap();
    assert!(summary.received >= 6 && summary.sent >= 8, "{summary:?}");
}

struct Serves {
    is_verified: bool,
}

impl Pair for Serves {
    type Machine = Server;
    type Peer = Client;
    type Command = ServerEvent;

    fn machine(&self, now: Instant) -> Server {
        server(now)
    }

    fn peer(&self, now: Instant) -> Client {
        client(now)
    }

    fn command(&self, server: &mut Server, now: Instant, event: &ServerEvent) {
        server_reacts(server, now, event);
    }

    fn to_peer(&self, transmit: &Transmit) -> (usize, Option<()>) {
        (transmit.len, Some(()))
    }

    fn to_machine(&self, transmit: &Transmit) -> (usize, Option<()>) {
        (transmit.len, Some(()))
    }

    fn notified(&mut self, _: Instant, event: &ServerEvent) -> Vec<ServerEvent> {
        self.is_verified |= *event == ServerEvent::Verified;
        vec![event.clone()]
    }

    fn peer_notified(&mut self, client: &mut Client, now: Instant, event: ClientEvent) {
        client_reacts(client, now, &event);
    }

    fn is_goal_reached(&self) -> bool {
        self.is_verified
    }

    fn has_ended(&self) -> bool {
        true
    }
}

#[test]
fn mcp_server() {
    let summary = conformance::run(|| Paired::new(Serves { is_verified: false })).unwrap();
    assert!(summary.received >= 8 && summary.sent >= 6, "{summary:?}");
}
