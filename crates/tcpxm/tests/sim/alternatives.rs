//! Groups that receivers propose instead of the sender's, and random groups.

use std::net::IpAddr;

use crate::common::config;
use crate::group::{assert_delivered, closed, group, group_net, lan, modes_of, receivers, start};
use tcpxm::{Event, GroupChoice, GroupPolicy, Mode, Prefix};

#[test]
fn an_alternative_group_is_served() {
    let len = 1_000_000;
    let other: IpAddr = "239.195.7.7".parse().unwrap();
    let mut list = receivers(3, lan());
    list[0].0.groups = GroupPolicy::Propose(other);
    list[1].0.groups = GroupPolicy::Propose(other);
    let mut net = group_net(1, (config(), lan()), list);
    let mut config = group(3);
    config.group = GroupChoice::Given("239.195.1.1".parse().unwrap());
    config.max_alternatives = 1;
    start(&mut net, &config, len);
    assert!(net.run(60, closed));
    assert_delivered(&net, 1..=3, len, "alternative");
    assert_eq!(modes_of(net.host(0)), [Mode::Multicast; 3]);
    let joins = |number: usize| -> Vec<IpAddr> {
        let events = net.host(number).events.iter();
        events
            .filter_map(|event| match event {
                Event::Join { group, .. } => Some(*group),
                _ => None,
            })
            .collect()
    };
    assert_eq!(joins(1), [other]);
    assert_eq!(joins(3), ["239.195.1.1".parse::<IpAddr>().unwrap()]);
    assert!(net.host(1).joined.is_empty(), "left at the end");
}

/// What a receiver answers with does not decide where a sender multicasts to.
#[test]
fn a_group_that_the_sender_did_not_offer_gets_nothing_unless_it_is_allowed() {
    let len = 300_000;
    // Proposed, number allowed, ranges if not the default ones, whether it is served.
    let own = Prefix {
        address: "224.2.0.0".parse().unwrap(),
        len: 16,
    };
    let cases: [(&str, usize, Option<Prefix>, bool); 6] = [
        ("239.195.7.7", 0, None, false),
        ("239.195.7.7", 1, None, true),
        ("232.1.2.3", 1, None, true),
        ("224.2.7.7", 1, None, false),
        ("224.2.7.7", 1, Some(own), true),
        ("239.195.7.7", 1, Some(own), false),
    ];
    for (proposed, max_alternatives, ranges, served) in cases {
        let mut list = receivers(2, lan());
        list[0].0.groups = GroupPolicy::Propose(proposed.parse().unwrap());
        let mut net = group_net(1, (config(), lan()), list);
        let mut wanted = group(2);
        wanted.group = GroupChoice::Given("239.195.1.1".parse().unwrap());
        if max_alternatives > 0 {
            wanted.max_alternatives = max_alternatives;
        }
        if let Some(range) = ranges {
            wanted.alternative_ranges = vec![range];
        }
        start(&mut net, &wanted, len);
        assert!(net.run(60, closed), "{proposed}");
        assert_delivered(&net, 1..=2, len, proposed);
        let modes = modes_of(net.host(0));
        let by_unicast = modes.contains(&Mode::UnicastGroupOnly);
        assert_eq!(by_unicast, !served, "{proposed} {ranges:?}: {modes:?}");
        let groups = net.switch(|switch| switch.groups.clone());
        let sent_there = groups.contains(&proposed.parse().unwrap());
        assert_eq!(sent_there, served, "{proposed}: {groups:?}");
        let refused = net.host(0).endpoint.stats().alternatives_refused;
        assert_eq!(refused, u64::from(!served), "{proposed}");
    }
}

#[test]
fn an_alternative_too_many_is_served_by_unicast() {
    let len = 300_000;
    let mut list = receivers(2, lan());
    list[0].0.groups = GroupPolicy::Propose("239.195.7.7".parse().unwrap());
    let mut net = group_net(1, (config(), lan()), list);
    let mut wanted = group(2);
    wanted.max_alternatives = 0;
    start(&mut net, &wanted, len);
    assert!(net.run(60, closed));
    assert_delivered(&net, 1..=2, len, "too many");
    assert!(modes_of(net.host(0)).contains(&Mode::UnicastGroupOnly));
}

#[test]
fn random_groups_come_from_their_ranges() {
    for seed in 0..50 {
        let mut net = group_net(seed, (config(), lan()), receivers(1, lan()));
        let choice = if seed % 2 == 0 {
            GroupChoice::Random
        } else {
            GroupChoice::RandomSourceSpecific
        };
        let mut wanted = group(1);
        wanted.group = choice;
        start(&mut net, &wanted, 100);
        let host = net.host(0);
        let Some(IpAddr::V4(address)) = host.endpoint.group_address(host.group.unwrap()).unwrap()
        else {
            panic!("an IPv4 group");
        };
        let [a, b, ..] = address.octets();
        assert!(
            if seed % 2 == 0 {
                a == 239 && (192..196).contains(&b)
            } else {
                a == 232 && b > 0
            },
            "{address}"
        );
    }
}

#[test]
fn a_prefix_holds_the_addresses_of_its_family_that_begin_with_it() {
    let prefix = |address: &str, len| Prefix {
        address: address.parse().unwrap(),
        len,
    };
    let holds = |prefix: Prefix, address: &str| prefix.contains(address.parse().unwrap());
    assert!(holds(prefix("239.1.2.3", 8), "239.255.0.1"));
    assert!(!holds(prefix("239.0.0.0", 8), "238.255.255.255"));
    assert!(holds(prefix("239.1.2.3", 32), "239.1.2.3"));
    assert!(!holds(prefix("239.1.2.3", 33), "239.1.2.3"));
    assert!(holds(prefix("0.0.0.0", 0), "255.1.2.3"));
    assert!(!holds(prefix("0.0.0.0", 0), "ff05::1"));
    assert!(holds(prefix("ff05::", 16), "ff05::1"));
    assert!(!holds(prefix("ff05::", 16), "ff15::1"));
}
