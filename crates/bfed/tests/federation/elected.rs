//! What a control node waits for after its start or election, and what it assigns and releases.

use std::cell::RefCell;
use std::rc::Rc;

use bfed::wire::Message;
use bfed::wire::open::Graceful;
use bfed::*;

use crate::stage::{PEER, TestGateway};
use crate::takeover::{Shared, Store, shared_with};
use crate::world::session;

const A: &str = "bfed://1/a";
const B: &str = "bfed://1/b";

/// A control node that is the active one from its start or elected later, and its store.
fn active(elected: bool, sessions: &[&str]) -> (TestGateway<Shared>, Rc<RefCell<Store>>) {
    let store = Rc::new(RefCell::new(Store::default()));
    for name in sessions {
        let mut store = store.borrow_mut();
        store.assigned.insert(session(name), NodeId(2));
    }
    (store.borrow_mut().active, store.borrow_mut().epoch) = (u32::from(!elected), 1);
    let mut stage = shared_with(1, &store, |config| config.hold_time_s = 0);
    if elected {
        stage.wait(100_000);
        (store.borrow_mut().active, store.borrow_mut().epoch) = (1, 2);
        stage.node.coordinator_changed(stage.now);
    }
    (stage, store)
}

#[test]
fn a_session_waits_two_seconds_for_its_data_node_after_a_start_or_an_election() {
    for elected in [false, true] {
        let (mut stage, _store) = active(elected, &[A]);
        let peer = stage.establish();
        let one = stage.register(1);
        stage.joins(peer, A);
        stage.beats(one, 1);
        stage.wait(400);
        assert_eq!(stage.node_of(A), None, "its data node has it, {elected}");
        stage.beats(one, 1);
        assert_eq!(stage.node_of(A), Some(1), "it does not come, {elected}");
    }
}

#[test]
fn an_elected_control_node_keeps_assignments_while_peers_may_come() {
    let (mut stage, store) = active(true, &[A, B]);
    let peer = stage.establish();
    let two = stage.register(2);
    stage.joins(peer, A);
    stage.beats(two, 100);
    assert_eq!(store.borrow().assigned.len(), 2);
    stage.joins(peer, A);
    stage.beats(two, 10);
    assert_eq!(
        store.borrow().assigned.len(),
        1,
        "that of the session that is left"
    );
}

#[test]
fn a_gateway_without_a_restart_time_does_not_say_that_it_has_restarted() {
    for (again, succeeds) in [(false, true), (true, false)] {
        let store = Rc::new(RefCell::new(Store::default()));
        store.borrow_mut().active = u32::from(again);
        let mut stage = shared_with(1, &store, |config| config.restart_time_s = 0);
        store.borrow_mut().active = 0;
        stage.node.coordinator_changed(stage.now);
        (store.borrow_mut().active, store.borrow_mut().succeeds) = (1, succeeds);
        stage.node.coordinator_changed(stage.now);
        let conn = stage.conn();
        stage.node.connected(stage.now, conn, PEER, false);
        let sent = stage.messages();
        let Some(Message::Open(open)) = sent.first() else {
            panic!("{sent:?}");
        };
        let says = Graceful {
            restarting: false,
            preserved: false,
            restart_time_s: 0,
        };
        assert_eq!(open.graceful, Some(says), "again: {again}");
    }
}

#[test]
fn a_standby_answers_no_client() {
    let store = Rc::new(RefCell::new(Store::default()));
    let mut standby = shared_with(1, &store, |_| ());
    for name in [A, "bfed://2/m"] {
        let now = standby.now;
        let client = ClientId(1);
        standby
            .node
            .join(now, client, session(name), 0, Scope::Chosen);
        assert_eq!(standby.events(), []);
        assert_eq!(standby.node.trees().count(), 0);
    }
}

/// The end of a session that has no data node but is assigned to one; returns whether the assignment remains.
fn is_kept_without_data_node(restarting: bool) -> bool {
    let mut stage = TestGateway::new(|config, _| config.restarting = restarting);
    stage.node.coordinator_mut().assign(&session(A), NodeId(9));
    let peer = stage.greet(PEER);
    stage.joins(peer, A);
    stage.wait(0);
    stage.wait(5000);
    assert_eq!(stage.node.trees().count(), 0, "no data node has come");
    !stage.node.coordinator().is_empty()
}

#[test]
fn an_assignment_ends_with_its_session_unless_the_data_node_may_still_have_it() {
    assert!(!is_kept_without_data_node(false));
    assert!(
        is_kept_without_data_node(true),
        "another peer may come for it"
    );
    // What has been carried since the restart is known.
    let mut stage = TestGateway::new(|config, _| config.restarting = true);
    stage.register(1);
    let peer = stage.greet(PEER);
    stage.joins(peer, A);
    assert_eq!(stage.node.coordinator().len(), 1);
    stage.receive(peer, &Message::Leave(session(A))).unwrap();
    assert!(stage.node.coordinator().is_empty());
}
