//! Requests to a data node, and what follows from its answers.

use bfed::wire::allocate::{Outcome, Response};
use bfed::wire::no_route::Reason as Refusal;
use bfed::wire::{Message, join};
use bfed::*;

use crate::stage::TestGateway;
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
