//! Data nodes of one gateway, message by message: registration, heartbeats, failure, and what is asked of them.

use bfed::wire::Message;
use bfed::wire::liveness::{Repr as Liveness, State};
use bfed::wire::no_route::Reason as Refusal;
use bfed::wire::node::{Heartbeat, Register};
use bfed::wire::notification::{Reason, Repr as Notification};
use bfed::wire::reclaim::ReclaimTarget;
use bfed::wire::statistics::{Entry, Repr as Statistics};
use bfed::wire::subscribe::Edge;
use bfed::*;

use crate::stage::{PEER, TestGateway};
use crate::world::{gateway, session};

/// A session of this network, that a peer joins.
const OWN: &str = "bfed://1/a";
const OTHER: &str = "bfed://1/b";

fn register(node: u32, boot: u32, epoch: u64) -> Message {
    Message::Register(Register {
        node: NodeId(node),
        boot,
        max_sessions: 100,
        epoch,
    })
}

/// The stream of a data node with that identity that has not registered.
fn stream(stage: &mut TestGateway, identity: u32) -> ConnId {
    let conn = stage.conn();
    stage
        .node
        .node_connected(stage.now, conn, NodeIdentity(identity));
    conn
}

/// The reason of the last message on a stream, which is closed then.
#[track_caller]
fn reason(stage: &mut TestGateway, conn: ConnId) -> Reason {
    let sent = stage.sent();
    let last = sent.iter().rev().find(|(to, _)| *to == conn);
    let Some((_, Message::Notification(why))) = last else {
        panic!("{sent:?}");
    };
    assert!(stage.events().contains(&Event::Close(conn)));
    why.reason
}

fn ids(stage: &TestGateway) -> Vec<u32> {
    stage.node.nodes().map(|(id, ..)| id.0).collect()
}

fn down(node: u32, drained: bool) -> Event {
    let node = NodeId(node);
    Event::NodeDown { node, drained }
}

fn requests(sent: &[(ConnId, Message)], to: ConnId) -> Vec<&Message> {
    let requests = sent.iter().filter(|(conn, _)| *conn == to);
    let requests = requests.map(|(_, message)| message);
    let is_heartbeat = |message: &&Message| matches!(message, Message::Heartbeat(_));
    requests.filter(|message| !is_heartbeat(message)).collect()
}

#[test]
fn a_data_node_registers_and_gets_heartbeats() {
    let mut stage = TestGateway::new(|_, _| ());
    let conn = stream(&mut stage, 0);
    assert_eq!(ids(&stage), [0; 0]);
    stage.receive(conn, &register(4, 1, 0)).unwrap();
    assert_eq!(stage.events(), [Event::NodeUp(NodeId(4))]);
    let epoch = stage.node.coordinator().epoch();
    let beats = |stage: &mut TestGateway| -> Vec<Heartbeat> {
        let sent = stage.sent().into_iter();
        let beats = sent.filter_map(|(to, message)| match message {
            Message::Heartbeat(beat) if to == conn => Some(beat),
            _ => None,
        });
        beats.collect()
    };
    let first = beats(&mut stage);
    assert_eq!(
        (first.len(), first[0].sequence, first[0].epoch),
        (1, 1, epoch)
    );
    for sequence in 2..6 {
        stage.wait(249);
        assert_eq!(beats(&mut stage), []);
        stage.wait(1);
        stage.beat(conn);
        let beats = beats(&mut stage);
        assert_eq!((beats.len(), beats[0].sequence), (1, sequence));
    }
    // What is not read is not written again and again.
    stage.node.blocked(conn);
    for _ in 0..8 {
        stage.wait(250);
        stage.beat(conn);
        assert_eq!(stage.sent(), []);
    }
    stage.node.writable(stage.now, conn);
    assert_eq!(beats(&mut stage).len(), 1);
}

#[test]
fn streams_that_do_not_register_as_they_should_are_told_why() {
    let mut stage = TestGateway::new(|config, _| config.limits.max_nodes = 1);
    let conn = stream(&mut stage, 0);
    let refused = stage.receive(conn, &Message::KeepAlive);
    assert_eq!(refused, Err(Error::BadNode));
    assert_eq!(reason(&mut stage, conn), Reason::OutOfOrder);
    let gone = stage.receive(conn, &register(1, 1, 0));
    assert_eq!(gone, Err(Error::UnknownStream));
    // It obeyed a newer control node.
    let epoch = stage.node.coordinator().epoch();
    let conn = stream(&mut stage, 0);
    assert_eq!(
        stage.receive(conn, &register(1, 1, epoch + 1)),
        Err(Error::Fenced)
    );
    assert_eq!(reason(&mut stage, conn), Reason::Fenced);
    let first = stream(&mut stage, 0);
    assert_eq!(stage.receive(first, &register(1, 1, epoch)), Ok(()));
    let conn = stream(&mut stage, 0);
    assert_eq!(stage.receive(conn, &register(2, 1, 0)), Err(Error::BadNode));
    assert_eq!(reason(&mut stage, conn), Reason::Shutdown);
    assert_eq!(ids(&stage), [1], "one is allowed");
    let conn = stream(&mut stage, 5);
    assert_eq!(stage.receive(conn, &register(1, 1, 0)), Err(Error::BadNode));
    assert_eq!(reason(&mut stage, conn), Reason::Collision);
    // One that says nothing has ten seconds.
    let conn = stream(&mut stage, 0);
    assert_eq!(stage.node.stats().drops.get(Error::BadNode), 3);
    for _ in 0..39 {
        stage.wait(250);
        stage.beat(first);
        assert!(!stage.events().contains(&Event::Close(conn)));
    }
    stage.wait(250);
    assert!(stage.events().contains(&Event::Close(conn)));
}

#[test]
fn a_data_node_that_says_what_it_must_not_has_failed() {
    let mut short = vec![0; 8];
    Message::KeepAlive.emit(&mut short);
    short[0] ^= 1;
    let mut good = vec![0; 8];
    Message::KeepAlive.emit(&mut good);
    for (bytes, error) in [(good, Error::OutOfOrder), (short, Error::Malformed)] {
        let mut stage = TestGateway::new(|_, _| ());
        let conn = stage.register(1);
        stage.sent();
        stage.events();
        let refused = stage.node.handle_packet(stage.now, &conn, &bytes);
        assert_eq!(refused, Err(error));
        let sent = stage.sent();
        assert!(matches!(&sent[..], [(to, Message::Notification(why))]
            if *to == conn && why.reason == Reason::BadMessage));
        let events = stage.events();
        assert!(events.contains(&down(1, false)) && events.contains(&Event::Close(conn)));
        assert_eq!(ids(&stage), [0; 0]);
        assert_eq!(stage.node.stats().nodes_lost, 1);
    }
}

#[test]
fn a_data_node_that_sends_a_notification_has_failed_at_once() {
    let mut stage = TestGateway::new(|_, _| ());
    let conn = stage.register(1);
    stage.sent();
    stage.events();
    let why = Message::Notification(Notification::new(Reason::Shutdown, ""));
    assert_eq!(stage.receive(conn, &why), Ok(()));
    let events = stage.events();
    assert!(events.contains(&Event::Close(conn)) && events.contains(&down(1, false)));
    assert_eq!(stage.sent(), []);
    assert_eq!(stage.receive(conn, &why), Err(Error::UnknownStream));
}

#[test]
fn a_data_node_that_obeys_a_newer_control_node_loses_its_stream() {
    let mut stage = TestGateway::new(|_, _| ());
    let conn = stage.register(1);
    let epoch = stage.node.coordinator().epoch();
    let beat = |epoch| {
        Message::Heartbeat(Heartbeat {
            epoch,
            sequence: 1,
            draining: false,
            complete: false,
        })
    };
    assert_eq!(stage.receive(conn, &beat(epoch)), Ok(()));
    assert_eq!(stage.receive(conn, &beat(epoch + 1)), Err(Error::Fenced));
    assert_eq!(reason(&mut stage, conn), Reason::Fenced);
}

#[test]
fn a_silent_data_node_fails_after_four_intervals_and_a_lost_stream_after_one() {
    let mut stage = TestGateway::new(|_, _| ());
    let conn = stage.register(1);
    stage.wait(999);
    assert_eq!(ids(&stage), [1]);
    stage.wait(1);
    assert_eq!(ids(&stage), [0; 0]);
    let events = stage.events();
    assert!(events.contains(&Event::Close(conn)) && events.contains(&down(1, false)));
    // Its number is free again.
    let conn = stage.register(1);
    stage.wait(600);
    stage.node.disconnected(stage.now, conn);
    stage.wait(249);
    assert_eq!(ids(&stage), [1]);
    stage.wait(1);
    assert_eq!(ids(&stage), [0; 0]);
    assert_eq!(stage.node.stats().nodes_lost, 2);
}

#[test]
fn a_drained_data_node_without_sessions_leaves_as_announced() {
    for drained in [true, false] {
        for by_itself in [true, false] {
            let mut stage = TestGateway::new(|_, _| ());
            let conn = stage.register(1);
            stage.events();
            if by_itself {
                let beat = Heartbeat {
                    epoch: 0,
                    sequence: 1,
                    draining: drained,
                    complete: false,
                };
                stage.receive(conn, &Message::Heartbeat(beat)).unwrap();
            } else if drained {
                stage.node.drain_node(stage.now, NodeId(1));
            }
            stage.node.disconnected(stage.now, conn);
            stage.wait(250);
            let mut events = stage.events();
            events.retain(|event| matches!(event, Event::NodeDown { .. }));
            assert_eq!(events, [down(1, drained)]);
            assert_eq!(stage.node.stats().nodes_lost, u64::from(!drained));
        }
    }
}

#[test]
fn a_draining_data_node_gets_no_session_and_keeps_what_has_nowhere_to_go() {
    let mut stage = TestGateway::new(|config, _| config.assignment = Assignment::RoundRobin);
    let peer = stage.establish();
    let one = stage.register(1);
    stage.joins(peer, OWN);
    stage.serve(one);
    stage.node.drain_node(stage.now, NodeId(1));
    stage.wait(0);
    assert_eq!(requests(&stage.sent(), one), [&Message::KeepAlive; 0]);
    assert_eq!(stage.node_of(OWN), Some(1), "better than none");
    assert_eq!(stage.join(peer, OTHER), Ok(()));
    let refused = |(to, message): &(ConnId, Message)| {
        *to == peer && matches!(message, Message::NoRoute(why) if why.reason == Refusal::Limit)
    };
    assert!(stage.sent().iter().any(refused));
    assert_eq!(stage.node_of(OTHER), None);
    // Another comes: it takes the session over, and the old one is told once the new one has it.
    let two = stage.register(2);
    stage.wait(0);
    assert_eq!(stage.node_of(OWN), Some(2));
    assert_eq!(stage.node.stats().moved, 1);
    let sent = stage.serve(two);
    let released = requests(&sent, one);
    let [Message::Reclaim(reclaim)] = released[..] else {
        panic!("{released:?}");
    };
    assert_eq!(reclaim.what, Some(ReclaimTarget::All));
    assert!(
        stage
            .node
            .nodes()
            .eq([(NodeId(1), 0, 0), (NodeId(2), 1, 0)])
    );
    stage.joins(peer, OTHER);
    assert_eq!(stage.node_of(OTHER), Some(2));
    assert_eq!(stage.node.stats().trees, 2);
}

#[test]
fn without_data_nodes_a_session_waits_for_the_join_timeout() {
    for comes in [true, false] {
        let mut stage = TestGateway::new(|_, _| ());
        let peer = stage.establish();
        stage.joins(peer, OWN);
        stage.wait(4900);
        assert_eq!(stage.sent(), []);
        assert_eq!(stage.node.trees().count(), 1);
        if comes {
            let node = stage.register(1);
            stage.live(node, 1);
            assert_eq!(stage.node_of(OWN), Some(1));
            stage.live(node, 10);
            assert_eq!(stage.node.trees().count(), 1);
        } else {
            stage.wait(200);
            let sent = stage.sent();
            assert!(matches!(&sent[..], [(to, Message::NoRoute(why))]
                if *to == peer && why.reason == Refusal::Limit));
            assert_eq!(stage.node.trees().count(), 0);
            // That this gateway could not is not remembered.
            let node = stage.register(1);
            stage.joins(peer, OWN);
            stage.serve(node);
            assert_eq!(stage.node_of(OWN), Some(1));
        }
    }
}

#[test]
fn a_restarted_data_node_has_nothing_and_gets_its_sessions_again() {
    for stream_broke in [true, false] {
        let mut stage = TestGateway::new(|_, _| ());
        let peer = stage.establish();
        let old = stage.register(1);
        stage.joins(peer, OWN);
        stage.serve(old);
        stage.events();
        if stream_broke {
            stage.node.disconnected(stage.now, old);
        }
        let conn = stream(&mut stage, 0);
        stage.receive(conn, &register(1, 99, 0)).unwrap();
        let events = stage.events();
        assert!(events.contains(&down(1, false)) && events.contains(&Event::NodeUp(NodeId(1))));
        assert_eq!(events.contains(&Event::Close(old)), !stream_broke);
        stage.wait(0);
        let sent = stage.sent();
        let asked = requests(&sent, conn).into_iter();
        let asked: Vec<_> = asked
            .map(|message| match message {
                Message::Subscribe(ask) => (ask.up, ask.edge),
                other => panic!("{other:?}"),
            })
            .collect();
        let below = Edge::Peer {
            peer: PEER,
            rate_bps: 0,
        };
        assert_eq!(asked, [(true, Edge::Native), (false, below)]);
        assert_eq!(stage.node.stats().moved, 1);
    }
}

#[test]
fn a_new_stream_of_the_same_data_node_repeats_what_was_not_answered() {
    let mut stage = TestGateway::new(|_, _| ());
    let peer = stage.establish();
    let old = stage.register(1);
    stage.joins(peer, OWN);
    stage.serve(old);
    stage.joins(peer, OTHER);
    // The answers are lost with the stream, which is replaced before it ends.
    stage.sent();
    stage.events();
    let conn = stage.register(1);
    assert_eq!(
        stage.events(),
        [Event::Close(old)],
        "it is the same process"
    );
    stage.wait(0);
    let sent = stage.sent();
    let mut asked = Vec::new();
    for message in requests(&sent, conn) {
        match message {
            Message::Subscribe(ask) => asked.push((ask.session.to_string(), ask.up)),
            Message::Reclaim(refresh) => assert_eq!(refresh.what, None),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        asked,
        [(OTHER.into(), true), (OTHER.into(), false)],
        "{sent:?}"
    );
    assert_eq!(stage.node.stats().nodes_lost, 0);
    assert_eq!(
        stage.receive(old, &Message::KeepAlive),
        Err(Error::UnknownStream)
    );
}

#[test]
fn what_waited_for_an_old_stream_is_not_written_to_the_new_one() {
    let mut stage = TestGateway::new(|_, _| ());
    let peer = stage.establish();
    let old = stage.register(1);
    stage.joins(peer, OWN);
    stage.live(old, 1);
    // The old stream takes nothing any more: a heartbeat waits that says that all sessions are known.
    stage.node.blocked(old);
    stage.wait(250);
    let conn = stage.register(1);
    let sent = stage.sent();
    let refreshed =
        |message: &Message| matches!(message, Message::Reclaim(one) if one.what.is_none());
    let complete = |message: &Message| matches!(message, Message::Heartbeat(beat) if beat.complete);
    let on_new = sent.iter().filter(|(to, _)| *to == conn);
    let on_new: Vec<_> = on_new.map(|(_, message)| message).collect();
    assert!(on_new.iter().any(|message| refreshed(message)));
    assert!(
        !on_new.iter().any(|message| complete(message)),
        "{on_new:?}"
    );
    // The data node releases nothing until it is told so on this stream.
    let mut told = false;
    for _ in 0..3 {
        stage.wait(250);
        stage.beat(conn);
        let sent = stage.sent();
        told |= sent
            .iter()
            .any(|(to, message)| *to == conn && complete(message));
    }
    assert!(told);
}

#[test]
fn what_was_asked_for_a_join_is_repeated_too() {
    let mut stage = TestGateway::new(|_, _| ());
    let owner = stage.establish();
    stage.end_of_tables(owner);
    stage.announce(owner, &[gateway(2, 1)], 1);
    stage.register(1);
    stage.ask(1, "bfed://2/m");
    let is_allocate = |(_, message): &(ConnId, Message)| matches!(message, Message::Allocate(_));
    assert_eq!(
        stage.sent().iter().filter(|sent| is_allocate(sent)).count(),
        1
    );
    let conn = stage.register(1);
    stage.wait(0);
    let sent = stage.sent();
    assert_eq!(sent.iter().filter(|sent| is_allocate(sent)).count(), 1);
    assert!(
        sent.iter()
            .filter(|sent| is_allocate(sent))
            .all(|(to, _)| *to == conn)
    );
}

#[test]
fn rates_are_those_of_the_last_statistics() {
    let mut stage = TestGateway::new(|config, _| config.limits.max_nodes = 9);
    let peer = stage.establish();
    let nodes = [1, 2].map(|node| stage.register(node));
    let report = |stage: &mut TestGateway, node: usize, rate_bps, entries| {
        let statistics = Statistics {
            sessions: 0,
            rate_bps,
            entries,
        };
        stage
            .receive(nodes[node], &Message::Statistics(statistics))
            .unwrap();
    };
    report(&mut stage, 0, 700, vec![]);
    report(&mut stage, 1, 300, vec![]);
    assert!(
        stage
            .node
            .nodes()
            .eq([(NodeId(1), 0, 700), (NodeId(2), 0, 300)])
    );
    // The one with the lower rate gets the next session.
    stage.joins(peer, OWN);
    assert_eq!(stage.node_of(OWN), Some(2));
    // Sessions that were assigned since count with the average of all until there is a new report.
    stage.joins(peer, OTHER);
    assert_eq!(stage.node_of(OTHER), Some(1));
    report(&mut stage, 0, 700, vec![]);
    report(&mut stage, 1, 300, vec![]);
    stage.joins(peer, "bfed://1/c");
    assert_eq!(stage.node_of("bfed://1/c"), Some(2));
    // A session that left counts no more.
    let leave = Message::Leave(session("bfed://1/c"));
    stage.receive(peer, &leave).unwrap();
    stage.joins(peer, "bfed://1/d");
    assert_eq!(stage.node_of("bfed://1/d"), Some(2));
}

#[test]
fn after_a_restart_an_unknown_session_stays_with_the_data_node_that_reports_it() {
    let mut stage = TestGateway::new(|config, _| {
        config.assignment = Assignment::RoundRobin;
        config.restarting = true;
    });
    let peer = stage.establish();
    let nodes = [1, 2].map(|node| stage.register(node));
    let report = |stage: &mut TestGateway, node: usize, name: &str| {
        let entry = Entry {
            packets: 0,
            bytes: 0,
            copies: 0,
            dropped: 0,
            session: session(name),
        };
        let statistics = Statistics {
            sessions: 1,
            rate_bps: 0,
            entries: vec![entry],
        };
        stage
            .receive(nodes[node], &Message::Statistics(statistics))
            .unwrap();
    };
    report(&mut stage, 1, OWN);
    assert_eq!(
        stage.node.coordinator().assigned(&session(OWN)),
        Some(NodeId(2))
    );
    stage.joins(peer, OWN);
    assert_eq!(stage.node_of(OWN), Some(2));
    // A data node that still has a session of another changes nothing.
    report(&mut stage, 0, OWN);
    assert_eq!(
        stage.node.coordinator().assigned(&session(OWN)),
        Some(NodeId(2))
    );
    assert_eq!(stage.node_of(OWN), Some(2));
}

#[test]
fn what_is_reported_of_unknown_peers_is_ignored() {
    let mut stage = TestGateway::new(|_, _| ());
    let peer = stage.establish();
    let node = stage.register(1);
    stage.joins(peer, OWN);
    stage.serve(node);
    for id in [PeerId(99), PEER] {
        let report = Liveness {
            peer: id,
            state: State::Silent,
        };
        stage.receive(node, &Message::Liveness(report)).unwrap();
        assert_eq!(stage.node.stats().silent, u64::from(id == PEER));
    }
    assert_eq!(reason(&mut stage, peer), Reason::Silent);
}

#[test]
fn a_data_node_that_reads_nothing_has_failed() {
    let mut stage = TestGateway::new(|config, _| {
        config.limits.max_queue = 128;
        config.limits.new_sessions_per_second = 10_000;
    });
    let peer = stage.establish();
    let conn = stage.register(1);
    stage.sent();
    stage.node.blocked(conn);
    for number in 0..200 {
        let _ = stage.join(peer, &format!("bfed://1/{number}"));
    }
    let events = stage.events();
    assert!(events.contains(&down(1, false)) && events.contains(&Event::Close(conn)));
    assert_eq!(ids(&stage), [0; 0]);
}
