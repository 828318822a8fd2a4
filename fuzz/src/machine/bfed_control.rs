//! A control node with a genuine peer (another control node), a peer that was let in and lies, a data
//! node that was let in and lies too, an honest data node, and clients.
//!
//! Asserted first: service continues. A client has a session of the genuine peer, which honest data nodes
//! carry; whatever the liars say, it stays attached to the genuine peer.
//!
//! Asserted: whatever the liar says, the peering with the genuine peer stays, and so does the route
//! to it; both hold no more than the bounds of their tables allow; a message draws a bounded number of
//! messages; sessions and routes stay within their limits.

use std::collections::VecDeque;
use std::net::SocketAddr;

use bfed::wire::allocate::{Outcome as Done, Response};
use bfed::wire::attributes::Attributes;
use bfed::wire::join::{self, FlowChannel};
use bfed::wire::node::{Heartbeat, Register};
use bfed::wire::sroute::{self, GatewayCost, Outcome};
use bfed::wire::subscribe::Edge;
use bfed::wire::update::{self, Announced};
use bfed::wire::{MAX_MESSAGE_LEN, Message, echo, liveness, no_route, open, translation};
use bfed::{
    ChannelAddress, ClientId, Config, ConnId, ControlNode, Cost, Event, FlowLabel, GatewayId,
    Instant, Limits, NodeId, NodeIdentity, PeerConfig, PeerId, Scope, SessionName, Sroutes, Table,
    Tables,
};

use super::pass;
use crate::memory::Meter;
use crate::script::Script;

/// The genuine peer's stream, at either side.
const GENUINE: ConnId = ConnId(1);
const GENUINE_PEER: PeerId = PeerId(1);
const LIAR_PEER: PeerId = PeerId(2);
/// The stream of an honest data node, here and at the genuine peer.
const HONEST_NODE: ConnId = ConnId(2);
/// What every honest client wants.
const HONEST_SESSION: &str = "bfed://2/honest";
const HONEST_CLIENT: ClientId = ClientId(1000);
const SESSIONS: usize = 16;
/// A session takes a name and 2 KiB, and 1 KiB for each of three below; a route, an SROUTE cost, a
/// refusal or a question 2 KiB at most with its name; a message that waits its length.
const BOUND: usize = SESSIONS * 6 * 1024 + 200 * 2 * 1024 + 64 * MAX_MESSAGE_LEN / 4 + (256 << 10);

fn gateway(network: u32) -> GatewayId {
    GatewayId::new(network, 1).expect("not 0")
}

fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.max_peers = 4;
    limits.max_nodes = 2;
    limits.max_sessions = SESSIONS;
    limits.max_sessions_per_peer = 8;
    limits.max_queue = 64;
    limits.max_sroutes = 16;
    limits.max_requests = 8;
    limits.max_waiting = 4;
    limits.max_refused = 16;
    limits.new_sessions_per_second = 100;
    limits.max_flapping = 16;
    limits
}

struct Bench {
    now: Instant,
    control: ControlNode,
    genuine: ControlNode,
    meter: Meter,
    to_genuine: VecDeque<Vec<u8>>,
    to_control: VecDeque<Vec<u8>>,
    /// What honest data nodes were asked for: here (true) or at the genuine peer.
    to_nodes: VecDeque<(bool, Vec<u8>)>,
    /// The liar's stream, and the lying data node's.
    liar: Option<ConnId>,
    node: Option<ConnId>,
    next: u64,
    /// Room for one message: to clear a new one for each step takes most of the time.
    buffer: Vec<u8>,
}

fn session(script: &mut Script<'_>) -> SessionName {
    let network = script.u8() % 5;
    let kind = script.of(&["", "?content=real-time", "?sources=many"]);
    let name = format!("bfed://{network}/session-{}/{kind}", script.u8() % 24);
    SessionName::parse(&name).unwrap_or_else(|_| SessionName::parse("bfed://1/x").expect("a name"))
}

/// A session that the lying peer names: often the honest client's.
fn peer_session(script: &mut Script<'_>) -> SessionName {
    match script.u8() % 3 {
        0 => SessionName::parse(HONEST_SESSION).expect("a name"),
        _ => session(script),
    }
}

fn channel(script: &mut Script<'_>) -> FlowChannel {
    let address: SocketAddr = ([10, 0, 0, script.u8()], 4000).into();
    let address = match script.pick(3) {
        0 => ChannelAddress::Datagram(address),
        1 => ChannelAddress::Stream(address),
        _ => ChannelAddress::Native(script.bytes().iter().copied().take(512).collect()),
    };
    FlowChannel {
        label: FlowLabel::new(script.u8().into()),
        address,
    }
}

fn some_gateway(script: &mut Script<'_>) -> GatewayId {
    GatewayId::new(
        1 + u32::from(script.u8() % 8),
        1 + u32::from(script.u8() % 2),
    )
    .expect("not 0")
}

fn list<T>(
    script: &mut Script<'_>,
    most: usize,
    mut one: impl FnMut(&mut Script<'_>) -> T,
) -> Vec<T> {
    (0..script.pick(most)).map(|_| one(script)).collect()
}

fn cost(script: &mut Script<'_>) -> GatewayCost {
    GatewayCost {
        gateway: some_gateway(script),
        cost: Cost(script.u32()),
    }
}

fn table(script: &mut Script<'_>) -> Table {
    Table::from_number(script.u8() % Table::COUNT as u8).expect("a table")
}

/// A message between peers, well-formed and perhaps a lie.
fn peer_message(script: &mut Script<'_>) -> Message {
    match script.pick(12) {
        0 => Message::Open(open::Repr {
            version_low: 1,
            version_high: 1,
            hold_time_s: script.of(&[0, 3, 90]),
            gateway: if script.flag() {
                gateway(3)
            } else {
                some_gateway(script)
            },
            boot: script.u8().into(),
            tables: Tables::ALL,
            graceful: script.flag().then(|| open::Graceful {
                restarting: script.flag(),
                preserved: script.flag(),
                restart_time_s: script.u8().into(),
            }),
            transport: bfed::wire::transport::Transport::Plain,
            echo: script.flag(),
        }),
        1 => Message::KeepAlive,
        2 | 3 => Message::Update(update::Repr {
            table: table(script),
            withdrawn: list(script, 4, some_gateway),
            announced: list(script, 6, |script| {
                let destination = some_gateway(script);
                let mut path = vec![gateway(3)];
                path.extend(list(script, 4, some_gateway));
                path.push(destination);
                let attributes = Attributes {
                    cost: Cost(script.u16().into()),
                    path,
                    tags: list(script, 3, |script| script.u32()),
                };
                Announced {
                    destination,
                    attributes,
                }
            }),
        }),
        4 => Message::EndOfTable(table(script)),
        5 | 6 => Message::Join(join::Repr {
            hop_limit: script.u8(),
            sroutes: script.flag().then(|| list(script, 4, cost)),
            flows: list(script, 3, channel),
            session: peer_session(script),
        }),
        7 => Message::Leave(peer_session(script)),
        8 => Message::Translation(translation::Repr {
            path: list(script, 4, some_gateway),
            flows: list(script, 3, channel),
            session: peer_session(script),
        }),
        11 => Message::Echo(echo::Repr {
            reply: script.flag(),
            token: script.u8().into(),
        }),
        9 => Message::NoRoute(no_route::Repr {
            reason: script.of(no_route::Reason::ALL),
            session: peer_session(script),
        }),
        _ if script.flag() => Message::SrouteRequest(sroute::Request {
            request: script.u8().into(),
            towards: some_gateway(script),
            hop_limit: script.u8(),
            internal: script.flag(),
            gateways: list(script, 4, some_gateway),
            session: peer_session(script),
        }),
        _ => Message::SrouteResponse(sroute::Response {
            request: script.u8().into(),
            outcome: script.of(&[Outcome::Costs, Outcome::Null, Outcome::NoSession]),
            costs: list(script, 4, cost),
            session: peer_session(script),
        }),
    }
}

/// A message of a data node.
fn node_message(script: &mut Script<'_>) -> Message {
    match script.pick(4) {
        3 => Message::Liveness(liveness::Repr {
            peer: script.of(&[GENUINE_PEER, LIAR_PEER]),
            state: script.of(liveness::State::ALL),
        }),
        0 => Message::Register(Register {
            node: NodeId(script.u8().into()),
            boot: script.u8().into(),
            max_sessions: script.u16().into(),
            epoch: script.u8().into(),
        }),
        1 => Message::Heartbeat(Heartbeat {
            epoch: script.u8().into(),
            sequence: script.u32(),
            draining: script.flag(),
            complete: false,
        }),
        _ => Message::AllocateResponse(Response {
            request: script.u8().into(),
            outcome: script.of(Done::ALL),
            flows: list(script, 3, channel),
            session: session(script),
        }),
    }
}

fn bytes_of(message: &Message) -> Vec<u8> {
    let mut bytes = vec![0; message.buffer_len()];
    message.emit(&mut bytes);
    bytes
}

impl Bench {
    fn new() -> Bench {
        let now = Instant::from_secs(1);
        let mut meter = Meter::default();
        let make = |network| {
            let mut config = Config::new(gateway(network));
            config.limits = limits();
            config.damping = None;
            ControlNode::new(config, [network as u8; 32], now).expect("a configuration that works")
        };
        let (control, genuine) = (meter.run(|| make(1)), make(2));
        let mut bench = Bench {
            now,
            control,
            genuine,
            meter,
            to_genuine: VecDeque::new(),
            to_control: VecDeque::new(),
            to_nodes: VecDeque::new(),
            liar: None,
            node: None,
            next: 100,
            buffer: vec![0; MAX_MESSAGE_LEN],
        };
        let control = &mut bench.control;
        bench.meter.run(|| {
            control
                .add_peer(now, GENUINE_PEER, PeerConfig::new(gateway(2)))
                .expect("room");
            let mut liar = PeerConfig::new(gateway(3));
            liar.max_routes = 16;
            control.add_peer(now, LIAR_PEER, liar).expect("room");
            control.connected(now, GENUINE, GENUINE_PEER, true);
        });
        bench
            .genuine
            .add_peer(now, PeerId(1), PeerConfig::new(gateway(1)))
            .expect("room");
        bench.genuine.connected(now, GENUINE, PeerId(1), false);
        let register = bytes_of(&Message::Register(Register {
            node: NodeId(300),
            boot: 1,
            max_sessions: 1000,
            epoch: 0,
        }));
        let honest = NodeIdentity(1);
        let (control, meter) = (&mut bench.control, &mut bench.meter);
        meter.run(|| control.node_connected(now, HONEST_NODE, honest));
        bench.genuine.node_connected(now, HONEST_NODE, honest);
        bench.hear(HONEST_NODE, &register);
        let _ = bench.genuine.handle_packet(now, &HONEST_NODE, &register);
        bench.settle();
        bench.wait(2_000_000);
        bench.want();
        bench.wait(2_000_000);
        bench
    }

    /// The honest client asks, at first and from time to time.
    fn want(&mut self) {
        let session = SessionName::parse(HONEST_SESSION).expect("a name");
        let (control, now) = (&mut self.control, self.now);
        self.meter
            .run(|| control.join(now, HONEST_CLIENT, session, 0, Scope::Chosen));
        self.settle();
    }

    /// An honest data node carries out every command.
    fn serve(&mut self, here: bool, message: &[u8]) {
        let Ok(message) = Message::parse(message) else {
            return;
        };
        let (request, session, edge) = match message {
            Message::Allocate(ask) => (ask.request, ask.session, Some(ask.edge)),
            Message::Subscribe(ask) => (ask.request, ask.session, (!ask.up).then_some(ask.edge)),
            _ => return,
        };
        let address: SocketAddr = ([10, 0, 1, u8::from(here)], 4000).into();
        let address = match edge {
            Some(Edge::Native) => ChannelAddress::Native(b"group".to_vec()),
            _ => ChannelAddress::Stream(address),
        };
        let flow = FlowChannel {
            label: FlowLabel::new(7).filter(|_| session.multi_source()),
            address,
        };
        let flows = edge.map_or(0, |_| session.flow_count());
        let answer = bytes_of(&Message::AllocateResponse(Response {
            request,
            outcome: Done::Done,
            flows: vec![flow; flows],
            session,
        }));
        match here {
            true => self.hear(HONEST_NODE, &answer),
            false => drop(self.genuine.handle_packet(self.now, &HONEST_NODE, &answer)),
        }
    }

    fn beat(&mut self) {
        let beat = bytes_of(&Message::Heartbeat(Heartbeat {
            epoch: 0,
            sequence: 1,
            draining: false,
            complete: false,
        }));
        self.hear(HONEST_NODE, &beat);
        let _ = self.genuine.handle_packet(self.now, &HONEST_NODE, &beat);
    }

    /// The genuine pair talk until they are quiet.
    fn settle(&mut self) {
        for _ in 0..400 {
            self.drain();
            let (there, here) = (self.to_genuine.pop_front(), self.to_control.pop_front());
            let asked = self.to_nodes.pop_front();
            if there.is_none() && here.is_none() && asked.is_none() {
                return;
            }
            if let Some((here, message)) = asked {
                self.serve(here, &message);
            }
            if let Some(message) = there {
                // It may be about a session that went meanwhile, but it is whole.
                let heard = self.genuine.handle_packet(self.now, &GENUINE, &message);
                assert_ne!(heard, Err(bfed::Error::Malformed), "a genuine message");
            }
            if let Some(message) = here {
                self.hear(GENUINE, &message);
            }
        }
        panic!("the genuine pair talk without end");
    }

    fn hear(&mut self, conn: ConnId, message: &[u8]) {
        let (control, now) = (&mut self.control, self.now);
        let _ = self
            .meter
            .run(|| control.handle_packet(now, &conn, message));
    }

    fn drain(&mut self) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let (control, now, meter) = (&mut self.control, self.now, &mut self.meter);
        let mut asked = Vec::new();
        let mut sent = 0;
        loop {
            let mut idle = true;
            while let Some(event) = meter.run(|| control.poll_event()) {
                idle = false;
                match &event {
                    Event::PeerDown { peer, why } => assert_ne!(*peer, GENUINE_PEER, "{why:?}"),
                    Event::Close(conn) => {
                        assert_ne!(*conn, GENUINE, "the genuine stream");
                        assert_ne!(*conn, HONEST_NODE, "the honest data node's stream");
                        self.liar = self.liar.filter(|liar| liar != conn);
                        self.node = self.node.filter(|node| node != conn);
                        asked.push(*conn);
                    }
                    _ => {}
                }
                meter.drop(event);
            }
            for conn in asked.drain(..) {
                meter.run(|| control.disconnected(now, conn));
            }
            while let Some(out) = meter.run(|| control.poll_transmit(now, &mut buffer)) {
                idle = false;
                sent += 1;
                assert!(sent < 2_000, "more than its queues hold");
                let bytes = || buffer[..out.len].to_vec();
                match out.conn {
                    GENUINE => self.to_genuine.push_back(bytes()),
                    HONEST_NODE => self.to_nodes.push_back((true, bytes())),
                    _ => {}
                }
            }
            if idle {
                break;
            }
        }
        while let Some(event) = self.genuine.poll_event() {
            assert!(!matches!(event, Event::PeerDown { .. }), "{event:?}");
        }
        while let Some(out) = self.genuine.poll_transmit(self.now, &mut buffer) {
            let bytes = buffer[..out.len].to_vec();
            match out.conn {
                GENUINE => self.to_control.push_back(bytes),
                _ => self.to_nodes.push_back((false, bytes)),
            }
        }
        self.buffer = buffer;
    }

    fn wait(&mut self, us: u64) {
        let mut at = self.now;
        let due = |bench: &Bench| {
            bench
                .control
                .poll_timeout()
                .into_iter()
                .chain(bench.genuine.poll_timeout())
                .min()
        };
        pass(self, &mut at, us, due, |bench, now| {
            bench.now = now;
            bench.beat();
            let control = &mut bench.control;
            bench.meter.run(|| control.handle_timeout(now));
            bench.genuine.handle_timeout(now);
            bench.settle();
        });
        self.now = at;
        self.want();
    }

    fn connect(&mut self, script: &mut Script<'_>) {
        let (control, now, meter) = (&mut self.control, self.now, &mut self.meter);
        self.next += 1;
        let conn = ConnId(self.next);
        match script.pick(4) {
            0 => {
                if let Some(old) = self.liar.take() {
                    meter.run(|| control.disconnected(now, old));
                }
                meter.run(|| control.connected(now, conn, LIAR_PEER, script.flag()));
                self.liar = Some(conn);
            }
            1 => {
                if let Some(old) = self.node.take() {
                    meter.run(|| control.disconnected(now, old));
                }
                meter.run(|| control.node_connected(now, conn, NodeIdentity::default()));
                self.node = Some(conn);
            }
            2 => {
                // As far as an established session: the liar keeps the rules for a moment.
                let Some(liar) = self.liar else { return };
                let message = Message::Open(open::Repr {
                    version_low: 1,
                    version_high: 1,
                    hold_time_s: 0,
                    gateway: gateway(3),
                    boot: 1,
                    tables: Tables::ALL,
                    graceful: None,
                    transport: bfed::wire::transport::Transport::Plain,
                    echo: true,
                });
                self.hear(liar, &bytes_of(&message));
                self.hear(liar, &bytes_of(&Message::KeepAlive));
            }
            _ => {
                let Some(node) = self.node else { return };
                let register = Register {
                    node: NodeId(1),
                    boot: 1,
                    max_sessions: 1000,
                    epoch: 0,
                };
                self.hear(node, &bytes_of(&Message::Register(register)));
            }
        }
    }

    fn command(&mut self, script: &mut Script<'_>) {
        let (control, now, meter) = (&mut self.control, self.now, &mut self.meter);
        let session = session(script);
        let client = ClientId(script.u8().into());
        match script.pick(6) {
            0 | 1 => meter
                .run(|| control.join(now, client, session.clone(), script.u8() % 4, Scope::Chosen)),
            2 => meter.run(|| control.leave(now, &session)),
            3 => meter.run(|| control.ask_cost(now, client, session.clone())),
            4 => {
                let answer = Sroutes {
                    outcome: script.of(&[Outcome::Costs, Outcome::Null, Outcome::NoSession]),
                    costs: list(script, 4, cost),
                    got_all: script.flag(),
                };
                let request = script.u8().into();
                meter.run(|| control.sroutes(now, request, answer.clone()));
            }
            _ => meter.run(|| control.coordinator_changed(now)),
        }
    }

    fn check(&mut self) {
        let honest = self
            .control
            .trees()
            .find(|tree| tree.session.as_str() == HONEST_SESSION);
        let upstream = honest
            .filter(|tree| tree.attached)
            .and_then(|tree| tree.upstream);
        assert_eq!(upstream, Some(GENUINE_PEER), "the honest client's session");
        self.meter.check(BOUND);
        assert!(self.control.trees().count() <= SESSIONS);
        let genuine = self
            .control
            .routes()
            .any(|route| route.destination == gateway(2));
        assert!(genuine, "the way to the genuine peer is gone");
        let per_table = self.control.routes().count();
        assert!(per_table <= Table::COUNT * 32, "{per_table} routes");
    }
}

pub fn run(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let mut bench = Bench::new();
    let mut steps = 0;
    while script.more() && steps < 300 {
        steps += 1;
        match script.pick(7) {
            0 => {
                let message = script.bytes();
                let conn = if script.flag() {
                    bench.liar
                } else {
                    bench.node
                };
                bench.hear(conn.unwrap_or(ConnId(99)), message);
            }
            1 | 2 => {
                let mut bytes = bytes_of(&peer_message(&mut script));
                if script.u8() % 8 == 1 {
                    script.damage(&mut bytes);
                }
                if let Some(liar) = bench.liar {
                    bench.hear(liar, &bytes);
                }
            }
            3 => {
                let bytes = bytes_of(&node_message(&mut script));
                if let Some(node) = bench.node {
                    bench.hear(node, &bytes);
                }
            }
            4 => bench.connect(&mut script),
            5 => bench.wait(script.pause_us()),
            _ => bench.command(&mut script),
        }
        bench.settle();
        bench.check();
    }
}
