//! Authorisation: sessions that peers and clients may publish, join and carry.

use bfed::authorise::{Action, Right, Rule, Rules, Subject};
use bfed::wire::Message;
use bfed::wire::client::Answer;
use bfed::wire::no_route::Reason;
use bfed::*;

use crate::stage::{PEER, TestGateway};
use crate::world::{gateway, session};

const OWN: &str = "bfed://1/239.1.2.3";
const FAR: &str = "bfed://2/m";

fn deny(name: &str, right: Right, pattern: &str) -> Rule {
    Rule {
        name: name.into(),
        action: Action::Deny,
        rights: vec![right],
        sessions: vec![pattern.parse().unwrap()],
        ..Rule::default()
    }
}

fn rules(rules: Vec<Rule>) -> Rules {
    Rules {
        rules,
        otherwise: Action::Allow,
    }
}

fn scene(authorisation: Rules) -> (TestGateway, ConnId) {
    let mut stage = TestGateway::new(|config, _| {
        config.hold_time_s = 0;
        config.authorisation = authorisation;
        config
            .names
            .insert("one.example".into(), BnNum::new(1).unwrap());
    });
    stage.register(1);
    let owner = stage.establish();
    stage.end_of_tables(owner);
    stage.announce(owner, &[gateway(2, 1)], 1);
    (stage, owner)
}

/// Refusals that were sent to peers.
fn refusals(stage: &mut TestGateway) -> Vec<(String, Reason)> {
    let sent = stage
        .sent()
        .into_iter()
        .filter_map(|(_, message)| match message {
            Message::NoRoute(no_route) => Some((no_route.session.to_string(), no_route.reason)),
            _ => None,
        });
    sent.collect()
}

/// Answers to clients, and the ends of their sessions.
fn answers(stage: &mut TestGateway) -> (Vec<Answer>, Vec<Reason>) {
    let (mut answers, mut ends) = (Vec::new(), Vec::new());
    for event in stage.events() {
        match event {
            Event::Answer { answer, .. } => answers.push(answer),
            Event::Ended { reason, .. } => ends.push(reason),
            _ => {}
        }
    }
    (answers, ends)
}

fn counters(stage: &TestGateway) -> Vec<(String, usize, u64)> {
    let rows = stage.node.rules();
    rows.map(|row| (row.name.into(), row.sessions, row.denied))
        .collect()
}

fn row(name: &str, sessions: usize, denied: u64) -> (String, usize, u64) {
    (name.into(), sessions, denied)
}

fn reload(stage: &mut TestGateway, authorisation: Rules) {
    let mut config = stage.node.config().clone();
    config.authorisation = authorisation;
    let peers = [(PEER, PeerConfig::new(gateway(2, 1)))].into();
    stage.node.reconfigure(stage.now, config, peers).unwrap();
    stage.wait(0);
}

fn ask_from(stage: &mut TestGateway, client: u64, name: &str, from: &str) {
    let request = ClientRequest {
        subject: Subject::Client(Some(from.parse().unwrap())),
        ..ClientRequest::new(ClientId(client), session(name))
    };
    stage.node.client_requests(stage.now, request);
}

#[test]
fn a_session_that_may_not_be_published_is_refused_under_any_spelling() {
    let (mut stage, owner) = scene(rules(vec![deny(
        "secret",
        Right::Publish,
        "bfed://1/239.1.*",
    )]));
    stage.sent();
    for name in [
        OWN,
        "bfed://one.example/239.1.2.3",
        "bfed://0.0.0.1/239.1.2.3/5004/?metric=latency",
    ] {
        assert_eq!(stage.join(owner, name), Err(Error::JoinRefused));
        let expected = (session(name).to_string(), Reason::Policy);
        assert_eq!(refusals(&mut stage), [expected]);
    }
    assert!(stage.join(owner, "bfed://1/239.2.2.3").is_ok());
    assert_eq!(
        counters(&stage),
        [row("secret", 0, 3), row("default", 1, 0)]
    );
    assert_eq!(stage.node.trees().count(), 1);
    let denials = stage
        .events()
        .into_iter()
        .filter(|event| matches!(event, Event::Denied { .. }));
    assert_eq!(denials.count(), 3);
}

#[test]
fn an_owner_that_is_resolved_later_is_decided_about_before_it_is_subscribed_to() {
    let (mut stage, owner) = scene(rules(vec![deny("secret", Right::Publish, "bfed://1")]));
    let name = "bfed://late.example/m";
    assert!(stage.join(owner, name).is_ok());
    stage.sent();
    stage
        .node
        .resolved(stage.now, "late.example", BnNum::new(1));
    assert_eq!(refusals(&mut stage), [(name.to_owned(), Reason::Policy)]);
    assert_eq!(stage.node.trees().count(), 0);
    assert_eq!(counters(&stage)[0], row("secret", 0, 1));
}

#[test]
fn the_bound_of_a_rule_counts_sessions_until_they_end() {
    let few = Rule {
        name: "few".into(),
        rights: vec![Right::Publish],
        max_sessions: Some(2),
        ..Rule::default()
    };
    let (mut stage, owner) = scene(rules(vec![few]));
    let name = |number: u32| format!("bfed://1/239.2.0.{number}");
    for number in [1, 2, 1] {
        assert!(
            stage.join(owner, &name(number)).is_ok(),
            "a refresh counts once"
        );
    }
    assert!(stage.join(owner, &name(3)).is_err());
    assert_eq!(counters(&stage)[0], row("few", 2, 1));
    stage
        .receive(owner, &Message::Leave(session(&name(1))))
        .unwrap();
    assert_eq!(counters(&stage)[0], row("few", 1, 1));
    assert!(stage.join(owner, &name(3)).is_ok());
    // The peer is gone, and its sessions with it.
    stage.node.remove_peer(stage.now, PEER);
    stage.wait(0);
    assert_eq!(counters(&stage)[0], row("few", 0, 1));
}

#[test]
fn clients_are_decided_about_by_their_address() {
    let office = Rule {
        name: "office".into(),
        rights: vec![Right::Join],
        clients: vec!["10.0.0.0/8".parse().unwrap()],
        ..Rule::default()
    };
    let (mut stage, _) = scene(Rules {
        rules: vec![office],
        otherwise: Action::Deny,
    });
    ask_from(&mut stage, 1, FAR, "192.0.2.1");
    assert_eq!(answers(&mut stage).0, [Answer::NoRoute(Reason::Policy)]);
    assert_eq!(stage.node.trees().count(), 0);
    ask_from(&mut stage, 2, FAR, "10.1.1.1");
    assert_eq!(stage.node.trees().count(), 1);
    // The cost is for those who may join alone.
    let cost_only = true;
    let request = ClientRequest {
        cost_only,
        ..ClientRequest::new(ClientId(3), session(FAR))
    };
    stage.node.client_requests(stage.now, request);
    assert_eq!(answers(&mut stage).0, [Answer::NoRoute(Reason::Policy)]);
    assert_eq!(
        counters(&stage),
        [row("office", 1, 0), row("default", 0, 2)]
    );
    stage.node.leave(stage.now, &session(FAR));
}

#[test]
fn new_rules_end_sessions_that_exist() {
    let (mut stage, owner) = scene(Rules::default());
    assert!(stage.join(owner, OWN).is_ok());
    stage.ask(1, FAR);
    stage.sent();
    stage.events();
    let changed = rules(vec![
        deny("secret", Right::Publish, "bfed://1"),
        deny("closed", Right::Join, "bfed://2"),
    ]);
    reload(&mut stage, changed);
    assert_eq!(refusals(&mut stage), [(OWN.to_owned(), Reason::Policy)]);
    assert_eq!(answers(&mut stage).0, [Answer::NoRoute(Reason::Policy)]);
    assert_eq!(stage.node.trees().count(), 0);
    assert_eq!(
        counters(&stage),
        [
            row("secret", 0, 1),
            row("closed", 0, 1),
            row("default", 0, 0)
        ]
    );
}

#[test]
fn sessions_of_other_networks_are_carried_only_as_the_rules_allow() {
    let (mut stage, _) = scene(rules(vec![deny("no transit", Right::Carry, "bfed://2")]));
    // A gateway of network 3.
    let below = stage.add(2);
    assert_eq!(stage.join(below, FAR), Err(Error::JoinRefused));
    assert_eq!(refusals(&mut stage), [(FAR.to_owned(), Reason::Policy)]);
    // Clients of this network have the session all the same.
    stage.ask(1, FAR);
    assert_eq!(stage.node.trees().count(), 1);
    assert_eq!(counters(&stage)[0], row("no transit", 0, 1));
}

#[test]
fn a_peer_announces_only_networks_granted_to_it() {
    let granted = |first, last| NetworkRange {
        first: BnNum::new(first).unwrap(),
        last: BnNum::new(last).unwrap(),
    };
    let mut stage = TestGateway::new(|config, peer| {
        config.hold_time_s = 0;
        peer.networks = vec![granted(2, 2), granted(10, 19)];
    });
    let owner = stage.establish();
    stage.end_of_tables(owner);
    for network in [2, 3, 9, 10, 19, 20] {
        stage.announce(owner, &[gateway(2, 1), gateway(network, 7)], 1);
    }
    let best = |stage: &TestGateway| {
        let table = Table::new(Metric::Hops, Content::Bulk, false);
        let best = stage
            .node
            .routes()
            .filter(|route| route.best && route.table == table);
        best.map(|route| route.destination.network.get())
            .collect::<Vec<_>>()
    };
    assert_eq!(best(&stage), [2, 10, 19]);
    assert!(stage.node.stats().routes.not_granted >= 3);
    // Granted later, the routes that were kept as rejected ones count.
    let config = stage.node.config().clone();
    let peers = [(PEER, PeerConfig::new(gateway(2, 1)))].into();
    stage.node.reconfigure(stage.now, config, peers).unwrap();
    assert_eq!(best(&stage), [2, 3, 9, 10, 19, 20]);
}
