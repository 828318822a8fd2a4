//! How many trees a control node examines when routes change.

use bfed::wire::attributes::Attributes;
use bfed::wire::update::{Announced, Repr as Update};
use bfed::wire::{Message, allocate, no_route, translation};
use bfed::*;

use crate::stage::TestGateway;
use crate::world::gateway;

const SESSIONS: u64 = 90;
/// Trees that one call examines at most.
const PER_CALL: u64 = 64;

fn flow() -> Vec<wire::join::FlowChannel> {
    let address = ChannelAddress::Stream(([10, 0, 1, 1], 4000).into());
    vec![wire::join::FlowChannel {
        label: None,
        address,
    }]
}

/// Peers 1 and 2 lead to networks 50 and 60; peer 3 joins sessions of network 50.
struct Scene {
    stage: TestGateway,
    peers: [ConnId; 3],
    node: ConnId,
}

impl Scene {
    fn new() -> Scene {
        let mut stage = TestGateway::new(|config, _| {
            config.limits.new_sessions_per_second = 1000;
            config.damping = None;
        });
        for peer in [2, 3] {
            let config = PeerConfig::new(gateway(peer + 1, 1));
            stage
                .node
                .add_peer(stage.now, PeerId(peer), config)
                .unwrap();
        }
        let peers = [1, 2, 3].map(|peer| stage.greet(PeerId(peer)));
        let node = ConnId(0);
        let mut scene = Scene { stage, peers, node };
        for &conn in &peers {
            scene.stage.end_of_tables(conn);
        }
        scene.announce(1, 50, 5, &[]);
        scene.announce(2, 60, 5, &[]);
        scene.stage.wait(5000);
        scene.node = scene.stage.register(1);
        scene.settle();
        for number in 0..SESSIONS {
            scene.stage.joins(peers[2], &format!("bfed://50/{number}"));
            scene.serve();
        }
        scene.settle();
        scene
    }

    /// The data node answers all requests.
    fn serve(&mut self) {
        for message in self.stage.messages() {
            let Message::Allocate(ask) = message else {
                continue;
            };
            let response = allocate::Response {
                request: ask.request,
                outcome: allocate::Outcome::Done,
                flows: flow(),
                session: ask.session,
            };
            self.stage
                .receive(self.node, &Message::AllocateResponse(response))
                .unwrap();
        }
    }

    /// A peer announces a gateway of a network through itself, in the table of bulk sessions.
    fn announce(&mut self, peer: u32, network: u32, cost: u32, tags: &[u32]) {
        let destination = gateway(network, 1);
        let attributes = Attributes {
            cost: Cost(cost),
            path: vec![gateway(peer + 1, 1), destination],
            tags: tags.to_vec(),
        };
        let announced = vec![Announced {
            destination,
            attributes,
        }];
        self.update(peer, vec![], announced);
    }

    fn update(&mut self, peer: u32, withdrawn: Vec<GatewayId>, announced: Vec<Announced>) {
        let table = SessionName::parse("bfed://50/0").unwrap().table();
        let conn = self.peers[peer as usize - 1];
        let update = Update {
            table,
            withdrawn,
            announced,
        };
        self.stage.receive(conn, &Message::Update(update)).unwrap();
    }

    /// Calls the control node until it has nothing to do at once; returns how many trees it examined.
    fn settle(&mut self) -> u64 {
        let before = self.stage.node.stats().trees_examined;
        for _ in 0..100 {
            let last = self.stage.node.stats().trees_examined;
            self.stage.wait(0);
            let now = self.stage.node.stats().trees_examined;
            assert!(now - last <= PER_CALL, "one call examined {}", now - last);
            let due = self.stage.node.poll_timeout();
            if due.is_none_or(|due| due > self.stage.now) {
                self.stage.sent();
                return now - before;
            }
            self.stage.sent();
        }
        panic!("there is always something to do");
    }
}

#[test]
fn an_update_that_changes_no_choice_has_no_tree_examined() {
    let mut scene = Scene::new();
    // The same again, and with other tags.
    scene.announce(1, 50, 5, &[]);
    assert_eq!(scene.settle(), 0);
    scene.announce(1, 50, 5, &[7]);
    assert_eq!(scene.settle(), 0);
    // A longer way to the same gateway, which changes and goes.
    scene.announce(2, 50, 500, &[]);
    assert_eq!(scene.settle(), 0);
    scene.announce(2, 50, 400, &[]);
    assert_eq!(scene.settle(), 0);
    scene.update(2, vec![gateway(50, 1)], vec![]);
    assert_eq!(scene.settle(), 0);
    // The way that the sessions use becomes longer, and stays the only one.
    scene.announce(1, 50, 50, &[]);
    assert_eq!(scene.settle(), 0);
    // Another network.
    scene.announce(1, 60, 1, &[]);
    assert_eq!(scene.settle(), 0);
}

#[test]
fn a_better_route_has_each_tree_of_the_network_examined_once_and_in_parts() {
    let mut scene = Scene::new();
    scene.announce(2, 50, 1, &[]);
    assert_eq!(scene.settle(), SESSIONS);
    // It is withdrawn: they return.
    scene.update(2, vec![gateway(50, 1)], vec![]);
    assert_eq!(scene.settle(), SESSIONS);
}

#[test]
fn a_tree_that_was_refused_is_examined_though_the_networks_choice_stays() {
    let mut scene = Scene::new();
    scene.announce(2, 50, 500, &[]);
    assert_eq!(scene.settle(), 0);
    let refusal = Message::NoRoute(no_route::Repr {
        reason: no_route::Reason::Limit,
        session: SessionName::parse("bfed://50/0").unwrap(),
    });
    scene.stage.receive(scene.peers[0], &refusal).unwrap();
    scene.settle();
    // The other peer, where that session alone is joined now, has no route any more.
    scene.update(2, vec![gateway(50, 1)], vec![]);
    assert_eq!(scene.settle(), 1);
    let sessions = scene.stage.node.trees().count() as u64;
    assert_eq!(sessions, SESSIONS - 1, "it has no other way");
}

#[test]
fn a_translation_before_the_join_does_not_stop_the_join() {
    let mut scene = Scene::new();
    let (name, upstream) = ("bfed://50/new", scene.peers[0]);
    scene.stage.joins(scene.peers[2], name);
    let early = Message::Translation(translation::Repr {
        path: vec![gateway(2, 1), gateway(50, 1)],
        flows: flow(),
        session: SessionName::parse(name).unwrap(),
    });
    scene.stage.receive(upstream, &early).unwrap();
    scene.serve();
    let joined = scene.stage.sent();
    assert!(
        matches!(&joined[..], [(conn, Message::Join(_))] if *conn == upstream),
        "{joined:?}"
    );
}

#[test]
fn trees_that_wait_to_be_examined_are_due_at_once() {
    let mut scene = Scene::new();
    assert!(scene.stage.node.poll_timeout() > Some(scene.stage.now));
    scene.stage.node.drain_node(scene.stage.now, NodeId(1));
    assert_eq!(scene.stage.node.poll_timeout(), Some(scene.stage.now));
    assert_eq!(scene.settle(), SESSIONS);
}
