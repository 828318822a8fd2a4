//! What a data node is told of sessions when its stream is there again.

use bfed::wire::Message;
use bfed::wire::node::Register;
use bfed::*;

use crate::stage::TestGateway;

const A: &str = "bfed://1/a";
const B: &str = "bfed://1/b";

/// The data node's stream breaks and is there again; what it is told in the next 300 ms.
fn again(stage: &mut TestGateway, old: ConnId) -> (ConnId, Vec<Message>) {
    stage.node.disconnected(stage.now, old);
    let conn = stage.register(1);
    stage.wait(0);
    let mut said = stage.sent();
    for _ in 0..3 {
        stage.wait(100);
        said.extend(stage.sent());
    }
    let said = said.into_iter().filter(|(to, _)| *to == conn);
    (conn, said.map(|(_, message)| message).collect())
}

fn refreshed(said: &[Message]) -> Vec<String> {
    let names = said.iter().filter_map(|message| match message {
        Message::Reclaim(refresh) if refresh.what.is_none() => Some(refresh.session.to_string()),
        _ => None,
    });
    names.collect()
}

fn complete(said: &[Message]) -> Option<usize> {
    said.iter()
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
    let (node, said) = again(&mut stage, node);
    let names = refreshed(&said);
    assert_eq!(names.len(), 2, "{said:?}");
    let end = complete(&said).expect("no heartbeat says that this is all");
    let last = said
        .iter()
        .rposition(|message| matches!(message, Message::Reclaim(_)));
    assert!(last < Some(end), "after the last session");
    // The peer leaves one while the stream is away: the RECLAIM is lost.
    stage.node.disconnected(stage.now, node);
    let leave = bfed::wire::Message::Leave(SessionName::parse(A).unwrap());
    stage.receive(peer, &leave).unwrap();
    let (_, said) = again(&mut stage, node);
    let names = refreshed(&said);
    assert_eq!(names.len(), 1, "{names:?}");
    assert!(complete(&said).is_some());
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
        let said: Vec<_> = stage
            .sent()
            .into_iter()
            .map(|(_, message)| message)
            .collect();
        if at.is_none() && complete(&said).is_some() {
            at = Some(second);
        }
    }
    // What it had lives on for the lifetime of soft state: peers refresh their JOINs meanwhile.
    assert!((104..=106).contains(&at.unwrap()), "{at:?}");
}
