//! Trees with reasons of their own to be elsewhere than where routes alone lead: costs, and clients that wait.

use bfed::wire::Message;
use bfed::wire::sroute::{Outcome, Response};
use bfed::wire::translation::Repr as Translation;
use bfed::*;

use crate::costs::{NAME, cost, requests, response, scene};
use crate::stage::{TestGateway, channels};
use crate::upstream::joins;
use crate::world::{gateway, session};

#[test]
fn a_tree_with_costs_follows_a_change_that_moves_no_other() {
    let mut scene = scene(|config| config.damping = None);
    let asked = scene.ask();
    let costs = [cost(9, 1, 5), cost(9, 2, 4)];
    let answer = response(asked.request, NAME, Outcome::Costs, &costs);
    scene.receive(scene.near, answer).unwrap();
    assert_eq!(joins(&scene.serve()), [scene.near]);
    let translation = Translation {
        path: vec![gateway(2, 1), gateway(9, 1)],
        flows: channels(&session(NAME), false, 5),
        session: session(NAME),
    };
    scene
        .receive(scene.near, Message::Translation(translation))
        .unwrap();
    scene.serve();
    // No client waits any more.
    scene.stage.live(scene.node, 31);
    // Routes alone still lead to the first: it costs as much, and has the lower number.
    let update = wire::update::Repr {
        table: session(NAME).table(),
        withdrawn: vec![],
        announced: vec![wire::update::Announced {
            destination: gateway(9, 2),
            attributes: wire::attributes::Attributes {
                cost: Cost(1),
                path: vec![gateway(3, 1), gateway(9, 2)],
                tags: vec![],
            },
        }],
    };
    scene.receive(scene.far, Message::Update(update)).unwrap();
    scene.stage.wait(0);
    assert_eq!(joins(&scene.serve()), [scene.far]);
}

/// Gateway 1.2 with a data node, its peer 2.1 that owns the sessions, and another gateway of its network, 1.1.
fn beside() -> (TestGateway, ConnId, ConnId, ConnId) {
    let mut stage = TestGateway::new(|config, _| {
        config.hold_time_s = 0;
        config.damping = None;
        config.gateway = gateway(1, 2);
    });
    let node = stage.register(1);
    let owner = stage.establish();
    stage.end_of_tables(owner);
    stage.announce(owner, &[gateway(2, 1)], 1);
    let beside = stage.add_as(7, gateway(1, 1));
    (stage, node, owner, beside)
}

fn hear(stage: &mut TestGateway, name: &str) {
    let (now, client) = (stage.now, ClientId(1));
    stage.node.join(now, client, session(name), 0, Scope::Heard);
}

#[test]
fn a_client_that_waits_is_left_to_another_gateway_that_has_become_nearer() {
    const NAME: &str = "bfed://2/m";
    let (mut stage, node, owner, beside) = beside();
    stage.announce(beside, &[gateway(1, 1), gateway(2, 1)], 3);
    hear(&mut stage, NAME);
    assert_eq!(joins(&stage.serve(node)), [owner]);
    let update = wire::update::Repr {
        table: session(NAME).table(),
        withdrawn: vec![],
        announced: vec![wire::update::Announced {
            destination: gateway(2, 1),
            attributes: wire::attributes::Attributes {
                cost: Cost(1),
                path: vec![gateway(1, 1), gateway(2, 1)],
                tags: vec![],
            },
        }],
    };
    stage.receive(beside, &Message::Update(update)).unwrap();
    stage.wait(0);
    stage.serve(node);
    let translation = Translation {
        path: vec![gateway(2, 1)],
        flows: channels(&session(NAME), false, 5),
        session: session(NAME),
    };
    stage
        .receive(owner, &Message::Translation(translation))
        .unwrap();
    stage.serve(node);
    let is_answer = |event: &Event| matches!(event, Event::Answer { .. });
    assert!(!stage.events().iter().any(is_answer), "the other answers");
}

#[test]
fn which_gateway_is_nearer_depends_on_the_owners_costs() {
    const NAME: &str = "bfed://2/m";
    for (dearer, answers_itself) in [(2, true), (1, false)] {
        let (mut stage, node, owner, beside) = beside();
        // The other is nearer to a gateway of the owner, this one to another.
        stage.announce(beside, &[gateway(1, 1), gateway(2, 2)], 1);
        let costs = [1, 2].map(|number| cost(2, number, if number == dearer { 10 } else { 1 }));
        let update = Response {
            request: 0,
            outcome: Outcome::Costs,
            costs: costs.to_vec(),
            session: session(NAME),
        };
        stage
            .receive(beside, &Message::SrouteResponse(update))
            .unwrap();
        hear(&mut stage, NAME);
        let expected = if answers_itself { vec![owner] } else { vec![] };
        assert_eq!(joins(&stage.serve(node)), expected);
        assert_eq!(stage.node.trees().count(), usize::from(answers_itself));
    }
}

#[test]
fn a_request_for_costs_is_not_repeated_by_a_refresh_while_it_is_open() {
    let mut scene = scene(|config| {
        config.refresh_interval = Duration::from_secs(10);
        config.sroute_timeout = Duration::from_secs(20);
    });
    scene.ask();
    let sent = scene.stage.live(scene.node, 19);
    assert_eq!((requests(&sent), joins(&sent)), (vec![], vec![]));
    let sent = scene.stage.live(scene.node, 2);
    assert_eq!(joins(&sent), [scene.near], "without an answer in time");
}
