//! Directed multicasts that no request of this router called for: a host that was asked nothing
//! puts nothing into a tree.

use std::net::{IpAddr, Ipv4Addr};

use lms_proto::router::{Config, DropReason, Policy, Rate, Router, Storage, Verdict};
use lms_proto::table::Replier;
use lms_proto::wire::encap::{DmcastRepr, Placement};
use lms_proto::{Duration, Form, Iface, Instant, InterfaceConfig, Key, LmsOption, TurningPoint};

use crate::common::*;

/// Repairs that one turned request lets pass by default (`router::Config`).
const REPAIRS_PER_REQUEST: usize = 2_048;
/// How long they may come.
const REPAIR_TIME: Duration = Duration::from_secs(10);
/// An interface number of the wire stands for its interface at least this long, and at most twice.
const ROTATION: Duration = Duration::from_secs(60);

/// Rates that do not get in the way.
fn endless() -> Config {
    let rate = Rate {
        per_second: 1_000_000_000,
        burst: u32::MAX,
    };
    Config {
        policy: Policy::Static,
        request_rate: rate,
        dmcast_rate: rate,
        ..Config::default()
    }
}

fn started(config: Config) -> Router<'static> {
    let mut router = router(config);
    router.set_replier(NOW, KEY, Some(replier())).unwrap();
    router
}

fn point_in(packet: &[u8]) -> Option<TurningPoint> {
    LmsOption::parse::<Ipv4Addr>(&packet[20..])
        .unwrap()
        .1
        .turning_point
}

/// A receiver asks below `iface`: the turning point that the replier reads.
fn ask(router: &mut Router<'_>, now: Instant, key: Key, iface: Iface) -> TurningPoint {
    ask_in(Form::Classic, router, now, key, iface)
}

fn ask_in(
    form: Form,
    router: &mut Router<'_>,
    now: Instant,
    key: Key,
    iface: Iface,
) -> TurningPoint {
    let mut bytes = request(key, None, form);
    let verdict = router.forward(now, &meta(iface), &mut bytes);
    let Verdict::Forward { packet, .. } = verdict else {
        panic!("{verdict:?}");
    };
    point_in(&bytes[packet]).expect("turned")
}

/// A dmcast around `inner` from `replier`.
fn answer(point: TurningPoint, replier: Ipv4Addr, inner: &[u8]) -> Vec<u8> {
    let IpAddr::V4(router) = point.router else {
        panic!("IPv6");
    };
    let repr = DmcastRepr {
        replier,
        router,
        ..dmcast_repr(point.iface, Form::Classic, Placement::Outer)
    };
    compose(&repr, inner)
}

/// A dmcast in the own form, with the cookie of the turning point.
fn answer_with_cookie(point: TurningPoint, replier: Ipv4Addr, inner: &[u8]) -> Vec<u8> {
    let IpAddr::V4(router) = point.router else {
        panic!("IPv6");
    };
    let repr = DmcastRepr {
        replier,
        router,
        cookie: point.cookie,
        ..dmcast_repr(point.iface, Form::Own, Placement::Outer)
    };
    compose(&repr, inner)
}

/// Whether a dmcast gets through, and where it goes.
fn passes(router: &mut Router<'_>, now: Instant, from: Iface, packet: &[u8]) -> Option<Iface> {
    match router.forward(now, &meta(from), &mut packet.to_vec()) {
        Verdict::Multicast { iface, .. } => Some(iface),
        _ => None,
    }
}

fn every_number() -> impl Iterator<Item = Iface> {
    (0..u16::MAX).map(Iface)
}

#[test]
fn a_host_that_nobody_asked_injects_nothing() {
    let mut router = started(endless());
    for from in [UP, REPLIER, DOWN] {
        let point = |iface| turning_point(address(REPLIER), iface);
        let through = every_number().filter(|&iface| {
            let packet = answer(point(iface), [198, 51, 100, 7].into(), &inner(KEY));
            passes(&mut router, NOW, from, &packet).is_some()
        });
        assert_eq!(through.count(), 0, "from {from}");
    }
    // Not after a request that went up, nor after one that another router had turned, either.
    let up = request(KEY, None, Form::Classic);
    let _ = router.forward(NOW, &meta(REPLIER), &mut up.clone());
    let turned = turning_point([192, 0, 2, 1].into(), Iface(9));
    let down = request(KEY, Some(turned), Form::Classic);
    let _ = router.forward(NOW, &meta(UP), &mut down.clone());
    assert_eq!(router.stats().requests_to_replier, 1);
    let through = every_number().filter(|&iface| {
        let packet = answer(
            turning_point(address(REPLIER), iface),
            REPLIER_HOST,
            &inner(KEY),
        );
        passes(&mut router, NOW, REPLIER, &packet).is_some()
    });
    assert_eq!(through.count(), 0);
}

#[test]
fn a_request_lets_its_repairs_pass_and_no_more() {
    let mut router = started(endless());
    let point = ask(&mut router, NOW, KEY, DOWN);
    let packet = answer(point, [198, 51, 100, 7].into(), &inner(KEY));
    for from in [UP, REPLIER] {
        // Half of them each: by which way the repairs come does not matter.
        for _ in 0..REPAIRS_PER_REQUEST / 2 {
            assert_eq!(passes(&mut router, NOW, from, &packet), Some(DOWN));
        }
    }
    for from in [UP, REPLIER, DOWN] {
        assert_eq!(passes(&mut router, NOW, from, &packet), None);
    }
    // Two requests, two shares.
    for _ in 0..2 {
        ask(&mut router, NOW, KEY, DOWN);
    }
    let through = (0..3 * REPAIRS_PER_REQUEST)
        .filter(|_| passes(&mut router, NOW, REPLIER, &packet).is_some())
        .count();
    assert_eq!(through, 2 * REPAIRS_PER_REQUEST);
}

#[test]
fn repairs_come_soon_or_not_at_all() {
    let mut router = started(endless());
    let point = ask(&mut router, NOW, KEY, DOWN);
    let packet = answer(point, REPLIER_HOST, &inner(KEY));
    let late = NOW + REPAIR_TIME;
    assert_eq!(
        passes(
            &mut router,
            late - Duration::from_millis(300),
            REPLIER,
            &packet
        ),
        Some(DOWN)
    );
    let after = late + Duration::from_millis(300);
    assert_eq!(passes(&mut router, after, REPLIER, &packet), None);
    // However long the entry then rests, and whether or not repairs were tried meanwhile.
    for hours in 1..100 {
        let much_later = after + Duration::from_secs(hours * 3_600);
        assert_eq!(passes(&mut router, much_later, REPLIER, &packet), None);
        let mut rested = started(endless());
        ask(&mut rested, NOW, KEY, DOWN);
        assert_eq!(passes(&mut rested, much_later, REPLIER, &packet), None);
        assert_eq!(rested.stats().drops.get(DropReason::NoCredit), 1);
    }
}

#[test]
fn a_request_for_one_group_is_none_for_another() {
    let mut router = started(endless());
    let other = Key::new(SOURCE, [232, 7, 7, 7].into());
    router
        .install(NOW, other, UP, &[REPLIER, DOWN, DOWN2])
        .unwrap();
    router.set_replier(NOW, other, Some(replier())).unwrap();
    let point = ask(&mut router, NOW, KEY, DOWN);
    let packet = answer(point, REPLIER_HOST, &inner(other));
    assert_eq!(passes(&mut router, NOW, REPLIER, &packet), None);
    // And the number of one group's interface is not that of the other's.
    let there = ask(&mut router, NOW, other, DOWN);
    assert_ne!(there.iface, point.iface);
}

#[test]
fn a_restarted_router_takes_the_repairs_of_its_own_requests_alone() {
    let mut router = started(endless());
    let point = ask(&mut router, NOW, KEY, DOWN);
    let old = answer(point, REPLIER_HOST, &inner(KEY));
    let mut router = restarted();
    assert_eq!(passes(&mut router, NOW, REPLIER, &old), None);
    // The receiver asks again; now the numbers are new ones.
    let point = ask(&mut router, NOW, KEY, DOWN);
    assert_eq!(passes(&mut router, NOW, REPLIER, &old), None);
    let new = answer(point, REPLIER_HOST, &inner(KEY));
    assert_eq!(passes(&mut router, NOW, REPLIER, &new), Some(DOWN));
}

fn restarted() -> Router<'static> {
    let mut router = Router::new(endless(), Storage::with_capacity(8, 64), [2; 32], NOW);
    for iface in (1..=5).map(Iface) {
        let config = InterfaceConfig::ipv4(address(iface), 24);
        router.set_interface(NOW, iface, config).unwrap();
    }
    router
        .install(NOW, KEY, UP, &[REPLIER, DOWN, DOWN2])
        .unwrap();
    router.set_replier(NOW, KEY, Some(replier())).unwrap();
    router
}

#[test]
fn an_entry_that_is_removed_forgets_what_was_asked() {
    let mut router = started(endless());
    let point = ask(&mut router, NOW, KEY, DOWN);
    let packet = answer(point, REPLIER_HOST, &inner(KEY));
    router.remove(NOW, KEY);
    router
        .install(NOW, KEY, UP, &[REPLIER, DOWN, DOWN2])
        .unwrap();
    assert_eq!(passes(&mut router, NOW, REPLIER, &packet), None);
}

/// Interface numbers on the wire cannot be guessed from the interfaces, and change with time.
#[test]
fn interface_numbers_are_keyed_and_rotate() {
    let mut router = started(endless());
    let first = ask(&mut router, NOW, KEY, DOWN);
    assert_eq!(ask(&mut router, NOW, KEY, DOWN), first);
    let beside = ask(&mut router, NOW, KEY, DOWN2);
    assert_ne!(first.iface, beside.iface);
    // Another router, or this one after a restart, has other numbers.
    let mut other = restarted();
    let theirs = [DOWN, DOWN2].map(|iface| ask(&mut other, NOW, KEY, iface).iface);
    assert_ne!(theirs, [first.iface, beside.iface]);

    let packet = answer(first, REPLIER_HOST, &inner(KEY));
    let mut changes = 0;
    let (mut current, mut last_valid) = (first, NOW);
    for second in 0..300 {
        let now = NOW + Duration::from_secs(second);
        let point = ask(&mut router, now, KEY, DOWN);
        changes += u32::from(point != current);
        current = point;
        if passes(&mut router, now, REPLIER, &packet) == Some(DOWN) {
            last_valid = now;
        }
        // The one in use is always good.
        let packet = answer(point, REPLIER_HOST, &inner(KEY));
        assert_eq!(passes(&mut router, now, REPLIER, &packet), Some(DOWN));
    }
    assert_eq!(changes, 5);
    let valid = last_valid - NOW;
    assert!((ROTATION..ROTATION * 2).contains(&valid), "{valid}");
}

/// Of all numbers those of the entry's interfaces alone lead somewhere, each to its own.
#[test]
fn each_number_leads_to_one_interface() {
    for iface in [DOWN, DOWN2] {
        let mut router = started(endless());
        let point = ask(&mut router, NOW, KEY, iface);
        let packet = answer(point, REPLIER_HOST, &inner(KEY));
        assert_eq!(passes(&mut router, NOW, REPLIER, &packet), Some(iface));
    }
}

#[test]
fn the_inner_packet_is_a_whole_udp_datagram_of_the_source() {
    let whole = inner(KEY);
    let cases: [(&str, Vec<u8>); 8] = [
        ("TCP", edit(whole.clone(), 0, |p| p[9] = 6)),
        ("IGMP", edit(whole.clone(), 0, |p| p[9] = 2)),
        ("IPIP", edit(whole.clone(), 0, |p| p[9] = 4)),
        ("a first fragment", edit(whole.clone(), 0, |p| p[6] = 0x20)),
        ("a last fragment", edit(whole.clone(), 0, |p| p[7] = 1)),
        (
            "a router alert",
            packet(SOURCE, GROUP, 17, &[148, 4, 0, 0], &[0xcd; 30]),
        ),
        (
            "a source route",
            packet(SOURCE, GROUP, 17, &[131, 3, 4, 0], &[0xcd; 30]),
        ),
        (
            "less than a UDP header",
            packet(SOURCE, GROUP, 17, &[], &[0xcd; 7]),
        ),
    ];
    for (what, inner) in cases {
        let mut router = started(endless());
        let point = ask(&mut router, NOW, KEY, DOWN);
        let packet = answer(point, REPLIER_HOST, &inner);
        assert_eq!(passes(&mut router, NOW, REPLIER, &packet), None, "{what}");
        let good = answer(point, REPLIER_HOST, &whole);
        assert_eq!(passes(&mut router, NOW, REPLIER, &good), Some(DOWN));
    }
}

#[test]
fn the_outer_source_is_a_host_that_may_be_there() {
    let mut router = started(endless());
    let point = ask(&mut router, NOW, KEY, DOWN);
    let forged: [[u8; 4]; 11] = [
        [127, 0, 0, 1],
        [255, 255, 255, 255],
        [224, 0, 0, 1],
        [232, 1, 2, 3],
        [0, 0, 0, 0],
        [0, 1, 2, 3],
        [250, 0, 0, 1],
        // The broadcast address of a link, and its network.
        [10, 1, 2, 255],
        [10, 1, 2, 0],
        // This router, and a host of another of its links.
        [10, 1, 3, 1],
        [10, 1, 3, 77],
    ];
    for from in forged {
        let packet = answer(point, from.into(), &inner(KEY));
        assert_eq!(passes(&mut router, NOW, REPLIER, &packet), None, "{from:?}");
    }
    // A link-local address is one of the link itself.
    let local = answer(point, [169, 254, 1, 1].into(), &inner(KEY));
    assert_eq!(passes(&mut router, NOW, REPLIER, &local), None);
    // A host of the link, and hosts further away.
    for from in [REPLIER_HOST, [198, 51, 100, 7].into(), [10, 9, 0, 4].into()] {
        let packet = answer(point, from, &inner(KEY));
        assert_eq!(
            passes(&mut router, NOW, REPLIER, &packet),
            Some(DOWN),
            "{from}"
        );
    }
}

/// What Search Party sends down turned is paid for copy by copy.
#[test]
fn search_party_pays_for_each_turned_copy() {
    let mut router = router(Config {
        policy: Policy::SearchParty { copies: 2, up: 0 },
        ..endless()
    });
    router
        .install(NOW, KEY, UP, &[REPLIER, DOWN, DOWN2])
        .unwrap();
    let mut bytes = request(KEY, None, Form::Classic);
    let verdict = router.forward(NOW, &meta(DOWN), &mut bytes);
    let Verdict::Forward { packet, second, .. } = verdict else {
        panic!("{verdict:?}");
    };
    let copies = 1 + usize::from(second.is_some());
    let mut points = vec![point_in(&bytes[packet.clone()]).expect("turned")];
    if let Some(second) = second {
        let _ = router.second_copy(second, &mut bytes[packet.clone()]);
        points.push(point_in(&bytes[packet]).expect("turned"));
    }
    for _ in 0..REPAIRS_PER_REQUEST {
        for &point in &points {
            let packet = answer(point, REPLIER_HOST, &inner(KEY));
            assert_eq!(passes(&mut router, NOW, REPLIER, &packet), Some(DOWN));
        }
    }
    assert_eq!(
        router.stats().dmcasts as usize,
        copies * REPAIRS_PER_REQUEST
    );
    let packet = answer(points[0], REPLIER_HOST, &inner(KEY));
    assert_eq!(passes(&mut router, NOW, REPLIER, &packet), None);
}

/// A request that the rate limit drops is none that was asked.
#[test]
fn a_request_over_the_rate_pays_for_nothing() {
    let one = Rate {
        per_second: 1,
        burst: 1,
    };
    let mut router = started(Config {
        request_rate: one,
        ..endless()
    });
    let point = ask(&mut router, NOW, KEY, DOWN);
    let dropped = router.forward(NOW, &meta(DOWN), &mut request(KEY, None, Form::Classic));
    assert!(matches!(dropped, Verdict::Drop(_)));
    let packet = answer(point, REPLIER_HOST, &inner(KEY));
    let through = (0..2 * REPAIRS_PER_REQUEST)
        .filter(|_| passes(&mut router, NOW, REPLIER, &packet).is_some())
        .count();
    assert_eq!(through, REPAIRS_PER_REQUEST);
}

/// A host that guesses numbers gets few attempts, and repairs from elsewhere still pass.
#[test]
fn guessing_numbers_is_limited_and_blocks_its_own_way_alone() {
    let mut router = started(endless());
    let mut hits = 0;
    let mut now = NOW;
    let mut guess = 0_u32;
    // A minute at 5,000 guesses a second.
    for _ in 0..60 {
        let point = ask(&mut router, now, KEY, DOWN);
        for _ in 0..5_000 {
            guess = (guess + 12_347) % 65_535;
            let iface = Iface(guess as u16);
            let packet = answer(
                turning_point(address(REPLIER), iface),
                [198, 51, 100, 7].into(),
                &inner(KEY),
            );
            hits += u32::from(passes(&mut router, now, UP, &packet).is_some());
        }
        let good = answer(point, REPLIER_HOST, &inner(KEY));
        assert_eq!(passes(&mut router, now, REPLIER, &good), Some(DOWN));
        now += Duration::from_secs(1);
    }
    // 64 at once and 10 a second after that, with 3 in 65,535 of each of two rotations.
    assert!(hits <= 1, "{hits}");
    // A while after the attempt the way is open again.
    let point = ask(&mut router, now + Duration::from_secs(1), KEY, DOWN);
    let good = answer(point, [198, 51, 100, 7].into(), &inner(KEY));
    let later = now + Duration::from_secs(1);
    assert_eq!(passes(&mut router, later, UP, &good), Some(DOWN));
}

/// A shared tree takes repairs of the sources that the kernel has seen.
#[test]
fn a_shared_tree_takes_no_source_that_was_never_seen() {
    let shared = Key::any_source(GROUP);
    for source in [
        [127, 0, 0, 1],
        [0, 0, 0, 0],
        [224, 0, 0, 1],
        [255, 255, 255, 255],
        [10, 7, 7, 7],
    ] {
        let mut router = started(endless());
        router.remove(NOW, KEY);
        router
            .install(NOW, shared, UP, &[REPLIER, DOWN, DOWN2])
            .unwrap();
        router.set_replier(NOW, shared, Some(replier())).unwrap();
        let key = Key::new(source.into(), GROUP);
        let point = ask(&mut router, NOW, key, DOWN);
        let packet = answer(point, REPLIER_HOST, &inner(key));
        assert_eq!(
            passes(&mut router, NOW, REPLIER, &packet),
            None,
            "{source:?}"
        );
    }
}

/// The classic form, whose numbers can be guessed, is no way around the cookie.
#[test]
fn requests_with_a_cookie_admit_no_dmcast_without_one() {
    let mut router = started(endless());
    let through = |router: &mut Router<'_>, now: Instant, point| {
        let packet = answer(point, REPLIER_HOST, &inner(KEY));
        passes(router, now, REPLIER, &packet)
    };
    let own = ask_in(Form::Own, &mut router, NOW, KEY, DOWN);
    assert_eq!(through(&mut router, NOW, own), None);
    assert_eq!(router.stats().drops.get(DropReason::NoCredit), 1);
    // While a request in the classic form is open, repairs in either form pass.
    let classic = ask(&mut router, NOW, KEY, DOWN);
    assert_eq!(through(&mut router, NOW, classic), Some(DOWN));
    let good = answer_with_cookie(own, REPLIER_HOST, &inner(KEY));
    assert_eq!(passes(&mut router, NOW, REPLIER, &good), Some(DOWN));
    // Once it has expired, those with a cookie alone pass again.
    let later = NOW + REPAIR_TIME * 2;
    let own = ask_in(Form::Own, &mut router, later, KEY, DOWN);
    assert_eq!(through(&mut router, later, own), None);
    let good = answer_with_cookie(own, REPLIER_HOST, &inner(KEY));
    assert_eq!(passes(&mut router, later, REPLIER, &good), Some(DOWN));
}

/// Requests with a cookie renew the credit, and not the time for which dmcasts without one pass.
#[test]
fn a_classic_request_admits_dmcasts_without_a_cookie_for_the_time_of_its_own_repairs() {
    let mut router = started(endless());
    let mut last_without_cookie = NOW;
    let second = Duration::from_secs(1);
    ask(&mut router, NOW, KEY, DOWN);
    let again = NOW + second * 4;
    for n in 0..120 {
        let now = NOW + second / 2 * n;
        if now == again {
            ask(&mut router, now, KEY, DOWN);
        }
        let own = ask_in(Form::Own, &mut router, now, KEY, DOWN);
        let good = answer_with_cookie(own, REPLIER_HOST, &inner(KEY));
        assert_eq!(passes(&mut router, now, REPLIER, &good), Some(DOWN));
        let classic = answer(own, REPLIER_HOST, &inner(KEY));
        let refused = router.stats().drops.get(DropReason::NoCredit);
        match passes(&mut router, now, REPLIER, &classic) {
            Some(_) => last_without_cookie = now,
            None => assert_eq!(router.stats().drops.get(DropReason::NoCredit), refused + 1),
        }
    }
    assert_eq!(last_without_cookie, again + REPAIR_TIME);
}

/// A shorter time in the configuration holds for the next turned request of either form.
#[test]
fn a_shorter_repair_time_shortens_that_of_dmcasts_without_a_cookie() {
    let short = Duration::from_secs(2);
    let mut router = started(endless());
    ask(&mut router, NOW, KEY, DOWN);
    let repair_time = short;
    router.set_config(
        NOW,
        Config {
            repair_time,
            ..endless()
        },
    );
    let ask_own = |router: &mut Router<'_>, now| ask_in(Form::Own, router, now, KEY, DOWN);
    let own = ask_own(&mut router, NOW);
    let classic = answer(own, REPLIER_HOST, &inner(KEY));
    assert_eq!(
        passes(&mut router, NOW + short, REPLIER, &classic),
        Some(DOWN)
    );
    ask_own(&mut router, NOW + short);
    let later = NOW + short + Duration::from_millis(300);
    assert_eq!(passes(&mut router, later, REPLIER, &classic), None);
}

/// The number of a period may, by the keys of the next one, be that of another downstream interface: the cookie tells
/// which of the two it is.
#[test]
fn a_genuine_cookie_survives_the_rotation_of_numbers() {
    let downstream: Vec<Iface> = (2..1_000).map(Iface).collect();
    let storage = Storage::with_capacity(8, 1_024);
    let mut router = Router::new(endless(), storage, [1; 32], NOW);
    for &iface in [UP].iter().chain(&downstream) {
        let [high, low] = iface.0.to_be_bytes();
        let address = Ipv4Addr::new(10, high, low, 1);
        let config = InterfaceConfig::ipv4(address, 24);
        router.set_interface(NOW, iface, config).unwrap();
    }
    router.install(NOW, KEY, UP, &downstream).unwrap();
    let replier = Replier {
        neighbour: None,
        ..replier()
    };
    router.set_replier(NOW, KEY, Some(replier)).unwrap();
    // The start of a period, and the start of the next one.
    let start = Instant::from_secs(180);
    let before = start - Duration::from_secs(1);
    for &iface in downstream.iter().filter(|&&iface| iface != REPLIER) {
        let point = ask_in(Form::Own, &mut router, before, KEY, iface);
        let packet = answer_with_cookie(point, [198, 51, 100, 7].into(), &inner(KEY));
        assert_eq!(passes(&mut router, start, UP, &packet), Some(iface));
    }
}
