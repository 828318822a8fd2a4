//! Requests for session-specific costs: passed on, and answered by the owner's gateways (section 5.2.2).

use bfed::wire::Message;
use bfed::wire::sroute::{GatewayCost, Outcome, Request, Response};
use bfed::*;

use crate::stage::TestGateway;
use crate::world::{gateway, session, sroutes};

pub(crate) const NAME: &str = "bfed://9/m";
const OWN: &str = "bfed://1/m";

pub(crate) fn cost(network: u32, number: u32, cost: u32) -> GatewayCost {
    GatewayCost {
        gateway: gateway(network, number),
        cost: Cost(cost),
    }
}

pub(crate) fn request(number: u32, name: &str, towards: GatewayId) -> Request {
    Request {
        request: number,
        towards,
        hop_limit: 10,
        internal: false,
        gateways: vec![towards],
        session: session(name),
    }
}

pub(crate) fn response(
    request: u32,
    name: &str,
    outcome: Outcome,
    costs: &[GatewayCost],
) -> Message {
    Message::SrouteResponse(Response {
        request,
        outcome,
        costs: costs.to_vec(),
        session: session(name),
    })
}

/// The requests sent, with the streams.
pub(crate) fn requests(sent: &[(ConnId, Message)]) -> Vec<(ConnId, Request)> {
    let requests = sent.iter().filter_map(|(conn, message)| match message {
        Message::SrouteRequest(request) => Some((*conn, request.clone())),
        _ => None,
    });
    requests.collect()
}

fn responses(sent: &[(ConnId, Message)]) -> Vec<(ConnId, Response)> {
    let responses = sent.iter().filter_map(|(conn, message)| match message {
        Message::SrouteResponse(response) => Some((*conn, response.clone())),
        _ => None,
    });
    responses.collect()
}

/// Requests of this gateway to its native network.
fn measured(stage: &mut TestGateway) -> Vec<(u32, String, Vec<GatewayId>)> {
    let asked = stage.events().into_iter().filter_map(|event| match event {
        Event::GetSroutes {
            request,
            session,
            gateways,
        } => Some((request, session.to_string(), gateways)),
        _ => None,
    });
    asked.collect()
}

/// Gateway 1.1, whose peers 2.1 and 3.1 lead to 9.1 and 9.2, each to one; the first is nearer.
pub(crate) struct Scene {
    pub(crate) stage: TestGateway,
    pub(crate) node: ConnId,
    pub(crate) near: ConnId,
    pub(crate) far: ConnId,
    pub(crate) below: ConnId,
}

pub(crate) fn scene(change: impl FnOnce(&mut Config)) -> Scene {
    let mut stage = TestGateway::new(|config, _| {
        config.hold_time_s = 0;
        change(config);
    });
    let node = stage.register(1);
    let near = stage.establish();
    stage.end_of_tables(near);
    let (far, below) = (stage.add(2), stage.add(4));
    stage.announce(near, &[gateway(2, 1), gateway(9, 1)], 1);
    stage.announce(far, &[gateway(3, 1), gateway(9, 2)], 3);
    Scene {
        stage,
        node,
        near,
        far,
        below,
    }
}

impl Scene {
    /// A client asks for the session; the request for costs that this sends.
    pub(crate) fn ask(&mut self) -> Request {
        self.stage.ask(1, NAME);
        let sent = self.stage.serve(self.node);
        let requests = requests(&sent);
        assert_eq!(requests.len(), 1, "{sent:?}");
        let (to, request) = requests.into_iter().next().unwrap();
        assert_eq!(to, self.near, "along the best route");
        let joins = |(_, message): &(ConnId, Message)| matches!(message, Message::Join(_));
        assert!(!sent.iter().any(joins), "it waits");
        request
    }

    pub(crate) fn receive(&mut self, conn: ConnId, message: Message) -> Result<(), Error> {
        self.stage.receive(conn, &message)
    }

    pub(crate) fn serve(&mut self) -> Vec<(ConnId, Message)> {
        self.stage.serve(self.node)
    }
}

#[test]
fn requests_are_passed_on_towards_the_owner_and_answers_back() {
    let mut scene = scene(|_| ());
    let (far, below) = (scene.far, scene.below);
    let asked = Request {
        gateways: vec![gateway(9, 2)],
        ..request(77, NAME, gateway(9, 2))
    };
    scene
        .receive(below, Message::SrouteRequest(asked.clone()))
        .unwrap();
    let sent = scene.serve();
    let passed = requests(&sent);
    let [(to, passed)] = &passed[..] else {
        panic!("{sent:?}");
    };
    let expected = Request {
        request: passed.request,
        hop_limit: 9,
        ..asked.clone()
    };
    assert_eq!((*to, passed), (far, &expected));
    let costs = [cost(9, 2, 4)];
    scene
        .receive(far, response(passed.request, NAME, Outcome::Costs, &costs))
        .unwrap();
    let sent = scene.serve();
    assert_eq!(sent, [(below, response(77, NAME, Outcome::Costs, &costs))]);
    // The next request for that gateway is answered from memory, one for another gateway is not.
    scene.receive(below, Message::SrouteRequest(asked)).unwrap();
    assert_eq!(
        scene.serve(),
        [(below, response(77, NAME, Outcome::Costs, &costs))]
    );
    let both = Request {
        gateways: vec![gateway(9, 2), gateway(9, 1)],
        ..request(78, NAME, gateway(9, 2))
    };
    scene.receive(below, Message::SrouteRequest(both)).unwrap();
    let sent = scene.serve();
    assert_eq!(requests(&sent).len(), 1);
    // No answer in time: no route.
    scene.stage.wait(2000);
    let sent = scene.serve();
    assert_eq!(responses(&sent).len(), 1);
    assert!(sent.contains(&(below, response(78, NAME, Outcome::NoRoute, &[]))));
}

#[test]
fn a_null_response_answers_for_all_gateways() {
    let mut scene = scene(|_| ());
    let (near, below) = (scene.near, scene.below);
    let first = request(1, NAME, gateway(9, 1));
    scene.receive(below, Message::SrouteRequest(first)).unwrap();
    let sent = scene.serve();
    let number = requests(&sent)[0].1.request;
    scene
        .receive(near, response(number, NAME, Outcome::Null, &[]))
        .unwrap();
    scene.serve();
    let other = request(2, NAME, gateway(9, 2));
    scene.receive(below, Message::SrouteRequest(other)).unwrap();
    assert_eq!(
        scene.serve(),
        [(below, response(2, NAME, Outcome::Null, &[]))]
    );
}

#[test]
fn answers_that_say_nothing_are_passed_on_and_not_kept() {
    for outcome in [Outcome::NoSession, Outcome::NoRoute] {
        let mut scene = scene(|_| ());
        let (near, below) = (scene.near, scene.below);
        for number in 1..=2 {
            let asked = request(number, NAME, gateway(9, 1));
            scene.receive(below, Message::SrouteRequest(asked)).unwrap();
            let sent = scene.serve();
            let passed = requests(&sent)[0].1.request;
            scene
                .receive(near, response(passed, NAME, outcome, &[]))
                .unwrap();
            assert_eq!(
                scene.serve(),
                [(below, response(number, NAME, outcome, &[]))]
            );
        }
    }
}

#[test]
fn requests_that_cannot_be_answered_are_refused() {
    let mut scene = scene(|config| {
        config.limits.max_requests = 1;
        config.limits.new_sessions_per_second = 1000;
    });
    let (near, below) = (scene.near, scene.below);
    let refused = |scene: &mut Scene, from, request: Request| {
        let (number, name) = (request.request, request.session.to_string());
        let result = scene.receive(from, Message::SrouteRequest(request));
        if result.is_err() {
            assert_eq!(result, Err(Error::SrouteRefused));
            assert_eq!(
                scene.serve(),
                [(from, response(number, &name, Outcome::NoRoute, &[]))]
            );
        }
        result.is_err()
    };
    let good = request(1, NAME, gateway(9, 1));
    // Towards another network than the owner's, or an unknown gateway.
    let misled = Request {
        towards: gateway(2, 1),
        ..good.clone()
    };
    assert!(refused(&mut scene, below, misled));
    assert!(refused(&mut scene, below, request(2, NAME, gateway(9, 7))));
    // Back to where it comes from.
    assert!(refused(&mut scene, near, request(3, NAME, gateway(9, 1))));
    let spent = Request {
        hop_limit: 0,
        ..good.clone()
    };
    assert!(refused(&mut scene, below, spent));
    let last = Request {
        hop_limit: 1,
        ..good.clone()
    };
    // Between the owner's gateways alone.
    let internal = Request {
        internal: true,
        ..good.clone()
    };
    assert!(refused(&mut scene, below, internal));
    // A network that is not announced to the one that asks.
    let mut closed = PeerConfig::new(gateway(5, 1));
    closed.export = routing::Policy::reject_all();
    let now = scene.stage.now;
    scene.stage.node.add_peer(now, PeerId(4), closed).unwrap();
    scene.stage.settle();
    assert!(refused(&mut scene, below, good.clone()));
    let open = PeerConfig::new(gateway(5, 1));
    scene.stage.node.add_peer(now, PeerId(4), open).unwrap();
    scene.stage.settle();
    assert!(!refused(&mut scene, below, last));
    let sent = scene.serve();
    assert_eq!(requests(&sent)[0].1.hop_limit, 0);
    // One may be pending.
    assert!(refused(&mut scene, below, good));
    assert!(refused(&mut scene, below, request(9, OWN, gateway(1, 1))));
    assert_eq!(scene.stage.node.stats().drops.get(Error::SrouteRefused), 8);
}

#[test]
fn a_peer_asks_at_a_rate() {
    let mut scene = scene(|config| config.limits.new_sessions_per_second = 2);
    let below = scene.below;
    let mut refused = 0;
    for number in 1..=6 {
        let name = format!("bfed://9/{number}");
        let asked = request(number, &name, gateway(9, 1));
        refused += u32::from(scene.receive(below, Message::SrouteRequest(asked)).is_err());
    }
    assert_eq!(refused, 2);
}

#[test]
fn the_owners_gateway_asks_its_native_network() {
    let mut scene = scene(|_| ());
    let below = scene.below;
    let asked = Request {
        gateways: vec![gateway(1, 1), gateway(1, 2), gateway(9, 9)],
        ..request(5, OWN, gateway(1, 1))
    };
    for (answer, outcome, costs) in [
        // Costs that were not asked for do not go out.
        (
            sroutes(1, &[(1, 3), (2, 4), (3, 5)], true),
            Outcome::Costs,
            vec![cost(1, 1, 3), cost(1, 2, 4)],
        ),
        (Sroutes::none(Outcome::Null), Outcome::Null, vec![]),
        (
            Sroutes::none(Outcome::NoSession),
            Outcome::NoSession,
            vec![],
        ),
        // It knows one, and there is no other gateway to ask.
        (
            sroutes(1, &[(1, 3)], false),
            Outcome::Costs,
            vec![cost(1, 1, 3)],
        ),
    ] {
        scene
            .receive(below, Message::SrouteRequest(asked.clone()))
            .unwrap();
        let measured = measured(&mut scene.stage);
        let [(number, name, gateways)] = &measured[..] else {
            panic!("{measured:?}");
        };
        assert_eq!(
            (&name[..], &gateways[..]),
            (OWN, &[gateway(1, 1), gateway(1, 2)][..])
        );
        let now = scene.stage.now;
        scene.stage.node.sroutes(now, *number ^ 2, answer.clone());
        assert_eq!(scene.serve(), [], "another number");
        scene.stage.node.sroutes(now, *number, answer.clone());
        assert_eq!(scene.serve(), [(below, response(5, OWN, outcome, &costs))]);
        scene.stage.node.sroutes(now, *number, answer);
        assert_eq!(scene.serve(), [], "once");
    }
    // No answer in half the time is a null response.
    scene.receive(below, Message::SrouteRequest(asked)).unwrap();
    scene.stage.wait(999);
    assert_eq!(responses(&scene.serve()), []);
    scene.stage.wait(1);
    let sent = scene.serve();
    assert!(sent.contains(&(below, response(5, OWN, Outcome::Null, &[]))));
}

#[test]
fn gateways_of_the_owner_ask_each_other_for_their_own_costs() {
    for answers in [true, false] {
        let mut scene = scene(|_| ());
        let below = scene.below;
        let beside = scene.stage.add_as(7, gateway(1, 2));
        let beyond = scene.stage.add_as(8, gateway(1, 3));
        let asked = Request {
            gateways: vec![gateway(1, 1), gateway(1, 2), gateway(1, 3), gateway(1, 4)],
            ..request(5, OWN, gateway(1, 1))
        };
        scene.receive(below, Message::SrouteRequest(asked)).unwrap();
        let (number, ..) = measured(&mut scene.stage)[0];
        let now = scene.stage.now;
        let known = sroutes(1, &[(1, 3)], false);
        scene.stage.node.sroutes(now, number, known);
        let sent = scene.serve();
        let asked = requests(&sent);
        let number = asked[0].1.request;
        for (conn, other) in [(beside, 2), (beyond, 3)] {
            let expected = Request {
                request: number,
                towards: gateway(1, other),
                hop_limit: 0,
                internal: true,
                gateways: vec![gateway(1, other)],
                session: session(OWN),
            };
            assert!(asked.contains(&(conn, expected)), "{asked:?}");
        }
        assert_eq!(asked.len(), 2);
        // Each answers for itself alone.
        let costs = [cost(1, 2, 6), cost(1, 3, 0)];
        scene
            .receive(beside, response(number, OWN, Outcome::Costs, &costs))
            .unwrap();
        assert_eq!(scene.serve(), []);
        let again = scene.receive(beside, response(number, OWN, Outcome::Costs, &costs));
        assert_eq!(again, Err(Error::SrouteUnasked));
        let third = if answers {
            let costs = [cost(1, 3, 8)];
            scene
                .receive(beyond, response(number, OWN, Outcome::Costs, &costs))
                .unwrap();
            cost(1, 3, 8)
        } else {
            scene.stage.wait(1000);
            cost(1, 3, Cost::INFINITE.0)
        };
        let sent = scene.serve();
        let all = [cost(1, 1, 3), cost(1, 2, 6), third];
        assert_eq!(responses(&sent).len(), 1);
        assert!(
            sent.contains(&(below, response(5, OWN, Outcome::Costs, &all))),
            "{sent:?}"
        );
    }
}

#[test]
fn another_gateway_of_the_owner_is_answered_with_what_is_known_here() {
    let mut scene = scene(|_| ());
    let beside = scene.stage.add_as(7, gateway(1, 2));
    scene.stage.add_as(8, gateway(1, 3));
    let asked = Request {
        internal: true,
        gateways: vec![gateway(1, 1), gateway(1, 3)],
        ..request(5, OWN, gateway(1, 1))
    };
    scene
        .receive(beside, Message::SrouteRequest(asked))
        .unwrap();
    let (number, ..) = measured(&mut scene.stage)[0];
    let now = scene.stage.now;
    let known = sroutes(1, &[(1, 3)], false);
    scene.stage.node.sroutes(now, number, known);
    let costs = [cost(1, 1, 3)];
    assert_eq!(
        scene.serve(),
        [(beside, response(5, OWN, Outcome::Costs, &costs))]
    );
}

#[test]
fn each_join_that_reaches_the_owner_brings_its_costs_down() {
    let mut scene = scene(|_| ());
    let (node, below) = (scene.node, scene.below);
    // A network with one gateway has nothing to choose.
    scene.stage.joins(below, OWN);
    assert_eq!(measured(&mut scene.stage), []);
    scene.stage.live(node, 1);
    scene.stage.add_as(7, gateway(1, 2));
    scene.stage.joins(below, OWN);
    let asked = measured(&mut scene.stage);
    let [(number, _, gateways)] = &asked[..] else {
        panic!("{asked:?}");
    };
    assert_eq!(gateways[..], [gateway(1, 1), gateway(1, 2)]);
    let now = scene.stage.now;
    let known = sroutes(1, &[(1, 3), (2, 4)], true);
    scene.stage.node.sroutes(now, *number, known);
    let costs = [cost(1, 1, 3), cost(1, 2, 4)];
    let down = (below, response(0, OWN, Outcome::Costs, &costs));
    assert!(scene.serve().contains(&down));
    // For half of a refresh interval they are fresh.
    scene.stage.live(node, 14);
    scene.stage.joins(below, OWN);
    assert_eq!(measured(&mut scene.stage), []);
    assert!(scene.serve().contains(&down));
    scene.stage.live(node, 1);
    scene.stage.joins(below, OWN);
    assert_eq!(measured(&mut scene.stage).len(), 1);
    assert!(!scene.serve().contains(&down));
}
