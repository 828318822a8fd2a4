//! Two endpoints that hand each other packets, and hostile packets.

use std::net::UdpSocket;
use std::path::Path;

use bfed::wire::data::{Kind, Repr};
use bfed::wire::join::FlowChannel;
use bfed::wire::subscribe::{Edge, Repr as Subscribe};
use bfed::{
    ChannelAddress, DataConfig, DataNode, FlowLabel, NodeId, PeerId, SessionName, wire::Message,
};
use control_stream::tls::Credentials;
use linux_net::inet::{Config, UdpSocket as OwnSocket};
use linux_net::udp::Batch;

use super::*;
use crate::native::NoNetwork;

const LIVE: &str = "bfed://2/live/?content=real-time";
const LABEL: u32 = 7;

/// The keys of the tests of `control-stream`: certificates of one authority, and one of another (`stranger.pem`).
fn credentials(name: &str) -> LinkCredentials {
    let keys = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/control-stream/tests/keys");
    let pem = std::fs::read(keys.join(name)).unwrap();
    LinkCredentials::new(&Credentials::from_pem(&pem).unwrap(), b"test")
}

/// A data node's endpoint, with its own socket on loopback.
struct Host {
    quic: Quic,
    node: Node,
    output: Datagrams,
    batch: Batch,
    address: SocketAddr,
    key: KeyDigest,
    start: StdInstant,
}

const START: Instant = Instant::from_micros(1_000_000);

impl Host {
    fn new(certificate: &str) -> Host {
        let socket = OwnSocket::open(&Config::new(([127, 0, 0, 1], 0).into())).unwrap();
        let address = socket.local_address().unwrap();
        let credentials = credentials(certificate);
        let key = KeyDigest(credentials.own);
        let mut config = DataConfig::new(NodeId(1));
        (config.datagram, config.stream) = (Some(address), Some(address));
        config.key = Some(key);
        let native = Box::new(NoNetwork::new().unwrap());
        let mut node: Node = DataNode::new(config, native, [1; 32], START);
        node.connected(START);
        Host {
            quic: Quic::new(
                credentials,
                1500,
                Congestion::default(),
                16,
                [address.port() as u8; 32],
                START,
            )
            .unwrap(),
            node,
            output: Datagrams::new(socket),
            batch: Batch::new(Batch::MAX),
            address,
            key,
            start: StdInstant::now(),
        }
    }

    fn now(&self) -> Instant {
        START + Duration::from_micros(self.start.elapsed().as_micros() as u64)
    }

    /// The control node names a data node, which sends a session. Returns the edge.
    fn name(&mut self, (address, key): End) -> EdgeId {
        let subscribe = Message::Subscribe(Subscribe {
            up: true,
            request: 1,
            epoch: 1,
            edge: Edge::Peer {
                peer: PeerId(1),
                rate_bps: 0,
            },
            flows: vec![FlowChannel {
                label: FlowLabel::new(LABEL),
                address: ChannelAddress::Quic(address, key),
            }],
            session: SessionName::parse(LIVE).unwrap(),
        });
        let mut bytes = vec![0; subscribe.buffer_len()];
        subscribe.emit(&mut bytes);
        let now = self.now();
        self.node.handle_packet(now, &(), &bytes).unwrap();
        // The PROBE of the new edge.
        let mut buffer = vec![0; 2000];
        let probe = self.node.plane().poll_transmit(now, &mut buffer);
        probe.expect("a PROBE").edge
    }

    fn end(&self) -> End {
        (self.address, self.key)
    }

    /// Handles what has arrived, and sends what is due.
    fn turn(&mut self) {
        let now = self.now();
        self.quic.handle_timeout(now);
        while self.output.receive(&mut self.batch) {
            for one in self.batch.received_mut() {
                if is_quic(one.payload) {
                    self.quic
                        .receive(now, &mut self.node, one.source, one.payload);
                }
            }
        }
        self.quic.drive(now, &mut self.node, &mut self.output);
        self.output.flush();
    }
}

/// Lets both work until `done`.
#[track_caller]
fn until(hosts: &mut [&mut Host], what: &str, mut done: impl FnMut(&mut [&mut Host]) -> bool) {
    let deadline = StdInstant::now() + std::time::Duration::from_secs(20);
    while !done(hosts) {
        assert!(StdInstant::now() < deadline, "timed out: {what}");
        hosts.iter_mut().for_each(|host| host.turn());
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
}

fn packet(len: usize) -> Vec<u8> {
    let repr = Repr {
        payload_len: len,
        ..Repr::new(Kind::Data, FlowLabel::new(LABEL).unwrap())
    };
    let mut bytes = vec![7; repr.buffer_len()];
    repr.emit(&mut bytes);
    bytes
}

/// Two hosts that know each other.
fn pair() -> (Host, Host, EdgeId, EdgeId) {
    let (mut one, mut other) = (Host::new("client.pem"), Host::new("server.pem"));
    let edge = one.name(other.end());
    let back = other.name(one.end());
    (one, other, edge, back)
}

#[test]
fn data_packets_are_not_quic() {
    for kind in [Kind::Data, Kind::Attach, Kind::Probe, Kind::Fragment] {
        let repr = Repr::new(kind, FlowLabel::new(1).unwrap());
        let mut bytes = vec![0; repr.buffer_len()];
        repr.emit(&mut bytes);
        assert!(!is_quic(&bytes));
    }
    assert!(!is_quic(&[]));
}

#[test]
fn datagrams_arrive_from_the_data_node_that_was_named() {
    let (mut one, mut other, edge, _) = pair();
    let (now, end) = (one.now(), other.end());
    assert!(!one.quic.send(now, edge, end, &packet(500)));
    let from = one.end();
    until(&mut [&mut one, &mut other], "a datagram", |hosts| {
        let received = hosts[1].quic.poll_received();
        received.is_some_and(|(path, bytes)| {
            assert_eq!(hosts[1].node.plane().path_end(path), Some(from));
            bytes == packet(500)
        })
    });
    assert_eq!(
        (one.quic.counts.connected, other.quic.counts.connected),
        (1, 1)
    );
    assert!(other.quic.counts.retries > 0);
}

#[test]
fn a_stream_carries_bytes_in_order_and_blocks_its_edge() {
    let (mut one, mut other, edge, _) = pair();
    let (now, end) = (one.now(), other.end());
    one.quic.dial(now, edge, end);
    let mut conn = None;
    until(&mut [&mut one, &mut other], "a stream", |hosts| {
        if let Some(Event::Dialled(for_edge, opened)) = hosts[0].quic.poll_event() {
            assert_eq!(for_edge, edge);
            conn = Some(opened);
        }
        conn.is_some()
    });
    let conn = conn.unwrap();
    assert!(is_stream(conn));
    // More than the stream's window: the edge is blocked, and drained once the other end reads.
    let frame: Vec<u8> = (0..60_000_u32).map(|at| at as u8).collect();
    let mut sent = 0;
    while !one.quic.write(conn, edge, &frame) {
        sent += 1;
        assert!(sent < 100, "the window has no bound");
    }
    sent += 1;
    let mut buffer = vec![0; 400 << 10];
    let (mut got, mut drained) = (Vec::<u8>::new(), false);
    until(&mut [&mut one, &mut other], "all bytes", |hosts| {
        while let Some(event) = hosts[1].quic.poll_event() {
            if let Event::Readable(conn) = event {
                while let Some((_, read)) = hosts[1].quic.read(conn, &mut buffer) {
                    got.extend(&buffer[..read.filled]);
                }
            }
        }
        while let Some(event) = hosts[0].quic.poll_event() {
            drained |= matches!(event, Event::Drained(of) if of == edge);
        }
        got.len() == sent * frame.len()
    });
    assert!(got.chunks(frame.len()).all(|chunk| chunk == frame));
    assert!(drained);
}

#[test]
fn a_certificate_that_was_not_named_is_refused() {
    let (mut one, mut other) = (Host::new("client.pem"), Host::new("server.pem"));
    // The peer's control node named another certificate of the same authority at that address.
    let wrong = (other.address, KeyDigest([5; 32]));
    let edge = one.name(wrong);
    other.name(one.end());
    let now = one.now();
    one.quic.send(now, edge, wrong, &packet(100));
    until(&mut [&mut one, &mut other], "a refusal", |hosts| {
        hosts[0].quic.counts.refused == 1
    });
    assert_eq!(one.quic.counts.connected, 0);
    assert!(other.quic.poll_received().is_none());
    // The same at the end that is connected to.
    let (mut one, mut other) = (Host::new("client.pem"), Host::new("server.pem"));
    let edge = one.name(other.end());
    other.name((one.address, KeyDigest([5; 32])));
    let (now, end) = (one.now(), other.end());
    one.quic.send(now, edge, end, &packet(100));
    until(&mut [&mut one, &mut other], "a refusal", |hosts| {
        hosts[1].quic.counts.refused == 1
    });
    assert!(other.quic.poll_received().is_none());
    assert_eq!(other.quic.counts.connected, 0);
}

#[test]
fn a_certificate_of_another_authority_fails_the_handshake() {
    let (mut one, mut other) = (Host::new("stranger.pem"), Host::new("server.pem"));
    let edge = one.name(other.end());
    other.name(one.end());
    let (now, end) = (one.now(), other.end());
    one.quic.send(now, edge, end, &packet(100));
    until(&mut [&mut one, &mut other], "a failure", |hosts| {
        hosts[0].quic.counts.lost == 1
    });
    let connected = one.quic.counts.connected + other.quic.counts.connected;
    assert_eq!(connected, 0);
}

/// The first packet of a connection.
fn first_packet() -> Vec<u8> {
    let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut host = Host::new("client.pem");
    let end = (sink.local_addr().unwrap(), KeyDigest([1; 32]));
    let edge = host.name(end);
    let now = host.now();
    host.quic.send(now, edge, end, &packet(10));
    host.turn();
    let mut buffer = vec![0; 2000];
    let len = sink.recv(&mut buffer).unwrap();
    buffer.truncate(len);
    buffer
}

#[test]
fn strangers_get_no_answer() {
    let mut host = Host::new("server.pem");
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.set_nonblocking(true).unwrap();
    let first = first_packet();
    for _ in 0..50 {
        stranger.send_to(&first, host.address).unwrap();
        host.turn();
    }
    until(&mut [&mut host], "the packets", |hosts| {
        hosts[0].quic.counts.unnamed == 50
    });
    assert!(stranger.recv(&mut [0; 2000]).is_err(), "an answer");
    assert!(host.quic.connections.is_empty());
}

#[test]
fn a_flood_of_first_packets_draws_less_than_it_brought_and_keeps_nothing() {
    let mut host = Host::new("server.pem");
    let victim = UdpSocket::bind("127.0.0.1:0").unwrap();
    victim.set_nonblocking(true).unwrap();
    host.name((victim.local_addr().unwrap(), KeyDigest([9; 32])));
    let first = first_packet();
    let (mut brought, mut drawn) = (0, 0);
    let mut buffer = [0; 4000];
    for _ in 0..500 {
        // Each with another connection identifier, as a flood has.
        let mut packet = first.clone();
        packet[6] = packet[6].wrapping_add(1);
        brought += victim.send_to(&packet, host.address).unwrap();
        brought += victim.send_to(&first, host.address).unwrap();
        host.turn();
        while let Ok(len) = victim.recv(&mut buffer) {
            drawn += len;
        }
    }
    assert!(host.quic.counts.retries > 0);
    assert!(drawn < brought / 4, "{drawn} bytes for {brought}");
    assert!(host.quic.connections.is_empty(), "something is kept");
    assert_eq!(host.quic.endpoint.open_connections(), 0);
}

#[test]
fn junk_changes_nothing() {
    let mut host = Host::new("server.pem");
    let from = SocketAddr::from(([127, 0, 0, 1], 9));
    host.name((from, KeyDigest([9; 32])));
    let now = host.now();
    let mut state = 1_u32;
    for len in 0..2000 {
        let mut junk = Vec::with_capacity(len);
        for _ in 0..len {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            junk.push((state >> 24) as u8);
        }
        if let Some(first) = junk.first_mut() {
            *first |= 0x40;
        }
        host.quic.receive(now, &mut host.node, from, &junk);
    }
    assert!(host.quic.connections.is_empty());
    assert!(host.quic.responses.len() <= MAX_RESPONSES);
}

#[test]
fn a_lost_connection_frees_its_edges_and_is_opened_again() {
    let (mut one, mut other, edge, _) = pair();
    let (now, end) = (one.now(), other.end());
    one.quic.send(now, edge, end, &packet(500));
    until(&mut [&mut one, &mut other], "a datagram", |hosts| {
        hosts[1].quic.poll_received().is_some()
    });
    // The other end is restarted at the same address.
    let at = other.quic.std(other.now());
    for connection in other.quic.connections.values_mut() {
        let code = quinn_proto::VarInt::from_u32(0);
        connection.inner.close(at, code, Bytes::new());
    }
    other.quic.dirty.extend(other.quic.connections.keys());
    until(&mut [&mut one, &mut other], "the loss", |hosts| {
        hosts[0].quic.counts.lost == 1
    });
    let now = one.now();
    one.quic.send(now, edge, end, &packet(600));
    until(&mut [&mut one, &mut other], "another datagram", |hosts| {
        let received = hosts[1].quic.poll_received();
        received.is_some_and(|(_, bytes)| bytes == packet(600))
    });
}

#[test]
fn addresses_that_do_not_answer_hold_no_more_than_their_bound() {
    let mut host = Host::new("client.pem");
    let mut edge = None;
    for number in 0..2 * MAX_DIALS {
        // Loopback addresses at which nothing listens.
        let [_, _, high, low] = (number as u32).to_be_bytes();
        let end = (
            SocketAddr::from(([127, 9, high, low], 9)),
            KeyDigest([7; 32]),
        );
        let now = host.now();
        let edge = *edge.get_or_insert_with(|| host.name(end));
        host.quic.send(now, edge, end, &packet(10));
        host.quic.drive(now, &mut host.node, &mut host.output);
        let dialling = host
            .quic
            .connections
            .values()
            .filter(|one| one.is_dialling());
        assert!(dialling.count() <= MAX_DIALS);
    }
    assert_eq!(host.quic.counts.lost, MAX_DIALS as u64);
}
