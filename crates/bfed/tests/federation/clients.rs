//! Clients of one gateway, message by message: their answers, and what is done for them.

use bfed::wire::client::Answer;
use bfed::wire::no_route::{Reason, Repr as NoRoute};
use bfed::wire::reclaim::ReclaimTarget;
use bfed::wire::sroute::{GatewayCost, Outcome, Response};
use bfed::wire::subscribe::Edge;
use bfed::wire::translation::Repr as Translation;
use bfed::wire::{Message, join};
use bfed::*;

use crate::stage::{PEER, TestGateway, channels};
use crate::world::{gateway, session};

const NAME: &str = "bfed://2/m";
/// The other gateway of this network.
const BESIDE: PeerId = PeerId(7);

/// Answers to clients since the last call.
fn answers(stage: &mut TestGateway) -> Vec<(u64, Answer)> {
    let answers = stage.events().into_iter().filter_map(|event| match event {
        Event::Answer { client, answer, .. } => Some((client.0, answer)),
        _ => None,
    });
    answers.collect()
}

fn native() -> Answer {
    let flows = channels(&session(NAME), true, 0);
    Answer::Translation(flows.into_iter().map(|flow| flow.address).collect())
}

/// Gateway 1.1 with a data node; its peer, the owner of network 2, announces itself.
fn scene(change: impl FnOnce(&mut Config)) -> (TestGateway, ConnId, ConnId) {
    let mut stage = TestGateway::new(|config, _| {
        config.hold_time_s = 0;
        change(config);
    });
    let node = stage.register(1);
    let owner = stage.establish();
    stage.end_of_tables(owner);
    stage.announce(owner, &[gateway(2, 1)], 1);
    (stage, node, owner)
}

/// The owner takes a JOIN.
fn translate(stage: &mut TestGateway, owner: ConnId, name: &str) {
    let translation = Translation {
        path: vec![gateway(2, 1)],
        flows: channels(&session(name), false, 5),
        session: session(name),
    };
    stage
        .receive(owner, &Message::Translation(translation))
        .unwrap();
}

fn joins(sent: &[(ConnId, Message)], to: ConnId) -> Vec<join::Repr> {
    let joins = sent.iter().filter_map(|(conn, message)| match message {
        Message::Join(join) if *conn == to => Some(join.clone()),
        _ => None,
    });
    joins.collect()
}

/// What the data node is told to release.
fn reclaimed(sent: &[(ConnId, Message)]) -> Vec<ReclaimTarget> {
    let reclaimed = sent.iter().filter_map(|(_, message)| match message {
        Message::Reclaim(reclaim) => reclaim.what,
        _ => None,
    });
    reclaimed.collect()
}

#[test]
fn a_client_gets_the_native_addresses_once_the_owner_has_taken_the_join() {
    let (mut stage, node, owner) = scene(|_| ());
    stage.ask(1, NAME);
    let sent = stage.serve(node);
    let [join] = &joins(&sent, owner)[..] else {
        panic!("{sent:?}");
    };
    assert_eq!(join.flows, channels(&session(NAME), false, 0));
    assert_eq!(answers(&mut stage), []);
    translate(&mut stage, owner, NAME);
    assert_eq!(stage.serve(node), []);
    let events = stage.events();
    let up = Event::TreeUp {
        session: session(NAME),
        path: vec![gateway(2, 1)],
    };
    let answer = Event::Answer {
        client: ClientId(1),
        session: session(NAME),
        answer: native(),
        lifetime_s: 105,
    };
    assert_eq!(events, [up, answer]);
    let tree = stage.node.trees().next().unwrap();
    assert_eq!(
        (tree.upstream, tree.clients, tree.attached),
        (Some(PEER), true, true)
    );
    assert_eq!((tree.path, tree.downstream), (vec![gateway(2, 1)], vec![]));
    let nodes: Vec<_> = stage.node.nodes().collect();
    assert_eq!(nodes, [(NodeId(1), 1, 0)]);
    // The second is answered at once.
    stage.ask(2, NAME);
    assert_eq!(answers(&mut stage), [(2, native())]);
    let stats = stage.node.stats();
    assert_eq!(
        (stats.clients, stats.refused, stats.redirected, stats.trees),
        (2, 0, 0, 1)
    );
}

#[test]
fn a_lifetime_that_is_longer_than_the_answer_can_say_is_shortened() {
    let (mut stage, ..) = scene(|config| {
        config.soft_state_lifetime = Duration::from_secs(100_000);
    });
    stage.ask(1, "bfed://1/m");
    let lifetimes = stage.events().into_iter().filter_map(|event| match event {
        Event::Answer { lifetime_s, .. } => Some(lifetime_s),
        _ => None,
    });
    assert!(lifetimes.eq([u16::MAX]));
}

#[test]
fn sessions_of_this_network_are_local_by_number_and_by_name() {
    let (mut stage, ..) = scene(|config| {
        let names = [("own.net", 1), ("other.net", 2)];
        let names = names.map(|(name, number)| (name.into(), BnNum::new(number).unwrap()));
        config.names = names.into();
    });
    stage.ask(1, "bfed://1/m");
    stage.ask(2, "bfed://own.net/m");
    let local = Answer::NoRoute(Reason::Local);
    assert_eq!(answers(&mut stage), [(1, local.clone()), (2, local)]);
    assert_eq!(stage.node.stats().refused, 2);
    stage.ask(3, "bfed://other.net/m");
    stage.ask(4, "bfed://unknown.net/m");
    assert_eq!(
        stage.events(),
        [Event::Resolve("unknown.net".into())],
        "it waits"
    );
    assert_eq!(stage.node.trees().count(), 2);
}

#[test]
fn each_name_is_resolved_once_and_for_all_its_sessions() {
    let (mut stage, node, owner) = scene(|_| ());
    for (client, name) in ["bfed://two.net/a", "bfed://two.net/b"]
        .into_iter()
        .enumerate()
    {
        stage.ask(client as u64, name);
    }
    assert_eq!(stage.events(), [Event::Resolve("two.net".into())]);
    stage.node.resolved(stage.now, "two.net", BnNum::new(2));
    let sent = stage.serve(node);
    assert_eq!(joins(&sent, owner).len(), 2);
    // It is asked again for a session that comes later.
    stage.ask(3, "bfed://two.net/c");
    assert_eq!(stage.events(), [Event::Resolve("two.net".into())]);
    stage.node.resolved(stage.now, "two.net", None);
    let refused = Answer::NoRoute(Reason::UnknownOwner);
    assert_eq!(answers(&mut stage), [(3, refused.clone())]);
    // Remembered for a while.
    stage.ask(4, "bfed://two.net/c");
    assert_eq!(answers(&mut stage), [(4, refused)]);
}

#[test]
fn a_name_that_is_resolved_late_concerns_no_other_session() {
    for network in [BnNum::new(9), None] {
        let (mut stage, node, owner) = scene(|_| ());
        let below = stage.add(2);
        let slow = "bfed://slow.net/m";
        stage.joins(below, slow);
        let leave = Message::Leave(session(slow));
        stage.receive(below, &leave).unwrap();
        assert_eq!(stage.node.trees().count(), 0);
        // It has the place of the first.
        stage.ask(2, NAME);
        stage.serve(node);
        stage.events();
        stage.node.resolved(stage.now, "slow.net", network);
        assert_eq!(stage.events(), []);
        translate(&mut stage, owner, NAME);
        assert_eq!(answers(&mut stage), [(2, native())], "{network:?}");
    }
}

#[test]
fn a_name_that_is_resolved_late_concerns_no_session_that_waits_for_another() {
    for network in [BnNum::new(9), None] {
        let (mut stage, node, owner) = scene(|_| ());
        let below = stage.add(2);
        let (slow, late) = ("bfed://slow.net/m", "bfed://late.net/m");
        stage.joins(below, slow);
        let leave = Message::Leave(session(slow));
        stage.receive(below, &leave).unwrap();
        // It has the place of the one that has ended.
        stage.ask(2, late);
        stage.events();
        stage.node.resolved(stage.now, "slow.net", network);
        assert_eq!(stage.events(), [], "{network:?}");
        stage.node.resolved(stage.now, "late.net", BnNum::new(2));
        assert_eq!(joins(&stage.serve(node), owner).len(), 1);
    }
}

#[test]
fn clients_that_wait_are_bounded() {
    let (mut stage, ..) = scene(|config| config.limits.max_waiting = 2);
    for client in 1..=4 {
        stage.ask(client, NAME);
    }
    let full = Answer::NoRoute(Reason::Limit);
    assert_eq!(answers(&mut stage), [(3, full.clone()), (4, full)]);
    let stats = stage.node.stats();
    assert_eq!((stats.clients, stats.refused), (4, 2));
}

#[test]
fn new_sessions_of_all_clients_have_a_rate() {
    let (mut stage, ..) = scene(|config| config.limits.new_sessions_per_second = 3);
    for client in 0..10 {
        stage.ask(client, &format!("bfed://2/{client}"));
    }
    assert_eq!(stage.node.trees().count(), 6, "twice the rate at once");
    let refused = answers(&mut stage);
    assert!(
        refused
            .iter()
            .all(|(_, answer)| *answer == Answer::NoRoute(Reason::Policy))
    );
    assert_eq!(refused.len(), 4);
}

#[test]
fn the_last_client_to_leave_ends_the_tree() {
    let (mut stage, node, owner) = scene(|_| ());
    stage.ask(1, NAME);
    stage.serve(node);
    translate(&mut stage, owner, NAME);
    stage.serve(node);
    stage.events();
    stage.node.leave(stage.now, &session("bfed://2/other"));
    assert_eq!(stage.serve(node), []);
    stage.node.leave(stage.now, &session(NAME));
    let sent = stage.serve(node);
    assert!(sent.contains(&(owner, Message::Leave(session(NAME)))));
    assert!(reclaimed(&sent).contains(&ReclaimTarget::All));
    assert_eq!(
        stage.events(),
        [Event::TreeDown(session(NAME))],
        "no client waits for an answer"
    );
    assert_eq!(stage.node.trees().count(), 0);
    assert!(stage.node.coordinator().is_empty());
    assert!(stage.node.nodes().eq([(NodeId(1), 0, 0)]));
}

#[test]
fn a_client_lives_by_its_requests_not_by_questions_for_the_cost() {
    for asks_again in [true, false] {
        let (mut stage, node, owner) = scene(|_| ());
        stage.ask(1, NAME);
        stage.serve(node);
        translate(&mut stage, owner, NAME);
        stage.live(node, 100);
        if asks_again {
            stage.ask(1, NAME);
        } else {
            stage.node.ask_cost(stage.now, ClientId(2), session(NAME));
            let answers = answers(&mut stage);
            let cost = (2, Answer::Cost(Cost(2)));
            assert!(answers.contains(&cost), "{answers:?}");
        }
        stage.live(node, 4);
        assert_eq!(stage.node.trees().count(), 1);
        stage.live(node, 2);
        assert_eq!(stage.node.trees().count(), usize::from(asks_again));
        stage.live(node, 98);
        assert_eq!(stage.node.trees().count(), usize::from(asks_again));
        stage.live(node, 3);
        assert_eq!(stage.node.trees().count(), 0);
    }
}

#[test]
fn a_tree_without_clients_keeps_what_peers_want() {
    let (mut stage, node, owner) = scene(|_| ());
    let below = stage.add(2);
    stage.ask(1, NAME);
    stage.joins(below, NAME);
    stage.serve(node);
    translate(&mut stage, owner, NAME);
    stage.serve(node);
    stage.events();
    stage.node.leave(stage.now, &session(NAME));
    assert_eq!(
        reclaimed(&stage.serve(node)),
        [ReclaimTarget::Receiver(Edge::Native)]
    );
    let tree = stage.node.trees().next().unwrap();
    assert_eq!((tree.downstream, tree.clients), (vec![PeerId(2)], false));
    // Nothing is left to be released twice.
    stage.node.leave(stage.now, &session(NAME));
    assert_eq!(reclaimed(&stage.serve(node)), []);
}

#[test]
fn a_client_that_asks_again_keeps_the_native_channel_of_a_session_without_a_way() {
    let (mut stage, node, owner) = scene(|_| ());
    stage.ask(1, NAME);
    stage.serve(node);
    translate(&mut stage, owner, NAME);
    stage.serve(node);
    let refusal = NoRoute {
        reason: Reason::Limit,
        session: session(NAME),
    };
    stage.receive(owner, &Message::NoRoute(refusal)).unwrap();
    stage.serve(node);
    stage.ask(1, NAME);
    stage.wait(0);
    assert_eq!(reclaimed(&stage.serve(node)), []);
    assert_eq!(stage.node.trees().count(), 1);
}

#[test]
fn clients_that_have_a_session_hear_that_it_ended() {
    for answered in [true, false] {
        let (mut stage, node, owner) = scene(|_| ());
        stage.ask(1, NAME);
        stage.serve(node);
        if answered {
            translate(&mut stage, owner, NAME);
            stage.serve(node);
        }
        stage.events();
        let refusal = NoRoute {
            reason: Reason::NoSession,
            session: session(NAME),
        };
        stage.receive(owner, &Message::NoRoute(refusal)).unwrap();
        let events = stage.events();
        let ended = Event::Ended {
            session: session(NAME),
            reason: Reason::NoSession,
        };
        assert_eq!(events.contains(&ended), answered, "{events:?}");
        assert_eq!(events.contains(&Event::TreeDown(session(NAME))), answered);
        let refused = events
            .iter()
            .any(|event| matches!(event, Event::Answer { .. }));
        assert_eq!(refused, !answered);
        // Those that come next are refused from memory.
        stage.ask(2, NAME);
        let refused = Answer::NoRoute(Reason::NoSession);
        assert_eq!(answers(&mut stage), [(2, refused)]);
        assert!(reclaimed(&stage.serve(node)).contains(&ReclaimTarget::All));
    }
}

/// A gateway of network 1 that has a route to network 2 through another gateway of its network alone, and what
/// its clients want.
fn inner(number: u32, other: u32) -> (TestGateway, ConnId, ConnId) {
    let mut stage = TestGateway::new(|config, _| config.gateway = gateway(1, number));
    let node = stage.register(1);
    let beside = stage.add_as(BESIDE.0, gateway(1, other));
    stage.announce(beside, &[gateway(1, other), gateway(2, 1)], 5);
    (stage, node, beside)
}

#[test]
fn a_client_of_an_inner_gateway_is_redirected_with_what_is_known() {
    let (mut stage, node, beside) = inner(1, 2);
    stage.ask(1, NAME);
    let redirect = Answer::Redirect {
        gateway: gateway(1, 2),
        mediator: String::new(),
    };
    assert_eq!(answers(&mut stage), [(1, redirect.clone())]);
    assert_eq!(stage.serve(node), [], "nothing is known");
    assert_eq!(stage.node.trees().count(), 0);
    // Costs that the other gateway sent for a client before.
    let one = GatewayCost {
        gateway: gateway(2, 1),
        cost: Cost(3),
    };
    for costs in [vec![one], vec![]] {
        let outcome = if costs.is_empty() {
            Outcome::Null
        } else {
            Outcome::Costs
        };
        let update = Response {
            request: 0,
            outcome,
            costs,
            session: session(NAME),
        };
        let update = Message::SrouteResponse(update);
        stage.receive(beside, &update).unwrap();
        stage.ask(1, NAME);
        assert_eq!(answers(&mut stage), [(1, redirect.clone())]);
        assert_eq!(stage.serve(node), [(beside, update)]);
    }
    let stats = stage.node.stats();
    assert_eq!((stats.redirected, stats.refused), (3, 0));
}

#[test]
fn an_inner_gateway_that_carries_a_session_serves_more_clients_itself() {
    let (mut stage, node, beside) = inner(1, 2);
    let client = ClientId(1);
    let now = stage.now;
    stage
        .node
        .join(now, client, session(NAME), 2, Scope::Chosen);
    let sent = stage.serve(node);
    let [join] = &joins(&sent, beside)[..] else {
        panic!("{sent:?}");
    };
    assert!(join.flows.is_empty(), "over the native broadcast");
    // Until it carries it, others are sent on.
    stage.ask(2, NAME);
    assert!(matches!(
        answers(&mut stage)[..],
        [(2, Answer::Redirect { .. })]
    ));
    let translation = Translation {
        path: vec![gateway(1, 2), gateway(2, 1)],
        flows: channels(&session(NAME), true, 0),
        session: session(NAME),
    };
    stage
        .receive(beside, &Message::Translation(translation))
        .unwrap();
    stage.serve(node);
    assert_eq!(answers(&mut stage), [(1, native())]);
    stage.ask(3, NAME);
    assert_eq!(answers(&mut stage), [(3, native())]);
}

#[test]
fn of_gateways_that_hear_a_client_the_nearer_answers_or_the_one_with_the_lower_number() {
    // Own number, number and cost of the other; the own route costs 2 in all.
    for (own, other, cost, answers_itself) in [
        (1, 2, 2, true),
        (2, 1, 2, false),
        (1, 2, 1, false),
        (2, 1, 3, true),
    ] {
        let mut stage = TestGateway::new(|config, _| config.gateway = gateway(1, own));
        let node = stage.register(1);
        let owner = stage.establish();
        stage.end_of_tables(owner);
        stage.announce(owner, &[gateway(2, 1)], 1);
        let beside = stage.add_as(BESIDE.0, gateway(1, other));
        stage.announce(beside, &[gateway(1, other), gateway(2, 1)], cost);
        let (now, client) = (stage.now, ClientId(1));
        stage.node.join(now, client, session(NAME), 0, Scope::Heard);
        let sent = stage.serve(node);
        let case = (own, other, cost);
        assert_eq!(
            joins(&sent, owner).len(),
            usize::from(answers_itself),
            "{case:?} {sent:?}"
        );
        assert_eq!(stage.node.trees().count(), usize::from(answers_itself));
        assert_eq!(
            answers(&mut stage),
            [],
            "the other answers, or it is too early"
        );
    }
}

#[test]
fn a_gateway_without_the_table_leaves_clients_that_all_hear_to_a_gateway_that_has_it() {
    let table = session(NAME).table();
    let others = Table::all().filter(|other| *other != table);
    let without = others.fold(Tables::NONE, Tables::with);
    let refused = |client| (client, Answer::NoRoute(Reason::Policy));
    for (tables, is_left) in [(Tables::ALL, true), (without, false)] {
        let mut stage = TestGateway::new(|config, _| config.tables = without);
        let beside = stage.add_with(BESIDE.0, gateway(1, 2), tables);
        let hears = |stage: &mut TestGateway, client: u64| {
            let (now, id) = (stage.now, ClientId(client));
            stage.node.join(now, id, session(NAME), 0, Scope::Heard);
            answers(stage)
        };
        let refusal = [refused(1)];
        let expected = if is_left { &[][..] } else { &refusal };
        assert_eq!(hears(&mut stage, 1), expected, "{tables:?}");
        stage.ask(2, NAME);
        assert_eq!(answers(&mut stage), [refused(2)], "no other was asked");
        stage.node.disconnected(stage.now, beside);
        assert_eq!(hears(&mut stage, 3), [refused(3)], "no other is there");
    }
}

#[test]
fn gateways_that_hear_a_client_pass_on_the_costs_that_decide_which_of_them_answers() {
    // The cost of the owner's gateway is higher than those of all links: both are as near then.
    let session = session("bfed://2/m/?metric=bandwidth");
    let costs = Message::SrouteResponse(Response {
        request: 0,
        outcome: Outcome::Costs,
        costs: vec![GatewayCost {
            gateway: gateway(2, 1),
            cost: Cost(7),
        }],
        session: session.clone(),
    });
    // The own number and cost, those of the other, the cost of the link between them, and whether this gateway answers
    // without costs and with them. Over a link that costs little the own route is worse than that of the other, which
    // does not hear of it.
    for (own, cost, other, others_cost, link, answers) in [
        (2, 1, 1, 3, 1, [true, false]),
        (1, 3, 2, 1, 5, [false, true]),
        (1, 3, 2, 1, 1, [false, false]),
    ] {
        for is_known in [false, true] {
            let mut stage = TestGateway::new(|config, _| config.gateway = gateway(1, own));
            let node = stage.register(1);
            let owner = stage.establish();
            stage.end_of_tables(owner);
            stage.announce(owner, &[gateway(2, 1)], cost);
            let mut config = PeerConfig::new(gateway(1, other));
            config.link = Costs::uniform(Cost(link));
            let beside = stage.add_configured(BESIDE.0, config, Tables::ALL);
            stage.announce(beside, &[gateway(1, other), gateway(2, 1)], others_cost);
            if is_known {
                stage.receive(beside, &costs).unwrap();
            }
            let (now, client) = (stage.now, ClientId(1));
            let name = session.clone();
            stage.node.join(now, client, name, 0, Scope::Heard);
            let sent = stage.serve(node);
            let case = (own, link, is_known);
            let answers_itself = answers[usize::from(is_known)];
            assert_eq!(
                joins(&sent, owner).len(),
                usize::from(answers_itself),
                "{case:?} {sent:?}"
            );
            let is_passed = sent.contains(&(beside, costs.clone()));
            let is_decisive = is_known && answers[0] != answers[1];
            assert_eq!(is_passed, is_decisive, "{case:?} {sent:?}");
        }
    }
}
