//! Requests to a data node, and what follows from its answers.

use bfed::wire::allocate::{Outcome, Response};
use bfed::wire::no_route::Reason as Refusal;
use bfed::wire::subscribe::Edge;
use bfed::wire::translation::Repr as Translation;
use bfed::wire::{Message, join};
use bfed::*;

use crate::stage::{PEER, TestGateway, channels};
use crate::world::{gateway, session};

/// Sessions of this network, that a peer joins.
const OWN: &str = "bfed://1/a";
const OTHER: &str = "bfed://1/b";

/// A response of the data node to the last request that `pick` finds.
fn respond(
    stage: &mut TestGateway,
    node: ConnId,
    sent: &[(ConnId, Message)],
    outcome: Outcome,
    pick: impl Fn(&Message) -> Option<(u32, SessionName)>,
) -> Result<(), Error> {
    let found = sent.iter().rev().find_map(|(_, message)| pick(message));
    let (request, session) = found.expect("a request");
    let response = Response {
        request,
        outcome,
        flows: vec![],
        session,
    };
    stage.receive(node, &Message::AllocateResponse(response))
}

fn subscribed(up: bool) -> impl Fn(&Message) -> Option<(u32, SessionName)> {
    move |message| match message {
        Message::Subscribe(ask) if ask.up == up => Some((ask.request, ask.session.clone())),
        _ => None,
    }
}

#[test]
fn a_source_that_the_native_network_refuses_is_refused_to_all() {
    for (outcome, why) in [
        (Outcome::NoSession, Refusal::NoSession),
        (Outcome::Full, Refusal::Limit),
        (Outcome::Refused, Refusal::Limit),
    ] {
        let mut stage = TestGateway::new(|_, _| ());
        let (peer, node) = (stage.establish(), stage.register(1));
        stage.joins(peer, OWN);
        let sent = stage.sent();
        respond(&mut stage, node, &sent, outcome, subscribed(true)).unwrap();
        let sent = stage.sent();
        assert!(sent.iter().any(|(to, message)| *to == peer
            && matches!(message, Message::NoRoute(no) if no.reason == why)));
        assert_eq!(stage.node.trees().count(), 0);
        // Only that there is no such session is remembered.
        let again = stage.join(peer, OWN);
        assert_eq!(again.is_err(), outcome == Outcome::NoSession);
    }
}

#[test]
fn a_receiver_that_the_data_node_refuses_is_refused_alone() {
    let mut stage = TestGateway::new(|_, _| ());
    let (peer, node) = (stage.establish(), stage.register(1));
    let other = stage.add(2);
    stage.joins(other, OWN);
    stage.serve(node);
    stage.joins(peer, OWN);
    let sent = stage.sent();
    respond(&mut stage, node, &sent, Outcome::Full, subscribed(false)).unwrap();
    let sent = stage.serve(node);
    let refused = sent.iter().filter_map(|(to, message)| match message {
        Message::NoRoute(why) => Some((*to, why.reason)),
        _ => None,
    });
    assert!(refused.eq([(peer, Refusal::Limit)]));
    let tree = stage.node.trees().next().unwrap();
    assert_eq!(tree.downstream, [PeerId(2)]);
}

#[test]
fn answers_to_old_requests_change_nothing() {
    let mut stage = TestGateway::new(|config, _| config.assignment = Assignment::RoundRobin);
    let (peer, node) = (stage.establish(), stage.register(1));
    let other = stage.register(2);
    stage.joins(peer, OWN);
    let sent = stage.sent();
    // From the data node that does not carry it; with another number; of an unknown session.
    let stale = respond(&mut stage, other, &sent, Outcome::Full, subscribed(true));
    assert_eq!(stale, Err(Error::StaleAnswer));
    let number = |message: &Message| {
        subscribed(true)(message).map(|(number, name)| (number ^ 1 << 20, name))
    };
    let stale = respond(&mut stage, node, &sent, Outcome::Full, number);
    assert_eq!(stale, Err(Error::StaleAnswer));
    let unknown =
        |message: &Message| subscribed(true)(message).map(|(number, _)| (number, session(OTHER)));
    let stale = respond(&mut stage, node, &sent, Outcome::Full, unknown);
    assert_eq!(stale, Err(Error::StaleAnswer));
    assert_eq!(stage.node.trees().count(), 1);
    assert_eq!(stage.node.stats().drops.get(Error::StaleAnswer), 3);
}

#[test]
fn a_native_network_without_a_channel_refuses_clients_and_inner_gateways_alone() {
    let mut stage = TestGateway::new(|_, _| ());
    let owner = stage.establish();
    stage.end_of_tables(owner);
    stage.announce(owner, &[gateway(2, 1)], 1);
    let (below, inner) = (stage.add(3), stage.add_as(7, gateway(1, 2)));
    let node = stage.register(1);
    let name = "bfed://2/m";
    stage.joins(below, name);
    stage.serve(node);
    let join = join::Repr {
        hop_limit: 20,
        sroutes: None,
        flows: vec![],
        session: session(name),
    };
    stage.receive(inner, &Message::Join(join)).unwrap();
    let sent = stage.sent();
    respond(&mut stage, node, &sent, Outcome::Full, subscribed(false)).unwrap();
    let sent = stage.serve(node);
    let refused = sent
        .iter()
        .filter(|(_, message)| matches!(message, Message::NoRoute(_)));
    let refused: Vec<_> = refused.map(|(to, _)| *to).collect();
    assert_eq!(refused, [inner]);
    let tree = stage.node.trees().next().unwrap();
    assert_eq!(tree.downstream, [PeerId(3)]);
}

/// The rates of edges to peers in requests to data nodes.
fn rates(stage: &mut TestGateway) -> Vec<(ConnId, u64)> {
    let rates = stage.sent().into_iter().filter_map(|(to, message)| {
        let Message::Subscribe(ask) = message else {
            return None;
        };
        match ask.edge {
            Edge::Peer { rate_bps, .. } => Some((to, rate_bps)),
            Edge::Native => None,
        }
    });
    rates.collect()
}

/// Lets a time pass in which the data nodes live. Returns the rates in requests.
fn pass(stage: &mut TestGateway, millis: u64) -> Vec<(ConnId, u64)> {
    let mut all = Vec::new();
    for _ in 0..millis / 50 {
        stage.wait(50);
        for node in stage.nodes.clone() {
            stage.beat(node);
        }
        all.extend(rates(stage));
    }
    all
}

#[test]
fn the_rate_of_a_link_is_shared_between_data_nodes_by_their_sessions() {
    let mut stage = TestGateway::new(|config, peer| {
        config.hold_time_s = 0;
        config.assignment = Assignment::RoundRobin;
        peer.rate_bps = Some(8000);
    });
    let peer = stage.establish();
    let (one, two) = (stage.register(1), stage.register(2));
    stage.joins(peer, OWN);
    assert_eq!(rates(&mut stage), [(one, 8000)], "all of it");
    assert_eq!(pass(&mut stage, 1000), []);
    stage.joins(peer, OTHER);
    assert_eq!(rates(&mut stage), [(two, 4000)]);
    // The other data node hears of it with the next count.
    assert_eq!(pass(&mut stage, 1000), [(one, 4000)]);
    stage.joins(peer, "bfed://1/c");
    assert_eq!(rates(&mut stage), [(one, 4000)], "not counted yet");
    let mut later = pass(&mut stage, 100);
    later.sort();
    assert_eq!(later, [(one, 5333), (two, 2666)]);
    assert_eq!(pass(&mut stage, 3000), [], "nothing has changed");
    // Sessions leave.
    for name in [OWN, "bfed://1/c"] {
        stage.receive(peer, &Message::Leave(session(name))).unwrap();
    }
    assert_eq!(pass(&mut stage, 1100), [(two, 8000)]);
    // A data node that fails gives its share back.
    stage.joins(peer, OWN);
    pass(&mut stage, 1100);
    stage.node.disconnected(stage.now, two);
    stage.nodes.retain(|node| *node != two);
    let after = pass(&mut stage, 1500);
    assert_eq!(after.last(), Some(&(one, 8000)), "{after:?}");
}

#[test]
fn a_session_of_many_sources_uses_the_link_upwards_too() {
    for (name, rate) in [
        ("bfed://2/m/?multi-source=true", 4000),
        ("bfed://2/m", 8000),
    ] {
        let mut stage = TestGateway::new(|config, peer| {
            config.hold_time_s = 0;
            config.assignment = Assignment::RoundRobin;
            peer.rate_bps = Some(8000);
        });
        let peer = stage.establish();
        stage.end_of_tables(peer);
        stage.announce(peer, &[gateway(2, 1)], 1);
        let one = stage.register(1);
        stage.ask(1, name);
        stage.serve(one);
        let translation = Translation {
            path: vec![gateway(2, 1)],
            flows: channels(&session(name), false, 5),
            session: session(name),
        };
        stage
            .receive(peer, &Message::Translation(translation))
            .unwrap();
        pass(&mut stage, 1100);
        let two = stage.register(2);
        stage.joins(peer, OWN);
        assert_eq!(rates(&mut stage), [(two, rate)], "{name}");
    }
}

#[test]
fn a_data_node_with_more_sessions_than_fit_its_queue_gets_no_refreshes_at_once() {
    for (sessions, refreshed) in [(8, 8), (9, 0)] {
        let mut stage = TestGateway::new(|config, _| config.limits.max_queue = 16);
        let peer = stage.establish();
        let node = stage.register(1);
        for number in 0..sessions {
            stage.joins(peer, &format!("bfed://1/{number}"));
            stage.serve(node);
        }
        let node = stage.register(1);
        let sent = stage.sent();
        let refreshes = sent.iter().filter(|(to, message)| {
            *to == node && matches!(message, Message::Reclaim(one) if one.what.is_none())
        });
        assert_eq!(refreshes.count(), refreshed);
        // Then it is never told that these are all sessions.
        let mut complete = false;
        for _ in 0..6 {
            stage.wait(250);
            stage.beat(node);
            complete |= stage
                .sent()
                .iter()
                .any(|(_, message)| matches!(message, Message::Heartbeat(beat) if beat.complete));
        }
        assert_eq!(complete, refreshed > 0);
    }
}

#[test]
fn shares_are_counted_again_at_most_once_a_second() {
    let mut stage = TestGateway::new(|config, peer| {
        config.hold_time_s = 0;
        config.assignment = Assignment::RoundRobin;
        peer.rate_bps = Some(8000);
    });
    let peer = stage.establish();
    let (one, two) = (stage.register(1), stage.register(2));
    stage.joins(peer, OWN);
    assert_eq!(pass(&mut stage, 100), [(one, 8000)]);
    stage.joins(peer, OTHER);
    assert_eq!(rates(&mut stage), [(two, 4000)]);
    assert_eq!(pass(&mut stage, 850), []);
    assert_eq!(pass(&mut stage, 150), [(one, 4000)]);
}

#[test]
fn a_new_rate_of_a_link_is_said_at_once_for_sessions_of_both_directions() {
    const UP: &str = "bfed://2/m";
    for (before, after) in [(None, Some(9000)), (Some(9000), None)] {
        let mut stage = TestGateway::new(|config, peer| {
            config.hold_time_s = 0;
            peer.rate_bps = before;
        });
        let peer = stage.establish();
        stage.end_of_tables(peer);
        stage.announce(peer, &[gateway(2, 1)], 1);
        let (up, down) = (stage.register(1), stage.register(2));
        stage.ask(1, UP);
        stage.serve(up);
        let translation = Translation {
            path: vec![gateway(2, 1)],
            flows: channels(&session(UP), false, 5),
            session: session(UP),
        };
        stage
            .receive(peer, &Message::Translation(translation))
            .unwrap();
        stage.serve(up);
        stage.joins(peer, OWN);
        stage.serve(down);
        assert_eq!((stage.node_of(UP), stage.node_of(OWN)), (Some(1), Some(2)));
        pass(&mut stage, 2000);
        let mut config = PeerConfig::new(gateway(2, 1));
        config.rate_bps = after;
        stage.node.add_peer(stage.now, PEER, config).unwrap();
        stage.wait(0);
        let mut told = rates(&mut stage);
        told.sort();
        let rate = after.unwrap_or(0);
        assert_eq!(told, [(up, rate), (down, rate)]);
    }
}
