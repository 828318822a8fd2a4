//! State of peers that are disconnected: what is kept, what is discarded, and which ways trees take meanwhile.

use bfed::wire::Message;
use bfed::wire::liveness::State as Heard;
use bfed::wire::notification::{Reason, Repr as Notification};
use bfed::wire::open::Graceful;
use bfed::*;

use crate::costs::requests;
use crate::stage::{PEER, TestGateway};
use crate::takeover::patient;
use crate::upstream::{NAME, Scene, joins, leaves};
use crate::world::gateway;

const OWN: &str = "bfed://1/a";

fn graceful(restarting: bool) -> Option<Graceful> {
    Some(Graceful {
        restarting,
        preserved: true,
        restart_time_s: 60,
    })
}

/// Gateway 1.1 with a data node. Peers 2.1, which restarts gracefully, and 3.1 lead to network 9, the first on the
/// better route, the second to the gateway with that number; 5.1 joins sessions.
fn scene(number: u32) -> Scene {
    let mut stage = TestGateway::new(|config, _| {
        config.hold_time_s = 0;
        config.damping = None;
    });
    let node = stage.register(1);
    let first = stage.greet_as(PEER, graceful(false));
    stage.end_of_tables(first);
    let (second, below) = (stage.add(2), stage.add(4));
    stage.announce(first, &[gateway(2, 1), gateway(9, 1)], 1);
    stage.announce(second, &[gateway(3, 1), gateway(9, number)], 5);
    Scene {
        stage,
        node,
        first,
        second,
        below,
    }
}

fn lose_first(scene: &mut Scene) {
    let stage = &mut scene.stage;
    stage.node.disconnected(stage.now, scene.first);
    stage.wait(0);
}

/// Ends the peering of a peer at once.
fn shut_down(stage: &mut TestGateway, conn: ConnId) {
    let why = Notification::new(Reason::Shutdown, "");
    stage.receive(conn, &Message::Notification(why)).unwrap();
}

#[test]
fn a_disconnected_upstream_stays_while_it_is_kept() {
    let mut scene = scene(1);
    scene.join(20).unwrap();
    scene.serve();
    scene
        .translate(scene.first, &[gateway(2, 1), gateway(9, 1)], 5)
        .unwrap();
    scene.serve();
    lose_first(&mut scene);
    let sent = scene.live(30);
    assert_eq!((joins(&sent), leaves(&sent)), (vec![], vec![]));
    let tree = scene.tree();
    assert_eq!((tree.upstream, tree.attached), (Some(PEER), true));
}

#[test]
fn a_disconnected_peer_does_not_become_the_upstream_though_its_route_is_the_best() {
    let mut scene = scene(1);
    lose_first(&mut scene);
    assert!(scene.stage.is_stale());
    scene.join(20).unwrap();
    assert_eq!(joins(&scene.serve()), [scene.second]);
    scene
        .translate(scene.second, &[gateway(3, 1), gateway(9, 1)], 5)
        .unwrap();
    scene.serve();
    // A better way than the present one, though not the best of all.
    let third = scene.stage.add(5);
    assert_eq!(joins(&scene.announce(third, 6, 3)), [third]);
}

#[test]
fn costs_are_not_asked_for_through_a_disconnected_peer() {
    let mut scene = scene(2);
    lose_first(&mut scene);
    scene.stage.ask(1, NAME);
    let asked = requests(&scene.serve());
    let asked: Vec<_> = asked.iter().map(|(to, ask)| (*to, ask.towards)).collect();
    assert_eq!(asked, [(scene.second, gateway(9, 2))]);
}

#[test]
fn a_peer_that_does_not_restart_gracefully_is_not_kept() {
    let none = Graceful {
        restarting: false,
        preserved: false,
        restart_time_s: 0,
    };
    for graceful in [None, Some(none)] {
        let mut stage = TestGateway::new(|config, _| config.hold_time_s = 0);
        let node = stage.register(1);
        let peer = stage.greet_as(PEER, graceful);
        stage.joins(peer, OWN);
        stage.serve(node);
        stage.receive_liveness(node, Heard::Alive);
        stage.node.disconnected(stage.now, peer);
        assert!(!stage.is_stale());
        stage.wait(0);
        assert_eq!(stage.node.trees().count(), 0);
    }
}

#[test]
fn a_kept_peer_that_ends_its_next_stream_at_once_is_kept_no_longer() {
    let (mut stage, peer, _) = patient();
    stage.node.disconnected(stage.now, peer);
    stage.wait(0);
    assert!(stage.is_stale() && stage.node.trees().count() == 1);
    let conn = stage.conn();
    stage.node.connected(stage.now, conn, PEER, false);
    shut_down(&mut stage, conn);
    assert!(!stage.is_stale());
    stage.wait(0);
    assert_eq!(stage.node.trees().count(), 0);
}

#[test]
fn what_was_discarded_does_not_return_with_a_peer_that_is_back_at_once() {
    for silent in [true, false] {
        let (mut stage, peer, node) = patient();
        if silent {
            stage.node.disconnected(stage.now, peer);
            stage.receive_liveness(node, Heard::Silent);
        } else {
            shut_down(&mut stage, peer);
        }
        // Before the control node has examined the peer's sessions.
        stage.greet_as(PEER, graceful(true));
        stage.wait(0);
        assert_eq!(stage.node.trees().count(), 0, "silent: {silent}");
    }
}

#[test]
fn sessions_of_another_gateway_do_not_become_those_of_the_next_with_its_number() {
    let (mut stage, ..) = patient();
    let config = PeerConfig::new(gateway(5, 1));
    stage.node.add_peer(stage.now, PEER, config).unwrap();
    stage.wait(0);
    assert_eq!(stage.node.trees().count(), 0);
    // Its stream may be there before the sessions are examined.
    let (mut stage, ..) = patient();
    stage.add_as(PEER.0, gateway(5, 1));
    assert_eq!(stage.node.trees().count(), 0);
}

#[test]
fn sessions_of_a_peer_that_is_back_outlast_its_routes() {
    let (mut stage, peer, node) = patient();
    shut_down(&mut stage, peer);
    stage.wait(0);
    let peer = stage.greet_as(PEER, graceful(true));
    stage.joins(peer, OWN);
    stage.node.disconnected(stage.now, peer);
    stage.beats(node, 1);
    // It is connected, and never announces all its routes.
    stage.greet_as(PEER, graceful(true));
    stage.beats(node, 61);
    assert!(!stage.is_stale());
    assert_eq!(stage.node_of(OWN), Some(1));
}

#[test]
fn a_peer_whose_data_nodes_were_heard_has_its_restart_time_again() {
    let (mut stage, peer, node) = patient();
    stage.receive_liveness(node, Heard::Alive);
    stage.node.disconnected(stage.now, peer);
    stage.beats(node, 61);
    stage.receive_liveness(node, Heard::Unknown);
    stage.beats(node, 50);
    assert!(stage.is_stale(), "nothing is known of them any more");
    stage.beats(node, 10);
    assert!(!stage.is_stale());
}

#[test]
fn sessions_of_a_peer_that_is_back_live_for_a_whole_lifetime() {
    let (mut stage, peer, node) = patient();
    stage.beats(node, 90);
    stage.node.disconnected(stage.now, peer);
    stage.beats(node, 5);
    let peer = stage.greet_as(PEER, graceful(true));
    stage.end_of_tables(peer);
    stage.beats(node, 100);
    assert_eq!(stage.node_of(OWN), Some(1), "it could not refresh them");
    stage.beats(node, 10);
    assert_eq!(stage.node_of(OWN), None);
}
