//! The tables of one gateway, without streams or trees.

use alloc::vec;
use alloc::vec::Vec;

use proto_core::time::Duration;

use super::*;
use crate::config::Costs;
use crate::types::{Content, Metric};
use crate::wire::Message;
use crate::wire::attributes::MAX_PATH;
use crate::wire::sroute::GatewayCost;

mod damping;
mod policy;

const TABLE: Table = Table::new(Metric::Hops, Content::Bulk, false);
const OTHER_TABLE: Table = Table::new(Metric::Hops, Content::RealTime, false);
const START: Instant = Instant::from_secs(100);
const OWN: GatewayId = gateway(1, 1);
/// Another gateway of the network, and gateways of others.
const INTERNAL: (PeerId, GatewayId) = (PeerId(1), gateway(1, 2));
const SECOND: (PeerId, GatewayId) = (PeerId(2), gateway(2, 1));
const THIRD: (PeerId, GatewayId) = (PeerId(3), gateway(3, 1));
/// Where routes lead.
const FAR: GatewayId = gateway(9, 1);

const fn network(number: u32) -> BnNum {
    BnNum::new(number).expect("not 0")
}

const fn gateway(of: u32, number: u32) -> GatewayId {
    GatewayId {
        network: network(of),
        number,
    }
}

/// A route of `cost` with this path.
fn route(cost: u32, path: &[GatewayId]) -> Attributes {
    Attributes {
        cost: Cost(cost),
        path: path.to_vec(),
        tags: Vec::new(),
    }
}

fn rib(config: &Config, peers: &[(PeerId, GatewayId)]) -> Rib {
    let mut rib = Rib::new(config);
    for &(id, peer) in peers {
        rib.set_peer(id, PeerConfig::new(peer));
        rib.peer_up(id, Tables::ALL);
    }
    rib
}

/// Tables with sessions with all three peers, to which everything has been announced.
fn settled() -> Rib {
    let mut rib = rib(&Config::new(OWN), &[INTERNAL, SECOND, THIRD]);
    for (id, _) in [INTERNAL, SECOND, THIRD] {
        told(&mut rib, id);
    }
    while rib.poll_changed().is_some() {}
    rib
}

/// Announces a route to `FAR` through a peer.
fn announce(rib: &mut Rib, (id, peer): (PeerId, GatewayId), cost: u32) {
    rib.announce(START, id, TABLE, FAR, route(cost, &[peer, FAR]))
        .expect("accepted");
}

/// Returns what is announced to a peer: destinations with their costs, `None` for those withdrawn.
fn told(rib: &mut Rib, id: PeerId) -> Vec<(GatewayId, Option<u32>)> {
    let mut told = Vec::new();
    while let Some(message) = rib.next_message(id) {
        if let Message::Update(update) = message {
            let withdrawn = update.withdrawn.into_iter();
            told.extend(withdrawn.map(|gateway| (gateway, None)));
            let announced = update.announced.into_iter();
            told.extend(announced.map(|new| (new.destination, Some(new.attributes.cost.0))));
        }
    }
    told
}

fn via(rib: &Rib) -> Option<PeerId> {
    rib.next_hop(TABLE, FAR)
}

#[test]
fn only_changes_that_peers_can_see_are_announced() {
    let mut rib = settled();
    announce(&mut rib, SECOND, 4);
    assert_eq!(told(&mut rib, THIRD.0), [(FAR, Some(5))]);
    assert_eq!(told(&mut rib, INTERNAL.0), [(FAR, Some(5))]);
    assert_eq!(told(&mut rib, SECOND.0), [], "it has the route itself");
    assert_eq!(rib.stats.told, 2 + rib_told_at_first());
    // The same again, then one that is worse.
    announce(&mut rib, SECOND, 4);
    announce(&mut rib, THIRD, 6);
    assert_eq!(told(&mut rib, THIRD.0), []);
    assert_eq!(rib.stats.announced, 3);
    rib.withdraw(START, SECOND.0, TABLE, FAR);
    assert_eq!(rib.stats.withdrawn, 1);
    assert_eq!(told(&mut rib, THIRD.0), [(FAR, None)]);
    assert_eq!(told(&mut rib, THIRD.0), []);
    assert_eq!(told(&mut rib, SECOND.0), [(FAR, Some(7))]);
}

/// Announcements of the own gateway to three peers.
fn rib_told_at_first() -> u64 {
    3 * Table::COUNT as u64
}

#[test]
fn many_routes_are_announced_in_several_messages() {
    let mut rib = settled();
    let count = 3_000;
    for number in 1..=count {
        let destination = gateway(9, number);
        let path = route(1, &[SECOND.1, destination]);
        rib.announce(START, SECOND.0, TABLE, destination, path)
            .expect("accepted");
    }
    let mut messages = Vec::new();
    while let Some(message) = rib.next_message(THIRD.0) {
        let Message::Update(update) = message else {
            panic!("{message:?}");
        };
        messages.push(update.announced.len());
    }
    assert_eq!(messages.iter().sum::<usize>(), count as usize);
    let (last, full) = messages.split_last().expect("several");
    // A route of three gateways takes 46 bytes, and a message has 4,096 for routes.
    assert!(full.iter().all(|len| *len == 90), "{full:?}");
    assert!(*last <= full[0]);
    // Withdrawals are smaller, and count too.
    for number in 1..=count {
        rib.withdraw(START, SECOND.0, TABLE, gateway(9, number));
    }
    let Some(Message::Update(update)) = rib.next_message(THIRD.0) else {
        panic!("withdrawn");
    };
    assert!(update.withdrawn.len() == 512);
}

#[test]
fn the_end_of_a_table_comes_after_its_routes_and_before_the_next_table() {
    let mut config = Config::new(OWN);
    config.tables = Tables::NONE.with(TABLE).with(OTHER_TABLE);
    let mut rib = rib(&config, &[SECOND]);
    let mut order = Vec::new();
    while let Some(message) = rib.next_message(SECOND.0) {
        match message {
            Message::Update(update) => order.push((update.table, "routes")),
            Message::EndOfTable(table) if config.tables.contains(table) => {
                order.push((table, "end"));
            }
            Message::EndOfTable(_) => {}
            other => panic!("{other:?}"),
        }
    }
    let expected = [
        (TABLE, "routes"),
        (TABLE, "end"),
        (OTHER_TABLE, "routes"),
        (OTHER_TABLE, "end"),
    ];
    assert_eq!(order, expected);
}

#[test]
fn a_table_that_one_side_lacks_is_not_announced() {
    let mut config = Config::new(OWN);
    config.tables = Tables::ALL.without(OTHER_TABLE);
    let mut ours = Rib::new(&config);
    ours.set_peer(SECOND.0, PeerConfig::new(SECOND.1));
    ours.set_peer(THIRD.0, PeerConfig::new(THIRD.1));
    ours.peer_up(THIRD.0, Tables::NONE.with(TABLE).with(OTHER_TABLE));
    ours.peer_up(SECOND.0, Tables::ALL);
    for table in [TABLE, OTHER_TABLE] {
        let path = route(1, &[SECOND.1, FAR]);
        ours.announce(START, SECOND.0, table, FAR, path)
            .expect("accepted");
    }
    assert!(ours.export(THIRD.0, TABLE, FAR).is_some());
    assert!(ours.export(THIRD.0, OTHER_TABLE, FAR).is_none());
    ours.peer_up(THIRD.0, Tables::NONE.with(OTHER_TABLE));
    assert!(ours.export(THIRD.0, TABLE, FAR).is_none());
}

#[test]
fn a_route_from_this_network_goes_to_others_only() {
    let mut rib = settled();
    announce(&mut rib, INTERNAL, 4);
    assert_eq!(told(&mut rib, THIRD.0), [(FAR, Some(5))]);
    let other = (PeerId(4), gateway(1, 3));
    rib.set_peer(other.0, PeerConfig::new(other.1));
    rib.peer_up(other.0, Tables::ALL);
    assert!(rib.export(other.0, TABLE, FAR).is_none(), "full mesh");
    // Of the network's own gateways others hear from those alone.
    let path = route(0, &[INTERNAL.1]);
    rib.announce(START, INTERNAL.0, TABLE, INTERNAL.1, path)
        .expect("accepted");
    assert!(rib.export(THIRD.0, TABLE, INTERNAL.1).is_none());
    assert!(rib.export(THIRD.0, TABLE, OWN).is_some());
    assert!(rib.export(other.0, TABLE, OWN).is_some());
}

#[test]
fn crossing_this_network_costs() {
    let mut config = Config::new(OWN);
    config.transit = Costs::uniform(Cost(100));
    config.origin = Costs::uniform(Cost(7));
    let mut rib = rib(&config, &[INTERNAL, SECOND, THIRD]);
    announce(&mut rib, SECOND, 4);
    let cost = |rib: &Rib, id, to| rib.export(id, TABLE, to).map(|route| route.cost);
    assert_eq!(cost(&rib, THIRD.0, FAR), Some(Cost(105)));
    assert_eq!(cost(&rib, INTERNAL.0, FAR), Some(Cost(5)));
    assert_eq!(cost(&rib, THIRD.0, OWN), Some(Cost(7)), "no crossing");
}

#[test]
fn a_peer_does_not_hear_of_routes_through_itself() {
    let mut rib = settled();
    let through = |rib: &mut Rib, on: GatewayId| {
        let path = route(1, &[SECOND.1, on, FAR]);
        rib.announce(START, SECOND.0, TABLE, FAR, path)
            .expect("accepted");
    };
    through(&mut rib, THIRD.1);
    assert!(rib.export(THIRD.0, TABLE, FAR).is_none());
    through(&mut rib, gateway(3, 2));
    assert!(rib.export(THIRD.0, TABLE, FAR).is_none(), "or its network");
    through(&mut rib, gateway(4, 1));
    assert!(rib.export(THIRD.0, TABLE, FAR).is_some());
    assert!(rib.export(INTERNAL.0, TABLE, FAR).is_some());
    let mut long: Vec<GatewayId> = (10..).map(|of| gateway(of, 1)).take(MAX_PATH).collect();
    long[0] = SECOND.1;
    rib.announce(START, SECOND.0, TABLE, FAR, route(1, &long[..MAX_PATH - 1]))
        .expect("accepted");
    let exported = rib.export(THIRD.0, TABLE, FAR).expect("room for one more");
    assert_eq!(exported.path.len(), MAX_PATH);
    assert_eq!(exported.path[..2], [OWN, SECOND.1]);
    rib.announce(START, SECOND.0, TABLE, FAR, route(1, &long))
        .expect("accepted");
    assert!(rib.export(THIRD.0, TABLE, FAR).is_none(), "no room");
}

#[test]
fn an_internal_peer_hears_of_paths_through_its_network_unless_it_is_in_them() {
    let mut rib = settled();
    let other = (PeerId(4), gateway(1, 3));
    rib.set_peer(other.0, PeerConfig::new(other.1));
    rib.peer_up(other.0, Tables::ALL);
    let path = route(1, &[INTERNAL.1, other.1, FAR]);
    rib.announce(START, INTERNAL.0, TABLE, FAR, path)
        .expect("accepted");
    // Not full mesh: as if the route came from elsewhere.
    rib.peers.get_mut(&INTERNAL.0).expect("known").internal = false;
    assert!(rib.export(other.0, TABLE, FAR).is_none());
    let path = route(1, &[INTERNAL.1, gateway(1, 4), FAR]);
    rib.announce(START, INTERNAL.0, TABLE, FAR, path)
        .expect_err("a loop, from another network");
}

#[test]
fn routes_that_lie_or_loop_are_counted_and_withdraw_the_previous_one() {
    let mut rib = settled();
    for (path, refused) in [
        (vec![THIRD.1, FAR], Refused::NotFromPeer),
        (vec![], Refused::NotFromPeer),
        (vec![SECOND.1, OWN, FAR], Refused::Loop),
        (vec![SECOND.1, gateway(1, 7), FAR], Refused::Loop),
    ] {
        announce(&mut rib, SECOND, 4);
        assert_eq!(via(&rib), Some(SECOND.0));
        let result = rib.announce(START, SECOND.0, TABLE, FAR, route(1, &path));
        assert_eq!(result, Err(refused));
        assert_eq!(via(&rib), None);
    }
    assert_eq!((rib.stats.not_from_peer, rib.stats.loops), (2, 2));
    // From this network, only the own gateway in the path is a loop.
    let path = route(1, &[INTERNAL.1, gateway(1, 7), FAR]);
    let result = rib.announce(START, INTERNAL.0, TABLE, FAR, path);
    assert_eq!(result, Ok(()));
    let path = route(1, &[INTERNAL.1, OWN, FAR]);
    let result = rib.announce(START, INTERNAL.0, TABLE, FAR, path);
    assert_eq!(result, Err(Refused::Loop));
}

#[test]
fn trees_are_examined_after_changes_that_they_can_see() {
    let mut rib = settled();
    let changed = |rib: &mut Rib| {
        let changed = rib.has_changed();
        let mut networks = Vec::new();
        while let Some((table, network, otherwise)) = rib.poll_changed() {
            assert_eq!(table, TABLE);
            networks.push((network, otherwise));
        }
        assert_eq!(changed, !networks.is_empty());
        networks
    };
    announce(&mut rib, SECOND, 4);
    assert_eq!(changed(&mut rib), [(FAR.network, true)]);
    announce(&mut rib, SECOND, 4);
    assert_eq!(changed(&mut rib), [], "the same");
    let mut tagged = route(4, &[SECOND.1, FAR]);
    tagged.tags.push(7);
    rib.announce(START, SECOND.0, TABLE, FAR, tagged)
        .expect("accepted");
    assert_eq!(changed(&mut rib), [], "tags decide nothing");
    announce(&mut rib, SECOND, 5);
    assert_eq!(changed(&mut rib), [(FAR.network, false)], "cost");
    let longer = route(5, &[SECOND.1, gateway(4, 1), FAR]);
    rib.announce(START, SECOND.0, TABLE, FAR, longer)
        .expect("accepted");
    assert_eq!(changed(&mut rib), [(FAR.network, false)], "length");
    announce(&mut rib, THIRD, 100);
    assert_eq!(changed(&mut rib), [(FAR.network, false)], "a candidate");
    announce(&mut rib, THIRD, 1);
    assert_eq!(changed(&mut rib), [(FAR.network, true)], "the best one");
    rib.withdraw(START, SECOND.0, TABLE, FAR);
    assert_eq!(changed(&mut rib), [(FAR.network, false)]);
    rib.withdraw(START, THIRD.0, TABLE, FAR);
    assert_eq!(changed(&mut rib), [(FAR.network, true)]);
    assert_eq!(rib.decided(TABLE, FAR.network), None);
}

#[test]
fn counters_of_routes() {
    let mut rib = settled();
    let changes = rib.stats.changes;
    announce(&mut rib, SECOND, 4);
    announce(&mut rib, THIRD, 5);
    assert_eq!(rib.stats.changes - changes, 1);
    announce(&mut rib, THIRD, 3);
    rib.withdraw(START, THIRD.0, TABLE, FAR);
    assert_eq!(rib.stats.changes - changes, 3);
    assert_eq!(rib.count(SECOND.0, TABLE), (1, 4_096));
    assert_eq!(rib.count(SECOND.0, OTHER_TABLE), (0, 4_096));
    assert_eq!(rib.count(THIRD.0, TABLE), (0, 4_096));
    assert_eq!(rib.count(PeerId(77), TABLE), (0, 0));
}

#[test]
fn the_limit_of_routes_itself_is_allowed() {
    let mut config = PeerConfig::new(SECOND.1);
    config.max_routes = 2;
    let mut rib = settled();
    rib.set_peer(SECOND.0, config);
    let mut over = Vec::new();
    for number in 1..=3 {
        let destination = gateway(9, number);
        let path = route(1, &[SECOND.1, destination]);
        rib.announce(START, SECOND.0, OTHER_TABLE, destination, path)
            .expect("accepted");
        over.push(rib.over_limit(SECOND.0));
    }
    assert_eq!(over, [None, None, Some(OTHER_TABLE)]);
}

#[test]
fn new_costs_hold_for_all_routes_at_once() {
    let mut rib = settled();
    announce(&mut rib, SECOND, 4);
    for (id, _) in [SECOND, THIRD] {
        told(&mut rib, id);
    }
    let mut config = Config::new(OWN);
    config.origin = Costs::uniform(Cost(3));
    config.transit = Costs::uniform(Cost(10));
    while rib.poll_changed().is_some() {}
    rib.reconfigure(&config);
    assert!(rib.has_changed(), "every route is decided again");
    let news = told(&mut rib, THIRD.0);
    assert!(news.contains(&(FAR, Some(15))), "{news:?}");
    assert!(news.contains(&(OWN, Some(3))), "{news:?}");
    let fourth = (PeerId(4), gateway(4, 1));
    rib.set_peer(fourth.0, PeerConfig::new(fourth.1));
    rib.peer_up(fourth.0, Tables::ALL);
    let at_first = told(&mut rib, fourth.0);
    assert!(at_first.contains(&(OWN, Some(3))), "{at_first:?}");
    rib.withdraw(START, SECOND.0, TABLE, FAR);
    assert!(!rib.destinations.contains_key(&(TABLE, FAR)));
    announce(&mut rib, SECOND, 4);
    told(&mut rib, THIRD.0);
    // No table in which this network publishes.
    config.origin = Costs::uniform(Cost::INFINITE);
    rib.reconfigure(&config);
    let own = Table::COUNT;
    let withdrawn = told(&mut rib, THIRD.0);
    assert_eq!(withdrawn, vec![(OWN, None); own]);
    assert!(rib.iter().count() == 1, "the route of the peer stays");
    assert!(!rib.destinations.contains_key(&(TABLE, OWN)));
}

#[test]
fn a_peers_table_is_awaited_until_its_end() {
    let mut rib = Rib::new(&Config::new(OWN));
    assert!(!rib.is_awaited(SECOND.0));
    rib.set_peer(SECOND.0, PeerConfig::new(SECOND.1));
    assert!(!rib.is_awaited(SECOND.0), "no session");
    rib.peer_up(SECOND.0, Tables::NONE.with(TABLE).with(OTHER_TABLE));
    rib.end_of_table(START, SECOND.0, TABLE);
    assert!(rib.is_awaited(SECOND.0));
    rib.end_of_table(START, SECOND.0, OTHER_TABLE);
    assert!(!rib.is_awaited(SECOND.0));
}

#[test]
fn costs_of_sroutes_select_gateways() {
    let mut rib = settled();
    let second = gateway(9, 2);
    announce(&mut rib, SECOND, 4);
    let path = route(9, &[THIRD.1, second]);
    rib.announce(START, THIRD.0, TABLE, second, path)
        .expect("accepted");
    let sroutes = |costs: &[(GatewayId, u32)]| -> Vec<GatewayCost> {
        let cost = |&(gateway, cost)| GatewayCost {
            gateway,
            cost: Cost(cost),
        };
        costs.iter().map(cost).collect()
    };
    let choose = |costs: &[(GatewayId, u32)]| {
        let choice = rib.choose(TABLE, FAR.network, &sroutes(costs), |_| true);
        choice.map(|choice| (choice.peer, choice.gateway, choice.cost.0))
    };
    assert_eq!(choose(&[]), Some((SECOND.0, FAR, 5)));
    assert_eq!(
        choose(&[(FAR, 50), (second, 1)]),
        Some((THIRD.0, second, 11))
    );
    assert_eq!(
        choose(&[(second, 100)]),
        Some((THIRD.0, second, 110)),
        "the only one"
    );
    assert_eq!(choose(&[(gateway(9, 7), 1)]), None);
    let cost_of =
        |id, costs: &[(GatewayId, u32)]| rib.cost_of(id, TABLE, FAR.network, &sroutes(costs));
    assert_eq!(cost_of(SECOND.0, &[]), Cost(4));
    assert_eq!(cost_of(SECOND.0, &[(FAR, 50)]), Cost(54));
    assert_eq!(cost_of(SECOND.0, &[(second, 1)]), Cost::INFINITE);
    assert_eq!(cost_of(THIRD.0, &[(FAR, 1), (second, 1)]), Cost(10));
    assert!(rib.is_ambiguous(TABLE, FAR.network));
    assert_eq!(rib.gateways(TABLE, FAR.network, 1), [FAR]);
    assert_eq!(rib.gateways(TABLE, FAR.network, 9), [FAR, second]);
}

#[test]
fn stale_routes_stay_until_they_are_swept() {
    let mut rib = settled();
    announce(&mut rib, SECOND, 4);
    rib.peer_down(START, SECOND.0, true);
    assert_eq!(via(&rib), Some(SECOND.0));
    rib.sweep(START, SECOND.0, Some(OTHER_TABLE));
    assert_eq!(via(&rib), Some(SECOND.0));
    rib.sweep(START, SECOND.0, None);
    assert_eq!(via(&rib), None);
    rib.peer_up(SECOND.0, Tables::ALL);
    announce(&mut rib, SECOND, 4);
    rib.sweep(START, SECOND.0, None);
    assert_eq!(via(&rib), Some(SECOND.0), "confirmed");
    rib.peer_down(START, SECOND.0, false);
    assert_eq!(via(&rib), None);
}

#[test]
fn who_hears_of_a_route_may_join_through_it() {
    let mut rib = settled();
    let may = |rib: &Rib, id| rib.is_announced_to(id, TABLE, FAR.network);
    announce(&mut rib, SECOND, 4);
    assert!(may(&rib, THIRD.0), "about to be announced");
    assert!(!may(&rib, SECOND.0));
    told(&mut rib, THIRD.0);
    assert!(may(&rib, THIRD.0));
    rib.withdraw(START, SECOND.0, TABLE, FAR);
    assert!(may(&rib, THIRD.0), "it has not heard yet");
    told(&mut rib, THIRD.0);
    assert!(!may(&rib, THIRD.0));
}

#[test]
fn a_suppressed_route_is_used_again_when_it_was_quiet() {
    let mut rib = settled();
    let penalties = Damping::default();
    let limit = penalties.suppress / penalties.withdrawal;
    for _ in 0..limit {
        announce(&mut rib, SECOND, 4);
        rib.withdraw(START, SECOND.0, TABLE, FAR);
    }
    announce(&mut rib, SECOND, 4);
    assert_eq!(
        (via(&rib), rib.stats.suppressed, rib.flapping()),
        (None, 1, 1)
    );
    let again = rib.poll_timeout().expect("suppressed");
    // From 6,000 to 750 are three half-lives.
    let quiet = again - START;
    assert_eq!(quiet, penalties.half_life * 3);
    rib.handle_timeout(again - Duration::from_micros(1));
    assert_eq!(via(&rib), None);
    rib.handle_timeout(again);
    assert_eq!((via(&rib), rib.poll_timeout()), (Some(SECOND.0), None));
    // Peers of this network flap at the border.
    for _ in 0..2 * limit {
        announce(&mut rib, INTERNAL, 1);
        rib.withdraw(START, INTERNAL.0, TABLE, FAR);
    }
    assert_eq!(rib.flapping(), 1);
    rib.remove_peer(START, SECOND.0);
    assert_eq!((via(&rib), rib.flapping()), (None, 0));
}

#[test]
fn repeated_announcements_are_no_flaps() {
    let mut rib = settled();
    for _ in 0..50 {
        announce(&mut rib, SECOND, 4);
    }
    assert_eq!((via(&rib), rib.flapping()), (Some(SECOND.0), 0));
    for cost in 0..12 {
        announce(&mut rib, SECOND, cost);
    }
    assert_eq!((via(&rib), rib.stats.suppressed), (None, 1));
}
