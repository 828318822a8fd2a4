//! One control node, whose peers and data nodes are played by the test.

use bfed::wire::allocate::{Outcome, Response};
use bfed::wire::attributes::Attributes;
use bfed::wire::node::{Heartbeat, Register};
use bfed::wire::open::{Graceful, Repr as Open};
use bfed::wire::subscribe::Edge;
use bfed::wire::transport::Transport;
use bfed::wire::update::{Announced, Repr as Update};
use bfed::wire::{MAX_MESSAGE_LEN, Message, join};
use bfed::*;

use crate::world::{gateway, session};

pub(crate) const PEER: PeerId = PeerId(1);

/// A control node, whose peer is played by the test.
pub(crate) struct TestGateway<C: Coordinator = InMemory> {
    pub(crate) node: ControlNode<C>,
    pub(crate) now: Instant,
    pub(crate) next_conn: u64,
    /// The streams of data nodes that have registered.
    pub(crate) nodes: Vec<ConnId>,
}

impl TestGateway {
    pub(crate) fn new(change: impl FnOnce(&mut Config, &mut PeerConfig)) -> Self {
        let now = Instant::from_secs(10);
        let mut config = Config::new(gateway(1, 1));
        let mut peer = PeerConfig::new(gateway(2, 1));
        change(&mut config, &mut peer);
        let mut node = ControlNode::new(config, [7; 32], now).unwrap();
        node.add_peer(now, PEER, peer).unwrap();
        TestGateway {
            node,
            now,
            next_conn: 0,
            nodes: Vec::new(),
        }
    }
}

impl<C: Coordinator> TestGateway<C> {
    pub(crate) fn conn(&mut self) -> ConnId {
        self.next_conn += 1;
        ConnId(self.next_conn)
    }

    pub(crate) fn receive(&mut self, conn: ConnId, message: &Message) -> Result<(), Error> {
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        self.node.handle_packet(self.now, &conn, &bytes)
    }

    pub(crate) fn wait(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
        self.node.handle_timeout(self.now);
    }

    pub(crate) fn sent(&mut self) -> Vec<(ConnId, Message)> {
        let mut buffer = vec![0; MAX_MESSAGE_LEN];
        let mut sent = Vec::new();
        while let Some(out) = self.node.poll_transmit(self.now, &mut buffer) {
            sent.push((out.conn, Message::parse(&buffer[..out.len]).unwrap()));
        }
        sent
    }

    /// The messages that were sent, whatever the connection.
    pub(crate) fn messages(&mut self) -> Vec<Message> {
        self.sent()
            .into_iter()
            .map(|(_, message)| message)
            .collect()
    }

    pub(crate) fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.node.poll_event()).collect()
    }

    /// Establishes the peer, and discards the messages sent to it.
    pub(crate) fn establish(&mut self) -> ConnId {
        let conn = self.greet(PEER);
        self.wait(0);
        self.sent();
        self.events();
        conn
    }

    /// OPEN and KEEPALIVE of a peer, nothing else yet. Peer n is a gateway of network n + 1.
    pub(crate) fn greet(&mut self, peer: PeerId) -> ConnId {
        self.greet_as(peer, None)
    }

    /// The same, with the graceful restart parameter.
    pub(crate) fn greet_as(&mut self, peer: PeerId, graceful: Option<Graceful>) -> ConnId {
        let open = Open {
            graceful,
            ..opening(peer)
        };
        self.open(peer, open)
    }

    /// A stream on which a peer opens a session.
    pub(crate) fn open(&mut self, peer: PeerId, open: Open) -> ConnId {
        let conn = self.conn();
        self.node.connected(self.now, conn, peer, false);
        self.receive(conn, &Message::Open(open)).unwrap();
        self.receive(conn, &Message::KeepAlive).unwrap();
        conn
    }

    pub(crate) fn end_of_tables(&mut self, conn: ConnId) {
        for table in Table::all() {
            self.receive(conn, &Message::EndOfTable(table)).unwrap();
        }
    }

    /// Registers a data node. Each has a process of its own.
    pub(crate) fn register(&mut self, node: u32) -> ConnId {
        self.register_process(node, node)
    }

    /// Registers a process of a data node, on a new stream.
    pub(crate) fn register_process(&mut self, node: u32, boot: u32) -> ConnId {
        let conn = self.conn();
        self.node
            .node_connected(self.now, conn, NodeIdentity::default());
        let register = Register {
            node: NodeId(node),
            boot,
            max_sessions: 100,
            epoch: 0,
        };
        self.receive(conn, &Message::Register(register)).unwrap();
        self.nodes.push(conn);
        conn
    }

    pub(crate) fn joins(&mut self, peer: ConnId, name: &str) {
        self.join(peer, name).unwrap();
    }

    pub(crate) fn join(&mut self, peer: ConnId, name: &str) -> Result<(), Error> {
        let address = ChannelAddress::Stream(([10, 9, 9, 9], 7).into());
        let join = join::Repr {
            hop_limit: 20,
            sroutes: None,
            flows: vec![join::FlowChannel {
                label: None,
                address,
            }],
            session: session(name),
        };
        self.receive(peer, &Message::Join(join))
    }

    /// Adds another peer, n, a gateway of network n + 1, and establishes it; its full table is empty.
    pub(crate) fn add(&mut self, peer: u32) -> ConnId {
        self.add_as(peer, gateway(peer + 1, 1))
    }

    /// The same, for a peer that is this gateway.
    pub(crate) fn add_as(&mut self, peer: u32, gateway: GatewayId) -> ConnId {
        self.add_with(peer, gateway, Tables::ALL)
    }

    /// The same, for a peer that has these tables.
    pub(crate) fn add_with(&mut self, peer: u32, gateway: GatewayId, tables: Tables) -> ConnId {
        self.add_configured(peer, PeerConfig::new(gateway), tables)
    }

    /// The same, for a peer with this configuration.
    pub(crate) fn add_configured(
        &mut self,
        peer: u32,
        config: PeerConfig,
        tables: Tables,
    ) -> ConnId {
        let gateway = config.gateway;
        self.node.add_peer(self.now, PeerId(peer), config).unwrap();
        let conn = self.conn();
        self.node.connected(self.now, conn, PeerId(peer), false);
        let open = Open {
            version_low: 1,
            version_high: 1,
            hold_time_s: 0,
            gateway,
            boot: 5,
            tables,
            graceful: None,
            transport: Transport::Plain,
            echo: true,
        };
        self.receive(conn, &Message::Open(open)).unwrap();
        self.receive(conn, &Message::KeepAlive).unwrap();
        self.end_of_tables(conn);
        self.settle();
        conn
    }

    /// A peer announces a route with that cost to the last gateway of the path, in all tables.
    pub(crate) fn announce(&mut self, peer: ConnId, path: &[GatewayId], cost: u32) {
        self.announce_at_once(peer, path, cost);
        self.settle();
    }

    /// The same, before anything is sent.
    pub(crate) fn announce_at_once(&mut self, peer: ConnId, path: &[GatewayId], cost: u32) {
        let destination = *path.last().unwrap();
        for table in Table::all() {
            let attributes = Attributes {
                cost: Cost(cost),
                path: path.to_vec(),
                tags: vec![],
            };
            let update = Update {
                table,
                withdrawn: vec![],
                announced: vec![Announced {
                    destination,
                    attributes,
                }],
            };
            self.receive(peer, &Message::Update(update)).unwrap();
        }
    }

    /// Announces all that is to be announced, and discards what was sent. Data nodes go on.
    pub(crate) fn settle(&mut self) {
        for _ in 0..3 {
            self.wait(100);
            for node in self.nodes.clone() {
                self.beat(node);
            }
            self.sent();
        }
        self.events();
    }

    /// A data node's heartbeat.
    pub(crate) fn beat(&mut self, node: ConnId) {
        let heartbeat = Heartbeat {
            epoch: 0,
            sequence: 1,
            draining: false,
            complete: false,
        };
        self.receive(node, &Message::Heartbeat(heartbeat)).unwrap();
    }

    /// Lets seconds pass in which a data node lives, and answers its requests. Returns the other messages.
    pub(crate) fn live(&mut self, node: ConnId, seconds: u64) -> Vec<(ConnId, Message)> {
        let mut sent = Vec::new();
        for _ in 0..seconds * 2 {
            self.wait(500);
            self.beat(node);
            sent.extend(self.serve(node));
        }
        sent
    }

    /// Answers the requests to a data node until there are no more. Returns the other messages without heartbeats.
    pub(crate) fn serve(&mut self, node: ConnId) -> Vec<(ConnId, Message)> {
        let mut others = Vec::new();
        loop {
            let sent = self.sent();
            if sent.is_empty() {
                return others;
            }
            for (conn, message) in sent {
                match answer(&message).filter(|_| conn == node) {
                    Some(answer) => {
                        let _ = self.receive(conn, &answer);
                    }
                    None if matches!(message, Message::Heartbeat(_)) => {}
                    None => others.push((conn, message)),
                }
            }
        }
    }

    /// A client asks for a session.
    pub(crate) fn ask(&mut self, client: u64, name: &str) {
        let client = ClientId(client);
        self.node
            .join(self.now, client, session(name), 0, Scope::Chosen);
    }

    pub(crate) fn node_of(&self, name: &str) -> Option<u32> {
        let name = session(name);
        let tree = self.node.trees().find(|tree| tree.session == name)?;
        tree.node.map(|node| node.0)
    }
}

/// The OPEN of peer n, a gateway of network n + 1.
pub(crate) fn opening(peer: PeerId) -> Open {
    Open {
        version_low: 1,
        version_high: 1,
        hold_time_s: 0,
        gateway: gateway(peer.0 + 1, 1),
        boot: 5,
        tables: Tables::ALL,
        graceful: None,
        transport: Transport::Plain,
        echo: true,
    }
}

/// The channel of a flow: a TCP address with that port, or a native address.
pub(crate) fn channels(name: &SessionName, native: bool, label: u32) -> Vec<join::FlowChannel> {
    let address = match native {
        true => ChannelAddress::Native(b"239.0.0.1".to_vec()),
        false => ChannelAddress::Stream(([10, 0, 0, 1], 4000).into()),
    };
    let one = join::FlowChannel {
        label: FlowLabel::new(label).filter(|_| !native),
        address,
    };
    vec![one; name.flow_count()]
}

/// A data node's answer to a request: done.
fn answer(message: &Message) -> Option<Message> {
    let (request, flows, session) = match message {
        Message::Allocate(ask) => {
            let label = if ask.session.multi_source() { 8 } else { 0 };
            (
                ask.request,
                channels(&ask.session, false, label),
                &ask.session,
            )
        }
        Message::Subscribe(ask) if ask.up => (ask.request, Vec::new(), &ask.session),
        Message::Subscribe(ask) => {
            let native = ask.edge == Edge::Native;
            (ask.request, channels(&ask.session, native, 9), &ask.session)
        }
        _ => return None,
    };
    Some(Message::AllocateResponse(Response {
        request,
        outcome: Outcome::Done,
        flows,
        session: session.clone(),
    }))
}
