//! Figures 4, 5 and 6 of the paper, message by message.

use bfed::wire::Message;
use bfed::wire::client::Answer;
use bfed::wire::sroute::{Outcome, Request, Response};
use bfed::*;

use crate::world::{World, gateway, sroutes};

const SECOND: Duration = Duration::from_secs(1);

/// A line of gateways, each of a network of its own, numbers from 1.
pub(crate) fn line(len: u32) -> World {
    let mut world = World::new();
    for network in 1..=len {
        world.add(Config::new(gateway(network, 1)));
    }
    for at in 1..len as usize {
        world.peer(at - 1, at);
    }
    world.run(SECOND * 3);
    world
}

#[test]
fn figure_4_path_vector_for_three_gateways() {
    let world = line(3);
    let table = SessionName::parse("bfed://1/m").unwrap().table();
    let route = |at: usize, to: u32| {
        let mut routes = world.gws[at].control.routes();
        let route = routes.find(|r| r.best && r.table == table && r.destination == gateway(to, 1));
        let route = route.unwrap();
        (
            route.route.cost.0,
            route
                .route
                .path
                .iter()
                .map(|on| on.network.get())
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(route(0, 2), (1, vec![2]));
    assert_eq!(route(0, 3), (2, vec![2, 3]));
    assert_eq!(route(1, 1), (1, vec![1]));
    assert_eq!(route(2, 1), (2, vec![2, 1]));
}

/// Figure 5: A and B of BN1, C and D of BN2, E and F of BN3, G of BN4.
struct Figure5 {
    world: World,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
    g: usize,
}

fn figure_5() -> Figure5 {
    let mut world = World::new();
    let ids = [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2), (4, 1)];
    let [a, b, c, d, e, f, g] =
        ids.map(|(network, number)| world.add(Config::new(gateway(network, number))));
    for (one, other) in [(a, b), (c, d), (e, f), (a, c), (d, e), (b, g), (g, f)] {
        // The long way through BN2 looks better from E: routes alone would take it.
        world.peer_with(one, other, |_, peer| {
            if [one, other] == [g, f] {
                peer.link = Costs::uniform(Cost(3));
            }
        });
    }
    world.run(SECOND * 3);
    Figure5 {
        world,
        a,
        b,
        c,
        d,
        e,
        f,
        g,
    }
}

const NAME: &str = "bfed://1/m";

fn request(message: &Message) -> Option<Request> {
    match message {
        Message::SrouteRequest(request) => Some(request.clone()),
        _ => None,
    }
}

fn response(message: &Message) -> Option<Response> {
    match message {
        Message::SrouteResponse(response) => Some(response.clone()),
        _ => None,
    }
}

/// The senders and receivers of messages, in order.
fn hops<T>(messages: &[(GatewayId, GatewayId, T)]) -> Vec<GatewayId> {
    messages
        .iter()
        .flat_map(|(from, to, _)| [*from, *to])
        .collect()
}

#[test]
fn figure_5_sroute_discovery_redirects_to_the_better_gateway() {
    let Figure5 {
        mut world,
        a,
        b,
        c,
        d,
        e,
        f,
        g,
    } = figure_5();
    // The source is next to B.
    world.gws[a].sroutes = Some(sroutes(1, &[(1, 9), (2, 0)], true));
    world.log = Some(vec![]);
    world.client(e, 1, NAME);
    world.run(SECOND);
    let ids = |at: &[usize]| at.iter().map(|&at| world.gws[at].id).collect::<Vec<_>>();
    let asked = world.logged(request);
    assert_eq!(
        hops(&asked),
        ids(&[e, d, d, c, c, a]),
        "along E - D - C - A"
    );
    assert_eq!(
        asked[0].2.gateways,
        ids(&[a, b]),
        "the gateways that E is aware of"
    );
    let answers = world.logged(response);
    assert_eq!(
        hops(&answers),
        ids(&[a, c, c, d, d, e, e, f]),
        "back, and on to F"
    );
    let costs = |(_, _, response): &(_, _, Response)| response.outcome == Outcome::Costs;
    assert!(answers.iter().all(costs));
    let Some(Answer::Redirect { gateway, mediator }) = world.answer(e, 1) else {
        panic!("{:?}", world.answer(e, 1));
    };
    assert_eq!(
        (*gateway, mediator.as_str()),
        (world.gws[f].id, "mediator 5")
    );
    assert!(world.tree(e, NAME).is_none(), "E has no part in it");

    // The mediator sends the request to F, which has the costs already.
    world.log = Some(vec![]);
    let now = world.now;
    let name = SessionName::parse(NAME).unwrap();
    world.gws[f]
        .control
        .join(now, ClientId(2), name, 1, Scope::Chosen);
    world.run(SECOND);
    assert!(world.logged(request).is_empty());
    let joins = world.logged(|message| match message {
        Message::Join(join) => Some(join.sroutes.as_ref().map(Vec::len)),
        _ => None,
    });
    let [bb, ff, gg] = [b, f, g].map(|at| world.gws[at].id);
    assert_eq!(
        joins,
        [(ff, gg, Some(2)), (gg, bb, Some(2))],
        "JOINs carry the SROUTE state"
    );
    assert!(matches!(world.answer(f, 2), Some(Answer::Translation(_))));
    assert_eq!(world.path(f, NAME), Some(vec![gg, bb]));
    assert_eq!(world.reached(NAME), [bb, ff, gg].into());

    // Refreshes bring updates down the path; C and D forget.
    world.log = Some(vec![]);
    world.run(SECOND * 50);
    let updates =
        world.logged(|message| response(message).filter(|response| response.request == 0));
    let sent = |between| updates.iter().any(|(from, to, _)| (*from, *to) == between);
    assert!(
        sent((bb, gg)) && sent((gg, ff)),
        "the owner's updates go down the tree"
    );
}

#[test]
fn a_null_response_leaves_it_to_the_routes() {
    let Figure5 {
        mut world, a, e, d, ..
    } = figure_5();
    world.client(e, 1, NAME);
    world.run(SECOND);
    assert!(matches!(world.answer(e, 1), Some(Answer::Translation(_))));
    let path: Vec<_> = world.path(e, NAME).unwrap();
    assert_eq!((path[0], path[2]), (world.gws[d].id, world.gws[a].id));
    assert_eq!(world.gws[e].control.stats().discoveries, 1);
}

#[test]
fn one_next_hop_needs_no_discovery() {
    let mut world = line(4);
    world.log = Some(vec![]);
    world.client(3, 1, NAME);
    world.run(SECOND);
    assert!(matches!(world.answer(3, 1), Some(Answer::Translation(_))));
    assert!(world.logged(request).is_empty());
    assert_eq!(world.reached(NAME).len(), 4);
}

#[test]
fn an_owners_gateway_asks_the_others_what_it_does_not_know() {
    let Figure5 {
        mut world,
        a,
        b,
        e,
        f,
        ..
    } = figure_5();
    world.gws[a].sroutes = Some(sroutes(1, &[(1, 9)], false));
    world.gws[b].sroutes = Some(sroutes(1, &[(2, 0)], true));
    world.client(e, 1, NAME);
    world.run(SECOND);
    let Some(Answer::Redirect { gateway, .. }) = world.answer(e, 1) else {
        panic!("{:?}", world.answer(e, 1));
    };
    assert_eq!(*gateway, world.gws[f].id);
}

#[test]
fn an_owners_gateway_that_is_mute_is_got_round() {
    let Figure5 {
        mut world,
        a,
        b,
        e,
        f,
        g,
        ..
    } = figure_5();
    world.gws[a].frozen = true;
    world.client(e, 1, NAME);
    world.run(SECOND * 3);
    assert_eq!(world.gws[e].control.stats().discoveries_failed, 1);
    assert!(
        world.tree(e, NAME).is_some_and(|tree| !tree.attached),
        "joins by routes alone"
    );
    world.run(SECOND * 10);
    assert!(
        matches!(world.answer(e, 1), Some(Answer::Redirect { .. })),
        "no TRANSLATION came"
    );
    let now = world.now;
    let name = SessionName::parse(NAME).unwrap();
    world.gws[f]
        .control
        .join(now, ClientId(2), name, 1, Scope::Chosen);
    world.run(SECOND * 15);
    assert_eq!(
        world.path(f, NAME),
        Some([g, b].map(|at| world.gws[at].id).to_vec())
    );
}

#[test]
fn sessions_that_the_owner_does_not_have_are_refused_once() {
    let Figure5 {
        mut world, a, e, ..
    } = figure_5();
    let name = SessionName::parse(NAME).unwrap();
    world.gws[a].missing.insert(name);
    world.client(e, 1, NAME);
    world.run(SECOND);
    let no = Answer::NoRoute(bfed::wire::no_route::Reason::NoSession);
    assert_eq!(world.answer(e, 1), Some(&no));
    world.messages = 0;
    for client in 2..50 {
        world.client(e, client, NAME);
    }
    world.run(Duration::from_millis(500));
    assert_eq!(world.answer(e, 49), Some(&no));
    assert_eq!(world.messages, 0, "nobody else is bothered for a while");
}

#[test]
fn figure_6_two_branches_share_the_trunk() {
    let mut world = line(4);
    let side = world.add(Config::new(gateway(9, 1)));
    world.peer(2, side);
    world.run(SECOND * 3);
    world.client(3, 1, NAME);
    world.run(SECOND);
    world.log = Some(vec![]);
    world.client(side, 2, NAME);
    world.run(SECOND);
    let joins = world.logged(|message| matches!(message, Message::Join(_)).then_some(()));
    assert_eq!(joins.len(), 1, "the JOIN ends where the tree is");
    assert_eq!(world.reached(NAME).len(), 5);
    assert_eq!(
        world.tree(2, NAME).unwrap().downstream,
        [PeerId(3), PeerId(4)]
    );

    let now = world.now;
    let name = SessionName::parse(NAME).unwrap();
    world.gws[3].control.leave(now, &name);
    world.run(SECOND);
    assert_eq!(world.reached(NAME).len(), 4);
    world.gws[side].control.leave(now, &name);
    world.run(SECOND);
    assert!(world.reached(NAME).is_empty());
    for gw in &mut world.gws {
        assert_eq!(gw.control.trees().count(), 0);
        assert!(gw.nodes.values().all(|node| node.records.is_empty()));
        assert!(gw.control.coordinator().is_empty());
    }
}
