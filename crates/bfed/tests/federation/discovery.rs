//! What a gateway does with session-specific costs: it asks for them, follows them and passes them on (section 5.2.2).

use bfed::wire::client::Answer;
use bfed::wire::no_route::Reason;
use bfed::wire::sroute::{GatewayCost, Outcome};
use bfed::wire::translation::Repr as Translation;
use bfed::wire::{Message, join};
use bfed::*;

use crate::costs::{NAME, Scene, cost, request, requests, response, scene};
use crate::stage::{PEER, channels};
use crate::world::{gateway, session};

fn joined(sent: &[(ConnId, Message)]) -> Vec<(ConnId, Option<Vec<GatewayCost>>)> {
    let joins = sent.iter().filter_map(|(conn, message)| match message {
        Message::Join(join) => Some((*conn, join.sroutes.clone())),
        _ => None,
    });
    joins.collect()
}

#[test]
fn costs_decide_between_next_hops() {
    let mut scene = scene(|_| ());
    let asked = scene.ask();
    assert_eq!((asked.towards, asked.internal), (gateway(9, 1), false));
    assert_eq!(asked.gateways, [gateway(9, 1), gateway(9, 2)]);
    assert!(asked.hop_limit > 1);
    let (near, far) = (scene.near, scene.far);
    // Answers of others, to other numbers or for other sessions are none.
    let costs = [cost(9, 1, 7), cost(9, 2, 1), cost(8, 1, 0)];
    let number = asked.request;
    for (from, number, name) in [
        (far, number, NAME),
        (near, number ^ 2, NAME),
        (near, number, "bfed://9/other"),
    ] {
        let wrong = scene.receive(from, response(number, name, Outcome::Costs, &costs));
        assert_eq!(wrong, Err(Error::SrouteUnasked));
    }
    scene
        .receive(near, response(number, NAME, Outcome::Costs, &costs))
        .unwrap();
    let sent = scene.serve();
    // The cost of a gateway outside the owner's network is not kept.
    let kept = Some(costs[..2].to_vec());
    assert_eq!(joined(&sent), [(far, kept)], "{sent:?}");
    let again = scene.receive(near, response(number, NAME, Outcome::Costs, &costs));
    assert_eq!(again, Err(Error::SrouteUnasked));
    let stats = scene.stage.node.stats();
    assert_eq!((stats.discoveries, stats.discoveries_failed), (1, 0));
}

#[test]
fn null_no_route_and_silence_leave_it_to_the_routes() {
    for answer in [Some(Outcome::Null), Some(Outcome::NoRoute), None] {
        let mut scene = scene(|_| ());
        let asked = scene.ask();
        let near = scene.near;
        let mut sent = Vec::new();
        if let Some(outcome) = answer {
            scene
                .receive(near, response(asked.request, NAME, outcome, &[]))
                .unwrap();
        } else {
            sent.extend(scene.stage.live(scene.node, 1));
            assert_eq!(joined(&sent), []);
            sent.extend(scene.stage.live(scene.node, 1));
        }
        sent.extend(scene.serve());
        let costs = (answer == Some(Outcome::Null)).then(Vec::new);
        assert_eq!(joined(&sent), [(near, costs)], "{answer:?}");
        assert_eq!(requests(&sent), [], "once until the next refresh");
        let failed = u64::from(answer.is_none());
        assert_eq!(scene.stage.node.stats().discoveries_failed, failed);
    }
}

#[test]
fn without_an_answer_costs_are_asked_for_again_with_the_next_refresh() {
    let mut scene = scene(|_| ());
    scene.ask();
    let node = scene.node;
    let sent = scene.stage.live(node, 3);
    assert_eq!(joined(&sent).len(), 1);
    let near = scene.near;
    let translation = Translation {
        path: vec![gateway(2, 1), gateway(9, 1)],
        flows: channels(&session(NAME), false, 5),
        session: session(NAME),
    };
    scene
        .receive(near, Message::Translation(translation))
        .unwrap();
    let sent = scene.stage.live(node, 15);
    assert_eq!(requests(&sent), []);
    let sent = scene.stage.live(node, 16);
    assert_eq!(requests(&sent).len(), 1);
}

#[test]
fn a_session_without_a_data_node_is_not_examined_again_and_again_while_costs_are_asked_for() {
    let mut scene = scene(|config| {
        config.refresh_interval = Duration::from_secs(4);
        config.sroute_timeout = Duration::from_secs(3);
    });
    let (near, now) = (scene.near, scene.stage.now);
    scene.stage.node.disconnected(now, scene.node);
    scene.stage.wait(1000);
    let asked = scene.ask();
    let unknown = response(asked.request, NAME, Outcome::NoRoute, &[]);
    scene.receive(near, unknown).unwrap();
    scene.stage.wait(4000);
    assert_eq!(requests(&scene.serve()).len(), 1, "with the refresh");
    scene.stage.events();
    // The join timeout passes before the answer.
    scene.stage.wait(1100);
    assert_eq!(scene.serve(), []);
    let next = scene.stage.node.poll_timeout();
    assert!(next > Some(scene.stage.now), "{next:?}");
    scene.stage.wait(2000);
    let events = scene.stage.events();
    let refused = |event: &Event| match event {
        Event::Answer { answer, .. } => *answer == Answer::NoRoute(Reason::Limit),
        _ => false,
    };
    assert!(events.iter().any(refused), "{events:?}");
    assert_eq!(scene.stage.node.trees().count(), 0);
}

#[test]
fn a_session_that_the_owner_does_not_have_is_refused() {
    let mut scene = scene(|_| ());
    let asked = scene.ask();
    let (near, below) = (scene.near, scene.below);
    scene.stage.joins(below, NAME);
    scene
        .receive(near, response(asked.request, NAME, Outcome::NoSession, &[]))
        .unwrap();
    let refused = scene.stage.events().into_iter().any(|event| {
        matches!(
            event,
            Event::Answer {
                answer: Answer::NoRoute(Reason::NoSession),
                ..
            }
        )
    });
    assert!(refused);
    let sent = scene.serve();
    assert!(sent.iter().any(|(to, message)| *to == below
        && matches!(message, Message::NoRoute(why) if why.reason == Reason::NoSession)));
    assert_eq!(scene.stage.node.trees().count(), 0);
}

/// A JOIN that claims costs.
fn claim(scene: &mut Scene, from: ConnId, costs: Option<Vec<GatewayCost>>) {
    let join = join::Repr {
        hop_limit: 20,
        sroutes: costs,
        flows: channels(&session(NAME), false, 0),
        session: session(NAME),
    };
    scene.receive(from, Message::Join(join)).unwrap();
}

#[test]
fn costs_that_a_join_claims_are_used_for_its_peer_alone() {
    let mut scene = scene(|_| ());
    let (near, far, below) = (scene.near, scene.far, scene.below);
    let costs = vec![cost(9, 1, 50), cost(9, 2, 0)];
    claim(&mut scene, below, Some(costs.clone()));
    let sent = scene.serve();
    assert_eq!(requests(&sent), [], "it need not ask");
    assert_eq!(joined(&sent), [(far, Some(costs))]);
    // They are not told to others, and do not count once another wants the session.
    let asked = request(1, NAME, gateway(9, 1));
    scene.receive(below, Message::SrouteRequest(asked)).unwrap();
    assert_eq!(requests(&scene.serve()).len(), 1);
    scene.stage.ask(1, NAME);
    let sent = scene.serve();
    assert_eq!(requests(&sent).len(), 1, "{sent:?}");
    let number = requests(&sent)[0].1.request;
    scene
        .receive(near, response(number, NAME, Outcome::Null, &[]))
        .unwrap();
    let sent = scene.serve();
    assert_eq!(joined(&sent), [(near, Some(vec![]))]);
}

#[test]
fn costs_from_upstream_go_down_the_tree() {
    let mut scene = scene(|_| ());
    let (near, far, below) = (scene.near, scene.far, scene.below);
    claim(&mut scene, below, None);
    let sent = scene.serve();
    let number = requests(&sent)[0].1.request;
    let costs = [cost(9, 1, 1), cost(9, 2, 1)];
    scene
        .receive(near, response(number, NAME, Outcome::Costs, &costs))
        .unwrap();
    scene.serve();
    let translation = Translation {
        path: vec![gateway(2, 1), gateway(9, 1)],
        flows: channels(&session(NAME), false, 5),
        session: session(NAME),
    };
    scene
        .receive(near, Message::Translation(translation))
        .unwrap();
    scene.serve();
    let better = [cost(9, 1, 50), cost(9, 2, 1)];
    for (from, outcome) in [
        (far, Outcome::Costs),
        (near, Outcome::NoRoute),
        (near, Outcome::NoSession),
    ] {
        let listed = if outcome == Outcome::Costs {
            &better[..]
        } else {
            &[]
        };
        let refused = scene.receive(from, response(0, NAME, outcome, listed));
        assert_eq!(refused, Err(Error::SrouteUnasked), "{outcome:?}");
    }
    assert_eq!(scene.serve(), []);
    let update = response(0, NAME, Outcome::Costs, &better);
    scene.receive(near, update.clone()).unwrap();
    scene.stage.wait(0);
    let sent = scene.serve();
    assert!(sent.contains(&(below, update)));
    // The tree follows them.
    assert_eq!(joined(&sent), [(far, Some(better.to_vec()))]);
    let upstream = scene.stage.node.trees().next().unwrap().upstream;
    assert_eq!(upstream, Some(PEER), "until the other has taken the JOIN");
}
