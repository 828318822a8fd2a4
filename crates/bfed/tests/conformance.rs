//! Control node and data node keep the contract of `proto_core::Machine`. A packet is one whole message of a stream.

#[path = "support/native.rs"]
pub mod native;

use std::convert::Infallible;

use bfed::data::{DataError, DataEvent, HEADER_LEN, Meta, NodeTransmit, Verdict};
use bfed::wire::Message;
use bfed::wire::client::Answer;
use bfed::wire::join::FlowChannel;
use bfed::wire::node::Heartbeat;
use bfed::wire::reclaim::{ReclaimTarget, Repr as Reclaim};
use bfed::wire::sroute::Outcome;
use bfed::wire::subscribe::{Edge, Repr as Subscribe};
use bfed::*;
use native::FakeNative;
use netsim::conformance::{self, Pair, Paired, START, Script};
use proto_core::{Forward, Machine};

const PEER: ConnId = ConnId(1);
const NODE: ConnId = ConnId(2);
const STRANGER: ConnId = ConnId(3);
/// A stream that no control node knows.
const UNKNOWN: ConnId = ConnId(99);

/// A session of network 2, for clients of network 1.
const REMOTE: &str = "bfed://2/remote/?content=real-time";
/// A session of network 1, for clients of network 2.
const LOCAL: &str = "bfed://1/local";

fn id(network: u32) -> GatewayId {
    GatewayId::new(network, 1).unwrap()
}

fn session(name: &str) -> SessionName {
    SessionName::parse(name).unwrap()
}

/// A gateway of one network, with its streams to the gateway of the other and to its data node.
fn gateway(own: u32, other: u32, now: Instant) -> ControlNode {
    let config = Config::new(id(own));
    let mut control = ControlNode::new(config, [own as u8; 32], now).unwrap();
    let peer = PeerId(other);
    control
        .add_peer(now, peer, PeerConfig::new(id(other)))
        .unwrap();
    control.connected(now, PEER, peer, own < other);
    control.node_connected(now, NODE, NodeIdentity::default());
    control
}

/// A data node of network `own`, connected to its control node.
fn data_node(own: u8, now: Instant) -> DataNode<FakeNative> {
    let mut config = DataConfig::new(NodeId(1));
    config.datagram = Some(([10, 0, own, 1], 4000).into());
    config.stream = config.datagram;
    let mut node = DataNode::new(config, Box::new(FakeNative::default()), [own; 32], now);
    node.connected(now);
    node
}

/// What surrounds the control node of network 1: its data node, the gateway of network 2 with a data node, and clients
/// there.
struct Surroundings {
    own_node: DataNode<FakeNative>,
    gateway: ControlNode,
    node: DataNode<FakeNative>,
    /// When the clients of network 2 join and leave.
    clients: Vec<(Instant, bool)>,
    buffer: Vec<u8>,
}

impl Surroundings {
    fn new(now: Instant) -> Self {
        let at = |seconds| START + Duration::from_secs(seconds);
        Surroundings {
            own_node: data_node(1, now),
            gateway: gateway(2, 1, now),
            node: data_node(2, now),
            clients: vec![(at(40), false), (at(4), true)],
            buffer: vec![0; 70_000],
        }
    }

    /// Carries messages between the gateway of network 2 and its data node. Returns a message for the machine under
    /// test, in `buffer`.
    fn poll_gateway(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        loop {
            let mut is_idle = true;
            while let Some(transmit) = self.node.poll_transmit(now, &mut self.buffer) {
                is_idle = false;
                if let NodeTransmit::Control { len } = transmit {
                    let message = &self.buffer[..len];
                    self.gateway.handle_packet(now, &NODE, message).unwrap();
                }
            }
            while let Some(event) = self.gateway.poll_event() {
                is_idle = false;
                assert!(!matches!(event, Event::PeerDown { .. }), "{event:?}");
            }
            while self.node.poll_event().is_some() || self.own_node.poll_event().is_some() {}
            while let Some(transmit) = self.gateway.poll_transmit(now, buffer) {
                is_idle = false;
                if transmit.conn == PEER {
                    return Some(transmit);
                }
                let message = &buffer[..transmit.len];
                self.node.handle_packet(now, &(), message).unwrap();
            }
            if is_idle {
                return None;
            }
        }
    }
}

impl Machine for Surroundings {
    type Meta = ConnId;
    type Transmit = Transmit;
    type Event = Infallible;
    type Error = Error;

    fn handle_packet(&mut self, now: Instant, conn: &ConnId, message: &[u8]) -> Result<(), Error> {
        match *conn {
            PEER => self.gateway.handle_packet(now, &PEER, message),
            NODE => {
                self.own_node.handle_packet(now, &(), message).unwrap();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(_, joins)) = self.clients.last().filter(|(at, _)| *at <= now) {
            self.clients.pop();
            match joins {
                true => {
                    self.gateway
                        .join(now, ClientId(7), session(LOCAL), 0, Scope::Chosen);
                }
                false => self.gateway.leave(now, &session(LOCAL)),
            }
        }
        self.own_node.handle_timeout(now);
        self.gateway.handle_timeout(now);
        self.node.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        while let Some(transmit) = self.own_node.poll_transmit(now, buffer) {
            if let NodeTransmit::Control { len } = transmit {
                return Some(Transmit { conn: NODE, len });
            }
        }
        self.poll_gateway(now, buffer)
    }

    fn poll_event(&mut self) -> Option<Infallible> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let machines = [
            self.own_node.poll_timeout(),
            self.gateway.poll_timeout(),
            self.node.poll_timeout(),
        ];
        let clients = self.clients.last().map(|(at, _)| *at);
        machines.into_iter().flatten().chain(clients).min()
    }
}

#[derive(Clone)]
enum Command {
    Join,
    Leave,
    Sroutes(u32),
    /// An unknown host connects as a data node, and sends bytes that are no message.
    Intrude,
    Drain,
}

#[derive(Default)]
struct Federation {
    translated: bool,
    tree_up: [bool; 2],
    tree_down: [bool; 2],
    node_up: bool,
    refused: bool,
}

impl Pair for Federation {
    type Machine = ControlNode;
    type Peer = Surroundings;
    type Command = Command;

    fn machine(&self, now: Instant) -> ControlNode {
        gateway(1, 2, now)
    }

    fn peer(&self, now: Instant) -> Surroundings {
        Surroundings::new(now)
    }

    fn commands(&self) -> Vec<(Duration, Command)> {
        [
            (2, Command::Join),
            (3, Command::Intrude),
            (15, Command::Join),
            (35, Command::Leave),
            (50, Command::Join),
            (52, Command::Drain),
        ]
        .map(|(at, command)| (Duration::from_secs(at), command))
        .into()
    }

    fn command(&self, control: &mut ControlNode, now: Instant, command: &Command) {
        match command {
            Command::Join => control.join(now, ClientId(1), session(REMOTE), 0, Scope::Chosen),
            Command::Leave => control.leave(now, &session(REMOTE)),
            Command::Sroutes(request) => {
                let answer = Sroutes {
                    outcome: Outcome::Null,
                    costs: Vec::new(),
                    got_all: true,
                };
                control.sroutes(now, *request, answer);
            }
            Command::Intrude => {
                control.node_connected(now, STRANGER, NodeIdentity(9));
                let result = control.handle_packet(now, &STRANGER, b"no message");
                assert_eq!(result, Err(Error::BadNode));
            }
            Command::Drain => control.drain_node(now, NodeId(1)),
        }
    }

    fn to_peer(&self, transmit: &Transmit) -> (usize, Option<ConnId>) {
        (transmit.len, Some(transmit.conn))
    }

    fn to_machine(&self, transmit: &Transmit) -> (usize, Option<ConnId>) {
        (transmit.len, Some(transmit.conn))
    }

    fn notified(&mut self, _: Instant, event: &Event) -> Vec<Command> {
        let number = |name: &SessionName| usize::from(*name == session(LOCAL));
        match event {
            Event::Answer { answer, .. } => {
                self.translated |= matches!(answer, Answer::Translation(_));
            }
            Event::TreeUp { session, .. } => self.tree_up[number(session)] = true,
            Event::TreeDown(session) => self.tree_down[number(session)] = true,
            Event::NodeUp(_) => self.node_up = true,
            Event::Close(conn) => self.refused |= *conn == STRANGER,
            Event::GetSroutes { request, .. } => return vec![Command::Sroutes(*request)],
            _ => {}
        }
        Vec::new()
    }

    fn peer_notified(&mut self, _: &mut Surroundings, _: Instant, event: Infallible) {
        match event {}
    }

    fn is_goal_reached(&self) -> bool {
        let trees = [self.tree_up, self.tree_down];
        self.translated && self.node_up && self.refused && trees == [[true; 2]; 2]
    }

    /// The driver does not answer a request to dial while the peer is gone: each that is overdue is a wake-up.
    fn max_idle_wakeups(&self) -> usize {
        64
    }

    /// Peers and data nodes are authenticated by the driver. Bytes that are no message end their stream, as
    /// NOTIFICATION says; anywhere else junk changes nothing.
    fn junk_meta(&self, _: &ConnId) -> ConnId {
        UNKNOWN
    }
}

#[test]
fn control_node() {
    let summary = conformance::run(|| Paired::new(Federation::default())).unwrap();
    assert!(
        summary.received >= 300 && summary.sent >= 200,
        "{summary:?}"
    );
}

const BELOW: Edge = Edge::Peer {
    peer: PeerId(1),
    rate_bps: 0,
};
const ABOVE: Edge = Edge::Peer {
    peer: PeerId(2),
    rate_bps: 1_000_000,
};

fn bytes(message: &Message) -> Vec<u8> {
    let mut bytes = vec![0; message.buffer_len()];
    message.emit(&mut bytes);
    bytes
}

fn subscribe(up: bool, name: &str, edge: Edge, flows: Vec<FlowChannel>) -> Vec<u8> {
    bytes(&Message::Subscribe(Subscribe {
        up,
        request: 1,
        epoch: 1,
        edge,
        flows,
        session: session(name),
    }))
}

fn reclaim(name: &str, what: Option<ReclaimTarget>) -> Vec<u8> {
    bytes(&Message::Reclaim(Reclaim {
        epoch: 1,
        what,
        session: session(name),
    }))
}

fn channel(address: ChannelAddress, label: u32) -> Vec<FlowChannel> {
    let label = FlowLabel::new(label);
    vec![FlowChannel { label, address }]
}

/// Forwards a frame of the native network; it waits until the receiver's address is proved.
fn forward(node: &mut DataNode<FakeNative>, now: Instant) {
    let channel = *node.native().open.keys().next().unwrap();
    let mut frame = [7; HEADER_LEN + 100];
    match Forward::forward(node, now, &Meta::Native(channel), &mut frame) {
        Verdict::Forward(mut cursor) => {
            let next = node.plane().next_transmit(now, &mut cursor, &mut frame);
            assert_eq!(next, None);
        }
        verdict => panic!("{verdict:?}"),
    }
}

/// Packets with another label, of another form, or from a native channel that is not open are dropped.
fn refuse(node: &mut DataNode<FakeNative>, now: Instant) {
    let from = Meta::Datagram(([10, 9, 9, 9], 9).into());
    for (meta, mut frame, reason) in [
        (from, vec![0x10; 10], DataError::Malformed),
        (
            Meta::Native(bfed::native::ChannelId(99)),
            vec![0; HEADER_LEN + 1],
            DataError::UnknownChannel,
        ),
    ] {
        let verdict = node.forward(now, &meta, &mut frame);
        assert!(matches!(verdict, Verdict::Drop(dropped) if dropped == reason));
    }
}

fn data_scenario() -> Script<DataNode<FakeNative>> {
    let len = |transmit: &NodeTransmit| match transmit {
        NodeTransmit::Control { len } => *len,
        NodeTransmit::Data(transmit) => transmit.range.end,
    };
    let at = Duration::from_millis;
    let mut script = Script::new(|now| data_node(1, now), len)
        .packet(at(10), (), subscribe(true, LOCAL, Edge::Native, Vec::new()))
        .packet(
            at(20),
            (),
            subscribe(true, REMOTE, ABOVE, {
                channel(ChannelAddress::Datagram(([10, 0, 2, 1], 4000).into()), 5)
            }),
        )
        .packet(
            at(30),
            (),
            subscribe(false, LOCAL, BELOW, {
                channel(ChannelAddress::Stream(([10, 0, 3, 1], 4000).into()), 0)
            }),
        )
        .packet(
            at(40),
            (),
            subscribe(false, REMOTE, Edge::Native, Vec::new()),
        )
        .command(at(50), forward)
        .command(at(60), refuse)
        .packet(
            at(70),
            (),
            subscribe(
                true,
                "bfed://2/file",
                BELOW,
                channel(ChannelAddress::Stream(([10, 0, 3, 1], 4000).into()), 6),
            ),
        );
    for beat in 1..40 {
        let heartbeat = Heartbeat {
            epoch: 1,
            sequence: beat,
            draining: false,
            complete: beat == 30,
        };
        script = script.packet(at(250 * u64::from(beat)), (), {
            bytes(&Message::Heartbeat(heartbeat))
        });
        if beat == 20 {
            script = script
                .packet(at(5_010), (), reclaim(LOCAL, None))
                .command(at(5_020), |node, _| {
                    if let Some(DataEvent::Dial { edge, to }) = node.poll_event() {
                        node.dial_failed(START, edge, to);
                    }
                })
                .command(at(5_030), |node, now| node.drain(now));
        }
    }
    for (number, name) in [LOCAL, REMOTE, "bfed://2/file"].into_iter().enumerate() {
        let end = at(9_800 + number as u64);
        script = script.packet(end, (), reclaim(name, Some(ReclaimTarget::All)));
    }
    script.min_sent = 60;
    script.min_events = 2;
    script
}

#[test]
fn data_node_machine() {
    let summary = conformance::run(data_scenario).unwrap();
    assert!(summary.sent >= 60 && summary.events >= 2, "{summary:?}");
}
