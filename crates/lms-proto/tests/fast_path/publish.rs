//! What the machine publishes: records, words, and which entries changed.

use std::net::Ipv4Addr;

use lms_proto::endpoint::{self, Endpoint};
use lms_proto::fast_path::{Action, Arrival, Refusal, Verdict, Words};
use lms_proto::hier::Cost;
use lms_proto::router::{Config, Policy, Router, Storage};
use lms_proto::table::{EntryId, Neighbour, Replier};
use lms_proto::wire::encap::{DmcastRepr, Placement};
use lms_proto::{Duration, Form, Iface, Instant, InterfaceConfig, Key, LinkAddr, Meta};

use crate::common::{
    DOWN, DOWN2, GROUP, KEY, NOW, REPLIER, REPLIER_HOST, REPLIER_LINK, SOURCE, UP, compose,
    dmcast_repr, inner, meta, packet, replier, request, router, router_with_replier,
};
use crate::driver::{self, Driver, arrival, compare, expect_drop, expect_pass};
use crate::net;

/// Interfaces whose numbers are on both sides of 48.
fn many_interfaces() -> Router<'static> {
    let config = Config {
        policy: Policy::Static,
        ..Config::default()
    };
    let mut router = Router::new(config, Storage::with_capacity(100, 100), [1; 32], NOW);
    for iface in 0..100 {
        let address = Ipv4Addr::new(10, 1, iface, 1);
        let config = InterfaceConfig::ipv4(address, 24);
        router
            .set_interface(NOW, Iface(iface.into()), config)
            .unwrap();
    }
    router
}

fn on(iface: u16) -> Replier {
    Replier {
        iface: Iface(iface),
        ..replier()
    }
}

fn is_published(router: &Router<'_>, key: Key) -> bool {
    let id = router.table().find(key).expect("an entry");
    router.record(id, |_, _| None).is_some()
}

#[test]
fn only_entries_of_near_interfaces_are_published() {
    let install = |parent, down: &[u16], replier| {
        let mut router = many_interfaces();
        let down: Vec<Iface> = down.iter().copied().map(Iface).collect();
        router.install(NOW, KEY, Iface(parent), &down).unwrap();
        router.set_replier(NOW, KEY, Some(on(replier))).unwrap();
        is_published(&router, KEY)
    };
    assert!(install(47, &[0, 46], 0));
    assert!(install(0, &[1, 47], 47));
    assert!(!install(48, &[1, 2], 1));
    assert!(!install(0, &[1, 48], 48));
    assert!(install(Iface::UNSET.0, &[1, 2], 1));
}

/// Repairs for a link beyond the near ones arrive on a near one: its entry is the machine's.
#[test]
fn repairs_for_far_interfaces_reach_them() {
    for far in [47, 48, 99] {
        let mut router = many_interfaces();
        router
            .install(NOW, KEY, Iface(1), &[Iface(2), Iface(far)])
            .unwrap();
        router.set_replier(NOW, KEY, Some(on(2))).unwrap();
        let mut bytes = request(KEY, None, Form::Classic);
        let _ = router.forward(NOW, &meta(Iface(far)), &mut bytes);
        let number = Iface(u16::from_be_bytes([bytes[22], bytes[23]]));
        let repr = dmcast_repr(number, Form::Classic, Placement::Outer);
        let packet = compose(&repr, &inner(KEY));
        let driver = Driver::of(&router, None);
        let verdict = compare(&mut router, &driver, NOW, arrival(REPLIER), &packet, None);
        let action = if far < 48 {
            Action::Dmcast
        } else {
            Action::Pass
        };
        assert_eq!(verdict.action, action);
    }
}

/// The bits of a set end at the limit, whatever number a packet or a port has.
#[test]
fn arrivals_by_far_interfaces_are_for_the_machine() {
    let mut router = many_interfaces();
    router
        .install(NOW, KEY, Iface(1), &[Iface(2), Iface(3)])
        .unwrap();
    router.set_replier(NOW, KEY, Some(on(2))).unwrap();
    for far in [48, 63, 64, 67, 99] {
        let packet = request(KEY, None, Form::Own);
        expect_pass(&mut router, NOW, arrival(Iface(far)), &packet);
        let repr = DmcastRepr {
            router: Ipv4Addr::new(10, 1, far as u8, 1),
            ..dmcast_repr(Iface(9), Form::Own, Placement::Outer)
        };
        let packet = compose(&repr, &inner(KEY));
        expect_pass(&mut router, NOW, arrival(Iface(far)), &packet);
    }
    let packet = request(KEY, None, Form::Own);
    let reason = lms_proto::router::DropReason::NotInEntry;
    expect_drop(&mut router, NOW, arrival(Iface(47)), &packet, reason);
}

#[test]
fn shared_trees_and_other_policies_are_the_machine_s() {
    let random = Policy::Random {
        redraw: Duration::from_secs(9),
    };
    let party = Policy::SearchParty { copies: 1, up: 9 };
    for (policy, expected) in [
        (Policy::Static, true),
        (Policy::Hierarchy, true),
        (random, false),
        (party, false),
    ] {
        let config = Config {
            policy,
            ..Config::default()
        };
        let mut router = router(config);
        let shared = Key::any_source([232, 9, 9, 9].into());
        router.install(NOW, shared, UP, &[DOWN]).unwrap();
        assert_eq!(is_published(&router, KEY), expected, "{policy:?}");
        assert!(!is_published(&router, shared));
    }
    assert!(
        router_with_replier()
            .record(EntryId::from_index(1), |_, _| None)
            .is_none()
    );
}

/// A replier is published once its link address is known, from the machine or else from the driver.
#[test]
fn the_replier_s_link_address() {
    let resolved = LinkAddr([2, 9, 9, 9, 9, 9]);
    for (link, found, expected) in [
        (Some(REPLIER_LINK), Some(resolved), Some(REPLIER_LINK)),
        (None, Some(resolved), Some(resolved)),
        (None, None, None),
    ] {
        let mut router = router_with_replier();
        let known = Replier {
            neighbour: Some(Neighbour {
                addr: REPLIER_HOST,
                link,
            }),
            ..replier()
        };
        router.set_replier(NOW, KEY, Some(known)).unwrap();
        let id = router.table().find(KEY).unwrap();
        let record = router.record(id, |iface, addr| {
            assert_eq!((iface, addr), (REPLIER, REPLIER_HOST));
            found
        });
        assert_eq!(record.is_some(), expected.is_some());
        let mut driver = Driver::of(&router, None);
        driver.records.extend(record);
        let mut packet = request(KEY, None, Form::Own);
        let verdict = driver::run(&driver, NOW, arrival(DOWN), &mut packet);
        assert_eq!(expected, (verdict != Verdict::PASS).then_some(verdict.link));
    }
}

/// All zeros would stand for the whole link.
#[test]
fn a_neighbour_without_a_link_address_is_not_published() {
    let zeros = LinkAddr([0; 6]);
    for link in [None, Some(zeros)] {
        let mut router = router_with_replier();
        let known = Replier {
            neighbour: Some(Neighbour {
                addr: REPLIER_HOST,
                link,
            }),
            ..replier()
        };
        router.set_replier(NOW, KEY, Some(known)).unwrap();
        let id = router.table().find(KEY).unwrap();
        assert_eq!(router.record(id, |_, _| Some(zeros)), None);
    }
}

#[test]
fn words_are_set_and_returned() {
    let mut router = router_with_replier();
    let id = router.table().find(KEY).unwrap();
    assert_eq!(router.words(id), Some(Words::NEW));
    let words = Words {
        requests: 0x0102_0304_0506_0708,
        dmcasts: 0x1112_1314_1516_1718,
        credit: 0x2122_2324_2526_2728,
    };
    router.set_words(id, words);
    assert_eq!(router.words(id), Some(words));
    // Of no entry there are none, and a new one has new ones.
    router.remove(NOW, KEY);
    router.set_words(id, words);
    assert_eq!(router.words(id), None);
    assert_eq!(router.install(NOW, KEY, UP, &[DOWN]), Ok(id));
    assert_eq!(router.words(id), Some(Words::NEW));
}

#[test]
fn the_words_of_wrong_numbers() {
    let mut router = router_with_replier();
    let full = proto_core::TokenBucket::FULL.to_bits();
    assert_eq!(router.wrong_numbers(REPLIER), Some(full));
    router.set_wrong_numbers(REPLIER, 77);
    assert_eq!(router.wrong_numbers(REPLIER), Some(77));
    assert_eq!(router.wrong_numbers(DOWN), Some(full));
    router.set_wrong_numbers(Iface(64), 77);
    assert_eq!(router.wrong_numbers(Iface(64)), None);
}

/// Whatever carries a request or a dmcast: the entry whose words the machine may change.
#[test]
fn the_entry_of_a_packet() {
    let mut router = router_with_replier();
    let group = Ipv4Addr::new(232, 9, 9, 9);
    let shared = router
        .install(NOW, Key::any_source(group), UP, &[DOWN])
        .unwrap();
    let id = router.table().find(KEY).unwrap();
    let any = Key::new(SOURCE, group);
    for form in [Form::Classic, Form::Own] {
        assert_eq!(router.entry_of(&request(KEY, None, form)), Some(id));
        assert_eq!(router.entry_of(&request(any, None, form)), Some(shared));
        for placement in [Placement::Outer, Placement::Inner] {
            let repr = dmcast_repr(Iface(7), form, placement);
            assert_eq!(router.entry_of(&compose(&repr, &inner(KEY))), Some(id));
        }
    }
    let datagram = net::Request::new(net::By::Datagram, KEY, None).packet(net::By::Datagram);
    assert_eq!(router.entry_of(&datagram), Some(id));
    let other = Key::new(SOURCE, Ipv4Addr::new(232, 9, 9, 8));
    assert_eq!(router.entry_of(&request(other, None, Form::Own)), None);
    assert_eq!(
        router.entry_of(&packet(SOURCE, GROUP, 17, &[], &[0; 8])),
        None
    );
    let good = request(KEY, None, Form::Own);
    for len in 0..good.len() {
        assert_eq!(router.entry_of(&good[..len]), None);
    }
}

/// Each command names the entries that it changes, and those only.
#[test]
fn changes_are_named() {
    let mut router = router_with_replier();
    let id = router.table().find(KEY).unwrap();
    let other = Key::new(SOURCE, Ipv4Addr::new(232, 9, 9, 9));
    let other_id = router.install(NOW, other, UP, &[DOWN2]).unwrap();
    let mut after = |what, command: &dyn Fn(&mut Router<'static>), expected: &[EntryId]| {
        router.take_changes();
        assert!(router.take_changes().is_empty());
        command(&mut router);
        let changes = router.take_changes();
        let mut named = changes.entries.to_vec();
        named.dedup();
        assert_eq!((&named[..], changes.all), (expected, false), "{what}");
    };
    let same = |router: &mut Router<'static>| {
        let down = [REPLIER, DOWN, DOWN2];
        router.install(NOW, KEY, UP, &down).unwrap();
    };
    after("an entry again", &same, &[id]);
    after(
        "another replier",
        &|r| r.set_replier(NOW, KEY, None).unwrap(),
        &[id],
    );
    after(
        "a replier",
        &|r| r.set_replier(NOW, KEY, Some(replier())).unwrap(),
        &[id],
    );
    after(
        "an interface of one",
        &|r| r.remove_interface(NOW, REPLIER),
        &[id],
    );
    after(
        "an interface of two",
        &|r| r.remove_interface(NOW, DOWN2),
        &[id, other_id],
    );
    after(
        "the parent",
        &|r| r.remove_interface(NOW, UP),
        &[id, other_id],
    );
    after(
        "an entry less",
        &|r| assert!(r.remove(NOW, other)),
        &[other_id],
    );
    after("no entry", &|r| assert!(!r.remove(NOW, other)), &[]);
    after(
        "an entry",
        &|r| assert!(r.install(NOW, other, UP, &[DOWN]).is_ok()),
        &[other_id],
    );
    let packet = |r: &mut Router<'static>| {
        let _ = r.forward(NOW, &meta(DOWN), &mut request(KEY, None, Form::Own));
    };
    after("a packet", &packet, &[]);
}

#[test]
fn too_many_changes_are_not_named() {
    let mut router = many_interfaces();
    for (groups, all) in [(64, false), (65, true)] {
        router.take_changes();
        for group in 0..groups {
            let key = Key::new(SOURCE, Ipv4Addr::new(232, 9, 9, group));
            router.install(NOW, key, UP, &[DOWN]).unwrap();
        }
        let changes = router.take_changes();
        assert_eq!(changes.all, all);
        assert!(!changes.is_empty());
        let named: Vec<usize> = changes.entries.iter().map(|id| id.index()).collect();
        let expected: Vec<usize> = if all { Vec::new() } else { (0..64).collect() };
        assert_eq!(named, expected);
    }
    assert!(router.take_changes().is_empty());
}

/// A replier that was elected is published with the link address that its offers come from; a new one counts as a change.
#[test]
fn the_link_address_of_an_elected_neighbour() {
    let config = Config {
        policy: Policy::Hierarchy,
        ..Config::default()
    };
    let mut router: Router<'static> =
        Router::new(config, Storage::with_capacity(8, 8), [1; 32], NOW);
    for iface in [UP, REPLIER, DOWN] {
        let config = InterfaceConfig::ipv4(crate::common::address(iface), 24);
        router.set_interface(NOW, iface, config).unwrap();
    }
    router.install(NOW, KEY, UP, &[REPLIER, DOWN]).unwrap();
    let interface = InterfaceConfig::ipv4(REPLIER_HOST, 24);
    let config = endpoint::Config::new(REPLIER, interface);
    let mut host: Endpoint<'static> =
        Endpoint::new(config, endpoint::Storage::owned(1), [9; 32], NOW);
    host.join(NOW, KEY, Cost(3)).unwrap();
    let mut offer = |router: &mut Router<'static>, now: Instant, link| {
        let meta = Meta {
            iface: REPLIER,
            link_source: Some(link),
        };
        let mut buffer = [0; 1500];
        host.handle_timeout(now);
        let mut sent = 0;
        while let Some(transmit) = host.poll_transmit(now, &mut buffer) {
            router
                .handle_packet(now, &meta, &buffer[..transmit.len])
                .unwrap();
            sent += 1;
        }
        assert_ne!(sent, 0, "the host offers itself again");
        router.handle_timeout(now);
    };
    router.take_changes();
    offer(&mut router, NOW, REPLIER_LINK);
    assert!(!router.take_changes().is_empty(), "elected");
    let link_of = |router: &mut Router<'static>, now, link| {
        let driver = Driver::of(router, None);
        let packet = request(KEY, None, Form::Own);
        let verdict = compare(router, &driver, now, arrival(DOWN), &packet, None);
        assert_eq!(
            (verdict.action, verdict.refusal),
            (Action::Turn, Refusal::None)
        );
        // It asks the parent.
        let from = Arrival {
            iface: REPLIER,
            link_source: link,
        };
        let asking = compare(router, &driver, now, from, &packet, None);
        assert_eq!(asking.action, Action::ToParent);
        verdict.link
    };
    assert_eq!(link_of(&mut router, NOW, REPLIER_LINK), REPLIER_LINK);
    let other = LinkAddr([2, 9, 9, 9, 9, 9]);
    let mut now = NOW;
    for (link, is_change) in [(REPLIER_LINK, false), (other, true), (other, false)] {
        now += Duration::from_secs(120);
        router.take_changes();
        offer(&mut router, now, link);
        assert_eq!(router.take_changes().all, is_change);
        assert_eq!(link_of(&mut router, now, link), link);
    }
}
