//! What an administrator changes while gateways run: policies, limits, data nodes.

use std::collections::BTreeMap;

use bfed::routing::{Action, Changes, Match, Policy, Rule};
use bfed::wire::reclaim::ReclaimTarget;
use bfed::wire::subscribe::Edge;
use bfed::wire::{Message, notification, update};
use bfed::*;

use crate::figures::line;
use crate::stage::{PEER, TestGateway};
use crate::world::{World, gateway, session};

const SECOND: Duration = Duration::from_secs(1);

fn rule(when: Match, then: Action) -> Policy {
    Policy {
        rules: vec![Rule { when, then }],
        ..Policy::accept_all()
    }
}

fn accept(changes: Changes) -> Action {
    Action::Accept(changes)
}

/// Network 1 at the top, 2 and 3 beside each other, 4 below both; through 3 it is dearer.
fn diamond() -> World {
    let mut world = World::new();
    for network in 1..=4 {
        let mut config = Config::new(gateway(network, 1));
        config.damping = None;
        world.add(config);
    }
    for (a, b) in [(0, 1), (0, 2), (1, 3), (2, 3)] {
        world.peer_with(a, b, |_, peer| {
            if (a, b) == (2, 3) {
                peer.link = Costs::uniform(Cost(5));
            }
        });
    }
    world.run(SECOND * 5);
    world
}

/// Changes what a gateway has configured for a peer, as a reload does.
fn change(world: &mut World, at: usize, peer: usize, change: impl Fn(&mut PeerConfig)) {
    let mut config = PeerConfig::new(world.gws[peer].id);
    change(&mut config);
    let now = world.now;
    let id = PeerId(peer as u32);
    world.gws[at].control.add_peer(now, id, config).unwrap();
    world.run(SECOND * 2);
}

/// The best route from a gateway to the first network, in the first table.
fn route(world: &World, at: usize) -> Option<routing::Route> {
    let wanted = |route: &control::RouteStatus| {
        route.best && route.destination == gateway(1, 1) && route.table.number() == 0
    };
    world.gws[at]
        .control
        .routes()
        .find(wanted)
        .map(|route| route.route)
}

fn via(world: &World, at: usize) -> Option<GatewayId> {
    route(world, at).map(|route| route.path[0])
}

#[test]
fn preference_is_stronger_than_cost_and_holds_at_once() {
    let mut world = diamond();
    assert_eq!(via(&world, 3), Some(gateway(2, 1)));
    change(&mut world, 3, 2, |peer| {
        let prefer = Changes {
            preference: Some(200),
            ..Changes::default()
        };
        peer.link = Costs::uniform(Cost(5));
        peer.import = rule(Match::default(), accept(prefer));
    });
    assert_eq!(via(&world, 3), Some(gateway(3, 1)));
    // For one destination only, and no longer for this one.
    change(&mut world, 3, 2, |peer| {
        let prefer = Changes {
            preference: Some(200),
            ..Changes::default()
        };
        let when = Match {
            destination: Some(gateway(3, 1)),
            ..Match::default()
        };
        peer.link = Costs::uniform(Cost(5));
        peer.import = rule(when, accept(prefer));
    });
    assert_eq!(via(&world, 3), Some(gateway(2, 1)));
    assert_eq!(world.established(3), 2, "streams stay");
}

#[test]
fn tags_travel_and_are_matched_and_taken_away() {
    let mut world = diamond();
    let mark = Changes {
        add_tag: Some(7),
        ..Changes::default()
    };
    change(&mut world, 1, 3, |peer| {
        peer.export = rule(Match::default(), accept(mark));
    });
    let tags = |world: &World| route(world, 3).map(|route| route.tags.to_vec());
    assert_eq!(tags(&world), Some(vec![7]));
    let marked = Match {
        tag: Some(7),
        ..Match::default()
    };
    let unmark = Changes {
        remove_tag: Some(7),
        add_cost: Cost(1),
        ..Changes::default()
    };
    let policy = rule(marked.clone(), accept(unmark));
    change(&mut world, 3, 1, |peer| peer.import = policy.clone());
    let best = route(&world, 3).unwrap();
    assert_eq!((best.tags.to_vec(), best.cost), (vec![], Cost(3)));
    change(&mut world, 3, 1, |peer| {
        peer.import = rule(marked.clone(), Action::Reject);
    });
    assert_eq!(
        via(&world, 3),
        Some(gateway(3, 1)),
        "what bears the mark is refused"
    );
    let long = Match {
        longer_than: Some(1),
        passes: BnNum::new(1),
        ..Match::default()
    };
    change(&mut world, 3, 2, |peer| {
        peer.import = rule(long.clone(), Action::Reject);
    });
    assert_eq!(route(&world, 3), None);
}

fn announce(numbers: std::ops::Range<u32>) -> Message {
    let announced = numbers.map(|number| update::Announced {
        destination: gateway(3, number),
        attributes: wire::attributes::Attributes {
            cost: Cost(1),
            path: vec![gateway(2, 1), gateway(3, number)],
            tags: vec![],
        },
    });
    Message::Update(update::Repr {
        table: Table::from_number(0).unwrap(),
        withdrawn: vec![],
        announced: announced.collect(),
    })
}

#[test]
fn a_peer_that_tells_nothing_hears_of_a_new_export_policy() {
    let mut stage = TestGateway::new(|_, _| ());
    stage.establish();
    stage.wait(1000);
    stage.sent();
    let mut peer = PeerConfig::new(gateway(2, 1));
    peer.export = Policy::reject_all();
    stage.node.add_peer(stage.now, PEER, peer).unwrap();
    stage.wait(1000);
    let withdrawn = |(_, message): &(ConnId, Message)| match message {
        Message::Update(update) => update.withdrawn.clone(),
        _ => vec![],
    };
    let withdrawn: Vec<_> = stage.sent().iter().flat_map(withdrawn).collect();
    assert_eq!(withdrawn, vec![gateway(1, 1); Table::COUNT]);
}

#[test]
fn a_lower_limit_of_routes_holds_at_once_and_a_higher_one_ends_the_rest() {
    let mut stage = TestGateway::new(|_, peer| peer.max_routes = 20);
    let conn = stage.establish();
    stage.receive(conn, &announce(1..16)).unwrap();
    let mut peer = PeerConfig::new(gateway(2, 1));
    peer.max_routes = 10;
    stage.node.add_peer(stage.now, PEER, peer.clone()).unwrap();
    let sent = stage.sent();
    let Some((_, Message::Notification(why))) = sent.last() else {
        panic!("{sent:?}");
    };
    assert_eq!(why.reason, notification::Reason::PrefixLimit);
    assert_eq!(stage.node.routes().count(), 0);
    stage.wait(10_000);
    assert!(!stage.events().contains(&Event::Dial(PEER)), "it rests");
    peer.max_routes = 15;
    stage.node.add_peer(stage.now, PEER, peer).unwrap();
    stage.wait(0);
    assert!(stage.events().contains(&Event::Dial(PEER)));
    let conn = stage.establish();
    stage.receive(conn, &announce(1..16)).unwrap();
}

#[test]
fn what_counts_as_flapping_can_be_changed() {
    let mut stage = TestGateway::new(|_, _| ());
    let conn = stage.establish();
    let used = |stage: &TestGateway| stage.node.routes().any(|route| route.best);
    let withdraw = Message::Update(update::Repr {
        table: Table::from_number(0).unwrap(),
        withdrawn: vec![gateway(3, 1)],
        announced: vec![],
    });
    let flap = |stage: &mut TestGateway| {
        stage.receive(conn, &withdraw).unwrap();
        stage.receive(conn, &announce(1..2)).unwrap();
    };
    stage.receive(conn, &announce(1..2)).unwrap();
    flap(&mut stage);
    assert!(used(&stage), "once is not often");
    let mut config = stage.node.config().clone();
    config.damping.as_mut().unwrap().suppress = 1500;
    let peers = BTreeMap::from([(PEER, PeerConfig::new(gateway(2, 1)))]);
    stage.node.reconfigure(stage.now, config, peers).unwrap();
    flap(&mut stage);
    assert!(!used(&stage), "now it is");
    // Another peer with this number has flapped nothing.
    stage.node.remove_peer(stage.now, PEER);
    assert_eq!(stage.node.flapping(), 0);
}

/// The last rate limit of the session's link that its data node received.
fn last_rate(world: &World, name: &str) -> Option<u64> {
    let name = session(name);
    let nodes = world.gws[0].nodes.values();
    let records = nodes.filter_map(|node| node.records.get(&name));
    let edges = records.flat_map(|records| records.down.keys());
    let rates = edges.map(|edge| match edge {
        Edge::Peer { rate_bps, .. } => *rate_bps,
        Edge::Native => panic!("nobody native"),
    });
    rates.max()
}

#[test]
fn a_links_bound_and_its_shares_reach_data_nodes() {
    let mut world = line(2);
    world.client(1, 1, "bfed://1/m");
    world.run(SECOND);
    assert_eq!(last_rate(&world, "bfed://1/m"), Some(0));
    change(&mut world, 0, 1, |peer| peer.rate_bps = Some(9_000_000));
    assert_eq!(last_rate(&world, "bfed://1/m"), Some(9_000_000));
    let forget = |world: &mut World| {
        let nodes = world.gws[0].nodes.values_mut();
        nodes.for_each(|node| {
            node.records
                .values_mut()
                .for_each(|records| records.down.clear());
        });
    };
    // Data nodes that have none of the link's sessions have none of its bound.
    for node in 2..=3 {
        world.add_node(0, NodeId(node));
    }
    change(&mut world, 0, 1, |peer| peer.rate_bps = Some(8_000_000));
    forget(&mut world);
    change(&mut world, 0, 1, |peer| peer.rate_bps = Some(9_000_000));
    world.run(SECOND * 2);
    assert_eq!(last_rate(&world, "bfed://1/m"), Some(9_000_000));
    // Each of three sessions goes through a node of its own, a fourth shares one.
    for (client, name) in ["bfed://1/n", "bfed://1/o"].into_iter().enumerate() {
        forget(&mut world);
        world.client(1, client as u64 + 2, name);
        world.run(SECOND * 3);
    }
    assert_eq!(last_rate(&world, "bfed://1/n"), Some(3_000_000));
    assert_eq!(last_rate(&world, "bfed://1/o"), Some(3_000_000));
    // Two go: the third has it all again.
    forget(&mut world);
    for name in ["bfed://1/n", "bfed://1/o"] {
        let now = world.now;
        world.gws[1].control.leave(now, &session(name));
        world.run(SECOND * 3);
    }
    assert_eq!(last_rate(&world, "bfed://1/m"), Some(9_000_000));
}

#[test]
fn round_robin_goes_on_where_it_was() {
    for (how, third) in [(Assignment::RoundRobin, 3), (Assignment::LeastLoaded, 1)] {
        let mut stage = TestGateway::new(|config, _| config.assignment = how);
        let peer = stage.establish();
        for node in 1..=3 {
            stage.register(node);
        }
        stage.joins(peer, "bfed://1/a");
        stage.joins(peer, "bfed://1/b");
        let given = ["bfed://1/a", "bfed://1/b"].map(|name| stage.node_of(name));
        assert_eq!(given, [Some(1), Some(2)], "{how:?}");
        stage
            .receive(peer, &Message::Leave(session("bfed://1/a")))
            .unwrap();
        stage.joins(peer, "bfed://1/c");
        assert_eq!(stage.node_of("bfed://1/c"), Some(third), "{how:?}");
        stage.joins(peer, "bfed://1/d");
        assert!(stage.node_of("bfed://1/d") != Some(2), "{how:?}");
    }
}

#[test]
fn a_peer_that_is_refused_what_it_has_does_not_keep_it() {
    let mut stage = TestGateway::new(|_, _| ());
    let node = stage.register(1);
    let peer = stage.establish();
    stage.joins(peer, "bfed://1/a");
    // Its sessions end with their refresh.
    let mut config = PeerConfig::new(gateway(2, 1));
    config.export = Policy::reject_all();
    stage.node.add_peer(stage.now, PEER, config).unwrap();
    stage.wait(200);
    stage.sent();
    assert_eq!(stage.join(peer, "bfed://1/a"), Err(Error::JoinRefused));
    stage.wait(0);
    assert_eq!(stage.node.trees().count(), 0);
    let sent = stage.sent();
    let is_released = |(conn, message): &(ConnId, Message)| match message {
        Message::Reclaim(reclaim) => *conn == node && reclaim.what == Some(ReclaimTarget::All),
        _ => false,
    };
    assert!(sent.iter().any(is_released), "{sent:?}");
}

#[test]
fn a_peer_that_announced_too_many_routes_rests_on_with_the_same_limit() {
    let mut stage = TestGateway::new(|_, peer| peer.max_routes = 3);
    let conn = stage.establish();
    assert!(stage.receive(conn, &announce(1..5)).is_err());
    let mut peer = PeerConfig::new(gateway(2, 1));
    peer.max_routes = 3;
    stage.node.add_peer(stage.now, PEER, peer).unwrap();
    stage.sent();
    stage.events();
    stage.wait(10_000);
    assert!(!stage.events().contains(&Event::Dial(PEER)));
    let conn = stage.conn();
    stage.node.connected(stage.now, conn, PEER, false);
    let sent = stage.sent();
    let Some((_, Message::Notification(why))) = sent.last() else {
        panic!("{sent:?}");
    };
    assert_eq!(why.reason, notification::Reason::PrefixLimit);
}

#[test]
fn flapping_routes_are_counted() {
    let mut stage = TestGateway::new(|_, _| ());
    let conn = stage.establish();
    stage.receive(conn, &announce(1..4)).unwrap();
    assert_eq!(stage.node.flapping(), 0);
    let withdraw = Message::Update(update::Repr {
        table: Table::from_number(0).unwrap(),
        withdrawn: vec![gateway(3, 1), gateway(3, 2)],
        announced: vec![],
    });
    stage.receive(conn, &withdraw).unwrap();
    assert_eq!(stage.node.flapping(), 2);
}

#[test]
fn routes_wait_for_the_advertisement_interval_whatever_else_is_said() {
    let mut stage = TestGateway::new(|_, _| ());
    let conn = stage.establish();
    stage.end_of_tables(conn);
    let other = stage.add(5);
    stage.receive(conn, &announce(1..2)).unwrap();
    assert_eq!(stage.join(other, "bfed://9/m"), Err(Error::JoinRefused));
    stage.wait(99);
    let said = |stage: &mut TestGateway| {
        let sent = stage.sent().into_iter().filter(|(to, _)| *to == other);
        let is_update = |message: &Message| matches!(message, Message::Update(_));
        let updates: Vec<_> = sent.map(|(_, message)| is_update(&message)).collect();
        updates
    };
    assert_eq!(said(&mut stage), [false], "the refusal");
    stage.wait(1);
    assert_eq!(said(&mut stage), [true]);
}
