//! The router tells the hierarchy of its entries, interfaces and pins, and what it tells the neighbours then.

use std::net::Ipv4Addr;

use igmp::datagram::{IGMP_AT, UDP_AT, finish_membership};
use igmp::wire::{ALL_V3_ROUTERS, RecordType, ReportWriter};
use lms_proto::hier::{Cost, DropReason};
use lms_proto::router::{Config, Event, InterfaceError, Policy, Router};
use lms_proto::table::{InstallError, Neighbour, Replier};
use lms_proto::wire::hier::{Kind, View};
use lms_proto::{Duration, Iface, Instant, InterfaceConfig, Key};

use crate::common::*;

fn with(policy: Policy) -> Config {
    Config {
        policy,
        ..Config::default()
    }
}

/// The report of a host that offers to be the replier of an entry.
fn offer(host: Ipv4Addr, key: Key, cost: u16) -> Vec<u8> {
    let mut packet = vec![0; 1500];
    let mut writer = ReportWriter::new(&mut packet[IGMP_AT..]).unwrap();
    let sources = [key.source].into_iter();
    assert!(writer.push(
        RecordType::ModeIsInclude,
        key.group,
        sources,
        Some(Cost(cost))
    ));
    let len = writer.finish();
    let len = finish_membership(&mut packet, host, ALL_V3_ROUTERS, len).unwrap();
    packet.truncate(len);
    packet
}

/// A router under the hierarchy, whose host on the link `REPLIER` offers cost 3; the parent knows.
fn elected() -> Router<'static> {
    let mut router = router(with(Policy::Hierarchy));
    router
        .handle_packet(NOW, &meta(REPLIER), &offer(REPLIER_HOST, KEY, 3))
        .unwrap();
    assert_eq!(
        told(&mut router, after(1)),
        [(UP, Kind::Update, 4), (REPLIER, Kind::Elected, 3)]
    );
    assert_eq!(replier_of(&router), Some((REPLIER, 3)));
    while router.poll_event().is_some() {}
    router
}

fn after(seconds: u64) -> Instant {
    NOW + Duration::from_secs(seconds)
}

/// What is sent until then of (S, G): link, type and cost, each once.
fn told(router: &mut Router<'_>, until: Instant) -> Vec<(Iface, Kind, u16)> {
    let mut told = Vec::new();
    let mut buffer = [0; 1500];
    while let Some(now) = router.poll_timeout().filter(|now| *now <= until) {
        router.handle_timeout(now);
        while let Some(transmit) = router.poll_transmit(now, &mut buffer) {
            let view = View::<Ipv4Addr>::new_checked(&buffer[UDP_AT..transmit.len]).unwrap();
            for entry in view.entries().filter(|entry| entry.key == KEY) {
                told.push((transmit.iface, view.header().kind, entry.cost.0));
            }
        }
    }
    told.sort_by_key(|(iface, kind, cost)| (*iface, *kind as u8, *cost));
    told.dedup();
    told
}

fn replier_of(router: &Router<'_>) -> Option<(Iface, u16)> {
    let id = router.table().find(KEY)?;
    let replier = router.table().get(id)?.replier()?;
    Some((replier.iface, replier.cost))
}

fn known(router: &Router<'_>) -> Vec<(Key, Iface, usize)> {
    let entries = router.hierarchy().entries();
    entries
        .map(|(key, parent, _, offers)| (key, parent, offers))
        .collect()
}

const NO_OFFER: u16 = 0xffff;

#[test]
fn removed_entry_is_withdrawn_and_gone() {
    let mut router = elected();
    assert_eq!(known(&router), [(KEY, UP, 1)]);
    assert!(router.remove(after(1), KEY));
    assert_eq!(known(&router), []);
    let expected = [
        (UP, Kind::Update, NO_OFFER),
        (REPLIER, Kind::Elected, NO_OFFER),
    ];
    assert_eq!(told(&mut router, after(5)), expected);
    assert_eq!(router.poll_timeout(), None);
    assert!(!router.remove(after(5), KEY));
}

#[test]
fn removed_interface_takes_its_offers_and_is_told_no_more() {
    let mut router = elected();
    router.remove_interface(after(1), REPLIER);
    assert_eq!(known(&router), [(KEY, UP, 0)]);
    assert_eq!(router.hierarchy().peer_count(), 0);
    assert_eq!(replier_of(&router), None);
    let event = Event::Elected {
        key: KEY,
        replier: None,
    };
    assert_eq!(router.poll_event(), Some(event));
    assert_eq!(told(&mut router, after(5)), [(UP, Kind::Update, NO_OFFER)]);
    let refused = router.handle_packet(after(5), &meta(REPLIER), &offer(REPLIER_HOST, KEY, 3));
    assert_eq!(refused, Err(DropReason::UnknownInterface));
    // Number 0xffff is none.
    router.remove_interface(after(5), Iface::UNSET);
    assert_eq!(known(&router), [(KEY, UP, 0)]);
}

#[test]
fn removed_parent_hears_nothing_and_a_new_one_all() {
    let mut router = elected();
    router.remove_interface(after(1), UP);
    assert_eq!(known(&router), [(KEY, Iface::UNSET, 1)]);
    let sent = told(&mut router, after(20));
    assert!(sent.iter().all(|(iface, ..)| *iface != UP), "{sent:?}");
    router
        .install(after(20), KEY, ELSEWHERE, &[REPLIER, DOWN])
        .unwrap();
    assert_eq!(known(&router), [(KEY, ELSEWHERE, 1)]);
    let sent = told(&mut router, after(21));
    assert!(sent.contains(&(ELSEWHERE, Kind::Update, 4)), "{sent:?}");
    assert_eq!(replier_of(&router), Some((REPLIER, 3)));
}

#[test]
fn link_that_leaves_the_entry_takes_its_offers_and_others_stay() {
    let mut router = elected();
    let other = Ipv4Addr::new(10, 1, 3, 9);
    router
        .handle_packet(after(1), &meta(DOWN), &offer(other, KEY, 8))
        .unwrap();
    router.install(after(1), KEY, UP, &[DOWN, DOWN2]).unwrap();
    assert_eq!(known(&router), [(KEY, UP, 1)]);
    assert_eq!(replier_of(&router), Some((DOWN, 8)));
    let refused = router
        .hierarchy()
        .stats()
        .drops
        .get(DropReason::WrongInterface);
    router
        .handle_packet(after(1), &meta(REPLIER), &offer(REPLIER_HOST, KEY, 3))
        .unwrap();
    let drops = router.hierarchy().stats().drops;
    assert_eq!(drops.get(DropReason::WrongInterface), refused + 1);
    assert_eq!(replier_of(&router), Some((DOWN, 8)));
}

#[test]
fn changed_address_forgets_the_offers_of_the_link() {
    let mut router = elected();
    let config = InterfaceConfig::ipv4(Ipv4Addr::new(10, 1, 2, 2), 24);
    router.set_interface(after(1), REPLIER, config).unwrap();
    assert_eq!(
        (replier_of(&router), router.hierarchy().offer_count()),
        (None, 0)
    );
    router
        .handle_packet(after(1), &meta(REPLIER), &offer(REPLIER_HOST, KEY, 5))
        .unwrap();
    assert_eq!(replier_of(&router), Some((REPLIER, 5)));
}

/// The hierarchy has room for 8 interfaces and 8 entries, the router for more.
#[test]
fn what_the_hierarchy_has_no_room_for_is_refused_whole() {
    let mut router = elected();
    let config = |n: u8| InterfaceConfig::ipv4(Ipv4Addr::new(10, 1, n, 1), 24);
    for n in 6..9 {
        router
            .set_interface(after(1), Iface(n.into()), config(n))
            .unwrap();
    }
    let refused = router.set_interface(after(1), Iface(9), config(9));
    assert_eq!(refused, Err(InterfaceError::Limit));
    assert_eq!(router.interface(Iface(9)), None);
    router.remove_interface(after(1), Iface(6));
    router.set_interface(after(1), Iface(9), config(9)).unwrap();
    // Under another policy the hierarchy does not count.
    let mut other = router_with_replier();
    for n in 6..20 {
        other
            .set_interface(NOW, Iface(n.into()), config(n))
            .unwrap();
    }
    assert_eq!(known(&other), []);
    let key = |n: u8| Key::new(Ipv4Addr::new(10, 1, 0, 100 + n), GROUP);
    for n in 0..7 {
        router.install(after(1), key(n), UP, &[DOWN]).unwrap();
    }
    let refused = router.install(after(1), key(7), UP, &[DOWN]);
    assert_eq!(refused, Err(InstallError::Full));
    assert_eq!(router.table().find(key(7)), None);
}

#[test]
fn hierarchy_is_left_and_entered_with_the_policy() {
    let mut router = elected();
    router.set_config(after(1), with(Policy::Static));
    assert_eq!((known(&router), replier_of(&router)), (vec![], None));
    let expected = [
        (UP, Kind::Update, NO_OFFER),
        (REPLIER, Kind::Elected, NO_OFFER),
    ];
    assert_eq!(told(&mut router, after(5)), expected);
    // What changes meanwhile is known afterwards.
    let config = InterfaceConfig::ipv4(Ipv4Addr::new(10, 1, 9, 1), 24);
    router.set_interface(after(5), DOWN2, config).unwrap();
    router
        .install(after(5), KEY, ELSEWHERE, &[REPLIER, DOWN2])
        .unwrap();
    router.set_config(after(5), with(Policy::Hierarchy));
    assert_eq!(known(&router), [(KEY, ELSEWHERE, 0)]);
    let host = Ipv4Addr::new(10, 1, 9, 77);
    router
        .handle_packet(after(5), &meta(DOWN2), &offer(host, KEY, 6))
        .unwrap();
    assert_eq!(replier_of(&router), Some((DOWN2, 6)));
    let sent = told(&mut router, after(6));
    assert_eq!(
        sent,
        [(DOWN2, Kind::Elected, 6), (ELSEWHERE, Kind::Update, 7)]
    );
    // The same policy with another configuration: the parent learns of the new cost at once.
    let mut dearer = with(Policy::Hierarchy);
    dearer.hierarchy.own_cost = 10;
    router.set_config(after(6), dearer);
    let sent = told(&mut router, after(7));
    assert_eq!(
        sent,
        [(DOWN2, Kind::Elected, 6), (ELSEWHERE, Kind::Update, 16)]
    );
    assert_eq!(replier_of(&router), Some((DOWN2, 6)));
    // The same configuration again: nothing is sent before the next refresh.
    router.set_config(after(7), dearer);
    assert_eq!(told(&mut router, after(10)), []);
}

fn pin(iface: Iface, host: Ipv4Addr, cost: u16) -> Option<Replier> {
    Some(Replier {
        iface,
        cost,
        neighbour: Some(Neighbour {
            addr: host,
            link: None,
        }),
    })
}

#[test]
fn pin_is_an_offer_to_the_parent_and_replaces_the_one_before() {
    let mut router = router(with(Policy::Hierarchy));
    let other = Ipv4Addr::new(10, 1, 3, 9);
    router
        .set_replier(NOW, KEY, pin(REPLIER, REPLIER_HOST, 3))
        .unwrap();
    assert_eq!(known(&router), [(KEY, UP, 1)]);
    assert!(told(&mut router, after(1)).contains(&(UP, Kind::Update, 4)));
    router
        .set_replier(after(1), KEY, pin(DOWN, other, 9))
        .unwrap();
    assert_eq!(known(&router), [(KEY, UP, 1)]);
    assert_eq!(replier_of(&router), Some((DOWN, 9)));
    assert!(told(&mut router, after(2)).contains(&(UP, Kind::Update, 10)));
    router.set_replier(after(2), KEY, None).unwrap();
    assert_eq!(
        (known(&router), replier_of(&router)),
        (vec![(KEY, UP, 0)], None)
    );
    assert_eq!(
        told(&mut router, after(3)),
        [
            (UP, Kind::Update, NO_OFFER),
            (DOWN, Kind::Elected, NO_OFFER)
        ]
    );
}

/// A pin that was set under another policy is an offer to the parent once the hierarchy is in use.
#[test]
fn pin_of_another_policy_is_an_offer_too() {
    let mut router = router_with_replier();
    router.set_config(NOW, with(Policy::Hierarchy));
    assert_eq!(known(&router), [(KEY, UP, 1)]);
    assert_eq!(replier_of(&router), Some((REPLIER, 3)));
    let expected = [(UP, Kind::Update, 4), (REPLIER, Kind::Elected, 3)];
    assert_eq!(told(&mut router, after(1)), expected);
    router.set_replier(after(1), KEY, None).unwrap();
    assert_eq!(
        (known(&router), replier_of(&router)),
        (vec![(KEY, UP, 0)], None)
    );
}
