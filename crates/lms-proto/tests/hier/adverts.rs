//! When adverts are sent, what a message of them holds, and how the adverts are limited.

use crate::common::*;
use std::net::Ipv4Addr;

use std::collections::{BTreeMap, BTreeSet};

use lms_proto::hier::{Capacity, Config, Cost, Hierarchy, Storage, hold_time};
use lms_proto::wire::hier::{self, Entry, Header, Kind};
use lms_proto::{Duration, Iface, Instant, InterfaceConfig, NextHop};

type Sent = (Instant, Iface, Header, Vec<Entry>);

/// A message: time, link, and the group and cost of each entry.
type Told = (Instant, Iface, Vec<(u16, u16)>);

/// A hierarchy with entries 0 to `count`, each with a configured replier on interface 1.
fn configured(config: Config, count: u16, seed: u8) -> Hierarchy<'static> {
    let capacity = Capacity {
        entries: count.into(),
        neighbours: count.into(),
        peers: 1,
        branches: count.into(),
        interfaces: 2,
    };
    let mut h = Hierarchy::new(config, Storage::owned(capacity), [seed; 32], ms(0));
    for iface in 0..2 {
        h.set_interface(ms(0), Iface(iface), interface(iface, 1))
            .unwrap();
    }
    for g in 0..count {
        h.install(ms(0), group(g), UP).unwrap();
        h.set_replier(ms(0), group(g), Iface(1), host(1, 5), None, Cost(2))
            .unwrap();
    }
    h
}

fn interface(iface: u16, n: u8) -> InterfaceConfig {
    InterfaceConfig::ipv4(host(iface, n), 24)
}

fn say(h: &mut Hierarchy<'_>, now: Instant, iface: u16, n: u8, g: u16, cost: u16) {
    h.handle_packet(now, &meta(iface), &is_in(host(iface, n), group(g), cost))
        .unwrap();
}

/// The messages of one type, without their headers.
fn of_kind(sent: &[Sent], kind: Kind) -> Vec<Told> {
    sent.iter()
        .filter(|(_, _, header, _)| header.kind == kind)
        .map(|(at, iface, _, entries)| (*at, *iface, brief(entries)))
        .collect()
}

/// Number of the group and cost.
fn brief(entries: &[Entry]) -> Vec<(u16, u16)> {
    let number = |e: &Entry| {
        let [.., a, b] = e.key.group.octets();
        u16::from_be_bytes([a, b])
    };
    entries.iter().map(|e| (number(e), e.cost.0)).collect()
}

/// When an entry was advertised on an interface.
fn times(sent: &[Sent], on: Iface, g: u16) -> Vec<Instant> {
    sent.iter()
        .filter(|(_, iface, _, entries)| *iface == on && entries.iter().any(|e| e.key == group(g)))
        .map(|(at, ..)| *at)
        .collect()
}

#[test]
fn values_outside_their_bounds_count_as_the_nearest() {
    let config = |config| *hierarchy(config, CAPACITY).config();
    let low = config(Config {
        refresh: Duration::ZERO,
        damping: Duration::MAX,
        gather: Duration::MAX,
        messages_per_s: 0,
        neighbour_packets_per_s: 0,
        neighbour_burst: 0,
        ..Config::default()
    });
    let tenth = Duration::from_millis(100);
    assert_eq!(
        (low.refresh, low.damping, low.gather),
        (tenth, tenth, tenth)
    );
    assert_eq!((low.messages_per_s, low.neighbour_packets_per_s), (1, 1));
    assert_eq!(low.neighbour_burst, 1);
    let high = config(Config {
        refresh: Duration::MAX,
        messages_per_s: u32::MAX,
        neighbour_packets_per_s: u32::MAX,
        ..Config::default()
    });
    assert_eq!(high.refresh, Duration::from_secs(18));
    assert_eq!(
        (high.messages_per_s, high.neighbour_packets_per_s),
        (1_000_000, 1_000_000)
    );
    assert_eq!(config(Config::default()), Config::default());
}

#[test]
fn state_is_held_for_three_refreshes_and_a_half() {
    let refresh = Duration::from_secs(10);
    assert_eq!(hold_time(refresh), Duration::from_secs(35));
    assert_eq!(
        lms_proto::hier::refresh_time(Duration::from_secs(35)),
        refresh
    );
    let refresh_time = lms_proto::hier::refresh_time;
    assert_eq!(refresh_time(Duration::ZERO), Duration::from_millis(100));
    assert_eq!(refresh_time(Duration::MAX), Duration::from_secs(18));
    let mut h = configured(Config::default(), 1, 1);
    let sent = run(&mut h, ms(10));
    assert_eq!(sent[0].2.hold_time_ms, 35_000);
}

#[test]
fn changes_within_the_gather_time_share_a_message() {
    let mut h = hierarchy(Config::default(), CAPACITY);
    for g in [1, 2, 3] {
        h.install(ms(0), group(g), UP).unwrap();
    }
    say(&mut h, ms(10), 1, 7, 1, 3);
    assert_eq!(h.poll_timeout(), Some(ms(12)));
    say(&mut h, ms(11), 1, 7, 2, 5);
    let before = ms(12) - Duration::from_micros(1);
    assert_eq!(drain(&mut h, before), []);
    let sent = run(&mut h, ms(20));
    assert_eq!(
        of_kind(&sent, Kind::Update),
        [(ms(12), UP, vec![(1, 4), (2, 6)])]
    );
    assert_eq!(
        of_kind(&sent, Kind::Elected),
        [(ms(12), Iface(1), vec![(1, 3), (2, 5)])]
    );
    // The next change does not wait for the time of these.
    say(&mut h, ms(30), 1, 7, 3, 1);
    let sent = run(&mut h, ms(40));
    assert_eq!(of_kind(&sent, Kind::Update), [(ms(32), UP, vec![(3, 2)])]);
}

#[test]
fn second_change_of_an_entry_waits_for_the_damping_time() {
    let mut h = hierarchy(Config::default(), CAPACITY);
    for g in [1, 2] {
        h.install(ms(0), group(g), UP).unwrap();
    }
    say(&mut h, ms(10), 1, 7, 1, 3);
    run(&mut h, ms(12));
    say(&mut h, ms(50), 1, 7, 1, 8);
    say(&mut h, ms(60), 1, 7, 1, 9);
    // Another entry is not concerned.
    say(&mut h, ms(60), 1, 7, 2, 1);
    let sent = run(&mut h, ms(1_000));
    assert_eq!(
        of_kind(&sent, Kind::Update),
        [(ms(62), UP, vec![(2, 2)]), (ms(114), UP, vec![(1, 10)])]
    );
    assert_eq!(times(&sent, Iface(1), 1), [ms(114)]);
    // Once the damping time is over, a change is advertised at once.
    say(&mut h, ms(1_214), 1, 7, 1, 1);
    assert_eq!(
        times(&run(&mut h, ms(2_000)), UP, 1),
        [ms(1_216)],
        "as if it were the first"
    );
    // That the offer takes the value that was advertised last is no reason to advertise it sooner.
    say(&mut h, ms(2_000), 1, 7, 1, 5);
    let sent = run(&mut h, ms(2_002));
    say(&mut h, ms(2_102), 1, 7, 1, 6);
    let more = run(&mut h, ms(2_200));
    assert_eq!(times(&sent, UP, 1), [ms(2_002)]);
    assert_eq!(
        times(&more, UP, 1),
        [ms(2_104)],
        "exactly one damping time later"
    );
}

/// Numbers of entries that fill messages, and such that do not.
#[test]
fn every_entry_is_refreshed_a_little_early_and_not_more_often() {
    for count in [1u16, 3, 64, 65, 128, 130] {
        let mut h = configured(Config::default(), count, 3);
        let sent = run(&mut h, ms(60_000));
        for iface in [UP, Iface(1)] {
            for g in 0..count {
                let times = times(&sent, iface, g);
                assert!((7..=9).contains(&times.len()), "{count}: {times:?}");
                for pair in times.windows(2) {
                    let gap = pair[1] - pair[0];
                    assert!(gap <= Duration::from_secs(10), "{count}: {gap}");
                }
            }
            // The first messages, then as few as have room for all entries, each 8.55 s at the most often.
            let messages = sent.iter().filter(|(_, on, ..)| *on == iface).count();
            let most = 8 * usize::from(count.div_ceil(64));
            assert!(messages <= most, "{count}: {messages} > {most}");
        }
    }
}

#[test]
fn refreshes_of_routers_that_start_together_drift_apart() {
    let mut all = BTreeSet::new();
    for seed in 0..10 {
        let mut h = configured(Config::default(), 1, seed);
        let times = times(&run(&mut h, ms(200_000)), UP, 0);
        let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let tenth = Duration::from_millis(950);
        let (least, most) = (gaps[1..].iter().min(), gaps[1..].iter().max());
        assert!(*most.unwrap() - *least.unwrap() > tenth / 3, "{gaps:?}");
        // At most a tenth early.
        assert!(*least.unwrap() >= Duration::from_millis(8_550), "{gaps:?}");
        assert!(*most.unwrap() <= Duration::from_millis(9_500), "{gaps:?}");
        all.insert(times[times.len() / 2]);
    }
    assert_eq!(all.len(), 10, "all at other times");
}

/// What changes is advertised at once; its refresh is then due one refresh time later.
#[test]
fn change_postpones_the_refresh_of_its_entry_alone() {
    let mut h = configured(Config::default(), 2, 1);
    run(&mut h, ms(5_000));
    h.set_replier(ms(5_000), group(0), Iface(1), host(1, 5), None, Cost(7))
        .unwrap();
    let sent = run(&mut h, ms(18_000));
    let updates = of_kind(&sent, Kind::Update);
    assert_eq!(updates[0], (ms(5_002), UP, vec![(0, 8)]));
    // Both are refreshed together from then on: a message has room for both.
    let (at, _, entries) = &updates[1];
    assert!((ms(9_000)..ms(10_002)).contains(at), "{at:?}");
    assert_eq!(entries, &[(1, 3), (0, 8)], "longest ago first");
    assert_eq!(updates.len(), 2);
}

/// A change, or a withdrawal, that is due together with the refresh of its entry is sent once.
#[test]
fn change_that_meets_its_refresh_is_sent_once() {
    for cost in [Cost(7), Cost::WITHDRAWN] {
        let mut h = configured(Config::default(), 1, 1);
        run(&mut h, ms(10));
        let refresh = h.poll_timeout().expect("a refresh");
        let now = refresh - Duration::from_millis(2);
        h.set_replier(now, group(0), Iface(1), host(1, 5), None, cost)
            .unwrap();
        let sent = run(&mut h, refresh);
        let told = cost.through(1).0;
        assert_eq!(
            of_kind(&sent, Kind::Update),
            [(refresh, UP, vec![(0, told)])]
        );
    }
}

#[test]
fn messages_keep_their_distance_and_a_late_driver_catches_up_little() {
    // 20 messages of 64 entries, due at once.
    let count = 20 * 64;
    let config = Config {
        messages_per_s: 500,
        ..Config::default()
    };
    let mut h = configured(config, count, 1);
    let up = |sent: &[(Iface, Header, Vec<Entry>)]| {
        sent.iter().filter(|(iface, ..)| *iface == UP).count()
    };
    // A driver that comes a second late: 10 ms are 5 messages, and one is due.
    assert_eq!(up(&drain(&mut h, ms(1_000))), 6);
    assert_eq!(h.poll_timeout(), Some(ms(1_002)));
    let early = ms(1_002) - Duration::from_micros(1);
    assert_eq!(up(&drain(&mut h, early)), 0);
    let sent = run(&mut h, ms(1_100));
    let times: Vec<_> = sent
        .iter()
        .filter(|(_, iface, ..)| *iface == UP)
        .map(|(at, ..)| *at)
        .collect();
    let expected: Vec<_> = (1..=14).map(|n| ms(1_000 + 2 * n)).collect();
    assert_eq!(times, expected);
    // One message each second, at the smallest rate.
    let slow = Config {
        messages_per_s: 1,
        ..config
    };
    let mut h = configured(slow, 4 * 64, 1);
    let sent = run(&mut h, ms(3_500));
    let times: Vec<_> = of_kind(&sent, Kind::Update)
        .iter()
        .map(|(at, ..)| *at)
        .collect();
    for pair in times.windows(2) {
        assert!(pair[1] - pair[0] >= Duration::from_millis(990), "{times:?}");
    }
    assert!(times.len() >= 3, "{times:?}");
}

#[test]
fn short_buffer_gets_fewer_entries() {
    for (len, entries) in [(60, 1), (75, 1), (76, 2), (1_067, 63), (1_068, 64)] {
        let mut h = configured(Config::default(), 100, 1);
        let mut buffer = vec![0; len];
        assert_eq!(h.poll_transmit(ms(2), &mut buffer[..59]), None);
        let transmit = h.poll_transmit(ms(2), &mut buffer).expect("one is due");
        assert_eq!(transmit.len, 44 + 16 * entries);
        let view = hier::View::<Ipv4Addr>::new_checked(&buffer[28..transmit.len]).unwrap();
        assert_eq!(view.entry_count(), entries);
    }
}

#[test]
fn messages_are_numbered_and_name_their_sender() {
    let mut boots = BTreeSet::new();
    for seed in 0..4 {
        let mut h = configured(Config::default(), 200, seed);
        let (mut numbers, mut counts) = (Vec::new(), [0, 0]);
        let mut buffer = [0; 1500];
        while numbers.len() < 40 {
            let now = h.poll_timeout().unwrap();
            h.handle_timeout(now);
            while let Some(transmit) = h.poll_transmit(now, &mut buffer) {
                let header = hier::View::<Ipv4Addr>::new_checked(&buffer[28..transmit.len])
                    .unwrap()
                    .header();
                assert_eq!(transmit.next_hop, NextHop::Group);
                assert_eq!(buffer[8], 1, "TTL");
                assert_eq!(buffer[12..16], host(transmit.iface.0, 1).octets());
                assert_eq!(buffer[16..20], hier::GROUP.octets());
                boots.insert(header.boot);
                numbers.push(header.sequence);
                counts[usize::from(header.kind == Kind::Elected)] += 1;
            }
        }
        let first = numbers[0];
        let expected: Vec<_> = (0..numbers.len() as u32).map(|n| first + n).collect();
        assert_eq!(numbers, expected);
        assert_eq!([h.stats().updates_sent, h.stats().elected_sent], counts);
        assert!(counts.iter().all(|&count| count > 10), "{counts:?}");
    }
    assert_eq!(boots.len(), 4, "each machine has a boot number of its own");
}

/// A link with offers learns at each refresh that the elected neighbour is on another link.
#[test]
fn link_that_lost_the_election_is_told_so_at_each_refresh() {
    let mut h = hierarchy(Config::default(), CAPACITY);
    h.install(ms(0), group(1), UP).unwrap();
    for (iface, cost) in [(1, 9), (2, 3)] {
        h.set_replier(
            ms(0),
            group(1),
            Iface(iface),
            host(iface, 5),
            None,
            Cost(cost),
        )
        .unwrap();
    }
    let sent = run(&mut h, ms(50_000));
    let mut values = BTreeMap::new();
    for (_, iface, _, entries) in sent.iter().filter(|(at, ..)| *at > ms(1_000)) {
        let told = values.entry(*iface).or_insert_with(Vec::new);
        told.push((entries[0].neighbour, entries[0].cost));
    }
    let [up, lost, won] = [UP, Iface(1), Iface(2)].map(|iface| &values[&iface]);
    assert!(up.len() >= 5 && up.iter().all(|v| *v == (None, Cost(4))));
    assert!(lost.len() >= 5 && lost.iter().all(|v| *v == (None, Cost::WITHDRAWN)));
    assert!(won.len() >= 5 && won.iter().all(|v| *v == (Some(host(2, 5)), Cost(3))));
}

/// A link that lost the election hears three withdrawals once its last offer has gone, and none before.
#[test]
fn link_that_lost_the_election_is_let_go_with_its_last_offer() {
    let mut h = hierarchy(Config::default(), CAPACITY);
    h.install(ms(0), group(1), UP).unwrap();
    say(&mut h, ms(0), 1, 7, 1, 3);
    say(&mut h, ms(0), 2, 7, 1, 5);
    say(&mut h, ms(0), 2, 8, 1, 6);
    run(&mut h, ms(1_000));
    say(&mut h, ms(1_000), 2, 8, 1, 0xffff);
    assert_eq!(run(&mut h, ms(1_100)), [], "another offer is left");
    say(&mut h, ms(1_100), 2, 7, 1, 0xffff);
    let told = |at| (ms(at), Iface(2), vec![(1, 0xffff)]);
    let sent = run(&mut h, ms(5_000));
    assert_eq!(sent.len(), 3, "nobody else is concerned");
    assert_eq!(
        of_kind(&sent, Kind::Elected),
        [told(1_102), told(1_204), told(1_306)]
    );
}

/// The parent learns of another replier only where the cost is another one; the links learn in any case.
#[test]
fn parent_hears_of_costs_the_links_of_neighbours() {
    let mut h = hierarchy(Config::default(), CAPACITY);
    h.install(ms(0), group(1), UP).unwrap();
    say(&mut h, ms(0), 1, 7, 1, 5);
    say(&mut h, ms(0), 2, 7, 1, 5);
    say(&mut h, ms(0), 3, 7, 1, 9);
    run(&mut h, ms(500));
    say(&mut h, ms(500), 1, 7, 1, 0xffff);
    let sent = run(&mut h, ms(550));
    assert_eq!(of_kind(&sent, Kind::Update), []);
    let told: BTreeMap<_, _> = sent
        .iter()
        .map(|(_, iface, _, entries)| (*iface, entries[0].neighbour))
        .collect();
    assert_eq!(
        told,
        BTreeMap::from([(Iface(1), None), (Iface(2), Some(host(2, 7)))]),
        "the third link is not concerned"
    );
    // A neighbour that is not elected changes its cost: nobody needs to know.
    run(&mut h, ms(1_000));
    say(&mut h, ms(1_000), 3, 7, 1, 8);
    assert_eq!(run(&mut h, ms(1_050)), []);
    // A new one is told who is elected, though nothing has changed.
    say(&mut h, ms(2_000), 3, 8, 1, 7);
    let sent = run(&mut h, ms(2_050));
    assert_eq!(times(&sent, Iface(3), 1), [ms(2_002)]);
    assert_eq!(sent.len(), 1);
}

#[test]
fn withdrawals_are_one_damping_time_apart_and_end_when_the_offer_returns() {
    let mut h = hierarchy(Config::default(), CAPACITY);
    h.install(ms(0), group(1), UP).unwrap();
    say(&mut h, ms(0), 1, 7, 1, 3);
    run(&mut h, ms(1_000));
    say(&mut h, ms(1_000), 1, 7, 1, 0xffff);
    let sent = run(&mut h, ms(5_000));
    let expected = [ms(1_002), ms(1_104), ms(1_206)];
    for iface in [UP, Iface(1)] {
        assert_eq!(times(&sent, iface, 1), expected);
    }
    assert!(
        sent.iter()
            .all(|(.., entries)| entries[0].cost == Cost::WITHDRAWN)
    );
    // What is not offered is not withdrawn again.
    say(&mut h, ms(5_000), 1, 7, 1, 0xffff);
    assert_eq!(run(&mut h, ms(6_000)), []);

    // The offer returns after the first withdrawal; the next withdrawal is sent three times again.
    say(&mut h, ms(10_000), 1, 7, 1, 3);
    run(&mut h, ms(11_000));
    say(&mut h, ms(11_000), 1, 7, 1, 0xffff);
    run(&mut h, ms(11_050));
    say(&mut h, ms(11_050), 1, 7, 1, 4);
    let sent = run(&mut h, ms(12_000));
    assert_eq!(
        of_kind(&sent, Kind::Update),
        [(ms(11_104), UP, vec![(1, 5)])]
    );
    say(&mut h, ms(12_000), 1, 7, 1, 0xffff);
    let sent = run(&mut h, ms(20_000));
    for iface in [UP, Iface(1)] {
        assert_eq!(times(&sent, iface, 1).len(), 3);
    }
    assert_eq!(h.poll_timeout(), None);
}

#[test]
fn driver_sleeps_until_the_next_withdrawal_may_be_sent() {
    let mut h = hierarchy(Config::default(), CAPACITY);
    h.install(ms(0), group(1), UP).unwrap();
    say(&mut h, ms(0), 1, 7, 1, 3);
    run(&mut h, ms(1_000));
    say(&mut h, ms(1_000), 1, 7, 1, 0xffff);
    assert_eq!(drain(&mut h, ms(1_002)).len(), 2);
    assert_eq!(h.poll_timeout(), Some(ms(1_102)));
}

/// The parent hears the cost of the new replier, and both links who is elected.
#[test]
fn removed_downstream_link_hears_the_withdrawal() {
    let mut h = hierarchy(Config::default(), CAPACITY);
    h.install(ms(0), group(1), UP).unwrap();
    say(&mut h, ms(0), 1, 7, 1, 3);
    say(&mut h, ms(0), 2, 7, 1, 5);
    run(&mut h, ms(1_000));
    h.remove_downstream(ms(1_000), group(1), Iface(1));
    let sent = run(&mut h, ms(1_010));
    assert_eq!(
        of_kind(&sent, Kind::Update),
        [(ms(1_002), UP, vec![(1, 6)])]
    );
    assert_eq!(times(&sent, Iface(1), 1), [ms(1_002)]);
    assert_eq!(times(&sent, Iface(2), 1), [ms(1_002)]);
    assert_eq!(
        (elected(&h, group(1)), h.offer_count()),
        (Some((host(2, 7), 5)), 1)
    );
    // Another interface, another entry: nothing to remove.
    h.remove_downstream(ms(1_020), group(1), Iface(3));
    h.remove_downstream(ms(1_020), group(2), Iface(2));
    assert_eq!(h.offer_count(), 1);
}

/// More neighbours on the interface than one look at the heap collects.
#[test]
fn removed_downstream_link_takes_all_of_its_offers() {
    let capacity = Capacity {
        peers: 256,
        ..CAPACITY
    };
    let mut h = hierarchy(Config::default(), capacity);
    h.install(ms(0), group(1), UP).unwrap();
    for n in 2..202 {
        say(&mut h, ms(0), 1, n, 1, u16::from(n));
    }
    for n in 2..32 {
        say(&mut h, ms(0), 2, n, 1, 100 + u16::from(n));
    }
    h.remove_downstream(ms(0), group(1), Iface(1));
    assert_eq!(h.offer_count(), 30);
    assert_eq!(elected(&h, group(1)), Some((host(2, 2), 102)));
    let on: BTreeSet<_> = h
        .offers(h.find(group(1)).unwrap())
        .map(|offer| offer.iface)
        .collect();
    assert_eq!(on, BTreeSet::from([Iface(2)]));
}

#[test]
fn old_parent_hears_three_withdrawals_and_its_advert_is_free_then() {
    // One advert for the parent, one for the link of the offer, one for an old parent.
    let capacity = Capacity {
        entries: 1,
        branches: 2,
        ..CAPACITY
    };
    let mut h = hierarchy(Config::default(), capacity);
    h.install(ms(0), group(1), UP).unwrap();
    say(&mut h, ms(0), 1, 7, 1, 3);
    run(&mut h, ms(1_000));
    h.install(ms(1_000), group(1), Iface(3)).unwrap();
    assert!(h.install(ms(1_050), group(1), Iface(2)).is_err());
    let sent = run(&mut h, ms(8_000));
    assert_eq!(times(&sent, UP, 1), [ms(1_002), ms(1_104), ms(1_206)]);
    assert_eq!(times(&sent, Iface(3), 1), [ms(1_002)]);
    let id = h.install(ms(8_000), group(1), Iface(2)).unwrap();
    assert_eq!(h.find(group(1)), Some(id));
    assert_eq!(elected(&h, group(1)), Some((host(1, 7), 3)));
    // The same parent again: its advert is repeated, and nothing else.
    run(&mut h, ms(9_000));
    h.install(ms(9_100), group(1), Iface(2)).unwrap();
    let sent = run(&mut h, ms(9_200));
    assert_eq!(
        of_kind(&sent, Kind::Update),
        [(ms(9_102), Iface(2), vec![(1, 4)])]
    );
}

#[test]
fn another_configuration_is_advertised_at_once() {
    let mut h = configured(Config::default(), 3, 1);
    // An entry without offers has nothing to say.
    h.set_replier(ms(0), group(2), Iface(1), host(1, 5), None, Cost::WITHDRAWN)
        .unwrap();
    run(&mut h, ms(5_000));
    let config = Config {
        refresh: Duration::from_secs(2),
        own_cost: 10,
        ..Config::default()
    };
    h.set_config(ms(5_000), config);
    assert_eq!(h.config(), &config);
    let sent = run(&mut h, ms(6_000));
    assert_eq!(
        of_kind(&sent, Kind::Update),
        [(ms(5_002), UP, vec![(0, 12), (1, 12)])]
    );
    assert_eq!(
        of_kind(&sent, Kind::Elected),
        [(ms(5_002), Iface(1), vec![(0, 2), (1, 2)])]
    );
    assert!(
        sent.iter()
            .all(|(_, _, header, _)| header.hold_time_ms == 7_000)
    );
    let sent = run(&mut h, ms(16_000));
    assert!(times(&sent, UP, 1).len() >= 5, "the new refresh time");
}
