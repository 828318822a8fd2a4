//! Takeover by a standby control node, peers that reconnect, and the state that is kept until then.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use bfed::routing::Policy;
use bfed::session::{CloseReason, State};
use bfed::wire::liveness::{Repr as Liveness, State as Heard};
use bfed::wire::node::Heartbeat;
use bfed::wire::notification::Reason;
use bfed::wire::open::Graceful;
use bfed::wire::statistics::{Entry, Repr as Statistics};
use bfed::wire::{Message, update};
use bfed::*;

use crate::stage::{PEER, TestGateway};
use crate::world::{gateway, session};

const SECOND: Duration = Duration::from_secs(1);

/// What a store such as etcd holds for all control nodes of a gateway.
#[derive(Default)]
pub(crate) struct Store {
    pub(crate) active: u32,
    pub(crate) epoch: u64,
    pub(crate) assigned: BTreeMap<SessionName, NodeId>,
    /// There was another one before.
    pub(crate) succeeds: bool,
}

/// One control node's view of it.
pub(crate) struct Shared {
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
    fn succeeds(&self) -> bool {
        self.store.borrow().succeeds
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
    fn retain(&mut self, keep: &dyn Fn(&SessionName) -> bool) {
        let assigned = &mut self.store.borrow_mut().assigned;
        assigned.retain(|session, _| keep(session));
    }
}

fn shared(own: u32, store: &Rc<RefCell<Store>>, restarting: bool) -> TestGateway<Shared> {
    shared_with(own, store, |config| config.restarting = restarting)
}

/// A control node that shares its gateway with others.
pub(crate) fn shared_with(
    own: u32,
    store: &Rc<RefCell<Store>>,
    change: impl FnOnce(&mut Config),
) -> TestGateway<Shared> {
    let now = Instant::from_secs(10);
    let mut config = Config::new(gateway(1, 1));
    change(&mut config);
    config.assignment = Assignment::RoundRobin;
    let store = store.clone();
    let coordinator = Shared { own, store };
    let mut node =
        ControlNode::with_coordinator(config, coordinator, [own as u8; 32], now).unwrap();
    let peer = PeerConfig::new(gateway(2, 1));
    node.add_peer(now, PEER, peer).unwrap();
    TestGateway {
        node,
        now,
        next_conn: 100 * u64::from(own),
        nodes: Vec::new(),
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
    second
        .node
        .node_connected(second.now, ConnId(999), NodeIdentity::default());
    assert_eq!(
        second.events(),
        [Event::Close(conn), Event::Close(ConnId(999))]
    );
    assert_eq!((second.sent(), second.node.poll_timeout()), (vec![], None));

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
        why: CloseReason::Lost,
    };
    assert!(
        events.contains(&down),
        "without a word, so that the peer waits"
    );
    assert!(first.sent().is_empty() && first.node.trees().count() == 0);

    // Hours later, for one that has been standing by.
    second.now += SECOND * 10_000;
    second.node.coordinator_changed(second.now);
    second.wait(0);
    assert!(second.events().contains(&Event::Dial(PEER)));
    let peer = second.establish();
    for node in [2, 1] {
        let conn = second.register(node);
        let heartbeat = Heartbeat {
            epoch: 1,
            sequence: 1,
            draining: false,
            complete: false,
        };
        second
            .receive(conn, &Message::Heartbeat(heartbeat))
            .unwrap();
    }
    let epochs = second
        .sent()
        .into_iter()
        .filter_map(|(_, message)| match message {
            Message::Heartbeat(heartbeat) => Some(heartbeat.epoch),
            _ => None,
        });
    assert!(
        epochs.eq([2, 2]),
        "data nodes learn that there is a new term"
    );
    // The peer refreshes its sessions: each stays at its data node, in whatever order they arrive.
    second.joins(peer, "bfed://1/b");
    second.joins(peer, "bfed://1/a");
    let given = ["bfed://1/a", "bfed://1/b"].map(|name| second.node_of(name));
    assert_eq!(given, [Some(1), Some(2)]);
}

/// The requests about a session that a control node has sent to its data nodes.
fn requests<C: Coordinator>(stage: &mut TestGateway<C>, name: &str) -> Vec<Message> {
    let name = session(name);
    let is_request = |message: &Message| match message {
        Message::Subscribe(subscribe) => subscribe.session == name,
        Message::Allocate(allocate) => allocate.session == name,
        _ => false,
    };
    stage.messages().into_iter().filter(is_request).collect()
}

/// What a data node has is known for one registration of one process. A control node that was stopped for a while
/// finds the data nodes silent and removes them; they register again.
#[test]
fn a_data_node_that_registers_anew_gets_its_sessions_anew() {
    const NAME: &str = "bfed://1/a";
    let mut stage = TestGateway::new(|_, _| {});
    let peer = stage.establish();
    let mut conn = stage.register_process(1, 1);
    stage.joins(peer, NAME);
    stage.wait(0);
    let first = requests(&mut stage, NAME);
    assert!(!first.is_empty());
    // The same process after silence, a new one, the same one again after silence, a new one.
    for (silent, boot) in [(true, 1), (false, 2), (true, 2), (false, 3)] {
        match silent {
            true => stage.wait(2000),
            false => stage.node.disconnected(stage.now, conn),
        }
        conn = stage.register_process(1, boot);
        stage.wait(0);
        assert_eq!(stage.node_of(NAME), Some(1));
        let again = requests(&mut stage, NAME).len();
        assert_eq!(again, first.len(), "silent: {silent}, process {boot}");
        let (_, sessions, _) = stage.node.nodes().next().expect("a data node");
        assert_eq!(sessions, 1);
    }
}

#[test]
fn a_session_waits_for_the_data_node_that_has_it_when_peers_are_quicker() {
    for comes in [true, false] {
        let store = Rc::new(RefCell::new(Store::default()));
        let mut standby = shared(2, &store, false);
        let mut mine = store.borrow_mut();
        mine.assigned.insert(session("bfed://1/a"), NodeId(2));
        (mine.active, mine.epoch, mine.succeeds) = (2, 2, true);
        drop(mine);
        standby.now += SECOND * 10_000;
        standby.node.coordinator_changed(standby.now);
        let peer = standby.establish();
        standby.joins(peer, "bfed://1/a");
        standby.joins(peer, "bfed://1/b");
        let one = standby.register(1);
        standby.wait(10);
        assert_eq!(standby.node_of("bfed://1/a"), None, "not another's");
        assert_eq!(
            standby.node_of("bfed://1/b"),
            Some(1),
            "it was assigned to no data node"
        );
        let refused = |(_, message): &(ConnId, Message)| matches!(message, Message::NoRoute(_));
        assert!(!standby.sent().iter().any(refused));
        if comes {
            standby.register(2);
            standby.wait(10);
        } else {
            // It has the time to call the one that is dead first.
            standby.beats(one, 2);
        }
        let node = standby.node_of("bfed://1/a");
        assert_eq!(node, Some(if comes { 2 } else { 1 }));
    }
}

/// A data node reports that it carries these sessions.
fn reports<C: Coordinator>(stage: &mut TestGateway<C>, node: ConnId, sessions: &[&str]) {
    let entry = |name: &&str| Entry {
        packets: 0,
        bytes: 0,
        copies: 0,
        dropped: 0,
        session: session(name),
    };
    let statistics = Statistics {
        sessions: sessions.len() as u32,
        rate_bps: 0,
        entries: sessions.iter().map(entry).collect(),
    };
    let report = Message::Statistics(statistics);
    stage.receive(node, &report).unwrap();
}

#[test]
fn assignments_of_sessions_that_ended_meanwhile_are_released() {
    let store = Rc::new(RefCell::new(Store::default()));
    let mut standby = shared(2, &store, false);
    let mut mine = store.borrow_mut();
    for name in ["bfed://1/a", "bfed://1/b"] {
        mine.assigned.insert(session(name), NodeId(1));
    }
    (mine.active, mine.epoch, mine.succeeds) = (2, 2, true);
    drop(mine);
    standby.node.coordinator_changed(standby.now);
    let peer = standby.establish();
    let node = standby.register(1);
    standby.joins(peer, "bfed://1/a");
    reports(&mut standby, node, &["bfed://1/a", "bfed://1/c"]);
    assert_eq!(store.borrow().assigned.len(), 3, "their peers may come");
    for _ in 0..4 {
        standby.beats(node, 30);
        standby.joins(peer, "bfed://1/a");
    }
    let assigned = || store.borrow().assigned.keys().cloned().collect::<Vec<_>>();
    assert_eq!(assigned(), [session("bfed://1/a")]);
    // A report that was on its way when the session ended.
    reports(&mut standby, node, &["bfed://1/c"]);
    assert_eq!(assigned(), [session("bfed://1/a")]);
}

#[test]
fn a_successor_listens_before_it_speaks() {
    let store = Rc::new(RefCell::new(Store::default()));
    (store.borrow_mut().active, store.borrow_mut().epoch) = (1, 1);
    let mut standby = shared(2, &store, true);
    let reported = |stage: &mut TestGateway<Shared>| {
        stage.wait(200);
        let routes = |(_, message): &(ConnId, Message)| matches!(message, Message::Update(_));
        stage.sent().iter().any(routes)
    };
    for term in [2, 4] {
        standby.now += SECOND * 10_000;
        (store.borrow_mut().active, store.borrow_mut().epoch) = (2, term);
        standby.node.coordinator_changed(standby.now);
        let peer = standby.establish();
        assert!(
            !reported(&mut standby),
            "the peer would give up what it kept"
        );
        standby.end_of_tables(peer);
        assert!(reported(&mut standby));
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
fn one_that_is_elected_after_another_is_as_one_that_restarts() {
    for succeeds in [true, false] {
        let store = Rc::new(RefCell::new(Store::default()));
        let mut standby = shared(2, &store, false);
        (store.borrow_mut().active, store.borrow_mut().epoch) = (2, 2);
        store.borrow_mut().succeeds = succeeds;
        standby.node.coordinator_changed(standby.now);
        standby.greet(PEER);
        standby.wait(200);
        let reported = standby.sent();
        let reported = reported
            .iter()
            .any(|(_, message)| matches!(message, Message::EndOfTable(_)));
        // At the end of a table the peer would discard the predecessor's routes that it kept.
        let quiet = standby.node.peers().next().unwrap().state == State::Established && !reported;
        assert_eq!(quiet, succeeds);
    }
}

#[test]
fn a_peer_that_comes_back_joins_before_it_has_heard_the_table() {
    let mut stage = TestGateway::new(|_, _| ());
    stage.register(1);
    let peer = stage.greet(PEER);
    stage.joins(peer, "bfed://1/a");
    assert_eq!(stage.node_of("bfed://1/a"), Some(1));
    // Routes that are never announced to it do not count.
    let mut config = PeerConfig::new(gateway(2, 1));
    config.export = Policy::reject_all();
    stage.node.remove_peer(stage.now, PEER);
    stage.node.add_peer(stage.now, PEER, config).unwrap();
    let peer = stage.greet(PEER);
    assert_eq!(stage.join(peer, "bfed://1/a"), Err(Error::JoinRefused));
}

#[test]
fn after_a_restart_trees_wait_for_the_routes_of_peers() {
    let mut stage = TestGateway::new(|config, _| config.restarting = true);
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
        stage.receive(conn, &Message::Update(update)).unwrap();
        stage.end_of_tables(conn);
    }
    stage.wait(10);
    stage.wait(10);
    assert_eq!(stage.node_of("bfed://3/a"), Some(1), "it has found its way");
    let refused: Vec<_> = stage
        .sent()
        .into_iter()
        .filter_map(|(conn, message)| match message {
            Message::NoRoute(why) => Some((conn, why.session)),
            _ => None,
        })
        .collect();
    // What would come from the peer itself was not for it to join.
    assert_eq!(refused, [(below, session("bfed://4/a"))]);
}

/// A peer with a restart time of one minute that has joined a session, and the data node's stream.
pub(crate) fn patient() -> (TestGateway, ConnId, ConnId) {
    let mut stage = TestGateway::new(|config, _| config.hold_time_s = 0);
    let node = stage.register(1);
    let graceful = Graceful {
        restarting: false,
        preserved: true,
        restart_time_s: 60,
    };
    let peer = stage.greet_as(PEER, Some(graceful));
    stage.joins(peer, "bfed://1/a");
    (stage, peer, node)
}

impl<C: Coordinator> TestGateway<C> {
    pub(crate) fn receive_liveness(&mut self, node: ConnId, state: Heard) {
        let news = Liveness { peer: PEER, state };
        self.receive(node, &Message::Liveness(news)).unwrap();
    }

    /// Lets time pass, with heartbeats of the data node.
    pub(crate) fn beats(&mut self, node: ConnId, seconds: u32) {
        for sequence in 0..seconds * 2 {
            self.wait(500);
            let heartbeat = Heartbeat {
                epoch: 0,
                sequence,
                draining: false,
                complete: false,
            };
            self.receive(node, &Message::Heartbeat(heartbeat)).unwrap();
        }
    }

    pub(crate) fn is_stale(&self) -> bool {
        self.node.peers().next().unwrap().stale
    }
}

#[test]
fn what_a_lost_peer_has_is_kept_as_long_as_its_data_nodes_are_heard() {
    let (mut stage, peer, node) = patient();
    stage.receive_liveness(node, Heard::Alive);
    stage.node.disconnected(stage.now, peer);
    // Longer than its restart time, and longer than the lifetime of soft state without a refresh.
    stage.beats(node, 130);
    assert!(stage.is_stale());
    assert_eq!(stage.node_of("bfed://1/a"), Some(1));
    stage.receive_liveness(node, Heard::Silent);
    stage.beats(node, 1);
    assert!(!stage.is_stale());
    assert_eq!(
        stage.node_of("bfed://1/a"),
        None,
        "nobody wants it any more"
    );
    assert_eq!(stage.node.stats().silent, 1);
}

#[test]
fn a_lost_peer_of_which_nothing_is_known_has_the_time_it_asked_for() {
    let (mut stage, peer, node) = patient();
    stage.node.disconnected(stage.now, peer);
    stage.beats(node, 59);
    assert!(stage.is_stale() && stage.node_of("bfed://1/a") == Some(1));
    stage.beats(node, 2);
    assert!(!stage.is_stale() && stage.node_of("bfed://1/a").is_none());
}

#[test]
fn a_peer_whose_data_nodes_fall_silent_loses_its_session_and_is_not_waited_for() {
    let (mut stage, peer, node) = patient();
    let other = stage.register(2);
    stage.receive_liveness(other, Heard::Alive);
    stage.receive_liveness(node, Heard::Silent);
    assert_eq!(stage.node.stats().silent, 0, "another data node hears it");
    stage.receive_liveness(other, Heard::Unknown);
    let sent = stage.sent();
    let reported = sent.iter().any(|(conn, message)| {
        let silent = matches!(message, Message::Notification(why) if why.reason == Reason::Silent);
        *conn == peer && silent
    });
    assert!(reported, "{sent:?}");
    stage.wait(0);
    assert!(!stage.is_stale() && stage.node_of("bfed://1/a").is_none());
}

#[test]
fn what_a_peer_has_is_not_over_the_moment_it_is_back() {
    let (mut stage, peer, node) = patient();
    stage.receive_liveness(node, Heard::Alive);
    stage.node.disconnected(stage.now, peer);
    stage.beats(node, 104);
    let graceful = Graceful {
        restarting: true,
        preserved: true,
        restart_time_s: 60,
    };
    let peer = stage.greet_as(PEER, Some(graceful));
    stage.beats(node, 50);
    assert_eq!(
        stage.node_of("bfed://1/a"),
        Some(1),
        "it has time to refresh"
    );
    stage.end_of_tables(peer);
    stage.beats(node, 60);
    assert_eq!(stage.node_of("bfed://1/a"), None);
}

#[test]
fn a_peer_that_was_silent_before_a_data_node_carried_its_session_is_not_kept() {
    let mut stage = TestGateway::new(|config, _| config.hold_time_s = 0);
    let node = stage.register(1);
    let peer = stage.establish();
    stage.receive_liveness(node, Heard::Silent);
    reports(&mut stage, node, &[]);
    let state = |stage: &TestGateway| stage.node.peers().next().unwrap().state;
    assert_eq!(
        state(&stage),
        State::Established,
        "it carries nothing of it"
    );
    stage.joins(peer, "bfed://1/a");
    stage.wait(0);
    assert_eq!(state(&stage), State::Established);
    // The data node has received nothing for the session either.
    reports(&mut stage, node, &["bfed://1/a"]);
    assert_eq!(state(&stage), State::Idle);
    assert_eq!(stage.node.stats().silent, 1);
}
