//! Trees through policies, failures, restarts and hostile peers.

use std::collections::BTreeSet;

use bfed::wire::client::Answer;
use bfed::wire::no_route::Reason;
use bfed::wire::subscribe::Edge;
use bfed::wire::{Message, join, translation};
use bfed::*;

use crate::figures::line;
use crate::world::{World, gateway, session};

const SECOND: Duration = Duration::from_secs(1);
const NAME: &str = "bfed://1/m";

fn emit(message: &Message) -> Vec<u8> {
    let mut bytes = vec![0; message.buffer_len()];
    message.emit(&mut bytes);
    bytes
}

fn no_route(reason: Reason) -> Option<Answer> {
    Some(Answer::NoRoute(reason))
}

fn ids(world: &World) -> BTreeSet<GatewayId> {
    world.gws.iter().map(|gw| gw.id).collect()
}

fn join_message(name: &str, port: u16) -> join::Repr {
    let address = ChannelAddress::Stream(([10, 9, 9, 9], port).into());
    let flows = vec![join::FlowChannel {
        label: None,
        address,
    }];
    join::Repr {
        hop_limit: 20,
        sroutes: None,
        flows,
        session: session(name),
    }
}

#[test]
fn clients_of_the_owner_subscribe_natively() {
    let mut world = line(2);
    world.client(0, 1, NAME);
    world.run(SECOND);
    assert_eq!(world.answer(0, 1).cloned(), no_route(Reason::Local));
    world.client(1, 2, "bfed://7/m");
    world.run(SECOND);
    assert_eq!(world.answer(1, 2).cloned(), no_route(Reason::Unreachable));
}

#[test]
fn names_of_networks_are_resolved_or_refused() {
    let mut world = line(2);
    world.client(1, 1, "bfed://isp.net/m");
    world.client(1, 2, "bfed://nowhere.net/m");
    world.run(SECOND);
    let now = world.now;
    assert!(
        world.gws[1]
            .events
            .contains(&Event::Resolve("isp.net".into()))
    );
    world.gws[1].control.resolved(now, "isp.net", BnNum::new(1));
    world.gws[1].control.resolved(now, "nowhere.net", None);
    // The owner's gateway has to know its own name too.
    world.run(SECOND);
    assert!(
        world.gws[0]
            .events
            .contains(&Event::Resolve("isp.net".into()))
    );
    let now = world.now;
    world.gws[0].control.resolved(now, "isp.net", BnNum::new(1));
    world.run(SECOND);
    assert!(matches!(world.answer(1, 1), Some(Answer::Translation(_))));
    assert_eq!(world.answer(1, 2).cloned(), no_route(Reason::UnknownOwner));
}

#[test]
fn a_network_that_refuses_transit_carries_none() {
    let mut world = World::new();
    for network in 1..=3 {
        world.add(Config::new(gateway(network, 1)));
    }
    world.peer(0, 1);
    world.peer_with(1, 2, |own, peer| {
        if own == 1 {
            peer.export = routing::Policy::only_to(BnNum::new(2).unwrap());
        }
    });
    world.run(SECOND * 3);
    world.client(2, 1, NAME);
    world.client(2, 2, "bfed://2/m");
    world.run(SECOND);
    assert_eq!(world.answer(2, 1).cloned(), no_route(Reason::Unreachable));
    assert!(matches!(world.answer(2, 2), Some(Answer::Translation(_))));
    // A peer that joins without having received a route is refused.
    let refused = world.inject(1, 2, &emit(&Message::Join(join_message(NAME, 1))));
    assert_eq!(refused, Err(Error::JoinRefused));
    world.run(SECOND);
    assert!(world.tree(1, NAME).is_none());
}

#[test]
fn an_ssm_network_is_no_transit_for_many_sources() {
    let mut world = World::new();
    let many = Table::all().filter(|table| table.multi_source());
    let many = many.fold(Tables::NONE, Tables::with);
    for network in 1..=4 {
        let mut config = Config::new(gateway(network, 1));
        if network == 2 {
            config.transit = Costs::uniform(Cost::ZERO).with(many, Cost::INFINITE);
        }
        world.add(config);
    }
    world.peer(0, 1);
    world.peer(1, 2);
    // A detour that costs more.
    world.peer_with(0, 3, |_, peer| peer.link = Costs::uniform(Cost(5)));
    world.peer(3, 2);
    world.run(SECOND * 3);
    let conference = "bfed://1/m/?multi-source=true";
    world.client(2, 1, NAME);
    world.client(2, 2, conference);
    world.run(SECOND);
    assert_eq!(world.path(2, NAME).unwrap(), [gateway(2, 1), gateway(1, 1)]);
    assert_eq!(
        world.path(2, conference).unwrap(),
        [gateway(4, 1), gateway(1, 1)]
    );
    let records = &world.gws[2].nodes[&NodeId(1)].records[&session(conference)];
    assert!(
        records
            .allocated
            .values()
            .flatten()
            .all(|flow| flow.label.is_some()),
        "labels go up"
    );
}

#[test]
fn of_all_gateways_that_hear_a_client_the_nearest_answers() {
    for (extra, winner) in [(0, 1), (4, 2)] {
        let mut world = World::new();
        let owner = world.add(Config::new(gateway(1, 1)));
        let near = world.add(Config::new(gateway(2, 1)));
        let far = world.add(Config::new(gateway(2, 2)));
        world.peer(near, far);
        world.peer_with(owner, near, |_, peer| {
            peer.link = Costs::uniform(Cost(2 + extra));
        });
        world.peer_with(owner, far, |_, peer| peer.link = Costs::uniform(Cost(2)));
        world.run(SECOND * 3);
        for at in [near, far] {
            let now = world.now;
            let client = ClientId(at as u64);
            world.gws[at]
                .control
                .join(now, client, session(NAME), 0, Scope::Heard);
        }
        world.run(SECOND);
        for at in [near, far] {
            let answered = matches!(world.answer(at, at as u64), Some(Answer::Translation(_)));
            assert_eq!(answered, at == winner, "extra {extra}, gateway {at}");
            assert_eq!(world.tree(at, NAME).is_some(), at == winner);
        }
    }
}

#[test]
fn a_client_that_comes_back_and_back_is_served_through_the_network() {
    let mut world = World::new();
    for (network, number) in [(1, 1), (2, 1), (2, 2)] {
        world.add(Config::new(gateway(network, number)));
    }
    world.peer(0, 1);
    world.peer(1, 2);
    world.run(SECOND * 3);
    let now = world.now;
    world.gws[2]
        .control
        .join(now, ClientId(1), session(NAME), 1, Scope::Chosen);
    world.run(SECOND);
    assert!(matches!(world.answer(2, 1), Some(Answer::Redirect { .. })));
    let now = world.now;
    world.gws[2]
        .control
        .join(now, ClientId(2), session(NAME), 2, Scope::Chosen);
    world.run(SECOND);
    assert!(matches!(world.answer(2, 2), Some(Answer::Translation(_))));
    let up = world.gws[2].nodes[&NodeId(1)].records[&session(NAME)]
        .up
        .clone()
        .unwrap();
    assert_eq!(up.0, Edge::Native);
    assert!(
        matches!(up.1[0].address, ChannelAddress::Native(_)),
        "over the native broadcast"
    );
    assert_eq!(world.reached(NAME), ids(&world));
}

#[test]
fn the_cost_of_a_session_can_be_asked() {
    let mut world = line(3);
    let now = world.now;
    world.gws[2]
        .control
        .ask_cost(now, ClientId(1), session(NAME));
    world.run(SECOND);
    assert_eq!(world.answer(2, 1), Some(&Answer::Cost(Cost(2))));
    assert!(world.tree(2, NAME).is_none(), "asking is not joining");
}

#[test]
fn soft_state_lives_by_refreshes_and_dies_without() {
    let mut world = line(3);
    world.client(2, 1, NAME);
    world.run(SECOND * 300);
    assert!(world.path(2, NAME).is_none(), "clients that stay ask again");
    assert!(world.reached(NAME).is_empty());
    world.client(2, 1, NAME);
    for _ in 0..10 {
        world.run(SECOND * 60);
        world.client(2, 1, NAME);
    }
    assert_eq!(world.reached(NAME), ids(&world));
    assert!(world.gws[0].nodes[&NodeId(1)].records[&session(NAME)].refreshes >= 15);
    assert_eq!(world.gws[0].control.stats().expired, 0);
    // The last gateway sends nothing any more, but its peerings continue.
    world.gws[2].control.drain_node(world.now, NodeId(1));
    let leave = emit(&Message::Leave(session(NAME)));
    world.inject(1, 2, &leave).unwrap();
    world.run(SECOND);
    assert_eq!(world.reached(NAME).len(), 0, "LEAVE goes up to the owner");
}

#[test]
fn a_tree_moves_when_its_link_dies_and_joins_before_it_leaves() {
    let mut world = line(3);
    let side = world.add(Config::new(gateway(9, 1)));
    world.peer(0, side);
    world.peer_with(side, 2, |_, peer| peer.link = Costs::uniform(Cost(3)));
    world.run(SECOND * 3);
    world.client(2, 1, NAME);
    world.run(SECOND);
    assert_eq!(world.path(2, NAME).unwrap()[0], gateway(2, 1));
    // The first link ends on purpose: no gateway waits for it.
    let now = world.now;
    world.gws[1].control.remove_peer(now, PeerId(0));
    world.run(SECOND * 3);
    assert_eq!(world.path(2, NAME).unwrap(), [gateway(9, 1), gateway(1, 1)]);
    assert_eq!(world.gws[2].control.stats().reroutes, 1);
    assert!(world.tree(1, NAME).is_none(), "the old way was left");
    assert_eq!(world.reached(NAME).len(), 3);
}

#[test]
fn without_any_way_left_clients_are_told() {
    let mut world = line(2);
    world.client(1, 1, NAME);
    world.run(SECOND);
    let now = world.now;
    world.gws[0].control.remove_peer(now, PeerId(1));
    world.run(SECOND * 10);
    let reason = Reason::Unreachable;
    assert!(world.gws[1].events.contains(&Event::Ended {
        session: session(NAME),
        reason
    }));
    assert!(world.gws[1].nodes[&NodeId(1)].records.is_empty());
}

#[test]
fn a_lost_stream_that_comes_back_costs_the_tree_nothing() {
    let mut world = line(3);
    world.client(2, 1, NAME);
    world.run(SECOND);
    let before = world.gws[1].nodes[&NodeId(1)].records.clone();
    world.set_link(0, 1, false);
    world.run(SECOND * 20);
    assert_eq!(
        world.gws[1].nodes[&NodeId(1)].records,
        before,
        "data nodes go on"
    );
    world.set_link(0, 1, true);
    world.run(SECOND * 50);
    assert_eq!(world.reached(NAME), ids(&world));
    let (a, b) = (&world.gws[1].nodes[&NodeId(1)].records, &before);
    assert_eq!(a[&session(NAME)].up, b[&session(NAME)].up);
    assert_eq!(world.gws[2].control.stats().reroutes, 0);
}

#[test]
fn a_join_that_is_lost_with_its_stream_is_sent_again_on_the_next_one() {
    let mut world = line(2);
    world.client(1, 1, NAME);
    // The JOIN is on its way.
    world.run(Duration::from_millis(5));
    world.set_link(0, 1, false);
    world.set_link(0, 1, true);
    world.run(SECOND * 3);
    assert!(matches!(world.answer(1, 1), Some(Answer::Translation(_))));
}

#[test]
fn sessions_of_a_dead_data_node_flow_again_soon() {
    let mut world = line(3);
    for at in 0..3 {
        world.add_node(at, NodeId(2));
    }
    world.run(SECOND);
    let names: Vec<_> = (0..200).map(|n| format!("bfed://1/m{n}")).collect();
    for (at, name) in names.iter().enumerate() {
        world.client(2, at as u64, name);
    }
    world.run(SECOND * 2);
    let spread: Vec<_> = world.gws[1]
        .control
        .nodes()
        .map(|(_, count, _)| count)
        .collect();
    assert_eq!(spread, [100, 100], "the least loaded gets the next");
    for victim in 0..3 {
        // Once its stream breaks, once it only falls silent.
        if victim == 1 {
            world.gws[1].nodes.get_mut(&NodeId(1)).unwrap().alive = false;
        } else {
            world.kill_node(victim, NodeId(1));
        }
        world.run(Duration::from_millis(1500));
        world.gws[1].nodes.retain(|_, node| node.alive);
        for name in &names {
            assert_eq!(world.reached(name).len(), 3, "{name} after {victim}");
        }
        assert_eq!(world.gws[victim].control.stats().moved, 100);
    }
    let moved = world.gws[2]
        .events
        .iter()
        .filter(|e| matches!(e, Event::Moved { .. }))
        .count();
    assert_eq!(moved, 100, "clients hear of new addresses");
}

#[test]
fn a_drained_data_node_keeps_a_session_until_another_has_it() {
    let mut world = line(3);
    world.add_node(1, NodeId(2));
    world.run(SECOND);
    world.client(2, 1, NAME);
    world.run(SECOND);
    let old = world.tree(1, NAME).unwrap().node.unwrap();
    let now = world.now;
    world.gws[1].control.drain_node(now, old);
    world.run(Duration::from_millis(15));
    assert!(
        world.gws[1].nodes[&old]
            .records
            .contains_key(&session(NAME)),
        "still has it"
    );
    world.run(SECOND);
    assert_ne!(world.tree(1, NAME).unwrap().node.unwrap(), old);
    assert!(world.gws[1].nodes[&old].records.is_empty());
    assert_eq!(world.reached(NAME), ids(&world));
}

#[test]
fn floods_of_joins_stay_within_the_limits() {
    let mut world = World::new();
    for network in 1..=3 {
        let mut config = Config::new(gateway(network, 1));
        if network == 2 {
            config.limits.max_sessions = 100;
            config.limits.max_sessions_per_peer = 60;
            config.limits.max_refused = 20;
        }
        world.add(config);
    }
    world.peer(0, 1);
    world.peer(1, 2);
    world.run(SECOND * 3);
    for n in 0..500 {
        let name = format!("bfed://1/none{n}");
        world.gws[0].missing.insert(session(&name));
        let _ = world.inject(1, 2, &emit(&Message::Join(join_message(&name, 7))));
    }
    assert!(world.gws[1].control.trees().count() <= 60);
    world.run(SECOND * 2);
    assert_eq!(
        world.gws[1].control.trees().count(),
        0,
        "the owner has none of them"
    );
    for n in 0..500 {
        let _ = world.inject(
            1,
            2,
            &emit(&Message::Join(join_message(&format!("bfed://1/{n}"), 7))),
        );
    }
    assert_eq!(world.gws[1].control.trees().count(), 60);
    assert!(world.gws[1].control.stats().drops.get(Error::JoinRefused) >= 440 + 440);
    // The same peer may refresh its sessions, and there is still room for clients.
    world
        .inject(1, 2, &emit(&Message::Join(join_message("bfed://1/3", 7))))
        .unwrap();
    world.client(1, 1, NAME);
    world.run(SECOND);
    assert!(matches!(world.answer(1, 1), Some(Answer::Translation(_))));
}

#[test]
fn a_path_that_loops_is_left_at_once() {
    let mut world = line(3);
    world.client(2, 1, NAME);
    world.run(SECOND);
    let tree = world.tree(2, NAME).unwrap();
    let up = world.gws[2].nodes[&NodeId(1)].records[&session(NAME)]
        .up
        .clone()
        .unwrap();
    let path = vec![gateway(2, 1), gateway(3, 1), gateway(1, 1)];
    let lie = translation::Repr {
        path,
        flows: up.1,
        session: tree.session,
    };
    world
        .inject(2, 1, &emit(&Message::Translation(lie)))
        .unwrap();
    assert_eq!(world.gws[2].control.stats().loops, 1);
    assert!(!world.tree(2, NAME).unwrap().attached);
    world.run(SECOND * 20);
    assert_eq!(world.reached(NAME), ids(&world), "tried again, and well");
}

#[test]
fn peers_say_nothing_about_what_is_not_theirs() {
    let mut world = line(3);
    world.client(2, 1, NAME);
    world.run(SECOND);
    let name = session(NAME);
    let flows = vec![join::FlowChannel {
        label: FlowLabel::new(5),
        address: ChannelAddress::Stream(([10, 6, 6, 6], 6).into()),
    }];
    // The downstream peer plays upstream.
    let path = vec![gateway(3, 1), gateway(1, 1)];
    let lie = translation::Repr {
        path,
        flows,
        session: name.clone(),
    };
    let lie = emit(&Message::Translation(lie));
    assert_eq!(world.inject(1, 2, &lie), Err(Error::NotUpstream));
    let no = wire::no_route::Repr {
        reason: Reason::NoSession,
        session: name.clone(),
    };
    assert_eq!(
        world.inject(1, 2, &emit(&Message::NoRoute(no))),
        Err(Error::NotUpstream)
    );
    let costs = wire::sroute::Response {
        request: 0,
        outcome: wire::sroute::Outcome::Null,
        costs: vec![],
        session: name.clone(),
    };
    let costs = emit(&Message::SrouteResponse(costs));
    assert_eq!(world.inject(1, 2, &costs), Err(Error::SrouteUnasked));
    // A session that is joined with channels of the wrong kind.
    let mut wrong = join_message(NAME, 9);
    wrong.flows[0].address = ChannelAddress::Datagram(([10, 9, 9, 9], 9).into());
    assert_eq!(
        world.inject(1, 2, &emit(&Message::Join(wrong))),
        Err(Error::JoinRefused)
    );
    // One that joins where it sends to.
    let back = world.inject(2, 1, &emit(&Message::Join(join_message(NAME, 9))));
    assert_eq!(back, Err(Error::JoinRefused));
    world.run(SECOND * 10); // the JOIN that was refused made it try again
    assert_eq!(world.reached(NAME), ids(&world));
    assert_eq!(world.established(1), 2, "nobody lost a session");
}

#[test]
fn a_new_configuration_is_taken_whole_or_not_at_all() {
    let mut world = line(3);
    world.client(2, 1, NAME);
    world.run(SECOND);
    let now = world.now;
    let config = world.gws[1].control.config().clone();
    let peers = |change: &dyn Fn(&mut PeerConfig)| {
        [0, 2].map(|other| {
            let mut peer = PeerConfig::new(gateway(other + 1, 1));
            change(&mut peer);
            (PeerId(other), peer)
        })
    };
    let free = peers(&|peer| peer.link = Costs::uniform(Cost::ZERO));
    let node = &mut world.gws[1].control;
    assert_eq!(
        node.reconfigure(now, config.clone(), free.into()),
        Err(ConfigError::FreeLink)
    );
    let same = peers(&|peer| peer.gateway = gateway(1, 1));
    assert_eq!(
        node.reconfigure(now, config.clone(), same.into()),
        Err(ConfigError::SamePeer)
    );
    assert_eq!(node.peers().count(), 2);
    let closed = peers(&|peer| peer.export = routing::Policy::only_to(BnNum::new(2).unwrap()));
    node.reconfigure(now, config, closed.into()).unwrap();
    world.run(SECOND * 10);
    assert_eq!(world.established(1), 2, "streams stay");
    assert!(
        world.tree(2, NAME).is_none(),
        "the route is gone, and the tree with it"
    );
}

/// Gateway 2.1 joins sessions of 1.1, which gives each peer one.
fn one_each() -> World {
    let mut world = World::new();
    let mut owner = Config::new(gateway(1, 1));
    owner.limits.max_sessions_per_peer = 1;
    let owner = world.add(owner);
    let other = world.add(Config::new(gateway(2, 1)));
    world.peer(owner, other);
    world.run(SECOND * 3);
    world
}

#[test]
fn a_refusal_of_the_owner_reaches_clients_and_is_not_asked_for_again_and_again() {
    let mut world = one_each();
    world.client(1, 1, NAME);
    world.run(SECOND);
    assert!(matches!(world.answer(1, 1), Some(Answer::Translation(_))));
    world.log = Some(vec![]);
    // A player that repeats its request every second.
    for client in 2..122 {
        world.client(1, 1, NAME);
        world.client(1, client, "bfed://1/n");
        world.run(SECOND);
        assert_eq!(
            world.answer(1, client).cloned(),
            no_route(Reason::Limit),
            "at once"
        );
    }
    let log = world.log.take().unwrap();
    let asked = log.iter().filter(
        |(_, _, message)| matches!(message, Message::Join(join) if join.session == session("bfed://1/n")),
    );
    let asked = asked.count();
    assert!((2..=6).contains(&asked), "5, 10, 20, 40, 80 s: {asked}");
    assert_eq!(world.reached(NAME).len(), 2, "the first one has it still");
    // There is room again: the gateway joins the session with its next request.
    let now = world.now;
    world.gws[1].control.leave(now, &session(NAME));
    world.run(SECOND * 90);
    world.client(1, 200, "bfed://1/n");
    world.run(SECOND);
    assert!(matches!(world.answer(1, 200), Some(Answer::Translation(_))));
}

#[test]
fn of_refusals_the_one_that_ends_first_is_forgotten_first() {
    let mut world = World::new();
    let mut config = Config::new(gateway(2, 1));
    config.limits.max_refused = 4;
    let owner = world.add(Config::new(gateway(1, 1)));
    let other = world.add(config);
    world.peer(owner, other);
    world.run(SECOND * 3);
    // The name that is first in order is refused last.
    let names = ["e", "d", "c", "b", "a"].map(|name| format!("bfed://1/{name}"));
    for (client, name) in (1..).zip(&names) {
        world.gws[owner].missing.insert(session(name));
        world.client(other, client, name);
        world.run(Duration::from_millis(200));
    }
    world.log = Some(vec![]);
    for (client, name) in (11..).zip(&names[1..]) {
        world.client(other, client, name);
        world.run(Duration::from_millis(200));
        assert_eq!(
            world.answer(other, client).cloned(),
            no_route(Reason::NoSession)
        );
    }
    let log = world.log.take().unwrap();
    let asked = log
        .iter()
        .any(|(_, _, message)| matches!(message, Message::Join(_)));
    assert!(!asked, "the last four are remembered");
}
