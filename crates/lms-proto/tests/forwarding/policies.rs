//! The destination of requests that turn: elected, drawn at random, configured, searched.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use lms_proto::router::{Config, Event, Output, Policy, Router, Verdict};
use lms_proto::table::{Neighbour, Replier};
use lms_proto::wire::ipv4;
use lms_proto::{Duration, Form, Iface, Instant, LinkAddr, LmsOption, Meta, NextHop};

use crate::common::*;

fn with(policy: Policy) -> Router<'static> {
    router(Config {
        policy,
        request_rate: lms_proto::router::Rate {
            per_second: 1_000_000,
            burst: 1_000_000,
        },
        ..Config::default()
    })
}

/// Where the copies of a request go, each with its bytes.
fn copies(
    router: &mut Router<'_>,
    now: Instant,
    from: Iface,
    packet: &[u8],
) -> Vec<(Output, Vec<u8>)> {
    let mut bytes = packet.to_vec();
    let verdict = router.forward(now, &meta(from), &mut bytes);
    let Verdict::Forward { output, second, .. } = verdict else {
        panic!("{verdict:?}");
    };
    let mut all = vec![(output, bytes.clone())];
    if let Some(second) = second {
        let output = router.second_copy(second, &mut bytes);
        all.push((output, bytes));
    }
    for (_, bytes) in &all {
        let header = ipv4::Layout::check(bytes).unwrap().header_len;
        assert!(ipv4::checksum_ok(&bytes[..header]));
        assert_eq!(ipv4::ttl(bytes), 63);
    }
    all
}

fn unturned() -> Vec<u8> {
    request(KEY, None, Form::Classic)
}

fn turned() -> Vec<u8> {
    let turned = turning_point([192, 0, 2, 1].into(), Iface(9));
    request(KEY, Some(turned), Form::Classic)
}

#[test]
fn random_draws_each_interface_and_holds_a_draw() {
    let redraw = Duration::from_secs(5);
    let mut router = with(Policy::Random { redraw });
    let mut drawn = BTreeMap::new();
    for round in 0..300 {
        let now = NOW + Duration::from_secs(5 * round);
        let first = copies(&mut router, now, UP, &turned())[0].0;
        let later = now + Duration::from_millis(4_900);
        assert_eq!(copies(&mut router, later, UP, &turned())[0].0, first);
        *drawn.entry(first.iface).or_insert(0) += 1;
    }
    assert_eq!(
        drawn.keys().copied().collect::<Vec<_>>(),
        [REPLIER, DOWN, DOWN2]
    );
    assert!(
        drawn.values().all(|count| (60..=140).contains(count)),
        "{drawn:?}"
    );
}

#[test]
fn random_draws_again_when_the_interface_leaves() {
    let redraw = Duration::from_secs(1_000);
    let mut router = with(Policy::Random { redraw });
    let gone = copies(&mut router, NOW, UP, &turned())[0].0.iface;
    router.remove_interface(NOW, gone);
    let next = copies(&mut router, NOW, UP, &turned())[0].0.iface;
    assert_ne!(next, gone);
}

#[test]
fn search_party_spreads_copies_over_parent_and_children() {
    let mut router = with(Policy::SearchParty { copies: 2, up: 128 });
    let mut seen = BTreeMap::new();
    let mut pairs = 0;
    for _ in 0..2_000 {
        let all = copies(&mut router, NOW, DOWN, &unturned());
        pairs += u32::from(all.len() == 2);
        for (n, (output, bytes)) in all.iter().enumerate() {
            *seen.entry(output.iface).or_insert(0) += 1;
            let (_, option) = LmsOption::parse::<Ipv4Addr>(&bytes[20..]).unwrap();
            let expected = match output.iface {
                UP => None,
                child => Some(turning_point(address(child), number(DOWN))),
            };
            assert_eq!(option.turning_point, expected);
            assert_eq!(output.next_hop, NextHop::Group);
            // What goes up is untouched, so it goes first.
            assert!(n == 0 || output.iface != UP);
        }
        if let [(a, _), (b, _)] = &all[..] {
            assert_ne!(a.iface, b.iface);
        }
    }
    // Never back to where it came from; two copies differ with chance 1/2 + 1/2 * 1/4.
    assert_eq!(
        seen.keys().copied().collect::<Vec<_>>(),
        [UP, REPLIER, DOWN2]
    );
    assert!((1_150..=1_350).contains(&pairs), "{pairs}");
    let stats = router.stats();
    assert_eq!(stats.requests_to_parent, seen[&UP]);
    assert_eq!(stats.requests_turned, seen[&REPLIER] + seen[&DOWN2]);
}

#[test]
fn search_party_never_goes_up_again() {
    let mut router = with(Policy::SearchParty { copies: 2, up: 255 });
    for _ in 0..500 {
        for (output, bytes) in copies(&mut router, NOW, UP, &turned()) {
            assert!([REPLIER, DOWN, DOWN2].contains(&output.iface));
            assert_eq!(bytes[20..36], turned()[20..36]);
        }
    }
    let mut bytes = turned();
    let verdict = router.forward(NOW, &meta(DOWN), &mut bytes);
    let reason = lms_proto::router::DropReason::TurnedFromBelow;
    assert_eq!(verdict, Verdict::Drop(reason));
}

#[test]
fn search_party_with_one_copy_or_nowhere_else_to_go() {
    let mut router = with(Policy::SearchParty { copies: 1, up: 128 });
    for _ in 0..100 {
        assert_eq!(copies(&mut router, NOW, DOWN, &unturned()).len(), 1);
    }
    let mut router = with(Policy::SearchParty { copies: 2, up: 0 });
    router.install(NOW, KEY, UP, &[DOWN]).unwrap();
    for _ in 0..100 {
        let all = copies(&mut router, NOW, DOWN, &unturned());
        assert_eq!(all.iter().map(|(o, _)| o.iface).collect::<Vec<_>>(), [UP]);
    }
    router.install(NOW, KEY, Iface::UNSET, &[DOWN]).unwrap();
    let reason = lms_proto::router::DropReason::NoParent;
    expect_drop_whatever_the_dice(&mut router, DOWN, &unturned(), reason);
    router.install(NOW, KEY, UP, &[]).unwrap();
    let reason = lms_proto::router::DropReason::NoReplier;
    expect_drop_whatever_the_dice(&mut router, UP, &turned(), reason);
}

fn expect_drop_whatever_the_dice(
    router: &mut Router<'_>,
    from: Iface,
    packet: &[u8],
    reason: lms_proto::router::DropReason,
) {
    let mut bytes = packet.to_vec();
    let verdict = router.forward(NOW, &meta(from), &mut bytes);
    assert_eq!(verdict, Verdict::Drop(reason));
    assert_eq!(bytes, packet);
}

#[test]
fn same_seed_same_draws() {
    let run = || {
        let mut router = with(Policy::SearchParty { copies: 2, up: 100 });
        let all = (0..100).map(|_| copies(&mut router, NOW, DOWN, &unturned()));
        all.collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
}

#[test]
fn a_pinned_replier_stays_until_its_interface_leaves() {
    let mut router = with(Policy::Random {
        redraw: Duration::from_secs(1),
    });
    router.set_replier(NOW, KEY, Some(replier())).unwrap();
    for round in 0..50 {
        let now = NOW + Duration::from_secs(10 * round);
        assert_eq!(copies(&mut router, now, UP, &turned())[0].0.iface, REPLIER);
    }
    let now = NOW + Duration::from_secs(500);
    router.install(now, KEY, UP, &[DOWN]).unwrap();
    assert_eq!(copies(&mut router, now, UP, &turned())[0].0.iface, DOWN);
}

#[test]
fn pins_are_refused_where_they_make_no_sense() {
    let mut router = with(Policy::Static);
    let before = state(&router);
    let elsewhere = Replier {
        iface: ELSEWHERE,
        ..replier()
    };
    let not_downstream = Err(lms_proto::router::ReplierError::NotDownstream);
    assert_eq!(
        router.set_replier(NOW, KEY, Some(elsewhere)),
        not_downstream
    );
    let other = lms_proto::Key::any_source(GROUP);
    let no_entry = Err(lms_proto::router::ReplierError::NoEntry);
    assert_eq!(router.set_replier(NOW, other, Some(replier())), no_entry);
    assert_eq!(state(&router), before);
}

// LMS-HIER.

/// An UPDATE from a router below, as its own machine writes it.
fn update(cost: u16) -> Vec<u8> {
    let mut below = Router::new(
        Config::default(),
        lms_proto::router::Storage::with_capacity(2, 8),
        [cost as u8; 32],
        NOW,
    );
    for (iface, address) in [(UP, [10, 1, 3, 200]), (DOWN, [10, 77, 0, 1])] {
        let config = lms_proto::InterfaceConfig::ipv4(address.into(), 24);
        below.set_interface(NOW, iface, config).unwrap();
    }
    below.install(NOW, KEY, UP, &[DOWN]).unwrap();
    let replier = Replier {
        iface: DOWN,
        cost: cost - 1,
        neighbour: Some(Neighbour {
            addr: [10, 77, 0, 5].into(),
            link: None,
        }),
    };
    below.set_replier(NOW, KEY, Some(replier)).unwrap();
    let mut buffer = [0; 1500];
    for _ in 0..10 {
        let now = below.poll_timeout().unwrap();
        below.handle_timeout(now);
        while let Some(transmit) = below.poll_transmit(now, &mut buffer) {
            if transmit.iface == UP {
                return buffer[..transmit.len].to_vec();
            }
        }
    }
    panic!("no UPDATE");
}

fn from_below(link: u8) -> Meta {
    Meta {
        iface: DOWN,
        link_source: Some(LinkAddr([2, 0, 0, 0, 0, link])),
    }
}

/// A request of the neighbour that `update` is from.
fn of_the_replier() -> Vec<u8> {
    edit(unturned(), 0, |p| {
        p[12..16].copy_from_slice(&[10, 1, 3, 200]);
    })
}

#[test]
fn the_elected_neighbour_gets_a_unicast_frame() {
    let mut router = with(Policy::Hierarchy);
    router
        .handle_packet(NOW, &from_below(7), &update(4))
        .unwrap();
    let output = copies(&mut router, NOW, DOWN2, &unturned())[0].0;
    let addr = [10, 1, 3, 200].into();
    let expected = Output {
        iface: DOWN,
        next_hop: NextHop::Neighbour {
            addr,
            link: Some(LinkAddr([2, 0, 0, 0, 0, 7])),
        },
    };
    assert_eq!(output, expected);
    // Its own requests go up; those of its neighbours on the link go to it.
    let output = copies(&mut router, NOW, DOWN, &of_the_replier())[0].0;
    assert_eq!(output.iface, UP);
    assert_eq!(copies(&mut router, NOW, DOWN, &unturned())[0].0, expected);
    let Some(Event::Elected {
        key,
        replier: Some(replier),
    }) = router.poll_event()
    else {
        panic!("no event");
    };
    assert_eq!((key, replier.iface, replier.cost), (KEY, DOWN, 4));
    assert_eq!(replier.neighbour.map(|n| n.addr), Some(addr));
    assert_eq!(router.poll_event(), None);
}

#[test]
fn a_silent_replier_is_forgotten_within_its_hold_time() {
    let mut router = with(Policy::Hierarchy);
    router
        .handle_packet(NOW, &from_below(7), &update(4))
        .unwrap();
    let mut now = NOW;
    while let Some(at) = router.poll_timeout() {
        now = now.max(at);
        router.handle_timeout(now);
        while router.poll_transmit(now, &mut [0; 1500]).is_some() {}
    }
    assert!(now <= NOW + Duration::from_secs(36), "{now}");
    let output = copies(&mut router, now, DOWN2, &unturned())[0].0;
    assert_eq!(output.iface, UP);
}

#[test]
fn a_pin_beats_the_hierarchy_and_gives_way_to_it_again() {
    let mut router = with(Policy::Hierarchy);
    router
        .handle_packet(NOW, &from_below(7), &update(4))
        .unwrap();
    let dear = Replier {
        cost: 50,
        ..replier()
    };
    router.set_replier(NOW, KEY, Some(dear)).unwrap();
    assert_eq!(
        copies(&mut router, NOW, DOWN2, &unturned())[0].0.iface,
        REPLIER
    );
    router.set_replier(NOW, KEY, None).unwrap();
    assert_eq!(
        copies(&mut router, NOW, DOWN2, &unturned())[0].0.iface,
        DOWN
    );
}

#[test]
fn an_elected_replier_goes_with_its_interface() {
    for removed in [true, false] {
        let mut router = with(Policy::Hierarchy);
        router
            .handle_packet(NOW, &from_below(7), &update(4))
            .unwrap();
        if removed {
            router.remove_interface(NOW, DOWN);
        } else {
            router.install(NOW, KEY, UP, &[REPLIER, DOWN2]).unwrap();
        }
        assert_eq!(copies(&mut router, NOW, DOWN2, &unturned())[0].0.iface, UP);
        let id = router.table().find(KEY).unwrap();
        assert_eq!(router.table().get(id).unwrap().replier(), None);
    }
}

#[test]
fn other_policies_do_not_listen() {
    let mut router = with(Policy::Static);
    router
        .handle_packet(NOW, &from_below(7), &update(4))
        .unwrap();
    assert_eq!(copies(&mut router, NOW, DOWN2, &unturned())[0].0.iface, UP);
    assert_eq!(router.poll_timeout(), None);
}

/// A router that loses its parent sends no message and continues.
#[test]
fn a_removed_parent_is_no_parent() {
    let mut router = with(Policy::Hierarchy);
    router
        .handle_packet(NOW, &from_below(7), &update(4))
        .unwrap();
    router.remove_interface(NOW, UP);
    assert_eq!(
        copies(&mut router, NOW, DOWN2, &unturned())[0].0.iface,
        DOWN
    );
    let reason = lms_proto::router::DropReason::NoParent;
    expect_drop(&mut router, DOWN, &of_the_replier(), reason);
    assert_eq!(router.interface(UP), None);
    assert_eq!(router.interfaces().count(), 4);
}

#[test]
fn a_changed_address_is_the_new_turning_point() {
    let mut router = router_with_replier();
    let config = lms_proto::InterfaceConfig::ipv4([10, 88, 0, 1].into(), 16);
    router.set_interface(NOW, REPLIER, config).unwrap();
    let (_, bytes) = copies(&mut router, NOW, DOWN, &unturned()).remove(0);
    let (_, option) = LmsOption::parse::<Ipv4Addr>(&bytes[20..]).unwrap();
    let expected = turning_point([10, 88, 0, 1].into(), number(DOWN));
    assert_eq!(option.turning_point, Some(expected));
    // The old address belongs to no interface now.
    for from in [UP, REPLIER] {
        let mut old = dmcast(KEY, lms_proto::wire::encap::Placement::Outer);
        assert_eq!(router.forward(NOW, &meta(from), &mut old), Verdict::Pass);
    }
}

#[test]
fn odd_interfaces_are_refused() {
    let mut router = with(Policy::Hierarchy);
    let before = state(&router);
    let mut refused = |iface, address: [u8; 4]| {
        let config = lms_proto::InterfaceConfig::ipv4(address.into(), 24);
        router.set_interface(NOW, Iface(iface), config).unwrap_err()
    };
    use lms_proto::router::InterfaceError;
    assert_eq!(refused(1, [0; 4]), InterfaceError::Address);
    assert_eq!(refused(1, [224, 0, 0, 1]), InterfaceError::Address);
    assert_eq!(refused(64, [10, 1, 1, 1]), InterfaceError::Limit);
    assert_eq!(refused(0xffff, [10, 1, 1, 1]), InterfaceError::Limit);
    assert_eq!(state(&router), before);
}
