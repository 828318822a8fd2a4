//! One control node, whose peers and data nodes are played by the test.

use bfed::wire::node::Register;
use bfed::wire::open::{Graceful, Repr as Open};
use bfed::wire::{MAX_MESSAGE_LEN, Message, join};
use bfed::*;

use crate::world::{gateway, session};

pub(crate) const PEER: PeerId = PeerId(1);

/// A control node, whose peer is played by the test.
pub(crate) struct TestGateway<C: Coordinator = InMemory> {
    pub(crate) node: ControlNode<C>,
    pub(crate) now: Instant,
    pub(crate) next_conn: u64,
}

impl TestGateway {
    pub(crate) fn new(change: impl FnOnce(&mut Config, &mut PeerConfig)) -> Self {
        let now = Instant::from_secs(10);
        let mut config = Config::new(gateway(1, 1));
        let mut peer = PeerConfig::new(gateway(2, 1));
        change(&mut config, &mut peer);
        let mut node = ControlNode::new(config, [7; 32], now).unwrap();
        node.add_peer(now, PEER, peer).unwrap();
        let next_conn = 0;
        TestGateway {
            node,
            now,
            next_conn,
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
        let conn = self.conn();
        self.node.connected(self.now, conn, peer, false);
        let open = Open {
            version_low: 1,
            version_high: 1,
            hold_time_s: 0,
            gateway: gateway(peer.0 + 1, 1),
            boot: 5,
            tables: Tables::ALL,
            graceful,
        };
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

    pub(crate) fn node_of(&self, name: &str) -> Option<u32> {
        let name = session(name);
        let tree = self.node.trees().find(|tree| tree.session == name)?;
        tree.node.map(|node| node.0)
    }
}
