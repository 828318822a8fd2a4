//! What an administrator changes while gateways run: policies, limits, data nodes, the control node.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use bfed::routing::{Action, Changes, Match, Policy, Rule};
use bfed::session::{Down, State};
use bfed::wire::node::{Heartbeat, Register};
use bfed::wire::open::Repr as Open;
use bfed::wire::subscribe::Edge;
use bfed::wire::{MAX_MESSAGE_LEN, Message, join, notification, update};
use bfed::*;

use crate::figures::line;
use crate::world::{World, gateway, session};

const SECOND: Duration = Duration::from_secs(1);

fn rule(when: Match, then: Action) -> Policy {
    Policy {
        rules: vec![Rule { when, then }],
        ..Policy::accept_all()
    }
}

fn accept(changes: Changes) -> Action {
    Action::Accept(changes)
}

/// Network 1 at the top, 2 and 3 beside each other, 4 below both; through 3 it is dearer.
fn diamond() -> World {
    let mut world = World::new();
    for network in 1..=4 {
        let mut config = Config::new(gateway(network, 1));
        config.damping = None;
        world.add(config);
    }
    for (a, b) in [(0, 1), (0, 2), (1, 3), (2, 3)] {
        world.peer_with(a, b, |_, peer| {
            if (a, b) == (2, 3) {
                peer.link = Costs::uniform(Cost(5));
            }
        });
    }
    world.run(SECOND * 5);
    world
}

/// Changes what a gateway has configured for a peer, as a reload does.
fn change(world: &mut World, at: usize, peer: usize, change: impl Fn(&mut PeerConfig)) {
    let mut config = PeerConfig::new(world.gws[peer].id);
    change(&mut config);
    let now = world.now;
    let id = PeerId(peer as u32);
    world.gws[at].control.add_peer(now, id, config).unwrap();
    world.run(SECOND * 2);
}

/// The best route from a gateway to the first network, in the first table.
fn route(world: &World, at: usize) -> Option<routing::Route> {
    let wanted = |route: &control::RouteStatus| {
        route.best && route.destination == gateway(1, 1) && route.table.number() == 0
    };
    world.gws[at]
        .control
        .routes()
        .find(wanted)
        .map(|route| route.route)
}

fn via(world: &World, at: usize) -> Option<GatewayId> {
    route(world, at).map(|route| route.path[0])
}

#[test]
fn preference_is_stronger_than_cost_and_holds_at_once() {
    let mut world = diamond();
    assert_eq!(via(&world, 3), Some(gateway(2, 1)));
    change(&mut world, 3, 2, |peer| {
        let prefer = Changes {
            preference: Some(200),
            ..Changes::default()
        };
        peer.link = Costs::uniform(Cost(5));
        peer.import = rule(Match::default(), accept(prefer));
    });
    assert_eq!(via(&world, 3), Some(gateway(3, 1)));
    // For one destination only, and no longer for this one.
    change(&mut world, 3, 2, |peer| {
        let prefer = Changes {
            preference: Some(200),
            ..Changes::default()
        };
        let when = Match {
            destination: Some(gateway(3, 1)),
            ..Match::default()
        };
        peer.link = Costs::uniform(Cost(5));
        peer.import = rule(when, accept(prefer));
    });
    assert_eq!(via(&world, 3), Some(gateway(2, 1)));
    assert_eq!(world.established(3), 2, "streams stay");
}

#[test]
fn tags_travel_and_are_matched_and_taken_away() {
    let mut world = diamond();
    let mark = Changes {
        add_tag: Some(7),
        ..Changes::default()
    };
    change(&mut world, 1, 3, |peer| {
        peer.export = rule(Match::default(), accept(mark));
    });
    let tags = |world: &World| route(world, 3).map(|route| route.tags.to_vec());
    assert_eq!(tags(&world), Some(vec![7]));
    let marked = Match {
        tag: Some(7),
        ..Match::default()
    };
    let unmark = Changes {
        remove_tag: Some(7),
        add_cost: Cost(1),
        ..Changes::default()
    };
    let policy = rule(marked.clone(), accept(unmark));
    change(&mut world, 3, 1, |peer| peer.import = policy.clone());
    let best = route(&world, 3).unwrap();
    assert_eq!((best.tags.to_vec(), best.cost), (vec![], Cost(3)));
    change(&mut world, 3, 1, |peer| {
        peer.import = rule(marked.clone(), Action::Reject);
    });
    assert_eq!(
        via(&world, 3),
        Some(gateway(3, 1)),
        "what bears the mark is refused"
    );
    let long = Match {
        longer_than: Some(1),
        passes: BnNum::new(1),
        ..Match::default()
    };
    change(&mut world, 3, 2, |peer| {
        peer.import = rule(long.clone(), Action::Reject);
    });
    assert_eq!(route(&world, 3), None);
}

const PEER: PeerId = PeerId(1);

/// A control node, whose peer is played by the test.
struct Stage<C: Coordinator = InMemory> {
    node: ControlNode<C>,
    now: Instant,
    next_conn: u64,
}

impl<C: Coordinator> Stage<C> {
    fn conn(&mut self) -> ConnId {
        self.next_conn += 1;
        ConnId(self.next_conn)
    }

    fn hears(&mut self, conn: ConnId, message: &Message) -> Result<(), Error> {
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        self.node.handle_packet(self.now, conn, &bytes)
    }

    fn wait(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
        self.node.handle_timeout(self.now);
    }

    fn says(&mut self) -> Vec<(ConnId, Message)> {
        let mut buffer = vec![0; MAX_MESSAGE_LEN];
        let mut said = Vec::new();
        while let Some(out) = self.node.poll_transmit(self.now, &mut buffer) {
            said.push((out.conn, Message::parse(&buffer[..out.len]).unwrap()));
        }
        said
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.node.poll_event()).collect()
    }

    /// The peer is there; what it was told is forgotten.
    fn establish(&mut self) -> ConnId {
        let conn = self.greet(PEER);
        self.wait(0);
        self.says();
        self.events();
        conn
    }

    /// OPEN and KEEPALIVE of a peer, nothing else yet. Peer n is a gateway of network n + 1.
    fn greet(&mut self, peer: PeerId) -> ConnId {
        let conn = self.conn();
        self.node.connected(self.now, conn, peer, false);
        let open = Open {
            version_low: 1,
            version_high: 1,
            hold_time_s: 0,
            gateway: gateway(peer.0 + 1, 1),
            boot: 5,
            tables: Tables::ALL,
            graceful: None,
        };
        self.hears(conn, &Message::Open(open)).unwrap();
        self.hears(conn, &Message::KeepAlive).unwrap();
        conn
    }

    fn end_of_tables(&mut self, conn: ConnId) {
        for table in Table::all() {
            self.hears(conn, &Message::EndOfTable(table)).unwrap();
        }
    }

    fn register(&mut self, node: u32) -> ConnId {
        let conn = self.conn();
        self.node.node_connected(self.now, conn);
        let register = Register {
            node: NodeId(node),
            boot: node,
            max_sessions: 100,
            epoch: 0,
        };
        self.hears(conn, &Message::Register(register)).unwrap();
        conn
    }

    fn joins(&mut self, peer: ConnId, name: &str) {
        self.join(peer, name).unwrap();
    }

    fn join(&mut self, peer: ConnId, name: &str) -> Result<(), Error> {
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
        self.hears(peer, &Message::Join(join))
    }

    fn node_of(&self, name: &str) -> Option<u32> {
        let name = session(name);
        let tree = self.node.trees().find(|tree| tree.session == name)?;
        tree.node.map(|node| node.0)
    }
}

fn stage(change: impl FnOnce(&mut Config, &mut PeerConfig)) -> Stage {
    let now = Instant::from_secs(10);
    let mut config = Config::new(gateway(1, 1));
    let mut peer = PeerConfig::new(gateway(2, 1));
    change(&mut config, &mut peer);
    let mut node = ControlNode::new(config, [7; 32], now).unwrap();
    node.add_peer(now, PEER, peer).unwrap();
    let next_conn = 0;
    Stage {
        node,
        now,
        next_conn,
    }
}

fn announce(numbers: std::ops::Range<u32>) -> Message {
    let announced = numbers.map(|number| update::Announced {
        destination: gateway(3, number),
        attributes: wire::attributes::Attributes {
            cost: Cost(1),
            path: vec![gateway(2, 1), gateway(3, number)],
            tags: vec![],
        },
    });
    Message::Update(update::Repr {
        table: Table::from_number(0).unwrap(),
        withdrawn: vec![],
        announced: announced.collect(),
    })
}

#[test]
fn a_peer_that_tells_nothing_hears_of_a_new_export_policy() {
    let mut stage = stage(|_, _| ());
    stage.establish();
    stage.wait(1000);
    stage.says();
    let mut peer = PeerConfig::new(gateway(2, 1));
    peer.export = Policy::reject_all();
    stage.node.add_peer(stage.now, PEER, peer).unwrap();
    stage.wait(1000);
    let withdrawn = |(_, message): &(ConnId, Message)| match message {
        Message::Update(update) => update.withdrawn.clone(),
        _ => vec![],
    };
    let withdrawn: Vec<_> = stage.says().iter().flat_map(withdrawn).collect();
    assert_eq!(withdrawn, vec![gateway(1, 1); Table::COUNT]);
}

#[test]
fn a_lower_limit_of_routes_holds_at_once_and_a_higher_one_ends_the_rest() {
    let mut stage = stage(|_, peer| peer.max_routes = 20);
    let conn = stage.establish();
    stage.hears(conn, &announce(1..16)).unwrap();
    let mut peer = PeerConfig::new(gateway(2, 1));
    peer.max_routes = 10;
    stage.node.add_peer(stage.now, PEER, peer.clone()).unwrap();
    let said = stage.says();
    let Some((_, Message::Notification(why))) = said.last() else {
        panic!("{said:?}");
    };
    assert_eq!(why.reason, notification::Reason::PrefixLimit);
    assert_eq!(stage.node.routes().count(), 0);
    stage.wait(10_000);
    assert!(!stage.events().contains(&Event::Call(PEER)), "it rests");
    peer.max_routes = 15;
    stage.node.add_peer(stage.now, PEER, peer).unwrap();
    stage.wait(0);
    assert!(stage.events().contains(&Event::Call(PEER)));
    let conn = stage.establish();
    stage.hears(conn, &announce(1..16)).unwrap();
}

#[test]
fn what_counts_as_flapping_can_be_changed() {
    let mut stage = stage(|_, _| ());
    let conn = stage.establish();
    let used = |stage: &Stage| stage.node.routes().any(|route| route.best);
    let withdraw = Message::Update(update::Repr {
        table: Table::from_number(0).unwrap(),
        withdrawn: vec![gateway(3, 1)],
        announced: vec![],
    });
    let flap = |stage: &mut Stage| {
        stage.hears(conn, &withdraw).unwrap();
        stage.hears(conn, &announce(1..2)).unwrap();
    };
    stage.hears(conn, &announce(1..2)).unwrap();
    flap(&mut stage);
    assert!(used(&stage), "once is not often");
    let mut config = stage.node.config().clone();
    config.damping.as_mut().unwrap().suppress = 1500;
    let peers = BTreeMap::from([(PEER, PeerConfig::new(gateway(2, 1)))]);
    stage.node.reconfigure(stage.now, config, peers).unwrap();
    flap(&mut stage);
    assert!(!used(&stage), "now it is");
    // Another peer with this number has flapped nothing.
    stage.node.remove_peer(stage.now, PEER);
    assert_eq!(stage.node.flapping(), 0);
}

#[test]
fn a_links_bound_and_its_shares_reach_data_nodes_at_once() {
    let mut world = line(2);
    world.client(1, 1, "bfed://1/m");
    world.run(SECOND);
    let bound = |world: &World| {
        let books = &world.gws[0].nodes[&NodeId(1)].books[&session("bfed://1/m")];
        let rates = books.down.keys().map(|edge| match edge {
            Edge::Peer { rate_bps, .. } => *rate_bps,
            Edge::Native => panic!("nobody native"),
        });
        rates.max()
    };
    assert_eq!(bound(&world), Some(0));
    change(&mut world, 0, 1, |peer| peer.rate_bps = Some(8_000_000));
    assert_eq!(bound(&world), Some(8_000_000));
    world.gws[0]
        .nodes
        .get_mut(&NodeId(1))
        .unwrap()
        .books
        .clear();
    world.add_node(0, NodeId(2));
    world.run(SECOND);
    assert_eq!(bound(&world), Some(4_000_000), "half for each node");
}

#[test]
fn round_robin_goes_on_where_it_was() {
    for (how, third) in [(Assignment::RoundRobin, 3), (Assignment::LeastLoaded, 1)] {
        let mut stage = stage(|config, _| config.assignment = how);
        let peer = stage.establish();
        for node in 1..=3 {
            stage.register(node);
        }
        stage.joins(peer, "bfed://1/a");
        stage.joins(peer, "bfed://1/b");
        let given = ["bfed://1/a", "bfed://1/b"].map(|name| stage.node_of(name));
        assert_eq!(given, [Some(1), Some(2)], "{how:?}");
        stage
            .hears(peer, &Message::Leave(session("bfed://1/a")))
            .unwrap();
        stage.joins(peer, "bfed://1/c");
        assert_eq!(stage.node_of("bfed://1/c"), Some(third), "{how:?}");
        stage.joins(peer, "bfed://1/d");
        assert!(stage.node_of("bfed://1/d") != Some(2), "{how:?}");
    }
}

/// What a store such as etcd holds for all control nodes of a gateway.
#[derive(Default)]
struct Store {
    active: u32,
    epoch: u64,
    assigned: BTreeMap<SessionName, NodeId>,
}

/// One control node's view of it.
struct Shared {
    own: u32,
    store: Rc<RefCell<Store>>,
}

impl Coordinator for Shared {
    fn is_active(&self) -> bool {
        self.store.borrow().active == self.own
    }
    fn epoch(&self) -> u64 {
        self.store.borrow().epoch
    }
    fn assigned(&self, session: &SessionName) -> Option<NodeId> {
        self.store.borrow().assigned.get(session).copied()
    }
    fn assign(&mut self, session: &SessionName, node: NodeId) {
        self.store
            .borrow_mut()
            .assigned
            .insert(session.clone(), node);
    }
    fn release(&mut self, session: &SessionName) {
        self.store.borrow_mut().assigned.remove(session);
    }
}

fn shared(own: u32, store: &Rc<RefCell<Store>>, restarting: bool) -> Stage<Shared> {
    let now = Instant::from_secs(10);
    let mut config = Config::new(gateway(1, 1));
    config.restarting = restarting;
    config.assignment = Assignment::RoundRobin;
    let store = store.clone();
    let coordinator = Shared { own, store };
    let mut node =
        ControlNode::with_coordinator(config, coordinator, [own as u8; 32], now).unwrap();
    let peer = PeerConfig::new(gateway(2, 1));
    node.add_peer(now, PEER, peer).unwrap();
    let next_conn = 100 * u64::from(own);
    Stage {
        node,
        now,
        next_conn,
    }
}

#[test]
fn a_standby_takes_over_what_the_other_assigned() {
    let store = Rc::new(RefCell::new(Store::default()));
    (store.borrow_mut().active, store.borrow_mut().epoch) = (1, 1);
    let (mut first, mut second) = (shared(1, &store, false), shared(2, &store, true));
    // A standby takes no streams, and nothing of it is due.
    second.wait(1000);
    let conn = second.conn();
    second.node.connected(second.now, conn, PEER, false);
    second.node.node_connected(second.now, ConnId(999));
    assert_eq!(
        second.events(),
        [Event::Close(conn), Event::Close(ConnId(999))]
    );
    assert_eq!((second.says(), second.node.poll_timeout()), (vec![], None));

    let peer = first.establish();
    let (one, two) = (first.register(1), first.register(2));
    first.joins(peer, "bfed://1/a");
    first.joins(peer, "bfed://1/b");
    assert_eq!(first.node_of("bfed://1/b"), Some(2));

    (store.borrow_mut().active, store.borrow_mut().epoch) = (2, 2);
    first.node.coordinator_changed(first.now);
    let events = first.events();
    for conn in [peer, one, two] {
        assert!(events.contains(&Event::Close(conn)), "{events:?}");
    }
    let down = Event::PeerDown {
        peer: PEER,
        why: Down::Lost,
    };
    assert!(
        events.contains(&down),
        "without a word, so that the peer waits"
    );
    assert!(first.says().is_empty() && first.node.trees().count() == 0);

    // Hours later, for one that has been standing by.
    second.now += SECOND * 10_000;
    second.node.coordinator_changed(second.now);
    second.wait(0);
    assert!(second.events().contains(&Event::Call(PEER)));
    let peer = second.establish();
    for node in [2, 1] {
        let conn = second.register(node);
        let heartbeat = Heartbeat {
            epoch: 1,
            sequence: 1,
            draining: false,
        };
        second.hears(conn, &Message::Heartbeat(heartbeat)).unwrap();
    }
    let epochs = second
        .says()
        .into_iter()
        .filter_map(|(_, message)| match message {
            Message::Heartbeat(heartbeat) => Some(heartbeat.epoch),
            _ => None,
        });
    assert!(
        epochs.eq([2, 2]),
        "data nodes learn that there is a new term"
    );
    // The peer refreshes what it has: each session stays where it is, whatever comes first.
    second.joins(peer, "bfed://1/b");
    second.joins(peer, "bfed://1/a");
    let given = ["bfed://1/a", "bfed://1/b"].map(|name| second.node_of(name));
    assert_eq!(given, [Some(1), Some(2)]);
}

#[test]
fn a_successor_listens_before_it_speaks() {
    let store = Rc::new(RefCell::new(Store::default()));
    (store.borrow_mut().active, store.borrow_mut().epoch) = (1, 1);
    let mut standby = shared(2, &store, true);
    let told = |stage: &mut Stage<Shared>| {
        stage.wait(200);
        let routes = |(_, message): &(ConnId, Message)| matches!(message, Message::Update(_));
        stage.says().iter().any(routes)
    };
    for term in [2, 4] {
        standby.now += SECOND * 10_000;
        (store.borrow_mut().active, store.borrow_mut().epoch) = (2, term);
        standby.node.coordinator_changed(standby.now);
        let peer = standby.establish();
        assert!(!told(&mut standby), "the peer would give up what it kept");
        standby.end_of_tables(peer);
        assert!(told(&mut standby));
        assert_eq!(
            standby.node.peers().next().unwrap().state,
            State::Established
        );
        // It loses its place, and gets it back.
        (store.borrow_mut().active, store.borrow_mut().epoch) = (1, term + 1);
        standby.node.coordinator_changed(standby.now);
        standby.events();
    }
}

#[test]
fn a_peer_that_comes_back_joins_before_it_has_heard_the_table() {
    let mut stage = stage(|_, _| ());
    stage.register(1);
    let peer = stage.greet(PEER);
    stage.joins(peer, "bfed://1/a");
    assert_eq!(stage.node_of("bfed://1/a"), Some(1));
    // Not so what it is never to be told.
    let mut config = PeerConfig::new(gateway(2, 1));
    config.export = Policy::reject_all();
    stage.node.remove_peer(stage.now, PEER);
    stage.node.add_peer(stage.now, PEER, config).unwrap();
    let peer = stage.greet(PEER);
    assert_eq!(stage.join(peer, "bfed://1/a"), Err(Error::JoinRefused));
}

#[test]
fn after_a_restart_trees_wait_for_the_routes_of_peers() {
    let mut stage = stage(|config, _| config.restarting = true);
    let other = PeerId(2);
    let now = stage.now;
    let config = PeerConfig::new(gateway(3, 1));
    stage.node.add_peer(now, other, config).unwrap();
    stage.register(1);
    let below = stage.greet(PEER);
    stage.joins(below, "bfed://3/a");
    stage.joins(below, "bfed://4/a");
    stage.wait(500);
    let above = stage.greet(other);
    let (mut own, mut foreign) = (vec![gateway(3, 1)], vec![gateway(3, 1), gateway(4, 1)]);
    for (conn, path) in [(above, &mut own), (below, &mut foreign)] {
        if conn == below {
            path[0] = gateway(2, 1);
        }
        let destination = *path.last().unwrap();
        let attributes = wire::attributes::Attributes {
            cost: Cost(1),
            path: core::mem::take(path),
            tags: vec![],
        };
        let update = update::Repr {
            table: session("bfed://3/a").table(),
            withdrawn: vec![],
            announced: vec![update::Announced {
                destination,
                attributes,
            }],
        };
        stage.hears(conn, &Message::Update(update)).unwrap();
        stage.end_of_tables(conn);
    }
    stage.wait(10);
    stage.wait(10);
    assert_eq!(stage.node_of("bfed://3/a"), Some(1), "it has found its way");
    let refused: Vec<_> = stage
        .says()
        .into_iter()
        .filter_map(|(conn, message)| match message {
            Message::NoRoute(why) => Some((conn, why.session)),
            _ => None,
        })
        .collect();
    // What would come from the peer itself was not for it to join.
    assert_eq!(refused, [(below, session("bfed://4/a"))]);
}
