//! What a data node receives about sessions after its stream was opened again.

use bfed::wire::Message;
use bfed::wire::node::Register;
use bfed::*;

use crate::stage::TestGateway;

const A: &str = "bfed://1/a";
const B: &str = "bfed://1/b";

/// Breaks the data node's stream and opens it again. Returns the messages of the next 300 ms.
fn again(stage: &mut TestGateway, old: ConnId) -> (ConnId, Vec<Message>) {
    stage.node.disconnected(stage.now, old);
    let conn = stage.register(1);
    stage.wait(0);
    let mut sent = stage.sent();
    for _ in 0..3 {
        stage.wait(100);
        sent.extend(stage.sent());
    }
    let sent = sent.into_iter().filter(|(to, _)| *to == conn);
    (conn, sent.map(|(_, message)| message).collect())
}

fn refreshed(sent: &[Message]) -> Vec<String> {
    let names = sent.iter().filter_map(|message| match message {
        Message::Reclaim(refresh) if refresh.what.is_none() => Some(refresh.session.to_string()),
        _ => None,
    });
    names.collect()
}

fn complete(sent: &[Message]) -> Option<usize> {
    sent.iter()
        .position(|message| matches!(message, Message::Heartbeat(beat) if beat.complete))
}

#[test]
fn a_data_node_hears_which_sessions_live_and_that_there_are_no_others() {
    let mut stage = TestGateway::new(|_, _| ());
    let node = stage.register(1);
    let peer = stage.establish();
    stage.joins(peer, A);
    stage.joins(peer, B);
    stage.wait(0);
    stage.sent();
    let (node, sent) = again(&mut stage, node);
    let names = refreshed(&sent);
    assert_eq!(names.len(), 2, "{sent:?}");
    let end = complete(&sent).expect("no heartbeat says that this is all");
    let last = sent
        .iter()
        .rposition(|message| matches!(message, Message::Reclaim(_)));
    assert!(last < Some(end), "after the last session");
    // The peer leaves a session while there is no stream: the RECLAIM is lost.
    stage.node.disconnected(stage.now, node);
    let leave = bfed::wire::Message::Leave(SessionName::parse(A).unwrap());
    stage.receive(peer, &leave).unwrap();
    let (_, sent) = again(&mut stage, node);
    let names = refreshed(&sent);
    assert_eq!(names.len(), 1, "{names:?}");
    assert!(complete(&sent).is_some());
}

#[test]
fn a_control_node_that_was_started_anew_does_not_know_all() {
    let mut stage = TestGateway::new(|config, _| config.restarting = true);
    let conn = stage.conn();
    stage
        .node
        .node_connected(stage.now, conn, Default::default());
    let register = Register {
        node: NodeId(1),
        boot: 1,
        max_sessions: 100,
        epoch: 0,
    };
    stage.receive(conn, &Message::Register(register)).unwrap();
    let mut at = None;
    for second in 0..120 {
        for _ in 0..4 {
            let beat = bfed::wire::node::Heartbeat {
                epoch: 0,
                sequence: 1,
                draining: false,
                complete: false,
            };
            stage.receive(conn, &Message::Heartbeat(beat)).unwrap();
            stage.wait(250);
        }
        let sent: Vec<_> = stage
            .sent()
            .into_iter()
            .map(|(_, message)| message)
            .collect();
        if at.is_none() && complete(&sent).is_some() {
            at = Some(second);
        }
    }
    // Its sessions are kept for the lifetime of soft state, in which peers refresh their JOINs.
    assert!((104..=106).contains(&at.unwrap()), "{at:?}");
}

#[test]
fn a_data_node_hears_of_its_own_sessions_alone() {
    let mut stage = TestGateway::new(|config, _| config.assignment = Assignment::RoundRobin);
    let node = stage.register(1);
    stage.register(2);
    let peer = stage.establish();
    stage.joins(peer, A);
    stage.joins(peer, B);
    assert_eq!((stage.node_of(A), stage.node_of(B)), (Some(1), Some(2)));
    stage.wait(0);
    stage.sent();
    let (_, sent) = again(&mut stage, node);
    assert_eq!(refreshed(&sent), [A]);
}

#[test]
fn sessions_are_not_all_known_while_some_wait_to_be_examined() {
    let mut stage = TestGateway::new(|_, _| ());
    let node = stage.register(1);
    let peer = stage.establish();
    stage.joins(peer, A);
    stage.wait(0);
    stage.node.disconnected(stage.now, node);
    let node = stage.register(1);
    stage.wait(0);
    stage.sent();
    let mut beats = |examine: bool| {
        stage.now += Duration::from_millis(250);
        if examine {
            stage.node.drain_node(stage.now, NodeId(1));
        }
        stage.wait(0);
        stage.beat(node);
        complete(&stage.messages()).is_some()
    };
    assert!(!beats(true));
    assert!(beats(false));
}
