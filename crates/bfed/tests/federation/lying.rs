//! Authorized peers and data nodes that send false information in well-formed messages.

use bfed::wire::client::Answer;
use bfed::wire::node::Register;
use bfed::wire::sroute::{GatewayCost, Outcome, Request, Response};
use bfed::wire::{Message, join, liveness, statistics};
use bfed::*;

use crate::world::{World, gateway, session, sroutes};

const SECOND: Duration = Duration::from_secs(1);
const NAME: &str = "bfed://1/m";

fn emit(message: &Message) -> Vec<u8> {
    let mut bytes = vec![0; message.buffer_len()];
    message.emit(&mut bytes);
    bytes
}

fn cost(network: u32, number: u32, cost: u32) -> GatewayCost {
    GatewayCost {
        gateway: gateway(network, number),
        cost: Cost(cost),
    }
}

/// A JOIN that claims costs for gateways of the owner.
fn claim(name: &str, costs: &[GatewayCost]) -> Vec<u8> {
    let address = ChannelAddress::Stream(([10, 9, 9, 9], 9).into());
    let flows = vec![join::FlowChannel {
        label: None,
        address,
    }];
    emit(&Message::Join(join::Repr {
        hop_limit: 20,
        sroutes: Some(costs.to_vec()),
        flows,
        session: session(name),
    }))
}

/// Gateways 1.1 and 1.2 own the session; 2.1 peers with both, with 3.1, which has clients, and with the
/// hostile gateways 4.1 and 5.1.
struct Island {
    world: World,
    owners: [usize; 2],
    middle: usize,
    honest: usize,
    liars: [usize; 2],
}

fn island() -> Island {
    island_of(true)
}

/// The same; where not `two`, gateway 1.1 has no links: then costs are not discovered.
fn island_of(two: bool) -> Island {
    let mut world = World::new();
    let mut add = |network, number| world.add(Config::new(gateway(network, number)));
    let (a, b, middle) = (add(1, 1), add(1, 2), add(2, 1));
    let (honest, hostile, other) = (add(3, 1), add(4, 1), add(5, 1));
    for at in [b, honest, hostile, other] {
        world.peer(middle, at);
    }
    if two {
        world.peer(a, b);
        world.peer(middle, a);
    }
    // The source is next to 1.2.
    for owner in [a, b] {
        world.gws[owner].sroutes = Some(sroutes(1, &[(1, 9), (2, 0)], true));
    }
    world.run(SECOND * 3);
    Island {
        world,
        owners: [a, b],
        middle,
        honest,
        liars: [hostile, other],
    }
}

impl Island {
    /// The hostile peer's own machine neither receives nor sends any more: the test sends in its place.
    fn silence_liars(&mut self) {
        for hostile in self.liars {
            self.world.gws[hostile].frozen = true;
        }
    }

    fn lie(&mut self, hostile: usize, message: &[u8]) {
        let _ = self.world.inject(self.middle, self.liars[hostile], message);
    }

    fn upstream(&self) -> Option<usize> {
        let tree = self.world.tree(self.middle, NAME)?;
        tree.upstream.map(|PeerId(id)| id as usize)
    }

    fn ended(&self) -> usize {
        let events = &self.world.gws[self.honest].events;
        let ends = events.iter().filter(|event| {
            matches!(event, Event::Ended { .. })
                || matches!(
                    event,
                    Event::Answer {
                        answer: Answer::NoRoute(_),
                        ..
                    }
                )
        });
        ends.count()
    }
}

#[test]
fn costs_in_a_join_never_move_a_tree_that_others_have() {
    let gateways = [
        vec![cost(1, 77, 0)],
        vec![cost(1, 1, u32::MAX), cost(1, 2, u32::MAX)],
        vec![cost(1, 1, 0), cost(1, 2, 1000)],
        vec![cost(4, 1, 0)],
    ];
    let cases = [true, false].map(|two| gateways.clone().map(|costs| (two, costs)));
    for (two, costs) in cases.into_iter().flatten() {
        let mut island = island_of(two);
        island.silence_liars();
        island.world.client(island.honest, 1, NAME);
        island.world.run(SECOND * 2);
        assert_eq!(island.upstream(), Some(island.owners[1]));
        for round in 0..6 {
            island.lie(0, &claim(NAME, &costs));
            island.world.run(SECOND * 10);
            assert_eq!(island.upstream(), Some(island.owners[1]), "{costs:?}");
            island.world.client(island.honest, 10 + round, NAME);
            island.world.run(SECOND);
            let answer = island.world.answer(island.honest, 10 + round);
            assert!(matches!(answer, Some(Answer::Translation(_))), "{costs:?}");
        }
        assert_eq!(island.ended(), 0, "{costs:?}");
    }
}

#[test]
fn costs_that_the_first_joiner_claimed_do_not_bind_the_next() {
    let claims = [
        vec![cost(1, 77, 0)],
        vec![cost(1, 1, u32::MAX), cost(1, 2, u32::MAX)],
        vec![cost(1, 1, 0), cost(1, 2, 1000)],
    ];
    for costs in claims {
        let mut island = island();
        island.silence_liars();
        island.lie(0, &claim(NAME, &costs));
        island.world.run(SECOND * 2);
        assert!(island.upstream().is_some(), "routes decide: {costs:?}");
        island.world.client(island.honest, 1, NAME);
        island.world.run(SECOND * 3);
        let answer = island.world.answer(island.honest, 1);
        assert!(matches!(answer, Some(Answer::Translation(_))), "{costs:?}");
        for _ in 0..4 {
            assert_eq!(island.upstream(), Some(island.owners[1]), "{costs:?}");
            island.lie(0, &claim(NAME, &costs));
            island.world.run(SECOND * 10);
        }
        assert_eq!(island.ended(), 0, "{costs:?}");
    }
}

#[test]
fn costs_for_a_session_are_asked_towards_its_owner_alone() {
    let mut island = island();
    island.silence_liars();
    let (hostile, colluder) = (island.liars[0], island.liars[1]);
    island.world.log = Some(Vec::new());
    // One hostile peer requests from the other the costs of another network's session.
    let request = emit(&Message::SrouteRequest(Request {
        request: 7,
        towards: gateway(5, 1),
        hop_limit: 20,
        internal: false,
        gateways: vec![gateway(1, 1), gateway(1, 2)],
        session: session(NAME),
    }));
    assert_eq!(
        island.world.inject(island.middle, hostile, &request),
        Err(Error::SrouteRefused)
    );
    island.world.run(SECOND);
    let ids = [island.middle, colluder].map(|at| island.world.gws[at].id);
    let log = island.world.log.take().unwrap();
    let passed = log.iter().find_map(|(from, to, message)| match message {
        Message::SrouteRequest(request) if [*from, *to] == ids => Some(request.request),
        _ => None,
    });
    assert_eq!(passed, None);
    for request in (0..100).chain(passed) {
        let lie = emit(&Message::SrouteResponse(Response {
            request,
            outcome: Outcome::Costs,
            costs: vec![cost(1, 1, 0), cost(1, 2, 1000)],
            session: session(NAME),
        }));
        island.lie(1, &lie);
    }
    island.world.client(island.honest, 1, NAME);
    island.world.run(SECOND * 2);
    assert_eq!(island.upstream(), Some(island.owners[1]));
}

#[test]
fn costs_from_upstream_that_leave_no_way_are_not_followed() {
    let mut island = island();
    island.world.client(island.honest, 1, NAME);
    island.world.run(SECOND * 2);
    let upstream = island.upstream().unwrap();
    let lies = [
        vec![cost(1, 77, 0)],
        vec![cost(1, 1, u32::MAX), cost(1, 2, u32::MAX)],
    ];
    for costs in lies {
        let news = emit(&Message::SrouteResponse(Response {
            request: 0,
            outcome: Outcome::Costs,
            costs,
            session: session(NAME),
        }));
        let _ = island.world.inject(island.middle, upstream, &news);
        island.world.run(SECOND * 12);
        assert!(island.upstream().is_some());
        assert_eq!(island.ended(), 0);
    }
}

/// A stream with a data node that has proved to be `identity`, and registers as `number`.
fn register(
    world: &mut World,
    at: usize,
    identity: u32,
    number: u32,
) -> (ConnId, Result<(), Error>) {
    // The messages to it do not matter here.
    let conn = world.conn(at, Some(NodeId(1000)), 0);
    let now = world.now;
    let register = Register {
        node: NodeId(number),
        boot: 4711,
        max_sessions: 100_000,
        epoch: 0,
    };
    let control = &mut world.gws[at].control;
    control.node_connected(now, conn, NodeIdentity(identity));
    let result = control.handle_packet(now, &conn, &emit(&Message::Register(register)));
    (conn, result)
}

#[test]
fn a_data_nodes_number_is_not_taken_over_by_another_identity() {
    let mut island = island();
    island.world.client(island.honest, 1, NAME);
    island.world.run(SECOND * 2);
    let reached = island.world.reached(NAME);
    let middle = island.middle;
    let (_, refused) = register(&mut island.world, middle, 7, 1);
    assert_eq!(refused, Err(Error::BadNode));
    island.world.run(SECOND * 5);
    let control = &mut island.world.gws[middle].control;
    assert_eq!(control.stats().nodes_lost, 0);
    assert_eq!(control.stats().moved, 0);
    assert_eq!(island.world.reached(NAME), reached);
    // A free number is given out, and the same identity may register again with its number.
    for result in [(7, 2), (7, 2)].map(|(identity, number)| {
        let middle = island.middle;
        register(&mut island.world, middle, identity, number).1
    }) {
        assert_eq!(result, Ok(()));
    }
}

#[test]
fn a_data_node_that_carries_nothing_of_a_peer_cannot_end_the_peering() {
    let mut island = island();
    island.world.client(island.honest, 1, NAME);
    island.world.run(SECOND * 2);
    let middle = island.middle;
    let (conn, result) = register(&mut island.world, middle, 7, 2);
    assert_eq!(result, Ok(()));
    for peer in 0..island.world.gws.len() as u32 {
        let lie = emit(&Message::Liveness(liveness::Repr {
            peer: PeerId(peer),
            state: liveness::State::Silent,
        }));
        let now = island.world.now;
        let control = &mut island.world.gws[middle].control;
        let _ = control.handle_packet(now, &conn, &lie);
    }
    let statistics = emit(&Message::Statistics(statistics::Repr {
        sessions: 0,
        rate_bps: 0,
        entries: Vec::new(),
    }));
    let now = island.world.now;
    let control = &mut island.world.gws[middle].control;
    let _ = control.handle_packet(now, &conn, &statistics);
    island.world.run(SECOND);
    assert_eq!(island.world.gws[middle].control.stats().silent, 0);
    assert_eq!(island.world.established(middle), 5);
    assert_eq!(island.ended(), 0);
}

#[test]
fn the_sessions_of_a_dead_data_node_are_spread_over_the_others() {
    let mut island = island();
    let middle = island.middle;
    let names: Vec<_> = (0..22).map(|number| format!("bfed://1/{number}")).collect();
    for (client, name) in (1..).zip(&names) {
        island.world.client(island.honest, client, name);
    }
    island.world.run(SECOND * 3);
    // Three more, of which one forwards a little less than the others.
    for (number, rate_bps) in [(2, 900), (3, 1000), (4, 1000)] {
        island.world.add_node(middle, NodeId(number));
        island.world.run(SECOND);
        let statistics = emit(&Message::Statistics(statistics::Repr {
            sessions: 0,
            rate_bps,
            entries: Vec::new(),
        }));
        island.world.says(middle, NodeId(number), &statistics);
    }
    island.world.kill_node(middle, NodeId(1));
    island.world.run(SECOND * 3);
    let control = &island.world.gws[middle].control;
    let shares: Vec<_> = control.nodes().map(|(_, sessions, _)| sessions).collect();
    assert_eq!(shares.iter().sum::<usize>(), 22);
    assert!(shares.iter().all(|&share| share <= 11), "{shares:?}");
}
