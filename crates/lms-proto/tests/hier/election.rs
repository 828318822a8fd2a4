//! The elected replier, and its announcements to the links (LMS §6.7.1).

use crate::common::*;

use std::collections::{BTreeMap, HashMap};

use igmp::wire::RecordType;
use lms_proto::hier::{Capacity, Config, Cost, DropReason, hold_time};
use lms_proto::wire::hier::{Kind, MAX_ENTRIES};
use lms_proto::{Duration, Iface, Instant, Key, NextHop};
use proptest::prelude::*;

const HOLD: Duration = Duration::from_secs(35);

#[test]
fn lowest_cost_sticky_then_lowest_address() {
    let mut h = hierarchy(Config::default(), CAPACITY);
    let key = group(1);
    h.install(ms(0), key, UP).unwrap();
    let say = |h: &mut lms_proto::hier::Hierarchy<'_>, n: u8, cost: u16| {
        h.handle_packet(ms(1), &meta(1), &is_in(host(1, n), key, cost))
            .unwrap();
    };
    say(&mut h, 20, 5);
    assert_eq!(elected(&h, key), Some((host(1, 20), 5)));
    say(&mut h, 10, 5);
    assert_eq!(
        elected(&h, key),
        Some((host(1, 20), 5)),
        "equal cost changes nobody"
    );
    say(&mut h, 30, 4);
    assert_eq!(elected(&h, key), Some((host(1, 30), 4)));
    say(&mut h, 30, 9);
    assert_eq!(
        elected(&h, key),
        Some((host(1, 10), 5)),
        "then the lowest address"
    );
    say(&mut h, 10, 0xffff);
    assert_eq!(elected(&h, key), Some((host(1, 20), 5)));
    say(&mut h, 20, 0xffff);
    assert_eq!(elected(&h, key), Some((host(1, 30), 9)));
    say(&mut h, 30, 0xffff);
    assert_eq!(elected(&h, key), None);
    assert_eq!(h.offer_count(), 0);
}

#[test]
fn changes_are_told_up_and_down() {
    let mut h = hierarchy(Config::default(), CAPACITY);
    let key = group(1);
    h.install(ms(0), key, UP).unwrap();
    assert_eq!(h.poll_timeout(), None, "nothing to tell yet");
    h.handle_packet(ms(5), &meta(1), &is_in(host(1, 7), key, 3))
        .unwrap();
    let changed = h.poll_event().unwrap();
    assert_eq!((changed.key, changed.elected.unwrap().cost), (key, Cost(3)));
    assert_eq!(h.poll_event(), None);
    let sent = run(&mut h, ms(10));
    let told: Vec<_> = sent
        .iter()
        .map(|(_, i, m, e)| (*i, m.kind, e[0].neighbour, e[0].cost))
        .collect();
    assert!(
        told.contains(&(UP, Kind::Update, None, Cost(4))),
        "{told:?}"
    );
    assert!(told.contains(&(Iface(1), Kind::Elected, Some(host(1, 7)), Cost(3))));
    assert_eq!(told.len(), 2);

    // A better one on another link: the first link learns that none of its hosts is elected.
    h.handle_packet(ms(500), &meta(2), &is_in(host(2, 8), key, 1))
        .unwrap();
    let sent = run(&mut h, ms(510));
    let told: Vec<_> = sent
        .iter()
        .map(|(_, i, m, e)| (*i, m.kind, e[0].neighbour, e[0].cost))
        .collect();
    assert!(told.contains(&(UP, Kind::Update, None, Cost(2))));
    assert!(told.contains(&(Iface(2), Kind::Elected, Some(host(2, 8)), Cost(1))));
    assert!(told.contains(&(Iface(1), Kind::Elected, None, Cost::WITHDRAWN)));
}

#[test]
fn withdrawal_is_told_three_times_then_no_more() {
    let mut h = hierarchy(Config::default(), CAPACITY);
    let key = group(1);
    h.install(ms(0), key, UP).unwrap();
    h.handle_packet(ms(0), &meta(1), &is_in(host(1, 7), key, 3))
        .unwrap();
    run(&mut h, ms(1_000));
    h.handle_packet(ms(1_000), &meta(1), &is_in(host(1, 7), key, 0xffff))
        .unwrap();
    let sent = run(&mut h, ms(60_000));
    let up: Vec<_> = sent.iter().filter(|(_, i, ..)| *i == UP).collect();
    assert_eq!(up.len(), 3);
    assert!(up.iter().all(|(.., e)| e[0].cost == Cost::WITHDRAWN));
    assert!(up[2].0 < ms(1_300));
    assert_eq!(h.poll_timeout(), None, "all quiet");
    assert_eq!(elected(&h, key), None);
}

#[test]
fn removed_entry_says_farewell_and_frees_its_slot() {
    let capacity = Capacity {
        entries: 1,
        ..CAPACITY
    };
    let mut h = hierarchy(Config::default(), capacity);
    h.install(ms(0), group(1), UP).unwrap();
    h.handle_packet(ms(0), &meta(1), &is_in(host(1, 7), group(1), 3))
        .unwrap();
    run(&mut h, ms(10));
    h.remove(ms(1_000), group(1));
    assert!(h.find(group(1)).is_none());
    assert!(
        h.install(ms(1_000), group(2), UP).is_err(),
        "still says farewell"
    );
    while h.poll_event().is_some() {}
    let sent = run(&mut h, ms(2_000));
    assert_eq!(sent.iter().filter(|(_, i, ..)| *i == UP).count(), 3);
    h.install(ms(2_000), group(2), UP).unwrap();
    assert_eq!(elected(&h, group(2)), None);
}

#[test]
fn new_parent_is_told_and_the_old_one_relieved() {
    let mut h = hierarchy(Config::default(), CAPACITY);
    h.install(ms(0), group(1), UP).unwrap();
    h.handle_packet(ms(0), &meta(1), &is_in(host(1, 7), group(1), 3))
        .unwrap();
    run(&mut h, ms(500));
    h.install(ms(1_000), group(1), Iface(3)).unwrap();
    let sent = run(&mut h, ms(1_050));
    let updates: BTreeMap<_, _> = sent
        .iter()
        .filter(|(_, _, m, _)| m.kind == Kind::Update)
        .map(|(_, i, _, e)| (*i, e[0].cost))
        .collect();
    assert_eq!(
        updates,
        BTreeMap::from([(UP, Cost::WITHDRAWN), (Iface(3), Cost(4))])
    );
}

#[test]
fn silent_replier_is_replaced_within_one_timeout() {
    let refresh = Duration::from_millis(100);
    let mut h = hierarchy(
        Config {
            refresh,
            ..Config::default()
        },
        CAPACITY,
    );
    let key = group(1);
    h.install(ms(0), key, UP).unwrap();
    // Both speak every 100 ms; the better one falls silent after 1 s.
    for tick in 0..40 {
        let now = ms(tick * 100);
        run(&mut h, now);
        let mut speakers = vec![(9u8, 7u16)];
        if tick <= 10 {
            speakers.push((8, 2));
        }
        for (n, cost) in speakers {
            let packet = update(
                host(1, n),
                tick as u32 + 1,
                hold_time(refresh),
                &[offer(key, cost)],
            );
            h.handle_packet(now, &meta(1), &packet).unwrap();
        }
        if tick == 10 {
            assert_eq!(elected(&h, key), Some((host(1, 8), 2)));
            while h.poll_event().is_some() {}
            let silent_until = now + hold_time(refresh);
            run(&mut h, silent_until - Duration::from_micros(1));
            assert_eq!(elected(&h, key), Some((host(1, 8), 2)));
        }
        if tick == 14 {
            // 1 s + 350 ms is past: the very call that notices has elected the other.
            assert_eq!(elected(&h, key), Some((host(1, 9), 7)));
            assert_eq!(h.stats().expired, 1);
            assert_eq!(h.poll_event().unwrap().elected.unwrap().cost, Cost(7));
        }
    }
}

#[test]
fn hosts_and_routers_share_an_entry_and_leaves_withdraw() {
    let mut h = hierarchy(Config::default(), CAPACITY);
    let shared = Key::any_source(group(5).group);
    h.install(ms(0), shared, UP).unwrap();
    // (S, G) is not there: (*, G) takes the offer.
    h.handle_packet(ms(0), &meta(1), &is_in(host(1, 5), group(5), 2))
        .unwrap();
    assert_eq!(elected(&h, shared), Some((host(1, 5), 2)));
    let packet = update(host(2, 6), 1, HOLD, &[offer(shared, 1)]);
    h.handle_packet(ms(0), &meta(2), &packet).unwrap();
    assert_eq!(elected(&h, shared), Some((host(2, 6), 1)));
    // A plain leave of the host's own kernel takes its offer away.
    let leave = report(host(1, 5), &[(RecordType::ChangeToInclude, shared, None)]);
    h.handle_packet(ms(1), &meta(1), &leave).unwrap();
    assert_eq!(h.offer_count(), 1);
    // Reports with no cost are none of ours.
    let plain = report(host(3, 5), &[(RecordType::ModeIsExclude, shared, None)]);
    let before = *h.stats();
    h.handle_packet(ms(1), &meta(3), &plain).unwrap();
    assert_eq!(*h.stats(), before);
    assert_eq!(h.peer_count(), 2);
}

#[test]
fn link_address_follows_the_neighbour() {
    let mut h = hierarchy(Config::default(), CAPACITY);
    let key = group(1);
    let id = h.install(ms(0), key, UP).unwrap();
    h.handle_packet(ms(0), &meta(1), &is_in(host(1, 5), key, 2))
        .unwrap();
    let cached = h.elected(id).unwrap();
    let mut moved = meta(1);
    moved.link_source = Some(lms_proto::LinkAddr([6; 6]));
    h.handle_packet(ms(1), &moved, &is_in(host(1, 5), key, 2))
        .unwrap();
    let expected = NextHop::Neighbour {
        addr: host(1, 5),
        link: moved.link_source,
    };
    assert_eq!(h.next_hop(cached.peer), expected);
}

#[test]
fn configured_replier_holds_whatever_it_says() {
    let mut h = hierarchy(Config::default(), CAPACITY);
    let key = group(1);
    h.install(ms(0), key, UP).unwrap();
    h.set_replier(ms(0), key, Iface(1), host(1, 5), None, Cost(4))
        .unwrap();
    h.handle_packet(ms(1), &meta(1), &is_in(host(1, 5), key, 0xffff))
        .unwrap();
    run(&mut h, ms(100_000));
    assert_eq!(elected(&h, key), Some((host(1, 5), 4)));
    h.clear_replier(ms(100_000), key, Iface(1), host(1, 5));
    assert_eq!(elected(&h, key), None);
}

#[test]
fn interface_that_goes_takes_its_neighbours_and_comes_back() {
    let mut h = hierarchy(Config::default(), CAPACITY);
    let key = group(1);
    h.install(ms(0), key, UP).unwrap();
    h.handle_packet(ms(0), &meta(1), &is_in(host(1, 5), key, 2))
        .unwrap();
    h.handle_packet(ms(0), &meta(2), &is_in(host(2, 5), key, 6))
        .unwrap();
    run(&mut h, ms(100));
    h.remove_interface(ms(200), Iface(1));
    assert_eq!(elected(&h, key), Some((host(2, 5), 6)));
    h.remove_interface(ms(300), UP);
    run(&mut h, ms(30_000));
    let config = lms_proto::InterfaceConfig::ipv4(host(0, 1), 24);
    h.handle_packet(ms(30_000), &meta(2), &is_in(host(2, 5), key, 6))
        .unwrap();
    h.set_interface(ms(30_000), UP, config).unwrap();
    let sent = run(&mut h, ms(30_200));
    assert!(
        sent.iter()
            .any(|(_, i, _, e)| *i == UP && e[0].cost == Cost(7))
    );
    h.remove_downstream(ms(30_200), key, Iface(2));
    assert_eq!((elected(&h, key), h.offer_count()), (None, 0));
}

/// Refreshes of many entries are spread over the refresh time: 6,400 entries take 100 messages a refresh.
#[test]
fn refreshes_are_spread_over_the_refresh_time() {
    let n = 6_400u16;
    let capacity = Capacity {
        entries: n.into(),
        neighbours: n.into(),
        peers: 4,
        branches: n.into(),
        interfaces: 4,
    };
    let mut h = hierarchy(Config::default(), capacity);
    for chunk in (0..n).collect::<Vec<_>>().chunks(64) {
        for &g in chunk {
            h.install(ms(0), group(g), UP).unwrap();
        }
        let offers: Vec<_> = chunk.iter().map(|&g| offer(group(g), 3)).collect();
        let packet = update(host(1, 2), u32::from(chunk[0]) + 1, HOLD, &offers);
        h.handle_packet(ms(0), &meta(1), &packet).unwrap();
    }
    // Told at once, within the rate bound ...
    let first = run(&mut h, ms(1_000));
    let told: usize = first
        .iter()
        .filter(|(at, iface, ..)| *iface == UP && *at < ms(250))
        .map(|(.., entries)| entries.len())
        .sum();
    assert!(
        told >= usize::from(n),
        "100 messages at 500 a second: {told}"
    );
    // ... then spread: no 100 ms of the next 30 s see more than a few messages.
    let mut per_slot: HashMap<i64, usize> = HashMap::new();
    let mut last_told: HashMap<Key, Instant> = HashMap::new();
    let mut longest = Duration::ZERO;
    for round in 0..6 {
        let from = 1_000 + round * 5_000;
        let offers: Vec<_> = (0..n).map(|g| offer(group(g), 3)).collect();
        for (i, chunk) in offers.chunks(64).enumerate() {
            let sequence = 100_000 + round as u32 * 1_000 + i as u32;
            let packet = update(host(1, 2), sequence, HOLD, chunk);
            h.handle_packet(ms(from), &meta(1), &packet).unwrap();
        }
        for (at, iface, _, entries) in run(&mut h, ms(from + 5_000)) {
            if iface != UP {
                continue;
            }
            *per_slot.entry(at.total_millis() / 100).or_default() += 1;
            assert!(entries.len() <= MAX_ENTRIES);
            for entry in entries {
                if let Some(before) = last_told.insert(entry.key, at) {
                    longest = longest.max(at - before);
                }
            }
        }
    }
    assert_eq!(last_told.len(), usize::from(n));
    assert!(longest <= Duration::from_millis(10_100), "{longest}");
    assert!(
        per_slot.values().max().unwrap() <= &3,
        "{:?}",
        per_slot.values().max()
    );
}

#[test]
fn flapping_neighbour_is_damped() {
    let mut h = hierarchy(Config::default(), CAPACITY);
    let key = group(1);
    h.install(ms(0), key, UP).unwrap();
    for i in 0..1_000u16 {
        let now = ms(i.into());
        h.handle_packet(now, &meta(1), &is_in(host(1, 5), key, 10 + i % 7))
            .unwrap();
        run(&mut h, now);
    }
    assert!(
        (9..=12).contains(&h.stats().updates_sent),
        "{}",
        h.stats().updates_sent
    );
    let last = run(&mut h, ms(1_200));
    let last = last.iter().rfind(|(_, i, ..)| *i == UP).unwrap();
    assert_eq!(last.3[0].cost, Cost(11 + 999 % 7), "the last word is told");
}

#[derive(Clone, Debug)]
enum Step {
    Host {
        iface: u16,
        n: u8,
        group: u16,
        cost: u16,
    },
    Router {
        iface: u16,
        n: u8,
        entries: Vec<(u16, u16)>,
        hold_ms: u16,
    },
    Wait(u64),
    Remove(u16),
    Install(u16),
    Prune(u16, u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let cost = prop_oneof![4 => 0u16..6, 1 => Just(0xffff)];
    let step = prop_oneof![
        4 => (1u16..4, 2u8..7, 0u16..5, cost.clone())
            .prop_map(|(iface, n, group, cost)| Step::Host { iface, n, group, cost }),
        4 => (1u16..4, 7u8..12, prop::collection::vec((0u16..5, cost), 1..5), 100u16..3_000)
            .prop_map(|(iface, n, entries, hold_ms)| Step::Router { iface, n, entries, hold_ms }),
        3 => (0u64..900).prop_map(Step::Wait),
        1 => (0u16..5).prop_map(Step::Remove),
        1 => (0u16..5).prop_map(Step::Install),
        1 => (0u16..5, 1u16..4).prop_map(|(g, i)| Step::Prune(g, i)),
    ];
    prop::collection::vec(step, 0..120)
}

/// Too simple to be wrong: all offers in a map, the winner found by looking at all of them.
#[derive(Default)]
struct Oracle {
    entries: BTreeMap<u16, Option<(u16, u8)>>,
    offers: BTreeMap<(u16, u16, u8), (u16, Instant)>,
}

impl Oracle {
    fn elect(&mut self) {
        for (g, elected) in &mut self.entries {
            let of_entry = || self.offers.iter().filter(|((entry, ..), _)| entry == g);
            let best = of_entry()
                .min_by_key(|((_, i, n), (cost, _))| (*cost, host(*i, *n), *i))
                .map(|((_, i, n), (cost, _))| ((*i, *n), *cost));
            let stays = elected.and_then(|(i, n)| self.offers.get(&(*g, i, n)));
            let stays = stays.is_some_and(|(cost, _)| best.is_some_and(|(_, b)| *cost <= b));
            if !stays {
                *elected = best.map(|(who, _)| who);
            }
        }
    }

    fn say(&mut self, g: u16, iface: u16, n: u8, cost: u16, expires: Instant) {
        if !self.entries.contains_key(&g) {
            return;
        }
        if cost == 0xffff {
            self.offers.remove(&(g, iface, n));
        } else {
            self.offers.insert((g, iface, n), (cost, expires));
        }
        self.elect();
    }

    fn pass(&mut self, from: Instant, to: Instant) {
        let mut at = from;
        while at <= to {
            if self.offers.values().any(|(_, e)| *e <= at) {
                self.offers.retain(|_, (_, expires)| *expires > at);
                self.elect();
            }
            at += Duration::from_millis(1);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn agrees_with_the_oracle(steps in steps()) {
        let refresh = Duration::from_millis(200);
        let capacity = Capacity { entries: 8, neighbours: 64, peers: 32, branches: 24, interfaces: 4 };
        let config = Config { refresh, restart_interval: Duration::ZERO, ..Config::default() };
        let mut h = hierarchy(config, capacity);
        let mut oracle = Oracle::default();
        let (mut now, mut sequence) = (ms(0), 0);
        for step in steps {
            match step {
                Step::Host { iface, n, group: g, cost } => {
                    let packet = is_in(host(iface, n), group(g), cost);
                    h.handle_packet(now, &meta(iface), &packet).unwrap();
                    oracle.say(g, iface, n, cost, now + hold_time(refresh));
                }
                Step::Router { iface, n, entries, hold_ms } => {
                    sequence += 1;
                    let offers: Vec<_> = entries.iter().map(|(g, c)| offer(group(*g), *c)).collect();
                    let hold = Duration::from_millis(hold_ms.into());
                    let packet = update(host(iface, n), sequence, hold, &offers);
                    h.handle_packet(now, &meta(iface), &packet).unwrap();
                    for (g, cost) in entries {
                        oracle.say(g, iface, n, cost, now + hold);
                    }
                }
                Step::Wait(wait) => {
                    let end = now + Duration::from_millis(wait);
                    run(&mut h, end);
                    oracle.pass(now, end);
                    now = end;
                }
                Step::Remove(g) => {
                    h.remove(now, group(g));
                    oracle.entries.remove(&g);
                    oracle.offers.retain(|(entry, ..), _| *entry != g);
                }
                Step::Install(g) => {
                    h.install(now, group(g), UP).unwrap();
                    oracle.entries.entry(g).or_insert(None);
                }
                Step::Prune(g, iface) => {
                    // One at a time, as an oracle must: ties depend on the order otherwise.
                    if oracle.offers.keys().filter(|(e, i, _)| *e == g && *i == iface).count() <= 1 {
                        h.remove_downstream(now, group(g), Iface(iface));
                        oracle.offers.retain(|(e, i, _), _| !(*e == g && *i == iface));
                        oracle.elect();
                    }
                }
            }
            while h.poll_event().is_some() {}
            for g in 0..5 {
                let expected = oracle.entries.get(&g).copied().flatten().map(|(i, n)| {
                    (host(i, n), oracle.offers[&(g, i, n)].0)
                });
                prop_assert_eq!(elected(&h, group(g)), expected, "group {}", g);
                let mut offers: Vec<_> = h
                    .find(group(g))
                    .map(|id| h.offers(id).map(|o| (o.address, o.cost.0)).collect())
                    .unwrap_or_default();
                offers.sort();
                let mut known: Vec<_> = oracle
                    .offers
                    .iter()
                    .filter(|((entry, ..), _)| *entry == g)
                    .map(|((_, i, n), (cost, _))| (host(*i, *n), *cost))
                    .collect();
                known.sort();
                prop_assert_eq!(offers, known);
            }
        }
        // Left alone, everything is forgotten and the machine falls silent.
        run(&mut h, now + Duration::from_secs(60));
        prop_assert_eq!((h.offer_count(), h.poll_timeout()), (0, None));
    }

    #[test]
    fn never_past_its_bounds(
        reports in prop::collection::vec((1u16..4, 2u8..255, 0u16..8, 0u16..100), 0..300),
    ) {
        let capacity = Capacity { entries: 8, neighbours: 10, peers: 6, branches: 4, interfaces: 4 };
        let mut h = hierarchy(Config::default(), capacity);
        for g in 0..8 {
            h.install(ms(0), group(g), UP).unwrap();
        }
        let mut refused = 0;
        for (iface, n, g, cost) in reports {
            let packet = is_in(host(iface, n), group(g), cost);
            refused += u64::from(
                h.handle_packet(ms(0), &meta(iface), &packet).is_err(),
            );
            prop_assert!(h.offer_count() <= 10 && h.peer_count() <= 6);
        }
        prop_assert_eq!(h.stats().drops.get(DropReason::PeersFull), refused);
    }
}
